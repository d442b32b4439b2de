"""Programs in two parts: what one does with its sums is written between the first steps of the next one's products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tessera.backends.nvptx.hopper_assembly import op32
from tessera.backends.nvptx.hopper_fragments import Registers
from tessera.backends.nvptx.text import special
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.ops.hopper_rest import pieces_of

if TYPE_CHECKING:
    from tessera.backends.nvptx.hopper_emit import MatrixEmitter


def rest_in(op: SpecOp) -> SpecOp | None:
    """The rest of the programs of a `ttarget.tiles`, if it stands apart."""
    found = [part for part in op.regions[0].block.ops if isinstance(part, SpecOp) and part.name == "ttarget.rest"]
    return found[0] if found else None


Part = tuple[Callable[[], None], Callable[[], None]]
"""What is written before a step of products, and what after it."""


class Rolled:
    """The tiles of a CTA, of which it has one at least."""

    def __init__(self, emitter: MatrixEmitter, op: SpecOp, rest: SpecOp, total: Value, counts: Sequence[Value]) -> None:
        self.emitter, self.op, self.rest, self.total, self.counts = emitter, op, rest, total, counts
        self.f = emitter.f

    def run(self) -> None:
        from tessera.backends.nvptx.hopper_emit import flat, unflat  # noqa: PLC0415 - they know each other

        f, cursors = self.f, [self.emitter.values[value] for value in self.op.operands]
        place = special(f, "ctaid.x")
        after, values = self._tile(place, cursors, [])
        like = [*after, *values]

        def body(carried: list[Value]) -> list[Value]:
            here, before = carried[:2]
            given = unflat(like, carried[2:])
            parts = self._parts(given[len(after) :], before)
            following, made = self._tile(here, given[: len(after)], parts)
            return [op32(f, "add", here, special(f, "nctaid.x")), here, *flat([*following, *made])]

        start = [op32(f, "add", place, special(f, "nctaid.x")), place, *flat(like)]
        last = f.while_(start, lambda carried: f.icmp("slt", carried[0], self.total), body)
        for early, late in self._parts(unflat(like, last[2:])[len(after) :], last[1]):
            early()
            late()

    def _tile(self, place: Value, cursors: Sequence[Any], between: list[Part]) -> tuple[list[Any], list[Any]]:
        """A program but for its rest: its places in rings after it, and what its rest takes."""
        emitter, block = self.emitter, self.op.regions[0].block
        places = emitter.wide_places(self.op, place, self.counts)
        emitter.values.update(zip(block.args, [*places, *cursors], strict=True))
        emitter.between = between
        emitter.run_block(block)
        assert not emitter.between, "parts of the rest go between steps"
        last = block.last_op
        assert last is not None
        return [emitter.values[value] for value in last.operands], [emitter.values[v] for v in self.rest.operands]

    def _parts(self, values: Sequence[Any], place: Value) -> list[Part]:
        """The rest of a program, in pieces: what all rows read, which comes early, and everything else."""
        block = self.rest.regions[0].block
        early = [op for op in block.ops if isinstance(op, SpecOp) and _is_early(op)]
        late = [op for op in block.ops if isinstance(op, SpecOp) and op not in early]

        def piece(first: int, count: int) -> Part:
            def begin() -> None:
                places = self.emitter.wide_places(self.op, place, self.counts)
                cut = [window_of(value, first, count) for value in values]
                self.emitter.values.update(zip(block.args, [*places, *cut], strict=True))
                self._some(early, first, count)

            return begin, lambda: self._some(late, first, count)

        return [piece(*one) for one in pieces_of(self.rest)]

    def _some(self, ops: Sequence[SpecOp], first: int, count: int) -> None:
        tiles = self.emitter.tiles
        assert tiles is not None
        tiles.window = (first, count)
        self.emitter.run_ops(ops)
        tiles.window = None


def _is_early(op: SpecOp) -> bool:
    """Whether an op is an index, or reads one number for each column."""
    if op.name != "ttarget.fragment_load":
        return op.name == "ttarget.index"
    return not any(op.value("axes")[0] in expr.symbols for expr in op.value("map")) and len(op.value("axes")) == 2


def window_of(tile: Registers, first: int, count: int) -> Registers:
    """Some columns of a fragment."""
    layout = tile.layout
    cut = layout.with_columns(count)
    each = 4 if tile.pairs is not None else 2
    share, given = layout.columns // each, tile.flat()
    found = [
        value
        for block in range(layout.blocks)
        for value in given[block * share + first // each : block * share + (first + count) // each]
    ]
    if tile.pairs is not None:
        return Registers(cut, tile.dtype, None, found)
    return Registers(cut, tile.dtype, found)
