"""Watching streams of a CUDA device for races: while somebody does, every launch and copy is written down first.

The host program calls functions of the driver by their addresses. While its streams are watched it is given others,
which write down the bytes that a call touches and then call the driver; a race is reported instead of launched.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from tessera.runtime.devices.cuda import streams
from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.streams import CURRENT
from tessera.runtime.timeline import WATCH, Bytes, Entry, HostWait, Launch, LaunchLog, Signal, Wait, notify
from tessera.types.dim import Dim, parse_dim
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.runtime.devices.cuda.memory import FreeList
    from tessera.runtime.devices.cuda.tensor import CudaTensor


Run: TypeAlias = Callable[[Callable[[str], int]], int]
"""Runs an entry with the addresses of functions, by their names."""

_WORDS = {
    "cuLaunchKernel": 11,
    "cuMemcpyDtoDAsync_v2": 4,
    "cuMemcpyDtoHAsync_v2": 4,
    "cuMemcpyHtoDAsync_v2": 4,
    "cuStreamSynchronize": 1,
    "cuMemsetD32Async": 4,
    "cuEventRecord": 2,
    "cuStreamWaitEvent": 3,
}
"""How many words each watched function takes; all of them fit registers or whole slots of the stack."""
_STOPPED = 1
"""What a function answers in place of the driver when it has found a race: the host program ends there."""


@frozen
class Watched:
    """What a kernel touches: whether it reads, writes (or both) each buffer, of how many bytes, by its own sizes."""

    name: str
    maps: int
    buffers: tuple[tuple[str, Dim], ...]
    symbols: tuple[str, ...]
    has_scratch: bool
    rows: int = 0
    """How many calls one launch computes at most, where it computes several: a table of them is its first parameter."""

    @staticmethod
    def of(fact: Mapping[str, Any], touched: Mapping[str, Any]) -> Watched:
        """From what an executable says of a kernel."""
        buffers = tuple((mode, parse_dim(size)) for mode, size in touched["buffers"])
        return Watched(
            fact["name"], fact["maps"], buffers, tuple(touched["symbols"]), fact["scratch"], fact.get("rows", 0)
        )

    def launch(self, stream: int, parameters: int, workspace: Bytes, taken: tuple[Bytes, ...]) -> Launch:
        """One launch, from the parameters that the driver is given."""
        if self.rows:
            return self._launch_rows(stream, parameters, taken)
        count = self.maps + len(self.buffers) + len(self.symbols) + 1
        pointers = (ctypes.c_void_p * count).from_address(parameters)[self.maps :]
        words = [ctypes.c_uint64.from_address(pointer or 0).value for pointer in pointers]
        scalars = words[len(self.buffers) :]
        sizes = dict(zip(self.symbols, scalars, strict=False))
        spans = [(start, start + size.evaluate(sizes)) for start, (_, size) in zip(words, self.buffers, strict=False)]
        pairs = list(zip(spans, (mode for mode, _ in self.buffers), strict=True))
        writes = [span for span, mode in pairs if "w" in mode]
        if self.has_scratch:
            writes.append((scalars[len(self.symbols)], workspace[1]))
        return Launch(self.name, stream, tuple(span for span, mode in pairs if "r" in mode), tuple(writes), taken)

    def _launch_rows(self, stream: int, parameters: int, taken: tuple[Bytes, ...]) -> Launch:
        """One launch of several calls: the first block of each, up to a power of two, then their buffers and sizes."""
        firsts, width = 1 << (self.rows - 1).bit_length(), len(self.buffers) + len(self.symbols)
        table = ctypes.c_uint64 * (firsts + self.rows * width)
        words = list(table.from_address(ctypes.c_uint64.from_address(parameters).value))
        reads, writes = list[Bytes](), list[Bytes]()
        for row in range(sum(first < (1 << 63) - 1 for first in words[:firsts])):
            own = words[firsts + row * width : firsts + (row + 1) * width]
            sizes = dict(zip(self.symbols, own[len(self.buffers) :], strict=True))
            for start, (mode, size) in zip(own, self.buffers, strict=False):
                span = (start, start + size.evaluate(sizes))
                reads += [span] if "r" in mode else []
                writes += [span] if "w" in mode else []
        return Launch(self.name, stream, tuple(reads), tuple(writes), taken)


class Watcher:
    """What is in place of the driver's functions while streams are watched; one for each thread that watches."""

    def __init__(self) -> None:
        self.kernels: dict[int, Watched] = {}
        """By the handle that the driver knows them by."""
        self.workspace: Bytes = (0, 0)
        self.offloaded: Bytes = (0, 0)
        self.taken: tuple[Bytes, ...] = ()
        """Memory of the call that is being made: of its own, and what its results are put into."""
        self.raised: BaseException | None = None
        self._functions: dict[str, Any] = {}

    def address(self, name: str) -> int:
        """The address of what is called in place of a function; of the function itself where it touches nothing."""
        if name not in _WORDS:
            return driver().address(name)
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self._function(name)
        return ctypes.cast(found, ctypes.c_void_p).value or 0

    def _function(self, name: str) -> Any:
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * _WORDS[name])
        real = kind(driver().address(name))

        def instead(*given: int | None) -> int:
            words = [word or 0 for word in given]
            try:
                notify(self.entries(name, words))
            except BaseException as error:  # native code stands between here and who can catch it
                self.raised = self.raised or error
                return _STOPPED
            return real(*given)

        return kind(instead)

    def entries(self, name: str, words: Sequence[int]) -> list[Entry]:
        """What a call of the driver gives a stream to do."""
        if name == "cuLaunchKernel":
            kernel = self.kernels.get(words[0])
            return [] if kernel is None else [kernel.launch(words[8], words[9], self.workspace, self.taken)]
        if name == "cuMemcpyDtoDAsync_v2":
            target, source, size, stream = words
            return [Launch("a copy", stream, ((source, source + size),), ((target, target + size),), self.taken)]
        if name == "cuMemcpyDtoHAsync_v2":
            # Numbers that the host branches on are on its stack, and of this call alone.
            target = (words[0], words[0] + words[2])
            written = (target,) if self.offloaded[0] <= words[0] < self.offloaded[1] else ()
            return [Launch("a copy to the host", words[3], ((words[1], words[1] + words[2]),), written, self.taken)]
        if name == "cuMemcpyHtoDAsync_v2":
            target, source, size, stream = words
            spans = ((source, source + size),), ((target, target + size),)
            return [Launch("a copy from the host", stream, *spans, self.taken)]
        if name == "cuMemsetD32Async":
            return [Launch("an index", words[3], (), ((words[0], words[0] + 4 * words[2]),), self.taken)]
        if name == "cuEventRecord":
            return [Signal(words[0], words[1])]
        return [Wait(words[1], words[0])] if name == "cuStreamWaitEvent" else [HostWait(words[0])]

    def add_kernels(self, facts: Mapping[str, Any], words: Iterable[int]) -> None:
        """Know the kernels of an executable, whose handles `words` begin with."""
        self.kernels.update(watched_kernels(facts, words))

    def take_exception(self) -> BaseException | None:
        """What a function raised, once."""
        raised, self.raised = self.raised, None
        return raised


def watched_call(
    facts: Mapping[str, Any],
    words: Iterable[int],
    made: Sequence[CudaTensor],
    free_list: FreeList | None,
    own: int,
    run: Run,
    offloaded: Bytes = (0, 0),
) -> int:
    """Let an entry run with functions that write down what they are asked for; raises what they found.

    `words` begin with the handles of the kernels that `facts`, of the executable, name; `own` is where its workspace
    is, of the size of `free_list`, and `offloaded` is its pinned memory.
    """
    watcher = _WATCHERS[-1]
    watcher.offloaded = offloaded
    watcher.workspace = (own, own + (free_list.size if free_list is not None else 0))
    watcher.taken = (*((one.address, one.address + one.nbytes) for one in made), watcher.workspace)
    watcher.add_kernels(facts, words)
    code = run(watcher.address)
    raised = watcher.take_exception()
    if raised is not None:
        raise raised
    return code


def watched_kernels(facts: Mapping[str, Any], words: Iterable[int]) -> dict[int, Watched]:
    """What kernels touch, by their handles, as far as the executable says."""
    touched: Mapping[str, Any] = facts.get("accesses", {})
    kernels = {fact["name"]: fact for fact in facts["kernels"]}
    pairs = [(handle, kernels[name]) for handle, name in zip(words, facts["called"], strict=False)]
    return {
        handle: Watched.of(fact, touched[fact["like"]]) for handle, fact in pairs if fact.get("like", "") in touched
    }


_WATCHERS: list[Watcher] = []
"""Those of blocks that stand in one another; the last looks."""


@contextmanager
def race_check() -> Generator[LaunchLog]:
    """Watch everything that this thread puts into CUDA streams inside the block; the log of it is returned.

    Raises StreamRaceError (T0711) in place of a launch that shares bytes with unordered work of another stream. What
    was there before is waited for. Calls take some hundred microseconds more, and nothing more without such a block.
    What other libraries do on the device is not seen. A capture that is made inside is checked when it is replayed,
    kernel by kernel.
    """
    log = LaunchLog(streams.name_of)

    def note(entry: Entry) -> None:
        graph = CURRENT.capture
        if graph is not None:
            graph.entries.append(entry)
        else:
            log.add(entry, threading.get_ident())

    with watching(Watcher(), note):
        yield log


@contextmanager
def watching(watcher: Watcher, note: Callable[[Entry], None]) -> Generator[None]:
    """Inside it, calls of this thread go through the functions of a watcher, after all that was there before."""
    before, handle = WATCH.note, streams.current_stream()
    driver().call("cuCtxSynchronize")
    WATCH.note = note
    _WATCHERS.append(watcher)
    CURRENT.handle = streams.handle_of(handle)
    try:
        yield
    finally:
        _WATCHERS.pop()
        WATCH.note = before
        CURRENT.handle = streams.handle_of(handle)
