"""Sizes at random: logarithms uniform, some powers of two, some multiples of them, some odd, under limits of bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Rng: TypeAlias = "np.random.Generator"
LEAST_BYTES = 64.0
MULTIPLES = (4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Limits:
    """What a drawn program may take at most: bytes of its arguments and results, and floating-point operations."""

    bytes: float
    flops: float


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(max(low, high))))


def whole(rng: Rng, size: float) -> int:
    """A size near a number: a power of two, a multiple of one, odd, or as it comes."""
    kind = rng.random()
    if kind < 0.35:
        return 1 << max(0, round(math.log2(max(size, 1.0))))
    multiple = int(rng.choice(MULTIPLES))
    if kind < 0.6 and size >= multiple:
        return round(size / multiple) * multiple
    near = max(1, round(size))
    return near | 1 if kind < 0.8 else near


def draw_sizes(
    rng: Rng, rows: Sequence[Mapping[str, int]], bytes_of: Callable[[Mapping[str, int]], float], limits: Limits
) -> dict[str, int]:
    """Sizes for the dims that `rows` are examples of: of one proportion where all examples have it.

    How many bytes there are is drawn first, and then how each dim grows towards that.
    """
    names = list(rows[0]) if rows else []
    if not names:
        return {}
    least = {name: min((row[name] for row in rows if row[name] > 0), default=1) for name in names}
    common = {name: math.gcd(*(row[name] for row in rows)) for name in names}
    tied = _proportions(rows, names)
    wanted = log_uniform(rng, LEAST_BYTES, limits.bytes)
    growth = {name: rng.uniform(0.05, 1.0) for name in names}

    def sizes_at(scale: float, round_size: Callable[[float], int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in names:
            if name in tied:
                continue
            unit = max(common[name], 1)
            found[name] = unit * max(-(-least[name] // unit), round_size(2.0 ** (scale * growth[name]) / unit), 1)
        for name, (other, factor) in tied.items():
            found[name] = int(found[other] * factor)
        return found

    low, high = 0.0, 80.0
    for _ in range(40):
        middle = (low + high) / 2
        if bytes_of(sizes_at(middle, lambda size: max(1, round(size)))) <= wanted:
            low = middle
        else:
            high = middle
    return sizes_at(low, lambda size: whole(rng, size))


def _proportions(rows: Sequence[Mapping[str, int]], names: Sequence[str]) -> dict[str, tuple[str, float]]:
    """Which dim is a fixed multiple of an earlier one, or as long, wherever they have elements."""
    tied: dict[str, tuple[str, float]] = {}
    for at, name in enumerate(names):
        for other in names[:at]:
            factors = {row[name] / row[other] for row in rows if row[other]}
            if other not in tied and len(factors) == 1 and len(rows) > 2:
                tied[name] = (other, factors.pop())
                break
    return tied


def draw_shape(rng: Rng, rank: int, element: float, limits: Limits, copies: float = 2.0) -> tuple[int, ...]:
    """A shape of a rank, of which so many copies are arguments and results."""
    names = [str(axis) for axis in range(rank)]
    found = draw_sizes(rng, [dict.fromkeys(names, 1)], lambda one: copies * element * math.prod(one.values()), limits)
    return tuple(found[name] for name in names)


def draw_choice(rng: Rng, weights: Mapping[Any, float]) -> Any:
    """One of the keys, as often as its weight says."""
    keys, total = list(weights), sum(weights.values())
    return keys[int(rng.choice(len(keys), p=[weight / total for weight in weights.values()]))]
