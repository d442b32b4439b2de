"""`shape_trace`: the table of a transformer block, of loops, and of a function that is wrong."""

# Traced functions have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


def block(
    x: ts.Tensor["B", "S", 8, ts.f32], w: ts.Tensor[8, 24, ts.f32], up: ts.Tensor[8, 32, ts.f32], down: Any
) -> Any:
    """Attention and a hidden layer."""
    q, k, v = ts.ops.split(x @ w, 3, axis=-1)
    x = x + ts.ops.softmax(q @ k.transpose(0, 2, 1)) @ v
    return x + ts.ops.gelu(x @ up) @ down


def test_a_transformer_block_in_names_and_in_numbers() -> None:
    arguments = zeros(2, 5, 8), zeros(8, 24), zeros(8, 32), zeros(32, 8)
    found = ts.shape_trace(block)(*arguments)
    assert [step.op for step in found] == [
        "matmul", "split", "transpose", "matmul", "softmax", "matmul", "add", "matmul", "gelu", "matmul", "add",
    ]  # fmt: skip
    scores = found.steps[3]
    assert [str(type) for type in (*scores.inputs, *scores.outputs)] == [
        "[B, S, 8] f32",
        "[B, 8, S] f32",
        "[B, S, S] f32",
    ]
    assert [str(type) for type in (*scores.sizes_in, *scores.sizes_out)] == [
        "[2, 5, 8] f32",
        "[2, 8, 5] f32",
        "[2, 5, 5] f32",
    ]
    assert scores.span is not None
    assert scores.span.source_line[scores.span.column - 1 :].startswith("q @ k.transpose(0, 2, 1)")
    lines = str(found).splitlines()
    assert lines[0] == "block"
    assert lines[1].split() == ["op", "in", "out", "sizes", "in", "sizes", "out", "at"]
    assert len(lines) == 3 + 4 + len(found)
    matmul = " ".join(next(line for line in lines if line.startswith("matmul")).split())
    assert "[B, S, 8], [8, 24] [B, S, 24] f32 [2, 5, 8], [8, 24] [2, 5, 24]" in matmul
    assert "test_shape_trace.py:" in matmul


def test_without_names_sizes_are_not_shown_twice() -> None:
    found = ts.shape_trace(lambda x: x + x)(zeros(2, 3))
    assert str(found).splitlines()[1].split() == ["op", "in", "out", "at"]


def test_bodies_of_loops_are_set_in() -> None:
    def running(x: ts.Tensor["N", "D", ts.f32]) -> Any:
        return ts.scan(lambda total, row: (total + row, total), ts.ops.zeros(x.shape[1]), x)

    found = ts.shape_trace(ts.jit(running))(zeros(3, 4))
    inner = [step for step in found if step.depth]
    assert [(step.op, str(step.outputs[0]), str(step.sizes_out[0])) for step in inner] == [
        ("add", "[D] f32", "[4] f32")
    ]
    assert "\n  add " in str(found)


def test_a_function_that_is_wrong_is_shown_up_to_its_error() -> None:
    def wrong(x: ts.Tensor["B", 4, ts.f32]) -> Any:
        y = ts.ops.exp(x)
        return y @ ts.ops.zeros((5, 3))

    found = ts.shape_trace(wrong)(zeros(2, 4))
    assert [step.op for step in found] == ["exp", "full"]
    assert found.error is not None
    assert str(found).endswith(str(found.error))
    assert "error[T0101]: cannot multiply [B, 4] by [5, 3]" in str(found)


def test_guards_are_named_and_those_that_the_call_breaks_too() -> None:
    def add(x: ts.Tensor["B", ts.f32], y: ts.Tensor["S", ts.f32]) -> Any:
        ts.require("B % 2 == 0")
        return x + y

    shown = str(ts.shape_trace(add)(zeros(3), zeros(4)))
    assert "guard: (B % 2) == 0, broken here (1 and 0), for `B % 2 == 0`" in shown
    assert "guard: B == S, broken here (3 and 4), for" in shown
