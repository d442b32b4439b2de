"""Short rows that share vectors: where lanes read is what the offset says, and programs are those of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.cpu.lane_offsets import are_near, lanes_apart
from tessera.ir.schedule.emit.request import Walk
from tessera.ir.schedule.kinds.map import PERIODS, plan_periods
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType
from tests.backends.cpu.native import assert_close, build, interpret, machines, values_of

I, P = Dim.symbol("i"), Dim.symbol("p")  # noqa: E741 - a coordinate


@st.composite
def offsets(draw: st.DrawFn) -> Dim:
    """Sums of quotients and remainders of a coordinate, as walks over joined dims have them."""
    short, long = draw(st.integers(2, 9)), draw(st.integers(2, 5))
    parts = [I % short, I // short, (I // short) % long, I // (short * long), I, P]
    return sum((draw(st.integers(0, 3)) * part for part in parts), Dim.constant(draw(st.integers(0, 5))))


@given(offsets(), st.integers(1, 64), st.integers(0, 3), st.integers(0, 7))
def test_lanes_are_where_the_offset_says_behind_any_multiple(offset: Dim, multiple: int, chunk: int, at: int) -> None:
    lanes = range(8 * chunk, 8 * chunk + 8)
    found = lanes_apart(offset, "i", lanes, multiple)
    if found is None:
        return
    start = multiple * at
    values = [offset.evaluate({"i": start + lane, "p": 11}) for lane in lanes]
    assert [value - values[0] for value in values] == list(found)


@pytest.mark.parametrize(
    ("offset", "multiple", "expected"),
    [
        (I // 2, 16, (0, 0, 1, 1, 2, 2, 3, 3)),
        (I % 3, 24, (0, 1, 2, 0, 1, 2, 0, 1)),
        ((I // 2) % 3 + 7 * P, 48, (0, 0, 1, 1, 2, 2, 0, 0)),
        (I // 2, 15, None),  # a vector may begin in the middle of a pair
        (I % 3, 16, None),
        ((I + P) // 2, 16, None),  # who knows where it begins
    ],
)
def test_what_lanes_alone_decide(offset: Dim, multiple: int, expected: tuple[int, ...] | None) -> None:
    assert lanes_apart(offset, "i", range(8), multiple) == expected


def test_what_is_near() -> None:
    assert are_near((0, 0, 1, 1))
    assert are_near((7, 0, 3, 1))
    assert not are_near((0, 3, 6, 9))


def _kernel(dtype: DType, short: int, size: int, tile: int) -> Any:
    """`out[i] = x[i] + y[i // short] * z[i % short]` for a line, in tiles."""
    types = [TensorType.of([count], dtype) for count in (size, -(-size // short), short, size)]
    b = TileBuilder("near", types, symbols=[], grid=[1], writes=[3], kind="library")

    def step(i: Any, carried: list[Any]) -> list[Any]:
        region = TileRegion({"i": i}, ("i",), (tile,), {"i": Dim.constant(size)})
        x, y, z = (b.load(b.arguments[at], [where], region) for at, where in enumerate((I, I // short, I % short)))
        b.store(b.elementwise("add", x, b.elementwise("mul", y, z)), b.arguments[3], [I], region)
        return carried

    b.loop(b.index(0), b.index(Dim.constant(size)), tile, step)
    return b.finish()


@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.i16, dt.f16, dt.i8, dt.i64], ids=str)
@pytest.mark.parametrize(("short", "tile"), [(2, 32), (3, 48), (5, 80), (6, 48), (7, 112), (4, 16), (3, 32)])
def test_machine_code_reads_the_same_elements_as_the_interpreter(dtype: DType, short: int, tile: int) -> None:
    for size in (tile * 3, tile * 2 + 5, 1):
        kernel = _kernel(dtype, short, size, tile)
        rng = np.random.default_rng(size)
        arrays = [values_of(rng, (count,), dtype) for count in (size, -(-size // short), short)]
        arrays.append(np.zeros(size, arrays[0].dtype))
        expected = interpret(kernel, arrays, {})
        for machine in machines():
            assert_close(build(kernel, machine).run(arrays, {}), expected)


def _walk(*extents: int | str) -> Walk:
    shape = tuple(Dim.of(size) if isinstance(size, int) else Dim.symbol(size) for size in extents)
    return Walk(tuple(f"_p{at}" for at in range(len(shape))), tuple((at,) for at in range(len(shape))), shape)


def test_rows_are_joined_where_they_do_not_fill_vectors() -> None:
    machine = machines()[-1]
    lanes = machine.lanes
    assert plan_periods(_walk(1000, 2), machine) == (2, 2 * lanes)
    assert plan_periods(_walk(1000, 3), machine) == (2, 3 * lanes)
    assert plan_periods(_walk("N", 3), machine) == (2, 3 * lanes)
    assert plan_periods(_walk(563, 3, 2), machine) == (3, 3 * lanes)  # both are short: a period has both
    assert plan_periods(_walk(10, 5000, 2), machine) == (2, 2 * lanes)  # the second is long enough alone
    for rows in (_walk(1000, lanes), _walk(1000, 4 * lanes), _walk(1000, "N"), _walk(1000), _walk(2, 3)):
        assert plan_periods(rows, machine) is None
    assert plan_periods(_walk(1000, PERIODS + 1), machine) is None  # a tile of whole periods would be long


SHAPES: Sequence[tuple[int, ...]] = [
    (563, 3, 2),
    (40, 7, 5),
    (3000, 2),
    (16, 9, 128, 4),
    (7, 3),
    (1, 2),
    (0, 3),
    (31, 6),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_programs_with_short_rows_are_those_of_numpy(shape: tuple[int, ...]) -> None:
    """Operands that are broadcast along the last dim, along all others, and along those between; and coordinates."""
    rng = np.random.default_rng(len(shape))
    whole = rng.integers(-9, 9, shape).astype(np.float32)
    column = rng.integers(-9, 9, (*shape[:-1], 1)).astype(np.float32)
    row = rng.integers(-9, 9, shape[-1:]).astype(np.float32)
    outer = rng.integers(-9, 9, (*shape[:1], *(1 for _ in shape[1:]))).astype(np.float32)

    @ts.jit
    def program(whole: Any, column: Any, row: Any, outer: Any) -> Any:
        return ts.ops.tril(whole * column - row) + outer

    found = np.asarray(program(whole, column, row, outer))
    np.testing.assert_array_equal(found, np.tril(whole * column - row) + outer)
