"""How arguments become operands: Python numbers are weak, dtypes promote without loss, axes count from the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, AxisError, DTypeError, TracingError
from tessera.frontend.arguments import check_int, describe_value
from tessera.frontend.concrete import Tracer, adopt_operand, concrete_dtype, is_concrete, scalar_dtype, scalar_tensor
from tessera.frontend.fixes import fixes_of
from tessera.frontend.pytree import as_tuple
from tessera.frontend.size import Size, dim_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType, f32, i64, parse_dtype
from tessera.types.promotion import ARITHMETIC, OpClass, promote, promote_scalar


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor: one with data, or a tracer."""
    return isinstance(value, Tracer) or is_concrete(value)


def dtype_of(value: Any) -> DType:
    """The dtype of a tensor; raises `TracingError` (T0201) for what is none."""
    if isinstance(value, Tracer):
        return value.dtype
    dtype = concrete_dtype(value)
    if dtype is None:
        raise TracingError(
            f"expected a tensor, got {describe_value(value)}",
            fix=lambda span: fixes_of("operands").tensor_fix(span, value),
        )
    return dtype


def check_tensors(*values: Any) -> None:
    """Raises `TracingError` (T0201) for a value that is no tensor."""
    for value in values:
        dtype_of(value)


def rank_of(value: Any) -> int:
    """How many dims a tensor has."""
    dtype_of(value)
    return len(adopt_operand(value).shape)


def constant(value: bool | float, dtype: DType) -> Any:
    """A Python number as an operand: part of the program while tracing, a scalar tensor eagerly."""
    if dispatch.tracing() is None:
        return scalar_tensor(value, dtype)
    number = float(value) if dtype.is_float else int(value) if isinstance(value, bool) else value
    return apply("full", (), {"shape": (), "value": number, "dtype": dtype})


def as_tensor(value: Any, dtype: DType | None = None) -> Any:
    """A tensor from a tensor, a Python number or a size; `dtype` is what a number becomes."""
    if is_tensor(value):
        return adopt_operand(value)
    if isinstance(value, Size):
        return cast(apply("dim_size", (), {"dims": (value.dim,)}), dtype or i64)
    if isinstance(value, bool | int | float):
        return constant(value, dtype or scalar_dtype(value))
    dtype_of(value)
    raise AssertionError("`dtype_of` refuses what is no tensor")


def cast(x: Any, dtype: Any) -> Any:
    """`x` in another dtype; the same value when it has that dtype. A size becomes a scalar.

    Raises: DTypeError (T0102) if `dtype` is none of Tessera's.
    """
    dtype = parse_dtype(dtype)
    if isinstance(x, Size):
        return as_tensor(x, dtype)
    return x if dtype_of(x) is dtype else apply("cast", (x,), {"dtype": dtype})


def promote_operands(op: str, values: Sequence[Any], group: OpClass = ARITHMETIC) -> list[Any]:
    """The values as operands of one dtype: tensors widen without loss, numbers and sizes follow the tensors."""
    if group.name == "logical":
        return [_truth(value) for value in values]
    dtypes = [None if isinstance(value, bool | int | float | Size) else dtype_of(value) for value in values]
    common = _common_dtype(op, dtypes, values)
    target = group.operand(common)
    if target.is_float and not common.is_float and all(dtype is None for dtype in dtypes):
        target = f32  # numbers and sizes alone have no dtype that would ask for more than the usual float
    return [
        as_tensor(value, target) if dtype is None else value if dtype is target else cast(value, target)
        for value, dtype in zip(values, dtypes, strict=True)
    ]


def _truth(value: Any) -> Any:
    """A bool tensor: numbers are true when they are not zero, and tensors of numbers must be compared first."""
    return as_tensor(bool(value), BY_NAME["bool"]) if isinstance(value, bool | int | float) else as_tensor(value)


def _common_dtype(op: str, dtypes: Sequence[DType | None], values: Sequence[Any]) -> DType:
    target: DType | None = None
    for dtype in dtypes:
        if dtype is not None and dtype is not target:
            target = dtype if target is None else _promote(op, target, dtype, dtypes)
    if target is None:
        found = [scalar_dtype(value) for value in values if not isinstance(value, Size)] or [i64]
        return max(found, key=lambda dtype: ("bool", "int", "float").index(dtype.kind))
    for value, dtype in zip(values, dtypes, strict=True):
        if dtype is None and not isinstance(value, Size):
            target = _promote_number(op, target, value, dtypes)
    return target


def _promote(op: str, target: DType, other: DType, dtypes: Sequence[DType | None]) -> DType:
    joined = promote(target, other)
    if joined is not None:
        return joined
    narrow, wider = sorted((target, other), key=lambda dtype: (dtype.is_float, dtype.bits))
    advice = f"cast the {narrow} one, as in `x.cast({wider})`"
    raise DTypeError(
        f"`{op}` cannot mix {target} and {other}: no dtype holds every value of both",
        notes=("only widening that loses nothing is implicit",),
        fix=lambda span: fixes_of("operands").mixed_fix(span, op, dtypes, narrow, wider) or advice,
    )


def _promote_number(op: str, target: DType, value: float, dtypes: Sequence[DType | None]) -> DType:
    weak = promote_scalar(target, value)
    if weak is None:
        raise DTypeError(
            f"`{op}` cannot take {value}: it is no {target}",
            notes=("a Python number takes the dtype of the tensor beside it",),
            fix=lambda span: (
                fixes_of("operands").number_fix(span, dtypes, value) or "cast the tensor to a wider dtype first"
            ),
        )
    return weak


def axis_of(op: str, axis: Any, rank: int) -> int:
    """One axis, counted from the front; raises `AxisError` (T0103)."""
    number = _integer(op, axis)
    if not -rank <= number < rank:
        raise AxisError(
            f"`{op}` has no axis {number} on a tensor of {rank} dims",
            fix=lambda span: fixes_of("arguments").axis_fix(span, number, rank),
        )
    return number % rank


def axes_of(op: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Several axes, sorted, counted from the front; None means all."""
    if axes is None:
        return tuple(range(rank))
    found = [axis_of(op, axis, rank) for axis in as_tuple(axes)]
    for axis in found:
        if found.count(axis) > 1:
            raise AxisError(
                f"`{op}` got axis {axis} twice", fix=lambda span: fixes_of("arguments").axes_fix(span, found)
            )
    return tuple(sorted(found))


def _integer(op: str, value: Any) -> int:
    try:
        return check_int(op, "axis", value)
    except ArgumentError:
        raise AxisError(f"`{op}` takes an axis as an int, got {describe_value(value)}") from None


def dims_of(shape: Any) -> tuple[Dim, ...]:
    """A shape from an int, a size, or a sequence of them."""
    return tuple(dim_of(size) for size in as_tuple(shape))


def shape_dims(x: Any) -> tuple[Dim, ...]:
    """The dims of a tensor."""
    return tuple(dim_of(size) for size in x.shape)
