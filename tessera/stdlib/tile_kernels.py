"""Kernels to use as they are, in the kernel language: attention, rotary embedding, softmax, layer normalization."""

from __future__ import annotations

from typing import Any

from tessera.api.kernel import kernel
from tessera.frontend.functions.operands import cast
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import INF, KTile
from tessera.types.dtype import f32


@kernel
def flash_attention_2(
    q: KTile["B*H", "S", "D"], k: KTile["B*G", "T", "D"], v: KTile["B*G", "T", "D"], *, causal: bool = False
) -> Any:
    """Attention of H heads of queries to G of keys and values, each shared by H/G; the last query is at the last key.

    One pass over the keys, with scores that are never stored; a row that sees no key gives 0. Sums are f32 and the
    result has the dtype of the queries. The block `n` of a schedule decides in which steps the sum is rescaled, so it
    is part of the result; `m`, warps and stages are not.
    """
    T = tile.context()
    Q = tile.load(q, rows=T.m, cols=T.d)
    acc = tile.zeros((T.m, T.d), f32)
    m, total = tile.full((T.m,), -INF), tile.zeros((T.m,), f32)
    for n in tile.range_n(k.shape, T.n, prefetch=2):
        S = tile.dot(Q, tile.transpose(tile.load(k, n, cols=T.d))) * tile.rsqrt(float(T.d))
        if causal:
            tile.mask_causal(S, tile.row_index(), tile.col_index(n))
        P, m_c, l_c = tile.softmax_online(S)
        acc, m, total = tile.softmax_accumulate(acc, m, total, P, tile.load(v, n, cols=T.d), m_c, l_c)
    return tile.cast(acc / tile.where(total > 0.0, total, 1.0)[:, None], q.dtype)


@kernel
def rotary_embedding(
    x: KTile["B*H", "S", "D"], cos: KTile["S", "P", f32], sin: KTile["S", "P", f32], out: KTile["B*H", "S", "D"]
) -> None:
    """Rotary embedding by `cos` and `sin` of positions: `P` is half of `D`, partners are `P` apart."""
    T = tile.context()
    half = int(cos.shape[1])
    assert int(T.d) == 2 * half, "a row of `x` has an element pair for each angle of `cos` and `sin`"
    first = tile.load(x, rows=T.m, cols=slice(0, half))
    second = tile.load(x, rows=T.m, cols=slice(half, 2 * half))
    c, s = tile.load(cos, T.m, slice(0, half)), tile.load(sin, T.m, slice(0, half))
    tile.store(out, first * c - second * s, rows=T.m, cols=slice(0, half))
    tile.store(out, second * c + first * s, rows=T.m, cols=slice(half, 2 * half))


@rotary_embedding.defvjp
def _rotate_back(x: Any, cos: Any, sin: Any, out: Any, d_out: Any) -> tuple[Any, Any, Any]:
    """The gradient is rotated back by the same kernel; those of the angles are sums over batch and heads."""
    half, leading = int(cos.shape[1]), tuple(range(len(x.shape) - 2))
    wide, slopes = cast(x, f32), cast(d_out, f32)
    first, second = wide[..., :half], wide[..., half:]
    above, below = slopes[..., :half], slopes[..., half:]
    d_cos, d_sin = first * above + second * below, first * below - second * above
    return rotary_embedding(d_out, cos, -sin), d_cos.sum(axis=leading), d_sin.sum(axis=leading)


@kernel
def stable_softmax(x: KTile["B*S", "D"]) -> Any:
    """Rows of positive numbers that sum to one; a row of nothing but -inf gives zeros."""
    T = tile.context()
    return tile.cast(tile.tile_softmax_rmax(tile.load(x, rows=T.m, cols=T.d)), x.dtype)


@kernel
def efficient_layernorm(x: KTile["B*S", "D"], weight: KTile["D"], bias: KTile["D"], *, eps: float = 1e-5) -> Any:
    """Rows less their mean, over their deviation, by `weight`, plus `bias`; read once, summed in f32."""
    T = tile.context()
    rows = tile.load(x, rows=T.m, cols=T.d)
    centred = rows - (tile.tile_reduce_rowsum(rows) / float(T.d))[:, None]
    variance = tile.tile_reduce_rowsum(centred * centred) / float(T.d)
    scaled = centred * tile.rsqrt(variance + eps)[:, None]
    return tile.cast(scaled * tile.load(weight, T.d) + tile.load(bias, T.d), x.dtype)
