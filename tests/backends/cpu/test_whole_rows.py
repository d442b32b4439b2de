"""Rows found by number: which index tiles are read once, which are not, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.cpu.compile import CpuCode
from tessera.backends.cpu.lower import scalar_index_tiles
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i64
from tessera.types.shape import TensorType
from tests.graph.eager import reference

X, IDS, PAIRS = np.zeros((50, 96), np.float32), np.zeros(40, np.int64), np.zeros((50, 30), np.int64)


def rows(x: Any, i: Any) -> Any:
    return ts.ops.take(x, i, axis=0)


def columns(x: Any, i: Any) -> Any:
    return ts.ops.take(x, i, axis=1)


def embed(x: Any, i: Any) -> Any:
    return ts.ops.exp(ts.ops.embedding(x, i)) + 1.0


def cross(x: Any, i: Any) -> Any:
    """Rows by one index, and in them elements by another."""
    return x[i[:, None], ts.ops.take(i, i)[None, :]]


def _lower(function: Callable[..., Any], *arrays: Any, dynamic: bool = False) -> Lowering:
    return lower(ts.jit(function, dynamic=dynamic).trace(*arrays).tape, Options())


def _accesses(function: Callable[..., Any], *arrays: Any, dynamic: bool = False) -> list[tuple[str, str]]:
    """Fetches, and the ways of loads."""
    code = _lower(function, *arrays, dynamic=dynamic).code
    assert isinstance(code, CpuCode)
    ops = [op for kernel in code.targets for op in kernel.walk() if isinstance(op, SpecOp)]
    fetches = [("fetch", "") for op in ops if op.name == "ttarget.fetch"]
    return [*fetches, *(("load", op.value("pattern")) for op in ops if op.name == "ttarget.load")]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_row_that_is_found_by_number_is_copied_whole(dynamic: bool) -> None:
    found = _accesses(rows, X, IDS, dynamic=dynamic)
    assert ("fetch", "") in found
    assert ("load", "indexed") not in found
    found = _accesses(embed, X, IDS, dynamic=dynamic)
    assert ("fetch", "") in found
    assert ("load", "indexed") not in found


def test_indices_that_differ_within_a_tile_stay_a_tile() -> None:
    for function, ids in ((columns, IDS), (ts.ops.take_along_axis, PAIRS)):
        found = _accesses(function, X, ids)
        assert ("fetch", "") not in found
        assert ("load", "indexed") in found


def test_a_number_stays_a_tile_where_its_partner_differs_by_element() -> None:
    found = _accesses(cross, X, IDS)
    assert ("fetch", "") not in found
    assert ("load", "indexed") in found
    x, ids = np.arange(50 * 96.0).reshape(50, 96), np.arange(40)[::-1].copy()
    np.testing.assert_array_equal(np.asarray(ts.jit(cross)(x, ids)), x[ids[:, None], ids[ids][None, :]])


@pytest.mark.parametrize(("is_stored", "bound", "count"), [(False, -1, 1), (False, 5, 0), (True, -1, 0)])
def test_a_tile_that_is_a_value_too_stays_a_tile(is_stored: bool, bound: int, count: int) -> None:
    """And so does one that ends before what it finds: beyond its end, it is the row that padding names."""
    types = [TensorType.of([50, 32], f32), TensorType.of([4], i64), TensorType.of([4, 32], f32)]
    types = [*types, TensorType.of([4, 32], i64)]
    b = TileBuilder("f", types, symbols=(), grid=[4], writes=[2, 3], kind="map")
    x, ids, out, numbers = b.arguments
    i, j = Dim.symbol("i"), Dim.symbol("j")
    coords = {"i": b.program_id(0), "j": b.index(0)}
    region = TileRegion(coords, ("j",), (32,))
    edge = region if bound < 0 else TileRegion(coords, ("j",), (32,), {"j": Dim.constant(bound)})
    number = b.load(ids, [i], edge)
    b.store(b.load(x, [Dim.symbol("t0"), j], region, indices=[number]), out, [i, j], region)
    if is_stored:
        b.store(number, numbers, [i, j], region)
    assert len(scalar_index_tiles(b.finish())) == count


def test_kernels_of_users_keep_their_tiles() -> None:
    """Nothing says that a tile of theirs has an element inside."""
    module = _lower(rows, X, IDS).module
    kernels = [op for op in module.walk() if isinstance(op, SpecOp) and op.name == "ttile.kernel"]
    assert sum(len(scalar_index_tiles(kernel)) for kernel in kernels) == 1
    for kernel in kernels:
        kernel.set_value("kind", "library")
    assert not any(scalar_index_tiles(kernel) for kernel in kernels)


TAKE = ts.jit(rows, dynamic=True)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_what_is_taken_is_what_was_asked_for(data: st.DataObject) -> None:
    height, width, count = (data.draw(st.integers(1, most)) for most in (9, 70, 12))
    rng = np.random.default_rng(height * width)
    x = rng.standard_normal((height, width)).astype(data.draw(st.sampled_from([np.float32, np.float64, np.float16])))
    ids = rng.integers(-height - 2, height + 2, count).astype(
        data.draw(st.sampled_from([np.int64, np.int32, np.uint8]))
    )
    found = np.asarray(TAKE(x, ids))
    assert found.tobytes() == reference("take", x, ids, axis=0).tobytes()
