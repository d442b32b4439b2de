"""Stretches that are read out of order are touched in order before, where a tensor is beyond the caches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backends.cpu import scattered_reads
from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.ir.target.typed_ops import LoopOp, PrefetchOp
from tessera.types import dtype as dt
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, check, kernels_of
from tests.backends.cpu.native import machines

A, B = Dim.symbol("A"), Dim.symbol("B")
Make = Callable[[Writer, int], int]


def total(w: Writer, x: int) -> int:
    return w.sum(x, axes=(1,))


def spread(w: Writer, x: int) -> int:
    """Each row is read twice: for its sum, and for squares of differences to that."""
    apart = w.sub(x, w.sum(x, axes=(1,), keepdims=True))
    return w.sum(w.mul(apart, apart), axes=(1,))


def largest(w: Writer, x: int) -> int:
    return w.max(x, axes=(1,))


def prefetches(make: Make, rows: DimLike, width: DimLike, dtype: DType = dt.f32) -> list[list[PrefetchOp]]:
    """What the kernels of a function of rows touch, for each machine."""
    found: list[list[PrefetchOp]] = []
    for machine in machines():
        w = Writer()
        kernels = kernels_of(w.body(make(w, w.input([rows, width], dtype))), machine)
        ops = [op for kernel in kernels for op in lower_kernel(kernel, machine).walk()]
        found.append([op for op in ops if isinstance(op, PrefetchOp)])
    return found


def test_a_leaf_of_a_large_tensor_is_touched_in_its_loop() -> None:
    for ops in prefetches(total, 4096, 4096):
        (op,) = ops
        assert isinstance(op.parent_op(), LoopOp)
        assert (op.elements, op.ahead, op.least) == (1024, 4096, 0)


@pytest.mark.parametrize("width", [200, 600, 1000, 1024])
def test_a_row_of_one_leaf_is_touched_by_its_program(width: int) -> None:
    for ops in prefetches(total, 40000, width):
        (op,) = ops
        assert width - 64 <= op.elements <= width
        assert op.offset.symbols == set(op.coords)


def test_the_end_of_a_row_is_touched_as_its_leaves_are() -> None:
    for ops in prefetches(total, 4000, 5000):
        assert len(ops) == 2


@pytest.mark.parametrize("make", [total, spread])
def test_what_a_cache_holds_is_read_as_it_is(make: Make) -> None:
    """8 MB are taken to be beyond the caches of a core, and 4 KB less are not."""
    assert not any(prefetches(make, 2047, 1024))
    assert all(prefetches(make, 2048, 1024))


def test_memory_that_is_read_in_order_is_not_touched() -> None:
    assert not any(prefetches(largest, 4096, 4096))


def test_a_second_pass_finds_rows_in_a_cache() -> None:
    assert [len(ops) for ops in prefetches(spread, 4096, 4096)] == [1] * len(machines())


@pytest.mark.parametrize("dtype", [dt.f64, dt.f32, dt.f16], ids=str)
def test_a_symbolic_tensor_is_touched_where_it_is_large(dtype: DType) -> None:
    for ops in prefetches(total, A, B, dtype):
        assert ops
        assert all(op.least == scattered_reads.LEAST_BYTES for op in ops)


@settings(max_examples=12)
@given(st.integers(1, 4), st.integers(1, 3300), st.sampled_from([dt.f64, dt.f32, dt.bf16]), st.booleans())
def test_touching_changes_nothing(rows: int, width: int, dtype: DType, symbolic: bool) -> None:
    """Bits, and what is around the memory of a tensor, are as they are without; small tensors are touched too here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scattered_reads, "LEAST_BYTES", 1)
        w = Writer()
        x = w.input([A, B] if symbolic else [rows, width], dtype)
        check(w.body(total(w, x)), {"A": rows, "B": width})
