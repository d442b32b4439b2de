"""Memory plans: no two live buffers share a byte, and reuse never costs more than none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.schedule.host_program.memory import (
    ALIGNMENT,
    Lifetime,
    align_bytes,
    enclosing_op,
    insert_frees,
    kept_in,
    lay_out,
    may_be_written,
    overwritten_by,
    readers_of,
    root_of,
    strip_aliases,
)
from tessera.ir.schedule.plan import programs_in
from tessera.types.dim import Dim
from tests.oracles.memory_layouts import first_overlap, naive_total

SIZES = ({"A": 0, "B": 0}, {"A": 1, "B": 1000}, {"A": 1000, "B": 1}, {"A": 37, "B": 41})


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    found: list[Lifetime] = []
    numbers = [Dim.constant(1), Dim.constant(100)]
    factors = numbers if draw(st.booleans()) else [*numbers, *map(Dim.of, ("A", "B", "A*B", "A+3"))]
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.integers(0, 10))
        factor = draw(st.sampled_from(factors))
        found.append(Lifetime(factor * draw(st.integers(1, 64)), start, start + draw(st.integers(0, 5))))
    return found


@given(lifetimes())
def test_buffers_that_live_at_one_time_are_apart_for_all_sizes(given_lifetimes: list[Lifetime]) -> None:
    layout = lay_out(given_lifetimes)
    for sizes in SIZES:
        assert first_overlap(given_lifetimes, layout, sizes) is None
        assert layout.total.evaluate(sizes) <= naive_total(given_lifetimes).evaluate(sizes)
        live_at = [
            sum(one.bytes.evaluate(sizes) for one in given_lifetimes if one.start <= t <= one.end) for t in range(16)
        ]
        assert layout.total.evaluate(sizes) >= max(live_at)
        for one, offset in zip(given_lifetimes, layout.offsets, strict=True):
            assert offset.evaluate(sizes) % ALIGNMENT == 0
            assert offset.evaluate(sizes) + one.bytes.evaluate(sizes) <= layout.total.evaluate(sizes)


def test_known_sizes_are_packed() -> None:
    # Two that live together fit where the large one was, one after the other.
    held = [Lifetime(Dim.constant(size), start, end) for size, start, end in ((128, 0, 1), (64, 2, 3), (64, 2, 3))]
    assert lay_out(held).total == Dim.constant(128)


def test_the_check_finds_an_overlap() -> None:
    held = [Lifetime(Dim.of("4*A"), 0, 2), Lifetime(Dim.of("4*B"), 2, 3)]
    layout = lay_out(held)
    wrong = type(layout)((Dim.constant(0), Dim.of("4*A - 4")), layout.total)
    assert first_overlap(held, layout, {"A": 8, "B": 8}) is None
    assert first_overlap(held, wrong, {"A": 8, "B": 8}) == (0, 1)


def test_a_chain_of_any_length_needs_two_buffers() -> None:
    chain = [Lifetime(Dim.of("256*A"), step, step + 1) for step in range(20)]
    assert lay_out(chain).total == Dim.of("512*A")


# Which slot a buffer takes, where sizes are symbolic: two live together, and then the third comes.


@pytest.mark.parametrize(
    ("sizes", "offsets", "total"),
    [
        # A slot of the very size is better than a larger one before it.
        (("128*A", "64*A", "64*A"), ("0", "128*A", "128*A"), "192*A"),
        # One that is large enough is better than one that must grow.
        (("64*A", "256*A", "128*A"), ("0", "64*A", "64*A"), "320*A"),
        # Of those that are large enough, the tightest.
        (("64*A + 640", "64*A + 128", "64*A"), ("0", "64*A + 640", "64*A + 640"), "128*A + 768"),
        (("64*A + 128", "64*A + 640", "64*A"), ("0", "64*A + 128", "0"), "128*A + 768"),
        # By how much the first is larger is no number, by how much the second is no more than that.
        (("128*A", "64*A + 64", "64*A"), ("0", "128*A", "0"), "192*A + 64"),
        # One that is known to be smaller grows before one that may be either.
        (("64*B", "64*A", "128*A"), ("0", "64*B", "64*B"), "128*A + 64*B"),
        (("64*A", "64*B", "128*A"), ("0", "128*A", "0"), "128*A + 64*B"),
        # Nothing is known: the first grows to the larger of the two.
        (("64*A", "64*B", "64*C"), ("0", "max(64*A, 64*C)", "0"), "max(64*A, 64*C) + 64*B"),
    ],
)
def test_a_buffer_takes_the_slot_that_fits_it_best(
    sizes: tuple[str, ...], offsets: tuple[str, ...], total: str
) -> None:
    times = ((0, 1), (0, 1), (2, 3))
    held = [Lifetime(Dim.of(size), start, end) for size, (start, end) in zip(sizes, times, strict=True)]
    layout = lay_out(held)
    assert layout.offsets == tuple(map(Dim.of, offsets))
    assert layout.total == Dim.of(total)


def test_buffers_of_numbers_fill_gaps_exactly_and_empty_ones_take_none() -> None:
    def total(*rows: tuple[int, int, int]) -> int | None:
        return lay_out([Lifetime(Dim.constant(size), start, end) for size, start, end in rows]).total.value

    # The largest two live apart in time, and the gap under the second is as large as what lives with both.
    assert total((128, 0, 1), (128, 2, 3), (64, 0, 3)) == 192
    assert total((256, 0, 2), (128, 2, 4), (64, 4, 6), (64, 4, 6)) == 384
    assert total((192, 0, 1), (64, 1, 2), (64, 2, 3), (128, 2, 3)) == 256
    assert total((0, 0, 1), (0, 0, 1)) == 0
    assert total((1, 0, 1)) == ALIGNMENT
    assert total() == 0


def test_lifetimes_overlap_at_their_ends() -> None:
    one = Lifetime(Dim.constant(1), 2, 4)
    for start, end, wanted in ((0, 1, False), (0, 2, True), (3, 3, True), (4, 9, True), (5, 9, False)):
        other = Lifetime(Dim.constant(1), start, end)
        assert one.overlaps(other) is other.overlaps(one) is wanted


def test_sizes_are_rounded_up_to_whole_lines() -> None:
    for size in (0, 1, ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1):
        assert align_bytes(Dim.constant(size)).value == -(-size // ALIGNMENT) * ALIGNMENT
    assert align_bytes(Dim.of("64*A")) == Dim.of("64*A")
    assert align_bytes(Dim.of("4*A")).evaluate({"A": 17}) == 128


# Which values share memory.

TENSOR, BUFFER = "!tgraph.tensor<[8], f32>", "!ttile.buffer<[8], f32>"
SIGNATURE = f"(%x: {TENSOR}, %y: {TENSOR}) -> ({TENSOR}, {TENSOR})"


def program_of(text: str) -> SpecOp:
    load_dialects()
    return next(iter(programs_in(parse_module(text))))


def plan() -> tuple[SpecOp, list[SpecOp]]:
    program = program_of(f"""tsched.module @f{SIGNATURE} attributes {{tessera.donated = [0]}} {{
  %v = tsched.alias %x : !tgraph.tensor<[2, 4], f32>
  %w = tsched.alias %v : {TENSOR}
  %a, %b = tsched.fuse @g(%y, %w) {{in_place = [1]}} : ({TENSOR}, {TENSOR})
  %c = tsched.fuse @g(%b) {{in_place = [0]}} : {TENSOR}
  %d = tsched.for %y {{carried = 1, length = 2}} ({{
  ^bb0(%i: {TENSOR}):
    %e = tsched.fuse @g(%i, %c) : {TENSOR}
    tsched.yield %e
  }}) : {TENSOR}
  tsched.tile %c chosen = 8
  tsched.return %a, %d
}}""")
    return program, [op for op in program.regions[0].block.ops if isinstance(op, SpecOp)]


def test_values_are_in_the_memory_of_what_they_are_written_over() -> None:
    program, (alias, again, fuse, over, loop, *_) = plan()
    x, y = program.regions[0].block.args
    for value in (x, alias.results[0], again.results[0], fuse.results[0]):
        assert root_of(value) is x
    assert root_of(y) is y
    assert root_of(fuse.results[1]) is fuse.results[1], "only the first result is written over an operand"
    assert root_of(over.results[0]) is fuse.results[1]
    assert strip_aliases(again.results[0]) is x
    assert strip_aliases(fuse.results[0]) is fuse.results[0]
    assert [overwritten_by(op).get(0) is again.results[0] for op in (alias, fuse, loop)] == [False, True, False]
    assert kept_in(program) == ((0, 0),)


def test_memory_may_be_written_that_is_donated_or_made_here() -> None:
    program, (alias, _, fuse, over, loop, *_) = plan()
    x, y = program.regions[0].block.args
    inner = loop.regions[0].block
    here = program.regions[0].block
    allowed = [(x, True), (y, False), (alias.results[0], True), (fuse.results[1], True), (over.results[0], True)]
    for value, wanted in [*allowed, (inner.args[0], False), (loop.results[0], True)]:
        assert may_be_written(here, value) is wanted, value
    for value, wanted in [(inner.args[0], True), (x, False), (over.results[0], False)]:
        assert may_be_written(inner, value) is wanted, "what is captured stays for the next iteration"


def test_readers_are_found_through_aliases_and_in_bodies() -> None:
    program, (alias, again, fuse, over, loop, *_) = plan()
    x, y = program.regions[0].block.args
    inner = loop.regions[0].block.first_op
    assert inner is not None
    for value in (x, alias.results[0], again.results[0]):
        assert list(readers_of(value)) == [fuse]
    assert set(readers_of(y)) == {fuse, loop}
    assert list(readers_of(over.results[0])) == [inner], "what is said of a group reads nothing"
    block = program.regions[0].block
    assert enclosing_op(inner, block) is loop
    assert enclosing_op(fuse, block) is fuse


@pytest.mark.parametrize(
    ("body", "freed_behind"),
    [
        ("tsched.copy %a, %x", "copy"),
        ("tsched.copy %a, %x\ntsched.tile %a chosen = 8", "copy"),
        ("tsched.copy %a, %x\ntsched.copy %x, %a\ntsched.guard {left = 1, right = 1}", "copy copy"),
        (f"%v = tsched.alias %a : {BUFFER}\ntsched.copy %x, %a\ntsched.copy %v, %x", "alias copy copy"),
        ("tsched.if %p ({\ntsched.copy %a, %x\ntsched.yield\n}, {\ntsched.yield\n})", "if"),
        (
            f"%r = tsched.for %a, %x {{carried = 1, length = 2}} ({{\n^bb0(%i: {BUFFER}, %o: {BUFFER}):\ntsched.yield\n"
            f"}}) : {BUFFER}\ntsched.copy %r, %x",
            "for copy",
        ),
        ("", ""),
    ],
)
def test_a_buffer_is_freed_behind_its_last_use(body: str, freed_behind: str) -> None:
    program = program_of(f"""tsched.module @f(%x: {BUFFER}, %p: !ttile.buffer<[], bool>) attributes {{workspace = 0}} {{
  %q = tsched.alloc {{output = 0}} : {BUFFER}
  %a = tsched.alloc : {BUFFER}
  {body}
  tsched.return
}}""")
    insert_frees(program.regions[0].block)
    names = [op.name.removeprefix("tsched.") for op in program.regions[0].block.ops]
    assert names.count("free") == 1, "a result is not freed"
    assert names[2 : names.index("free")] == freed_behind.split()


def test_what_a_body_yields_is_freed_before_its_end() -> None:
    program = program_of(f"""tsched.module @f(%x: {BUFFER}, %y: {BUFFER}) attributes {{workspace = 0}} {{
  %w = tsched.while %x, %y ({{
  ^bb0(%c: {BUFFER}):
    %p = tsched.alloc : !ttile.buffer<[], bool>
    tsched.call @test(%c, %p)
    tsched.yield %p
  }}, {{
  ^bb0(%i: {BUFFER}, %o: {BUFFER}):
    tsched.yield
  }}) : {BUFFER}
  tsched.return
}}""")
    loop = program.regions[0].block.first_op
    assert loop is not None
    block = loop.regions[0].block
    insert_frees(block)
    assert [op.name.removeprefix("tsched.") for op in block.ops] == ["alloc", "call", "free", "yield"]
