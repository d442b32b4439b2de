"""How many neighbours one thread has: how accesses are aligned, what they move at once, and what is asked for."""

from __future__ import annotations

from math import gcd
from typing import Any

from tessera.backends.nvptx.row_shapes import neighbours_of_rows
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.scope import buffer_alignment, index_multiple, multiple_of

ALIGNED = 16
"""Bytes that arguments begin at a multiple of, unless said otherwise; the runtime sees to it."""


def align_accesses(kernel: SpecOp) -> None:
    """Write down how far each access is known to be aligned."""
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name not in ("ttarget.load", "ttarget.store"):
            continue
        first = 2 if op.name == "ttarget.store" else 1
        buffer = op.operands[first - 1]
        assert isinstance(buffer.type, BufferAttr)
        item = buffer.type.dtype.bytes
        multiples = dict(zip(op.value("coords"), map(index_multiple, op.operands[first:]), strict=False))
        steps = multiple_of(op.value("offset"), {**multiples, **dict.fromkeys(op.value("axes")[:-1], 1)})
        known = gcd(gcd(buffer_alignment(buffer), item * steps) if steps else buffer_alignment(buffer), ALIGNED)
        op.set_value("align", max(item, known & -known))


def asked_vector(kernel: SpecOp) -> int:
    """Neighbours that the author of a kernel wants one thread to have at most: of its schedule, or of a load."""
    hints = [op.value("hints") for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.load"]
    given: list[dict[str, Any]] = [said for said in (kernel.value("schedule"), *hints) if said]
    return min([16, *(said["vector"] for said in given if "vector" in said)])


def widest(kernel: SpecOp) -> int:
    """Neighbours that one thread has: as many as its accesses can move at once, and all of those where none can."""
    found = 16
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name in ("ttarget.load", "ttarget.store") and op.value("axes"):
            buffer = op.operands[1 if op.name == "ttarget.store" else 0]
            assert isinstance(buffer.type, BufferAttr)
            if op.value("pattern") == "contiguous":
                found = min(found, max(1, op.value("align") // buffer.type.dtype.bytes))
    return min(found, neighbours_of_rows(kernel), 8)
