"""Loops under transforms: loops with a limit of trips backwards, and scans of any length as one body."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DifferentiationError
from tessera.ir.graph.derivatives import control

X, W = np.array([0.5, 1.0, -0.3]), np.array([0.1, 0.2, 0.3])


def grow(limit: Any, x: Any, w: Any) -> Any:
    """Five trips for `X` and `W`, where the limit lets it."""
    return ts.while_loop(
        lambda s: (s * s).sum() < 100.0, lambda s: s * 1.5 + ops.sin(w) * x * s, x, max_trips=limit
    ).sum()


def unrolled(trips: int, x: Any, w: Any) -> Any:
    state = x
    for _ in range(trips):
        state = state * 1.5 + ops.sin(w) * x * state
    return state.sum()


def trips_of(limit: int, x: Any) -> int:
    state, trips = x, 0
    while (state * state).sum() < 100.0 and trips < limit:
        state, trips = state * 1.5 + np.sin(W) * x * state, trips + 1
    return trips


@pytest.mark.parametrize("limit", [0, 1, 4, 5, 6, 40])
def test_a_loop_with_a_limit_is_differentiated_as_its_trips(limit: int) -> None:
    """More trips than the limit do not run; trips that do not run change nothing."""
    trips = trips_of(limit, X)
    loop, plain = (lambda x, w: grow(limit, x, w)), (lambda x, w: unrolled(trips, x, w))
    assert float(ts.jit(loop)(X, W)) == float(ts.jit(plain)(X, W)) == pytest.approx(float(loop(X, W)))
    for found, expected in zip(ts.grad(loop, (0, 1))(X, W), ts.grad(plain, (0, 1))(X, W), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-14)
    (value, found), (_, expected) = (ts.jvp(one, (X, W), (W, X)) for one in (loop, plain))
    assert float(value) == float(ts.jit(plain)(X, W))
    np.testing.assert_allclose(float(found), float(expected), rtol=1e-14)
    np.testing.assert_allclose(
        np.asarray(ts.hessian(loop)(X, W)), np.asarray(ts.hessian(plain)(X, W)), rtol=1e-12, atol=1e-12
    )


def test_each_element_of_a_batch_makes_its_own_trips() -> None:
    several = np.stack([X, 2 * X, 100 * X])
    assert len({trips_of(8, one) for one in several}) == 3
    found = ts.vmap(ts.grad(lambda x, w: grow(8, x, w)), in_axes=(0, None))(several, W)
    each = [np.asarray(ts.grad(lambda x, w: grow(8, x, w))(one, W)) for one in several]
    np.testing.assert_allclose(np.asarray(found), np.stack(each), rtol=1e-13)
    summed = ts.grad(lambda x: ts.vmap(lambda one: grow(8, one, ts.array(W)))(x).sum())(several)
    np.testing.assert_allclose(np.asarray(summed), np.stack(each), rtol=1e-13)


def test_a_limit_may_be_a_size() -> None:
    @ts.jit
    def loop(x: ts.Tensor["N", ts.f64]):
        return ts.while_loop(lambda s: s.sum() < 1e9, lambda s: s * ops.cos(x) * 2.0, x, max_trips=x.shape[0]).sum()

    for size in (1, 3, 6):
        x = np.linspace(0.1, 0.4, size)
        power = (2 * np.cos(x)) ** size
        np.testing.assert_allclose(float(loop(x)), (x * power).sum(), rtol=1e-13)
        expected = power - x * size * power * np.tan(x)
        np.testing.assert_allclose(np.asarray(ts.grad(loop)(x)), expected, rtol=1e-12)


def test_reverse_mode_asks_for_a_limit() -> None:
    with pytest.raises(DifferentiationError, match="max_trips=100"):
        ts.grad(lambda x: grow(None, x, ts.array(W)))(X)
    for limit in (-1, 2.5):
        with pytest.raises(ArgumentError, match="max_trips"):
            ts.jit(lambda x, limit=limit: grow(limit, x, ts.array(W)))(X)


def test_a_body_that_could_not_run_past_the_end_does_not() -> None:
    """The body is not run on a state that ended the loop: an infinite derivative there would be a NaN."""

    def root(x: Any) -> Any:
        return ts.while_loop(lambda s: s > 0.0, lambda s: ops.sqrt(s) - 1.0, x, max_trips=6)

    # 16 -> 3 -> 0.732 -> -0.144, whose root has no value.
    slope = 1 / (8 * np.sqrt(16) * np.sqrt(3) * np.sqrt(np.sqrt(3) - 1))
    np.testing.assert_allclose(float(ts.grad(root)(16.0)), slope, rtol=1e-6)


# Scans: one body, whatever the length.


def recur(x: Any, w: Any, *, unroll: int = 1, reverse: bool = False) -> Any:
    state, rows = ts.scan(
        lambda h, r: (ops.tanh(h * w + r), h * r), ops.zeros((3,), ts.f64), x, unroll=unroll, reverse=reverse
    )
    return (state * state).sum() + (rows * w).sum()


def recur_unrolled(x: Any, w: Any, *, reverse: bool = False) -> Any:
    state, rows = ops.zeros((3,), ts.f64), list[Any]()
    for at in range(x.shape[0])[:: -1 if reverse else 1]:
        rows.append(state * x[at])
        state = ops.tanh(state * w + x[at])
    stacked = ops.stack(rows[::-1] if reverse else rows)
    return (state * state).sum() + (stacked * w).sum()


ROWS = np.random.default_rng(5).standard_normal((7, 3))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_differentiated_as_its_trips(reverse: bool) -> None:
    """By what is scanned bit for bit; sums over trips of what is captured are added in another order."""
    loop, plain = (lambda x, w: recur(x, w, reverse=reverse)), (lambda x, w: recur_unrolled(x, w, reverse=reverse))
    found, expected = (ts.value_and_grad(one, (0, 1))(ROWS, W) for one in (loop, plain))
    assert np.asarray(found[0]).tobytes() == np.asarray(expected[0]).tobytes()
    assert np.asarray(found[1][0]).tobytes() == np.asarray(expected[1][0]).tobytes()
    np.testing.assert_allclose(np.asarray(found[1][1]), np.asarray(expected[1][1]), rtol=1e-14)


def _functions(text: str) -> int:
    return text.count("define ")


def test_one_body_is_compiled_whatever_the_length() -> None:
    gradient = ts.Jit(ts.grad(recur, (0, 1)).function)  # pyright: ignore[reportFunctionMemberAccess]
    texts = [str(gradient.lower(np.ones((length, 3)), W).llvm) for length in (500, 5000)]
    # A longer sum may have a kernel more, which joins what programs have of it.
    assert 0 < _functions(texts[0]) <= _functions(texts[1]) <= _functions(texts[0]) + 2
    assert len(texts[1]) < 1.5 * len(texts[0])


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7])
def test_unrolled_trips_are_the_same_trips(length: int) -> None:
    x = ROWS[:length]
    for reverse in (False, True):
        plain = ts.value_and_grad(lambda x, w, reverse=reverse: recur(x, w, reverse=reverse))(x, W)
        several = ts.value_and_grad(lambda x, w, reverse=reverse: recur(x, w, reverse=reverse, unroll=3))(x, W)
        assert [np.asarray(one).tobytes() for one in plain] == [np.asarray(one).tobytes() for one in several]


def test_a_scan_of_no_rows_gives_its_state_and_no_rows() -> None:
    def loop(x: Any) -> Any:
        return ts.scan(lambda s, r: (s + r, {"y": s * r}), X, x)

    compiled: Any = ts.jit(loop)
    for state, rows in (loop(ROWS[:0]), compiled(ROWS[:0])):
        np.testing.assert_array_equal(np.asarray(state), X)
        assert np.asarray(rows["y"]).shape == (0, 3)
    np.testing.assert_array_equal(np.asarray(ts.grad(lambda x: recur(x, ts.array(W)))(ROWS[:0])), np.zeros((0, 3)))


def test_a_scan_of_a_symbolic_length_may_be_unrolled() -> None:
    @ts.jit
    def loop(x: ts.Tensor["N", 3, ts.f64], w: ts.Tensor[3, ts.f64]):
        return recur(x, w, unroll=2)

    for length in (0, 1, 2, 5):
        assert float(loop(ROWS[:length], W)) == float(recur(ROWS[:length], W))
    with pytest.raises(ArgumentError, match="`unroll` from 1, got 0"):
        recur(ROWS, W, unroll=0)


def test_bodies_in_bodies_are_linearized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that starts from a constant carries tangents all the same: that is found before its body is linearized."""
    calls: list[Any] = []
    real = control.linearize
    monkeypatch.setattr(control, "linearize", lambda tape, active: calls.append(active) or real(tape, active))

    def nest(depth: int, state: Any, x: Any) -> Any:
        if not depth:
            return ops.tanh(state * x[0])
        step = lambda h, r: (nest(depth - 1, h, x) + r, ())  # noqa: E731
        return ts.scan(step, ops.zeros((3,), ts.f64), x)[0] + state

    ts.grad(lambda x: nest(4, ops.zeros((3,), ts.f64), x).sum())(ROWS)
    assert len(calls) == 4


def test_a_count_of_rounds_below_zero_is_none_backwards_too() -> None:
    @ts.jit
    def step(x: ts.Tensor["N", ts.f64]):
        return ts.grad(lambda x: ts.fori_loop(0, x.shape[0] - 5, lambda i, c: c * 2.0, x).sum())(x)

    for length in (0, 3, 5, 7):
        expected = np.full(length, 2.0 ** max(length - 5, 0))
        np.testing.assert_array_equal(np.asarray(step(np.ones(length))), expected)


def test_ops_in_a_loop_of_so_many_trips_are_decomposed() -> None:
    """Such a loop is made into one that counts its trips: what is in its body is new, and has to be looked at too."""

    def draw(key: Any) -> Any:
        def step(state: tuple[Any, Any]) -> tuple[Any, Any]:
            return state[0] + 1, ops.maximum(state[1], ts.random.uniform(ts.random.fold(key, state[0]), (4,)))

        return ts.while_loop(lambda s: s[1].min() < 0.9, step, (ops.full((), 0), ts.zeros((4,))), max_trips=50)[1]

    key = ts.random.key(3)
    np.testing.assert_array_equal(np.asarray(ts.jit(draw)(key)), np.asarray(draw(key)))
