"""Vectors of rows and of columns: one that is both is computed for each, and fragments get the right one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import tessera as ts
from tessera.backends.nvptx.passes.separate_vectors import SeparateVectors
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, f32
from tessera.types.shape import TensorType
from tests.backends.nvptx.matrices import BACKEND, arrays_of, text_of, tile_kernels_of
from tests.oracles.nvptx_simulator import simulate

ROW, COLUMN = (Dim.symbol(name) for name in "ij")
SIZE = 128


def weighed(steps: Sequence[str], axes: Sequence[int], *, reduced: bool = False, dots: bool = True) -> SpecOp:
    """A dot plus vectors along rows (0) or columns (1), each computed from the one before it."""
    square, line = TensorType.of([SIZE, SIZE], f32), TensorType.of([SIZE], f32)
    inputs = [TensorType.of([SIZE, SIZE], bf16)] * 2 if dots else [square] * 2
    b = TileBuilder("weighed", [*inputs, line, square], symbols=[], grid=[Dim.constant(1)], writes=[3], kind="library")
    zero: SSAValue = b.index(0)
    region = TileRegion({"i": zero, "j": zero}, ("i", "j"), (SIZE, SIZE), {})
    left, right = (b.load(b.arguments[at], (ROW, COLUMN), region) for at in (0, 1))
    found = b.dot(left, right, b.full(0, (SIZE, SIZE), f32)) if dots else left
    one = (
        b.reduce(found, "max", 1)
        if reduced
        else b.load(b.arguments[2], (ROW,), TileRegion({"i": zero}, ("i",), (SIZE,), {}))
    )
    for name, axis in zip(("", *steps), axes, strict=True):
        one = b.elementwise(name, one, b.full(2.0, (SIZE,), f32)) if name else one
        found = b.elementwise("add", found, b.broadcast(one, (SIZE, SIZE), (axis,)))
    b.store(found, b.arguments[3], (ROW, COLUMN), region)
    return b.finish()


def arrays(dots: bool = True) -> list[Any]:
    rng, dtype = np.random.default_rng(3), ml_dtypes.bfloat16 if dots else np.float32
    found: list[Any] = [rng.integers(-4, 5, (SIZE, SIZE)).astype(dtype) for _ in range(2)]
    return [*found, rng.integers(1, 5, SIZE).astype(np.float32), np.full((SIZE, SIZE), np.nan, np.float32)]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from(("add", "mul", "max", "sub")), max_size=3), st.lists(st.integers(0, 1), min_size=4))
def test_rows_and_columns_have_vectors_of_their_own(steps: list[str], axes: list[int]) -> None:
    kernel = weighed(steps, axes[: len(steps) + 1])
    module = ModuleOp([kernel.clone()])
    SeparateVectors().run(module)
    verify(module)
    (made,) = [op for op in module.ops if isinstance(op, SpecOp)]
    expected, found, run = arrays(), arrays(), arrays()
    run_kernel(kernel, expected, {})
    run_kernel(made, found, {})
    np.testing.assert_array_equal(found[3], expected[3])
    once = text_of(made)
    SeparateVectors().run(module)
    assert text_of(made) == once
    matrix = BACKEND.matrix(kernel)
    assert matrix is not None
    simulate(matrix, run, {})
    np.testing.assert_array_equal(run[3], expected[3])


def test_a_row_of_a_reduction_is_no_column() -> None:
    """Only threads that have a row of a fragment have its maximum."""
    found = BACKEND.fit_tensor_cores(weighed((), (1,), reduced=True))
    assert found.kernel is None
    assert any("a number for each row is one for each column too" in reason for reason in found.reasons)


def test_kernels_without_dots_are_left_alone() -> None:
    kernel = weighed(("add",), (0, 1), dots=False)
    before = text_of(kernel)
    SeparateVectors().run(ModuleOp([kernel]))
    assert text_of(kernel) == before


@pytest.mark.parametrize("head", [64, 128])
def test_decays_of_linear_attention_are_those_of_rows_and_columns(head: int) -> None:
    operands = [np.zeros((1, 1, 200, head), ml_dtypes.bfloat16)] * 3
    tape = ts.jit(ts.ops.linear_attention).trace(*operands, np.zeros((1, 1, 200), np.float32)).tape
    kernels = tile_kernels_of(tape, Options.of(backend="cuda", features=("sm_90a",)))
    expected, found = ([*arrays_of(kernels[-1])] for _ in range(2))
    for memory in (expected, found):
        memory[3] = -np.cumsum(np.abs(memory[3]) * np.float32(0.1), axis=-1)
        memory[5][...] = np.nan
    run_kernel(kernels[-1], expected, {})
    matrix = BACKEND.matrix(kernels[-1])
    assert matrix is not None
    simulate(matrix, found, {})
    wide, exact = (one[5].astype(np.float32) for one in (found, expected))
    np.testing.assert_allclose(wide, exact, rtol=0, atol=2.0**-6 * float(np.abs(exact).max()))
