"""Dots whose B operand is copied in steps: which they are, and what their text computes, thread by thread."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.backends.nvptx.bank_lint import conflicts
from tessera.backends.nvptx.matmul_plan import grids_of
from tessera.backends.nvptx.streamed_dots import find_streamed
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.types import sizes_of
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import DotOp, KernelOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tests.backends.nvptx.kernels import parts_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_threads import run_kernel

SPILLED = 16
"""Bytes of indices that threads may keep elsewhere: with all tiles in registers it was 228."""


@kernel(Schedule(block=(32, 64)))
def chained(q: KTile["S", "D", f32], k: KTile["T", "D", f32], v: KTile["T", "D", f32]) -> KTile["S", "D", f32]:
    """Two products, the second of what the first gives."""
    T = tile.context()
    rows, acc = tile.load(q, rows=T.m, cols=T.d), tile.zeros((T.m, T.d), f32)
    for n in tile.range_n(k.shape, T.n):
        acc += tile.dot(tile.dot(rows, tile.transpose(tile.load(k, n, cols=T.d))), tile.load(v, n, cols=T.d))
    return acc


def attend(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def lowered(function: Any, arrays: list[Any], architecture: str = "sm_90a") -> Any:
    jitted: Any = ts.jit(function)
    tape = jitted.trace(*arrays).tape
    return parts_of(lower(tape, Options.of(backend="cuda", features=(architecture,))))


def integers(rows: int, columns: int) -> Any:
    return np.random.default_rng(rows + columns).integers(-4, 4, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize(("keys", "head"), [(64, 64), (128, 96), (80, 64)])
def test_text_computes_the_products(keys: int, head: int) -> None:
    """A last block of keys that is not whole reads zeros; columns that threads do not divide are copied by some."""
    q, k, v = integers(32, head), integers(keys, head), integers(keys, head) + 1
    parts = lowered(chained, [q, k, v])
    (target,), (code,) = parts.targets, parts.codes
    assert isinstance(target, KernelOp)
    assert len(find_streamed(target, target.threads)) >= 2
    assert code.text.count("cp.async.c") >= 4
    found = np.full((32, head), np.nan, np.float32)
    run_kernel(code, [q, k, v, found], [32, head, keys], blocks=1)
    np.testing.assert_array_equal(found, q @ k.T @ v)


@pytest.mark.parametrize("head", [96, 128])
def test_two_programs_of_attention_fit_a_multiprocessor(head: int) -> None:
    parts = lowered(attend, [np.zeros((90, 2, 512, head), np.float32) for _ in range(3)])
    (code,) = parts.codes
    assert 2 * (code.shared + 1024) <= 228 << 10
    assert '"nvvm.minctasm"="2"' in code.text


def test_few_rows_copy_all_at_once() -> None:
    parts = lowered(attend, [np.zeros((1, 2, 8, 128), np.float32) for _ in range(3)])
    assert all("cp.async" not in code.text for code in parts.codes)


@pytest.mark.parametrize("head", [96, 160, 192])
def test_columns_that_are_no_power_of_two_are_shared_by_rows_of_threads(head: int) -> None:
    """What a thread reads of a row is multiplied with all it reads of a column, and no two lanes want one bank."""
    parts = lowered(attend, [np.zeros((90, 2, 512, head), np.float32) for _ in range(3)])
    (target,) = parts.targets
    assert isinstance(target, KernelOp)
    ((shape, grid),) = grids_of(target).items()
    assert shape[1] == head
    assert (grid.across, grid.columns) == (32, 2 if head == 192 else 1)
    assert not [one for one in conflicts(target) if isinstance(one.op, DotOp) and sizes_of(one.op.result) == shape]
    others = lowered(attend, [np.zeros((90, 2, 512, 128), np.float32) for _ in range(3)]).targets[0]
    assert isinstance(others, KernelOp)
    assert not grids_of(others)


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize("head", [64, 128])
def test_what_a_dot_does_not_read_lies_aside(head: int) -> None:
    """Queries, and sums of values while scores are multiplied: registers are left to read ahead, and nothing spills."""
    (code,) = lowered(attend, [np.zeros((90, 2, 512, head), np.float32) for _ in range(3)]).codes
    rows, threads = 64, 256
    assert code.text.count("store volatile") == 2 * rows * head // threads // 4
    (ptx,) = compile_texts([code.text], NvptxBackend(GPUS["sm_90a"]).code_target)
    _, words = assemble_with_words(ptx, "sm_90a")
    (spilled,) = re.findall(r"(\d+) bytes spill stores", words)
    assert int(spilled) <= SPILLED
