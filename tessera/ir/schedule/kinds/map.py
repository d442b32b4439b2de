"""Map groups, of pointwise ops and gathers: one walk over the result, every value computed where it is stored.

The dims of the result are joined into as few as all accesses allow, so that a contiguous op is one long vector loop
whatever its rank. Where one access is contiguous in another dim than the rest (a transpose), tiles are two-dimensional,
so that both are read and written in whole cache lines or transactions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, linear, simplify
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, Leaves
from tessera.ir.schedule.emit.request import Request, Walk, buffers_of, walk_over
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.layouts import MAP, MODELS, Access, along_rows
from tessera.ir.schedule.program import check_shapes, result_reads
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.facets import Gather, Pointwise
from tessera.ir.tile.language import TileRegion
from tessera.types.dim import Dim, minimum, next_power_of_two, product
from tessera.types.machine import Machine

BLOCK = 4096
"""Elements of the innermost dim that one program of a CPU walks: enough to amortize its start.

One of a GPU has one tile. Copies of 512 MB on an H200 took 2 % longer with two vectors of 16 bytes to a thread, and 5 %
with four.
"""

VECTOR = 16
"""Bytes that one instruction of a GPU moves at most."""

FEW = 4
"""Accesses up to which a result is written as one row: one that is not whole takes an instruction an element."""

WORDS = 1 << 30
"""Elements up to which a GPU finds coordinates by dividing 32 bits."""

LINE, SIDE = 128, 64
"""Bytes of a row of a tile that a GPU transposes, which it reads together, and elements of a column at least."""

APART, SHORT = 4, 16
"""Elements from one to the next of a dim that a GPU reads lines along, and elements of a dim that is short for that."""

MANY_READS = 3
"""Reads of one operand for each element from which on a small result is worth the programs that fill a GPU: partial
results have so many that a join of them is long."""

PICKED = 4
"""Elements from lane to lane up to which a CPU picks lanes from vectors."""

PERIODS = 8
"""Vectors of a tile of a CPU at most that has elements of several rows."""

ROWS = 2048
"""Elements of a tile of several rows, where the innermost dim is shorter than that."""


def small_rows(extents: Sequence[Dim], machine: Machine, total: int = ROWS) -> tuple[int, ...] | None:
    """Sizes of a tile for a GPU along the last dims, where the innermost is so short that threads would idle.

    A dim that is short itself has as many as waste little, and the one before it the others: about `total` of all.
    None where the innermost dim is not short, or is symbolic.
    """
    inner = extents[-1].value if extents else None
    if not machine.is_gpu or len(extents) < 2 or inner is None or not 1 < inner <= total // 2:
        return None
    sizes = [next_power_of_two(inner)]
    for extent in reversed(extents[:-1]):
        most = total // math.prod(sizes)
        if most > 1:
            sizes.append(most if extent.value is None else _rows_of(extent.value, most))
    return tuple(reversed(sizes))


def _rows_of(extent: int, most: int) -> int:
    """A power of two up to `most`: neither many elements beyond the extent, nor few rows that share what they read."""
    sizes = [1 << power for power in range(most.bit_length())]
    return min(reversed(sizes), key=lambda size: -(-extent // size) * (2 * size + 1))


def transposed_tile(rows: Dim, columns: Dim, size: int) -> tuple[int, int]:
    """Rows and columns of a tile that a GPU transposes, of elements of `size` bytes.

    It reads along the rows' dim, and writes along the columns'. Of a shorter dim it has all, and more of the other.
    """
    most = LINE // size, max(LINE // size, SIDE)
    total = most[0] * most[1]
    all_rows, all_columns = (total if dim.value is None else next_power_of_two(dim.value) for dim in (rows, columns))
    if all_columns < most[1]:
        return min(all_rows, total // all_columns), all_columns
    covered = min(most[0], all_rows)
    return covered, min(all_columns, total // covered)


def map_tiles(machine: Machine) -> tuple[int, ...]:
    """Candidates for the elements of a tile: some vectors of a CPU; on a GPU, 8 for each thread come first."""
    return tuple(times * machine.lanes for times in ((64, 32, 128, 16) if machine.is_gpu else (2, 1, 4, 8)))


def emit_map(request: Request) -> SpecOp:
    """`out[d] = f(inputs...)` for outputs of one shape.

    The innermost joined dim is split into blocks, and those into tiles.
    """
    body = request.body
    shape = body.types[body.outputs[0]].shape
    names = tuple(f"_d{axis}" for axis in range(len(shape)))
    leaves = Leaves(body, body.inputs)
    at = tuple(Dim.symbol(name) for name in names)
    for output in body.outputs:
        leaves.visit(output, at)
    addresses = [*leaves.addresses, linear(at, shape)]
    walk = walk_over(names, shape, addresses, leaves.numbers)
    flat = len(walk.groups) < len(shape)

    def emit(sizes: Mapping[str, int], *, by_blocks: bool) -> SpecOp:
        store = partial(_store_outputs, request, walk.at(), flat)
        return emit_walk(request, "map", walk, sizes, flat, store, by_blocks=by_blocks)

    if not walk.groups:
        return emit({}, by_blocks=False)
    squares = plan_squares(request, addresses, names, walk)
    if squares is not None:
        return emit(squares, by_blocks=True)
    transposed = plan_transposed(request, addresses, names, walk)
    if transposed is not None:
        return emit(transposed, by_blocks=False)
    few = _few_elements(walk, request.machine) if max(leaves.reads.values(), default=0) >= MANY_READS else 0
    if few:
        rows = small_rows(walk.extents, request.machine, few) or (few,)
        return emit(dict(zip(walk.names[-len(rows) :], rows, strict=True)), by_blocks=False)
    if len(addresses) <= FEW and cuts_vectors(walk.extents, request):
        walk, flat = walk.as_one_row(), True
    periods = plan_periods(walk, request.machine)
    if periods is not None and _is_near(addresses, names, walk, periods[0], request.machine.lanes):
        walk, flat = walk.as_one_row(periods[0]), True
        return emit({walk.names[-1]: periods[1]}, by_blocks=True)
    rows = small_rows(walk.extents, request.machine)
    if rows is not None:
        return emit(dict(zip(walk.names[-len(rows) :], rows, strict=True)), by_blocks=False)
    width = request.choose("map.tile", map_tiles(request.machine), extent=walk.extents[-1])
    return emit({walk.names[-1]: width * tiles_of_bytes(request)}, by_blocks=True)


def tiles_of_bytes(request: Request) -> int:
    """How many times as large tiles are: threads of a GPU have 8 elements each, and vectors of bytes are of 16."""
    return 2 if request.machine.is_gpu and all(type.dtype.bytes == 1 for type in request.arguments) else 1


def cuts_vectors(extents: Sequence[Dim], request: Request) -> bool:
    """Whether rows of a GPU's result end within a vector: it is then written as one row, whose coordinates are divided.

    Reads are of single elements either way, and writes of one row are whole vectors without a mask.
    """
    inner, total = (part.value for part in (extents[-1], product(extents)))
    if not request.machine.is_gpu or len(extents) < 2 or inner is None or total is None or total > WORDS:
        return False
    sizes = [request.body.types[output].dtype.bytes for output in request.body.outputs]
    return any(inner * size % VECTOR for size in sizes)


def plan_periods(walk: Walk, machine: Machine) -> tuple[int, int] | None:
    """How many of the last dims a CPU walks as one, where rows would not fill its vectors, and the elements of a tile.

    A vector then has elements of several rows. What is broadcast along them repeats with a period, the product of all
    joined dims but the first; a tile has nothing but whole periods, so that lanes are filled by shuffles that are
    known. None where rows fill vectors, or a tile of whole periods would be long.
    """
    inner = walk.extents[-1].value if walk.extents else None
    if machine.is_gpu or len(walk.extents) < 2 or inner is None or not 1 < inner < 2 * machine.lanes:
        return None
    if inner % machine.lanes == 0:
        return None
    most, joined, period, length = PERIODS * machine.lanes, 2, inner, walk.extents[-2].value
    length = None if length is None else length * inner
    while length is not None and length < most and joined < len(walk.extents):
        if math.lcm(length, machine.lanes) > most:
            break
        joined, period, more = joined + 1, length, walk.extents[-joined - 1].value
        length = None if more is None else length * more
    tile = math.lcm(period, machine.lanes)
    if tile > most or (length is not None and length < machine.lanes):
        return None
    return joined, max(tile, 2 * machine.lanes) if 2 * machine.lanes % period == 0 else tile


def _is_near(addresses: Sequence[Dim], names: Sequence[str], walk: Walk, joined: int, lanes: int) -> bool:
    """Whether what a vector of the last dims reads lies within two vectors, for every access: gathers cost more."""
    where = dict(zip(names, walk.at(), strict=True))
    for address in addresses:
        here, span, inner = simplify(address.substitute(where)), 0, 1
        for name, extent in list(zip(walk.names, walk.extents, strict=True))[: -joined - 1 : -1]:
            parts = here.coefficient(name)
            step = None if parts is None else parts[0].value
            if step is None:
                return False
            most = -(-lanes // inner)
            span += abs(step) * (most if extent.value is None else min(extent.value - 1, most))
            inner *= extent.value or lanes
        if span > 2 * lanes:
            return False
    return True


def _few_elements(walk: Walk, machine: Machine) -> int:
    """Elements of a tile of a result too small for blocks to fill a GPU; 0 for others."""
    total = product(walk.extents).value
    if not machine.is_gpu or total is None or total >= 2 * machine.blocks * BLOCK:
        return 0
    return next((size for size in (2048, 1024) if total >= 2 * machine.blocks * size), 512)


def _strided_axis(addresses: Sequence[Dim], names: Sequence[str], walk: Walk, farthest: int) -> int | None:
    """The dim of the walk, not the last, in which some access is near that is farther apart in the last.

    Near are elements that are at most `farthest` apart.
    """
    where = dict(zip(names, walk.at(), strict=True))
    for address in addresses:
        here = simplify(address.substitute(where))
        linear_in = [here.coefficient(name) for name in walk.names]
        steps = [None if found is None else found[0].value for found in linear_in]
        if linear_in[-1] is None or steps[-1] == 0:
            continue
        near = [(abs(step), axis) for axis, step in enumerate(steps[:-1]) if step and abs(step) <= farthest]
        if near and (steps[-1] is None or abs(steps[-1]) > min(near)[0]):
            # A short dim is beside another in memory, and of both the longer one has whole lines.
            return min(near, key=lambda found: (_is_short(walk.extents[found[1]]), found))[1]
    return None


def _is_short(extent: Dim) -> bool:
    return extent.value is not None and extent.value < SHORT


def plan_transposed(
    request: Request, addresses: Sequence[Dim], names: Sequence[str], walk: Walk
) -> dict[str, int] | None:
    """Tiles that a GPU transposes in shared memory, where some access is contiguous in another dim than the last."""
    across = _strided_axis(addresses, names, walk, APART) if request.machine.is_gpu else None
    if across is None:
        return None
    size = max(type.dtype.bytes for type in request.arguments)
    tile = transposed_tile(walk.extents[across], walk.extents[-1], size)
    return dict(zip((walk.names[across], walk.names[-1]), tile, strict=True))


def plan_squares(request: Request, addresses: Sequence[Dim], names: Sequence[str], walk: Walk) -> dict[str, int] | None:
    """Squares of lanes for a CPU, loaded along the contiguous dim and transposed in registers; None where none fit."""
    across = None if request.machine.is_gpu else _strided_axis(addresses, names, walk, PICKED)
    if across is None:
        return None
    extent, widest = walk.extents[across].value, max(type.dtype.bytes for type in request.body.types)
    side = request.machine.lanes * 4 // max(widest, 4)
    if side < 4 or (extent is not None and 2 * extent < side):
        return None  # hardly more than single elements, or known to be mostly empty
    return dict.fromkeys((walk.names[across], walk.names[-1]), side)


def _store_outputs(
    request: Request, at: IndexMap, flat: bool, evaluator: Evaluator, outputs: Sequence[SSAValue], region: TileRegion
) -> None:
    tile, body = evaluator.tile, request.body
    if request.in_place:
        # An output may be stored over what others are computed from: all are computed first.
        for output in body.outputs:
            tile.span = evaluator.span_of(output)
            evaluator.value(output, at, region)
    for output, buffer in zip(body.outputs, outputs, strict=True):
        where = (linear(at, body.types[output].shape),) if flat else at
        tile.span = evaluator.span_of(output)
        tile.store(evaluator.value(output, at, region), buffer, where, region)


Store: TypeAlias = Callable[[Evaluator, Sequence[SSAValue], TileRegion], None]
"""`store(evaluator, outputs, region)`: compute the tiles of a region, and store them to the buffers of the outputs."""


def emit_walk(
    request: Request, kind: str, walk: Walk, sizes: Mapping[str, int], flat: bool, store: Store, *, by_blocks: bool
) -> SpecOp:
    """The kernel of a walk in tiles of `sizes`, along some of its dims.

    A program has one tile, or `by_blocks` a loop over those of a block of the last dim, which is one of them: a long
    run of vectors then has one program.
    """
    extents = dict(zip(walk.names, walk.extents, strict=True))
    if by_blocks and request.machine.is_gpu and is_multiple(walk.extents[-1], sizes[walk.names[-1]]):
        by_blocks = False  # all tiles are whole: nothing is left to loop over
    last = sizes.get(walk.names[-1], 1) if walk.names else 1
    block = last if by_blocks and request.machine.is_gpu else BLOCK // last * last
    steps = {**sizes, walk.names[-1]: block} if by_blocks else sizes
    grid = [extent.ceildiv(steps.get(name, 1)) for name, extent in extents.items()] or [Dim.constant(1)]
    tile = request.builder(grid, kind, flat)
    coords = {name: tile.program_id(axis) for axis, name in enumerate(walk.names)}
    bounds: list[SSAValue] = []
    if by_blocks:
        start = Dim.symbol(walk.names[-1]) * block
        stop = minimum(walk.extents[-1], start + block)
        bounds = [tile.index(end, coords) for end in (start, stop)]
    for name, size in steps.items():
        if name not in walk.names[-1:] or not by_blocks:
            coords[name] = tile.index(Dim.symbol(name) * size, {name: coords[name]})
    inputs, _ = buffers_of(request.body, tile)
    outputs = [tile.arguments[request.target(number)] for number in range(len(request.body.outputs))]
    evaluator = Evaluator(request.body, tile, inputs, flat)
    region = TileRegion(coords, tuple(sizes), tuple(sizes.values()), {name: extents[name] for name in sizes})

    def step(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        with evaluator.scope():
            store(evaluator, outputs, region.with_coords(**{walk.names[-1]: index}))
        return carried

    if by_blocks:
        tile.loop(bounds[0], bounds[1], sizes[walk.names[-1]], step)
    else:
        store(evaluator, outputs, region)
    return tile.finish()


class MapKind(KernelKind):
    """Pointwise ops and gathers over one shape."""

    name = "map"
    facets = (Pointwise, Gather)
    merges = can_inline = computes_once = True
    models = MODELS

    def check(self, body: Tape, axes: tuple[int, ...]) -> None:
        check_shapes(body, [body.types[output].shape for output in body.outputs[:1]])

    def knobs(self, machine: Machine) -> Sequence[tuple[str, Sequence[Any]]]:
        return (("map.tile", map_tiles(machine)),)

    def accesses(self, body: Tape, axes: tuple[int, ...]) -> Mapping[int, Sequence[Access]]:
        return along_rows(body, result_reads(body), body.types[body.outputs[0]].shape, MAP)

    def emit(self, request: Request) -> Sequence[SpecOp]:
        return [emit_map(request)]


KIND = MapKind()
