"""Reading by index: take, gather, take_along_axis, index_get, embedding, one_hot.

One rule for every index: a negative one counts from the end, and `mode` says what one that is still out of bounds does.
It is clamped to the nearest end (`clip`, the default of reads), reads 0 and writes nothing (`drop`, the default of
writes), or ends the run before it is used (`error`). The rule is put in front of the `_legal` ops, which read memory
and trust their indices, unless they are `masked`, or `checked`: for `error`, and for the defaults in debug builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype, static, static_shape
from tessera.ir.base.index_maps import IndexMap
from tessera.ir.base.index_maps import coordinate as at
from tessera.ir.base.interval import SAME, always_within
from tessera.ir.base.spec import (
    KEEP,
    NUMBERS,
    Attribute,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import (
    Types,
    axes_attribute,
    cast,
    check_at_least,
    check_integer,
    check_sizes,
    constant,
    expand,
    index_axis,
    size_value,
    visits,
)
from tessera.ir.graph.samples import Make
from tessera.ir.tile.facets import Gather
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import (
    Named,
    Shape,
    TensorType,
    broadcast,
    equal_dims,
    is_at_least,
    normalize_axis,
    path,
    text,
)

STORED = (*NUMBERS, "i4", "bool")
_MOST = Dim.constant((1 << 63) - 1)
RULE = "negative indices count from the end, and `mode` says what others out of bounds do"
MODES = ("", "clip", "drop", "error")
MODE = Attribute(
    "mode",
    "str",
    "",
    "out of bounds: clip (to an end), drop (0 is read, nothing written), error, or the default",
)
BY = Attribute("by", "str", "", "the function that it is part of, by which an error names it")
MAY_BE_EMPTY = Attribute("may_be_empty", "bool", False, "an axis may have no elements, and is then read as 0")
MASKED = Attribute("masked", "bool", False, "indices may be out of bounds, where 0 is read")


def check_mode(ctx: InferContext, op: str, attributes: Attributes) -> str:
    """The `mode` of an op; raises for one that there is not."""
    mode = str(attributes["mode"])
    if mode not in MODES:
        raise ctx.fail(f"`{op}` has no mode {mode!r}", help='`mode` is "clip", "drop" or "error"')
    return mode


def legal_indices(b: Builder, indices: Any, extent: Dim, *, kept: bool = False) -> Any:
    """Indices as i64 within 0..extent-1, by the rule of this file; with `kept`, those out of bounds stay so."""
    kind = b.type_of(indices).dtype
    if kind.kind == "uint" and kept:
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
    return wrapped if kept else b.emit("clamp", wrapped, zero, _last(b, extent))


def _last(b: Builder, extent: Dim) -> Any:
    return size_value(b, extent - 1)


def legal_array(indices: Array, extent: int) -> Array:
    """The same rule on arrays."""
    if indices.dtype.kind == "u":
        return np.minimum(indices, np.uint64(max(extent - 1, 0))).astype(np.int64)
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, max(extent - 1, 0))


def refuse_outside(checked: Any, indices: Array, extent: int, *, ends: bool = False) -> None:
    """Raises PositionError (T0710) where indices that are `checked` are out of bounds, counted from the front."""
    if checked is None:
        return
    wrong = np.flatnonzero(~inside(indices, extent) if ends else (indices < 0) | (indices >= extent))
    if wrong.size:
        from tessera.runtime.callback import out_of_bounds_error  # noqa: PLC0415 - tracing needs no runtime
        from tessera.runtime.tensor import Tensor  # noqa: PLC0415

        first = int(indices.reshape(-1)[wrong[0]])
        first += extent if ends and first < 0 else 0
        raise out_of_bounds_error(checked, first, extent, Tensor.of(np.ascontiguousarray(indices)))


def inside(indices: Array, extent: int) -> Array:
    """Whether each index is in bounds, counted from either end."""
    if indices.dtype.kind == "u":
        return indices < np.uint64(extent)
    wide = indices.astype(np.int64)
    return (wide >= -extent) & (wide < extent)


def reference_mode(mode: str, checked: Any, op: str) -> tuple[str, Any]:
    """What a reference does with an out-of-bounds index, and what it reports of it."""
    return ("error", checked or {"op": op, "ends": True, "mode": mode}) if mode == "error" else (mode, checked)


def check_readable(ctx: InferContext, op: str, extent: Dim, indices: TensorType, attributes: Attributes) -> None:
    """Raises, or guards, where there are indices and nothing to read, and that is no answer."""
    is_answered = attributes.get("may_be_empty") or attributes.get("masked") or attributes.get("mode") == "drop"
    # As many indices along some axis as there are elements: of none, none is read.
    if indices.size.value != 0 and extent not in indices.shape and not is_answered:
        check_at_least(ctx, extent, 1, f"`{op}` reads from an axis of no elements")


def infer_gathered(
    ctx: InferContext, op: str, x: TensorType, indices: Types, axes: Sequence[int], out_axis: int, given: Attributes
) -> TensorType:
    """The dims that are kept, with the dims of the indices put in at `out_axis`."""
    if "mode" in given:
        check_mode(ctx, op, given)
    if len(indices) != len(axes) or not axes or len(set(axes)) != len(axes):
        raise ctx.fail(f"`{op}` needs one index for each of its axes {tuple(axes)}, got {len(indices)}")
    for axis, index in zip(axes, indices, strict=True):
        check_integer(ctx, op, index, "indices")
        if not 0 <= axis < x.rank:
            raise ctx.fail(f"`{op}` has no axis {axis} on a value of rank {x.rank}")
        check_readable(ctx, op, x.shape[axis], index, given)
    joined = broadcast(ctx, op, *(Named(f"index {number}", index.shape) for number, index in enumerate(indices)))
    kept = [dim for axis, dim in enumerate(x.shape) if axis not in axes]
    if not 0 <= out_axis <= len(kept):
        raise ctx.fail(f"`{op}` can put the indexed dims at 0..{len(kept)} of its result, not {out_axis}")
    return x.with_shape((*kept[:out_axis], *joined, *kept[out_axis:]))


def _infer_index(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, *indices = types
    return [infer_gathered(ctx, op, x, indices, axes_attribute(attributes, "axes"), attributes["out_axis"], attributes)]


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
    how = _how(attributes, [shape[axis] for axis in axes])
    kept = keeps_outside(attributes)
    legal = [legal_indices(b, index, shape[axis], kept=kept) for index, axis in zip(indices, axes, strict=True)]
    return b.emit("index_legal", x, *legal, axes=axes, out_axis=attributes["out_axis"], **how)


def _how(attributes: Attributes, extents: Sequence[Dim]) -> dict[str, Any]:
    """How a `_legal` op reads: whether it is checked, or masked."""
    checked = attributes.get("checked")
    is_dropped = attributes["mode"] == "drop" and checked is None
    # What is clamped is out of bounds all the same where there is nothing.
    is_empty = bool(attributes["may_be_empty"]) and not all(is_at_least(extent, 1) for extent in extents)
    return {"checked": checked, "masked": is_dropped or is_empty}


def keeps_outside(attributes: Attributes) -> bool:
    """Whether out-of-bounds indices are left for the `_legal` op to see."""
    return attributes.get("checked") is not None or attributes["mode"] == "drop"


def index_reference(
    x: Array,
    *indices: Array,
    axes: Sequence[int],
    out_axis: int,
    checked: Any = None,
    mode: str = "",
    masked: bool = False,
    may_be_empty: bool = False,
    by: str = "",
) -> Array:
    """NumPy's own indexing, with legal indices, and the indexed dims moved to their position."""
    mode, checked = reference_mode(mode, checked, by or "index_get")
    sizes = [x.shape[axis] for axis in axes]
    joined = np.broadcast_shapes(*(index.shape for index in indices))
    for index, size in zip(indices, sizes, strict=True):
        refuse_outside(checked, index, size, ends=mode == "error")
    moved = np.moveaxis(x, tuple(axes), tuple(range(len(axes))))
    kept, rank = moved.shape[len(axes) :], len(joined)
    if 0 in joined or 0 in sizes:
        out = np.zeros((*joined, *kept), x.dtype)
    else:
        out = moved[tuple(legal_array(index, size) for index, size in zip(indices, sizes, strict=True))]
        if mode == "drop" or masked:
            known = np.ones(joined, np.bool_)
            for index, size in zip(indices, sizes, strict=True):
                # What is masked counts from the front alone, and was made legal where it is to be.
                known &= inside(index, size) & ((index >= 0) | (not masked))
            out = np.where(known.reshape(joined + (1,) * len(kept)), out, np.zeros((), x.dtype))
    return np.ascontiguousarray(np.moveaxis(out, tuple(range(rank)), tuple(range(out_axis, out_axis + rank)))).reshape(
        (*kept[:out_axis], *joined, *kept[out_axis:])
    )


def _infer_take(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices = types
    axis = normalize_axis(ctx, "take", attributes["axis"], x.rank)
    return [infer_gathered(ctx, "take", x, [indices], (axis,), axis, attributes)]


def _decompose_take(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    axis = int(attributes.get("axis", 0)) % b.type_of(operands[0]).rank
    return b.emit("index_get", *operands, axes=(axis,), out_axis=axis, **_own_mode("take", attributes))


def _own_mode(op: str, attributes: Attributes) -> dict[str, Any]:
    """What the reader under another op takes from it."""
    mode = {"mode": attributes["mode"], "may_be_empty": attributes["may_be_empty"]}
    return {**mode, "by": "embedding" if "axis" not in attributes and op == "take" else op}


def take_reference(
    x: Array, indices: Array, *, axis: int = 0, mode: str = "", may_be_empty: bool = False, by: str = "take"
) -> Array:
    """Slices of one axis, by index."""
    return index_reference(x, indices, axes=(axis % x.ndim,), out_axis=axis % x.ndim, mode=mode, by=by)


def _infer_embedding(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    table, indices = types
    if table.rank != 2:
        raise ctx.fail(f"`embedding` needs a table [rows, size], got {text(table.shape)}")
    return [infer_gathered(ctx, "embedding", table, [indices], (0,), 0, attributes)]


def _infer_gather(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices = types
    check_integer(ctx, "gather", indices, "indices")
    check_mode(ctx, "gather", attributes)
    depth = indices.shape[-1].value if indices.rank else None
    if depth is None or not 1 <= depth <= x.rank:
        raise ctx.fail(
            f"`gather` needs indices [..., 1..{x.rank}], each naming an element or slice of {text(x.shape)}, "
            f"got {text(indices.shape)}"
        )
    for axis in range(depth):
        check_readable(ctx, "gather", x.shape[axis], indices, attributes)
    return [x.with_shape((*indices.shape[:-1], *x.shape[depth:]))]


def _decompose_gather(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, indices = operands
    shape = b.type_of(indices).shape
    depth = static(shape[-1])
    columns = [index_axis(b, indices, len(shape) - 1, number) for number in range(depth)]
    return b.emit("index_get", x, *columns, axes=tuple(range(depth)), out_axis=0, **_own_mode("gather", attributes))


def gather_reference(x: Array, indices: Array, *, mode: str = "", may_be_empty: bool = False) -> Array:
    """The elements, or slices, that the last axis of `indices` names."""
    depth = indices.shape[-1]
    columns = [indices[..., number] for number in range(depth)]
    return index_reference(x, *columns, axes=range(depth), out_axis=0, mode=mode, by="gather")


def _infer_along(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, indices = types
    check_integer(ctx, op, indices, "indices")
    axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
    if indices.rank != x.rank:
        raise ctx.fail(f"`{op}` needs indices of rank {x.rank}, got {text(indices.shape)}")
    if "mode" in attributes:
        check_mode(ctx, op, attributes)
    check_readable(ctx, op, x.shape[axis], indices, attributes)
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
    how = _how(attributes, [shape[axis]])
    legal = legal_indices(b, indices, shape[axis], kept=keeps_outside(attributes))
    return b.emit("take_along_legal", x, legal, axis=axis, **how)


def take_along_reference(
    x: Array,
    indices: Array,
    *,
    axis: int = -1,
    checked: Any = None,
    mode: str = "",
    masked: bool = False,
    may_be_empty: bool = False,
) -> Array:
    """One element for each index, along an axis; the other axes broadcast."""
    axis %= x.ndim
    mode, checked = reference_mode(mode, checked, "take_along_axis")
    refuse_outside(checked, indices, x.shape[axis], ends=mode == "error")
    legal = legal_array(indices, x.shape[axis])
    shape = [max(a, c) if min(a, c) else 0 for a, c in zip(x.shape, legal.shape, strict=True)]
    own = [n if number == axis else shape[number] for number, n in enumerate(x.shape)]
    asked = [n if number == axis else shape[number] for number, n in enumerate(legal.shape)]
    if 0 in asked or 0 in own:
        return np.zeros(asked, x.dtype)
    out = np.take_along_axis(np.broadcast_to(x, own), np.broadcast_to(legal, asked), axis)
    if mode == "drop" or masked:
        known = inside(indices, x.shape[axis]) & ((indices >= 0) | (not masked))
        out = np.where(np.broadcast_to(known, asked), out, np.zeros((), x.dtype))
    return out


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


def _infer_slice_legal(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, *starts = types
    axes, lengths = axes_attribute(attributes, "axes"), tuple(attributes["lengths"])
    if not len(starts) == len(axes) == len(lengths) or not axes or sorted(set(axes)) != list(axes):
        raise ctx.fail(
            f"`slice_legal` needs a start and a length for each axis, got {axes}, {len(starts)} and {len(lengths)}"
        )
    shape = list(x.shape)
    for axis, start, length in zip(axes, starts, lengths, strict=True):
        check_integer(ctx, "slice_legal", start, "starts")
        if start.rank or not 0 <= axis < x.rank:
            raise ctx.fail(
                f"`slice_legal` takes scalars for axes of {text(x.shape)}, got {text(start.shape)} for {axis}"
            )
        check_at_least(
            ctx, x.shape[axis] - length, 0, f"`slice_legal` takes {length} elements of {path('x', axis, x.shape[axis])}"
        )
        shape[axis] = length
    check_sizes(ctx, "slice_legal", tuple(shape))
    return [x.with_shape(shape)]


def _slice_maps(types: Types, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
    """Behind a start that all elements share: what is contiguous in `x` stays so, which indices of each would hide."""
    x, *starts = types
    axes = axes_attribute(attributes, "axes")
    reads = [at(axis) + (Dim.symbol(f"t{axes.index(axis)}") if axis in axes else 0) for axis in range(x.rank)]
    return [tuple(reads), *(() for _ in starts)]


def _slice_legal_reference(x: Array, *starts: Array, axes: Sequence[int], lengths: Sequence[Dim]) -> Array:
    for axis, start, length in zip(axes, starts, static_shape(lengths), strict=True):
        x = x[(slice(None),) * axis + (slice(int(start), int(start) + length),)]
    return np.ascontiguousarray(x)


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


SPECS: tuple[OpSpec, ...] = (
    _reader(
        "index_legal",
        "Elements of `x` at legal indices along some axes.",
        ("x", "indices*"),
        (*INDEXED_AXES, CHECKED, MASKED),
        partial(_infer_index, "index_legal"),
        index_reference,
        _INDEXED_AXES_SAMPLES,
        lower=Gather(_index_maps),
        jvp="first",
        transpose="indexing:index_legal",
        batch="movement:index_legal",
    ),
    _reader(
        "slice_legal",
        "The slice of `x` that begins at legal starts along some axes, and has these lengths there.",
        ("x", "starts*"),
        (
            Attribute("axes", "ints", doc="the axes of `x` that are cut, in order, one for each start"),
            Attribute("lengths", "dims", doc="how many elements of each"),
        ),
        _infer_slice_legal,
        _slice_legal_reference,
        (
            Sample("rows", index_arrays((5, 4), (), low=0, high=3), {"axes": (0,), "lengths": (Dim.constant(3),)}),
            Sample("columns", index_arrays((3, 40), (), low=0), {"axes": (1,), "lengths": (Dim.constant(35),)}),
            Sample(
                "both",
                index_arrays((5, 3, 6), (), (), low=0, high=3),
                {"axes": (0, 2), "lengths": (Dim.constant(3), Dim.constant(1))},
            ),
            Sample("nothing", index_arrays((5, 3), (), low=0), {"axes": (0,), "lengths": (Dim.constant(0),)}),
        ),
        lower=Gather(_slice_maps),
        jvp="first",
        transpose="indexing:slice_legal",
        batch="movement:slice_legal",
    ),
    _reader(
        "index_get",
        f"x[...] with integer arrays along some axes; {RULE}.",
        ("x", "indices*"),
        (*INDEXED_AXES, MODE, MAY_BE_EMPTY, BY),
        partial(_infer_index, "index_get"),
        index_reference,
        (
            *_INDEXED_AXES_SAMPLES,
            Sample("outside", index_arrays((5, 4), (30,), low=-9, high=9), {"axes": (0,), "out_axis": 0}),
            Sample(
                "dropped",
                index_arrays((5, 3, 4), (9, 1), (30,), low=-9, high=9),
                {"axes": (0, 2), "out_axis": 1, "mode": "drop"},
            ),
        ),
        decompose=_decompose_index,
        takes_positions=True,
    ),
    _reader(
        "take",
        f"Slices of an axis by index; {RULE}.",
        ("x", "indices"),
        (FIRST_AXIS, MODE, MAY_BE_EMPTY),
        _infer_take,
        take_reference,
        (
            Sample("rows", index_arrays((5, 7), (4,))),
            Sample("columns", index_arrays((3, 5), (2, 3), low=-9, high=9), {"axis": -1}),
            Sample("scalar index", index_arrays((5, 3), ())),
            Sample("clipped", index_arrays((5, 3), (20,), low=-9, high=9), {"mode": "clip"}),
        ),
        decompose=_decompose_take,
    ),
    _reader(
        "embedding",
        f"Rows of a table by index; {RULE}.",
        ("table", "indices"),
        (MODE, MAY_BE_EMPTY),
        _infer_embedding,
        partial(take_reference, by="embedding"),
        (
            Sample("tokens", index_arrays((7, 16), (2, 5), low=0, high=7)),
            Sample("dropped", index_arrays((7, 16), (2, 9), low=-12, high=12), {"mode": "drop"}),
        ),
        decompose=_decompose_take,
    ),
    _reader(
        "gather",
        f"Elements or slices named by the last axis of `indices`; {RULE}.",
        ("x", "indices"),
        (MODE, MAY_BE_EMPTY),
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
        (LAST_AXIS, CHECKED, MASKED),
        partial(_infer_along, "take_along_legal"),
        take_along_reference,
        (
            Sample("rows", index_arrays((4, 5), (4, 3), low=0)),
            Sample("stretched", index_arrays((5, 1, 4), (2, 3, 1), low=0), {"axis": 0}),
        ),
        lower=Gather(_along_maps),
        jvp="first",
        transpose="indexing:take_along",
        batch="movement:take_along",
    ),
    _reader(
        "take_along_axis",
        f"One element for each index along an axis; other axes broadcast; {RULE}.",
        ("x", "indices"),
        (LAST_AXIS, MODE, MAY_BE_EMPTY),
        partial(_infer_along, "take_along_axis"),
        take_along_reference,
        (
            Sample("rows", index_arrays((4, 5), (4, 3), low=-9, high=9)),
            Sample("first axis", index_arrays((5, 3), (2, 3)), {"axis": 0}),
            Sample("dropped", index_arrays((4, 5), (4, 30), low=-9, high=9), {"mode": "drop"}),
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
)
