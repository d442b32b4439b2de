"""Layouts: every element of a tile has one owner, and threads know which elements they have."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.backends.nvptx.layout import Layout, Spacing, Threads, skew_of
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import DeviceModule
from tessera.ir.target.llvm.instructions import Value, constant_of

SHAPES = st.lists(st.sampled_from([1, 2, 3, 6, 8, 16, 32]), min_size=0, max_size=2).map(tuple)

LINES = st.lists(st.sampled_from([1, 2, 3, 6, 8, 16, 32]), min_size=1, max_size=2).map(tuple)


LAYOUTS = [
    Layout(shape, threads, widest)
    for shape in (
        (),
        (1,),
        (5,),
        (24,),
        (64,),
        (100,),
        (512,),
        (3, 8),
        (7, 5),
        (8, 40),
        (2, 3, 4),
        (3, 1, 64),
        (5, 4, 6),
    )
    for threads in (1, 4, 24)
    for widest in (1, 2, 8)
]
"""Tiles smaller than their threads and larger, in rows that threads divide and others."""


def holders(layout: Layout) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """Who holds each element, as pairs of thread and register, by running the arithmetic of every thread."""
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for thread in range(layout.threads):
        f = DeviceModule(GPUS["sm_90a"]).kernel("k", [], 32)
        threads = Threads(f, Value("i64", str(thread)), layout)
        for register in range(layout.registers):
            there = threads.is_there(register)
            if there is None or there.text == "true":
                place = tuple(constant_of(index) for index in threads.coordinates(register))
                found.setdefault(tuple(index or 0 for index in place), []).append((thread, register))
    return found


@given(SHAPES, st.sampled_from([1, 16, 32]), st.sampled_from([1, 2, 8]))
def test_every_element_has_an_owner_and_nothing_else_is_held(shape: tuple[int, ...], threads: int, widest: int) -> None:
    layout = Layout(shape, threads, widest)
    found = holders(layout)
    assert set(found) == set(itertools.product(*(range(size) for size in shape)))
    if layout.size >= threads:
        assert all(len(who) == 1 for who in found.values())


@given(LINES, st.sampled_from([16, 32, 64]), st.sampled_from([2, 4, 8]))
def test_neighbours_of_a_thread_are_contiguous(shape: tuple[int, ...], threads: int, widest: int) -> None:
    layout = Layout(shape, threads, widest)
    f = DeviceModule(GPUS["sm_90a"]).kernel("k", [], 32)
    at = Threads(f, Value("i64", "1"), layout)
    for register in range(0, layout.registers, layout.vector):
        first = [constant_of(index) or 0 for index in at.coordinates(register)]
        for step in range(layout.vector):
            here = [constant_of(index) or 0 for index in at.coordinates(register + step)]
            assert here == [*first[:-1], first[-1] + step]


def test_a_tile_smaller_than_its_threads_is_held_by_all_of_them() -> None:
    layout = Layout((), 32)
    assert layout.registers == 1
    assert holders(layout) == {(): [(thread, 0) for thread in range(32)]}


def test_registers_are_no_more_than_needed() -> None:
    for shape, threads in itertools.product([(32,), (8, 64), (96, 3)], [32, 256]):
        layout = Layout(shape, threads, 8)
        assert (layout.registers - layout.vector) * threads < prod(shape) or layout.is_repeated


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_elements_belong_to_threads_as_is_written(layout: Layout) -> None:
    """Element e is of thread `(e // V) % P`, in a register for each time that all threads have their neighbours."""
    vector, threads = layout.vector, layout.threads
    size, last = prod(layout.shape), layout.shape[-1] if layout.shape else 1
    fitting = [width for width in (1, 2, 4, 8) if width <= layout.widest and not last % width]
    assert vector == max(width for width in fitting if width == 1 or size >= width * threads)
    assert layout.registers == vector * max(1, -(-size // (vector * threads)))
    wanted: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for element, place in enumerate(itertools.product(*map(range, layout.shape))):
        if size < threads:
            wanted[place] = [(thread, 0) for thread in range(threads) if thread % size == element]
        else:
            number = element // (vector * threads) * vector + element % vector
            wanted[place] = [(element // vector % threads, number)]
    assert holders(layout) == wanted


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_an_element_is_stored_by_one_thread_and_asked_for_only_where_some_have_none(layout: Layout) -> None:
    owners: list[tuple[int, ...]] = []
    for register in range(layout.registers):
        held, owned = list[bool](), list[bool]()
        asked, asked_to_store = set[bool](), set[bool]()
        for thread in range(layout.threads):
            f = DeviceModule(GPUS["sm_90a"]).kernel("k", [], 32)
            at = Threads(f, Value("i64", str(thread)), layout)
            there, owner = at.is_there(register), at.is_owner(register)
            held.append(there is None or there.text == "true")
            asked.add(there is not None)
            owned.append(owner is None or owner.text == "true")
            asked_to_store.add(owner is not None)
            if owned[-1]:
                owners.append(tuple(constant_of(index) or 0 for index in at.coordinates(register)))
        assert asked == {not all(held)}
        assert asked_to_store == {not all(owned)}
    assert sorted(owners) == list(itertools.product(*map(range, layout.shape)))


def test_what_depends_on_the_thread_is_computed_once() -> None:
    """Rows of 16 for 32 threads: two rows further with each register, in the column that the thread always has."""
    f = DeviceModule(GPUS["sm_90a"]).kernel("k", [("i64", "thread")], 32)
    at = Threads(f, f.arguments[0], Layout((8, 16), 32))
    for register in range(4):
        at.coordinates(register)
    f.ret()
    counts = {name: f.text().count(f" {name} ") for name in ("udiv", "urem", "add", "mul")}
    assert counts == {"udiv": 1, "urem": 4, "add": 3, "mul": 0}


@pytest.mark.parametrize("shape", [(), (1,), (64,), (4, 64)])
def test_one_thread_has_everything_at_constants(shape: tuple[int, ...]) -> None:
    f = DeviceModule(GPUS["sm_90a"]).kernel("k", [("i64", "thread")], 32)
    at = Threads(f, Value("i64", "%thread"), Layout(shape, 1, 8))
    places = [[constant_of(index) for index in at.coordinates(register)] for register in range(prod(shape))]
    assert places == [list(place) for place in itertools.product(*map(range, shape))]


@pytest.mark.parametrize(
    ("shape", "threads", "widest", "line"),
    [
        ((1024,), 64, 1, 64),
        ((1024,), 256, 4, 1024),
        ((1024,), 256, 8, 1024),
        ((64,), 64, 4, 64),
        ((32,), 64, 4, 0),
        ((1024,), 32, 4, 0),
        ((1024,), 96, 1, 0),
        ((1024,), 1, 1, 0),
    ],
)
def test_rows_of_which_every_thread_has_a_group(shape: tuple[int, ...], threads: int, widest: int, line: int) -> None:
    """Where several warps can be halved to one, a row of one group to each thread is found by its length."""
    layout = Layout(shape, threads, widest)
    assert layout.size_of_line == line
    assert layout.line == Layout((layout.group,), threads, layout.vector)
    assert layout.single == Layout((threads,), threads)
    assert [layout.start(register) for register in range(2 * layout.vector)] == [
        *range(layout.vector),
        *range(layout.group, layout.group + layout.vector),
    ]


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_padding_puts_lines_of_threads_in_other_banks(lines: int, length: int, vector: int, size: int) -> None:
    """Each thread's lines begin in banks of their own, as many as lanes along a line leave to each."""
    banks = 128 // size
    skew = skew_of(lines, length, vector, size)
    lanes = sum(vector * lane < lines + 1 - vector for lane in range(min(32, banks))) or 1
    share = banks // (1 << (lanes - 1).bit_length())
    assert 0 <= skew < 2 * share
    begins = {lane * (vector * length + skew) % banks for lane in range(lanes)}
    assert len({begin // share for begin in begins}) == lanes


def test_padding_of_short_lines_stays_below_what_they_hold() -> None:
    """A tile of 2048 lines of 8 bytes had lines of 132 bytes, more than a block may have."""
    assert skew_of(2048, 8, 1, 1) == 4


@pytest.mark.parametrize(
    ("is_lhs", "is_transposed", "wanted"),
    [(True, True, (1, 0)), (False, False, (1, 0)), (True, False, (1, 8)), (False, True, (4, 8))],
)
def test_operands_that_are_read_across_lie_16_bytes_apart(
    is_lhs: bool, is_transposed: bool, wanted: tuple[int, int]
) -> None:
    assert Spacing.for_operand(is_lhs, is_transposed, 4, 2) == Spacing(*wanted)
    every, free = wanted
    assert Spacing.for_operand(is_lhs, is_transposed, 4, 1) == Spacing(every, 2 * free)


def test_padding_between_lines_of_a_tile_that_is_transposed() -> None:
    """16 bytes where vectors need them, otherwise what puts lines in banks side by side; after a thread's lines."""
    one, two, four = (Layout((64, 32), 256, width) for width in (1, 2, 4))
    assert Spacing.for_transpose(two, four, 1) == Spacing(4, 16)
    assert Spacing.for_transpose(four, four, 4) == Spacing(4, 4)
    assert Spacing.for_transpose(four, one, 2) == Spacing(1, 8)
    assert Spacing.for_transpose(one, four, 4) == Spacing(4, skew_of(64, 32, 4, 4))
    assert [Spacing(2, 3).start(line, 10) for line in range(5)] == [0, 10, 23, 33, 46]
