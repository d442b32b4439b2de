"""Reductions that blocks share: warps divide a run by its leaves, threads of a block have columns side by side."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import KernelOp
from tessera.runtime.devices.cuda.assembler import assemble, assembler

OPTIONS = Options.of(backend="cuda", features=("sm_90a",))


def lowered(
    function: Callable[..., Any], shape: tuple[int, ...], dtype: Any = np.float32, options: Options = OPTIONS
) -> Lowering:
    # No memory is touched: of an array of one element all others are views.
    array = np.broadcast_to(np.zeros((), dtype), shape)
    return lower(ts.jit(function).trace(array).tape, options)


def kernels(lowering: Lowering) -> list[KernelOp]:
    return [op for module in lowering.targets for op in module.walk() if isinstance(op, KernelOp)]


def test_warps_divide_a_run_by_its_leaves() -> None:
    runs, join = kernels(lowered(lambda x: x.mean(), (1 << 26,)))
    assert (runs.warps_per_row, runs.vector) == (16, 4)
    assert join.threads == 256


@pytest.mark.parametrize(("dtype", "vector"), [(np.float32, 4), (ml_dtypes.bfloat16, 8)])
def test_threads_have_16_bytes_of_columns_each(dtype: Any, vector: int) -> None:
    (kernel,) = kernels(lowered(lambda x: x.sum(axis=0), (4096, 16384), dtype))
    assert (kernel.vector, kernel.warps_per_row) == (vector, 0)
    assert kernel.threads >= 256


def test_reduced_axes_apart_are_read_in_vectors() -> None:
    runs, _ = kernels(lowered(lambda x: x.sum(axis=(0, 2, 3)), (64, 256, 56, 56)))
    assert (runs.vector, runs.warps_per_row) == (4, 16)


def centred(x: Any) -> Any:
    """Elements beside a result of their rows, at indices that are quotients of one index."""
    return x - x.mean(axis=(0, 2), keepdims=True)


CASES: dict[str, tuple[Any, ...]] = {
    "ragged": (lambda x: x.sum(), (10**7 + 7,), np.float32),
    "columns": (lambda x: ts.ops.var(x, axis=0), (65537, 40), ml_dtypes.bfloat16),
    "an index": (lambda x: x.argmax(), (1 << 20,), np.float32),
    "whole space": (lambda x: ts.ops.softmax(x, axis=1), (2, 1 << 18), ml_dtypes.bfloat16),
    "stores under masks": (
        *(centred, (40, 3, 70), np.float32),
        Options.of(backend="cuda", features=("sm_90a",), overrides={"row.runs": 1}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels_assemble(name: str) -> None:
    lowering = lowered(*CASES[name])
    found = compile_texts(lowering.texts, NvptxBackend(GPUS["sm_90a"]).code_target)
    assert len(found) > 1
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    for ptx in found:
        assert assemble(ptx, "sm_90a")
