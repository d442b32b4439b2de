"""Results whose rows TMA does not store: warps store them from shared memory, lanes beside each other."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS, contraction_block
from tessera.backends.nvptx.block_times import Rows, block_time
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.types.dim import Dim
from tessera.types.dtype import bf16
from tests.backends.nvptx.matrices import BACKEND, matrix_of, nn, nt


def two(x: Any, w: Any) -> Any:
    y = ts.ops.matmul(x, w)
    return y, ts.ops.gelu(y, approximate="tanh")


CASES: dict[str, tuple[Any, Any, Any, Any]] = {
    "even": (nn, [(1000, 512), (512, 4388)], (128, 256, 64), ml_dtypes.bfloat16),
    "odd": (nn, [(1000, 512), (512, 557)], (256, 128, 64), np.float16),
    "tails": (nt, [(1000, 512), (557, 512)], (128, 136, 64), ml_dtypes.bfloat16),
    "three consumers": (nt, [(1000, 512), (557, 512)], (192, 144, 64), ml_dtypes.bfloat16),
    "several results": (two, [(1000, 512), (512, 557)], (128, 128, 64), ml_dtypes.bfloat16),
}


def code_of(name: str) -> str:
    function, shapes, block, dtype = CASES[name]
    return BACKEND.code(matrix_of(function, shapes, dtype=dtype, overrides={"contraction.block": block})).text


@pytest.mark.parametrize("name", CASES)
def test_the_assembler_undoes_nothing(name: str) -> None:
    if assembler() is None:
        pytest.skip("there is no ptxas here")
    words = assemble_with_words(compile_text(code_of(name), BACKEND.code_target), "sm_90a")[1]
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words


def stores_of(text: str) -> dict[str, int]:
    found = re.findall(r"st\.global\.(b\d+)", text)
    return {kind: found.count(kind) for kind in sorted(set(found))}


def test_a_warp_stores_a_row_at_a_time() -> None:
    """16 rows of each of four spans and two blocks: words, or halves of them, and the last element of a row."""
    pieces = 4
    assert stores_of(code_of("even")) == {"b16": pieces * (16 + 2 * 16), "b32": pieces * 16}
    # 136 columns are two spans, and eight columns that each thread stores by itself, in pairs beside TMA.
    tails = stores_of(code_of("tails"))
    assert tails == {"b16": 2 * (16 + 2 * 16) + 4, "b32": 2 * 16 + 2}


def test_each_row_that_lanes_read_from_shared_memory_has_all_banks() -> None:
    """Lane l reads four bytes of 16 at l // 4 XOR the line's number: of eight lines that is each bank once."""
    for line in range(8):
        banks = {(((lane >> 2) ^ line) * 16 + lane % 4 * 4) // 4 % 32 for lane in range(32)}
        assert len(banks) == 32


def test_rows_that_begin_at_16_bytes_leave_by_tma_alone() -> None:
    kernel = matrix_of(nn, [(1000, 512), (512, 4384)], overrides={"contraction.block": (128, 256, 64)})
    assert stores_of(BACKEND.code(kernel).text) == {}


def test_results_that_share_buffers_wait_for_what_leaves_by_tma() -> None:
    """Both of them, whichever way they leave themselves."""
    text = code_of("several results")
    assert text.count("cp.async.bulk.wait_group.read 0") == 2 * 2


def test_blocks_are_wide_where_their_edges_are_within_sectors_of_memory() -> None:
    """Another block writes the rest of such a sector: the fewer edges there are, the better."""
    operands = {"machine": GPUS["sm_90a"], "dtype": bf16, "is_lhs_m_major": True, "batch": Dim.constant(1)}
    chosen = [
        contraction_block(
            WGMMA_BLOCKS, {**operands, "m": Dim.constant(16384), "n": Dim.constant(n), "k": Dim.constant(16)}
        )
        for n in (4384, 4388, 4389)
    ]
    assert [block[1] for block in chosen] == [128, 256, 256]
    size, rows = (16384, 4388, 16), Rows(is_result_apart=True)
    times = [block_time(block, size, 1, 132, rows) for block in ((64, 256), (128, 256), (128, 128), (128, 64))]
    assert times == sorted(times)
    assert all(
        time > block_time(block, size, 1, 132) for time, block in zip(times, ((64, 256), (128, 256)), strict=False)
    )
