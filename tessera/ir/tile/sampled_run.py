"""Running only the addresses of a kernel, at small sizes: who touched which cell, where no formula tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.diagnostics.codes import BoundsError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile.interpret import Access, Observer, TileRun
from tessera.types.dim import Dim

_MOST_PROGRAMS = 2048
_MOST_CELLS = 1 << 22
_LARGEST_SIZE = 1 << 16


@dataclass(frozen=True)
class Conflict:
    """Two programs that touch one cell of an argument; the second of them in the order of the run comes last."""

    first: Access
    second: Access
    cell: int


class AddressRun(TileRun):
    """A run that computes integers, from which addresses are made, and leaves floats zero."""

    def op(self, op: SpecOp) -> None:
        types = [result.type for result in op.results]
        is_arithmetic = not op.regions and op.name != "ttile.load" and bool(types)
        if is_arithmetic and all(isinstance(type, TileAttr) and type.dtype.is_float for type in types):
            for result, type in zip(op.results, types, strict=True):
                assert isinstance(type, TileAttr)
                self[result] = np.zeros([dim.value or 0 for dim in type.shape], numpy_dtype(type.dtype))
            return
        super().op(op)


class Tracker(Observer):
    """Remembers for every cell of every argument who wrote it and who read it last, and keeps the first conflict."""

    def __init__(self, counts: Sequence[int]) -> None:
        self.writers = [np.full(count, -1, np.int64) for count in counts]
        self.readers = [np.full(count, -1, np.int64) for count in counts]
        self.accesses: list[Access] = []
        self.conflict: Conflict | None = None

    def access(self, run: TileRun, access: Access) -> None:
        if access.argument is None or self.conflict is not None:
            return
        number = len(self.accesses)
        self.accesses.append(access)
        self._compare(self.writers[access.argument], access)
        if access.is_store:
            self._compare(self.readers[access.argument], access)
            self.writers[access.argument][access.cells] = number
        else:
            self.readers[access.argument][access.cells] = number

    def _compare(self, owners: Array, access: Access) -> None:
        numbers = owners[access.cells]
        for number in np.unique(numbers[numbers >= 0]):
            other = self.accesses[int(number)]
            if other.program != access.program and self.conflict is None:
                self.conflict = Conflict(other, access, int(access.cells[numbers == number][0]))


def sampled_conflict(kernel: SpecOp) -> Conflict | None:
    """The first conflict that small sizes show, with all buffers zero; None where there is none, or it cannot run."""
    for sizes in (_grown(kernel, alike=False), _grown(kernel, alike=True)):
        if sizes is None:
            continue
        buffers = _buffers(kernel, sizes)
        tracker = Tracker([buffer.size for buffer in buffers])
        try:
            AddressRun(kernel, sizes, tracker).run_programs(buffers)
        except BoundsError:
            # These sizes are none that a caller may give: another check speaks of bounds.
            continue
        return tracker.conflict
    return None


def _buffers(kernel: SpecOp, sizes: Mapping[str, int]) -> list[Array]:
    found: list[Array] = []
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        shape = [max(0, dim.evaluate(sizes)) for dim in argument.type.shape]
        found.append(np.zeros(shape, numpy_dtype(argument.type.dtype)))
    return found


def _grown(kernel: SpecOp, *, alike: bool) -> dict[str, int] | None:
    """The smallest sizes with at least two programs along every axis of the grid that can have them."""
    grid: tuple[Dim, ...] = kernel.value("grid")
    sizes = dict.fromkeys(kernel.value("symbols"), 3)
    for axis in grid:
        while axis.symbols and axis.evaluate(sizes) < 2 and max(sizes.values()) < _LARGEST_SIZE:
            for symbol in sizes if alike else axis.symbols:
                # Odd, so that tiles are cut at the end.
                sizes[symbol] = sizes[symbol] * 2 + 1
    programs = int(np.prod([max(0, axis.evaluate(sizes)) for axis in grid], dtype=np.float64))
    cells = 0
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        cells += int(argument.type.data.size.evaluate(sizes))
    return sizes if programs <= _MOST_PROGRAMS and cells <= _MOST_CELLS else None
