"""Rows of a few elements on a CPU: lanes have a row each, with the bits that rows have alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.ir.schedule.emit.rows import TINY
from tessera.ir.target.typed_ops import LoadOp
from tessera.types import dtype as dt
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, check, kernel_of
from tests.backends.cpu.native import machines

A = Dim.symbol("A")


def patterns(rows: DimLike, width: int, dtype: DType = dt.f32) -> list[set[str]]:
    """How lanes read rows that are summed, for each machine."""
    found: list[set[str]] = []
    for machine in machines():
        w = Writer()
        kernel = kernel_of(w.body(w.sum(w.input([rows, width], dtype), axes=(1,))), machine)
        loads = [op for op in lower_kernel(kernel, machine).walk() if isinstance(op, LoadOp)]
        found.append({op.pattern for op in loads if op.operands[0] in kernel_arguments(op)})
    return found


def kernel_arguments(op: LoadOp) -> list[object]:
    """The arguments of the kernel around an op."""
    at = op.parent_op()
    while at is not None and at.name != "ttarget.kernel":
        at = at.parent_op()
    assert at is not None
    return list(at.regions[0].block.args)


@pytest.mark.parametrize("rows", [1000, A], ids=str)
def test_lanes_have_a_row_each_where_rows_are_tiny(rows: DimLike) -> None:
    for width in range(2, TINY + 1):
        assert patterns(rows, width) == [{"strided"}] * len(machines())
    assert patterns(rows, TINY + 1) == [{"contiguous"}] * len(machines())


def test_few_rows_have_a_vector_each() -> None:
    assert patterns(7, 3) == [{"contiguous"}] * len(machines())


@pytest.mark.parametrize("dtype", [dt.f64, dt.f32, dt.bf16, dt.i32, dt.u8], ids=str)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
def test_bits_are_those_of_a_row_alone(width: int, dtype: DType) -> None:
    """Rows that fill no vector, whole ones, and all their sums, at a static and at a symbolic count."""
    for shape in ([A, width], [131, width]):
        for name in ("sum", "max", "argmax"):
            w = Writer()
            check(w.body(w.op(name, w.input(shape, dtype), axes=(1,))), {"A": 131})


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "sum", "prod", "max", "argmin"])
def test_rows_of_a_batch_have_the_bits_of_a_row_alone(name: str, width: int) -> None:
    """A row alone has a vector, and its lanes a tree."""
    function = _over_rows(name)
    x = np.random.default_rng(width).standard_normal((129, width)).astype(np.float32)
    alone = [np.asarray(function(row[None])) for row in x]
    np.testing.assert_array_equal(np.asarray(function(x)), np.concatenate(alone))


def _over_rows(name: str) -> Any:
    def reduce(x: Any) -> Any:
        return getattr(ts.ops, name)(x, axis=1)

    return ts.jit(reduce)
