"""Traces: what functions leave on the tape, where each op came from, and tracers that refuse to have values."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import EscapedTracerError, SpecializationError, TracingError
from tessera.frontend.trace import TracedFunction
from tessera.ir.base.tape import Tape

F32 = np.float32


def traced(function: Any, *arguments: Any, **options: Any) -> TracedFunction:
    return ts.jit(**options)(function).trace(*arguments)


def ops(tape: Tape) -> list[str]:
    return [record.op.removeprefix("tgraph.") for record in tape.records]


def zeros(*shape: int, dtype: Any = F32) -> Any:
    return np.zeros(shape, dtype)


def test_each_op_knows_the_expression_that_made_it() -> None:
    def f(x: Any, w: Any) -> Any:
        y = ts.ops.exp(x @ w)
        return y.sum(axis=0)

    spans = [record.span for record in traced(f, zeros(2, 3), zeros(3, 4)).tape.records]
    shown = [span.source_line[span.column - 1 : span.end_column - 1] for span in spans if span]
    assert shown == ["x @ w", "ts.ops.exp(x @ w)", "y.sum(axis=0)"]


def test_python_numbers_are_weak() -> None:
    f16 = np.float16
    for number in (2, 2.5, True):
        tape = traced(lambda x, n=number: x * n, zeros(3, dtype=f16)).tape
        assert str(tape.types[tape.outputs[0]]) == "[3] f16"
    tape = traced(lambda x: x + 0.5, zeros(3, dtype=np.int32)).tape
    assert str(tape.types[tape.outputs[0]]) == "[3] f32"
    assert ops(tape) == ["cast", "full", "add"]


def test_widening_that_loses_nothing_is_a_cast_on_the_tape() -> None:
    tape = traced(lambda x, y: x + y, zeros(3, dtype=np.float16), zeros(3)).tape
    assert ops(tape) == ["cast", "add"]
    assert tape.records[0].attributes["dtype"] is ts.f32


def test_an_integer_function_of_floats_casts_first() -> None:
    assert ops(traced(lambda x: ts.ops.exp(x), zeros(3, dtype=np.int8)).tape) == ["cast", "exp"]
    assert ops(traced(lambda x, y: x / y, zeros(3, dtype=np.int8), zeros(3, dtype=np.int8)).tape)[-1] == "div"


def test_numpy_arrays_on_the_left_leave_the_operator_to_us() -> None:
    tape = traced(lambda x: np.ones(3, F32) + x, zeros(3)).tape
    assert ops(tape) == ["add"]
    assert len(tape.inputs) == 2


def test_one_outside_tensor_is_one_input() -> None:
    w = np.ones(3, F32)
    result = traced(lambda x: x * w + w, zeros(3))
    assert len(result.lifted) == 1
    assert result.lifted[0] is w


def test_sizes_are_values_in_arithmetic() -> None:
    tape = traced(lambda x: x.sum(axis=0) / x.shape[0], zeros(3, 2), dynamic=True).tape
    assert ops(tape) == ["sum", "dim_size", "cast", "div"]


def test_shapes_are_numbers_where_static_and_sizes_where_free() -> None:
    seen: list[Any] = []

    def f(x: ts.Tensor["B", 4, ts.f32]) -> Any:
        seen.extend([x.shape, x.ndim, x.size, x.dtype, x.T.shape, len(x.T), repr(x)])
        return x.reshape(x.shape[0] * 2, 2)

    tape = ts.jit(f).trace(zeros(3, 4)).tape
    assert [str(item) for item in seen] == ["(B, 4)", "2", "4*B", "f32", "(4, B)", "4", 'Traced["B", 4, f32]']
    assert str(tape.types[tape.outputs[0]]) == "[2*B, 2] f32"


def test_equal_free_dims_become_one() -> None:
    def f(x: ts.Tensor["B", ts.f32], y: ts.Tensor["C", ts.f32]) -> Any:
        return x + y

    tape = ts.jit(f).trace(zeros(3), zeros(3)).tape
    assert [str(tape.types[value]) for value in tape.inputs] == ["[B] f32", "[B] f32"]
    assert tape.guards == []


def test_what_cannot_be_solved_is_a_guard() -> None:
    def f(x: ts.Tensor["A", "B", ts.f32], y: ts.Tensor["C", "D", ts.f32]) -> Any:
        return x.reshape(-1) + y.reshape(-1)

    (guard,) = ts.jit(f).trace(zeros(2, 3), zeros(3, 2)).tape.guards
    assert {str(guard.left), str(guard.right)} == {"A*B", "C*D"}


@pytest.mark.parametrize(
    "ask",
    [bool, int, float, complex, np.asarray, np.sin, lambda x: x.item(), lambda x: 3 in x, range],
)
def test_a_stand_in_has_no_value(ask: Any) -> None:
    with pytest.raises((TracingError, TypeError)):
        traced(lambda x: (ask(x), x)[1], zeros(2))


def test_a_free_dim_has_no_length() -> None:
    with pytest.raises(SpecializationError):
        traced(lambda x: (len(x), x)[1], zeros(2), dynamic=True)


def test_a_stand_in_cannot_outlive_its_trace() -> None:
    kept: list[Any] = []
    traced(lambda x: (kept.append(x + 1), x)[1], zeros(2))
    for use in (lambda: kept[0] + 1, lambda: traced(lambda x: x + kept[0], zeros(2))):
        with pytest.raises(EscapedTracerError, match="leaked tracer"):
            use()


def test_an_exception_of_the_function_is_its_own() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        traced(f, zeros(2))
    assert ops(traced(lambda x: x + 1, zeros(2)).tape) == ["full", "add"]


def test_effects_are_collected() -> None:
    assert traced(lambda x: x + 1, zeros(2)).effects == frozenset()
    key = np.zeros(2, np.uint64)
    assert traced(lambda x, k: ts.random.uniform(k, x.shape) + x, zeros(2), key).effects == {"random"}


def test_a_policy_says_how_matmuls_accumulate() -> None:
    def f(x: ts.Tensor["M", "K", ts.f32 @ ts.accum(ts.f64)], w: Any) -> Any:
        return ts.ops.gelu(x @ w) @ w.T

    records = ts.jit(f).trace(zeros(2, 3), zeros(3, 4)).tape.records
    assert [r.attributes["accumulate"] for r in records if r.op == "tgraph.matmul"] == [ts.f64, ts.f64]


def test_a_policy_is_conversions_on_the_tape() -> None:
    def f(x: ts.Tensor["N", "N", ts.f32 @ ts.compute(ts.tf32)]) -> Any:
        return x @ x + x

    records = ts.jit(f).trace(zeros(2, 2)).tape.records
    assert [record.op for record in records] == ["tgraph.round_to", "tgraph.round_to", "tgraph.matmul", "tgraph.add"]
    assert [record.attributes.get("format") for record in records[:2]] == ["tf32", "tf32"]


def test_a_dim_named_like_a_coordinate_is_told_apart() -> None:
    def f(x: ts.Tensor["d0", "m1", ts.f32]) -> Any:
        return x.T

    tape = ts.jit(f).trace(zeros(2, 3)).tape
    assert str(tape.types[0]) == "[d0_, m1_] f32"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("view", r"has no attribute `view`: write `x\.reshape\(\.\.\.\)`"),
        ("erf", r"has no attribute `erf`: write `tessera\.ops\.erf\(x\)`"),
        ("no_such", "has no attribute `no_such`$"),
    ],
)
def test_a_method_that_is_not_there_is_told_by_its_name_here(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        traced(lambda x: getattr(x, name)(), zeros(2, 3))
