"""A reduction joins a row group over the same shape and axes that it reads element by element, or that reads the same.

The second case is what makes `mean` and `mean of squares` of one tensor a single pass over it, although neither needs
the other. Values are also "the same" where both read them through map groups of the space, which the row group takes in
with the reduction (`merge_producers`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.schedule.grouping import FusionRule, Group, Site, When
from tessera.ir.tile.facets import Reduction


class RowReduction(FusionRule):
    """Before: `%1 = row group of %x over [1]`, `%2 = tgraph.sum %x {axes = [1]}`. After: one row group with both."""

    when = When.RECORD
    order = 30

    def targets(self, site: Site) -> Iterable[Group]:
        if not isinstance(site.facet, Reduction):
            return
        record = self.program.tape.records[site.record]
        source = self.program.type(record.operands[0])
        axes = tuple(site.facet.axes(source, record.attributes))
        for group in self.groups.groups.values():
            if group.space is not None and group.space.shape == source.shape and group.space.axes == axes:
                yield group

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        return 0, -group.number

    def matches(self, site: Site, group: Group) -> bool:
        # Asked before the maps are looked at, so that `fusion.row` is a choice wherever two reductions share a space.
        if not self.groups.is_allowed(group):
            return False
        assert group.space is not None
        own = self.groups.reads_from(group, site.reads)
        if own:
            return group.space.are_elementwise(self.program, group.space.full, own)
        shared = {read.value for number in group.records for read in self.program.reads(number)}
        return not shared.isdisjoint(self._values_behind(site, group))

    def _values_behind(self, site: Site, group: Group) -> set[int]:
        """What the reduction reads, directly or through map groups that would be merged with it."""
        found = {read.value for read in site.reads}
        for source in site.sources:
            if source.kind.can_inline and source.shape == group.shape:
                found |= {read.value for number in source.records for read in self.program.reads(number)}
        return found


RULE = RowReduction
