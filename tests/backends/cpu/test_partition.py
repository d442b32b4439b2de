"""Grids of tasks: they cover the matrix once, keep every thread busy, and leave small products whole."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backends.cpu.emit_contraction import Grid, choose_grid, task_block
from tessera.backends.cpu.micro_kernel import MicroShape
from tessera.ir.target.llvm.text import ModuleText
from tessera.types import dtype as dt
from tests.backends.cpu.jit import Compiled, build, targets

TARGET = targets()[-1]
SHAPE = MicroShape.of(TARGET, dt.f32)


@pytest.fixture(scope="module")
def kernel() -> Compiled:
    module = ModuleText(TARGET)
    f = module.function("grid", [("ptr", "out"), *[("i64", name) for name in ("m", "n", "k", "batch", "threads")]])
    out, *sizes = f.arguments
    for i, value in enumerate(choose_grid(f, SHAPE, *sizes)):
        f.store(value, f.gep(out, i, "i64"))
    f.ret()
    f = module.function("block", [("ptr", "out"), *[("i64", name) for name in ("m", "n", "rows", "columns", "task")]])
    out, m, n, rows, columns, task = f.arguments
    for i, value in enumerate(task_block(f, SHAPE, m, n, Grid(rows, columns), task)):
        f.store(value, f.gep(out, i, "i64"))
    f.ret()
    return build(module)


def grid(kernel: Compiled, *sizes: int) -> tuple[int, int]:
    out = np.zeros(2, np.int64)
    kernel("grid", out, *sizes)
    return int(out[0]), int(out[1])


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
@pytest.mark.parametrize(
    "sizes", [(1, 1), (0, 5), (6, 64), (384, 384), (1000, 10), (17, 5000), (2048, 2048), (129, 97)]
)
def test_blocks_cover_the_matrix_once(kernel: Compiled, sizes: tuple[int, int], threads: int) -> None:
    m, n = sizes
    rows, columns = grid(kernel, m, n, 512, 1, threads)
    seen = np.zeros((m, n), int)
    block = np.zeros(4, np.int64)
    for task in range(rows * columns):
        kernel("block", block, m, n, rows, columns, task)
        m_lo, m_hi, n_lo, n_hi = map(int, block)
        assert m_lo % SHAPE.rows == 0
        assert n_lo % SHAPE.columns == 0
        seen[m_lo:m_hi, n_lo:n_hi] += 1
    assert (seen == 1).all()


def test_large_matmuls_use_every_thread_evenly(kernel: Compiled) -> None:
    for threads in (2, 4, 8, 16):
        rows, columns = grid(kernel, 2048, 2048, 2048, 1, threads)
        assert (rows * columns) % threads == 0
    assert grid(kernel, 32, 32, 32, 1, 8) == (1, 1)
    assert grid(kernel, 512, 512, 512, 64, 8) == (1, 1), "many products keep the threads busy by themselves"
    rows, columns = grid(kernel, 6, 4096, 4096, 1, 4)
    assert rows == 1
    assert columns % 4 == 0
