"""Fusion groups of a tape: one walk forward in which each op joins the group of a producer, or starts its own.

Groups are told apart by kind. A *contraction* takes pointwise ops of its result's shape as its epilogue. A *row* group
has reductions over one space, with pointwise ops of the whole space and of its rows. A *map* group has pointwise ops
and gathers of one shape. A *library* kernel takes what was promised to be one kernel with it. Assemblies, control flow
and effects stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.tape import Record
from tessera.ir.schedule.effect_order import EffectOrder, is_exchange
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.epilogues import epilogues
from tessera.ir.schedule.groups import Group, Grouping, Order
from tessera.ir.schedule.inlining import Inliner
from tessera.ir.schedule.program import Program, Read, settled
from tessera.ir.schedule.rows import RowSpace
from tessera.ir.tile.facets import Assembly, Contraction, Gather, Library, Pointwise, Reduction
from tessera.types.dim import Dim

Ask: TypeAlias = Callable[[str, int], bool]
"""Whether a kind of fusion may happen at the group that starts with a record: `ask("fusion.row", 7)`."""


class Grouper:
    """The walk."""

    def __init__(self, program: Program, ask: Ask) -> None:
        self.program, self.tape = program, program.tape
        self.order = Order()
        self.groups: dict[int, Group] = {}
        self.owner: dict[int, Group] = {}
        self._ask, self._asked = ask, dict[tuple[str, int], bool]()
        self._effects = EffectOrder()
        self._collectives: list[int] = []
        self.epilogues = epilogues(program)

    def run(self) -> Grouping:
        for number in self.program.solid:
            self._place(number, self.tape.records[number])
        inlined = Inliner(self).run()
        for value in self._demanded(inlined):
            self._copy(value)
        return Grouping(self.program, tuple(self._sorted()), self.owner, frozenset(inlined))

    def _place(self, number: int, record: Record) -> None:
        lower = spec_of(record).lower
        reads = self.program.reads(number)
        out = self.program.type(record.results[0]).shape if record.results else ()
        if isinstance(lower, Pointwise | Gather):
            found = self._joinable(number, out, reads)
            group = found or self._new("map", out)
            self._join(group, number, reads)
            self._mark_row(group, record, out, reads)
            self._take_sources(group, reads)
        elif isinstance(lower, Reduction):
            self._place_reduction(number, record, lower, reads)
        else:
            group = self._new(_kind(lower), out)
            self._join(group, number, reads)
            if group.kind == "flow":
                self.order.needs(group.number, self._effects.add(group.number, record))
                if is_exchange(record):
                    self._collectives.append(group.number)

    def _new(self, kind: str, shape: tuple[Dim, ...]) -> Group:
        number = self.order.add()
        self.groups[number] = Group(number, kind, shape)
        return self.groups[number]

    def _join(self, group: Group, number: int, reads: Sequence[Read]) -> None:
        group.records.append(number)
        self.owner[number] = group
        self.order.needs(group.number, [other.number for other in self._sources(reads)])

    def _sources(self, reads: Iterable[Read]) -> list[Group]:
        """The groups that reads come from, each once."""
        makers = self.program.makers
        found = {owner.number: owner for read in reads if (owner := self.owner.get(makers.get(read.value, -1)))}
        return list(found.values())

    def _from(self, group: Group, reads: Iterable[Read]) -> list[Read]:
        return [read for read in reads if self.owner.get(self.program.makers.get(read.value, -1)) is group]

    def is_allowed(self, group: Group) -> bool:
        """Whether a group may be fused with others; asked once for each."""
        knob = f"fusion.{group.kind}"
        key = (knob, group.first)
        if key not in self._asked:
            self._asked[key] = self._ask(*key)
        return self._asked[key]

    def _joinable(self, number: int, out: tuple[Dim, ...], reads: Sequence[Read]) -> Group | None:
        """The group of a producer that a pointwise op or gather may join: one with more to it than a map first."""
        sources = sorted(self._sources(reads), key=lambda group: (group.kind == "map", -group.number))
        for group in sources:
            if group.kind in ("contraction", "library") and number not in self.epilogues.get(group.first, ()):
                continue
            if not group.has_room():
                continue
            fits = self._fits(group, out, self._from(group, reads))
            others = [other for other in sources if other is not group]
            may_join = fits and self._runs_before(group, others) and self.is_allowed(group)
            if may_join and not self._would_wait(group, others):
                return group
        return None

    def _would_wait(self, group: Group, others: Sequence[Group]) -> bool:
        """Whether a product would have to wait for ranks because of its epilogue alone; one that is promised does."""
        depends = self.order.depends
        waited = (
            one
            for one in self._collectives
            if any(other.number == one or depends(other.number, one) for other in others)
            and not depends(group.number, one)
        )
        if group.kind != "contraction" or next(waited, None) is None:
            return False
        taken = (spec_of(self.tape.records[number]).lower for number in self.epilogues.get(group.first, ()))
        if any(isinstance(lower, Pointwise) and lower.is_promise for lower in taken):
            return False
        return self._ask("collectives.overlap", group.first)

    def _runs_before(self, group: Group, others: Iterable[Group]) -> bool:
        """Whether none of the others waits for the group."""
        return not any(self.order.depends(other.number, group.number) for other in others)

    def _fits(self, group: Group, out: tuple[Dim, ...], reads: Sequence[Read]) -> bool:
        if any(read.in_memory for read in reads):
            return False
        if group.space is not None:
            return self._role(group.space, out, reads) is not None
        here = settled(coordinates(len(out)), out)
        return (
            group.kind in ("contraction", "library", "map")
            and out == group.shape
            and all(self._settled(read) == here for read in reads)
        )

    def _settled(self, read: Read) -> IndexMap:
        return settled(read.at, self.program.type(read.value).shape)

    def _role(self, space: RowSpace, out: tuple[Dim, ...], reads: Sequence[Read]) -> str | None:
        """How a pointwise op reads a row group: as a value of the `row`, of the `full` space, or not in place."""
        if all(space.is_row(read.value) for read in reads):
            for keepdims in (True, False):
                if out == space.row_shape(keepdims) and self._in_place(space, row_coordinates(space, keepdims), reads):
                    return "row"
        if out == space.shape and self._in_place(space, coordinates(len(out)), reads):
            return "full"
        return None

    def _in_place(self, space: RowSpace, full: IndexMap, reads: Sequence[Read]) -> bool:
        return all(
            self._settled(read) == settled(space.at(read.value, full), self.program.type(read.value).shape)
            for read in reads
        )

    def _mark_row(self, group: Group, record: Record, out: tuple[Dim, ...], reads: Sequence[Read]) -> None:
        if group.space is None:
            return
        if self._role(group.space, out, self._from(group, reads)) == "row":
            keepdims = out == group.space.row_shape(True)
            group.space.rows.update(dict.fromkeys(record.results, keepdims))

    def _place_reduction(self, number: int, record: Record, lower: Reduction, reads: Sequence[Read]) -> None:
        source = self.program.type(record.operands[0])
        axes = tuple(lower.axes(source, record.attributes))
        sources = self._sources(reads)
        group = None
        for other in sorted(self.groups.values(), key=lambda group: -group.number):
            same = (
                other.space is not None
                and other.has_room()
                and other.space.shape == source.shape
                and other.space.axes == axes
            )
            if same and self._joins_rows(other, source.shape, reads, sources):
                group = other
                break
        if group is None:
            group = self._new("row", source.shape)
            group.space = RowSpace(source.shape, axes)
        self._join(group, number, reads)
        assert group.space is not None
        group.space.rows[record.results[0]] = self.program.type(record.results[0]).shape == group.space.row_shape(True)
        self._take_sources(group, reads)

    def _joins_rows(
        self, group: Group, shape: tuple[Dim, ...], reads: Sequence[Read], sources: Sequence[Group]
    ) -> bool:
        """Whether a reduction may join a row group: it reads the group in place, or the same values as the group."""
        own = self._from(group, reads)
        others = [other for other in sources if other is not group]
        if not self._runs_before(group, others) or not self.is_allowed(group):
            return False
        if own:
            assert group.space is not None
            return self._in_place(group.space, coordinates(len(shape)), own)
        shared = {read.value for number in group.records for read in self.program.reads(number)}
        return any(value in shared for value in self._behind_maps(shape, reads))

    def _behind_maps(self, shape: tuple[Dim, ...], reads: Sequence[Read]) -> set[int]:
        """What reads come from, through the map groups of a shape that would be taken in with them."""
        found = {read.value for read in reads}
        for group in self._sources(reads):
            if group.kind == "map" and group.shape == shape:
                found |= {read.value for number in group.records for read in self.program.reads(number)}
        return found

    def _take_sources(self, group: Group, reads: Sequence[Read]) -> None:
        """Take in the map and row groups that were read at the very place, so that what they give is computed here."""
        if group.kind not in ("map", "row"):
            return
        for other in self._sources(reads):
            if other is group or other.kind not in ("map", "row") or other.shape != group.shape:
                continue
            if not group.has_room(len(other.records)):
                continue
            # what the group read of the other before counts too: a gather of it needs it in memory
            own = [read for number in group.records for read in self._from(other, self.program.reads(number))]
            in_place = self._is_alike(group, other, own) and not any(read.in_memory for read in own)
            in_place = in_place and (other.space is not None or self._shares_work(group, other))
            if in_place and self.order.may_merge(group.number, other.number) and self.is_allowed(other):
                self.merge(group, other)

    def _shares_work(self, group: Group, other: Group) -> bool:
        """Whether a map group loses nothing in a row group: a fold of everything has one program, and so one thread."""
        if group.space is None or len(group.space.axes) < len(group.space.shape):
            return True
        results = {value for number in other.records for value in self.tape.records[number].results}
        readers = {reader for value in results for reader, _ in self.program.readers.get(value, ())}
        return not results & self.program.kept and readers <= {*group.records, *other.records}

    def _is_alike(self, group: Group, other: Group, reads: Sequence[Read]) -> bool:
        """Whether what is read from another group is read where a merged group would have it."""
        if other.space is None:
            here = settled(coordinates(len(other.shape)), other.shape)
            return all(self._settled(read) == here for read in reads)
        if group.space is None or group.space.axes != other.space.axes:
            return False
        if all(other.space.is_row(read.value) for read in reads):
            rows = (row_coordinates(other.space, keepdims) for keepdims in (True, False))
            if any(self._in_place(other.space, full, reads) for full in rows):
                return True
        return self._in_place(other.space, coordinates(len(other.shape)), reads)

    def merge(self, kept: Group, gone: Group) -> None:
        """Make two groups one."""
        self.order.merge(kept.number, gone.number)
        kept.records = sorted(kept.records + gone.records)
        if kept.space is not None and gone.space is not None:
            kept.space.rows.update(gone.space.rows)
        for number in gone.records:
            self.owner[number] = kept
        del self.groups[gone.number]

    def _demanded(self, inlined: set[int]) -> list[int]:
        """Free values that must lie in memory: results of the program, and what is read as a whole tensor."""
        wanted = list(self.tape.outputs)
        for number in sorted(self.owner):
            wanted += self.program.memory_operands(self.tape.records[number])
        roots = dict.fromkeys(self.program.alias_of(value) for value in wanted)
        return [value for value in roots if value in self.program.free]

    def _copy(self, value: int) -> None:
        """A group that writes a free value to memory."""
        type = self.program.type(value)
        group = self._new("map", type.shape)
        group.copies = value
        reads = self.program.trace(value, coordinates(type.rank))
        self.order.needs(group.number, [other.number for other in self._sources(reads)])
        for number in list(self.owner):
            record = self.tape.records[number]
            operands = self.program.memory_operands(record)
            if any(self.program.alias_of(operand) == value for operand in operands):
                self.order.needs(self.owner[number].number, [group.number])

    def _sorted(self) -> list[Group]:
        """An order that respects all dependencies: a group has more before it than any that it depends on."""
        return sorted(
            self.groups.values(), key=lambda group: (self.order.before[group.number].bit_count(), group.first)
        )


def _kind(lower: object) -> str:
    """The kind of the group of an op that starts one."""
    kinds = ((Contraction, "contraction"), (Assembly, "assembly"), (Library, "library"))
    return next((kind for facet, kind in kinds if isinstance(lower, facet)), "flow")


def row_coordinates(space: RowSpace, keepdims: bool) -> IndexMap:
    """Coordinates of the full space for a value of the row: its own along what is kept, others along what is folded."""
    kept = [axis for axis in range(len(space.shape)) if axis not in space.axes]
    return tuple(
        Dim.symbol(f"_f{axis}") if axis in space.axes else Dim.symbol(f"d{axis if keepdims else kept.index(axis)}")
        for axis in range(len(space.shape))
    )


def group_tape(program: Program, ask: Ask) -> Grouping:
    """The fusion groups of a program."""
    return Grouper(program, ask).run()


def ungrouped(knob: str, place: int) -> bool:
    """The answer that switches all fusion off."""
    return False
