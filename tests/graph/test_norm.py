"""layernorm and rmsnorm: against f64, and finite on constant, tiny and huge rows."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.base.arrays import round_as
from tessera.types.dtype import DType, bf16, f32, i32
from tests.graph.eager import RuleDTypeError, RuleError, infer, run_decomposition, tensor


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
