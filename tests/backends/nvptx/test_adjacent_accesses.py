"""Accesses of shared memory that one instruction makes together: which ones, and the bits of a scan that has them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.access_groups import find_adjacent
from tessera.backends.nvptx.bank_lint import conflicts
from tessera.backends.nvptx.types import sizes_of
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.ir.target.typed_ops import KernelOp, LoadOp
from tests.backends.nvptx.kernels import parts_of
from tests.oracles.native_threads import run

BF16 = ml_dtypes.bfloat16


def _sum(x: Any) -> Any:
    return ts.ops.cumsum(x, axis=1)


def _max(x: Any) -> Any:
    return ts.ops.cummax(x, axis=1)


def lowered(function: Any, shape: tuple[int, ...], dtype: Any) -> Lowering:
    jitted: Any = ts.jit(function)
    tape = jitted.trace(np.broadcast_to(np.zeros((), dtype), shape)).tape
    return lower(tape, Options.of(backend="cuda", features=("sm_90a",)))


@pytest.mark.parametrize(
    ("function", "dtype", "width"), [(_sum, np.float32, 4), (_sum, BF16, 4), (_sum, np.int32, 2), (_max, np.int8, 16)]
)
def test_a_thread_moves_its_chunk_in_vectors(function: Any, dtype: Any, width: int) -> None:
    lowering = lowered(function, (600, 8192), dtype)
    (kernel,) = lowering.targets
    assert isinstance(kernel, KernelOp)
    vectors = set(find_adjacent(kernel).values())
    assert {len(vector) for vector in vectors} == {width}
    assert len(vectors) == 4 * 16 // width  # elements, results, totals of 16 chunks and of 16 times 16 of them
    parts = parts_of(lowering)
    ptx = compile_text(parts.codes[0].text, parts.backend.code_target).decode()
    assert not re.search(r"ld\.shared\.(b32|b64|b8|s8|u8)\b", ptx)
    assert max([one.degree for one in conflicts(kernel)], default=1) <= 2


def test_a_thread_with_several_elements_of_a_slice_moves_them_one_by_one() -> None:
    """Where rows are shared by threads, a tile of as many elements as there are threads is not one element to each."""
    (kernel,) = lowered(_sum, (600, 8192), np.float32).targets
    assert isinstance(kernel, KernelOp)
    alone, shape = find_adjacent(kernel), (kernel.threads,)
    own = {op for op in alone if sizes_of(op.result if isinstance(op, LoadOp) else op.block) == shape}
    assert own
    assert find_adjacent(kernel, {shape: 1}) == alone  # one thread has each row, and one element of it
    assert find_adjacent(kernel, {(8, 8): 2}) == alone
    assert set(find_adjacent(kernel, {shape: 2})) == set(alone) - own


@pytest.mark.parametrize(("number", "dtype"), list(enumerate([np.float32, BF16, np.float16, np.int32, np.int8])))
def test_scans_of_vectors_have_the_bits_of_the_cpu(number: int, dtype: Any) -> None:
    """The text that a GPU gets, run by a thread of this machine for each of its threads."""
    rng = np.random.default_rng(number)
    x = (rng.standard_normal((300, 4097 if number % 2 else 4112)) * 9).astype(dtype)
    for function in (_sum, _max):
        found, wanted = run(function, [x])
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shape", [(3, 37, 50), (2, 64, 700), (40, 5, 3)])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8])
def test_scans_of_columns_of_threads_have_the_bits_of_the_cpu(shape: tuple[int, ...], dtype: Any) -> None:
    x = (np.random.default_rng(3).standard_normal(shape) * 9).astype(dtype)
    for function in (_sum, _max):
        found, wanted = run(function, [x])
        assert found.tobytes() == wanted.tobytes()


def test_tiles_that_are_read_across_are_read_whole() -> None:
    """64 rows of 24 columns are 1536 elements: 256 threads read groups of two of them, for four would not come out."""
    rng = np.random.default_rng(4)
    a = rng.integers(-4, 5, (2, 4, 128, 64)).astype(np.float32)
    b = rng.integers(-4, 5, (2, 4, 128, 64)).astype(ml_dtypes.bfloat16)

    def product(a: Any, b: Any) -> Any:
        return a @ ts.ops.transpose(ts.ops.cast(b, ts.f32), (0, 1, 3, 2))

    found, wanted = run(product, [a, b])
    np.testing.assert_array_equal(found, wanted)
