"""Layouts: every element of a tile has one owner, and threads know which elements they have."""

from __future__ import annotations

import itertools
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from tessera.backends.nvptx.layout import Layout, Threads
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import DeviceModule
from tessera.ir.target.llvm.instructions import Value, constant_of

SHAPES = st.lists(st.sampled_from([1, 2, 3, 6, 8, 16, 32]), min_size=0, max_size=2).map(tuple)

LINES = st.lists(st.sampled_from([1, 2, 3, 6, 8, 16, 32]), min_size=1, max_size=2).map(tuple)


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
