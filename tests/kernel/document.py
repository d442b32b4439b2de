"""The kernels of the documents, as written there."""

# ruff: noqa: C408, E701, E702, E741, RET504
# pyright: basic, reportUndefinedVariable=false, reportInvalidTypeForm=false, reportAttributeAccessIssue=false, reportOperatorIssue=false
# fmt: off

from math import sqrt

from tessera import KTile, KVCache, Schedule, accum, bf16, f32, kernel, tile, verify
from tessera.tile import INF, Tile, dropout_in_kernel


@kernel.autotune(space=dict(BM=[64,128], BN=[64,96,128], BD=[64,128],
                            warps=[4,8], stages=[2,3], vector=[4,8]),
                 metric="latency_ms", budget_ms=180, cache="")
def flash_attention(q: KTile["B*H","S","D_h", bf16 @accum(f32)], cache: KVCache, *, dropout: float, causal: bool):
    T  = tile.context()
    Qb = tile.load(q, rows=T.m, cols=T.d, vector=T.vector, prefetch=2)
    acc = tile.zeros((T.m,T.d), f32); m = tile.full((T.m,), -INF); l = tile.zeros((T.m,), f32)
    for nblk in tile.range_n(cache.K.shape, T.n, prefetch=2):
        Kb = tile.load(cache.K, nblk, cols=T.d, vector=T.vector)
        Vb = tile.load(cache.V, nblk, cols=T.d, vector=T.vector)
        S  = tile.dot(Qb, tile.transpose(Kb)) * tile.rsqrt(float(T.d))
        if causal: tile.mask_causal(S, tile.row_index(), tile.col_index(nblk))
        P, m_c, l_c = tile.softmax_online(S)
        if dropout: P = dropout_in_kernel(P, p=dropout)
        acc, m, l = tile.softmax_accumulate(acc, m, l, P, Vb, m_c, l_c)
    return tile.cast(acc / l[:,None], bf16)


base_schedule = Schedule(
    block=(128, 128),
    warps=8,
    stages=3
)

small_attention = kernel.schedule(base_schedule.with_block(64, 64))(flash_attention)
memory_limited_attention = kernel.schedule(base_schedule.with_warps(4))(flash_attention)


@verify.numerics(stable=True, bounded=[-100, 100])
@kernel.auto
def attention_score(q: Tile, k: Tile) -> Tile:
    scores = tile.dot(q, k.T) / sqrt(d)
    # Verification ensures no overflow/underflow
    return scores
