"""A contiguous key-value cache as three values (keys, values, length): what is done to it is a state effect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.ir.base.interval import ANYTHING, IntervalRule
from tessera.ir.base.spec import FLOATS, KEEP, Attribute, Attributes, Builder, InferContext, OpSpec, Sample
from tessera.ir.graph.building import (
    Types,
    cast,
    check_integer,
    common_dtype,
    constant,
    expand,
    match_dims,
    restate,
    size_value,
    visits,
)
from tessera.ir.graph.samples import Make
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.device import problem
from tessera.types.dim import Dim
from tessera.types.shape import Named, TensorType, equal_dims, path, text

STATE = frozenset({"state"})
NAMES = ("batch", "heads", "length", "head dim")


def _check_cache(ctx: InferContext, op: str, keys: TensorType, values: TensorType, length: TensorType) -> None:
    for name, store in (("keys", keys), ("values", values)):
        if store.rank != 4:
            raise ctx.fail(f"`{op}` needs `{name}` [batch, heads, capacity, head dim], got {text(store.shape)}")
    common_dtype(ctx, op, (keys, values))
    match_dims(ctx, op, Named("keys", keys.shape), Named("values", values.shape), range(3))
    if length.rank or length.dtype is not dt.i64:
        raise ctx.fail(f"`{op}` needs `length` as one i64, got {length}")


def _infer_append(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    keys, values, length, k, v = types
    _check_cache(ctx, "kv_append", keys, values, length)
    for name, store, new in (("k", keys, k), ("v", values, v)):
        if new.rank != 4:
            raise ctx.fail(f"`kv_append` needs `{name}` [batch, heads, length, head dim], got {text(new.shape)}")
        if new.dtype is not store.dtype:
            raise ctx.fail_dtype(
                f"`kv_append` cannot put {new.dtype} into a cache of {store.dtype}",
                help=f"cast it, as in `{name}.cast({store.dtype})`",
            )
        for axis in (0, 1, 3):
            what = f"{NAMES[axis]} of the cache {store.shape[axis]} and {path(name, axis, new.shape[axis])}"
            equal_dims(ctx, "kv_append", store.shape[axis], new.shape[axis], what)
    match_dims(ctx, "kv_append", Named("k", k.shape), Named("v", v.shape), (2,))
    return [keys, values, length]


def _infer_prune(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    _check_cache(ctx, "kv_prune", *types)
    if attributes["keep"] < 0:
        raise ctx.fail(f"`kv_prune` needs `keep` of at least 0, got {attributes['keep']}")
    return list(types)


def _infer_move(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    _check_cache(ctx, op, *types)
    wrong = problem("global", attributes["space"])
    if wrong:
        raise ctx.fail(f"`{op}`: {wrong}", help="write `shared` to bring a cache near, `host` to move it away")
    return list(types)


def _decompose_move(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Where there is one memory, everything is there already."""
    return tuple(operands)


def _decompose_prefetch(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Keys and values are prefetched; the length is one number."""
    keys, values, length = operands
    space = attributes["space"]
    return b.emit("prefetch", keys, space=space), b.emit("prefetch", values, space=space), length


def _gather_rows(b: Builder, store: Any, source: Any, extent: Dim) -> Any:
    """Position j of the result is position source[j] of `store`, clamped to it."""
    last = size_value(b, extent - 1)
    legal = b.emit("clamp", source, constant(b, 0, dt.i64), last)
    return b.emit("index_legal", store, legal, axes=(2,), out_axis=2)


def _decompose_append(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Each position takes its new row where it has one, and keeps the old one elsewhere."""
    keys, values, length, *news = operands
    added = b.type_of(news[0]).shape[2]
    if added.value == 0:
        return keys, values, length
    stores = [b.emit("kv_write", old, length, new) for old, new in zip((keys, values), news, strict=True)]
    return (*stores, b.emit("add", length, size_value(b, added)))


def _decompose_prune(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    keys, values, length = operands
    capacity = b.type_of(keys).shape[2]
    kept = b.emit("minimum", length, constant(b, int(attributes["keep"]), dt.i64))
    position = b.emit("iota", shape=(capacity,), axis=0, dtype=dt.i64)
    source = b.emit("add", position, b.emit("sub", length, kept))
    filled = expand(b, b.emit("lt", position, kept), 1)  # broadcasts with [batch, heads, position, head dim]
    stores: list[Any] = []
    for old in (keys, values):
        zero = cast(b, constant(b, 0.0, dt.f32), b.type_of(old).dtype)
        made = b.emit("where", filled, _gather_rows(b, old, source, b.type_of(old).shape[2]), zero)
        stores.append(restate(b, made, b.type_of(old).shape))
    return (*stores, kept)


def _infer_write(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    old, length, new = types
    check_integer(ctx, "kv_write", length, "length")
    common_dtype(ctx, "kv_write", (old, new))
    if old.rank != 4 or new.rank != 4 or length.rank:
        raise ctx.fail(f"`kv_write` takes two tensors of 4 dims and a number, got {old}, {new} and {length}")
    match_dims(ctx, "kv_write", Named("old", old.shape), Named("new", new.shape), (0, 1, 3))
    return [old]


def kv_write_reference(old: Array, length: Array, new: Array, *, in_place: bool = False) -> Array:
    """The old rows, with the new ones from `length` on, as far as the capacity goes; wherever they are."""
    start, out = int(length), old.copy()
    low, high = max(start, 0), min(start + new.shape[2], old.shape[2])
    if low < high:
        out[:, :, low:high] = new[:, :, low - start : high - start]
    return out


def kv_append_reference(keys: Array, values: Array, length: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """The new rows after the filled ones; rows beyond the capacity are left out, and the length says so."""
    start, capacity = int(length), keys.shape[2]
    stop = min(start + k.shape[2], capacity)
    stores: list[Array] = []
    for old, new in ((keys, k), (values, v)):
        out = old.copy()
        out[:, :, start:stop] = new[:, :, : max(stop - start, 0)]
        stores.append(out)
    return stores[0], stores[1], np.array(start + k.shape[2], np.int64)


def kv_prune_reference(keys: Array, values: Array, length: Array, *, keep: int) -> tuple[Array, Array, Array]:
    """The last `keep` filled rows moved to the front, zeros behind them."""
    filled = int(length)
    kept = min(filled, keep)
    stores: list[Array] = []
    for old in (keys, values):
        out = np.zeros_like(old)
        out[:, :, :kept] = old[:, :, filled - kept : filled]
        stores.append(out)
    return stores[0], stores[1], np.array(kept, np.int64)


def kv_move_reference(keys: Array, values: Array, length: Array, *, space: str = "") -> tuple[Array, Array, Array]:
    """A memory space does not change elements."""
    return keys.copy(), values.copy(), length.copy()


def _cache(filled: int, added: int | None = None) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        def rows(count: int) -> Array:
            return rng.standard_normal((2, 3, count, 4)).astype(np.float32)

        stored = [rows(7), rows(7), np.array(filled, np.int64)]
        return stored if added is None else [*stored, rows(added), rows(added)]

    return make


def _write_sample(start: int, added: int) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        old, new = (rng.standard_normal((2, 3, count, 4)).astype(np.float32) for count in (7, added))
        return [old, np.array(start, np.int64), new]

    return make


CACHE = ("keys", "values", "length")
IN_PLACE = Attribute("in_place", "bool", False, "the result is in the memory of `old`: only new rows are written")
GROWN = ("new_keys", "new_values", "new_length")


def _mover(name: str, summary: str, space: str, decompose: Any) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=CACHE,
        results=GROWN,
        attributes=(Attribute("space", "str", space, "the memory it goes to"),),
        infer=partial(_infer_move, name),
        reference=kv_move_reference,
        effects=STATE,
        samples=(Sample("filled", _cache(5)),),
        dtypes=FLOATS,
        cost=visits(0),
        decompose=decompose,
        policy=KEEP,
        interval=ANYTHING,
    )


SPECS: tuple[OpSpec, ...] = (
    _mover("kv_offload", "A cache moved to a larger memory, to be prefetched later.", "host", _decompose_move),
    _mover("kv_prefetch", "A cache prefetched to a memory space before its use.", "shared", _decompose_prefetch),
    OpSpec(
        name="tgraph.kv_write",
        summary="Rows of a cache with new ones from position `length` on; those beyond its capacity are left out.",
        operands=("old", "length", "new"),
        attributes=(IN_PLACE,),
        infer=_infer_write,
        shard="library:kv_write",
        reference=kv_write_reference,
        samples=(
            Sample("in the middle", _write_sample(2, 3)),
            Sample("at the start", _write_sample(0, 7)),
            Sample("past the end", _write_sample(6, 3)),
        ),
        dtypes=FLOATS,
        cost=visits(0),
        lower=Library("kv_write", reads_views=True, overwrites=0),
        jvp="attention:kv_write_jvp",
        transpose="attention:kv_write",
        batch="kv_write",
        policy=KEEP,
        interval=IntervalRule(lambda query: query.operands[0].hull(query.operands[2]), is_exact=True),
    ),
    OpSpec(
        name="tgraph.kv_append",
        summary="Keys and values written to a cache at position `length`, which grows, beyond the capacity if need be.",
        operands=(*CACHE, "k", "v"),
        results=GROWN,
        infer=_infer_append,
        reference=kv_append_reference,
        effects=STATE,
        samples=(
            Sample("first", _cache(0, 3)),
            Sample("one more", _cache(4, 1)),
            Sample("to the end", _cache(5, 2)),
            Sample("past the end", _cache(6, 3)),
            Sample("nothing", _cache(3, 0)),
        ),
        dtypes=FLOATS,
        cost=visits(0),
        decompose=_decompose_append,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.kv_prune",
        summary="A cache of only its last `keep` positions, moved to the front.",
        operands=CACHE,
        results=GROWN,
        attributes=(Attribute("keep", "int", doc="how many of the newest positions stay"),),
        infer=_infer_prune,
        reference=kv_prune_reference,
        effects=STATE,
        samples=(
            Sample("two of five", _cache(5), {"keep": 2}),
            Sample("fewer than asked", _cache(2), {"keep": 4}),
            Sample("nothing", _cache(5), {"keep": 0}),
        ),
        dtypes=FLOATS,
        cost=visits(0),
        decompose=_decompose_prune,
        policy=KEEP,
        interval=ANYTHING,
    ),
)
