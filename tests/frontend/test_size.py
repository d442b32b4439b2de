"""Sizes of dynamic dims: arithmetic stays symbolic, and only questions with one answer are answered."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import ShapeError, SpecializationError
from tessera.frontend.size import Size, size_of
from tessera.types.dim import Dim

B, S = Size(Dim.symbol("B")), Size(Dim.symbol("S"))


def test_arithmetic_gives_sizes_and_plain_ints() -> None:
    assert str((B + 1) * S - S) == "B*S"
    assert B * 4 // 4 == B
    assert B - B == 0
    assert isinstance(B - B + 3, int)
    assert str(2 + B) == str(B + 2) == "B + 2"
    assert str(10 - B) == "-B + 10"
    assert str(B % 8) == "(B % 8)"
    assert size_of(Dim.constant(7)) == 7


@pytest.mark.parametrize("divide", [lambda: B // 0, lambda: B % 0, lambda: (B + S) // (S - S)])
def test_a_size_divided_by_zero_is_refused(divide: Any) -> None:
    with pytest.raises(ShapeError, match="is divided by 0"):
        divide()
    assert str(6 // B) == "(6 // B)"


def test_comparisons_that_hold_for_all_sizes_are_answered() -> None:
    assert B + 1 > B
    assert B >= 0
    assert not B + 1 <= 0
    assert B + 1 != 0
    assert bool(B + 1)
    assert B + 1 != B
    assert B * S + 1 > 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda: B == 1,
        lambda: B == 0,
        lambda: bool(B),
        lambda: B > 4,
        lambda: B == S,
        lambda: int(B),
        lambda: float(B),
        lambda: range(B),
        lambda: [0] * B,
        lambda: B / 2,
        lambda: B < S,
    ],
)
def test_a_question_about_the_value_is_refused(ask: Any) -> None:
    with pytest.raises(SpecializationError):
        ask()


@given(st.integers(-3, 3), st.integers(-5, 5), st.integers(-5, 5), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
def test_an_answer_is_right_for_every_value(factor: int, offset: int, bound: int, operator: str) -> None:
    size = B * factor + offset
    try:
        answer = eval(f"size {operator} bound", {"size": size, "bound": bound})
    except SpecializationError:
        return
    for value in range(6):
        assert eval(f"{factor * value + offset} {operator} {bound}") == answer


@pytest.mark.parametrize(
    "with_float",
    [
        lambda: S * 0.5,
        lambda: 0.5 + S,
        lambda: 1.0 / S,
        lambda: S / 2.0,
        lambda: S**-0.5,
        lambda: S**-1,
        lambda: 2.0**S,
    ],
)
def test_a_size_is_no_number_for_floats_and_says_what_to_write(with_float: Callable[[], Any]) -> None:
    with pytest.raises(SpecializationError, match="`S` is a symbolic dim and cannot be") as caught:
        with_float()
    assert caught.value.fix is not None


def test_a_small_power_of_a_size_is_a_size() -> None:
    assert (S**0, S**1, S**2) == (1, S, S * S)
    with pytest.raises(SpecializationError):
        _ = S**9


def test_a_size_becomes_a_scalar_by_a_cast() -> None:
    @ts.jit
    def scaled(x: ts.Tensor["N", ts.f32]) -> Any:
        return x * ts.ops.cast(x.shape[0], ts.f32) ** -0.5

    assert scaled(ts.ones(4)).tolist() == [0.5] * 4
    assert scaled(ts.ones(16)).tolist() == [0.25] * 16
