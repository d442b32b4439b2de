"""How the operands and arguments of a function are drawn: shapes, axes, values; or laid out on a grid of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from benchmarks.drawn.program import Builder, Values
from benchmarks.drawn.sizes import Limits, Rng, draw_choice, draw_sizes
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.types.dtype import DType
from tests.numerics.forms import numbers

RANKS = {1: 1, 2: 4, 3: 2, 4: 1}
TRANSPOSED, MISSING = 1 / 6, 0.1
"""How often an operand is stored with two of its axes the other way round, and how much of one with gaps is NaN."""

Sizes: TypeAlias = "Mapping[str, int]"


@dataclass
class Drawing:
    """One call of a function as it is put together, all of it at random."""

    rng: Rng
    builder: Builder
    dtype: DType
    limits: Limits
    inputs: list[str] = field(default_factory=list[str])

    def sizes(self, elements: Callable[[Sizes], float], **least: int) -> dict[str, int]:
        """Sizes of dims, multiples of the least they may be, so that a call touches about so many elements."""
        return draw_sizes(self.rng, [least], lambda one: self.dtype.bits / 8 * elements(one), self.limits)

    def rank(self, least: int = 1) -> int:
        """How many dims there are."""
        return int(draw_choice(self.rng, {rank: weight for rank, weight in RANKS.items() if rank >= least}))

    def choose(self, *options: Any) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def is_transposed(self) -> bool:
        """Whether the next operand is stored so."""
        return bool(self.rng.random() < TRANSPOSED)

    def shape(self, rank: int, copies: float = 2.0, multiple: int = 1) -> tuple[int, ...]:
        """A shape of a rank, of which so many copies are operands and results; its last size is a multiple."""
        names = [f"d{at}" for at in range(rank)]
        least = {name: multiple if name == names[-1] else 1 for name in names}
        found = self.sizes(lambda one: copies * math.prod(one.values()), **least)
        return tuple(found[name] for name in names)

    def axis(self, rank: int) -> int:
        """One of so many axes, half of the time the last one."""
        return self.choose(rank - 1, int(self.rng.integers(rank)))

    def operand(self, shape: Sequence[int], values: Values = numbers, dtype: str = "") -> None:
        """One more operand."""
        name = dtype or self.dtype.name
        if len(shape) < 2 or not self.is_transposed():
            self.inputs.append(self.builder.argument(shape, name, values))
            return
        order = list(range(len(shape)))
        first = int(self.rng.integers(len(shape) - 1))
        order[first], order[-1] = order[-1], order[first]
        stored = self.builder.argument([shape[axis] for axis in order], name, values)
        self.inputs.append(self.builder.do("transpose", stored, axes=tuple(order)))


@dataclass
class Placing(Drawing):
    """One call of a grid: sizes fill the bytes that are allowed, and turns choose among options."""

    style: str = "balanced"
    turn: int = 0
    transposed: bool = False
    skew: int = 256

    def sizes(self, elements: Callable[[Sizes], float], **least: int) -> dict[str, int]:
        names = list(least)
        skewed = {"wide": names[-1], "tall": names[0]}.get(self.style) if len(names) > 1 else ""

        def at(number: int) -> dict[str, int]:
            grown = {name: number * (self.skew if name == skewed else 1) for name in names}
            odd = 1 if self.style == "odd" else 0
            return {name: unit * max(1, grown[name] // unit | odd) for name, unit in least.items()}

        def is_allowed(number: int) -> bool:
            return self.dtype.bits / 8 * elements(at(number)) <= self.limits.bytes

        high = 1
        while high < 1 << 34 and is_allowed(2 * high):
            high *= 2
        low = high
        for _ in range(12):
            middle, high = low + high // 2, high // 2
            low = middle if high and is_allowed(middle) else low
        return at(low // 32 * 32 if low >= 64 and self.style != "odd" else low)

    def rank(self, least: int = 1) -> int:
        return max(2, least)

    def choose(self, *options: Any) -> Any:
        return options[self.turn % len(options)]

    def axis(self, rank: int) -> int:
        return (rank - 1, 0)[self.turn % 2]

    def is_transposed(self) -> bool:
        return self.transposed


Draw: TypeAlias = "Callable[[Drawing], Mapping[str, Any]]"
"""Adds the operands of a call, and says its arguments."""


# What fills operands.


def between(low: float, high: float) -> Values:
    """Numbers of a range, evenly."""

    def values(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
        return rng.uniform(low, high, shape).astype(numpy_dtype(dtype))

    return values


def indices(high: int) -> Values:
    """Positions in so many places."""
    return lambda rng, shape, dtype: rng.integers(0, max(high, 1), shape).astype(numpy_dtype(dtype))


def with_gaps(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers, of which some are NaN."""
    made = numbers(rng, shape, dtype)
    made[rng.random(shape) < MISSING] = np.nan
    return made


def gaps_near_one(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers whose products stay in range, of which some are NaN."""
    made = np.exp(rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape)))).astype(numpy_dtype(dtype))
    made[rng.random(shape) < MISSING] = np.nan
    return made


def in_order(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers that do not fall."""
    return np.sort(numbers(rng, shape, dtype))


def repeated(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Few distinct numbers."""
    return rng.integers(0, 30, shape).astype(numpy_dtype(dtype))


def with_specials(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers, and some infinities and NaN."""
    made = with_gaps(rng, shape, dtype)
    made[rng.random(shape) < MISSING] = np.inf
    made[rng.random(shape) < MISSING] = -np.inf
    return made


# Families of functions whose operands are drawn alike.


def pointwise(*values: Values, **arguments: Any) -> Draw:
    """Operands of one shape; a second one is a row of the first's at times."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        shape = drawing.shape(drawing.rank(), 1.0 + max(1, len(values)))
        drawing.operand(shape, values[0] if values else numbers)
        for own in values[1:]:
            drawing.operand(drawing.choose(shape, shape, shape[-1:]), own)
        return {name: drawing.choose(*value) if isinstance(value, list) else value for name, value in arguments.items()}

    return draw


def along(values: Values = numbers, *, least: int = 1, **arguments: Any) -> Draw:
    """One operand, along one of its axes; a list of arguments is of options."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        rank = drawing.rank(least)
        drawing.operand(drawing.shape(rank), values)
        given = {name: drawing.choose(*one) if isinstance(one, list) else one for name, one in arguments.items()}
        return {"axis": drawing.axis(rank), **given}

    return draw


def reducing(values: Values = numbers, **arguments: Any) -> Draw:
    """One operand, over one of its axes or all of them, which are kept or not."""

    def draw(drawing: Drawing) -> Mapping[str, Any]:
        rank = drawing.rank()
        drawing.operand(drawing.shape(rank), values)
        axis = drawing.choose(drawing.axis(rank), drawing.axis(rank), None)
        given = {name: drawing.choose(*one) if isinstance(one, list) else one for name, one in arguments.items()}
        return {"axis": axis, "keepdims": drawing.choose(False, False, True), **given}

    return draw


def halved(drawing: Drawing) -> Mapping[str, Any]:
    """One operand whose last axis has two halves."""
    rank = drawing.rank()
    drawing.operand(drawing.shape(rank, 1.5, 2))
    return {"axis": -1}


def images(copies: float, *, channels: int = 1, side: int = 1) -> Callable[[Drawing], tuple[int, ...]]:
    """Shapes of images, channels before their two sides; sizes are multiples."""

    def draw(drawing: Drawing) -> tuple[int, ...]:
        found = drawing.sizes(lambda one: copies * math.prod(one.values()), N=1, C=channels, H=side, W=side)
        return tuple(found.values())

    return draw
