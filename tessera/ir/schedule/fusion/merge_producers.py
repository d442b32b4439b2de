"""A group that has taken in a record takes in the map and row groups that the record reads element by element.

Their results are then computed in registers, and written only if something else reads them. All reads of the group
count, not just those of the new record: one gather of a producer needs it in memory, and keeps it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.ir.schedule.grouping import FusionRule, Group, Site, When
from tessera.ir.schedule.program import Read


class MergeProducers(FusionRule):
    """Before: `%h = map group`, `%1 = row group of %h`. After: one row group that computes `%h` and gives it too."""

    when = When.GROWN
    order = 50

    def targets(self, site: Site) -> Iterable[Group]:
        group = site.group
        if group is None or not group.kind.merges:
            return []
        return [one for one in site.sources if one.kind.merges and one.shape == group.shape]

    def matches(self, site: Site, group: Group) -> bool:
        grown = site.group
        assert grown is not None
        reads = [read for number in grown.records for read in self.groups.reads_from(group, self.program.reads(number))]
        if any(read.in_memory for read in reads) or not self._are_elementwise(grown, group, reads):
            return False
        if group.space is not None:
            return not self.groups.is_delayed(group, [grown], grown.records)
        return self._keeps_parallelism(grown, group)

    def _are_elementwise(self, grown: Group, other: Group, reads: Sequence[Read]) -> bool:
        """Whether what is read from another group is read where a merged group would compute it."""
        if other.space is None:
            return self.program.are_elementwise(reads, other.shape)
        if grown.space is None or grown.space.axes != other.space.axes:
            return False
        if all(other.space.is_row(read.value) for read in reads):
            rows = (other.space.row_coordinates(keepdims) for keepdims in (True, False))
            if any(other.space.are_elementwise(self.program, full, reads) for full in rows):
                return True
        return other.space.are_elementwise(self.program, other.space.full, reads)

    def _keeps_parallelism(self, grown: Group, other: Group) -> bool:
        """Whether a map group loses nothing in a row group: a reduction of everything is one program, on one thread."""
        if grown.space is None or len(grown.space.axes) < len(grown.space.shape):
            return True
        results = {value for number in other.records for value in self.program.tape.records[number].results}
        readers = {reader for value in results for reader, _ in self.program.readers.get(value, ())}
        return not results & self.program.result_values and readers <= {*grown.records, *other.records}


RULE = MergeProducers
