"""`mesh.shard`, and the layout of a mesh: what each rank has of annotated tensors and of parameters."""

# Annotations that are made by calls have no types to give.
# pyright: reportInvalidTypeForm=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, dist, f32, ops
from tessera.diagnostics.codes import AnnotationError, ArgumentError, ShardingError
from tests.runtime.ranks.threads import on_ranks

RNG = np.random.default_rng(5)
W = Tensor["vocab", "d_model", f32]
X = RNG.standard_normal((6, 8)).astype(np.float32)
TABLE = RNG.standard_normal((8, 12)).astype(np.float32)


def every(found: list[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def assert_equal_but_for_order(found: Any, wanted: Any, terms: int) -> None:
    np.testing.assert_allclose(found, wanted, rtol=terms * 2.0**-23, atol=terms * 2.0**-23 * np.abs(wanted).max())


SHARDED = dist.mesh(2).shard(W["d_model"])


@ts.jit
def embed(x: Any, w: SHARDED) -> Any:
    return ops.relu(x @ w).sum(axis=1), ops.softmax(x @ w, axis=1)


@pytest.mark.parametrize("ranks", [2, 4])
def test_p1_a_tensor_sharded_along_a_dim_by_name_gives_what_one_device_gives(ranks: int) -> None:
    """`mesh(devs).shard(W{"d_model"})`: the report says what a rank has, and results are those of the whole."""
    devices = dist.mesh(range(ranks))
    assert str(SHARDED) == 'Tensor["vocab", "d_model", f32] @ shard(None, "devices")'
    assert devices.shard(W["d_model"]) == SHARDED
    total, weights = (np.asarray(one) for one in embed(X, TABLE))

    def run(_: int) -> Any:
        with devices:
            part = devices.shard(TABLE, W["d_model"])
            made = embed(X, part)
            return np.asarray(part), [np.asarray(one) for one in made], dist.partition_report(embed)

    for rank, (part, (sums, shares), report) in enumerate(every(on_ranks(run, devices=ranks))):
        np.testing.assert_array_equal(part, np.split(TABLE, ranks, axis=1)[rank])
        assert_equal_but_for_order(sums, total, 12)
        whole = np.split(weights, ranks, axis=1)[rank] if report.outputs[1].axes else weights
        assert_equal_but_for_order(shares, whole, 20)
        assert str(report.inputs[1][1]) == "[{}, {devices}]"
    report = devices.shard_report(TABLE, W["d_model"])
    assert report.bytes == TABLE.nbytes // ranks
    assert str(report).splitlines()[1] == (
        f"  x: [8, 12] f32 as [{{}}, {{devices}}], a part is [8, {12 // ranks}] f32, {384 // ranks} of 384 bytes"
    )


def test_a_shape_of_names_is_reported_too() -> None:
    mesh = dist.mesh(4, dp=2, tp=2)
    report = mesh.shard_report(W, d_model="tp")
    assert str(report).splitlines()[1:] == [
        "  Tensor[...]: [vocab, d_model] f32 as [{}, {tp}], a part is [vocab, (d_model floordiv 2)] f32"
    ]
    assert str(mesh.shard(W, vocab="dp", d_model="tp")) == 'Tensor["vocab", "d_model", f32] @ shard("dp", "tp")'
    layout = dist.mesh(dp=2, tp=2, layout={"d_model": ("dp", "tp")})
    assert str(layout.shard(W["d_model"])) == 'Tensor["vocab", "d_model", f32] @ shard(None, ("dp", "tp"))'
    assert str(layout.shard(W)) == str(layout.shard(W["d_model"]))


def test_dims_are_named_numbered_and_added_to_those_that_are_cut() -> None:
    mesh = dist.mesh(dp=2, tp=2)
    both = 'Tensor["vocab", "d_model", f32] @ shard("dp", "tp")'
    assert str(mesh.shard(mesh.shard(W, vocab="dp"), d_model="tp")) == both
    assert str(mesh.shard(W["vocab"], vocab="dp")) == 'Tensor["vocab", "d_model", f32] @ shard("dp", None)'
    assert str(dist.mesh(2).shard(Tensor[4, 4, f32], -1)) == 'Tensor[4, 4, f32] @ shard(None, "devices")'
    part = mesh.shard(TABLE, mesh.shard(W, vocab="dp", d_model="tp"))  # an annotation says it all
    np.testing.assert_array_equal(np.asarray(part), TABLE[:4, :6])
    np.testing.assert_array_equal(np.asarray(mesh.shard(TABLE, W["vocab"], vocab="tp")), TABLE[:4])


class Layer(ts.nn.Module):
    """Its gate says how it is sharded; the other two are what `params` is for."""

    up: ts.Tensor
    down: ts.Tensor
    gate: Tensor["width", "hidden", f32]

    def __call__(self, x: Any) -> Any:
        return (ops.relu(x @ self.up) * ops.sigmoid(x @ self.gate)) @ self.down


def layer() -> Layer:
    shapes = (8, 12), (12, 8), (8, 12)
    return Layer(*(ts.Tensor.of(RNG.standard_normal(shape).astype(np.float32)) for shape in shapes))


def loss(params: Any, x: Tensor["batch", "width", f32]) -> Any:
    return (params(x) ** 2.0).mean()


def test_p1_1_the_layout_cuts_batches_by_name_and_parameters_along_their_first_dim() -> None:
    model, layout = layer(), {"batch": "dp", "seq": "replicate", "hidden": "tp", "params": ("dp", "tp")}
    value, gradient = ts.value_and_grad(loss)(model, X[:4])

    def run(_: int) -> Any:
        with dist.mesh(4, dp=2, tp=2, layout=layout) as mesh:
            own = mesh.shard(model)
            function = dist.partition(ts.value_and_grad(loss))
            found = function(own, mesh.shard(X[:4], Tensor["batch", "width", f32]["batch"]))
            report = dist.partition_report(function)
            wanted = [
                dist.shard_of(one, how) for one, how in zip((value, gradient.up), report.outputs[:2], strict=True)
            ]
            return [found[0], found[1].up], wanted, own, report, mesh.shard_report(model)

    for rank, (found, wanted, own, report, shards) in enumerate(every(on_ranks(run, dp=2, tp=2))):
        assert [str(one) for _, one in report.inputs] == [
            "[{dp, tp}, {}]",
            "[{dp, tp}, {}]",
            "[{}, {tp}]",
            "[{dp}, {}]",
        ]
        np.testing.assert_array_equal(np.asarray(own.up), np.split(np.asarray(model.up), 4)[rank])
        np.testing.assert_array_equal(np.asarray(own.gate), np.split(np.asarray(model.gate), 2, axis=1)[rank % 2])
        assert shards.bytes == sum(one.nbytes for one in (own.up, own.down, own.gate))
        for got, want in zip(found, wanted, strict=True):
            assert_equal_but_for_order(np.asarray(got), np.asarray(want), 64)


def gradient_in_a_step(params: Any, x: Tensor["batch", "width", f32]) -> Any:
    """A gradient that a function takes inside of it, by a jitted one."""
    return JITTED(params, x)


JITTED = ts.jit(ts.value_and_grad(loss))


OUTSIDE = ts.value_and_grad(loss)


@pytest.mark.parametrize(
    ("over", "function"),
    [("dp", OUTSIDE), ("tp", gradient_in_a_step), (("dp", "tp"), OUTSIDE)],
    ids=["dp", "tp", "both"],
)
def test_gradients_of_parameters_are_cut_as_the_parameters_are(over: Any, function: Any) -> None:
    model = layer()
    _, gradient = ts.value_and_grad(loss)(model, X[:4])

    def run(_: int) -> Any:
        with dist.mesh(4, dp=2, tp=2, layout={"batch": "dp", "params": over}) as mesh:
            own, parts = mesh.shard(model), dist.partition(function)
            _, found = parts(own, mesh.shard(X[:4], Tensor["batch", "width", f32]["batch"]))
            report, wanted = dist.partition_report(parts), mesh.shard(gradient)
            assert [str(one) for one in report.outputs[1:]] == [str(one) for _, one in report.inputs[:3]]
            return own, found, wanted

    for own, found, wanted in every(on_ranks(run, dp=2, tp=2)):
        for name in ("up", "down", "gate"):
            assert getattr(found, name).shape == getattr(own, name).shape
            assert_equal_but_for_order(np.asarray(getattr(found, name)), np.asarray(getattr(wanted, name)), 64)


def test_the_sharding_of_a_gradient_that_is_asked_for_is_the_one_it_has() -> None:
    def run(_: int) -> Any:
        with dist.mesh(dp=2, layout={"params": "dp"}) as mesh:
            gradient = ts.grad(lambda params: (params["w"] ** 2.0).sum())
            parts = dist.partition(gradient, out_shardings={"w": (None, "dp")})
            found = parts(mesh.shard({"w": TABLE}))["w"]
            np.testing.assert_array_equal(np.asarray(found), np.asarray(mesh.shard(2.0 * TABLE, 1)))
            return [str(one) for one in dist.partition_report(parts).outputs]

    assert every(on_ranks(run, dp=2)) == [["[{}, {dp}]"]] * 2


def test_p1_1_what_a_layout_cannot_do_names_the_tensor() -> None:
    odd = {"first": ts.ones((6, 4)), "second": ts.ones((7, 4))}
    with pytest.raises(ShardingError, match=r"`params\['second'\].shape\[0\] = 7` cannot be cut into 2 equal parts"):
        dist.mesh(dp=2, layout={"params": "dp"}).shard(odd)
    with pytest.raises(ShardingError, match=r"dims `width` and `hidden` of `params.gate`.*over one axis, `tp`"):
        dist.mesh(tp=2, layout={"width": "tp", "hidden": "tp", "params": "tp"}).shard(layer())
    with pytest.raises(ShardingError, match="shards dim `params` over mesh axis `ep`"):
        dist.mesh(tp=2, layout={"params": "ep"})


ILLEGAL: list[tuple[Any, type[Exception], str]] = [
    (lambda: dist.mesh(dp=2, tp=2).shard(W["d_model"]), ShardingError, r"dim `d_model` of .*axes of the mesh are `dp`"),
    (lambda: dist.mesh(4).shard(W["width"]), AnnotationError, r"has 0 dims named 'width'"),
    (lambda: dist.mesh(4).shard(TABLE, "d_model"), ArgumentError, "its dims have no names"),
    (lambda: dist.mesh(5).shard(TABLE, 1), ShardingError, r"`x.shape\[1\] = 12` cannot be cut into 5 equal parts"),
    (
        lambda: dist.mesh(4).shard(W, d_model="tp"),
        ShardingError,
        r"mesh axis `tp`, and the mesh has `devices` \(4 rank",
    ),
    (lambda: dist.mesh(6, dp=2, tp=2), ArgumentError, "is of 6 devices, and axes dp=2, tp=2 make 4"),
    (lambda: dist.mesh([0, 2]), ArgumentError, r"of the ranks from 0 on, got \[0, 2\]"),
    (lambda: dist.mesh(0), ArgumentError, "is of 0 devices"),
    (lambda: dist.mesh((2, 2), ("dp", "tp")), ArgumentError, "wrong arguments of `mesh`"),  # pyright: ignore[reportCallIssue]
    (lambda: dist.mesh(4).shard(W, 7), ShardingError, "has dims vocab, d_model, and is to be sharded along 7"),
    (lambda: dist.mesh(4).shard(W, "width"), ShardingError, "is to be sharded along 'width'"),
    (lambda: dist.mesh(4).shard(Tensor[6, 3, f32], 0), ShardingError, r"= 6` cannot be cut into 4 equal parts"),
    (lambda: dist.mesh(4).shard_report(Tensor[6, 3, f32], 0), ShardingError, "cannot be cut into 4 equal parts"),
    (lambda: dist.mesh(4).shard(TABLE, Tensor[9, "d", f32]["d"]), ShardingError, r"`x` is \[8, 12\] f32, and .*\[9, "),
    (lambda: dist.mesh(4).shard(TABLE, Tensor[8, "d", ts.i32]["d"]), ShardingError, "is to be sharded as .*i32"),
    (lambda: dist.mesh(4).shard([1, 2, 3, 4], 0), ArgumentError, "a tensor or a tree of them, got"),
    (lambda: dist.mesh(4).shard(ts.ones(()), 0), ShardingError, "`x` has no dims"),
    (lambda: dist.mesh(dp=2, tp=2).shard(TABLE, 0), ShardingError, r'shard_of\(x, \("dp", None\)\)'),
    (lambda: dist.mesh().shard(TABLE, 0), ShardingError, r"make one with axes: `mesh\(2\)`"),
]


@pytest.mark.parametrize(("use", "error", "message"), ILLEGAL)
def test_illegal_uses_are_refused_by_name(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use()


def test_meshes_are_entered_again_and_within_each_other() -> None:
    from tessera.runtime.ranks.world import mesh_in_force

    outer = dist.mesh(dp=1)
    with outer:
        inner = dist.mesh(tp=1)
        with inner, outer:
            assert mesh_in_force() is outer
        assert mesh_in_force() is outer
        assert inner.sizes == {"dp": 1, "tp": 1}
    assert mesh_in_force().sizes == {}
