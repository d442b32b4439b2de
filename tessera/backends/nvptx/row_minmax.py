"""Loops over a row that are unrolled: min and max of bf16 two at a time, and a shorter exp near the maximum of a row.

A minimum or maximum is the same in any order, and the same before elements are widened; two of bf16 take one
instruction. Where the smallest element of a row is not far below the largest, `exp(x - max)` is a normal number
everywhere, and takes fewer instructions than one that may underflow. So such loops are written twice, and the threads
of a row vote once which of the two they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.exp_bounds import Bound
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.text import ALL_LANES, WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.math_exp import ORDINARY
from tessera.ir.target.typed_ops import ElementwiseOp
from tessera.types.dtype import bf16, f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

MANY = 4
"""Elements of a thread from which on it is worth to look for their minimum before their exp."""
_INSTRUCTIONS = {"max": "maximum", "min": "minimum"}
_INSIDE = frozenset(
    f"ttarget.{name}"
    for name in ("load", "store", "cast", "elementwise", "select", "constant", "broadcast", "index", "yield")
)
"""Ops of a loop that may be written in two branches: they wait for no other thread."""


def joins_of(loop: SpecOp) -> list[ElementwiseOp] | None:
    """The ops that join each carried value of a loop with one of its iteration, where all are min or max."""
    block = loop.regions[0].block
    last = block.last_op
    assert last is not None
    joins: list[ElementwiseOp] = []
    for carried, value in zip(block.args[1:], last.operands, strict=True):
        join = value.owner
        if not isinstance(join, ElementwiseOp) or join.fn not in _INSTRUCTIONS:
            return None
        if carried not in join.operands or len(list(carried.uses)) != 1 or len(list(value.uses)) != 1:
            return None
        joins.append(join)
    return joins or None


def _part_of(loop: SpecOp, number: int, join: SpecOp) -> SSAValue:
    carried = loop.regions[0].block.args[1 + number]
    return next(value for value in join.operands if value is not carried)


def write_minmax(emitter: Emitter, loop: SpecOp, starts: Sequence[Index], carried: Sequence[Value]) -> bool:
    """Write a loop of min and max of bf16; False where it is not one, and nothing is written."""
    joins = joins_of(loop)
    if joins is None or not starts or (len(starts) % 2 and emitter.divided is None):
        return False
    parts = [_part_of(loop, number, join) for number, join in enumerate(joins)]
    if not all(_is_widened(part) for part in parts):
        return False
    taken: list[list[Sequence[Value]]] = [[] for _ in parts]
    for start in starts:
        emitter.indices[loop.regions[0].block.args[0]] = start
        for op in loop.regions[0].block.ops:
            assert isinstance(op, SpecOp)
            if op not in joins:
                emitter.emit(op)
        for part, found in zip(parts, taken, strict=True):
            narrow = emitter.tiles[part].narrow
            assert narrow is not None
            found.append(narrow[1])
    ends: list[Value] = []
    for join, part, found in zip(joins, parts, taken, strict=True):
        count = len(found[0])
        before = carried[len(ends) : len(ends) + count]
        ends += [
            emitter.f.intrinsic(_INSTRUCTIONS[join.fn], _minmax(emitter, join.fn, column), first)
            for first, column in zip(before, zip(*found, strict=True), strict=True)
        ]
        if (loop, part) in emitter.exp_bounds.values() and join.fn == "max":
            emitter.smallest[loop, part] = [_minmax(emitter, "min", column) for column in zip(*found, strict=True)]
    emitter.bind(loop.results, ends)
    return True


def _is_widened(part: SSAValue) -> bool:
    """Whether a value is an element of bf16, as an f32."""
    op = part.owner
    if not isinstance(op, SpecOp) or op.name != "ttarget.cast":
        return False
    before, after = (getattr(value.type, "dtype", None) for value in (op.operands[0], part))
    return before is bf16 and after is f32


def _minmax(emitter: Emitter, name: str, column: Sequence[Value]) -> Value:
    """The maximum or minimum of bf16, as an f32; of an odd number the last is taken twice."""
    pairs = (*column, *column[-1:]) if len(column) % 2 else column
    return values.minmax(emitter.f, name, f32, pairs, (bf16, pairs))


def write_near_maximum(emitter: Emitter, loop: SpecOp, write: Callable[[], list[Value]]) -> list[Value] | None:
    """Write a loop with `exp` twice: for a row whose results are all normal numbers, and for any.

    `write` writes its iterations, and gives what they end with; None where the loop has no such exp, and nothing is
    written.
    """
    ops = [op for op in loop.regions[0].block.ops if isinstance(op, SpecOp)]
    exps = [op for op in ops if isinstance(op, ElementwiseOp) and op.fn == "exp"]
    if emitter.exponential != values.EXACT or emitter.threads != WARP or not exps:
        return None
    if not all(_can_be_twice(emitter, op) for op in ops):
        return None
    if any(emitter.exp_bounds.get(op) not in emitter.smallest for op in exps):
        return None
    tests = [_is_near_maximum(emitter, op, emitter.exp_bounds[op]) for op in exps]
    if None in tests:
        return None
    f, test = emitter.f, all_of(emitter, [one for one in tests if one is not None])
    kept = {buffer: dict(held.tiles) for buffer, held in emitter.held.items()}
    count = 0

    def write_branch(normal: Iterable[SpecOp]) -> list[Value]:
        nonlocal count
        emitter.normal_exps = frozenset(normal)
        for buffer, tiles in kept.items():
            emitter.held[buffer].tiles = dict(tiles)
        ends = emitter.isolate(write)
        emitter.normal_exps = frozenset()
        count = len(ends)
        return ends + [value for tile in _newly_held(emitter, kept) for value in emitter.registers(tile)]

    found = f.if_(test, lambda: write_branch(exps), lambda: write_branch(()))
    at = count
    for buffer, held in emitter.held.items():
        for offset, tile in held.tiles.items():
            if kept[buffer].get(offset) is not tile:
                held.tiles[offset] = Tile(tile.layout, tile.dtype, found[at : at + tile.layout.registers])
                at += tile.layout.registers
    return found[:count]


def compute_exp_near_maximum(emitter: Emitter, op: SpecOp) -> list[Value] | None:
    """`exp` of many elements that a thread has of a row less its maximum, where they are bf16: written twice as well.

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
    test = _is_near(emitter, _minmax(emitter, "min", narrow[1]), maxima.pop())
    return f.if_(
        test,
        lambda: [values.compute(f, "exp", [part], f32, promise=values.NORMAL) for part in parts],
        lambda: [values.compute(f, "exp", [part], f32, promise=values.NONPOSITIVE) for part in parts],
    )


def _can_be_twice(emitter: Emitter, op: SpecOp) -> bool:
    """Whether nothing outside of registers is changed by an op, or known of it afterwards."""
    if op.name == "ttarget.store":
        # Stores by matrices write at the end of eight iterations, in either branch.
        leaves = emitter.widens_in_each_loop and emitter.matrix_rows is not None and op in emitter.matrix_rows.stores
        return op.operands[1] in emitter.held or leaves
    return op.name in _INSIDE and (emitter.matrix_rows is None or op not in emitter.matrix_rows.lines)


def _newly_held(emitter: Emitter, kept: dict[SSAValue, dict[int | str, Tile]]) -> list[Tile]:
    """What was put into registers, in order."""
    held = emitter.held.items()
    return [tile for buffer, one in held for offset, tile in one.tiles.items() if kept[buffer].get(offset) is not tile]


def _is_near_maximum(emitter: Emitter, exp: SpecOp, bound: Bound) -> Value | None:
    """Whether what the thread has of a row is not too far below the maximum."""
    shifted = exp.operands[0].owner
    assert isinstance(shifted, SpecOp)
    top = shifted.operands[1].owner
    if not isinstance(top, SpecOp) or top.name != "ttarget.broadcast" or top.operands[0] not in emitter.tiles:
        return None
    smallest, largest = emitter.smallest[bound], emitter.registers_of(top.operands[0])
    if len(smallest) != 1 or len(largest) != 1:
        return None
    return _is_near(emitter, smallest[0], largest[0])


def _is_near(emitter: Emitter, smallest: Value, largest: Value) -> Value:
    f = emitter.f
    return f.fcmp("oge", f.op("fsub", smallest, largest), f.const("float", ORDINARY))


def all_of(emitter: Emitter, tests: Sequence[Value]) -> Value:
    """Whether all tests hold in all threads of the warp."""
    f = emitter.f
    found = tests[0]
    for test in tests[1:]:
        found = f.op("and", found, test)
    return f.call("llvm.nvvm.vote.all.sync", [ALL_LANES, found], "i1")
