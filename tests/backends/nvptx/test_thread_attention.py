"""Attention that no tensor cores take: threads multiply and add, in their own tiles, and give the CPU's bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.emit_access import split_terms
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.types import shaped_type
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import DotOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.types.dim import Dim
from tests.backends.nvptx.kernels import parts_of
from tests.oracles.schedule_interpreter import run_program

SMALL = 200_000
"""Bytes of PTX: with tensor cores' tiles these kernels have five times as many."""
FEW = 64
"""Bytes of indices that threads with 255 registers may keep elsewhere, between loops."""
SHARED = 400
"""The same of threads with 128 registers, so that a multiprocessor has two programs: sums and indices."""
bf16: Any = ml_dtypes.bfloat16


def full(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def masked(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, q.sum(axis=-1)[:, :, :, None])


def with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


def tensors(dtype: Any, queries: int, keys: int, head: int) -> list[Any]:
    rng = np.random.default_rng(queries + keys)
    shapes = [(1, 2, queries, head), *[(1, 2, keys, head)] * 2]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def lowered(function: Callable[..., Any], arrays: list[Any], dynamic: bool, architecture: str | None) -> Lowering:
    options = Options() if architecture is None else Options.of(backend="cuda", features=(architecture,))
    return lower(ts.jit(function, dynamic=dynamic).trace(*arrays).tape, options)


@pytest.mark.parametrize(
    ("function", "dtype", "dynamic", "sizes"),
    [
        (full, np.float32, True, (40, 300, 72)),
        (causal, np.float32, True, (300, 300, 32)),
        (with_lse, np.float32, False, (33, 257, 80)),
        (masked, np.float32, True, (5, 256, 64)),
        (causal, np.float64, False, (20, 300, 128)),
        (full, bf16, True, (70, 90, 100)),
        (causal, bf16, False, (70, 512, 202)),
        (full, np.float32, False, (1, 700, 80)),
        (full, np.float32, False, (70, 531, 64)),
        (causal, np.float32, False, (40, 100, 64)),
        (causal, np.float32, False, (200, 395, 96)),
        (with_lse, np.float32, False, (300, 300, 72)),
        (with_lse, np.float32, False, (90, 20, 32)),
        (masked, np.float32, False, (2, 39, 64)),
    ],
)
def test_threads_give_the_bits_of_the_cpu(
    function: Any, dtype: Any, dynamic: bool, sizes: tuple[int, int, int]
) -> None:
    arrays = tensors(dtype, *sizes)
    here, there = (lowered(function, arrays, dynamic, name) for name in (None, "sm_90a"))
    assert {target.name for target in parts_of(there).targets} == {"ttarget.kernel"}
    for found, expected in zip(run_program(there.module, *arrays), run_program(here.module, *arrays), strict=True):
        assert found.tobytes() == expected.tobytes()


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize(
    ("function", "dtype", "dynamic", "head", "architecture"),
    [
        (causal, np.float32, True, 128, "sm_90a"),
        (with_lse, bf16, True, 128, "sm_90a"),
        (causal, np.float64, True, 64, "sm_80"),
        (full, np.float32, False, 80, "sm_90a"),
        (causal, np.float32, False, 64, "sm_90a"),
        (full, np.float32, False, 192, "sm_80"),
        (causal, np.float64, False, 256, "sm_90a"),
    ],
)
def test_their_code_is_small_and_holds_what_it_computes(
    function: Any, dtype: Any, dynamic: bool, head: int, architecture: str
) -> None:
    """A head of any size fits shared memory; scores stay in registers."""
    parts = parts_of(lowered(function, tensors(dtype, 300, 300, head), dynamic, architecture))
    (ptx,) = compile_texts(parts.texts, parts.backend.code_target)
    assert len(ptx) < SMALL
    _, words = assemble_with_words(ptx, architecture)
    (spilled,) = re.findall(r"(\d+) bytes spill stores", words)
    assert int(spilled) <= (SHARED if b".minnctapersm 2" in ptx else 0)


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize(("function", "head"), [(full, 128), (causal, 128), (causal, 64), (full, 192), (full, 256)])
def test_many_queries_are_held_in_registers(function: Any, head: int) -> None:
    """Scores are 64 registers of a thread; last blocks add as much code, and no registers."""
    arrays = [np.zeros((90, 2, 300, head), np.float32) for _ in range(3)]
    parts = parts_of(lowered(function, arrays, False, "sm_90a"))
    (ptx,) = compile_texts(parts.texts, parts.backend.code_target)
    _, words = assemble_with_words(ptx, "sm_90a")
    (spilled,) = re.findall(r"(\d+) bytes spill stores", words)
    assert int(spilled) <= (SHARED if b".minnctapersm 2" in ptx else FEW)
    assert ptx.count(b"ld.shared.v4") >= 20


def shapes_of_dots(function: Any, batch: int, sizes: tuple[int, int, int]) -> list[tuple[int, ...]]:
    queries, keys, head = sizes
    arrays = [np.zeros((batch, 2, length, head), np.float32) for length in (queries, keys, keys)]
    kernel = parts_of(lowered(function, arrays, False, "sm_90a")).targets[0]
    dots = [op for op in kernel.walk() if isinstance(op, DotOp)]
    return [tuple(dim.value or 0 for dim in shaped_type(dot.results[0]).shape) for dot in dots]


def test_blocks_have_no_more_queries_and_keys_than_there_are() -> None:
    """Whole blocks of 256 keys, then one of as many as are left; queries by how many there are, and programs."""
    assert shapes_of_dots(full, 90, (700, 512, 128)) == [(64, 256), (64, 128)]
    assert shapes_of_dots(full, 90, (700, 787, 128)) == [(64, 256), (64, 128), (64, 32), (64, 128)]
    assert shapes_of_dots(full, 900, (2, 39, 64)) == [(8, 64), (8, 64)]
    assert shapes_of_dots(causal, 900, (32, 32, 192)) == [(32, 32), (32, 192)]
    # Few programs: each has fewer queries, so that all multiprocessors have some.
    assert shapes_of_dots(full, 1, (512, 512, 64))[0][0] < 32
    # Values that shared memory does not hold, or lanes do not share evenly, come in pieces, and keys in parts.
    assert shapes_of_dots(full, 90, (700, 512, 320)) == [(64, 256), *[(64, 64)] * 5]
    # What is copied in steps is in no registers on its way, and is whole; two programs fit beside each other.
    assert shapes_of_dots(full, 90, (700, 512, 256)) == [(32, 256), (32, 256)]
    assert shapes_of_dots(full, 90, (700, 512, 80)) == [(64, 256), (64, 64), (64, 16)]


def test_causal_programs_end_with_the_block_that_holds_what_they_see() -> None:
    widths = [shape[1] for shape in shapes_of_dots(causal, 90, (700, 787, 32))[::2]]
    assert widths == [256, 128, 64]
    assert [shape[1] for shape in shapes_of_dots(causal, 90, (100, 100, 32))[::2]] == [128, 64]


@pytest.mark.parametrize("keys", [39, 256 + 39])
def test_keys_that_a_block_lacks_add_zeros(keys: int) -> None:
    """A sum that underflows to -0 is 0 after they are added, as on a CPU."""
    q, k, v = (np.ones((1, 1, rows, 32), np.float32) for rows in (8, keys, keys))
    v[:] = -1e-45
    k[:, :, 0] = 50.0
    here, there = (lowered(full, [q, k, v], False, name) for name in (None, "sm_90a"))
    (found,), (wanted,) = (run_program(one.module, q, k, v) for one in (there, here))
    assert found.tobytes() == wanted.tobytes()


def test_what_elements_share_and_what_they_do_not_are_the_whole_place() -> None:
    i, j, n, m = (Dim.symbol(name) for name in "ijnm")
    place = 3 * n * m + i * m + j + n // 2 * 5 + (i // 2) * n + 7
    fixed, rest = split_terms(place, {"i", "j"})
    assert fixed == 3 * n * m + n // 2 * 5 + 7
    assert fixed + rest == place
