"""Gradients of attention with those of the scores kept: the same numbers, by one op and a matmul."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import Build
from tessera.ir.base.dialect_of import make
from tessera.ir.base.interpret import interpret
from tessera.ir.base.types import TensorAttr
from tessera.ir.base.verify import verify
from tessera.ir.graph.dialect import new_function
from tessera.ir.graph.passes.keep_score_gradients import KeepScoreGradients
from tessera.types import dtype as dt
from tessera.types.shape import TensorType


@settings(max_examples=10)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_gradients_are_the_same_where_scores_are_kept(
    batch: int, heads: int, queries: int, keys: int, is_cut: bool
) -> None:
    """Of all batches at a time, and of one after the other."""
    rows, columns = 8 * queries, 8 * keys
    q, k = (batch, heads, rows, 128), (batch, heads, columns, 128)
    shapes = [q, k, k, q, q[:3], q[:3]]
    dtypes = [dt.bf16] * 4 + [dt.f32] * 2
    types = [TensorType.of(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    function, block = new_function("f", [TensorAttr.of(type) for type in types])
    found = Build(block).emit("attention_backward", *block.args, causal=False, scale=None)
    block.add_op(make("tgraph.return", list(found)))
    module = ModuleOp([function])
    rng = np.random.default_rng(rows)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    given = [array.astype(ml_dtypes.bfloat16) if at < 4 else array for at, array in enumerate(arrays)]
    before = interpret(function, *given)
    # As many bytes as one batch has, so that others are chunks of their own.
    KeepScoreGradients(2 * heads * rows * columns if is_cut else 1 << 30).run(module)
    verify(module)
    names = [op.name for op in module.walk()]
    assert "tgraph.attention_backward" not in names
    assert names.count("tgraph.attention_backward_keys") == (batch if is_cut else 1)
    for one, other in zip(interpret(function, *given), before, strict=True):
        wide = np.abs(other.astype(np.float64)).max()
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=2.0**-6, atol=wide * 2.0**-7)
