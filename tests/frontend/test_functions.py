"""The functions users call: one for every op, each documented, and the ones of NumPy's names agreeing with NumPy."""

from __future__ import annotations

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
import inspect
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import collectives, control, randomness
from tessera.frontend.functions import public
from tessera.ir.graph.ops import REGISTRY

OTHER_NAMES = {
    "bernoulli", "normal", "uniform", "dropout", "random_bits", "fold_key",  # tessera.random
    "cond", "while", "fori", "scan",  # tessera.cond, ...
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all",  # tessera.dist
    "axis_index", "replicated", "shard",  # tessera.dist
    "debug_print", "io_callback", "fresh_key",  # tessera, tessera.random.key
    "kv_append", "kv_prune", "kv_offload", "kv_prefetch", "cached_attention",  # KVCache
    "prefetch", "stop_gradient",  # tessera.prefetch, tessera.stop_gradient
    "custom_function", "checkpoint", "checkpoint_name",  # tessera.custom_vjp, tessera.checkpoint, ...
    "attention_with_lse",  # attention(..., return_lse=True)
    "scored_attention", "scored_attention_with_lse",  # attention(..., score=..., mask=...)
    "cast", "slice", "index_get", "index_put",  # astype, x[...], x.at[...]
}  # fmt: skip
PARTS = {
    "conv_windows", "cumulative", "dim_size", "constant", "fused", "kernel_call", "philox", "scatter_rows", "sort_rows",
    "take_along_legal", "index_legal", "slice_legal", "slice_write", "take_legal", "pad_gather", "attention_parts",
    "attention_join", "kv_write",
    "attention_tangent", "attention_backward", "attention_backward_keys", "ragged_blocks", "ragged_outer",
    "conv_weights", "scored_attention_tangent", "scored_attention_backward",
    "join_segments", "unfold", "dot_windows", "fma_chain", "size_cond", "custom_linear", "optimization_barrier",
    "saved_value",
}  # fmt: skip
"""What decompositions are made of; users do not call them."""


def test_every_op_has_a_function() -> None:
    missing = {spec.short_name for spec in REGISTRY} - set(vars(public)) - OTHER_NAMES - PARTS
    assert missing == set()


def test_every_function_is_documented() -> None:
    modules = (public, control, randomness, collectives)
    functions = [
        (name, item)
        for module in modules
        for name, item in vars(module).items()
        if inspect.isfunction(item) and item.__module__.startswith("tessera.") and not name.startswith("_")
    ]
    assert [name for name, item in functions if not inspect.getdoc(item)] == []
    assert len(functions) > 120


RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
CASES: dict[str, tuple[Any, Any]] = {
    "sum all": (lambda x: x.sum(), lambda x: x.sum(dtype=np.float64)),
    "sum two axes": (lambda x: x.sum(axis=(0, -1)), lambda x: x.sum(axis=(0, -1))),
    "mean keepdims": (lambda x: x.mean(axis=1, keepdims=True), lambda x: x.mean(axis=1, keepdims=True)),
    "var": (lambda x: x.var(axis=-1, correction=1), lambda x: x.var(axis=-1, ddof=1)),
    "std": (lambda x: ts.ops.std(x, axis=0), lambda x: x.std(axis=0)),
    "norm": (lambda x: ts.ops.norm(x, axis=-1), lambda x: np.linalg.norm(x, axis=-1)),
    "argmax": (lambda x: x.argmax(axis=1), lambda x: x.argmax(axis=1)),
    "argmin all": (lambda x: x.argmin(), lambda x: x.argmin()),
    "cumsum": (lambda x: x.cumsum(axis=1), lambda x: x.cumsum(axis=1)),
    "transpose": (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(2, 0, 1)),
    "swapaxes": (lambda x: x.swapaxes(0, -1), lambda x: x.swapaxes(0, -1)),
    "moveaxis": (lambda x: ts.ops.moveaxis(x, 0, 2), lambda x: np.moveaxis(x, 0, 2)),
    "mT": (lambda x: x.mT, lambda x: x.swapaxes(-1, -2)),
    "reshape": (lambda x: x.reshape(4, -1), lambda x: x.reshape(4, -1)),
    "flatten": (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    "expand and squeeze": (lambda x: x.expand_dims((0, 2)).squeeze(0), lambda x: x[:, None]),
    "broadcast_to": (lambda x: x[:, :1].broadcast_to((3, 4, 5)), lambda x: np.broadcast_to(x[:, :1], (3, 4, 5))),
    "concat": (lambda x: ts.ops.concat([x, x[:1]], axis=0), lambda x: np.concatenate([x, x[:1]])),
    "stack": (lambda x: ts.ops.stack([x, x], axis=-1), lambda x: np.stack([x, x], axis=-1)),
    "pad": (
        lambda x: ts.ops.pad(x, [(1, 0), (0, 2), (1, 1)], 7.0),
        lambda x: np.pad(x, [(1, 0), (0, 2), (1, 1)], constant_values=7),
    ),
    "flip": (lambda x: ts.ops.flip(x, (0, 2)), lambda x: np.flip(x, (0, 2))),
    "roll": (lambda x: ts.ops.roll(x, (1, -2), (2, 0)), lambda x: np.roll(x, (1, -2), (2, 0))),
    "roll all": (lambda x: ts.ops.roll(x, 7), lambda x: np.roll(x, 7)),
    "tile": (lambda x: ts.ops.tile(x, (2, 1, 1, 3)), lambda x: np.tile(x, (2, 1, 1, 3))),
    "repeat": (lambda x: ts.ops.repeat(x, 2, axis=1), lambda x: np.repeat(x, 2, axis=1)),
    "unstack": (lambda x: ts.ops.unstack(x, 1)[2], lambda x: x[:, 2]),
    "clamp": (lambda x: ts.ops.clamp(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
    "clamp low": (lambda x: ts.ops.clamp(x, low=0.1), lambda x: np.maximum(x, np.float32(0.1))),
    "where": (lambda x: ts.ops.where(x > 0, x, -1.0), lambda x: np.where(x > 0, x, np.float32(-1))),
    "tril": (lambda x: ts.ops.tril(x, 1), lambda x: np.tril(x, 1)),
    "sort": (lambda x: ts.ops.sort(x, axis=1), lambda x: np.sort(x, axis=1)),
    "einsum": (lambda x: ts.ops.einsum("ijk,ilk->ijl", x, x), lambda x: np.einsum("ijk,ilk->ijl", x, x)),
    "power": (lambda x: abs(x) ** 2.0, lambda x: np.abs(x) ** np.float32(2)),
    "floor and mod": (lambda x: x // 0.5 + x % 0.5, lambda x: x // np.float32(0.5) + x % np.float32(0.5)),
    "comparison": (lambda x: (x <= 0) | ~(x < 1), lambda x: (x <= 0) | ~(x < 1)),
    "arange": (lambda x: x * ts.ops.arange(x.shape[2]).cast(ts.f32), lambda x: x * np.arange(5, dtype=np.float32)),
    "full_like": (lambda x: ts.ops.full_like(x, 3), lambda x: np.full_like(x, 3)),
    "eye": (lambda x: x @ ts.ops.eye(5), lambda x: x),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "free"])
@pytest.mark.parametrize("name", CASES)
def test_a_function_agrees_with_numpy(name: str, dynamic: bool) -> None:
    ours, theirs = CASES[name]
    if dynamic and name in ("unstack", "reshape", "broadcast_to", "eye"):
        pytest.skip("needs sizes that are numbers")
    found = np.asarray(ts.jit(dynamic=dynamic, backend="reference")(ours)(X))
    expected = np.asarray(theirs(X))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_attention_takes_masks_of_bools() -> None:
    q, k, v = (RNG.standard_normal((1, 2, 4, 8)).astype(np.float32) for _ in range(3))
    mask = np.tril(np.ones((4, 4), np.bool_))
    f = ts.jit(backend="reference")(lambda q, k, v, m: ts.ops.attention(q, k, v, m))
    g = ts.jit(backend="reference")(lambda q, k, v: ts.ops.flash_attention(q, k, v, causal=True))
    np.testing.assert_allclose(f(q, k, v, mask), g(q, k, v), rtol=1e-6)
