"""Attention that never stores its scores: causal, grouped heads, and keys longer than queries.

`python examples/flash_attention.py` runs it on the CPU, with `--gpu` on a GPU.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.tile import INF
from tessera.types.device import Device


@ts.jit
def attend(
    q: ts.Tensor["B", "H", "S", "D", ts.f32],
    k: ts.Tensor["B", "G", "T", "D", ts.f32],
    v: ts.Tensor["B", "G", "T", "D", ts.f32],
    *,
    causal: bool = True,
) -> Any:
    """Causal attention of H query heads to G heads of keys and values."""
    return ts.ops.attention(q, k, v, causal=causal)


@kernel
def flash(
    q: KTile["B*H", "S", "D"], k: KTile["B*G", "T", "D"], v: KTile["B*G", "T", "D"], *, causal: bool = False
) -> Any:
    """Each program owns a block of queries of one head, and loops over the keys once; a row that sees none gives 0."""
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


def exact(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The definition, in float64, with all scores materialized."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    k, v = (np.repeat(array, q.shape[1] // array.shape[1], axis=1) for array in (k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        S, T = scores.shape[-2:]
        scores = np.where(np.tri(S, T, T - S, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


LENGTHS = ((512, 512), (100, 333), (1, 700))


def main(*, lengths: tuple[tuple[int, int], ...] = LENGTHS, D: int = 64, where: Device = ts.cpu) -> None:
    """Queries S against keys T on a device, 8 query heads, 2 key and value heads."""
    with ts.device(where):
        _compare(lengths, D)


def _compare(lengths: tuple[tuple[int, int], ...], D: int) -> None:
    rng = np.random.default_rng(0)
    for S, T in lengths:
        q = rng.standard_normal((1, 8, S, D), np.float32)
        k, v = rng.standard_normal((2, 1, 2, T, D), np.float32)
        for causal in (True, False):
            for function in (attend, flash):
                error = float(np.max(np.abs(np.asarray(function(q, k, v, causal=causal)) - exact(q, k, v, causal))))
                print(f"{function.name:<6} S={S:<5} T={T:<5} causal={causal!s:<5}  largest error {error:.1e}")
                # A mean of values of size about one: errors of the scores, and of a sum of T weights.
                assert error < 8 * 2.0**-24 * (math.sqrt(D) + math.sqrt(T)) * float(np.max(np.abs(v)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="run on the first GPU, not on the CPU")
    is_wanted = parser.parse_args().gpu
    if is_wanted and not ts.cuda.is_available():
        parser.exit(2, f"{parser.prog}: there is no NVIDIA GPU here; leave `--gpu` out to run on the CPU\n")
    main(where=ts.gpu[0] if is_wanted else ts.cpu)
