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

from xdsl.ir import OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, IndexAttr, TileAttr
from tessera.ir.target.swizzle import check_swizzle
from tessera.ir.tile.choices import PLACE, STAGES, check_place, check_stages

_ACCESS = (
    Attribute("coords", "strs", doc="the name of each index operand"),
    Attribute("axes", "strs", doc="the coordinates along the tile, outermost first"),
    Attribute("map", "dims", doc="one expression per dim of the buffer"),
    Attribute("bounds", "dims", doc="one extent per axis; -1 for none"),
    Attribute("windows", "dims", (), doc="expression, extent, expression, extent, ..."),
    Attribute("checked", "any", None, doc="what a debug build reports of out-of-bounds indices read from memory"),
)


def access_parts(op: SpecOp, first: int) -> tuple[list[object], list[object]]:
    """The index operands and the index tiles that follow operand `first`."""
    rest = list(op.operands)[first:]
    indices = [value for value in rest if isinstance(value.type, IndexAttr)]
    return list(indices), list(rest[len(indices) :])


def _check_access(op: SpecOp, buffer: object, tile: object, first: int) -> None:
    if not isinstance(buffer, BufferAttr):
        op.fail(f"`{op.name}` takes a buffer, got {buffer}")
    if not isinstance(tile, TileAttr):
        op.fail(f"`{op.name}` moves a tile, got {tile}")
    _check_indices(op, tile, first)
    axes, bounds = op.value("axes"), op.value("bounds")
    if len(bounds) != len(axes):
        op.fail(f"`{op.name}` has {len(bounds)} bounds for {len(axes)} axes")
    if len(op.value("map")) != len(buffer.shape):
        op.fail(
            f"`{op.name}` has a map of {len(op.value('map'))} expressions into a buffer of rank {len(buffer.shape)}"
        )
    if buffer.dtype != tile.dtype:
        op.fail(f"`{op.name}` moves {tile.dtype} and the buffer holds {buffer.dtype}", "cast the tile first")
    if any(not dim.is_static for dim in tile.shape):
        op.fail(f"a tile has static sizes, got {list(tile.shape)}")
    if len(op.value("windows")) % 2:
        op.fail("`windows` are pairs of an expression and an extent")
    check_place(op, buffer, tile)


def _check_indices(op: SpecOp, tile: TileAttr, first: int) -> None:
    coords, axes = op.value("coords"), op.value("axes")
    indices, gathers = access_parts(op, first)
    if len(indices) != len(coords):
        op.fail(f"`{op.name}` names {len(coords)} coordinates and has {len(indices)} index operands")
    for value in gathers:
        kind = getattr(value, "type", None)
        if not isinstance(kind, TileAttr) or not kind.dtype.is_integer or kind.shape != tile.shape:
            op.fail(f"an index tile of `{op.name}` is {kind}, not integers of shape {list(tile.shape)}")
    if len(axes) != len(tile.shape) or not set(axes) <= set(coords):
        op.fail(
            f"`{op.name}` has axes {list(axes)} for a tile of rank {len(tile.shape)}; each must be in {list(coords)}"
        )


def _check_load(op: SpecOp) -> None:
    _check_access(op, op.operands[0].type, op.results[0].type, 1)
    check_stages(op)


def _check_store(op: SpecOp) -> None:
    _check_access(op, op.operands[1].type, op.operands[0].type, 2)
    if op.value("mode") not in MODES:
        op.fail(f"`mode` is one of {', '.join(MODES)}, got {op.value('mode')}")
    tile = op.operands[0].type
    if op.value("mode").startswith("atomic") and isinstance(tile, TileAttr) and tile.dtype.name not in ATOMIC:
        op.fail(f"atomics take {', '.join(ATOMIC)}, got {tile.dtype}", "cast the tile, and the buffer, first")


def _check_fetch(op: SpecOp) -> None:
    buffer = op.operands[0].type
    if not isinstance(buffer, BufferAttr) or not buffer.dtype.is_integer:
        op.fail(f"`ttile.fetch` reads a buffer of integers, got {buffer}")
    if len(op.operands) - 1 != len(op.value("coords")):
        op.fail(f"`ttile.fetch` names {len(op.value('coords'))} coordinates and has {len(op.operands) - 1} indices")
    if len(op.value("map")) != len(buffer.shape):
        op.fail(f"`ttile.fetch` has a map of {len(op.value('map'))} expressions into rank {len(buffer.shape)}")


def is_shared(buffer: SSAValue) -> bool:
    """Whether workers of one program share this memory."""
    op = buffer.op if isinstance(buffer, OpResult) else None
    return isinstance(op, SpecOp) and op.name == "ttile.scratch" and op.value("space") == "shared"


def _check_scratch(op: SpecOp) -> None:
    if op.value("space") not in SPACES:
        op.fail(f"`space` is one of {', '.join(SPACES)}, got {op.value('space')}")
    around = op.parent_op()
    if op.value("space") == "shared" and around is not None and around.name == "ttile.for":
        op.fail("a program has its shared memory once, and this stands in a loop", "move it before the loop")
    check_swizzle(op)


SPACES = ("private", "shared")
MODES = ("set", "add", "atomic_add", "atomic_max", "atomic_min")
ATOMIC = ("f32", "f64", "i32", "i64", "u32", "u64")
"""Dtypes that machines have atomics of."""

SPECS = (
    OpSpec(
        name="ttile.load",
        summary="A tile of a buffer; elements outside are `pad`.",
        operands=("buffer", "at*"),
        attributes=(
            *_ACCESS,
            Attribute("pad", "any", 0, "what an element outside reads as"),
            Attribute("hints", "any", None, "what its author asks of the machine: vector, stages, swizzle, space"),
            *PLACE,
            *STAGES,
        ),
        effects=frozenset(["memory"]),
        verify=_check_load,
    ),
    OpSpec(
        name="ttile.store",
        summary="Write a tile into a buffer; elements outside are not written. Mode `add` adds, in program order.",
        operands=("tile", "buffer", "at*"),
        results=(),
        attributes=(
            *_ACCESS,
            Attribute("mode", "str", "set", "set; add, in order; atomic_add, atomic_max, atomic_min, in none"),
            *PLACE,
        ),
        effects=frozenset(["memory"]),
        verify=_check_store,
    ),
    OpSpec(
        name="ttile.fetch",
        summary="One integer of a buffer as an index: where a kernel goes next is read from memory.",
        operands=("buffer", "at*"),
        results=("index",),
        attributes=(
            Attribute("coords", "strs", doc="the name of each index operand"),
            Attribute("map", "dims", doc="one expression per dim of the buffer"),
        ),
        effects=frozenset(["memory"]),
        verify=_check_fetch,
    ),
    OpSpec(
        name="ttile.scratch",
        summary="Memory of one program, undefined at first; its sizes may be symbolic.",
        results=("buffer",),
        attributes=(
            Attribute("space", "str", "private", "private: every access sees those before it; shared: after a barrier"),
            Attribute("swizzle", "int", 0, "bytes of pieces of a row that are permuted by row, where banks matter"),
        ),
        effects=frozenset(["memory"]),
        verify=_check_scratch,
    ),
    OpSpec(
        name="ttile.barrier",
        summary="All workers of the program wait for each other: what one stored before, all see after.",
        results=(),
        effects=frozenset(["memory"]),
    ),
)
