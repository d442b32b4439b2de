"""sort, argsort and topk: stable, equal elements by lowest index first, NaN last in either direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, widen_array
from tessera.ir.base.interval import ANYTHING, SAME
from tessera.ir.base.spec import KEEP, NUMBERS, Attribute, Attributes, Builder, InferContext, OpSpec, Sample
from tessera.ir.graph.building import Types, check_at_least, cost_of, visits
from tessera.ir.graph.samples import Make, normal
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.shape import TensorType, normalize_axis, text

ORDERED = (*NUMBERS, "i4", "bool")
AXIS = Attribute("axis", "int", -1, "the axis that is sorted")
DESCENDING = Attribute("descending", "bool", False, "largest first")
KEPT = Attribute("keep", "int", -1, "how many of each row, from the first; -1 for all")


def _infer_sort(op: str, results: str) -> Any:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        (x,) = types
        axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
        shape = x.shape
        if op == "topk":
            k = int(attributes["k"])
            if k < 0:
                raise ctx.fail(f"`topk` needs `k` of at least 0, got {k}")
            check_at_least(ctx, x.shape[axis] - k, 0, f"`topk` of {k} from an axis of {x.shape[axis]} elements")
            shape = (*x.shape[:axis], Dim.constant(k), *x.shape[axis + 1 :])
        kinds = {"values": TensorType(shape, x.dtype), "indices": TensorType(shape, dt.i64)}
        return [kinds[name] for name in results.split()]

    return infer


def _infer_rows(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    if x.rank != 2:
        raise ctx.fail(f"`sort_rows` needs [rows, elements], got {text(x.shape)}")
    keep = int(attributes["keep"])
    if keep < 0:
        return [x, x.with_dtype(dt.i64)]
    check_at_least(ctx, x.shape[1] - keep, 0, f"`sort_rows` keeps {keep} of rows of {x.shape[1]} elements")
    kept = x.with_shape((x.shape[0], Dim.constant(keep)))
    return [kept, kept.with_dtype(dt.i64)]


def _sort_axis(b: Builder, x: Any, axis: int, *, descending: bool, keep: int = -1) -> tuple[Any, Any]:
    """Values and positions along one axis, which is moved last."""
    shape = b.type_of(x).shape
    axis %= len(shape)
    last = len(shape) - 1
    order = (*(own for own in range(len(shape)) if own != axis), axis)
    moved = x if axis == last else b.emit("transpose", x, axes=order)
    outer = tuple(shape[own] for own in order[:-1])
    rows = b.emit("reshape", moved, shape=(product(outer), shape[axis]))
    results: list[Any] = []
    extent = shape[axis] if keep < 0 else Dim.constant(keep)
    for found in b.emit("sort_rows", rows, descending=descending, keep=keep):
        back = b.emit("reshape", found, shape=(*outer, extent))
        inverse = tuple(order.index(own) for own in range(len(shape)))
        results.append(back if axis == last else b.emit("transpose", back, axes=inverse))
    return results[0], results[1]


def _decompose_sort(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    return _sort_axis(b, operands[0], attributes["axis"], descending=attributes["descending"])[0]


def _decompose_argsort(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    return _sort_axis(b, operands[0], attributes["axis"], descending=attributes["descending"])[1]


def _decompose_topk(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    largest = bool(attributes["largest"])
    return _sort_axis(b, operands[0], attributes["axis"], descending=largest, keep=int(attributes["k"]))


def order_of(rows: Array, *, descending: bool) -> Array:
    """The positions of each row in sorted order: by value, then by position, with NaN behind all numbers."""
    wide = widen_array(rows)
    # Ranks instead of values: minus the smallest integer is no larger than it, minus a rank is.
    _, found = np.unique(wide, return_inverse=True)
    ranks = found.reshape(wide.shape).astype(np.int64)
    signed = -ranks if descending else ranks
    return np.argsort(np.where(wide != wide, wide.size + 1, signed), axis=-1, kind="stable")


def sort_rows_reference(x: Array, *, descending: bool = False, keep: int = -1) -> tuple[Array, Array]:
    """Values and positions of rows; only the first ones, where `keep` says how many."""
    order = order_of(x, descending=descending)
    order = order if keep < 0 else np.ascontiguousarray(order[:, :keep])
    return np.take_along_axis(x, order, 1), order


def argsort_reference(x: Array, *, axis: int = -1, descending: bool = False) -> Array:
    """Where each element of the sorted axis comes from."""
    moved = np.moveaxis(x, axis, -1)
    flat = moved.reshape(int(np.prod(moved.shape[:-1], dtype=np.int64)), moved.shape[-1])
    order = sort_rows_reference(flat, descending=descending)[1].reshape(moved.shape)
    return np.ascontiguousarray(np.moveaxis(order, -1, axis))


def sort_reference(x: Array, *, axis: int = -1, descending: bool = False) -> Array:
    """The elements of an axis in order."""
    return np.take_along_axis(x, argsort_reference(x, axis=axis, descending=descending), axis)


def topk_reference(x: Array, *, k: int, axis: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """The first k of the sorted axis, and where they come from."""
    order = argsort_reference(x, axis=axis, descending=largest)
    order = np.ascontiguousarray(np.moveaxis(np.moveaxis(order, axis, -1)[..., :k], -1, axis))
    return np.take_along_axis(x, order, axis), order


_COMPARISONS = 12
"""For each element: n log n in all, with the logarithm of a few thousand; exact counts do not matter here."""


def _count_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    if attributes["keep"] < 0:
        return operands[0].size * _COMPARISONS
    # one comparison for each element, and a short insertion for each that is kept
    return operands[0].size * 2 + results[0].size * 64


def _ties(*shape: int) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        x = rng.integers(-2, 3, shape).astype(np.float32)
        x.reshape(-1)[::5] = np.nan
        x.reshape(-1)[::7] = -0.0
        return [x]

    return make


CASES = (
    Sample("rows", normal((4, 17))),
    Sample("first axis", normal((9, 5)), {"axis": 0}),
    Sample("ties and NaN", _ties(3, 23)),
    Sample("descending, ties and NaN", _ties(3, 23), {"descending": True}),
    Sample("one element", normal((3, 1))),
    Sample("nothing", normal((3, 0))),
)


def _sorter(name: str, summary: str, results: str, extra: tuple[Attribute, ...], *facets: Any) -> OpSpec:
    reference, decompose, samples = facets
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        results=tuple(results.split()),
        attributes=(AXIS, *extra),
        infer=_infer_sort(name, results),
        reference=reference,
        samples=samples,
        dtypes=ORDERED,
        cost=visits(_COMPARISONS),
        decompose=decompose,
        policy=KEEP,
        interval=SAME if results == "values" else ANYTHING,
    )


SPECS: tuple[OpSpec, ...] = (
    _sorter(
        "sort", "An axis in order; stable, NaN last.", "values", (DESCENDING,), sort_reference, _decompose_sort, CASES
    ),
    _sorter(
        "argsort",
        "The positions that sort an axis; equal elements by lowest index, NaN last.",
        "indices",
        (DESCENDING,),
        argsort_reference,
        _decompose_argsort,
        CASES,
    ),
    _sorter(
        "topk",
        "The `k` largest (or smallest) of an axis in order and their positions; ties by lowest index, NaN last.",
        "values indices",
        (Attribute("k", "int"), Attribute("largest", "bool", True)),
        topk_reference,
        _decompose_topk,
        (
            Sample("largest", normal((4, 17)), {"k": 5}),
            Sample("smallest, first axis", normal((9, 3)), {"k": 2, "axis": 0, "largest": False}),
            Sample("ties and NaN", _ties(3, 23), {"k": 20}),
        ),
    ),
    OpSpec(
        name="tgraph.sort_rows",
        summary="Each row of a matrix in order, and where its elements came from; stable, NaN last.",
        operands=("x",),
        results=("values", "indices"),
        attributes=(DESCENDING, KEPT),
        infer=_infer_rows,
        shard="library:along_last",
        reference=sort_rows_reference,
        samples=(
            Sample("rows", normal((5, 33))),
            Sample("ties and NaN", _ties(3, 23)),
            Sample("descending", _ties(3, 23), {"descending": True}),
            Sample("the first few", _ties(3, 40), {"keep": 4}),
            Sample("the first half, descending", _ties(3, 23), {"descending": True, "keep": 12}),
        ),
        dtypes=ORDERED,
        cost=cost_of(_count_operations),
        lower=Library("sort"),
        policy=KEEP,
        interval=ANYTHING,
        jvp="indexing:sort_jvp",
        batch="movement:sort_rows",
    ),
)
