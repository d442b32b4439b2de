"""Collectives of tiles: what the same program has on every rank of a mesh axis, reduced or gathered.

A tile lies in a tensor of `shape`, at `map`, as in an access: ranks exchange that tensor, of which each program has its
tile. Reductions go in the order of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tessera.ir.base.arrays import RANK_REDUCTIONS
from tessera.ir.base.block_ops import AXES, COORDS, check_symbols
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import IndexAttr, TileAttr
from tessera.ir.tile.ops.blocks import OPS

_MESH = (
    Attribute("axis", "str", doc="name of the mesh axis"),
    Attribute("size", "dims", doc="how many ranks that axis has, as one dim"),
)
_PLACE = (
    COORDS,
    AXES,
    Attribute("map", "dims", doc="one expression per dim of the tensor that ranks exchange"),
    Attribute("bounds", "dims", doc="one extent per axis; -1 for none"),
    Attribute("shape", "dims", doc="the dims of the tensor that ranks exchange"),
)
_REDUCTION = Attribute("op", "str", "sum", "sum, prod, max, min or mean, in the order of the ranks")
EFFECTS = frozenset(["collective"])


def _check(op: SpecOp, sent: int, received: int) -> None:
    """What all collectives ask: a mesh axis, one type of tile, a place that every rank has, equally often."""
    _check_mesh(op)
    tiles, results = list(op.operands[:sent]), [result.type for result in op.results]
    type = tiles[0].type if tiles else None
    if not isinstance(type, TileAttr) or any(tile.type != type for tile in tiles):
        op.fail(f"`{op.name}` takes {_count(sent)} of one type, got {', '.join(str(tile.type) for tile in tiles)}")
    if len(results) != received or any(result != type for result in results):
        op.fail(f"`{op.name}` gives {_count(received)} of {type}, not {', '.join(map(str, results))}")
    _check_place(op, tiles[0], sent)
    _check_uniform(op, op.operands[sent:])


def _count(tiles: int) -> str:
    return "one tile" if tiles == 1 else f"{tiles} tiles"


def _check_mesh(op: SpecOp) -> None:
    if not op.value("axis"):
        op.fail(f"`{op.name}` needs the name of a mesh axis")
    size = op.value("size")
    if len(size) != 1 or size[0].value is None or size[0].value < 1:
        op.fail(f"`{op.name}` is over a number of ranks, at least 1, got {[str(dim) for dim in size]}")


def _check_place(op: SpecOp, tile: SSAValue, first: int) -> None:
    if OPS.check_coords(op, tile, first):
        op.fail(f"`{op.name}` is at one place, not at indices that a tile has")
    map, shape, bounds = op.value("map"), op.value("shape"), op.value("bounds")
    if len(map) != len(shape):
        op.fail(f"`{op.name}` has a map of {len(map)} expressions into a tensor of rank {len(shape)}")
    if len(bounds) != len(op.value("axes")):
        op.fail(f"`{op.name}` has {len(bounds)} bounds for {len(op.value('axes'))} axes")
    check_symbols(op, "the map", map, op.value("coords"))
    check_symbols(op, "the shape", shape, ())


def _check_uniform(op: SpecOp, indices: Sequence[SSAValue]) -> None:
    """Ranks reach a collective equally often, at ops that are the same on all: nothing that they read decides."""
    around: Operation | None = op.parent_op()
    while around is not None and around.name != "ttile.kernel":
        if around.name == "ttile.for":
            op.fail(
                f"`{op.name}` is in a loop, and ranks need not have equally many iterations",
                "communicate after the loop",
            )
        around = around.parent_op()
    if any(_is_read(value) for value in indices):
        op.fail(f"`{op.name}` is at an index that is read from memory, which ranks need not share")


def _is_read(value: SSAValue) -> bool:
    """Whether an index comes from memory."""
    maker = value.owner
    if not isinstance(maker, SpecOp):
        return False
    if maker.name == "ttile.fetch":
        return True
    return any(isinstance(operand.type, IndexAttr) and _is_read(operand) for operand in maker.operands)


def _check_reduction(op: SpecOp) -> None:
    kind, type = op.value("op"), op.operands[0].type
    if kind not in RANK_REDUCTIONS:
        op.fail(f"`op` is one of {', '.join(RANK_REDUCTIONS)}, got {kind}")
    assert isinstance(type, TileAttr)
    if type.dtype.is_bool or (kind == "mean" and not type.dtype.is_float):
        op.fail(f"`{op.name}` has no {kind} of {type.dtype}", "cast the tile first")


def _ranks(op: SpecOp) -> int:
    size = op.value("size")
    return (size[0].value or 0) if len(size) == 1 else 0


def _check_all_reduce(op: SpecOp) -> None:
    _check(op, 1, 1)
    _check_reduction(op)


def _check_all_gather(op: SpecOp) -> None:
    _check_mesh(op)
    _check(op, 1, _ranks(op))


def _check_reduce_scatter(op: SpecOp) -> None:
    _check_mesh(op)
    _check(op, _ranks(op), 1)
    _check_reduction(op)


SPECS = (
    OpSpec(
        name="ttile.all_reduce",
        summary="The tile that this program has on every rank of a mesh axis, reduced; all ranks get it.",
        operands=("tile", "at*"),
        attributes=(*_MESH, _REDUCTION, *_PLACE),
        effects=EFFECTS,
        verify=_check_all_reduce,
    ),
    OpSpec(
        name="ttile.all_gather",
        summary="The tiles that this program has on the ranks of a mesh axis, one for each rank.",
        operands=("tile", "at*"),
        results=("parts*",),
        attributes=(*_MESH, *_PLACE),
        effects=EFFECTS,
        verify=_check_all_gather,
    ),
    OpSpec(
        name="ttile.reduce_scatter",
        summary="Of one tile for each rank of a mesh axis, the own one of every rank, reduced.",
        operands=("operands*",),
        attributes=(*_MESH, _REDUCTION, *_PLACE),
        effects=EFFECTS,
        verify=_check_reduce_scatter,
    ),
)
