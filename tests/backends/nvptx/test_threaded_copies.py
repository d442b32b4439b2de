"""Copies by the threads of a producer: stages as TMA would have filled them, however rows begin, run on this CPU."""

from __future__ import annotations

import ctypes
import re
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS, contraction_block
from tessera.backends.nvptx.block_times import Rows
from tessera.backends.nvptx.compile import NvptxCode
from tessera.backends.nvptx.hopper.shared_memory import SharedTile
from tessera.backends.nvptx.hopper.threaded_copies import ThreadedCopy, is_by_threads
from tessera.backends.nvptx.mma.check_copies import bytes_of
from tessera.backends.nvptx.mma.programs import THREADED
from tessera.backends.nvptx.row_copies import NAME
from tessera.backends.nvptx.tensor_cores import GPUS, WARPGROUP
from tessera.backends.nvptx.text import DeviceModule
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.types.dim import Dim
from tessera.types.dtype import bf16
from tests.backends.nvptx.matrices import BACKEND
from tests.oracles.nvptx_simulator import simulate

llvm: Any = import_module("llvmlite.binding")  # which has no types of its own
BF16: Any = ml_dtypes.bfloat16
STAND_INS = """
@shared = internal global [262144 x i8] zeroinitializer, align 1024
declare i32 @llvm.fshr.i32(i32, i32, i32)
define internal { i32, i32, i32, i32 } @read_words(i64 %address, i32 %flag) {
  %is_there = icmp ne i32 %flag, 0
  br i1 %is_there, label %yes, label %no
yes:
  %p = inttoptr i64 %address to ptr
  %v = load { i32, i32, i32, i32 }, ptr %p, align 16
  ret { i32, i32, i32, i32 } %v
no:
  ret { i32, i32, i32, i32 } zeroinitializer
}
define internal i32 @shift(i32 %low, i32 %high, i32 %bits) {
  %r = call i32 @llvm.fshr.i32(i32 %high, i32 %low, i32 %bits)
  ret i32 %r
}
define internal i32 @mask(i32 %bits) {
  %is_none = icmp slt i32 %bits, 1
  %is_all = icmp sgt i32 %bits, 31
  %safe = and i32 %bits, 31
  %one = shl i32 1, %safe
  %some = sub i32 %one, 1
  %a = select i1 %is_all, i32 -1, i32 %some
  %r = select i1 %is_none, i32 0, i32 %a
  ret i32 %r
}
define internal void @put(i32 %target, i32 %a, i32 %b, i32 %c, i32 %d) {
  %is_none = icmp eq i32 %target, -1
  br i1 %is_none, label %no, label %yes
yes:
  %p = getelementptr i8, ptr @shared, i32 %target
  store i32 %a, ptr %p, align 16
  %q = getelementptr i8, ptr %p, i32 4
  store i32 %b, ptr %q
  %r = getelementptr i8, ptr %p, i32 8
  store i32 %c, ptr %r
  %s = getelementptr i8, ptr %p, i32 12
  store i32 %d, ptr %s
  br label %no
no:
  ret void
}
define ptr @shared_memory() {
  ret ptr @shared
}
"""
REPLACED = (
    (r'asm sideeffect "[^"]*ld\.global\.nc\.v4[^"]*", "[^"]*"', "@read_words"),
    (r'asm "shf[^"]*", "[^"]*"', "@shift"),
    (r'asm "[^"]*bmsk[^"]*", "[^"]*"', "@mask"),
    (r'asm sideeffect "[^"]*st\.shared\.v4[^"]*", "[^"]*"', "@put"),
    (r'  call void asm sideeffect "[^"]*prefetch[^"]*".*\n', ""),
    (r" convergent nounwind", ""),
    (r"ptx_kernel ", ""),
    (r"target (triple|datalayout) = .*\n", ""),
    (r"(attributes #\d+) = .*", r"\1 = { nounwind }"),
)
"""Assembly of a copy, each with what stands in for it; prefetches are left out."""


def lowered(form: str, m: int, n: int, k: int, dtype: Any = BF16) -> Lowering:
    def program(x: Any, w: Any) -> Any:
        left = ts.ops.transpose(x) if form[0] == "t" else x
        return ts.ops.matmul(left, ts.ops.transpose(w) if form[1] == "t" else w)

    shapes = (k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n)
    arrays = [np.zeros(shape, dtype) for shape in shapes]
    return lower(ts.jit(program).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))


def kernel_of(made: Lowering) -> SpecOp:
    return next(target for target in made.targets if target.name == "ttarget.matrix_kernel")


def copies_in(kernel: SpecOp) -> list[Any]:
    copies = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.copy"]
    return [op for op in copies if is_by_threads(op)]


def stage_of(copy: Any, buffer: Any, corner: list[int]) -> Any:
    """The bytes that threads write to a stage, one thread after the other."""
    tile = SharedTile.of(copy.operands[3].owner)
    module = DeviceModule(GPUS["sm_90a"])
    names = [("ptr", "buffer"), ("i32", "thread"), *(("i64", f"at{dim}") for dim in range(len(corner)))]
    f = module.kernel("copy", names, WARPGROUP)
    pointer, thread, *at = f.arguments
    ThreadedCopy(f, copy, tile, pointer, at).write(thread, f.raw("i32", "add i32 0, 0"))
    f.ret()
    text = module.text()
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text)
    assert "asm" not in text, "an instruction without a stand-in"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(text + STAND_INS)
    engine = llvm.create_mcjit_compiler(parsed, llvm.Target.from_default_triple().create_target_machine(opt=1))
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, *[ctypes.c_int64] * len(corner))(
        engine.get_function_address("copy")
    )
    shared: Any = ctypes.CFUNCTYPE(ctypes.c_void_p)(engine.get_function_address("shared_memory"))()
    ctypes.memset(shared, 0xAB, tile.bytes)
    for number in range(WARPGROUP):
        run(buffer.ctypes.data, number, *corner)
    return np.frombuffer(ctypes.string_at(shared, tile.bytes), np.uint8), tile


def wanted_stage(copy: Any, buffer: Any, corner: list[int], tile: SharedTile) -> Any:
    """What TMA writes: boxes side by side, lines of which are swizzled, and zeros beyond the tensor."""
    box = copy.operands[0].owner.value("box")
    (dim,) = [at for at, size in enumerate(box[:-1]) if size > 1]
    plane = buffer[tuple(0 if at != dim else slice(None) for at in range(buffer.ndim - 1))]
    rows, columns = box[dim], tile.columns
    found = np.zeros((rows, columns), buffer.dtype)
    part = plane[corner[dim] : corner[dim] + rows, corner[-1] : corner[-1] + columns]
    found[: part.shape[0], : part.shape[1]] = part
    stage = np.full(tile.bytes, 0xAB, np.uint8)
    for span in range(tile.spans):
        lines = found[:, span * tile.span_columns : (span + 1) * tile.span_columns]
        data = np.ascontiguousarray(lines).view(np.uint8).reshape(rows, tile.swizzle)
        for row, piece in np.ndindex(rows, tile.swizzle // 16):
            place = row * tile.swizzle + 16 * piece
            place ^= place >> 3 & tile.swizzle - 16
            stage[span * tile.span_bytes + place :][:16] = data[row, 16 * piece : 16 * piece + 16]
    return stage


CASES = [
    *(("nn", 3, 2051, 2050), ("nn", 16, 4100, 1029), ("nn", 64, 4098, 1027), ("nn", 2, 8197, 1024)),
    *(("nt", 3, 2051, 2050), ("nt", 64, 4100, 1027), ("nt", 1, 40001, 333)),
    *(("nn", 100, 4100, 1029), ("nt", 128, 4100, 1027), ("tn", 4604, 128, 1500)),
]


@pytest.mark.parametrize(("form", "m", "n", "k"), CASES)
def test_a_stage_is_what_tma_would_have_written(form: str, m: int, n: int, k: int) -> None:
    (copy,) = copies_in(kernel_of(lowered(form, m, n, k)))
    rng = np.random.default_rng(n)
    size = {"nn": (k, n), "nt": (n, k), "tn": (k, m)}[form]
    memory = rng.integers(0, 1 << 16, size[0] * size[1] + 256).astype(np.uint16)
    start = -memory.ctypes.data % 256 // 2
    buffer = memory[start:][: size[0] * size[1]].reshape(size)
    box = copy.operands[0].owner.value("box")
    ends = [max(0, (extent - 1) // step * step) for extent, step in zip(size, box, strict=True)]
    for corner in ([0, 0], [box[0], box[1]], ends, [ends[0], 0], [0, ends[1]]):
        stage, tile = stage_of(copy, buffer, list(corner))
        np.testing.assert_array_equal(stage, wanted_stage(copy, buffer, list(corner), tile))


def names_of(made: Lowering) -> list[str]:
    assert isinstance(made.code, NvptxCode)
    return [code.name for code in made.code.codes]


def test_what_is_read_once_is_not_copied_before() -> None:
    """An operand of few rows or columns; where there are more, and of rows at multiples of 16 bytes, TMA copies."""
    made = lowered("nn", 16, 4100, 1024)
    assert len(copies_in(kernel_of(made))) == 1
    assert NAME not in names_of(made)
    assert copies_in(kernel_of(lowered("nn", 16, 4096, 1024))) == []
    for few in (lowered("nn", 128, 4100, 1024), lowered("tn", 4604, 128, 1024)):
        assert len(copies_in(kernel_of(few))) == 1
        assert NAME not in names_of(few)
    assert kernel_of(lowered("nn", 128, 4100, 1024)).value("registers") == THREADED
    many = lowered("nn", 300, 4100, 1024)
    assert copies_in(kernel_of(many)) == []
    assert NAME in names_of(many)
    # One of few bytes is copied in no time, and TMA has it from L2.
    assert copies_in(kernel_of(lowered("nn", 16, 500, 500))) == []


def test_blocks_are_those_that_need_no_copy_before() -> None:
    """Of 128 rows that read a matrix once, not of 64 that read it twice: as many programs, and no copy of it."""
    size, blocks = (128, 16386, 4096), ((64, 256), (128, 128))
    names = {"is_rhs_n_major": True, "m": Dim.constant(size[0]), "n": Dim.constant(size[1]), "k": Dim.constant(size[2])}
    rows = Rows.of(*size, names, 2)
    taken = Rows.of(128, 16384, 4096, {**names, "n": Dim.constant(16384)}, 2)
    assert (rows.lhs_bytes, rows.rhs_bytes) == (0, 2 * 16386 * 4096)
    assert (taken.lhs_bytes, taken.rhs_bytes) == (0, 0)
    assert [rows.copied_cycles(block, *size[:2]) > 0 for block in blocks] == [True, False]
    assert [rows.threaded_lines(block, *size[:2]) for block in blocks] == [0, 128]
    found = contraction_block(WGMMA_BLOCKS, {"machine": GPUS["sm_90a"], "dtype": bf16, **names})
    assert found[0] == 128


@pytest.mark.parametrize(("form", "m", "n", "k"), CASES)
def test_nothing_spills_and_loads_are_under_way_together(form: str, m: int, n: int, k: int) -> None:
    code: Any = lowered(form, m, n, k).code
    (text,) = [one.text for one in code.codes if one.maps]
    order = re.findall(r"(ld\.global\.nc\.v4|st\.shared\.v4)", text)
    first = order.index("st.shared.v4")
    assert order[:first] == ["ld.global.nc.v4"] * (2 * min(8, order.count("st.shared.v4")))
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    words = assemble_with_words(compile_text(text, BACKEND.code_target), "sm_90a")[1]
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words


@pytest.mark.parametrize(("form", "m", "n", "k"), [("nn", 3, 2051, 2050), ("nt", 3, 2051, 2050)])
def test_the_protocol_is_that_of_other_copies(form: str, m: int, n: int, k: int) -> None:
    kernel = kernel_of(lowered(form, m, n, k))
    rng = np.random.default_rng(m)
    x = rng.integers(-2, 3, (m, k)).astype(BF16)
    w = rng.integers(-2, 3, (k, n) if form == "nn" else (n, k)).astype(BF16)
    out = np.full((m, n), np.nan, BF16)
    simulate(kernel, [x, w, out], {})
    wanted = x.astype(np.float32) @ (w if form == "nn" else w.T).astype(np.float32)
    np.testing.assert_array_equal(out.astype(np.float32), wanted.astype(BF16).astype(np.float32))


@pytest.mark.parametrize(("form", "m", "n", "k"), CASES)
def test_barriers_count_what_threads_and_tma_copy(form: str, m: int, n: int, k: int) -> None:
    """A stage is full when one thread has said how many bytes TMA brings, those are there, and all threads arrived."""
    made = lowered(form, m, n, k)
    kernel, code = kernel_of(made), made.code
    assert isinstance(code, NvptxCode)
    (text,) = [one.text for one in code.codes if one.maps]
    consumers = kernel.value("consumers")
    inits = re.findall(r"mbarrier\.init[^(]*\(i32 [^,]*, i32 (\d+)\)", text)
    assert inits == [str(1 + WARPGROUP), str(consumers)] * (len(inits) // 2)
    copies = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.copy"]
    by_tma = [op for op in copies if not is_by_threads(op)]
    assert (len(by_tma), len(copies)) == (1, 2)
    (expected,) = set(re.findall(r"arrive\.expect_tx[^(]*\(i32 [^,]*, i32 (\d+)\)", text))
    assert int(expected) == bytes_of(by_tma[0])
    # What threads wrote is made visible to dots before they arrive, each once.
    arrive, fence = r"mbarrier\.arrive\.shared::cta\.b64 _, \[\$0\];\"", r"fence\.proxy\.async\.shared::cta;\""
    order = re.findall(rf"(st\.shared\.v4|{fence}|{arrive})", text)
    first = next(at for at, word in enumerate(order) if "fence" in word and order[at - 1] == "st.shared.v4")
    assert order[first + 1].startswith("mbarrier.arrive")
    assert sum(word.startswith("mbarrier.arrive") for word in order) == 1


def test_what_threads_cannot_copy_is_refused() -> None:
    kernel = kernel_of(lowered("nn", 16, 4100, 1024)).clone()
    (copy,) = copies_in(kernel)
    map_ = copy.operands[0].owner
    for op, name, value, message in (
        (copy, "half", "rows", "half of this is for another"),
        (map_, "rounds", "tf32", "threads copy rows of static sizes as they are"),
    ):
        op.spec.verify(op)
        op.set_value(name, value)
        with pytest.raises(OpError, match=message):
            op.spec.verify(op)


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("mbk,bnk->bmn", (1024, 4, 1029), (4, 64, 1029)),
        ("bmk,nbk->bmn", (4, 64, 1029), (1024, 4, 1029)),
        ("mbk,bnk->mbn", (1024, 4, 1029), (4, 64, 1029)),
    ],
)
def test_rows_that_a_batch_lies_between_are_copied_by_no_thread(
    equation: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """They are a whole batch apart, and threads go from row to row by the bytes of one."""

    def program(x: Any, w: Any) -> Any:
        return ts.ops.einsum(equation, x, w)

    tape = ts.jit(program).trace(*(np.zeros(shape, BF16) for shape in (left, right))).tape
    made = lower(tape, Options.of(backend="cuda", features=("sm_90a",)))
    maps = [op for target in made.targets for op in target.walk() if op.name == "ttarget.tensor_map"]
    apart = [op for op in maps if isinstance(op, SpecOp) and op.value("by_threads") and op.value("box")[-2] == 1]
    assert not apart
