"""Kernels with blocks of any size: a small part of the trial, and those that once had too long a text, or none."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera import KTile, Schedule, f32, kernel, tile
from tests.kernel.compare import agree
from tests.replay.lowering import AVX2, AVX512
from tests.trials.kernel_blocks import Draw, compare, measure

LINES = 12_000
"""Lines of LLVM of any kernel, with what kernels share: 0.6 s of a processor at most in trials."""


@kernel
def dot_of_transposed(a: KTile["K", "M", f32], b: KTile["N", "K", f32]) -> KTile["M", "N", f32]:
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.steps(a.shape[0], T.k):
        acc += tile.dot(tile.load(a, rows=k, cols=T.m).T, tile.load(b, rows=T.n, cols=k).T)
    return acc


@kernel
def prefix_sums(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    T = tile.context()
    return tile.scan(tile.load(x, rows=T.m, cols=T.d), "sum", axis=1)


@kernel
def column_sums(x: KTile["M", "N", f32]) -> KTile["N", f32]:
    T = tile.context()
    return tile.sum(tile.load(x, slice(None), T.n), axis=0)


@kernel
def column_loop(x: KTile["M", "N", f32]) -> KTile["N", f32]:
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for m in tile.range_m(x.shape, T.m):
        acc += tile.load(x, rows=m, cols=T.n)
    return tile.sum(acc, axis=0)


@kernel
def long_softmax(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    T = tile.context()
    return tile.softmax(tile.load(x, rows=T.m, cols=T.d))


def normal(*shape: int) -> Any:
    return np.random.default_rng(8).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("made", "block", "shapes"),
    [
        (dot_of_transposed, (64, 64, 64), [(70, 65), (66, 70)]),
        (dot_of_transposed, (33, 47, 13), [(30, 65), (66, 30)]),
        (prefix_sums, (16, 64), [(20, 100)]),
        (column_sums, (16, 256), [(33, 300)]),
        (column_sums, (16, 100), [(229, 101)]),
        (column_loop, (64, 128), [(150, 130)]),
        (long_softmax, (16, 64), [(3, 8001)]),
    ],
)
def test_text_does_not_grow_with_tiles(made: Any, block: tuple[int, ...], shapes: list[tuple[int, ...]]) -> None:
    operands = [normal(*shape) for shape in shapes]
    one = made.with_schedule(Schedule(block=block))
    for features in (AVX512, AVX2):
        assert measure(one, operands, features).lines < LINES
    agree(one, *operands, ulps=4 if made is long_softmax else 0)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_kernels_have_bounded_text_and_the_bits_of_the_interpreter(seed: int, tmp_path: Path) -> None:
    drawn = Draw(random.Random(seed)).kernel()
    one = drawn.load(tmp_path)
    for features in (AVX512, AVX2):
        assert measure(one, drawn.operands, features).lines < LINES
    compare(one, drawn)
