"""Backward passes of rows on a GPU, with sums along columns in the same kernel: every bit is that of the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.test_shared_rows import agree, same
from tests.schedule.emit.test_row_columns import drawn, pull_biased, pull_layernorm, pull_rmsnorm

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

BF16 = ml_dtypes.bfloat16
CASES: list[tuple[Any, tuple[int, ...], Any]] = [
    (pull_layernorm, (4133, 4096), BF16),
    (pull_layernorm, (5000, 2056), np.float32),
    (pull_layernorm, (4, 1100, 2048), BF16),
    (pull_layernorm, (6000, 1536), np.float16),
    (pull_layernorm, (5000, 2053), np.float32),
    (pull_rmsnorm, (8192, 3000), BF16),
    (pull_rmsnorm, (4096, 8192), np.float32),
    (pull_biased, (5000, 3000), BF16),
    (pull_biased, (8192, 2048), np.float32),
]


@pytest.mark.parametrize(("function", "shape", "dtype"), CASES)
def test_rows_and_sums_along_columns_have_the_bits_of_the_cpu(
    function: Any, shape: tuple[int, ...], dtype: Any
) -> None:
    same(function, *drawn(function, shape, dtype), times=2)


@pytest.mark.parametrize("levels", [0, 2, 5])
def test_no_bit_depends_on_how_many_rows_a_program_has(levels: int) -> None:
    arrays = drawn(pull_layernorm, (8192, 2048), BF16)
    here = ts.jit(pull_layernorm)(*arrays)
    agree(here, ts.jit(pull_layernorm, backend="cuda", overrides={"row.levels": levels})(*arrays))


def test_rows_of_a_symbolic_number() -> None:
    def pull(x: ts.Tensor["M", 1536, ts.bf16], w: ts.Tensor[1536, ts.bf16], g: ts.Tensor["M", 1536, ts.bf16]) -> Any:
        return pull_rmsnorm(x, w, g)

    here, there = ts.jit(pull), ts.jit(pull, backend="cuda")
    for rows in (1, 300, 5000):
        arrays = drawn(pull_rmsnorm, (rows, 1536), BF16, seed=rows)
        agree(here(*arrays), there(*arrays), rows)
