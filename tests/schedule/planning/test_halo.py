"""Inferred halos against every read of every element, for windows, slices, pads, shifts and compositions of them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.planning.halo import (
    IDENTITY,
    Access,
    access,
    access_of,
    convolution,
    exchanged_bytes,
    halos_of_window,
    infer_halo,
    pad_access,
    shift,
    slice_access,
)


def needed(reads: dict[int, set[int]], size: int, results: int, ranks: int) -> list[tuple[int, int]]:
    """What each rank needs below and above its block, by looking at every read of every result."""
    own, made = size // ranks, results // ranks
    found: list[tuple[int, int]] = []
    for rank in range(ranks):
        elements = {at for i in range(rank * made, (rank + 1) * made) for at in reads[i] if 0 <= at < size}
        low = max([rank * own - at for at in elements if at < rank * own], default=0)
        high = max([at - (rank + 1) * own + 1 for at in elements if at >= (rank + 1) * own], default=0)
        found.append((low, high))
    return found


def check(read: Access, reads: dict[int, set[int]], size: int, results: int, ranks: int) -> None:
    halo = infer_halo(read, size, results, ranks)
    wanted = needed(reads, size, results, ranks)
    assert list(halo.each) == wanted
    assert (halo.low, halo.high) == (max(low for low, _ in wanted), max(high for _, high in wanted))


accesses = st.builds(access, st.integers(1, 3), st.sets(st.integers(-9, 9), min_size=1, max_size=5))


@given(accesses, st.integers(1, 5), st.integers(0, 8), st.integers(0, 8))
def test_halos_are_what_is_read(read: Access, ranks: int, own: int, made: int) -> None:
    size, results = ranks * own, ranks * made
    reads = {i: {read.scale * i + offset for offset in read.offsets} for i in range(results)}
    check(read, reads, size, results, ranks)


@given(accesses, accesses, st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))
def test_compositions_read_what_their_parts_read(outer: Access, inner: Access, ranks: int, own: int, made: int) -> None:
    """The value in between is whole here: what is read of it out of bounds is read of the input all the same."""
    read = outer.of(inner)
    reads = {
        i: {inner.scale * (outer.scale * i + first) + second for first in outer.offsets for second in inner.offsets}
        for i in range(ranks * made)
    }
    check(read, reads, ranks * own, ranks * made, ranks)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 6), st.integers(1, 4), st.integers(1, 9))
def test_windows_of_convolutions(kernel: int, stride: int, dilation: int, pad: int, ranks: int, own: int) -> None:
    size = ranks * own
    results = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    assume(results > 0 and results % ranks == 0)
    reads = {i: {stride * i + dilation * k - pad for k in range(kernel)} for i in range(results)}
    check(convolution(kernel, stride, dilation, pad), reads, size, results, ranks)


def test_stencils_that_everybody_knows() -> None:
    same = infer_halo(convolution(3, pad=1), 64, 64, 4)  # 3x3, and the 5-point stencil along each of its dims
    assert (same.low, same.high, same.hops) == (1, 1, 1)
    assert same.each == ((0, 1), (1, 1), (1, 1), (1, 0))
    five = shift(1).beside(shift(-1)).beside(IDENTITY)
    assert infer_halo(five, 64, 64, 4) == same
    assert str(infer_halo(convolution(3, dilation=4, pad=4), 64, 64, 4)) == "[4, 4]"
    assert str(infer_halo(convolution(7, stride=2, pad=3), 64, 32, 4)) == "[3, 2]"
    causal = infer_halo(convolution(4, pad=3), 64, 64, 4)
    assert (causal.low, causal.high) == (3, 0)
    wide = infer_halo(shift(20), 64, 64, 4)
    assert (wide.low, wide.high, wide.hops) == (20, 0, 2)
    assert exchanged_bytes(same, 256) == 6 * 256


def test_two_stencils_one_after_the_other_have_the_sum_of_their_halos() -> None:
    twice = convolution(3, pad=1).of(convolution(5, pad=2))
    assert str(infer_halo(twice, 64, 64, 4)) == "[3, 3]"
    assert str(infer_halo(slice_access(2, 2).of(convolution(3, pad=1)), 64, 28, 4)) == "[5, 0]"
    assert pad_access(3).of(slice_access(3)) == IDENTITY


def test_a_window_over_two_dims() -> None:
    halos = halos_of_window((3, 5), (32, 64), {0: 2, 1: 4}, pad=(1, 2))
    assert {dim: str(halo) for dim, halo in halos.items()} == {0: "[1, 1]", 1: "[2, 2]"}
    with pytest.raises(ScheduleError, match="dim 2 is none of the 2 dims of a window"):
        halos_of_window((3, 5), (32, 64), {2: 2})
    with pytest.raises(ScheduleError, match="a window of 2 dims has 2 of `pad`, got 1"):
        halos_of_window((3, 5), (32, 64), {0: 2}, pad=(1,))


def test_index_expressions_are_accesses() -> None:
    assert access_of("i + 2*k - 2", "i", {"k": 3}) == convolution(3, dilation=2, pad=2)
    assert access_of("3*i + j + k", "i", {"j": 2, "k": 3}) == access(3, range(4))
    assert access_of("i - 1", "i") == shift(1)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: access_of("i*k", "i", {"k": 3}), "no halo can be inferred of `i*k`: it is not linear in `i`"),
        (lambda: access_of("i + n", "i"), "no halo can be inferred of `i + n`: `n` is neither the index nor a window"),
        (lambda: access_of("-1*i", "i"), "a stencil reads at a positive step"),
        (lambda: convolution(0), "a window has at least 1 element and 1 as dilation, got 0 and 1"),
        (lambda: infer_halo(IDENTITY, 10, 8, 4), "the input of a stencil has 10 elements, which 4 ranks do not divide"),
        (lambda: infer_halo(IDENTITY, 8, 6, 4), "the result of a stencil has 6 elements, which 4 ranks do not divide"),
        (lambda: shift(1).beside(slice_access(0, 2)), "steps 1 and 2 have no common halo"),
    ],
)
def test_what_has_no_halo_is_refused(call: object, reason: str) -> None:
    assert callable(call)
    with pytest.raises(ScheduleError) as caught:
        call()
    assert reason in caught.value.message
    assert caught.value.fix is not None
