"""The kernel language, part by part: compiled code, tile programs and Python give the same, which is NumPy's answer."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Schedule
from tessera.compiler.kernel_trial import results_for
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.write_records import write_kernel
from tests.kernel import kernels
from tests.kernel.compare import agree, arrays

RNG = np.random.default_rng(0)
PRIMES = [(1, 1, 1), (2, 3, 5), (7, 11, 13), (61, 67, 71), (64, 64, 128), (65, 129, 127), (1, 257, 3), (130, 1, 2)]


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 37, 255, 256, 257, 1009])
def test_vectors_of_any_length_are_added(size: int) -> None:
    x, y = normal(size), normal(size)
    (found,) = agree(kernels.vector_add, x, y)
    np.testing.assert_array_equal(found, x + y)


@pytest.mark.parametrize("sizes", PRIMES, ids=str)
def test_matmuls_of_ragged_sizes_equal_the_interpreter_bit_for_bit(sizes: tuple[int, int, int]) -> None:
    M, K, N = sizes
    a, b = normal(M, K), normal(K, N)
    (found,) = agree(kernels.matmul, a, b)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, atol=1e-6 * K)


def test_one_compilation_serves_all_sizes_of_a_matmul() -> None:
    fresh = ts.Kernel(kernels.matmul.definition.function)
    for sizes in PRIMES[:4]:
        fresh(normal(*sizes[:2]), normal(*sizes[1:]))
    assert fresh._jit.cache_info().size == 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("block", [(16, 16, 16), (96, 192, 48), (29, 31, 7)], ids=str)
def test_blocks_change_no_bit_of_a_matmul(block: tuple[int, int, int]) -> None:
    a, b = normal(70, 90), normal(90, 33)
    other = kernels.matmul.with_schedule(Schedule(block=block))
    np.testing.assert_array_equal(arrays(other(a, b))[0], arrays(kernels.matmul(a, b))[0])


def test_a_kernel_that_stores_gives_what_it_stored_and_blocks_by_name() -> None:
    x, w = (normal(*shape).astype(ml_dtypes.bfloat16) for shape in ((70, 90), (90, 33)))
    bias = normal(33)
    (found,) = agree(kernels.linear, x, w, bias)
    exact = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(found, exact, rtol=2.0**-8, atol=2.0**-8)


@pytest.mark.parametrize("width", [1, 6, 31, 96, 192, 229])
def test_rows_of_any_width_are_reduced(width: int) -> None:
    x = normal(21, width)
    largest, total = agree(kernels.rows, x)
    np.testing.assert_array_equal(largest, x.max(1))
    np.testing.assert_allclose(total, x.astype(np.float64).sum(1), atol=1e-6 * width)


@pytest.mark.slow
def test_rows_of_7168_are_reduced() -> None:
    x = normal(5, 7168)
    largest, _ = agree(kernels.rows, x)
    np.testing.assert_array_equal(largest, x.max(1))


@pytest.mark.parametrize("logits", [0.0, 1e30, -1e30, np.inf, -np.inf], ids=str)
def test_softmax_of_rows_is_stable(logits: float) -> None:
    x = normal(5, 24)
    x[1, 3] = logits
    x[2] = logits
    x[3, 2:] = -np.inf
    (found,) = agree(kernels.softmax, x, ulps=4)
    np.testing.assert_allclose(found, np.asarray(ts.ops.softmax(x)), atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_additions_go_both_directions_with_and_without_their_own(exclusive: bool, reverse: bool) -> None:
    x = normal(3, 9)
    (found,) = agree(kernels.running, x, exclusive=exclusive, reverse=reverse)
    ordered = x[:, ::-1] if reverse else x
    sums = np.cumsum(ordered, 1)
    sums = np.concatenate([np.zeros((3, 1)), sums[:, :-1]], 1) if exclusive else sums
    np.testing.assert_allclose(found, sums[:, ::-1] if reverse else sums, atol=1e-6)


def test_a_scan_takes_a_function_of_the_users() -> None:
    x = normal(4, 7)
    (found,) = agree(kernels.decayed, x)
    expected = x.copy()
    for place in range(1, 7):
        expected[:, place] = expected[:, place - 1] * np.float32(0.5) + x[:, place]
    np.testing.assert_array_equal(found, expected)


def test_programs_add_to_one_result() -> None:
    x = RNG.integers(-9, 9, (70, 24)).astype(np.int32)
    (found,) = agree(kernels.column_sums, x)
    np.testing.assert_array_equal(found, x.sum(0))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_tiles_are_transposed_as_they_are_loaded_and_through_memory(scale: float) -> None:
    x = normal(19, 23)
    transposed = kernels.transposed.with_schedule(Schedule(block=(8, 16)))
    np.testing.assert_array_equal(agree(transposed, x, scale=scale)[0], x.T * scale)


@pytest.mark.parametrize("slots", [2, 3])
def test_pipelines_change_no_bit(slots: int) -> None:
    a, b = normal(17, 70), normal(70, 9)
    np.testing.assert_array_equal(agree(kernels.piped, a, b, slots=slots)[0], arrays(kernels.matmul(a, b))[0])


def test_stores_leave_all_else_as_it_was() -> None:
    """Results of a ragged size lie in the middle of memory that must not be written."""
    program = kernels.vector_add.program(normal(37), normal(37))
    around = np.full(37 + 512, 7.0, np.float32)
    assert [array.shape for array in results_for(program)] == [(37,)]
    run_kernel(write_kernel(program), [normal(37), normal(37), around[256 : 256 + 37]], {})
    assert (around[:256] == 7).all()
    assert (around[293:] == 7).all()


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_triangle_alone_equals_the_masked_matmul(side: str) -> None:
    a, b = normal(50, 20), normal(20, 50)
    half = kernels.matmul.with_schedule(Schedule(block=(16, 16, 16)).triangular_only(side))
    (found,) = agree(half, a, b)
    whole = arrays(kernels.matmul(a, b))[0]
    np.testing.assert_array_equal(found, np.tril(whole) if side == "lower" else np.triu(whole))
