"""A layer split over two ranks: each multiplies with its half of the weights, and the all-reduce overlaps a matmul.

Run it with `tessera run --ranks 2 examples/ranks.py`, or `python examples/ranks.py`, which starts the ranks itself.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts
from tessera import Tensor, f32, ops


@ts.jit
def mlp(
    x: Tensor["B", "D", f32], up: Tensor["D", "H", f32], down: Tensor["H", "D", f32], skip: Tensor["D", "D", f32]
) -> Any:
    """Tensor parallel: a rank has `H` of the hidden units, and the sum over ranks is the whole layer.

    The matmul with `skip` needs no other rank: it overlaps the all-reduce of the partial results.
    """
    partial = ops.matmul(ops.relu(ops.matmul(x, up)), down)
    whole = ts.dist.all_reduce(partial, axis="tp")
    return whole + ops.matmul(x, skip)


def weights(B: int, D: int, H: int) -> tuple[Any, ...]:
    """The same on all ranks, who take their own parts of it."""
    rng = np.random.default_rng(0)
    return tuple((rng.standard_normal(shape) / 8).astype(np.float32) for shape in ((B, D), (D, H), (H, D), (D, D)))


def step(B: int, D: int, H: int) -> tuple[Any, Any]:
    """What one rank does: its result, and when it did what."""
    x, up, down, skip = weights(B, D, H)
    rank, ranks = ts.dist.rank(), ts.dist.world_size()
    mine = slice(rank * H // ranks, (rank + 1) * H // ranks)
    with ts.dist.mesh(tp=ranks), ts.dist.timeline() as timeline:
        result = mlp(x, np.ascontiguousarray(up[:, mine]), np.ascontiguousarray(down[mine]), skip)
    return np.asarray(result), timeline.spans


def check(result: Any, B: int, D: int, H: int) -> None:
    """Against the whole layer in one process."""
    x, up, down, skip = (one.astype(np.float64) for one in weights(B, D, H))
    np.testing.assert_allclose(result, np.maximum(x @ up, 0) @ down + x @ skip, rtol=1e-4, atol=1e-4)


def main(ranks: int = 2, B: int = 32, D: int = 64, H: int = 256) -> None:
    """On a rank its part; elsewhere all of them, in processes of their own."""
    if ts.dist.world_size() > 1:
        check(step(B, D, H)[0], B, D, H)
        print("the parts make the whole")
        return
    found = ts.dist.run(step, ranks=ranks, args=(B, D, H))
    for result, _ in found:
        check(result, B, D, H)
    collectives = [span for _, spans in found for span in spans if span.kind == "collective"]
    print(f"{ranks} ranks agree: {', '.join(sorted({span.name for span in collectives}))}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
