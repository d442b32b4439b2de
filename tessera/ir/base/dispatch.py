"""The hook every op call goes through: onto the active trace, or, without one, to the eager runner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias


class Recorder(Protocol):
    """A trace being made."""

    def record(self, op: str, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Put an op on the tape and return tracers for its results: one, or a tuple when the op has several."""
        ...


Runner: TypeAlias = Callable[[str, Sequence[Any], Mapping[str, Any]], Any]


class _Traces(threading.local):
    """The traces of this thread, innermost last."""

    def __init__(self) -> None:
        self.stack: list[Recorder] = []


_TRACES = _Traces()
_RUNNER: list[Runner] = []


def install(runner: Runner) -> None:
    """Make `runner` the one that runs ops called outside a trace."""
    _RUNNER[:] = [runner]


PlacedRunner: TypeAlias = Callable[[Any, str, Sequence[Any], Mapping[str, Any]], Any]
_PLACED: list[PlacedRunner] = []


def install_placed(runner: PlacedRunner) -> None:
    """Make `runner` the one that runs ops called outside a trace on a device that is named."""
    _PLACED[:] = [runner]


def apply_at(place: Any, op: str, operands: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """The result of an op run eagerly, on a device or, where that is None, on the default one."""
    return apply(op, operands, attributes) if place is None else _PLACED[0](place, op, operands, attributes or {})


def active() -> Recorder | None:
    """The innermost trace of this thread, or None outside `jit`."""
    stack = _TRACES.stack
    return stack[-1] if stack else None


def tracing() -> Recorder | None:
    """The innermost trace of this thread, past scopes that only say how ops run eagerly."""
    return next((recorder for recorder in reversed(_TRACES.stack) if not getattr(recorder, "is_scope", False)), None)


def is_open(recorder: object) -> bool:
    """Whether a trace of this thread is still being made."""
    return any(trace is recorder for trace in _TRACES.stack)


@contextmanager
def recording(recorder: Recorder) -> Generator[None]:
    """Within it, ops called in this thread go onto `recorder`."""
    _TRACES.stack.append(recorder)
    try:
        yield
    finally:
        _TRACES.stack.pop()


@contextmanager
def suspended() -> Generator[None]:
    """Within it, ops run eagerly even inside a trace: for what the compiler itself computes."""
    stack, _TRACES.stack = _TRACES.stack, []
    try:
        yield
    finally:
        _TRACES.stack = stack


def apply(op: str, operands: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> Any:
    """The result of an op: a tracer inside a trace, a tensor otherwise."""
    stack = _TRACES.stack
    if stack:
        return stack[-1].record(op, operands, attributes or {})
    assert _RUNNER, "no eager runner for ops is installed; `import tessera.ops` installs one"
    return _RUNNER[0](op, operands, attributes or {})
