"""Score programs on whole matrices of scores: on arrays, which is their meaning, and composed of graph ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.base.scalar_reference import meaning_of
from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import cast, constant
from tessera.ir.graph.ops.indexing import legal_array
from tessera.ir.graph.score_programs import Lines, evaluate
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.shape import ONE, Shape

# On arrays: floats in f64, and nothing is rounded.


class ArrayArithmetic:
    """Lines on NumPy arrays of [batch, heads, queries, keys], of which axes that nothing depends on are 1."""

    def __init__(self, captures: Sequence[Array]) -> None:
        self.captures = captures

    def elementwise(self, fn: str, *values: Array) -> Array:
        made: Any = meaning_of(fn, dtype_of(values[0]))(*values)
        return np.asarray(made, np.bool_) if SCALAR_FUNCTIONS[fn].is_predicate else np.asarray(made, values[0].dtype)

    def select(self, condition: Array, first: Array, second: Array) -> Array:
        return np.where(condition, first, second)

    def cast(self, value: Array, dtype: DType) -> Array:
        return value.astype(np.float64 if dtype.is_float else numpy_dtype(dtype))

    def constant(self, value: Any, dtype: DType) -> Array:
        return np.full((1, 1, 1, 1), value, np.float64 if dtype.is_float else numpy_dtype(dtype))

    def load(self, capture: int, indices: Sequence[tuple[int, Array]]) -> Array:
        table = self.captures[capture]
        table = table.astype(np.float64) if dtype_of(table).is_float else table
        if not indices:
            return table.reshape(1, 1, 1, 1)
        places = np.broadcast_arrays(
            *(legal_array(index, size) for (_, index), size in zip(indices, table.shape, strict=True))
        )
        return table[tuple(places)] if table.size else np.zeros(places[0].shape, table.dtype)


def index_arrays(batch: int, heads: int, queries: int, keys: int) -> list[Array]:
    """Where scores are: batches, heads, queries and keys as arrays that broadcast."""
    sizes = (batch, heads, queries, keys)
    return [
        np.arange(size, dtype=np.int32).reshape([size if axis == own else 1 for axis in range(4)])
        for own, size in enumerate(sizes)
    ]


def apply_to_arrays(scores: Array, score: Lines, mask: Lines, captures: Sequence[Array]) -> Array:
    """Scores in f64, changed by a program, and -inf where another says that they are hidden."""
    where, arithmetic = index_arrays(*scores.shape), ArrayArithmetic(captures)
    with np.errstate(all="ignore"):
        made = evaluate(score, [scores, *where], arithmetic)[-1] if score else scores
        seen = evaluate(mask, [scores, *where], arithmetic)[-1] if mask else np.True_
        return np.where(np.broadcast_to(seen, scores.shape), np.broadcast_to(made, scores.shape), -np.inf)


# As graph ops.


class GraphArithmetic:
    """Lines as graph ops on tensors of rank 4, of which axes that nothing depends on are 1."""

    def __init__(self, b: Builder, captures: Sequence[Any]) -> None:
        self.b, self.captures = b, captures

    def elementwise(self, fn: str, *values: Any) -> Any:
        ops = SCALAR_FUNCTIONS[fn].graph_ops
        dtype = self.b.type_of(values[0]).dtype
        return self.b.emit(next(op.name for op in ops if dtype.name in op.dtypes), *values)

    def select(self, condition: Any, first: Any, second: Any) -> Any:
        return self.b.emit("where", condition, first, second)

    def cast(self, value: Any, dtype: DType) -> Any:
        return cast(self.b, value, dtype)

    def constant(self, value: Any, dtype: DType) -> Any:
        return self.b.emit("full", shape=(ONE,) * 4, value=value, dtype=dtype)

    def load(self, capture: int, indices: Sequence[tuple[int, Any]]) -> Any:
        table = self.captures[capture]
        if not indices:
            return self.b.emit("reshape", table, shape=(ONE,) * 4)
        places = [index for _, index in indices]
        axes = tuple(range(len(places)))
        return self.b.emit("index_get", table, *places, axes=axes, out_axis=0, may_be_empty=True)


def index_values(b: Builder, shape: Shape) -> list[Any]:
    """Where scores of [batch, heads, queries, keys] are, as tensors that broadcast."""
    own = [tuple(dim if axis == at else ONE for axis in range(4)) for at, dim in enumerate(shape)]
    return [b.emit("iota", shape=sizes, axis=axis, dtype=dt.i32) for axis, sizes in enumerate(own)]


def apply_as_ops(b: Builder, scores: Any, score: Lines, mask: Lines, captures: Sequence[Any]) -> Any:
    """Scores changed by a program, and -inf where another says that they are hidden, by graph ops."""
    kind, arithmetic = b.type_of(scores), GraphArithmetic(b, captures)
    where, hidden = index_values(b, kind.shape), constant(b, float("-inf"), kind.dtype)
    made = scores
    if score:
        made = cast(b, evaluate(score, [scores, *where], arithmetic)[-1], kind.dtype)
        made = b.emit("broadcast_to", made, shape=kind.shape)
    if not mask:
        return made
    return b.emit("where", evaluate(mask, [scores, *where], arithmetic)[-1], made, hidden)
