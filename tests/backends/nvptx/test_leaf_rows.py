"""Rows that several warps share by leaves: which do, what is emitted, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_widths import free
from tessera.backends.nvptx.compile import NvptxBackend, NvptxCode
from tessera.backends.nvptx.leaf_rows import check_division
from tessera.backends.nvptx.passes.plan_rows import divide_leaves
from tessera.backends.nvptx.row_plan import BLOCKS, LEAVES, ROW_BLOCKS, STREAMED, shared_widths
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import row_symbols
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import OpError
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import KernelOp, LoopOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler

BF16 = ml_dtypes.bfloat16
WARP, LEAF = 32, 1024


def lowered(function: Callable[..., Any], *arrays: Any) -> Lowering:
    tape = ts.jit(function).trace(*arrays).tape
    return lower(tape, Options.of(backend="cuda", features=("sm_90a",)))


def kernel_of(function: Callable[..., Any], *arrays: Any) -> KernelOp:
    (found,) = lowered(function, *arrays).targets
    assert isinstance(found, KernelOp)
    return found


def ptx_of(lowering: Lowering) -> list[str]:
    code_target = NvptxBackend(GPUS["sm_90a"]).code_target
    return [ptx.decode() for ptx in compile_texts(lowering.texts, code_target)]


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def running(x: Any) -> Any:
    return ts.ops.cumsum(x, axis=-1)


def arrays(function: Any, columns: int, dtype: Any = BF16) -> list[Any]:
    line = np.zeros(columns, dtype)
    return [np.zeros((64, columns), dtype), *[line] * (function.__code__.co_argcount - 1)]


# Who shares.


@pytest.mark.parametrize("dtype", [BF16, np.float32])
@pytest.mark.parametrize(("columns", "warps", "blocks"), [(1024, 0, 1), (1025, 2, 1), (4096, 4, 1), (5000, 5, 1),
    (8192, 8, 1), (8193, 9, 1), (16384, 16, 1), (32768, 32, 1), (32769, 7, 5), (33280, 7, 5), (50257, 10, 5),
    (65536, 8, 8)])  # fmt: skip
def test_a_warp_has_a_leaf_and_a_block_a_row(columns: int, dtype: Any, warps: int, blocks: int) -> None:
    kernel = kernel_of(softmax, *arrays(softmax, columns, dtype))
    assert (kernel.warps_per_row, ROW_BLOCKS.of(kernel), LEAVES.of(kernel)) == (warps, blocks, int(columns > LEAF))
    assert STREAMED.of(kernel) is (warps > 18)
    assert blocks == 1 or "cluster" in kernel.features


@pytest.mark.parametrize(("columns", "warps", "blocks"), [(1025, 2, 1), (8192, 8, 1), (16384, 8, 2), (16385, 9, 2),
    (33280, 7, 5)])  # fmt: skip
def test_where_registers_are_few_a_block_has_about_eight_leaves(columns: int, warps: int, blocks: int) -> None:
    dtype = np.float64
    kernel = kernel_of(softmax, *arrays(softmax, columns, dtype))
    assert (kernel.warps_per_row, ROW_BLOCKS.of(kernel), LEAVES.of(kernel)) == (warps, blocks, int(columns > LEAF))
    assert blocks == 1 or "cluster" in kernel.features


@pytest.mark.parametrize(("columns", "warps", "leaves"), [(16384, 16, 1), (16385, 9, 2), (33280, 11, 3),
    (65536, 16, 4)])  # fmt: skip
def test_without_clusters_a_warp_has_as_many_leaves_as_sixteen_need(columns: int, warps: int, leaves: int) -> None:
    tape = ts.jit(softmax).trace(*arrays(softmax, columns)).tape
    (kernel,) = lower(tape, Options.of(backend="cuda", features=("sm_80",))).targets
    assert (kernel.value("warps_per_row"), LEAVES.of(kernel), ROW_BLOCKS.of(kernel)) == (warps, leaves, 1)


@pytest.mark.parametrize("leaves", range(2, 257))
def test_every_leaf_has_a_warp_and_few_warps_none(leaves: int) -> None:
    blocks, warps, each = divide_leaves(leaves)
    assert blocks <= 8
    assert 2 <= warps <= 16
    assert leaves <= blocks * warps * each <= leaves + max(2, leaves // 8)
    assert each == (1 if leaves <= 128 else 2)


def test_other_kernels_stay_whole() -> None:
    assert all(
        not kernel.value("warps_per_row") for kernel in lowered(running, np.zeros((64, 8192), np.float32)).targets
    )


@pytest.mark.parametrize("function", [softmax, layernorm])
def test_a_symbolic_width_has_a_kernel_for_wide_rows_beside_that_for_all(function: Any) -> None:
    lowering = lowered(free(function), *arrays(function, 100))
    *shared, plain = lowering.targets
    assert [kernel.value("symbol") for kernel in shared] == row_symbols(plain.value("symbol"))
    assert [kernel.value("warps_per_row") for kernel in (*shared, plain)] == [8, 8, 18, 18, 32, 32, 0]
    found: list[Any] = []
    for kernel in shared:
        assert isinstance(kernel, KernelOp)
        widths = shared_widths(kernel)
        assert widths is not None
        found.append((widths.most // LEAF, widths.multiple, kernel.vector))
    assert found == [(most, *form) for most in (8, 18, 128) for form in ((8, 8), (1, 1))]
    assert isinstance(lowering.code, NvptxCode)
    assert set(lowering.code.entry.kernels) == {kernel.value("symbol") for kernel in (*shared, plain)}


@pytest.mark.parametrize(("columns", "threads", "rows"), [(1, 128, 4), (1024, 128, 4), (1025, 64, 1), (4096, 128, 1),
    (4097, 160, 1), (32768, 1024, 1)])  # fmt: skip
def test_a_launch_has_a_warp_for_each_leaf(columns: int, threads: int, rows: int) -> None:
    lowering = lowered(free(softmax), *arrays(softmax, 100))
    assert isinstance(lowering.code, NvptxCode)
    aligned, _, wide, _, cluster, _, _ = lowering.code.codes
    sizes = dict(zip(aligned.symbols, (7, columns), strict=True))
    for code in (aligned, wide):
        assert code.rows is not None
        assert (code.rows.threads.evaluate(sizes), code.rows.rows.evaluate(sizes)) == (threads, rows)
    assert cluster.rows is not None
    assert cluster.rows.threads.evaluate(sizes) == 32 * -(-columns // (4 * LEAF))


def stays(columns: int) -> tuple[bool, int]:
    """Whether blocks of a kernel stay, and how many a multiprocessor holds at least."""
    kernel = kernel_of(softmax, *arrays(softmax, columns))
    return STREAMED.of(kernel), BLOCKS.of(kernel)


@pytest.mark.parametrize(("columns", "blocks"), [(4096, 8), (7000, 5), (8192, 4), (9000, 4), (12288, 3), (16384, 2),
    (18432, 2), (20480, 1), (32768, 1)])  # fmt: skip
def test_a_multiprocessor_has_about_32_warps_and_copies_ahead_where_one_block_has_them(
    columns: int, blocks: int
) -> None:
    assert stays(columns) == (columns > 18 * LEAF, blocks)


def test_rows_that_begin_anywhere_are_not_copied_ahead() -> None:
    kernel = kernel_of(softmax, *arrays(softmax, 20001))
    assert (STREAMED.of(kernel), ROW_BLOCKS.of(kernel)) == (False, 2)


def test_a_width_of_two_sizes_has_no_kernel_for_multiples() -> None:
    def sums(x: ts.Tensor["B", "M", "N", ts.bf16]) -> Any:
        return x.sum(axis=(1, 2))

    names = [kernel.value("symbol") for kernel in lowered(sums, np.zeros((2, 3, 4), BF16)).targets]
    assert not any("aligned" in name for name in names)


# What is emitted.


@pytest.mark.parametrize("columns", [5000, 5001, 16384])
def test_a_shared_row_is_read_once(columns: int) -> None:
    lowering = lowered(softmax, *arrays(softmax, columns))
    (ptx,) = ptx_of(lowering)
    warps = lowering.targets[0].value("warps_per_row")
    assert f".reqntid {warps * WARP}" in ptx
    assert any(name in ptx for name in ("bar.sync", "barrier.sync", "barrier.cluster.arrive.release"))
    loaded = [line for line in ptx.splitlines() if "ld.global" in line]
    # A leaf of bf16 is 32 elements to a thread: four vectors; elements one by one in the last leaf and of odd rows.
    if columns % 8 == 0:
        assert sum(".v4" in line for line in loaded) <= 8
    assert len(loaded) <= 2 * LEAF // WARP


@pytest.mark.parametrize(("columns", "dtype"), [(50257, BF16), (50257, np.float32), (40001, np.float16)])
def test_blocks_of_a_cluster_meet_before_they_write_to_each_other(columns: int, dtype: Any) -> None:
    lowering = lowered(softmax, *arrays(softmax, columns, dtype))
    (ptx,) = ptx_of(lowering)
    kernel = lowering.targets[0]
    assert f".reqnctapercluster {ROW_BLOCKS.of(kernel)}, 1, 1" in ptx
    assert isinstance(lowering.code, NvptxCode)
    assert lowering.code.codes[0].grid.value == 64 * ROW_BLOCKS.of(kernel)
    found = re.findall(r"barrier\.cluster\.arrive\.relaxed|barrier\.cluster\.wait|st\.shared::cluster|bar\.sync", ptx)
    assert found[:3] == ["barrier.cluster.arrive.relaxed", "barrier.cluster.wait", "st.shared::cluster"]
    assert "bar.sync" not in found
    # The maximum and the sum of a row, in the program of whole leaves and in that of the last.
    assert found.count("st.shared::cluster") == 4


@pytest.mark.parametrize("columns", [5000, 5001, 50257, 50304])
@pytest.mark.parametrize("function", [softmax, layernorm])
def test_a_ragged_row_takes_no_more_registers_than_a_whole_one(function: Any, columns: int) -> None:
    lowering = lowered(function, *arrays(function, columns))
    (ptx,) = ptx_of(lowering)
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    words = assemble_with_words(ptx.encode(), "sm_90a")[1]
    assert int(re.findall(r"Used (\d+) registers", words)[0]) <= 64
    assert int(re.findall(r"(\d+) bytes spill stores", words)[0]) <= 64


# What is refused.


@pytest.mark.parametrize(("name", "value", "words"), [("warps_per_row", 33, "shared by 1 to 32 warps"),
    ("warps_per_row", 64, "shared by 1 to 32 warps"), ("threads", 64, "programs of 64 threads")])  # fmt: skip
def test_a_program_of_more_warps_is_not_shared(name: str, value: int, words: str) -> None:
    kernel = kernel_of(softmax, *arrays(softmax, 8192))
    verify(kernel)
    kernel.set_value(name, value)
    with pytest.raises(OpError, match=words):
        verify(kernel)


def test_a_row_of_more_leaves_than_warps_have_is_refused() -> None:
    kernel = kernel_of(softmax, *arrays(softmax, 8192))
    check_division(kernel)
    kernel.set_value("warps_per_row", 7)
    with pytest.raises(TargetVerifyError, match="have 7168 of a row, which has 8192"):
        check_division(kernel)
    kernel.set_value("warps_per_row", 8)
    LEAVES.write(kernel, 0)
    with pytest.raises(TargetVerifyError, match="with 0 leaves"):
        check_division(kernel)


def test_loops_that_are_not_over_leaves_are_refused() -> None:
    kernel = kernel_of(softmax, *arrays(softmax, 8192))
    loop = next(op for op in kernel.walk() if isinstance(op, LoopOp))
    loop.set_value("step", 512)
    with pytest.raises(TargetVerifyError, match=r"its loops step by \[512, 1024\]"):
        check_division(kernel)


def test_registers_hold_rows_of_symbolic_width_only_where_warps_share_them() -> None:
    shared, *_ = lowered(free(softmax), *arrays(softmax, 100)).targets
    verify(shared)
    shared.set_value("warps_per_row", 0)
    with pytest.raises(OpError, match="has static sizes"):
        verify(shared)
