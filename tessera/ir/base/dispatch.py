"""The hook every op call goes through (a trace, or the eager runner), and user kernels by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

# Kernels that users wrote, by name: what an op that calls one asks for, without knowing who wrote it or how.


@frozen
class Outcome:
    """What a kernel gives for operands of some types: its results, and dims that must then be equal."""

    results: tuple[TensorType, ...]
    equalities: tuple[tuple[Dim, Dim, str], ...]


class UserKernel(Protocol):
    """A kernel with its static arguments and its schedule."""

    def outcome(self, types: Sequence[TensorType]) -> Outcome:
        """The shape rule."""
        ...

    def reference(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """The meaning, on NumPy arrays."""
        ...

    def write(self, call: Any) -> list[Any]:
        """The tile kernels of a call, in the order they run."""
        ...

    def unpadded_program(self, types: Sequence[TensorType]) -> Any:
        """What one program does on tiles, as records."""
        ...

    @property
    def location(self) -> str:
        """Where it was written: a file and a line."""
        ...

    @property
    def given_schedule(self) -> dict[str, Any]:
        """What its author chose of its schedule, by name; empty where nothing."""
        ...


KERNELS: dict[str, UserKernel] = {}
"""Every kernel that a program of this process calls, by name and digest."""


def register(name: str, kernel: UserKernel) -> None:
    """Let programs call a kernel by a name, which says what it computes."""
    KERNELS[name] = kernel


class Recorder(Protocol):
    """A trace being made."""

    def record(self, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Put an op on the tape and return tracers for its results: one, or a tuple when the op has several."""
        ...


Runner: TypeAlias = Callable[[str, Sequence[Any], Mapping[str, Any]], Any]


class _Traces(threading.local):
    """The traces of this thread, innermost last; and who watches an eager call, if anybody does."""

    def __init__(self) -> None:
        self.stack: list[Recorder] = []
        self.watch: Any = None


TRACES = _Traces()
_RUNNER: list[Runner] = []


def install(runner: Runner) -> None:
    """Make `runner` the one that runs ops called outside a trace."""
    _RUNNER[:] = [runner]


DeviceRunner: TypeAlias = Callable[[Any, str, Sequence[Any], Mapping[str, Any]], Any]
_DEVICE_RUNNER: list[DeviceRunner] = []


def install_on_device(runner: DeviceRunner) -> None:
    """Make `runner` the one that runs ops called outside a trace on a device that is named."""
    _DEVICE_RUNNER[:] = [runner]


def apply_at(device: Any, op: str, operands: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """The result of an op run eagerly, on a device or, where that is None, on the default one."""
    if device is None:
        return apply(op, operands, attributes)
    return _DEVICE_RUNNER[0](device, op, operands, attributes or {})


def active() -> Recorder | None:
    """The innermost trace of this thread, or None outside `jit`."""
    stack = TRACES.stack
    return stack[-1] if stack else None


def tracing() -> Recorder | None:
    """The innermost trace of this thread, past scopes that only say how ops run eagerly."""
    stack = TRACES.stack
    if not stack:
        return None
    return next((recorder for recorder in reversed(stack) if not getattr(recorder, "is_scope", False)), None)


def is_open(recorder: object) -> bool:
    """Whether a trace of this thread is still being made."""
    return any(trace is recorder for trace in TRACES.stack)


@contextmanager
def record_on(recorder: Recorder) -> Generator[None]:
    """Within it, ops called in this thread go onto `recorder`."""
    TRACES.stack.append(recorder)
    try:
        yield
    finally:
        TRACES.stack.pop()


@contextmanager
def suspend_traces() -> Generator[None]:
    """Within it, ops run eagerly even inside a trace: for what the compiler itself computes."""
    stack, TRACES.stack = TRACES.stack, []
    try:
        yield
    finally:
        TRACES.stack = stack


def apply(op: str, operands: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """The result of an op: a tracer inside a trace, a tensor otherwise."""
    stack = TRACES.stack
    if stack:
        return stack[-1].record(op, operands, attributes or {})
    assert _RUNNER, "no eager runner for ops is installed; `import tessera.ops` installs one"
    return _RUNNER[0](op, operands, attributes or {})
