"""Sums along columns become part of the row group that reads the same tensors, where a GPU goes over them once.

The backward pass of a norm is the pattern: the gradient of its input needs sums over each row, those of scale and bias
sums over all rows of values that are computed from the same two tensors. In one kernel they are read once: three
tensors are moved in place of five. What it costs is a line of sums for some rows (`emit/row_columns.py`), so that rows
must be many, and wide enough for warps to share.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.row_columns import RESERVED, can_sum, reduced_axes
from tessera.ir.schedule.grouping import FusionRule, Group, Site, When
from tessera.ir.tile.facets import Pointwise, Reduction
from tessera.types.dim import product
from tessera.types.dtype import f32
from tessera.types.machine import Machine
from tessera.types.numerics import LEAF

LEAST_WIDTH = LEAF // 2
"""Elements of rows from which on a warp has enough of one."""
MOST_WIDTHS = (8 * LEAF, 4 * LEAF)
"""Elements of a row that the warps of one block share, a leaf to each, for one sum along columns and for two.

Each is 32 registers of a thread: of wider rows with two of them a multiprocessor holds one block, which waits at every
barrier. On an H200 rows of 8192 have 0.68 of the speed of a copy with one sum, 0.59 as two kernels; with two sums 0.49,
and 0.55 as two kernels.
"""
ALIGNED = 16
"""Bytes that rows begin at multiples of: others are read element by element, which leaves too few registers."""
LEAST_ROWS, LEAST_ELEMENTS = 4 * LEAF, 1 << 23
"""Rows from which on all multiprocessors have enough, and elements that are more than caches hold of three tensors."""
LEAST_SHARED = 2 * (MOST_WIDTHS[0] * f32.bytes + RESERVED)
"""Bytes of shared memory of a block with which it is worth it."""


class RowColumns(FusionRule):
    """Before: `%1 = row group of %x over [1]`, `%2 = row group of %x over [0]`. After: one row group with both."""

    when = When.FORMED
    order = 50

    @classmethod
    def applies(cls, machine: Machine) -> bool:
        return machine.is_gpu and machine.shared >= LEAST_SHARED

    def targets(self, site: Site) -> Iterable[Group]:
        group = site.group
        if group is None or group.space is None or not self._is_of_columns(group):
            return []
        last = (len(group.space.shape) - 1,)
        found = [one for one in self.groups.groups.values() if one.space is not None and one is not group]
        return [one for one in found if one.space is not None and one.space.axes == last and one.shape == group.shape]

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        return 0, -group.number

    def matches(self, site: Site, group: Group) -> bool:
        columns, space = site.group, group.space
        assert columns is not None
        assert space is not None
        # Rows that wait for sums along columns cannot be those that are summed.
        if self.groups.order.depends(group.number, columns.number) or not self.groups.is_allowed(group):
            return False
        count = self._count_columns(group) + self._count_columns(columns)
        if count > len(MOST_WIDTHS) or (group.shape[-1].value or 0) > MOST_WIDTHS[count - 1]:
            return False
        reads = [read for number in columns.records for read in self.program.reads(number)]
        inside = [read for read in reads if self.program.makers.get(read.value, -1) not in columns.records]
        own = self.groups.reads_from(group, inside)
        if any(read.in_memory for read in own) or not space.are_elementwise(self.program, space.full, own):
            return False
        large = self._large(columns) | self._large(group)
        width, bytes = group.shape[-1].value or 0, min(self.program.type(value).dtype.bytes for value in large)
        if width * bytes % ALIGNED or self._large(columns).isdisjoint(self._large(group)):
            return False
        return self._stores_rows(group, columns)

    def apply(self, site: Site, group: Group) -> None:
        assert site.group is not None
        # Numbers of columns are no numbers of rows.
        site.group.space = None
        self.groups.merge(group, site.group)

    def _is_of_columns(self, group: Group) -> bool:
        """Whether a group is sums in f32 along columns of many rows, with nothing as large as these among results."""
        assert group.space is not None
        tape, shape, axes = self.program.tape, group.space.shape, group.space.axes
        width = shape[-1].value if shape else None
        if (
            axes != tuple(range(len(shape) - 1))
            or not axes
            or width is None
            or not LEAST_WIDTH <= width <= MOST_WIDTHS[0]
        ):
            return False
        rows = product(shape[:-1]).value
        if rows is not None and (rows < LEAST_ROWS or rows * width < LEAST_ELEMENTS):
            return False
        sums = {number for number in group.records if reduced_axes(tape, tape.records[number])}
        behind: set[int] = set()
        for number in sorted(group.records):
            record = tape.records[number]
            is_behind = not behind.isdisjoint(read.value for read in self.program.reads(number))
            if number in sums and (is_behind or not can_sum(tape, record)):
                return False
            if number in sums or is_behind:
                behind.update(record.results)
            elif not isinstance(spec_of(record).lower, Pointwise) or self._is_read_outside(number, group):
                return False
        return bool(sums)

    def _count_columns(self, group: Group) -> int:
        """Reductions of a group that are not along its rows."""
        tape, last = self.program.tape, (len(group.shape) - 1,)
        return sum(reduced_axes(tape, tape.records[number]) not in ((), last) for number in group.records)

    def _is_read_outside(self, number: int, group: Group) -> bool:
        """Whether a value of a group is a result of the program, or read by other groups."""
        results = set(self.program.tape.records[number].results)
        readers = {reader for value in results for reader, _ in self.program.readers.get(value, ())}
        return bool(results & self.program.result_values) or not readers <= set(group.records)

    def _stores_rows(self, group: Group, columns: Group) -> bool:
        """Whether a group has a result as large as what it reduces, that others than sums along columns need."""
        tape = self.program.tape
        full = [number for number in group.records if tape.types[tape.records[number].results[0]].shape == group.shape]
        full = [number for number in full if not isinstance(spec_of(tape.records[number]).lower, Reduction)]
        known = set(group.records) | set(columns.records)
        for number in full:
            values = set(tape.records[number].results)
            readers = {reader for value in values for reader, _ in self.program.readers.get(value, ())}
            if values & self.program.result_values or not readers <= known:
                return True
        return False

    def _large(self, group: Group) -> set[int]:
        """The tensors as large as what a group reduces that it reads, or computes itself."""
        found = {read.value for number in group.records for read in self.program.reads(number)}
        found.update(value for number in group.records for value in self.program.tape.records[number].results)
        return {value for value in found if self.program.type(value).shape == group.shape}


RULE = RowColumns
