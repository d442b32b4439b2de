"""Buckets of symbolic dims, distances of shapes, and neighbours by them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tessera.tuner.records import Entry, Plan
from tessera.tuner.shapes import bucket, distance, form_of, nearest, shape_signature, sizes_of
from tests.tuner.samples import BLOCK, MATMUL, signature

SIZES = st.integers(1, 1 << 40)
SHAPES = st.lists(SIZES, min_size=1, max_size=4)


@given(SIZES)
def test_a_bucket_holds_sizes_up_to_its_end_and_is_at_most_half_larger(size: int) -> None:
    end = bucket(size)
    assert size <= end < 1.5 * size + 1
    assert bucket(end) == end


@given(SIZES, SIZES)
def test_buckets_are_in_the_order_of_sizes(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert bucket(low) <= bucket(high)


def test_there_are_two_buckets_between_powers_of_two() -> None:
    assert sorted({bucket(size) for size in range(65)}) == [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]


@given(SHAPES, st.sets(st.integers(0, 3)))
def test_a_signature_keeps_its_sizes(sizes: list[int], symbolic: set[int]) -> None:
    text = shape_signature(sizes, symbolic)
    expected = [bucket(size) if index in symbolic else size for index, size in enumerate(sizes)]
    assert sizes_of(text) == tuple(expected)
    assert form_of(text) == "x".join("#" * len(sizes))


def test_a_symbolic_dim_is_never_taken_for_an_exact_one() -> None:
    assert shape_signature((512, 512), symbolic=(0,)) != shape_signature((512, 512))
    assert shape_signature((500, 512), symbolic=(0,)) == shape_signature((512, 512), symbolic=(0,))
    assert shape_signature((513, 512), symbolic=(0,)) != shape_signature((512, 512), symbolic=(0,))


@given(SHAPES, SHAPES, SHAPES)
def test_distance_is_a_metric_among_shapes_of_one_form(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = (shape_signature(sizes) for sizes in (one, two, three))
    assert distance(a, a) == 0
    assert distance(a, b) == distance(b, a)
    if len(one) != len(two):
        assert distance(a, b) is None
    elif len(two) == len(three):
        ab, bc, ac = distance(a, b), distance(b, c), distance(a, c)
        assert ab is not None
        assert bc is not None
        assert ac is not None
        assert ac <= ab + bc + 1e-9


def test_sizes_of_nothing_have_a_distance() -> None:
    assert distance("0x8", "1x8") == 1.0
    assert distance("", "") == 0.0
    assert distance("8x8", "8,8") is None


def entry(shape: str, tile: int, **changes: str) -> Entry:
    return Entry(signature(shape_sig=shape, **changes), Plan.of({"map.tile": tile}))


def test_neighbours_are_the_nearest_sizes_with_different_plans() -> None:
    near, far, farther = entry("64x64x128", 1), entry("64x256x64", 2), entry("64x64x4096", 3)
    same_plan = entry("64x64x512", 1)
    found = nearest(MATMUL, [farther, same_plan, far, near], 3)
    assert found == [near, far, farther]
    assert nearest(MATMUL, [far, near], 1) == [near]
    assert nearest(MATMUL, [near], 0) == []


def test_neighbours_share_everything_but_sizes_and_versions() -> None:
    others = [
        entry("64x64x128", 1, **{part: "other"}) for part in ("op_kind", "dtype", "mesh_sig", "arch", "policy_hash")
    ]
    assert nearest(MATMUL, others, 9) == []
    assert nearest(MATMUL, [entry("64x64", 1)], 9) == []
    assert nearest(MATMUL, [Entry(MATMUL, BLOCK)], 9) == [], "its own entry is a hit and no neighbour"


def test_of_equally_near_ones_those_of_this_driver_come_first() -> None:
    older = entry("64x64x64", 1, runtime="r0")
    mine, theirs = entry("64x64x128", 2), entry("64x64x32", 3, runtime="r0")
    assert nearest(MATMUL, [theirs, mine, older], 9) == [older, mine, theirs]
    assert math.isclose(distance("64x64x128", "64x64x64") or 0, 1.0)
