"""What op declarations are built with: checks of shape rules, costs, and values that decompositions emit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import Attributes, Builder, Cost, InferContext, OpSpec, Sample
from tessera.types import dtype as dt
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range
from tessera.types.shape import TensorType, is_at_least, is_refuted

# Example arrays for ops: shapes that break kernels, values that break arithmetic, and the same in another dtype.

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

SPECIAL_VALUES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    1e-3,
    100.0,
    -100.0,
    np.inf,
    -np.inf,
    np.nan,
    3e38,
    -3e38,
)


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


def special_values(arity: int) -> Make:
    """Zeros, ones, halves, infinities, NaN and huge numbers, each against each."""

    def make(rng: np.random.Generator) -> Sequence[Any]:
        grid = np.meshgrid(*(np.array(SPECIAL_VALUES, np.float32) for _ in range(arity)), indexing="ij")
        return [np.ascontiguousarray(part.reshape(-1)) for part in grid]

    return make


def special_integers(arity: int) -> Make:
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


# The checks that shape rules of many ops share: equal and sufficient dims, element types, costs.


def same_dim(ctx: InferContext, left: Dim, right: Dim, message: str, *, help: str = "") -> Dim:
    """The dim both must be; where they are known to differ, fails with `message` and the two values."""
    if left == right:
        return left
    if is_refuted(left, right):
        raise ctx.fail(f"{message} ({left} and {right})", help=help)
    return ctx.equal(left, right, message)


def check_at_least(ctx: InferContext, dim: Dim, bound: int, message: str) -> None:
    """`dim >= bound`, proved or guarded at run time: as an equality, since that is what a guard is."""
    if is_at_least(dim, bound):
        return
    if dim.value is not None:
        raise ctx.fail(f"{message} ({dim})")
    ctx.equal(minimum(dim, bound), Dim.constant(bound), message)


def check_float(ctx: InferContext, op: str, x: TensorType, name: str = "x") -> None:
    """Raises unless the operand is of a floating dtype."""
    if not x.dtype.is_float:
        raise ctx.fail_dtype(f"`{op}` needs a floating `{name}`, got {x.dtype}", help="cast it, as in `x.cast(f32)`")


def check_integer(ctx: InferContext, op: str, x: TensorType, name: str) -> None:
    """Raises unless the operand holds integers."""
    if not x.dtype.is_integer:
        raise ctx.fail_dtype(f"`{op}` needs integer `{name}`, got {x.dtype}", help="cast it, as in `x.cast(i64)`")


def common_dtype(ctx: InferContext, op: str, types: Sequence[TensorType]) -> DType:
    """The one dtype of all operands; raises where two differ."""
    first = types[0].dtype
    for other in types[1:]:
        if other.dtype is not first:
            raise ctx.fail_dtype(
                f"`{op}` needs operands of one dtype, got {first} and {other.dtype}",
                help=f"cast one of them, as in `x.cast({first})`",
            )
    return first


def axes_attribute(attributes: Attributes, name: str) -> tuple[int, ...]:
    """An `ints` attribute as a tuple."""
    return tuple(int(axis) for axis in attributes[name])


def index_dtype() -> DType:
    """The dtype of positions that ops give (argsort, topk)."""
    return dt.i64


def traffic(operands: Sequence[TensorType], results: Sequence[TensorType]) -> Dim:
    """Bytes moved when each operand is read once and each result written once."""
    total = Dim.constant(0)
    for value in (*operands, *results):
        total = total + value.bytes
    return total


def visits(times: int) -> Any:
    """A cost rule: `times` operations for each element of the first operand."""

    def cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Any) -> Cost:
        size = operands[0].size if operands else results[0].size
        return Cost(size * times, traffic(operands, results))

    return cost


LOWEST = {"f32": -3.4028234663852886e38, "f64": -1.7976931348623157e308}
"""The least finite number of each dtype floats compute in."""


def constant(b: Builder, value: float | bool, dtype: DType) -> Any:
    """A scalar, which broadcasts against anything of its dtype."""
    return b.emit("full", shape=(), value=value, dtype=dtype)


def size_value(b: Builder, dim: Dim, dtype: DType = dt.i64) -> Any:
    """A dim as a scalar value."""
    return constant(b, dim.value, dtype) if dim.value is not None else cast(b, b.emit("dim_size", dims=(dim,)), dtype)


def cast(b: Builder, value: Any, dtype: DType) -> Any:
    """The value in a dtype, which it may have already."""
    return value if b.type_of(value).dtype is dtype else b.emit("cast", value, dtype=dtype)


def widen(b: Builder, value: Any) -> Any:
    """The value in the dtype floats compute in: where a composite op does all its arithmetic."""
    return cast(b, value, b.type_of(value).dtype.compute)


def expand(b: Builder, value: Any, axis: int) -> Any:
    """The value with a new axis of 1."""
    shape = b.type_of(value).shape
    return b.emit("reshape", value, shape=(*shape[:axis], Dim.constant(1), *shape[axis:]))


def restate(b: Builder, value: Any, shape: tuple[Dim, ...]) -> Any:
    """The value with its dims written as in `shape`, to which they are equal for reasons that algebra does not see."""
    return value if b.type_of(value).shape == shape else b.emit("broadcast_to", value, shape=shape)


def slice_axis(b: Builder, value: Any, axis: int, start: Dim | int, stop: Dim | int, step: int = 1) -> Any:
    """A slice of one axis, the others whole."""
    shape = b.type_of(value).shape
    starts = tuple(Dim.of(start) if own == axis else Dim.constant(0) for own in range(len(shape)))
    stops = tuple(Dim.of(stop) if own == axis else dim for own, dim in enumerate(shape))
    return b.emit(
        "slice", value, start=starts, stop=stops, step=tuple(step if own == axis else 1 for own in range(len(shape)))
    )
