"""Assembly groups, of concatenations and paddings: a result put together from boxes, all stored into one buffer.

A CPU gets one kernel for each box, a loop over its elements. On a GPU a few boxes that are short, or that begin or end
within vectors, are one kernel over the result. Others of equal extent share a kernel: what they have in common is
loaded once, and there is one launch instead of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import combinations, groupby

from xdsl.ir import SSAValue

from tessera.ir.base.index_maps import IndexMap, compose, linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import Evaluator, Leaves, operand_reads, producers, spec_of
from tessera.ir.schedule.emit.request import Request, Walk, walk_over
from tessera.ir.schedule.kinds import KernelKind
from tessera.ir.schedule.kinds.map import (
    FEW,
    VECTOR,
    cuts_vectors,
    emit_walk,
    map_tiles,
    plan_squares,
    plan_transposed,
    small_rows,
    tiles_of_bytes,
)
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.facets import Assembly, Piece, View
from tessera.ir.tile.language import TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import bool_, u8, u16, u32, u64
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

SMALL = 1 << 22
"""Bytes of a result up to which the launch of a kernel for each box takes longer than the boxes do."""
BITS = {1: u8, 2: u16, 4: u32, 8: u64}


def emit_assembly(request: Request) -> list[SpecOp]:
    """One kernel for every box, or on a GPU for boxes of one extent, in the order in which they are written."""
    (record,) = [record for record in request.body.records if isinstance(spec_of(record).lower, Assembly)]
    lower: Assembly = spec_of(record).lower
    types = request.body.types
    pieces = lower.pieces(
        [types[operand] for operand in record.operands], [types[result] for result in record.results], record.attributes
    )
    joined = _emit_joined(request, record, pieces) if request.machine.is_gpu else None
    if joined is not None:
        return [joined]
    kernels: list[SpecOp] = []
    whole = [(at, piece) for at, piece in enumerate(pieces) if all(extent.value != 0 for extent in piece.extent)]
    for _, alike in groupby(whole, lambda pair: pair[1].extent):
        pairs = list(alike)
        kernel = _emit_together(request, record, pairs) if request.machine.is_gpu else None
        own = (_emit_piece(request, record, at, piece) for at, piece in pairs)
        kernels += own if kernel is None else [kernel]
    return kernels


def _emit_joined(request: Request, record: Record, pieces: Sequence[Piece]) -> SpecOp | None:
    """One kernel over the whole result for a GPU, which reads each element from the box that it is in.

    What the other boxes read is masked and has no bits, so that their union is the element. None where there are many
    boxes, they are computed, or each is a long copy of whole vectors.
    """
    body, out = request.body, request.body.types[request.body.outputs[0]]
    names = [f"_d{axis}" for axis in range(out.rank)]
    here = tuple(Dim.symbol(name) for name in names)
    reads = [_read_of(body, record, piece, here) for piece in pieces]
    boxes = [box for box in reads if box is not None]
    if len(boxes) < len(reads) or not 2 <= len(boxes) <= FEW - 1:
        return None
    numbers = [here[axis] for box in boxes for axis in box.axes(out)]
    addresses = [linear(box.where, body.types[box.value].shape) for box in boxes]
    walk = walk_over(names, out.shape, [*addresses, linear(here, out.shape)], numbers)
    is_cut = cuts_vectors(walk.extents, request)
    has_whole_rows = not is_cut and all(box.has_whole_rows(out) for box in boxes)
    if has_whole_rows and (out.bytes.value is None or out.bytes.value > SMALL):
        return None
    walk = walk.as_one_row() if is_cut else walk
    at = dict(zip(names, walk.at(), strict=True))
    bits = BITS[out.dtype.bytes]

    def store(evaluator: Evaluator, outputs: Sequence[SSAValue], region: TileRegion) -> None:
        tile, found = evaluator.tile, list[SSAValue]()
        for box in boxes:
            windows = [part.substitute(at) for axis in box.axes(out) for part in (box.index[axis], box.extent[axis])]
            where = tuple(index.substitute(at) for index in box.where)
            loaded = evaluator.load(box.value, where, region, windows=windows)
            found.append(loaded if out.dtype is bool_ else tile.bitcast(loaded, bits))
        whole = reduce(partial(tile.elementwise, "or"), found)
        value = whole if out.dtype is bool_ else tile.bitcast(whole, out.dtype)
        tile.store(value, outputs[0], (linear(walk.at(), out.shape),), region)

    rows = small_rows(walk.extents, request.machine)
    named = replace(request, name=f"{request.name}_0")
    if rows is not None:
        sizes = dict(zip(walk.names[-len(rows) :], rows, strict=True))
        return emit_walk(named, "assembly", walk, sizes, True, store, by_blocks=False)
    sizes = {walk.names[-1]: map_tiles(request.machine)[0] * tiles_of_bytes(request)}
    return emit_walk(named, "assembly", walk, sizes, True, store, by_blocks=True)


@frozen
class Box:
    """A box of the result that is read from memory: the operand and where, over coordinates of the result."""

    value: int
    where: IndexMap
    index: IndexMap
    extent: tuple[Dim, ...]

    def axes(self, out: TensorType) -> list[int]:
        """The axes along which the result is larger."""
        return [axis for axis, size in enumerate(self.extent) if size != out.shape[axis]]

    def has_whole_rows(self, out: TensorType) -> bool:
        """Whether it begins and ends between vectors of the result's rows."""
        if out.rank - 1 not in self.axes(out):
            return True
        size = self.extent[-1]
        return is_multiple(size * out.dtype.bytes, VECTOR) and is_multiple(
            (Dim.symbol(f"_d{out.rank - 1}") - self.index[-1]) * out.dtype.bytes, VECTOR
        )


def _read_of(body: Tape, record: Record, piece: Piece, here: IndexMap) -> Box | None:
    """The box of a piece; None where it is no operand, or is not in memory."""
    if piece.operand is None or any(extent.value == 0 for extent in piece.extent):
        return None
    index = tuple(at - start for at, start in zip(here, piece.start, strict=True))
    value = record.operands[piece.operand]
    where, makers = compose(_map_of(body, record, piece, len(here)), index), producers(body)
    while value not in body.inputs:
        if not isinstance(spec_of(makers[value]).lower, View):
            return None
        ((value, where),) = operand_reads(body, makers[value], value, where)
    return Box(value, where, index, piece.extent)


def _are_disjoint(pieces: Sequence[Piece]) -> bool:
    """Whether no two boxes of one extent overlap."""

    def is_after(a: Piece, b: Piece) -> bool:
        gaps = [to - at - size for at, to, size in zip(a.start, b.start, a.extent, strict=True)]
        return any(gap.value is not None and gap.value >= 0 for gap in gaps)

    return all(is_after(a, b) or is_after(b, a) for a, b in combinations(pieces, 2))


def _emit_together(request: Request, record: Record, numbered: Sequence[tuple[int, Piece]]) -> SpecOp | None:
    """Boxes of one extent in one walk for a GPU; None where they overlap or rows are long."""
    pieces = [piece for _, piece in numbered]
    if not _are_disjoint(pieces):
        return None
    body, out = request.body, request.body.types[request.body.outputs[0]]
    names = [f"_d{axis}" for axis in range(out.rank)]
    here = [Dim.symbol(name) for name in names]
    leaves = Leaves(body, body.inputs)
    for piece in pieces:
        if piece.operand is not None:
            leaves.visit(record.operands[piece.operand], compose(_map_of(body, record, piece, out.rank), here))
    addresses = [*leaves.addresses, *(_target(piece, here, out) for piece in pieces)]
    walk = walk_over(names, pieces[0].extent, addresses, leaves.numbers)
    sizes = plan_transposed(request, addresses, names, walk)
    if sizes is None and (rows := small_rows(walk.extents, request.machine)) is not None:
        sizes = dict(zip(walk.names[-len(rows) :], rows, strict=True))
    return None if sizes is None else _emit(request, record, numbered, walk, sizes, by_blocks=False)


def _map_of(body: Tape, record: Record, piece: Piece, rank: int) -> IndexMap:
    """The index in the operand of a piece, for coordinates in its box."""
    is_scalar = piece.operand is not None and not body.types[record.operands[piece.operand]].rank
    return piece.map if piece.map or is_scalar else tuple(Dim.symbol(f"d{axis}") for axis in range(rank))


def _target(piece: Piece, at: Sequence[Dim], out: TensorType) -> Dim:
    """The offset in the result of an element of a box."""
    return linear([start + here for start, here in zip(piece.start, at, strict=True)], out.shape)


def _emit_piece(request: Request, record: Record, number: int, piece: Piece) -> SpecOp:
    body = request.body
    out = body.types[body.outputs[0]]
    names = [f"_d{axis}" for axis in range(out.rank)]
    here = [Dim.symbol(name) for name in names]
    leaves = Leaves(body, body.inputs)
    if piece.operand is not None:
        leaves.visit(record.operands[piece.operand], compose(_map_of(body, record, piece, out.rank), here))
    addresses = [*leaves.addresses, _target(piece, here, out)]
    walk = walk_over(names, piece.extent, addresses, leaves.numbers)
    if not walk.names:
        walk = Walk(("_p0",), ((),), ())
    transposed = plan_transposed(request, addresses, names, walk)
    if transposed is not None:
        return _emit(request, record, [(number, piece)], walk, transposed, by_blocks=False)
    sizes = plan_squares(request, addresses, names, walk) or {walk.names[-1]: map_tiles(request.machine)[0]}
    return _emit(request, record, [(number, piece)], walk, sizes, by_blocks=True)


def _emit(
    request: Request,
    record: Record,
    numbered: Sequence[tuple[int, Piece]],
    walk: Walk,
    sizes: Mapping[str, int],
    *,
    by_blocks: bool,
) -> SpecOp:
    """The kernel that stores boxes of one extent, named by the number of the first."""
    body, at = request.body, walk.at()
    out = body.types[body.outputs[0]]

    def store(evaluator: Evaluator, outputs: Sequence[SSAValue], region: TileRegion) -> None:
        tile = evaluator.tile
        for _, piece in numbered:
            if piece.operand is None:
                value = tile.cast(tile.full(piece.fill, region.sizes, out.dtype.compute), out.dtype)
            else:
                source = compose(_map_of(body, record, piece, out.rank), at)
                value = evaluator.value(record.operands[piece.operand], source, region)
            tile.store(value, outputs[0], (_target(piece, at, out),), region)

    named = replace(request, name=f"{request.name}_{numbered[0][0]}")
    return emit_walk(named, "assembly", walk, sizes, True, store, by_blocks=by_blocks)


class AssemblyKind(KernelKind):
    """A result put together from boxes, and what is computed for them."""

    name = "assembly"
    facets = (Assembly,)
    reads_once = True

    def emit(self, request: Request) -> Sequence[SpecOp]:
        return emit_assembly(request)


KIND = AssemblyKind()
