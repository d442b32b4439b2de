"""Matmuls of f32 that threads compute: how they are planned, and what their text computes, thread by thread."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.bank_lint import conflicts
from tessera.backends.nvptx.block_model import PLAIN_BLOCKS
from tessera.backends.nvptx.layout import ThreadGrid
from tessera.backends.nvptx.matmul_blocks import (
    MOST_OWN,
    MOST_STEP,
    THREAD_BLOCKS,
    divide_block,
    fastest_block,
    lanes_across,
    matmul_time,
)
from tessera.backends.nvptx.matmul_plan import ACROSS, STAGES, plan_of
from tessera.backends.nvptx.text import KernelCode
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.ir.target.typed_ops import KernelOp
from tests.backends.nvptx.kernels import parts_of
from tests.oracles.nvptx_threads import run_kernel

FORMS = ("nn", "nt", "tn", "tt")


def product(form: str, x: Any, w: Any) -> Any:
    return (x.T if form[0] == "t" else x) @ (w.T if form[1] == "t" else w)


def convolve(x: Any, w: Any) -> Any:
    return ts.ops.conv2d(x, w, padding=1)


def attend(x: Any, w: Any) -> Any:
    return ts.ops.attention(x, w, w)


def operands(form: str, m: int, n: int, k: int) -> list[Any]:
    """Small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(m + n + k)
    shapes = ((k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n))
    return [rng.integers(-8, 8, shape).astype(np.float32) for shape in shapes]


def kernels(function: Any, arrays: list[Any], **overrides: Any) -> Any:
    jitted: Any = ts.jit(function)
    tape = jitted.trace(*arrays).tape
    return parts_of(lower(tape, Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)))


def planned(form: str, size: tuple[int, int, int], block: tuple[int, int, int]) -> tuple[KernelOp, KernelCode]:
    parts = kernels(partial(product, form), operands(form, *size), **{"contraction.block": block})
    target = parts.targets[0]
    assert isinstance(target, KernelOp)
    return target, parts.codes[0]


def run(function: Any, arrays: list[Any], expected: Any, **overrides: Any) -> Any:
    """What the text of a program of one kernel computes on memory that was full of NaN."""
    parts = kernels(function, arrays, **overrides)
    assert len(parts.codes) == 1
    assert STAGES.of(parts.targets[0])
    found = np.full(expected.shape, np.nan, np.float32)
    run_kernel(parts.codes[0], [*arrays, found])
    return found


SIZES = [
    ((20, 24, 37), (16, 16, 64)),
    ((33, 19, 70), (32, 32, 64)),
    ((1, 70, 130), (1, 64, 64)),
    ((70, 1, 130), (64, 1, 64)),
    ((50, 66, 20), (64, 64, 32)),
    ((47, 90, 33), (48, 96, 32)),
    ((41, 66, 35), (40, 80, 32)),
    ((12, 20, 100), (8, 32, 64)),
    ((5, 6, 1), (8, 32, 64)),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("size", "block"), SIZES)
def test_text_computes_the_product(form: str, size: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    arrays = operands(form, *size)
    expected = product(form, *arrays)
    found = run(partial(product, form), arrays, expected, **{"contraction.block": block})
    np.testing.assert_array_equal(found, expected)


def test_large_blocks_go_through_registers() -> None:
    arrays = operands("nt", 65, 40, 33)
    expected = product("nt", *arrays)
    found = run(partial(product, "nt"), arrays, expected, **{"contraction.block": (128, 128, 16)})
    np.testing.assert_array_equal(found, expected)
    target, _ = planned("nt", (65, 40, 33), (128, 128, 16))
    plan = plan_of(target)
    assert plan is not None
    assert all(map(plan.is_held, plan.matmul.operands))
    assert plan.staged == 16 * (128 + 128) // 256


def test_epilogues_have_the_accumulator_as_threads_hold_it() -> None:
    x, w = operands("nt", 40, 50, 33)
    b, r = (np.arange(size, dtype=np.float32).reshape(shape) for size, shape in ((50, (50,)), (2000, (50, 40))))

    def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
        return x @ w.T + b + r.T

    expected = x @ w.T + b + r.T
    np.testing.assert_array_equal(run(layer, [x, w, b, r], expected), expected)


def test_windows_read_zeros_outside() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 8, 8), (8, 1, 3, 3)))
    parts = kernels(convolve, [x, w])
    expected = np.asarray(ts.jit(convolve)(x, w))
    rows, found = (np.full(shape, np.nan, np.float32) for shape in ((2, 9, 64), expected.shape))
    run_kernel(parts.codes[0], [x, rows])
    run_kernel(parts.codes[1], [w, rows, found])
    np.testing.assert_array_equal(found, expected)


def test_a_depthwise_convolution_is_one_kernel_with_the_bits_of_a_cpu() -> None:
    def depthwise(x: Any, w: Any) -> Any:
        return ts.ops.conv2d(x, w, padding=1, stride=(1, 2), groups=3)

    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 5, 9), (6, 1, 3, 3)))
    (code,) = kernels(depthwise, [x, w]).codes
    expected = np.asarray(ts.jit(depthwise)(x, w))
    found = np.full(expected.shape, np.nan, np.float32)
    run_kernel(code, [w, x, found])
    np.testing.assert_array_equal(found, expected)


def test_the_last_segment_ends_where_k_does() -> None:
    """2300 of K are segments of 1280 and 1020: partial results, of which the second has fewer steps."""
    arrays = operands("nn", 9, 10, 2300)
    parts = kernels(partial(product, "nn"), arrays)
    assert "smin" in parts.codes[0].text
    found = np.full((2, 9, 10), np.nan, np.float32)
    run_kernel(parts.codes[0], [*arrays, found])
    np.testing.assert_array_equal(found.sum(0), arrays[0] @ arrays[1])


@pytest.mark.parametrize("block", PLAIN_BLOCKS)
def test_threads_divide_every_block(block: tuple[int, int, int]) -> None:
    for count in (0, 1, 2):
        divided = divide_block(*block, count)
        assert divided is not None
        threads, across = divided
        assert block[0] % (threads // across) == block[1] % across == threads % 32 == 0
        assert block[0] * block[1] // threads <= MOST_OWN
        assert block[0] * block[1] * block[2] // threads <= MOST_STEP
    divided = divide_block(*block)
    assert divided is not None
    threads, across = divided
    lanes = lanes_across(across, threads // across)
    assert across % lanes == threads // across % (32 // lanes) == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [(128, 128, 16), (128, 64, 16), (48, 48, 32), (32, 32, 64), (16, 32, 64)])
def test_no_bank_is_asked_twice(form: str, block: tuple[int, int, int]) -> None:
    target, _ = planned(form, (192, 192, 192), block)
    assert STAGES.of(target) >= 3
    assert [str(one) for one in conflicts(target) if one.what.startswith("read")] == []


@pytest.mark.parametrize("block", PLAIN_BLOCKS)
def test_lanes_share_what_they_read_by_twos(block: tuple[int, int, int]) -> None:
    """Shared memory hands out wide words twice as fast where lanes `n` and `n ^ 1`, or `n ^ 2`, want the same."""
    divided = divide_block(*block)
    assert divided is not None
    threads, across = divided
    grid = ThreadGrid(across, lanes_across(across, threads // across), 1, 1)
    places = [grid.place(thread) for thread in range(threads)]
    assert sorted(places) == [(row, column) for row in range(threads // across) for column in range(across)]
    if min(block[:2]) > 1:
        assert all(places[thread][0] == places[thread ^ 1][0] for thread in range(threads))
        assert all(places[thread][1] == places[thread ^ 2][1] for thread in range(threads))


@pytest.mark.parametrize("form", FORMS)
def test_a_single_step_is_a_loop_to_the_assembler(form: str) -> None:
    """Else the addresses of the result take the registers of accumulators, which are then spilled."""
    _, code = planned(form, (400, 401, 16), (128, 64, 16))
    assert "sreg.nctaid.z" in code.text
    assert 'asm ""' not in code.text


def test_text_copies_ahead_and_has_code() -> None:
    target, code = planned("tn", (256, 256, 256), (128, 128, 16))
    assert (target.threads, ACROSS.of(target), STAGES.of(target)) == (256, 16, 8)
    assert "cp.async.cg.shared.global" in code.text
    parts = kernels(partial(product, "tn"), operands("tn", 256, 256, 256))
    assert b".entry" in compile_text(code.text, parts.backend.code_target)


@pytest.mark.parametrize("name", ["f64", "computed", "asked"])
def test_other_dots_are_left_alone(name: str) -> None:
    x, w = operands("nn", 64, 64, 64)
    if name == "f64":
        parts = kernels(partial(product, "nn"), [x.astype(np.float64), w.astype(np.float64)])
    elif name == "computed":
        parts = kernels(attend, [one.reshape(1, 1, 64, 64) for one in (x, w)])
    else:
        parts = kernels(partial(product, "nn"), [x.astype(np.int32), w.astype(np.int32)])
    assert not any(STAGES.of(target) for target in parts.targets)


@pytest.mark.parametrize(("form", "size"), [("nn", (70, 65, 41)), ("nt", (70, 130, 44)), ("nt", (64, 129, 40))])
def test_masked_loads_are_predicated(form: str, size: tuple[int, int, int]) -> None:
    """A choice between what was loaded and zeros would wait for the load."""
    arrays = operands(form, *size)
    expected = product(form, *arrays)
    found = run(partial(product, form), arrays, expected, **{"contraction.block": (128, 128, 16)})
    np.testing.assert_array_equal(found, expected)
    _, code = planned(form, size, (128, 128, 16))
    assert re.search(r"@\$\d ld\.global\.nc", code.text)


def test_the_model_prefers_more_blocks_where_there_are_few() -> None:
    apart = (False, False)
    assert matmul_time((128, 128, 16), (2048, 2048, 2048), 1, 132, apart) < matmul_time(
        (64, 64, 32), (2048, 2048, 2048), 1, 132, apart
    )
    assert matmul_time((32, 32, 64), (256, 256, 1024), 1, 132, apart) < matmul_time(
        (128, 128, 16), (256, 256, 1024), 1, 132, apart
    )
    assert matmul_time((24, 99, 16), (256, 256, 1024), 1, 132, apart) == float("inf")


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.integers(1, 5000)] * 3), st.integers(1, 20), st.tuples(st.booleans(), st.booleans()))
def test_no_block_is_faster_than_the_fastest(
    size: tuple[int, int, int], batch: int, transposed: tuple[bool, bool]
) -> None:
    def time(block: tuple[int, int, int]) -> float:
        return matmul_time(block, size, batch, 132, transposed)

    assert time(fastest_block(THREAD_BLOCKS, size, batch, 132, transposed)) == min(map(time, THREAD_BLOCKS))
