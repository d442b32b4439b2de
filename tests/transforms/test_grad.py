"""Gradients by the public functions, compiled for the CPU: against central differences, in all modes and nestings."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import gc
import inspect
import re
import weakref
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.options import Options
from tessera.diagnostics.codes import ArgumentError, DifferentiationError, PytreeError, RuntimeArgumentError

RNG = np.random.default_rng(7)
X, W, V = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 3)), RNG.standard_normal(3)
ROWS = np.array([1, 1, 3])


def central(function: Callable[..., Any], values: list[Any], step: float = 1e-6) -> list[Any]:
    """The gradient of a jitted function by central differences."""
    run = ts.jit(function)
    found: list[Any] = []
    for at, value in enumerate(values):
        slope = np.zeros(value.shape)
        for place in np.ndindex(*value.shape):
            moved = [[one.copy() for one in values] for _ in range(2)]
            moved[0][at][place] += step
            moved[1][at][place] -= step
            slope[place] = (float(run(*moved[0])) - float(run(*moved[1]))) / (2 * step)
        found.append(slope)
    return found


def recur(x: Any, w: Any) -> Any:
    state, rows = ts.scan(lambda h, r: (ops.tanh(h @ w + r), (h * r).sum()), ops.zeros((3,), ts.f64), x)
    return (state * state).sum() + rows.sum()


def recur_back(x: Any, w: Any) -> Any:
    state, rows = ts.scan(lambda h, r: (ops.tanh(h @ w + r), h * r), w[0], x, reverse=True)
    return (state * state).sum() + (rows * rows).sum()


def nested(x: Any, w: Any) -> Any:
    def inner(c: Any, r: Any) -> Any:
        return ts.scan(lambda d, q: (d * ops.cos(q) + c.sum(), ()), r.sum(), w[0])[0]

    return ts.scan(lambda c, r: (inner(c, r) * c, c), w[1], x)[0].sum()


def branching_rows(x: Any, w: Any) -> Any:
    def step(c: Any, r: Any) -> Any:
        return ts.cond(r.sum() > 0, lambda: c * r.sum(), lambda: ops.sin(c)), c.sum()

    return ts.scan(step, w[2], x)[0].sum()


def heads(x: Any) -> Any:
    return x.reshape((1, 2, 3, 2))


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "then": (lambda x, w: ts.cond(x.sum() < 100, lambda: ops.sin(x @ w).sum(), lambda: (x * x).sum()), [X, W]),
    "otherwise": (lambda x, w: ts.cond(x.sum() > 100, lambda: (x @ w).sum(), lambda: (x * x).sum() * w[0, 0]), [X, W]),
    "scan": (recur, [X, W]),
    "scan from the end": (recur_back, [X, W]),
    "scan in scan": (nested, [X, W]),
    "cond in scan": (branching_rows, [X, W]),
    "fori": (lambda x, w: ts.fori_loop(0, 4, lambda i, h: ops.sin(h @ w) + x[i], x[0]).sum(), [X, W]),
    "index": (lambda x: (x[np.array([0, 2, 2])] * x[1:4]).sum(), [X]),
    "strided": (lambda x: (x[::2] * x[3:0:-2]).sum(), [X]),
    "at add": (lambda x, v: (x.at[ROWS].add(v) * x).sum(), [X, V]),
    "at set": (lambda x, v: (x.at[ROWS].set(v * 2) * x).sum(), [X, V]),
    "at mul": (lambda x, v: (x.at[ROWS].mul(v * 2) * x).sum(), [X, V]),
    "at max": (lambda x, v: (x.at[ROWS].max(v * 2) * x).sum(), [X, V]),
    "sort": (lambda x, v: (ops.sort(x, 1) * v).sum(), [X, V]),
    "topk": (lambda x: (ops.topk(x, 2)[0] ** 2.0).sum(), [X]),
    "cumprod": (lambda x: ops.cumprod(x, 1).sum(), [X]),
    "cummax": (lambda x: (ops.cummax(x, 1) * x).sum(), [X]),
    "broadcast": (lambda x, v: ((x + v) * (x - v) / (1.0 + v * v)).sum(), [X, V]),
    "matmul of a vector": (lambda x, v: ((x @ v) ** 2.0).sum(), [X, V]),
    "vector matmul": (lambda w, v: ops.sin(v @ w).sum(), [W, V]),
    "layernorm": (lambda x, v: (ops.layernorm(x, v, v * 2.0) ** 2.0).sum(), [X, V]),
    "softmax": (lambda x, v: (ops.softmax(x) * v).sum(), [X, V]),
    "attention": (
        lambda q, k, v: (ops.attention(heads(q), heads(k), heads(v), causal=True) ** 2.0).sum(),
        [RNG.standard_normal(12) for _ in range(3)],
    ),
    "gradient of a gradient": (
        lambda x: (ts.grad(lambda y: (ops.sin(y) * y).sum())(x) ** 2.0).sum(),
        [X],
    ),
    "tangent of a gradient": (
        lambda x, w: ts.jvp(ts.grad(lambda y: (ops.exp(y @ w)).sum()), (x,), (x,))[1].sum(),
        [X[:2], W],
    ),
    "captured": (lambda x: ((x @ ts.array(W)) ** 2.0).sum(), [X]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_is_the_central_difference_in_both_modes(name: str) -> None:
    function, values = PROGRAMS[name]
    found = ts.grad(function, tuple(range(len(values))))(*values)
    for mine, expected in zip(found, central(function, values), strict=True):
        np.testing.assert_allclose(np.asarray(mine), expected, rtol=2e-6, atol=2e-7)
    directions = [RNG.standard_normal(value.shape) for value in values]
    value, tangent = ts.jvp(function, tuple(values), tuple(directions))
    along = sum(float((np.asarray(mine) * d).sum()) for mine, d in zip(found, directions, strict=True))
    np.testing.assert_allclose(float(tangent), along, rtol=1e-11, atol=1e-12)
    assert np.asarray(value).tobytes() == np.asarray(ts.jit(function)(*values)).tobytes()


def test_forward_mode_runs_through_a_loop_that_ends_by_a_condition() -> None:
    function = lambda a: ts.while_loop(lambda u: u < 100.0, lambda u: u * a, a)  # noqa: E731
    value, tangent = ts.jvp(function, (np.float64(3.0),), (np.float64(1.0),))
    assert (float(value), float(tangent)) == (243.0, 405.0)


def test_reverse_mode_through_such_a_loop_is_refused_at_its_line() -> None:
    with pytest.raises(DifferentiationError, match="nobody knows how many rounds") as caught:
        ts.grad(lambda a: ts.while_loop(lambda u: u < 100.0, lambda u: u * a, a))(np.float64(3.0))
    assert caught.value.span is not None
    assert caught.value.span.file == __file__


def test_trees_have_gradients_of_their_form_and_aux_is_handed_through() -> None:
    def loss(params: Any, x: Any) -> Any:
        hidden = x @ params["w"] + params["b"]
        return (hidden * hidden).mean(), {"hidden": hidden, "steps": 3}

    params = {"w": W, "b": V}
    (value, aux), gradient = ts.value_and_grad(loss, has_aux=True)(params, X)
    assert set(gradient) == {"w", "b"}
    hidden = X @ W + V
    np.testing.assert_allclose(np.asarray(gradient["b"]), (2 * hidden / hidden.size).sum(0), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(gradient["w"]), X.T @ (2 * hidden / hidden.size), rtol=1e-12)
    np.testing.assert_allclose(float(value), (hidden**2).mean())
    np.testing.assert_allclose(np.asarray(aux["hidden"]), hidden)
    only, again = ts.grad(loss, has_aux=True)(params, X)
    assert set(only) == {"w", "b"}
    assert set(again) == {"hidden", "steps"}


def test_one_program_serves_all_sizes_of_a_symbolic_dim() -> None:
    @ts.jit
    def loss(w: ts.Tensor["D", ts.f32], x: ts.Tensor["B", "D", ts.f32]):
        return ((x @ w) ** 2.0).sum()

    gradient: Any = ts.grad(loss)
    for rows in (1, 3, 8):
        x = RNG.standard_normal((rows, 5)).astype(np.float32)
        w = RNG.standard_normal(5).astype(np.float32)
        np.testing.assert_allclose(np.asarray(gradient(w, x)), 2 * x.T @ (x @ w), rtol=1e-4, atol=1e-5)
    assert gradient.cache_info().compiles <= 1


def test_vjp_and_linearize_give_linear_functions() -> None:
    value, pull = ts.vjp(lambda x, w: ops.sin(x @ w), X, W)
    seed = RNG.standard_normal((4, 3))
    by_x, by_w = pull(seed)
    slope = np.cos(X @ W) * seed
    np.testing.assert_allclose(np.asarray(by_x), slope @ W.T, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(by_w), X.T @ slope, rtol=1e-12)
    twice = pull(2 * seed)
    np.testing.assert_allclose(np.asarray(twice[0]), 2 * slope @ W.T, rtol=1e-12)
    same, push = ts.linearize(lambda x, w: ops.sin(x @ w), X, W)
    np.testing.assert_allclose(np.asarray(same), np.asarray(value))
    change = push(X, np.zeros_like(W))
    np.testing.assert_allclose(np.asarray(change), np.cos(X @ W) * (X @ W), rtol=1e-12)


def test_vjp_inside_a_trace() -> None:
    run = ts.jit(lambda x: ts.vjp(lambda z: ops.sin(z) * x, x)[1](x)[0])
    np.testing.assert_allclose(np.asarray(run(X)), np.cos(X) * X * X, rtol=1e-12)


def test_jacobians_and_second_derivatives() -> None:
    def function(x: Any) -> Any:
        return ops.sin(x) * x.sum()

    expected = np.diag(np.cos(V)) * V.sum() + np.sin(V)[:, None]
    for transform in (ts.jacrev, ts.jacfwd):
        np.testing.assert_allclose(np.asarray(transform(function)(V)), expected, rtol=1e-12)
    cubic = lambda x: (x * x * x).sum()  # noqa: E731
    np.testing.assert_allclose(np.asarray(ts.hessian(cubic)(V)), np.diag(6 * V), rtol=1e-12, atol=1e-15)
    (product,) = ts.hvp(cubic, (V,), (V,))
    np.testing.assert_allclose(np.asarray(product), 6 * V * V, rtol=1e-12)
    by_two = ts.jacrev(lambda x, w: w @ x, argnums=(0, 1))(V, W)
    np.testing.assert_allclose(np.asarray(by_two[0]), W)
    assert np.asarray(by_two[1]).shape == (3, 3, 3)


def test_captured_tensors_are_those_of_the_call() -> None:
    scale = {"w": W}
    gradient = ts.grad(lambda x: (x @ scale["w"]).sum())
    first = np.asarray(gradient(X))
    scale["w"] = W * 2
    np.testing.assert_allclose(np.asarray(gradient(X)), 2 * first)


TANGENTS: dict[str, tuple[Any, str]] = {
    "sum": (lambda x, y: x + y, "add"),
    "difference": (lambda x, y: x - y, "sub"),
    "difference from a number": (lambda x, y: 1.0 - y, "neg"),
    "negation": (lambda x, y: -x, "neg"),
    "product": (lambda x, y: x * y, "mul mul add"),
    "product of one": (lambda x, y: x * 3.0, "mul"),
    "exp": (lambda x, y: ts.ops.exp(x), "mul"),
    "matmul": (lambda x, y: x @ y, "matmul matmul add"),
    "total": (lambda x, y: x.sum(), "sum"),
    "view": (lambda x, y: x.reshape(3, 1), "reshape"),
}


@pytest.mark.parametrize("name", TANGENTS)
def test_a_tangent_takes_no_more_ops_than_it_needs(name: str) -> None:
    function, wanted = TANGENTS[name]
    x = np.ones(3, np.float32)
    plain: Any = ts.jit(lambda x, y: function(x, y)).trace(x, x).tape
    both: Any = ts.jit(lambda x, y, u, v: ts.jvp(function, (x, y), (u, v))[1]).trace(x, x, x, x).tape
    added = [record.op.removeprefix("tgraph.") for record in both.records[len(plain.records) :]]
    assert added == wanted.split()


def test_stop_gradient_is_constant() -> None:
    np.testing.assert_allclose(np.asarray(ts.grad(lambda x: (x * ts.stop_gradient(x)).sum())(X)), X)


def test_conventions_where_there_is_no_derivative() -> None:
    """As JAX has them: half of a tie, 0 at the corner of relu and 1 at that of abs, infinity for the root of 0."""

    def at(function: Any, *values: float) -> list[float]:
        arguments = tuple(range(len(values)))
        return [float(one) for one in ts.grad(function, arguments)(*(np.float64(value) for value in values))]

    assert at(ops.maximum, 1.0, 1.0) == [0.5, 0.5]
    assert at(ops.minimum, 2.0, 1.0) == [0.0, 1.0]
    assert at(ops.relu, 0.0) == [0.0]
    assert at(ops.abs, 0.0) == at(ops.abs, -0.0) == [1.0]
    assert at(ops.sqrt, 0.0) == [float("inf")]
    assert at(lambda x: x**0.0, 0.0) == [0.0]
    tie = ts.grad(lambda x: x.max())(np.array([2.0, 1.0, 2.0]))
    assert np.asarray(tie).tolist() == [0.5, 0.0, 0.5]
    assert np.isnan(np.asarray(ts.grad(lambda x: ops.norm(x))(np.zeros(3)))).all()


def test_narrow_floats_have_gradients_of_their_dtype() -> None:
    x = ts.array(X.astype(np.float32)).cast(ts.bf16)
    gradient = ts.grad(lambda v: ops.gelu(v).sum().cast(ts.f32))(x)
    assert gradient.dtype is ts.bf16
    wide = np.asarray(x.cast(ts.f32)).astype(np.float64)
    slope = np.asarray(ts.grad(lambda v: ops.gelu(v).sum())(wide))
    np.testing.assert_allclose(np.asarray(gradient.cast(ts.f32)), slope, rtol=2**-7, atol=2**-8)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: ts.grad(lambda x: x)(X), DifferentiationError, r"returns \[4, 3\] f64, which is no scalar"),
        (lambda: ts.grad(lambda x: (x > 0).sum())(X), DifferentiationError, "not of floats"),
        (lambda: ts.grad(lambda x: x.sum())(np.arange(3)), DifferentiationError, "argument 0 is"),
        (lambda: ts.grad(lambda x: x.sum(), argnums=1)(X), ArgumentError, "argument 1"),
        (lambda: ts.grad(lambda x: x.sum(), argnums="x")(X), ArgumentError, "argnums"),  # pyright: ignore[reportArgumentType]
        (lambda: ts.grad(lambda x: (x, x))(X), DifferentiationError, "one scalar"),
        (lambda: ts.grad(lambda x: x.sum(), has_aux=True)(X), PytreeError, "pair"),
        (
            lambda: ts.jvp(lambda x: x, (X,), (X.astype(np.float32),)),
            DifferentiationError,
            "shapes and dtypes of their values",
        ),
        (lambda: ts.vjp(lambda x: x, X)[1]((X, X)), PytreeError, "form"),
        (lambda: ts.grad(3)(X), Exception, "callable|function"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_wrong_calls_say_what_is_wrong(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_a_callback_that_floats_go_through_names_its_effect() -> None:
    def loss(x: Any) -> Any:
        y = ts.io_callback(lambda v: np.asarray(v), x, result=x)
        return y.sum()

    with pytest.raises(DifferentiationError, match="effect `io`"):
        ts.grad(loss)(V)


def test_transforms_called_eagerly_go_with_their_function() -> None:
    def one(x: Any) -> Any:
        return ops.sin(x)

    first = ts.vjp(one, V)[1]
    again = ts.vjp(one, V * 2)[1]
    np.testing.assert_allclose(np.asarray(again(V)[0]), np.cos(2 * V) * V, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(first(V)[0]), np.cos(V) * V, rtol=1e-12)
    jitted = ts.jit(one)
    np.testing.assert_allclose(np.asarray(ts.vjp(jitted, V)[1](V)[0]), np.cos(V) * V, rtol=1e-12)
    gone = weakref.ref(one)
    del one, first, again, jitted
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["float", "array", "tensor", "static"])
def test_products_with_jacobians_take_keywords_as_constant(kind: str) -> None:
    @ts.autodiff
    def function(x: Any, *, factor: Any, power: str = "1") -> Any:
        return (x * factor).sum() if power == "1" else (x * x * factor).sum()

    x = np.array([1.0, 2.0])
    given: dict[str, Any] = {
        "float": {"factor": 3.0},
        "array": {"factor": np.array([3.0, 3.0])},
        "tensor": {"factor": ts.array(np.array([3.0, 3.0]))},
        "static": {"factor": 3.0, "power": "2"},
    }[kind]
    expected = 6.0 * x if kind == "static" else np.array([3.0, 3.0])
    seed = np.float64(1.0)
    functions: list[Any] = [function, ts.jit(function)]
    for one in functions:
        np.testing.assert_array_equal(np.asarray(one.vjp(x, **given)[1](seed)[0]), expected)
        assert float(one.jvp((x,), (x,), **given)[1]) == (expected * x).sum()
        assert float(ts.linearize(one, x, **given)[1](x)) == (expected * x).sum()
        inside = ts.jit(lambda x, one=one: ts.vjp(one, x, **given)[1](seed)[0])
        np.testing.assert_array_equal(np.asarray(inside(x)), expected)


@pytest.mark.parametrize(
    "name", ["argument_0", "argument_1", "a-b", "class", "", "self", "function", "primals", "tangents"]
)
def test_a_keyword_may_have_any_name(name: str) -> None:
    def function(x: Any, **given: Any) -> Any:
        return (x * sum(given.values())).sum()

    x = np.array([1.0, 2.0])
    given: dict[str, Any] = {name: 3.0, "other": 1.0}
    expected, functions = np.array([4.0, 4.0]), [function, ts.jit(function)]
    for one in functions:
        assert float(ts.jit(one)(x, **given)) == 12.0
        np.testing.assert_array_equal(np.asarray(ts.grad(one)(x, **given)), expected)
        np.testing.assert_array_equal(np.asarray(ts.vjp(one, x, **given)[1](np.float64(1.0))[0]), expected)
        assert float(ts.jvp(one, (x,), (x,), **given)[1]) == 12.0
        assert float(ts.linearize(one, x, **given)[1](x)) == 12.0
        assert float(ts.jit(lambda x, one=one: ts.jvp(one, (x,), (x,), **given)[1])(x)) == 12.0
    assert "tgraph.mul" in ts.jit(function).lower(x, **given).graph
    assert "workspace" in str(ts.jit(function).explain(x, **given))


def test_a_call_with_wrong_keywords_is_explained() -> None:
    def function(x: Any, *, factor: Any) -> Any:
        return (x * factor).sum()

    x = np.array([1.0, 2.0])
    for call in (lambda: ts.vjp(function, x, faktor=1.0), lambda: ts.jvp(function, (x,), (x,), faktor=1.0)):
        with pytest.raises(RuntimeArgumentError, match="missing a required argument: `factor`") as caught:
            call()
        assert "unexpected argument `faktor`" in str(caught.value)
    with pytest.raises(RuntimeArgumentError, match="too many positional arguments"):
        ts.linearize(function, x, x, factor=1.0)


def test_an_option_of_jit_is_none_of_a_transform() -> None:
    options = {*inspect.signature(ts.jit).parameters, *(one.name for one in fields(Options))} - {"function", "options"}
    for option in options:
        given: Any = {option: 1000}
        with pytest.raises(ArgumentError, match=f"unexpected argument `{option}` of `grad`") as caught:
            ts.grad(lambda x: x.sum(), **given)
        written = "memory=2**30, offload=True" if option == "offload" else f"{option}=1000"
        assert f"write `jit(grad(f), {written})`" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"offload": True}, "memory=2**30, offload=True"),
        ({"memory": 3, "offload": True}, "memory=3, offload=True"),
        ({"memory": True}, "memory=2**30"),
        ({"memory": -1}, "memory=2**30"),
        ({"memory": 3}, "memory=3"),
        ({"fusion": False}, "fusion=False"),
    ],
)
def test_the_advised_options_are_taken_by_jit(given: dict[str, Any], written: str) -> None:
    def power(x: Any, n: int = 2) -> Any:
        return x**n

    with pytest.raises(ArgumentError, match=re.escape(f"write `jit(vmap(f), {written})`")):
        ts.vmap(power, **given)
    advice = re.escape(f"its parameters are `x`, `n`; options are those of `jit`: write `jit(f, {written})`")
    calls = (lambda: ts.vjp(power, V, **given), lambda: ts.jvp(power, (V,), (V,), **given))
    for call in (*calls, lambda: ts.linearize(power, V, **given), lambda: ts.jit(power)(V, **given)):
        with pytest.raises(RuntimeArgumentError, match=advice):
            call()
    assert callable(eval(f"ts.jit(power, {written})", {"ts": ts, "power": power}))


@pytest.mark.parametrize(("of", "by"), [("f32", "f64"), ("f64", "f32"), ("bf16", "f64"), ("f64", "bf16")])
def test_parameters_of_norms_may_have_another_dtype(of: str, by: str) -> None:
    rng = np.random.default_rng(3)
    x, seeds = (ts.array(rng.standard_normal((3, 5))).cast(of) for _ in range(2))
    gain, bias = (ts.array(rng.standard_normal(5)).cast(by) for _ in range(2))
    wide, weights = (np.asarray(one.cast("f64")) for one in (x, seeds))
    # Computed in f32 at least, and rounded to the dtype of the parameter.
    step = 2.0**-8 if by == "bf16" else 2.0**-23
    calls: list[tuple[Any, Any]] = [(ops.layernorm, (gain, bias)), (ops.rmsnorm, (gain,))]
    for norm, given in calls:
        about = tuple(range(1 + len(given)))
        gradients = ts.grad(lambda x, *given, norm=norm: (norm(x, *given) * seeds).sum(), about)(x, *given)
        assert [one.dtype.name for one in gradients] == [of, *(by for _ in given)]
        normal = wide - wide.mean(-1, keepdims=True) if norm is ops.layernorm else wide
        normal = normal / np.sqrt((normal * normal).mean(-1, keepdims=True) + 1e-5)
        for made, terms in zip(gradients[1:], (weights * normal, weights), strict=False):
            error = np.abs(np.asarray(made.cast("f64")) - terms.sum(0))
            assert (error <= 8 * step * np.abs(terms).sum(0)).all()


def test_autodiff_gives_derivatives_under_jit_and_says_the_order() -> None:
    @ts.jit @ ts.autodiff
    def energy(x: Any) -> Any:
        return (x * x).sum()

    assert float(energy(V)) == float((V * V).sum())
    np.testing.assert_allclose(np.asarray(energy.grad(V)), 2 * V)
    value, gradient = energy.value_and_grad(V)
    assert float(value) == float(energy(V))
    np.testing.assert_allclose(np.asarray(gradient), 2 * V)
    with pytest.raises(DifferentiationError, match="jitted already"):
        ts.autodiff(ts.jit(lambda x: x))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ts.vjp(lambda x: x + 1.0, V)[1](np.ones(9)),
        lambda: ts.jvp(lambda x: x.sum(), (V,), (np.ones(9),)),
        lambda: ts.jvp(lambda x: x * 2.0, (V,), (np.ones(1),)),
        lambda: ts.linearize(lambda x: x * 2.0, V)[1](np.ones(7)),
        lambda: ts.jit(lambda x, t: ts.jvp(lambda v: v * 2.0, (x,), (t,)))(V, np.ones(1)),
    ],
)
def test_tangents_and_cotangents_have_the_shapes_of_their_values(call: Any) -> None:
    with pytest.raises(DifferentiationError, match="of the shapes and dtypes of their values"):
        call()


def test_bodies_that_read_other_arguments_are_other_programs() -> None:
    """Two branches, or loops, over the same operands are one op only where they compute the same of them."""
    swap = ts.jit(
        lambda p, a, b: (
            ts.cond(p, lambda u, v: u, lambda u, v: v, a, b),
            ts.cond(p, lambda u, v: v, lambda u, v: u, a, b),
        )
    )
    assert [float(one) for one in swap(ts.array(True), ts.array(1.0), ts.array(2.0))] == [1.0, 2.0]
    scans = ts.jit(
        lambda z, xs: (ts.scan(lambda u, x: (u - x, ()), z, xs)[0], ts.scan(lambda u, x: (x - u, ()), z, xs)[0])
    )
    assert [float(one) for one in scans(np.float64(1.0), np.array([5.0]))] == [-4.0, 4.0]
    first, second = ts.jacrev(lambda a: (a * 2.0, a * 3.0))(V)
    np.testing.assert_allclose(np.asarray(first), 2 * np.eye(3))
    np.testing.assert_allclose(np.asarray(second), 3 * np.eye(3))
    mixed = ts.hessian(lambda a, b: (a * b).sum(), (0, 1))(V, V + 1)
    np.testing.assert_allclose(np.asarray(mixed[0][1]), np.eye(3))
    np.testing.assert_allclose(np.asarray(mixed[0][0]), np.zeros((3, 3)))


def test_eager_transforms_see_what_their_function_captures_now() -> None:
    scale = {"by": 2.0}
    function = lambda t: t * scale["by"]  # noqa: E731
    assert np.allclose(np.asarray(ts.jvp(function, (V,), (V,))[1]), 2 * V)
    scale["by"] = 5.0
    assert np.allclose(np.asarray(ts.jvp(function, (V,), (V,))[1]), 5 * V)
    assert np.allclose(np.asarray(ts.vjp(function, V)[1](V)[0]), 5 * V)


def test_indices_and_jacobians_of_symbolic_dims() -> None:
    @ts.jit
    def product(t: ts.Tensor["N", ts.f64]):
        return t[0] * t.sum() + t[-1] + t[::2].sum()

    found = ts.grad(product)(V)
    expected = V[0] * np.ones(3) + np.array([V.sum() + 1, 0, 2])
    np.testing.assert_allclose(np.asarray(found), expected)

    @ts.jit
    def square(t: ts.Tensor["N", ts.f64]):
        return t * t

    np.testing.assert_allclose(np.asarray(ts.jacrev(square)(V)), np.diag(2 * V))


def test_sizes_that_the_backward_of_a_body_relies_on_are_known_to_the_program() -> None:
    """Reading every second element of a row of `M` is put back into rows whose size no algebra shows to be `M`."""

    def total(x: ts.Tensor["N", "M", ts.f64]) -> Any:
        return ts.scan(lambda c, row: (c + (row[::-2] ** 2.0).sum() + row[::2].sum(), ()), ops.zeros((), ts.f64), x)[0]

    expected = np.zeros((3, 5))
    rows = RNG.standard_normal((3, 5))
    expected[:, ::-2] += 2 * rows[:, ::-2]
    expected[:, ::2] += 1
    gradient = ts.grad(total)
    np.testing.assert_allclose(np.asarray(gradient(rows)), expected, rtol=1e-14)
    assert gradient(rows[:, :4].copy()).shape == (3, 4)
