"""Every rule of every instruction of tensor cores, one at a time: what holds at a limit, and what does not beyond."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.ir import SSAValue

from tessera.backends.nvptx import typed_ops as ops
from tessera.backends.nvptx.types import (
    CURSOR,
    RING,
    TENSOR_MAP,
    ColumnVectorAttr,
    OperandAttr,
    PartialRowsAttr,
    PendingAttr,
    RowVectorAttr,
    SharedAttr,
    TensorMemoryAttr,
)
from tessera.ir.base.op import OpError
from tessera.ir.base.types import INDEX, BufferAttr
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, f8e4m3, f16, f32, f64, i8, i32
from tests.backends.nvptx.instructions import (
    Instruction,
    descriptor,
    fragment,
    of,
    others,
    ring,
    shared,
    value_of,
)

M, N, K = Dim.symbol("m"), Dim.symbol("n"), Dim.symbol("k")
ACCESS = {"coords": ("m", "n"), "axes": ("m", "n"), "map": (M, N), "bounds": (Dim.of(-1), Dim.of(-1))}
OUT = value_of(of(BufferAttr, 256, 512))
OTHER = value_of(of(BufferAttr, 256, 512))
WIDE = value_of(of(BufferAttr, 256, 512, dtype=f32))
TILE, SMALL = shared(128, 64), shared(64, 64)
LONG = shared(8184, 64)
"""One byte and more below what a barrier counts: the next tile of eight rows is beyond it."""
BROAD = shared(8, 128)
RINGS = ring(TILE, SMALL)
MAP = descriptor(OUT, (64, 64))
IMAGE = value_of(of(BufferAttr, 4, 9, 9, 64))
WINDOWS: dict[str, Any] = {"box": (64, 64), "low": (-1, -1), "high": (-1, -1), "strides": (1, 2)}
CORNERS = ((2, 16), (3, 8), (4, 5))
"""Dims but channels of an image, and bits of its corners."""


def corners(rank: int, bits: int, more: int = 0) -> dict[str, Any]:
    """The outermost corners that windows of an image may have, or some beyond them."""
    most, count = 1 << (bits - 1), rank - 1
    return {"box": (64, 64), "low": (-most,) * count, "high": (most - 1 + more,) * count, "strides": (1,) * count}


def acc(columns: int = 128, rows: int = 64, dtype: Any = f32) -> Any:
    """An accumulator that is open to dots, as operand and as result."""
    type = of(PendingAttr, rows, columns, dtype=dtype)
    return {0: type, "result": type}


def sums(columns: int = 128, rows: int = 64) -> Any:
    """An accumulator in registers, as operand and as result."""
    return {0: fragment(rows, columns), "result": fragment(rows, columns)}


def both(lhs: tuple[int, int], rhs: tuple[int, int], dtype: Any = bf16, other: Any = None) -> Any:
    """The operands of a dot."""
    return {1: of(SharedAttr, *lhs, dtype=dtype), 2: of(SharedAttr, *rhs, dtype=other or dtype)}


STAGES = (CURSOR, CURSOR)
DOT = (of(SharedAttr, 64, 32), of(SharedAttr, 128, 32), *STAGES)
MEMORY = of(TensorMemoryAttr, 128, 64, dtype=f32)
MMA = (MEMORY, of(SharedAttr, 128, 32), of(SharedAttr, 64, 32), CURSOR, CURSOR, INDEX, INDEX)
ROWS = of(RowVectorAttr, 64, dtype=f32)
SHARED_BYTES = of(SharedAttr, 64, 128, dtype=i8)
PARTIAL = of(PartialRowsAttr, 64, dtype=f32)

GOOD: dict[str, Instruction] = {
    # mma.sync
    "stage_after": Instruction(ops.StageAfterOp, (CURSOR,), (CURSOR,), {"stages": 4}),
    "copy_async": Instruction(ops.CopyAsyncOp, (TILE, CURSOR, OUT, INDEX, INDEX), (), ACCESS),
    "wait_copies": Instruction(ops.WaitCopiesOp),
    "mma_sync": Instruction(ops.MmaSyncOp, (fragment(64, 128), *DOT), (fragment(64, 128),)),
    "store_rows": Instruction(ops.StoreRowsOp, (fragment(64, 64, dtype=bf16), SMALL, OUT, INDEX, INDEX), (), ACCESS),
    # wgmma
    "mma_open": Instruction(ops.MmaOpenOp, (fragment(64, 128),), (of(PendingAttr, 64, 128, dtype=f32),)),
    "mma_issue": Instruction(ops.MmaIssueOp, (acc()[0], *DOT), (acc()[0],)),
    "mma_add": Instruction(ops.MmaAddOp, (fragment(64, 128), *DOT), (fragment(64, 128),)),
    "mma_wait": Instruction(ops.MmaWaitOp, (acc()[0], acc(8)[0]), (fragment(64, 128), fragment(64, 8)), {"left": 1}),
    "pack": Instruction(ops.PackOp, (fragment(64, 32, dtype=bf16),), (of(OperandAttr, 64, 32),)),
    "reduce_rows": Instruction(ops.ReduceRowsOp, (fragment(64, 128),), (ROWS,), {"kind": "sum"}),
    "partial_rows": Instruction(ops.PartialRowsOp, (), (PARTIAL,)),
    "grow_rows": Instruction(ops.GrowRowsOp, (PARTIAL, ROWS, fragment(64, 128)), (PARTIAL,)),
    "join_rows": Instruction(ops.JoinRowsOp, (PARTIAL,), (ROWS,)),
    "fragment_load": Instruction(ops.FragmentLoadOp, (OUT, INDEX, INDEX), (fragment(64, 128, dtype=bf16),), ACCESS),
    "fragment_read": Instruction(ops.FragmentReadOp, (SHARED_BYTES, CURSOR), (fragment(64, 128, dtype=i8),)),
    "fragment_store": Instruction(ops.FragmentStoreOp, (fragment(64, 128, dtype=bf16), OUT, INDEX, INDEX), (), ACCESS),
    # TMA
    "tensor_map": Instruction(ops.TensorMapOp, (OUT,), (TENSOR_MAP,), {"box": (64, 64)}),
    "shared_tile": Instruction(ops.SharedTileOp, (), (of(SharedAttr, 8, 64),)),
    "ring": Instruction(ops.RingOp, (TILE, SMALL), (RING,), {"stages": 1}),
    "cursor": Instruction(ops.CursorOp, (), (CURSOR,)),
    "advance": Instruction(ops.AdvanceOp, (RINGS, CURSOR), (CURSOR,)),
    "acquire": Instruction(ops.AcquireOp, (RINGS, CURSOR)),
    "await": Instruction(ops.AwaitOp, (RINGS, CURSOR)),
    "release": Instruction(ops.ReleaseOp, (RINGS, CURSOR, INDEX, INDEX)),
    "copy": Instruction(ops.CopyOp, (MAP, RINGS, CURSOR, TILE, INDEX, INDEX), (), {"pieces": 2}),
    "store_tile": Instruction(
        ops.StoreTileOp, (fragment(64, 64, dtype=bf16), MAP, SMALL, OUT, INDEX, INDEX), (), ACCESS
    ),
    "lag": Instruction(ops.LagOp, (ring(shared(64, 64, stages=4), stages=4), CURSOR), (), {"stages": 3}),
    "pingpong": Instruction(ops.PingpongOp, (), (), {"mode": "take"}),
    # tcgen05
    "tensor_alloc": Instruction(ops.TensorAllocOp, (), (MEMORY,), {"columns": 64}),
    "tensor_dealloc": Instruction(ops.TensorDeallocOp, (MEMORY,)),
    "tensor_mma": Instruction(ops.TensorMmaOp, MMA),
    "tensor_release": Instruction(ops.TensorReleaseOp, (RINGS, CURSOR)),
    "tensor_commit": Instruction(ops.TensorCommitOp, (MEMORY,)),
    "tensor_wait": Instruction(ops.TensorWaitOp, (MEMORY,)),
    "tensor_load": Instruction(ops.TensorLoadOp, (MEMORY,), (fragment(128, 64),)),
}

ALSO: list[tuple[str, dict[str | int, Any]]] = [
    *(("stage_after", {"stages": stages, "by": by}) for stages, by in ((1, 0), (8, 1), (8, 9))),
    ("wait_copies", {"left": 3}),
    *(("mma_wait", {"left": left}) for left in (0, 7)),
    ("store_rows", {0: fragment(64, 64), 1: shared(64, 32, dtype=f32), 2: WIDE}),
    ("mma_wait", {"operands": (), "results": ()}),
    # Dots: an A operand in registers, the least and the most columns and K, operands across K, integers, tf32.
    *((name, {1: of(OperandAttr, 64, 32)}) for name in ("mma_issue", "mma_sync")),
    *(("mma_issue", {**acc(columns), **both((64, 32), (columns, 32))}) for columns in (8, 256)),
    ("mma_issue", both((64, 16), (128, 16))),
    ("mma_issue", {**acc(rows=128), **both((128, 32), (128, 32))}),
    ("mma_issue", {"lhs_major": "mn", **both((16, 64), (128, 16))}),
    ("mma_issue", {"rhs_major": "mn", **both((64, 16), (16, 128))}),
    ("mma_issue", {"rhs_major": "mn", **acc(72), **both((64, 16), (16, 128))}),
    ("mma_issue", {"rhs_major": "mn", **acc(24), 1: of(SharedAttr, 64, 64), 2: shared(64, 32, swizzle=64)}),
    ("mma_issue", both((64, 32), (128, 32), f16)),
    ("mma_issue", both((64, 32), (128, 32), f8e4m3)),
    *(("mma_issue", {**acc(n, dtype=i32), **both((64, 32), (n, 32), i8)}) for n in (8, 24, 32, 48)),
    *((name, {"mode": "tf32", **both((64, 8), (128, 8), f32)}) for name in ("mma_issue", "mma_sync")),
    ("mma_issue", {"mode": "tf32"}),
    *(("mma_add", {"parts": parts}) for parts in (1, 2, 4, 16)),
    ("mma_add", {"rhs_major": "mn", **both((64, 16), (16, 128))}),
    *(("reduce_rows", {"kind": kind}) for kind in ("max", "min", "prod")),
    ("partial_rows", {"result": of(PartialRowsAttr, 1, dtype=f64)}),
    *(
        ("fragment_load", {"operands": (OUT, INDEX, INDEX), "result": of(kind, 64), "axes": ("m",), "bounds": (K,)})
        for kind in (RowVectorAttr, ColumnVectorAttr)
    ),
    ("fragment_read", {0: of(SharedAttr, 128, 64, dtype=i8), "major": "mn"}),
    # TMA: ranks and boxes, dims along which copies end, the least tile, the most stages and bytes.
    ("tensor_map", {0: of(BufferAttr, 512), "box": (64,)}),
    ("tensor_map", {0: of(BufferAttr, 2, 2, 2, 8, 512), "box": (1, 1, 1, 256, 64)}),
    ("tensor_map", {0: of(BufferAttr, 2, 2, 8, 512), "box": (1, 1, 1, 64), "cut": 2}),
    ("tensor_map", {"cut": 0}),
    *(("tensor_map", {"box": (64, line // 2), "swizzle": line}) for line in (32, 64, 128)),
    ("tensor_map", {0: of(BufferAttr, 8, 512, dtype=f32), "box": (8, 32), "rounds": "tf32"}),
    *(("tensor_map", {0: of(BufferAttr, *[9] * rank, 64), **corners(rank, bits)}) for rank, bits in CORNERS),
    *(("tensor_map", {0: IMAGE, **WINDOWS, "strides": strides}) for strides in ((1, 1), (8, 8))),
    *(("shared_tile", {"stages": stages, "offset": 1024 * stages}) for stages in (1, 8)),
    ("shared_tile", {"result": of(SharedAttr, 8, 16), "swizzle": 32}),
    *(("ring", {"operands": (LONG,), "bytes": count, "offset": 8}) for count in (0, 8184 * 128)),
    ("release", {"operands": (RINGS, CURSOR)}),
    ("copy", {0: descriptor(OUT, (128, 64)), "pieces": 1}),
    ("copy", {0: descriptor(OUT, (8, 64)), "pieces": 1}),
    ("copy", {"half": "rows", "pieces": 1}),
    ("copy", {"half": "pieces"}),
    ("copy", {"operands": (descriptor(OUT, (64, 64), cut=0), RINGS, CURSOR, TILE, INDEX, INDEX, INDEX)}),
    ("copy", {"operands": (descriptor(IMAGE, **WINDOWS), RINGS, CURSOR, TILE, *[INDEX] * 12)}),
    ("store_tile", {0: fragment(64, 64), 1: descriptor(WIDE, (64, 32)), 2: shared(64, 32, dtype=f32), 3: WIDE}),
    ("lag", {"stages": 1}),
    ("pingpong", {"mode": "pass"}),
    *(("tensor_alloc", {"columns": n, "result": of(TensorMemoryAttr, 128, n, dtype=f32)}) for n in (32, 512)),
    ("tensor_alloc", {"columns": 128, "warp": 3, "offset": 16}),
    *(("tensor_mma", {0: of(TensorMemoryAttr, 128, n, dtype=f32), **both((128, 32), (n, 32))}) for n in (16, 256)),
]
"""What else holds."""

BYTES = value_of(of(BufferAttr, 64, 128, dtype=i8))
THROUGH_BYTES = (fragment(64, 128, dtype=i8), shared(64, 128, dtype=i8), BYTES)
"""A fragment of bytes, the tile that it passes through, and where it would go."""
BYTES_BY_TMA = dict(zip((0, 2, 3), THROUGH_BYTES, strict=True))
MADE_ELSEWHERE = Instruction(ops.CursorOp, (), (of(SharedAttr, 64, 64),)).build().results[0]
BAD: list[tuple[str, dict[str | int, Any], str]] = [
    *(("stage_after", {"stages": stages}, "there are 1 to 8 stages") for stages in (0, 9)),
    ("stage_after", {"by": -1}, "got -1 on among 4"),
    ("copy_async", {2: WIDE}, "moves elements as they are"),
    ("wait_copies", {"left": -1}, "counts groups of copies, got -1"),
    ("mma_wait", {"left": -1}, "counts dots, got -1"),
    ("mma_wait", {"results": (fragment(64, 128),)}, "gives the fragments they have become"),
    ("mma_wait", {1: fragment(64, 8)}, "takes accumulators in flight"),
    ("mma_wait", {1: fragment(64, 8), "results": (fragment(64, 128),)}, "takes accumulators in flight"),
    # Stores of fragments through shared memory.
    ("store_rows", {0: fragment(64, 64)}, "stores elements of 2 or 4 bytes as they are"),
    ("store_rows", {1: shared(64, 64, dtype=f16)}, "stores elements of 2 or 4 bytes as they are"),
    ("store_rows", {2: WIDE}, "stores elements of 2 or 4 bytes as they are"),
    ("store_rows", dict(enumerate(THROUGH_BYTES)), "stores elements of 2 or 4 bytes as they are"),
    # Dots.
    *((name, {"lhs_major": "m"}, "`lhs_major` is one of k, mn, got m") for name in ("mma_issue", "mma_add")),
    *((name, {"rhs_major": "n"}, "`rhs_major` is one of k, mn, got n") for name in ("mma_issue", "mma_sync")),
    ("mma_issue", both((64, 32), (128, 32), bf16, f16), "there is no dot of bf16 by f16 into f32"),
    ("mma_issue", both((64, 32), (128, 32), f32), "there is no dot of f32 by f32 into f32"),
    ("mma_issue", acc(dtype=bf16), "there is no dot of bf16 by bf16 into bf16"),
    ("mma_sync", both((64, 32), (128, 32), f8e4m3), "there is no dot of f8e4m3 by f8e4m3 into f32"),
    ("mma_add", both((64, 32), (128, 32), f32), "there is no dot of f32 by f32 into f32"),
    ("tensor_mma", both((128, 32), (64, 32), f32), "there is no dot of f32 by f32 into f32"),
    *(
        ("mma_issue", {**acc(dtype=i32), **both((64, 64), (128, 64), i8), name: "mn"}, "i8 are contiguous in k")
        for name in ("lhs_major", "rhs_major")
    ),
    ("mma_issue", both((128, 32), (128, 32)), "is not the dot of"),
    ("mma_issue", both((64, 32), (64, 32)), "is not the dot of"),
    ("mma_issue", both((64, 32), (128, 64)), "is not the dot of"),
    ("mma_issue", {"lhs_major": "mn", **both((16, 128), (128, 16))}, "is not the dot of"),
    ("mma_issue", {"rhs_major": "mn", **both((64, 16), (16, 64))}, "is not the dot of"),
    ("mma_issue", {"rhs_major": "mn", **acc(72), **both((64, 16), (16, 72))}, "is not the dot of"),
    ("mma_issue", {**acc(rows=32), **both((32, 32), (128, 32))}, "dots have rows in 64s"),
    *(("mma_issue", {**acc(n), **both((64, 32), (n, 32))}, "columns in 8s up to 256") for n in (0, 4, 12, 264)),
    ("mma_issue", both((64, 24), (128, 24)), "32 bytes of K a step"),
    ("mma_issue", {**acc(40, dtype=i32), **both((64, 32), (40, 32), i8)}, "integers in 16s from 32 on"),
    *((name, {"mode": "bf16"}, "`mode` is tf32 or none, got `bf16`") for name in ("mma_issue", "mma_sync")),
    ("mma_issue", {"result": acc(64)["result"]}, "a dot gives its accumulator's type"),
    *(
        (name, {"operands": (GOOD[name].operands[0], *DOT, *more)}, "a dot takes")
        for name in ("mma_issue", "mma_add", "mma_sync")
        for more in ((CURSOR,), (INDEX,))
    ),
    *(
        (name, {"operands": (GOOD[name].operands[0], *DOT[:3])}, "a dot takes")
        for name in ("mma_issue", "mma_add", "mma_sync")
    ),
    *(("mma_add", {"parts": parts}, f"are not {parts} parts of whole eights") for parts in (-1, 0, 3, 32)),
    (
        "mma_add",
        {"rhs_major": "mn", "parts": 2, **both((64, 16), (16, 128))},
        "128 columns of a B operand along k are not 2 parts",
    ),
    ("mma_add", {"result": fragment(64, 64)}, "adds to a fragment and gives one"),
    ("mma_add", acc(), "adds to a fragment and gives one"),
    ("mma_open", {"result": of(PendingAttr, 64, 64, dtype=f32)}, "opens a fragment to dots"),
    ("pack", {0: fragment(64, 32), "result": of(OperandAttr, 64, 32, dtype=f32)}, "only elements of 2 bytes"),
    ("pack", {"result": of(OperandAttr, 64, 64)}, "takes a fragment as the A operand it is"),
    ("reduce_rows", {"kind": "mean"}, "`kind` is sum, max, min or prod, got mean"),
    ("reduce_rows", {"result": of(RowVectorAttr, 128, dtype=f32)}, "does not give"),
    ("partial_rows", {"result": of(PartialRowsAttr, 64, 1, dtype=f32)}, "gives a float for each row"),
    ("partial_rows", {"result": of(PartialRowsAttr, 64, dtype=i32)}, "gives a float for each row"),
    ("grow_rows", {"result": of(PartialRowsAttr, 128, dtype=f32)}, "does not give"),
    ("grow_rows", {1: of(RowVectorAttr, 128, dtype=f32)}, "scales sums of threads by a number for each row"),
    ("grow_rows", {0: of(PartialRowsAttr, 128, dtype=f32)}, "scales sums of threads by a number for each row"),
    ("grow_rows", {0: ROWS, "result": ROWS}, "scales sums of threads by a number for each row"),
    ("grow_rows", {1: PARTIAL}, "scales sums of threads by a number for each row"),
    ("join_rows", {"result": of(RowVectorAttr, 128, dtype=f32)}, "joins sums of threads"),
    *(
        (name, {"operands": GOOD[name].operands[:-1]}, "names 2 indices and has 1")
        for name in ("fragment_load", "fragment_store", "copy_async", "store_rows", "store_tile")
    ),
    *(
        (name, {"operands": (*GOOD[name].operands[:-1], CURSOR)}, "names 2 indices")
        for name in ("fragment_load", "fragment_store", "copy_async", "store_rows", "store_tile")
    ),
    *(
        (name, {"axes": ("m",), **more}, "has axes ['m'] for")
        for more in ({}, {"bounds": (K,)})
        for name in ("fragment_load", "fragment_store", "copy_async", "store_rows", "store_tile")
    ),
    *((name, {"bounds": (K,)}, "has axes ['m', 'n'] for") for name in ("fragment_load", "copy_async")),
    *((name, {"axes": ("m", "z")}, "has axes ['m', 'z'] for") for name in ("fragment_load", "copy_async")),
    *((name, {"map": (N,)}, "has a map of 1 expressions into") for name in ("fragment_load", "store_rows")),
    ("fragment_read", {"major": "n"}, "`major` is one of k, mn, got n"),
    ("fragment_read", {"major": "mn"}, "of elements of one byte"),
    ("fragment_read", {0: of(SharedAttr, 64, 128)}, "of elements of one byte"),
    ("fragment_load", {0: WIDE}, "moves bf16 and the buffer holds f32"),
    ("fragment_store", {1: WIDE}, "moves bf16 and the buffer holds f32"),
    *((name, {"map": (M, 2 * N)}, "`n` walks m, 2*n") for name in ("copy_async", "store_rows")),
    *((name, {"map": (M, N % 3)}, "`n` walks m, (n mod 3)") for name in ("copy_async", "store_rows")),
    *((name, {"map": (M, M)}, "`n` walks m, m") for name in ("copy_async", "store_rows")),
    *((name, {"map": (M + N, N)}, "`n` walks m + n, n") for name in ("copy_async", "store_rows")),
    # TMA.
    ("tensor_map", {0: of(BufferAttr), "box": ()}, "TMA sees 1 to 5 dims, got 0"),
    ("tensor_map", {0: of(BufferAttr, *[2] * 5, 64), "box": (*[1] * 5, 64)}, "TMA sees 1 to 5 dims, got 6"),
    ("tensor_map", {"box": (0, 64)}, "a box of 2 dims has 1 to 256 elements along each, got [0, 64]"),
    ("tensor_map", {"box": (257, 64)}, "a box of 2 dims has 1 to 256 elements along each"),
    ("tensor_map", {"box": (64,)}, "a box of 2 dims has 1 to 256 elements along each"),
    ("tensor_map", {"box": (64, 8), "swizzle": 16}, "`swizzle` is of lines of 128, 64, 32 bytes, got 16"),
    *(("tensor_map", {"box": (64, size)}, "a row of a swizzled box is 128 bytes") for size in (32, 128)),
    *(("tensor_map", {"cut": cut}, "copies end early along an outer dim") for cut in (-2, 1, 2)),
    (
        "tensor_map",
        {0: of(BufferAttr, 2, 2, 2, 8, 512), "box": (1, 1, 1, 1, 64), "cut": 0},
        "copies end early along an outer dim of at most 4",
    ),
    ("tensor_map", {"rounds": "tf32"}, "copies round f32 to tf32 or nothing, got bf16 to tf32"),
    ("tensor_map", {0: WIDE, "box": (8, 32), "rounds": "bf16"}, "copies round f32 to tf32 or nothing"),
    *(
        ("shared_tile", {"result": of(SharedAttr, *sizes)}, "has rows and columns of static sizes")
        for sizes in ((64,), (1, 8, 64))
    ),
    ("shared_tile", {"result": SharedAttr.of(of(SharedAttr, 8, 64).data.with_shape(("n", 64)))}, "of static sizes"),
    *(
        ("shared_tile", {"result": of(SharedAttr, *sizes)}, "rows in eights and whole spans of 128 bytes")
        for sizes in ((4, 64), (8, 32), (0, 64), (8, 0))
    ),
    ("shared_tile", {"swizzle": 16}, "`swizzle` is of lines of"),
    ("shared_tile", {"offset": 512}, "begins at a multiple of 1024 bytes, got 512"),
    *(("shared_tile", {"stages": stages}, "there are 1 to 8 stages") for stages in (0, 9)),
    ("ring", {"stages": 2}, "a ring of 2 stages has a tile of 1"),
    ("ring", {"operands": ()}, "a stage of a ring is 1 to 1048575 bytes, got 0"),
    ("ring", {"operands": (LONG, shared(8, 64))}, "a stage of a ring is 1 to 1048575 bytes, got 1048576"),
    *(("ring", {"bytes": count}, f"{count} bytes are copied to a stage of 24576") for count in (-1, 24577)),
    ("ring", {"offset": 4}, "begins at a multiple of 8 bytes, got 4"),
    ("ring", {"operands": (value_of(of(SharedAttr, 64, 64)),)}, "a ring is of shared tiles"),
    ("ring", {"operands": (MAP,)}, "a ring is of shared tiles"),
    ("release", {"operands": (RINGS, CURSOR, INDEX)}, "takes two indices or none"),
    ("release", {"operands": (RINGS, CURSOR, INDEX, INDEX, INDEX)}, "takes two indices or none"),
    *(
        ("tensor_map", {0: of(BufferAttr, *[9] * rank, 64), **corners(rank, bits, 1)}, f"have {bits} bits")
        for rank, bits in CORNERS
    ),
    ("tensor_map", {0: of(BufferAttr, 9, 64), **WINDOWS}, "windows of 3 to 5 dims have two corners and strides"),
    ("tensor_map", {0: IMAGE, **WINDOWS, "low": (0,)}, "have two corners and strides for all but two of them"),
    ("tensor_map", {"low": (0, 0)}, "have two corners and strides for all but two of them"),
    ("tensor_map", {0: IMAGE, **WINDOWS, "box": (1, 1, 64, 64)}, "a box of 2 dims has 1 to 256 elements along each"),
    *(
        ("tensor_map", {0: IMAGE, **WINDOWS, "strides": strides}, "walked in strides of 1 to 8")
        for strides in ((0, 1), (1, 9))
    ),
    ("tensor_map", {0: IMAGE, **WINDOWS, "cut": 0}, "copies through windows are TMA's, and end where the image does"),
    ("tensor_map", {0: IMAGE, **WINDOWS, "by_threads": True}, "copies through windows are TMA's"),
    *(
        ("copy", {"operands": (descriptor(IMAGE, **WINDOWS), RINGS, CURSOR, TILE, *[INDEX] * count)}, text)
        for count, text in ((4, "for each of its 2 pieces, and 2 offsets, got 4"), (11, "got 11"), (13, "got 13"))
    ),
    (
        "copy",
        {"operands": (descriptor(IMAGE, **WINDOWS), RINGS, CURSOR, TILE, *[INDEX] * 12), "half": "pieces"},
        "a copy through windows is not shared by two CTAs",
    ),
    ("copy", {0: RINGS}, "goes through a TMA descriptor"),
    ("copy", {0: TENSOR_MAP}, "goes through a TMA descriptor"),
    ("copy", {1: ring(SMALL)}, "fills a tile of its ring"),
    ("copy", {1: RING}, "fills a tile of its ring"),
    ("copy", {0: descriptor(OUT, (64, 32), swizzle=64)}, "lines of 64 bytes are copied to a tile with lines of 128"),
    ("copy", {"operands": (MAP, RINGS, CURSOR, TILE, INDEX)}, "is found by as many indices, got 1"),
    ("copy", {"operands": (MAP, RINGS, CURSOR, TILE, *[INDEX] * 3)}, "is found by as many indices, got 3"),
    ("copy", {0: descriptor(OUT, (64, 64), cut=0)}, "and the index where copies end, got 2"),
    (
        "copy",
        {"half": "rows", "operands": (descriptor(OUT, (64, 64), cut=0), RINGS, CURSOR, TILE, *[INDEX] * 3)},
        "a copy that ends early is not shared by two CTAs",
    ),
    ("copy", {"half": "columns"}, "`half` is rows or pieces, got `columns`"),
    ("copy", {"half": "pieces", "pieces": 1}, "half of 1 boxes is not a number of whole boxes"),
    *(
        ("copy", {"half": half, "pieces": count}, "do not fill")
        for half, count in (("", 3), ("rows", 2), ("pieces", 4))
    ),
    ("copy", {0: descriptor(OUT, (1, 64)), 1: ring(BROAD), 3: BROAD, "pieces": 1}, "do not fill"),
    ("store_tile", {1: TENSOR_MAP}, "goes through a TMA descriptor"),
    ("store_tile", {1: RINGS}, "goes through a TMA descriptor"),
    ("store_tile", {2: value_of(of(SharedAttr, 64, 64))}, "passes through the memory of a shared tile"),
    ("store_tile", {2: MADE_ELSEWHERE}, "passes through the memory of a shared tile"),
    ("store_tile", {**BYTES_BY_TMA, 1: descriptor(BYTES, (64, 128))}, "stores elements of 2 or 4 bytes as they are"),
    ("store_tile", {2: shared(64, 64, swizzle=64)}, "rows leave in lines of 128 bytes"),
    ("store_tile", {1: descriptor(OUT, (64, 32), swizzle=64)}, "rows leave in lines of 128 bytes"),
    ("store_tile", {1: descriptor(OTHER, (64, 64))}, "its TMA descriptor is of another"),
    (
        "store_tile",
        {1: descriptor(OUT, (64, 64), cut=0)},
        "ends where its buffer does, and its TMA descriptor along dim 0",
    ),
    (
        "store_tile",
        {
            0: fragment(64, 64),
            1: descriptor(WIDE, (64, 32), rounds="tf32"),
            2: shared(64, 32, dtype=f32),
            3: WIDE,
        },
        "its TMA descriptor rounds to tf32",
    ),
    ("store_tile", {0: fragment(64, 64)}, "stores elements of 2 or 4 bytes as they are"),
    ("store_tile", {2: shared(64, 64, dtype=f16)}, "stores elements of 2 or 4 bytes as they are"),
    ("store_tile", {3: WIDE}, "stores elements of 2 or 4 bytes as they are"),
    *(("lag", {"stages": stages}, "of 2 consumers waits for stage") for stages in (-1, 0, 4)),
    ("lag", {0: RING}, "takes a ring and its first cursor"),
    ("lag", {0: SMALL}, "takes a ring and its first cursor"),
    ("pingpong", {"mode": "give"}, "`mode` is take or pass, got `give`"),
    # Tensor memory.
    *(("tensor_alloc", {"columns": n}, "are a power of two from 32 to 512") for n in (16, 96, 1024)),
    ("tensor_alloc", {"result": of(TensorMemoryAttr, 128, dtype=f32)}, "accumulators of f32 in rows and columns"),
    ("tensor_alloc", {"result": of(TensorMemoryAttr, 128, 64, dtype=i32)}, "accumulators of f32 in rows and columns"),
    ("tensor_alloc", {"result": of(TensorMemoryAttr, 64, 64, dtype=f32)}, "64 columns have 128 rows"),
    ("tensor_alloc", {"result": of(TensorMemoryAttr, 128, 72, dtype=f32)}, "64 columns have 128 rows"),
    ("tensor_alloc", {"offset": 4}, "begins at a multiple of 8 bytes, got 4"),
    ("tensor_alloc", {"warp": -1}, "`warp` is the number of a warp, got -1"),
    ("tensor_mma", {0: of(TensorMemoryAttr, 64, 64, dtype=f32), 1: of(SharedAttr, 64, 32)}, "a dot has 128 rows"),
    ("tensor_mma", {0: of(TensorMemoryAttr, 256, 64, dtype=f32), 1: of(SharedAttr, 256, 32)}, "a dot has 128 rows"),
    ("tensor_mma", {0: of(TensorMemoryAttr, 128, 24, dtype=f32), 2: of(SharedAttr, 24, 32)}, "columns in 16s"),
    ("tensor_alloc", {"columns": 33}, "are a power of two from 32 to 512"),
    *(
        ("tensor_mma", {"operands": (*MMA[:5], *more)}, "a stage for each operand, the first step and this one")
        for more in ((INDEX,), (INDEX, INDEX, INDEX), (INDEX, CURSOR))
    ),
    ("tensor_load", {"result": fragment(128, 128)}, "gives the fragment of"),
]
"""What does not hold, and words of the reason."""


def test_what_holds_holds() -> None:
    for name, good in GOOD.items():
        good.check()
        assert good.op.name == f"ttarget.{name}"


@pytest.mark.parametrize(("name", "changes"), ALSO)
def test_limits_hold_themselves(name: str, changes: dict[str | int, Any]) -> None:
    GOOD[name].change(changes).check()


@pytest.mark.parametrize(("name", "changes", "words"), BAD)
def test_beyond_a_limit_nothing_holds(name: str, changes: dict[str | int, Any], words: str) -> None:
    with pytest.raises(OpError) as caught:
        GOOD[name].change(changes).check()
    assert words in caught.value.message


TAKEN: dict[tuple[str, str | int], tuple[type, ...]] = {
    ("mma_issue", 1): (OperandAttr,),
    ("mma_sync", 1): (OperandAttr,),
    ("fragment_store", 0): (RowVectorAttr, ColumnVectorAttr),
    ("fragment_load", "result"): (RowVectorAttr, ColumnVectorAttr),
}
"""Operands and results of other kinds that are as right."""


@pytest.mark.parametrize("name", GOOD)
def test_values_of_another_kind_are_refused(name: str) -> None:
    """Whatever else a value is, of the same shape and dtype, an instruction says that it is not what it takes."""
    good = GOOD[name]
    for at, operand in enumerate(good.operands):
        type = operand.type if isinstance(operand, SSAValue) else operand
        for other in others(type):
            if isinstance(other, TAKEN.get((name, at), ())):
                continue
            with pytest.raises(OpError):
                good.change({at: other}).check()
    for at, result in enumerate(good.results):
        for other in others(result):
            if isinstance(other, TAKEN.get((name, "result"), ())):
                continue
            changed = (*good.results[:at], other, *good.results[at + 1 :])
            with pytest.raises(OpError):
                good.change({"results": changed}).check()
