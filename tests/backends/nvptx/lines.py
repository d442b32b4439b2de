"""Products by hand whose tiles lie in narrow lines of shared memory: for tests here, and of the device."""

from __future__ import annotations

from typing import Any

from tessera import KTile, Schedule, f32, kernel, tile


@kernel
def by_rows(a: KTile["M", "K"], b: KTile["K", "N"], out: KTile["M", "N", f32]) -> None:
    """A B operand whose rows are k."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    tile.store(out, acc, rows=T.m, cols=T.n)


@kernel
def by_columns(a: KTile["M", "K"], b: KTile["N", "K"], out: KTile["M", "N", f32]) -> None:
    """A B operand whose columns are k."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.transpose(tile.load(b, rows=T.n, cols=k)))
    tile.store(out, acc, rows=T.m, cols=T.n)


@kernel
def by_parts(a: KTile["M", "K"], b: KTile["N", "K"], out: KTile["M", "N", f32]) -> None:
    """Twice a dot whose steps are doubled one by one, and so stay as deep as they are."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.transpose(tile.load(b, rows=T.n, cols=k))) * 2.0
    tile.store(out, acc, rows=T.m, cols=T.n)


KERNELS: dict[str, Any] = {"nn": by_rows, "nt": by_columns}
BLOCKS = (
    (64, 64, 16),
    (64, 64, 32),
    (128, 128, 32),
    (128, 256, 48),
    (64, 64, 96),
    (64, 16, 64),
    (128, 32, 64),
    (64, 24, 32),
)
"""Rows, columns and depth that are not whole lines of 128 bytes of two-byte floats, along k or across it."""


def dot(name: str, block: tuple[int, int, int], stages: int = 2) -> Any:
    """A dot of one orientation in blocks, as a function of arrays."""
    chosen = {**KERNELS, "parts": by_parts}[name].with_schedule(Schedule(block=block, stages=stages))

    def run(a: Any, b: Any) -> Any:
        return chosen(a, b)

    return run


def shapes(name: str, m: int, n: int, k: int) -> list[tuple[int, int]]:
    """The shapes of both operands."""
    return [(m, k), (k, n) if name == "nn" else (n, k)]
