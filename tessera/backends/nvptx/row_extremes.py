"""Loops over a row that are written out: extremes two at a time, and powers without corners where a row has none.

A largest or smallest element is the same in any order, and the same before it is widened; two of bf16 take one
instruction. Where the smallest element of a row is not far below the largest, powers of the differences are normal
numbers, which takes fewer instructions than any number would; the threads of a row agree on that once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.falling import Bound
from tessera.backends.nvptx.layout import Tile
from tessera.backends.nvptx.text import ALL_LANES, WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.math_exp import ORDINARY
from tessera.types.dtype import bf16, f32

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

MANY = 4
"""Elements of a thread from which on a row is looked at for their powers."""
_INSTRUCTIONS = {"max": "maximum", "min": "minimum"}
_INSIDE = frozenset(
    f"ttarget.{name}"
    for name in ("load", "store", "cast", "elementwise", "select", "constant", "broadcast", "index", "yield")
)
"""Ops of a loop that may be written in two ways: they wait for nobody."""


def joins_of(loop: SpecOp) -> list[SpecOp] | None:
    """The ops that join each carried value of a loop with one of its turn, where all take the larger or smaller."""
    block = loop.regions[0].block
    last = block.last_op
    assert last is not None
    joins: list[SpecOp] = []
    for carried, value in zip(block.args[1:], last.operands, strict=True):
        join = value.owner
        if not isinstance(join, SpecOp) or join.name != "ttarget.elementwise" or join.value("fn") not in _INSTRUCTIONS:
            return None
        if carried not in join.operands or len(list(carried.uses)) != 1 or len(list(value.uses)) != 1:
            return None
        joins.append(join)
    return joins or None


def _part_of(loop: SpecOp, number: int, join: SpecOp) -> SSAValue:
    carried = loop.regions[0].block.args[1 + number]
    return next(value for value in join.operands if value is not carried)


def write_extremes(emitter: Emitter, loop: SpecOp, places: Sequence[Index], carried: Sequence[Value]) -> bool:
    """Write a loop of extremes of bf16; False where it is not one, and nothing is written."""
    joins = joins_of(loop)
    if joins is None or not places or (len(places) % 2 and emitter.divided is None):
        return False
    parts = [_part_of(loop, number, join) for number, join in enumerate(joins)]
    if not all(_is_widened(part) for part in parts):
        return False
    taken: list[list[Sequence[Value]]] = [[] for _ in parts]
    for place in places:
        emitter.indices[loop.regions[0].block.args[0]] = place
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
        starts = carried[len(ends) : len(ends) + count]
        ends += [
            _with(emitter, join.value("fn"), _extreme(emitter, join.value("fn"), column), start)
            for start, column in zip(starts, zip(*found, strict=True), strict=True)
        ]
        if (loop, part) in emitter.falling.values() and join.value("fn") == "max":
            emitter.smallest[loop, part] = [_extreme(emitter, "min", column) for column in zip(*found, strict=True)]
    emitter.bind(loop.results, ends)
    return True


def _is_widened(part: SSAValue) -> bool:
    """Whether a value is an element of bf16, as an f32."""
    op = part.owner
    if not isinstance(op, SpecOp) or op.name != "ttarget.cast":
        return False
    before, after = (getattr(value.type, "dtype", None) for value in (op.operands[0], part))
    return before is bf16 and after is f32


def _extreme(emitter: Emitter, name: str, column: Sequence[Value]) -> Value:
    """The largest or smallest of bf16, as an f32; of an odd number the last is taken twice."""
    pairs = (*column, *column[-1:]) if len(column) % 2 else column
    return values.extreme(emitter.f, name, f32, pairs, (bf16, pairs))


def _with(emitter: Emitter, name: str, a: Value, b: Value) -> Value:
    return emitter.f.intrinsic(_INSTRUCTIONS[name], a, b)


def write_ordinary(emitter: Emitter, loop: SpecOp, write: Callable[[], list[Value]]) -> list[Value] | None:
    """Write a loop with powers twice: for a row whose powers are all normal numbers, and for any.

    `write` writes its turns, and gives what is known of them; None where the loop has no such powers, and nothing is
    written.
    """
    ops = [op for op in loop.regions[0].block.ops if isinstance(op, SpecOp)]
    powers = [op for op in ops if op.name == "ttarget.elementwise" and op.value("fn") == "exp"]
    if emitter.exponential != values.EXACT or emitter.threads != WARP or not powers:
        return None
    if not all(_can_be_twice(emitter, op) for op in ops):
        return None
    if any(emitter.falling.get(op) not in emitter.smallest for op in powers):
        return None
    tests = [_is_ordinary(emitter, op, emitter.falling[op]) for op in powers]
    if None in tests:
        return None
    f, test = emitter.f, all_of(emitter, [one for one in tests if one is not None])
    kept = {buffer: dict(held.tiles) for buffer, held in emitter.held.items()}
    count = 0

    def arm(ordinary: Iterable[SpecOp]) -> list[Value]:
        nonlocal count
        emitter.ordinary = frozenset(ordinary)
        for buffer, tiles in kept.items():
            emitter.held[buffer].tiles = dict(tiles)
        ends = emitter.apart(write)
        emitter.ordinary = frozenset()
        count = len(ends)
        return ends + [value for tile in _made(emitter, kept) for value in emitter.registers(tile)]

    found = f.if_(test, lambda: arm(powers), lambda: arm(()))
    at = count
    for buffer, held in emitter.held.items():
        for place, tile in held.tiles.items():
            if kept[buffer].get(place) is not tile:
                held.tiles[place] = Tile(tile.layout, tile.dtype, found[at : at + tile.layout.registers])
                at += tile.layout.registers
    return found[:count]


def write_powers(emitter: Emitter, op: SpecOp) -> list[Value] | None:
    """Powers of many elements that a thread has of a row less its largest, where they are bf16: written twice as well.

    Each thread decides for itself. None for other powers, and nothing is written.
    """
    shifted = op.operands[0].owner
    if emitter.exponential != values.EXACT or op not in emitter.falling or not isinstance(shifted, SpecOp):
        return None
    source, tops = emitter.tiles[shifted.operands[0]], set(emitter.of(shifted.operands[1]))
    given = source.narrow if source.dtype is f32 else None
    if given is None or given[0] is not bf16 or len(given[1]) < MANY or len(given[1]) % 2 or len(tops) > 1:
        return None
    f, parts = emitter.f, emitter.of(op.operands[0])
    test = _is_near(emitter, _extreme(emitter, "min", given[1]), tops.pop())
    return f.if_(
        test,
        lambda: [values.computed(f, "exp", [part], f32, promise=values.NORMAL) for part in parts],
        lambda: [values.computed(f, "exp", [part], f32, promise=values.FALLS) for part in parts],
    )


def _can_be_twice(emitter: Emitter, op: SpecOp) -> bool:
    """Whether nothing outside of registers is changed by an op, or known of it afterwards."""
    if op.name == "ttarget.store":
        # What leaves by matrices does so at the end of a part, in either way.
        leaves = emitter.has_wide_rows and emitter.matrix is not None and op in emitter.matrix.stores
        return op.operands[1] in emitter.held or leaves
    return op.name in _INSIDE and (emitter.matrix is None or op not in emitter.matrix.shared)


def _made(emitter: Emitter, kept: dict[SSAValue, dict[int | str, Tile]]) -> list[Tile]:
    """What was put into registers, in order."""
    held = emitter.held.items()
    return [tile for buffer, one in held for place, tile in one.tiles.items() if kept[buffer].get(place) is not tile]


def _is_ordinary(emitter: Emitter, power: SpecOp, bound: Bound) -> Value | None:
    """Whether what the thread has of a row is not too far below the largest."""
    shifted = power.operands[0].owner
    assert isinstance(shifted, SpecOp)
    top = shifted.operands[1].owner
    if not isinstance(top, SpecOp) or top.name != "ttarget.broadcast" or top.operands[0] not in emitter.tiles:
        return None
    smallest, largest = emitter.smallest[bound], emitter.of(top.operands[0])
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
