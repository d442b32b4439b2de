"""Passes that plan threads and rows: they keep the meaning of a kernel, go by its IR alone, and decide what fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.backends.nvptx.pipeline import thread_target_passes, thread_tile_passes
from tessera.backends.nvptx.row_plan import (
    BLOCKS,
    LEAVES,
    PROGRAMS,
    REGISTERS,
    ROWS,
    SPACE,
    THREADS,
    UNROLL,
    WARPS_PER_ROW,
)
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.options import Options
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import verify
from tessera.ir.target.limits import MOST_ROW_WARPS
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.typed_ops import ForOp, KernelOp, ScratchOp
from tests.backends.nvptx.matrices import tile_kernels_of
from tests.oracles.nvptx_backend import lower_planned, plan_kernel

BF16 = ml_dtypes.bfloat16
HOPPER = GPUS["sm_90a"]


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def norm(x: Any) -> Any:
    return ts.ops.rmsnorm(x)


def row_sums(x: Any) -> Any:
    return x.sum(axis=-1)


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


def doubled(x: Any) -> Any:
    return ts.ops.relu(x) * 2.0


def ordered(x: Any) -> Any:
    return ts.ops.sort(x, axis=-1)


def joined(x: Any) -> Any:
    return ts.ops.concat([x, x + 1.0], axis=0)


ROW_FUNCTIONS = (softmax, norm, row_sums)
FUNCTIONS = (*ROW_FUNCTIONS, column_sums, doubled, ordered, joined)


def kernels_of(
    function: Callable[..., Any], rows: int, columns: int, dtype: Any, *, dynamic: bool = False
) -> list[KernelOp]:
    """The tile kernels of a function, before anything is decided for a GPU."""
    tape = ts.jit(function, dynamic=dynamic).trace(np.zeros((rows, columns), dtype)).tape
    found = tile_kernels_of(tape, Options.of(backend="cuda", features=("sm_90a",)))
    return [kernel for kernel in found if isinstance(kernel, KernelOp)]


def run_on_numbers(kernel: KernelOp, sizes: dict[str, int]) -> list[bytes]:
    """What the interpreter leaves in all buffers, from the same numbers each time."""
    rng = np.random.default_rng(0)
    arrays: list[Any] = []
    for argument in kernel.body.block.args:
        assert isinstance(argument.type, BufferAttr)
        shape = [dim.evaluate(sizes) for dim in argument.type.shape]
        arrays.append(rng.standard_normal(shape).astype(numpy_dtype(argument.type.dtype)))
    run_kernel(kernel, arrays, sizes)
    return [array.tobytes() for array in arrays]


CASES = st.tuples(
    st.sampled_from(FUNCTIONS), st.integers(1, 5), st.integers(1, 700), st.sampled_from([np.float32, BF16])
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(CASES, st.booleans())
def test_meaning_is_kept_by_all_passes_together(case: Any, dynamic: bool) -> None:
    function, rows, columns, dtype = case
    for kernel in kernels_of(function, rows, columns, dtype, dynamic=dynamic):
        sizes: dict[str, int] = {symbol: max(rows, columns) for symbol in kernel.symbols}
        expected = run_on_numbers(kernel, sizes)
        for planned in plan_kernel(kernel, HOPPER):
            verify(planned)
            assert run_on_numbers(planned, sizes) == expected


@settings(max_examples=20, deadline=None)
@given(CASES, st.booleans())
def test_decisions_go_by_the_ops_of_a_kernel_not_by_its_kind(case: Any, dynamic: bool) -> None:
    for kernel in kernels_of(*case, dynamic=dynamic):
        other = kernel.clone()
        other.kind = "library" if kernel.kind != "library" else "map"
        found = [plan_kernel(one, HOPPER) for one in (kernel, other)]
        plans = [[dict(op.attributes) for one in planned for op in one.walk()] for planned in found]
        assert plans[0] == plans[1]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(ROW_FUNCTIONS), st.integers(1, 90000), st.sampled_from([np.float32, BF16]))
def test_what_registers_hold_is_unrolled_and_nothing_else_is_there(function: Any, columns: int, dtype: Any) -> None:
    for kernel in kernels_of(function, 4, columns, dtype):
        (planned,) = plan_kernel(kernel, HOPPER)
        warps, leaves, is_held = WARPS_PER_ROW.of(planned), LEAVES.of(planned), ROWS.of(planned) == REGISTERS
        assert bool(warps) == bool(leaves)
        assert warps in (0, *range(2, MOST_ROW_WARPS + 1))
        assert leaves <= 4
        assert is_held or not warps
        loops = [op for op in planned.walk() if isinstance(op, ForOp)]
        assert all((UNROLL.of(loop) == 0) == is_held for loop in loops)
        spaces = {SPACE.of(op) for op in planned.walk() if isinstance(op, ScratchOp)}
        # What warps have summed is joined by a tree of all, in shared memory.
        assert spaces <= ({"registers", "shared"} if is_held else {"private", "shared"})


@settings(max_examples=20, deadline=None)
@given(CASES, st.booleans())
def test_what_is_decided_on_target_ir_changes_attributes_alone_and_fits(case: Any, aligned: bool) -> None:
    for kernel in kernels_of(*case):
        for planned in plan_kernel(kernel, HOPPER, aligned):
            target = lower_planned(planned, HOPPER)
            verify(target)
            threads = target.value("threads") * PROGRAMS.of(target) * max(1, target.value("warps_per_row"))
            assert threads <= 1024
            assert BLOCKS.of(target) * threads <= 2048
            assert THREADS.of(planned) == target.value("threads")
            # A second run decides the same.
            text = print_module(target)
            module = ModuleOp([target])
            for one in thread_target_passes(HOPPER):
                one.run(module)
            assert print_module(target) == text


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_planned_kernel_is_text_that_reads_back(function: Any) -> None:
    for kernel in kernels_of(function, 4, 640, BF16):
        module = ModuleOp([kernel.clone()])
        for one in thread_tile_passes(HOPPER):
            one.run(module)
            text = print_module(parse_module(print_module(module)))
            assert print_module(parse_module(text)) == text
            plans = [[op.attributes for op in one.walk() if op is not one] for one in (module, parse_module(text))]
            assert plans[0] == plans[1]
