"""`map`, `associative_scan` and `reduce`: against loops in NumPy, under transforms, and combiners that are refused."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DTypeError, PytreeError, ShapeError
from tessera.diagnostics.error import RecompileWarning

RNG = np.random.default_rng(17)
X = RNG.standard_normal((5, 7))


def affine(p: Any, q: Any) -> Any:
    """First `p`, then `q`, of maps `x -> p[0] x + p[1]`."""
    return p[0] * q[0], p[1] * q[0] + q[1]


def add_logs(a: Any, b: Any) -> Any:
    return ops.maximum(a, b) + ops.log1p(ops.exp(-abs(a - b)))


def first_maximum(p: Any, q: Any) -> Any:
    keep = (p[0] > q[0]) | ((p[0] == q[0]) & (p[1] <= q[1]))
    return ops.where(keep, p[0], q[0]), ops.where(keep, p[1], q[1])


def moments(p: Any, q: Any) -> Any:
    """Number, mean and sum of squared differences of two sets of numbers together."""
    count, gap = p[0] + q[0], q[1] - p[1]
    return count, p[1] + gap * q[0] / count, p[2] + q[2] + gap * gap * p[0] * q[0] / count


def prefixes(function: Callable[..., Any], xs: tuple[Any, ...], *, reverse: bool = False) -> list[Any]:
    """What a loop gives, element after element."""
    found: list[Any] = []
    for at in range(len(xs[0])):
        element = tuple(x[len(x) - 1 - at if reverse else at] for x in xs)
        found.append(element if not found else function(found[-1], element))
    ordered = found[::-1] if reverse else found
    return [np.stack([one[at] for one in ordered]) for at in range(len(xs))]


def pair(size: int, *shape: int) -> tuple[Any, Any]:
    return RNG.uniform(0.5, 1.0, (size, *shape)), RNG.standard_normal((size, *shape))


@pytest.mark.parametrize(
    ("size", "reverse"), [(1, False), (2, True), (16, False), (17, True), (18, False), (300, True)]
)
def test_a_scan_is_the_loop(size: int, reverse: bool) -> None:
    xs = pair(size, 3)
    for found, expected in zip(
        ts.associative_scan(affine, xs, reverse=reverse), prefixes(affine, xs, reverse=reverse), strict=True
    ):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-11, atol=1e-12)
    matrices = RNG.standard_normal((2, size, 2, 2)) * 0.7
    found = ts.associative_scan(lambda a, b: a @ b, np.moveaxis(matrices, 0, 1), axis=0, reverse=reverse)
    along = ts.associative_scan(lambda a, b: a @ b, np.moveaxis(matrices, 1, 3), axis=-1, reverse=reverse)
    (expected,) = prefixes(lambda p, q: (p[0] @ q[0],), (np.moveaxis(matrices, 0, 1),), reverse=reverse)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.moveaxis(np.asarray(along), 3, 0), expected, rtol=1e-9, atol=1e-12)


@ts.jit
def scan_any(a: ts.Tensor["N", ts.f64], b: ts.Tensor["N", ts.f64]):
    return ts.associative_scan(affine, (a, b))


@ts.jit
def reduce_any(x: ts.Tensor["N", "M", ts.f64]):
    return ts.reduce(x, -50.0, add_logs, 0), ts.reduce(x, -np.inf, lambda a, b: ops.maximum(a, b))


def test_symbolic_sizes_are_those_of_each_call() -> None:
    for size in (0, 1, 16, 17, 40, 513):
        xs = pair(size)
        for found, expected in zip(scan_any(*xs), prefixes(affine, xs) if size else xs, strict=True):
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-11, atol=1e-12)
        x = RNG.standard_normal((size, 4))
        logs, most = reduce_any(x)
        np.testing.assert_allclose(np.asarray(logs), np.log(np.exp(x).sum(0) + np.exp(-50)), rtol=1e-10)
        assert float(most) == x.max(initial=-np.inf)
    assert len(scan_any.specializations) == 1


def test_gradients_of_scans_are_those_of_loops() -> None:
    loop = lambda a, b: ts.scan(lambda s, p: (s * p[0] + p[1],) * 2, ops.zeros((), ts.f64), (a, b))[1]  # noqa: E731
    weights = RNG.standard_normal(37)
    fast = lambda a, b: (ts.associative_scan(affine, (a, b))[1] * weights).sum()  # noqa: E731
    slow, any_size = (lambda a, b: (loop(a, b) * weights).sum()), (lambda a, b: (scan_any(a, b)[1] * weights).sum())
    xs = pair(37)
    expected = ts.grad(slow, (0, 1))(*xs)
    for one in (fast, any_size):
        for mine, other in zip(ts.grad(one, (0, 1))(*xs), expected, strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=1e-11, atol=1e-12)
        pushed = [float(ts.jvp(each, xs, xs[::-1])[1]) for each in (one, slow)]
        np.testing.assert_allclose(*pushed, rtol=1e-12)
    several = [np.stack([x, x[::-1]]) for x in xs]
    batched = ts.vmap(ts.grad(fast))(*several)
    each = [np.asarray(ts.grad(slow)(*(x[at] for x in several))) for at in range(2)]
    np.testing.assert_allclose(np.asarray(batched), np.stack(each), rtol=1e-11, atol=1e-12)


def test_known_combiners_are_the_ops_that_they_are_the_steps_of() -> None:
    def names(function: Any, *arrays: Any) -> set[str]:
        return {record.op.split(".")[1] for record in ts.Jit(function).trace(*arrays).tape.records}

    assert names(lambda x: ts.associative_scan(lambda a, b: b + a, x), X) == {"cumulative"}
    assert "sum" in names(lambda x: ts.reduce(x, 0.0, lambda a, b: a + b), X)
    assert "scan" not in names(lambda x: ts.reduce(x, 0.0, lambda a, b: a + b), X)
    several = {"a": X, "b": np.abs(X)}
    found = ts.associative_scan(lambda p, q: {"a": ops.maximum(p["a"], q["a"]), "b": p["b"] * q["b"]}, several, axis=1)
    np.testing.assert_array_equal(np.asarray(found["a"]), np.maximum.accumulate(X, 1))
    np.testing.assert_allclose(np.asarray(found["b"]), np.multiply.accumulate(np.abs(X), 1), rtol=1e-13)
    for dtype in (np.int32, np.uint8, np.float16):
        z = (np.arange(40) % 5).astype(dtype)
        made = np.asarray(ts.associative_scan(lambda a, b: a + b, z))
        assert made.dtype == dtype
        np.testing.assert_array_equal(made, np.cumsum(z).astype(dtype))
    bools = np.array([True, False, True])
    np.testing.assert_array_equal(np.asarray(ts.associative_scan(lambda a, b: a ^ b, bools)), [True, True, False])
    assert not bool(ts.reduce(bools, True, lambda a, b: a & b))


def test_reductions_by_combiners() -> None:
    np.testing.assert_allclose(np.asarray(ts.reduce(X, -50.0, add_logs, 1)), np.log(np.exp(X).sum(1)), rtol=1e-12)
    gradient = ts.grad(lambda x: ts.reduce(x, -50.0, add_logs, (0, 1)))(X)
    np.testing.assert_allclose(np.asarray(gradient), np.exp(X) / np.exp(X).sum(), rtol=1e-12)
    ties, numbers = np.round(X), np.broadcast_to(np.arange(7), X.shape)
    most, where = ts.reduce((ties, numbers), (-np.inf, np.int64(99)), first_maximum, 1)
    np.testing.assert_array_equal(np.asarray(most), ties.max(1))
    np.testing.assert_array_equal(np.asarray(where), ties.argmax(1))
    x = RNG.standard_normal(50)
    count, mean, spread = ts.reduce((np.ones(50), x, np.zeros(50)), (1.0, 0.0, 0.0), moments)
    np.testing.assert_allclose([float(count), float(mean)], [51, x.sum() / 51], rtol=1e-12)
    np.testing.assert_allclose(float(spread), np.var(np.append(x, 0)) * 51, rtol=1e-12)
    matrices = RNG.standard_normal((40, 3, 3)) * 0.6
    product = ts.reduce(matrices, np.eye(3), lambda a, b: a @ b, 0)
    np.testing.assert_allclose(np.asarray(product), np.linalg.multi_dot(list(matrices)), rtol=1e-9, atol=1e-15)
    each = ts.vmap(lambda row: ts.reduce(row, -50.0, add_logs))(X)
    np.testing.assert_allclose(np.asarray(each), np.log(np.exp(X).sum(1)), rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(ts.reduce(np.ones((0, 2)), 3.0, lambda a, b: a * b + a + b, 0)), [3, 3])


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "difference": lambda a, b: a - b,
    "mean": lambda a, b: (a + b) / 2.0,
    "saturating sum": lambda a, b: ops.relu(a + b),
    "power": lambda a, b: abs(a) ** b,
    "weighted": lambda a, b: a * 0.5 + b,
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", REFUSED)
def test_a_combiner_that_is_not_associative_is_refused_with_numbers(name: str, dtype: Any) -> None:
    """The numbers in the error are a counterexample."""
    with pytest.raises(ArgumentError, match=r"is not: with a = .*, b = .* and c = .*, ") as caught:
        ts.reduce(np.ones(4, dtype), dtype(0), REFUSED[name])
    assert "associative=True" in str(caught.value)
    declared = ts.reduce(np.ones(4, dtype), dtype(0), REFUSED[name], associative=True)
    assert tuple(declared.shape) == ()


@pytest.mark.parametrize("dtype", [ts.bf16, ts.f16, ts.f32])
def test_bodies_of_combiners_are_tried(dtype: Any) -> None:
    x = ts.array(np.arange(40, dtype=np.float32)).cast(dtype)
    refused: list[Callable[[Any, Any], Any]] = [
        lambda a, b: ts.cond(b > 0.0, lambda: a - b, lambda: a + 2.0 * b),
        lambda a, b: ts.fori_loop(0, 1, lambda _, c: (c - b).cast(c.dtype), a),
    ]
    for function in refused:
        with pytest.raises(ArgumentError, match="is not: with a = "):
            ts.associative_scan(function, x)
    larger = ts.associative_scan(lambda a, b: ts.cond(b > a, lambda: b, lambda: a), x)
    np.testing.assert_array_equal(np.asarray(larger.cast(ts.f32)), np.arange(40))


LIMITED: dict[str, Callable[[Any, Any], Any]] = {
    "above": lambda a, b: ops.minimum(a + b, 127),
    "both": lambda a, b: ops.clamp(a + b, -100, 100),
    "far": lambda a, b: ops.clamp(a + b, -70000, 70000),
    "choice": lambda a, b: ops.where(a > 20, a - b, a + b),
    "in a branch": lambda a, b: ts.cond(a > 5000, lambda: a, lambda: a + b),
}


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("name", LIMITED)
def test_combiners_are_tried_where_their_constants_are(name: str, dtype: Any) -> None:
    with pytest.raises(ArgumentError, match="is not: with a = "):
        ts.reduce(np.ones(4, dtype), dtype(0), LIMITED[name])


def test_a_narrow_sum_is_tried_up_to_its_limit() -> None:
    with pytest.raises(ArgumentError, match="is not: with a = "):
        ts.reduce(np.ones(4, np.int8), np.int8(0), lambda a, b: ops.minimum(a + b, 100))


ACCEPTED: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "product modulo 7": (lambda a, b: a * b % 7, [np.int8, np.int16, np.int32, np.int64]),
    "sum modulo 360": (lambda a, b: (a + b) % 360, [np.int32, np.float64]),
    "product modulo a prime": (lambda a, b: a * b % 1000000007, [np.int64]),
    "limited maximum": (lambda a, b: ops.minimum(ops.maximum(a, b), 50), [np.int32, np.float32]),
    "sum of logs": (add_logs, [np.float16, np.float32, np.float64]),
    "naive sum of logs": (lambda a, b: ops.log(ops.exp(a) + ops.exp(b)), [np.float32, np.float64]),
    "length": (lambda a, b: ops.sqrt(a * a + b * b), [np.float16, np.float32, np.float64]),
    "speed": (lambda a, b: (a + b) / (1.0 + a * b), [np.float32, np.float64]),
    "circle product": (lambda a, b: a + b - a * b, [np.float16, np.float64]),
    "mask": (lambda a, b: ops.where(a > -1e30, a, b), [np.float32, np.float64]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_associative_combiners_pass_at_every_scale(name: str) -> None:
    function, dtypes = ACCEPTED[name]
    for dtype in dtypes:
        for rows in ((), (30,)):
            ts.reduce(np.ones((4, *rows), dtype), np.ones(rows, dtype), function, 0)


def test_numbers_of_a_counterexample_are_one() -> None:
    with pytest.raises(ArgumentError) as caught:
        ts.associative_scan(lambda a, b: a - b, np.arange(4))
    text = str(caught.value).splitlines()[0]
    a, b, c, first, second = (
        int(text.split(mark)[1].split(end)[0].strip(" ,"))
        for mark, end in (("a = ", ","), ("b = ", "and"), ("c = ", ","), ("c) is ", "and"), ("c)) is ", "\n"))
    )
    assert ((a - b) - c, a - (b - c)) == (first, second)


def test_a_small_difference_is_seen_in_the_error() -> None:
    with pytest.raises(ArgumentError, match=r"which differ by up to \d.*e-0?9"):
        ts.reduce(np.ones(4), 0.0, lambda a, b: a + b + a * 1e-9)
    with pytest.raises(ArgumentError, match=r"in value 1 and"):
        ts.reduce((np.ones(4), np.ones(4)), (0.0, 0.0), lambda p, q: (p[0] * 1.1 * q[0], p[1] - q[1]))


def test_many_lengths_are_warned_of_with_what_a_caller_can_do() -> None:
    function = lambda a, b: a + b + a * b  # noqa: E731
    for size in range(2, 10):
        ts.associative_scan(function, np.ones(size), associative=True)
    with pytest.warns(RecompileWarning, match="function of your own under `jit`") as caught:
        ts.associative_scan(function, np.ones(10), associative=True)
    assert "annotate `xs" not in str(caught[0].message)


def test_wrong_combiners_say_what_is_wrong() -> None:
    calls: list[tuple[Any, type[Exception], str]] = [
        (lambda: ts.associative_scan(lambda a, b: (a, b), X), PytreeError, "must return an element"),
        (lambda: ts.associative_scan(lambda a, b: a.sum() + b.sum(), X), ShapeError, "takes elements of"),
        (lambda: ts.associative_scan(lambda a, b: a > b, X), DTypeError, "takes elements of"),
        (
            lambda: ts.associative_scan(lambda a, b: a + b, (X, X[:3])),
            ShapeError,
            "one length along the axis, got 5 and 3",
        ),
        (lambda: ts.associative_scan(lambda a, b: a + b, ()), PytreeError, "takes a tensor"),
        (lambda: ts.associative_scan(lambda a, b: a + b, X, associative=False), ArgumentError, "is said not to be"),
        (lambda: ts.reduce(X, (0.0, 0.0), lambda a, b: a + b), PytreeError, "in the form of `x`"),
        (lambda: ts.reduce(X, np.zeros(3), lambda a, b: a + b, 0), ShapeError, "takes `init` as a scalar"),
        (lambda: ts.reduce(X, np.int64(0), lambda a, b: a + b, 0), DTypeError, "takes `init` of that dtype"),
        (lambda: ts.map(lambda p: p[0], (X, X[:3])), ShapeError, "`map` needs tensors of one length"),
        (lambda: ts.jit(lambda x: ts.map(lambda p: p[0], (x, x[:3])))(X), ShapeError, "`map` needs tensors"),
        (lambda: ts.map(lambda x: x, None), PytreeError, "`map` takes a tensor"),
        (lambda: ts.map(lambda x: x, 1.0), ShapeError, "`map` goes along an axis"),
        (lambda: ts.map(lambda x: x, X, batch_size=0), ArgumentError, "`batch_size` from 1, got 0"),
    ]
    for call, error, said in calls:
        with pytest.raises(error) as caught:
            call()
        assert said in str(caught.value).splitlines()[0]  # further lines show this file


def test_map_is_a_loop_in_batches_of_any_size() -> None:
    function = lambda row: {"sum": ops.sin(row).sum(), "row": row * 2.0}  # noqa: E731

    @ts.jit
    def any_size(x: ts.Tensor["N", 7, ts.f64]):
        return ts.map(function, x, batch_size=2)

    for size in (0, 1, 2, 5):
        x = X[:size]
        for found in (any_size(x), ts.map(function, x, batch_size=2), ts.jit(lambda x: ts.map(function, x))(x)):
            np.testing.assert_allclose(np.asarray(found["sum"]), np.sin(x).sum(1), rtol=1e-13)
            np.testing.assert_array_equal(np.asarray(found["row"]), x * 2)
    gradient = ts.grad(lambda x: any_size(x)["sum"].sum())(X)
    np.testing.assert_allclose(np.asarray(gradient), np.cos(X), rtol=1e-13)


@pytest.mark.parametrize("reverse", [False, True])
def test_captured_arrays_are_gone_through_in_groups(reverse: bool) -> None:
    xs = np.arange(5, dtype=np.float32)

    def run(y: Any) -> Any:
        _, sums = ts.scan(lambda c, x: (c + x, c + x), ts.ops.zeros(()), xs, unroll=2, reverse=reverse)
        return (sums + ts.map(lambda x: x * 2.0, xs, batch_size=2)) * y

    sums = np.cumsum(xs[::-1])[::-1] if reverse else np.cumsum(xs)
    assert ts.jit(run)(ts.array(1.0)).tolist() == (sums + 2 * xs).tolist()
    assert float(ts.grad(lambda y: run(y).sum())(ts.array(1.0))) == float((sums + 2 * xs).sum())
