"""Kernels to look at on a GPU, small and of every kind: matmuls, attention and rows, whole sizes and ragged ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.gpu_gemm import causal, full, nn, nt
from tessera.frontend.pytree import as_tuple
from tessera.stdlib import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax

DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
}
LARGEST_ERROR = {"bf16": 2e-2, "f16": 4e-3, "f32": 1e-4, "e4m3": 2e-2, "i8": 0.0}
"""Of the norm, for results that are rounded to the dtype."""


@dataclass(frozen=True)
class Case:
    """A function, the shapes of its arguments, and what is asked of the compiler."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "bf16"
    overrides: dict[str, Any] = field(default_factory=dict[str, Any])
    is_ragged: bool = False

    def arrays(self, seed: int = 0) -> list[Any]:
        """Random arguments."""
        rng, dtype = np.random.default_rng(seed), DTYPES[self.dtype]
        if self.dtype == "i8":
            return [rng.integers(-128, 128, shape).astype(dtype) for shape in self.shapes]
        return [rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in self.shapes]

    def jitted(self, backend: str) -> Any:
        """The function for a backend, with what is asked for where it is compiled."""
        return ts.jit(self.function, backend=backend, overrides=self.overrides if backend == "cuda" else {})

    def run(self, seed: int = 0) -> float:
        """Run it on the GPU; the distance to the reference, in parts of its size. Raises ValueError where it is far."""
        arrays = self.arrays(seed)
        found, wanted = (_wide(self.jitted(backend)(*arrays)) for backend in ("cuda", "reference"))
        size = float(np.linalg.norm(wanted))
        error = float(np.linalg.norm(found - wanted)) / size if size else float(np.linalg.norm(found))
        if not error <= LARGEST_ERROR[self.dtype]:
            raise ValueError(f"the result is wrong: the error is {error}")
        return error


def _wide(result: Any) -> Any:
    whole = np.concatenate([np.asarray(part).astype(np.float64).ravel() for part in as_tuple(result)])
    return whole[np.isfinite(whole) | np.isnan(whole)]  # a row that sees no key has a log-sum-exp of -inf


def _tn(x: Any, w: Any) -> Any:
    return ts.ops.matmul(ts.ops.transpose(x), w)


def _layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh")


def _into_f32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32)


def _into_i32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.i32)


def _with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


def _split(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


def _cached(q: Any, k: Any, v: Any) -> Any:
    """A cache that is filled but for some keys, which are not to be read."""
    length = k.shape[2] - 75
    hidden = ts.ops.arange(k.shape[2])[:, None] >= length
    cache = ts.KVCache(k, ts.ops.where(hidden, float("nan"), v), ts.ops.full((), length, ts.i64))
    return ts.ops.attention(q, cache, causal=True)


def _chain(q: Any, k: Any, v: Any, b: Any, r: Any) -> Any:
    e = ts.ops.epilogue
    return e.chain([e.bias(b), e.act("relu"), e.residual(r)])(ts.ops.attention(q, k, v, causal=True))


def _flash(q: Any, k: Any, v: Any) -> Any:
    return flash_attention_2(q, k, v, causal=True)


def _layernorm(x: Any, w: Any, b: Any) -> Any:
    return efficient_layernorm(x, w, b)


def _stable_softmax(x: Any) -> Any:
    return stable_softmax(x)


def _rotary(x: Any, c: Any, s: Any) -> Any:
    return rotary_embedding(x, c, s)


def _softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def _rmsnorm(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w)


def _free_softmax(x: ts.Tensor["M", "N", ts.bf16]) -> Any:
    return ts.ops.softmax(x, axis=-1)


def _free_layernorm(x: ts.Tensor["M", "N", ts.bf16], w: ts.Tensor["N", ts.bf16], b: ts.Tensor["N", ts.bf16]) -> Any:
    return ts.ops.layernorm(x, w, b)


def _wide_layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def _long_layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(ts.ops.gelu(x), w, b)


def _tanh_softmax(x: Any) -> Any:
    return ts.ops.softmax(ts.ops.tanh(x), axis=-1)


def _dropped(x: Any, y: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(ts.random.dropout(x, ts.random.key(3), 0.1) + y, w, b)


def _columns(x: Any) -> Any:
    return x.sum(axis=0)


def _sorted(x: Any) -> Any:
    return ts.ops.sort(x, axis=-1)


def _running(x: Any) -> Any:
    return ts.ops.cumsum(x, axis=-1)


def _turned(x: Any) -> Any:
    return x.T + 1.0


def _joined(x: Any) -> Any:
    return ts.ops.concat([x, x * 2.0], axis=0)


def _heads(queries: int, keys: int, size: int, heads: int = 2, shared: int = 1) -> tuple[tuple[int, ...], ...]:
    others = (1, heads // shared, keys, size)
    return (1, heads, queries, size), others, others


def _sides(m: int, n: int, k: int, form: str = "nt") -> tuple[tuple[int, int], ...]:
    left = (k, m) if form == "tn" else (m, k)
    return left, ((n, k) if form == "nt" else (k, n))


PAIRED = {"matrix.multicast": "always", "contraction.block": (128, 256, 64)}
WARPS = {"matrix.instruction": "mma.sync"}
NARROW = {"contraction.block": (64, 32, 128)}
ONE_STAGE = {"pipeline.stages": 1}
BESIDE = {"matrix.epilogue": "beside", "contraction.block": (128, 80, 64)}
"""More programs than SMs, of a few steps."""
PRODUCTS: dict[str, Case] = {
    "nt": Case(nt, _sides(512, 512, 256)),
    "nn": Case(nn, _sides(512, 512, 256, "nn")),
    "tn": Case(_tn, _sides(512, 512, 256, "tn")),
    "nt-ragged": Case(nt, _sides(333, 200, 136), is_ragged=True),
    "nn-ragged": Case(nn, _sides(77, 100, 33, "nn"), is_ragged=True),
    "layer": Case(_layer, (*_sides(300, 264, 72, "nn"), (264,)), is_ragged=True),
    "f16": Case(nt, _sides(256, 256, 128), "f16"),
    "f32": Case(nt, _sides(130, 70, 50), "f32", is_ragged=True),
    "e4m3": Case(_into_f32, _sides(256, 256, 1280), "e4m3"),
    "e4m3-together": Case(_into_f32, _sides(256, 256, 1280), "e4m3", {"matrix.lag": 0}),
    "i8": Case(_into_i32, _sides(256, 256, 256), "i8"),
    "narrow-columns": Case(nn, _sides(77, 40, 264, "nn"), overrides=NARROW, is_ragged=True),
    "pair": Case(nt, _sides(512, 1024, 256), overrides=PAIRED),
    "pair-ragged": Case(nt, _sides(500, 1000, 264), overrides=PAIRED, is_ragged=True),
    "beside": Case(nt, _sides(1024, 1440, 256), overrides=BESIDE),
    "beside-layer": Case(_layer, (*_sides(1024, 1432, 448, "nn"), (1432,)), overrides=BESIDE),
    "one-stage": Case(nt, _sides(256, 512, 512), overrides=ONE_STAGE),
    "one-stage-ragged": Case(nn, _sides(333, 200, 136, "nn"), overrides=ONE_STAGE, is_ragged=True),
    "warps": Case(nt, _sides(256, 256, 128), overrides=WARPS),
    "warps-ragged": Case(nn, _sides(77, 100, 33, "nn"), overrides=WARPS, is_ragged=True),
}
ATTENTION: dict[str, Case] = {
    "full": Case(full, _heads(256, 384, 128)),
    "causal": Case(causal, _heads(512, 512, 128)),
    "causal-64": Case(causal, _heads(384, 384, 64)),
    "causal-ragged": Case(causal, _heads(130, 300, 128), is_ragged=True),
    "causal-32": Case(causal, _heads(200, 200, 32), is_ragged=True),
    "causal-96": Case(causal, _heads(130, 300, 96), is_ragged=True),
    "lse-ragged": Case(_with_lse, _heads(200, 70, 64), is_ragged=True),
    "decode": Case(_split, _heads(1, 4096, 128, 16, 8)),
    "decode-ragged": Case(_split, _heads(1, 5000, 128, 16, 8), is_ragged=True),
    "cached": Case(_cached, _heads(200, 330, 128, 4, 2), is_ragged=True),
    "cached-parts": Case(_cached, _heads(200, 1300, 64, 4, 2), is_ragged=True),
    "cached-decode": Case(_cached, _heads(1, 4600, 128, 16, 8), is_ragged=True),
    "attention-chain": Case(_chain, (*_heads(200, 333, 64), (64,), (1, 2, 200, 64)), is_ragged=True),
    "attention-warps": Case(causal, _heads(130, 300, 64), overrides=WARPS, is_ragged=True),
}
LIBRARY: dict[str, Case] = {
    "flash_attention_2": Case(_flash, _heads(256, 256, 64)),
    "efficient_layernorm": Case(_layernorm, ((64, 512), (512,), (512,)), "f32"),
    "stable_softmax": Case(_stable_softmax, ((64, 500),), "f32", is_ragged=True),
    "rotary_embedding": Case(_rotary, ((2, 4, 128, 64), (128, 32), (128, 32)), "f32"),
}
"""Kernels of the library, by their names."""
ROWS: dict[str, Case] = {
    "softmax": Case(_softmax, ((64, 4096),)),
    "softmax-ragged": Case(_softmax, ((7, 1000),), is_ragged=True),
    "softmax-long": Case(_softmax, ((4, 70001),), is_ragged=True),
    "rmsnorm": Case(_rmsnorm, ((64, 4096), (4096,))),
    "rmsnorm-wide": Case(_rmsnorm, ((64, 8192), (8192,))),
    "softmax-shared": Case(_softmax, ((9, 16384),)),
    "softmax-shared-ragged": Case(_softmax, ((7, 5001),), is_ragged=True),
    "layernorm-shared": Case(_wide_layernorm, ((9, 32768), (32768,), (32768,))),
    "layernorm-shared-ragged": Case(_wide_layernorm, ((300, 5003), (5003,), (5003,)), is_ragged=True),
    "softmax-free": Case(_free_softmax, ((37, 1300),), is_ragged=True),
    "layernorm-free": Case(_free_layernorm, ((9, 9001), (9001,), (9001,)), is_ragged=True),
    "gelu-layernorm": Case(_long_layernorm, ((9, 4096), (4096,), (4096,))),
    "tanh-softmax": Case(_tanh_softmax, ((9, 4096),)),
    "dropout-layernorm": Case(_dropped, ((9, 4096), (9, 4096), (4096,), (4096,))),
    "columns-bf16": Case(_columns, ((4096, 100),), is_ragged=True),
    "columns": Case(_columns, ((513, 100),), "f32", is_ragged=True),
    "sort": Case(_sorted, ((3, 1000),), "f32", is_ragged=True),
    "running": Case(_running, ((5, 300),), "f32", is_ragged=True),
    "turned": Case(_turned, ((33, 65),), "f32", is_ragged=True),
    "joined": Case(_joined, ((9, 11),), "f32", is_ragged=True),
}
CASES: dict[str, Case] = {**PRODUCTS, **ATTENTION, **LIBRARY, **ROWS}
