"""Kernels on tensor cores run on NumPy: producer and consumers interleaved in any order that barriers allow."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.tensor_cores import PROMOTED_K
from tessera.backends.nvptx.types import ColumnVectorAttr, SharedAttr
from tessera.ir.base import scalar_reference as scalars
from tessera.ir.base.arrays import Array, numpy_dtype, round_to
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.tile.indexing import along, cells_of, evaluate

# What consumers of a matrix kernel compute, on NumPy: elements of fragments, coordinates, loads and stores.


def multiply(op: SpecOp, acc: Array, left: Array, right: Array, rows: slice) -> Array:
    """`acc + left @ right`, of some rows of the left one; a B operand may be wider than the sum."""
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    a = wide_left if op.value("lhs_major") == "k" else wide_left.T
    b = wide_right.T if op.value("rhs_major") == "k" else wide_right
    with np.errstate(invalid="ignore"):
        return (acc.astype(np.float64) + a[rows] @ b[:, : acc.shape[1]]).astype(acc.dtype)


class Tiles:
    """The values of one role: of a tile in registers, consumer `consumer` of `consumers` has its rows."""

    def __init__(self, values: dict[SSAValue, Any], sizes: dict[str, int], consumer: int, consumers: int) -> None:
        self.values, self.sizes = values, sizes
        self.consumer, self.consumers = consumer, consumers

    def of(self, values: Sequence[SSAValue]) -> list[Any]:
        """What is known of values."""
        return [self.values[value] for value in values]

    def shape(self, value: SSAValue) -> tuple[int, ...]:
        """The shape of what this consumer has of a tile."""
        assert isinstance(value.type, ShapedAttr)
        sizes = [dim.value or 0 for dim in value.type.shape]
        if sizes and not isinstance(value.type, ColumnVectorAttr):
            sizes[0] //= self.consumers
        return tuple(sizes)

    def rows(self, count: int) -> slice:
        """Which of so many rows are this consumer's."""
        share = count // self.consumers
        return slice(share * self.consumer, share * (self.consumer + 1))

    # Elements.

    def on_constant(self, op: SpecOp) -> list[Any]:
        given = op.value("value")
        number = given if isinstance(given, bool | int | float) else given.evaluate(self.sizes)
        return [np.full(self.shape(op.result), number, numpy_dtype(_dtype(op.result)))]

    def on_elementwise(self, op: SpecOp) -> list[Any]:
        return [scalars.apply(op.value("fn"), self.of(op.operands), _dtype(op.operands[0]))]

    def on_cast(self, op: SpecOp) -> list[Any]:
        return [scalars.cast(self.values[op.operands[0]], dtype=_dtype(op.result))]

    def on_select(self, op: SpecOp) -> list[Any]:
        return [np.where(*self.of(op.operands))]

    def on_broadcast(self, op: SpecOp) -> list[Any]:
        tile, shape = self.values[op.operands[0]], self.shape(op.result)
        axes: tuple[int, ...] = op.value("axes")
        sizes = [shape[axis] if axis in axes else 1 for axis in range(len(shape))]
        return [np.broadcast_to(tile.reshape(sizes), shape).copy()]

    def on_reduce_rows(self, op: SpecOp) -> list[Any]:
        fold = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}[op.value("kind")]
        tile = self.values[op.operands[0]]
        return [fold(tile.astype(np.float64), axis=1).astype(tile.dtype)]

    def on_partial_rows(self, op: SpecOp) -> list[Any]:
        return [np.zeros(self.shape(op.result), numpy_dtype(_dtype(op.result)))]

    def on_grow_rows(self, op: SpecOp) -> list[Any]:
        sums, factors, tile = (part.astype(np.float64) for part in self.of(op.operands))
        return [(sums * factors + tile.sum(axis=1)).astype(np.float32)]

    def on_join_rows(self, op: SpecOp) -> list[Any]:
        return self.of(op.operands)

    # Memory.

    def _env(self, op: SpecOp, first: int, tile: SSAValue) -> dict[str, Any]:
        """What each name stands for at every element of a tile."""
        coords = dict(zip(op.value("coords"), self.of(op.operands[first:]), strict=True))
        axes, shape = op.value("axes"), self.shape(tile)
        if shape and not isinstance(tile.type, ColumnVectorAttr):
            coords[axes[0]] += shape[0] * self.consumer
        return along(coords, axes, shape, self.sizes)

    def on_coordinate(self, op: SpecOp) -> list[Any]:
        shape = self.shape(op.result)
        found = evaluate(op.value("expr"), self._env(op, 0, op.result))
        return [np.broadcast_to(np.asarray(found), shape).astype(numpy_dtype(_dtype(op.result)))]

    def on_clip(self, op: SpecOp) -> list[Any]:
        tile = self.values[op.operands[0]]
        env = self._env(op, 1, op.result)
        is_inside = np.broadcast_to(env[op.value("axis")] < evaluate(op.value("bound"), env), tile.shape)
        return [np.where(is_inside, tile, np.asarray(op.value("identity"), tile.dtype))]

    def on_fragment_load(self, op: SpecOp) -> list[Any]:
        buffer, shape = self.values[op.operands[0]], self.shape(op.result)
        cells = cells_of({**op.values()}, self._env(op, 1, op.result), shape, ())
        made = np.full(shape, op.value("pad"), buffer.dtype)
        made[cells.inside] = buffer[tuple(index[cells.inside] for index in cells.indices)]
        return [made]

    def on_fragment_store(self, op: SpecOp) -> list[Any]:
        self._put(op, op.operands[1], 2)
        return []

    def on_store_tile(self, op: SpecOp) -> list[Any]:
        self._put(op, op.operands[3], 4)
        return []

    def _put(self, op: SpecOp, target: SSAValue, first: int) -> None:
        tile, buffer = self.values[op.operands[0]], self.values[target]
        assert isinstance(target.type, BufferAttr)
        cells = cells_of({"windows": (), **op.values()}, self._env(op, first, op.operands[0]), tile.shape, ())
        buffer[tuple(index[cells.inside] for index in cells.indices)] = tile[cells.inside]


def _dtype(value: SSAValue) -> Any:
    assert isinstance(value.type, ShapedAttr)
    return value.type.dtype


# Matrix kernels run on NumPy: producer and consumers interleaved, through the barriers of their rings, CTA after CTA.

Walk: TypeAlias = "Generator[str, None, list[Any]]"
"""A role on its way: gives what it waits for, and ends with what its block yields."""


class DeadlockError(Exception):
    """Roles wait for barriers that nobody will open."""


@dataclass
class Stages:
    """A ring: how often each stage was filled and left, the copies that are missing, and who has left it already."""

    count: int
    tiles: int
    consumers: int
    filled: list[int] = field(default_factory=list[int])
    left: list[int] = field(default_factory=list[int])
    copied: list[int] = field(default_factory=list[int])
    leaving: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        self.filled, self.left, self.copied, self.leaving = ([0] * self.count for _ in range(4))

    def copy(self, slot: int) -> None:
        """A copy has come; with the last one the stage is full."""
        self.copied[slot] += 1
        if self.copied[slot] == self.tiles:
            self.copied[slot] = 0
            self.filled[slot] += 1

    def leave(self, slot: int) -> None:
        """A consumer leaves a stage; with the last one it is empty."""
        self.leaving[slot] += 1
        if self.leaving[slot] == self.consumers:
            self.leaving[slot] = 0
            self.left[slot] += 1


@dataclass
class Handoff:
    """A barrier that two come to: who waits for its dots, and who lets it go on. It knows how many came, not who."""

    arrived: int = 0
    ended: int = 0

    def arrive(self) -> None:
        """One of two comes; with the second it ends, and begins again."""
        self.arrived += 1
        if self.arrived == 2:
            self.arrived = 0
            self.ended += 1


@dataclass(eq=False)
class Sum:
    """An accumulator, and the dots that were started on it."""

    value: Array


@dataclass(eq=False)
class MmaDot:
    """A dot in flight: what it adds to, and where its operands will be read."""

    op: SpecOp
    target: Sum
    left: Array
    right: Array
    rows: slice

    def run(self) -> None:
        self.target.value = multiply(self.op, self.target.value, self.left, self.right, self.rows)


@dataclass(frozen=True)
class Event:
    """An op that a role has done: its name, how many stages of its ring it had passed, or -1, and which consumer."""

    role: str
    op: str
    passed: int = -1
    consumer: int = 0


@dataclass(frozen=True)
class Order:
    """Who runs as far as barriers let it before others do a step: 0 is the producer, then come the consumers.

    `ctas` is how many CTAs share the programs of the grid, each with its own shared memory, one after the other.
    """

    ahead: tuple[int, ...] = (0,)
    ctas: int = 1


def simulate(
    kernel: SpecOp, buffers: Sequence[Array], sizes: Mapping[str, int], order: Order | None = None
) -> list[Event]:
    """Run a `ttarget.matrix_kernel` on arrays, which it writes in place; what its roles did, in the order of time.

    Raises DeadlockError where roles wait for each other.
    """
    events: list[Event] = []
    order = order or Order()
    for cta in range(order.ctas):
        _Cta(kernel, buffers, sizes, order, cta, events).run()
    return events


_EVENTS = {"copy": 2, "mma_issue": 4, "mma_add": 4, "release": 1, "store_tile": -1, "mma_wait": -1}
"""Ops that are written down, and which of their operands says how many stages were passed."""


class _Cta:
    """What the roles of a CTA share: buffers, shared memory, rings, ping-pong."""

    def __init__(
        self,
        kernel: SpecOp,
        buffers: Sequence[Array],
        sizes: Mapping[str, int],
        order: Order,
        number: int,
        events: list[Event],
    ) -> None:
        self.kernel, self.sizes, self.order, self.number, self.events = kernel, dict(sizes), order, number, events
        self.consumers: int = kernel.value("consumers")
        self.values: dict[SSAValue, Any] = dict(zip(kernel.regions[0].block.args, buffers, strict=True))
        # The first dots are the first consumer's, as if the second had passed it.
        self.turns = [Handoff(arrived=1), Handoff()]

    def run(self) -> None:
        for op in self.kernel.regions[0].block.ops:
            assert isinstance(op, SpecOp)
            if op.name == "ttarget.shared_tile":
                self.values[op.result] = [_poison(op.result) for _ in range(op.value("stages"))]
            elif op.name == "ttarget.ring":
                self.values[op.result] = Stages(op.value("stages"), len(op.operands), self.consumers)
            elif op.name == "ttarget.tensor_map":
                rounds = op.value("rounds")
                buffer = self.values[op.operands[0]]
                # What is copied is read alone: all of it can be rounded before.
                buffer = round_to(buffer, format=rounds) if rounds else buffer
                corners = tuple(op.value(name) for name in ("low", "high", "strides"))
                self.values[op.result] = (buffer, op.value("box"), op.value("cut"), corners)
            elif op.name == "ttarget.roles":
                producer, consumer = (region.block for region in op.regions)
                roles = [_Role(self, "producer", 0, 1).at(producer)]
                roles += [_Role(self, "consumers", g, self.consumers).at(consumer) for g in range(self.consumers)]
                self._interleave(roles)
            elif op.name == "ttarget.uniform":
                block = op.regions[0].block
                self._interleave([_Role(self, "consumers", g, self.consumers).at(block) for g in range(self.consumers)])

    def _interleave(self, roles: Sequence[_Role]) -> None:
        """Those ahead as far as they get, then one step of one other, one after the other, until all have ended."""
        ahead = [roles[at] for at in self.order.ahead if at < len(roles)]
        others = [role for role in roles if role not in ahead]
        while not all(role.is_done for role in roles):
            is_moving = False
            for role in ahead:
                while role.moves():
                    is_moving = True
            for role in list(others):
                if role.moves():
                    others.remove(role)
                    others.append(role)
                    is_moving = True
                    break
            if not is_moving:
                raise DeadlockError(" and ".join(f"{role.title} in {role.wait}" for role in roles if role.wait))


def copy_windows(
    image: Array, box: Sequence[int], corners: Sequence[Sequence[int]], pieces: int, at: Sequence[int]
) -> Array:
    """What TMA copies in im2col mode: rows are positions from the first on, columns channels of one box after another.

    Positions go on along the last spatial dim, in strides, until the upper corner, then along the one before it, and
    from the last of an image to the first of the next. All of it is moved by the offsets, and reads zero outside.
    """
    low, high, strides = corners
    spatial, count = len(low), len(at) // pieces
    copied = np.zeros((box[0], pieces * box[1]), image.dtype)
    for piece in range(pieces):
        own = list(at[piece * count : (piece + 1) * count])
        here, channel, offsets = own[: spatial + 1], own[spatial + 1], own[spatial + 2 :]
        for row in range(box[0]):
            place = [here[0], *(start + offset for start, offset in zip(here[1:], offsets, strict=True))]
            if all(0 <= one < extent for one, extent in zip(place, image.shape[:-1], strict=True)):
                part = image[tuple(place)][channel : channel + box[1]]
                copied[row, piece * box[1] : piece * box[1] + len(part)] = part
            for axis in reversed(range(spatial)):
                here[1 + axis] += strides[axis]
                if here[1 + axis] < image.shape[1 + axis] + high[axis]:
                    break
                here[1 + axis] = low[axis]
            else:
                here[0] += 1
    return copied


def _poison(tile: SSAValue) -> Array:
    assert isinstance(tile.type, SharedAttr)
    shape = tuple(dim.value or 0 for dim in tile.type.shape)
    dtype = numpy_dtype(tile.type.dtype)
    return np.full(shape, 77 if dtype.kind in "iu" else np.nan, dtype)


class _Role(Tiles):
    """One role's walk through its block."""

    def __init__(self, cta: _Cta, name: str, consumer: int, consumers: int) -> None:
        super().__init__(dict(cta.values), cta.sizes, consumer, consumers)
        self.cta, self.name = cta, name
        self.title = "the producer" if name == "producer" else f"consumer {consumer}"
        self.flying: list[MmaDot] = []
        self.place: tuple[int, ...] = ()
        self.wait, self.is_done = "", False

    def at(self, block: Block) -> _Role:
        """The role before the first op of its block."""
        self.steps = self.walk(block)
        return self

    def moves(self) -> bool:
        """Do one step, if there is one to do and nothing to wait for."""
        if self.is_done:
            return False
        said = next(self.steps, None)
        self.is_done, self.wait = said is None, said or ""
        return not said

    def walk(self, block: Block) -> Walk:
        """The ops of a block; gives "" after each that moved something, and what it waits for where it does."""
        for op in block.ops:
            assert isinstance(op, SpecOp)
            name = op.name.removeprefix("ttarget.")
            if name == "yield":
                return self.of(op.operands)
            if name == "skip":
                low, high = self.of(op.operands)
                if low >= high:
                    return self.of(block.args[len(self.place) :])  # the program's cursors, as they were
                continue
            if name in ("tiles", "steps", "when", "elect", "epilogue", "acquire", "await", "pingpong", "lag"):
                yield from getattr(self, f"_{name}")(op)
            else:
                found = getattr(self, f"on_{name}")(op)
                self.values.update(zip(op.results, found, strict=True))
                if name in _EVENTS:
                    at = _EVENTS[name]
                    self._note(name, self.values[op.operands[at]] if at >= 0 else -1)
                yield ""
        return []

    def _note(self, name: str, passed: int = -1) -> None:
        """Write down what moved or was computed."""
        self.cta.events.append(Event(self.name, name, passed, self.consumer))

    def _inside(self, block: Block, arguments: Sequence[Any]) -> Walk:
        self.values.update(zip(block.args, arguments, strict=True))
        return (yield from self.walk(block))

    # Control.

    def _tiles(self, op: SpecOp) -> Walk:
        carried = self.of(op.operands)
        extents = [dim.evaluate(self.sizes) for dim in op.value("grid")]
        places = itertools.product(*(range(extent) for extent in extents))
        for place in itertools.islice(places, self.cta.number, None, self.cta.order.ctas):
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

    def _elect(self, op: SpecOp) -> Walk:
        """One thread, of the first consumer; its warpgroup goes on when it has done it."""
        if self.consumer == 0:
            yield from self._inside(op.regions[0].block, [])
        return []

    def _epilogue(self, op: SpecOp) -> Walk:
        """All columns together, and right away: when it runs beside other dots is nothing that numbers show."""
        return (yield from self._inside(op.regions[0].block, [*self.place, *self.of(op.operands)]))

    def on_index(self, op: SpecOp) -> list[Any]:
        env = dict(zip(op.value("names"), self.of(op.operands), strict=True))
        return [op.value("expr").evaluate({**self.sizes, **env})]

    def on_fetch(self, op: SpecOp) -> list[Any]:
        buffer, *at = self.of(op.operands)
        env = dict(zip(op.value("coords"), at, strict=True))
        return [int(buffer.reshape(-1)[op.value("offset").evaluate({**self.sizes, **env})])]

    # Consumers among themselves.

    def _pingpong(self, op: SpecOp) -> Walk:
        """Who takes comes to its own barrier and waits; who passes comes to the other's."""
        if op.value("mode") == "pass":
            self.cta.turns[1 - self.consumer].arrive()
        else:
            own = self.cta.turns[self.consumer]
            before = own.ended
            own.arrive()
            while own.ended == before:
                yield f"`{op.name}`, which consumer {1 - self.consumer} passes"
        self._note(op.value("mode"))
        yield ""
        return []

    def _lag(self, op: SpecOp) -> Walk:
        """The first consumer goes ahead, and each other one waits for a later stage to be filled."""
        ring = self.values[op.operands[0]]
        slot = self.consumer * op.value("stages")
        while self.consumer and (slot >= ring.count or not ring.filled[slot]):
            yield f"`{op.name}` for stage {slot} of {ring.count}"
        yield ""
        return []

    # Rings: a cursor is how many stages were passed.

    def on_cursor(self, op: SpecOp) -> list[Any]:
        return [0]

    def on_advance(self, op: SpecOp) -> list[Any]:
        return [self.values[op.operands[1]] + 1]

    def _acquire(self, op: SpecOp) -> Walk:
        ring, at = self.of(op.operands[:2])
        trip, slot = divmod(at, ring.count)
        while ring.left[slot] < trip:
            yield f"`{op.name}` of stage {slot} in iteration {trip}"
        made = op.operands[0].owner
        assert isinstance(made, SpecOp)
        for tile in made.operands:
            self.values[tile][slot][...] = _poison(tile)
        return []

    def _await(self, op: SpecOp) -> Walk:
        ring, at = self.of(op.operands[:2])
        trip, slot = divmod(at, ring.count)
        while ring.filled[slot] <= trip:
            yield f"`{op.name}` of stage {slot} in iteration {trip}"
        return []

    def on_copy(self, op: SpecOp) -> list[Any]:
        (buffer, box, cut, corners), ring, at, tile, *corner = self.of(op.operands)
        if corners[2]:
            stage = tile[at % ring.count]
            stage[...] = copy_windows(buffer, box, corners, op.value("pieces"), corner)
            ring.copy(at % ring.count)
            return []
        ends = list(buffer.shape)
        if cut >= 0:
            ends[cut] = min(ends[cut], corner.pop())
        slot = at % ring.count
        sizes: list[int] = [*box[:-1], box[-1] * op.value("pieces")]
        if op.value("half") == "rows":
            sizes[-2] *= 2  # each of a pair of CTAs copies half of them for both
        lines: list[Any] = [np.arange(size) + start for size, start in zip(sizes, corner, strict=True)]
        grids: list[Any] = list(np.meshgrid(*lines, indexing="ij"))
        is_inside = np.ones(sizes, np.bool_)
        for places, extent in zip(grids, ends, strict=True):
            is_inside &= (places >= 0) & (places < extent)
        cells = tuple(np.where(is_inside, places, 0) for places in grids)
        copied = np.where(is_inside, buffer[cells], np.zeros((), buffer.dtype))
        rows = copied.reshape(-1, tile[slot].shape[1])
        tile[slot][: len(rows)] = rows  # few rows are copied as they are, and nobody looks at the others
        ring.copy(slot)
        return []

    def on_release(self, op: SpecOp) -> list[Any]:
        ring, at, *limits = self.of(op.operands)
        if not limits or limits[0] < limits[1]:
            ring.leave(at % ring.count)
        return []

    # Dots.

    def _operands(self, op: SpecOp) -> tuple[Array, Array, slice]:
        """Both operands of a dot, and which rows of the left one are this consumer's."""
        found: list[Array] = []
        for value, at in zip(op.operands[1:3], self.of(op.operands[3:]), strict=True):
            held = self.values[value]
            found.append(held[at % len(held)] if isinstance(value.type, SharedAttr) else held)
        count = found[0].shape[0 if op.value("lhs_major") == "k" else 1]
        is_shared = isinstance(op.operands[1].type, SharedAttr)
        return found[0], found[1], self.rows(count) if is_shared else slice(None)

    def on_mma_open(self, op: SpecOp) -> list[Any]:
        return [Sum(np.array(self.values[op.operands[0]]))]

    def on_mma_issue(self, op: SpecOp) -> list[Any]:
        acc = self.values[op.operands[0]]
        self.flying.append(MmaDot(op, acc, *self._operands(op)))
        return [acc]

    def on_mma_wait(self, op: SpecOp) -> list[Any]:
        done = len(self.flying) - op.value("left")
        for product in self.flying[: max(0, done)]:
            product.run()
        self.flying = self.flying[max(0, done) :]
        sums = self.of(op.operands)
        assert not any(product.target in sums for product in self.flying), "a sum in flight is looked at"
        return [one.value for one in sums]

    def on_mma_add(self, op: SpecOp) -> list[Any]:
        left, right, rows = self._operands(op)
        along = [int(op.value(side) == "k") for side in ("lhs_major", "rhs_major")]
        total: Array = self.values[op.operands[0]]
        for at in range(0, left.shape[along[0]], PROMOTED_K):
            few = slice(at, at + PROMOTED_K)
            here = [one[:, few] if is_along else one[few] for one, is_along in zip((left, right), along, strict=True)]
            total = multiply(op, total, here[0], here[1], rows)
        return [total]

    def on_fragment_read(self, op: SpecOp) -> list[Any]:
        held, at = self.of(op.operands)
        tile = held[at % len(held)]
        tile = tile if op.value("major") == "k" else tile.T
        return [tile[self.rows(len(tile))].copy()]

    def on_pack(self, op: SpecOp) -> list[Any]:
        return self.of(op.operands)
