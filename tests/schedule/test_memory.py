"""Memory plans: no two live buffers share a byte, and reuse never costs more than none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.schedule.host_program.memory import ALIGNMENT, Lifetime, lay_out
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
