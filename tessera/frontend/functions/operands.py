"""How arguments become operands: Python numbers are weak, dtypes promote without loss, axes count from the front."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError, AxisError, DTypeError, TracingError
from tessera.frontend.arguments import check_int, describe_value
from tessera.frontend.call_plans import note_number
from tessera.frontend.concrete import Tracer, adopt_operand, concrete_dtype, is_concrete, scalar_dtype, scalar_tensor
from tessera.frontend.fixes import fixes_of
from tessera.frontend.pytree import as_tuple
from tessera.frontend.size import Condition, Size, dim_of
from tessera.frontend.traced_number import TracedNumber, is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bool_, f32, i4, i8, i64, parse_dtype, u8
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


def constant(value: Any, dtype: DType) -> Any:
    """A Python number as an operand: part of the program while tracing, a scalar tensor eagerly."""
    if type(value) is TracedNumber:
        return value.to(dtype)
    if dispatch.tracing() is None:
        return note_number(scalar_tensor(value, dtype))
    number = float(value) if dtype.is_float else int(value) if isinstance(value, bool) else value
    return apply("full", (), {"shape": (), "value": number, "dtype": dtype})


def as_tensor(value: Any, dtype: DType | None = None) -> Any:
    """A tensor from a tensor, a Python number or a size; `dtype` is what a number becomes."""
    if is_tensor(value):
        return adopt_operand(value)
    if isinstance(value, Size):
        return cast(apply("dim_size", (), {"dims": (value.dim,)}), dtype or i64)
    if isinstance(value, Condition):
        left, right = (apply("dim_size", (), {"dims": (dim,)}) for dim in (value.left, value.right))
        return cast(apply(_RELATIONS[value.relation], (left, right)), dtype or bool_)
    if isinstance(value, bool | int | float):
        return constant(value, dtype or scalar_dtype(value))
    dtype_of(value)
    raise AssertionError("`dtype_of` refuses what is no tensor")


_RELATIONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def as_truth(value: Any) -> Any:
    """A bool tensor: numbers, sizes and tensors of numbers are true where they are not zero (NaN is)."""
    if isinstance(value, bool | int | float):
        return as_tensor(value != 0 if is_traced_number(value) else bool(value), bool_)
    return cast(as_tensor(value), bool_)


def cast(x: Any, dtype: Any) -> Any:
    """`x` in another dtype; the same value when it has that dtype. A size becomes a scalar.

    Raises: DTypeError (T0102) if `dtype` is none of Tessera's.
    """
    dtype = parse_dtype(dtype)
    if isinstance(x, Size):
        return as_tensor(x, dtype)
    return x if dtype_of(x) is dtype else apply("cast", (x,), {"dtype": dtype})


_OF_BOOLS = frozenset(
    ("add", "mul", "maximum", "minimum", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "cummax", "clamp")
)
"""Ops on numbers that have an answer for bools: `add` is or, `mul` is and, false is less than true."""


def compute(
    op: str, values: Sequence[Any], attributes: Mapping[str, Any] | None = None, group: OpClass = ARITHMETIC
) -> Any:
    """The op on values of one dtype.

    Where it has no code for i4, it computes in i8 and wraps; some compute on bools too, as numbers that are 0 and 1.
    """
    operands = promote_operands(op, values, group)
    dtype = dtype_of(operands[0])
    via = i8 if dtype is i4 else u8 if dtype.is_bool and op in _OF_BOOLS else None
    if via is None or dtype.name in REGISTRY[op].dtypes:
        return apply(op, operands, attributes)
    made = apply(op, [cast(operand, via) for operand in operands], attributes)
    is_same = dtype_of(made) is via and group.result(dtype) is dtype
    return cast(made, dtype) if is_same else cast(made, i64) if dtype_of(made).is_integer and dtype.is_bool else made


def promote_operands(op: str, values: Sequence[Any], group: OpClass = ARITHMETIC) -> list[Any]:
    """The values as operands of one dtype: tensors widen without loss, numbers and sizes follow the tensors."""
    if group.name == "logical":
        return [as_truth(value) for value in values]
    dtypes = [None if isinstance(value, bool | int | float | Size) else dtype_of(value) for value in values]
    common = _common_dtype(op, dtypes, values)
    target = group.operand(common)
    if target.is_float and not common.is_float and all(dtype is None for dtype in dtypes):
        target = f32  # numbers and sizes alone have no dtype that would ask for more than the usual float
    return [
        as_tensor(value, target) if dtype is None else value if dtype is target else cast(value, target)
        for value, dtype in zip(values, dtypes, strict=True)
    ]


def _common_dtype(op: str, dtypes: Sequence[DType | None], values: Sequence[Any]) -> DType:
    target: DType | None = None
    for dtype in dtypes:
        if dtype is not None and dtype is not target:
            target = dtype if target is None else _promote(op, target, dtype, dtypes, values)
    if target is None:
        found = [scalar_dtype(value) for value in values if not isinstance(value, Size)] or [i64]
        return max(found, key=lambda dtype: ("bool", "int", "float").index(dtype.kind))
    for value, dtype in zip(values, dtypes, strict=True):
        if dtype is None and not isinstance(value, Size):
            target = _promote_number(op, target, value, dtypes, values)
    return target


def _promote(op: str, target: DType, other: DType, dtypes: Sequence[DType | None], values: Sequence[Any]) -> DType:
    joined = promote(target, other)
    if joined is not None:
        return joined
    narrow, wider = sorted((target, other), key=lambda dtype: (dtype.is_float, dtype.bits))
    advice = f'cast the {narrow} one, as in `x.cast("{wider}")`'
    raise DTypeError(
        f"`{op}` cannot mix {target} and {other}: no dtype holds every value of both",
        notes=("only widening that loses nothing is implicit",),
        fix=lambda span: fixes_of("operands").mixed_fix(span, op, dtypes, values, narrow, wider) or advice,
    )


def _promote_number(
    op: str, target: DType, value: float, dtypes: Sequence[DType | None], values: Sequence[Any]
) -> DType:
    weak = promote_scalar(target, value)
    if weak is None:
        raise DTypeError(
            f"`{op}` cannot take {value}: it is no {target}",
            notes=("a Python number takes the dtype of the tensor beside it",),
            fix=lambda span: (
                fixes_of("operands").number_fix(span, dtypes, values, value) or "cast the tensor to a wider dtype first"
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


def reduced_axes(op: str, axes: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction, as `axes_of`; a scalar may be reduced over axis 0 or -1, as in NumPy."""
    if rank == 0 and axes is not None and all(_integer(op, axis) in (0, -1) for axis in as_tuple(axes)):
        return axes_of(op, axes, 1) and ()
    return axes_of(op, axes, rank)


def along_axis(op: str, x: Any, axis: Any, function: Callable[[Any, int], Any]) -> Any:
    """What `function` makes of `x` along one axis; a scalar is an axis of one element, which the result is without."""
    if rank_of(x) or _integer(op, axis) not in (0, -1):
        return function(x, axis_of(op, axis, rank_of(x)))
    made = function(apply("expand_dims", (x,), {"axes": (0,)}), 0)
    return (
        tuple(apply("squeeze", (part,), {"axes": (0,)}) for part in as_tuple(made))
        if isinstance(made, tuple)
        else apply("squeeze", (made,), {"axes": (0,)})
    )


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
