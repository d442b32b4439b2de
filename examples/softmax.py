"""Softmax as five primitive ops, which become one kernel, and as a kernel on tiles.

`python examples/softmax.py` runs it on the CPU, with `--gpu` on a GPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.types.device import Device

ops = ts.ops


@ts.jit
def by_hand(x: ts.Tensor["M", "N", ts.f32]) -> Any:
    """Maximum, subtraction, exponential, sum and division."""
    shifted = ops.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


@ts.jit
def built_in(x: ts.Tensor["M", "N", ts.f32]) -> Any:
    """The same, safe by construction."""
    return ops.softmax(x, axis=-1)


@kernel
def rows(x: KTile["M", "N"]) -> Any:
    """Each program owns some whole rows, of any width up to 32768 elements."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.d)
    shifted = tile.exp(block - tile.tile_reduce_rowmax(block)[:, None])
    return tile.cast(shifted / tile.tile_reduce_rowsum(shifted)[:, None], x.dtype)


SHAPES = ((1024, 1024), (1000, 1023), (3, 1))


def main(*, shapes: tuple[tuple[int, int], ...] = SHAPES, where: Device = ts.cpu) -> None:
    """All on a device against float64, huge logits included."""
    with ts.device(where):
        _compare(shapes)


def _compare(shapes: tuple[tuple[int, int], ...]) -> None:
    rng = np.random.default_rng(0)
    x: Any = None
    for shape in shapes:
        x = rng.standard_normal(shape, np.float32) * 50
        exact = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        exact /= exact.sum(-1, keepdims=True)
        for function in (by_hand, built_in, rows):
            error = float(np.max(np.abs(np.asarray(function(x)) - exact)))
            print(f"{function.name:<9} {f'{shape[0]}x{shape[1]}':<9}  largest error {error:.1e}")
            # Probabilities are at most 1: a few roundings of f32.
            assert error < 16 * 2.0**-24
    print(f"\n{by_hand.explain(x)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="run on the first GPU, not on the CPU")
    is_wanted = parser.parse_args().gpu
    if is_wanted and not ts.cuda.is_available():
        parser.exit(2, f"{parser.prog}: there is no NVIDIA GPU here; leave `--gpu` out to run on the CPU\n")
    main(where=ts.gpu[0] if is_wanted else ts.cpu)
