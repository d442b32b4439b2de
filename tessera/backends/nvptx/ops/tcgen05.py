"""Kernels with tensor memory: its allocation, dots of one CTA that accumulate in it, and loads to registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.backends.nvptx.mma.check_copies import TensorCheck, check_producer
from tessera.backends.nvptx.mma.target_kernels import (
    BARRIER,
    MAJORS,
    OFFSET,
    SHARED,
    check_kernel,
    check_offset,
    check_stage,
    check_widest,
    effect_op,
    kernel_op,
    roles_of,
)
from tessera.backends.nvptx.ops.wgmma import check_operands
from tessera.backends.nvptx.tensor_cores import (
    MIN_TMEM_COLUMNS,
    TCGEN05_COLUMNS,
    TCGEN05_FEATURES,
    TCGEN05_FORMS,
    TCGEN05_ROWS,
    TMEM_COLUMNS,
)
from tessera.backends.nvptx.types import CursorAttr, FragmentAttr, SharedAttr, TensorMemoryAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import IndexAttr
from tessera.ir.base.verify import parts_in
from tessera.types.dtype import f32

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_FOREIGN = ("ttarget.mma_issue", "ttarget.mma_wait", "ttarget.release", "ttarget.pingpong", "ttarget.mma_sync")
"""What does not go together with dots in tensor memory."""


def _check_kernel(op: ops.TensorKernelOp) -> None:
    if op.consumers not in (1, 2):
        op.fail(f"1 or 2 warpgroups read tensor memory, got {op.consumers}")
    check_kernel(
        op,
        "a kernel with tensor memory",
        TCGEN05_FEATURES,
        "lower for sm_100a, or for mma.sync, which every machine from sm_80 on has",
        foreign=_FOREIGN,
        reason="is of other tensor cores than those with tensor memory",
    )
    check_widest(op)
    producer, consumer = roles_of(op)
    check_producer(producer)
    check = TensorCheck()
    check.run(consumer)
    check.end()
    _check_columns(op)


def _check_columns(op: SpecOp) -> None:
    """A multiprocessor has so many columns, and one CTA does not wait for its own."""
    total = sum(part.value("columns") for part in parts_in(op, "ttarget.tensor_alloc"))
    if total > TMEM_COLUMNS:
        op.fail(f"a CTA asks for {total} columns of tensor memory, and there are {TMEM_COLUMNS}")


def _check_alloc(op: ops.TensorAllocOp) -> None:
    columns, type = op.columns, op.results[0].type
    if columns & (columns - 1) or not MIN_TMEM_COLUMNS <= columns <= TMEM_COLUMNS:
        op.fail(
            f"columns of tensor memory are a power of two from {MIN_TMEM_COLUMNS} to {TMEM_COLUMNS}, got {columns}",
            "round up to the next power of two",
        )
    if not isinstance(type, TensorMemoryAttr) or len(type.shape) != 2 or type.dtype is not f32:
        op.fail(f"tensor memory holds accumulators of f32 in rows and columns, got {type}")
    rows, width = type.sizes
    if rows != TCGEN05_ROWS or width > columns:
        op.fail(f"{columns} columns have {TCGEN05_ROWS} rows of {columns} accumulators, got {type}")
    check_offset(op, "a barrier", BARRIER)
    if op.warp < 0:
        op.fail(f"`warp` is the number of a warp, got {op.warp}")


def _check_memory(op: SpecOp) -> None:
    if not isinstance(op.operands[0].type, TensorMemoryAttr):
        op.fail(f"`{op.name}` takes tensor memory, got {op.operands[0].type}")


def _check_dot(op: ops.TensorMmaOp) -> None:
    _check_memory(op)
    memory, lhs, rhs = (value.type for value in op.operands[:3])
    assert isinstance(memory, TensorMemoryAttr)
    if not isinstance(lhs, SharedAttr) or not isinstance(rhs, SharedAttr):
        op.fail(f"both operands of a dot are in shared memory, got {lhs} and {rhs}")
    kinds = [value.type for value in op.operands[3:]]
    wanted = (CursorAttr, CursorAttr, IndexAttr, IndexAttr)
    if len(kinds) != 4 or any(not isinstance(type, kind) for type, kind in zip(kinds, wanted, strict=True)):
        op.fail("a dot takes a stage for each operand, the first step and this one")
    check_operands(op, memory, lhs, rhs, TCGEN05_FORMS)
    M, N = memory.sizes
    if M != TCGEN05_ROWS or N % 16:
        op.fail(f"a dot has {TCGEN05_ROWS} rows and columns in 16s up to {TCGEN05_COLUMNS}, got {M} x {N}")


def _check_load(op: ops.TensorLoadOp) -> None:
    _check_memory(op)
    memory, fragment = op.operands[0].type, op.results[0].type
    assert isinstance(memory, TensorMemoryAttr)
    if not isinstance(fragment, FragmentAttr) or fragment.data != memory.data:
        op.fail(f"`{op.name}` gives the fragment of {memory}, not {fragment}")


SPECS = (
    kernel_op(
        "tensor_kernel",
        "A kernel with tensor memory: a CTA does one program, a producer copies, one thread of the consumers "
        "starts dots, all of them read the accumulators.",
        (Attribute("consumers", "int", doc="warpgroups that read accumulators; one more copies"), SHARED),
        _check_kernel,
    ),
    effect_op(
        "tensor_alloc",
        "Columns of tensor memory for accumulators, allocated by one warp; their address is in shared memory.",
        attributes=(
            Attribute("columns", "int", doc="a power of two, 32 to 512"),
            OFFSET,
            Attribute("warp", "int", 0, "the consumers' warp that allocates"),
        ),
        verify=_check_alloc,
        results=("memory",),
    ),
    effect_op(
        "tensor_dealloc",
        "Frees tensor memory, by the warp that allocated it, when all have read it.",
        ("memory",),
        (Attribute("warp", "int", 0, "the consumers' warp that frees"),),
        _check_memory,
    ),
    effect_op(
        "tensor_mma",
        "Starts a dot into tensor memory: in the first step it overwrites what is there, later it adds to it.",
        ("memory", "lhs", "rhs", "at*"),
        MAJORS,
        _check_dot,
    ),
    effect_op(
        "tensor_release",
        "Releases a stage to the producer as soon as the dots that read it are done.",
        ("ring", "cursor"),
        verify=check_stage,
    ),
    effect_op(
        "tensor_commit",
        "Has all dots so far arrive at the barrier of their memory when they are done.",
        ("memory",),
        verify=_check_memory,
    ),
    effect_op(
        "tensor_wait",
        "Waits at the barrier of tensor memory: all dots that were committed are done.",
        ("memory",),
        verify=_check_memory,
    ),
    effect_op(
        "tensor_load",
        "Accumulators in tensor memory as a fragment: each warp reads the 32 lanes it can, 16 rows at a time.",
        ("memory",),
        verify=_check_load,
        results=("fragment",),
    ),
)
