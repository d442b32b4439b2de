"""Rows that are also summed along columns: one kernel has both, and every bit is that of kernels of their own."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.schedule.emit.row_columns import LEVELS, row_levels, split_columns
from tessera.ir.schedule.fusion import row_columns
from tessera.types.dim import Dim
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import tensor, trace

GPU = ("sm_90a",)


def pull_layernorm(x: Any, w: Any, b: Any, g: Any) -> Any:
    return ts.vjp(ops.layernorm, x, w, b)[1](g)


def pull_rmsnorm(x: Any, w: Any, g: Any) -> Any:
    return ts.vjp(ops.rmsnorm, x, w)[1](g)


def pull_biased(x: Any, w: Any, g: Any) -> Any:
    """The bias has the sum of what is itself a result of rows, rounded."""
    return ts.vjp(lambda x, w: ops.softmax(x + w), x, w)[1](g)


PULLS: dict[Callable[..., Any], int] = {pull_layernorm: 2, pull_rmsnorm: 1, pull_biased: 1}
"""Backward passes, and how many vectors they take beside rows and cotangents."""


def drawn(function: Callable[..., Any], shape: Sequence[int], dtype: Any = np.float32, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    x, g = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    return [x, *(rng.standard_normal(shape[-1:]).astype(dtype) for _ in range(PULLS[function])), g]


def lowered(function: Callable[..., Any], arrays: Sequence[Any], **overrides: Any) -> Lowering:
    tape = ts.jit(function).trace(*arrays).tape
    return lower(tape, Options.of(backend="cuda", features=GPU, overrides=overrides))


def suffixes(lowering: Lowering) -> list[str]:
    """How the names of a program's kernels end."""
    return [kernel.symbol.rpartition("_")[2] for kernel in lowering.kernels]


@pytest.fixture
def anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of every number and width are summed along columns beside what is computed of them."""
    monkeypatch.setattr(row_columns, "LEAST_WIDTH", 0)
    monkeypatch.setattr(row_columns, "LEAST_ROWS", 0)
    monkeypatch.setattr(row_columns, "LEAST_ELEMENTS", 0)
    monkeypatch.setattr(row_columns, "ALIGNED", 1)


def check(function: Callable[..., Any], arrays: Sequence[Any], **overrides: Any) -> None:
    """The kernels of a GPU, interpreted, have the bits of those of a CPU."""
    made = lowered(function, arrays, **overrides)
    assert suffixes(made) == ["rows", "lanes", "join"]
    here = lower(ts.jit(function).trace(*arrays).tape, Options())
    found, expected = run_program(made.module, *arrays), run_program(here.module, *arrays)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]


@pytest.mark.slow
@pytest.mark.usefixtures("anything")
@pytest.mark.parametrize(("rows", "levels"), [(1, 4), (300, 5), (550, 3)])
def test_sums_beside_rows_have_the_bits_of_the_recipe(rows: int, levels: int) -> None:
    check(pull_rmsnorm, drawn(pull_rmsnorm, (rows, 12)), **{"row.levels": levels})


@pytest.mark.usefixtures("anything")
@pytest.mark.parametrize("function", PULLS)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_every_backward_pass_has_its_bits(function: Callable[..., Any], dtype: Any) -> None:
    check(function, drawn(function, (20, 40), dtype), **{"row.levels": 5})


@pytest.mark.usefixtures("anything")
@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 4), st.integers(1, 20), st.integers(2, 37), st.sampled_from(LEVELS))
def test_rows_of_any_number_and_width(outer: int, rows: int, columns: int, levels: int) -> None:
    arrays = drawn(pull_layernorm, (outer, rows, columns), seed=outer + rows)
    check(pull_layernorm, arrays, **{"row.levels": levels})


def test_wide_rows_of_a_symbolic_number() -> None:
    def pull(x: ts.Tensor["M", 1032, ts.f32], w: ts.Tensor[1032, ts.f32], g: ts.Tensor["M", 1032, ts.f32]) -> Any:
        return pull_rmsnorm(x, w, g)

    arrays = drawn(pull_rmsnorm, (3, 1032))
    made = lowered(pull, arrays, **{"row.levels": 5})
    assert suffixes(made) == ["rows", "lanes", "join"]
    here = lower(ts.jit(pull).trace(*arrays).tape, Options())
    found, expected = run_program(made.module, *arrays), run_program(here.module, *arrays)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]


def lazy(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
    """An array of which no memory is touched: all elements are views of one."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def many(function: Callable[..., Any], shape: tuple[int, ...]) -> list[Any]:
    return [lazy(*shape), *[lazy(shape[-1])] * PULLS[function], lazy(*shape)]


def test_which_rows_are_summed_in_their_own_kernel() -> None:
    for function in PULLS:
        assert suffixes(lowered(function, many(function, (8192, 2048)))) == ["rows", "lanes", "join"]
    for shape in ((2048, 2048), (8192, 512), (8192, 65536), (8192, 2049)):
        assert "lanes" not in suffixes(lowered(pull_rmsnorm, many(pull_rmsnorm, shape)))
    assert "lanes" in suffixes(lowered(pull_rmsnorm, many(pull_rmsnorm, (8192, 8192))))
    assert "lanes" not in suffixes(lowered(pull_layernorm, many(pull_layernorm, (8192, 8192))))


def test_sums_that_rows_wait_for_are_kernels_of_their_own() -> None:
    """Rows are scaled by what is summed along columns: those sums must be there before the first row is."""
    x = lazy(8192, 2048, dtype=np.float32)
    assert "lanes" not in suffixes(lowered(lambda x: ops.softmax(x * x.sum(axis=0)), [x]))


def test_a_cpu_keeps_two_groups() -> None:
    arrays = many(pull_layernorm, (8192, 2048))
    made = lower(ts.jit(pull_layernorm).trace(*arrays).tape, Options.of(features=("x86-64-v4",)))
    assert "lanes" not in suffixes(made)


def test_results_and_row_values_are_stored_beside_sums() -> None:
    """Three results of rows, two of columns: each has its argument."""

    def both(x: Any) -> Any:
        y = ops.softmax(x)
        return y, y.sum(axis=0), x.max(axis=1), y.mean(axis=0), x - x.mean(axis=1, keepdims=True)

    made = lowered(both, [lazy(8192, 2048, dtype=np.float32)])
    assert "lanes" in suffixes(made)


def levels_for(rows: int | None, width: int, sums: int) -> int:
    context = {
        "machine": GPUS["sm_90a"],
        "rows": Dim.symbol("M") if rows is None else Dim.constant(rows),
        "width": width,
        "sums": sums,
        "level": 4 * sums * width,
        "row": 6 * width,
    }
    return row_levels(LEVELS, context)


def test_levels_follow_shared_memory_and_the_number_of_programs() -> None:
    # Two blocks of three levels of 32 KB are what a multiprocessor holds.
    assert levels_for(32768, 4096, 2) == 3
    assert levels_for(None, 4096, 2) == 2
    # Fewer rows to each program where they would be too few for the machine.
    assert levels_for(4096, 4096, 2) < 3


def test_a_group_of_sums_that_no_kernel_computes_is_refused() -> None:
    tape = trace(lambda x: (x - x.sum(axis=0)).sum(axis=1), tensor("A B"))
    with pytest.raises(ValueError, match="reduces along columns"):
        split_columns(tape, (1,))
    tape = trace(lambda x: (x.sum(axis=2), x.sum(axis=0)), tensor("A B C"))
    with pytest.raises(ValueError, match="beside rows over"):
        split_columns(tape, (2,))
