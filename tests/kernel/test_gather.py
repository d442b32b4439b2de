"""Positions that are tiles of numbers, masks of stores, slices of dims: three ways of running, and NumPy's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, bf16, f32, i32, kernel, tile
from tessera.diagnostics.codes import KernelError, RaceError, ShapeError
from tessera.ir.tile.write_records import write_kernel
from tests.kernel.compare import agree, arrays
from tests.oracles.nvptx_backend import NvptxBackend

RNG = np.random.default_rng(6)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def numbers(high: int, *shape: int, low: int = 0) -> Any:
    return RNG.integers(low, high, shape).astype(np.int32)


@kernel
def embedded(ids: KTile["T", i32], table: KTile["V", "D", f32]) -> Any:
    """Rows of a table, by number."""
    T = tile.context()
    return tile.load(table, tile.load(ids, T.m), T.d, pad=-1.0)


@kernel
def picked(x: KTile["M", "N", f32], columns: KTile["M", i32]) -> Any:
    """One element of each row."""
    T = tile.context()
    return tile.load(x, tile.row_index(), tile.load(columns, T.m))


@kernel
def scattered(
    x: KTile["M", "D", f32], places: KTile["M", i32], like: KTile["V", f32], out: KTile["V", "D", f32]
) -> None:
    """Rows put where numbers say."""
    T = tile.context()
    tile.store(out, tile.load(x, rows=T.m, cols=T.d), tile.load(places, T.m), T.d)


@kernel
def counted(x: KTile["N", i32], like: KTile["B", f32], out: KTile["B", i32]) -> None:
    """How often each number occurs."""
    T = tile.context()
    found = tile.load(x, T.m, pad=-1)
    tile.atomic_add(out, tile.full((T.m,), 1, i32), found, mask=found != 3)


@kernel
def halves(x: KTile["M", "N", f32], out: KTile["M", "N", f32], *, above: float) -> None:
    """Elements above a number, and zeros."""
    T = tile.context()
    block = tile.load(x, rows=T.m, cols=T.n)
    tile.store(out, block, rows=T.m, cols=T.n, mask=block > above)


@kernel
def paged(q: KTile["M", 16, f32], pages: KTile["P", i32], k: KTile["S", 16, f32], out: KTile["M", "P", f32]) -> None:
    """Products with rows that a table of pages finds."""
    T = tile.context()
    rows = tile.load(k, tile.load(pages, T.n), T.d)
    tile.store(out, tile.dot(tile.load(q, rows=T.m, cols=T.d), tile.transpose(rows)), rows=T.m, cols=T.n)


@pytest.mark.parametrize("count", [1, 5, 37, 300])
@pytest.mark.parametrize("width", [1, 7, 32])
def test_rows_are_found_by_numbers_and_what_is_no_row_is_padding(count: int, width: int) -> None:
    ids, table = numbers(13, count, low=-2), normal(11, width)
    expected = np.where(((ids >= 0) & (ids < 11))[:, None], table[np.clip(ids, 0, 10)], np.float32(-1))
    np.testing.assert_array_equal(agree(embedded, ids, table)[0], expected)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (37, 19), (300, 2)], ids=str)
def test_two_tiles_of_numbers_find_an_element_each(sizes: tuple[int, int]) -> None:
    M, N = sizes
    x, columns = normal(M, N), numbers(N, M)
    np.testing.assert_array_equal(agree(picked, x, columns)[0], x[np.arange(M), columns])


def test_rows_are_put_where_numbers_say_and_nowhere_else() -> None:
    places = np.array([3, 0, 7, -1, 9, 5], np.int32)
    x, like = normal(6, 20), normal(8)
    expected = np.zeros((8, 20), np.float32)
    expected[[3, 0, 7, 5]] = x[[0, 1, 2, 5]]
    np.testing.assert_array_equal(agree(scattered, x, places, like)[0], expected)


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=70))
def test_a_histogram_counts_what_is_in_range_and_not_masked(values: list[int]) -> None:
    x, like = np.array(values, np.int32), np.zeros(9, np.float32)
    expected = np.array([0 if number == 3 else values.count(number) for number in range(9)])
    np.testing.assert_array_equal(np.asarray(counted(x, like)), expected)


def test_all_executors_count_alike() -> None:
    x = numbers(12, 301, low=-3)
    expected = [0 if number == 3 else int((x == number).sum()) for number in range(9)]
    np.testing.assert_array_equal(agree(counted, x, normal(9))[0], expected)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 31), (33, 257)], ids=str)
def test_masked_stores_leave_elements_out(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    np.testing.assert_array_equal(agree(halves, x, above=0.25)[0], np.where(x > 0.25, x, 0))


def test_dots_of_gathered_rows() -> None:
    small = paged.with_schedule(Schedule(block=(16, 16, 16)))
    q, k, pages = normal(20, 16), normal(50, 16), numbers(50, 37)
    np.testing.assert_allclose(agree(small, q, pages, k)[0], q @ k[pages].T, atol=1e-5)


def test_slices_are_parts_of_dims() -> None:
    @kernel
    def swapped(x: KTile["M", 20, f32], out: KTile["M", 20, f32]) -> None:
        T = tile.context()
        tile.store(out, tile.load(x, T.m, slice(0, 8)), T.m, slice(12, 20))
        tile.store(out, tile.load(x, T.m, slice(8, None)), T.m, slice(0, 12))

    x = normal(21, 20)
    np.testing.assert_array_equal(agree(swapped, x)[0], np.concatenate([x[:, 8:], x[:, :8]], 1))


def test_a_slice_to_the_end_of_a_free_dim_makes_it_a_number() -> None:
    @kernel
    def rest(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return tile.sum(tile.load(x, T.m, slice(3, None)), 1)

    for width in (4, 20):
        x = normal(5, width)
        np.testing.assert_allclose(agree(rest, x)[0], x[:, 3:].sum(1), atol=1e-5)


def test_programs_that_write_one_cell_by_numbers_are_found() -> None:
    with pytest.raises(RaceError):
        scattered.with_options(debug=True)(normal(40, 8), np.zeros(40, np.int32), normal(8))


def float_position(T: Any, x: Any) -> Any:
    return tile.load(x, tile.full((T.m,), 1.0), T.n)


def three_axes(T: Any, x: Any) -> Any:
    return tile.load(x, tile.zeros((T.m, T.n), i32), T.n)


def every_other(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, slice(0, 8, 2))


def number_as_mask(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.n, mask=tile.load(x, T.m, T.n))


@pytest.mark.parametrize(
    ("error", "message", "body"),
    [
        (KernelError, "a tile of f32 is not an index", float_position),
        (ShapeError, "at most two axes", three_axes),
        (KernelError, "is not a valid slice of dim 1", every_other),
        (KernelError, "a bool condition", number_as_mask),
    ],
)
def test_positions_and_masks_that_are_none_are_refused(error: Any, message: str, body: Any) -> None:
    @kernel
    def wrong(x: KTile["M", "N", f32]) -> Any:
        return body(tile.context(), x)

    with pytest.raises(error, match=message):
        wrong(normal(4, 8))


GPU: list[tuple[Any, list[Any], dict[str, Any]]] = [
    (embedded, [numbers(9, 100), normal(50, 64)], {}),
    (picked, [normal(9, 40), numbers(40, 9)], {}),
    (scattered, [normal(9, 40), numbers(9, 9), normal(9)], {}),
    (counted, [numbers(9, 900), normal(9)], {}),
    (halves, [normal(64, 300)], {"above": 0.0}),
]


@pytest.mark.parametrize(("made", "operands", "statics"), GPU, ids=lambda item: getattr(item, "name", ""))
def test_they_have_code_for_a_gpu(made: Any, operands: Any, statics: Any) -> None:
    backend = NvptxBackend()
    program = made.program(*operands, kind="gpu", **statics)
    assert "define ptx_kernel" in backend.code(backend.lower(write_kernel(program))).text


def test_a_kernel_of_narrow_floats_gathers_too() -> None:
    @kernel
    def rows(ids: KTile["T", i32], table: KTile["V", "D", bf16]) -> Any:
        T = tile.context()
        return tile.load(table, tile.load(ids, T.m), T.d)

    ids, table = numbers(11, 40), ts.array(normal(11, 24)).cast(bf16)
    np.testing.assert_array_equal(arrays(rows(ids, table))[0], arrays(table)[0][ids])


SMALL = Schedule(block=(32, 32, 32))


@kernel(SMALL)
def positive(a: KTile["M", "K", f32], b: KTile["K", "N", f32], out: KTile["M", "N", f32]) -> None:
    """What is positive of a product."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    tile.store(out, acc, rows=T.m, cols=T.n, mask=acc > 0.0)


@kernel(SMALL)
def sent(a: KTile["M", "K", f32], b: KTile["K", "N", f32], to: KTile["M", i32], out: KTile["M", "N", f32]) -> None:
    """Rows of a product put where numbers say."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    tile.store(out, acc, tile.load(to, T.m), T.n)


@kernel(SMALL)
def looked_up(ids: KTile["M", i32], a: KTile["V", "K", f32], b: KTile["K", "N", f32]) -> Any:
    """A product of rows that numbers find."""
    T = tile.context()
    acc, rows = tile.zeros((T.m, T.n), f32), tile.load(ids, T.m)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows, k), tile.load(b, rows=k, cols=T.n))
    return acc


def test_dots_are_stored_by_mask_and_index_and_take_gathered_rows() -> None:
    a, b, to = normal(50, 70), normal(70, 40), RNG.permutation(50).astype(np.int32)
    np.testing.assert_allclose(agree(positive, a, b)[0], np.maximum(a @ b, 0), atol=1e-4)
    moved = np.zeros((50, 40))
    moved[to] = a @ b
    np.testing.assert_allclose(agree(sent, a, b, to)[0], moved, atol=1e-4)
    np.testing.assert_allclose(agree(looked_up, to[:33], a, b)[0], a[to[:33]] @ b, atol=1e-4)


@kernel
def in_groups(a: KTile["G", 12, "K", f32], b: KTile["G", "K", "N", f32], out: KTile["G", 12, "N", f32]) -> None:
    """A product for each group, stored at rows that are numbers: where they begin is said behind the dots."""
    T = tile.context()
    acc = tile.zeros((12, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, slice(0, 12), k), tile.load(b, rows=k, cols=T.n))
    tile.store(out, tile.relu(acc), slice(0, 12), T.n)


@kernel
def block_sparse(
    a: KTile["R", "L", 16, 16, f32],
    columns: KTile["R", "L", i32],
    b: KTile["C", 16, "N", f32],
    out: KTile["R", 16, "N", f32],
) -> None:
    """Products of blocks of a sparse matrix, whose columns a table has, summed along its rows."""
    T = tile.context()
    acc = tile.zeros((16, T.n), f32)
    for one in tile.steps(a.shape[1], by=1):
        block = tile.load(a, one.start, slice(0, 16), slice(0, 16))
        acc += tile.dot(block, tile.load(b, tile.load(columns, one.start), slice(0, 16), T.n))
    tile.store(out, acc, slice(0, 16), T.n)


@pytest.mark.parametrize("columns", [1, 40, 300])
def test_dots_are_stored_at_rows_that_are_numbers(columns: int) -> None:
    a, b = normal(3, 12, 50), normal(3, 50, columns)
    np.testing.assert_allclose(agree(in_groups, a, b)[0], np.maximum(a @ b, 0), atol=1e-4)
    blocks, table, dense = normal(4, 3, 16, 16), numbers(6, 4, 3), normal(6, 16, columns)
    expected = np.einsum("rlij,rljn->rin", blocks, dense[table])
    np.testing.assert_allclose(agree(block_sparse, blocks, table, dense)[0], expected, atol=1e-4)
