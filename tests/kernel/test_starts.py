"""Where a program's block begins, and what is found from there: windows, a number for a block, results of any size."""

# pyright: reportUnknownMemberType=false, reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera import KTile, Schedule, f32, i32, i64, kernel, tile
from tessera.diagnostics.codes import KernelError
from tests.kernel import kernels
from tests.kernel.compare import agree

RNG = np.random.default_rng(41)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def test_a_window_around_a_block_reads_zeros_outside() -> None:
    @kernel(Schedule(block=(16, 16)))
    def convolved(x: KTile["L", "C", f32], w: KTile[3, "C", "O", f32], out: KTile["L", "O", f32]) -> None:
        T = tile.context()
        acc = tile.zeros((T.m, T.n), f32)
        for r in range(3):
            at = T.m.start + (r - 1)
            acc += tile.dot(tile.load(x, slice(at, at + T.m), slice(None)), tile.load(w, r, slice(None), T.n))
        tile.store(out, acc, T.m, T.n)

    x, w = normal(37, 8), normal(3, 8, 20)
    around = np.pad(x, ((1, 1), (0, 0)))
    expected: Any = sum(around[r : r + 37] @ w[r] for r in range(3))
    np.testing.assert_allclose(agree(convolved, x, w, ulps=4)[0], expected, atol=1e-4)


def test_a_number_for_each_block_chooses_what_the_block_is_multiplied_by() -> None:
    @kernel(Schedule(block=(4, 8)))
    def grouped(x: KTile["M", "N", f32], w: KTile["E", "N", f32], expert: KTile["G", i32]) -> Any:
        T = tile.context()
        which = tile.load(expert, T.m.start // T.m)
        return tile.load(x, T.m, T.n) * tile.load(w, which, T.n)

    x, w, expert = normal(10, 20), normal(5, 20), np.array([4, 0, 3], np.int32)
    np.testing.assert_array_equal(agree(grouped, x, w, expert)[0], x * w[expert.repeat(4)[:10]])


def test_a_size_that_begins_nowhere_says_so() -> None:
    @kernel
    def lost(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return tile.load(x, T.m, slice(T.k.start, T.k.start + 4))

    with pytest.raises(KernelError, match=r"`T\.k` is a size, and has no start"):
        lost(normal(4, 8))


def test_places_in_a_whole_dim_have_numbers_too() -> None:
    @kernel
    def largest(x: KTile["M", "D", f32], out: KTile["M", i64]) -> None:
        T = tile.context()
        block = tile.load(x, T.m, T.d)
        is_largest = block == tile.max(block, 1)[:, None]
        tile.store(out, tile.min(tile.where(is_largest, tile.col_index(T.d)[None, :], 1 << 30), 1), T.m)

    x = normal(9, 33)
    np.testing.assert_array_equal(agree(largest, x)[0], x.argmax(1))


def rows_by_a_size(T: Any) -> Any:
    return tile.row_index(T.m)


def columns_of_a_number(T: Any) -> Any:
    return tile.col_index(3)


@pytest.mark.parametrize(
    ("body", "message"), [(rows_by_a_size, r"`T\.m` is a size"), (columns_of_a_number, "int has no columns")]
)
def test_numbers_of_what_has_no_place_are_refused(body: Any, message: str) -> None:
    @kernel
    def wrong(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return tile.load(x, T.m, T.n) + tile.cast(body(T), f32)

    with pytest.raises(KernelError, match=message):
        wrong(normal(4, 8))


@pytest.mark.parametrize("bins", [1, 10, 33])
def test_a_result_may_have_a_dim_that_a_static_argument_says(bins: int) -> None:
    @kernel
    def counted(x: KTile["N", i32], out: KTile["bins", i32], *, bins: int) -> None:
        T = tile.context()
        places = tile.load(x, T.n, pad=-1)
        tile.atomic_add(out, tile.full(places.shape, 1, i32), places)

    x = RNG.integers(0, bins, 1000).astype(np.int32)
    np.testing.assert_array_equal(agree(counted, x, bins=bins)[0], np.bincount(x, minlength=bins))


def test_a_dim_that_nothing_determines_is_refused_with_fixes() -> None:
    @kernel
    def nowhere(x: KTile["N", f32], out: KTile["Q", f32]) -> None:
        T = tile.context()
        tile.store(out, tile.load(x, T.n), T.n)

    with pytest.raises(KernelError, match="the dim `Q` of the result `out` is not a dim of an operand") as raised:
        nowhere(normal(4))
    assert raised.value.fix is not None
    assert "`*, Q: int`" in raised.value.fix.message


def test_a_matmul_over_nothing_is_zeros_under_the_debugger_too() -> None:
    assert not agree(kernels.matmul, normal(5, 0), normal(0, 7))[0].any()


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda T: tile.program()[0] // T.m.start, "`//` and `%` divide by `_m`, which may be zero when"),
        (lambda T: 7 % T.m.start, "`//` and `%` divide by `_m`, which may be zero when"),
        (lambda T: T.m.start // 0, "`//` and `%` divide by `0`, which is zero"),
        (lambda T: T.m.start / 2, "integer known at run time, and `/` is none of its operators"),
        (lambda T: 2**T.m.start, "integer known at run time, and `**` is none of its operators"),
        (lambda T: T.m.start & 1, "integer known at run time, and `&` is none of its operators"),
        (lambda T: ~T.m.start, "integer known at run time, and `~` is none of its operators"),
    ],
)
def test_operators_that_indices_do_not_have_are_explained(compute: Any, message: str) -> None:
    @kernel
    def lost(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        at = compute(T)
        return tile.load(x, T.m, T.n) * at

    with pytest.raises(KernelError) as caught:
        lost(normal(4, 8))
    assert message in str(caught.value)


def test_numbers_are_divided_by_sizes_and_indices_have_a_sign() -> None:
    @kernel(Schedule(block=(4, 8)))
    def divided(x: KTile["M", "N", f32], w: KTile["K", f32]) -> Any:
        T = tile.context()
        at = 25 // x.shape[0] + 25 % x.shape[0]
        return tile.load(x, T.m, T.n) * tile.load(w, -T.m.start + T.m.start + at)

    x, w = normal(7, 8), normal(9)
    np.testing.assert_array_equal(agree(divided, x, w)[0], x * w[7])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("tile.softmax(v, 1)", "too many positional arguments; it is `softmax(x, *, scope='row')`"),
        ("tile.softmax(v, axis=1)", "unexpected argument `axis` of `softmax`; it is `softmax(x, *, scope='row')`"),
        ("tile.exp()", "wrong arguments of `exp`: missing a required argument: `x`; it is `exp(x)`"),
        ("tile.sum(v, dim=1)", "unexpected argument `dim` of `sum`"),
    ],
)
def test_wrong_calls_of_the_language_are_explained(call: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(f"def wrong(v):\n    return {call}\n", encoding="utf-8")
    names: dict[str, Any] = {"tile": tile}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    work = names["wrong"]

    @kernel
    def lost(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return work(tile.load(x, T.m, T.d))

    with pytest.raises(KernelError) as caught:
        lost(normal(4, 8))
    assert message in str(caught.value)
    assert "write `axis=1`" in str(caught.value) or "dim" not in call
