"""Reading by index: take, gather, take_along_axis, index_get, embedding, one_hot; writing by index: scatter.

One rule for every index: a negative one counts from the end, and one that is still out of bounds is clamped to the
nearest end. The rule is put in front of the `_legal` ops, which read memory and trust their indices. In a debug build
those are `checked`: nothing is clamped, and a run ends at an out-of-bounds index, before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, static
from tessera.ir.base.index_maps import IndexMap
from tessera.ir.base.index_maps import coordinate as at
from tessera.ir.base.interval import ANYTHING, SAME, always_within
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
    check_at_least,
    check_integer,
    common_dtype,
    constant,
    cost_of,
    expand,
    index_axis,
    size_value,
    visits,
)
from tessera.ir.graph.samples import Make
from tessera.ir.tile.facets import Gather, Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.shape import Named, Shape, TensorType, broadcast, equal_dims, normalize_axis, path, text

STORED = (*NUMBERS, "i4", "bool")
_MOST = Dim.constant((1 << 63) - 1)
RULE = "negative indices count from the end, others are clamped"


def legal_indices(b: Builder, indices: Any, extent: Dim, checked: Any = None) -> Any:
    """Indices as i64 within 0..extent-1, by the rule of this file; those that are `checked` are left where they are."""
    kind = b.type_of(indices).dtype
    if kind.kind == "uint" and checked is not None:
        return cast(
            b, indices if kind is not dt.u64 else b.emit("minimum", indices, size_value(b, _MOST, kind)), dt.i64
        )
    if kind.kind == "uint":
        if kind is dt.u64:  # the upper half would become negative
            indices = b.emit("minimum", indices, size_value(b, extent, dt.u64))
        return b.emit("minimum", cast(b, indices, dt.i64), _last(b, extent))
    wide = cast(b, indices, dt.i64)
    zero = constant(b, 0, dt.i64)
    wrapped = b.emit("where", b.emit("lt", wide, zero), b.emit("add", wide, size_value(b, extent)), wide)
    return wrapped if checked is not None else b.emit("clamp", wrapped, zero, _last(b, extent))


def _last(b: Builder, extent: Dim) -> Any:
    return size_value(b, extent - 1)


def legal_array(indices: Array, extent: int) -> Array:
    """The same rule on arrays."""
    if indices.dtype.kind == "u":
        return np.minimum(indices, np.uint64(max(extent - 1, 0))).astype(np.int64)
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, max(extent - 1, 0))


def refuse_outside(checked: Any, indices: Array, extent: int) -> None:
    """Raises PositionError (T0710) where indices that are `checked` are out of bounds, counted from the front."""
    if checked is None:
        return
    wrong = np.flatnonzero((indices < 0) | (indices >= extent))
    if wrong.size:
        from tessera.runtime.callback import out_of_bounds_error  # noqa: PLC0415 - tracing needs no runtime
        from tessera.runtime.tensor import Tensor  # noqa: PLC0415

        first = int(indices.reshape(-1)[wrong[0]])
        raise out_of_bounds_error(checked, first, extent, Tensor.of(np.ascontiguousarray(indices)))


def check_readable(ctx: InferContext, op: str, extent: Dim, indices: TensorType) -> None:
    """Raises, or guards, where there are indices and nothing to read."""
    if indices.size.value != 0:
        check_at_least(ctx, extent, 1, f"`{op}` reads from an axis of no elements")


def _infer_gathered(
    ctx: InferContext, op: str, x: TensorType, indices: Types, axes: Sequence[int], out_axis: int
) -> TensorType:
    """The dims that are kept, with the dims of the indices put in at `out_axis`."""
    if len(indices) != len(axes) or not axes or len(set(axes)) != len(axes):
        raise ctx.fail(f"`{op}` needs one index for each of its axes {tuple(axes)}, got {len(indices)}")
    for axis, index in zip(axes, indices, strict=True):
        check_integer(ctx, op, index, "indices")
        if not 0 <= axis < x.rank:
            raise ctx.fail(f"`{op}` has no axis {axis} on a value of rank {x.rank}")
        check_readable(ctx, op, x.shape[axis], index)
    joined = broadcast(ctx, op, *(Named(f"index {number}", index.shape) for number, index in enumerate(indices)))
    kept = [dim for axis, dim in enumerate(x.shape) if axis not in axes]
    if not 0 <= out_axis <= len(kept):
        raise ctx.fail(f"`{op}` can put the indexed dims at 0..{len(kept)} of its result, not {out_axis}")
    return x.with_shape((*kept[:out_axis], *joined, *kept[out_axis:]))


def _infer_index(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, *indices = types
    return [_infer_gathered(ctx, op, x, indices, axes_attribute(attributes, "axes"), attributes["out_axis"])]


def _index_maps(types: Types, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
    x, *indices = types
    axes, out_axis = axes_attribute(attributes, "axes"), int(attributes["out_axis"])
    rank = max(index.rank for index in indices)
    reads: list[Dim] = []
    kept = 0
    for axis in range(x.rank):
        if axis in axes:
            reads.append(Dim.symbol(f"t{axes.index(axis)}"))
        else:
            reads.append(at(kept if kept < out_axis else kept + rank))
            kept += 1
    return [
        tuple(reads),
        *(_stretched_map(index.shape, outs[0].shape[out_axis : out_axis + rank], out_axis) for index in indices),
    ]


def _stretched_map(own: Shape, joined: Shape, first: int) -> IndexMap:
    """Where an operand of broadcast dims is read: at 0 along a dim of 1 that stretches."""
    missing = len(joined) - len(own)
    return tuple(
        Dim.constant(0) if dim.value == 1 and joined[missing + axis].value != 1 else at(first + missing + axis)
        for axis, dim in enumerate(own)
    )


def _decompose_index(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, *indices = operands
    shape, axes = b.type_of(x).shape, axes_attribute(attributes, "axes")
    checked = attributes.get("checked")
    legal = [legal_indices(b, index, shape[axis], checked) for index, axis in zip(indices, axes, strict=True)]
    return b.emit("index_legal", x, *legal, axes=axes, out_axis=attributes["out_axis"], checked=checked)


def index_reference(x: Array, *indices: Array, axes: Sequence[int], out_axis: int, checked: Any = None) -> Array:
    """NumPy's own indexing, with legal indices, and the indexed dims moved to their position."""
    for index, axis in zip(indices, axes, strict=True):
        refuse_outside(checked, index, x.shape[axis])
    moved = np.moveaxis(x, tuple(axes), tuple(range(len(axes))))
    joined = np.broadcast_shapes(*(index.shape for index in indices))
    if 0 in joined:
        out = np.zeros((*joined, *moved.shape[len(axes) :]), x.dtype)
    else:
        out = moved[tuple(legal_array(index, x.shape[axis]) for index, axis in zip(indices, axes, strict=True))]
    rank = len(joined)
    kept = moved.shape[len(axes) :]
    return np.ascontiguousarray(np.moveaxis(out, tuple(range(rank)), tuple(range(out_axis, out_axis + rank)))).reshape(
        (*kept[:out_axis], *joined, *kept[out_axis:])
    )


def _infer_take(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices = types
    axis = normalize_axis(ctx, "take", attributes["axis"], x.rank)
    return [_infer_gathered(ctx, "take", x, [indices], (axis,), axis)]


def _decompose_take(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    axis = int(attributes.get("axis", 0)) % b.type_of(operands[0]).rank
    return b.emit("index_get", *operands, axes=(axis,), out_axis=axis)


def take_reference(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Slices of one axis, by index."""
    return index_reference(x, indices, axes=(axis % x.ndim,), out_axis=axis % x.ndim)


def _infer_embedding(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    table, indices = types
    if table.rank != 2:
        raise ctx.fail(f"`embedding` needs a table [rows, size], got {text(table.shape)}")
    return [_infer_gathered(ctx, "embedding", table, [indices], (0,), 0)]


def _infer_gather(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices = types
    check_integer(ctx, "gather", indices, "indices")
    depth = indices.shape[-1].value if indices.rank else None
    if depth is None or not 1 <= depth <= x.rank:
        raise ctx.fail(
            f"`gather` needs indices [..., 1..{x.rank}], each naming an element or slice of {text(x.shape)}, "
            f"got {text(indices.shape)}"
        )
    for axis in range(depth):
        check_readable(ctx, "gather", x.shape[axis], indices)
    return [x.with_shape((*indices.shape[:-1], *x.shape[depth:]))]


def _decompose_gather(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, indices = operands
    shape = b.type_of(indices).shape
    depth = static(shape[-1])
    columns = [index_axis(b, indices, len(shape) - 1, number) for number in range(depth)]
    return b.emit("index_get", x, *columns, axes=tuple(range(depth)), out_axis=0)


def gather_reference(x: Array, indices: Array) -> Array:
    """The elements, or slices, that the last axis of `indices` names."""
    depth = indices.shape[-1]
    return index_reference(x, *(indices[..., number] for number in range(depth)), axes=range(depth), out_axis=0)


def _infer_along(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices = types
    check_integer(ctx, op, indices, "indices")
    axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
    if indices.rank != x.rank:
        raise ctx.fail(f"`{op}` needs indices of rank {x.rank}, got {text(indices.shape)}")
    check_readable(ctx, op, x.shape[axis], indices)
    dims: list[Dim] = []
    for own, (left, right) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if own == axis:
            dims.append(right)
        elif left.value == 1 or right.value == 1:
            dims.append(right if left.value == 1 else left)
        else:
            what = f"{path('x', own, left)} and {path('indices', own, right)}"
            dims.append(equal_dims(ctx, op, left, right, what))
    return [x.with_shape(dims)]


def _along_maps(types: Types, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
    x, indices = types
    axis, joined = int(attributes["axis"]) % x.rank, outs[0].shape
    reads = list(_stretched_map(x.shape, joined, 0))
    reads[axis] = Dim.symbol("t0")
    return [tuple(reads), _stretched_map(indices.shape, joined, 0)]


def _decompose_along(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, indices = operands
    shape = b.type_of(x).shape
    axis = int(attributes["axis"]) % len(shape)
    checked = attributes.get("checked")
    return b.emit("take_along_legal", x, legal_indices(b, indices, shape[axis], checked), axis=axis, checked=checked)


def take_along_reference(x: Array, indices: Array, *, axis: int = -1, checked: Any = None) -> Array:
    """One element for each index, along an axis; the other axes broadcast."""
    axis %= x.ndim
    refuse_outside(checked, indices, x.shape[axis])
    legal = legal_array(indices, x.shape[axis])
    shape = [max(a, c) if min(a, c) else 0 for a, c in zip(x.shape, legal.shape, strict=True)]
    own = [n if number == axis else shape[number] for number, n in enumerate(x.shape)]
    asked = [n if number == axis else shape[number] for number, n in enumerate(legal.shape)]
    if 0 in asked:
        return np.zeros(asked, x.dtype)
    return np.take_along_axis(np.broadcast_to(x, own), np.broadcast_to(legal, asked), axis)


def _infer_one_hot(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (indices,) = types
    check_integer(ctx, "one_hot", indices, "indices")
    if len(attributes["depth"]) != 1:
        raise ctx.fail(f"`one_hot` needs one depth, got {len(attributes['depth'])}")
    return [TensorType.of((*indices.shape, attributes["depth"][0]), attributes["dtype"])]


def _decompose_one_hot(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (indices,) = operands
    kind = b.type_of(indices)
    counting = kind.dtype if kind.dtype.bits >= 32 else dt.i32
    classes = b.emit("iota", shape=tuple(attributes["depth"]), axis=0, dtype=counting)
    return cast(b, b.emit("eq", expand(b, cast(b, indices, counting), kind.rank), classes), attributes["dtype"])


def one_hot_reference(indices: Array, *, depth: Sequence[Dim], dtype: DType = dt.f32) -> Array:
    """1 at the index, 0 elsewhere; a row of zeros for an out-of-bounds index."""
    return np.asarray(indices[..., np.newaxis] == np.arange(static(depth[0]))).astype(numpy_dtype(dtype))


def index_arrays(shape: Sequence[int], *indices: Sequence[int], low: int = -3, high: int = 5) -> Make:
    """A sample's array and i64 indices, some of them out of bounds."""

    def make(rng: np.random.Generator) -> Sequence[Array]:
        x = rng.standard_normal(tuple(shape)).astype(np.float32)
        return [x, *(rng.integers(low, high, tuple(index), dtype=np.int64) for index in indices)]

    return make


def _classes(rng: np.random.Generator) -> Sequence[Array]:
    return [rng.integers(-2, 9, (4, 5), dtype=np.int32)]


def _reader(name: str, summary: str, operands: tuple[str, ...], *facets: Any, **more: Any) -> OpSpec:
    attributes, infer, reference, samples = facets
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=operands,
        attributes=attributes,
        infer=infer,
        reference=reference,
        samples=samples,
        dtypes=STORED,
        cost=visits(0),
        policy=KEEP,
        interval=SAME,
        **more,
    )


INDEXED_AXES = (
    Attribute("axes", "ints", doc="the axes of `x` that are indexed, one for each index"),
    Attribute("out_axis", "int", 0, "position of the indexed dims in the result"),
)
FIRST_AXIS = Attribute("axis", "int", 0, "the axis that is indexed")
LAST_AXIS = Attribute("axis", "int", -1, "the axis that is indexed")
CHECKED = Attribute(
    "checked", "any", None, "what a debug build reports of an out-of-bounds index; nothing is clamped then"
)

_INDEXED_AXES_SAMPLES = (
    Sample("one", index_arrays((5, 4), (3,), low=0), {"axes": (0,), "out_axis": 0}),
    Sample("two, broadcast", index_arrays((5, 6, 5), (3, 1), (4,), low=0), {"axes": (0, 2), "out_axis": 0}),
    Sample("in the middle", index_arrays((2, 5, 3), (4,), low=0), {"axes": (1,), "out_axis": 1}),
    Sample("no indices", index_arrays((5, 3), (0,), low=0), {"axes": (0,), "out_axis": 0}),
)


# Writing by index: scatter sets, scatter_add adds, both in the order of the indices, so duplicates have one answer.


def _infer_scatter(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices, updates = types
    check_integer(ctx, op, indices, "indices")
    common_dtype(ctx, op, (x, updates))
    if op == "scatter_add" and x.dtype.is_bool:
        raise ctx.fail_dtype("`scatter_add` adds numbers, got bool", help="cast to i32, or use `scatter`")
    check_accumulator(ctx, op, x, attributes.get("accumulate"), x.dtype.compute)
    axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
    wanted = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if updates.rank != len(wanted):
        raise ctx.fail(
            f"`{op}` into {text(x.shape)} at {text(indices.shape)} needs updates {text(wanted)}, "
            f"got {text(updates.shape)}"
        )
    for own, (left, right) in enumerate(zip(wanted, updates.shape, strict=True)):
        equal_dims(ctx, op, left, right, f"{left} and {path('updates', own, right)}")
    check_readable(ctx, op, x.shape[axis], indices)
    return [x]


def _decompose_scatter(mode: str, b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """To [outer, axis, inner]; sums in the dtype floats compute in, rounded once."""
    x, indices, updates = operands
    kind, index = b.type_of(x), b.type_of(indices)
    axis = int(attributes["axis"]) % kind.rank
    outer, inner = product(kind.shape[:axis]), product(kind.shape[axis + 1 :])
    total: DType | None = attributes.get("accumulate")
    compute = (total or kind.dtype).compute if mode == "add" else kind.dtype
    checked = attributes.get("checked")
    legal = legal_indices(b, indices, kind.shape[axis], checked)
    out = b.emit(
        "scatter_rows",
        b.emit("reshape", cast(b, x, compute), shape=(outer, kind.shape[axis], inner)),
        b.emit("reshape", legal, shape=(index.size,)),
        b.emit("reshape", cast(b, updates, compute), shape=(outer, index.size, inner)),
        mode=mode,
        accumulate=total,
        checked=checked,
    )
    return cast(b, b.emit("reshape", out, shape=kind.shape), kind.dtype)


def _infer_scatter_rows(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices, updates = types
    check_integer(ctx, "scatter_rows", indices, "indices")
    common_dtype(ctx, "scatter_rows", (x, updates))
    if (x.rank, indices.rank, updates.rank) != (3, 1, 3):
        raise ctx.fail(
            f"`scatter_rows` needs [outer, axis, inner], [n], [outer, n, inner], got {x}, {indices}, {updates}"
        )
    if attributes["mode"] not in ("set", "add"):
        raise ctx.fail(f"`scatter_rows` has modes set and add, not {attributes['mode']!r}")
    total: DType | None = attributes["accumulate"]
    if total is not None and attributes["mode"] == "set":
        raise ctx.fail_dtype(f"`scatter_rows` that sets adds nothing up, and has no accumulator: got {total}")
    check_accumulator(ctx, "scatter_rows", x, total, x.dtype.compute)
    if total is not None and total.compute is not x.dtype.compute:
        raise ctx.fail_dtype(f"`scatter_rows` of {x.dtype} keeps its sums in its result, which does not hold {total}")
    for own, left in ((0, x.shape[0]), (1, indices.shape[0]), (2, x.shape[2])):
        equal_dims(
            ctx, "scatter_rows", left, updates.shape[own], f"{left} and {path('updates', own, updates.shape[own])}"
        )
    return [x]


def scatter_rows_reference(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    mode: str,
    accumulate: DType | None = None,
    checked: Any = None,
    in_place: bool = False,
) -> Array:
    """One index after the other, wherever they are; a narrow accumulator rounds what was added to, and nothing else."""
    refuse_outside(checked, indices, x.shape[1])
    out = x.copy()
    narrow = None if accumulate is None or accumulate.compute is accumulate else accumulate
    with np.errstate(over="ignore", invalid="ignore"):
        for number, row in enumerate(indices):
            made = updates[:, number] if mode == "set" else out[:, row] + updates[:, number]
            out[:, row] = made if narrow is None else round_as(made, narrow).astype(x.dtype)
    return out


def scatter_reference(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    mode: str,
    axis: int = 0,
    ordered: bool = True,
    accumulate: DType | None = None,
) -> Array:
    """The last of equal indices is kept, or their updates add up, in order: also where any order would do."""
    axis %= x.ndim
    shape = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
    compute = numpy_dtype((accumulate or dtype_of(x)).compute) if mode == "add" else x.dtype
    flat = legal_array(indices, x.shape[axis]).reshape(-1)
    rows = updates.astype(compute).reshape(shape[0], flat.size, shape[2])
    out = scatter_rows_reference(x.astype(compute).reshape(shape), flat, rows, mode=mode, accumulate=accumulate)
    return round_as(out.reshape(x.shape), dtype_of(x))


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


_WRITE_SAMPLES = (
    Sample("rows", _write_sample((5, 4), (7,), 0)),
    Sample("columns", _write_sample((3, 6), (2, 4), 1), {"axis": -1}),
    Sample("one", _write_sample((5, 3), (), 0)),
    Sample("none", _write_sample((5, 3), (0,), 0)),
    Sample("outside", _write_sample((4, 2), (9,), 0, -9, 9)),
)


SCATTER_ACCUMULATE = Attribute(
    "accumulate", "dtype", None, "dtype of the running sums; default f32 (f64 for f64), integers"
)
ORDERED = Attribute("ordered", "bool", True, "in the order of the indices; without it, runs may differ")


_WRITE_COST = cost_of(lambda operands, results, attributes: operands[2].size)

IN_PLACE = Attribute("in_place", "bool", False, "the result is in the memory of `x`: only the rows are written")


def _writer(name: str, summary: str, mode: str, dtypes: tuple[str, ...]) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x", "indices", "updates"),
        attributes=(FIRST_AXIS, ORDERED, SCATTER_ACCUMULATE) if mode == "add" else (FIRST_AXIS,),
        infer=partial(_infer_scatter, name),
        reference=partial(scatter_reference, mode=mode),
        nondeterminism=_find_unordered if mode == "add" else None,
        samples=_WRITE_SAMPLES,
        dtypes=dtypes,
        cost=_WRITE_COST,
        decompose=partial(_decompose_scatter, mode),
        takes_positions=True,
        policy=ROUND if mode == "add" else KEEP,
        interval=ANYTHING,
    )


SPECS: tuple[OpSpec, ...] = (
    _reader(
        "index_legal",
        "Elements of `x` at legal indices along some axes.",
        ("x", "indices*"),
        (*INDEXED_AXES, CHECKED),
        partial(_infer_index, "index_legal"),
        index_reference,
        _INDEXED_AXES_SAMPLES,
        lower=Gather(_index_maps),
    ),
    _reader(
        "index_get",
        f"x[...] with integer arrays along some axes; {RULE}.",
        ("x", "indices*"),
        INDEXED_AXES,
        partial(_infer_index, "index_get"),
        index_reference,
        (
            *_INDEXED_AXES_SAMPLES,
            Sample("outside", index_arrays((5, 4), (30,), low=-9, high=9), {"axes": (0,), "out_axis": 0}),
        ),
        decompose=_decompose_index,
        takes_positions=True,
    ),
    _reader(
        "take",
        f"Slices of an axis by index; {RULE}.",
        ("x", "indices"),
        (FIRST_AXIS,),
        _infer_take,
        take_reference,
        (
            Sample("rows", index_arrays((5, 7), (4,))),
            Sample("columns", index_arrays((3, 5), (2, 3), low=-9, high=9), {"axis": -1}),
            Sample("scalar index", index_arrays((5, 3), ())),
        ),
        decompose=_decompose_take,
    ),
    _reader(
        "embedding",
        f"Rows of a table by index; {RULE}.",
        ("table", "indices"),
        (),
        _infer_embedding,
        take_reference,
        (Sample("tokens", index_arrays((7, 16), (2, 5), low=0, high=7)),),
        decompose=_decompose_take,
    ),
    _reader(
        "gather",
        f"Elements or slices named by the last axis of `indices`; {RULE}.",
        ("x", "indices"),
        (),
        _infer_gather,
        gather_reference,
        (
            Sample("elements", index_arrays((5, 6), (4, 2))),
            Sample("slices", index_arrays((5, 6, 3), (2, 3, 1), low=-9, high=9)),
        ),
        decompose=_decompose_gather,
    ),
    _reader(
        "take_along_legal",
        "One element for each legal index along an axis; other axes broadcast.",
        ("x", "indices"),
        (LAST_AXIS, CHECKED),
        partial(_infer_along, "take_along_legal"),
        take_along_reference,
        (
            Sample("rows", index_arrays((4, 5), (4, 3), low=0)),
            Sample("stretched", index_arrays((5, 1, 4), (2, 3, 1), low=0), {"axis": 0}),
        ),
        lower=Gather(_along_maps),
    ),
    _reader(
        "take_along_axis",
        f"One element for each index along an axis; other axes broadcast; {RULE}.",
        ("x", "indices"),
        (LAST_AXIS,),
        partial(_infer_along, "take_along_axis"),
        take_along_reference,
        (
            Sample("rows", index_arrays((4, 5), (4, 3), low=-9, high=9)),
            Sample("first axis", index_arrays((5, 3), (2, 3)), {"axis": 0}),
        ),
        decompose=_decompose_along,
        takes_positions=True,
    ),
    OpSpec(
        name="tgraph.one_hot",
        summary="1 at each index along a new last axis, 0 elsewhere; an out-of-bounds index gives a row of zeros.",
        operands=("indices",),
        attributes=(
            Attribute("depth", "dims", doc="the size of the new axis, as one dim"),
            Attribute("dtype", "dtype", dt.f32),
        ),
        infer=_infer_one_hot,
        reference=one_hot_reference,
        samples=(
            Sample("floats", _classes, {"depth": (Dim.constant(7),)}),
            Sample("bools", _classes, {"depth": (Dim.constant(3),), "dtype": dt.bool_}),
        ),
        dtypes=("i32", "i64", "i16", "i8", "u8"),
        cost=visits(1),
        decompose=_decompose_one_hot,
        policy=KEEP,
        interval=always_within(0.0, 1.0, is_exact=True),
    ),
    _writer(
        "scatter",
        "`x` with slices of an axis replaced; of equal indices the last is kept; indices follow the rule of `take`.",
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
        name="tgraph.scatter_rows",
        summary="x[:, indices[i]] = updates[:, i], or +=, for i in order, at legal indices.",
        operands=("x", "indices", "updates"),
        attributes=(Attribute("mode", "str", doc="set or add"), SCATTER_ACCUMULATE, CHECKED, IN_PLACE),
        infer=_infer_scatter_rows,
        reference=scatter_rows_reference,
        samples=(
            Sample("set", _write_sample((2, 5, 3), (4,), 1, low=0), {"mode": "set"}),
            Sample("add", _write_sample((1, 5, 7), (40,), 1, low=0), {"mode": "add"}),
        ),
        dtypes=("f32", "f64", *INTEGERS),
        cost=_WRITE_COST,
        lower=Library("scatter", overwrites=0),
        policy=KEEP,
        interval=ANYTHING,
    ),
)
