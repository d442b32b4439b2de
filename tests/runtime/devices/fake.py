"""A device that is as late as the contract allows: work waits in its stream until somebody has to see it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import DeviceError, LoadError, OutOfMemoryError

MEMORY = 64 << 20
COUNT = 2


class _Work:
    """One piece of work of a stream, with what must be done before."""

    def __init__(self, run: Callable[[], None] | None, before: Sequence[_Work]) -> None:
        self.run, self.before = run, tuple(before)

    def finish(self) -> None:
        before, self.before = self.before, ()
        for one in before:
            one.finish()
        run, self.run = self.run, None
        if run is not None:
            run()


class FakeDevice:
    """Host memory behind handles, and streams that run when they are waited for.

    Memory has no addresses, as on WebGPU: a handle is a number with nothing behind it that the host could read.
    """

    name = "fake"
    is_asynchronous = True
    has_addresses = False
    _all: dict[int, FakeDevice] = {}

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._memory: dict[int, Any] = {}
        self._last: dict[int, _Work] = {0: _Work(None, ())}
        self._next = 1
        self.pending = 0
        """Pieces of work that have not run."""

    def at(self, index: int) -> FakeDevice:
        if not 0 <= index < COUNT:
            raise DeviceError(f"there is no fake[{index}]; there are {COUNT}")
        return self if index == self.index else self._all.setdefault(index, FakeDevice(index))

    def architecture(self) -> str:
        return "fake-1"

    def features(self) -> tuple[str, ...]:
        return ("fake-1",)

    def allocate(self, size: int, stream: int = 0) -> int:
        if size + sum(map(ctypes.sizeof, self._memory.values())) > MEMORY:
            raise OutOfMemoryError(f"no memory for {size} bytes on fake:{self.index}")
        self._next += 1
        # What nobody has written has no meaning, so that a kernel that is early reads nonsense.
        self._memory[self._next] = ctypes.create_string_buffer(b"\xa5" * max(1, size), max(1, size))
        return self._next

    def free(self, address: int, stream: int = 0) -> None:
        self._give(stream, lambda: self._memory.pop(address) and None)

    def _give(self, stream: int, run: Callable[[], None], *others: _Work) -> None:
        def finish() -> None:
            self.pending -= 1
            run()

        self.pending += 1
        self._last[stream] = _Work(finish, (self._last[stream], *others))

    def copy_in(self, target: int, source: int, size: int, stream: int = 0) -> None:
        data = ctypes.string_at(source, size) if size else b""
        self._give(stream, lambda: self._put(target, data))

    def _put(self, target: int, data: bytes) -> None:
        ctypes.memmove(self._memory[target], data, len(data))

    def copy_out(self, target: int, source: int, size: int, stream: int = 0) -> None:
        self._last[stream].finish()
        ctypes.memmove(target, self._memory[source], size)

    def copy_within(self, target: int, source: int, size: int, stream: int = 0) -> None:
        self._give(stream, lambda: self._put(target, self._memory[source].raw[:size]))

    def load_kernel(self, code: bytes, name: str, shared: int = 0) -> Callable[..., None]:
        """Of the text of Python functions over buffers."""
        found: dict[str, Any] = {}
        exec(code, found)
        if name not in found:
            raise LoadError(f"the code has no kernel `{name}`", span=None)
        return found[name]

    def launch(
        self,
        kernel: Callable[..., None],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
        stream: int = 0,
    ) -> None:
        self._give(stream, lambda: kernel(self._memory, *arguments))

    def create_stream(self) -> int:
        self._next += 1
        self._last[self._next] = _Work(None, ())
        return self._next

    def wait(self, stream: int, other: int) -> None:
        self._give(stream, lambda: None, self._last[other])

    def synchronize(self, stream: int | None = None) -> None:
        for one in [stream] if stream is not None else list(self._last):
            self._last[one].finish()

    def load(self, executable: Any, functions: Sequence[Any] = ()) -> Any:
        raise LoadError("a fake device has no compiler", span=None)
