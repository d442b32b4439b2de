"""`exp` of what a thread has of a row less its maximum: shorter where no result is below the normal numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.backends.nvptx import values
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import ORDINARY
from tessera.types.dtype import bf16, f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

MANY = 4
"""Elements of a thread from which on it is worth to look for their minimum before their exp."""


def compute_exp_near_maximum(emitter: Emitter, op: SpecOp) -> list[Value] | None:
    """`exp` of many elements that a thread has of a row less its maximum, where they are bf16, written in two branches.

    Each thread decides for itself. None for any other exp, and nothing is written.
    """
    shifted = op.operands[0].owner
    if emitter.exponential != values.EXACT or op not in emitter.exp_bounds or not isinstance(shifted, SpecOp):
        return None
    source, maxima = emitter.tiles[shifted.operands[0]], set(emitter.registers_of(shifted.operands[1]))
    narrow = source.narrow if source.dtype is f32 else None
    if narrow is None or narrow[0] is not bf16 or len(narrow[1]) < MANY or len(narrow[1]) % 2 or len(maxima) > 1:
        return None
    f, parts = emitter.f, emitter.registers_of(op.operands[0])
    smallest = values.minmax(f, "min", f32, narrow[1], narrow)
    return f.if_(
        f.fcmp("oge", f.op("fsub", smallest, maxima.pop()), f.const("float", ORDINARY)),
        lambda: [values.compute(f, "exp", [part], f32, promise=values.NORMAL) for part in parts],
        lambda: [values.compute(f, "exp", [part], f32, promise=values.NONPOSITIVE) for part in parts],
    )
