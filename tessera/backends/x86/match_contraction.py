"""Recognizing a contraction among tiles: a loop over k that adds the product of two loaded tiles to what it carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.emit.maps import linear
from tessera.types.dim import Dim


@dataclass(frozen=True)
class Match:
    """What was found. `starts` says which index op is the row (count of batch dims) or column (one more) start."""

    loop: SpecOp
    before: tuple[SpecOp, ...]
    after: tuple[SpecOp, ...]
    lhs: SSAValue
    rhs: SSAValue
    lhs_load: SpecOp
    rhs_load: SpecOp
    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    starts: dict[SSAValue, int]

    def values(self) -> dict[str, Any]:
        """The attributes of the product op."""
        found: dict[str, Any] = {"batch": self.batch, "m": self.m, "n": self.n, "k": self.k}
        for side, load in (("lhs", self.lhs_load), ("rhs", self.rhs_load)):
            buffer = load.operands[0].type
            assert isinstance(buffer, BufferAttr)
            found[f"{side}_offset"] = linear(load.value("map"), buffer.shape)
            found[f"{side}_windows"] = load.value("windows")
            found[f"{side}_dtype"] = buffer.dtype
        return found


def match_contraction(kernel: SpecOp) -> Match | None:
    """The contraction a kernel is, or None: a grid of batch, row and column blocks; one such loop; stores after."""
    ops = [op for op in kernel.regions[0].block.ops if isinstance(op, SpecOp)]
    loops = [op for op in ops if op.name == "ttile.for"]
    if len(loops) != 1 or len(loops[0].results) != 1:
        return None
    (loop,) = loops
    sides = _sides(loop)
    if sides is None:
        return None
    left, right = sides
    at = ops.index(loop)
    grid = kernel.value("grid")
    starts = _starts(left, right, ops[:at], len(grid) - 2)
    if starts is None or not _starts_at_zero(loop):
        return None
    bounds = (*left.value("bounds"), right.value("bounds")[1])
    return Match(
        loop=loop,
        before=tuple(op for op in ops[:at] if op.name in ("ttile.program_id", "ttile.index")),
        after=tuple(op for op in ops[at + 1 :] if op.name != "ttile.return"),
        lhs=left.operands[0],
        rhs=right.operands[0],
        lhs_load=left,
        rhs_load=right,
        batch=tuple(grid[:-2]),
        m=bounds[0],
        n=bounds[2],
        k=bounds[1],
        starts=starts,
    )


def _sides(loop: SpecOp) -> tuple[SpecOp, SpecOp] | None:
    """The loads of both operands, where the body is nothing but loads, casts and one dot."""
    body = loop.regions[0].block
    allowed = ("ttile.load", "ttile.cast", "ttile.dot", "ttile.yield")
    if any(op.name not in allowed for op in body.ops):
        return None
    dots = [op for op in body.ops if op.name == "ttile.dot"]
    if len(dots) != 1 or dots[0].operands[2] is not body.args[1]:
        return None
    last = body.last_op
    if last is None or list(last.operands) != [dots[0].results[0]]:
        return None
    loads = [_load_behind(value) for value in dots[0].operands[:2]]
    if loads[0] is None or loads[1] is None:
        return None
    left, right = loads[0], loads[1]
    if left.value("axes") != ("_m", "_k") or right.value("axes") != ("_k", "_n"):
        return None
    if any(len(load.operands) != 1 + len(load.value("coords")) for load in (left, right)):
        return None
    first, second = left.operands[0].type, right.operands[0].type
    same = isinstance(first, BufferAttr) and isinstance(second, BufferAttr) and first.dtype == second.dtype
    return (left, right) if same else None


def _load_behind(value: SSAValue) -> SpecOp | None:
    while isinstance(value, OpResult) and value.op.name == "ttile.cast":
        value = value.op.operands[0]
    op = value.op if isinstance(value, OpResult) else None
    return op if isinstance(op, SpecOp) and op.name == "ttile.load" else None


def _starts(left: SpecOp, right: SpecOp, before: Sequence[SpecOp], count: int) -> dict[SSAValue, int] | None:
    """The index ops that give the first row and the first column."""
    rows = dict(zip(left.value("coords"), left.operands[1:], strict=True)).get("_m")
    columns = dict(zip(right.value("coords"), right.operands[1:], strict=True)).get("_n")
    made = {op.results[0] for op in before if op.name == "ttile.index"}
    if rows is None or columns is None or rows not in made or columns not in made:
        return None
    return {rows: count, columns: count + 1}


def _starts_at_zero(loop: SpecOp) -> bool:
    low = loop.operands[0]
    return isinstance(low, OpResult) and isinstance(low.op, SpecOp) and low.op.value("expr").value == 0
