"""Vectors that are loaded and broadcast: loaded for each element they mean the same, and threads wait for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.backends.nvptx.passes.broadcast_loads import BroadcastLoads
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.backends.nvptx.matrices import BACKEND, text_of, tile_kernels_of
from tests.oracles.native_threads import run

ROWS, COLUMNS, STEPS = 16, 32, 3
ROW, COLUMN, STEP = (Dim.symbol(name) for name in "ijk")


def recurrence(fns: Sequence[str], axis: int, written: bool = False) -> SpecOp:
    """A tile to which each step adds a vector along an axis, computed from two that are loaded."""
    size = (ROWS, COLUMNS)[axis]
    lines, tile = TensorType.of([STEPS, size], f32), TensorType.of([ROWS, COLUMNS], f32)
    b = TileBuilder("recurrence", [lines, lines, tile], symbols=[], grid=[Dim.constant(1)], writes=[2], kind="library")
    zero = b.index(0)
    state = b.full(0, (ROWS, COLUMNS), f32)
    name, coordinate = (("i", ROW), ("j", COLUMN))[axis]

    def step(at: Any, carried: Sequence[Any]) -> list[Any]:
        region = TileRegion({"k": at, name: zero}, (name,), (size,), {})
        found = b.load(b.arguments[2 if written else 0], (STEP, coordinate), region)
        for fn in fns:
            found = b.elementwise(fn, found, b.load(b.arguments[1], (STEP, coordinate), region))
        return [b.elementwise("add", carried[0], b.broadcast(found, (ROWS, COLUMNS), (axis,)))]

    (state,) = b.loop(zero, b.index(STEPS), 1, step, [state])
    b.store(state, b.arguments[2], (ROW, COLUMN), TileRegion({"i": zero, "j": zero}, ("i", "j"), (ROWS, COLUMNS), {}))
    return b.finish()


def ops_in(kernel: SpecOp, name: str) -> list[SpecOp]:
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == f"ttile.{name}"]


def widened(kernel: SpecOp) -> SpecOp:
    """A copy of a kernel after the pass."""
    module = ModuleOp([kernel.clone()])
    BroadcastLoads().run(module)
    verify(module)
    (made,) = [op for op in module.ops if isinstance(op, SpecOp)]
    return made


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(("add", "mul", "max", "sub")), max_size=2), st.integers(0, 1))
def test_what_is_loaded_for_each_element_means_the_same(fns: list[str], axis: int) -> None:
    kernel = recurrence(fns, axis)
    made = widened(kernel)
    assert not ops_in(made, "broadcast")
    assert len(ops_in(made, "load")) == 1 + len(fns)
    assert text_of(widened(made)) == text_of(made)
    rng = np.random.default_rng(3)
    results: list[Any] = []
    lines = [rng.integers(-4, 5, (STEPS, (ROWS, COLUMNS)[axis])).astype(np.float32) for _ in range(2)]
    for one in (kernel, made):
        arrays = [*lines, np.full((ROWS, COLUMNS), np.nan, np.float32)]
        run_kernel(one, arrays, {})
        results.append(arrays[-1])
    np.testing.assert_array_equal(results[1], results[0])


@pytest.mark.parametrize("fns", [["pow"], ["add"] * 5])
def test_what_takes_long_is_computed_once(fns: list[str]) -> None:
    kernel = recurrence(fns, 1)
    assert text_of(widened(kernel)) == text_of(kernel)


def test_what_the_kernel_writes_is_read_where_it_was() -> None:
    kernel = recurrence((), 1, written=True)
    assert text_of(widened(kernel)) == text_of(kernel)


SCANS = {
    "several blocks": ((2, 19, 40, 16), 1.0),
    "decays that vanish": ((1, 9, 16, 16), 300.0),
    "few states": ((1, 20, 20, 4), 1.0),
    "many states": ((1, 10, 33, 24), 1.0),
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", SCANS)
def test_the_selective_scan_has_the_bits_of_a_cpu(name: str, dtype: Any) -> None:
    """Where a power of e is no normal number, too."""
    (batch, length, channels, states), scale = SCANS[name]
    rng = np.random.default_rng(6)
    x, b, c = (
        rng.standard_normal((batch, length, size)).astype(np.float32).astype(dtype)
        for size in (channels, states, states)
    )
    delta = (rng.random((batch, length, channels)) * 0.2 * scale).astype(np.float32)
    a = (-rng.random((channels, states)) - 0.1).astype(np.float32)
    stored, wanted = run(ts.ops.selective_scan, [x, delta, a, b, c])
    np.testing.assert_array_equal(stored, wanted)


def test_rows_of_a_scan_wait_for_no_other_thread() -> None:
    rows, states = np.zeros((2, 64, 256), ml_dtypes.bfloat16), np.zeros((2, 64, 16), ml_dtypes.bfloat16)
    operands = [rows, np.zeros((2, 64, 256), np.float32), np.zeros((256, 16), np.float32), states, states]
    options = Options.of(backend="cuda", features=("sm_90a",))
    tape = ts.jit(ts.ops.selective_scan).trace(*operands).tape
    (kernel,) = tile_kernels_of(tape, options)
    code = BACKEND.code(BACKEND.lower(kernel))
    assert code.shared == 0
    assert "barrier" not in code.text
