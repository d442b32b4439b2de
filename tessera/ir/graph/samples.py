"""Example arrays for ops: shapes that break kernels, values that break arithmetic, and the same in another dtype.

Sample arrays of the op's sample dtype (f32, or i32 for an op that takes no f32) represent all of its dtypes: `retype`
makes the others. Arrays of another dtype (a bool condition, an index) stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec, Sample
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

Make: TypeAlias = "Callable[[np.random.Generator], Sequence[Any]]"
Shapes: TypeAlias = Sequence[tuple[int, ...]]

UNARY_SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (1,),
    (0,),
    (7,),
    (31,),
    (3, 5),
    (1, 13),
    (4, 0, 2),
    (2, 3, 5),
    (17, 67),
)
"""A scalar, sizes 1 and 0, primes, less and more than a vector."""

BINARY_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((5,), (5,)),
    ((3, 7), (7,)),
    ((3, 1), (1, 7)),
    ((2, 3, 5), (3, 1)),
    ((4,), ()),
    ((0, 3), (1, 3)),
    ((1,), (1,)),
    ((13, 37), (13, 37)),
)
"""Equal, broadcast on one operand or both, missing dims, empty."""

EXTREMES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 100.0, -100.0, np.inf, -np.inf, np.nan, 3e38, -3e38)


def shape_name(shapes: Iterable[tuple[int, ...]]) -> str:
    """A sample's name from its shapes.

    >>> shape_name([(3, 1), ()])
    '3x1 and scalar'
    """
    return " and ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def normal(*shapes: tuple[int, ...], scale: float = 2.0) -> Make:
    """Normal f32 numbers."""
    return lambda rng: [np.asarray(rng.standard_normal(shape) * scale, np.float32) for shape in shapes]


def positive(*shapes: tuple[int, ...]) -> Make:
    """Positive f32 numbers over several decades."""
    return lambda rng: [np.asarray(np.exp(rng.standard_normal(shape)), np.float32) for shape in shapes]


def integers(*shapes: tuple[int, ...], low: int = -50, high: int = 50) -> Make:
    """Small i32 numbers."""
    return lambda rng: [np.asarray(rng.integers(low, high, shape), np.int32) for shape in shapes]


def bools(*shapes: tuple[int, ...]) -> Make:
    """Coin flips."""
    return lambda rng: [np.asarray(rng.random(shape) < 0.5) for shape in shapes]


def extremes(arity: int) -> Make:
    """Zeros, ones, halves, infinities, NaN and huge numbers, each against each."""

    def make(rng: np.random.Generator) -> Sequence[Any]:
        grid = np.meshgrid(*(np.array(EXTREMES, np.float32) for _ in range(arity)), indexing="ij")
        return [np.ascontiguousarray(part.reshape(-1)) for part in grid]

    return make


def integer_extremes(arity: int) -> Make:
    """Zero, ones, widths and the ends of the i32 range, each against each."""
    values = np.array([0, 1, -1, 2, 7, -7, 31, 32, 33, -(2**31), 2**31 - 1], np.int32)

    def make(rng: np.random.Generator) -> Sequence[Any]:
        grid = np.meshgrid(*([values] * arity), indexing="ij")
        return [np.ascontiguousarray(part.reshape(-1)) for part in grid]

    return make


def over(shapes: Iterable[Shapes], make: Callable[..., Make], attributes: dict[str, Any] | None = None) -> list[Sample]:
    """One sample for each tuple of operand shapes."""
    return [Sample(shape_name(group), make(*group), attributes or {}) for group in shapes]


def sample_dtype(spec: OpSpec) -> str:
    """The dtype of those arrays of an op's samples that represent all of its dtypes."""
    return next(name for name in ("f32", "i32", *spec.dtypes) if name in spec.dtypes)


def retype(array: Array, dtype: DType) -> Array:
    """A sample's array in another dtype: floats round, integers are clipped into range, NaN becomes 0."""
    target = numpy_dtype(dtype)
    if array.dtype == target:
        return array
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return array.astype(np.float32).astype(target)
        if dtype.is_bool:
            return array != 0
        low, high = integer_range(dtype)
        wide = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=1e9, neginf=-1e9)
        # below the ends of 64 bits, which f64 cannot name
        return np.clip(wide, max(low, -(2**62)), min(high, 2**62)).astype(target)
