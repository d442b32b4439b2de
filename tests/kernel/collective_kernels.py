"""Kernels with collectives, and what ranks run of them; functions that a new process can find."""

from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts
from tessera import KTile, kernel, tile

DTYPES = (ts.f32, ts.f64, ts.bf16, ts.i32)
KINDS = ("sum", "prod", "max", "min", "mean")


@kernel
def reduced(x: KTile["M", "N"], *, op: str) -> KTile["M", "N"]:
    """A tensor reduced over ranks, tile by tile."""
    T = tile.context()
    return tile.all_reduce(tile.load(x, rows=T.m, cols=T.n), "tp", op)


@kernel
def gathered(x: KTile["M", "N"], out: KTile["R", "M", "N"], *, R: int) -> None:
    """The tensors of all ranks."""
    T = tile.context()
    for rank, part in enumerate(tile.all_gather(tile.load(x, rows=T.m, cols=T.n), "tp")):
        tile.store(out, part, rank, T.m, T.n)


@kernel
def scattered(x: KTile["R", "M", "N"], *, R: int, op: str) -> KTile["M", "N"]:
    """The own part of what all ranks have, reduced."""
    T = tile.context()
    parts = ()
    for rank in range(R):
        parts += (tile.load(x, rank, T.m, T.n),)
    return tile.reduce_scatter(parts, "tp", op)


@kernel
def linear(x: KTile["M", "K", ts.f32], w: KTile["K", "N", ts.f32], b: KTile["N", ts.f32]) -> KTile["M", "N", ts.f32]:
    """A layer whose K dim is split over ranks: a matmul, the sum over ranks, and its epilogue, in one kernel."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n))
    for k in tile.range_k(x.shape, T.k):
        acc += tile.dot(tile.load(x, rows=T.m, cols=k), tile.load(w, rows=k, cols=T.n))
    return tile.relu(tile.all_reduce(acc, "tp") + tile.load(b, T.n)[None, :])


@kernel
def softmax(x: KTile["M", "N", ts.f32]) -> KTile["M", "N", ts.f32]:
    """The softmax of rows whose elements are split over ranks: two collectives, each read by what follows."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d)
    top = tile.all_reduce(tile.max(block, 1), "tp", "max")
    weights = tile.exp(block - top[:, None])
    return weights / tile.all_reduce(tile.sum(weights, 1), "tp")[:, None]


@kernel
def columns(x: KTile["M", "N", ts.f32], s: KTile["M", ts.f32]) -> KTile["M", "N", ts.f32]:
    """A tile that extends along one of the two axes of the grid is exchanged by each of its programs."""
    T = tile.context()
    total = tile.all_reduce(tile.load(s, T.m), "tp")
    return tile.load(x, rows=T.m, cols=T.n) * total[:, None]


@kernel
def counted(x: KTile["M", "N", ts.f32]) -> KTile["M", ts.f32]:
    """A scan, in scratch memory of the program, on each side of a collective."""
    T = tile.context()
    rows = tile.scan(tile.load(x, rows=T.m, cols=T.d), "sum", 1)
    return tile.max(tile.scan(tile.all_reduce(rows, "tp"), "max", 1), 1)


@kernel
def once_per_flag(x: KTile["M", "N", ts.f32], *, flag: bool) -> KTile["M", "N", ts.f32]:
    """A kernel that a static argument makes another one on each rank."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.n)
    return tile.all_reduce(block, "tp") if flag else tile.all_gather(block, "tp")[1]


def values(rank: int, *shape: int, dtype: Any = ts.f32) -> Any:
    """What a rank has."""
    drawn = np.random.default_rng(rank).standard_normal(shape).astype(np.float32)
    return ts.array(drawn * 8 if dtype.is_integer else drawn).cast(dtype)


def everything(ranks: int) -> dict[str, bytes]:
    """What this rank gets of every collective, in processes of any launcher."""
    rank = ts.dist.rank()
    with ts.dist.mesh(tp=ranks):
        x, w, b = values(rank, 37, 50), values(10 + rank, 50, 300), values(9, 300)
        found = {
            "reduced": reduced(x, op="sum"),
            "gathered": gathered(x, R=ranks),
            "scattered": scattered(values(rank, ranks, 5, 33), R=ranks, op="mean"),
            "linear": linear(x, w, b),
            "softmax": softmax(x),
        }
    return {name: np.asarray(result).tobytes() for name, result in found.items()}
