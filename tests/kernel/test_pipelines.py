"""Pipelines across steps of a loop: a block loaded a step ahead is the block of now, and misuse is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera import KTile, Schedule, f32, kernel, tile
from tessera.diagnostics.codes import KernelError
from tests.kernel import kernels
from tests.kernel.compare import agree, arrays

RNG = np.random.default_rng(8)
SMALL = Schedule(block=(16, 16, 16))


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@kernel(SMALL)
def ahead(a: KTile["M", "K"], b: KTile["K", "N"], *, slots: int) -> Any:
    """A product whose left blocks are one step ahead."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    steps = tile.range_k(a.shape, T.k)
    with tile.pipeline(slot_count=slots) as slot:
        slot.load(a, rows=T.m, cols=steps.first)
        for k in steps:
            block = slot.read()
            slot = slot.next()
            slot.load(a, rows=T.m, cols=k.next)
            acc += tile.dot(block, tile.load(b, rows=k, cols=T.n))
    return acc


@kernel(SMALL)
def two_ahead(x: KTile["M", "K", f32]) -> Any:
    """The largest of each row, two blocks ahead in three slots."""
    T = tile.context()
    top = tile.full((T.m,), -tile.INF)
    steps = tile.range_k(x.shape, T.k)
    with tile.pipeline(slot_count=3) as slot:
        slot.load(x, rows=T.m, cols=steps.first)
        second = slot.next()
        second.load(x, rows=T.m, cols=steps.first.next)
        for k in steps:
            top = tile.maximum(top, tile.max(slot.read(), 1))
            slot, second = second, second.next()
            second.load(x, rows=T.m, cols=k.next.next)
    return top


@kernel(SMALL)
def by_hand(a: KTile["M", "K", f32], b: KTile["K", "N", f32]) -> Any:
    """Blocks that are carried by name, without slots."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    steps = tile.range_k(a.shape, T.k)
    left, right = tile.load(a, rows=T.m, cols=steps.first), tile.load(b, rows=steps.first, cols=T.n)
    for k in steps:
        acc += tile.dot(left, right)
        left, right = tile.load(a, rows=T.m, cols=k.next), tile.load(b, rows=k.next, cols=T.n)
    return acc


@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 70, 9), (33, 16, 20), (16, 15, 16)], ids=str)
@pytest.mark.parametrize("slots", [2, 3])
def test_blocks_prefetched_by_a_step_change_no_bit(sizes: tuple[int, int, int], slots: int) -> None:
    M, K, N = sizes
    a, b = normal(M, K), normal(K, N)
    np.testing.assert_array_equal(agree(ahead, a, b, slots=slots)[0], arrays(kernels.matmul(a, b))[0])


@pytest.mark.parametrize("sizes", [(1, 1), (5, 40), (20, 100), (16, 32)], ids=str)
def test_blocks_prefetched_by_two_steps_are_cut_where_they_end(sizes: tuple[int, int]) -> None:
    x = -np.abs(normal(*sizes)) - 1
    np.testing.assert_array_equal(agree(two_ahead, x)[0], x.max(1))


def test_blocks_are_carried_by_name_too() -> None:
    a, b = normal(17, 70), normal(70, 9)
    np.testing.assert_array_equal(agree(by_hand, a, b)[0], arrays(kernels.matmul(a, b))[0])


def test_a_loop_carries_no_tile_for_a_slot() -> None:
    """The copy is the compiler's to place: the program is that of plain loads, but for what its author asks."""
    a, b = normal(64, 64), normal(64, 64)
    found, plain = ahead.lower(a, b, slots=2), kernels.matmul.with_schedule(SMALL).lower(a, b)
    assert "hints = {stages = 2}" in found.tile
    for op in ("ttile.load", "ttile.for", "ttile.dot"):
        assert found.tile.count(op) == plain.tile.count(op)
    assert "ttarget.gemm" in found.target  # a contraction is still seen as one


@kernel(SMALL)
def unread(x: KTile["M", "K", f32]) -> Any:
    """Fills before the loop what no step fills again."""
    T = tile.context()
    total = tile.zeros((T.m,), f32)
    steps = tile.range_k(x.shape, T.k)
    with tile.pipeline(slot_count=2) as slot:
        slot.load(x, rows=T.m, cols=steps.first)
        for _k in steps:
            total += tile.sum(slot.read(), 1)
    return total


@kernel(SMALL)
def same_again(x: KTile["M", "K", f32]) -> Any:
    """Fills for the next step what this one has had."""
    T = tile.context()
    total = tile.zeros((T.m,), f32)
    steps = tile.range_k(x.shape, T.k)
    with tile.pipeline(slot_count=2) as slot:
        slot.load(x, rows=T.m, cols=steps.first)
        for k in steps:
            total += tile.sum(slot.read(), 1)
            slot = slot.next()
            slot.load(x, rows=T.m, cols=k)
    return total


@kernel(SMALL)
def too_early(x: KTile["M", "K", f32]) -> Any:
    """Reads a slot that nothing was copied into."""
    T = tile.context()
    total = tile.zeros((T.m,), f32)
    with tile.pipeline(slot_count=2) as slot:
        for k in tile.range_k(x.shape, T.k):
            total += tile.sum(slot.read(), 1)
            slot.load(x, rows=T.m, cols=k.next)
    return total


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (unread, "starts with 1 full slots, and ends with 0"),
        (same_again, "but not the next block at the end of an iteration"),
        (too_early, "read before it was filled"),
    ],
    ids=["unread", "same_again", "too_early"],
)
def test_misuse_of_slots_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message) as raised:
        wrong(normal(5, 40))
    assert raised.value.span is not None
