"""Matrix kernels run on NumPy: producer and consumers in turns, through the barriers of their rings, as one CTA.

The producer always runs as far ahead as barriers let it, a stage that it takes is poisoned before it is filled, and a
product reads shared memory only when somebody waits for it. So a stage that is left too early, or read before it is
full, shows in the numbers; a wait that nobody ends is a `DeadlockError`, which says who waits for what.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from xdsl.ir import Block, SSAValue

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.target.hopper_types import SharedAttr
from tessera.ir.tile import scalars
from tessera.ir.tile.indexing import along, cells_of, evaluate

Walk: TypeAlias = "Generator[str, None, list[Any]]"
"""A role on its way: gives what it waits for, and ends with what its block yields."""


class DeadlockError(Exception):
    """Both roles wait for barriers that nobody will open."""


@dataclass
class Stages:
    """A ring: how often each stage was filled and left, and the copies that are still missing."""

    count: int
    tiles: int
    filled: list[int] = field(default_factory=list[int])
    left: list[int] = field(default_factory=list[int])
    copied: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.filled, self.left, self.copied = ([0] * self.count for _ in range(3))


@dataclass(eq=False)
class Sum:
    """An accumulator, and the products that were started on it."""

    value: Array


@dataclass(eq=False)
class Product:
    """A product in flight: what it adds to, and where its sides will be read."""

    op: SpecOp
    target: Sum
    left: Array
    right: Array

    def run(self) -> None:
        self.target.value = multiplied(self.op, self.target.value, self.left, self.right)


def multiplied(op: SpecOp, acc: Array, left: Array, right: Array) -> Array:
    """`acc + left @ right`, sides as they lie; a right side may be wider than the sum."""
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    a = wide_left if op.value("lhs_major") == "k" else wide_left.T
    b = wide_right.T if op.value("rhs_major") == "k" else wide_right
    with np.errstate(invalid="ignore"):
        return (acc.astype(np.float64) + a @ b[:, : acc.shape[1]]).astype(acc.dtype)


@dataclass(frozen=True)
class Event:
    """An op that a role has done: its name, and how many stages of its ring it had passed, or -1."""

    role: str
    op: str
    passed: int = -1


def simulate(kernel: SpecOp, buffers: Sequence[Array], sizes: Mapping[str, int]) -> list[Event]:
    """Run a `ttarget.matrix_kernel` on arrays, which it writes in place; what its roles did, in the order of time.

    Raises DeadlockError where roles wait for each other.
    """
    simulation = _Simulation(kernel, buffers, sizes)
    simulation.run()
    return simulation.events


_EVENTS = {"copy": 2, "mma_issue": 4, "mma_add": 4, "release": 1, "store_tile": -1, "mma_wait": -1}
"""Ops that are written down, and which of their operands says how many stages were passed."""


class _Simulation:
    """What both roles share: buffers, shared memory, rings."""

    def __init__(self, kernel: SpecOp, buffers: Sequence[Array], sizes: Mapping[str, int]) -> None:
        self.kernel, self.sizes = kernel, dict(sizes)
        self.values: dict[SSAValue, Any] = dict(zip(kernel.regions[0].block.args, buffers, strict=True))
        self.events: list[Event] = []

    def run(self) -> None:
        for op in self.kernel.regions[0].block.ops:
            assert isinstance(op, SpecOp)
            if op.name == "ttarget.shared_tile":
                self.values[op.result] = [_poison(op.result) for _ in range(op.value("stages"))]
            elif op.name == "ttarget.ring":
                self.values[op.result] = Stages(op.value("stages"), len(op.operands))
            elif op.name == "ttarget.tensor_map":
                self.values[op.result] = (self.values[op.operands[0]], op.value("box"))
            elif op.name == "ttarget.roles":
                names = ("producer", "consumers")
                pairs = zip(names, op.regions, strict=True)
                self._turns([_Role(self, name).walk(region.block) for name, region in pairs])

    def _turns(self, roles: list[Walk]) -> None:
        """One step of the consumers at a time, and after each the producer as far as it gets, until both have ended."""
        waits: dict[int, str] = {}
        while len(roles) > len(waits) or any(waits.values()):
            is_moving = False
            for number, role in enumerate(roles):
                while waits.get(number) != "":
                    said = next(role, None)
                    waits[number] = said or ("" if said is None else "nothing")
                    is_moving |= not said
                    if said or number:
                        break
            if not is_moving:
                names = ("the producer", "the consumers")
                raise DeadlockError(" and ".join(f"{names[at]} in {said}" for at, said in waits.items() if said))


def _poison(tile: SSAValue) -> Array:
    assert isinstance(tile.type, SharedAttr)
    shape = tuple(dim.value or 0 for dim in tile.type.shape)
    dtype = numpy_dtype(tile.type.dtype)
    return np.full(shape, 77 if dtype.kind in "iu" else np.nan, dtype)


class _Role:
    """One role's walk through its block."""

    def __init__(self, simulation: _Simulation, name: str) -> None:
        self.simulation, self.sizes, self.name = simulation, simulation.sizes, name
        self.values = dict(simulation.values)
        self.flying: list[Product] = []
        self.place: tuple[int, ...] = ()

    def of(self, values: Sequence[SSAValue]) -> list[Any]:
        return [self.values[value] for value in values]

    def walk(self, block: Block) -> Walk:
        """The ops of a block; gives "" after each that moved something, and what it waits for where it does."""
        for op in block.ops:
            assert isinstance(op, SpecOp)
            name = op.name.removeprefix("ttarget.")
            if name == "yield":
                return self.of(op.operands)
            if name in ("tiles", "steps", "when", "rest"):
                yield from getattr(self, f"_{name}")(op)
            elif name in ("acquire", "await"):
                yield from self._wait(op)
            else:
                found = getattr(self, f"_{name}")(op)
                self.values.update(zip(op.results, found, strict=True))
                self._done(op)
                yield ""
        return []

    def _done(self, op: SpecOp) -> None:
        """Write down what moved or was computed."""
        name = op.name.removeprefix("ttarget.")
        if name in _EVENTS:
            at = _EVENTS[name]
            self.simulation.events.append(Event(self.name, name, self.values[op.operands[at]] if at >= 0 else -1))

    def _inside(self, block: Block, arguments: Sequence[Any]) -> Walk:
        self.values.update(zip(block.args, arguments, strict=True))
        return (yield from self.walk(block))

    # Control.

    def _tiles(self, op: SpecOp) -> Walk:
        carried = self.of(op.operands)
        extents = [dim.evaluate(self.sizes) for dim in op.value("grid")]
        for place in itertools.product(*(range(extent) for extent in extents)):
            self.place = place
            carried = yield from self._inside(op.regions[0].block, [*place, *carried])
        return carried

    def _steps(self, op: SpecOp) -> Walk:
        low, high, *carried = self.of(op.operands)
        for place in range(low, high, op.value("step")):
            carried = yield from self._inside(op.regions[0].block, [place, *carried])
        self.values.update(zip(op.results, carried, strict=True))
        return carried

    def _when(self, op: SpecOp) -> Walk:
        low, high, *given = self.of(op.operands)
        if low < high:
            given = yield from self._inside(op.regions[0].block, [])
        self.values.update(zip(op.results, given, strict=True))
        return given

    def _rest(self, op: SpecOp) -> Walk:
        """All columns at once, and at once: when it runs beside other products is nothing that numbers show."""
        return (yield from self._inside(op.regions[0].block, [*self.place, *self.of(op.operands)]))

    def _index(self, op: SpecOp) -> list[Any]:
        env = dict(zip(op.value("names"), self.of(op.operands), strict=True))
        return [op.value("expr").evaluate({**self.sizes, **env})]

    def _turn(self, op: SpecOp) -> list[Any]:
        return []

    def _lag(self, op: SpecOp) -> list[Any]:
        return []

    # Rings: a cursor is how many stages were passed.

    def _cursor(self, op: SpecOp) -> list[Any]:
        return [0]

    def _advance(self, op: SpecOp) -> list[Any]:
        return [self.values[op.operands[1]] + 1]

    def _wait(self, op: SpecOp) -> Walk:
        ring, at = self.of(op.operands[:2])
        turn, slot = divmod(at, ring.count)
        counts, wanted = (ring.left, turn) if op.name == "ttarget.acquire" else (ring.filled, turn + 1)
        while counts[slot] < wanted:
            yield f"`{op.name}` of stage {slot} in turn {turn}"
        if op.name == "ttarget.acquire":
            made = op.operands[0].owner
            assert isinstance(made, SpecOp)
            for tile in made.operands:
                self.values[tile][slot][...] = _poison(tile)
        return []

    def _copy(self, op: SpecOp) -> list[Any]:
        (buffer, box), ring, at, tile, *corner = self.of(op.operands)
        slot = at % ring.count
        sizes: list[int] = [*box[:-1], box[-1] * op.value("pieces")]
        if op.value("half") == "rows":
            sizes[-2] *= 2  # each of a pair of CTAs copies half of them for both
        lines: list[Any] = [np.arange(size) + start for size, start in zip(sizes, corner, strict=True)]
        grids: list[Any] = list(np.meshgrid(*lines, indexing="ij"))
        is_inside = np.ones(sizes, np.bool_)
        for places, extent in zip(grids, buffer.shape, strict=True):
            is_inside &= (places >= 0) & (places < extent)
        cells = tuple(np.where(is_inside, places, 0) for places in grids)
        copied = np.where(is_inside, buffer[cells], np.zeros((), buffer.dtype))
        rows = copied.reshape(-1, tile[slot].shape[1])
        tile[slot][: len(rows)] = rows  # few rows are copied as they are, and nobody looks at the others
        ring.copied[slot] += 1
        if ring.copied[slot] == ring.tiles:
            ring.copied[slot] = 0
            ring.filled[slot] += 1
        return []

    def _release(self, op: SpecOp) -> list[Any]:
        ring, at, *limits = self.of(op.operands)
        if not limits or limits[0] < limits[1]:
            ring.left[at % ring.count] += 1
        return []

    # Products.

    def _side(self, value: SSAValue, at: int) -> Array:
        found = self.values[value]
        stages: list[Array] = found if isinstance(found, list) else [found]  # pyright: ignore[reportUnknownVariableType]
        return stages[at % len(stages)]

    def _mma_open(self, op: SpecOp) -> list[Any]:
        return [Sum(np.array(self.values[op.operands[0]]))]

    def _mma_issue(self, op: SpecOp) -> list[Any]:
        acc, left_at, right_at = self.of([op.operands[0], *op.operands[3:]])
        sides = [self._side(value, at) for value, at in zip(op.operands[1:3], (left_at, right_at), strict=True)]
        self.flying.append(Product(op, acc, *sides))
        return [acc]

    def _mma_wait(self, op: SpecOp) -> list[Any]:
        done = len(self.flying) - op.value("left")
        for product in self.flying[: max(0, done)]:
            product.run()
        self.flying = self.flying[max(0, done) :]
        sums = self.of(op.operands)
        assert not any(product.target in sums for product in self.flying), "a sum in flight is looked at"
        return [one.value for one in sums]

    def _mma_add(self, op: SpecOp) -> list[Any]:
        acc, left_at, right_at = self.of([op.operands[0], *op.operands[3:]])
        left, right = (self._side(v, at) for v, at in zip(op.operands[1:3], (left_at, right_at), strict=True))
        return [multiplied(op, acc, left, right)]

    def _pack(self, op: SpecOp) -> list[Any]:
        return self.of(op.operands)

    # Elements.

    def _constant(self, op: SpecOp) -> list[Any]:
        given = op.value("value")
        number = given if isinstance(given, bool | int | float) else given.evaluate(self.sizes)
        return [np.full(_shape(op.result), number, numpy_dtype(_dtype(op.result)))]

    def _math(self, op: SpecOp) -> list[Any]:
        return [scalars.apply(op.value("fn"), self.of(op.operands), _dtype(op.operands[0]))]

    def _convert(self, op: SpecOp) -> list[Any]:
        return [scalars.cast(self.values[op.operands[0]], _dtype(op.operands[0]), _dtype(op.result))]

    def _select(self, op: SpecOp) -> list[Any]:
        return [np.where(*self.of(op.operands))]

    def _spread(self, op: SpecOp) -> list[Any]:
        tile, shape = self.values[op.operands[0]], _shape(op.result)
        axes: tuple[int, ...] = op.value("axes")
        sizes = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
        return [np.broadcast_to(tile.reshape(sizes), shape).copy()]

    def _fold_rows(self, op: SpecOp) -> list[Any]:
        fold = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[op.value("kind")]
        tile = self.values[op.operands[0]]
        return [fold(tile.astype(np.float64), axis=1).astype(tile.dtype)]

    def _partial_rows(self, op: SpecOp) -> list[Any]:
        return [np.zeros(_shape(op.result), numpy_dtype(_dtype(op.result)))]

    def _grow_rows(self, op: SpecOp) -> list[Any]:
        sums, factors, tile = (part.astype(np.float64) for part in self.of(op.operands))
        return [(sums * factors + tile.sum(axis=1)).astype(np.float32)]

    def _join_rows(self, op: SpecOp) -> list[Any]:
        return self.of(op.operands)

    # Memory.

    def _env(self, op: SpecOp, first: int, shape: Sequence[int]) -> dict[str, Any]:
        coords = dict(zip(op.value("names"), self.of(op.operands[first:]), strict=True))
        return along(coords, op.value("axes"), shape, self.sizes)

    def _coordinate(self, op: SpecOp) -> list[Any]:
        shape = _shape(op.result)
        found = evaluate(op.value("expr"), self._env(op, 0, shape))
        return [np.broadcast_to(np.asarray(found), shape).astype(numpy_dtype(_dtype(op.result)))]

    def _clip(self, op: SpecOp) -> list[Any]:
        tile = self.values[op.operands[0]]
        env = self._env(op, 1, tile.shape)
        is_inside = np.broadcast_to(env[op.value("axis")] < evaluate(op.value("bound"), env), tile.shape)
        return [np.where(is_inside, tile, np.asarray(op.value("identity"), tile.dtype))]

    def _fragment_load(self, op: SpecOp) -> list[Any]:
        buffer, shape = self.values[op.operands[0]], _shape(op.result)
        cells = cells_of({**op.values()}, self._env(op, 1, shape), shape, ())
        made = np.full(shape, op.value("pad"), buffer.dtype)
        made[cells.inside] = buffer[tuple(index[cells.inside] for index in cells.indices)]
        return [made]

    def _fragment_store(self, op: SpecOp) -> list[Any]:
        self._put(op, op.operands[1], 2)
        return []

    def _store_tile(self, op: SpecOp) -> list[Any]:
        self._put(op, op.operands[3], 4)
        return []

    def _put(self, op: SpecOp, target: SSAValue, first: int) -> None:
        tile, buffer = self.values[op.operands[0]], self.values[target]
        assert isinstance(target.type, BufferAttr)
        cells = cells_of({"windows": (), **op.values()}, self._env(op, first, tile.shape), tile.shape, ())
        buffer[tuple(index[cells.inside] for index in cells.indices)] = tile[cells.inside]


def _shape(value: SSAValue) -> tuple[int, ...]:
    assert isinstance(value.type, ShapedAttr)
    return tuple(dim.value or 0 for dim in value.type.shape)


def _dtype(value: SSAValue) -> Any:
    assert isinstance(value.type, ShapedAttr)
    return value.type.dtype
