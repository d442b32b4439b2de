"""Parts that recipes are made of: pipelines of functions, ring attention, scans over ranks, experts, exchanges."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import dist, ops
from tessera.diagnostics.codes import ArgumentError, ScheduleError, ShapeError, TracingError
from tessera.dist import P
from tessera.distributed.exchanges import quantized_all_to_all, sum_by_tree, tree_all_reduce, tree_reduce_scatter
from tessera.distributed.experts import SplitMoE
from tessera.distributed.pipeline import Message, events_of, plan_of
from tessera.distributed.placement import Cut, join_host, part_shape, take_host
from tessera.runtime.ranks.world import mesh_of
from tessera.types.dtype import BY_NAME, FORMATS
from tests.runtime.ranks.threads import on_ranks

RNG = np.random.default_rng(11)
SECONDS = 120.0


def values(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def every(found: list[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


# Cuts.


@given(st.data())
def test_parts_of_any_cuts_make_the_whole(data: st.DataObject) -> None:
    mesh = mesh_of((("dp", 2), ("tp", 3)))
    sections = data.draw(st.lists(st.integers(0, 3), max_size=3).map(lambda some: tuple(6 * one for one in some)))
    rows = sum(sections) if sections else 12
    cuts = data.draw(st.permutations([Cut("tp", 1, sections), Cut("dp", data.draw(st.sampled_from([0, 2])))]))
    whole = np.arange(4 * rows * 2).reshape(4, rows, 2)
    kept = tuple(cuts[: data.draw(st.integers(0, 2))])
    parts = {rank: take_host(whole, kept, mesh, rank) for rank in range(6)}
    assert all(part.shape == part_shape(whole.shape, kept, mesh.sizes) for part in parts.values())
    np.testing.assert_array_equal(join_host(parts, kept, mesh, whole.shape), whole)


# Sums by a tree, and the ring.


def test_d3_a_tree_over_ranks_is_the_tree_over_what_they_have() -> None:
    # Numbers for which another order gives other bits.
    x = (values(8, 5, 6) * np.array([1, 1e7, 1, 1e-7, 1e7, 1, 1e3, 1], np.float32)[:, None, None]).astype(np.float32)
    expected = np.asarray(ts.jit(lambda x: sum_by_tree([x[at] for at in range(8)]))(x))
    assert not np.array_equal(expected, x.sum(axis=0)), "the order must matter here"

    def summed(ranks: int) -> Any:
        own = 8 // ranks

        def run(rank: int) -> Any:
            mine = x[rank * own : (rank + 1) * own]
            whole = ts.jit(lambda x: tree_all_reduce(sum_by_tree([x[at] for at in range(own)]), "dp"))(mine)
            part = ts.jit(lambda x: tree_reduce_scatter(sum_by_tree([x[at] for at in range(own)]), "dp", 1))
            return np.asarray(whole), np.asarray(part(mine)) if ranks == 2 else None

        return every(on_ranks(run, SECONDS, dp=ranks))

    for ranks in (2, 4):
        for rank, (whole, part) in enumerate(summed(ranks)):
            np.testing.assert_array_equal(whole, expected)
            if part is not None:
                np.testing.assert_array_equal(part, np.split(expected, 2, axis=1)[rank])


def test_a_shift_goes_round_and_its_cotangent_back() -> None:
    x = values(4, 3)

    def run(rank: int) -> Any:
        moved = ts.jit(lambda x: dist.shift(x, "sp"))(x[rank])
        weight = float(rank + 1)
        return np.asarray(moved), np.asarray(
            ts.jit(ts.grad(lambda x: (dist.shift(x, "sp", 2) * weight).sum()))(x[rank])
        )

    for rank, (moved, gradient) in enumerate(every(on_ranks(run, SECONDS, sp=4))):
        np.testing.assert_array_equal(moved, x[(rank - 1) % 4])
        np.testing.assert_array_equal(gradient, np.full(3, (rank + 2) % 4 + 1, np.float32))


# Long context.


def test_p13_ring_attention_and_its_gradients_are_those_of_the_whole() -> None:
    q, k, v = values(2, 4, 8, 6), values(2, 2, 8, 6), values(2, 2, 8, 6)
    spec = P(None, None, "sp")

    def loss(attend: Any) -> Any:
        return lambda q, k, v: ops.sin(attend(q, k, v)).sum()

    for causal in (False, True):
        ring = dist.shard_map(lambda q, k, v, c=causal: dist.ring_attention(q, k, v, "sp", causal=c), (spec,) * 3, spec)
        whole = ts.value_and_grad(loss(lambda q, k, v, c=causal: ops.attention(q, k, v, causal=c)), (0, 1, 2))(q, k, v)
        run = ts.value_and_grad(loss(ring), (0, 1, 2))
        for value, gradients in every(on_ranks(lambda _, run=run: run(q, k, v), SECONDS, sp=4)):
            np.testing.assert_allclose(float(value), float(whole[0]), rtol=1e-5, atol=1e-5)
            for got, want in zip(gradients, whole[1], strict=True):
                np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
    with dist.mesh(sp=2), pytest.raises(ShapeError, match="`ring_attention` takes queries"):
        ts.jit(lambda q, k: dist.ring_attention(q, k, k, "sp")).trace(q, k[:, :, :4])


def test_p13_a_scan_over_ranks_is_that_of_the_whole() -> None:
    a, b = values(2, 12, 3), values(2, 12, 3)

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    whole = ts.jit(lambda a, b: ts.associative_scan(combine, (a, b), axis=1, associative=True)[1])
    spec = P(None, "sp")
    parts = dist.shard_map(lambda a, b: dist.sharded_scan(combine, (a, b), "sp", 1)[1], (spec, spec), spec)
    expected = np.asarray(whole(a, b))
    slope = np.asarray(ts.grad(lambda a: whole(a, b).sum())(a))

    def run(_: int) -> Any:
        return np.asarray(parts(a, b)), np.asarray(ts.grad(lambda a: parts(a, b).sum())(a))

    for found, gradient in every(on_ranks(run, SECONDS, sp=4)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-5)


# Experts.


def test_p5_p7_1_p8_experts_on_four_ranks_are_those_of_one_and_hooks_cap_them() -> None:
    layer = ts.nn.MoE.init(ts.random.key(0), 8, 16, experts=4, top=2)
    x = values(4, 6, 8)
    expected, balance = (np.asarray(one) for one in layer(x))

    def run(rank: int) -> Any:
        own = slice(rank, rank + 1)
        fields = (layer.router, layer.gate[own], layer.up[own], layer.down[own], layer.top, None, 0.0, "ep")

        def call(x: Any, capacity: Any = None, wire: str = "", throttle: Any = None) -> Any:
            with dist.dropped_tokens() as dropped:
                made, balance = SplitMoE(*fields, capacity, wire, ("ep",), throttle)(x)
            return made, balance, dropped.total()

        plain = [np.asarray(one) for one in ts.jit(call)(x[own])]
        narrow = np.asarray(ts.jit(lambda x: call(x, wire="f8e4m3"))(x[own])[0])
        capped = ts.jit(lambda x: call(x, throttle=lambda sizes, capacity: ops.minimum(sizes, 1)))(x[own])
        small = ts.jit(lambda x: call(x, capacity=0.5))(x[own])
        return plain, narrow, [np.asarray(one) for one in capped], float(small[2])

    scores = np.asarray(layer.router(x.reshape(-1, 8))).reshape(4, 6, 4)
    chosen = np.argsort(-scores, axis=-1)[..., :2]
    for rank, (plain, narrow, capped, dropped) in enumerate(every(on_ranks(run, SECONDS, ep=4))):
        np.testing.assert_allclose(plain[0][0], expected[rank], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(plain[1], balance, rtol=1e-5)
        assert plain[2] == 0.0
        # Rows travel with 3 bits behind the point and a scale, twice: the error is a part of the largest element.
        assert 0 < np.abs(narrow[0] - expected[rank]).max() <= 2**-3 * np.abs(expected).max()
        sizes = np.bincount(chosen[rank].reshape(-1), minlength=4)
        assert capped[2] == np.maximum(sizes - 1, 0).sum()
        share = 2  # ceil(6 tokens * 2 * 0.5 / 4 experts)
        assert dropped == np.maximum(sizes - share, 0).sum()


def test_p7_1_tokens_in_eight_bits_send_half_of_the_bytes_of_bf16_within_the_error_of_the_dtype() -> None:
    rows, width, ranks = 4, 256, 2
    x = values(ranks, ranks, rows, width) * np.float32(10.0)

    def exchange(x: Any, dtype: Any, wire: str) -> Any:
        x = ops.astype(x, dtype)
        moved = quantized_all_to_all(x, "ep", BY_NAME[wire]) if wire else dist.all_to_all(x, "ep")
        return ops.astype(moved, ts.f32)

    def measure(dtype: Any, wire: str) -> tuple[int, list[Any]]:
        run = ts.jit(lambda x: exchange(x, dtype, wire))
        with dist.timeline() as timeline:  # of the ranks of this process together
            found = every(on_ranks(lambda rank: np.asarray(run(x[rank])), SECONDS, ep=ranks))
        return timeline.sent, found

    # A rank keeps the rows that are for itself, and each row has a scale in f32.
    others, scale = ranks * (ranks - 1) * rows, 4
    sent, exact = measure(ts.f32, "")
    assert sent == others * width * 4
    half, _ = measure(ts.bf16, "")
    assert half == others * width * 2
    for wire in ("f8e4m3", "f8e5m2"):
        form = FORMATS[wire]
        narrow, rounded = measure(ts.bf16, wire)
        assert narrow == others * (width + scale)
        assert narrow <= half * (0.5 + scale / width)
        _, found = measure(ts.f32, wire)
        for got, want in zip(found, exact, strict=True):
            # Half a unit of the last bit; below the smallest normal number, which is scaled by the row's largest, half
            # of its steps.
            largest = np.abs(want).max(axis=-1, keepdims=True)
            step = largest / form.largest * form.smallest / 2
            assert (np.abs(got - want) <= np.abs(want) * 2.0 ** -(form.mantissa + 1) * (1 + 2.0**-20) + step).all()
        assert len(rounded) == ranks


def test_p8_biases_balance_the_load_without_a_loss_and_have_no_gradient() -> None:
    """A router that prefers one expert: its load falls to the share of all, on four ranks as on one."""
    layer = ts.nn.MoE.init(ts.random.key(0), 8, 4, experts=4, top=1, bias_rate=0.004)
    tilt = np.zeros((8, 4), np.float32)
    tilt[0, 0] = 1.5  # feature 0 is 1 in all tokens
    layer = layer.replace(router=layer.router.replace(weight=layer.router.weight + tilt))
    x = values(4, 32, 8)
    x[..., 0] = 1.0

    def loads(layer: Any, x: Any) -> Any:
        return layer._run(x)[1]

    def train(layer: Any, x: Any, steps: int = 150, **options: Any) -> list[Any]:
        step, found = ts.jit(lambda layer, x: (loads(layer, x), layer.train(x)[1].bias), **options), list[Any]()
        for _ in range(steps):
            counts, bias = step(layer, x)
            layer = layer.replace(bias=bias)
            found.append(np.asarray(counts))
        return [*found, np.asarray(layer.bias)]

    whole = train(layer, x)
    first, last, bias = whole[0], whole[-2], whole[-1]
    assert first.max() > 2 * first.sum() / 4
    assert last.max() <= 1.25 * last.sum() / 4, last
    assert bias[0] == bias.min() < 0 < bias.max()

    def run(rank: int) -> Any:
        own = slice(rank, rank + 1)
        fields = (layer.router, layer.gate[own], layer.up[own], layer.down[own], 1, layer.bias, layer.rate, "ep")
        split = SplitMoE(*fields, None, "", ("ep",), None)
        slope = ts.jit(ts.grad(lambda split, x: (split(x)[0] ** 2.0).sum()), backend="reference")(split, x[own])
        return train(split, x[own], 3, backend="reference"), np.asarray(slope.bias), np.asarray(slope.router.weight)

    for found, slope, moved in every(on_ranks(run, SECONDS, ep=4)):
        for got, want in zip(found[:-1], whole[:3], strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(slope, np.zeros(4))
        assert moved.shape == (8, 4)
    with pytest.raises(ArgumentError, match="this `MoE` has no biases"):
        ts.nn.MoE.init(ts.random.key(0), 8, 4, experts=4).train(x)
    with pytest.raises(ArgumentError, match="`bias_rate` between 0 and 1"):
        ts.nn.MoE.init(ts.random.key(0), 8, 4, experts=4, bias_rate=-1.0)
    with pytest.raises(ArgumentError, match="`MoE` takes `bias_rate` as a number"):
        ts.nn.MoE.init(ts.random.key(0), 8, 4, experts=4, bias_rate="auto")  # pyright: ignore[reportArgumentType]
    params, buffers = ts.nn.split_buffers(layer)
    assert params.bias is None
    assert buffers.bias is not None


# Pipelines.


def stage(w: Any, x: Any) -> Any:
    return ops.tanh(x @ w)


def squares(y: Any, target: Any) -> Any:
    return ((y - target) ** 2.0).mean()


WEIGHTS = [values(4, 6), values(6, 5), values(5, 3), values(3, 4)]
X, TARGET = values(8, 4), values(8, 3)


@pytest.mark.parametrize(("count", "ranks", "schedule"), [(2, 2, "1f1b"), (3, 3, "1f1b"), (4, 2, "interleaved")])
def test_p4_a_pipeline_is_its_stages_one_after_the_other(count: int, ranks: int, schedule: str) -> None:
    weights = WEIGHTS[:count]
    target = values(8, weights[-1].shape[1])
    run = dist.pipeline([stage] * count, microbatches=4, schedule=schedule)

    def whole(weights: Any, x: Any) -> Any:
        for w in weights:
            x = stage(w, x)
        return x

    value, gradients = ts.value_and_grad(lambda weights: squares(whole(weights, X), target))(weights)
    found = every(
        on_ranks(lambda _: (run(weights, X), run.value_and_grad(squares)(weights, X, target)), SECONDS, pp=ranks)
    )
    for rank, (y, (loss, own)) in enumerate(found):
        np.testing.assert_allclose(np.asarray(y), np.asarray(whole(weights, X)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loss, float(value), rtol=1e-5)
        for at, (got, want) in enumerate(zip(own, gradients, strict=True)):
            assert (got is None) == (at % ranks != rank)
            if got is not None:
                np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2])
def test_a_pipeline_takes_tokens(count: int) -> None:
    tokens, table, scale = np.array([0, 1, 2, 1]), values(5, 3), values(3)
    stages = [lambda w, x: ops.take(w, x, axis=0), lambda w, x: x * w][:count]
    run = dist.pipeline(stages, microbatches=2)

    def found(_: int) -> Any:
        return run.value_and_grad(lambda y: (y * y).mean())([table, scale][:count], tokens)

    def whole(weights: Any) -> Any:
        rows = ops.take(weights[0], tokens, axis=0)
        return ((rows if count == 1 else rows * weights[1]) ** 2.0).mean()

    value, gradients = ts.value_and_grad(whole)([table, scale][:count])
    for rank, (loss, own) in enumerate(every(on_ranks(found, SECONDS, pp=count))):
        np.testing.assert_allclose(loss, float(value), rtol=1e-5)
        np.testing.assert_allclose(np.asarray(own[rank]), np.asarray(gradients[rank]), rtol=1e-5, atol=1e-7)


def test_parameters_of_a_pipeline_may_be_numbers_or_none() -> None:
    run = dist.pipeline([lambda w, x: x * w, lambda w, x: x + 1.0], microbatches=2, schedule="interleaved")
    with dist.mesh(pp=1):
        loss, (gradient, nothing) = run.value_and_grad(lambda y: y.mean())([3.0, ()], np.array([1, 2], np.float32))
    assert (loss, float(gradient), nothing) == (5.5, 1.5, ())


def test_gradients_of_microbatches_are_summed_in_f32() -> None:
    # 256 and seven ones: in bf16 each further one is rounded away.
    x = np.array([256, 1, 1, 1, 1, 1, 1, 1], np.float32)
    weight = ts.ones((), ts.bf16)
    run = dist.pipeline([lambda w, x: ops.astype(w, ts.f32) * x], microbatches=8)
    with dist.mesh(pp=1):
        _, (gradient,) = run.value_and_grad(lambda y: y.sum())([weight], x)
    assert gradient.dtype == ts.bf16
    assert float(gradient) == float(ops.astype(ts.array(263.0 / 8), ts.bf16))


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_ranks_of_a_pipeline_have_their_exchanges_in_one_order(stages: int, groups: int, chunks: int) -> None:
    plan = plan_of("interleaved" if chunks > 1 else "1f1b", stages, groups * stages, chunks)
    orders = [[one for one in events_of(plan, rank) if isinstance(one, Message)] for rank in range(stages)]
    for left in orders:
        for right in orders:
            shared = set(left) & set(right)
            assert [one for one in left if one in shared] == [one for one in right if one in shared]


def test_what_a_pipeline_does_not_take_is_named() -> None:
    run = dist.pipeline([stage, stage], microbatches=3)
    with dist.mesh(pp=1):
        with pytest.raises(ArgumentError, match=r"\[8, 4\] does not make 3 microbatches"):
            run(WEIGHTS[:2], X)
        with pytest.raises(ArgumentError, match="got parameters of 1"):
            run(WEIGHTS[:1], X[:6])
        with pytest.raises(TracingError, match="a pipeline runs other programs on each rank"):
            ts.jit(lambda: run(WEIGHTS[:2], X[:6]))()
        with pytest.raises(ScheduleError):
            dist.pipeline([stage], schedule="gpipe").value_and_grad(squares)(WEIGHTS[:1], X, TARGET)
    with pytest.raises(ArgumentError, match="takes a list of functions"):
        dist.pipeline([])
