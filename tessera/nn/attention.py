"""Multi-head attention: fused projections, grouped queries, rotary embeddings, causal order and a cache of keys."""

from __future__ import annotations

from typing import Any

from tessera.api.eager import Tensor
from tessera.api.kv_cache import KVCache
from tessera.api.randomness import split
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of
from tessera.nn.layers import Initializer, Linear, check_sizes
from tessera.nn.module import Module
from tessera.types.dtype import DType, f32, i64


def rotary_angles(
    positions: Any, size: int, *, base: float = 10000.0, scale: float = 1.0, dtype: DType = f32
) -> tuple[Any, Any]:
    """Cosines and sines [length, size / 2] of rotary embeddings, for integer positions [length] and heads of `size`.

    `scale` divides positions, which stretches the context of a trained model.

    >>> cos, sin = ts.nn.rotary_angles(ts.arange(5), 8)
    >>> cos.shape
    (5, 4)
    """
    check_sizes("rotary_angles", size=size)
    if size % 2:
        raise ArgumentError(f"`rotary_angles` rotates pairs: `size` must be even, got {size}")
    wide = dtype.compute
    exponents = ops.astype(ops.iota((size // 2,)), wide) * (-2.0 / size)
    frequencies = ops.pow(ops.full((), base, wide), exponents)
    angles = ops.expand_dims(ops.astype(positions, wide) / scale, -1) * frequencies
    return ops.astype(ops.cos(angles), dtype), ops.astype(ops.sin(angles), dtype)


class Attention(Module):
    """Multi-head attention of [batch, length, width]: a projection to queries, keys and values, and one of the result.

    With `kv_heads` below `heads`, groups of queries share keys and values. `rotary` is the base of rotary embeddings,
    0 for none. With a cache, keys and values of `x` are appended to it, queries attend to all it holds, and the result
    is a pair of the values and the cache.

    >>> layer = ts.nn.Attention.init(ts.random.key(0), 16, heads=4, kv_heads=2, rotary=10000.0)
    >>> layer(ts.ones((2, 5, 16))).shape
    (2, 5, 16)
    >>> y, cache = layer(ts.ones((2, 5, 16)), cache=layer.cache(2, capacity=32))
    >>> cache
    KVCache[2, 2, 32, 4, f32](length=5)
    """

    qkv: Linear
    out: Linear
    heads: int
    kv_heads: int
    causal: bool = True
    rotary: float = 0.0
    dropout: float = 0.0

    @classmethod
    def init(
        cls,
        key: Any,
        width: int,
        *,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        causal: bool = True,
        rotary: float = 0.0,
        dropout: float = 0.0,
        bias: bool = True,
        weight_init: Initializer | None = None,
        out_init: Initializer | None = None,
        dtype: Any = f32,
    ) -> Attention:
        """Heads of `head_dim`, by default `width / heads`; `weight_init` and `out_init` are those of `Linear`."""
        shared = heads if kv_heads is None else kv_heads
        check_sizes("Attention", width=width, heads=heads, kv_heads=shared)
        if heads % shared:
            raise ArgumentError(
                f"`Attention` shares keys among equal groups: {heads} heads are no multiple of {shared} `kv_heads`",
                fix=f"write `kv_heads={heads}`, or a divisor of it",
            )
        if head_dim is None and width % heads:
            raise ArgumentError(
                f"`Attention` divides a width of {width} among {heads} heads, which leaves {width % heads}",
                fix="make `width` a multiple of `heads`, or pass `head_dim`",
            )
        size = width // heads if head_dim is None else head_dim
        first, second = split(key)
        options = {"bias": bias, "dtype": dtype}
        qkv = Linear.init(first, width, (heads + 2 * shared) * size, weight_init=weight_init, **options)
        out = Linear.init(second, heads * size, width, weight_init=out_init or weight_init, **options)
        return cls(qkv, out, heads, shared, causal, float(rotary), float(dropout))

    @property
    def head_dim(self) -> int:
        """The size of a head."""
        return self.qkv.weight.shape[1] // (self.heads + 2 * self.kv_heads)

    def cache(self, batch: Any, capacity: Any, *, dtype: Any = None) -> KVCache:
        """An empty cache for so many positions, in the dtype of the weights unless `dtype` says otherwise."""
        kept = dtype_of(self.qkv.weight) if dtype is None else dtype
        return KVCache.empty(batch, self.kv_heads, capacity, self.head_dim, kept)

    def angles(self, length: Any, start: Any = 0, *, dtype: DType = f32) -> tuple[Any, Any] | None:
        """The rotary cosines and sines of positions from `start` on; None without rotary embeddings."""
        if not self.rotary:
            return None
        positions = ops.iota((length,)) + as_tensor(start, i64)
        return rotary_angles(positions, self.head_dim, base=self.rotary, dtype=dtype)

    def __call__(
        self, x: Any, *, cache: KVCache | None = None, mask: Tensor | None = None, angles: Any = None, key: Any = None
    ) -> Any:
        """Attention over `x`, or over a cache with `x` appended.

        `mask` is added to the scores, or of bools; `angles` are those of `self.angles`, which layers can share. With a
        key, a share `dropout` of the weights is dropped.
        """
        length = x.shape[1]
        q, k, v = ops.split_qkv(self.qkv(x), heads=self.heads, kv_heads=self.kv_heads)
        if angles is None:
            wide = dtype_of(q).compute
            angles = self.angles(length, 0 if cache is None else cache.length, dtype=wide)
        if angles is not None:
            cos, sin = (ops.cast_like(one, q) for one in angles)
            q, k = ops.rotary(q, cos, sin), ops.rotary(k, cos, sin)
        rate = self.dropout if key is not None else 0.0
        if cache is None:
            mixed = ops.flash_attention(q, k, v, mask, causal=self.causal, dropout=rate, key=key)
            return self.out(merge_heads(mixed))
        cache = cache.append(ops.astype(k, cache.dtype), ops.astype(v, cache.dtype))
        mixed = ops.flash_attention(q, cache, None, mask, causal=self.causal, dropout=rate, key=key)
        return self.out(merge_heads(ops.cast_like(mixed, x))), cache


def merge_heads(x: Any) -> Any:
    """[batch, heads, length, head dim] as [batch, length, heads * head dim]."""
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)
