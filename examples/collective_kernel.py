"""A layer whose weights are split over two ranks, as one kernel: the sum over ranks stands between matmul and epilogue.

`python examples/collective_kernel.py` starts the ranks itself; `mpiexec -n 2 python examples/collective_kernel.py` and
`tessera run --ranks 2 examples/collective_kernel.py` start the file in each.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts
from tessera import KTile, f32, kernel, tile


@kernel
def linear(x: KTile["M", "K", f32], w: KTile["K", "N", f32], b: KTile["N", f32]) -> KTile["M", "N", f32]:
    """A rank has some of the rows of `w`, and the columns of `x` that go with them."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n))
    for k in tile.range_k(x.shape, T.k):
        acc += tile.dot(tile.load(x, rows=T.m, cols=k), tile.load(w, rows=k, cols=T.n))
    return tile.gelu(tile.all_reduce(acc, axis="tp") + tile.load(b, T.n)[None, :])


@kernel
def softmax(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    """The softmax of rows of which a rank has some columns: as over a vocabulary that is split."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d)
    top = tile.all_reduce(tile.max(block, 1), axis="tp", op="max")
    weights = tile.exp(block - top[:, None])
    return weights / tile.all_reduce(tile.sum(weights, 1), axis="tp")[:, None]


@ts.jit
def linear_of_tensors(x: Any, w: Any, b: Any) -> Any:
    """The same by a kernel for the matmul, a collective of tensors, and a kernel for the rest."""
    return ts.ops.gelu(ts.dist.all_reduce(ts.ops.matmul(x, w), axis="tp") + b)


@ts.jit
def linear_on_one_rank(x: ts.Tensor[64, 96, f32], w: ts.Tensor[96, 256, f32], b: ts.Tensor[256, f32]) -> Any:
    """What `tessera inspect` and `tessera lint` can show: commands run without a mesh."""
    with ts.dist.mesh(tp=1):
        return linear(x, w, b)


def step(M: int, K: int, N: int) -> tuple[Any, Any]:
    """What one rank does with its parts."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) / 4 for shape in ((M, K), (K, N), (N,)))
    rank, ranks = ts.dist.rank(), ts.dist.world_size()
    rows = slice(rank * K // ranks, (rank + 1) * K // ranks)
    with ts.dist.mesh(tp=ranks):
        mine = np.ascontiguousarray(x[:, rows]), np.ascontiguousarray(w[rows]), b
        y = linear(*mine)
        assert y.tobytes() == linear_of_tensors(*mine).tobytes()
        columns = slice(rank * N // ranks, (rank + 1) * N // ranks)
        return np.asarray(y), np.asarray(softmax(np.ascontiguousarray(np.asarray(y)[:, columns])))


def check(found: list[tuple[Any, Any]]) -> None:
    """All ranks have one layer, and the parts of a softmax of it."""
    whole = found[0][0]
    assert all(y.tobytes() == whole.tobytes() for y, _ in found)
    parts = np.concatenate([part for _, part in found], axis=1)
    weights = np.exp(whole - whole.max(1, keepdims=True))
    np.testing.assert_allclose(parts, weights / weights.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


def main(ranks: int = 2, M: int = 64, K: int = 96, N: int = 256) -> None:
    """On a rank its part; elsewhere all of them, in processes of their own."""
    if ts.dist.world_size() > 1:
        y, part = step(M, K, N)
        print(f"rank {ts.dist.rank()} has {list(y.shape)} of the layer and {list(part.shape)} of its softmax")
        return
    check(ts.dist.run(step, ranks=ranks, args=(M, K, N)))
    print(f"{ranks} ranks have the same layer, and the parts of one softmax")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
