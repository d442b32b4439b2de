"""Rows of backward passes: all loads come first, programs that go through rows prefetch the next; nothing spills."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_widths import free
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.row_plan import BLOCKS, CARRIES_ROWS, SPACE, is_row_loop
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import KernelOp, LoopOp, ScratchOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tests.backends.nvptx.test_leaf_rows import lowered, ptx_of
from tests.schedule.emit.test_row_columns import many, pull_biased, pull_layernorm, pull_rmsnorm

BF16 = ml_dtypes.bfloat16


def pull_softmax(x: Any, y: Any) -> Any:
    return ts.vjp(ts.ops.softmax, x)[1](y)


def lazy(*shape: int, dtype: Any = BF16) -> Any:
    return np.broadcast_to(np.zeros((), dtype), shape)


def first_kernel(lowering: Lowering) -> KernelOp:
    kernel = lowering.targets[0]
    assert isinstance(kernel, KernelOp)
    return kernel


def words_in(ptx: str) -> list[str]:
    """What reads memory, waits and prefetches, in order."""
    return re.findall(r"ld\.global|bar\.sync|prefetch\.L2|st\.global", ptx)


def test_both_rows_of_a_backward_pass_are_loaded_before_the_first_barrier() -> None:
    (ptx,) = ptx_of(lowered(pull_softmax, lazy(64, 4096), lazy(64, 4096)))
    words = words_in(ptx)
    # A warp has a leaf of each: four loads of 16 bytes for each thread, twice.
    assert words[:8] == ["ld.global"] * 8
    assert "ld.global" not in words[8:]


def test_a_single_row_is_loaded_where_it_was() -> None:
    lowering = lowered(ts.ops.softmax, lazy(64, 4096))
    assert BLOCKS.of(first_kernel(lowering)) == 8
    assert "asm sideeffect" not in lowering.texts[0].split("ld.global")[0]


def test_two_tensors_have_the_registers_of_24_warps() -> None:
    kernel = first_kernel(lowered(pull_softmax, lazy(64, 4096), lazy(64, 4096)))
    assert BLOCKS.of(kernel) * kernel.warps_per_row == 24


def rows_kernel(function: Callable[..., Any], shape: tuple[int, ...]) -> tuple[KernelOp, list[str]]:
    """The kernel of rows that are also summed along columns, and what it does with memory from its loop on."""
    lowering = lowered(function, *many(function, shape))
    kernel = first_kernel(lowering)
    assert any(isinstance(op, LoopOp) and is_row_loop(op) for op in kernel.walk())
    spaces = {op.space for op in kernel.walk() if isinstance(op, ScratchOp)}
    assert spaces == {"registers", "shared"}
    return kernel, words_in(ptx_of(lowering)[0])


def test_the_next_row_is_on_its_way_to_l2_while_one_is_computed() -> None:
    kernel, words = rows_kernel(pull_rmsnorm, (8192, 4096))
    assert (kernel.warps_per_row, BLOCKS.of(kernel), CARRIES_ROWS.of(kernel)) == (4, 3, False)
    # Two tensors, by each warp its leaf; then all loads of the row, in front of its first barrier.
    at = words.index("prefetch.L2")
    assert words[at : at + 3] == ["prefetch.L2", "prefetch.L2", "ld.global"]
    assert "ld.global" not in words[words.index("bar.sync", at) :]


def test_the_next_row_is_loaded_while_one_is_computed_where_registers_are_left() -> None:
    kernel, words = rows_kernel(pull_layernorm, (8192, 4096))
    assert (kernel.warps_per_row, BLOCKS.of(kernel), CARRIES_ROWS.of(kernel)) == (4, 2, True)
    assert "prefetch.L2" not in words
    # In front of the loop the scale and the first row; in it the next row, in front of the first barrier.
    assert words.count("ld.global") == 8 + 16 + 16
    assert "ld.global" not in words[words.index("bar.sync") :]


def test_trees_of_one_pass_wait_once() -> None:
    """Five reductions of a row, two of which are of one pass: four barriers, and none more between rows."""
    _, words = rows_kernel(pull_layernorm, (8192, 4096))
    assert words.count("bar.sync") == 4


def test_rows_with_one_barrier_wait_once_more_for_the_next() -> None:
    def pull(x: Any, w: Any, g: Any) -> Any:
        return x * g - (x * g).sum(axis=1, keepdims=True), (w * g).sum(axis=0)

    lowering = lowered(pull, lazy(8192, 4096), lazy(4096), lazy(8192, 4096))
    assert any(isinstance(op, LoopOp) and is_row_loop(op) for op in first_kernel(lowering).walk())
    assert words_in(ptx_of(lowering)[0]).count("bar.sync") == 2


SHAPES: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (pull_layernorm, (32768, 4096)),
    (pull_layernorm, (5000, 3000)),
    (pull_layernorm, (4133, 4096)),
    (pull_layernorm, (100000, 768)),
    (pull_rmsnorm, (8192, 5120)),
    (pull_rmsnorm, (4, 2000, 2056)),
    (pull_biased, (8192, 2048)),
]


@pytest.mark.parametrize(("function", "shape"), SHAPES)
def test_programs_that_go_through_rows_spill_nothing(function: Callable[..., Any], shape: Sequence[int]) -> None:
    ptx, *_ = ptx_of(lowered(function, *many(function, tuple(shape))))
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    _, words = assemble_with_words(ptx.encode(), "sm_90a")
    assert "0 bytes spill stores" in words


@pytest.mark.slow
def test_backward_passes_of_symbolic_width_spill_nothing() -> None:
    """A leaf of two tensors, in a block or in a cluster, of rows that begin anywhere or at multiples of 16 bytes."""
    found = ptx_of(lowered(free(pull_softmax), lazy(64, 4096), lazy(64, 4096)))
    assert len(found) == 7
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    assert all("0 bytes spill stores" in assemble_with_words(ptx.encode(), "sm_90a")[1] for ptx in found)


def test_accumulators_of_the_first_level_are_in_registers() -> None:
    rows, *_ = lowered(pull_rmsnorm, *many(pull_rmsnorm, (8192, 4096))).kernels
    scratch = [op for op in rows.walk() if op.name == "ttile.scratch"]
    assert {SPACE.of(op) for op in scratch} == {"registers", "shared"}


def test_machines_without_bulk_copies_go_through_rows_without_prefetching() -> None:
    tape = ts.jit(pull_rmsnorm).trace(*many(pull_rmsnorm, (8192, 2048))).tape
    lowering = lower(tape, Options.of(backend="cuda", features=("sm_80",)))
    code_target = NvptxBackend(GPUS["sm_80"]).code_target
    ptx, *_ = compile_texts(lowering.texts, code_target)
    assert any(isinstance(op, LoopOp) and is_row_loop(op) for op in first_kernel(lowering).walk())
    assert "prefetch.L2" not in words_in(ptx.decode())
    if assembler() is not None:
        assemble_with_words(ptx, "sm_80")


def test_warps_without_a_leaf_load_nothing_and_wait_as_often_as_others() -> None:
    """51 leaves are 6 blocks of 9 warps, three of which have none: what these run has no load, and as many barriers."""
    (ptx,) = ptx_of(lowered(pull_softmax, lazy(64, 51 * 1024), lazy(64, 51 * 1024)))
    whole, alone = words_in(ptx)[:8], re.findall(r"barrier\.cluster\.arrive\.(?!relaxed)|ld\.global", ptx)
    assert whole == ["ld.global"] * 8
    assert alone.count("ld.global") == 8
    assert (len(alone) - 8) % 2 == 0
