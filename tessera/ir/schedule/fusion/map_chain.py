"""A pointwise op or gather joins the map group that it reads element by element.

Asked after all others (its cost is higher): a map group can still be taken into whatever reads it, so an op that could
join a contraction or a row group as well goes there.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.schedule.grouping import FusionRule, Group, Site, When
from tessera.ir.tile.facets import Gather, Pointwise


class MapChain(FusionRule):
    """Before: `%1 = map group`, `%2 = tgraph.exp %1`. After: one map group with both."""

    when = When.RECORD
    order = 40

    def targets(self, site: Site) -> Iterable[Group]:
        is_pointwise = isinstance(site.facet, Pointwise | Gather)
        return [one for one in site.sources if one.kind.can_inline] if is_pointwise else []

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        return 1, -group.number

    def matches(self, site: Site, group: Group) -> bool:
        reads = self.groups.reads_from(group, site.reads)
        return site.shape == group.shape and self.program.are_elementwise(reads, site.shape)


RULE = MapChain
