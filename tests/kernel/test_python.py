"""Python inside kernels: what is known when a kernel is compiled runs then, and users' functions are part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera import KTile, Schedule, accum, f32, f64, i32, kernel, tile
from tessera.diagnostics.codes import DTypeError, KernelError, RuntimeArgumentError, ShapeError
from tests.kernel.compare import agree

RNG = np.random.default_rng(5)
WEIGHTS = (0.25, 0.5, 0.25)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def leaky(x: Any, slope: float = 0.5) -> Any:
    """A function of the user's, with a branch on what is known."""
    return tile.where(x > 0.0, x, x * slope) if slope else tile.relu(x)


def test_functions_of_the_users_are_evaluated_where_they_are_called() -> None:
    @kernel
    def activated(x: KTile["M", "N", f32], *, slope: float) -> Any:
        T = tile.context()
        return leaky(tile.load(x, rows=T.m, cols=T.n), slope=slope)

    x = normal(5, 9)
    for slope in (0.5, 0.0):
        expected: Any = np.maximum(x, 0) + np.minimum(x, 0) * np.float32(slope)
        np.testing.assert_array_equal(agree(activated, x, slope=slope)[0], expected)


def test_loops_over_numbers_are_written_out_and_globals_are_seen() -> None:
    @kernel
    def smoothed(x: KTile["M", 16, f32], out: KTile["M", 14, f32]) -> None:
        T = tile.context()
        for column in range(14):
            total = tile.zeros((T.m,), f32)
            for place, weight in ((0, WEIGHTS[0]), (1, WEIGHTS[1]), (2, WEIGHTS[2])):
                total = total + tile.load(x, T.m, column + place) * weight
            tile.store(out, total, T.m, column)

    x = normal(5, 16)
    expected = sum(x[:, place : place + 14] * np.float32(weight) for place, weight in enumerate(WEIGHTS))
    np.testing.assert_allclose(agree(smoothed, x)[0], expected, atol=1e-6)


def test_indices_are_computed_with_and_tiles_of_integers_too() -> None:
    @kernel
    def numbered(x: KTile["M", "N", i32]) -> Any:
        T = tile.context()
        block = tile.load(x, rows=T.m, cols=T.n)
        place = tile.row_index()[:, None] * x.shape[1] + tile.col_index()[None, :]
        return tile.cast((block // 3 + block % 3 - (block & 1)) * 2 + tile.cast(place, i32), i32)

    x = RNG.integers(0, 99, (5, 9)).astype(np.int32)
    expected = (x // 3 + x % 3 - (x & 1)) * 2 + np.arange(45).reshape(5, 9)
    np.testing.assert_array_equal(agree(numbered, x)[0], expected)


def test_matmuls_are_written_with_an_operator_too_and_fma_rounds_once() -> None:
    @kernel
    def product(a: KTile["M", 24, f32], b: KTile[24, "N", f32]) -> Any:
        T = tile.context()
        block = tile.load(a, rows=T.m, cols=T.d) @ tile.load(b, slice(None), T.n)
        return tile.fma(block, 2.0, block)

    a, b = normal(9, 24), normal(24, 11)
    np.testing.assert_allclose(agree(product, a, b)[0], 3 * (a @ b), atol=1e-4)


def test_a_bias_is_an_index_map_and_the_matmul_one_contraction() -> None:
    @kernel(Schedule(block=(16, 16, 16)))
    def biased(a: KTile["M", "K", f32], b: KTile["K", "N", f32], bias: KTile["N", f32]) -> Any:
        T = tile.context()
        acc = tile.zeros((T.m, T.n), f32)
        for k in tile.range_k(a.shape, T.k):
            acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
        return tile.relu(acc + tile.load(bias, T.n))

    a, b, bias = normal(20, 30), normal(30, 40), normal(40)
    np.testing.assert_allclose(agree(biased, a, b, bias)[0], np.maximum(a @ b + bias, 0), atol=1e-4)
    assert "ttarget.gemm" in biased.lower(a, b, bias).target


def shapes_apart(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.n) + tile.zeros((7, 5))


def inner_apart(T: Any, x: Any) -> Any:
    return tile.dot(tile.load(x, T.m, T.n), tile.load(x, T.m, T.n))


def no_such_axis(T: Any, x: Any) -> Any:
    return tile.sum(tile.load(x, T.m, T.n), 2)


def too_many_positions(T: Any, x: Any) -> Any:
    return tile.load(x, 0, T.m, T.n)


def dtypes_apart(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.n) + tile.zeros((T.m, T.n), i32)


def no_position(T: Any, x: Any) -> Any:
    return tile.load(x, "rows", T.n)


def step_as_place(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.k)


def no_such_fold(T: Any, x: Any) -> Any:
    return tile.scan(tile.load(x, T.m, T.n), "mean")


def odd_vector(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.n, vector=3)


def no_share(T: Any, x: Any) -> Any:
    return tile.dropout_in_kernel(tile.load(x, T.m, T.n), 2.0)


def truth(T: Any, x: Any) -> Any:
    return bool(tile.load(x, T.m, T.n))


def tensor_beside_tile(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.n) + x


def no_such_size(T: Any, x: Any) -> Any:
    return tile.load(x, T.m, T.q)


def kernel_in_kernel(T: Any, x: Any) -> Any:
    return whole(x)


def combine_of_three(T: Any, x: Any) -> Any:
    return tile.scan(tile.load(x, T.m, T.n), lambda before, here, more: before)  # pyright: ignore[reportUnknownLambdaType]


def fold_to_a_number(T: Any, x: Any) -> Any:
    return tile.reduce(tile.load(x, T.m, T.n), 0, lambda before, here: 1)  # pyright: ignore[reportUnknownLambdaType]


def scan_of_nothing(T: Any, x: Any) -> Any:
    return tile.scan(tile.load(x, T.m, T.n), lambda before, here: None)  # pyright: ignore[reportUnknownLambdaType]


@kernel
def whole(x: KTile["M", "N", f32]) -> Any:
    """What it is given."""
    T = tile.context()
    return tile.load(x, T.m, T.n)


@pytest.mark.parametrize(
    ("error", "message", "body"),
    [
        (ShapeError, "takes tiles that broadcast", shapes_apart),
        (ShapeError, "`dot` multiplies", inner_apart),
        (ShapeError, "`axis` must be in", no_such_axis),
        (ShapeError, "has 2 dims, and 3 indices", too_many_positions),
        (DTypeError, "has operands of f32 and i32", dtypes_apart),
        (KernelError, "is not an index", no_position),
        (KernelError, "`k` is the size of a loop step", step_as_place),
        (KernelError, "`combine` is one of", no_such_fold),
        (KernelError, "`vector` is a power of two", odd_vector),
        (KernelError, "`p` is a fraction", no_share),
        (KernelError, "no bool value", truth),
        (KernelError, "`x` is a tensor in memory", tensor_beside_tile),
        (KernelError, "the context of a kernel has no `q`", no_such_size),
        (KernelError, "`whole` is a kernel, and a kernel cannot call", kernel_in_kernel),
        (KernelError, "takes 3 arguments, got 2", combine_of_three),
        (KernelError, "the function of a reduction must return a tile, got 1\n", fold_to_a_number),
        (KernelError, "the function of a reduction must return a tile, got None\n", scan_of_nothing),
    ],
)
def test_what_has_no_meaning_is_refused_at_the_line_of_the_function(error: Any, message: str, body: Any) -> None:
    @kernel
    def wrong(x: KTile["M", "N", f32]) -> Any:
        return body(tile.context(), x)

    with pytest.raises(error, match=message) as raised:
        wrong(normal(4, 8))
    assert raised.value.span.line == body.__code__.co_firstlineno + 1


def test_a_lambda_from_outside_is_called() -> None:
    @kernel
    def cubed(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return CUBE(tile.load(x, T.m, T.n))

    x = normal(4, 8)
    np.testing.assert_array_equal(agree(cubed, x)[0], x * x * x)


CUBE: Any = eval("lambda x: x * x * x")  # a function without source


@kernel
def computed_side(a: KTile["M", 16, f32], b: KTile[16, "N", f32]) -> Any:
    """A product whose right operand is computed."""
    T = tile.context()
    return tile.dot(tile.load(a, T.m, slice(None)), tile.maximum(tile.load(b, slice(None), T.n), 0.0))


@kernel
def linear_attention(q: KTile["B", "S", 16, f32], k: KTile["B", "L", 16, f32], v: KTile["B", "L", 16, f32]) -> Any:
    """A state of keys by values, summed over blocks, that queries are multiplied by."""
    T = tile.context()
    state = tile.zeros((16, 16), f32)
    for n in tile.range_n(k.shape, 32):
        state += tile.dot(tile.load(k, n, slice(None)).T, tile.load(v, n, slice(None)))
    return tile.dot(tile.load(q, rows=T.m, cols=T.d), state)


@kernel
def column_totals(a: KTile["M", 16, f32], b: KTile[16, "N", f32], out: KTile["N", f32]) -> None:
    """A matmul that is reduced along its columns."""
    T = tile.context()
    block = tile.dot(tile.load(a, T.m, slice(None)), tile.load(b, slice(None), T.n))
    tile.atomic_max(out, tile.max(block, 0), T.n)


def test_matmuls_need_not_go_row_by_row() -> None:
    a, b = normal(20, 16), normal(16, 40)
    np.testing.assert_allclose(agree(computed_side, a, b)[0], a @ np.maximum(b, 0), atol=1e-5)
    q, k, v = normal(2, 20, 16), normal(2, 45, 16), normal(2, 45, 16)
    np.testing.assert_allclose(agree(linear_attention, q, k, v)[0], q @ (k.swapaxes(1, 2) @ v), atol=1e-4)
    found = agree(column_totals, np.abs(a), np.abs(b))[0]
    np.testing.assert_allclose(found, (np.abs(a) @ np.abs(b)).max(0), atol=1e-4)


def test_accumulators_have_the_dtype_that_the_type_declares() -> None:
    @kernel
    def wide(a: KTile["M", 64, f32 @ accum(f64)], b: KTile[64, "N", f32 @ accum(f64)]) -> Any:
        T = tile.context()
        return tile.dot(tile.load(a, T.m, slice(None)), tile.load(b, slice(None), T.n))

    a, b = normal(3, 64), normal(64, 5)
    (found,) = agree(wide, a, b)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-13)


def test_sizes_that_are_compared_are_numbers_then() -> None:
    @kernel
    def doubled(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        block = tile.load(x, T.m, T.n)
        if x.shape[0] == 5 or x.shape[1] in (2, 3) or x.shape[1] < 2:
            block = block * 2.0
        return block if x.shape != (4, 4) else block + 1.0

    for shape, factor, more in (((5, 9), 2, 0), ((4, 9), 1, 0), ((4, 3), 2, 0), ((6, 1), 2, 0), ((4, 4), 1, 1)):
        x = normal(*shape)
        np.testing.assert_array_equal(agree(doubled, x)[0], x * np.float32(factor) + np.float32(more))


def test_what_a_kernel_writes_is_not_passed_to_it() -> None:
    @kernel
    def scaled(x: KTile["M", "N", f32]) -> None:
        T = tile.context()
        tile.store(x, tile.load(x, T.m, T.n) * 2.0, T.m, T.n)

    with pytest.raises(RuntimeArgumentError, match="`scaled` takes 0 arguments, and 1 are given") as raised:
        scaled(normal(4, 4))
    assert "`x`: a kernel stores there, so it is a result" in raised.value.notes[0]


@pytest.mark.parametrize("is_loop", [True, False])
def test_steps_of_a_loop_are_not_compared_when_the_kernel_is_compiled(is_loop: bool) -> None:
    @kernel
    def first_only(x: KTile["M", "N", f32], *, is_loop: bool) -> Any:
        T = tile.context()
        total = tile.zeros((T.m,), f32)
        for k in tile.range_k(x.shape, T.k):
            step: Any = k if is_loop else k.start
            if step == 0:
                total = total + tile.sum(tile.load(x, T.m, k), 1)
        return total

    with pytest.raises(KernelError, match="known only at run time, and Python compares"):
        first_only(normal(4, 8), is_loop=is_loop)


def larger(before: Any, here: Any) -> Any:
    """Whichever is further from 0."""
    return tile.where(tile.abs(before) >= tile.abs(here), before, here)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_function_of_the_users_reduces_an_axis(axis: int) -> None:
    @kernel
    def furthest(x: KTile["M", "N", f32], out: KTile["R", f32], *, axis: int, R: int) -> None:
        found = tile.reduce(tile.load(x, slice(None), slice(None)), axis, larger)
        tile.store(out, found, slice(None))

    x = normal(7, 13)
    expected = np.take_along_axis(x, np.abs(x).argmax(axis, keepdims=True), axis).squeeze(axis)
    np.testing.assert_array_equal(agree(furthest, x, axis=axis, R=expected.size)[0], expected)


def test_a_reduction_over_an_edge_says_what_it_leaves_as_it_is() -> None:
    @kernel(Schedule(block=(4, 16, 64)))
    def edged(x: KTile["M", "N", f32], out: KTile["M", f32], *, start: float | None) -> None:
        T = tile.context()
        total = tile.zeros((T.m,), f32)
        for k in tile.range_k(x.shape, T.k):
            block = tile.reduce(tile.load(x, T.m, k, pad=99.0), 1, larger, start=start, scope="block")
            total = tile.per_block(larger(total, block))
        tile.store(out, total, T.m)

    x = normal(5, 70)
    expected = np.take_along_axis(x, np.abs(x).argmax(1, keepdims=True), 1).squeeze(1)
    np.testing.assert_array_equal(agree(edged, x, start=0.0)[0], expected)
    with pytest.raises(KernelError, match="the axis may end within the tile"):
        edged(x, start=None)


def test_functions_that_python_runs_answer_no_more() -> None:
    def weight(k: Any) -> float:
        return 1.0 if k.start == 0 else 2.0

    # Python runs a lambda that was written elsewhere, and the front end what is written with `def`.
    by_name: dict[str, Callable[[Any], float]] = {"lambda": lambda k: 1.0 if k.start == 0 else 2.0, "function": weight}

    @kernel
    def weighed(x: KTile["M", "N", f32], *, way: str) -> Any:
        T = tile.context()
        total = tile.zeros((T.m,), f32)
        for k in tile.range_k(x.shape, T.k):
            total = total + tile.sum(tile.load(x, T.m, k), 1) * by_name[way](k)
        return total

    for way in by_name:
        with pytest.raises(KernelError, match="known only at run time, and Python compares"):
            weighed(normal(4, 8), way=way)


def test_loops_go_over_pairs_and_numbered_items() -> None:
    @kernel
    def scaled(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        out = tile.load(x, rows=T.m, cols=T.n)
        for at, (scale, shift) in enumerate(zip((2.0, 0.5), (1.0, 3.0), strict=True)):
            out = out * scale + shift * at
        return out

    x = normal(5, 9)
    np.testing.assert_array_equal(agree(scaled, x)[0], x * np.float32(2) * np.float32(0.5) + np.float32(3))


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (lambda: zip((1, 2), (3,), strict=True), r"Python raised: zip\(\) argument 2 is shorter"),
        (lambda: range(1 << 60), "this one has more than 256 iterations"),
        (lambda: zip(range(1 << 60), range(1 << 60), strict=True), "this one has more than 256 iterations"),
    ],
    ids=["of other lengths", "long", "long pairs"],
)
def test_loops_that_cannot_be_unrolled_are_refused(over: Callable[[], Any], said: str) -> None:
    @kernel
    def added(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        out = tile.load(x, rows=T.m, cols=T.n)
        for _ in over():
            out = out + 1.0
        return out

    with pytest.raises(KernelError, match=said):
        added(normal(2, 3))
