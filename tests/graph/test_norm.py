"""layernorm and rmsnorm: against f64, and finite on constant, tiny and huge rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import round_as
from tessera.ir.base.interval import Interval, IntervalQuery
from tessera.ir.graph.ops import REGISTRY, interval_of
from tessera.types.dtype import DType, bf16, f32, i32
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, infer, reference, registry, run_decomposition, tensor


@pytest.mark.parametrize("scale", [1e-42, 1e-20, 1.0, 1e10, 1e15, 1e18, 1e19, 3e30])
@pytest.mark.parametrize("op", ["layernorm_safe", "rmsnorm_safe"])
def test_rows_of_any_size_are_finite_and_right(op: str, scale: float) -> None:
    x = (np.random.default_rng(0).standard_normal((4, 1000)) * scale).astype(np.float32)
    wide = x.astype(np.float64)
    if op == "layernorm_safe":
        wide = wide - wide.mean(1, keepdims=True)
    wanted = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5)
    with np.errstate(over="ignore"):
        given = run_decomposition(op, x)
    assert np.isfinite(given).all()
    np.testing.assert_allclose(given, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_a_constant_row_is_the_bias(dtype: DType) -> None:
    x = round_as(np.full((2, 64), 3.0), dtype)
    weight, bias = round_as(np.full(64, 2.0), dtype), round_as(np.arange(64.0), dtype)
    out = run_decomposition("layernorm_safe", x, weight, bias)
    np.testing.assert_array_equal(out.astype(np.float32), np.broadcast_to(bias, (2, 64)).astype(np.float32))


@pytest.mark.parametrize("op", ["layernorm_safe", "rmsnorm_safe"])
def test_the_formula_for_huge_rows_rounds_as_the_usual_one_does(op: str) -> None:
    """Powers of two do not round: a row and the same row times 2**56 normalise to the same bits."""
    x = (np.random.default_rng(1).standard_normal((3, 100)) * 1e3).astype(np.float32)
    huge = x * np.float32(2.0**56)
    with np.errstate(over="ignore"):
        assert np.isinf((huge * huge).sum(1)).all()
        np.testing.assert_array_equal(run_decomposition(op, x, eps=1e-30), run_decomposition(op, huge, eps=1e-30))


def test_norms_say_what_is_wrong() -> None:
    x = tensor("B", 8, dtype=f32)
    with pytest.raises(RuleError, match="`eps` above 0"):
        infer("layernorm_safe", x, eps=0.0)
    with pytest.raises(RuleError, match=r"`weight` of \[8\]"):
        infer("rmsnorm_safe", x, tensor(7, dtype=f32))
    with pytest.raises(RuleError, match=r"over \[8\] needs a `bias` of that shape, got \[1, 8\]"):
        infer("layernorm_safe", x, tensor(8, dtype=f32), tensor(1, 8, dtype=f32))
    with pytest.raises(RuleError, match="at most 1"):
        infer("rmsnorm_safe", x, tensor(8, dtype=f32), tensor(8, dtype=f32))
    with pytest.raises(RuleDTypeError, match="floating"):
        infer("rmsnorm_safe", tensor(8, dtype=i32))


@pytest.mark.parametrize("op", ["layernorm_safe", "rmsnorm_safe"])
def test_parameters_are_floats_of_the_normalized_axes(op: str) -> None:
    x = tensor("B", 64, dtype=f32)
    infer(op, x, tensor(64, dtype=f32))
    with pytest.raises(RuleDTypeError, match="weight"):
        infer(op, x, tensor(64, dtype=i32))
    with pytest.raises(RuleError, match="`weight` of that shape"):
        infer(op, x, tensor("B", 64, dtype=f32))
    if op == "layernorm_safe":
        with pytest.raises(RuleDTypeError, match="bias"):
            infer(op, x, tensor(64, dtype=f32), tensor(64, dtype=i32))


@pytest.mark.parametrize("name", ["layernorm_safe", "rmsnorm_safe"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 7), -1), ((2, 3, 4), 1), ((2, 3, 4), 0), ((5, 1), -1), ((2, 0), -1)])
def test_references_of_norms_are_their_formulas(name: str, shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(np.float32) + 3
    axes = tuple(range(axis % x.ndim, x.ndim))
    scales = [rng.standard_normal([shape[at] for at in axes]).astype(np.float32) for _ in range(2)]
    for count in range(3 if name == "layernorm_safe" else 2):
        wide = x.astype(np.float64)
        if x.size:
            wide = wide - wide.mean(axes, keepdims=True) if name == "layernorm_safe" else wide
            wide = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 0.25)
        for scale, combine in zip(scales[:count], (np.multiply, np.add), strict=False):
            wide = combine(wide, scale)
        found = reference(name, x, *scales[:count], axis=axis, eps=0.25)
        np.testing.assert_allclose(found, wide, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_reference_of_cross_entropy_is_its_formula(reduction: str) -> None:
    rng = np.random.default_rng(4)
    logits, labels = rng.standard_normal((6, 5)).astype(np.float32) * 3, np.array([0, 4, 2, -1, 5, 2])
    wide = logits.astype(np.float64)
    chances = np.exp(wide) / np.exp(wide).sum(1, keepdims=True)
    loss = np.array([-np.log(chances[row, at]) if 0 <= at < 5 else 0.0 for row, at in enumerate(labels)])
    expected = {"none": loss, "mean": loss.sum() / 4, "sum": loss.sum()}[reduction]
    np.testing.assert_allclose(reference("cross_entropy", logits, labels, reduction=reduction), expected, rtol=1e-6)
    nobody = reference("cross_entropy", logits, np.full(6, -1), reduction=reduction)
    assert not np.any(nobody)
    assert not np.any(reference("cross_entropy", logits[:, :0], labels, reduction=reduction)), "no class is a label"
    assert not np.any(reference("cross_entropy", logits[:0], labels[:0], reduction=reduction))
    alone = reference("cross_entropy", logits[0], labels[0], reduction=reduction)
    np.testing.assert_allclose(alone, loss[0], rtol=1e-6)


def test_a_normalized_row_is_bounded_by_the_root_of_its_length() -> None:
    def bounds(name: str, x: TensorType, *others: Interval, **attributes: Any) -> tuple[float, float]:
        facet, spec = interval_of(REGISTRY[name]), registry()[name]
        assert facet is not None
        assert facet.rule is not None
        operands = (Interval(-3.0, 5.0), *others)
        found = facet.rule(IntervalQuery(operands, (x,) * len(operands), spec.with_defaults(attributes), x))
        assert not found.may_be_nan
        return found.low, found.high

    x = tensor(3, 4, 25, dtype=f32)
    assert bounds("layernorm_safe", x) == (-5.0, 5.0)
    assert bounds("layernorm_safe", x, axis=1) == (-10.0, 10.0)
    assert bounds("layernorm_safe", x, Interval(-1.0, 2.0)) == (-10.0, 10.0)
    assert bounds("layernorm_safe", x, Interval(-1.0, 2.0), Interval(1.0, 7.0)) == (-9.0, 17.0)
    assert bounds("rmsnorm_safe", x, Interval(0.0, 3.0)) == (-15.0, 15.0)
    low, high = bounds("log_softmax", x)
    assert (low, high) == (-8.0 - math.log(25), 0.0)
    assert bounds("log_softmax", x, axis=0)[0] == -8.0 - math.log(3)
