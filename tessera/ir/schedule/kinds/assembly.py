"""Assembly groups, of concatenations and paddings: a result put together from boxes, all stored into one buffer.

A CPU gets one kernel for each box, a loop over its elements. On a GPU boxes of equal extent share a kernel: what they
have in common is loaded once, and there is one launch instead of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, groupby

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, compose, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, Leaves, spec_of
from tessera.ir.schedule.emit.request import Request, buffers_of, walk_over
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.kinds.map import BLOCK, map_tiles, small_rows
from tessera.ir.tile.facets import Assembly, Piece
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim, minimum
from tessera.types.shape import TensorType


def emit_assembly(request: Request) -> list[SpecOp]:
    """One kernel for every box, or on a GPU for boxes of one extent, in the order in which they are written."""
    (record,) = [record for record in request.body.records if isinstance(spec_of(record).lower, Assembly)]
    lower: Assembly = spec_of(record).lower
    types = request.body.types
    pieces = lower.pieces(
        [types[operand] for operand in record.operands], [types[result] for result in record.results], record.attributes
    )
    kernels: list[SpecOp] = []
    whole = [(at, piece) for at, piece in enumerate(pieces) if all(extent.value != 0 for extent in piece.extent)]
    for _, alike in groupby(whole, lambda pair: pair[1].extent):
        pairs = list(alike)
        kernel = _emit_together(request, record, pairs) if request.machine.is_gpu else None
        own = (_emit_piece(request, record, piece, f"{request.name}_{at}") for at, piece in pairs)
        kernels += own if kernel is None else [kernel]
    return kernels


def _are_disjoint(pieces: Sequence[Piece]) -> bool:
    """Whether no two boxes of one extent overlap."""

    def is_after(a: Piece, b: Piece) -> bool:
        gaps = [to - at - size for at, to, size in zip(a.start, b.start, a.extent, strict=True)]
        return any(gap.value is not None and gap.value >= 0 for gap in gaps)

    return all(is_after(a, b) or is_after(b, a) for a, b in combinations(pieces, 2))


def _emit_together(request: Request, record: Record, numbered: Sequence[tuple[int, Piece]]) -> SpecOp | None:
    """Boxes of one extent in one walk for a GPU; None where they overlap or rows are long."""
    pieces, name = [piece for _, piece in numbered], f"{request.name}_{numbered[0][0]}"
    if not _are_disjoint(pieces):
        return None
    body, out, extent = request.body, request.body.types[request.body.outputs[0]], pieces[0].extent
    names = [f"_d{axis}" for axis in range(out.rank)]
    here = [Dim.symbol(name) for name in names]
    leaves = Leaves(body, body.inputs)
    for piece in pieces:
        if piece.operand is not None:
            leaves.visit(record.operands[piece.operand], compose(_map_of(body, record, piece, out.rank), here))
    addresses = [*leaves.addresses, *(_target(piece, here, out) for piece in pieces)]
    walk = walk_over(names, extent, addresses, leaves.numbers)
    sizes = small_rows(walk.extents, request.machine)
    if sizes is None:
        return None
    steps, extents = dict(zip(walk.names[-2:], sizes, strict=True)), dict(zip(walk.names, walk.extents, strict=True))
    grid = [size.ceildiv(steps.get(name, 1)) for name, size in extents.items()]
    tile: TileBuilder = Request(name, body, request.machine, request.chooser).builder(grid, "assembly", True)
    coords = {name: tile.program_id(axis) for axis, name in enumerate(walk.names)}
    for step in steps:
        coords[step] = tile.index(Dim.symbol(step) * steps[step], {step: coords[step]})
    place = Place(coords, tuple(steps), sizes, {name: extents[name] for name in steps})
    inputs, outputs = buffers_of(body, tile)
    evaluator = Evaluator(body, tile, inputs, True)
    for piece in pieces:
        if piece.operand is None:
            value = tile.cast(tile.full(piece.fill, sizes, out.dtype.compute), out.dtype)
        else:
            source = compose(_map_of(body, record, piece, out.rank), walk.at())
            value = evaluator.value(record.operands[piece.operand], source, place)
        tile.store(value, outputs[0], (_target(piece, walk.at(), out),), place)
    return tile.finish()


def _map_of(body: Tape, record: Record, piece: Piece, rank: int) -> IndexMap:
    """The index in the operand of a piece, for coordinates in its box."""
    is_scalar = piece.operand is not None and not body.types[record.operands[piece.operand]].rank
    return piece.map if piece.map or is_scalar else tuple(Dim.symbol(f"d{axis}") for axis in range(rank))


def _target(piece: Piece, at: Sequence[Dim], out: TensorType) -> Dim:
    """The offset in the result of an element of a box."""
    return linear([start + here for start, here in zip(piece.start, at, strict=True)], out.shape)


def _emit_piece(request: Request, record: Record, piece: Piece, name: str) -> SpecOp:
    body = request.body
    out = body.types[body.outputs[0]]
    names = [f"_d{axis}" for axis in range(out.rank)]
    here = [Dim.symbol(name) for name in names]
    inner_map = _map_of(body, record, piece, out.rank)
    addresses = [_target(piece, here, out)]
    if piece.operand is not None:
        source = record.operands[piece.operand]
        addresses.append(linear(compose(inner_map, here), body.types[source].shape))
    walk = walk_over(names, piece.extent, addresses, ())
    at, coordinates = walk.at(), walk.names or ("_p0",)
    *outer, inner = walk.extents or (Dim.constant(1),)
    renamed = Request(name, body, request.machine, request.chooser)
    tile: TileBuilder = renamed.builder([*outer, inner.ceildiv(BLOCK)], "assembly", True)
    coords = {coordinate: tile.program_id(axis) for axis, coordinate in enumerate(coordinates)}
    last = coordinates[-1]
    width = map_tiles(request.machine)[0]
    start = tile.index(Dim.symbol(last) * BLOCK, coords)
    stop = tile.index(minimum(inner, Dim.symbol(last) * BLOCK + BLOCK), coords)
    inputs, outputs = buffers_of(body, tile)
    evaluator = Evaluator(body, tile, inputs, True)
    target = _target(piece, at, out)

    def step(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = Place({**coords, last: index}, (last,), (width,), {last: inner})
        with evaluator.scope():
            if piece.operand is None:
                value = tile.cast(tile.full(piece.fill, (width,), out.dtype.compute), out.dtype)
            else:
                value = evaluator.value(record.operands[piece.operand], compose(inner_map, at), place)
            tile.store(value, outputs[0], (target,), place)
        return carried

    tile.loop(start, stop, width, step)
    return tile.finish()


class AssemblyKind(KernelKind):
    """A result put together from boxes, and what is computed for them."""

    name = "assembly"
    facets = (Assembly,)
    reads_once = True

    def emit(self, request: Request) -> Sequence[SpecOp]:
        return emit_assembly(request)


KIND = AssemblyKind()
