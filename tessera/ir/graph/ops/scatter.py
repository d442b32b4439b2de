"""Writing by index: scatter, scatter_add and index_put, one index after the other, so that equal ones have one answer.

Indices follow the rule of `indexing.py`; one out of bounds writes nothing unless `mode` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import (
    INTEGERS,
    KEEP,
    NUMBERS,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    Nondeterminism,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import (
    Types,
    axes_attribute,
    cast,
    check_accumulator,
    check_integer,
    common_dtype,
    constant,
    cost_of,
    size_value,
)
from tessera.ir.graph.ops.indexing import (
    BY,
    CHECKED,
    FIRST_AXIS,
    INDEXED_AXES,
    MODE,
    STORED,
    check_mode,
    infer_gathered,
    inside,
    legal_array,
    legal_indices,
    reference_mode,
    refuse_outside,
)
from tessera.ir.graph.samples import Make
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.shape import equal_dims, is_at_least, normalize_axis, path, text

COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""How an update joins what is there; `set` takes its place."""


def _check_updates(ctx: InferContext, op: str, types: Types, wanted: Sequence[Dim]) -> None:
    """Raises unless updates have the shape that the op reads at the same indices."""
    x, updates = types
    common_dtype(ctx, op, (x, updates))
    if updates.rank != len(wanted):
        raise ctx.fail(f"`{op}` into {text(x.shape)} needs updates {text(tuple(wanted))}, got {text(updates.shape)}")
    for own, (left, right) in enumerate(zip(wanted, updates.shape, strict=True)):
        equal_dims(ctx, op, left, right, f"{left} and {path('updates', own, right)}")


def _infer_scatter(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices, updates = types
    check_integer(ctx, op, indices, "indices")
    check_mode(ctx, op, attributes)
    common_dtype(ctx, op, (x, updates))
    if op == "scatter_add" and x.dtype.is_bool:
        raise ctx.fail_dtype("`scatter_add` adds numbers, got bool", help="cast to i32, or use `scatter`")
    check_accumulator(ctx, op, x, attributes.get("accumulate"), x.dtype.compute)
    axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
    _check_updates(ctx, op, (x, updates), (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    return [x]


def _infer_put(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, updates, *indices = types
    if attributes["reduce"] not in ("set", *COMBINE):
        raise ctx.fail(f"`index_put` has no `reduce` {attributes['reduce']!r}", help="set, add, mul, max or min")
    if attributes["reduce"] != "set" and x.dtype.name not in NUMBERS:
        raise ctx.fail_dtype(f"`index_put` that combines takes numbers, got {x.dtype}")
    check_accumulator(ctx, "index_put", x, attributes["accumulate"], x.dtype.compute)
    axes, out_axis = axes_attribute(attributes, "axes"), int(attributes["out_axis"])
    # Nothing is read: into an axis of no elements nothing is written.
    given = {**attributes, "may_be_empty": True}
    made = infer_gathered(ctx, "index_put", x, indices, axes, out_axis, given)
    _check_updates(ctx, "index_put", (x, updates), made.shape)
    return [x]


def _decompose_put(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """To [outer, indexed axes, inner]; sums and products in the dtype floats compute in, rounded once."""
    x, updates, *indices = operands
    kind, given, reduce = b.type_of(x), b.type_of(updates), str(attributes["reduce"])
    axes, at = axes_attribute(attributes, "axes"), int(attributes["out_axis"])
    rank = max(b.type_of(index).rank for index in indices)
    joined = given.shape[at : at + rank]
    order = tuple(range(kind.rank))
    if axes != tuple(range(at, at + len(axes))):
        # The indexed axes first, in the order of their indices; of the updates those that they were broadcast to.
        order = (*axes, *(axis for axis in order if axis not in axes))
        places = (*range(at, at + rank), *(axis for axis in range(given.rank) if not at <= axis < at + rank))
        x, updates, at = b.emit("transpose", x, axes=order), b.emit("transpose", updates, axes=places), 0
    shape = b.type_of(x).shape
    extents, count = shape[at : at + len(axes)], product(joined)
    outer, inner = product(shape[:at]), product(shape[at + len(axes) :])
    total: DType | None = attributes["accumulate"]
    compute = kind.dtype if reduce == "set" else (total or kind.dtype).compute
    out = b.emit(
        "scatter_rows",
        b.emit("reshape", cast(b, x, compute), shape=(outer, *extents, inner)),
        b.emit("reshape", cast(b, updates, compute), shape=(outer, count, inner)),
        *(_rows(b, index, extent, joined, attributes) for index, extent in zip(indices, extents, strict=True)),
        mode=reduce,
        accumulate=total,
        checked=attributes.get("checked"),
        drops=attributes.get("checked") is None and not (attributes["mode"] == "clip" and _have_places(extents)),
    )
    out = cast(b, b.emit("reshape", out, shape=shape), kind.dtype)
    back = tuple(order.index(axis) for axis in range(kind.rank))
    return out if back == tuple(range(kind.rank)) else b.emit("transpose", out, axes=back)


def _have_places(extents: Sequence[Dim]) -> bool:
    """Whether axes have elements for certain: an index cannot be clamped to an axis without."""
    return all(is_at_least(extent, 1) for extent in extents)


def _rows(b: Builder, index: Any, extent: Dim, joined: Sequence[Dim], attributes: Attributes) -> Any:
    """Indices of one axis as a line; one that is to be dropped is the size of the axis."""
    if attributes["mode"] == "clip":
        legal = legal_indices(b, index, extent)
        if not _have_places([extent]):
            legal = b.emit("maximum", legal, constant(b, 0, dt.i64))
    else:
        legal = legal_indices(b, index, extent, kept=True)
        if attributes.get("checked") is None:
            size = size_value(b, extent)
            legal = b.emit("where", b.emit("lt", legal, constant(b, 0, dt.i64)), size, b.emit("minimum", legal, size))
    if b.type_of(legal).shape != tuple(joined):
        legal = b.emit("broadcast_to", legal, shape=tuple(joined))
    return b.emit("reshape", legal, shape=(product(joined),))


def _decompose_scatter(reduce: str, b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, indices, updates = operands
    axis = int(attributes["axis"]) % b.type_of(x).rank
    put = {"axes": (axis,), "out_axis": axis, "reduce": reduce, "accumulate": attributes.get("accumulate")}
    return _decompose_put(b, (x, updates, indices), {**attributes, **put})


def _infer_scatter_rows(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, updates, *indices = types
    for index in indices:
        check_integer(ctx, "scatter_rows", index, "indices")
    common_dtype(ctx, "scatter_rows", (x, updates))
    if not indices or x.rank != len(indices) + 2 or updates.rank != 3 or any(index.rank != 1 for index in indices):
        shapes = ", ".join(str(index) for index in indices)
        raise ctx.fail(
            "`scatter_rows` needs [outer, axes, inner], [outer, n, inner] and [n] for each axis, "
            f"got {x}, {updates}, {shapes}"
        )
    if attributes["mode"] not in ("set", *COMBINE):
        raise ctx.fail(f"`scatter_rows` has modes set, {', '.join(COMBINE)}, not {attributes['mode']!r}")
    total: DType | None = attributes["accumulate"]
    if total is not None and attributes["mode"] == "set":
        raise ctx.fail_dtype(f"`scatter_rows` that sets adds nothing up, and has no accumulator: got {total}")
    check_accumulator(ctx, "scatter_rows", x, total, x.dtype.compute)
    if total is not None and total.compute is not x.dtype.compute:
        raise ctx.fail_dtype(f"`scatter_rows` of {x.dtype} keeps its sums in its result, which does not hold {total}")
    for own, left in ((0, x.shape[0]), *((1, index.shape[0]) for index in indices), (2, x.shape[-1])):
        equal_dims(
            ctx, "scatter_rows", left, updates.shape[own], f"{left} and {path('updates', own, updates.shape[own])}"
        )
    return [x]


def scatter_rows_reference(
    x: Array,
    updates: Array,
    *indices: Array,
    mode: str,
    accumulate: DType | None = None,
    checked: Any = None,
    drops: bool = False,
    in_place: bool = False,
) -> Array:
    """One index after the other, wherever they are; a narrow accumulator rounds what was added to, and nothing else."""
    for index, size in zip(indices, x.shape[1:-1], strict=True):
        refuse_outside(checked, index, size)
    out = x.copy()
    narrow = None if accumulate is None or accumulate.compute is accumulate else accumulate
    with np.errstate(over="ignore", invalid="ignore"):
        for number, row in enumerate(zip(*indices, strict=True)):
            if drops and not all(0 <= at < size for at, size in zip(row, x.shape[1:-1], strict=True)):
                continue
            there = (slice(None), *row)
            update = updates[:, number]
            made = update if mode == "set" else COMBINE[mode](out[there], update)
            out[there] = made if narrow is None else round_as(made, narrow).astype(x.dtype)
    return out


def put_reference(
    x: Array,
    updates: Array,
    *indices: Array,
    axes: Sequence[int],
    reduce: str,
    out_axis: int = 0,
    mode: str = "",
    accumulate: DType | None = None,
    by: str = "",
) -> Array:
    """`x[...] = updates`, or `+=` and the like, for each index in order."""
    mode, checked = reference_mode(mode, None, by or "index_put")
    joined = np.broadcast_shapes(*(index.shape for index in indices))
    sizes = [x.shape[axis] for axis in axes]
    lines: list[Array] = []
    for index, size in zip(indices, sizes, strict=True):
        refuse_outside(checked, index, size, ends=True)
        legal = legal_array(index, size)
        if mode != "clip":
            legal = np.where(inside(index, size), legal, size)
        lines.append(np.broadcast_to(legal, joined).reshape(-1))
    moved = np.moveaxis(x, tuple(axes), tuple(range(len(axes))))
    given = np.moveaxis(updates, tuple(range(out_axis, out_axis + len(joined))), tuple(range(len(joined))))
    inner = math.prod(moved.shape[len(axes) :])
    compute = x.dtype if reduce == "set" else numpy_dtype((accumulate or dtype_of(x)).compute)
    out = scatter_rows_reference(
        moved.astype(compute).reshape((1, *sizes, inner)),
        given.astype(compute).reshape((1, math.prod(joined), inner)),
        *lines,
        mode=reduce,
        accumulate=accumulate,
        drops=mode != "clip" or 0 in sizes,
    )
    out = np.moveaxis(out.reshape(moved.shape), tuple(range(len(axes))), tuple(axes))
    return round_as(np.ascontiguousarray(out), dtype_of(x))


def scatter_reference(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    reduce: str,
    axis: int = 0,
    ordered: bool = True,
    accumulate: DType | None = None,
    mode: str = "",
) -> Array:
    """The last of equal indices is kept, or their updates add up, in order: also where any order would do."""
    axis %= x.ndim
    name = "scatter" if reduce == "set" else "scatter_add"
    where: dict[str, Any] = {"axes": (axis,), "out_axis": axis, "by": name}
    return put_reference(x, updates, indices, reduce=reduce, mode=mode, accumulate=accumulate, **where)


def _find_unordered(attributes: Attributes) -> Nondeterminism | None:
    if attributes["ordered"]:
        return None
    return Nondeterminism(
        "it adds updates in the order in which threads come to them",
        "leave `ordered=False` out, or call it within `with tessera.effects.ordered():`",
        r",\s*ordered\s*=\s*False",
    )


def _write_sample(shape: Sequence[int], indices: Sequence[int], axis: int, low: int = -3, high: int = 4) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        updates = (*shape[:axis], *indices, *shape[axis + 1 :])
        return [
            rng.standard_normal(tuple(shape)).astype(np.float32),
            rng.integers(low, high, tuple(indices), dtype=np.int64),
            rng.standard_normal(updates).astype(np.float32),
        ]

    return make


def _put_sample(
    shape: Sequence[int], updates: Sequence[int], *indices: Sequence[int], low: int = -6, high: int = 6
) -> Make:
    """An array, updates, and indices of these shapes, some of them out of bounds and some equal."""

    def make(rng: np.random.Generator) -> Sequence[Array]:
        floats = [rng.standard_normal(tuple(one)).astype(np.float32) for one in (shape, updates)]
        return [*floats, *(rng.integers(low, high, tuple(index), dtype=np.int64) for index in indices)]

    return make


_WRITE_SAMPLES = (
    Sample("rows", _write_sample((5, 4), (7,), 0)),
    Sample("columns", _write_sample((3, 6), (2, 4), 1), {"axis": -1}),
    Sample("one", _write_sample((5, 3), (), 0)),
    Sample("none", _write_sample((5, 3), (0,), 0)),
    Sample("outside", _write_sample((4, 2), (9,), 0, -9, 9)),
    Sample("clipped", _write_sample((4, 2), (9,), 0, -9, 9), {"mode": "clip"}),
    Sample("into nothing", _write_sample((0, 2), (3,), 0)),
)


SCATTER_ACCUMULATE = Attribute(
    "accumulate", "dtype", None, "dtype of the running sums; default f32 (f64 for f64), integers"
)
ORDERED = Attribute("ordered", "bool", True, "in the order of the indices; without it, runs may differ")
REDUCE = Attribute("reduce", "str", "set", "set, add, mul, max or min")

_WRITE_COST = cost_of(lambda operands, results, attributes: operands[2].size)
_PUT_COST = cost_of(lambda operands, results, attributes: operands[1].size)

IN_PLACE = Attribute("in_place", "bool", False, "the result is in the memory of `x`: only the rows are written")
DROPS = Attribute("drops", "bool", False, "an index of the size of its axis writes nothing")


def _writer(name: str, summary: str, reduce: str, dtypes: tuple[str, ...]) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x", "indices", "updates"),
        attributes=(FIRST_AXIS, MODE, *((ORDERED, SCATTER_ACCUMULATE) if reduce == "add" else ())),
        infer=partial(_infer_scatter, name),
        reference=partial(scatter_reference, reduce=reduce),
        nondeterminism=_find_unordered if reduce == "add" else None,
        samples=_WRITE_SAMPLES,
        dtypes=dtypes,
        cost=_WRITE_COST,
        decompose=partial(_decompose_scatter, reduce),
        takes_positions=True,
        policy=ROUND if reduce == "add" else KEEP,
        interval=ANYTHING,
    )


SPECS: tuple[OpSpec, ...] = (
    _writer(
        "scatter",
        "`x` with slices of an axis replaced; of equal indices the last is kept; one out of bounds writes nothing.",
        "set",
        STORED,
    ),
    _writer(
        "scatter_add",
        "`x` with updates added to slices of an axis, in the order of the indices, in f32 and rounded once.",
        "add",
        NUMBERS,
    ),
    OpSpec(
        name="tgraph.index_put",
        summary="`x` with updates set, added, multiplied, or compared in at indices along some axes, in their order.",
        operands=("x", "updates", "indices*"),
        attributes=(*INDEXED_AXES, REDUCE, MODE, SCATTER_ACCUMULATE, BY),
        infer=_infer_put,
        reference=put_reference,
        samples=(
            Sample("rows", _put_sample((5, 4), (9, 4), (9,)), {"axes": (0,)}),
            Sample(
                "points", _put_sample((5, 6), (3, 7), (3, 1), (7,)), {"axes": (0, 1), "reduce": "add", "mode": "clip"}
            ),
            Sample(
                "outer axes",
                _put_sample((5, 3, 4), (7, 3), (7,), (7,)),
                {"axes": (0, 2), "reduce": "max"},
            ),
            Sample("moved", _put_sample((2, 5, 3), (2, 3, 8), (8,)), {"axes": (1,), "out_axis": 2, "reduce": "mul"}),
            Sample("least", _put_sample((4, 5), (4, 6), (6,)), {"axes": (1,), "out_axis": 1, "reduce": "min"}),
            Sample("one", _put_sample((5, 3), (3,), ()), {"axes": (0,)}),
        ),
        dtypes=NUMBERS,
        cost=_PUT_COST,
        decompose=_decompose_put,
        takes_positions=True,
        policy=ROUND,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.scatter_rows",
        summary="x[:, indices[i]] = updates[:, i], or += and the like, for i in order, at legal indices.",
        operands=("x", "updates", "indices*"),
        shard="library:scatter_rows",
        attributes=(
            Attribute("mode", "str", doc="set, add, mul, max or min"),
            SCATTER_ACCUMULATE,
            CHECKED,
            DROPS,
            IN_PLACE,
        ),
        infer=_infer_scatter_rows,
        reference=scatter_rows_reference,
        samples=(
            Sample("set", _put_sample((2, 5, 3), (2, 4, 3), (4,), low=0, high=4), {"mode": "set"}),
            Sample("add", _put_sample((1, 5, 7), (1, 40, 7), (40,), low=0, high=4), {"mode": "add"}),
            Sample("dropped", _put_sample((1, 4, 7), (1, 9, 7), (9,), low=0, high=5), {"mode": "max", "drops": True}),
            Sample(
                "two axes",
                _put_sample((2, 4, 4, 1), (2, 30, 1), (30,), (30,), low=0, high=5),
                {"mode": "mul", "drops": True},
            ),
        ),
        dtypes=("f32", "f64", *INTEGERS),
        cost=_PUT_COST,
        lower=Library("scatter", overwrites=0),
        jvp="indexing:write_jvp",
        transpose="indexing:write",
        batch="movement:scatter_rows",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
