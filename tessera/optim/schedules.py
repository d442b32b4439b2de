"""Learning rates as functions of the step count: numbers and scalar tensors in, scalars of f32 out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.api.eager import install
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_callables, check_int, check_number, check_sequence
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast
from tessera.optim.transforms import Schedule
from tessera.types.dtype import f32

install()


def _count(step: Any) -> Any:
    return cast(as_tensor(step), f32)


def _fraction(step: Any, steps: int) -> Any:
    """How much of `steps` is over, from 0 to 1."""
    return ops.clamp(_count(step) * (1.0 / steps), 0.0, 1.0)


def _length(name: str, what: str, steps: Any, least: int = 1) -> int:
    number = check_int(name, what, steps)
    if number < least:
        raise ArgumentError(
            f"`{name}` takes `{what}` as at least {least}, got {number}", fix=f"give `{what}` in optimizer steps"
        )
    return number


def constant(value: float) -> Schedule:
    """The same learning rate at every step.

    >>> ts.optim.constant(0.5)(7)
    Tensor([] f32, 0.5)
    """
    number = float(check_number("constant", "value", value))
    return lambda step: ops.full((), number, f32)


def linear(start: float, end: float, steps: int) -> Schedule:
    """From `start` to `end` on a straight line of `steps` steps, and `end` from then on.

    >>> rate = ts.optim.linear(1.0, 0.0, steps=4)
    >>> [float(rate(step)) for step in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    first, last = (float(check_number("linear", name, one)) for name, one in (("start", start), ("end", end)))
    length = _length("linear", "steps", steps)

    def rate(step: Any) -> Any:
        over = _fraction(step, length)
        return first * (1.0 - over) + last * over

    return rate


def cosine(start: float, steps: int, *, end: float = 0.0) -> Schedule:
    """From `start` to `end` along half a cosine of `steps` steps, and `end` from then on.

    >>> rate = ts.optim.cosine(1.0, steps=4)
    >>> [round(float(rate(step)), 6) for step in (0, 2, 4, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    first, last = (float(check_number("cosine", name, one)) for name, one in (("start", start), ("end", end)))
    length = _length("cosine", "steps", steps)

    def rate(step: Any) -> Any:
        return last + (first - last) * 0.5 * (1.0 + ops.cos(_fraction(step, length) * math.pi))

    return rate


def exponential(start: float, *, decay: float, steps: int, staircase: bool = False, end: float = 0.0) -> Schedule:
    """`start` times `decay` for every `steps` steps, continuously or in steps (`staircase`); `end` at least.

    >>> rate = ts.optim.exponential(8.0, decay=0.5, steps=2, staircase=True)
    >>> [float(rate(step)) for step in range(5)]
    [8.0, 8.0, 4.0, 4.0, 2.0]
    """
    first, factor, least = (
        float(check_number("exponential", name, one))
        for name, one in (("start", start), ("decay", decay), ("end", end))
    )
    length = _length("exponential", "steps", steps)
    if not 0.0 < factor <= 1.0:
        raise ArgumentError(
            f"`exponential` takes `decay` as a number above 0, and 1 at most, got {decay!r}", fix="change `decay`"
        )

    def rate(step: Any) -> Any:
        over = _count(step) * (1.0 / length)
        over = ops.floor(_count(step) / float(length)) if staircase else over
        return ops.maximum(first * ops.exp2(over * math.log2(factor)), least)

    return rate


def piecewise(start: float, factors: Mapping[int, float]) -> Schedule:
    """`start`, multiplied by a factor from each of some steps on.

    >>> rate = ts.optim.piecewise(1.0, {2: 0.5, 4: 0.1})
    >>> [round(float(rate(step)), 6) for step in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.05, 0.05]
    """
    first = float(check_number("piecewise", "start", start))
    steps = {_length("piecewise", "factors", step, least=0): factor for step, factor in factors.items()}
    numbers = {step: float(check_number("piecewise", "factors", factor)) for step, factor in steps.items()}

    def rate(step: Any) -> Any:
        count, found = as_tensor(step), ops.full((), first, f32)
        for boundary, factor in sorted(numbers.items()):
            found = found * ops.where(ops.ge(count, boundary), factor, 1.0).cast(f32)
        return found

    return rate


def join(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """One schedule after another: the second from the first boundary on, and so forth, each counting from its own.

    >>> rate = ts.optim.join([ts.optim.constant(0.5), ts.optim.linear(1.0, 0.0, 4)], [2])
    >>> [float(rate(step)) for step in range(5)]
    [0.5, 0.5, 1.0, 0.75, 0.5]
    """
    parts: list[Callable[[Any], Any]] = list(check_sequence("join", "schedules", schedules))
    for part in parts:
        check_callables("join", schedules=part)
    starts = [_length("join", "boundaries", one) for one in check_sequence("join", "boundaries", boundaries)]
    if len(starts) != len(parts) - 1 or starts != sorted(set(starts)):
        raise ArgumentError(
            f"`join` takes {len(parts)} schedules with {len(parts) - 1} rising boundaries between them, got {starts}",
            fix="give the step at which each schedule but the first begins",
        )

    def rate(step: Any) -> Any:
        count = as_tensor(step)
        found = parts[0](count)
        for part, start in zip(parts[1:], starts, strict=True):
            found = ops.where(ops.ge(count, start), part(ops.maximum(count - start, 0)), found)
        return found

    return rate


def warmup_cosine(peak: float, *, warmup: int, steps: int, start: float = 0.0, end: float = 0.0) -> Schedule:
    """From `start` to `peak` in `warmup` steps on a line, then to `end` along half a cosine, at step `steps`.

    >>> rate = ts.optim.warmup_cosine(1.0, warmup=4, steps=12)
    >>> [round(float(rate(step)), 6) for step in (0, 2, 4, 8, 12)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    rising, whole = _length("warmup_cosine", "warmup", warmup, least=0), _length("warmup_cosine", "steps", steps)
    if rising >= whole:
        raise ArgumentError(
            f"`warmup_cosine` ends at step {whole}, and its warmup of {rising} steps is no shorter",
            fix="give `steps` as those of the whole run, warmup included",
        )
    falling = cosine(peak, whole - rising, end=end)
    return join([linear(start, peak, rising), falling], [rising]) if rising else falling
