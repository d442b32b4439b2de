"""Steps of sums of dots: those that tensor cores take mean the same, and no loop that does more has another."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera import KTile, Schedule, kernel, tile
from tessera.backends.nvptx.passes.fit_steps import FitSteps, fit_steps, unfit_loops
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.write_records import write_kernel
from tests.kernel.test_dtypes import product

FLOATS = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def kernel_of(dtype: Any, sizes: tuple[int, int, int], depth: int, total: Any = ts.f32) -> SpecOp:
    """The tile kernel of a dot that a user wrote, in steps of a K."""
    m, n, k = sizes
    given = np.zeros((m, k), dtype), np.zeros((n, k), dtype)
    made = product.with_schedule(Schedule(block=(16, 8, depth)))
    return write_kernel(made.program(*given, kind="gpu", total=total))


def loops_of(kernel: SpecOp) -> list[SpecOp]:
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]


@given(name=st.sampled_from(sorted(FLOATS)), depth=st.integers(9, 300), size=st.integers(1, 300), shallow=st.booleans())
@settings(max_examples=15)
def test_dots_in_other_steps_are_the_same_to_the_last_bit(name: str, depth: int, size: int, shallow: bool) -> None:
    """By the interpreter, whose dots are a chain over k: steps that tensor cores take, over the same numbers."""
    kernel = kernel_of(FLOATS[name], (20, 10, size), depth)
    module = ModuleOp([kernel.clone()])
    FitSteps(shallow).run(module)
    verify(module)
    (changed,) = (op for op in module.ops if isinstance(op, SpecOp))
    (loop,) = loops_of(changed)
    each = FLOATS[name](0).nbytes
    assert loop.value("step") * each % 32 == 0
    assert each == 2 or loop.value("step") % 128 == 0
    assert not shallow or loop.value("step") * each <= 128 or loop.value("step") == depth
    assert not unfit_loops(changed, shallow)
    rng = np.random.default_rng(depth)
    sides = [rng.standard_normal(shape).astype(np.float32).astype(FLOATS[name]) for shape in ((20, size), (10, size))]
    found = [np.full((20, 10), np.nan, np.float32) for _ in range(2)]
    for one, out in zip((kernel, changed), found, strict=True):
        run_kernel(one, [*sides, out], {})
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(("dtype", "total"), [(np.float32, ts.f32), (np.float64, ts.f64)])
def test_what_no_tensor_cores_multiply_keeps_its_steps(dtype: Any, total: Any) -> None:
    assert not unfit_loops(kernel_of(dtype, (64, 32, 96), 24, total))


@pytest.mark.parametrize(("op", "name", "value"), [("ttile.for", "stages", 2), ("ttile.load", "swizzle", 64)])
def test_a_loop_that_says_how_it_is_copied_keeps_its_steps(op: str, name: str, value: int) -> None:
    kernel = kernel_of(FLOATS["e4m3"], (64, 32, 320), 64)
    assert unfit_loops(kernel)
    next(one for one in kernel.walk() if isinstance(one, SpecOp) and one.name == op).set_value(name, value)
    assert not unfit_loops(kernel)
    fit_steps(kernel)
    assert [loop.value("step") for loop in loops_of(kernel)] == [64]


@kernel(Schedule(block=(64, 64, 64)))
def by_diagonal(a: KTile["K", "K"], b: KTile["N", "K"], c: KTile["M", "N"]) -> Any:
    """c, and blocks of a along its diagonal, each times its part of b transposed."""
    T = tile.context()
    acc = tile.load(c, rows=T.m, cols=T.n)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.per_block(tile.dot(tile.load(a, rows=k, cols=k), tile.load(b, rows=T.n, cols=k).T))
    return acc


def test_a_loop_that_goes_along_two_dims_keeps_its_steps() -> None:
    """A step twice as deep would have rows of the first block alone."""
    a, b = (np.zeros(shape, FLOATS["e4m3"]) for shape in ((256, 256), (64, 256)))
    written = write_kernel(by_diagonal.program(a, b, np.zeros((64, 64), np.float32), kind="gpu"))
    assert [loop.value("step") for loop in loops_of(written)] == [64]
    assert not unfit_loops(written)
