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

from tessera.ir.base.arrays import Array, dtype_of
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, KEEP, Attributes, Builder, InferContext, OpSpec, Sample
from tessera.ir.graph.building import (
    Types,
    cast,
    check_dtype,
    check_integer,
    constant,
    cost_of,
    same_dim,
    size_value,
    slice_axis,
)
from tessera.ir.graph.ops.contraction import contract_reference
from tessera.ir.graph.samples import Make, normal
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import TensorType, text

ROWS = 128
"""Rows of a block: two warpgroups of tensor cores."""
TABLE = ("matrix", "start", "end")
"""What is said of a block: its matrix, -1 for rows of no group, its first row, and the row behind its group."""


def _check_ragged(ctx: InferContext, op: str, a: TensorType, c: TensorType, offsets: TensorType, groups: Dim) -> None:
    check_dtype(ctx, op, "x", a, FLOATS)
    if a.dtype != c.dtype:
        raise ctx.fail_dtype(f"`{op}` multiplies one dtype, got {a.dtype} and {c.dtype}", help="cast one of them")
    check_integer(ctx, op, offsets, "offsets")
    if offsets.rank != 1:
        raise ctx.fail(f"`{op}` takes a row of offsets, one more than there are groups, got {text(offsets.shape)}")
    same_dim(ctx, groups + 1, offsets.shape[0], f"`{op}` has one offset more than groups")
    if groups.value == 0:
        raise ctx.fail(f"`{op}` has no groups", help="a group may have no rows")


def _infer_dot(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, w, offsets = types
    if x.rank != 2 or w.rank != 3:
        raise ctx.fail(
            f"`ragged_dot` takes rows [T, K] and matrices [G, K, N], got {text(x.shape)} and {text(w.shape)}"
        )
    _check_ragged(ctx, "ragged_dot", x, w, offsets, w.shape[0])
    message = f"`ragged_dot` multiplies rows {text(x.shape)} by matrices {text(w.shape)}: the inner dimensions"
    same_dim(ctx, x.shape[1], w.shape[1], message)
    return [x.with_shape((x.shape[0], w.shape[2]))]


def _infer_outer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, y, offsets = types
    if x.rank != 2 or y.rank != 2 or not offsets.rank:
        raise ctx.fail(f"`ragged_outer` takes rows [T, K] and [T, N], got {text(x.shape)} and {text(y.shape)}")
    groups = offsets.shape[0] - 1
    _check_ragged(ctx, "ragged_outer", x, y, offsets, groups)
    same_dim(ctx, x.shape[0], y.shape[0], "`ragged_outer` pairs rows with rows")
    return [x.with_shape((groups, x.shape[1], y.shape[1]))]


def _infer_blocks(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, w, *table = types
    for name, column in zip(TABLE, table, strict=True):
        check_integer(ctx, "ragged_blocks", column, name)
        if column.rank != 1:
            raise ctx.fail(f"`ragged_blocks` takes a number for each block, got {text(column.shape)} for `{name}`")
    if x.rank != 2 or w.rank != 3:
        raise ctx.fail(f"`ragged_blocks` takes [T, K] and [G, K, N], got {text(x.shape)} and {text(w.shape)}")
    return [x.with_shape((x.shape[0], w.shape[2]))]


def _decompose_dot(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Which rows each block has: blocks of a group follow those of the group before, rows of no group come last.

    Prefix sums over groups are sums under a mask: those of few groups share kernels with what reads them.
    """
    x, w, offsets = operands
    rows, groups = b.type_of(x).shape[0], b.type_of(w).shape[0]
    total, none, each = size_value(b, rows), constant(b, 0, dt.i64), constant(b, ROWS, dt.i64)
    limits = b.emit("minimum", b.emit("maximum", cast(b, offsets, dt.i64), none), total)
    firsts, ends = slice_axis(b, limits, 0, 0, groups), slice_axis(b, limits, 0, 1, groups + 1)
    sizes = b.emit("maximum", b.emit("sub", ends, firsts), none)
    counts = b.emit("floordiv", b.emit("add", sizes, constant(b, ROWS - 1, dt.i64)), each)

    def add_up(condition: Any, values: Any) -> Any:
        return b.emit("sum", b.emit("where", condition, values, none), axes=(1,), keepdims=False)

    here, other = (b.emit("iota", shape=(groups, groups), axis=axis, dtype=dt.i64) for axis in (0, 1))
    lasts = add_up(b.emit("le", other, here), counts)
    blocks = (rows // ROWS + groups + 1, groups)
    number = b.emit("iota", shape=blocks, axis=0, dtype=dt.i64)
    is_before = b.emit("le", b.emit("broadcast_to", lasts, shape=blocks), number)
    is_begun = b.emit("le", b.emit("sub", lasts, counts), number)
    group = add_up(is_before, constant(b, 1, dt.i64))
    own = b.emit("iota", shape=blocks[:1], axis=0, dtype=dt.i64)
    past = b.emit("mul", b.emit("sub", own, add_up(is_before, counts)), each)
    start = b.emit("add", add_up(is_before, sizes), past)
    last = size_value(b, groups)
    has_group = b.emit("lt", group, last)
    end = add_up(is_begun, b.emit("where", is_before, none, ends))
    end = b.emit("where", has_group, end, total)
    matrix = b.emit("where", has_group, group, constant(b, -1, dt.i64))
    return b.emit("ragged_blocks", x, w, matrix, start, end)


def _groups_of(offsets: Array, rows: int) -> list[slice]:
    limits = [min(max(int(one), 0), rows) for one in offsets]
    return [slice(first, max(first, end)) for first, end in pairwise(limits)]


def ragged_dot_reference(x: Array, w: Array, offsets: Array) -> Array:
    """Rows of each group by its matrix, by the recipe of contractions; rows of no group are zero."""
    out = np.zeros((x.shape[0], w.shape[2]), x.dtype)
    for matrix, group in zip(w, _groups_of(offsets, x.shape[0]), strict=True):
        out[group] = contract_reference(x[group], matrix, dtype_of(x), None)
    return out


def ragged_outer_reference(x: Array, y: Array, offsets: Array) -> Array:
    """For each group the transposed rows of `x` by those of `y`, by the recipe of contractions."""
    found = [contract_reference(x[one].T, y[one], dtype_of(x), None) for one in _groups_of(offsets, x.shape[0])]
    return np.stack(found)


def ragged_blocks_reference(x: Array, w: Array, *table: Array) -> Array:
    """Rows of each block by the matrix that the table names; zero where it has rows of no group."""
    out = np.zeros((x.shape[0], w.shape[2]), x.dtype)
    for matrix, start, end in zip(*table, strict=True):
        rows = slice(max(int(start), 0), min(int(start) + ROWS, int(end)))
        if matrix >= 0 and rows.start < rows.stop:
            out[rows] = contract_reference(x[rows], w[matrix], dtype_of(x), None)
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
        summary="Rows in groups, each group by a matrix of its own; rows of no group give zeros.",
        operands=("x", "w", "offsets"),
        infer=_infer_dot,
        reference=ragged_dot_reference,
        samples=_DOT_SAMPLES,
        dtypes=FLOATS,
        cost=cost_of(lambda operands, results, attributes: results[0].size * operands[0].shape[1] * 2),
        decompose=_decompose_dot,
        jvp="multilinear",
        transpose="contraction:ragged_dot",
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.ragged_outer",
        summary="For each group the transposed rows of `x` by those of `y`: the gradient of `ragged_dot` by `w`.",
        operands=("x", "y", "offsets"),
        infer=_infer_outer,
        reference=ragged_outer_reference,
        samples=_OUTER_SAMPLES,
        dtypes=FLOATS,
        cost=cost_of(lambda operands, results, attributes: operands[0].size * operands[1].shape[1] * 2),
        lower=Library("ragged_outer"),
        jvp="multilinear",
        transpose="contraction:ragged_outer",
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.ragged_blocks",
        summary="Blocks of rows, each by the matrix that a table names; the table is made by `ragged_dot`.",
        operands=("x", "w", *TABLE),
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
