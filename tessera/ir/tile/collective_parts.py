"""A kernel with collectives as a sequence of kernels, with an exchange between ranks after each but the last.

A collective makes all programs of a grid wait for those of other ranks, and a machine need not run them all together.
So what runs is one kernel up to each collective, which writes the tiles that are to be sent into one tensor, and one
for what comes after, which reads what was received. A kernel never reads what it writes, so each part rematerializes
what it needs of what comes before it, with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tessera.diagnostics.error import Span
from tessera.ir.tile.records import Body, KernelProgram, Memory, TileOp, without_unused
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


@frozen
class Collective:
    """A collective of tiles, by what ranks exchange: a tensor of the tiles of all programs.

    `reduce_scatter` sends, and `all_gather` receives, one such tensor for each rank, along a first axis.
    """

    name: str
    axis: str
    ranks: int
    reduction: str
    type: TensorType
    span: Span | None


@frozen
class Part:
    """A part of a kernel: its operands are those of the kernel, then what the collectives `received` gave.

    It ends with a collective, and gives what that sends; the last part has none, and gives the results of the kernel.
    """

    program: KernelProgram
    received: tuple[int, ...]
    collective: Collective | None


def has_collectives(program: KernelProgram) -> bool:
    """Whether a kernel communicates with other ranks."""
    return any(op.name in COLLECTIVES for op in program.body.ops)


def split_at_collectives(program: KernelProgram) -> tuple[Part, ...]:
    """The parts of a kernel, in the order they run; the kernel alone where it communicates with nobody."""
    ops = [op for op in program.body.ops if op.name in COLLECTIVES]
    if not ops:
        return (Part(program, (), None),)
    places = [_Place.of(program, op) for op in ops]
    return tuple(_Splitting(program, places, end).part() for end in range(len(ops) + 1))


@frozen
class _Place:
    """Where the tiles of a collective lie in what is exchanged, as the attributes and indices of an access.

    Programs along an axis of the grid that the tile does not extend along have tiles of their own, so the tensor has a
    dim of programs for each such axis, in front.
    """

    op: TileOp
    collective: Collective
    values: Mapping[str, Any]
    at: tuple[int, ...]

    @staticmethod
    def of(program: KernelProgram, op: TileOp) -> _Place:
        sent = op.values["size"][0].value if op.name == "reduce_scatter" else 1
        makers = {value: one for one in program.body.ops for value in one.results}
        at = op.operands[sent:]
        ids = {one.values["axis"]: one.results[0] for one in program.body.ops if one.name == "program_id"}
        used = {makers[value].values["axis"] for value in _sources(makers, at) if makers[value].name == "program_id"}
        alone = [axis for axis in sorted(ids) if axis not in used]
        names = tuple(f"_program{axis}" for axis in alone)
        values = {
            "coords": (*names, *op.values["coords"]),
            "axes": op.values["axes"],
            "map": (*map(Dim.symbol, names), *op.values["map"]),
            "bounds": op.values["bounds"],
        }
        dims: list[Dim] = [*(program.grid[axis] for axis in alone), *op.values["shape"]]
        type = TensorType.of(dims, program.types[op.operands[0]].dtype)
        ranks = op.values["size"][0].value
        collective = Collective(op.name, op.values["axis"], ranks, op.values.get("op", ""), type, op.span)
        return _Place(op, collective, values, (*(ids[axis] for axis in alone), *at))

    @property
    def tiles(self) -> tuple[int, ...]:
        """The tiles that are sent."""
        return self.op.operands[: self.collective.ranks if self.op.name == "reduce_scatter" else 1]

    def memory(self, *, is_sent: bool) -> TensorType:
        """The tensor that is sent, or received."""
        is_stacked = self.op.name == ("reduce_scatter" if is_sent else "all_gather")
        type = self.collective.type
        return type.with_shape((Dim.constant(self.collective.ranks), *type.shape)) if is_stacked else type

    def accesses(self, tiles: tuple[int, ...], *, is_sent: bool) -> Iterator[tuple[int, dict[str, Any]]]:
        """For each tile the attributes of its access."""
        is_stacked = self.op.name == ("reduce_scatter" if is_sent else "all_gather")
        for rank, tile in enumerate(tiles):
            lead = (Dim.constant(rank),) if is_stacked else ()
            yield tile, {**self.values, "map": (*lead, *self.values["map"])}


def _sources(makers: Mapping[int, TileOp], values: tuple[int, ...]) -> set[int]:
    """All that values are computed from, themselves included."""
    found, waiting = set[int](), list(values)
    while waiting:
        value = waiting.pop()
        if value in makers and value not in found:
            found.add(value)
            waiting += makers[value].operands
    return found


class _Splitting:
    """Makes the part of a kernel that ends with collective `end`."""

    def __init__(self, program: KernelProgram, places: list[_Place], end: int) -> None:
        self.program, self.places, self.end = program, places, end
        self.is_last = end == len(places)
        self.types = list(program.types)
        self.results = set(program.buffers[program.inputs :])
        self.buffers = [self._new(Memory(place.memory(is_sent=False))) for place in places[:end]]

    def _new(self, type: Any) -> int:
        self.types.append(type)
        return len(self.types) - 1

    def part(self) -> Part:
        program, place = self.program, None if self.is_last else self.places[self.end]
        target = None if place is None else self._new(Memory(place.memory(is_sent=True)))
        body = Body(self._ops(target))  # of ops of its own, since those of a program are changed in place
        _drop_unread(body, {*self.results, *([] if target is None else [target])})
        read = {value for op in _all(body) for value in op.operands}
        received = tuple(number for number, buffer in enumerate(self.buffers) if buffer in read)
        inputs = program.inputs
        given = [self.places[number].memory(is_sent=False) for number in received]
        buffers = [*program.buffers[:inputs], *(self.buffers[number] for number in received)]
        results = list(program.results) if place is None else [place.memory(is_sent=True)]
        made = replace(
            program,
            arguments=(*program.arguments[:inputs], *given, *results),
            inputs=len(buffers),
            buffers=(*buffers, *(program.buffers[inputs:] if target is None else (target,))),
            body=body,
            types=self.types,
            zeroed=program.zeroed if self.is_last else (),
        )
        return Part(made, received, None if place is None else place.collective)

    def _ops(self, target: int | None) -> list[TileOp]:
        """The ops up to the end: collectives read what was received, and only the last part stores results."""
        found: list[TileOp] = []
        count = 0
        for op in self.program.body.ops:
            if op.name not in COLLECTIVES:
                found += [op] if self.is_last else self._without_stores(op)
                continue
            place = self.places[count]
            if count == self.end and target is not None:
                for tile, values in place.accesses(place.tiles, is_sent=True):
                    found.append(TileOp("store", (tile, target, *place.at), {**values, "mode": "set"}, (), op.span))
                break
            for tile, values in place.accesses(op.results, is_sent=False):
                operands = (self.buffers[count], *place.at)
                found.append(TileOp("load", operands, {**values, "pad": 0}, (tile,), op.span))
            count += 1
        return [replace(op, body=_copy(op.body)) for op in found]

    def _without_stores(self, op: TileOp) -> list[TileOp]:
        """The op without stores to results; nothing where it does no more than that."""
        if op.name == "store" and op.operands[1] in self.results:
            return []
        if op.body is None:
            return [op]
        inner = [one for each in op.body.ops for one in self._without_stores(each)]
        return [replace(op, body=replace(op.body, ops=inner))]


def _drop_unread(body: Body, results: set[int]) -> None:
    """Take out what is computed for nothing: values, and stores to scratch that nobody reads."""
    count = -1
    while count != (count := len(list(_all(body)))):
        without_unused(body)
        read = {value for op in _all(body) for value in op.operands[2 if op.name == "store" else 0 :]}
        for inner in [body, *(op.body for op in _all(body) if op.body is not None)]:
            inner.ops[:] = [op for op in inner.ops if op.name != "store" or op.operands[1] in results | read]


def _copy(body: Body | None) -> Body | None:
    return None if body is None else replace(body, ops=[replace(op, body=_copy(op.body)) for op in body.ops])


def _all(body: Body) -> Iterator[TileOp]:
    for op in body.ops:
        yield op
        if op.body is not None:
            yield from _all(op.body)
