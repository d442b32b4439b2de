"""Buckets of all-to-alls: totals in closed form, bytes conserved, and a plan as it is shown."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.planning.all_to_all import (
    COUNT_BYTES,
    Token,
    capacity_of,
    plan_exchange,
    throttle,
)


@st.composite
def routings(draw: st.DrawFn) -> list[list[int]]:
    ranks, per_rank = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 40), min_size=ranks * per_rank, max_size=ranks * per_rank)
    return draw(st.lists(row, min_size=ranks, max_size=ranks))


@given(routings(), st.integers(1, 6), st.integers(1, 4), st.booleans(), st.sampled_from(["", "fp8"]))
def test_tokens_and_bytes_are_conserved(
    counts: list[list[int]], groups: int, align: int, is_exact: bool, quantize: str
) -> None:
    token, capacity = Token(64, 2, quantize), groups * align
    plan = plan_exchange(counts, token, capacity, is_exact=is_exact, align=align)
    ranks, experts = len(counts), len(counts[0])
    per_rank = experts // ranks
    routed = sum(map(sum, counts))
    kept = sum(min(count, capacity) for row in counts for count in row)
    assert (plan.routed, plan.kept, plan.dropped) == (routed, kept, routed - kept)
    assert plan.kept + plan.dropped == plan.routed
    assert sum(plan.load()) == kept
    size = 64 + 4 if quantize else 128
    # What one sends another gets, and a rank's experts are on it: none of their tokens travel.
    slots = [
        [min(capacity, ceil(min(c, capacity) / align) * align) if is_exact else capacity for c in r] for r in counts
    ]
    sent = [
        sum(count for expert, count in enumerate(slots[rank]) if expert // per_rank != rank) * size
        for rank in range(ranks)
    ]
    assert [plan.bytes_from(rank) for rank in range(ranks)] == sent
    assert sum(sent) == sum(plan.bytes_to(rank) for rank in range(ranks))
    assert plan.bytes == sum(sent) + (ranks * (ranks - 1) * per_rank * COUNT_BYTES if is_exact else 0)
    assert plan.padding == sum(map(sum, slots)) - kept >= 0
    if not is_exact:  # every bucket has one size, so it is known before anything is routed
        assert sent == [capacity * (experts - per_rank) * size] * ranks
    for rank in range(ranks):
        assert plan.offsets(rank)[-1] == sum(slots[rank])


@given(st.lists(st.integers(0, 7), max_size=200), st.integers(1, 40))
def test_throttled_tokens_are_those_that_buckets_keep(routing: list[int], capacity: int) -> None:
    kept = throttle(routing, 8, capacity)
    counts = Counter(routing)
    plan = plan_exchange([[counts[expert] for expert in range(8)]], Token(16), capacity)
    assert sum(kept) == plan.kept
    first: dict[int, list[bool]] = {}
    for expert, is_kept in zip(routing, kept, strict=True):
        first.setdefault(expert, []).append(is_kept)
    assert all(found == sorted(found, reverse=True) for found in first.values())  # the first of each expert stay


@given(st.integers(0, 1 << 16), st.integers(1, 256), st.integers(1, 8), st.sampled_from([1, 8, 16]))
def test_capacities_are_the_even_share(tokens: int, experts: int, top_k: int, align: int) -> None:
    if top_k > experts:
        return
    found = capacity_of(tokens, experts, top_k, 1.0, align)
    assert found % align == 0
    assert found * experts >= tokens * top_k  # a balanced routing drops nothing
    assert (found - align) * experts < max(1, tokens * top_k)


def test_the_plan_of_four_ranks() -> None:
    counts = [[5, 0, 1, 2], [3, 3, 3, 3], [0, 0, 12, 0], [1, 2, 3, 4]]
    plan = plan_exchange(counts, Token(1024, 2), capacity_of(8, 4, 1, 2.0))
    assert plan.render() == (
        "all_to_all of 4 experts over 4 ranks, padded buckets of 4 tokens\n"
        "routed = 42, kept = 33, dropped = 9, padding = 31, bytes = 98304\n"
        "rank 0 ->     8192     8192     8192     8192\n"
        "rank 1 ->     8192     8192     8192     8192\n"
        "rank 2 ->     8192     8192     8192     8192\n"
        "rank 3 ->     8192     8192     8192     8192"
    )
    exact = plan_exchange(counts, Token(1024, 2), 4, is_exact=True)
    assert exact.render().splitlines()[3] == "rank 1 ->     6144     6144     6144     6144"
    assert exact.padding == 0
    assert exact.load() == (8, 5, 11, 9)


def test_quantized_tokens_are_half_of_the_bytes_and_a_scale() -> None:
    counts = [[4, 4], [4, 4]]
    whole, half = (plan_exchange(counts, Token(4096, 2, kind), 4) for kind in ("off", "fp8"))
    assert whole.bytes == 2 * 4 * 4096 * 2
    assert half.bytes == 2 * 4 * (4096 + 4)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: plan_exchange([[1, 2, 3]] * 2, Token(8), 4), "counts are of 2 ranks for [3] experts"),
        (lambda: plan_exchange([[1], [1, 2]], Token(8), 4), "counts are of 2 ranks for [1, 2] experts"),
        (lambda: plan_exchange([[-1, 2]], Token(8), 4), "buckets have counts from 0"),
        (lambda: plan_exchange([[1, 2]], Token(8), 5, align=4), "a multiple of 4, got 5"),
        (lambda: plan_exchange([[1, 2]], Token(8, 2, "int3"), 4), "a token has elements"),
        (lambda: capacity_of(8, 4, 5), "buckets of 8 tokens to 5 of 4 experts"),
        (lambda: throttle([4], 4, 1), "expert 4 is none of 4"),
    ],
)
def test_what_is_no_plan_is_refused(call: Any, reason: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        call()
    assert reason in caught.value.message
