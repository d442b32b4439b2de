"""A map group with one reader is computed there, in place of being written and read again, where that costs no more.

Asked last, once every record has a group, from the end of the program to its beginning, so that chains of cheap values
collapse into their reader. The reader may compute a value several times for each element (a contraction reads operands
once for every block, a row group once for every pass): then only conversions that its loads do anyway, or a few flops,
are worth it. A map of the same size, or an assembly, computes each value once, as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.ir.base.index_maps import coordinates
from tessera.ir.base.tape import Record
from tessera.ir.schedule.computed_operands import computed_operand
from tessera.ir.schedule.emit.evaluate import axes_of, is_walkable, operand_at, producers, spec_of
from tessera.ir.schedule.grouping import FusionRule, Group, Groups, Site, When
from tessera.ir.schedule.kinds.contraction import accumulator, layout_of
from tessera.ir.schedule.program import CHEAP, is_conversion
from tessera.ir.tile.facets import Assembly, Contraction, ContractionMaps, Gather, Pointwise, Reduction
from tessera.types.dim import product
from tessera.types.dtype import f32
from tessera.types.policy import tf32
from tessera.types.promotion import holds
from tessera.types.shape import ONE, is_at_least

LONG = 64
"""Elements of a row for which a value is computed anew in every vector: little beside what the vector takes."""


class InlineProducer(FusionRule):
    """Before: `%1 = map group`, `%2 = contraction group of %1`. After: one contraction group that computes `%1`."""

    when = When.FORMED
    order = 60

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self.readers, self.records = self.program.readers, self.program.tape.records
        self._makers = producers(self.program.tape)
        self._operands: set[int] = set()
        """Inlined records that an operand of a contraction is computed by."""

    def targets(self, site: Site) -> Iterable[Group]:
        if site.group is None or not (site.group.kind.can_inline or self._is_assembled(site.group)):
            return []
        reader = self._only_reader(site.group)
        return [] if reader is None else [reader]

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        """Flops for one element that are done more often than before: none where each value is still computed once."""
        assert site.group is not None
        records = [self.records[number] for number in site.group.records]
        if group.kind.reads_once or self._are_copied(records) or self._is_dequantized(site.group, group):
            return (0,)
        # A value of the same size that is read by one index map is computed as often as before.
        results = {result for record in records for result in record.results}
        inside = site.group.records
        reads = {read for value in results for number, read in self.readers.get(value, ()) if number not in inside}
        is_once = group.kind.computes_once or self._is_promised(group) or self._is_in_epilogue(site.group, group)
        if is_once and product(site.group.shape) == product(group.shape) and len(reads) == 1:
            return (0,)
        return (sum(getattr(spec_of(record).lower, "flops", 0) for record in records),)

    def matches(self, site: Site, group: Group) -> bool:
        inner = site.group
        assert inner is not None
        if not self.groups.is_allowed(inner):
            return False
        if self._is_assembled(inner):
            return self._is_dequantized(inner, group)
        facets = [spec_of(self.records[number]).lower for number in inner.records]
        computed = [facet for facet in facets if isinstance(facet, Pointwise)]
        masked = [facet for facet in facets if isinstance(facet, Gather) and facet.fill is not None]
        if len(computed) + len(masked) < len(facets) or (masked and not group.kind.can_inline):
            return False
        (flops,) = self.cost(site, group)
        is_light = all(not facet.expensive and facet.flops <= CHEAP for facet in computed)
        is_shared = product(inner.shape) == product(group.shape) or self._is_read_along_rows(inner, group)
        return not flops or (is_light and flops <= (4 * CHEAP if is_shared else CHEAP // 2))

    def _is_read_along_rows(self, inner: Group, group: Group) -> bool:
        """Whether long rows of a map group read one value each, as a gather of rows reads its indices.

        A CPU, which copies no whole tiles, reads such an index from memory as one number, and its row in vectors.
        """
        if not self.program.whole_tiles or not group.kind.can_inline:
            return False
        if not is_at_least(group.shape[-1] if group.shape else ONE, LONG):
            return False
        inside, last = inner.records, f"d{len(group.shape) - 1}"
        results = [result for number in inside for result in self.records[number].results]
        found = [read for value in results for number, read in self.readers.get(value, ()) if number not in inside]
        return all(not any(last in index.symbols for index in read.at) for read in found)

    def apply(self, site: Site, group: Group) -> None:
        assert site.group is not None
        for number in site.group.records:
            self.groups.inlined.update(self.records[number].results)
        if any(self._is_operand(number) for number in site.group.records):
            self._operands.update(site.group.records)
        super().apply(site, group)

    def _only_reader(self, group: Group) -> Group | None:
        """The group that alone reads a group's values; None where there are more, or they must be in memory."""
        found: dict[int, Group] = {}
        for number in group.records:
            for result in self.records[number].results:
                if result in self.program.result_values:
                    return None
                for reader, read in self.readers.get(result, ()):
                    if read.in_memory or not self._may_read(reader, group):
                        return None
                    found[self.groups.owner[reader].number] = self.groups.owner[reader]
        found.pop(group.number, None)
        return next(iter(found.values())) if len(found) == 1 else None

    def _may_read(self, number: int, group: Group) -> bool:
        """Whether a record can have the group's values computed for it, rather than in memory."""
        record = self.records[number]
        lower = spec_of(record).lower
        if isinstance(lower, Contraction) and all(self._is_copied(self.records[own], record) for own in group.records):
            return True
        if (isinstance(lower, Contraction) or number in self._operands) and self._is_dequantized(
            group, self.groups.owner[number]
        ):
            return True
        if self._is_assembled(group):
            return False
        if isinstance(lower, Contraction) or number in self._operands:
            return all(self._may_convert(self.records[own], record) for own in group.records)
        return isinstance(lower, Pointwise | Gather | Reduction | Assembly)

    def _is_dequantized(self, group: Group, reader: Group) -> bool:
        """Whether a group is computed for the contraction of another one, as an operand in registers."""
        records = [self.records[number] for number in reader.records]
        contractions = [record for record in records if isinstance(spec_of(record).lower, Contraction)]
        return any(self._can_dequantize(group, record) for record in contractions)

    def _can_dequantize(self, group: Group, contraction: Record) -> bool:
        """Whether tensor cores take an operand that threads compute by a group from one-byte elements."""
        if not self.program.computes:
            return False
        inside = [self.records[number] for number in group.records]
        facets = [spec_of(record).lower for record in inside if not isinstance(spec_of(record).lower, Assembly)]
        if not all(isinstance(facet, Pointwise) and not facet.expensive and facet.flops <= CHEAP for facet in facets):
            return False
        own = {value for record in inside for value in record.results}
        known, reached = own | self.program.free | self.groups.inlined, set[int]()

        def is_inside(record: Record) -> bool:
            reached.update(record.results)
            return record.results[0] in known

        found = computed_operand(self.program.tape, contraction, is_inside)
        is_boxed = found is not None and found.boxes[0].assembly >= 0
        return found is not None and not own.isdisjoint(reached) and (is_boxed or len(facets) == len(inside))

    def _is_assembled(self, group: Group) -> bool:
        """Whether a group puts a result together, which only an operand of a contraction is computed from."""
        facets = [spec_of(self.records[number]).lower for number in group.records]
        return any(isinstance(facet, Assembly) for facet in facets)

    def _is_operand(self, number: int) -> bool:
        """Whether a contraction reads what a record gives, maybe through conversions that are inlined already."""
        readers = {reader for value in self.records[number].results for reader, _ in self.readers.get(value, ())}
        is_read = any(isinstance(spec_of(self.records[reader]).lower, Contraction) for reader in readers)
        return is_read or not readers.isdisjoint(self._operands)

    def _may_convert(self, conversion: Record, reader: Record) -> bool:
        """Whether an operand may be converted as it is loaded: it is cast once, to the accumulator's dtype."""
        tape = self.program.tape
        if not is_conversion(conversion):
            return False
        source, target = (tape.types[v].dtype for v in (conversion.operands[0], conversion.results[0]))
        is_contraction = isinstance(spec_of(reader).lower, Contraction)
        return holds(target, source) or (is_contraction and target is accumulator(tape, reader))

    def _is_copied(self, rounding: Record, contraction: Record) -> bool:
        """Whether TMA rounds an operand as it copies it: to tf32, where K is the contiguous dim."""
        lower, facet = spec_of(rounding).lower, spec_of(contraction).lower
        outer = self.program.rounded
        if outer is None or not isinstance(lower, Pointwise) or lower.rounds_to is None:
            return False
        tape = self.program.tape
        is_plain = lower.rounds_to(rounding.attributes) == tf32.name and tape.types[rounding.operands[0]].dtype is f32
        if not is_plain:
            return False
        maps = facet.maps([tape.types[operand] for operand in contraction.operands], contraction.attributes)
        layout = layout_of(tape, contraction, maps, outer, self._makers)
        across = (layout["is_lhs_m_major"], layout["is_rhs_n_major"])
        if self.program.orientation is not None:
            # What lies across K is written along it first: what is rounded here need not wait for the other operand.
            across = tuple(across[number] for number in (0, 1) if self._is_read_from(contraction, number, rounding))
        is_copied = layout["mode"] == tf32.name and not any(across)
        return is_copied and self._is_whole(rounding, contraction, maps)

    def _is_read_from(self, contraction: Record, number: int, rounding: Record) -> bool:
        """Whether an operand of a contraction is the result of a rounding, behind views."""
        value = contraction.operands[number]
        reads = self.program.trace(value, coordinates(self.program.type(value).rank))
        return any(read.value in rounding.results for read in reads)

    def _is_whole(self, rounding: Record, contraction: Record, maps: ContractionMaps) -> bool:
        """Whether what is rounded is f32 in memory, read along whole dims as copies of tiles need it."""
        program = self.program
        for number in (0, 1):
            for own in program.trace(contraction.operands[number], operand_at(maps, number)):
                found = program.trace(rounding.operands[0], own.at) if own.value in rounding.results else ()
                for read in found:
                    type, axes = program.type(read.value), axes_of(maps, number)
                    if type.dtype is not f32 or not is_walkable(read.at, type.shape, axes, number == 1):
                        return False
        return True

    def _is_in_epilogue(self, group: Group, reader: Group) -> bool:
        """Whether the epilogue of a contraction alone reads a group: it computes each of its elements once."""
        if not reader.kind.takes_epilogue:
            return False
        values = [value for number in group.records for value in self.records[number].results]
        users = {user for value in values for user, _ in self.readers.get(value, ())} - set(group.records)
        return all(
            isinstance(spec_of(self.records[user]).lower, Pointwise) and user not in self._operands for user in users
        )

    def _is_promised(self, group: Group) -> bool:
        """Whether a group was promised to be one kernel, with all that it alone reads."""
        facets = [spec_of(self.records[number]).lower for number in group.records]
        return any(isinstance(lower, Pointwise) and lower.is_promise for lower in facets)

    def _are_copied(self, records: Sequence[Record]) -> bool:
        """Whether records are roundings that cost nothing where they are read."""
        readers = [self.records[one] for record in records for one, _ in self.readers.get(record.results[0], ())]
        is_known = bool(readers) and all(isinstance(spec_of(one).lower, Contraction) for one in readers)
        return is_known and all(self._is_copied(record, reader) for record in records for reader in readers)


RULE = InlineProducer
