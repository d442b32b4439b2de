"""Kernels of single warps: asynchronous copies in groups, synchronous dots, stores of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.backends.nvptx.mma.check_copies import check_copies
from tessera.backends.nvptx.mma.target_kernels import (
    MAJORS,
    SHARED,
    check_kernel,
    check_widest,
    effect_op,
    is_argument,
    kernel_op,
)
from tessera.backends.nvptx.ops.wgmma import ACCESS, check_access, check_dot
from tessera.backends.nvptx.tensor_cores import (
    MAX_WARPGROUPS,
    MMA_SYNC_FEATURES,
    MMA_SYNC_FORMS,
    MMA_SYNC_FORMS_TF32,
    SPAN,
    WARPS_ACROSS,
    WGMMA_ROWS,
)
from tessera.backends.nvptx.types import CURSOR, CursorAttr, FragmentAttr, SharedAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import around, parts_in
from tessera.ir.target.limits import check_written
from tessera.ir.tile.choices import MAX_STAGES
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_SETUP = ("ttarget.shared_tile",)
_KERNELS = ("ttarget.warp_kernel", "ttarget.tensor_kernel")
"""Kernels that rows leave from."""
_FOREIGN = (
    *("ttarget.tensor_map", "ttarget.ring", "ttarget.acquire", "ttarget.copy", "ttarget.await", "ttarget.release"),
    *("ttarget.mma_issue", "ttarget.mma_wait", "ttarget.pingpong", "ttarget.store_tile"),
)
"""What only machines with a TMA and dots of warpgroups have."""


def _check_kernel(op: ops.WarpKernelOp) -> None:
    if not 1 <= op.consumers <= MAX_WARPGROUPS:
        op.fail(f"a CTA has 1 to {MAX_WARPGROUPS} groups of four warps, got {op.consumers}")
    _check_warps_n(op)
    check_kernel(
        op,
        "a kernel of warps",
        MMA_SYNC_FEATURES,
        "lower for sm_80 or later, or let dots run on plain multiply-adds",
        setup=_SETUP,
        body=("ttarget.tiles", "its program"),
        foreign=_FOREIGN,
        reason="needs TMA or dots of warpgroups, which single warps do not have",
    )
    check_widest(op)
    most = max((part.value("stages") for part in parts_in(op, *_SETUP)), default=1)
    _check_stage_counts(op, most)
    check_copies(op.regions[0].block, most)


def _check_stage_counts(op: SpecOp, most: int) -> None:
    """Cursors wrap around after as many stages as tiles have."""
    for part in parts_in(op, "ttarget.stage_after"):
        if part.value("stages") != most:
            part.fail(f"`{part.name}` wraps around after {part.value('stages')} stages, and tiles have {most}")


def _check_warps_n(op: SpecOp) -> None:
    """Warps side by side have columns of their own, and rows that nobody has whole."""
    across = op.value("warps_n")
    if across not in WARPS_ACROSS:
        op.fail(f"{', '.join(map(str, WARPS_ACROSS))} warps stand side by side, got {across}")
    for part in op.walk() if across > 1 else ():
        if part.name in ("ttarget.reduce_rows", "ttarget.pack"):
            op.fail(f"`{part.name}` needs whole rows, and {across} warps share each")
        for value in part.results:
            if isinstance(value.type, FragmentAttr) and value.type.sizes[1] % (across * WGMMA_ROWS):
                op.fail(f"{across} warps side by side have multiples of {WGMMA_ROWS} columns each, not {value.type}")
        if part.name == "ttarget.fragment_store" and not isinstance(part.operands[0].type, FragmentAttr):
            op.fail(f"a vector is stored by who has it, and {across} warps side by side do")


def _check_cursor(op: ops.StageAfterOp) -> None:
    if not isinstance(op.operands[0].type, CursorAttr):
        op.fail(f"`{op.name}` goes on from a stage, got {op.operands[0].type}")
    if not 1 <= op.stages <= MAX_STAGES or op.by < 0:
        op.fail(f"there are 1 to {MAX_STAGES} stages, got {op.by} on among {op.stages}")


def _check_copy(op: ops.CopyAsyncOp) -> None:
    tile, cursor, buffer = (value.type for value in op.operands[:3])
    if not isinstance(tile, SharedAttr) or not isinstance(cursor, CursorAttr):
        op.fail(f"`{op.name}` goes to a stage of a shared tile, got {tile} at {cursor}")
    _check_global(op, 2)
    if not isinstance(buffer, BufferAttr) or buffer.dtype != tile.dtype:
        op.fail(f"`{op.name}` moves elements as they are, got {buffer} for {tile}")
    check_access(op, 3, tile, buffer)
    _check_along(op)


def _check_along(op: SpecOp) -> None:
    """Columns of a tile are neighbours in memory: pieces of 16 bytes are moved as they are."""
    column, last = op.value("axes")[-1], op.value("map")[-1].coefficient(op.value("axes")[-1])
    if last is None or last[0] != Dim.constant(1) or any(column in expr.symbols for expr in op.value("map")[:-1]):
        walked = ", ".join(map(str, op.value("map")))
        op.fail(f"columns of the tile are contiguous in memory, and `{column}` walks {walked}")


def _check_global(op: SpecOp, operand: int) -> None:
    """What is copied lies in global memory: it is an argument of the kernel."""
    if not is_argument(op, op.operands[operand]):
        op.fail(f"`{op.name}` is between global and shared memory, and its buffer is no argument of the kernel")


def _check_wait(op: ops.WaitCopiesOp) -> None:
    if op.left < 0:
        op.fail(f"`left` counts groups of copies, got {op.left}")


def _check_dot(op: ops.MmaSyncOp) -> None:
    acc = op.operands[0].type
    if not isinstance(acc, FragmentAttr):
        op.fail(f"a dot of warps adds to a fragment, got {acc}")
    check_dot(op, acc, "a stage", MMA_SYNC_FORMS, MMA_SYNC_FORMS_TF32)
    kernel = around(op, *_KERNELS)
    rows = acc.sizes[0]
    if kernel is not None and rows % (WGMMA_ROWS * max(1, kernel.value("consumers"))):
        op.fail(f"{rows} rows are not shared by {kernel.value('consumers')} groups of {WGMMA_ROWS} rows each")


def _check_store(op: ops.StoreRowsOp) -> None:
    fragment, tile, buffer = (value.type for value in op.operands[:3])
    if not isinstance(fragment, FragmentAttr) or not isinstance(tile, SharedAttr) or not isinstance(buffer, BufferAttr):
        op.fail(f"`{op.name}` passes a fragment through a shared tile to a buffer, got {fragment}, {tile} and {buffer}")
    if not fragment.dtype == tile.dtype == buffer.dtype or fragment.dtype.bytes not in (2, 4):
        op.fail(f"`{op.name}` stores elements of 2 or 4 bytes as they are, got {fragment} for {buffer}")
    _check_global(op, 2)
    check_written(op, op.operands[2])
    check_access(op, 3, fragment, buffer)
    _check_along(op)
    kernel = around(op, *_KERNELS)
    if kernel is None:
        return
    wanted = WGMMA_ROWS * kernel.value("consumers")
    if tile.sizes[0] < wanted or tile.sizes[1] * tile.dtype.bytes != SPAN:
        op.fail(f"each warp has 16 rows of {SPAN} bytes to pass through, in all {wanted} rows, got {tile}")
    if fragment.sizes[1] * fragment.dtype.bytes % SPAN:
        op.fail(f"rows leave in spans of {SPAN} bytes, got {fragment}")


SPECS = (
    kernel_op(
        "warp_kernel",
        "A kernel of warps: a CTA does one program, and all of its threads copy, multiply and store.",
        (
            Attribute("consumers", "int", doc="groups of four warps"),
            Attribute("warps_n", "int", 1, "warps of a group side by side along columns, each with a share of them"),
            SHARED,
        ),
        _check_kernel,
    ),
    OpSpec(
        name="ttarget.stage_after",
        summary="The stage so many further on, modulo the stages.",
        operands=("cursor",),
        results=("cursor",),
        attributes=(
            Attribute("by", "int", 1, "how many"),
            Attribute("stages", "int", doc="how many there are"),
        ),
        type_rule=lambda types, values: [CURSOR],
        verify=_check_cursor,
    ),
    effect_op(
        "copy_async",
        "Starts copying a tile into a stage, 16 bytes at a time by all threads; zeros stand outside bounds.",
        ("tile", "cursor", "buffer", "at*"),
        ACCESS,
        _check_copy,
    ),
    effect_op("commit_copies", "Makes a group of the copies since the last one."),
    effect_op(
        "wait_copies",
        "Waits until at most `left` groups of copies are in flight, and for all threads of the CTA.",
        attributes=(Attribute("left", "int", 0, "groups that may still be in flight"),),
        verify=_check_wait,
    ),
    effect_op(
        "mma_sync",
        "`acc + lhs @ rhs` on the tensor cores of each warp, 16 rows by 8 columns at a time.",
        ("acc", "lhs", "rhs", "cursors*"),
        (*MAJORS, Attribute("mode", "str", "", "tf32: operands of f32, all of whose numbers are ones of tf32")),
        _check_dot,
        results=("fragment",),
    ),
    effect_op(
        "store_rows",
        "A fragment to memory in rows of 16 bytes, which warps put together in shared memory; element by "
        "element where rows do not begin and end at multiples of 16 bytes.",
        ("fragment", "staging", "buffer", "at*"),
        ACCESS,
        _check_store,
    ),
)
