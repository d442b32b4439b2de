"""Contractions of two operands: matmul with NumPy's rules, and dot_general."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, added_once, dtype_of, exact, numpy_dtype, round_as, static
from tessera.ir.base.index_maps import delinear
from tessera.ir.base.interval import INF, Interval, IntervalQuery, IntervalRule, multiply, total_of
from tessera.ir.base.spec import (
    FLOATS,
    INTEGERS,
    Attribute,
    AttributeRule,
    Attributes,
    Builder,
    InferContext,
    OpSpec,
    PolicyRule,
    Sample,
    Simplifier,
)
from tessera.ir.graph.building import Types, axes_attribute, cast, cost_of, expand, same_dim
from tessera.ir.graph.ops.segments import UNIT, join_segments, segment_length
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import Contraction, ContractionMaps, Reordered
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.dtype import BlockFormat, DType
from tessera.types.promotion import promote
from tessera.types.shape import ONE, Named, Shape, TensorType, broadcast, is_refuted, path, text

NUMERICS = (
    Attribute(
        "accumulate", "dtype", None, "dtype of the running sum; default f32 (f64 for f64); integers in 32 or 64 bits"
    ),
    Attribute("dtype", "dtype", None, "dtype of the result; default the promoted dtype of the operands"),
    Attribute("segment", "dim", None, "elements of K in each segment, which are added up by themselves; None is all"),
    Attribute("partial", "bool", False, "give what each segment adds up to, as the first axis, for a join to add"),
)


def coordinate(group: str, index: int) -> Dim:
    """A coordinate of the contraction's loop nest, such as `m0`."""
    return Dim.symbol(f"{group}{index}")


def with_segments(sizes: Callable[[Types, Attributes], tuple[Dim, Dim]]) -> AttributeRule:
    """The rule that cuts K into segments; `sizes` are K and the columns."""

    def rule(types: Types, attributes: Attributes) -> Attributes:
        try:
            return {"segment": segment_length(*sizes(types, attributes))}
        except IndexError:  # operands of a rank that `infer` refuses
            return {}

    return rule


def check_segments(ctx: InferContext, op: str, whole: TensorType, k: Dim, attributes: Attributes) -> TensorType:
    """The type of a result, or of partial ones: one for each segment, in the accumulator."""
    length: Dim | None = attributes["segment"]
    if length is not None and ((length % UNIT).value != 0 or length.value == 0):
        raise ctx.fail(f"`{op}` takes segments of a multiple of {UNIT} elements of K, got {length}")
    if not attributes["partial"]:
        return whole
    if length is None:
        raise ctx.fail(f"`{op}` gives partial results of segments, and `segment` does not say how long they are")
    return TensorType((k.ceildiv(length), *whole.shape), attributes["accumulate"] or whole.dtype)


def segment_maps(maps: ContractionMaps, attributes: Attributes) -> ContractionMaps:
    """The maps of partial results: segments are the first batch axis, and K is what a segment has of it."""
    if not attributes.get("partial"):
        return maps
    length: Dim = attributes["segment"]
    whole = product(maps.k)
    batch = {f"b{axis}": coordinate("b", axis + 1) for axis in range(len(maps.batch))}
    parts = delinear(coordinate("b", 0) * length + coordinate("k", 0), maps.k)
    where = {**batch, **{f"k{axis}": part for axis, part in enumerate(parts)}}
    lhs, rhs = (tuple(index.substitute(where) for index in own) for own in (maps.lhs, maps.rhs))
    windows = tuple((operand, index.substitute(where), extent) for operand, index, extent in maps.windows)
    count = whole.ceildiv(length)
    cut = whole - coordinate("b", 0) * length
    kept = maps.in_memory, maps.are_copied
    return ContractionMaps((count, *maps.batch), maps.m, maps.n, (length,), lhs, rhs, windows, cut, *kept)


def accumulator(result: DType) -> DType:
    """The running sum's dtype where none is stated: wide enough for the result, so integers wrap the same way."""
    if result.is_float:
        return result.compute
    if result.kind == "uint":
        return dt.u64 if result.bits > 32 else dt.u32
    return dt.i64 if result.bits > 32 else dt.i32


def contraction_dtype(ctx: InferContext, op: str, types: Types, attributes: Attributes) -> DType:
    """The result's dtype, once operands, accumulator and result are found to agree."""
    for operand in types:
        if operand.dtype.is_bool:
            raise ctx.fail_dtype(f"`{op}` needs numbers, got bool", help='cast it, as in `x.cast("i32")`')
    operand_dtype = promote(types[0].dtype, types[1].dtype)
    if operand_dtype is None:
        raise ctx.fail_dtype(
            f"`{op}` cannot mix {types[0].dtype} and {types[1].dtype}: neither holds every value of the other",
            help=f'cast one of them, as in `x.cast("{types[1].dtype}")`',
        )
    result: DType = attributes["dtype"] or operand_dtype
    accumulate: DType | None = attributes["accumulate"]
    if result.is_bool or (operand_dtype.is_float and not result.is_float):
        raise ctx.fail_dtype(f"`{op}` of {operand_dtype} cannot give {result}", help="cast the result instead")
    if accumulate is not None and (accumulate.bits < 32 or accumulate.is_float != operand_dtype.is_float):
        wanted = "f32 or f64" if operand_dtype.is_float else "a 32- or 64-bit integer"
        is_narrow = operand_dtype.is_float and accumulate.is_float
        help = f"put it in `with policy(accumulate={accumulate}):`, which sums by another recipe" if is_narrow else ""
        raise ctx.fail_dtype(f"`{op}` of {operand_dtype} accumulates in {wanted}, not {accumulate}", help=help)
    return result


def reference_dtype(a: Array, b: Array, dtype: DType | None) -> DType:
    """The result dtype of a reference, which only sees arrays."""
    result = dtype or promote(dtype_of(a), dtype_of(b))
    assert result is not None, "operands that do not promote are refused by `infer`"
    return result


def exact_pair(a: Array, b: Array) -> tuple[Array, Array]:
    """Both operands in one wide dtype, in which products do not round."""
    wide = np.result_type(exact(a), exact(b))
    return exact(a).astype(wide, copy=False), exact(b).astype(wide, copy=False)


def _infer_matmul(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    a, b = types
    if not a.rank or not b.rank:
        raise ctx.fail("`matmul` needs operands with at least one dim, got a scalar", help="multiply scalars with `*`")
    dtype = contraction_dtype(ctx, "matmul", types, attributes)
    at = max(b.rank - 2, 0)
    inner = f"{path('a', a.rank - 1, a.shape[-1])} and {path('b', at, b.shape[at])}"
    message = f"cannot multiply {text(a.shape)} by {text(b.shape)}: the inner dimensions"
    if is_refuted(a.shape[-1], b.shape[at]):
        is_transposed = b.rank > 1 and b.shape[-1] == a.shape[-1]
        help = "transpose the right operand if it is stored [out, in]" if is_transposed else ""
        raise ctx.fail(f"{message} {inner} differ", help=help)
    ctx.equal(a.shape[-1], b.shape[at], f"{message} {inner} must be equal")
    batch = broadcast(ctx, "matmul", Named("a", a.shape[:-2]), Named("b", b.shape[:-2]))
    whole = TensorType((*batch, *a.shape[-2:-1], *b.shape[-1:][: b.rank - 1]), dtype)
    return [check_segments(ctx, "matmul", whole, a.shape[-1], attributes)]


def _matmul_sizes(types: Types, attributes: Attributes) -> tuple[Dim, Dim]:
    a, b = types
    return a.shape[-1], b.shape[-1] if b.rank > 1 else ONE


def _batch_map(operand: Sequence[Dim], batch: Sequence[Dim]) -> tuple[Dim, ...]:
    """Coordinates of the operand's batch dims: those of the result, 0 where a dim of 1 stretches."""
    skipped = len(batch) - len(operand)
    return tuple(
        Dim.constant(0) if dim.value == 1 and batch[skipped + axis].value != 1 else coordinate("b", skipped + axis)
        for axis, dim in enumerate(operand)
    )


def _broadcast_batch(left: Sequence[Dim], right: Sequence[Dim]) -> tuple[Dim, ...]:
    """The broadcast of two shapes that `infer` found compatible."""
    rank = max(len(left), len(right))
    one = Dim.constant(1)
    a, b = ((one,) * (rank - len(shape)) + tuple(shape) for shape in (left, right))
    return tuple(y if x.value == 1 else x for x, y in zip(a, b, strict=True))


def _matmul_maps(types: Types, attributes: Attributes) -> ContractionMaps:
    a, b = types
    batch = _broadcast_batch(a.shape[:-2], b.shape[:-2])
    m, n = a.shape[-2:-1], (b.shape[-1:] if b.rank > 1 else ())
    if b.rank <= 2:
        # One right-hand matrix for the whole batch: rows of all batches are rows of one matmul.
        batch, m = (), a.shape[:-1]
    row = tuple(coordinate("m", axis) for axis in range(len(m)))
    column = (coordinate("n", 0),) if n else ()
    inner = (coordinate("k", 0),)
    maps = ContractionMaps(
        batch=batch,
        m=m,
        n=n,
        k=(a.shape[-1],),
        lhs=(*(_batch_map(a.shape[:-2], batch) if batch else ()), *row, *inner),
        rhs=(*_batch_map(b.shape[:-2], batch), *inner, *column),
    )
    return segment_maps(maps, attributes)


def reference_accumulator(a: Array, b: Array, result: DType, accumulate: DType | None) -> DType:
    """The dtype of the accumulator: as asked for; of floats f32, or f64 where f64 takes part."""
    return accumulate or (dt.f64 if dt.f64 in (dtype_of(a), dtype_of(b)) else accumulator(result))


def contract_reference(
    a: Array,
    b: Array,
    result: DType,
    accumulate: DType | None,
    segment: Dim | int | None = None,
    partial: bool = False,
) -> Array:
    """`a @ b` on stacks of matrices by the recipe of contractions: segments of k, joined by an aligned binary tree."""
    length, k = 0 if segment is None else static(segment), a.shape[-1]
    if not length or (k <= length and not partial):
        return _chain_reference(a, b, result, accumulate)
    total = reference_accumulator(a, b, result, accumulate)
    cuts = [slice(start, start + length) for start in range(0, max(k, 1), length)]
    parts = [_chain_reference(a[..., cut], b[..., cut, :], total, accumulate) for cut in cuts]
    if partial:
        return np.stack(parts)
    with np.errstate(over="ignore", invalid="ignore"):
        return round_as(exact(join_segments(parts, np.add)), result)


def _chain_reference(a: Array, b: Array, result: DType, accumulate: DType | None) -> Array:
    """`a @ b` on stacks of matrices: one chain of fused multiply-adds over k, in order.

    A product of two f32 is exact in f64, so adding there and rounding once is a fused multiply-add. What is in f64 and
    summed in f32 is rounded first. Integers wrap and f64 has no wider type to do this in; there NumPy's order serves.
    """
    x, y = exact_pair(a, b)
    kept = numpy_dtype(reference_accumulator(a, b, result, accumulate))
    is_wide = dt.f64 in (dtype_of(a), dtype_of(b))
    with np.errstate(over="ignore", invalid="ignore"):
        if x.dtype != np.float64 or (is_wide and kept == np.float64):
            return round_as(np.matmul(x, y), result)
        if is_wide:
            x, y = (operand.astype(kept).astype(np.float64) for operand in (x, y))
        total = np.zeros(np.matmul(x[..., :0], y[..., :0, :]).shape, kept)
        for k in range(x.shape[-1]):
            product = x[..., :, k : k + 1] * y[..., k : k + 1, :]
            total = added_once(product, total) if kept == np.float32 else (total + product).astype(kept)
    return round_as(total, result)


def matmul_reference(a: Array, b: Array, *, dtype: DType | None = None, **numerics: Any) -> Array:
    """`a @ b` by NumPy's rules: a 1-D operand is a matrix of one row or column, which the result does not have."""
    left, right = (a[np.newaxis] if a.ndim == 1 else a), (b[:, np.newaxis] if b.ndim == 1 else b)
    out = contract_reference(left, right, reference_dtype(a, b, dtype), **_with_accumulator(numerics))
    if b.ndim == 1:
        out = out[..., 0]
    if a.ndim == 1:
        out = out[..., 0] if b.ndim == 1 else out[..., 0, :]
    return np.asarray(out)


Axes: TypeAlias = tuple[int, ...]


def _axes_text(axes: Sequence[int]) -> str:
    return f"({', '.join(map(str, axes))})"


def _split_axes(attributes: Attributes, name: str, rank: int) -> tuple[Axes, Axes, Axes]:
    """The batch axes, the contracted axes and the other axes of an operand, `lhs` or `rhs`."""
    batch, contract = (axes_attribute(attributes, f"{name}_{kind}") for kind in ("batch", "contract"))
    return batch, contract, tuple(axis for axis in range(rank) if axis not in (*batch, *contract))


def _check_axes(ctx: InferContext, attributes: Attributes, name: str, rank: int) -> tuple[Axes, Axes, Axes]:
    batch, contract, free = _split_axes(attributes, name, rank)
    named = (*batch, *contract)
    if any(not 0 <= axis < rank for axis in named) or len(set(named)) != len(named):
        raise ctx.fail(
            f"`{name}_batch` {_axes_text(batch)} and `{name}_contract` {_axes_text(contract)} must name "
            f"different axes of a tensor of rank {rank}"
        )
    return batch, contract, free


def _infer_dot_general(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    a, b = types
    dtype = contraction_dtype(ctx, "dot_general", types, attributes)
    a_batch, a_contract, a_free = _check_axes(ctx, attributes, "lhs", a.rank)
    b_batch, b_contract, b_free = _check_axes(ctx, attributes, "rhs", b.rank)
    for kind, left, right in (("batch", a_batch, b_batch), ("contract", a_contract, b_contract)):
        if len(left) != len(right):
            raise ctx.fail(
                f"`lhs_{kind}` names {len(left)} axes and `rhs_{kind}` {len(right)}: they pair up one to one"
            )
        for x, y in zip(left, right, strict=True):
            message = f"`dot_general` pairs axis {x} of {text(a.shape)} with axis {y} of {text(b.shape)}"
            same_dim(ctx, a.shape[x], b.shape[y], f"{message}, which differ")
    kept = (*(a.shape[axis] for axis in (*a_batch, *a_free)), *(b.shape[axis] for axis in b_free))
    k = product(a.shape[axis] for axis in a_contract)
    return [check_segments(ctx, "dot_general", TensorType(kept, dtype), k, attributes)]


def _dot_general_sizes(types: Types, attributes: Attributes) -> tuple[Dim, Dim]:
    a, b = types
    free = _split_axes(attributes, "rhs", b.rank)[2]
    contracted = axes_attribute(attributes, "lhs_contract")
    return product(a.shape[axis] for axis in contracted), product(b.shape[axis] for axis in free)


def _dot_general_maps(types: Types, attributes: Attributes) -> ContractionMaps:
    a, b = types

    def read(operand: TensorType, name: str, group: str) -> tuple[tuple[Dim, ...], Shape]:
        """Where an operand is read, and the dims of its own."""
        batch, contract, free = _split_axes(attributes, name, operand.rank)
        indices: dict[int, Dim] = {}
        for letter, axes in (("b", batch), ("k", contract), (group, free)):
            indices.update({axis: coordinate(letter, number) for number, axis in enumerate(axes)})
        return tuple(indices[axis] for axis in range(operand.rank)), tuple(operand.shape[axis] for axis in free)

    (lhs, m), (rhs, n) = read(a, "lhs", "m"), read(b, "rhs", "n")
    batch, contract, _ = _split_axes(attributes, "lhs", a.rank)
    shared = tuple(a.shape[axis] for axis in batch)
    k = tuple(a.shape[axis] for axis in contract)
    return segment_maps(ContractionMaps(batch=shared, m=m, n=n, k=k, lhs=lhs, rhs=rhs), attributes)


def _reorder_dot_general(types: Types, attributes: Attributes, number: int, axes: Axes) -> Reordered | None:
    """The same contraction of an operand that is transposed: its axes are named by where they are then."""
    name = ("lhs", "rhs")[number]
    batch, contract, free = _split_axes(attributes, name, types[number].rank)
    if [axis for axis in axes if axis in free] != list(free):
        return None  # the dims of the result would be in another order
    moved = {
        f"{name}_batch": tuple(axes.index(axis) for axis in batch),
        f"{name}_contract": tuple(axes.index(axis) for axis in contract),
    }
    return Reordered("tgraph.transpose", {"axes": axes}, "tgraph.dot_general", {**attributes, **moved})


def _reorder_matmul(types: Types, attributes: Attributes, number: int, axes: Axes) -> Reordered | None:
    """A matmul as a `dot_general`, of matrices whose batch dims are the same, or of which the right one has none."""
    a, b = types
    if min(a.rank, b.rank) < 2 or (b.rank > 2 and a.shape[:-2] != b.shape[:-2]):
        return None
    batch = tuple(range(b.rank - 2))
    named = {"lhs_batch": batch, "rhs_batch": batch, "lhs_contract": (a.rank - 1,), "rhs_contract": (b.rank - 2,)}
    return _reorder_dot_general(types, {**attributes, **named}, number, axes)


def _group_axes(b: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Transpose operands so that free axes are adjacent, and contracted ones too: kernels loop over each as one."""
    made = dict(attributes)
    moved: list[Any] = []
    for operand, name in zip(operands, ("lhs", "rhs"), strict=True):
        shape = b.type_of(operand).shape
        batch, contract, free = _split_axes(attributes, name, len(shape))
        if all(_is_run(shape, axes) for axes in (free, contract)):
            moved.append(operand)
            continue
        order = (*batch, *free, *contract) if name == "lhs" else (*batch, *contract, *free)
        moved.append(b.emit("transpose", operand, axes=order))
        made[f"{name}_batch"] = tuple(range(len(batch)))
        made[f"{name}_contract"] = tuple(order.index(axis) for axis in contract)
    if all(value is operand for value, operand in zip(moved, operands, strict=True)):
        return None
    return b.emit("dot_general", *moved, **made)


def _is_run(shape: Sequence[Dim], axes: Sequence[int]) -> bool:
    """Whether axes follow each other, but for those of one element."""
    kept = [axis for axis in axes if shape[axis].value != 1]
    between = [axis for axis in range(kept[0], kept[-1] + 1) if shape[axis].value != 1] if kept else []
    return kept == between


def _with_accumulator(numerics: Attributes) -> dict[str, Any]:
    return {"accumulate": None, **numerics}


def dot_general_reference(a: Array, b: Array, *, dtype: DType | None = None, **attributes: Any) -> Array:
    """Batch dims first, then the other dims of `a`, then those of `b`; contracted dims as one, in row-major order."""
    given = [name for name in ("accumulate", "segment", "partial") if name in attributes]
    numerics = _with_accumulator({name: attributes.pop(name) for name in given})
    shared, contracted, rows = _split_axes(attributes, "lhs", a.ndim)
    batch, inner, columns = _split_axes(attributes, "rhs", b.ndim)
    x, y = a.transpose((*shared, *rows, *contracted)), b.transpose((*batch, *inner, *columns))
    kept, m, n = ([array.shape[axis] for axis in of] for array, of in ((a, shared), (a, rows), (b, columns)))
    k = math.prod(a.shape[axis] for axis in contracted)
    left, right = x.reshape(*kept, math.prod(m), k), y.reshape(*kept, k, math.prod(n))
    out = contract_reference(left, right, reference_dtype(a, b, dtype), **numerics)
    return out.reshape((*out.shape[: out.ndim - left.ndim], *kept, *m, *n))


def _dot_general_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    inner = product(operands[0].shape[axis] for axis in axes_attribute(attributes, "lhs_contract"))
    return _whole_size(results[0], attributes) * inner * 2


def _matmul_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    return _whole_size(results[0], attributes) * operands[0].shape[-1] * 2


def _whole_size(result: TensorType, attributes: Attributes) -> Dim:
    """Elements of a result, of which partial ones are sums of fewer products each."""
    return product(result.shape[1:]) if attributes["partial"] else result.size


def accumulate_matmul(b: Builder, left: Any, right: Any, total: DType) -> Any:
    """`left @ right` in an accumulator that its kernel does not have: a sum of products in f32, or a chain in f64.

    Terms are rounded to a narrow accumulator as they join it, so the sum takes them as they are.
    """
    if total is dt.f64:
        return cast(b, b.emit("matmul", cast(b, left, dt.f64), cast(b, right, dt.f64)), dt.f32)
    is_row, is_column = b.type_of(left).rank == 1, b.type_of(right).rank == 1
    left = expand(b, cast(b, left, dt.f32), 0) if is_row else cast(b, left, dt.f32)
    right = expand(b, cast(b, right, dt.f32), 1) if is_column else cast(b, right, dt.f32)
    a, c = b.type_of(left).shape, b.type_of(right).shape
    terms = b.emit(
        "mul", b.emit("reshape", left, shape=(*a, ONE)), b.emit("reshape", right, shape=(*c[:-2], ONE, *c[-2:]))
    )
    made = b.emit("sum", terms, axes=(b.type_of(terms).rank - 2,), keepdims=False, accumulate=total)
    shape = b.type_of(made).shape
    rows, columns = () if is_row else shape[-2:-1], () if is_column else shape[-1:]
    return b.emit("reshape", made, shape=(*shape[:-2], *rows, *columns)) if is_row or is_column else made


def _accumulate_dot_general(
    b: Builder, operands: Sequence[Any], attributes: Attributes, total: DType, emit_composite: Any
) -> Any:
    """`dot_general` in f32: batch axes, what is left of both operands, and last what is summed."""
    parts = list[Any]()
    for value, name in zip(operands, ("lhs", "rhs"), strict=True):
        batch, contract, free = _split_axes(attributes, name, b.type_of(value).rank)
        moved = b.emit("transpose", cast(b, value, dt.f32), axes=(*batch, *free, *contract))
        parts.append((moved, len(batch), len(free)))
    (x, count, own), (y, _, others) = parts
    a, c = b.type_of(x).shape, b.type_of(y).shape
    x = b.emit("reshape", x, shape=(*a[: count + own], *(ONE,) * others, *a[count + own :]))
    y = b.emit("reshape", y, shape=(*c[:count], *(ONE,) * own, *c[count:]))
    axes = tuple(range(count + own + others, b.type_of(x).rank))
    return b.emit("sum", b.emit("mul", x, y), axes=axes, keepdims=False, accumulate=total)


def _dot_general_block_axis(type: TensorType, number: int, attributes: Attributes, blocks: BlockFormat) -> int | None:
    axes = attributes[("lhs_contract", "rhs_contract")[number]]
    return axes[-1] % type.rank if axes else None


def _matmul_interval(query: IntervalQuery) -> Interval:
    count = query.types[0].shape[-1].value if query.types[0].rank else 1
    return total_of(multiply(query.x, query.y), INF if count is None else float(count), query.result.dtype)


def _dot_general_interval(query: IntervalQuery) -> Interval:
    count = query.count(query.attributes["lhs_contract"])
    return total_of(multiply(query.x, query.y), count, query.result.dtype)


MATMUL = OpSpec(
    name="tgraph.matmul",
    summary="Matrix multiplication; leading dims broadcast, a 1-D operand is a row (a) or a column (b), as in NumPy.",
    operands=("a", "b"),
    attributes=NUMERICS,
    infer=_infer_matmul,
    attribute_rule=with_segments(_matmul_sizes),
    jvp="multilinear",
    transpose="contraction:matmul",
    batch="matmul",
    reference=matmul_reference,
    cost=cost_of(_matmul_operations),
    dtypes=(*FLOATS, *INTEGERS, "i4"),
    lower=Contraction(_matmul_maps, _reorder_matmul),
    samples=(
        Sample("square", normal((8, 8), (8, 8))),
        Sample("ragged", normal((7, 13), (13, 5))),
        Sample("row", normal((16,), (16, 3))),
        Sample("column", normal((4, 16), (16,))),
        Sample("dot", normal((9,), (9,))),
        Sample("batch", normal((2, 3, 4, 5), (2, 3, 5, 6))),
        Sample("stretched batch", normal((3, 1, 4, 5), (2, 5, 6))),
        Sample("empty inner", normal((3, 0), (0, 4))),
    ),
    policy=PolicyRule(
        "contract",
        accumulate=lambda b, operands, attributes, total, emit: accumulate_matmul(b, operands[0], operands[1], total),
        block_axis=lambda type, number, attributes, blocks: type.rank - (1 if number == 0 or type.rank == 1 else 2),
    ),
    interval=IntervalRule(_matmul_interval),
)

DOT_GENERAL = OpSpec(
    name="tgraph.dot_general",
    summary="Contraction over paired axes: batch axes come first, contracted axes are summed, free axes follow.",
    operands=("a", "b"),
    attributes=(
        Attribute("lhs_batch", "ints", (), "axes of `a` kept one to one with `rhs_batch`"),
        Attribute("rhs_batch", "ints", ()),
        Attribute("lhs_contract", "ints", (), "axes of `a` summed against `rhs_contract`"),
        Attribute("rhs_contract", "ints", ()),
        *NUMERICS,
    ),
    infer=_infer_dot_general,
    attribute_rule=with_segments(_dot_general_sizes),
    jvp="multilinear",
    transpose="contraction:dot_general",
    batch="dot_general",
    reference=dot_general_reference,
    cost=cost_of(_dot_general_operations),
    dtypes=(*FLOATS, *INTEGERS, "i4"),
    simplify=_group_axes,
    lower=Contraction(_dot_general_maps, _reorder_dot_general),
    samples=(
        Sample("matrix", normal((4, 5), (5, 6)), {"lhs_contract": (1,), "rhs_contract": (0,)}),
        Sample("two contracted", normal((2, 3, 4), (4, 3, 5)), {"lhs_contract": (1, 2), "rhs_contract": (1, 0)}),
        Sample(
            "batch in the middle",
            normal((3, 2, 4), (5, 4, 2)),
            {"lhs_batch": (1,), "rhs_batch": (2,), "lhs_contract": (2,), "rhs_contract": (1,)},
        ),
    ),
    policy=PolicyRule("contract", accumulate=_accumulate_dot_general, block_axis=_dot_general_block_axis),
    interval=IntervalRule(_dot_general_interval),
)

SPECS: tuple[OpSpec, ...] = (MATMUL, DOT_GENERAL)
