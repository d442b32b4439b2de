"""Consumers among themselves, simulated: turns, lags, stages that both leave, and what shows where one is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, attribute_of
from tests.backends.nvptx.matrices import arrays_of, causal, kernels_of, nt
from tests.backends.nvptx.test_passes import hopper, into_f32, product_of, without
from tests.oracles.nvptx_simulator import DeadlockError, Event, Order, simulate

HEADS = [(1, 1, 130, 128), (1, 1, 400, 128), (1, 1, 400, 128)]
ORDERS = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (2, 1)]
"""Who goes ahead: the producer (0), either consumer, or two of them."""


@cache
def _turning() -> SpecOp:
    (kernel,) = kernels_of(causal, HEADS)
    return hopper(kernel)


def turning() -> SpecOp:
    """Attention of two consumers that take turns at starting dots."""
    made = _turning().clone()
    assert isinstance(made, SpecOp)
    return made


def attended(kernel: SpecOp, order: Order | None = None) -> tuple[Any, list[Event]]:
    """What a kernel makes of random queries, keys and values, and what happened."""
    rng = np.random.default_rng(1)
    arrays: list[Any] = []
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        shape = [dim.value or 0 for dim in argument.type.shape]
        arrays.append(rng.standard_normal(shape).astype(ml_dtypes.bfloat16))
    arrays[3][...] = np.nan
    events = simulate(kernel, arrays, {}, order)
    return arrays[3].astype(np.float32), events


@cache
def usual() -> tuple[Any, list[Event]]:
    """The same of the kernel as it is, in the usual order."""
    return attended(turning())


def ops_of(kernel: SpecOp, name: str, **values: Any) -> list[SpecOp]:
    found = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == f"ttarget.{name}"]
    return [op for op in found if all(op.value(key) == value for key, value in values.items())]


def intruders(events: Sequence[Event]) -> int:
    """Dots that a consumer starts while the other has the turn."""
    holder, found = None, 0
    for event in events:
        if event.op == "take":
            holder = event.consumer
        elif event.op == "pass" and event.consumer == holder:
            holder = None
        elif event.op == "mma_issue":
            found += holder not in (None, event.consumer)
    return found


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(ORDERS), st.sampled_from([1, 2]))
def test_no_order_of_roles_changes_a_bit_of_attention(ahead: tuple[int, ...], ctas: int) -> None:
    expected, _ = usual()
    assert not np.isnan(expected).any()
    found, _ = attended(turning(), Order(ahead, ctas))
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([(64, 64, 64), (128, 64, 64), (192, 128, 64)]),
    st.sampled_from([*ORDERS, (3,), (0, 3), (3, 2, 1)]),
    st.integers(1, 3),
    st.integers(1, 300),
)
def test_no_order_of_roles_changes_a_product(block: Any, ahead: tuple[int, ...], ctas: int, rows: int) -> None:
    """One to three consumers, each with its rows, of which the last ones may have none that are there."""
    (kernel,) = kernels_of(nt, [(rows, 200), (72, 200)], overrides={"contraction.block": block})
    arrays = arrays_of(kernel)
    simulate(hopper(kernel), arrays, {}, Order(ahead, ctas))
    np.testing.assert_array_equal(arrays[-1].astype(np.float64), product_of("nt", kernel))


@pytest.mark.parametrize("ahead", [(0,), (1,), (0, 2), (1, 2)])
def test_consumers_take_turns_whoever_is_faster(ahead: tuple[int, ...]) -> None:
    _, events = attended(turning(), Order(ahead))
    takes = [event.consumer for event in events if event.op == "take"]
    assert takes[:4] == [0, 1, 0, 1]
    assert sorted(takes) == [0] * (len(takes) // 2) + [1] * (len(takes) // 2)
    assert intruders(events) == 0


def test_turns_that_are_passed_before_they_are_taken_are_a_deadlock_that_is_told() -> None:
    """The second consumer's first turn meets the one that was there from the beginning, and both are lost."""
    swapped = turning()
    for op in ops_of(swapped, "pingpong"):
        op.properties["mode"] = attribute_of("str", "take" if op.value("mode") == "pass" else "pass")
    with pytest.raises(DeadlockError, match=r"consumer 0 in `ttarget\.pingpong`, which consumer 1 passes"):
        attended(swapped)


def test_a_turn_that_is_not_passed_is_a_deadlock_that_is_told() -> None:
    broken = turning()
    for op in ops_of(broken, "pingpong", mode="pass"):
        op.detach()
        op.erase()
    with pytest.raises(DeadlockError, match=r"consumer 1 in `ttarget\.pingpong`, which consumer 0 passes"):
        attended(broken)


def test_a_turn_that_is_passed_and_never_taken_lets_both_in() -> None:
    broken = turning()
    for op in ops_of(broken, "pingpong", mode="take"):
        op.detach()
        op.erase()
    _, events = attended(broken)
    started, kept = ([event.consumer for event in one if event.op == "mma_issue"] for one in (events, usual()[1]))
    assert sorted(started) == sorted(kept)
    assert started != kept


def test_a_turn_taken_twice_is_a_deadlock_that_is_told() -> None:
    broken = turning()
    take = ops_of(broken, "pingpong", mode="take")[0]
    block = take.parent_block()
    assert block is not None
    block.insert_op_before(take.clone(), take)
    with pytest.raises(DeadlockError, match=r"in `ttarget\.pingpong`, which consumer"):
        attended(broken)


LAGGING = (128, 128, 1280)


def lagging(stages: int | None = None) -> tuple[SpecOp, SpecOp]:
    """A dot of 8-bit floats whose second consumer begins some stages behind the first; and its tile kernel."""
    m, n, k = LAGGING
    overrides = {"contraction.block": (128, 128, 64)}
    (kernel,) = kernels_of(into_f32, [(m, k), (n, k)], ml_dtypes.float8_e4m3fn, overrides=overrides)
    made = hopper(kernel, lag=3)
    if stages is not None:
        (lag,) = ops_of(made, "lag")
        lag.properties["stages"] = attribute_of("int", stages)
    return made, kernel


def begun(events: Sequence[Event]) -> dict[int, int]:
    """How many stages had been copied in part when each consumer started its first dot."""
    found: dict[int, int] = {}
    copied = 0
    for event in events:
        copied = max(copied, event.passed + 1) if event.op == "copy" else copied
        if event.op == "mma_add":
            found.setdefault(event.consumer, copied)
    return found


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_consumer_that_lags_begins_so_many_stages_later(stages: int) -> None:
    """Seen where consumers run ahead, as they do where memory is slow; and the numbers are the same."""
    made, kernel = lagging(stages)
    arrays = arrays_of(kernel)
    events = simulate(made, arrays, {}, Order((1, 2)))
    assert begun(events) == {0: 1, 1: 1 + stages}
    np.testing.assert_array_equal(arrays[-1].astype(np.float64), product_of("nt", kernel))


def test_without_a_lag_both_begin_at_once() -> None:
    made, kernel = lagging()
    events = simulate(without(made, "lag"), arrays_of(kernel), {}, Order((1, 2)))
    assert begun(events) == {0: 1, 1: 1}


def test_a_lag_beyond_the_ring_is_a_deadlock_that_is_told() -> None:
    made, kernel = lagging()
    (ring,) = ops_of(made, "ring")
    count = ring.value("stages")
    made, kernel = lagging(count)
    with pytest.raises(DeadlockError, match=rf"consumer 1 in `ttarget\.lag` for stage {count} of {count}"):
        simulate(made, arrays_of(kernel), {})


def test_a_lag_for_more_than_a_cta_ever_copies_is_a_deadlock_that_is_told() -> None:
    """A CTA with one program of two steps fills two stages, and the second consumer waits for the third."""
    made, kernel = lagging(2)
    for loop in ops_of(made, "steps"):
        loop.properties["step"] = attribute_of("int", LAGGING[2] // 2)
    with pytest.raises(DeadlockError, match=r"consumer 1 in `ttarget\.lag` for stage 2 of"):
        simulate(made, arrays_of(kernel), {})


def test_a_stage_is_empty_when_both_consumers_have_left_it() -> None:
    """The simulation is not blind: where the faster one leaves twice, the slower one reads a later stage."""
    overrides = {"contraction.block": (128, 64, 64), "pipeline.stages": 2}
    (kernel,) = kernels_of(nt, [(128, 1024), (64, 1024)], overrides=overrides)
    order = Order((0, 1))
    whole, broken = hopper(kernel), hopper(kernel)
    assert whole.value("consumers") == 2
    arrays = arrays_of(kernel)
    simulate(whole, arrays, {}, order)
    np.testing.assert_array_equal(arrays[-1].astype(np.float64), product_of("nt", kernel))
    for op in ops_of(broken, "release"):
        block = op.parent_block()
        assert block is not None
        block.insert_op_after(op.clone(), op)
    arrays = arrays_of(kernel)
    simulate(broken, arrays, {}, order)
    assert (arrays[-1].astype(np.float64) != product_of("nt", kernel)).any()
