"""`shard_map` and `pmap`: parts make the whole, under every transform; what does not divide is named."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist, ops
from tessera.diagnostics.codes import ArgumentError, DonatedError, PytreeError, ShapeError, ShardingError
from tessera.dist import LOCAL, P
from tests.runtime.ranks.threads import on_ranks

RNG = np.random.default_rng(3)
X, W = RNG.standard_normal((8, 4)), RNG.standard_normal((4, 6))


def whole(x: Any, w: Any) -> Any:
    return ops.tanh(x @ w).sum(axis=0)


def of_one_rank(x: Any, w: Any) -> Any:
    return dist.all_reduce(ops.tanh(x @ w).sum(axis=0), "dp")


sharded = dist.shard_map(of_one_rank, (P("dp"), P(None, "tp")), P("tp"))


def squares(function: Any) -> Any:
    return lambda x, w: (function(x, w) ** 2.0).sum()


def transformed(function: Any) -> list[Any]:
    """A function under each transform, and two of them together."""
    x, w = ts.asarray(X), ts.asarray(W)
    stacked = np.stack([X, 2 * X])
    carried = ts.jit(lambda x, w: ts.scan(lambda c, row: (c + function(row, w), c.sum()), ops.zeros((6,), ts.f64), x))
    return [
        function(X, W),
        *ts.jit(ts.grad(squares(function), (0, 1)))(X, W),
        ts.jvp(lambda x: function(x, w), (x,), (x,))[1],
        ts.vmap(function, in_axes=(0, None))(stacked, W),
        ts.vmap(ts.grad(squares(function), 1), in_axes=(0, None))(stacked, W),
        carried(stacked, W)[0],
        ts.grad(squares(ts.checkpoint(function)))(x, w),
    ]


def test_t6_parts_make_the_whole_under_every_transform() -> None:
    expected = [np.asarray(one) for one in transformed(whole)]
    for found in on_ranks(lambda _: [np.asarray(one) for one in transformed(sharded)], dp=2, tp=2):
        assert not isinstance(found, Exception), found
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)


def test_a_dim_over_two_axes_trees_of_specs_and_values_of_each_rank() -> None:
    def one(tree: dict[str, Any], own: Any) -> tuple[Any, Any]:
        return {"x": tree["x"] * 2.0, "w": tree["w"]}, own + ts.dist.axis_index("tp").astype(ts.f64)

    function = dist.shard_map(
        one, ({"x": P(("dp", "tp")), "w": None}, LOCAL), ({"x": P(("dp", "tp")), "w": None}, LOCAL)
    )
    for rank, found in enumerate(on_ranks(lambda rank: function({"x": X, "w": W}, np.float64(rank)), dp=2, tp=2)):
        tree, own = found
        np.testing.assert_array_equal(np.asarray(tree["x"]), 2 * X)
        np.testing.assert_array_equal(np.asarray(tree["w"]), W)
        assert float(own) == rank + rank % 2


def captured_losses() -> list[Any]:
    """Losses of a scalar that the function of one rank captures: of the trace around, of a loop, of another one."""
    x = X.astype(np.float32)

    def by_map(w: Any) -> Any:
        return (dist.shard_map(lambda x: ops.tanh(x * w), P("dp"), P("dp"))(x) ** 2.0).sum()

    def by_pmap(w: Any) -> Any:
        return dist.pmap(lambda x: (x * w).sum(), "dp")(x[:2]).sum()

    def by_sum(w: Any) -> Any:
        return dist.shard_map(lambda x: dist.all_reduce((x * w * w).sum(), "dp"), P("dp"))(x)

    def in_loop(w: Any) -> Any:
        return ts.scan(lambda c, row: (c + by_map(w * row.sum()), c), w * 0.0, x)[0]

    def nested(w: Any) -> Any:
        def rows(x: Any) -> Any:
            v = w * x.sum(axis=1, keepdims=True)
            return dist.shard_map(lambda y: ops.sin(y * v * w), P(None, "tp"), P(None, "tp"), axes=("tp",))(x)

        return dist.shard_map(rows, P("dp"), P("dp"), axes=("dp",))(x).sum()

    return [by_map, by_pmap, by_sum, in_loop, nested]


def test_derivatives_by_what_is_captured_are_those_of_the_whole() -> None:
    w = np.float32(0.5)

    def run(_: int) -> list[float]:
        first = [float(ts.grad(loss)(w)) for loss in captured_losses()]
        one, first_loss = ts.asarray(np.float32(1)), captured_losses()[0]
        tangents = [float(ts.jvp(loss, (ts.asarray(w),), (one,))[1]) for loss in captured_losses()]
        second = ts.grad(lambda v: ts.jvp(first_loss, (v,), (one,))[1])(ts.asarray(w))
        return [*first, *tangents, float(ts.grad(ts.grad(first_loss))(w)), float(second)]

    x = X.astype(np.float32)

    def plain(w: Any) -> Any:
        return (ops.tanh(x * w) ** 2.0).sum()

    expected = [
        plain,
        lambda w: (x[:2] * w).sum(),
        lambda w: (x * w * w).sum(),
        lambda w: sum(plain(w * row.sum()) for row in x),
        lambda w: ops.sin(x * (w * x.sum(axis=1, keepdims=True)) * w).sum(),
    ]
    wanted = [float(ts.grad(loss)(w)) for loss in expected]
    for found in on_ranks(run, dp=2, tp=2):
        assert not isinstance(found, Exception), found
        second = float(ts.grad(ts.grad(plain))(w))
        np.testing.assert_allclose(found, [*wanted, *wanted, second, second], rtol=2e-4)


@pytest.mark.parametrize("axes", [("dp", "tp"), ("tp", "dp")])
def test_a_dim_over_two_axes_in_either_order(axes: tuple[str, str]) -> None:
    places = {("dp", "tp"): (2, 1), ("tp", "dp"): (1, 2)}[axes]

    def run(_: int) -> Any:
        def one(x: Any) -> Any:
            at = dist.axis_index("dp") * places[0] + dist.axis_index("tp") * places[1]
            return x * 2.0, at.reshape((1,))

        doubled, order = dist.shard_map(one, P(axes), P(axes))(X)
        by_x = ts.grad(lambda x: (dist.shard_map(lambda x: x * x, P(axes), P(axes))(x) * X).sum())(X)
        return [np.asarray(found) for found in (doubled, order, by_x)]

    for found in on_ranks(run, dp=2, tp=2):
        assert not isinstance(found, Exception), found
        np.testing.assert_array_equal(found[0], 2 * X)
        np.testing.assert_array_equal(found[1], np.arange(4))
        np.testing.assert_allclose(found[2], 2 * X * X)


def test_t3_pmap_runs_an_element_on_each_rank_and_takes_over_what_is_donated() -> None:
    share = dist.pmap(lambda x, w: x * w / dist.all_reduce(x.sum(), "dp"), "dp", (0, None), donate={"x"})
    total = dist.pmap(lambda x: ts.scan(lambda c, one: (c + one, c), x[0] * 0.0, x)[0], in_axes=1, out_axes=0)

    def run(_: int) -> Any:
        x = ts.asarray(X[:4]).copy()
        found = np.asarray(share(x, 3.0))
        with pytest.raises(DonatedError):
            np.asarray(x)
        return found, np.asarray(total(X[:, :4]))

    for found in on_ranks(run, dp=4):
        assert not isinstance(found, Exception), found
        np.testing.assert_allclose(found[0], 3.0 * X[:4] / X[:4].sum(), rtol=1e-12)
        np.testing.assert_allclose(found[1], X[:, :4].sum(axis=0), rtol=1e-12)


REFUSED: list[tuple[Any, tuple[Any, ...], type[Exception], str]] = [
    (P("dp"), (X[:7],), ShapeError, r"dim 0 of argument 0 \[7, 4\] is 7, which the 2 ranks of `dp` do not divide"),
    (P(None, ("dp", "tp")), (W,), ShapeError, r"dim 1 of argument 0 \[4, 6\] is 6, which the 4 ranks of `dp`, `tp` do"),
    (
        P("pp"),
        (X,),
        ArgumentError,
        r"argument 0 is divided along mesh axis `pp`, and the axes here are `dp` \(2 ranks\)",
    ),
    (
        P(None, None, "dp"),
        (X,),
        ShapeError,
        r"argument 0 has 2 dims, \[8, 4\], and its sharding \[{}, {}, {dp}\]",
    ),
    ((P("dp"), P("tp")), (X,), ArgumentError, "`in_specs` has 2 entries, and the function is called with 1 arguments"),
    (({"x": P("dp")},), (X,), PytreeError, "specs of argument 0 are a dict of 1, and it is an array"),
]


@pytest.mark.parametrize(("specs", "arguments", "error", "text"), REFUSED)
def test_what_does_not_fit_is_named(specs: Any, arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    with dist.mesh(dp=2, tp=2), pytest.raises(error, match=text) as caught:
        dist.shard_map(lambda x: x, specs, P("dp")).trace(*arguments)  # pyright: ignore[reportFunctionMemberAccess]
    assert getattr(caught.value, "fix", None) is not None


@pytest.mark.parametrize("axes", [-1, True, (0, 0), "dp"])
def test_axes_of_results_are_counted_from_the_first(axes: Any) -> None:
    with pytest.raises(ArgumentError, match="`pmap` takes `out_axes` as axes from 0 or None"):
        dist.pmap(lambda x: x, "dp", 0, axes)


@pytest.mark.parametrize("dim", [1, -1])
def test_a_scan_over_ranks_along_a_dim_from_either_end(dim: int) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    parts = dist.shard_map(lambda x: dist.sharded_scan(ops.add, x, "sp", dim), P(None, "sp"), P(None, "sp"))
    for found in on_ranks(lambda _: np.asarray(parts(x)), sp=3):
        assert not isinstance(found, Exception), found
        np.testing.assert_array_equal(found, np.cumsum(x, 1))


def test_axes_and_batches_are_those_of_the_mesh() -> None:
    with pytest.raises(
        ArgumentError, match=r"`shard_map` runs on the ranks of a mesh, and what is in force is mesh\(\)"
    ):
        sharded(X, W)
    with pytest.raises(ShardingError, match="mesh axis `dp` is there 2 times"):
        P("dp", "dp")
    with pytest.raises(ShardingError, match="over axes by name, got 3"):
        P(3)  # pyright: ignore[reportArgumentType]
    for specs in ((0, 1), dist.Sharding.of("dp", partial=("tp",))):
        with pytest.raises(ArgumentError, match="takes `in_specs` of"):
            dist.shard_map(whole, specs)
    with dist.mesh(dp=2), pytest.raises(ShapeError, match=r"\[8, 4\] has its batch at axis 0, and `dp` has 2 ranks"):
        dist.pmap(lambda x: x).trace(X)
    with pytest.raises(ArgumentError, match=r"`pmap` is for mesh axis `dp`, and what is in force is mesh\(\)"):
        dist.pmap(lambda x: x, "dp")(X)
    with pytest.raises(ArgumentError, match="unexpected argument `axis_name` of `pmap`"):
        dist.pmap(lambda x: x, axis_name="dp")
    with dist.mesh(dp=2, tp=2), pytest.raises(ArgumentError, match=r"`pmap` needs the name of a mesh axis, and"):
        dist.pmap(lambda x: x).trace(X)


def test_a_mesh_of_one_rank_is_said_to_have_one() -> None:
    with pytest.raises(ShardingError, match=r"`tp` \(1 rank\)"), ts.dist.mesh(tp=1, layout={"B": "dp"}):
        pass
