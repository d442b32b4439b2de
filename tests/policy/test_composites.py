"""Products of several axes and ops of several steps under policies: what the policy says, or a clear refusal."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import PolicyError, ShapeError
from tessera.ir.base.arrays import round_as
from tessera.ir.graph.ops.contraction import matmul_reference
from tessera.ir.graph.ops.convolution import conv_reference
from tessera.ir.graph.ops.quantize import blocks_reference
from tessera.ir.graph.ops.reduce import reduce_array
from tests.policy.test_rounding import same

RNG = np.random.default_rng(5)
ROWS = RNG.standard_normal((6, 48)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 32, 5, 5)).astype(np.float32)
FILTERS = RNG.standard_normal((4, 32, 3, 3)).astype(np.float32)
LABELS = RNG.integers(0, 48, 6)


def normalized(x: Any, axis: int) -> tuple[Any, Any]:
    """What blocks keep of a tensor over its scale, and that scale."""
    scale = np.abs(x).max() / np.float32(2688)
    return blocks_reference(x / scale, format="nvfp4", axis=axis), scale


def test_n2_2_convolutions_are_cut_into_blocks_of_channels() -> None:
    (x, one), (w, other) = normalized(IMAGE, 1), normalized(FILTERS, 1)
    given = np.asarray(ts.jit(lambda x, w: ops.conv2d(x, w), policy=ts.NVFP4())(IMAGE, FILTERS))
    same(given, round_as(conv_reference(x, w) * (one * other), ts.bf16))
    halves = np.asarray(ts.jit(lambda x, w: ops.conv2d(x, w, groups=2), policy=ts.NVFP4())(IMAGE, FILTERS[:, :16]))
    w, other = normalized(np.ascontiguousarray(FILTERS[:, :16]), 1)
    same(halves, round_as(conv_reference(x, w, groups=2) * (one * other), ts.bf16))
    with pytest.raises(PolicyError, match="groups of 8 channels, and blocks of nvfp4 have 16"):
        ts.jit(lambda x, w: ops.conv2d(x, w, groups=4), policy=ts.NVFP4())(IMAGE, FILTERS[:, :8])
    with pytest.raises(ShapeError, match="is not made of whole ones"):
        ts.jit(lambda x, w: ops.conv2d(x, w), policy=ts.NVFP4())(IMAGE[:, :24], FILTERS[:, :24])


POLICIES = (ts.Training(), ts.Inference(), ts.NVFP4(), ts.NVFP4(ts.f16))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_n2_einsum_is_the_product_that_it_stands_for(policy: Any) -> None:
    given = ts.jit(lambda x: ops.einsum("ij,kj->ik", x, x), policy=policy)(ROWS)
    wanted = ts.jit(lambda x: x @ x.T, policy=policy)(ROWS)
    assert given.dtype is wanted.dtype
    same(np.asarray(given), np.asarray(wanted))


@pytest.mark.parametrize("policy", POLICIES[:3], ids=str)
def test_n2_convolutions_and_attention_run_under_each(policy: Any) -> None:
    q = RNG.standard_normal((1, 2, 32, 16)).astype(np.float32)
    # A factor of 4 bits is off by a sixth of the largest of its block at most, one of 8 bits by a sixteenth.
    share = {"bf16": 2.0**-8, "f8e4m3": 2.0**-4, "nvfp4": 0.34}[str(policy.storage)]
    for call, given in (
        (lambda x, w: ops.conv2d(x, w), (IMAGE, FILTERS)),
        (lambda x, y: ops.attention(x, x, y), (q, q)),
    ):
        under, plain = (np.asarray(ts.jit(call, policy=p)(*given)).astype(np.float64) for p in (policy, ts.Policy()))
        assert 0 < np.abs(under - plain).max() < share * 4 * np.abs(plain).max()


@pytest.mark.parametrize("total", [None, ts.f32, ts.f64, ts.f16], ids=str)
def test_attention_of_blocks_has_a_kernel_where_its_sums_are_in_f32(total: Any) -> None:
    q, k, v = (RNG.standard_normal((1, 2, 32, 16)).astype(np.float32) for _ in range(3))
    policy = ts.Policy(storage=ts.nvfp4, accumulate=total)
    function = ts.jit(lambda q, k, v: ops.attention(q, k, v), policy=policy)
    assert ("tgraph.attention" in function.lower(q, k, v).graph) is (total in (None, ts.f32))
    # Queries and keys are cut along the head dim, values along the keys.
    kept = [one * scale for one, scale in (normalized(x, axis) for x, axis in ((q, 3), (k, 3), (v, 2)))]
    wanted = np.asarray(ts.jit(lambda q, k, v: ops.attention(q, k, v))(*kept))
    share = 2.0**-6 if total is ts.f16 else 2.0**-20
    assert np.abs(np.asarray(function(q, k, v)) - wanted).max() <= share * np.abs(v).max()


@pytest.mark.parametrize("total", [ts.f32, ts.f16], ids=str)
def test_integers_beside_blocks_are_factors_as_they_are(total: Any) -> None:
    whole = RNG.integers(-8, 8, (48, 5)).astype(np.int8)
    kept, scale = normalized(ROWS, 1)
    wanted = matmul_reference(kept, whole.astype(np.float32)) * scale
    share = 2.0**-7 + (48 * 2.0**-11 if total is ts.f16 else 0)
    most = np.abs(kept * scale) @ np.abs(whole)
    for call, given, right in (
        (lambda x, y: x @ y, (ROWS, whole), wanted),
        (lambda x, y: y.T @ x.T, (ROWS, whole), wanted.T),
    ):
        found = np.asarray(ts.jit(call, policy=ts.NVFP4(total))(*given)).astype(np.float64)
        assert (np.abs(found - right) <= share * (most if right is wanted else most.T)).all()


@pytest.mark.parametrize("total", [ts.bf16, ts.f16, ts.f64], ids=str)
def test_sums_of_a_softmax_are_in_the_accumulator(total: Any) -> None:
    with ts.policy(accumulate=total):
        text = ts.jit(lambda x: ops.softmax(x)).lower(ROWS).graph
        var, given = (np.asarray(ts.jit(f)(ROWS)) for f in (lambda x: ops.var(x, axis=1), lambda x: ops.softmax(x)))
    assert f"accumulate = {total}" in text
    mean = reduce_array("sum", ROWS, (1,), keepdims=True, accumulate=total) / np.float32(48)
    same(var, reduce_array("sum", (ROWS - mean) * (ROWS - mean), (1,), accumulate=total) / np.float32(48))
    assert np.abs(given.sum(1) - 1).max() <= 48 * 2.0 ** -(min(total.mantissa, 23) + 1)


COMPOSITES = {
    "log_softmax": lambda x: ops.log_softmax(x),
    "logsumexp": lambda x: ops.logsumexp(x, axis=-1),
    "logsumexp_safe": lambda x: ops.logsumexp_safe(x, axis=-1),
    "layernorm_safe": lambda x: ops.layernorm_safe(x),
    "rmsnorm_safe": lambda x: ops.rmsnorm_safe(x),
    "std": lambda x: ops.std(x, axis=-1),
    "norm": lambda x: ops.norm(x, axis=-1),
    "cross_entropy": lambda x: ops.cross_entropy(x, ts.array(LABELS)),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_ops_take_the_accumulator(name: str) -> None:
    f = COMPOSITES[name]
    with ts.policy(accumulate=ts.bf16):
        narrow, text = np.asarray(ts.jit(f)(ROWS)), ts.jit(f).lower(ROWS).graph
        reference = np.asarray(ts.jit(f, backend="reference")(ROWS))
    plain = np.asarray(ts.jit(f)(ROWS))
    assert "accumulate = bf16" in text
    assert "accumulate = f32" not in text
    assert (narrow != plain).any()
    np.testing.assert_allclose(narrow, plain, rtol=0.1, atol=0.02)
    np.testing.assert_allclose(narrow, reference, rtol=1e-5, atol=1e-6)


def test_products_over_pairs_of_axes_take_a_narrow_accumulator() -> None:
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4, 5), (5, 2, 7, 4)))
    with ts.policy(accumulate=ts.f16):
        given = ts.jit(lambda a, b: ops.dot_general(a, b, batch=((0,), (1,)), contract=((2, 3), (3, 0))))(a, b)
    left, right = a.reshape(2, 3, 20), np.moveaxis(b, (1, 2, 3, 0), (0, 1, 2, 3)).reshape(2, 7, 20)
    terms = left[:, :, None] * right[:, None]
    same(np.asarray(given), reduce_array("sum", terms, (3,), accumulate=ts.f16))


def test_dropout_and_scatters_round_as_the_policy_says() -> None:
    x = round_as(ROWS, ts.bf16)
    key = ts.random.key(3)
    with ts.policy(rounding="toward_zero"):
        given = np.asarray(ts.jit(lambda x, key: ts.random.dropout(x, key, 0.3))(x, key)).astype(np.float32)
    kept = given != 0
    share = np.float32(1 / 0.7)
    assert (np.abs(given[kept]) <= np.abs(x.astype(np.float32) * share)[kept]).all()
    assert kept.any()


@pytest.mark.parametrize("dtype", [ts.f32, ts.bf16, ts.f16, ts.f8e5m2], ids=str)
def test_n1_1_denormals_of_each_dtype_are_kept_or_flushed(dtype: Any) -> None:
    least = 2.0 ** -(2 ** (dtype.exponent - 1) - 2)
    small = round_as(np.array([least / 2, -least / 2, least, 4 * least], np.float32), dtype)
    one = round_as(np.ones(4, np.float32), dtype)
    product = ts.jit(lambda a, b: (a * b, (a.cast(ts.f32) * 0.5).cast(dtype)))
    for policy, wanted in ((ts.keep_denormals, [0.5, -0.5, 1, 4]), (ts.flush_denormals, [0.0, -0.0, 1, 4])):
        with ts.policy(policy):
            given, halves = (np.asarray(out).astype(np.float32) for out in product(small, one))
        same(given, np.array(wanted, np.float32) * np.float32(least))
        keeps = policy == ts.keep_denormals
        assert halves[2] == (np.float32(least / 2) if keeps else 0)


def test_l6_1_tf32_is_in_the_type_the_ir_and_the_account() -> None:
    def f(a: ts.Tensor["M", "K", ts.f32 @ ts.compute(ts.tf32)], b: Any) -> Any:
        return a @ b

    asked = ts.jit(f)
    assert "f32 @ compute(tf32)" in repr(asked)
    texts = asked.lower(ROWS, ROWS.T.copy())
    assert 'tessera.numerics.policy = {compute = "tf32"}' in texts.graph
    assert 'tessera.numerics.policy = {compute = "tf32"}' in texts.target
    asked(ROWS, ROWS.T.copy())
    assert any(line.endswith("compute(tf32)") for line in asked.explain(ROWS, ROWS.T.copy()).report["policies"])
    plain = ts.jit(lambda a, b: a @ b)
    same(np.asarray(plain(ROWS, ROWS.T.copy())), matmul_reference(ROWS, ROWS.T.copy()))
    assert "tf32" not in str(plain.lower(ROWS, ROWS.T.copy()))


@pytest.mark.parametrize("policy", [*POLICIES[:3], ts.Policy(storage=ts.f16, denormals="flush")], ids=str)
def test_n9_2_masks_keep_their_infinities_under_every_policy(policy: Any) -> None:
    q = RNG.standard_normal((1, 2, 16, 16)).astype(np.float32)
    mask = np.zeros((1, 1, 16, 16), np.float32)
    mask[..., 3, :] = -np.inf
    mask[..., 4, 1:] = -np.inf
    given = np.asarray(ts.jit(lambda q, mask: ops.attention(q, q, q, mask=mask), policy=policy)(q, mask))
    given = given.astype(np.float64)
    assert np.isfinite(given).all()
    assert (given[:, :, 3] == 0).all(), "a query that sees no key gives zeros"
    # One that sees a single key gives its value, as it is kept.
    assert np.abs(given[:, :, 4] - q[:, :, 0]).max() <= 0.2 * np.abs(q[:, :, 0]).max()
    rows = np.where(np.arange(4)[:, None] == 1, -np.inf, np.ones((4, 8), np.float32))
    total = np.asarray(ts.jit(lambda x: ops.logsumexp_safe(x, axis=1), policy=policy)(rows.astype(np.float32)))
    assert np.isneginf(total.astype(np.float64)[1]) or policy.saturation == "saturate"
    assert not np.isnan(total.astype(np.float64)).any()
