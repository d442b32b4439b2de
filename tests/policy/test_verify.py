"""Promises about numbers: intervals are sound, what can go wrong is named before it runs, the rest while it runs."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.backends.reference.compile import run_tape
from tessera.diagnostics.codes import NumericsError, RangeError
from tessera.ir.base.interval import Interval
from tessera.ir.base.tape import Tape
from tessera.ir.graph.tape_analysis import find_unproved, infer_intervals
from tests.scalar_table import FUNCTION_OF_OP

X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def proved(function: Any, **rules: Any) -> bool:
    """Whether nothing but the arguments is left to check while the function runs."""
    checked = ts.verify.numerics(debug=True, **rules)(function)
    _, _, places = checked.jitted(X)
    return all(" " in place for place in places.splitlines())


def test_n10_a_value_that_can_leave_its_bound_is_named() -> None:
    @ts.verify.numerics(stable=True, bounded=[-100, 100])
    def square(x: Any) -> Any:
        y = ops.tanh(x)
        return x * x + y

    with pytest.raises(RangeError, match=r"`mul` can give \[0, 10000\], outside of \[-100, 100\]") as caught:
        square(X)
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip() == "return x * x + y"
    assert "`x` lies in [-100, 100]" in caught.value.notes[0]


def test_n10_what_stays_in_its_bound_runs_unwatched() -> None:
    @ts.verify.numerics(stable=True, bounded=[-100, 100])
    def squash(x: Any) -> Any:
        return ops.tanh(x) * 50.0 + ops.softmax(x)

    assert isinstance(squash, ts.Jit)
    np.testing.assert_allclose(np.asarray(squash(X)), np.tanh(X) * 50 + np.asarray(ops.softmax(X)), rtol=1e-6)
    assert proved(lambda x: ops.clamp(x * x, 0.0, 50.0), bounded=[-100, 100], inputs={"x": [-9, 9]})
    assert proved(lambda x: ops.relu(x).sum(), bounded=[-400, 400], inputs={"x": [-100, 99]})
    assert not proved(lambda x: x - x, bounded=[-100, 100])


def test_n10_what_cannot_be_proved_is_checked_while_it_runs() -> None:
    @ts.verify.numerics(bounded=[-100, 100], debug=True)
    def apart(x: Any, y: Any) -> Any:
        positive = ops.where(x > 0, x, -x)
        return positive * 30.0, y

    kept, _ = apart(X * 0.5, X)
    np.testing.assert_array_equal(np.asarray(kept), X * 15)
    with pytest.raises(NumericsError, match=r"`mul` gives 120, outside of \[-100, 100\]") as caught:
        apart(X, X)
    assert caught.value.span is not None
    assert "positive * 30.0" in caught.value.span.source_line


def test_a_debug_build_checks_what_cannot_be_proved() -> None:
    def apart(x: Any, y: Any) -> Any:
        return x / y

    far = np.array([[1, 2], [0.001, 1]], np.float32)
    verified = ts.verify.numerics(bounded=[-100, 100])
    assert verified(ts.jit(apart))(X, far).shape == (2, 2)
    with pytest.raises(NumericsError, match=r"`div` gives .*, outside of \[-100, 100\]"):
        verified(ts.jit(apart, debug=True))(X, far)


def test_overflow_of_a_narrow_type_is_named() -> None:
    def grow(x: Any) -> Any:
        return ops.exp(x.cast(ts.f16))

    with pytest.raises(RangeError, match=r"`exp` can give .*, and the largest f16 is 65504"):
        ts.verify.numerics(stable=True, inputs={"x": [0, 20]})(grow)(X)
    assert np.isfinite(np.asarray(ts.verify.numerics(stable=True, inputs={"x": [0, 10]})(grow)(X)).astype("f4")).all()


def test_b3_the_first_op_that_is_not_finite_is_named_not_the_last() -> None:
    @ts.verify.finite
    def step(x: Any, w: Any) -> Any:
        hidden = ops.relu(x @ w)
        scores = ops.log(hidden)
        spread = scores - scores.max(axis=1, keepdims=True)
        return ops.exp(spread).sum()

    w = np.array([[1.0, -1.0], [1.0, -1.0]], np.float32)
    assert np.isfinite(float(np.asarray(step(X, np.abs(w)))))
    with pytest.raises(NumericsError, match="`log` gives -inf, the first value that is not finite") as caught:
        step(X, w)
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip() == "scores = ops.log(hidden)"
    assert "the tensor is [2, 2] f32" in caught.value.notes
    assert any("`relu`" in note for note in caught.value.notes)


def test_b3_a_nan_that_comes_in_is_named_where_it_is_first_used() -> None:
    bad = X.copy()
    bad[1, 1] = np.nan
    with pytest.raises(NumericsError, match="`mul` gives nan"):
        ts.verify.finite(lambda x: ops.sum(x * 2.0))(bad)


def test_a_range_has_its_ends_in_order() -> None:
    with pytest.raises(RangeError, match=r"`bounded` is a range \[low, high\], got \[1, -1\]"):
        ts.verify.numerics(bounded=[1, -1])


FLOAT_OPS = {name: one for name, one in FUNCTION_OF_OP.items() if "f32" in one.dtypes and not one.is_predicate}
UNARY = tuple(name for name, function in FLOAT_OPS.items() if function.arity == 1)
MORE = ("gelu", "softmax", "log_softmax", "mean", "flip")
BINARY = tuple(name for name, function in FLOAT_OPS.items() if function.arity == 2)
Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(UNARY + MORE + BINARY), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6
)


def applied(values: list[Any], step: Step) -> Any:
    name, left, right = step
    x, y = values[left % len(values)], values[right % len(values)]
    if name in BINARY:
        return getattr(ops, name)(x, y)
    if name == "mean":
        return ops.mean(x, axis=1, keepdims=True) + x * 0.0
    return ops.flip(x, 0) if name == "flip" else getattr(ops, name)(x)


def traced(program: list[Step]) -> Tape:
    def f(x: Any, y: Any) -> Any:
        values = [x, y]
        for step in program:
            values.append(applied(values, step))
        return tuple(values[2:])

    return ts.jit(f).trace(np.ones((3, 5), np.float32), np.ones((3, 5), np.float32)).tape


@settings(max_examples=60)
@given(steps, st.floats(-50, 50, width=32), st.floats(0, 50, width=32), st.integers(0, 1000))
def test_every_value_lies_in_its_interval(program: list[Step], low: float, width: float, seed: int) -> None:
    tape = traced(program)
    high = float(np.float32(low + width))
    limits = Interval(low, high, is_reached=True)
    known = infer_intervals(tape, dict.fromkeys(tape.inputs, limits))
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(low, high, (3, 5)).astype(np.float32).clip(low, high) for _ in range(2)]
    arrays[0].flat[:2] = low, high
    with np.errstate(all="ignore"):
        results = run_tape(tape, arrays)
    for value, result in zip(tape.outputs, results, strict=True):
        found, wide = known[value], np.asarray(result).astype(np.float64)
        assert found.may_be_nan or not np.isnan(wide).any(), (program, found)
        inside = np.isnan(wide) | ((wide >= found.low) & (wide <= found.high))
        assert inside.all(), (program, str(found), wide)


def unproved(function: Any, *arguments: Any, bounded: Any = None, **inputs: Any) -> list[str]:
    """The ops whose values are not proved."""
    jitted: Any = ts.jit(function)
    tape = jitted.trace(*arguments).tape
    return [tape.records[number].op.split(".")[1] for number in find_unproved(tape, bounded, inputs)]


def test_without_a_bound_values_are_held_to_their_dtype() -> None:
    half = X.astype(np.float16)
    assert unproved(lambda x: x * x, X, x=(-1e10, 1e10)) == []
    assert unproved(lambda x: ops.exp(x), X) == ["exp"]
    assert unproved(lambda x: ops.tanh(x) + 1.0, X) == []
    assert unproved(lambda x, n: (x * x, n * n), X, np.arange(3), x=(-2.0, 2.0)) == []
    with pytest.raises(RangeError, match=r"`mul` can give .*, and the largest f16 is 65504"):
        unproved(lambda x: x * x, half, x=(-300.0, 300.0))
    assert unproved(lambda x: x * x, half, x=(-255.0, 255.0)) == []


def test_what_leaves_its_bound_by_a_rounding_alone_is_not_refuted() -> None:
    assert unproved(lambda x: x * 1.0, X, bounded=(-100.0, 100.0)) in ([], ["mul"])
    assert unproved(lambda x: x + 0.00001, X, bounded=(-100.0, 100.0)) == ["add"]
    for moved in (lambda x: x + 0.01, lambda x: x - 0.01):
        with pytest.raises(RangeError, match="outside of"):
            unproved(moved, X, bounded=(-100.0, 100.0))


def test_a_literal_may_be_the_largest_number() -> None:
    largest = float(np.finfo(np.float32).max)
    for literal, expected in ((largest, []), (-largest, []), (1000.0, [])):
        found = unproved(lambda x, literal=literal: ops.minimum(x, literal), X, bounded=(-100.0, 100.0))
        assert [name for name in found if name == "full"] == expected, literal


@pytest.mark.parametrize(
    ("dtype", "literal", "shown"),
    [(np.float16, 7e4, "inf"), (np.float16, -7e4, "-inf"), (np.float32, 1e39, "inf"), (np.float32, -np.inf, "-inf")],
)
def test_a_literal_that_its_dtype_does_not_hold_is_named(dtype: Any, literal: float, shown: str) -> None:
    with pytest.raises(RangeError, match=rf"`full` can give \[{shown}, {shown}\], outside of \[-100, 100\]"):
        unproved(lambda x: ops.minimum(x, literal), X.astype(dtype), bounded=(-100.0, 100.0))


def test_numbers_that_stand_in_a_program_are_not_held_to_its_bound() -> None:
    small = ts.verify.numerics(bounded=[-100, 100])(lambda x: x / 1000.0)
    np.testing.assert_allclose(np.asarray(small(np.array([50.0], np.float32))), [0.05])
    with pytest.raises(RangeError, match=r"`mul` can give \[-100000, 100000\], outside of \[-100, 100\]"):
        ts.verify.numerics(bounded=[-100, 100])(lambda x: x * 1000.0)(np.zeros(3, np.float32))
    with pytest.raises(RangeError, match="`full` can give"):
        ts.verify.numerics(bounded=[-100, 100])(lambda x: ops.full((3,), 1000.0) * x)(np.zeros(3, np.float32))


@pytest.mark.parametrize("outer", [lambda call: call, lambda call: ts.jit(lambda x: call(x))], ids=["alone", "inside"])
def test_a_number_that_is_the_result_is_held_to_the_bound(outer: Any) -> None:
    wrong = outer(ts.verify.numerics(bounded=[-1, 1])(lambda x: (x, ops.full((), 5.0))))
    with pytest.raises(RangeError, match=r"`full` can give \[5, 5\], outside of \[-1, 1\]"):
        wrong(np.zeros(3, np.float32))


def test_a_verified_function_inside_of_another_is_proved_by_itself() -> None:
    inner = ts.verify.numerics(bounded=[-4, 4], inputs={"y": [-2, 2]})(lambda y: y * 2.0)
    outer = ts.jit(lambda x: inner(ops.clamp(x * 1000.0, -2.0, 2.0)) * 1000.0)
    assert np.asarray(outer(np.array([1.0], np.float32))).tolist() == [4000.0]
    assert "numerics.bounded" not in outer.lower(np.zeros(3, np.float32)).graph
    assert "numerics.bounded" in inner.lower(np.zeros(3, np.float32)).graph
    wrong = ts.verify.numerics(bounded=[-4, 4], inputs={"y": [-2, 2]})(lambda y: y * 3.0)
    for call in (lambda x: wrong(x), lambda x: wrong(x + 1.0)):
        with pytest.raises(RangeError, match=r"`mul` can give \[-6, 6\], outside of \[-4, 4\]"):
            ts.jit(call)(np.zeros(3, np.float32))


def test_what_is_watched_is_refused_where_nobody_would_look() -> None:
    watched = ts.verify.finite(lambda x: ops.log(x))
    with pytest.raises(RangeError, match="nothing would look at it") as caught:
        ts.jit(lambda x: watched(x))(np.zeros(3, np.float32))
    assert "outermost function" in str(caught.value)


def test_an_interval_with_nan_is_within_no_bound() -> None:
    assert Interval(0.0, 1.0).is_within(0.0, 1.0)
    assert not Interval(0.0, 1.0, may_be_nan=True).is_within(0.0, 1.0)
    assert not Interval(-0.1, 1.0).is_within(0.0, 1.0)
    assert not Interval(0.0, 1.1).is_within(0.0, 1.0)
    root = ts.verify.numerics(bounded=[-4, 4], debug=True)(lambda x: ops.sqrt(x))
    assert np.asarray(root(np.ones(3, np.float32))).tolist() == [1.0] * 3
    with pytest.raises(NumericsError):
        root(np.array([1.0, -1.0], np.float32))
