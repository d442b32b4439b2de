"""Work on whole rows in the kernel language: softmax and layer normalization."""

from __future__ import annotations

from typing import Any

from tessera.api.kernel import kernel
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import KTile


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


__all__ = ["efficient_layernorm", "stable_softmax"]
