"""The allocator: aligned, reused, bounded, counted, safe on many threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.runtime.native.support import Support
from tessera.runtime.tensor import Tensor, native
from tessera.types.dtype import f32


@pytest.fixture
def memory(support: Support) -> Iterator[Support]:
    """An allocator with an empty cache; its limit is put back afterwards."""
    limit = support.memory.limit
    support.trim(0)
    yield support
    support.memory.limit = limit
    support.trim(0)


@given(st.integers(0, 1 << 23))
def test_a_block_is_aligned_and_wholly_ours(size: int) -> None:
    block = native().alloc(size)
    assert block % 64 == 0
    ctypes.memset(block, 0xAB, size)
    native().free(block)


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=20))
def test_blocks_in_use_do_not_overlap(sizes: list[int]) -> None:
    blocks = [(native().alloc(size), size) for size in sizes]
    ordered = sorted(blocks)
    for (start, size), (after, _) in pairwise(ordered):
        assert start + size <= after
    for block, _ in blocks:
        native().free(block)


@pytest.mark.parametrize("size", [1, 64, 1000, 1 << 16, 3 << 20, 40 << 20])
def test_a_freed_block_is_reused(memory: Support, size: int) -> None:
    first = memory.alloc(size)
    memory.free(first)
    hits = memory.memory.hits
    assert memory.alloc(size) == first
    assert memory.memory.hits == hits + 1
    memory.free(first)


def test_large_blocks_are_aligned_for_huge_pages(memory: Support) -> None:
    block = memory.alloc(5 << 20)
    assert block % (2 << 20) == 0
    memory.free(block)


def test_at_most_a_quarter_is_wasted(memory: Support) -> None:
    for size in [257, 1025, 5000, 70000, 1 << 20, (1 << 20) + 1, 9_999_999]:
        memory.trim(0)
        memory.free(memory.alloc(size))
        assert size <= memory.memory.cached <= size * 1.25 + 64


@pytest.mark.parametrize("size", [0, 1, 65, 5000, (2 << 20) + 1])
def test_what_was_asked_for_is_in_use(memory: Support, size: int) -> None:
    """Not the class of the block, so that a plan can be compared; a block that is reused counts as it is asked for."""
    memory.trim(0)
    before = memory.memory.in_use
    for asked in (size, max(size - 1, 0)):
        block = memory.alloc(asked)
        assert memory.memory.in_use == before + asked
        memory.free(block)
        assert memory.memory.in_use == before


def test_the_cache_stays_within_its_limit(memory: Support) -> None:
    memory.memory.limit = 10 << 20
    blocks = [memory.alloc(1 << 20) for _ in range(30)]
    for block in blocks:
        memory.free(block)
        assert memory.memory.cached <= 10 << 20
    assert memory.memory.cached > 5 << 20
    big = memory.alloc(64 << 20)
    memory.free(big)
    assert memory.memory.cached <= 10 << 20


def test_trimming_gives_everything_back(memory: Support) -> None:
    blocks = [memory.alloc(size) for size in (100, 5000, 3 << 20)]
    for block in blocks:
        memory.free(block)
    assert memory.memory.cached > 0
    memory.trim(0)
    assert memory.memory.cached == 0


def test_an_absurd_request_is_refused(memory: Support) -> None:
    assert memory.alloc(1 << 62) is None
    used = memory.memory.in_use
    assert memory.alloc(1 << 46) is None
    assert memory.memory.in_use == used
    with pytest.raises(MemoryError):
        Tensor.empty((1 << 30, 1 << 20), f32)


def test_freeing_nothing_is_allowed(memory: Support) -> None:
    memory.free(None)


def test_threads_share_the_allocator(memory: Support) -> None:
    used = memory.memory.in_use
    failures: list[str] = []

    def churn(seed: int) -> None:
        for turn in range(300):
            blocks = [memory.alloc((seed * 37 + turn * 11 + k * 640) % 9000 + 1) for k in range(8)]
            for block in blocks:
                ctypes.c_int64.from_address(block).value = seed
            if any(ctypes.c_int64.from_address(block).value != seed for block in blocks):
                failures.append(f"thread {seed} found another's mark")
            for block in blocks:
                memory.free(block)

    threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert memory.memory.in_use == used


def test_a_dead_tensor_gives_its_memory_back(memory: Support) -> None:
    used = memory.memory.in_use
    tensor = Tensor.empty((1000, 1000), f32)
    address = tensor.address
    assert memory.memory.in_use >= used + 4_000_000
    del tensor
    assert memory.memory.in_use == used
    again = Tensor.empty((1000, 1000), f32)
    assert again.address == address
