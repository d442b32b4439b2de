"""Grouped contractions: rows in groups one after the other, each group by a matrix of its own (tokens by expert).

Where groups begin is data. `ragged_dot` is planned in blocks of rows that each lie in one group: a table says of each
block its group and its rows, and has as many entries as any sizes of groups could need. So one kernel has all groups,
and a group of three rows costs one block, whatever the others have.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, KEEP, Attribute, Attributes, Builder, InferContext, OpSpec, PolicyRule, Sample
from tessera.ir.graph.building import (
    Types,
    cast,
    check_at_least,
    check_dtype,
    check_integer,
    constant,
    cost_of,
    expand,
    same_dim,
    size_value,
    slice_axis,
)
from tessera.ir.graph.ops.contraction import contract_reference, contraction_dtype, reference_dtype
from tessera.ir.graph.samples import Make, normal
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import ONE, TensorType, text

ROWS = 128
"""Rows of a block: two warpgroups of tensor cores."""
TABLE = ("matrix", "start", "end")
"""What is said of a block: its matrix, -1 for rows of no group, its first row, and the row behind its group."""
RESULT = (Attribute("dtype", "dtype", None, "dtype of the result; default the promoted dtype of the operands"),)


def _check_factors(ctx: InferContext, op: str, factors: Types, attributes: Attributes) -> DType:
    """The result's dtype, of two floats."""
    for name, factor in zip(("x", "y" if op == "ragged_outer" else "w"), factors, strict=True):
        check_dtype(ctx, op, name, factor, FLOATS)
    return contraction_dtype(ctx, op, factors, {**attributes, "accumulate": None})


def _check_offsets(ctx: InferContext, op: str, offsets: TensorType, groups: Dim) -> None:
    check_integer(ctx, op, offsets, "offsets")
    if offsets.rank != 1:
        raise ctx.fail(f"`{op}` takes a row of offsets, one more than there are groups, got {text(offsets.shape)}")
    same_dim(ctx, groups + 1, offsets.shape[0], f"`{op}` has one offset more than groups")
    check_at_least(ctx, groups, 1, f"`{op}` needs a group, which may have no rows")


def _infer_dot(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, w, offsets = types
    if x.rank != 2 or w.rank != 3:
        raise ctx.fail(
            f"`ragged_dot` takes rows [T, K] and matrices [G, K, N], got {text(x.shape)} and {text(w.shape)}"
        )
    dtype = _check_factors(ctx, "ragged_dot", (x, w), attributes)
    _check_offsets(ctx, "ragged_dot", offsets, w.shape[0])
    message = f"`ragged_dot` multiplies rows {text(x.shape)} by matrices {text(w.shape)}: the inner dimensions"
    same_dim(ctx, x.shape[1], w.shape[1], message)
    return [TensorType((x.shape[0], w.shape[2]), dtype)]


def _infer_outer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, y, offsets = types
    if x.rank != 2 or y.rank != 2 or not offsets.rank:
        raise ctx.fail(f"`ragged_outer` takes rows [T, K] and [T, N], got {text(x.shape)} and {text(y.shape)}")
    groups = offsets.shape[0] - 1
    dtype = _check_factors(ctx, "ragged_outer", (x, y), attributes)
    _check_offsets(ctx, "ragged_outer", offsets, groups)
    same_dim(ctx, x.shape[0], y.shape[0], "`ragged_outer` pairs rows with rows")
    return [TensorType((groups, x.shape[1], y.shape[1]), dtype)]


def _infer_blocks(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, w, *table = types
    for name, column in zip(TABLE, table, strict=True):
        check_integer(ctx, "ragged_blocks", column, name)
        if column.rank != 1:
            raise ctx.fail(f"`ragged_blocks` takes a number for each block, got {text(column.shape)} for `{name}`")
    if x.rank != 2 or w.rank != 3:
        raise ctx.fail(f"`ragged_blocks` takes [T, K] and [G, K, N], got {text(x.shape)} and {text(w.shape)}")
    dtype = _check_factors(ctx, "ragged_blocks", (x, w), attributes)
    return [TensorType((x.shape[0], w.shape[2]), dtype)]


def _limits(b: Builder, rows: Dim, groups: Dim, offsets: Any) -> tuple[Any, Any]:
    """Where each group begins and ends, within the rows there are."""
    total, none = size_value(b, rows), constant(b, 0, dt.i64)
    limits = b.emit("minimum", b.emit("maximum", cast(b, offsets, dt.i64), none), total)
    return slice_axis(b, limits, 0, 0, groups), slice_axis(b, limits, 0, 1, groups + 1)


def _add_up(b: Builder, condition: Any, values: Any) -> Any:
    """The sum over the groups, along the last axis, for which a condition holds."""
    chosen = b.emit("where", condition, values, constant(b, 0, dt.i64))
    return b.emit("sum", chosen, axes=(1,), keepdims=False)


def _decompose_dot(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Which rows each block has: blocks of a group follow those of the group before, rows of no group come last.

    Prefix sums over groups are sums under a mask: those of few groups share kernels with what reads them. Groups are
    one behind the other whatever the offsets say, so that every row has one block.
    """
    x, w, offsets = operands
    rows, groups = b.type_of(x).shape[0], b.type_of(w).shape[0]
    firsts, ends = _limits(b, rows, groups, offsets)
    each = constant(b, ROWS, dt.i64)
    sizes = b.emit("maximum", b.emit("sub", ends, firsts), constant(b, 0, dt.i64))
    counts = b.emit("floordiv", b.emit("add", sizes, constant(b, ROWS - 1, dt.i64)), each)
    here, other = (b.emit("iota", shape=(groups, groups), axis=axis, dtype=dt.i64) for axis in (0, 1))
    lasts = _add_up(b, b.emit("le", other, here), counts)
    blocks = (rows // ROWS + groups + 1, groups)
    number = b.emit("iota", shape=blocks, axis=0, dtype=dt.i64)
    is_before = b.emit("le", b.emit("broadcast_to", lasts, shape=blocks), number)
    is_begun = b.emit("le", b.emit("sub", lasts, counts), number)
    group = _add_up(b, is_before, constant(b, 1, dt.i64))
    own = b.emit("iota", shape=blocks[:1], axis=0, dtype=dt.i64)
    past = b.emit("mul", b.emit("sub", own, _add_up(b, is_before, counts)), each)
    start = b.emit("add", _add_up(b, is_before, sizes), past)
    has_group = b.emit("lt", group, size_value(b, groups))
    end = b.emit("where", has_group, _add_up(b, is_begun, sizes), size_value(b, rows))
    matrix = b.emit("where", has_group, group, constant(b, -1, dt.i64))
    return b.emit("ragged_blocks", x, w, matrix, start, end, dtype=attributes["dtype"])


# Accumulators that no kernel has: the products themselves, summed by the recipe of sums.


def _accumulate_dot(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Any
) -> Any:
    """In f32: in f64 the same op, in fewer bits the sum of products with the matrix of each row."""
    x, w, offsets = operands
    if total is dt.f64:
        return cast(b, b.emit("ragged_dot", cast(b, x, dt.f64), cast(b, w, dt.f64), offsets), dt.f32)
    rows, groups = b.type_of(x).shape[0], b.type_of(w).shape[0]
    _, ends = _limits(b, rows, groups, offsets)
    row = b.emit("iota", shape=(rows, groups), axis=0, dtype=dt.i64)
    group = _add_up(b, b.emit("le", ends, row), constant(b, 1, dt.i64))
    matrices = b.emit("take", cast(b, w, dt.f32), group, axis=0, mode="clip")
    products = b.emit("mul", expand(b, cast(b, x, dt.f32), 2), matrices)
    made = b.emit("sum", products, axes=(1,), keepdims=False, accumulate=total)
    has_group = expand(b, b.emit("lt", group, size_value(b, groups)), 1)
    return b.emit("where", has_group, made, constant(b, 0.0, dt.f32))


def _accumulate_outer(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Any
) -> Any:
    """In f32: in f64 the same op, in fewer bits the sum over all rows of products, which are 0 in other groups."""
    x, y, offsets = operands
    if total is dt.f64:
        return cast(b, b.emit("ragged_outer", cast(b, x, dt.f64), cast(b, y, dt.f64), offsets), dt.f32)
    rows, groups = b.type_of(x).shape[0], b.type_of(offsets).shape[0] - 1
    row = b.emit("iota", shape=(groups, rows), axis=1, dtype=dt.i64)
    firsts, ends = (expand(b, limits, 1) for limits in _limits(b, rows, groups, offsets))
    is_own = b.emit("logical_and", b.emit("le", firsts, row), b.emit("lt", row, ends))
    products = b.emit("mul", expand(b, cast(b, x, dt.f32), 2), expand(b, cast(b, y, dt.f32), 1))
    is_own = b.emit("reshape", is_own, shape=(groups, rows, ONE, ONE))
    chosen = b.emit("where", is_own, products, constant(b, 0.0, dt.f32))
    return b.emit("sum", chosen, axes=(1,), keepdims=False, accumulate=total)


def _groups_of(offsets: Array, rows: int) -> list[slice]:
    limits = [min(max(int(one), 0), rows) for one in offsets]
    return [slice(first, max(first, end)) for first, end in pairwise(limits)]


def ragged_dot_reference(x: Array, w: Array, offsets: Array, *, dtype: DType | None = None) -> Array:
    """Rows of each group by its matrix, by the recipe of contractions; rows of no group are zero."""
    result, start = reference_dtype(x, w, dtype), 0
    out = np.zeros((x.shape[0], w.shape[2]), numpy_dtype(result))
    for matrix, group in zip(w, _groups_of(offsets, x.shape[0]), strict=True):
        end = min(start + group.stop - group.start, x.shape[0])
        out[start:end] = contract_reference(x[start:end], matrix, result, None)
        start = end
    return out


def ragged_outer_reference(x: Array, y: Array, offsets: Array, *, dtype: DType | None = None) -> Array:
    """For each group the transposed rows of `x` by those of `y`, by the recipe of contractions."""
    result = reference_dtype(x, y, dtype)
    return np.stack([contract_reference(x[one].T, y[one], result, None) for one in _groups_of(offsets, x.shape[0])])


def ragged_blocks_reference(x: Array, w: Array, *table: Array, dtype: DType | None = None) -> Array:
    """Rows of each block by the matrix that the table names; zero where it has rows of no group."""
    result = reference_dtype(x, w, dtype)
    out = np.zeros((x.shape[0], w.shape[2]), numpy_dtype(result))
    for matrix, start, end in zip(*table, strict=True):
        rows = slice(max(int(start), 0), min(int(start) + ROWS, int(end)))
        if matrix >= 0 and rows.start < rows.stop:
            out[rows] = contract_reference(x[rows], w[matrix], result, None)
    return out


def _sample(rows: int, sizes: Sequence[int], second: tuple[int, ...], k: int = 9) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        return [*normal((rows, k), second)(rng), np.cumsum([0, *sizes])]

    return make


def _blocks_sample(rng: np.random.Generator) -> Sequence[Array]:
    table = np.array([[0, 0, 5], [1, 5, 6], [-1, 6, 9], [-1, 9, 0]])
    return [*normal((9, 4), (2, 4, 6))(rng), *np.ascontiguousarray(table.T)]


_DOT_SAMPLES = (
    Sample("groups", _sample(20, (5, 0, 12, 3), (4, 9, 6))),
    Sample("rows of no group", _sample(9, (2, 3), (2, 9, 5))),
    Sample("one group", _sample(150, (150,), (1, 4, 3), k=4)),
    Sample("long groups", _sample(300, (129, 171), (2, 3, 5), k=3)),
    Sample("no rows", _sample(0, (0, 0), (2, 9, 4))),
)
_OUTER_SAMPLES = (
    Sample("groups", _sample(20, (5, 0, 12, 3), (20, 6))),
    Sample("rows of no group", _sample(9, (2, 3), (9, 5))),
    Sample("no rows", _sample(0, (0, 0), (0, 4))),
)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.ragged_dot",
        summary="Rows in groups, each group by a matrix of its own; rows of no group give zeros. Offsets rise from 0.",
        operands=("x", "w", "offsets"),
        attributes=RESULT,
        infer=_infer_dot,
        reference=ragged_dot_reference,
        samples=_DOT_SAMPLES,
        dtypes=FLOATS,
        cost=cost_of(lambda operands, results, attributes: results[0].size * operands[0].shape[1] * 2),
        decompose=_decompose_dot,
        jvp="multilinear",
        transpose="contraction:ragged_dot",
        batch="loop",
        policy=PolicyRule(
            "contract", factors=2, accumulate=_accumulate_dot, block_axis=lambda type, number, attributes, blocks: 1
        ),
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.ragged_outer",
        summary="For each group the transposed rows of `x` by those of `y`: the gradient of `ragged_dot` by `w`.",
        operands=("x", "y", "offsets"),
        attributes=RESULT,
        infer=_infer_outer,
        reference=ragged_outer_reference,
        samples=_OUTER_SAMPLES,
        dtypes=FLOATS,
        cost=cost_of(lambda operands, results, attributes: operands[0].size * operands[1].shape[1] * 2),
        lower=Library("ragged_outer"),
        jvp="multilinear",
        transpose="contraction:ragged_outer",
        batch="loop",
        policy=PolicyRule("contract", factors=2, accumulate=_accumulate_outer),
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.ragged_blocks",
        summary="Blocks of rows, each by the matrix that a table names; the table is made by `ragged_dot`.",
        operands=("x", "w", *TABLE),
        attributes=RESULT,
        infer=_infer_blocks,
        reference=ragged_blocks_reference,
        samples=(Sample("blocks", _blocks_sample),),
        dtypes=FLOATS,
        cost=cost_of(lambda operands, results, attributes: results[0].size * operands[0].shape[1] * 2),
        lower=Library("ragged_blocks"),
        no_derivative="it is made of `ragged_dot` behind all transforms",
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
