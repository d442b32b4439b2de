"""`RaceObserver`: looks on while a kernel runs, and stops it where workers meet in shared memory without a barrier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from tessera.ir.base.arrays import Array
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.interpret import Access, Observer, TileRun
from tessera.ir.tile.ops.access import is_shared
from tessera.ir.tile.worker_race import AT_ODDS, Touch, WorkerRace, collides_with_itself, deed, loops_around

_NOBODY, _EVERYBODY = -1, -2
_MOST_ELEMENTS = 1 << 40


class _Visitors:
    """For each cell of a buffer two workers who did one deed to it since the last barrier, where there were so many.

    Two are enough: whoever comes later differs from one of them, or is the only one.
    """

    def __init__(self, count: int) -> None:
        self.workers = np.full((2, count), _NOBODY, np.int64)
        self.accesses = np.zeros((2, count), np.int64)

    def other(self, cells: Array, workers: Array) -> tuple[int, int, int] | None:
        """Number of a touch, and access and worker that differ from its own at its cell; None where there is none."""
        for known, accesses in zip(self.workers, self.accesses, strict=True):
            there = known[cells]
            clashes = np.flatnonzero((there != _NOBODY) & (there != workers))
            if clashes.size:
                at = int(clashes[0])
                return at, int(accesses[cells[at]]), int(there[at])
        return None

    def mark(self, cells: Array, workers: Array, access: int) -> None:
        for slot in (0, 1):
            known = self.workers[slot]
            is_new = known[cells] == _NOBODY
            if slot:
                is_new &= self.workers[0][cells] != workers
            known[cells[is_new]] = workers[is_new]
            self.accesses[slot][cells[is_new]] = access


@dataclass(frozen=True)
class _Visit:
    """An access since the last barrier, and the steps of the loops around it."""

    op: SpecOp
    steps: tuple[int, ...]


class RaceObserver(Observer):
    """Raises RaceError (T0503) at the second of two accesses that race, on the data at hand; `race` then holds it.

    Give it to `run_kernel(..., observer=RaceObserver())`.
    """

    def __init__(self) -> None:
        self.race: WorkerRace | None = None
        self._memory: dict[SSAValue, dict[str, _Visitors]] = {}
        self._visits: list[_Visit] = []
        self._shapes: list[tuple[int, ...]] = []

    def before(self, run: TileRun, op: SpecOp) -> None:
        if op.name == "ttile.barrier":
            self._memory.clear()
            self._visits.clear()
        elif op.name == "ttile.scratch":
            # The next program has memory of its own.
            self._memory.pop(op.result, None)

    def access(self, run: TileRun, access: Access) -> None:
        if not is_shared(access.buffer):
            return
        count = run[access.buffer].size
        memory = self._memory.setdefault(access.buffer, {kind: _Visitors(count) for kind in AT_ODDS})
        workers = self._workers(access)
        steps = tuple(run[loop.regions[0].block.args[0]] for loop in loops_around(access.op))
        self._visits.append(_Visit(access.op, steps))
        number = len(self._visits) - 1
        if collides_with_itself(access.op):
            self._check_alone(run, access, workers, number)
        for kind in AT_ODDS[deed(access.op)]:
            found = memory[kind].other(access.cells, workers)
            if found is not None:
                at, earlier, worker = found
                self._report(run, access, (earlier, worker), (number, int(workers[at])), int(access.cells[at]))
        memory[deed(access.op)].mark(access.cells, workers, number)

    def _workers(self, access: Access) -> Array:
        """A number for each element that takes part: of its place, in tiles of its shape."""
        if access.op.name == "ttile.fetch":
            return np.array([_EVERYBODY])
        shape = access.inside.shape
        if shape not in self._shapes:
            self._shapes.append(shape)
        return np.flatnonzero(access.inside) + self._shapes.index(shape) * _MOST_ELEMENTS

    def _check_alone(self, run: TileRun, access: Access, workers: Array, number: int) -> None:
        """Two elements of one store in one cell."""
        order = np.argsort(access.cells, kind="stable")
        cells = access.cells[order]
        twice = np.flatnonzero(cells[1:] == cells[:-1])
        if twice.size:
            first, second = (int(workers[order[twice[0] + step]]) for step in (0, 1))
            self._report(run, access, (number, first), (number, second), int(cells[twice[0]]))

    def _report(self, run: TileRun, access: Access, first: tuple[int, int], second: tuple[int, int], cell: int) -> None:
        at = tuple(int(part) for part in np.unravel_index(cell, run[access.buffer].shape))
        sizes = tuple(sorted((name, run.dims[name]) for name in run.kernel.value("symbols")))
        self.race = WorkerRace(self._touch(*first), self._touch(*second), at, run.program, sizes)
        raise self.race.error(run.kernel)

    def _touch(self, number: int, worker: int) -> Touch:
        visit = self._visits[number]
        if worker == _EVERYBODY:
            return Touch(visit.op, None, visit.steps)
        shape, place = self._shapes[worker // _MOST_ELEMENTS], worker % _MOST_ELEMENTS
        return Touch(visit.op, tuple(int(part) for part in np.unravel_index(place, shape)), visit.steps)
