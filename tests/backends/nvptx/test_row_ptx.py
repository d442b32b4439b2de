"""Rows of a GPU, run from their PTX without one: every bit is that of the CPU, however rows begin and are shared."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_widths import free
from tessera.backends.nvptx.compile import NvptxBackend, NvptxCode
from tessera.backends.nvptx.passes import schedule_rows
from tessera.backends.nvptx.row_plan import ROW_BLOCKS, STREAMED
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.op import SpecOp
from tessera.ir.target.machine_code import compile_text
from tests.oracles.nvptx_rows import run_rows

BF16 = ml_dtypes.bfloat16
DTYPES = {BF16: ts.bf16, np.float16: ts.f16, np.float32: ts.f32}
RNG = np.random.default_rng(5)
BLOCKS = 2
"""Blocks that stay, so that each has several rows."""


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def rmsnorm(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w)


def sums(x: Any) -> Any:
    return x.sum(axis=-1), ts.ops.var(x, axis=-1)


def of_sum(x: Any, y: Any) -> Any:
    return ts.ops.softmax(x * 0.5 + y, axis=-1)


def pull_softmax(x: Any, y: Any) -> Any:
    return ts.vjp(ts.ops.softmax, y)[1](x)


def differences(x: Any) -> Any:
    return ts.ops.softmax(x[1:] - x[:-1], axis=-1)


def arguments(function: Any, rows: int, columns: int, dtype: Any) -> list[Any]:
    """Rows of all sizes, with an infinity and a NaN, and lines beside them; `y` is like `x`."""
    x = RNG.standard_normal((rows, columns)) * RNG.choice([1e-3, 1.0, 30.0], (rows, 1))
    x[1, columns // 2], x[2, columns - 1] = -np.inf, np.nan
    names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
    shapes = [(rows, columns) if name == "y" else (columns,) for name in names]
    return [x.astype(dtype), *(RNG.standard_normal(shape).astype(dtype) for shape in shapes)]


def lowered(function: Any, given: list[Any]) -> Lowering:
    jitted: Any = ts.jit(function)
    return lower(jitted.trace(*given).tape, Options.of(backend="cuda", features=("sm_90a",)))


def run(lowering: Lowering, number: int, given: list[Any], expected: list[Any]) -> list[Any]:
    """What a kernel of a program makes of some arguments."""
    assert isinstance(lowering.code, NvptxCode)
    code, kernel = lowering.code.codes[number], lowering.targets[number]
    sizes = dict(zip(code.symbols, given[0].shape, strict=False))
    threads, rows = code.threads, code.programs
    if code.rows is not None:
        threads, rows = code.rows.threads.evaluate(sizes), code.rows.rows.evaluate(sizes)
    blocks = -(-code.grid.evaluate(sizes) // rows)
    ptx = compile_text(code.text, NvptxBackend(GPUS["sm_90a"]).code_target).decode()
    results = [np.zeros(one.shape, one.dtype) for one in expected]
    launch = (threads, min(blocks, BLOCKS) if code.resident else blocks, ROW_BLOCKS.of(kernel), code.shared)
    return run_rows(ptx, [*given, *results], [sizes[name] for name in code.symbols], launch)[len(given) :]


def agree(found: list[Any], expected: list[Any]) -> None:
    for one, wanted in zip(found, expected, strict=True):
        wide = [part.astype(np.float64) for part in (one, wanted)]
        equal = (wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
        assert equal.all(), (np.argwhere(~equal)[:3], one[~equal][:3], wanted[~equal][:3])


def results_of(function: Any, given: list[Any]) -> list[Any]:
    return [np.asarray(one) for one in as_tuple(ts.jit(function)(*given))]


def kernels(lowering: Lowering) -> list[SpecOp]:
    return list(lowering.targets)


CASES = [(softmax, 1101, BF16), (softmax, 1104, BF16), (softmax, 2049, np.float32), (layernorm, 1904, BF16),
    (layernorm, 1030, np.float32), (rmsnorm, 1032, np.float16), (rmsnorm, 2048, BF16), (sums, 1025, BF16),
    (of_sum, 1304, BF16), (differences, 1104, BF16), (differences, 1601, BF16)]  # fmt: skip


@pytest.mark.parametrize("wide", [2, 99])
@pytest.mark.parametrize(("function", "columns", "dtype"), CASES)
def test_rows_of_known_width(
    function: Any, columns: int, dtype: Any, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied ahead or not, of rows that begin anywhere or at multiples of 16 bytes, with the tiles that they have."""
    monkeypatch.setattr(schedule_rows, "WIDE", wide)
    given = arguments(function, 9, columns, dtype)
    expected = results_of(function, given)
    lowering = lowered(function, given)
    (kernel,) = kernels(lowering)
    assert STREAMED.of(kernel) is (wide == 2 and columns * np.dtype(dtype).itemsize % 16 == 0)
    agree(run(lowering, 0, given, expected), expected)


@pytest.mark.parametrize(("columns", "dtype"), [(1101, BF16), (1304, BF16), (2600, np.float32), (17 * 1024, BF16)])
def test_both_rows_of_a_backward_pass(columns: int, dtype: Any) -> None:
    """Both are loaded first, but for tiles beyond their end; of 17 leaves, 18 warps of two blocks, one has none."""
    given = arguments(pull_softmax, 3, columns, dtype)
    expected = results_of(pull_softmax, given)
    lowering = lowered(pull_softmax, given)
    (kernel,) = kernels(lowering)
    assert ROW_BLOCKS.of(kernel) == (2 if columns == 17 * 1024 else 1)
    agree(run(lowering, 0, given, expected), expected)


WIDTHS = [1, 7, 263, 1024, 1101, 1104, 2303]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "dtype"), [(softmax, BF16), (layernorm, BF16), (rmsnorm, np.float32),
    (sums, BF16), (pull_softmax, BF16)])  # fmt: skip
def test_rows_of_symbolic_width(function: Any, dtype: Any) -> None:
    """Each kernel that a launch may take for a width, in a block and in a cluster."""
    given = arguments(function, 9, 1104, dtype)
    lowering = lowered(free(function, DTYPES[dtype]), given)
    assert isinstance(lowering.code, NvptxCode)
    ran: set[str] = set()
    for columns in WIDTHS:
        given = arguments(function, 9, columns, dtype)
        expected = results_of(function, given)
        for number, code in enumerate(lowering.code.codes):
            if code.widths is None or columns % code.widths.multiple or (code.grid.value or columns) > 2000:
                continue
            agree(run(lowering, number, given, expected), expected)
            ran.add(code.name.rpartition("__")[2])
    assert ran == {"aligned", "shared", "aligned_wide", "wide", "aligned_cluster", "cluster"}
