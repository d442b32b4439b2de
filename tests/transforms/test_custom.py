"""Functions with derivatives of their own: used in every transform and nesting, and checked where they are used."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DifferentiationError, DTypeError, PytreeError, ShapeError
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.linearity import LINEAR, PLAIN, check_linear
from tessera.ir.graph.transforms.linearize import linearize
from tests.transforms.programs import active_inputs, in_f64, program_of
from tests.transforms.test_every_op import WITHOUT
from tests.transforms.test_grad import central

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))
CALLS: list[str] = []


@ts.custom_vjp
def wave(x: Any, y: Any) -> Any:
    return ops.sin(x) * y


def wave_forward(x: Any, y: Any) -> Any:
    CALLS.append("forward")
    return wave(x, y), {"cos": ops.cos(x), "sin": ops.sin(x), "y": y}


def wave_backward(kept: Any, g: Any) -> Any:
    CALLS.append("backward")
    return kept["cos"] * kept["y"] * g, kept["sin"] * g


wave.defvjp(wave_forward, wave_backward)


@ts.custom_jvp
def swell(x: Any, y: Any) -> Any:
    return ops.sin(x) * y


@swell.defjvp
def swell_jvp(primals: Any, tangents: Any) -> Any:
    CALLS.append("jvp")
    (x, y), (dx, dy) = primals, tangents
    return swell(x, y), ops.cos(x) * y * dx + dy * ops.sin(x)


@ts.custom_vjp
def tide(x: Any, y: Any) -> Any:
    return ops.sin(x) * y


tide.defvjp(wave_forward, wave_backward)
tide.defjvp(swell_jvp)
EACH = pytest.mark.parametrize("function", [wave, swell, tide], ids=lambda one: one.name)


def scanned(function: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        return ts.scan(lambda c, r: (function(c, r), c.sum()), y[0], x)[0].sum()

    return run


def branched(function: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        return ts.cond(x.sum() < 100.0, lambda: function(x, y).sum(), lambda: (x * x).sum())

    return run


NESTINGS: dict[str, Any] = {
    "alone": lambda f: lambda x, y: f(x, y).sum(),
    "one argument": lambda f: lambda x, y: f(x, 2.0).sum() + (y * 3.0).sum(),
    "jit": lambda f: lambda x, y: ts.jit(lambda u, v: f(u, v))(x, y).sum(),
    "vmap": lambda f: lambda x, y: ts.vmap(f)(x, y).sum(),
    "shared by a batch": lambda f: lambda x, y: ts.vmap(f, in_axes=(0, None))(x, y[0]).sum(),
    "vmap of vmap": lambda f: lambda x, y: ts.vmap(ts.vmap(f, (0, None)), (None, 0))(x[0], y[:, 0]).sum(),
    "checkpoint": lambda f: lambda x, y: (ts.checkpoint(lambda u, v: f(ops.exp(u), v) * f(u, v))(x, y) ** 2.0).sum(),
    "cond": branched,
    "scan": scanned,
    "gradient of a gradient": lambda f: lambda x, y: (ts.grad(lambda z: f(z, y).sum())(x) ** 2.0).sum(),
    "gradients of each": lambda f: lambda x, y: (ts.vmap(ts.grad(lambda u, v: f(u, v).sum()))(x, y) ** 2.0).sum(),
}  # fmt: skip


@EACH
@pytest.mark.parametrize("nesting", NESTINGS)
def test_the_derivative_is_used_and_is_the_central_difference(function: Any, nesting: str) -> None:
    loss = NESTINGS[nesting](function)
    CALLS.clear()
    found = ts.grad(loss, (0, 1))(X, Y)
    wanted = {"forward", "backward"} if function is wave else {"jvp"}
    assert set(CALLS) == wanted or (function is tide and {"forward", "backward"} <= set(CALLS))
    for mine, expected in zip(found, central(loss, [X, Y]), strict=True):
        np.testing.assert_allclose(np.asarray(mine), expected, rtol=1e-5, atol=1e-7)


@EACH
def test_a_rule_costs_a_forward_program_nothing(function: Any) -> None:
    CALLS.clear()
    plain = ts.jit(lambda x, y: ops.sin(x) * y)
    assert ts.jit(lambda x, y: function(x, y)).lower(X, Y).graph == plain.lower(X, Y).graph
    np.testing.assert_array_equal(np.asarray(function(ts.array(X), ts.array(Y))), np.asarray(plain(X, Y)))
    assert np.asarray(ts.vmap(function)(X, Y)).shape == X.shape
    assert CALLS == []


def test_the_forward_bits_of_a_gradient_are_those_of_the_function() -> None:
    value, _ = ts.value_and_grad(lambda x, y: wave(x, y).sum())(X, Y)
    assert np.asarray(value).tobytes() == np.asarray(ts.jit(lambda x, y: wave(x, y).sum())(X, Y)).tobytes()


@pytest.mark.parametrize("function", [swell, tide], ids=lambda one: one.name)
def test_forward_mode_is_the_rule(function: Any) -> None:
    CALLS.clear()
    expected = np.cos(X) * Y * Y + X * np.sin(X)
    np.testing.assert_allclose(np.asarray(ts.jvp(function, (X, Y), (Y, X))[1]), expected, rtol=1e-12)
    assert "jvp" in CALLS
    np.testing.assert_allclose(np.asarray(ts.linearize(function, X, Y)[1](Y, X)), expected, rtol=1e-12)
    batch = ts.jvp(ts.vmap(function), (X, Y), (Y, X))[1]
    np.testing.assert_allclose(np.asarray(batch), expected, rtol=1e-12)
    square = ts.hessian(lambda x: function(x, ts.array(Y[0])).sum())(X[0])
    np.testing.assert_allclose(np.asarray(square), np.diag(-np.sin(X[0]) * Y[0]), rtol=1e-12)
    loop = ts.jvp(lambda x: ts.scan(lambda c, r: (function(c, r), c), ts.array(Y[0]), x)[0].sum(), (X,), (Y,))[1]
    slope = (np.asarray(ts.grad(lambda x: scanned(function)(x, ts.array(Y)))(X)) * Y).sum()
    np.testing.assert_allclose(float(loop), slope, rtol=1e-12)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ts.jvp(wave, (X, Y), (X, Y)),
        lambda: ts.linearize(wave, X, Y),
        lambda: ts.jacfwd(lambda x: wave(x, x))(X),
        lambda: ts.jvp(lambda x: ts.scan(lambda c, r: (wave(c, r), ()), x[0], x)[0], (X,), (X,)),
    ],
    ids=["jvp", "linearize", "jacfwd", "scan"],
)
def test_forward_mode_of_a_rule_for_reverse_mode_is_an_error(ask: Any) -> None:
    with pytest.raises(DifferentiationError, match=r"`wave` has a derivative for reverse mode alone \(`defvjp`\)"):
        ask()


def test_the_second_order_of_a_reverse_rule_is_forward_over_reverse_where_the_rule_allows_it() -> None:
    @ts.custom_vjp
    def cube(x: Any) -> Any:
        return x * x * x

    cube.defvjp(lambda x: (x * x * x, x), lambda x, g: (3.0 * x * x * g,))
    found = ts.hessian(lambda x: cube(x).sum())(X[0])
    np.testing.assert_allclose(np.asarray(found), np.diag(6 * X[0]), rtol=1e-12)


def test_static_arguments_come_first_and_numbers_need_no_derivative() -> None:
    @functools.partial(ts.custom_vjp, nondiff_argnums=(0, 2))
    def applied(function: Any, x: Any, how: str, factor: float) -> Any:
        return function(x) * factor

    def backward(function: Any, how: str, kept: Any, g: Any) -> Any:
        x, factor = kept
        assert how == "twice"
        return 2.0 * function(x) * factor * g, None

    applied.defvjp(lambda function, x, how, factor: (function(x) * factor, (x, factor)), backward)
    found = ts.grad(lambda x: applied(ops.cos, x, "twice", 3.0).sum())(X)
    np.testing.assert_allclose(np.asarray(found), 6 * np.cos(X), rtol=1e-12)
    named = ts.grad(lambda x: applied(ops.cos, how="twice", factor=3.0, x=x).sum())(X)
    np.testing.assert_array_equal(np.asarray(named), np.asarray(found))

    @functools.partial(ts.custom_jvp, nondiff_argnums=(1,))
    def powered(x: Any, how: str) -> Any:
        return x * x

    powered.defjvp(lambda how, primals, tangents: (primals[0] * primals[0], 5.0 * tangents[0]))
    assert np.asarray(ts.grad(lambda x: powered(x, "so").sum())(X)).tolist() == np.full((4, 3), 5.0).tolist()


def test_trees_integers_and_several_results() -> None:
    @ts.custom_vjp
    def parts(tree: Any, rows: Any) -> Any:
        return {"sum": tree["b"][rows].sum(), "rows": rows, "a": tree["a"] * 2.0}

    def forward(tree: Any, rows: Any) -> Any:
        # Keys may come in any order.
        return {"a": tree["a"] * 2.0, "rows": rows, "sum": tree["b"][rows].sum()}, (rows, tree["b"])

    def backward(kept: Any, g: Any) -> Any:
        rows, b = kept
        assert g["rows"] is None
        return {"a": g["a"] * 7.0, "b": ops.zeros_like(b).at[rows].add(g["sum"])}, None

    parts.defvjp(forward, backward)
    rows = np.array([1, 1, 2])

    def loss(tree: Any) -> Any:
        made = parts(tree, ts.array(rows))
        return made["a"].sum() + made["sum"] * 2.0

    found = ts.grad(loss)({"b": X, "a": Y})
    np.testing.assert_array_equal(np.asarray(found["a"]), 7.0)
    np.testing.assert_array_equal(np.asarray(found["b"])[:, 0], [0, 4, 2, 0])


def test_a_rule_may_capture_what_is_constant() -> None:
    table, scale = ts.array(Y), ts.array(np.array(3.0))

    @ts.jit
    def run(x: Any, w: Any) -> Any:
        @ts.custom_vjp
        def scaled(x: Any) -> Any:
            return x * w

        scaled.defvjp(lambda x: (x * w, ()), lambda _, g: (g * w * table * scale,))
        return ts.grad(lambda x: ts.scan(lambda c, r: (c + scaled(r).sum(), ()), ops.zeros((), ts.f64), x)[0])(x)

    with pytest.raises(ShapeError):  # a table of four rows in a loop over one of them
        run(X, np.float64(2.0))
    table = ts.array(Y[0])
    np.testing.assert_allclose(np.asarray(run(X, np.float64(2.0))), np.broadcast_to(6 * Y[0], (4, 3)), rtol=1e-12)


def test_captured_tensors_have_no_derivative_and_the_error_says_so() -> None:
    def loss(x: Any) -> Any:
        @ts.custom_vjp
        def scaled(y: Any) -> Any:
            return y * x

        scaled.defvjp(lambda y: (y * x, ()), lambda _, g: (g,))
        return scaled(ops.ones((4, 3), ts.f64)).sum()

    with pytest.raises(DifferentiationError, match="`scaled` captures a tensor that is differentiated by") as caught:
        ts.grad(lambda x: loss(x) + 0.0)(X)
    assert "pass the tensor as an argument" in str(caught.value)


def test_a_changed_rule_or_a_changed_variable_of_it_is_seen() -> None:
    scale = {"by": 2.0}

    @ts.custom_vjp
    def same(x: Any) -> Any:
        return x * 1.0

    same.defvjp(lambda x: (x * 1.0, ()), lambda _, g: (g * scale["by"],))
    slope = ts.grad(lambda x: same(x).sum())
    seen = [np.asarray(slope(X))[0, 0]]
    scale["by"] = 5.0
    seen.append(np.asarray(slope(X))[0, 0])
    same.defvjp(lambda x: (x * 1.0, ()), lambda _, g: (g * 7.0,))
    seen.append(np.asarray(slope(X))[0, 0])
    assert seen == [2.0, 5.0, 7.0]


def test_symbolic_sizes_and_empty_tensors() -> None:
    @ts.jit
    def total(x: ts.Tensor["N", ts.f64]) -> Any:
        return wave(x, x).sum()

    for size in (3, 5, 0):
        x = RNG.standard_normal(size)
        expected = np.cos(x) * x + np.sin(x)
        np.testing.assert_allclose(np.asarray(ts.grad(total)(x)), expected, rtol=1e-12)


def test_narrow_floats_and_numbers_of_the_call() -> None:
    @ts.jit
    def loss(x: Any, factor: float) -> Any:
        return ts.grad(lambda v: swell(v, factor).sum())(x)

    x = ts.array(X.astype(np.float32)).cast(ts.bf16)
    found = loss(x, 2.0)
    assert found.dtype is ts.bf16
    expected = np.cos(np.asarray(x.cast(ts.f32))) * 2
    np.testing.assert_allclose(np.asarray(found.cast(ts.f32)), expected, rtol=2**-7, atol=2**-8)


C, V, M = RNG.standard_normal((4, 3)), RNG.standard_normal(3), RNG.standard_normal((4, 4))
LINEAR_RULES: dict[str, Any] = {
    "mul left": lambda t: t * C,
    "mul right": lambda t: C * t,
    "mul right, broadcast": lambda t: ops.sin(X)[None] * t,
    "mul right, summed": lambda t: C * t[:1],
    "div": lambda t: t / V,
    "div, broadcast": lambda t: t[:, :1] / C,
    "add": lambda t: t + t[:1],
    "sub": lambda t: t[:1] - t,
    "sub right": lambda t: ops.zeros((4, 3), ts.f64) - t[0],
    "neg": lambda t: -t,
    "where left": lambda t: ops.where(C > 0, t, 0.0),
    "where right": lambda t: ops.where(C > 0, ops.zeros((), ts.f64), t[:1]),
    "matmul left": lambda t: t @ C.T,
    "matmul right": lambda t: M @ t,
    "matmul of a vector": lambda t: t @ V + M @ t[:, 0],
    "matmul of a stack": lambda t: np.stack([M, M]) @ t,
    "einsum": lambda t: ops.einsum("ij,kj->ik", C, t) + ops.einsum("ij,kj->ki", t, C),
    "cast": lambda t: t.cast(ts.f32).cast(ts.f64),
    "movement": lambda t: ops.pad(ops.concat([t.T, t.T[:, ::-1]], axis=1), ((1, 0), (0, 2))).reshape((2, -1)),
    "indices": lambda t: t[np.array([0, 2, 2, -1])] + t.at[1].set(t[0]) + t.at[np.array([0, 0])].add(t[:2]),
    "sums": lambda t: t.sum(axis=-1, keepdims=True) + t.mean() + ops.cumsum(t, axis=0),
    "stack": lambda t: ops.stack([t, t[::-1]], axis=-1),
}
"""Linear functions of a [4, 3], with the tangent as each operand of ops that take several."""


@pytest.mark.parametrize("name", LINEAR_RULES)
def test_a_rule_may_take_its_tangent_as_any_operand(name: str) -> None:
    """Backwards it is the transpose of what it is forwards: the rule applied to every element by itself."""
    rule = LINEAR_RULES[name]
    linear = ts.custom_jvp(rule)
    linear.defjvp(lambda primals, tangents: (linear(*primals), rule(*tangents)))
    forwards: Any = ts.jit(rule, backend="reference")
    columns = [np.asarray(forwards(one.reshape(4, 3))) for one in np.eye(12)]
    seed = RNG.integers(-2, 3, columns[0].shape).astype(np.float64)
    found = ts.jit(ts.grad(lambda x: (linear(x) * seed).sum()), backend="reference")(X)
    expected = [(one * seed).sum() for one in columns]
    np.testing.assert_allclose(np.asarray(found).ravel(), expected, rtol=1e-6, atol=1e-6)


def reverse_of(forward: Any, backward: Any) -> Any:
    @ts.custom_vjp
    def f(x: Any, n: Any) -> Any:
        return x * 2.0

    f.defvjp(forward, backward)
    return lambda: ts.grad(lambda x: f(x, ts.array(np.arange(3))).sum())(X)


def forward_of(rule: Any) -> Any:
    @ts.custom_jvp
    def f(x: Any) -> Any:
        return x * 2.0

    f.defjvp(rule)
    return lambda: ts.grad(lambda x: f(x).sum())(X)


def forward(x: Any, n: Any) -> Any:
    return x * 2.0, ()


def branch_to_ones(x: Any, zeros: Any) -> Any:
    return ts.cond(x.sum() > 0, lambda: zeros + 1.0, lambda: zeros)


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "no pair": (reverse_of(lambda x, n: x * 2.0, lambda r, g: (g, None)), PytreeError, r"pair, \(result, residuals\)"),
    "form of the result": (reverse_of(lambda x, n: ((x, x), ()), lambda r, g: (g, None)), PytreeError, "in its form"),
    "shape of the result": (
        reverse_of(lambda x, n: (x[0], ()), lambda r, g: (g, None)),
        ShapeError,
        r"as \[3\] f64, and the result is \[4, 3\] f64",
    ),
    "dtype of the result": (
        reverse_of(lambda x, n: (x.cast(ts.f32), ()), lambda r, g: (g, None)),
        DTypeError,
        r"as \[4, 3\] f32, and the result is \[4, 3\] f64",
    ),
    "count": (reverse_of(forward, lambda r, g: (g,)), PytreeError, "tuple of 2 cotangents.* got 1 of them"),
    "no tuple": (reverse_of(forward, lambda r, g: g), PytreeError, "which is no tuple"),
    "shape": (reverse_of(forward, lambda r, g: (g.sum(), None)), ShapeError, r"as \[\] f64, and .* \[4, 3\] f64"),
    "dtype": (reverse_of(forward, lambda r, g: (g.cast(ts.f32), None)), DTypeError, r"as \[4, 3\] f32"),
    "integer": (reverse_of(forward, lambda r, g: (g, g)), DTypeError, "i64 has no derivative"),
    "form": (reverse_of(forward, lambda r, g: ((g, g), None)), PytreeError, "cotangent of `x` of `f`"),
    "text": (reverse_of(forward, lambda r, g: ("g", None)), PytreeError, "'g' of type `str`"),
    "tangent, no pair": (forward_of(lambda p, t: p[0]), PytreeError, r"pair, \(result, tangent\)"),
    "tangent, shape": (forward_of(lambda p, t: (p[0] * 2.0, t[0][0])), ShapeError, r"`result` of `f` as \[3\]"),
    "tangent of results": (forward_of(lambda p, t: (p[0] * t[0], t[0])), DifferentiationError, "result that depends"),
    "constant": (forward_of(lambda p, t: (p[0] * 2.0, p[0])), DifferentiationError, "does not depend on the tangents"),
    "affine": (
        forward_of(lambda p, t: (p[0] * 2.0, t[0] + 1.0)),
        DifferentiationError,
        "`add` in it takes a tangent together with a value that is none",
    ),
    "square": (forward_of(lambda p, t: (p[0] * 2.0, t[0] * t[0])), DifferentiationError, "multiplies two tangents"),
    "divisor": (forward_of(lambda p, t: (p[0] * 2.0, p[0] / t[0])), DifferentiationError, "divides by a tangent"),
    "sine": (forward_of(lambda p, t: (p[0] * 2.0, ops.sin(t[0]))), DifferentiationError, "`sin` in it is not linear"),
    "softmax": (forward_of(lambda p, t: (p[0] * 2.0, ops.softmax(t[0]))), DifferentiationError, "`softmax` in it is"),
    "scan": (
        forward_of(lambda p, t: (p[0] * 2.0, ts.scan(lambda c, r: (c, r * r), p[0][0], t[0])[1])),
        DifferentiationError,
        "multiplies two tangents",
    ),
    "branch without a tangent": (
        forward_of(lambda p, t: (p[0] * 2.0, ts.cond(p[0].sum() > 0, lambda: t[0] * 2.0, lambda: ops.ones_like(t[0])))),
        DifferentiationError,
        "`cond` in it gives either a tangent or a value that depends on none",
    ),
    "start of a loop": (
        forward_of(lambda p, t: (p[0] * 2.0, ts.scan(lambda c, r: (r, c), ops.ones((3,), ts.f64), t[0])[1])),
        DifferentiationError,
        "`scan` in it gives either a tangent or a value that depends on none",
    ),
    "branch of zeros": (
        forward_of(lambda p, t: (p[0] * 2.0, t[0] + branch_to_ones(p[0], ops.zeros_like(t[0])))),
        DifferentiationError,
        "`add` in it takes a tangent together with a value that is none",
    ),
    "integers": (
        forward_of(lambda p, t: (p[0] * 2.0, t[0].cast(ts.i32).cast(ts.f64))),
        DifferentiationError,
        "`cast` in it makes integers of a tangent",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_rule_that_does_not_fit_is_refused_at_its_line(case: str) -> None:
    ask, error, message = REFUSED[case]
    with pytest.raises(error, match=message) as caught:
        ask()
    span = caught.value.span  # pyright: ignore[reportAttributeAccessIssue]
    assert span is not None
    assert "lambda" in span.source_line or "forward_of" in span.source_line


def test_linear_rules_of_many_ops_pass() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        rows = ts.scan(lambda c, r: (c + r, c * 2.0), ops.zeros((3,), ts.f64), t)[1]
        chosen = ts.cond(x.sum() > 0.0, lambda: t * 2.0, lambda: -t)
        chosen = chosen + ts.vjp(lambda u: ops.exp(u) * u, x)[1](t)[0]
        chosen = chosen + ts.jvp(ts.checkpoint(lambda u: ops.sin(u) * u), (x,), (t,))[1]
        mixed = ops.where(x > 0.0, t, 0.0) + ops.concat([t[:2], ops.zeros((2, 3), ts.f64)], 0)
        return x * 2.0, (mixed + rows + chosen + (t @ x.T) @ x + t.mean(0) + ops.cumsum(t, 0) - t / (1.0 + x * x)) * 0.5

    @ts.custom_jvp
    def f(x: Any) -> Any:
        return x * 2.0

    f.defjvp(rule)
    pushed = ts.jvp(f, (X,), (Y,))[1]
    pulled = ts.vjp(f, X)[1](X)[0]
    np.testing.assert_allclose((np.asarray(pushed) * X).sum(), (np.asarray(pulled) * Y).sum(), rtol=1e-12)


def test_zeros_that_start_a_loop_stay_linear_through_composite_ops() -> None:
    def rule(primals: Any, tangents: Any) -> Any:
        start = (ops.zeros((3,), ts.f64), ops.zeros((3,), ts.f64))
        step = ts.scan(lambda c, r: ((ops.cumsum(c[1], 0), r), c[0]), start, tangents[0])
        return primals[0] * 2.0, step[1]

    f = ts.custom_jvp(lambda x: x * 2.0)
    f.defjvp(rule)
    expected = np.concatenate([np.zeros((2, 3)), np.cumsum(Y[:2], 1)])
    np.testing.assert_allclose(np.asarray(ts.jvp(f, (X,), (Y,))[1]), expected, rtol=1e-12)


def test_the_tangents_of_every_op_are_found_to_be_linear() -> None:
    found = [
        check_tangents(spec) for spec in REGISTRY if spec.samples and spec.operands and spec.short_name not in WITHOUT
    ]
    assert sum(found) > 300


def check_tangents(spec: OpSpec) -> int:
    """How many programs of an op and its tangents are linear in these, and in nothing else."""
    checked = 0
    for sample in spec.samples[:3]:
        tape = program_of(spec, sample, in_f64(sample))
        active, count = active_inputs(tape), len(tape.inputs)
        if spec.no_derivative or not active:
            continue
        joint = linearize(tape, active).jvp_tape()
        kinds = check_linear(spec.short_name, joint, [PLAIN] * count + [LINEAR] * len(active))
        is_float = [tape.types[output].dtype.is_float for output in tape.outputs]
        assert LINEAR not in kinds[: len(is_float)], spec.name
        assert PLAIN not in [kind for kind, one in zip(kinds[len(is_float) :], is_float, strict=True) if one], spec.name
        checked += 1
    return checked


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ts.custom_vjp(lambda x: x)(X), DifferentiationError, "without a rule"),
        (lambda: ts.custom_jvp(lambda x: x)(X), DifferentiationError, "`custom_jvp` function without a rule"),
        (lambda: ts.custom_vjp(3), ArgumentError, "takes `function` as a function, got 3"),  # pyright: ignore[reportArgumentType]
        (lambda: ts.custom_vjp(lambda x: x, nondiff_argnums="x"), ArgumentError, "nondiff_argnums"),  # pyright: ignore[reportArgumentType]
        (lambda: wave.defvjp(wave_forward, 3), ArgumentError, "takes `backward` as a function"),  # pyright: ignore[reportArgumentType]
        (lambda: ts.custom_vjp(wave.function).defjvp(3), ArgumentError, "takes `rule` as a function"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_wrong_calls_say_what_is_wrong(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_an_eager_pullback_may_be_differentiated() -> None:
    _, pull = ts.vjp(wave, X, Y)
    found = ts.grad(lambda g: (pull(g)[0] ** 2.0).sum())(X)
    np.testing.assert_allclose(np.asarray(found), 2 * (np.cos(X) * Y) ** 2 * X, rtol=1e-12)


def test_an_op_is_given_a_derivative() -> None:
    softmax = ts.custom_vjp(ops.softmax)
    softmax.defvjp(lambda x: (ops.softmax(x), ()), lambda _, g: (g * 11.0,))
    np.testing.assert_array_equal(np.asarray(ts.grad(lambda x: softmax(x).sum())(X)), 11.0)
    floor = ts.custom_jvp(ops.floor)
    floor.defjvp(lambda primals, tangents: (ops.floor(*primals), tangents[0]))
    np.testing.assert_array_equal(np.asarray(ts.grad(lambda x: floor(x).sum())(X)), 1.0)


def test_methods_and_static_instances() -> None:
    class Layer:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @functools.partial(ts.custom_vjp, nondiff_argnums=0)
        def scale(self, x: Any) -> Any:
            return x * self.factor

        scale.defvjp(lambda self, x: (x * self.factor, ()), lambda self, _, g: (g * self.factor * 10.0,))

    layer = Layer(2.0)
    assert np.asarray(ts.grad(lambda x: layer.scale(x).sum())(X))[0, 0] == 20.0


def test_rules_take_defaults_that_a_call_leaves_out() -> None:
    @ts.custom_vjp
    def scale(x: Any, k: Any = 2.0) -> Any:
        return x * k

    scale.defvjp(lambda x, k: (x * k, (x, k)), lambda kept, g: (g * kept[1] * 10.0, (g * kept[0]).sum()))
    for call in (lambda x: scale(x), lambda x: scale(x, 2.0), lambda x: scale(x, k=2.0)):
        np.testing.assert_array_equal(np.asarray(ts.grad(lambda x, call=call: call(x).sum())(X)), 20.0)

    @functools.partial(ts.custom_vjp, nondiff_argnums=(1,))
    def power(x: Any, n: int = 2, *, unused: int = 0) -> Any:
        return x**n

    power.defvjp(lambda x, n: (x**n, x), lambda n, x, g: (g * n * 10.0,))
    for call in (lambda x: power(x), lambda x: power(x, 2), lambda x: power(x, n=2)):
        np.testing.assert_array_equal(np.asarray(ts.grad(lambda x, call=call: call(x).sum())(X)), 20.0)


COMPOSITES: dict[str, Any] = {
    "cumsum": lambda t: ops.cumsum(t, axis=-1),
    "mean": lambda t: t - t.mean(-1, keepdims=True),
    "einsum": lambda t: ops.einsum("...i,ij->...j", t, np.arange(9.0).reshape(3, 3)),
    "gather": lambda t: t[..., np.array([2, 0, 2])],
}
BODIES_OF_RULES: dict[str, Any] = {
    "scan": lambda step, t: ts.scan(lambda c, row: (c, step(row)), 0.0, t)[1],
    "scan of scan": lambda step, t: ts.scan(lambda c, row: ts.scan(lambda c, r: (c, step(r)), c, row[None]), 0.0, t)[1][
        :, 0
    ],
    "cond": lambda step, t: ts.cond(True, lambda: step(t), lambda: t),
    "checkpoint": lambda step, t: ts.checkpoint(step)(t),
}


@pytest.mark.parametrize("body", BODIES_OF_RULES)
@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_ops_in_bodies_of_a_rule_are_transposed_by_their_parts(name: str, body: str) -> None:
    def push(t: Any) -> Any:
        return BODIES_OF_RULES[body](COMPOSITES[name], t)

    @ts.custom_jvp
    def function(x: Any) -> Any:
        return ops.sin(x)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return ops.sin(primals[0]), push(tangents[0]) * ops.cos(primals[0])

    # `push` is linear: what it makes of unit tensors says all.
    units = np.eye(X.size).reshape(X.size, *X.shape)
    expected = [(np.asarray(COMPOSITES[name](ts.array(unit))) * np.cos(X) * Y).sum() for unit in units]
    found = ts.grad(lambda x: (function(x) * Y).sum())(X)
    np.testing.assert_allclose(np.asarray(found).ravel(), expected, rtol=1e-12, atol=1e-12)
