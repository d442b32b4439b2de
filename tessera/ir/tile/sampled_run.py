"""Running a kernel at small sizes, as far as its addresses need it: who touched which cell, where no formula tells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tessera.diagnostics.codes import BoundsError, RaceError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile.interpret import Access, Observer, TileRun
from tessera.ir.tile.ops.access import is_shared
from tessera.ir.tile.race_observer import RaceObserver
from tessera.ir.tile.worker_race import WorkerRace
from tessera.types.dim import Dim

_MOST_ACCESSES = 10_000
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
        if number == _MOST_ACCESSES:
            raise _SpentError
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


class _SpentError(Exception):
    """The run has shown all it is allowed to."""


def sampled_conflict(kernel: SpecOp) -> Conflict | None:
    """The first conflict that small sizes show, with all buffers zero; None where there is none, or it cannot run."""
    for sizes in (dict.fromkeys(kernel.value("symbols"), 3), grown_sizes(kernel)):
        if _cells(kernel, sizes) > _MOST_CELLS:
            continue
        buffers = _buffers(kernel, sizes)
        tracker = Tracker([buffer.size for buffer in buffers])
        # Sizes that leave a buffer are none that a caller may give: another check speaks of bounds.
        with suppress(BoundsError, _SpentError):
            AddressRun(kernel, sizes, tracker).run_programs(buffers)
        if tracker.conflict is not None:
            return tracker.conflict
    return None


def _buffers(kernel: SpecOp, sizes: Mapping[str, int]) -> list[Array]:
    found: list[Array] = []
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        shape = [max(0, dim.evaluate(sizes)) for dim in argument.type.shape]
        found.append(np.zeros(shape, numpy_dtype(argument.type.dtype)))
    return found


def _cells(kernel: SpecOp, sizes: Mapping[str, int]) -> int:
    total = 0
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        total += argument.type.data.size.evaluate(sizes)
    return total


def grown_sizes(kernel: SpecOp) -> dict[str, int]:
    """The smallest sizes, all alike, with at least two programs along every axis of the grid that can have them.

    They are odd, so that tiles are cut at the end.
    """
    grid: tuple[Dim, ...] = kernel.value("grid")
    size = 3
    while size < _LARGEST_SIZE:
        sizes = dict.fromkeys(kernel.value("symbols"), size)
        if all(axis.evaluate(sizes) >= 2 for axis in grid if axis.symbols):
            break
        size = size * 2 + 1
    return dict.fromkeys(kernel.value("symbols"), size)


class _PatientObserver(RaceObserver):
    """Looks on for a while only."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def access(self, run: TileRun, access: Access) -> None:
        self.count += 1
        if self.count == _MOST_ACCESSES:
            raise _SpentError
        super().access(run, access)


def sampled_worker_race(kernel: SpecOp) -> WorkerRace | None:
    """The first race of workers that small sizes show; None where there is none, or it cannot run.

    Buffers hold numbers that count up, then down: below all extents of shared memory, as indices that stay inside and
    differ within a tile where they can; then as far as they go, as ends of loops.
    """
    steps = [op.value("step") for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]
    # Three steps of every loop: what is written in one is read in the next, or written again in the one after.
    several = dict.fromkeys(kernel.value("symbols"), 2 * max(steps, default=1) + 1)
    for sizes in (dict.fromkeys(several, 3), several, grown_sizes(kernel)):
        if _cells(kernel, sizes) > _MOST_CELLS:
            continue
        for limit, is_descending in itertools.product((_shared_extent(kernel, sizes), _MOST_CELLS), (False, True)):
            observer = _PatientObserver()
            buffers = [_counted(buffer, limit, is_descending) for buffer in _buffers(kernel, sizes)]
            # Sizes or numbers that leave a buffer are none that a caller may give: another check speaks of bounds.
            with suppress(BoundsError, RaceError, _SpentError):
                TileRun(kernel, sizes, observer).run_programs(buffers)
            if observer.race is not None:
                return observer.race
    return None


def _shared_extent(kernel: SpecOp, sizes: Mapping[str, int]) -> int:
    """The smallest extent of shared memory."""
    shared = [op.results[0].type for op in kernel.regions[0].block.ops if op.results and is_shared(op.results[0])]
    extents = [dim.evaluate(sizes) for type in shared if isinstance(type, BufferAttr) for dim in type.shape]
    return max(1, min(extents, default=1))


def _counted(buffer: Array, limit: int, is_descending: bool) -> Array:
    numbers: Array = np.arange(buffer.size) % limit
    buffer[...] = (numbers[::-1] if is_descending else numbers).reshape(buffer.shape)
    return buffer
