"""Ops outside `jit`: one program for each op, dtype and rank, whatever the sizes."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import eager
from tessera.diagnostics.codes import BroadcastError, CodegenError, ShapeError
from tessera.frontend import call_plans
from tessera.ir.graph.ops.contraction import matmul_reference


@pytest.fixture(autouse=True)
def oracle(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """Programs of this test alone, run by the reference: what is tested is how they are chosen and called."""
    programs: dict[Any, Any] = OrderedDict()
    monkeypatch.setattr(eager, "_PROGRAMS", programs)
    monkeypatch.setattr(call_plans, "PLANS", {})
    monkeypatch.setattr(eager, "_OPTIONS", ts.Options(backend="reference"))
    return programs


def numbers(value: Any) -> Any:
    return np.asarray(value).tolist()


def test_operators_and_methods_of_tensors() -> None:
    x = ts.array([[1.0, 2.0], [3.0, 4.0]])
    assert numbers(x + 1) == [[2, 3], [4, 5]]
    assert numbers(1 - x) == [[0, -1], [-2, -3]]
    assert numbers(x @ x) == [[7, 10], [15, 22]]
    assert numbers(x.T) == [[1, 3], [2, 4]]
    assert numbers(x[0]) == [1, 2]
    assert numbers(x[:, ::-1]) == [[2, 1], [4, 3]]
    assert numbers(x.sum(axis=1)) == [3, 7]
    assert numbers(-x > -3) == [[True, True], [False, False]]
    assert numbers(x.reshape(-1)) == [1, 2, 3, 4]
    assert numbers(x.max()) == 4
    assert numbers(np.ones((2, 2), np.float32) + x) == [[2, 3], [4, 5]]
    assert x.astype(ts.i32).dtype is ts.i32
    assert (x / 2).dtype is ts.f32


def test_one_program_serves_all_sizes(oracle: dict[Any, Any]) -> None:
    for count in (1, 2, 7, 0):
        ts.ops.exp(np.zeros(count, np.float32))
    assert len(oracle) == 1
    ts.ops.exp(np.zeros((2, 2), np.float32))
    ts.ops.exp(np.zeros(2, np.float64))
    assert len(oracle) == 3


def test_one_program_serves_all_sizes_with_segments_of_one_length(oracle: dict[Any, Any]) -> None:
    """A K of two segments is in segments of 1536 elements, one of 5000 in those of 1280, and a short one has none."""
    rng = np.random.default_rng(3)
    for rows, k, columns in ((2, 3000, 2), (5, 3000, 3), (4, 3070, 2), (2, 5000, 2), (3, 40, 2), (2, 900, 3)):
        x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, k), (k, columns)))
        segment = {3000: 1536, 3070: 1536, 5000: 1280}.get(k)
        assert np.asarray(ts.ops.matmul(x, y)).tobytes() == matmul_reference(x, y, segment=segment).tobytes()
    assert len(oracle) == 3


def test_numbers_are_operands_not_programs(oracle: dict[Any, Any]) -> None:
    x = ts.array([1.0, 2.0])
    assert [numbers(x * factor) for factor in (2.0, 3.0, 4)] == [[2, 4], [3, 6], [4, 8]]
    assert len(oracle) == 1


def test_programs_that_are_not_used_are_dropped(oracle: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "PROGRAMS", 3)
    for value in range(6):
        ts.ops.exp(np.zeros(2, np.float32))
        ts.ops.full((2,), value)
    assert len(oracle) == 3
    assert "exp" in {key[0] for key in oracle}  # it was used all the time


def test_a_program_that_cannot_be_compiled_is_not_tried_for_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def load(tape: Any, *_: Any) -> Any:
        tried.append(tape)
        raise CodegenError("LLVM refused")

    monkeypatch.setattr(eager, "load", load)
    with pytest.raises(CodegenError):
        ts.ops.exp(np.zeros(2, np.float32))
    assert len(tried) == 1


def test_a_tensor_that_no_machine_can_address() -> None:
    with pytest.raises(ShapeError, match=r"`full` gives \[4294967296, 4294967296\] f32: 18446744073709551616 elements"):
        ts.ops.zeros((2**32, 2**32))


def test_a_size_of_one_stretches() -> None:
    column, row = np.ones((3, 1), np.float32), np.ones((1, 4), np.float32)
    assert ts.ops.add(column, row).shape == (3, 4)
    assert ts.ops.add(np.ones((3, 4), np.float32), row).shape == (3, 4)
    assert ts.ops.add(np.ones((3, 4), np.float32), np.ones(4, np.float32)).shape == (3, 4)


def test_wrong_sizes_are_shown_in_numbers() -> None:
    with pytest.raises(BroadcastError, match=r"\[3\] with \[2\]"):
        ts.ops.add(np.zeros(3, np.float32), np.zeros(2, np.float32))
    with pytest.raises(ShapeError, match=r"\[2, 3\] by \[4, 5\]"):
        ts.ops.matmul(np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32))


def test_an_op_whose_rule_needs_numbers_has_a_program_for_each_shape() -> None:
    key = ts.random.key(7)
    assert ts.random.uniform(key, (2, 3)).shape == (2, 3)
    assert numbers(ts.random.bits(key, (4,))) == numbers(ts.random.bits(key, (4,)))
    first, second = ts.random.split(key)
    assert numbers(first) != numbers(second)


def test_ops_with_several_results() -> None:
    low, high = ts.ops.split(np.arange(4, dtype=np.float32), 2)
    assert (numbers(low), numbers(high)) == ([0, 1], [2, 3])
    values, places = ts.ops.topk(np.array([1.0, 9.0, 5.0], np.float32), 2)
    assert (numbers(values), numbers(places)) == ([9, 5], [1, 2])


def test_tensors_from_lists() -> None:
    assert ts.array([1, 2]).dtype is ts.i64
    assert ts.array([1, 2.5]).dtype is ts.f32
    assert ts.array([[True], [False]]).dtype is ts.bool_
    assert ts.array([1, 2], ts.bf16).dtype is ts.bf16
    assert ts.array([]).dtype is ts.f32
    assert numbers(ts.zeros((2,))) == [0, 0]
    assert numbers(ts.arange(2, 8, 3)) == [2, 5]
    assert numbers(ts.full((1, 2), 7)) == [[7, 7]]


def test_a_cache_grows_and_is_pruned() -> None:
    rng = np.random.default_rng(0)
    cache = ts.KVCache.empty(1, 2, 8, 4)
    first, second = (rng.standard_normal((1, 2, count, 4)).astype(np.float32) for count in (3, 2))
    grown = cache.append(first, first).append(second, second)
    assert int(grown.length) == 5
    np.testing.assert_array_equal(np.asarray(grown.K)[:, :, :3], first)
    np.testing.assert_array_equal(np.asarray(grown.V)[:, :, 3:5], second)
    pruned = grown.prune(2)
    assert int(pruned.length) == 2
    np.testing.assert_array_equal(np.asarray(pruned.K)[:, :, :2], second)
    assert repr(pruned) == "KVCache[1, 2, 8, 4, f32](length=2)"


def test_attention_reads_a_cache_as_it_would_keys_and_values() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 5, 4)).astype(np.float32) for _ in range(3))
    cache = ts.KVCache.empty(1, 2, 9, 4).append(k, v)
    np.testing.assert_allclose(
        ts.ops.attention(q, cache, causal=True), ts.ops.attention(q, k, v, causal=True), rtol=1e-6
    )


def test_a_cache_is_a_typed_argument() -> None:
    @ts.jit(backend="reference")
    def f(cache: ts.KVCache["B", "H", "S_max", 4, ts.f32], k: ts.Tensor["B", "H", "T", 4, ts.f32]) -> Any:
        return cache.append(k, k)

    cache = ts.KVCache.empty(1, 2, 8, 4)
    for count in (1, 3):
        cache = f(cache, np.ones((1, 2, count, 4), np.float32))
    assert int(cache.length) == 4
    assert f.cache_info().compiles == 1
    assert f.effects == {"state(cache)"}
    with pytest.raises(ts.TesseraError, match=r"cache\.K.*must be 4, got 5"):
        f(ts.KVCache.empty(1, 2, 8, 5), np.ones((1, 2, 1, 4), np.float32))
    with pytest.raises(ShapeError, match="head dim"):
        cache.append(np.ones((1, 2, 1, 3), np.float32), np.ones((1, 2, 1, 3), np.float32))


@pytest.mark.parametrize("scalar", [np.float64(3.0), np.float32(3.0), np.int64(3), np.int8(3), np.bool_(True)])
def test_a_scalar_of_numpy_is_an_array_of_rank_zero(scalar: Any) -> None:
    """A `float64` too, which is a float of Python as well."""
    for make in (ts.array, ts.asarray):
        assert make(scalar).shape == ()
        assert make(scalar).dtype is make(np.array(scalar)).dtype
        assert float(make(scalar)) == float(make(scalar, "f32")) == float(scalar)
        assert make(scalar, "f32").dtype is ts.f32
