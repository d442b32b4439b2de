"""Products by hand with numbers that are single ones in memory: a scale, and the key of a dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tessera as ts
from tessera import KTile, Schedule, bf16, f32, kernel, tile


@kernel
def drop_quarter(
    a: KTile["M", "K", bf16], b: KTile["K", "N", bf16], key: KTile[2, ts.u64], out: KTile["M", "N", bf16]
) -> None:
    """A dot with a quarter of its elements left out."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    tile.store(out, tile.cast(tile.dropout_in_kernel(acc, 0.25, key=key), bf16), rows=T.m, cols=T.n)


def dot(block: tuple[int, int, int]) -> Callable[..., Any]:
    """The dot in blocks, as a function of arrays."""
    chosen = drop_quarter.with_schedule(Schedule(block=block))

    def run(a: Any, b: Any, key: Any) -> Any:
        return chosen(a, b, key)

    return run
