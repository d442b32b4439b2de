"""Example arrays for ops: shapes that break kernels, values that break arithmetic, and the same in another dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import Attributes, OpSpec, Sample
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

Make: TypeAlias = "Callable[[np.random.Generator], Sequence[Any]]"
Sizes: TypeAlias = tuple[int, ...]

UNARY_SHAPES: Sequence[Sizes] = ((), (1,), (0,), (7,), (31,), (3, 5), (1, 13), (4, 0, 2), (2, 3, 5), (17, 67))
"""A scalar, sizes 1 and 0, primes, less and more than a vector."""

BINARY_SHAPES: Sequence[tuple[Sizes, Sizes]] = (
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

INF, NAN = float("inf"), float("nan")
SPECIAL_VALUES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 100.0, -100.0, INF, -INF, NAN, 3e38, -3e38)
SPECIAL_INTEGERS = (0, 1, -1, 2, 7, -7, 31, 32, 33, -(2**31), 2**31 - 1)


def shape_name(shapes: Iterable[Sizes]) -> str:
    """A sample's name from its shapes.

    >>> shape_name([(3, 1), ()])
    '3x1 and scalar'
    """
    return " and ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def normal(*shapes: Sizes, scale: float = 2.0) -> Make:
    """Normal f32 numbers."""
    return lambda rng: [np.asarray(rng.standard_normal(shape) * scale, np.float32) for shape in shapes]


def positive(*shapes: Sizes) -> Make:
    """Positive f32 numbers over several decades."""
    return lambda rng: [np.asarray(np.exp(rng.standard_normal(shape)), np.float32) for shape in shapes]


def integers(*shapes: Sizes, low: int = -50, high: int = 50) -> Make:
    """Small i32 numbers."""
    return lambda rng: [np.asarray(rng.integers(low, high, shape), np.int32) for shape in shapes]


def bools(*shapes: Sizes) -> Make:
    """Coin flips."""
    return lambda rng: [np.asarray(rng.random(shape) < 0.5) for shape in shapes]


def grid(*values: Sequence[float], dtype: Any = np.float32) -> Make:
    """Numbers, each against each of the others."""
    return lambda rng: [np.array(part.reshape(-1), dtype) for part in np.meshgrid(*values, indexing="ij")]


def over(
    shapes: Iterable[Sequence[Sizes]], make: Callable[..., Make], attributes: Attributes | None = None
) -> list[Sample]:
    """One sample for each tuple of operand shapes."""
    return [Sample(shape_name(group), make(*group), attributes or {}) for group in shapes]


def moving_sample(shape: Sizes, label: str = "", /, **attributes: Any) -> Sample:
    """A sample of one operand, named by its shape and by what happens to it."""
    shown = label or " ".join(f"{name}={value}" for name, value in attributes.items())
    return Sample(f"{shape_name([shape])} {shown}", normal(shape), attributes)


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
