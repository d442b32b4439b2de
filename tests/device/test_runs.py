"""Reductions that all of a GPU shares have the bits of the reference: whole tensors, long rows, columns, indices."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.schedule.emit.test_runs import CASES, numbers, outputs, statistics

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


def check(function: Any, x: Any, **options: Any) -> None:
    wanted = outputs(ts.jit(function, backend="reference")(x))
    with poisoned(), ts.device(ts.gpu[0]):
        found = outputs(ts.jit(function, backend="cuda", **options)(x))
    assert [one.tobytes() for one in found] == [one.tobytes() for one in wanted]


@pytest.mark.parametrize("run", [0, 1, 4, 64])
@pytest.mark.parametrize("name", CASES)
def test_runs_have_the_bits_of_the_reference(name: str, run: int) -> None:
    check(*CASES[name], overrides={"row.runs": run})


@pytest.mark.parametrize(
    "shape", [(1 << 22,), (10**6 + 7,), (5, 200003), (3, 200704), (70001, 40), (3, 5000, 130), (64, 5000)]
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_large_ones_as_the_model_cuts_them(shape: tuple[int, ...], dtype: Any) -> None:
    check(statistics(int(np.argmax(shape))), numbers(dtype, *shape))


@pytest.mark.parametrize("shape", [(10007, 5), (5000, 256), (3, 1000, 16), (40001, 100)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_short_rows(shape: tuple[int, ...], dtype: Any) -> None:
    check(statistics(len(shape) - 1), numbers(dtype, *shape))


@pytest.mark.parametrize("axes", [(0, 2, 3), (0, 2), (1, 3)])
def test_several_axes(axes: tuple[int, ...]) -> None:
    check(lambda x: ops.var(x, axis=axes), numbers(np.float32, 9, 7, 56, 28))


@pytest.mark.parametrize("rows", [0, 1, 1024, 70001])
def test_symbolic_sizes(rows: int) -> None:
    def total(x: ts.Tensor["M", 24, ts.f32]) -> Any:
        return x.sum(), x.sum(axis=0)

    check(total, numbers(np.float32, rows, 24))
