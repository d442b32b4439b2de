"""Drawn matmuls, attentions, and small models: what their sizes are, and the ops they consist of."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.drawn.program import Builder, Program, Values
from benchmarks.drawn.sizes import Limits, Rng, draw_choice, log_uniform, whole
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType

FLOATS = {"bf16": 4, "f16": 2, "f32": 3}
PRODUCTS = {"bf16": 4, "f16": 2, "f32": 2, "f8e4m3": 1}
LARGEST_DIM = 65536


def unit(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Normal numbers."""
    return rng.standard_normal(shape).astype(numpy_dtype(dtype))


def weights(contracted: int) -> Values:
    """Normal numbers of the size of trained weights, so that results have that of their inputs."""

    def values(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
        return (rng.standard_normal(shape) / math.sqrt(contracted)).astype(numpy_dtype(dtype))

    return values


def labels(classes: int) -> Values:
    """Indices of classes."""
    return lambda rng, shape, dtype: rng.integers(0, classes, shape).astype(numpy_dtype(dtype))


def angles(rng: Rng, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers between -1 and 1, as cosines are."""
    return np.cos(rng.uniform(0, 6.3, shape)).astype(numpy_dtype(dtype))


def draw_gemm(rng: Rng, limits: Limits) -> Program:
    """One matmul, either operand stored transposed or not, of sizes up to what the limits allow."""
    dtype = draw_choice(rng, PRODUCTS)
    top = min(LARGEST_DIM, max(256.0, (limits.flops / 2) ** (1 / 2.6)))
    m, n, k = (whole(rng, log_uniform(rng, low, top)) for low in (1.0, 16.0, 16.0))
    if dtype == "f8e4m3":
        # The peer takes multiples of 16, and one layout.
        m, n, k = (max(16, size // 16 * 16) for size in (m, n, k))
    layout = "nt" if dtype == "f8e4m3" else str(rng.choice(["nn", "nt", "tn", "tt"]))
    builder = Builder()
    a = builder.argument((m, k) if layout[0] == "n" else (k, m), dtype, unit)
    b = builder.argument((k, n) if layout[1] == "n" else (n, k), dtype, weights(k))
    a = a if layout[0] == "n" else builder.do("transpose", a, axes=(1, 0))
    b = b if layout[1] == "n" else builder.do("transpose", b, axes=(1, 0))
    builder.do("matmul", a, b, **({"dtype": BY_NAME["bf16"]} if dtype == "f8e4m3" else {}))
    return builder.program("gemm", f"gemm {layout} {m}x{n}x{k}", dtype)


def draw_attention(rng: Rng, limits: Limits) -> Program:
    """One attention: heads, shared or not, lengths of queries and keys, causal or not."""
    dtype = draw_choice(rng, FLOATS)
    head = int(draw_choice(rng, {64: 4, 128: 4, 80: 1, 96: 1, 32: 1, 192: 0.5, 256: 0.5, 40: 0.3}))
    groups = int(draw_choice(rng, {1: 5, 2: 1, 4: 2, 8: 1}))
    own_queries = rng.random() < 0.3
    batch, kv_heads, keys = _draw_heads(rng, head * groups * BY_NAME[dtype].bits / 2, limits)
    queries = keys if not own_queries else max(1, int(log_uniform(rng, 1, keys)))
    causal = bool(rng.random() < 0.5) and queries == keys
    builder = Builder()
    q = builder.argument((batch, kv_heads * groups, queries, head), dtype, unit)
    k = builder.argument((batch, kv_heads, keys, head), dtype, unit)
    v = builder.argument((batch, kv_heads, keys, head), dtype, unit)
    builder.do("attention", q, k, v, causal=causal)
    label = f"attention{' causal' if causal else ''}"
    return builder.program("attention", label, dtype)


def _draw_heads(rng: Rng, bytes_of_a_row: float, limits: Limits) -> tuple[int, int, int]:
    """How many sequences and heads there are, and of how many positions, which is drawn first."""
    rows = max(16.0, limits.bytes / bytes_of_a_row)
    keys = whole(rng, log_uniform(rng, 16, min(rows, 16384.0)))
    heads = whole(rng, log_uniform(rng, 1, max(1.0, min(64.0, rows / keys))))
    return max(1, whole(rng, log_uniform(rng, 1, max(1.0, rows / keys / heads)) / 2)), heads, keys


def _linear(builder: Builder, x: str, width: int, dtype: str, bias: bool = True) -> str:
    """Weights stored [out, in], as models keep them."""
    inner = builder.shape(x)[-1]
    w = builder.argument((width, inner), dtype, weights(inner))
    x = builder.do("matmul", x, builder.do("transpose", w, axes=(1, 0)))
    return builder.do("add", x, builder.argument((width,), dtype, unit)) if bias else x


def _tokens(rng: Rng, limits: Limits, least: int = 1) -> tuple[int, int, int]:
    """A batch, a length and a width that models have: small enough that several matmuls stay inside the limits."""
    most = min(limits.flops / 64, limits.bytes * 16) ** 0.5
    width = 16 * whole(rng, log_uniform(rng, 1, max(2.0, min(256.0, most / 256))))
    tokens = log_uniform(rng, 1, max(2.0, min(limits.flops / (32 * width * width), limits.bytes / (40 * width))))
    length = max(least, whole(rng, log_uniform(rng, 1, tokens)))
    return max(1, whole(rng, tokens / length)), length, width


def draw_mlp(rng: Rng, limits: Limits) -> Program:
    """A norm, two layers with an activation, gated or not, and the residual."""
    builder, dtype = Builder(), draw_choice(rng, FLOATS)
    batch, length, width = _tokens(rng, limits)
    gated, hidden = bool(rng.random() < 0.5), int(width * rng.choice([2, 8 / 3, 4]))
    x = builder.argument((batch, length, width), dtype, unit)
    normed = builder.do("rmsnorm_safe", x, builder.argument((width,), dtype, unit))
    up = _linear(builder, normed, hidden, dtype, bias=not gated)
    if gated:
        up = builder.do("mul", builder.do("silu", up), _linear(builder, normed, hidden, dtype, bias=False))
    else:
        up = builder.do("gelu", up, approximate=str(rng.choice(["none", "tanh"])))
    builder.do("add", x, _linear(builder, up, width, dtype, bias=not gated))
    return builder.program("model", f"mlp{' gated' if gated else ''} hidden {hidden}", dtype)


def _dims(*sizes: int) -> tuple[Dim, ...]:
    return tuple(map(Dim.of, sizes))


def draw_block(rng: Rng, limits: Limits) -> Program:
    """A transformer's block: norm, attention over its heads, residual, norm, layers, residual."""
    builder, dtype = Builder(), draw_choice(rng, FLOATS)
    batch, length, width = _tokens(rng, limits)
    heads = max(1, width // int(rng.choice([32, 64, 128])))
    width = heads * max(8, width // heads // 8 * 8)
    x = builder.argument((batch, length, width), dtype, unit)

    def norm(value: str) -> str:
        weight, bias = (builder.argument((width,), dtype, unit) for _ in range(2))
        return builder.do("layernorm_safe", value, weight, bias)

    normed = norm(x)
    parts: list[str] = []
    for _ in range(3):
        part = builder.do(
            "reshape", _linear(builder, normed, width, dtype), shape=_dims(batch, length, heads, width // heads)
        )
        parts.append(builder.do("transpose", part, axes=(0, 2, 1, 3)))
    mixed = builder.do("transpose", builder.do("attention", *parts, causal=True), axes=(0, 2, 1, 3))
    mixed = builder.do("reshape", mixed, shape=_dims(batch, length, width))
    x = builder.do("add", x, _linear(builder, mixed, width, dtype))
    hidden = builder.do("gelu", _linear(builder, norm(x), 4 * width, dtype), approximate="tanh")
    builder.do("add", x, _linear(builder, hidden, width, dtype))
    return builder.program("model", f"block {heads} heads", dtype)


def draw_loss(rng: Rng, limits: Limits) -> Program:
    """Logits of classes from rows, and their cross-entropy."""
    builder, dtype = Builder(), draw_choice(rng, {"bf16": 2, "f32": 3})
    classes = whole(rng, log_uniform(rng, 2, min(65536.0, limits.bytes / 64)))
    rows = max(1, int(log_uniform(rng, 1, min(limits.bytes / (8 * classes), limits.flops / (64 * classes)))))
    width = 8 * whole(rng, log_uniform(rng, 1, max(2.0, min(128.0, limits.flops / (16 * rows * classes)))))
    x = builder.argument((rows, width), dtype, unit)
    logits = _linear(builder, x, classes, dtype, bias=False)
    target = builder.argument((rows,), "i64", labels(classes))
    builder.do("cross_entropy", logits, target, reduction="mean")
    return builder.program("model", f"linear + cross_entropy, {classes} classes", dtype)


def draw_mixer(rng: Rng, limits: Limits) -> Program:
    """Images: a convolution, a norm over channels, an activation, a pool."""
    builder, dtype = Builder(), draw_choice(rng, {"bf16": 2, "f16": 1, "f32": 3})
    channels, made = (4 * whole(rng, log_uniform(rng, 1, 32)) for _ in range(2))
    taps = int(rng.choice([1, 3, 5]))
    most = min(limits.bytes / 64 / max(channels, made), limits.flops / (2 * taps * taps * channels * made))
    side = max(taps + 2, whole(rng, log_uniform(rng, 4, max(5.0, min(256.0, most**0.5)))))
    batch = max(1, whole(rng, log_uniform(rng, 1, max(1.0, most / side**2))))
    x = builder.argument((batch, channels, side, side), dtype, unit)
    w = builder.argument((made, channels, taps, taps), dtype, weights(channels * taps * taps))
    x = builder.do("conv2d", x, w, padding=(taps // 2, taps // 2))
    scale, shift = (builder.argument((made, 1, 1), dtype, unit) for _ in range(2))
    x = builder.do("relu", builder.do("add", builder.do("mul", x, scale), shift))
    builder.do("max_pool", x, window=(2, 2), stride=(2, 2))
    return builder.program("model", f"conv {taps}x{taps} to {made} + relu + pool", dtype)


def draw_rotary(rng: Rng, limits: Limits) -> Program:
    """Queries and keys rotated by their positions, then attention."""
    builder, dtype = Builder(), draw_choice(rng, FLOATS)
    head = int(rng.choice([32, 64, 128]))
    batch, heads, length = _draw_heads(rng, head * 16.0, limits)
    shape = (batch, heads, length, head)
    tables = [builder.argument((length, head // 2), "f32", angles) for _ in range(2)]
    q, k = (builder.do("rotary", builder.argument(shape, dtype, unit), *tables) for _ in range(2))
    builder.do("attention", q, k, builder.argument(shape, dtype, unit), causal=True)
    return builder.program("model", "rotary + attention", dtype)


MODELS: tuple[Callable[[Rng, Limits], Program], ...] = (
    draw_mlp,
    draw_block,
    draw_loss,
    draw_mixer,
    draw_rotary,
)
