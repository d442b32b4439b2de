"""A6: derivatives and effects: across io only with a rule, and neither io nor state is run again backwards."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DifferentiationError

X = np.array([1.0, 2.0, 3.0], np.float32)
K = np.random.default_rng(0).standard_normal((1, 1, 2, 4)).astype(np.float32)


def ask(x: Any) -> Any:
    return ts.io_callback(lambda a: np.asarray(a) * 2, x, result=x)


ACROSS: dict[str, Callable[[Any], Any]] = {
    "op": lambda x: ask(x * x).sum(),
    "loop": lambda x: ts.scan(lambda c, row: (c + ask(row), ()), ops.zeros(()), x)[0],
    "branch": lambda x: ts.cond(x.sum() > 0, lambda a: ask(a).sum(), lambda a: a.sum(), x),
    "checkpoint": lambda x: ts.checkpoint(lambda a: ask(a).sum())(x),
    "batch": lambda x: ts.vmap(ask)(x).sum(),
}


@pytest.mark.parametrize("name", ACROSS)
def test_a6_a_derivative_across_io_is_refused_by_its_effect_and_line(name: str) -> None:
    ways = [ts.grad(ACROSS[name]), ts.jit(ts.grad(ACROSS[name])), lambda x: ts.jvp(ACROSS[name], (x,), (x,))]
    for way in ways:
        with pytest.raises(
            DifferentiationError, match="`io_callback` has no derivative: it has the effect `io`"
        ) as caught:
            way(X)
        assert caught.value.span is not None
        assert "stop_gradient" in str(caught.value)
        assert "def ask" not in str(caught.value)
        assert "ts.io_callback(lambda a" in str(caught.value), "the line is that of the call"


def test_a6_io_with_a_rule_is_differentiated_by_it_and_asked_once() -> None:
    asked: list[Any] = []

    def double(a: Any) -> Any:
        asked.append(np.asarray(a).tolist())
        return np.asarray(a) * 2

    @ts.custom_vjp
    def measured(x: Any) -> Any:
        return ts.io_callback(double, x, result=x)

    measured.defvjp(lambda x: (measured(x), ()), lambda kept, g: (2.0 * g,))
    for gradient in (
        ts.grad(lambda x: (measured(x) ** 2.0).sum()),
        ts.jit(ts.grad(lambda x: (measured(x) ** 2.0).sum())),
    ):
        asked.clear()
        np.testing.assert_array_equal(np.asarray(gradient(X)), 8 * X)
        assert asked == [X.tolist()]


def test_a6_what_is_constant_may_come_from_io() -> None:
    loss = lambda x: (ask(ts.stop_gradient(x)) * x).sum()  # noqa: E731
    np.testing.assert_array_equal(np.asarray(ts.grad(loss)(X)), 2 * X)


def test_a6_io_without_results_happens_once_and_in_order() -> None:
    seen: list[float] = []

    def note(x: Any) -> None:
        ts.io_callback(lambda a: seen.append(float(np.asarray(a).sum())), x)

    def loss(x: Any) -> Any:
        note(x)
        y = ts.checkpoint(lambda a: (note(a * 2.0), ops.sin(a) * a)[1])(x)
        note(y * 0.0)
        return (y * y).sum()

    alone = ts.grad(lambda x: ((ops.sin(x) * x) ** 2.0).sum())(X)
    for gradient in (ts.grad(loss), ts.jit(ts.grad(loss))):
        seen.clear()
        np.testing.assert_allclose(np.asarray(gradient(X)), np.asarray(alone), rtol=1e-6)
        assert seen == [6.0, 12.0, 0.0]


def test_a6_an_append_is_a_version_of_the_cache_and_is_not_run_again() -> None:
    def loss(k: Any) -> Any:
        first = ts.KVCache.empty(1, 1, 8, 4, ts.f32).append(k, k)
        second = first.append(k * 2.0, k * 3.0)
        # The version from before still has what it had.
        return (first.K**2.0).sum() + (second.K**2.0).sum() + (second.V**3.0).sum(), second

    wanted = 2 * K + (2 * K + 8 * K) + (3 * K**2 + 81 * K**2)
    gradient = ts.jit(ts.grad(loss, has_aux=True))
    found, cache = gradient(K)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
    assert int(cache.length) == 4
    np.testing.assert_array_equal(np.asarray(cache.K)[:, :, :4], np.concatenate([K, 2 * K], axis=2))
    ops_run = Counter(record.op for record in gradient.trace(K).tape.records)
    alone = Counter(record.op for record in ts.jit(loss).trace(K).tape.records)
    assert ops_run["tgraph.kv_append"] == alone["tgraph.kv_append"] == 2
    again, _ = ts.grad(lambda k: ts.checkpoint(loss)(k), has_aux=True)(K)
    np.testing.assert_allclose(np.asarray(again), wanted, rtol=1e-5)


def test_a6_random_draws_are_those_of_the_forward_pass() -> None:
    def loss(x: Any, key: Any) -> Any:
        return (ts.random.dropout(x, key, 0.5) * X).sum()

    key = ts.random.key(3)
    kept = np.asarray(ts.random.dropout(np.ones(3, np.float32), key, 0.5))
    for function in (loss, ts.checkpoint(loss)):
        np.testing.assert_array_equal(np.asarray(ts.grad(function)(X, key)), kept * X)


def test_a6_linear_functions_keep_their_python_functions_in_other_traces() -> None:
    """What `vjp` and `linearize` give is called by other programs, which call Python functions of their own."""

    @ts.custom_vjp
    def double(x: Any) -> Any:
        return x * 2.0

    back = lambda kept, g: (ts.cond(g.sum() > 0.0, ask, lambda a: a, g),)  # noqa: E731
    double.defvjp(lambda x: (x * 2.0, ()), back)
    _, pull = ts.vjp(double, X)
    other = lambda g: ts.io_callback(lambda a: np.asarray(a) * 0 - 7, g, result=g)  # noqa: E731

    def step(g: Any) -> Any:
        return [other(g), other(g), other(g), pull(g)[0], pull(other(g))[0], ts.vjp(double, g)[1](g)[0]]

    found = [np.asarray(one).tolist() for one in ts.jit(step)(X)]
    minus, twice = [-7.0] * 3, (2 * X).tolist()
    assert found == [minus, minus, minus, twice, minus, twice]
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(pull(X)[0]), 2 * X)


SEEN: list[float] = []


def note_sum(x: Any) -> Any:
    ts.io_callback(lambda a: SEEN.append(float(np.asarray(a))), x.sum())
    return x


def grow(x: Any) -> Any:
    return ts.while_loop(lambda s: s.sum() < 50.0, lambda s: note_sum(s) * 2.0, x)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "while": grow,
    "condition": lambda x: ts.while_loop(lambda s: note_sum(s).sum() < 50.0, lambda s: s * 2.0, x),
    "fori": lambda x: ts.fori_loop(0, ops.cast(x.sum(), ts.i32), lambda i, s: note_sum(s) * 2.0, x),
    "while in while": lambda x: ts.while_loop(lambda s: s.sum() < 90.0, lambda s: grow(note_sum(s)) * 2.0, x),
    "while in scan": lambda x: ts.scan(lambda c, row: (grow(c * row) * 0.1, ()), x, x)[0],
    "while in branch": lambda x: ts.cond(x.sum() > 0.0, grow, lambda a: a, x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a6_effects_of_loops_happen_once_in_forward_mode(name: str) -> None:
    run = LOOPS[name]
    SEEN.clear()
    ts.jit(run)(X)
    alone = list(SEEN)
    assert len(alone) > 1
    for way in (
        lambda: ts.jvp(run, (X,), (X,)),
        lambda: ts.jvp(lambda x: ts.jvp(run, (x,), (x,))[1], (X,), (X,)),
        lambda: ts.jacfwd(run)(X),
        lambda: ts.linearize(run, X)[1](X),
    ):
        SEEN.clear()
        way()
        assert alone == SEEN


def test_a6_a_loop_that_takes_values_from_io_runs_once_or_is_refused() -> None:
    def run(x: Any) -> Any:
        return ts.while_loop(lambda s: s.sum() < 20.0, lambda s: s + ask(ts.stop_gradient(note_sum(s))), x)

    SEEN.clear()
    np.testing.assert_array_equal(np.asarray(ts.jvp(run, (X,), (X,))[1]), X)
    assert SEEN == [6.0, 18.0]
    for way in (ts.jacfwd(run), lambda x: ts.linearize(run, x)):
        with pytest.raises(DifferentiationError, match="effect `io`, which would happen twice") as caught:
            way(X)
        assert caught.value.code == "T0306"
        assert caught.value.span is not None


def test_a6_a_function_with_both_rules_has_its_effects_once() -> None:
    def double(x: Any) -> Any:
        return note_sum(x) * 2.0

    def pair(rule: Callable[[Any, Any], Any]) -> Any:
        made = ts.custom_vjp(lambda x: double(x))
        made.defvjp(lambda x: (double(x), ()), lambda kept, g: (2.0 * g,))
        made.defjvp(rule)
        return made

    function = pair(lambda p, t: (double(p[0]), 2.0 * t[0]))
    in_loop = lambda x: ts.scan(lambda c, _: (function(c), ()), x, length=1)[0]  # noqa: E731
    for way in (
        lambda: ts.jvp(function, (X,), (X,))[1],
        lambda: ts.linearize(function, X)[1](X),
        lambda: ts.jacfwd(function)(X) @ X,
        lambda: ts.grad(lambda x: (function(x) * X).sum())(X),
        lambda: ts.jvp(in_loop, (X,), (X,))[1],
    ):
        SEEN.clear()
        np.testing.assert_array_equal(np.asarray(way()), 2 * X)
        assert SEEN == [6.0]

    noting = pair(lambda p, t: (double(p[0]), 2.0 * t[0] + note_sum(0.0 * t[0])))
    SEEN.clear()
    np.testing.assert_array_equal(np.asarray(ts.jvp(noting, (X,), (X,))[1]), 2 * X)
    assert SEEN == [6.0, 0.0]  # what is of tangents is no effect of the forward pass

    asking = pair(lambda p, t: (double(p[0]), ask(p[0]) * t[0]))
    np.testing.assert_array_equal(np.asarray(ts.grad(lambda x: asking(x).sum())(X)), [2.0] * 3)
    with pytest.raises(
        DifferentiationError, match="take a value from `io_callback`, which has the effect `io`"
    ) as caught:
        ts.jvp(asking, (X,), (X,))
    assert caught.value.code == "T0306"
