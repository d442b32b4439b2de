"""Python numbers as operands: flags are bools, integers stay exact, and what is out of range is refused."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, DeterminismError, OperatorError, ShapeError

FLAGS = np.array([True, False])
LARGE = 2**53 + 1


def result(function: Any, *arguments: Any) -> Any:
    made: Any = ts.jit(function, backend="reference")
    return made(*arguments).tolist()


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: x & True, [True, False]),
        (lambda x: x | True, [True, True]),
        (lambda x: x == False, [False, True]),  # noqa: E712 - the flag is what is looked at
        (lambda x: ts.ops.logical_and(x, True), [True, False]),
        (lambda x: ts.ops.where(x, False, True), [False, True]),
        (lambda x: ts.ops.full((2,), True), [True, True]),
        (lambda x: ts.ops.zeros((1,), "bool"), [False]),
        (lambda x: ts.ops.pad(x, [(1, 0)], value=True), [True, True, False]),
        (lambda x: ts.cond(x[0], lambda: True, lambda: False), True),
    ],
)
def test_flags_are_operands(function: Any, wanted: Any) -> None:
    assert result(function, FLAGS) == wanted


def test_flags_of_tensors_with_data() -> None:
    assert ts.full((2,), True).tolist() == [True, True]
    assert ts.zeros((2,), "bool").tolist() == [False, False]
    assert (ts.array(FLAGS) & True).tolist() == [True, False]
    assert result(lambda x: x + True, np.array([1, 2])) == [2, 3]


def test_whole_numbers_that_no_float_holds_stay_exact() -> None:
    zero = np.zeros(1, np.int64)
    assert result(lambda x: x + LARGE, zero) == [LARGE]
    assert result(lambda x: ts.ops.full((1,), 2**63 - 1, "i64"), zero) == [2**63 - 1]
    assert result(lambda x: ts.ops.pad(x, [(0, 1)], value=LARGE), zero) == [0, LARGE]
    compiled: Any = ts.jit(lambda x: ts.ops.pad(x + LARGE, [(0, 1)], value=LARGE))
    assert compiled(zero).tolist() == [LARGE, LARGE]


def test_a_loop_takes_a_condition_that_is_known() -> None:
    x = np.ones(2, np.float32)
    assert result(lambda x: ts.while_loop(lambda s: False, lambda s: s * 2.0, x), x) == [1, 1]


@pytest.mark.parametrize("seed", [1 << 64, -1, 1 << 70])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    for use in (ts.random.key, ts.random.run):
        with pytest.raises(ArgumentError, match=r"`seed` from 0 to 2\^64 - 1") as caught:
            use(seed)
        assert str(seed % 2**64) in str(caught.value)
    with pytest.raises(DeterminismError, match=r"an int from 0 to 2\^64 - 1"):
        ts.deterministic(seed=seed)
    with pytest.raises(DeterminismError, match=r"an int from 0 to 2\^64 - 1"):
        ts.effects.seeded(seed)


def test_the_largest_seed_is_one() -> None:
    assert ts.random.key(2**64 - 1).tolist() == [2**64 - 1, 0]


def test_tensors_with_data_do_not_change() -> None:
    x: Any = ts.array([1.0, 2.0])
    with pytest.raises(OperatorError, match="tensors do not change") as caught:
        x[0] = 3.0
    assert "x = x.at[0].set(3.0)" in str(caught.value)
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "form", "what"),
    [
        (np.ones(2, np.float32), "{:d}", "elements of f32"),
        (np.ones(2, np.int32), "{:s}", "elements of i32"),
        (np.ones(2, np.bool_), "{:q}", "elements of bool"),
    ],
)
def test_a_format_that_elements_do_not_have_is_refused_while_tracing(value: Any, form: str, what: str) -> None:
    def f(x: Any) -> Any:
        ts.debug_print(form, x)
        return x

    with pytest.raises(ArgumentError, match=f"cannot show {what} as `{form}`"):
        ts.jit(f, backend="reference").trace(value)
    with pytest.raises(ArgumentError, match=r"`debug_print` cannot show 1\.5 as `{:d}`"):
        ts.debug_print("{:d}", 1.5)


def test_formats_that_elements_have() -> None:
    def f(x: Any, n: Any, flag: Any) -> Any:
        ts.debug_print("{:.3f} {:5d} {:03x} {} {:>8}", x, n, n, flag, flag)
        return x

    assert ts.jit(f, backend="reference").trace(np.ones(1, np.float32), np.ones(1, np.int8), FLAGS).tape.records


@pytest.mark.parametrize(
    ("condition", "help"), [(lambda s: s.sum(), "compare it"), (lambda s: s > 0, "`any` or `all`")]
)
def test_a_condition_that_decides_nothing_says_what_to_write(condition: Any, help: str) -> None:
    with pytest.raises(ShapeError, match="`while_loop` needs a scalar of bool to decide") as caught:
        result(lambda x: ts.while_loop(condition, lambda s: s, x), np.ones(2, np.float32))
    assert help in str(caught.value)
