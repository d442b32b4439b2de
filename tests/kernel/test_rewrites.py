"""Rewrites of kernels keep their meaning: dots are unrolled, unused ops left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import Schedule
from tessera.backends.cpu.match_contraction import can_expand, expand_dots
from tessera.compiler.kernel_trial import results_for
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.records import TileOp, without_unused
from tessera.ir.tile.write_records import write_kernel
from tests.kernel import kernels, test_python

SIZES = st.integers(1, 20)
BLOCKS = st.sampled_from([4, 5, 8, 12])


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def run(kernel: Any, program: Any, operands: list[Any]) -> list[Any]:
    results = results_for(program)
    run_kernel(kernel, [*operands, *results], {})
    return results


@settings(max_examples=15)
@given(SIZES, SIZES, SIZES, BLOCKS, BLOCKS, BLOCKS)
def test_an_unrolled_dot_has_the_bits_of_the_dot(M: int, K: int, N: int, m: int, n: int, k: int) -> None:
    operands = [normal(M, M, K), normal(N, K, N)]
    program = kernels.matmul.with_schedule(Schedule(block=(m, n, k))).program(*operands)
    kernel = write_kernel(program)
    other = expand_dots(kernel)
    other.verify()
    assert not any(op.name in ("ttile.dot", "ttile.transpose") for op in other.walk())
    assert any(op.name == "ttile.dot" for op in kernel.walk())
    for first, second in zip(run(kernel, program, operands), run(other, program, operands), strict=True):
        np.testing.assert_array_equal(first, second)


@settings(max_examples=8)
@given(SIZES, SIZES, st.booleans())
def test_unrolled_transposes_keep_attention(S: int, L: int, causal: bool) -> None:
    operands = [normal(S, 1, S, 8), normal(L, 1, L, 8), normal(L + 1, 1, L, 8)]
    split = kernels.flash.with_schedule(Schedule(block=(8, 8)))
    program = split.program(*operands, causal=causal and S <= L)
    kernel = write_kernel(program)
    for first, second in zip(run(kernel, program, operands), run(expand_dots(kernel), program, operands), strict=True):
        np.testing.assert_array_equal(first, second)


def test_tiles_that_are_too_large_for_registers_are_not_written_out() -> None:
    operands = [normal(0, 20, 16), normal(1, 16, 40)]
    large = test_python.computed_side.with_schedule(Schedule(block=(256, 256)))
    assert can_expand(write_kernel(test_python.computed_side.program(*operands)))
    assert not can_expand(write_kernel(large.program(*operands)))


def test_what_nothing_reads_is_left_out_and_stores_and_loops_stay() -> None:
    program = kernels.matmul.program(normal(0, 5, 6), normal(1, 6, 7))
    body = program.body
    before = [op.name for op in body.ops]
    program.types.append(program.types[-1])
    body.ops.insert(len(body.ops) - 1, TileOp("constant", (), {"value": 1.0}, (len(program.types) - 1,)))
    assert [op.name for op in body.ops] != before
    without_unused(body)
    assert [op.name for op in body.ops] == before
