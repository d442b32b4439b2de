"""Reductions of transposed tensors: the same bits from the source, and rows apart in memory that are copied once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.ir.base.build import Build
from tessera.ir.base.dialect_of import make
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import POLICY
from tessera.ir.base.types import TensorAttr
from tessera.ir.base.verify import verify
from tessera.ir.graph.dialect import from_tape, new_function
from tessera.ir.graph.passes.reduce_transposed import ReduceTransposed
from tessera.ir.graph.typed_ops import TransposeOp
from tessera.types import dtype as dt
from tessera.types.device import DEVICE
from tessera.types.shape import TensorType

SHAPE = (3, 4, 5)


@st.composite
def reductions(draw: st.DrawFn) -> Any:
    """A permutation, axes, a kind, whether dims are kept, and whether a conversion comes between."""
    axes = draw(st.sets(st.integers(0, 2), min_size=1))
    kind = draw(st.sampled_from(["sum", "prod", "max", "min", "argmax"]))
    return (
        draw(st.permutations(range(3)).map(tuple)),
        tuple(sorted(axes)),
        kind,
        draw(st.booleans()),
        draw(st.booleans()),
    )


@given(reductions())
def test_meaning_is_kept_and_sources_are_reduced_in_the_same_order(drawn: Any) -> None:
    permutation, axes, kind, keepdims, is_cast = drawn
    function, block = new_function("f", [TensorAttr.of(TensorType.of(SHAPE, dt.f32))])
    build = Build(block)
    value = build.emit("transpose", block.args[0], axes=permutation)
    value = build.emit("cast", value, dtype=dt.f64) if is_cast else value
    found = build.emit(kind, value, axes=axes, keepdims=keepdims)
    block.add_op(make("tgraph.return", [found]))
    module = ModuleOp([function])
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    (before,) = interpret(function, x)
    ReduceTransposed().run(module)
    verify(module)
    (after,) = interpret(function, x)
    np.testing.assert_array_equal(after, before)
    sources = [permutation[axis] for axis in axes]
    big = [op for op in module.walk() if isinstance(op, TransposeOp) and op.operands[0] is block.args[0]]
    assert bool(big) == (sources != sorted(sources))


def test_what_is_moved_keeps_its_policy_and_device() -> None:
    """A kernel of it is checked by the policy that its ops carry, and runs where they say."""

    def program(x: Any) -> Any:
        with ts.policy(storage=ts.bf16, accumulate=ts.f32), ts.device(ts.cpu):
            view = ts.ops.transpose(x, (2, 0, 1)).cast(ts.f32)
            return ts.ops.max(view, axis=1)

    module = from_tape(ts.jit(program).trace(np.ones(SHAPE, np.float16)).tape)
    before = {op.name: sorted(op.attributes) for op in module.walk() if isinstance(op, SpecOp) and op.results}
    ReduceTransposed().run(module)
    after = [op for op in module.walk() if isinstance(op, SpecOp) and op.results]
    assert [op.name for op in after[:3]] == ["tgraph.cast", "tgraph.max", "tgraph.transpose"]
    for op in after:
        assert sorted(op.attributes) == before[op.name]
        assert {POLICY, DEVICE} <= set(op.attributes)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))), ids=str)
def test_rows_that_are_apart_in_memory_have_the_bits_of_their_copy(permutation: tuple[int, ...], dtype: str) -> None:
    """A softmax of a transposed tensor, which is copied first where rows are gathered, against one of a real copy."""
    x = np.random.default_rng(2).standard_normal((33, 20, 70)).astype(dtype)

    @ts.jit
    def of_view(x: Any) -> Any:
        view = ts.ops.transpose(x, permutation)
        return ts.ops.log_softmax(view, axis=-1), view.sum(axis=0), ts.ops.max(view, axis=-1)

    @ts.jit
    def of_copy(x: Any) -> Any:
        return ts.ops.log_softmax(x, axis=-1), x.sum(axis=0), ts.ops.max(x, axis=-1)

    copy = np.ascontiguousarray(x.transpose(permutation))
    for found, expected in zip(of_view(x), of_copy(copy), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_a_transposed_tensor_is_copied_where_rows_are_read_several_times() -> None:
    x = np.ones((64, 48), np.float32)

    def of_transposed(x: Any) -> Any:
        return ts.ops.softmax(x.T, axis=-1)

    def of_rows(x: Any) -> Any:
        return ts.ops.softmax(x, axis=-1)

    def sum_of_transposed(x: Any) -> Any:
        return x.T.sum(axis=-1)

    for function, count in ((of_transposed, 2), (of_rows, 1), (sum_of_transposed, 1)):
        jitted: Any = ts.jit(function)
        jitted(x)
        assert len(jitted.explain(x).report["kernels"]) == count
