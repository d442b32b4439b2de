"""What is known of an index before a kernel runs: its expression, and the ends of loops that are numbers."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim


def index_expr(index: SSAValue) -> Dim | None:
    """The expression of an index, over sizes and the names it has for other indices; None for one of a loop or memory.

    A number, or anything else that holds whatever names stand for, can be read from it as it is.
    """
    op = index.owner
    return op.value("expr") if isinstance(op, SpecOp) and op.name == "ttile.index" else None


def size_expr(index: SSAValue) -> Dim | None:
    """The expression of an index that is computed from sizes alone, or None."""
    return None if isinstance(index.owner, SpecOp) and index.owner.operands else index_expr(index)


def known_ends(loop: SpecOp) -> tuple[int, int] | None:
    """Where a loop begins and ends, if both are numbers."""
    low, high = (None if expr is None else expr.value for expr in map(index_expr, loop.operands[:2]))
    return None if low is None or high is None else (low, high)
