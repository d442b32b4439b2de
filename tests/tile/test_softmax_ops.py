"""Softmax and attention as ops of Tile IR: they run, mean what they say, and mean the same when expanded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tessera import KTile, kernel, tile
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.passes.expand_softmax import ExpandSoftmax
from tessera.ir.tile.pipeline import pipeline
from tessera.types.dtype import DType, bf16, f32, f64
from tessera.types.shape import TensorType
from tests.backends.cpu.native import build, machines
from tests.oracles.nvptx_backend import NvptxBackend
from tests.tile.kernels import COLUMN, ROW, verify_kernel

ROWS, KEYS, WIDTH, BLOCK = 4, 16, 8, 8


def rows_kernel(eps: float = 0.0, dtype: DType = f32) -> SpecOp:
    """The softmax of a whole matrix."""
    type = TensorType.of([ROWS, KEYS], dtype)
    b = TileBuilder("rows", [type, type], symbols=[], grid=[1], writes=[1], kind="map")
    region = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (ROWS, KEYS))
    b.store(b.softmax(b.load(b.arguments[0], [ROW, COLUMN], region), eps), b.arguments[1], [ROW, COLUMN], region)
    return verify_kernel(b.finish())


def attention_kernel(dtype: DType = f32) -> SpecOp:
    """Scores and values in two blocks of keys, divided by the sums at the end."""
    types = [TensorType.of(shape, f32) for shape in ([ROWS, KEYS], [KEYS, WIDTH], [ROWS, WIDTH])]
    types[1] = types[1].with_dtype(dtype)
    b = TileBuilder("attention", types, symbols=[], grid=[1], writes=[2], kind="map")
    out = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (ROWS, WIDTH))
    acc, top, total = b.full(0.0, (ROWS, WIDTH), f32), b.full(-np.inf, (ROWS,), f32), b.full(0.0, (ROWS,), f32)
    for start in range(0, KEYS, BLOCK):
        keys = b.index(start)
        scores = b.load(
            b.arguments[0], [ROW, COLUMN], TileRegion({"i": b.index(0), "j": keys}, ("i", "j"), (ROWS, BLOCK))
        )
        values = b.load(
            b.arguments[1], [ROW, COLUMN], TileRegion({"i": keys, "j": b.index(0)}, ("i", "j"), (BLOCK, WIDTH))
        )
        acc, top, total = b.attend(scores, values, acc, top, total)
    whole = b.broadcast(total, (ROWS, WIDTH), (0,))
    b.store(b.elementwise("div", acc, whole), b.arguments[2], [ROW, COLUMN], out)
    return verify_kernel(b.finish())


def expand(kernel: SpecOp) -> SpecOp:
    module = kernel.parent_op()
    assert isinstance(module, ModuleOp)
    ExpandSoftmax().run(module)
    verify(module)
    assert not any(op.name in ("ttile.softmax", "ttile.attend") for op in kernel.walk())
    return kernel


def ran(kernel: SpecOp, out: tuple[int, ...], *arrays: Array) -> Array:
    result = np.full(out, np.nan, numpy_dtype(f64) if arrays[0].dtype == np.float64 else np.float32)
    with np.errstate(all="ignore"):
        run_kernel(kernel, [*arrays, result], {})
    return result


def softmax_of(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@given(seed=st.integers(0, 1 << 30), broadcast=st.sampled_from([0.1, 3.0, 40.0]), eps=st.sampled_from([0.0, 0.25]))
def test_rows_mean_the_same_when_written_out(seed: int, broadcast: float, eps: float) -> None:
    x = (np.random.default_rng(seed).standard_normal((ROWS, KEYS)) * broadcast).astype(np.float32)
    x[0] = -np.inf
    before = ran(rows_kernel(eps), (ROWS, KEYS), x)
    np.testing.assert_array_equal(ran(expand(rows_kernel(eps)), (ROWS, KEYS), x), before)
    assert not before[0].any()
    if not eps:
        np.testing.assert_allclose(before[1:], softmax_of(x[1:]), rtol=2e-6, atol=1e-12)


@given(seed=st.integers(0, 1 << 30), dtype=st.sampled_from([f32, bf16]))
def test_blocks_of_an_attention_mean_the_same_when_written_out(seed: int, dtype: DType) -> None:
    rng = np.random.default_rng(seed)
    scores = (rng.standard_normal((ROWS, KEYS)) * 4.0).astype(np.float32)
    scores[1, :BLOCK] = -np.inf  # nothing of the first block is seen
    values = rng.standard_normal((KEYS, WIDTH)).astype(numpy_dtype(dtype))
    before = ran(attention_kernel(dtype), (ROWS, WIDTH), scores, values)
    np.testing.assert_array_equal(ran(expand(attention_kernel(dtype)), (ROWS, WIDTH), scores, values), before)
    wanted = softmax_of(scores) @ values.astype(np.float64)
    np.testing.assert_allclose(before, wanted, rtol=0, atol=2e-6 if dtype is f32 else 0.03)


def test_doubles_stay_doubles() -> None:
    x = np.random.default_rng(1).standard_normal((ROWS, KEYS))
    np.testing.assert_allclose(ran(rows_kernel(dtype=f64), (ROWS, KEYS), x), softmax_of(x), rtol=1e-14)


def test_the_recipe_is_that_of_the_kernel_language() -> None:
    @kernel
    def rows(x: KTile["M", "D", f32]) -> KTile["M", "D", f32]:
        T = tile.context()
        return tile.softmax(tile.load(x, T.m, T.d))

    x = np.random.default_rng(2).standard_normal((ROWS, KEYS)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(rows.run_tiles(x)), ran(rows_kernel(), (ROWS, KEYS), x))


@pytest.mark.parametrize("make", [rows_kernel, attention_kernel], ids=["rows", "attention"])
def test_both_have_code_for_processors_and_gpus(make: Callable[[], SpecOp]) -> None:
    assert isinstance(pipeline()[0], ExpandSoftmax)
    backend = NvptxBackend()
    assert "define ptx_kernel" in backend.code(backend.lower(expand(make()))).text
    x = np.random.default_rng(3).standard_normal((ROWS, KEYS)).astype(np.float32)
    values = np.random.default_rng(4).standard_normal((KEYS, WIDTH)).astype(np.float32)
    given, width = ([x], KEYS) if make is rows_kernel else ([x, values], WIDTH)
    out = np.full((ROWS, width), np.nan, np.float32)
    *_, found = build(expand(make()), machines()[0]).run([*given, out], {})
    np.testing.assert_allclose(found, ran(make(), (ROWS, width), *given), rtol=1e-6, atol=1e-6)
