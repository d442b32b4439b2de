"""Computing values where they are read: map groups that have one reader, and cost no more there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.contraction_kernel import accumulator, layout_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.groups import Group
from tessera.ir.schedule.program import CHEAP, Program, is_conversion
from tessera.ir.schedule.walks import axes_of, is_walkable, side_at
from tessera.ir.tile.facets import Assembly, Contraction, ContractionMaps, Gather, Pointwise, Reduction
from tessera.types.dim import product
from tessera.types.dtype import f32
from tessera.types.policy import tf32
from tessera.types.promotion import holds


class Grouper(Protocol):
    """The groups that are formed already."""

    program: Program
    tape: Tape
    groups: dict[int, Group]
    owner: dict[int, Group]

    def is_allowed(self, group: Group) -> bool:
        """Whether a group may be fused with others."""
        ...

    def merge(self, kept: Group, gone: Group) -> None:
        """Make two groups one."""
        ...


class Inliner:
    """Dissolves map groups into the one group that reads them, where computing them there costs no more."""

    def __init__(self, grouper: Grouper) -> None:
        self.grouper, self.program = grouper, grouper.program
        self.readers, self.records = grouper.program.readers, grouper.tape.records
        self.kept = grouper.program.kept
        self._before_products: set[int] = set()

    def run(self) -> set[int]:
        inlined: set[int] = set()
        for group in sorted(self.grouper.groups.values(), key=lambda group: -group.first):
            if group.kind != "map":
                continue
            reader = self._only_reader(group)
            if reader is None or not reader.has_room(len(group.records)):
                continue
            if self.grouper.is_allowed(group) and self._is_worth_it(group, reader):
                for number in group.records:
                    inlined.update(self.records[number].results)
                if any(self._is_before_product(number) for number in group.records):
                    self._before_products.update(group.records)
                self.grouper.merge(reader, group)
        return inlined

    def _only_reader(self, group: Group) -> Group | None:
        """The group that alone reads a group's values; None where there are more, or they must lie in memory."""
        found: dict[int, Group] = {}
        for number in group.records:
            for result in self.records[number].results:
                if result in self.kept:
                    return None
                for reader, read in self.readers.get(result, ()):
                    if read.in_memory or not self._may_read(reader, group):
                        return None
                    found[self.grouper.owner[reader].number] = self.grouper.owner[reader]
        found.pop(group.number, None)
        return next(iter(found.values())) if len(found) == 1 else None

    def _may_read(self, number: int, group: Group) -> bool:
        """Whether a record can have the group's values computed for it, rather than in memory."""
        record = self.records[number]
        lower = spec_of(record).lower
        if isinstance(lower, Contraction) and all(self._is_copied(self.records[own], record) for own in group.records):
            return True
        if isinstance(lower, Contraction) or number in self._before_products:
            return all(self._may_convert(self.records[own], record) for own in group.records)
        return isinstance(lower, Pointwise | Gather | Reduction | Assembly)

    def _is_before_product(self, number: int) -> bool:
        """Whether a product reads what a record gives, maybe through conversions that are computed with it already."""
        readers = {reader for value in self.records[number].results for reader, _ in self.readers.get(value, ())}
        products = {reader for reader in readers if isinstance(spec_of(self.records[reader]).lower, Contraction)}
        return bool(products or readers & self._before_products)

    def _may_convert(self, conversion: Record, reader: Record) -> bool:
        """Whether what a product reads may be converted on the way: it converts once, to what it sums in."""
        tape = self.grouper.tape
        if not is_conversion(conversion):
            return False
        source, target = (tape.types[v].dtype for v in (conversion.operands[0], conversion.results[0]))
        is_product = isinstance(spec_of(reader).lower, Contraction)
        return holds(target, source) or (is_product and target is accumulator(tape, reader))

    def _is_copied(self, rounding: Record, product: Record) -> bool:
        """Whether the machine's copies round a side of a product: to tf32, where it lies along what is summed."""
        lower, contraction = spec_of(rounding).lower, spec_of(product).lower
        outer = self.program.rounded
        if outer is None or not isinstance(lower, Pointwise) or lower.rounds_to is None:
            return False
        tape = self.grouper.tape
        is_plain = lower.rounds_to(rounding.attributes) == tf32.name and tape.types[rounding.operands[0]].dtype is f32
        maps = contraction.maps([tape.types[operand] for operand in product.operands], product.attributes)
        layout = layout_of(tape, product, maps, outer)
        is_across = layout["is_across"] or layout["is_left_across"] or layout["is_windowed"]
        return is_plain and layout["mode"] == tf32.name and not is_across and self._lies_whole(rounding, product, maps)

    def _lies_whole(self, rounding: Record, product: Record, maps: ContractionMaps) -> bool:
        """Whether what is rounded lies in memory as f32 whose dims the sides of a product walk, as copies need it."""
        program = self.program
        for side in (0, 1):
            for own in program.trace(product.operands[side], side_at(maps, side)):
                found = program.trace(rounding.operands[0], own.at) if own.value in rounding.results else ()
                for read in found:
                    type, axes = program.type(read.value), axes_of(maps, side)
                    if type.dtype is not f32 or not is_walkable(read.at, type.shape, axes, side == 1):
                        return False
        return True

    def _is_promised(self, group: Group) -> bool:
        """Whether a group was promised to be one kernel, with all that only it wants."""
        facets = [spec_of(self.records[number]).lower for number in group.records]
        return any(isinstance(lower, Pointwise) and lower.is_promise for lower in facets)

    def _are_copied(self, records: Sequence[Record]) -> bool:
        """Whether records are roundings that cost nothing where they are read."""
        readers = [self.records[one] for record in records for one, _ in self.readers.get(record.results[0], ())]
        products = [one for one in readers if isinstance(spec_of(one).lower, Contraction)]
        is_known = len(products) == len(readers) and bool(products)
        return is_known and all(self._is_copied(record, product) for record in records for product in products)

    def _is_worth_it(self, group: Group, reader: Group) -> bool:
        records = [self.records[number] for number in group.records]
        facets = [spec_of(record).lower for record in records]
        if not all(isinstance(lower, Pointwise) for lower in facets):
            return False
        is_light = all(not lower.expensive and lower.flops <= CHEAP for lower in facets)
        flops = sum(lower.flops for lower in facets)
        if reader.kind == "assembly" or self._are_copied(records):
            return True
        # A value of the same size that is read once is computed as often as before.
        results = {result for record in records for result in record.results}
        places = {
            read for value in results for number, read in self.readers.get(value, ()) if number not in group.records
        }
        same_size = product(group.shape) == product(reader.shape)
        if (reader.kind == "map" or self._is_promised(reader)) and same_size and len(places) == 1:
            return True
        return is_light and flops <= (4 * CHEAP if same_size else CHEAP // 2)
