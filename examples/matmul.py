"""Matmul: symbolic dims, narrow floats, a fused epilogue, a kernel of tiles, and what each becomes.

`python examples/matmul.py` runs it on the CPU, with `--gpu` on a GPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.types.device import Device


@ts.jit
def plain(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32]) -> Any:
    """Any f32 matmul; one compilation serves all sizes."""
    return a @ b


@ts.jit
def narrow(
    a: ts.Tensor["M", "K", ts.bf16 @ ts.accum(ts.f32)], b: ts.Tensor["K", "N", ts.bf16 @ ts.accum(ts.f32)]
) -> Any:
    """Stored in bf16, accumulated in f32, rounded once."""
    return a @ b


@ts.jit
def scale_add_relu(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32], bias: ts.Tensor["N", ts.f32]) -> Any:
    """The epilogue runs while the accumulators are still in registers."""
    return ts.ops.relu(a @ b * 0.5 + bias)


@kernel
def matmul(a: KTile["M", "K"], b: KTile["K", "N"]) -> Any:
    """Each program owns a block of rows and columns and loops over K; the accumulator is f32, rounded once."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return tile.cast(acc, a.dtype)


SIZES = ((512, 512, 512), (257, 1000, 33), (1, 4096, 100))


def main(*, sizes: tuple[tuple[int, int, int], ...] = SIZES, where: Device = ts.cpu) -> None:
    """Run all four at each size on a device, and compare with float64."""
    with ts.device(where):
        _compare(sizes)


def _compare(sizes: tuple[tuple[int, int, int], ...]) -> None:
    rng = np.random.default_rng(0)
    arguments: tuple[Any, ...] = ()
    for M, K, N in sizes:
        a, b = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)
        bias = rng.standard_normal(N, np.float32)
        arguments = a, b, bias
        a16, b16 = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
        exact = a.astype(np.float64) @ b
        exact16 = a16.astype(np.float64) @ b16.astype(np.float64)
        _check(f"f32  {M}x{K}x{N}", plain(a, b), exact, K)
        _check(f"tile {M}x{K}x{N}", matmul(a, b), exact, K)
        _check(f"bf16 {M}x{K}x{N}", narrow(a16, b16), exact16, K, last=2.0**-8)
        _check(f"tile {M}x{K}x{N}", matmul(a16, b16), exact16, K, last=2.0**-8)
        _check(f"relu {M}x{K}x{N}", scale_add_relu(*arguments), np.maximum(exact * 0.5 + bias, 0), K)
    print(f"\n{scale_add_relu.explain(*arguments)}")


def _check(name: str, result: Any, exact: Any, K: int, last: float = 2.0**-24) -> None:
    """The rounding of K additions is a random walk; the last rounding is relative to the value itself."""
    error = np.abs(np.asarray(result).astype(np.float64) - exact)
    allowed = 8 * 2.0**-24 * K + 2 * last * np.abs(exact)
    print(f"{name:<22} error at most {np.max(error / allowed):.2f} of what rounding may do")
    assert np.all(error <= allowed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="run on the first GPU, not on the CPU")
    is_wanted = parser.parse_args().gpu
    if is_wanted and not ts.cuda.is_available():
        parser.exit(2, f"{parser.prog}: there is no NVIDIA GPU here; leave `--gpu` out to run on the CPU\n")
    main(where=ts.gpu[0] if is_wanted else ts.cpu)
