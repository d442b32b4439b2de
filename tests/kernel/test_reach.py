"""Places that programs compute: proved to be there, or windows that keep programs from touching what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.extents import IndexBounds
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.schedule import Schedule
from tests.kernel.compare import agree


@kernel
def every_fourth(x: KTile["M", "N", ts.f32], on: int) -> KTile["M", ts.f32]:
    T = tile.context()
    acc = tile.zeros((T.m,), ts.f32)
    for j in tile.steps(x.shape[1], by=4):
        acc = acc + tile.load(x, T.m, j.start + on)
    return acc


@kernel
def around(x: KTile["M", "N", ts.f32], out: KTile["M", 4, ts.f32]) -> None:
    """Sums of four neighbours, two of them before each step."""
    T = tile.context()
    acc = tile.zeros((T.m, 4), ts.f32)
    for j in tile.steps(x.shape[1], by=4):
        acc = acc + tile.load(x, T.m, slice(j.start - 2, j.start + 2))
    tile.store(out, acc, rows=T.m, cols=slice(0, 4))


@kernel
def put(x: KTile["M", "N", ts.f32], out: KTile["N", "M", ts.f32], on: int) -> None:
    """Columns as rows, each `on` further; what is out of bounds is left out, and the first ones are stored first."""
    T = tile.context()
    for j in tile.steps(x.shape[1], by=1):
        tile.store(out, tile.load(x, T.m, j.start), rows=j.start, cols=T.m)
    for j in tile.steps(x.shape[1], by=1):
        tile.store(out, tile.load(x, T.m, j.start) * 2.0, rows=j.start + on, cols=T.m)


def rows(*shape: int) -> Any:
    return np.random.default_rng(7).integers(-9, 9, shape).astype(np.float32)


def windows(text: str) -> int:
    return text.count("windows = [")


@pytest.mark.parametrize("width", [1, 4, 7, 14])
def test_an_element_beyond_the_end_reads_as_pad(width: int) -> None:
    x = rows(5, width)
    (found,) = agree(every_fourth, x, 3)
    np.testing.assert_array_equal(found, x[:, 3::4].sum(1))
    np.testing.assert_array_equal(agree(every_fourth, x, -4)[0], x[:, : max(0, (width - 1) // 4 * 4) : 4].sum(1))


def test_what_is_proved_has_no_window() -> None:
    x = rows(5, 16)
    assert windows(every_fourth.lower(x, 0).tile) == 0
    assert windows(every_fourth.lower(x, 3).tile) == 1

    @ts.jit
    def whole_steps(x: ts.Tensor[5, 16, ts.f32]) -> Any:
        return every_fourth(x, 3)

    assert windows(whole_steps.lower(x).tile) == 0
    np.testing.assert_array_equal(np.asarray(whole_steps(x)), x[:, 3::4].sum(1))


def test_a_part_that_begins_before_its_dim_reads_as_pad() -> None:
    x = rows(3, 10)
    padded = np.pad(x, ((0, 0), (2, 4)))
    np.testing.assert_array_equal(agree(around, x)[0], sum(padded[:, j : j + 4] for j in range(0, 10, 4)))


def test_nothing_is_written_where_there_is_no_place() -> None:
    x = rows(3, 6)
    for on in (2, -2):
        wanted = x.T.copy()
        for j in range(6):
            if 0 <= j + on < 6:
                wanted[j + on] = 2 * x[:, j]
        np.testing.assert_array_equal(agree(put, x, on)[0], wanted)


def test_debug_builds_find_nothing_to_refuse() -> None:
    x = rows(5, 14)
    np.testing.assert_array_equal(
        np.asarray(every_fourth.with_options(debug=True)(x, 3)), np.asarray(every_fourth(x, 3))
    )


def test_code_for_a_gpu_keeps_the_window() -> None:
    text = every_fourth.with_options(backend="cuda").lower(rows(5, 14), 3)
    assert windows(text.tile) == 1
    assert "windows = [_k + 3" in text.target


J, N = Dim.symbol("j"), Dim.symbol("N")


@given(
    n=st.integers(1, 9),
    step=st.integers(1, 4),
    factor=st.integers(-2, 2),
    offset=st.integers(-6, 6),
    divisor=st.integers(1, 3),
    form=st.sampled_from(["plain", "floordiv", "mod", "min", "max"]),
    is_free=st.booleans(),
)
def test_a_proof_is_true_of_every_step(
    n: int, step: int, factor: int, offset: int, divisor: int, form: str, is_free: bool
) -> None:
    b = KernelBuilder("k", (), Schedule(block=(4, 4, 4)), {})
    extent = N if is_free else Dim.constant(n)
    b.coords["j"], b.loop_extents["j"] = 0, (extent, step)
    plain = J * factor + offset
    at = {
        "plain": plain,
        "floordiv": plain // divisor,
        "mod": plain % divisor,
        "min": minimum(plain, extent - 1),
        "max": maximum(plain, 0),
    }[form]
    reach = IndexBounds(b)
    places = [at.evaluate({"j": j, "N": n}) for j in range(0, n, step)]
    inside = [0 <= place < n for place in places]
    assert not reach.is_inside(at, extent) or all(inside)
    assert not reach.is_natural(at) or min(places) >= 0
    if form == "plain" and not is_free:
        assert reach.is_inside(at, extent) == all(inside)
