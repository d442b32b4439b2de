"""Rounding ops of all dialects: the attributes that say how, and their check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.ir.base.spec import Attribute
from tessera.types.dtype import conversion_fault

if TYPE_CHECKING:
    from tessera.ir.base.op import SpecOp  # graph ops are declared without the IR library

CONVERSION = (
    Attribute("format", "str", doc="the numbers that are kept: a float or integer dtype, tf32 or f4e2m1"),
    Attribute("rounding", "str", "nearest_even", "nearest_even, toward_zero or stochastic"),
    Attribute("saturation", "str", "", "saturate or wrap; else floats overflow and integers stop at their ends"),
    Attribute("denormals", "str", "keep", "keep or flush"),
)


def check_conversion(op: SpecOp) -> None:
    """Raises unless the attributes say how to round, and random bits are there where they are needed."""
    fault = conversion_fault(*(op.value(attribute.name) for attribute in CONVERSION))
    if fault:
        op.fail(f"`{op.name}`: {fault}")
    wanted = 2 if op.value("rounding") == "stochastic" else 1
    if len(op.operands) != wanted:
        given = "random bits beside its values" if wanted == 2 else "its values and nothing else"
        op.fail(f"`{op.name}` that rounds {op.value('rounding')} takes {given}, got {len(op.operands)} operands")
