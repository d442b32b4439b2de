"""Kernels run by threads of this machine: an element that nobody stores is found, whatever bits it should have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tessera.backends.nvptx.text import KernelCode
from tests.oracles import native_threads
from tests.oracles.native_threads import check_stored, kernels_of, run, unused_bits

Change = Callable[[Callable[[KernelCode], KernelCode]], None]


def double(x: Any) -> Any:
    return x * 2.0


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Change:
    """Makes `run` take another kernel than the compiler's."""

    def set_kernel(make: Callable[[KernelCode], KernelCode]) -> None:
        def changed(*given: Any) -> tuple[KernelCode, ...]:
            return tuple(make(code) for code in kernels_of(*given))

        monkeypatch.setattr(native_threads, "kernels_of", changed)

    return set_kernel


@pytest.mark.parametrize("count", [5, 1000, 1_000_001])
def test_all_elements_are_stored(count: int) -> None:
    found, wanted = run(double, [np.arange(count, dtype=np.float32)])
    assert found.tobytes() == wanted.tobytes()
    assert (len(found) == count) or count > 1_000_000  # of many blocks a few run


def test_a_block_that_does_not_run_is_told(change: Change) -> None:
    def drop_block(code: KernelCode) -> KernelCode:
        return replace(code, grid=code.grid - code.programs)

    change(drop_block)
    with pytest.raises(AssertionError, match=r"\d+ of 100000 elements are never stored, \[\(\d+,\)"):
        run(double, [np.arange(100_000, dtype=np.float32)])


def test_a_thread_that_stores_nothing_is_told(change: Change) -> None:
    """One store of the text is left out."""

    def drop_store(code: KernelCode) -> KernelCode:
        lines = code.text.splitlines()
        stores = [number for number, line in enumerate(lines) if line.strip().startswith("store ")]
        return replace(code, text="\n".join(line for number, line in enumerate(lines) if number != stores[0]))

    change(drop_store)
    with pytest.raises(AssertionError, match="are never stored"):
        run(double, [np.arange(4096, dtype=np.float32)])


def test_blocks_that_ran_account_for_their_elements() -> None:
    out = np.array([7, 7, 1, 2, 7, 7, 7, 7])
    check_stored(out, 7, 4, [2])  # one of four blocks, which has two elements
    out[2] = 7
    with pytest.raises(AssertionError, match=r"7 of 8 elements are never .* that did not run have 3"):
        check_stored(out, 7, 4, [1])


def test_the_bits_that_a_result_begins_with_are_none_of_it() -> None:
    usual = unused_bits(np.zeros(3, np.int8))
    assert unused_bits(np.array([usual, usual + 2], np.uint8)) == usual + 1
