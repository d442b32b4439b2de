"""Kernels of the library's recurrences for an H200: dots on tensor cores, nothing spilled, nothing serialized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.stdlib.delta_rule import chain_states
from tessera.stdlib.residual_norm import dropped_layernorm_gradients
from tests.backends.nvptx.matrices import BACKEND, text_of, tile_kernels_of

NARROW = ml_dtypes.bfloat16


def zeros(*shape: int, dtype: Any = NARROW) -> Any:
    return np.zeros(shape, dtype)


def wide(*shape: int) -> Any:
    return zeros(*shape, dtype=np.float32)


def assemble_all(function: Callable[..., Any], operands: list[Any], dots_of_f32: bool = False) -> list[str]:
    """The kind of each kernel of a function, `matrix` or `thread`, all of them as the assembler takes them."""
    options = Options.of(backend="cuda", features=("sm_90a",))
    kinds: list[str] = []
    for made in tile_kernels_of(ts.jit(function).trace(*operands).tape, options):
        matrix = BACKEND.matrix(made)
        kinds.append("thread" if matrix is None else "matrix")
        assert matrix is not None or dots_of_f32 or "ttile.dot" not in text_of(made)
        for target in BACKEND.lower_variants(made) if matrix is None else [matrix]:
            text = compile_text(BACKEND.code(target).text, BACKEND.code_target)
            if assembler() is not None:
                words = assemble_with_words(text, "sm_90a")[1]
                assert not PROBLEM.search(words)
                assert "0 bytes spill stores" in words
    return kinds


def gradients(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    return ts.grad(lambda *x: ts.ops.cast(function(*x), ts.f32).sum(), argnums=tuple(range(count)))


@pytest.mark.parametrize("head", [64, 128, 256])
@pytest.mark.parametrize("rows", [512, 1000])
def test_linear_attention_is_on_tensor_cores(head: int, rows: int) -> None:
    heads, decays = [zeros(2, 4, rows, head)] * 3, wide(2, 4, rows)
    assert assemble_all(ts.ops.linear_attention, heads).count("matrix") == 2
    kinds = assemble_all(ts.ops.linear_attention, [*heads, decays])
    assert kinds.count("matrix") == 2


@pytest.mark.parametrize("rows", [512, 1000])
def test_gradients_of_linear_attention_are_on_tensor_cores(rows: int) -> None:
    heads = [zeros(2, 4, rows, 128)] * 3
    # Both passes in both directions; calls of one kernel share its code.
    assert assemble_all(gradients(ts.ops.linear_attention, 3), heads).count("matrix") == 4
    kinds = assemble_all(gradients(ts.ops.linear_attention, 4), [*heads, wide(2, 4, rows)])
    assert kinds.count("matrix") == 5


def test_mamba_2_is_on_tensor_cores() -> None:
    x, delta, a, shared = zeros(2, 16, 4096, 64), wide(2, 16, 4096), wide(16), zeros(2, 1, 4096, 64)
    assert assemble_all(ts.ops.ssd, [x, delta, a, shared, shared]).count("matrix") == 2


def test_the_selective_scan_keeps_its_states_in_registers() -> None:
    rows, states = zeros(2, 1000, 256), zeros(2, 1000, 16)
    given = [rows, wide(2, 1000, 256), wide(256, 16), states, states]
    assemble_all(ts.ops.selective_scan, given)
    assemble_all(gradients(ts.ops.selective_scan, 5), given)


def test_the_delta_rule_is_on_tensor_cores() -> None:
    """All but the derivative of the inverse, which is in f32."""
    heads, rows = [zeros(2, 4, 1000, 128)] * 3, wide(2, 4, 1000)
    kinds = assemble_all(ts.ops.gated_delta_rule, [*heads, rows, rows])
    assert kinds.count("matrix") >= 8
    chained = [zeros(8, 16, 128, 128), zeros(8, 16, 128, 128), wide(8, 16)]
    assert assemble_all(lambda *x: chain_states(*x, reverse=True), chained) == ["matrix"]


def test_long_convolutions_are_on_tensor_cores() -> None:
    """But for the transform of the filters, which is in f32 and the same for a whole batch."""

    def program(x: Any, k: Any) -> Any:
        return ts.ops.fft_conv1d(x, k, "causal")

    assert assemble_all(program, [zeros(4, 8, 8192), zeros(8, 8192)], dots_of_f32=True).count("matrix") == 3


@pytest.mark.parametrize("width", [768, 1024])
def test_rows_are_normalized_in_one_kernel(width: int) -> None:
    rows, line, key = zeros(4, 100, width), wide(width), ts.random.key(0)

    def program(x: Any, residual: Any, weight: Any, bias: Any) -> Any:
        return ts.ops.dropout_residual_layernorm(x, residual, weight, bias, p=0.1, key=key)[0]

    assert len(assemble_all(program, [rows, rows, line, line])) == 1

    def backward(*operands: Any) -> Any:
        return dropped_layernorm_gradients(*operands, p=0.1, key=key)

    assert len(assemble_all(backward, [rows, rows, rows, wide(4, 100), wide(4, 100), line])) == 1
