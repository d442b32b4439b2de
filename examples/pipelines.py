"""Memory and ranks: a kernel that prefetches its operands; collectives that all ranks reach in one order."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts
from tessera import KTile, f32, kernel, tile


@kernel
def matmul_with_prefetch(a: KTile["M", "K", f32], b: KTile["K", "N", f32]) -> Any:
    """A matmul whose loads are prefetched two iterations ahead, where the machine can overlap both."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for step in tile.range_k(a.shape, T.k, prefetch=2):
        acc = tile.dot(tile.load(a, rows=T.m, cols=step), tile.load(b, rows=step, cols=T.n), acc)
    return acc


@ts.jit
def reduce_parts(x: ts.Tensor["B", "D", f32], w: ts.Tensor["D", "D", f32]) -> Any:
    """Each rank's part of a matmul, reduced over the axis `tp`; the two reductions become one collective."""
    first, second = (ts.dist.all_reduce(part, axis="tp") for part in (x @ w, x * 2.0))
    return first + second


@ts.jit
def reduce_on_one_rank(x: ts.Tensor["B", "D", f32]) -> Any:
    """Only the first rank would come to the sum: the others would wait for ever."""
    here = ts.dist.axis_index("tp")
    return ts.cond(here == 0, lambda: ts.dist.all_reduce(x, axis="tp"), lambda: x)


def main(sizes: tuple[tuple[int, int, int], ...] = ((300, 256, 200), (65, 1000, 33)), ranks: int = 4) -> None:
    """The kernel against float64 on ragged sizes; then what the compiler makes of collectives, and what it refuses."""
    rng = np.random.default_rng(0)
    for m, k, n in sizes:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        exact = a.astype(np.float64) @ b
        error = float(np.abs(np.asarray(matmul_with_prefetch(a, b)) - exact).max())
        print(f"{m}x{k}x{n} largest error {error:.1e}")
        # Each of the K multiply-adds rounds once.
        assert error <= k * 2.0**-24 * float((np.abs(a) @ np.abs(b)).max())
    x, w = np.ones((2, 8), np.float32), np.ones((8, 8), np.float32)
    with ts.dist.mesh(tp=ranks):
        print(ts.shape_trace(reduce_parts)(x, w))
        try:
            reduce_on_one_rank.trace(x)
        except ts.TesseraError as error:
            print(error)
        else:
            raise AssertionError("ranks that wait for each other were not found")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
