"""Kernels whose loads overlap, as those of windows do: vectors that neighbours share, and the bits of a CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.passes import plan_threads
from tessera.backends.nvptx.row_plan import NEAR_ROWS
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tests.backends.nvptx.matrices import BACKEND, tile_kernels_of
from tests.oracles.native_threads import run

BF16, F16, F32 = ml_dtypes.bfloat16, np.float16, np.float32


def depthwise(**attributes: Any) -> Callable[..., Any]:
    """A convolution of each channel by itself; weights come first, as a kernel reads them."""

    def function(w: Any, x: Any) -> Any:
        return ts.ops.conv2d(x, w, groups=x.shape[1], **attributes)

    return function


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], Any]] = {
    "3x3": ((2, 8, 24, 24), (8, 1, 3, 3), {"padding": 1}, BF16),
    "3x3 of f32": ((2, 8, 24, 24), (8, 1, 3, 3), {"padding": 1}, F32),
    "7x7": ((2, 4, 16, 56), (4, 1, 7, 7), {"padding": 3}, BF16),
    "7x7 of short rows": ((2, 4, 14, 14), (4, 1, 7, 7), {"padding": 3}, BF16),
    "whole tiles": ((2, 8, 32, 64), (8, 1, 3, 3), {"padding": 1}, F16),
    "rows of 8 bytes": ((2, 8, 12, 28), (8, 1, 3, 3), {"padding": 1}, BF16),
    "odd rows": ((2, 8, 7, 7), (8, 1, 3, 3), {"padding": 1}, BF16),
    "odd rows of another size": ((2, 4, 10, 18), (4, 1, 3, 3), {}, BF16),
    "rows that begin anywhere": ((2, 4, 9, 17), (4, 1, 2, 2), {}, BF16),
    "an odd image": ((2, 4, 13, 15), (4, 1, 3, 5), {"padding": (1, 2)}, BF16),
    "an odd image without padding": ((2, 4, 15, 13), (4, 1, 3, 3), {}, F32),
    "more rows than columns": ((2, 4, 30, 8), (4, 1, 5, 3), {"padding": (2, 1)}, F16),
    "dilated": ((2, 4, 20, 24), (4, 1, 3, 3), {"padding": 2, "dilation": 2}, BF16),
    "strided": ((2, 4, 24, 48), (4, 1, 3, 3), {"padding": 1, "stride": 2}, BF16),
    "one row": ((2, 4, 1, 64), (4, 1, 1, 5), {"padding": (0, 2)}, F32),
}


@pytest.mark.parametrize("full", [plan_threads.FULL, 1], ids=["single rows", "near rows"])
@pytest.mark.parametrize("name", CASES)
def test_windows_have_the_bits_of_a_cpu(name: str, full: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_threads, "FULL", full)
    image, weights, attributes, dtype = CASES[name]
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in (weights, image)]
    stored, wanted = run(depthwise(**attributes), arrays)
    np.testing.assert_array_equal(stored, wanted)


def text_of_windows(height: int, width: int, taps: int) -> tuple[str, Any]:
    """The LLVM text of a depthwise convolution in bf16, and its kernel."""
    x, w = np.zeros((32, 96, height, width), BF16), np.zeros((96, 1, taps, taps), BF16)
    tape = ts.jit(depthwise(padding=taps // 2)).trace(w, x).tape
    options = Options.of(backend="cuda", features=("sm_90a",))
    (kernel,) = tile_kernels_of(tape, options)
    target = BACKEND.lower(kernel)
    return BACKEND.code(target).text, target


@pytest.mark.parametrize("taps", [3, 7])
def test_neighbours_share_what_they_load(taps: int) -> None:
    """A thread loads three vectors of a row of its windows, however many columns these have."""
    text, target = text_of_windows(56, 56, taps)
    assert target.value("vector") == 8
    rows = NEAR_ROWS.of(target)
    assert rows == 4
    assert len(re.findall(r"call .* @llvm.fma.f32", text)) == 8 * rows * taps * taps
    assert text.count("ld.global.nc.v4.b32") == 3 * (taps + rows - 1)
    # What is computed for one load is not written again for the next: LLVM would take seconds to find it.
    assert len(text.splitlines()) < 100 * taps * taps * rows


def test_long_chains_spill_no_register() -> None:
    """All that windows of 7 x 7 read would not fit, where it is loaded before any of it is multiplied."""
    for width in (56, 28, 14, 30):
        text, _ = text_of_windows(width, width, 7)
        if assembler() is not None:
            words = assemble_with_words(compile_text(text, BACKEND.code_target), "sm_90a")[1]
            assert "0 bytes spill stores" in words


def test_odd_rows_share_what_is_above_and_below() -> None:
    """Odd rows are stored one by one, and end within the rows of a thread: what those read is shared still."""
    text, target = text_of_windows(57, 57, 3)
    assert (target.value("vector"), NEAR_ROWS.of(target)) == (1, 4)
    outputs = len(re.findall(r"call .* @llvm.fma.f32", text)) // 9
    assert text.count("ld.global.nc.b16") < 12 * outputs  # 18 where each element reads its own window and weights


def test_sums_of_one_row_have_no_near_rows() -> None:
    """Windows along one row alone share nothing with those above or below."""
    x, w = np.zeros((32, 96, 56, 56), BF16), np.zeros((96, 1, 1, 5), BF16)
    tape = ts.jit(depthwise(padding=(0, 2))).trace(w, x).tape
    options = Options.of(backend="cuda", features=("sm_90a",))
    (kernel,) = tile_kernels_of(tape, options)
    assert NEAR_ROWS.of(BACKEND.lower(kernel)) == 1


def test_rows_below_each_other_gather_elements_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_threads, "FULL", 1)
    rng = np.random.default_rng(6)
    x, table = rng.standard_normal((2, 4, 24, 24)).astype(F32), rng.standard_normal(100).astype(F32)

    def function(x: Any, table: Any, indices: Any) -> Any:
        return ts.ops.max_pool(x, 3, stride=1, padding=1) + table[indices]

    found, wanted = run(function, [x, table, rng.integers(0, 100, x.shape)])
    np.testing.assert_array_equal(found, wanted)
