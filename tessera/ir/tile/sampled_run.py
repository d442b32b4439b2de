"""Running a kernel at small sizes, as far as its addresses need it: who touched which cell, where no formula tells."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from xdsl.ir import SSAValue

from tessera.diagnostics.codes import BoundsError, RaceError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.tile.choices import is_shared
from tessera.ir.tile.interpret import Access, Observer, TileRun
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

# `RaceObserver`: looks on while a kernel runs, and stops it where workers share a cell without a barrier.

# Two workers of a program at one cell of shared memory, and no barrier between: which accesses clash, what is reported.

READ, WRITE, ADD, RAISE, LOWER = "read", "write", "add to", "raise", "lower"
ATOMICS = {"atomic_add": ADD, "atomic_max": RAISE, "atomic_min": LOWER}


def access_kind(op: SpecOp) -> str:
    """What an access does to a cell.

    Sums of integers are the same in any order, so adding them is a kind of its own; a sum of floats is a write. Atomics
    of one mode are in any order too, those of two modes are not: the maximum of a sum is no sum of maxima.
    """
    if op.name != "ttile.store":
        return READ
    buffer = op.operands[1].type
    assert isinstance(buffer, BufferAttr)
    is_sum = op.value("mode") == "add" and not buffer.dtype.is_float
    return ADD if is_sum else ATOMICS.get(op.value("mode"), WRITE)


KINDS = (READ, WRITE, *ATOMICS.values())
AT_ODDS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(other for other in KINDS if other != kind or kind == WRITE) for kind in KINDS
}
"""The kinds of access whose order with one matters."""


def are_atomic(first: SpecOp, second: SpecOp) -> bool:
    """Whether both are stores that change a cell atomically and alike, so that no order is wrong."""
    modes = {op.value("mode") if op.name == "ttile.store" else "" for op in (first, second)}
    return len(modes) == 1 and modes <= ATOMICS.keys()


def collides_with_itself(op: SpecOp) -> bool:
    """Whether two elements of one access must not share a cell: mode `add` takes them in order."""
    return op.name == "ttile.store" and op.value("mode") == "set"


def loops_around(op: SpecOp) -> list[SpecOp]:
    """The loops that an op stands in, outermost first."""
    found: list[SpecOp] = []
    while True:
        outer = (found[-1] if found else op).parent_op()
        assert isinstance(outer, SpecOp), "loops stand in a kernel"
        if outer.name != "ttile.for":
            return found[::-1]
        found.append(outer)


@frozen
class Touch:
    """One element of an access, in one step of each loop around it; no element where all workers do it."""

    op: SpecOp
    element: tuple[int, ...] | None
    steps: tuple[int, ...]

    def describe(self) -> str:
        """Where it stands, what it does, and who does it; an index alone says nothing across tiles of two shapes."""
        verb = {READ: "reads", WRITE: "writes", ADD: "adds", RAISE: "raises", LOWER: "lowers"}[access_kind(self.op)]
        who = (
            "for all workers"
            if self.element is None
            else f"at element {list(self.element)} of a tile {list(self._tile.shape)}"
        )
        when = f", in step {list(self.steps)}" if self.steps else ""
        return f"{self.op.span or self.op.name} {verb} {who}{when}"

    @property
    def _tile(self) -> TileAttr:
        type = (self.op.operands if self.op.name == "ttile.store" else self.op.results)[0].type
        assert isinstance(type, TileAttr)
        return type


@frozen
class WorkerRace:
    """Two touches of one cell by different workers of one program; the second is the later one."""

    first: Touch
    second: Touch
    cell: tuple[int, ...]
    program: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]

    def error(self, kernel: SpecOp) -> RaceError:
        """What a user reads."""
        kinds = [access_kind(touch.op) for touch in (self.first, self.second)]
        did = f"both {kinds[0]}" if kinds[0] == kinds[1] else f"{kinds[0]} and then {kinds[1]}"
        sizes = "".join(f", {name} = {size}" for name, size in self.sizes)
        return RaceError(
            f"two workers of `@{kernel.value('symbol')}` {did} cell {list(self.cell)} of shared memory,"
            " and no barrier stands between",
            span=self.second.op.span,
            notes=(
                f"first {self.first.describe()}",
                f"then {self.second.describe()}",
                f"in program {list(self.program)}{sizes}",
            ),
            fix=self._fix(),
        )

    def _fix(self) -> str:
        if self.first.op is self.second.op and self.first.steps == self.second.steps:
            return "let every element write a cell of its own"
        if self.first.steps[: len(self._loops)] == self.second.steps[: len(self._loops)]:
            return "put a barrier between the two"
        return "put a barrier between the two, where the loop goes from one step to the next"

    @property
    def _loops(self) -> Sequence[SpecOp]:
        """The loops around both."""
        return [loop for loop in loops_around(self.first.op) if loop in loops_around(self.second.op)]


_NOBODY, _EVERYBODY = -1, -2
_MOST_ELEMENTS = 1 << 40


class _Visitors:
    """For each cell of a buffer two workers who accessed it alike since the last barrier, where there were so many.

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


@frozen
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
        for kind in AT_ODDS[access_kind(access.op)]:
            found = memory[kind].other(access.cells, workers)
            if found is not None:
                at, earlier, worker = found
                self._report(run, access, (earlier, worker), (number, int(workers[at])), int(access.cells[at]))
        memory[access_kind(access.op)].mark(access.cells, workers, number)

    def _workers(self, access: Access) -> Array:
        """A number for each element that takes part: its flat index, in tiles of its shape."""
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
        shape, index = self._shapes[worker // _MOST_ELEMENTS], worker % _MOST_ELEMENTS
        return Touch(visit.op, tuple(int(part) for part in np.unravel_index(index, shape)), visit.steps)


_MOST_ACCESSES = 10_000
_MOST_CELLS = 1 << 22
_LARGEST_SIZE = 1 << 16


@frozen
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
                self[result] = np.zeros(type.sizes, numpy_dtype(type.dtype))
            return
        super().op(op)


class Tracker(Observer):
    """Remembers for every cell of every argument who wrote it last and who read it first, and keeps the first conflict.

    Programs run one after the other: where any other than the one that runs has read a cell, so has the first.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        self.writers = [np.full(count, _NOBODY, np.int64) for count in counts]
        self.readers = [np.full(count, _NOBODY, np.int64) for count in counts]
        self.accesses: list[Access] = []
        self.conflict: Conflict | None = None

    def access(self, run: TileRun, access: Access) -> None:
        if access.argument is None or self.conflict is not None:
            return
        number = len(self.accesses)
        if number == _MOST_ACCESSES:
            raise _LimitError
        self.accesses.append(access)
        self._compare(self.writers[access.argument], access)
        if access.is_store:
            self._compare(self.readers[access.argument], access)
            self.writers[access.argument][access.cells] = number
        else:
            readers = self.readers[access.argument]
            readers[access.cells[readers[access.cells] == _NOBODY]] = number

    def _compare(self, owners: Array, access: Access) -> None:
        numbers = owners[access.cells]
        for number in np.unique(numbers[numbers >= 0]):
            other = self.accesses[int(number)]
            if other.program != access.program and self.conflict is None and not are_atomic(other.op, access.op):
                self.conflict = Conflict(other, access, int(access.cells[numbers == number][0]))


class _LimitError(Exception):
    """The run has shown all it is allowed to."""


def sampled_conflict(kernel: SpecOp) -> Conflict | None:
    """The first conflict that small sizes show, with all buffers zero; None where there is none, or it cannot run."""
    for sizes in (dict.fromkeys(kernel.value("symbols"), 3), grown_sizes(kernel)):
        if _cells(kernel, sizes) > _MOST_CELLS:
            continue
        buffers = _buffers(kernel, sizes)
        tracker = Tracker([buffer.size for buffer in buffers])
        # Sizes that leave a buffer are none that a caller may give: another check reports bounds.
        with suppress(BoundsError, _LimitError):
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
    types = [argument.type for argument in kernel.regions[0].block.args]
    return sum(type.data.size.evaluate(sizes) for type in types if isinstance(type, BufferAttr))


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
            raise _LimitError
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
            buffers = [_count_up(buffer, limit, is_descending) for buffer in _buffers(kernel, sizes)]
            # Sizes or numbers that leave a buffer are none that a caller may give: another check reports bounds.
            with suppress(BoundsError, RaceError, _LimitError):
                TileRun(kernel, sizes, observer).run_programs(buffers)
            if observer.race is not None:
                return observer.race
    return None


def _shared_extent(kernel: SpecOp, sizes: Mapping[str, int]) -> int:
    """The smallest extent of shared memory."""
    shared = [op.results[0].type for op in kernel.regions[0].block.ops if op.results and is_shared(op.results[0])]
    extents = [dim.evaluate(sizes) for type in shared if isinstance(type, BufferAttr) for dim in type.shape]
    return max(1, min(extents, default=1))


def _count_up(buffer: Array, limit: int, is_descending: bool) -> Array:
    numbers: Array = np.arange(buffer.size) % limit
    buffer[...] = (numbers[::-1] if is_descending else numbers).reshape(buffer.shape)
    return buffer
