"""The residual sum with dropout, and casts to another value's dtype."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.base.arrays import dtype_of, round_as
from tessera.types.dtype import bf16, f32, u64
from tests.graph.eager import RuleError, infer, make_key, run_decomposition, tensor


def test_residual_rounds_once() -> None:
    x, y = round_as([1.0], bf16), round_as([2.0**-9], bf16)
    out = run_decomposition("residual", x, y, make_key(1), dropout=0.0)
    assert dtype_of(out) is bf16
    # Dropped or not, `y` is scaled and added in f32: half of it would not survive a rounding before the sum.
    kept = run_decomposition("residual", round_as([0.0], bf16), y, make_key(1), dropout=0.3)
    assert float(kept[0]) in (0.0, float(round_as(np.float32(2.0**-9) * np.float32(1 / 0.7), bf16)))


def test_dropout_without_a_key_is_refused() -> None:
    x = tensor(4, dtype=f32)
    with pytest.raises(RuleError, match="needs one `key`"):
        infer("residual", x, x, dropout=0.1)
    key = tensor(2, dtype=u64)
    assert infer("residual", x, x, key, dropout=0.1) == [x]
    assert infer("residual", x, x, dropout=0.0) == [x]
    for rate in (0.0, 0.1):
        with pytest.raises(RuleError, match="needs one `key`, got 2"):
            infer("residual", x, x, key, key, dropout=rate)


def test_cast_like_takes_the_dtype_alone() -> None:
    assert str(infer("cast_like", tensor("B", 3, dtype=f32), tensor("S", dtype=bf16))[0]) == "[B, 3] bf16"
    assert run_decomposition("cast_like", np.array([1.7, -2.2, 300.0]), np.zeros(1, np.int8)).tolist() == [1, -2, 127]
