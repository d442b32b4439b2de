"""Attention that is spelled out is recognized however it is written, and what only looks like it is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.ir.base.interpret import interpret
from tessera.ir.base.tape import RECOGNIZED
from tessera.ir.base.text import print_module
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.ops.attention import attention_reference
from tessera.ir.graph.passes.canonicalize import Canonicalize
from tessera.ir.graph.passes.decompose import Decompose
from tessera.ir.graph.passes.eliminate_common import EliminateCommon
from tessera.ir.graph.passes.recognize_attention import RecognizeAttention

_SCALE = 0.3
_ATTENDED = ((2, 4, 6, 8), (2, 4, 9, 8), (2, 4, 9, 5))
"""Shapes of queries, keys and values: all sizes differ that may."""
_SQUARE = ((2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8))


def _swap(x: Any) -> Any:
    return x.swapaxes(-1, -2)


def scale_behind(q: Any, k: Any, v: Any) -> Any:
    return ops.softmax(q @ _swap(k) * _SCALE) @ v


def scale_before(q: Any, k: Any, v: Any) -> Any:
    return ops.softmax((_SCALE * q) @ _swap(k)) @ v


def scale_of_keys(q: Any, k: Any, v: Any) -> Any:
    return ops.softmax(q @ _swap(k * _SCALE), axis=-1) @ v


def divided_by_root(q: Any, k: Any, v: Any) -> Any:
    return ops.softmax(q @ _swap(k) / math.sqrt(8.0)) @ v


def added_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ops.softmax(mask + q @ _swap(k) * _SCALE) @ v


def chosen_scores(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ops.softmax(ops.where(mask > 0.0, q @ _swap(k) * _SCALE, float("-inf"))) @ v


def hidden_scores(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ops.softmax(ops.where(mask > 0.0, float("-inf"), q @ _swap(k) * _SCALE)) @ v


def causal_by_tril(q: Any, k: Any, v: Any) -> Any:
    seen = ops.tril(ops.ones((q.shape[2], k.shape[2])))
    return ops.softmax(ops.where(seen == 0.0, -1e30, q @ _swap(k) * _SCALE)) @ v


def causal_by_positions(q: Any, k: Any, v: Any) -> Any:
    rows, columns = ops.arange(q.shape[2]).reshape(-1, 1), ops.arange(k.shape[2])
    hidden = ops.where(columns <= rows, 0.0, float("-inf"))
    return ops.softmax(q @ _swap(k) * _SCALE + hidden) @ v


def by_einsum(q: Any, k: Any, v: Any) -> Any:
    weights = ops.softmax(ops.einsum("bhqd,bhkd->bhqk", q, k) * _SCALE)
    return ops.einsum("bhqk,bhkd->bhqd", weights, v)


def heads_behind_positions(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
    return ops.transpose(ops.softmax(ops.matmul(q, _swap(k)) * _SCALE) @ v, (0, 2, 1, 3))


def heads_behind_positions_by_einsum(q: Any, k: Any, v: Any) -> Any:
    weights = ops.softmax(ops.einsum("bqhd,bkhd->bhqk", q, k) * _SCALE)
    return ops.einsum("bhqk,bkhd->bqhd", weights, v)


def keys_first(q: Any, k: Any, v: Any) -> Any:
    """The transposed product, whose softmax is over the axis before the last."""
    return _swap(_swap(v) @ ops.softmax(k @ _swap(q) * _SCALE, axis=-2))


def written_out(q: Any, k: Any, v: Any) -> Any:
    scores = q @ _swap(k) * _SCALE
    terms = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
    return (terms / ops.sum(terms, axis=-1, keepdims=True)) @ v


def shared_heads(q: Any, k: Any, v: Any) -> Any:
    k, v = ops.repeat(k, 2, axis=1), ops.repeat(v, 2, axis=1)
    return ops.softmax(q @ _swap(k) * _SCALE) @ v


_POSITIONS_FIRST = ((2, 6, 4, 8), (2, 9, 4, 8), (2, 9, 4, 5))
_MASK = (6, 9)

YES: dict[Callable[..., Any], tuple[tuple[int, ...], ...]] = {
    scale_behind: _ATTENDED,
    scale_before: _ATTENDED,
    scale_of_keys: _ATTENDED,
    divided_by_root: _ATTENDED,
    added_mask: (*_ATTENDED, _MASK),
    chosen_scores: (*_ATTENDED, _MASK),
    hidden_scores: (*_ATTENDED, _MASK),
    causal_by_tril: _SQUARE,
    causal_by_positions: _SQUARE,
    by_einsum: _ATTENDED,
    heads_behind_positions: _POSITIONS_FIRST,
    heads_behind_positions_by_einsum: _POSITIONS_FIRST,
    keys_first: _ATTENDED,
    written_out: _ATTENDED,
    shared_heads: ((2, 4, 6, 8), (2, 2, 9, 8), (2, 2, 9, 5)),
}


def over_queries(q: Any, k: Any, v: Any) -> Any:
    return ops.softmax(q @ _swap(k) * _SCALE, axis=-2) @ v


def with_dropout(q: Any, k: Any, v: Any) -> Any:
    weights = ts.random.dropout(ops.softmax(q @ _swap(k) * _SCALE), ts.random.key(1), 0.5)
    return weights @ v


def scores_returned(q: Any, k: Any, v: Any) -> Any:
    scores = q @ _swap(k) * _SCALE
    return ops.softmax(scores) @ v, ops.max(scores)


def weights_returned(q: Any, k: Any, v: Any) -> Any:
    weights = ops.softmax(q @ _swap(k) * _SCALE)
    return weights @ v, weights


def other_reduction(q: Any, k: Any, v: Any) -> Any:
    scores = q @ _swap(k) * _SCALE
    terms = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
    return (terms / ops.max(terms, axis=-1, keepdims=True)) @ v


def summed_over_queries(q: Any, k: Any, v: Any) -> Any:
    return _swap(ops.softmax(q @ _swap(k) * _SCALE)) @ v


def of_two_heads(q: Any, k: Any, v: Any) -> Any:
    """The heads of queries and keys are not paired."""
    weights = ops.softmax(ops.einsum("bhqd,bgkd->bhqk", q, k) * _SCALE)
    return ops.einsum("bhqk,bhkd->bhqd", weights, v)


def factor_of_the_mask(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ops.softmax((q @ _swap(k) + mask) * _SCALE) @ v


def factor_of_each_key(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ops.softmax(q @ _swap(k) * mask) @ v


def soft_hidden(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """A row that sees nothing has equal weights here."""
    return ops.softmax(ops.where(mask > 0.0, q @ _swap(k), -1e9)) @ v


NO: dict[Callable[..., Any], tuple[tuple[int, ...], ...]] = {
    over_queries: _SQUARE,
    with_dropout: _ATTENDED,
    scores_returned: _ATTENDED,
    weights_returned: _ATTENDED,
    other_reduction: _ATTENDED,
    summed_over_queries: _SQUARE,
    of_two_heads: _ATTENDED,
    factor_of_the_mask: (*_ATTENDED, _MASK),
    factor_of_each_key: (*_ATTENDED, _MASK),
    soft_hidden: (*_ATTENDED, _MASK),
}


def _arrays(shapes: tuple[tuple[int, ...], ...], seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape).astype(np.float32) for shape in shapes]


def _graph(function: Callable[..., Any], arrays: list[np.ndarray]) -> Any:
    module = from_tape(ts.jit(function).trace(*arrays).tape)
    for one in (Canonicalize(), EliminateCommon()):
        one.run(module)
    return module


def _count(module: Any) -> int:
    return print_module(module).count("tgraph.attention ")


@pytest.mark.parametrize("function", YES, ids=lambda one: one.__name__)
def test_each_spelling_is_one_op_with_the_meaning_it_had(function: Callable[..., Any]) -> None:
    arrays = _arrays(YES[function])
    module = _graph(function, arrays)
    (wanted,) = interpret(symbol_table(module)["main"], *arrays)
    RecognizeAttention(rewrite=True).run(module)
    verify(module)
    assert _count(module) == 1
    assert "softmax" not in print_module(module).replace("softmax is online", "")
    (found,) = interpret(symbol_table(module)["main"], *arrays)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("function", NO, ids=lambda one: one.__name__)
def test_a_look_alike_stays_as_it_is(function: Callable[..., Any]) -> None:
    module = _graph(function, _arrays(NO[function]))
    before = print_module(module)
    RecognizeAttention(rewrite=True).run(module)
    assert print_module(module) == before


def test_the_causal_mask_is_an_attribute_and_others_are_operands() -> None:
    for function in (causal_by_tril, causal_by_positions):
        module = _graph(function, _arrays(YES[function]))
        RecognizeAttention(rewrite=True).run(module)
        assert "causal = true" in print_module(module)
    module = _graph(chosen_scores, _arrays(YES[chosen_scores]))
    RecognizeAttention(rewrite=True).run(module)
    assert "causal" not in print_module(module)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.lists(st.integers(1, 3), max_size=3),
    lengths=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    heads=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 99),
)
def test_attention_of_any_batch_is_the_reference_of_the_op(
    batch: list[int], lengths: tuple[int, int], heads: tuple[int, int], seed: int
) -> None:
    (queries, keys), (size, width) = lengths, heads
    arrays = _arrays(((*batch, queries, size), (*batch, keys, size), (*batch, keys, width)), seed)
    module = _graph(scale_behind, arrays)
    RecognizeAttention(rewrite=True).run(module)
    verify(module)
    assert _count(module) == 1
    (found,) = interpret(symbol_table(module)["main"], *arrays)
    merged = [array.reshape(-1, batch[-1] if batch else 1, *array.shape[-2:]) for array in arrays]
    wanted = attention_reference(*merged, scale=_SCALE).reshape(found.shape)
    np.testing.assert_array_equal(found, wanted)


# What a program does with it: bits stay unless it is allowed.


def test_bits_stay_and_explain_says_what_was_seen() -> None:
    arrays = [ts.array(array) for array in _arrays(YES[scale_behind])]
    function = ts.jit(scale_behind)
    assert "tgraph.attention " not in function.lower(*arrays).graph
    function(*arrays)
    (note,) = function.explain(*arrays).report["recognized"]
    assert note.startswith("attention of [2, 4, 6, 8] f32 over [2, 4, 9, 8]")
    assert "not rewritten, as its online softmax rounds otherwise" in note


def test_fast_math_makes_one_kernel_of_it() -> None:
    arrays = [ts.array(array) for array in _arrays(YES[causal_by_tril])]
    function = ts.jit(causal_by_tril, fast_math=True)
    assert "tgraph.attention " in function.lower(*arrays).graph
    wanted = np.asarray(ts.jit(causal_by_tril)(*arrays))
    np.testing.assert_allclose(np.asarray(function(*arrays)), wanted, rtol=2e-5, atol=2e-6)
    (note,) = function.explain(*arrays).report["recognized"]
    assert "rewritten as one op" in note


def test_it_is_recognized_in_ops_that_were_decomposed_too() -> None:
    """A plan has its bodies so."""
    arrays = _arrays(YES[added_mask])
    module = _graph(added_mask, arrays)
    for one in (Decompose(), Canonicalize(), EliminateCommon()):
        one.run(module)
    assert "tgraph.softmax" not in print_module(module)
    RecognizeAttention(rewrite=True).run(module)
    assert _count(module) == 1
    assert RECOGNIZED in symbol_table(module)["main"].attributes


def test_a_mask_over_several_batch_axes_leaves_it_as_it_is() -> None:
    """All but the last of those become one axis, and the mask has two of them."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, 3, 4, 8, 16)).astype(np.float32) for _ in range(3))
    mask = np.where(rng.random((2, 3, 1, 8, 8)) < 0.3, -1e9, 0.0).astype(np.float32)

    def spelled(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return ops.softmax(q @ ops.transpose(k, (0, 1, 2, 4, 3)) * 0.25 + mask, axis=-1) @ v

    plain, fast = (np.asarray(ts.jit(spelled, fast_math=is_fast)(q, k, v, mask)) for is_fast in (False, True))
    np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)
