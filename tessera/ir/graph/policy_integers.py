"""Integers under a policy that saturates: what does not fit is held at the ends of the range instead of wrapping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import cast, constant
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

SATURATED = frozenset({"add", "sub", "mul", "neg", "abs"})
"""Integer ops whose results may lie outside of their dtype, and that a wider dtype computes exactly."""


def is_integer(dtype: DType) -> bool:
    """Whether values are integers, and not bools."""
    return not dtype.is_float and not dtype.is_bool


def held(b: Builder, value: Any, target: DType) -> Any:
    """Integers as those of another dtype, each the nearest one that it has."""
    source = b.type_of(value).dtype
    (low, high), (least, most) = integer_range(source), integer_range(target)
    if least > low:
        value = b.emit("maximum", value, constant(b, least, source))
    if most < high:
        value = b.emit("minimum", value, constant(b, most, source))
    return cast(b, value, target)


def saturates(op: str, dtypes: Sequence[DType]) -> bool:
    """Whether an op has a saturating form: integer arithmetic of up to 32 bits, which 64 hold."""
    return op in SATURATED and all(is_integer(dtype) and dtype.bits <= 32 for dtype in dtypes)


def saturated(b: Builder, op: str, operands: Sequence[Any]) -> Any:
    """An op in a dtype wide enough for its result, held to the range of its own."""
    own = b.type_of(operands[0]).dtype
    wide = dt.i32 if own.bits <= 8 else dt.u64 if own is dt.u32 and op == "mul" else dt.i64
    return held(b, b.emit(op, *(cast(b, operand, wide) for operand in operands)), own)
