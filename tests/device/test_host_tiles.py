"""AMX tiles of the CPU beside the GPU: the instructions themselves, where Linux lets this process use them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.ir.base.arrays import numpy_dtype
from tessera.types import dtype as dt
from tests.backends.cpu.tile_emulator import HAS_TILES, tile_sums

pytestmark = pytest.mark.skipif(not HAS_TILES, reason="this CPU has no AMX tiles, or Linux does not permit them")
LAYOUTS = ("nn", "nt", "tn", "tt")
"""Whether A and B are stored as they are multiplied or transposed."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 33, 65), (64, 64, 64), (257, 300, 1030), (512, 1000, 2100)])
def test_the_machine_multiplies_bytes_exactly(sizes: tuple[int, int, int], layout: str) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m)
    a = rng.integers(-128, 128, (m, k) if layout[0] == "n" else (k, m)).astype(np.int8)
    b = rng.integers(0, 256, (k, n) if layout[1] == "n" else (n, k)).astype(np.uint8)

    def multiply(a: Any, b: Any) -> Any:
        a, b = (a if layout[0] == "n" else a.T), (b if layout[1] == "n" else b.T)
        return ts.ops.matmul(a.cast(ts.i32), b.cast(ts.i32))

    wide = [(x if kept == "n" else x.T).astype(np.int32) for x, kept in zip((a, b), layout, strict=True)]
    jitted = ts.jit(multiply)
    np.testing.assert_array_equal(np.asarray(jitted(a, b)), wide[0] @ wide[1])
    plain = ts.jit(multiply, overrides={"matrix.instruction": "multiply-adds"})
    np.testing.assert_array_equal(np.asarray(plain(a, b)), wide[0] @ wide[1])


def test_the_machine_sums_bf16_as_its_manual_says() -> None:
    rng = np.random.default_rng(0)
    bf16 = numpy_dtype(dt.bf16)
    a, b = rng.normal(size=(70, 600)).astype(bf16), rng.normal(size=(600, 90)).astype(bf16)
    f = ts.jit(partial(ts.ops.matmul, dtype=ts.f32), overrides={"matrix.instruction": "amx-bf16"})
    np.testing.assert_array_equal(np.asarray(f(a, b)), tile_sums(a.astype(np.float32), b.astype(np.float32)))
    assert "sums of bf16 by amx-bf16" in str(f.explain())


@pytest.mark.parametrize("scale", [1e-19, 1e-38])
def test_denormals_of_bf16_are_zeros_on_tiles(scale: float) -> None:
    rng = np.random.default_rng(1)
    a, b = ((scale * rng.normal(size=shape)).astype(numpy_dtype(dt.bf16)) for shape in ((40, 100), (100, 33)))
    f = ts.jit(partial(ts.ops.matmul, dtype=ts.f32), overrides={"matrix.instruction": "amx-bf16"})
    np.testing.assert_array_equal(np.asarray(f(a, b)), tile_sums(a.astype(np.float32), b.astype(np.float32)))
