"""Each function of the language over shapes and dtypes, and every helper as plain tile IR that runs from its text."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, kernel, tile
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import BufferAttr
from tessera.ir.tile.interpret import run_kernel
from tests.kernel import kernels
from tests.kernel.compare import arrays

RNG = np.random.default_rng(4)
SHAPES = [(1, 1), (3, 5), (17, 31), (16, 256), (33, 257)]
DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "i32": np.int32}


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return (np.abs(RNG.normal(size=shape)) * 9 + 3).astype(dtype)


@kernel
def copied(x: KTile["M", "N"]) -> Any:
    """The tensor itself."""
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n)


@kernel
def masked(x: KTile["M", "N"], *, below: int) -> Any:
    """Columns below a number, and zeros."""
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n, mask=tile.broadcast((tile.col_index() < below)[None, :], (T.m, T.n)))


@kernel
def together(x: KTile["M", "N"], *, to: Any) -> Any:
    """Casts, roots, constants and broadcasts in one expression."""
    T = tile.context()
    block = tile.cast(tile.load(x, rows=T.m, cols=T.n), ts.f32)
    column = tile.full((T.m,), 3.0)
    wide = tile.broadcast(column[:, None], (T.m, T.n))
    return tile.cast(tile.rsqrt(block) * wide + tile.zeros((T.m, T.n)) + tile.full((T.m, T.n), 1.5), to)


@kernel
def filled(x: KTile["M", "N"], row: KTile["N"], whole: KTile["M", "N"], rows: KTile["M", "N"], *, value: Any) -> None:
    """One number in every element, and a row of the operand in every row."""
    T = tile.context()
    tile.store(whole, tile.full((T.m, T.n), value, x.dtype), T.m, T.n)
    tile.store(rows, tile.broadcast(tile.load(row, T.n)[None, :], (T.m, T.n)), T.m, T.n)


@kernel
def emptied(x: KTile["M", "N"]) -> Any:
    """Zeros, and the operand where it is not."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.n)
    return tile.zeros((T.m, T.n), x.dtype) + block * 0, block


@pytest.mark.parametrize("name", DTYPES)
def test_load_and_store_move_every_element_of_any_shape(name: str) -> None:
    sizes = (1, 2, 3, 5, 7, 11, 13, 17, 31, 61, 127, 257, 521)
    shapes = [*SHAPES, *zip(sizes, reversed(sizes), strict=True), *zip(sizes, sizes, strict=True)]
    assert len(shapes) >= 30
    for shape in shapes:
        x = numbers(shape, DTYPES[name])
        np.testing.assert_array_equal(np.asarray(copied(x)), x)


@pytest.mark.parametrize("below", [1, 200, 300])
def test_a_mask_keeps_elements_out(below: int) -> None:
    for shape in SHAPES:
        x = numbers(shape, np.float32)
        expected = np.where(np.arange(shape[1]) < below, x, 0)
        np.testing.assert_array_equal(arrays(masked(x, below=below))[0], expected)


@pytest.mark.parametrize("name", DTYPES)
def test_casts_roots_constants_and_spreading_equal_numpy(name: str) -> None:
    for shape in SHAPES:
        x = numbers(shape, DTYPES[name])
        (found,) = arrays(together(x, to=getattr(ts, name)))
        exact = (np.float32(3) / np.sqrt(x.astype(np.float32)) + np.float32(1.5)).astype(DTYPES[name])
        step = {"bf16": 2.0**-7, "i32": 0.0}.get(name, 2.0**-22)
        np.testing.assert_allclose(found, exact.astype(np.float64), rtol=step)


@pytest.mark.parametrize("name", DTYPES)
def test_full_broadcast_and_zeros_have_the_values_that_they_say(name: str) -> None:
    assert len(SHAPES) * len(DTYPES) == 20
    for number, shape in enumerate(SHAPES):
        x, value = numbers(shape, DTYPES[name]), 3 + number
        whole, rows = filled(x, np.ascontiguousarray(x[0]), value=value)
        np.testing.assert_array_equal(np.asarray(whole), np.full(shape, value, DTYPES[name]))
        np.testing.assert_array_equal(np.asarray(rows), np.broadcast_to(x[0], shape))
        for found in (filled.interpret, filled.run_tiles):
            for one, expected in zip(found(x, np.ascontiguousarray(x[0]), value=value), (whole, rows), strict=True):
                np.testing.assert_array_equal(np.asarray(one), np.asarray(expected))
        zeros, same = emptied(x)
        np.testing.assert_array_equal(np.asarray(zeros).astype(np.float64), np.zeros(shape))
        np.testing.assert_array_equal(np.asarray(same), x)


@pytest.mark.parametrize("name", DTYPES)
def test_tiles_of_any_dtype_are_transposed(name: str) -> None:
    for shape in SHAPES:
        x = numbers(shape, DTYPES[name])
        np.testing.assert_array_equal(np.asarray(flipped(x)), x.T)


@kernel(Schedule(block=(16, 16)))
def flipped(x: KTile["M", "N"]) -> Any:
    """The transpose: rows of the result are columns of the operand."""
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n).T


HELPERS: list[tuple[Any, tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    (kernels.vector_add, ((37,), (37,)), {}),
    (kernels.matmul, ((9, 20), (20, 7)), {}),
    (kernels.softmax, ((8, 16),), {}),
    (kernels.flash, ((2, 9, 8), (2, 20, 8), (2, 20, 8)), {"causal": True}),
    (kernels.rows, ((5, 6),), {}),
    (kernels.running, ((5, 6),), {"reverse": True}),
    (kernels.decayed, ((5, 6),), {}),
    (kernels.piped, ((9, 20), (20, 7)), {"slots": 2}),
]


@pytest.mark.parametrize(("helper", "shapes", "statics"), HELPERS, ids=lambda item: getattr(item, "name", ""))
def test_every_helper_is_plain_tile_ir_that_runs_from_its_text(helper: Any, shapes: Any, statics: Any) -> None:
    operands = [numbers(shape, np.float32) for shape in shapes]
    module = parse_module(helper.lower(*operands, **statics).tile)
    (again,) = [op for op in module.ops if isinstance(op, SpecOp) and op.name == "ttile.kernel"]
    expected = arrays(helper.run_tiles(*operands, **statics))
    results = [np.zeros(one.shape, np.float32) for one in expected]
    run_kernel(again, [*operands, *results], sizes_of(again, [*operands, *results]))
    for found, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def sizes_of(kernel_op: SpecOp, buffers: list[Any]) -> dict[str, int]:
    """What the sizes of a kernel are for these buffers."""
    found: dict[str, int] = {}
    for argument, buffer in zip(kernel_op.regions[0].block.args, buffers, strict=True):
        assert isinstance(argument.type, BufferAttr)
        dims = zip(argument.type.shape, buffer.shape, strict=True)
        found |= {dim.symbol_name: int(size) for dim, size in dims if dim.symbol_name}
    return found
