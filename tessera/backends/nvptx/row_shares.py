"""Rows that several warps share: how many they are, and whether the loops of a kernel can be divided among them.

Each warp has turns that follow each other, and keeps what it has of a row in registers. What turns carry goes from
warp to warp in their order, so sums are added up as one warp would do it; what does not depend on that is done by all
at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import BlockArgument, SSAValue

from tessera.backends.nvptx.row_shapes import OF_ROWS
from tessera.backends.nvptx.row_teams import SECTION
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.target.limits import SHARES
from tessera.ir.target.reach import is_multiple
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim

TURNS = 64
"""Turns of each at most: 64 numbers of 4 bytes, beside which two others fit the registers of a thread."""
WRITTEN = 4900
"""Instructions that are written for a thread, all turns together: more of them would take long to compile."""
_FREE = frozenset(("constant", "broadcast", "index", "yield"))
_SHORT = frozenset(
    name
    for names in (
        ("add", "sub", "mul", "fma", "neg", "abs", "max", "min", "relu", "eq", "ne", "lt", "le", "gt", "ge", "isnan"),
        ("not", "and", "or", "xor", "shl", "shr", "floor", "ceil", "round", "trunc", "sign", "isinf", "sqrt"),
    )
    for name in names
)
_LENGTHS = {"exp": 12, "exp2": 12, "div": 8, "reciprocal": 8, "sin": 90, "cos": 90, "tan": 120, "pow": 60, "atan2": 60,
    "tanh": 50}  # fmt: skip
_LENGTH = 25
"""Instructions of a function, about: of those that are one, of some others, and of the rest."""
_MORE = frozenset(("ttile.clip", "ttile.scratch", "ttile.arg_reduce"))


def shares_of(kernel: SpecOp, most: int, ragged: int) -> int:
    """Warps that share a row of a kernel; 0 where one has it, of up to `most` turns or of loops that stay whole.

    One has up to `ragged` turns where rows do not begin at 16 bytes, if they are of 2-byte elements.
    """
    ops, width = _ops_of(kernel), _width_of(kernel)
    if width is None or width.value is None:
        return 0
    turns = width.value // WARP
    length = length_of(ops)
    if turns <= (ragged if width.value % 8 else most) and turns * length <= WRITTEN:
        return 0
    own = min(_turns_of_a_warp(ops), WRITTEN // length)
    return next((count for count in SHARES if turns // count <= own), 0)


def length_of(ops: Sequence[SpecOp]) -> int:
    """Instructions of a turn of each loop, about, in Tile IR or Target IR."""
    return sum(_length_of(op) for op in ops if (op.parent_op() or op).name in ("ttile.for", "ttarget.loop")) or 1


def _length_of(op: SpecOp) -> int:
    name = op.spec.short_name
    if name == "elementwise":
        fn: str = op.value("fn")
        return 1 if fn in _SHORT else _LENGTHS.get(fn, _LENGTH)
    return 0 if name in _FREE else 1


def shares_of_free_rows(kernel: SpecOp) -> int:
    """Warps of a block that share rows of a free width, as many for each as it needs; 0 where they cannot."""
    width = _width_of(kernel)
    is_free = width is not None and width.value is None and not is_multiple(width, WARP)
    return SHARES[-1] if is_free else 0


def _ops_of(kernel: SpecOp) -> list[SpecOp]:
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]


def _width_of(kernel: SpecOp) -> Dim | None:
    """Elements of a row of a kernel whose loops can be divided; None for any other."""
    ops = _ops_of(kernel)
    width = _end_of([op for op in ops if op.name == "ttile.for"], kernel)
    if width is None or not {op.name for op in ops} <= OF_ROWS | _MORE or not all(map(_has_lanes, ops)):
        return None
    is_apart = all(_is_apart(kernel, op) for op in ops if op.name in ("ttile.load", "ttile.store"))
    return width if is_apart and not any(_stores_late(op) for op in ops if op.name == "ttile.for") else None


def _stores_late(loop: SpecOp) -> bool:
    """Whether a loop stores anything that depends on what its turns carry."""
    block = loop.regions[0].block
    late: set[SSAValue] = set(block.args[1:])
    for op in block.ops:
        if late & set(op.operands):
            late.update(op.results)
            if op.name == "ttile.store":
                return True
    return False


def sections_of(kernel: SpecOp) -> int:
    """Sections of a warp where the width of a row is free, of a kernel of Target IR: fewer of long formulas."""
    ops = _ops_of(kernel)
    types = [op.results[0].type for op in ops if _is_of_lanes(op)]
    is_wide = any(isinstance(type, VectorAttr) and type.dtype.bytes > 4 for type in types)
    return max(1, min(4 if is_wide else 8, WRITTEN // (SECTION * length_of(ops)) - 1))


def _is_of_lanes(op: SpecOp) -> bool:
    type = op.results[0].type if op.results else None
    return isinstance(type, VectorAttr) and bool(type.shape)


def _end_of(loops: Sequence[SpecOp], kernel: SpecOp) -> Dim | None:
    """Where all loops end, which run over a row alike from 0 on, one after the other; None where they do not."""
    block, symbols = kernel.regions[0].block, set(kernel.value("symbols"))
    ends: set[tuple[Dim, Dim]] = set()
    for loop in loops:
        low, high = (value.owner for value in loop.operands[:2])
        is_plain = loop.parent_block() is block and loop.value("step") == WARP
        if not is_plain or not isinstance(low, SpecOp) or not isinstance(high, SpecOp):
            return None
        if low.name != "ttile.index" or high.name != "ttile.index" or low.operands or high.operands:
            return None
        ends.add((low.value("expr"), high.value("expr")))
    if len(ends) != 1:
        return None
    ((begin, end),) = ends
    return end if begin.value == 0 and end.symbols <= symbols else None


def _turns_of_a_warp(ops: Sequence[SpecOp]) -> int:
    types = [op.results[0].type for op in ops if op.results]
    widest = max((type.dtype.bytes for type in types if isinstance(type, TileAttr) and type.shape), default=4)
    return TURNS * 4 // max(4, widest)


def _has_lanes(op: SpecOp) -> bool:
    """Whether an op gives single numbers, or one to a lane."""
    types = [value.type for value in op.results if isinstance(value.type, TileAttr)]
    return all(prod(dim.value or 0 for dim in type.shape) in (1, WARP) for type in types)


def _is_apart(kernel: SpecOp, op: SpecOp) -> bool:
    """Whether no turn of an access meets another: arguments are read or written, scratch is found by its turn."""
    is_store = op.name == "ttile.store"
    buffer, places = op.operands[is_store], list(op.operands[1 + is_store :])
    loop = op.parent_op()
    turn: SSAValue | None = loop.regions[0].block.args[0] if loop is not kernel and loop is not None else None
    if is_store and (op.value("mode") != "set" or (turn is not None and turn not in places)):
        return False
    if not isinstance(buffer, BlockArgument):
        return turn is not None and places == [turn]
    users = {use.operation.name for use in buffer.uses}
    return users == {op.name}
