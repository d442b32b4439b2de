"""Single numbers that are broadcast: computed for each element they are the same, and tensor cores take them."""

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
from tessera.backends.nvptx.passes.broadcast_scalars import BroadcastScalars
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.backends.nvptx.dropped import dot
from tests.backends.nvptx.matrices import text_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import simulate

ROW, COLUMN, DEPTH = (Dim.symbol(name) for name in "ijk")


def scaled(steps: Sequence[str], indices: Sequence[int], size: int = 64, *, multiplied: bool = True) -> SpecOp:
    """A dot (or a tile as it is) times a number that is computed from some in memory."""
    square = TensorType.of([size, size], f32)
    buffers = [square, square, TensorType.of([4], f32), square]
    b = TileBuilder("scaled", buffers, symbols=[], grid=[Dim.constant(1)], writes=[3], kind="library")
    zero: SSAValue = b.index(0)
    region = TileRegion({"i": zero, "j": zero}, ("i", "j"), (size, size), {})
    left = b.load(b.arguments[0], (ROW, COLUMN), region)
    found = left
    if multiplied:
        right = b.load(b.arguments[1], (ROW, COLUMN), region)
        found = b.dot(left, right, b.full(0, (size, size), f32))
    one = b.load(b.arguments[2], (Dim.constant(indices[0]),), TileRegion({}))
    for name, at in zip(steps, indices[1:], strict=True):
        one = b.elementwise(name, one, b.load(b.arguments[2], (Dim.constant(at),), TileRegion({})))
    whole = b.broadcast(one, (size, size), ())
    b.store(b.elementwise("mul", found, whole), b.arguments[3], (ROW, COLUMN), region)
    return b.finish()


def ones_in(kernel: SpecOp) -> list[SpecOp]:
    """Ops that make single numbers."""
    types = [(op, result.type) for op in kernel.walk() for result in op.results]
    return [op for op, type in types if isinstance(op, SpecOp) and isinstance(type, TileAttr) and not type.shape]


def run(kernel: SpecOp, size: int) -> Any:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-4, 5, (size, size)).astype(np.float32) for _ in range(2)]
    arrays += [rng.integers(1, 5, 4).astype(np.float32), np.zeros((size, size), np.float32)]
    run_kernel(kernel, arrays, {})
    return arrays[-1]


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(("add", "mul", "max", "sub")), max_size=3), st.lists(st.integers(0, 3), min_size=4))
def test_what_is_broadcast_is_the_same_for_each_element(steps: list[str], indices: list[int]) -> None:
    kernel = scaled(steps, indices[: len(steps) + 1], 8)
    module = ModuleOp([kernel.clone()])
    BroadcastScalars().run(module)
    verify(module)
    (made,) = [op for op in module.ops if isinstance(op, SpecOp)]
    assert ones_in(kernel)
    assert not ones_in(made)
    np.testing.assert_array_equal(run(made, 8), run(kernel, 8))
    once = text_of(made)
    BroadcastScalars().run(module)
    assert text_of(made) == once


def test_a_number_that_is_written_over_is_read_where_it_was() -> None:
    square = TensorType.of([8, 8], f32)
    b = TileBuilder("over", [square] * 3, symbols=[], grid=[Dim.constant(1)], writes=[2], kind="library")
    region = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (8, 8), {})
    left, right = (b.load(b.arguments[at], (ROW, COLUMN), region) for at in (0, 1))
    found = b.dot(left, right, b.full(0, (8, 8), f32))
    one = b.load(b.arguments[2], (Dim.constant(0), Dim.constant(0)), TileRegion({}))
    b.store(found, b.arguments[2], (ROW, COLUMN), region)
    b.store(b.elementwise("mul", found, b.broadcast(one, (8, 8), ())), b.arguments[2], (ROW, COLUMN), region)
    kernel = b.finish()
    before = text_of(kernel)
    BroadcastScalars().run(ModuleOp([kernel]))
    assert text_of(kernel) == before


def test_kernels_without_dots_are_left_alone() -> None:
    kernel = scaled((), (0,), 8, multiplied=False)
    before = text_of(kernel)
    BroadcastScalars().run(ModuleOp([kernel]))
    assert text_of(kernel) == before


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
def test_a_dropout_runs_on_tensor_cores_and_leaves_out_the_same(machine: str) -> None:
    rng = np.random.default_rng(5)
    shapes, key = [(70, 72), (72, 136)], np.array([0x0123456789ABCDEF, 7], np.uint64)
    arrays = [rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    tape = ts.jit(dot((64, 64, 64))).trace(*arrays, key).tape
    (kernel,) = lower(tape, Options.of(backend="cuda", features=(machine,))).kernels
    found = NvptxBackend(GPUS[machine]).fit_tensor_cores(kernel)
    assert found.kernel is not None, found.reasons
    first, second = ([*arrays, key, np.zeros((70, 136), ml_dtypes.bfloat16)] for _ in range(2))
    run_kernel(kernel, first, {})
    if machine == "sm_90a":
        simulate(found.kernel, second, {})
        np.testing.assert_array_equal(second[3].astype(np.float32), first[3].astype(np.float32))
    share = (first[3].astype(np.float32) == 0).mean()
    assert 0.2 < share < 0.4
