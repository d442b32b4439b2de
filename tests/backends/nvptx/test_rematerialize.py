"""Rows that registers do not hold: what is rematerialized, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.passes.rematerialize_rows import find_recipes
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.tile.typed_ops import KernelOp
from tessera.stdlib import efficient_layernorm, stable_softmax
from tests.backends.nvptx.matrices import general_kernels

BF16 = ml_dtypes.bfloat16
HOPPER = GPUS["sm_90a"]


def lowered(function: Callable[..., Any], *arrays: Any) -> Lowering:
    tape = ts.jit(function).trace(*arrays).tape
    return lower(tape, Options.of(backend="cuda", features=("sm_90a",)), keep_snapshots=True)


def ptx_of(lowering: Lowering) -> str:
    return "\n".join(ptx.decode() for ptx in compile_texts(lowering.texts, NvptxBackend(HOPPER).code_target))


def names_of(kernel: SpecOp) -> list[str]:
    return [
        op.value("fn") if op.name == "ttarget.elementwise" else op.name
        for op in kernel.walk()
        if isinstance(op, SpecOp)
    ]


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def softmax_of_sum(x: Any, y: Any) -> Any:
    return ts.ops.softmax(x + y, axis=-1)


def library_softmax(x: Any) -> Any:
    return stable_softmax(x)


def library_layernorm(x: Any, weight: Any, bias: Any) -> Any:
    return efficient_layernorm(x, weight, bias)


# What is rematerialized.


@pytest.mark.parametrize(("columns", "is_again"), [(4096, False), (8192, False), (33792, True),
    (33800, False)])  # fmt: skip
def test_exps_of_wide_rows_are_rematerialized(columns: int, is_again: bool) -> None:
    """Where registers of one warp or of several hold the powers they stay; and where turns go beyond the end."""
    (kernel,) = lowered(softmax, np.zeros((64, columns), BF16)).targets
    names = names_of(kernel)
    assert ("ttarget.scratch" not in names) == is_again
    if is_again:
        assert names.count("exp") == 2


@settings(max_examples=15, deadline=None)
@given(st.integers(1056, 1600), st.sampled_from([BF16, np.float16, np.float32]), st.booleans())
def test_what_is_rematerialized_is_computed_alike(turns: int, dtype: Any, has_two: bool) -> None:
    """Both times by the same ops with the same attributes, each in its own loop, of what no kernel writes."""
    x = np.zeros((8, 32 * turns), dtype)
    lowering = lowered(softmax_of_sum, x, x) if has_two else lowered(softmax, x)
    (source,) = general_kernels(lowering)
    assert isinstance(source, KernelOp)
    (again,) = find_recipes(source).values()
    (kernel,) = lowering.targets
    powers = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.elementwise"]
    first, second = (op for op in powers if op.value("fn") == "exp")
    assert first.parent_op() is not second.parent_op()
    assert said(first, {}) == said(second, {})
    assert all(op.parent_op() is again.loop for op in again.ops)


def said(op: SpecOp, seen: dict[Any, str]) -> str:
    """An op and all that it is computed from in its loop, as text; what comes from elsewhere by its name."""
    parts: list[str] = []
    for value in op.operands:
        owner = value.owner
        if isinstance(owner, SpecOp) and owner.parent_op() is op.parent_op():
            parts.append(said(owner, seen))
        else:
            is_turn = owner is op.parent_block()
            parts.append("turn" if is_turn else seen.setdefault(value, str(id(value))))
    return f"{op.name} {sorted(map(str, op.values().items()))} ({', '.join(parts)})"


def scaled(x: Any) -> Any:
    return ts.ops.softmax(x * 0.125 + 1.0, axis=-1)


def much_scaled(x: Any) -> Any:
    return ts.ops.softmax((x * 0.125 + 1.0) * 3.0 + 0.5, axis=-1)


def powers_of_powers(x: Any) -> Any:
    """Powers of powers: what is kept of the second softmax is computed from what is kept of the first."""
    return ts.ops.softmax(ts.ops.softmax(x, axis=-1) * 2.0, axis=-1)


@pytest.mark.parametrize(("function", "is_again"), [(scaled, True), (much_scaled, False), (powers_of_powers, False)])
def test_what_takes_much_or_needs_other_scratch_is_kept(function: Any, is_again: bool) -> None:
    kernels = general_kernels(lowered(function, np.zeros((64, 8192), BF16)))
    kept = [kernel for kernel in kernels if any(op.name == "ttile.scratch" for op in kernel.walk())]
    assert kept
    assert all(isinstance(kernel, KernelOp) and bool(find_recipes(kernel)) == is_again for kernel in kept)


def test_rematerialized_exps_are_not_unrolled() -> None:
    assert len(ptx_of(lowered(softmax, np.zeros((64, 33792), BF16)))) < 1 << 16


def of_columns(x: Any) -> Any:
    return ts.ops.softmax(x, axis=1)


def column_sums(x: Any) -> Any:
    return x.sum(axis=0)


def test_long_loops_over_columns_are_unrolled_for_few_iterations() -> None:
    """Each element is looked at, whether it is there, and then takes a power: many of them take seconds to compile."""
    (kernel,) = lowered(of_columns, np.zeros((8, 5001, 4), BF16)).targets
    loops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.loop"]
    assert max(op.value("unroll") for op in loops if op.results) <= 8
    (sums,) = lowered(column_sums, np.zeros((4096, 100), BF16)).targets
    assert [op.value("unroll") for op in sums.walk() if isinstance(op, SpecOp) and op.name == "ttarget.loop"] == [64]


# Rows of the kernel language.


@pytest.mark.parametrize("columns", [33, 777, 1000, 1001])
@pytest.mark.parametrize("function", [library_softmax, library_layernorm])
def test_rows_of_odd_lengths_are_reduced_one_to_a_program(function: Any, columns: int) -> None:
    parts = [np.zeros(columns, BF16)] * 2 if function is library_layernorm else []
    lowering = lowered(function, np.zeros((65536, columns), BF16), *parts)
    ptx = ptx_of(lowering)
    assert lowering.targets[0].value("threads") == 32
    assert "shared" not in ptx.replace(".extern .shared", "")
    assert "shfl.sync.down" in ptx
