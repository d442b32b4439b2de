"""Copies by TMA: TMA descriptors, swizzled shared tiles, rings of stages, and stores of whole tiles."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tessera.backends.nvptx.mma.boxes import cut_at
from tessera.backends.nvptx.mma.check_copies import has_tile
from tessera.backends.nvptx.mma.target_kernels import (
    BARRIER,
    OFFSET,
    SWIZZLE,
    check_offset,
    check_stage,
    check_swizzle,
    effect_op,
    is_argument,
    swizzle_of,
)
from tessera.backends.nvptx.ops.wgmma import ACCESS, check_access
from tessera.backends.nvptx.tensor_cores import (
    ALIGNMENT,
    CORNER_BITS,
    MAX_BOX,
    MAX_RANK,
    MAX_STRIDE,
    MAX_TRANSACTION,
    SPAN,
)
from tessera.backends.nvptx.types import CURSOR, RING, TENSOR_MAP, FragmentAttr, SharedAttr, shaped_type, sizes_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, IndexAttr
from tessera.ir.target.limits import check_written
from tessera.ir.tile.choices import MAX_STAGES
from tessera.types.dtype import f32

if TYPE_CHECKING:
    from xdsl.ir import SSAValue

    from tessera.backends.nvptx import typed_ops as ops


def _check_map(op: ops.TensorMapOp) -> None:
    buffer, box = op.operands[0].type, op.box
    if not isinstance(buffer, BufferAttr) or not is_argument(op, op.operands[0]):
        op.fail(f"a TMA descriptor is of an argument of the kernel, got {buffer}")
    rank = len(buffer.shape)
    if not 1 <= rank <= MAX_RANK:
        op.fail(f"TMA sees 1 to {MAX_RANK} dims, got {rank}")
    count = 2 if op.strides else rank
    if len(box) != count or any(not 1 <= size <= MAX_BOX for size in box):
        op.fail(f"a box of {count} dims has 1 to {MAX_BOX} elements along each, got {list(box)}")
    if op.strides or op.low or op.high:
        _check_corners(op, rank)
    check_swizzle(op)
    if box[-1] * buffer.dtype.bytes != op.swizzle:
        op.fail(f"a row of a swizzled box is {op.swizzle} bytes, got {box[-1]} of {buffer.dtype}")
    if op.cut != -1 and not (0 <= op.cut < rank - 1 and rank < MAX_RANK):
        op.fail(f"copies end early along an outer dim of at most {MAX_RANK - 1}, got {op.cut} of {rank}")
    if op.by_threads and (op.rounds or rank < 2 or not all(dim.is_static for dim in buffer.shape)):
        op.fail(f"threads copy rows of static sizes as they are, got {buffer}{f' as {op.rounds}' if op.rounds else ''}")
    if op.rounds and (op.rounds != "tf32" or buffer.dtype is not f32):
        op.fail(f"copies round f32 to tf32 or nothing, got {buffer.dtype} to {op.rounds}")


def _check_corners(op: ops.TensorMapOp, rank: int) -> None:
    """Fails where TMA does not walk the positions of windows."""
    bits = CORNER_BITS.get(rank - 2)
    if bits is None or not len(op.low) == len(op.high) == len(op.strides) == rank - 2:
        counts = [len(op.low), len(op.high), len(op.strides)]
        op.fail(f"windows of 3 to 5 dims have two corners and strides for all but two of them, got {counts} of {rank}")
    if any(not -(1 << (bits - 1)) <= corner < 1 << (bits - 1) for corner in (*op.low, *op.high)):
        op.fail(f"corners of windows of {rank} dims have {bits} bits, got {list(op.low)} and {list(op.high)}")
    if any(not 1 <= stride <= MAX_STRIDE for stride in op.strides):
        op.fail(f"windows are walked in strides of 1 to {MAX_STRIDE}, got {list(op.strides)}")
    if op.cut != -1 or op.by_threads:
        op.fail("copies through windows are TMA's, and end where the image does")


def _check_tile(op: ops.SharedTileOp) -> None:
    type = op.results[0].type
    if not isinstance(type, SharedAttr) or len(type.shape) != 2 or not all(dim.is_static for dim in type.shape):
        op.fail(f"a shared tile has rows and columns of static sizes, got {type}")
    rows, columns = type.sizes
    check_swizzle(op)
    if rows % 8 or columns * type.dtype.bytes % op.swizzle or not rows * columns:
        op.fail(f"a shared tile has rows in eights and whole spans of {op.swizzle} bytes, got {type}")
    check_offset(op, "a swizzled tile", ALIGNMENT)
    if not 1 <= op.stages <= MAX_STAGES:
        op.fail(f"there are 1 to {MAX_STAGES} stages, got {op.stages}")


def _check_ring(op: ops.RingOp) -> None:
    if op.results[0].type != RING:
        op.fail(f"`{op.name}` gives a ring, not {op.results[0].type}")
    for value in op.operands:
        tile = value.owner
        if not isinstance(tile, SpecOp) or tile.name != "ttarget.shared_tile":
            op.fail("a ring is of shared tiles")
        if tile.value("stages") != op.stages:
            op.fail(f"a ring of {op.value('stages')} stages has a tile of {tile.value('stages')}")
    total = sum(prod(sizes_of(value)) * shaped_type(value).dtype.bytes for value in op.operands)
    if not total or total > MAX_TRANSACTION:
        op.fail(f"a stage of a ring is 1 to {MAX_TRANSACTION} bytes, got {total}")
    if not 0 <= op.bytes <= total:
        op.fail(f"{op.bytes} bytes are copied to a stage of {total}")
    check_offset(op, "a ring's first barrier", BARRIER)


def _check_release(op: ops.ReleaseOp) -> None:
    check_stage(op)
    limits = op.operands[2:]
    if len(limits) not in (0, 2) or any(not isinstance(value.type, IndexAttr) for value in limits):
        op.fail(f"`{op.name}` takes two indices or none beside its stage, got {[str(v.type) for v in limits]}")


def _descriptor(op: SpecOp, value: SSAValue) -> SpecOp:
    """The TMA descriptor that an op goes through."""
    made = value.owner
    if not isinstance(made, SpecOp) or made.name != "ttarget.tensor_map":
        op.fail(f"`{op.name}` goes through a TMA descriptor, got {value.type}")
    return made


def _check_indices(op: ops.CopyOp, made: SpecOp) -> None:
    """Fails where a copy is found by more or fewer indices than its descriptor has dims."""
    box, is_cut = made.value("box"), made.value("cut") >= 0
    count, more = len(box) + is_cut, " and the index where copies end" if is_cut else ""
    if spatial := len(made.value("strides")):
        # Each box has its own indices, and offsets within a window.
        count, more = op.pieces * (2 * spatial + 2), f" for each of its {op.pieces} pieces, and {spatial} offsets"
    if len(op.operands) - 4 != count or any(not isinstance(v.type, IndexAttr) for v in op.operands[4:]):
        dims = spatial + 2 if spatial else len(box)
        op.fail(f"a box of {dims} dims is found by as many indices{more}, got {len(op.operands) - 4}")


def _check_copy(op: ops.CopyOp) -> None:
    map, ring, tile = op.operands[0], op.operands[1], op.operands[3]
    made = _descriptor(op, map)
    check_stage(op, 1)
    if not has_tile(ring, tile):
        op.fail(f"`{op.name}` fills a tile of its ring")
    assert isinstance(tile.type, SharedAttr)
    if swizzle_of(tile) != made.value("swizzle"):
        op.fail(f"lines of {made.value('swizzle')} bytes are copied to a tile with lines of {swizzle_of(tile)}")
    box, is_cut = made.value("box"), made.value("cut") >= 0
    _check_indices(op, made)
    if made.value("strides") and op.half:
        op.fail("a copy through windows is not shared by two CTAs")
    if made.value("by_threads") and op.half:
        op.fail("threads of a CTA copy for themselves, and half of this is for another")
    if is_cut and op.half:
        op.fail("a copy that ends early is not shared by two CTAs")
    rows, columns = tile.type.sizes
    if op.half not in ("", "rows", "pieces"):
        op.fail(f"`half` is rows or pieces, got `{op.half}`")
    # Pieces are of the whole tile, boxes of what one CTA copies.
    moved = prod(box) * (2 if op.half == "rows" else 1)
    if op.half == "pieces" and op.pieces % 2:
        op.fail(f"half of {op.pieces} boxes is not a number of whole boxes")
    if moved * op.pieces > rows * columns or moved * op.pieces % columns:
        op.fail(f"{op.pieces} boxes of {moved} elements do not fill {tile.type}, or rows of it")


def _check_store(op: ops.StoreTileOp) -> None:
    fragment, _, tile, buffer = (value.type for value in op.operands[:4])
    made = _descriptor(op, op.operands[1])
    if not isinstance(fragment, FragmentAttr) or not isinstance(tile, SharedAttr) or not isinstance(buffer, BufferAttr):
        op.fail(f"`{op.name}` passes a fragment through a shared tile to a buffer, got {fragment}, {tile} and {buffer}")
    if not fragment.dtype == tile.dtype == buffer.dtype or fragment.dtype.bytes not in (2, 4):
        op.fail(f"`{op.name}` stores elements of 2 or 4 bytes as they are, got {fragment} for {buffer}")
    staging = op.operands[2].owner
    if not isinstance(staging, SpecOp) or staging.name != "ttarget.shared_tile":
        op.fail(f"`{op.name}` passes through the memory of a shared tile, not {tile}")
    if not staging.value("swizzle") == SPAN == made.value("swizzle"):
        op.fail(f"rows leave in lines of {SPAN} bytes")
    if made.operands[0] is not op.operands[3]:
        op.fail(f"`{op.name}` goes to one buffer, and its TMA descriptor is of another")
    if made.value("rounds"):
        op.fail(f"`{op.name}` stores elements as they are, and its TMA descriptor rounds to {made.value('rounds')}")
    check_written(op, op.operands[3])
    check_access(op, 4, fragment, buffer)
    cut = cut_at(op, op.bounds, buffer.shape)
    if made.value("cut") != (-1 if cut is None else cut.dim):
        where = "its buffer does" if cut is None else f"{cut.end} along dim {cut.dim}"
        op.fail(f"`{op.name}` ends where {where}, and its TMA descriptor along dim {made.value('cut')}")


_STAGE = ("ring", "cursor")

SPECS = (
    OpSpec(
        name="ttarget.tensor_map",
        summary="How TMA sees a contiguous argument: boxes of it, swizzled line by line.",
        operands=("buffer",),
        results=("map",),
        attributes=(
            Attribute("box", "ints", doc="elements of a box along each dim, outermost first"),
            SWIZZLE,
            Attribute("cut", "int", -1, "the dim along which each copy says where the tensor ends; -1: at its end"),
            Attribute("rounds", "str", "", "tf32: what f32 is rounded to, to nearest even, as it is copied"),
            Attribute("by_threads", "bool", False, "whether all threads of a producer copy, rows that begin anywhere"),
            Attribute(
                "low", "ints", (), "of windows, the first position along each spatial dim; boxes are then of two"
            ),
            Attribute("high", "ints", (), "of windows, the last position along each, from the last element on"),
            Attribute("strides", "ints", (), "of windows, from one position to the next"),
        ),
        type_rule=lambda types, values: [TENSOR_MAP],
        verify=_check_map,
    ),
    effect_op(
        "shared_tile",
        "Shared memory for a tile, once for each stage.",
        attributes=(OFFSET, Attribute("stages", "int", 1, "how many there are"), SWIZZLE),
        verify=_check_tile,
        results=("tile",),
    ),
    effect_op(
        "ring",
        "Stages that a producer fills and consumers empty, one after the other: two barriers a stage.",
        ("tiles*",),
        (
            OFFSET,
            Attribute("stages", "int", doc="how many"),
            Attribute("bytes", "int", 0, "copied to a stage, where that is less than its tiles have"),
        ),
        _check_ring,
        results=("ring",),
    ),
    OpSpec(
        name="ttarget.cursor",
        summary="The first stage of a ring.",
        results=("cursor",),
        type_rule=lambda types, values: [CURSOR],
    ),
    OpSpec(
        name="ttarget.advance",
        summary="The stage after this one; the phase changes at the end of the ring.",
        operands=_STAGE,
        results=("cursor",),
        type_rule=lambda types, values: [CURSOR],
        verify=check_stage,
    ),
    effect_op(
        "acquire",
        "Waits until consumers have released a stage, and says how many bytes will come.",
        _STAGE,
        verify=check_stage,
    ),
    effect_op(
        "copy",
        "Starts copying a tile into a stage: boxes side by side along the last dim; zeros beyond the tensor. Through "
        "windows, each box says where it begins, and its offsets.",
        ("map", "ring", "cursor", "tile", "at*"),
        (
            Attribute("pieces", "int", 1, "boxes"),
            Attribute("half", "str", "", "in a cluster, what each CTA copies half of for both: rows, pieces, or none"),
        ),
        _check_copy,
    ),
    effect_op("await", "Waits until a stage is full.", _STAGE, verify=check_stage),
    effect_op(
        "release",
        "Releases a stage to the producer; with `low` and `high`, only where steps from one to the other ran.",
        (*_STAGE, "range*"),
        verify=_check_release,
    ),
    effect_op(
        "store_tile",
        "A fragment to memory through shared memory and TMA; by the warps that put its rows together there where rows "
        "of the buffer are not multiples of 16 bytes.",
        ("fragment", "map", "staging", "buffer", "at*"),
        ACCESS,
        _check_store,
    ),
)
