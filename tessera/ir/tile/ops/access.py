"""Load and store: a tile of a buffer, each element found by an index map over coordinates.

A coordinate is a named index: the index of a program in the grid, or a loop's step. `axes` names the coordinates that
run along the tile: element `[t0, t1]` of a tile with axes `i, j` is at coordinates `i + t0`, `j + t1`. `map` gives one
expression per dim of the buffer, over coordinates, sizes of the kernel and `t0`, `t1`, ...: the values of the index
tiles, in order. An element is outside when its coordinate along axis `a` is not below `bounds[a]` (a bound of -1 never
cuts), or when an expression of `windows` (pairs of expression and extent) is not in `0 <= e < extent`; outside, a load
gives `pad` and a store writes nothing.

The elements of a tile are owned by the workers of a program: equal indices in tiles of one shape have one owner, and
nothing is said of tiles of different shapes. Owners exchange values in shared memory: each sees its own stores in
program order, and those of others only after a barrier.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.block_ops import AXES, COORDS, MEMORY, MODE, PAD, SWIZZLE, check_fetch, check_mode
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.ops.blocks import check_swizzle
from tessera.ir.tile.choices import MEMORY_LAYOUT, STAGES, check_memory_layout, check_stages
from tessera.ir.tile.ops.blocks import OPS

_MAP = Attribute("map", "dims", doc="one expression per dim of the buffer")
_ACCESS = (
    COORDS,
    AXES,
    _MAP,
    Attribute("bounds", "dims", doc="one extent per axis; -1 for none"),
    Attribute("windows", "dims", (), doc="expression, extent, expression, extent, ..."),
    Attribute("checked", "any", None, doc="what a debug build reports of out-of-bounds indices read from memory"),
)


def _check_access(op: SpecOp, buffer: SSAValue, tile: SSAValue, first: int) -> None:
    if not isinstance(buffer.type, BufferAttr):
        op.fail(f"`{op.name}` takes a buffer, got {buffer.type}")
    OPS.check_coords(op, tile, first)
    assert isinstance(tile.type, TileAttr)
    axes, bounds, shape = op.value("axes"), op.value("bounds"), buffer.type.shape
    if len(bounds) != len(axes):
        op.fail(f"`{op.name}` has {len(bounds)} bounds for {len(axes)} axes")
    if any(bound.value is not None and bound.value < -1 for bound in bounds):
        op.fail(f"the extent of an axis is not negative, or -1 for none, got {[str(bound) for bound in bounds]}")
    _check_map(op, len(shape))
    if buffer.type.dtype != tile.type.dtype:
        op.fail(f"`{op.name}` moves {tile.type.dtype} and the buffer holds {buffer.type.dtype}", "cast the tile first")
    if any(not dim.is_static for dim in tile.type.shape):
        op.fail(f"a tile has static sizes, got {list(tile.type.shape)}")
    if len(op.value("windows")) % 2:
        op.fail("`windows` are pairs of an expression and an extent")
    check_memory_layout(op, buffer.type, tile.type)


def _check_map(op: SpecOp, rank: int) -> None:
    if len(op.value("map")) != rank:
        op.fail(f"`{op.name}` has a map of {len(op.value('map'))} expressions into a buffer of rank {rank}")


def _check_load(op: SpecOp) -> None:
    _check_access(op, op.operands[0], op.results[0], 1)
    check_stages(op)


def _check_store(op: SpecOp) -> None:
    tile, buffer = op.operands[:2]
    _check_access(op, buffer, tile, 2)
    check_mode(op)
    assert isinstance(tile.type, TileAttr)
    if op.value("mode").startswith("atomic") and tile.type.dtype.name not in ATOMIC:
        op.fail(f"atomics take {', '.join(ATOMIC)}, got {tile.type.dtype}", "cast the tile, and the buffer, first")


def _check_fetch(op: SpecOp) -> None:
    check_fetch(op)
    buffer = op.operands[0].type
    assert isinstance(buffer, BufferAttr)
    _check_map(op, len(buffer.shape))


def _check_scratch(op: SpecOp) -> None:
    if op.value("space") not in SPACES:
        op.fail(f"`space` is one of {', '.join(SPACES)}, got {op.value('space')}")
    around = op.parent_op()
    if op.value("space") == "shared" and around is not None and around.name == "ttile.for":
        op.fail("a program has its shared memory once, and this stands in a loop", "move it before the loop")
    check_swizzle(op)


SPACES = ("private", "shared")
ATOMIC = ("f32", "f64", "i32", "i64", "u32", "u64")
"""Dtypes that machines have atomics of."""

SPECS = (
    OpSpec(
        name="ttile.load",
        summary="A tile of a buffer; elements outside are `pad`.",
        operands=("buffer", "at*"),
        attributes=(
            *_ACCESS,
            PAD,
            Attribute("hints", "options", None, "what its author asks of the machine: vector, stages, swizzle, space"),
            *MEMORY_LAYOUT,
            *STAGES,
        ),
        effects=MEMORY,
        verify=_check_load,
    ),
    OpSpec(
        name="ttile.store",
        summary="Write a tile into a buffer; elements outside are not written. Mode `add` adds, in program order.",
        operands=("tile", "buffer", "at*"),
        results=(),
        attributes=(*_ACCESS, MODE, *MEMORY_LAYOUT),
        effects=MEMORY,
        verify=_check_store,
    ),
    OpSpec(
        name="ttile.fetch",
        summary="One integer of a buffer as an index: where a kernel goes next is read from memory.",
        operands=("buffer", "at*"),
        results=("index",),
        attributes=(COORDS, _MAP),
        effects=MEMORY,
        verify=_check_fetch,
    ),
    OpSpec(
        name="ttile.scratch",
        summary="Memory of one program, undefined at first; its sizes may be symbolic.",
        results=("buffer",),
        attributes=(
            Attribute("space", "str", "private", "private: every access sees those before it; shared: after a barrier"),
            SWIZZLE,
        ),
        effects=MEMORY,
        verify=_check_scratch,
    ),
)
