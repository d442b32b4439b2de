"""Reads of bodies, from facets, against what a NaN in each element of the input reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.schedule.plan import tape_in
from tessera.ir.schedule.planning.halo import infer_halo
from tessera.ir.schedule.planning.stencils import Reads, halo_of, reads_of
from tessera.types.dim import Dim

load_dialects()
SIZE = 12
WEIGHTS = np.ones((1, 1, 3), np.float32)


def graph_reads(function: Callable[[Any], Any], *shape: int) -> Reads:
    """How a function reads its argument, from its Graph IR."""
    text = ts.jit(function).lower(np.zeros(shape, np.float32)).graph
    (body,) = [op for op in parse_module(text).ops if op.name == "tgraph.func"]
    assert isinstance(body, SpecOp)
    (reads,) = reads_of(tape_in(body))
    return reads


def numpy_reads(function: Callable[[Any], Any], axis: int, *shape: int) -> tuple[dict[int, set[int]], int]:
    """The elements along an axis that each result element reads, along its last axis: where a NaN comes through."""
    reads: dict[int, set[int]] = {}
    count = 0
    for at in range(shape[axis]):
        x = np.zeros(shape, np.float32)
        x[(slice(None),) * axis + (at,)] = np.nan
        result = np.asarray(function(ts.array(x)).numpy())
        count = result.shape[-1]
        reached = np.isnan(result).reshape(-1, count).any(0)
        for i in np.flatnonzero(reached):
            reads.setdefault(int(i), set()).add(at)
    return reads, count


def check(function: Callable[[Any], Any], *shape: int) -> None:
    axis = len(shape) - 1
    read = graph_reads(function, *shape)[0][axis]
    assert read is not None
    reads, count = numpy_reads(function, axis, *shape)
    size = shape[axis]
    for ranks in (rank for rank in (1, 2, 3, 4, 6) if size % rank == 0 and count % rank == 0):
        halo = infer_halo(read.access, size, count, ranks)
        own, made = size // ranks, count // ranks
        for rank in range(ranks):
            elements = set[int]().union(*(reads.get(i, set()) for i in range(rank * made, (rank + 1) * made)))
            low = max([rank * own - at for at in elements if at < rank * own], default=0)
            high = max([at - (rank + 1) * own + 1 for at in elements if at >= (rank + 1) * own], default=0)
            assert halo.each[rank] == (low, high), (ranks, rank)


STENCILS: dict[str, Callable[[Any], Any]] = {
    "map": lambda x: x * 2,
    "slice": lambda x: x[..., 2:],
    "strided": lambda x: x[..., ::2],
    "difference": lambda x: x[..., 1:] - x[..., :-1],
    "3-point": lambda x: x[..., 2:] + x[..., 1:-1] + x[..., :-2],
    "conv": lambda x: ops.conv1d(x, WEIGHTS, padding=1),
    "dilated": lambda x: ops.conv1d(x, WEIGHTS, padding=2, dilation=2),
    "stride": lambda x: ops.conv1d(x, WEIGHTS, padding=1, stride=2),
    "residual": lambda x: ops.relu(ops.conv1d(x, WEIGHTS, padding=1)) + x,
    "twice": lambda x: ops.conv1d(ops.conv1d(x, WEIGHTS), WEIGHTS),
}


@pytest.mark.parametrize("name", STENCILS)
def test_what_facets_say_is_what_is_read(name: str) -> None:
    check(STENCILS[name], 1, 1, SIZE)


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 3), st.integers(0, 2))
def test_windows_behind_slices(stride: int, dilation: int, pad: int, start: int) -> None:
    def function(x: Any) -> Any:
        return ops.conv1d(x[..., start:], WEIGHTS, padding=pad, stride=stride, dilation=dilation)

    if SIZE - start + 2 * pad > 2 * dilation:
        check(function, 1, 1, SIZE)


def test_what_is_summed_or_shuffled_is_read_in_whole() -> None:
    assert graph_reads(lambda x: ops.softmax(x, axis=-1), 4, 6)[0][1] is None
    assert graph_reads(lambda x: ops.conv1d(x, np.ones((2, 3, 3), np.float32)), 1, 3, 8)[0][1] is None
    flipped = graph_reads(lambda x: ops.flip(x, axis=1), 4, 6)[0]
    assert flipped[1] is None
    assert flipped[0] is not None
    transposed = graph_reads(lambda x: ops.transpose(x), 4, 6)[0]
    assert [read.axis for read in transposed if read is not None] == [1, 0]


def test_a_symbolic_dim_has_the_halo_of_wide_blocks() -> None:
    read = graph_reads(lambda x: ops.conv1d(x, WEIGHTS, padding=1), 1, 1, SIZE)[0][2]
    assert read is not None
    n = Dim.symbol("N")
    assert halo_of(read, n, n, 4).each == infer_halo(read.access, 64, 64, 4).each
    assert halo_of(read, n, n, 1).each == ((0, 0),)
