"""Kernels of assembled results: one walk over each box, all into one buffer."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record
from tessera.ir.schedule.emit.evaluate import Evaluator, spec_of
from tessera.ir.schedule.emit.frame import Request, buffers_of
from tessera.ir.schedule.emit.map_kernel import BLOCK, map_tiles
from tessera.ir.schedule.emit.maps import collapse, compose, delinear, linear
from tessera.ir.tile.facets import Assembly, Piece
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim, minimum, product


def emit_assembly(request: Request) -> list[SpecOp]:
    """One kernel for every box of a concatenation or a padding, in the order in which they are written."""
    (record,) = [record for record in request.body.records if isinstance(spec_of(record).lower, Assembly)]
    lower: Assembly = spec_of(record).lower
    types = request.body.types
    pieces = lower.pieces(
        [types[operand] for operand in record.operands], [types[result] for result in record.results], record.attributes
    )
    kernels: list[SpecOp] = []
    for number, piece in enumerate(pieces):
        if any(extent.value == 0 for extent in piece.extent):
            continue
        kernels.append(_emit_piece(request, record, piece, f"{request.name}_{number}"))
    return kernels


def _emit_piece(request: Request, record: Record, piece: Piece, name: str) -> SpecOp:
    body = request.body
    out = body.types[body.outputs[0]]
    names = [f"_d{axis}" for axis in range(out.rank)]
    here = [Dim.symbol(name) for name in names]
    is_scalar = piece.operand is not None and not body.types[record.operands[piece.operand]].rank
    inner_map = piece.map if piece.map or is_scalar else tuple(Dim.symbol(f"d{axis}") for axis in range(out.rank))
    addresses = [linear([start + at for start, at in zip(piece.start, here, strict=True)], out.shape)]
    if piece.operand is not None:
        source = record.operands[piece.operand]
        addresses.append(linear(compose(inner_map, here), body.types[source].shape))
    groups = collapse(names, piece.extent, addresses)
    walk = [f"_p{g}" for g in range(len(groups))]
    extents = [product(piece.extent[axis] for axis in group) for group in groups]
    at: list[Dim] = [Dim.constant(0)] * out.rank
    for coordinate, group in zip(walk, groups, strict=True):
        parts = delinear(Dim.symbol(coordinate), [piece.extent[axis] for axis in group])
        for axis, part in zip(group, parts, strict=True):
            at[axis] = part
    *outer, inner = extents or [Dim.constant(1)]
    renamed = Request(name, body, request.machine, request.chooser)
    tile: TileBuilder = renamed.builder([*outer, inner.ceildiv(BLOCK)], "assembly", True)
    coords = {coordinate: tile.program_id(axis) for axis, coordinate in enumerate(walk or ["_p0"])}
    last = (walk or ["_p0"])[-1]
    width = map_tiles(request.machine)[0]
    start = tile.index(Dim.symbol(last) * BLOCK, coords)
    stop = tile.index(minimum(inner, Dim.symbol(last) * BLOCK + BLOCK), coords)
    inputs, outputs = buffers_of(body, tile)
    evaluator = Evaluator(body, tile, inputs, True)
    target = linear([start_ + at_ for start_, at_ in zip(piece.start, at, strict=True)], out.shape)

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
