"""Positions that kernels compute in narrow numbers: what overflows is refused with numbers, what may has a guard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, kernel, tile
from tessera.diagnostics.codes import KernelError
from tessera.ir.tile.write_records import write_kernel
from tessera.types.dtype import DType
from tessera.types.shape import TensorType
from tests.kernel import test_schedule
from tests.kernel.compare import agree
from tests.oracles.nvptx_backend import NvptxBackend

BACKEND = NvptxBackend()


@kernel
def picked(x: KTile["L", ts.f32], y: KTile["M", "N", ts.f32], dtype: DType, on: int = 0) -> Any:
    """Each element with that of `x` at its row-major number, computed in a dtype."""
    T = tile.context()
    rows, columns = tile.cast(tile.row_index(), dtype), tile.cast(tile.col_index(), dtype)
    at = rows[:, None] * y.shape[1] + columns[None, :] + on
    return tile.load(y, T.m, T.n) + tile.load(x, at)


@kernel
def stepped(x: KTile["L", ts.f32], y: KTile["M", "N", ts.f32], dtype: DType) -> KTile["M", ts.f32]:
    """Sums of elements of `x` whose numbers a loop counts."""
    T = tile.context()
    total = tile.zeros((T.m,), ts.f32)
    for j in tile.steps(y.shape[1], by=1):
        rows = tile.cast(tile.row_index(), dtype)
        total = total + tile.load(x, rows * y.shape[1] + j.start) + tile.load(y, T.m, j.start)
    return total


def types(length: int, rows: int, columns: int) -> list[TensorType]:
    return [TensorType.of([length], ts.f32), TensorType.of([rows, columns], ts.f32)]


def built(function: Any, rows: int, columns: int, **statics: Any) -> Any:
    return function.definition.build(types(24, rows, columns), statics, Schedule(block=(16, 16, 16)))


def test_what_overflows_is_refused_with_numbers() -> None:
    with pytest.raises(
        KernelError, match="computed in i32, whose maximum is 2147483647, and reach 4899930000"
    ) as caught:
        built(picked, 70_000, 70_000, dtype=ts.i32, on=0)
    assert caught.value.span is not None
    assert caught.value.span.source_line.strip().startswith("at = rows")
    assert caught.value.fix is not None
    assert "i64" in caught.value.fix.message
    built(picked, 70_000, 70_000, dtype=ts.i64, on=0)
    built(picked, 65_536, 65_535, dtype=ts.u32, on=0)
    built(picked, 46_340, 46_340, dtype=ts.i32, on=0)
    with pytest.raises(KernelError, match=r"whose maximum is 4294967295, and reach 4294967296"):
        built(picked, 65_536, 65_536, dtype=ts.u32, on=1)


def test_steps_of_loops_count_too() -> None:
    built(stepped, 4, 30, dtype=ts.i8)
    with pytest.raises(KernelError, match="computed in i8, whose maximum is 127, and reach 129"):
        built(stepped, 5, 26, dtype=ts.i8)


def test_free_sizes_are_guarded() -> None:
    x, y = np.arange(24, dtype=np.float32), np.zeros((4, 6), np.float32)
    np.testing.assert_array_equal(agree(picked, x, y, ts.i32)[0].ravel(), x)
    guards = picked.explain(x, y, ts.i32).guards
    assert any("M*N - 1" in guard and "computed in i32, whose maximum is 2147483647" in guard for guard in guards)
    assert not any("counted" in guard for guard in picked.explain(x, y, ts.i64).guards)
    narrow, wide = np.zeros((11, 11), np.float32), np.zeros((12, 11), np.float32)
    assert np.asarray(picked(x, narrow, ts.i8)).shape == (11, 11)
    with pytest.raises(ts.TesseraError, match="computed in i8, whose maximum is 127"):
        picked(x, wide, ts.i8)


@given(
    rows=st.integers(1, 20),
    columns=st.integers(1, 20),
    on=st.integers(0, 40),
    dtype=st.sampled_from([ts.i8, ts.u8]),
)
def test_an_overflow_is_refused_where_there_is_one_and_nowhere_else(
    rows: int, columns: int, on: int, dtype: DType
) -> None:
    last = 127 if dtype is ts.i8 else 255
    reached = max(rows * columns - 1 + on, columns)
    if reached > last:
        with pytest.raises(KernelError, match=f"whose maximum is {last}, and reach"):
            built(picked, rows, columns, dtype=dtype, on=on)
    else:
        built(picked, rows, columns, dtype=dtype, on=on)


@pytest.mark.parametrize(("rows", "is_matrix"), [(2**31 - 1, True), (2**31, False)])
def test_the_copy_engine_is_not_told_places_beyond_its_31_bits(rows: int, is_matrix: bool) -> None:
    operands = [TensorType.of([rows, 64], ts.bf16), TensorType.of([64, 128], ts.bf16)]
    product = test_schedule.product.definition
    written = write_kernel(product.build(operands, {}, product.complete(None, "gpu")))
    assert (BACKEND.matrix(written) is not None) == is_matrix
    if not is_matrix:
        assert "define ptx_kernel" in BACKEND.code(BACKEND.lower(written)).text
