"""Debug builds check indices of kernels first: an out-of-bounds one is reported with its kernel, line and program."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, f32, i32, kernel, tile
from tessera.api.compilation import cache_key
from tessera.compiler.options import Options
from tessera.diagnostics.codes import PositionError
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.watch import CELLS, MOST, watch
from tessera.ir.tile.write_records import write_kernel

ROWS = Schedule(block=(4, 8, 16))


@kernel(ROWS)
def picked(ids: KTile["T", i32], table: KTile["V", "D", f32]) -> Any:
    T = tile.context()
    return tile.load(table, tile.load(ids, T.m), T.d)


@kernel(ROWS)
def padded(ids: KTile["T", i32], table: KTile["V", "D", f32]) -> Any:
    T = tile.context()
    return tile.load(table, tile.load(ids, T.m), T.d, pad=-1.0)


@kernel(ROWS)
def chosen(ids: KTile["T", i32], table: KTile["V", "D", f32]) -> Any:
    T = tile.context()
    rows = tile.load(ids, T.m)
    return tile.load(table, rows, T.d, mask=(rows >= 0)[:, None])


@kernel(ROWS)
def counted(x: KTile["N", i32], like: KTile["B", f32], out: KTile["B", i32]) -> None:
    T = tile.context()
    found = tile.load(x, T.m, pad=-7)
    tile.atomic_add(out, tile.full((T.m,), 1, i32), found, mask=found != -1)


@kernel(ROWS)
def summed(ids: KTile["M", i32], a: KTile["V", "K", f32], b: KTile["K", "N", f32]) -> Any:
    """Rows that numbers find, times a matrix: what is carried has no part in where they are."""
    T = tile.context()
    acc, rows = tile.zeros((T.m, T.n), f32), tile.load(ids, T.m) * 2
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows, k), tile.load(b, rows=k, cols=T.n))
    return acc


def numbers(*values: int) -> Any:
    return np.array(values, np.int32)


TABLE = np.arange(35, dtype=np.float32).reshape(7, 5)


def refused(made: Any, *args: Any) -> PositionError:
    with pytest.raises(PositionError) as caught:
        made.with_options(debug=True)(*args)
    return caught.value


@pytest.mark.parametrize("wrong", [7, -1, 2**31 - 1])
def test_a_number_that_is_no_place_is_named(wrong: int) -> None:
    ids = numbers(0, 1, 2, 3, 4, wrong, 6, 0, 1)
    found = refused(picked, ids, TABLE)
    assert found.message == f"index {wrong} is outside of an axis of 7 elements"
    assert found.notes == (
        "kernel `picked`, program [1] of [3]",
        "it stands at [5] of the indices, [9] i32, that `load` of `table` uses",
        "rule: a position is in 0..6; a debug build checks, in others it reads as 0",
    )
    assert "`pad=0`" in str(found)
    assert found.span is not None
    assert (found.span.file, found.span.line) == (__file__, picked.definition.function.__code__.co_firstlineno + 3)
    ids[5] = 5
    np.testing.assert_array_equal(np.asarray(picked.with_options(debug=True)(ids, TABLE)), TABLE[ids])


def test_the_first_program_is_named_and_in_it_the_least_number() -> None:
    assert refused(picked, numbers(0, 1, 2, 3, 9, -2, 8, -5, -9), TABLE).message.startswith("index -5 ")
    assert refused(picked, numbers(0, 1, 2, 3, 9, 2, 8, 5, -9), TABLE).message.startswith("index 8 ")


def test_out_of_bounds_reads_with_a_fill_value_are_no_mistake() -> None:
    ids = numbers(0, -1, 9, 3, 4)
    for made in (padded, chosen):
        kept = made.with_options(debug=True)
        np.testing.assert_array_equal(np.asarray(kept(ids[[0, 1, 3]], TABLE)), np.asarray(made(ids[[0, 1, 3]], TABLE)))
    assert np.asarray(padded.with_options(debug=True)(ids, TABLE))[:, 0].tolist() == [0.0, -1.0, -1.0, 15.0, 20.0]


def test_elements_beyond_edges_and_behind_masks_take_no_part() -> None:
    like = np.zeros(6, np.float32)
    given = numbers(0, 5, -1, -1, 3)
    assert np.asarray(counted.with_options(debug=True)(given, like)).tolist() == [1, 0, 0, 1, 0, 1]
    found = refused(counted, numbers(0, -1, 1, 6), like)
    assert found.message == "index 6 is outside of an axis of 6 elements"
    assert found.notes[0] == "kernel `counted`, program [0] of [1]"
    assert "`mask=`" in str(found)


def test_a_number_that_is_computed_is_named_without_a_place_of_its_own() -> None:
    a, b = np.ones((9, 20), np.float32), np.ones((20, 12), np.float32)
    found = refused(summed, numbers(0, 1, 2, 3, 4, 5), a, b)
    assert found.message == "index 10 is outside of an axis of 9 elements"
    assert found.notes[:2] == ("kernel `summed`, program [1, 0] of [2, 2]", "`load` of `a` uses it")


def test_bounds_checks_have_no_dots() -> None:
    a, b = np.ones((9, 20), np.float32), np.ones((20, 12), np.float32)
    text = summed.with_options(debug=True, backend="cuda").lower(numbers(0, 1), a, b).tile
    _, looking, own = (part for part in text.split("ttile.kernel @")[1:])
    assert "ttile.dot" in own
    assert "ttile.dot" not in looking
    assert "ttile.load" in looking
    assert "checked" not in looking


def test_a_kernel_inside_a_program_is_looked_at_where_it_is_called() -> None:
    @ts.jit(debug=True)
    def around(ids: ts.Tensor["T", i32], table: ts.Tensor["V", 5, f32]) -> Any:
        return picked(ids + 1, table * 2.0) + 1.0

    np.testing.assert_array_equal(np.asarray(around(numbers(0, 5), TABLE)), TABLE[[1, 6]] * 2 + 1)
    with pytest.raises(PositionError, match="index 7 is outside") as caught:
        around(numbers(0, 6), TABLE)
    assert caught.value.notes[0] == "kernel `picked`, program [0] of [1]"
    np.testing.assert_array_equal(np.asarray(around(numbers(2), TABLE)), TABLE[[3]] * 2 + 1)


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=14))
@settings(max_examples=25, deadline=None)
def test_records_tell_of_every_program_what_is_no_place(values: list[int]) -> None:
    ids = numbers(*values)
    found = watch(write_kernel(picked.program(ids, TABLE)))
    assert found is not None
    count = -(-len(values) // 4)
    records = np.full((count, CELLS), 5, np.int64)
    sizes = {"T": len(values), "V": 7}
    run_kernel(found.begin, [records], sizes)
    run_kernel(found.look, [ids, records], sizes)
    for program, record in enumerate(records.tolist()):
        own = values[4 * program : 4 * program + 4]
        below, beyond = [value for value in own if value < 0], [value for value in own if value >= 7]
        far = MOST - min(beyond) if beyond else 0
        assert record == [min(below, default=0), far, 8 if below or beyond else 0, 0]


def test_a_debug_build_of_the_same_kernel_on_another_line_is_another_one() -> None:
    keys: list[list[str]] = []
    for above in (0, 3):
        lines = ["\n" * above, "@kernel", "def rows(ids: KTile['T', i32], table: KTile['V', 5, f32]):"]
        lines += ["    T = tile.context()", "    return tile.load(table, tile.load(ids, T.m), T.d)", ""]
        source, scope = "\n".join(lines), dict(globals())
        name = f"<rows after {above} lines>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), scope)
        tape = scope["rows"].trace(numbers(0), TABLE).tape
        keys.append([cache_key(tape, Options(debug=debug)) for debug in (False, True)])
    assert keys[0][0] == keys[1][0]
    assert keys[0][1] != keys[1][1]
