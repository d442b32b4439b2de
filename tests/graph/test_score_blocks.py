"""Interval analysis of masks never hides a block with a score that is seen, and skips what it can."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.ir.base.arrays import Array
from tessera.ir.graph.score_blocks import BLOCK, key_ranges, may_skip, query_ranges
from tessera.ir.graph.score_forms import apply_to_arrays
from tessera.ir.graph.score_programs import BATCH, HEAD, KEY, QUERY, Lines, ProgramWriter
from tessera.ir.graph.transforms.tape_builder import TapeBuilder
from tessera.types.dtype import bool_, f32, i32, i64
from tessera.types.shape import TensorType
from tests.fuzz.compare import interpreted

SHAPE = (2, 2, 100, 70)
CAPTURES = (
    TensorType.of((100,), i32),
    TensorType.of((2, 70), i64),
    TensorType.of((), i32),
    TensorType.of((2,), bool_),
)


def arrays_of(seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [
        np.sort(rng.integers(-3, 9, 100)).astype(np.int32),
        rng.integers(-5, 60, (2, 70)).astype(np.int64) * int(rng.choice([1, 1, 1 << 40])),
        np.array(rng.integers(-10, 120), np.int32),
        rng.integers(0, 2, 2).astype(np.bool_),
    ]


def analyze(lines: Lines, arrays: list[Array], rule: Any) -> Any:
    """What a rule of the analysis gives on arrays; None where it knows nothing."""
    b = TapeBuilder()
    captures = [b.tape.new_value(type) for type in CAPTURES]
    b.tape.inputs += captures
    b.tape.names += [f"captured_{number}" for number in captures]
    found = rule(b, lines, captures, TensorType.of(SHAPE, f32).shape)
    if found is None:
        return None
    b.tape.outputs = list(found) if isinstance(found, tuple) else [found]
    return interpreted(b.tape, arrays)


def seen_by(lines: Lines, arrays: list[Array]) -> Array:
    return apply_to_arrays(np.zeros(SHAPE), (), lines, arrays) == 0


@st.composite
def masks(draw: st.DrawFn) -> Lines:
    """A random program of integers and bools, with a bool at its end."""
    writer = ProgramWriter(f32, CAPTURES)
    numbers = [BATCH, HEAD, QUERY, KEY]
    for _ in range(draw(st.integers(1, 6))):
        numbers.append(draw_integer(draw, writer, numbers))
    bools = [draw_comparison(draw, writer, numbers) for _ in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("and", "or", "not", "xor", "select")))
        given = [draw(st.sampled_from(bools)) for _ in range(3)]
        if kind == "not":
            bools.append(writer.elementwise("not", given[0]))
        elif kind == "select":
            bools.append(writer.select(*given))
        else:
            bools.append(writer.elementwise(kind, *given[:2]))
    return writer.finish(bools[-1])


def draw_integer(draw: st.DrawFn, writer: ProgramWriter, numbers: list[int]) -> int:
    """One more number of 32 bits, from those there are."""
    x, y = (writer.cast(draw(st.sampled_from(numbers)), i32) for _ in range(2))
    kind = draw(
        st.sampled_from(
            ("add", "sub", "mul", "min", "max", "neg", "abs", "floordiv", "mod", "load", "constant", "wide")
        )
    )
    if kind == "constant":
        return writer.constant(draw(st.one_of(st.integers(-80, 120), st.just(2**31 - 1))), i32)
    if kind in ("neg", "abs"):
        return writer.elementwise(kind, x)
    if kind in ("floordiv", "mod"):
        return writer.elementwise(kind, x, writer.constant(draw(st.integers(1, 40)), i32))
    if kind == "load":
        places = draw(st.sampled_from((((x,), 0), ((BATCH, y), 1), ((), 2))))
        return writer.cast(writer.load(places[1], [(0, place) for place in places[0]]), i32)
    if kind == "wide":
        wide = writer.elementwise("add", writer.load(1, [(0, HEAD), (0, KEY)]), writer.cast(x, i64))
        return writer.cast(wide, i32)
    return writer.elementwise(kind, x, y)


def draw_comparison(draw: st.DrawFn, writer: ProgramWriter, numbers: list[int]) -> int:
    if draw(st.integers(0, 9)) == 0:
        return writer.load(3, [(0, BATCH)])
    x, y = (writer.cast(draw(st.sampled_from(numbers)), i32) for _ in range(2))
    return writer.elementwise(draw(st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne"))), x, y)


@settings(deadline=None)
@given(masks(), st.integers(0, 1000))
def test_no_block_with_a_score_that_is_seen_is_skipped(lines: Lines, seed: int) -> None:
    arrays = arrays_of(seed)
    found = analyze(lines, arrays, may_skip)
    seen = seen_by(lines, arrays)
    if found is None:
        return
    counts = [-(-size // BLOCK) for size in SHAPE[2:]]
    may = np.broadcast_to(found[0], (*SHAPE[:2], *counts))
    padded = np.zeros((*SHAPE[:2], counts[0] * BLOCK, counts[1] * BLOCK), bool)
    padded[:, :, : SHAPE[2], : SHAPE[3]] = seen
    blocks = padded.reshape(*SHAPE[:2], counts[0], BLOCK, counts[1], BLOCK).any((3, 5))
    assert not (blocks & ~may).any()


@settings(deadline=None)
@given(masks(), st.integers(0, 1000))
def test_ranges_hold_every_score_that_is_seen(lines: Lines, seed: int) -> None:
    arrays = arrays_of(seed)
    seen = seen_by(lines, arrays)
    for rule, own in ((key_ranges, 2), (query_ranges, 3)):
        found = analyze(lines, arrays, rule)
        if found is None:
            continue
        first, end = (np.broadcast_to(one, (*SHAPE[:2], one.shape[2])) for one in found)
        blocks = np.arange(SHAPE[own]) // BLOCK
        rows = seen if own == 2 else np.swapaxes(seen, 2, 3)
        others = np.arange(rows.shape[3])
        inside = (others >= first[:, :, blocks, np.newaxis]) & (others < end[:, :, blocks, np.newaxis])
        assert not (rows & ~inside).any()
        assert (first >= 0).all()
        assert (end <= rows.shape[3]).all()


def window(writer: ProgramWriter) -> int:
    distance = writer.elementwise("sub", QUERY, KEY)
    near = writer.elementwise("lt", distance, writer.constant(8, i32))
    return writer.elementwise("and", writer.elementwise("ge", QUERY, KEY), near)


def documents(writer: ProgramWriter) -> int:
    return writer.elementwise("eq", writer.load(0, [(0, QUERY)]), writer.load(0, [(0, KEY)]))


def prefix(writer: ProgramWriter) -> int:
    early = writer.elementwise("lt", KEY, writer.load(2, ()))
    return writer.elementwise("or", early, writer.elementwise("ge", QUERY, KEY))


def neighbourhood(writer: ProgramWriter) -> int:
    by, near = writer.constant(10, i32), writer.constant(1, i32)
    found: list[int] = []
    for function in ("floordiv", "mod"):
        x, y = (writer.elementwise(function, one, by) for one in (QUERY, KEY))
        found.append(writer.elementwise("le", writer.elementwise("abs", writer.elementwise("sub", x, y)), near))
    return writer.elementwise("and", *found)


@pytest.mark.parametrize("mask", [window, documents, prefix, neighbourhood])
def test_ranges_of_known_masks_are_as_narrow_as_blocks_allow(mask: Any) -> None:
    writer = ProgramWriter(f32, CAPTURES)
    lines = writer.finish(mask(writer))
    arrays = arrays_of(3)
    arrays[0], arrays[2] = (np.arange(100) // 25).astype(np.int32), np.array(40, np.int32)
    first, end = analyze(lines, arrays, key_ranges)
    seen: Any = seen_by(lines, arrays).any((0, 1))
    for block in range(-(-SHAPE[2] // BLOCK)):
        keys = np.flatnonzero(seen[block * BLOCK : (block + 1) * BLOCK].any(0))
        if not keys.size:
            assert first[0, 0, block] >= end[0, 0, block]
            continue
        assert first[0, 0, block] == keys[0] // BLOCK * BLOCK
        assert end[0, 0, block] == min(-(-(keys[-1] + 1) // BLOCK) * BLOCK, SHAPE[3])


def test_a_mask_of_which_nothing_is_known_hides_no_block() -> None:
    writer = ProgramWriter(f32, CAPTURES)
    both = writer.elementwise("xor", writer.elementwise("lt", QUERY, KEY), writer.elementwise("lt", KEY, QUERY))
    assert analyze(writer.finish(both), arrays_of(0), may_skip) is None
