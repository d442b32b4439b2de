"""`partition`: functions for whole tensors on ranks with parts, on compiled code, and what is refused by name."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, dist, f32, ops
from tessera.diagnostics.codes import AnnotationError, ArgumentError, DifferentiationError, ShardingError
from tessera.dist import shard
from tests.runtime.ranks import programs
from tests.runtime.ranks.threads import on_ranks

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X, A, B = normal(8, 16), normal(16, 32), normal(32, 16)


def mlp(x: Any, a: Any, b: Any) -> Any:
    return ops.relu(x @ a) @ b


def test_a_function_for_whole_tensors_runs_on_parts() -> None:
    def rank(_: int) -> Any:
        function = dist.partition(mlp, (("dp", None), (None, "tp"), ("tp", None)))
        parts = [dist.shard_of(X, ("dp", None)), dist.shard_of(A, (None, "tp")), dist.shard_of(B, ("tp", None))]
        return np.asarray(function(*parts)), dist.partition_report(function)

    found = on_ranks(rank, dp=2, tp=2)
    whole = np.maximum(X @ A, 0) @ B
    for number, (part, report) in enumerate(found):
        np.testing.assert_allclose(part, np.split(whole, 2)[number // 2], rtol=1e-4, atol=1e-4)
        assert [one.call for one in report.collectives] == ["all_reduce"]
        assert str(report.outputs[0]) == "[{dp}, {}]"


def loss(weights: Any, x: Any, y: Any) -> Any:
    hidden = ops.layernorm(ops.gelu(x @ weights["a"]))
    return ops.cross_entropy(hidden @ weights["b"], y).mean()


def step(weights: Any, x: Any, y: Any) -> Any:
    value, gradient = ts.value_and_grad(loss)(weights, x, y)
    return value, {name: weights[name] - 0.1 * gradient[name] for name in weights}


def test_a_step_of_training_on_parts_is_that_of_the_whole() -> None:
    weights, y = {"a": A, "b": B}, RNG.integers(0, 16, 8)
    specs = {"a": (None, "tp"), "b": ("tp", None)}

    def rank(_: int) -> Any:
        function = dist.partition(step, (specs, ("dp", None), ("dp",)), (None, specs))
        parts = {name: dist.shard_of(weights[name], specs[name]) for name in specs}
        rows, targets = dist.shard_of(X, ("dp", None)), dist.shard_of(y, ("dp",))
        losses = list[float]()
        for _ in range(3):
            value, parts = function(parts, rows, targets)
            losses.append(float(value))
        return losses, {name: np.asarray(one) for name, one in parts.items()}

    wanted, losses = weights, list[float]()
    for _ in range(3):
        value, wanted = ts.jit(step)(wanted, X, y)
        losses.append(float(value))
    for number, (values, parts) in enumerate(on_ranks(rank, dp=2, tp=2)):
        np.testing.assert_allclose(values, losses, rtol=1e-5)
        np.testing.assert_allclose(
            parts["a"], np.split(np.asarray(wanted["a"]), 2, 1)[number % 2], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            parts["b"], np.split(np.asarray(wanted["b"]), 2, 0)[number % 2], rtol=1e-4, atol=1e-5
        )


@ts.jit
def annotated(
    x: Tensor["B", "D", f32] @ shard("dp"),  # pyright: ignore[reportInvalidTypeForm, reportUnknownParameterType]
    a: Tensor["D", "H", f32] @ shard(H="tp"),  # pyright: ignore[reportInvalidTypeForm, reportUnknownParameterType]
    b: Any,
) -> Any:
    return ops.relu(x @ a) @ b


def test_annotations_say_how_arguments_are_sharded() -> None:
    def rank(_: int) -> Any:
        parts = [dist.shard_of(X, ("dp", None)), dist.shard_of(A, (None, "tp")), B]
        return np.asarray(annotated(*parts)), dist.partition_report(annotated)

    whole = np.maximum(X @ A, 0) @ B
    for number, (part, report) in enumerate(on_ranks(rank, dp=2, tp=2)):
        np.testing.assert_allclose(part, np.split(whole, 2)[number // 2], rtol=1e-4, atol=1e-4)
        assert [str(one) for _, one in report.inputs] == ["[{dp}, {}]", "[{}, {tp}]", "[{}, {}]"]
    # In a process that is alone it is the function as it is.
    np.testing.assert_allclose(np.asarray(annotated(X, A, B)), whole, rtol=1e-4, atol=1e-4)


def named(x: Tensor["batch", "width", f32], w: Tensor["width", "hidden", f32]) -> Any:
    return ops.softmax(x @ w, axis=-1)


def test_the_layout_of_a_mesh_shards_dims_by_name() -> None:
    def rank(_: int) -> Any:
        with dist.mesh(dp=2, tp=2, layout={"batch": "dp", "hidden": "tp", "width": "replicate"}):
            function = dist.partition(named)
            found = function(dist.shard_of(X, ("dp", None)), dist.shard_of(A, (None, "tp")))
            return np.asarray(found), dist.partition_report(function)

    whole = np.asarray(ts.jit(named)(X, A))
    for number, (part, report) in enumerate(on_ranks(rank, dp=2, tp=2)):
        assert str(report.outputs[0]) == "[{dp}, {tp}]"
        wanted = np.split(np.split(whole, 2)[number // 2], 2, 1)[number % 2]
        np.testing.assert_allclose(part, wanted, rtol=1e-4, atol=1e-6)


def test_another_mesh_is_another_program() -> None:
    function = dist.partition(lambda x: x.sum(0), (("dp", None),))
    found = [on_ranks(lambda _: np.asarray(function(dist.shard_of(X, ("dp", None)))), dp=size) for size in (2, 4)]
    for results in found:
        for one in results:
            np.testing.assert_allclose(one, X.sum(0), rtol=1e-4, atol=1e-5)


def test_parts_of_one_explicit_program_may_be_global() -> None:
    inner = dist.partition(lambda x, w: (x @ w).sum(), (("dp", None), None))

    @ts.jit
    def mixed(x: Any, w: Any) -> Any:
        return inner(x, w) + dist.all_reduce(x.sum(), "dp")

    found = on_ranks(lambda _: float(mixed(dist.shard_of(X, ("dp", None)), A)), dp=2)
    np.testing.assert_allclose(found, [(X @ A).sum() + X.sum()] * 2, rtol=1e-4)


@pytest.mark.slow
def test_ranks_that_are_processes_train_as_one() -> None:
    found: list[Any] = dist.run(programs.partitioned_step, ranks=4)
    wanted = programs.whole_step()
    for value in found:
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


def call(function: Any, *args: Any, **mesh: int) -> Any:
    with dist.mesh(**mesh):
        return function.trace(*args)


ILLEGAL: list[tuple[str, Any, str]] = [
    ("axis twice", lambda: dist.Sharding.of("dp", "dp"), r"`dp` is there 2 times.*dim 0, dim 1"),
    ("axis cut and partial", lambda: dist.Sharding.of("dp", partial=["dp"]), r"`dp` is there 2 times"),
    ("no name", lambda: shard("dp-1"), r"by name, got 'dp-1'"),
    ("too many dims", lambda: Tensor["B", f32] @ shard("dp", "tp"), r'`Tensor\["B", f32\]` has 1 dims.*for 2'),
    ("no such dim", lambda: Tensor["B", "D", f32] @ shard(H="tp"), r"0 dims named `H`"),
    ("dim twice", lambda: Tensor["B", "B", f32] @ shard(B="tp"), r"2 dims named `B`"),
    ("axis for two dims", lambda: Tensor["B", "D", f32] @ shard(B="tp", D="tp"), r"`tp` is there 2 times"),
    (
        "axis not in the mesh",
        lambda: call(dist.partition(mlp, (("ep", None), None, None)), X, A, B, dp=2),
        r"`x` is sharded as \[{ep}, {}\].*no axis `ep`: it has `dp` \(2 ranks\)",
    ),
    (
        "other order",
        lambda: call(dist.partition(mlp, ((("tp", "dp"), None), None, None)), X, A, B, dp=2, tp=2),
        r"`x.shape\[0\] = 32` is sharded over tp, dp",
    ),
    (
        "other rank",
        lambda: call(dist.partition(mlp, (("dp",), None, None)), X, A, B, dp=2),
        r"`x` has 2 dims, and its sharding \[{dp}\] is of 1",
    ),
    ("no sharding", lambda: call(dist.partition(mlp, (3, None, None)), X, A, B, dp=2), r"`x` is sharded as 3"),
    ("no such number", lambda: call(dist.partition(mlp, ({2: "dp"}, None, None)), X, A, B, dp=2), r"names dim 2"),
    (
        "uneven result",
        lambda: call(dist.partition(mlp, None, ("dp", None)), X[:7], A, B, dp=2),
        r"`.*.shape\[0\] = 7` cannot be cut into 2 equal parts over `dp` 2",
    ),
    (
        "uneven part",
        lambda: with_mesh(lambda: dist.shard_of(X[:7], ("dp", None)), dp=2),
        r"`x.shape\[0\] = 7` cannot be cut into 2",
    ),
    (
        "constraint of other rank",
        lambda: call(ts.jit(lambda x: shard(x, ("dp",))), X, dp=2),
        r"`x` of `shard` has 2 dims",
    ),
    (
        "constraint on no axis",
        lambda: call(dist.partition(lambda x: shard(x, ("ep", None)), (None,)), X, dp=2),
        r"`shard at line \d+.shape\[0\] = 8`|mesh axis `ep`",
    ),
    (
        "uneven constraint",
        lambda: call(dist.partition(lambda x: shard(x, (None, "dp")), (None,)), X[:, :5], dp=2),
        r"shape\[1\] = 5` cannot be cut into 2 equal parts over `dp` 2",
    ),
    (
        "a collective inside",
        lambda: call(dist.partition(lambda x: dist.all_reduce(x, "dp"), (None,)), X, dp=2),
        r"`all_reduce` over mesh axis `dp` is in a program for whole tensors",
    ),
    (
        "layout on no axis",
        lambda: with_mesh(lambda: None, layout={"batch": "ep"}, dp=2),
        r"dim `batch` over mesh axis `ep`",
    ),
    (
        "layout on two axes",
        lambda: with_mesh(lambda: None, layout={"batch": "shard"}, dp=2, tp=2),
        r"dim `batch` is \"shard\"",
    ),
    (
        "layout against itself",
        lambda: with_mesh(lambda: dist.partition(named).trace(X, A), layout={"batch": "dp", "width": "dp"}, dp=2),
        r"dims `batch` and `width` of `x`.*`dp`",
    ),
    (
        "layout against an annotation",
        lambda: with_mesh(lambda: annotated.trace(X, A, B), layout={"B": "tp"}, dp=2, tp=2),
        r"`x` is annotated as .*dim `B` over tp",
    ),
    (
        "terms of nothing",
        lambda: call(dist.partition(lambda x: ops.exp(x), None, dist.Sharding.of(None, None, partial=["dp"])), X, dp=2),
        r"cannot be terms of a sum over 2 ranks",
    ),
    (
        "another form",
        lambda: call(dist.partition(lambda p: p["a"], ({"b": None},)), {"a": A}, dp=2),
        r"shardings of p are in its form",
    ),
]


def with_mesh(work: Any, **mesh: Any) -> Any:
    with dist.mesh(**mesh):
        return work()


@pytest.mark.parametrize(("what", "use", "message"), ILLEGAL, ids=[name for name, *_ in ILLEGAL])
def test_illegal_uses_are_refused_by_name(what: str, use: Any, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        use()


def test_derivatives_of_a_partitioned_function_are_taken_inside() -> None:
    def square(x: Any) -> Any:
        return (x * x).sum()

    part = dist.partition(square, (("dp",),))
    x = np.arange(4, dtype=np.float32)
    one = ts.asarray(x[:2])
    uses = [
        lambda: ts.grad(part)(one),
        lambda: ts.jvp(part, (one,), (one,)),
        lambda: ts.jit(lambda x: ts.vjp(part, x)[1](ts.asarray(np.float32(1))))(one),
        lambda: ts.grad(lambda x: (x * part(x)).sum())(one),
        lambda: ts.grad(lambda w: part(one * w))(ts.asarray(np.float32(1))),
        lambda: ts.grad(lambda w: dist.partition(lambda x: (x * w).sum(), (("dp",),))(one))(ts.asarray(np.float32(1))),
    ]

    def refused(_: int) -> list[str]:
        found: list[str] = []
        for use in uses:
            with pytest.raises(DifferentiationError, match="a partitioned function is differentiated") as error:
                use()
            found.append(str(error.value))
        return found

    for found in on_ranks(refused, dp=2):
        assert not isinstance(found, Exception), found
        assert all("`partition(grad(f), ...)`" in text for text in found)

    def allowed(rank: int) -> Any:
        own = ts.asarray(x[2 * rank : 2 * rank + 2])
        inside = dist.partition(ts.grad(square), (("dp",),))(own)
        # A value that nothing is differentiated by may come from one.
        beside = ts.grad(lambda y: (y * part(own)).sum())(own)
        return np.asarray(inside), np.asarray(beside)

    for rank, found in enumerate(on_ranks(allowed, dp=2)):
        assert not isinstance(found, Exception), found
        np.testing.assert_array_equal(found[0], 2 * x[2 * rank : 2 * rank + 2])
        np.testing.assert_array_equal(found[1], [14.0, 14.0])


def test_wrong_calls_are_explained() -> None:
    with pytest.raises(ArgumentError, match="`in_shardings` for 1 arguments, and is called with 3"):
        call(dist.partition(mlp, (None,)), X, A, B, dp=2)
    with pytest.raises(ArgumentError, match="`in_shardings` as a tuple"):
        call(dist.partition(mlp, 3), X, A, B, dp=2)
    with pytest.raises(ArgumentError, match="that `partition` made"):
        dist.partition_report(mlp)
    with pytest.raises(ArgumentError, match="takes its sharding as well"):
        shard(X)
    with pytest.raises(AnnotationError, match="is no annotation"):
        Tensor["B", f32] @ "dp"  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
