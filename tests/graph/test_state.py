"""The key-value cache: typed, appended to, pruned, and read by attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.kv_cache import KVCache
from tessera.diagnostics.codes import AnnotationError
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import Array
from tessera.types.annotation import parse_annotation
from tessera.types.dtype import bf16, f32, i32, i64
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, registry, run_decomposition, tensor
from tests.stdlib.running import run_library

CACHE = (tensor("B", "H", "S_max", 64, dtype=bf16), tensor("B", "H", "S_max", 64, dtype=bf16), tensor(dtype=i64))
"""The tensors of a cache: keys, values, and how many positions are filled."""


def test_the_type_prints_parses_and_names_its_tensors() -> None:
    text = 'KVCache["B", "H", "S_max", 64, bf16]'
    annotation = parse_annotation(text)
    assert str(annotation) == text
    fields = KVCache.field_annotations(annotation)
    assert [TensorType(field.dims, field.dtype or f32) for field in fields] == list(CACHE)
    with pytest.raises(AnnotationError, match="has 4 dims"):
        parse_annotation('KVCache["B", "H", bf16]')


def test_appending_token_by_token_equals_attention_over_all() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4 if n == 0 else 2, 6, 8)).astype(np.float32) for n in range(3))
    keys, values, length = np.zeros((2, 2, 9, 8), np.float32), np.zeros((2, 2, 9, 8), np.float32), np.array(0)
    rows: list[Array] = []
    for step in (slice(0, 3), slice(3, 4), slice(4, 6)):
        keys, values, length = run_decomposition("kv_append", keys, values, length, k[:, :, step], v[:, :, step])
        rows += run_library("cached_attention", [q[:, :, step], keys, values, length])
    assert length == 6
    whole = reference("attention", q, k, v, causal=True)
    np.testing.assert_allclose(np.concatenate(rows, 2), whole, rtol=1e-5, atol=1e-6)


def test_pruning_keeps_the_newest() -> None:
    keys = np.arange(5, dtype=np.float32).reshape(1, 1, 5, 1)
    out, _, length = run_decomposition("kv_prune", keys, keys, np.array(4), keep=2)
    assert out.reshape(-1).tolist() == [2, 3, 0, 0, 0]
    assert length == 2


def test_appending_keeps_the_type_of_the_cache() -> None:
    rules = Rules()
    new = tensor("B", "H", "S", 64, dtype=bf16)
    assert infer("kv_append", *CACHE, new, new, rules=rules) == list(CACHE)
    assert not rules.guards
    assert registry()["kv_append"].effects == {"state"}
    assert registry()["kv_prune"].effects == {"state"}


def test_the_cache_says_what_is_wrong() -> None:
    keys, values, length = CACHE
    wrong = tensor("B", "H", 1, 32, dtype=bf16)
    with pytest.raises(RuleError, match=r"head dim of the cache 64 and `k.shape\[3\] = 32`"):
        infer("kv_append", keys, values, length, wrong, wrong)
    new = tensor("B", "H", 1, 64, dtype=f32)
    with pytest.raises(RuleDTypeError, match="cannot put f32 into a cache of bf16"):
        infer("kv_append", keys, values, length, new, new)
    with pytest.raises(RuleError, match="`length` as one i64"):
        infer("kv_prune", keys, values, tensor(dtype=i32), keep=1)
    with pytest.raises(RuleError, match="at least 0"):
        infer("kv_prune", keys, values, tensor(dtype=i64), keep=-1)
    with pytest.raises(RuleError, match="capacity"):
        infer("kv_prune", tensor(3, dtype=f32), values, length, keep=1)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_pruning_a_cache_whose_dims_are_equal_by_a_guard(backend: str) -> None:
    @ts.jit(backend=backend)
    def prune(
        keys: ts.Tensor["B", "H", "S", "D", ts.f32], values: ts.Tensor["C", "G", "T", "E", ts.f32], length: Any
    ) -> Any:
        return dispatch.apply("kv_prune", (keys, values, length), {"keep": 2})

    keys, values = (np.arange(2 * 3 * 5 * d, dtype=np.float32).reshape(2, 3, 5, d) for d in (4, 6))
    found = prune(keys, values, np.int64(4))
    for one, wanted in zip(found, reference("kv_prune", keys, values, np.array(4), keep=2), strict=True):
        np.testing.assert_array_equal(np.asarray(one), wanted)
