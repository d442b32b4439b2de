"""The sort of a program's threads, compiled for this CPU with one thread that has the parts of all in order.

Threads exchange nothing but by barriers between runs and merges, so that one thread in their place is the same sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera.backends.nvptx.emit_sort import RUN, BlockSort
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.graph.ops.sort import order_of
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types import dtype as dt
from tests.backends.cpu.jit import Compiled, build, targets

NAMES = ("keys", "indices", "spare_keys", "spare_indices")
DTYPES = (dt.f32, dt.f64, dt.i8, dt.i32, dt.u32, dt.u64)


@dataclass
class _OneThread:
    """What a sort asks of an emitter."""

    f: FunctionText
    threads: int = 1

    @property
    def thread(self) -> Value:
        return self.f.const_i(0)

    def wait(self) -> None:
        pass


@cache
def compiled() -> Compiled:
    wide = targets()[0]
    module = ModuleText(TargetText(1, wide.cpu, wide.features))
    for dtype in DTYPES:
        for descending in (False, True):
            name = f"sort_{dtype}_{descending}"
            f = module.function(name, [*(("ptr", line) for line in NAMES), ("i64", "count")])
            *lines, count = f.arguments
            one: Any = _OneThread(f)
            BlockSort(one, dtype, dt.i32 if dtype.bits == 32 else dt.i64, descending).write(lines, count)
            f.ret()
    return build(module)


def sorted_by_threads(x: Array, dtype: dt.DType, *, descending: bool) -> tuple[Array, Array]:
    indices = np.arange(len(x), dtype=np.int32 if dtype.bits == 32 else np.int64)
    lines = [x.copy(), indices, np.zeros_like(x), np.zeros_like(indices)]
    compiled()(f"sort_{dtype}_{descending}", *lines, len(x))
    return lines[0], lines[1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sort_is_stable_at_every_length(dtype: dt.DType) -> None:
    rng = np.random.default_rng(3)
    for length in (0, 1, 2, RUN - 1, RUN, RUN + 1, 3 * RUN, 100, 4 * RUN + 1, 1000, 1024):
        for spread in (3, 120):
            x = rng.integers(-spread if dtype.kind != "uint" else 0, spread, length).astype(numpy_dtype(dtype))
            if dtype.is_float:
                x[::7], x[::5] = np.nan, -0.0
            for descending in (False, True):
                keys, indices = sorted_by_threads(x, dtype, descending=descending)
                order = order_of(x, descending=descending)
                np.testing.assert_array_equal(indices, order)
                assert keys.tobytes() == x[order].tobytes()


def test_a_descending_sort_puts_nan_last() -> None:
    keys, indices = sorted_by_threads(np.array([1, np.nan, 3, -np.inf], np.float32), dt.f32, descending=True)
    np.testing.assert_array_equal(indices, [2, 0, 3, 1])
    assert np.isnan(keys[-1])
