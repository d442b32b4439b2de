"""A pointwise op or gather joins the row group that it reads, as a value of the row or of the full space.

`m = max(x, axis=1); y = x - m`: the subtraction reads `m` at the row of each element, which is where the group computes
it, so softmax, norms and what follows them are one kernel. An op that reads the group anywhere else (another row, a
transpose) does not fit, and reads it from memory. Nor does a cheap one that only reductions along columns need: those
compute it from the values of rows, which are few, and nothing as large as the tensor is written for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.grouping import FusionRule, Group, Site, When
from tessera.ir.schedule.own_producers import column_axes
from tessera.ir.tile.facets import Gather, Pointwise


class RowPointwise(FusionRule):
    """Before: `%1 = row group`, `%2 = tgraph.sub %x, %1`. After: one row group with both."""

    when = When.RECORD
    order = 20

    @cached_property
    def _column_axes(self) -> dict[int, tuple[int, ...]]:
        """Cheap elementwise records that only reductions over certain axes need, not the last one; and those axes."""
        program, found = self.program, dict[int, tuple[int, ...]]()
        for number in reversed(program.solid):
            record = program.tape.records[number]
            lower = spec_of(record).lower
            if (
                not isinstance(lower, Pointwise)
                or lower.expensive
                or not program.result_values.isdisjoint(record.results)
            ):
                continue
            readers = {reader for value in record.results for reader, _ in program.readers.get(value, ())}
            axes = {found.get(reader) or column_axes(program.tape, program.tape.records[reader]) for reader in readers}
            if len(axes) == 1 and (one := axes.pop()):
                found[number] = one
        return found

    def targets(self, site: Site) -> Iterable[Group]:
        is_pointwise = isinstance(site.facet, Pointwise | Gather)
        return [one for one in site.sources if one.space is not None] if is_pointwise else []

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        # The latest of several: what is computed last is read while it is still in registers.
        return 0, -group.number

    def matches(self, site: Site, group: Group) -> bool:
        reads = self.groups.reads_from(group, site.reads)
        assert group.space is not None
        is_computed = not any(read.in_memory for read in reads)
        if site.shape == group.space.shape and self._column_axes.get(site.record, group.space.axes) != group.space.axes:
            return False
        if not is_computed or group.space.role_of(self.program, site.shape, reads) is None:
            return False
        others = [one for one in site.sources if one is not group]
        return not self.groups.is_delayed(group, others, [site.record])


RULE = RowPointwise
