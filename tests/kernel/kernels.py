"""Kernels that tests share: one for each part of the language, written as users would."""

from __future__ import annotations

from typing import Any

from examples.flash_attention import flash
from examples.matmul import matmul
from tessera import KTile, bf16, f32, i32, kernel, tile
from tessera.tile import INF

__all__ = ["flash", "matmul"]


@kernel
def vector_add(x: KTile["N", f32], y: KTile["N", f32]) -> KTile["N", f32]:
    """x + y."""
    T = tile.context()
    return tile.load(x, T.n) + tile.load(y, T.n)


@kernel
def softmax(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    """Rows that sum to one."""
    T = tile.context()
    return tile.tile_softmax_rmax(tile.load(x, rows=T.m, cols=T.d))


@kernel
def linear(
    x: KTile["M", "K", bf16],
    w: KTile["K", "N", bf16],
    bias: KTile["N", f32],
    out: KTile["M", "N", bf16],
    *,
    BM: int,
    BN: int,
    BK: int,
) -> None:
    """out = relu(x @ w + bias), stored by the kernel itself."""
    m, n = tile.program()
    acc = tile.zeros((BM, BN))
    for k in tile.steps(x.shape[1], by=BK):
        acc += tile.dot(tile.load(x, (m, k), (BM, BK)), tile.load(w, (k, n), (BK, BN)))
    tile.store(out, (m, n), tile.maximum(acc + tile.load(bias, (n,), (BN,)), 0))


@kernel
def rows(x: KTile["M", "D", f32]) -> Any:
    """The largest and the sum of each row."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d)
    return tile.tile_reduce_rowmax(block), tile.tile_reduce_rowsum(block)


@kernel
def running(x: KTile["M", "D", f32], *, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running sums along rows."""
    T = tile.context()
    return tile.tile_scan(tile.load(x, rows=T.m, cols=T.d), "sum", exclusive=exclusive, reverse=reverse)


def forget_half(before: Any, here: Any) -> Any:
    """What was summed so far counts half."""
    return before * 0.5 + here


@kernel
def decayed(x: KTile["M", "D", f32]) -> Any:
    """A running sum that forgets half of itself at each step."""
    T = tile.context()
    return tile.tile_scan(tile.load(x, rows=T.m, cols=T.d), forget_half)


@kernel
def column_sums(x: KTile["M", "D", i32], out: KTile["D", i32]) -> None:
    """Sums of columns, which all programs add to."""
    T = tile.context()
    tile.atomic_add(out, tile.reduce(tile.load(x, rows=T.m, cols=T.d), 0), slice(None))


@kernel
def transposed(x: KTile["M", "N", f32], out: KTile["N", "M", f32], *, scale: float = 1.0) -> None:
    """The transpose, of what is loaded or of what is computed."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.n)
    tile.store(out, tile.transpose(block if scale == 1.0 else block * scale), rows=T.n, cols=T.m)


@kernel
def piped(a: KTile["M", "K", f32], b: KTile["K", "N", f32], *, slots: int) -> Any:
    """A product whose operands go through a pipeline."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    with tile.pipeline(slot_count=slots) as slot:
        for k in tile.range_k(a.shape, T.k):
            slot.load(a, rows=T.m, cols=k)
            left = slot.read()
            slot = slot.next()
            slot.load(b, rows=k, cols=T.n)
            acc += tile.dot(left, slot.read())
    return acc


@kernel
def prescaled(q: KTile["H", "S", "D"], k: KTile["H", "T", "D"], v: KTile["H", "T", "D"]) -> Any:
    """Attention whose queries are scaled and rounded before the loop: an A operand that all its steps read."""
    T = tile.context()
    queries = tile.cast(tile.load(q, rows=T.m, cols=T.d) * tile.rsqrt(float(T.d)), q.dtype)
    acc, top, total = tile.zeros((T.m, T.d), f32), tile.full((T.m,), -INF), tile.zeros((T.m,), f32)
    for n in tile.range_n(k.shape, T.n):
        scores = tile.dot(queries, tile.transpose(tile.load(k, n, cols=T.d)))
        powers, tops, sums = tile.softmax_online(scores)
        acc, top, total = tile.softmax_accumulate(acc, top, total, powers, tile.load(v, n, cols=T.d), tops, sums)
    return acc / total[:, None]
