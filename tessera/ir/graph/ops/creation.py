"""Values made from positions: iota, full, eye, linspace, constant, dim_size; and the triangles tril and triu."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as, static_shape
from tessera.ir.base.interval import (
    ANYTHING,
    INF,
    UNKNOWN,
    WITH_ZERO,
    Interval,
    IntervalQuery,
    IntervalRule,
    always_within,
    point,
)
from tessera.ir.base.scalar_functions import uniform_element
from tessera.ir.base.scalar_reference import round_to_storage
from tessera.ir.base.spec import ANY, FLOATS, NUMBERS, Attribute, Attributes, InferContext, OpSpec, Sample, Simplifier
from tessera.ir.graph.building import Types, check_dtype, check_sizes, check_value, dims, pointwise_cost
from tessera.ir.graph.samples import moving_sample, shape_name
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.dim import Dim, product
from tessera.types.dtype import BY_NAME, DType
from tessera.types.shape import TensorType, text

CONSTANT_LIMIT = 64
"""Elements a constant may have; a larger array is data, and comes in as an input."""

SHAPE = Attribute("shape", "dims", doc="shape of the result")
DTYPE = Attribute("dtype", "dtype", doc="dtype of the result")
OFFSET = Attribute("offset", "int", 0, doc="the diagonal: 0 is the main one, above it is positive")


def _nothing(rng: np.random.Generator) -> Sequence[Any]:
    return []


def _sample(label: str, **attributes: Any) -> Sample:
    return Sample(label, _nothing, attributes)


def _infer_shaped(ctx: InferContext, op: str, attributes: Attributes) -> TensorType:
    out = TensorType.of(attributes["shape"], attributes["dtype"])
    check_sizes(ctx, op, out.shape)
    return out


def _infer_iota(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    out = _infer_shaped(ctx, "iota", attributes)
    if not 0 <= attributes["axis"] < out.rank:
        raise ctx.fail(f"`iota` has no axis {attributes['axis']} in {text(out.shape)}")
    check_dtype(ctx, "iota", "out", out, NUMBERS)
    return [out]


def _iota_reference(*, shape: Sequence[Dim], axis: int, dtype: DType) -> Array:
    sizes = static_shape(shape)
    along = np.arange(sizes[axis], dtype=np.int64).reshape([-1 if own == axis else 1 for own in range(len(sizes))])
    return round_to_storage(np.broadcast_to(along, sizes), dtype)


def _infer_full(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    out = _infer_shaped(ctx, "full", attributes)
    check_value(ctx, "full", attributes["value"], out.dtype)
    return [out]


def _full_reference(*, value: float, shape: Sequence[Dim], dtype: DType) -> Array:
    number = np.float64(value) if dtype.is_float else np.asarray(int(value))
    return np.broadcast_to(round_to_storage(number, dtype), static_shape(shape)).copy()


def _infer_eye(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    out = _infer_shaped(ctx, "eye", attributes)
    if out.rank != 2:
        raise ctx.fail(f"`eye` is a matrix, got the shape {text(out.shape)}")
    return [out]


def _eye_reference(*, shape: Sequence[Dim], dtype: DType, offset: int = 0) -> Array:
    rows, columns = static_shape(shape)
    return round_to_storage(np.eye(rows, columns, offset), dtype)


def _eye_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    row = _moved_row(builder, 0, attributes["offset"])
    one, zero = (builder.constant(number, out.dtype.compute) for number in (1, 0))
    return builder.select(builder.elementwise("eq", row, builder.coordinate(1)), one, zero)


def _moved_row(builder: Any, axis: int, offset: int) -> Any:
    row = builder.coordinate(axis)
    return builder.elementwise("add", row, builder.constant(offset, dt.i64)) if offset else row


def _triangle(name: str, summary: str, scalar: str, function: Any) -> OpSpec:
    def infer(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
        (x,) = types
        if x.rank < 2:
            raise ctx.fail(f"`{name}` needs matrices, got {text(x.shape)}")
        check_dtype(ctx, name, "x", x, ANY)
        return [x]

    def block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
        row, column = _moved_row(builder, out.rank - 2, attributes["offset"]), builder.coordinate(out.rank - 1)
        zero = builder.constant(0, out.dtype.compute)
        return builder.select(builder.elementwise(scalar, row, column), tiles[0], zero)

    def reference(x: Array, *, offset: int = 0) -> Array:
        inside = function(np.ones(x.shape[-2:], np.bool_), offset)
        return np.where(inside, x, np.zeros((), x.dtype))

    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=(OFFSET,),
        infer=infer,
        jvp="linear",
        transpose=f"movement:{name}",
        batch="movement:triangle",
        reference=reference,
        samples=(
            moving_sample((5, 5), offset=0),
            moving_sample((3, 7), offset=1),
            moving_sample((7, 3), offset=-2),
            moving_sample((2, 3, 4), offset=0),
            moving_sample((0, 3), offset=0),
            moving_sample((1, 1), offset=0),
            moving_sample((31, 67), offset=20),
        ),
        dtypes=ANY,
        cost=pointwise_cost(1),
        lower=Pointwise(block, asks_where=True),
        interval=WITH_ZERO,
    )


def _infer_linspace(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    if attributes["num"] < 0:
        raise ctx.fail(f"`linspace` needs a count of 0 or more, got {attributes['num']}")
    out = TensorType.of((attributes["num"],), attributes["dtype"])
    check_dtype(ctx, "linspace", "out", out, FLOATS)
    return [out]


def _step(attributes: Attributes) -> float:
    gaps = attributes["num"] - (1 if attributes["endpoint"] else 0)
    return (attributes["stop"] - attributes["start"]) / gaps if gaps > 0 else 0.0


def _linspace_reference(*, start: float, stop: float, num: int, dtype: DType, endpoint: bool = True) -> Array:
    step = _step({"start": start, "stop": stop, "num": num, "endpoint": endpoint})
    values = np.arange(num, dtype=np.float64) * step + start
    if endpoint and num > 1:
        values[-1] = stop
    return round_to_storage(values, dtype)


def _linspace_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    index = builder.coordinate(0)
    # in f64 whatever the result is, so that positions do not drift
    scaled = builder.elementwise("mul", builder.cast(index, dt.f64), builder.constant(_step(attributes), dt.f64))
    values = builder.elementwise("add", scaled, builder.constant(attributes["start"], dt.f64))
    if attributes["endpoint"] and attributes["num"] > 1:
        last = builder.elementwise("eq", index, builder.constant(attributes["num"] - 1, dt.i64))
        values = builder.select(last, builder.constant(attributes["stop"], dt.f64), values)
    return builder.cast(values, out.dtype.compute)


def _infer_constant(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    value = np.asarray(attributes["value"])
    if value.size > CONSTANT_LIMIT:
        raise ctx.fail(
            f"`constant` holds at most {CONSTANT_LIMIT} elements, got {value.size}",
            help="pass the array as an argument",
        )
    return [TensorType.of(value.shape, dtype_of(value))]


def _constant_reference(*, value: Array) -> Array:
    return np.array(value)


def _constant_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    """The element at the position: chosen one against one, which a few elements can afford."""
    value, dtype = np.asarray(attributes["value"]), out.dtype.compute
    index: Any = None
    stride = 1
    for axis in range(value.ndim - 1, -1, -1):
        if value.shape[axis] > 1:
            part = builder.coordinate(axis)
            part = part if stride == 1 else builder.elementwise("mul", part, builder.constant(stride, dt.i64))
            index = part if index is None else builder.elementwise("add", index, part)
        stride *= value.shape[axis]
    wide = value.astype(np.float64) if out.dtype.is_float else value
    numbers = [number.item() for number in wide.reshape(-1)] or [0]
    result = builder.constant(numbers[0], dtype)
    for position, number in enumerate(numbers[1:], 1):
        here = builder.elementwise("eq", index, builder.constant(position, dt.i64))
        result = builder.select(here, builder.constant(number, dtype), result)
    return result


def _simplify_constant(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite a constant of equal elements to `full`."""
    value = np.asarray(attributes["value"])
    number = uniform_element(value)
    if number is None:
        return None
    number = float(number) if dtype_of(value).is_float else number
    return simplifier.emit("full", value=number, shape=dims(*value.shape), dtype=dtype_of(value))


def _infer_dim_size(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    return [TensorType((), dt.i64)]


def _dim_size_reference(*, dims: Sequence[Dim]) -> Array:
    return np.asarray(np.prod(static_shape(dims), dtype=np.int64))


def _dim_size_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    size = product(attributes["dims"])
    return builder.constant(size if size.value is None else size.value, dt.i64)


def _simplify_dim_size(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite a size that is known to `full`."""
    size = product(attributes["dims"]).value
    return None if size is None else simplifier.emit("full", value=size, shape=(), dtype=dt.i64)


def _iota_interval(query: IntervalQuery) -> Interval:
    size = query.attributes["shape"][query.attributes["axis"]].value
    return Interval(0.0, INF if size is None else float(max(size - 1, 0)))


def _full_interval(query: IntervalQuery) -> Interval:
    value = query.attributes["value"]
    if not isinstance(value, bool | int | float):
        return UNKNOWN
    return point(float(round_as(np.asarray(value, np.float64), query.result.dtype)))


def _constant_interval(query: IntervalQuery) -> Interval:
    value = query.attributes["value"]
    if not value.size:
        return point(0.0)
    wide = value.astype("f8")
    return Interval(float(wide.min()), float(wide.max()), bool((wide != wide).any()))


def _maker(name: str, summary: str, attributes: tuple[Attribute, ...], **facets: Any) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}", summary=summary, operands=(), attributes=attributes, cost=pointwise_cost(1), **facets
    )


def _each(names: Sequence[str], sizes: tuple[int, ...], **attributes: Any) -> list[Sample]:
    return [
        _sample(f"{shape_name([sizes])} of {name}", shape=dims(*sizes), dtype=BY_NAME[name], **attributes)
        for name in names
    ]


IOTA = _maker(
    "iota",
    "Each element its own position along one axis.",
    (SHAPE, Attribute("axis", "int", doc="the axis that is counted"), DTYPE),
    infer=_infer_iota,
    shard="library:iota",
    reference=_iota_reference,
    samples=(*_each(NUMBERS, (7,), axis=0), *_each(("i64", "f32"), (3, 5), axis=1), *_each(("i32",), (0, 3), axis=0)),
    dtypes=NUMBERS,
    lower=Pointwise(
        lambda builder, tiles, attributes, out: builder.cast(builder.coordinate(attributes["axis"]), out.dtype.compute),
        asks_where=True,
    ),
    interval=IntervalRule(_iota_interval),
)

FULL = _maker(
    "full",
    "Every element the same number.",
    (Attribute("value", "float", doc="the number"), SHAPE, DTYPE),
    infer=_infer_full,
    reference=_full_reference,
    samples=(
        *_each(ANY, (3, 5), value=1.0),
        *_each(FLOATS, (7,), value=0.1),
        *_each(("f32", "f64", "bf16"), (3,), value=float("inf")),
        *_each(("f32",), (), value=-2.5),
        *_each(("f32",), (0, 3), value=1.0),
    ),
    dtypes=ANY,
    lower=Pointwise(
        lambda builder, tiles, attributes, out: builder.constant(attributes["value"], out.dtype.compute), 0
    ),
    interval=IntervalRule(_full_interval, is_exact=True),
)

EYE = _maker(
    "eye",
    "Ones on a diagonal, zeros elsewhere.",
    (SHAPE, DTYPE, OFFSET),
    infer=_infer_eye,
    reference=_eye_reference,
    samples=(*_each(ANY, (5, 5)), *_each(("f32",), (3, 7), offset=2), *_each(("f32",), (7, 3), offset=-1)),
    dtypes=ANY,
    lower=Pointwise(_eye_block, 2, asks_where=True),
    interval=always_within(0.0, 1.0, is_exact=True),
)

LINSPACE = _maker(
    "linspace",
    "Evenly spaced numbers from `start` to `stop`, computed in f64 and rounded once.",
    (
        Attribute("start", "float", doc="the first number"),
        Attribute("stop", "float", doc="the last number, or the one after it"),
        Attribute("num", "int", doc="how many"),
        DTYPE,
        Attribute("endpoint", "bool", True, doc="whether `stop` is the last number"),
    ),
    infer=_infer_linspace,
    reference=_linspace_reference,
    samples=(
        *(_sample(f"of {name}", start=-1.0, stop=2.0, num=7, dtype=BY_NAME[name]) for name in FLOATS),
        _sample("one", start=3.0, stop=5.0, num=1, dtype=dt.f32),
        _sample("none", start=3.0, stop=5.0, num=0, dtype=dt.f32),
        _sample("half open", start=0.0, stop=1.0, num=67, dtype=dt.f32, endpoint=False),
    ),
    dtypes=FLOATS,
    lower=Pointwise(_linspace_block, 3, asks_where=True),
    interval=ANYTHING,
)

CONSTANT = _maker(
    "constant",
    "A small array that is part of the program.",
    (Attribute("value", "array", doc="the array"),),
    infer=_infer_constant,
    reference=_constant_reference,
    samples=(
        _sample("vector", value=np.array([1.5, -2.0, 0.0, 7.0], np.float32)),
        _sample("matrix", value=np.arange(6, dtype=np.int64).reshape(2, 3)),
        _sample("scalar", value=np.array(3.5)),
        _sample("bools", value=np.array([True, False, True])),
        _sample("empty", value=np.zeros((0, 3), np.float32)),
    ),
    dtypes=ANY,
    simplify=_simplify_constant,
    lower=Pointwise(_constant_block, 2, asks_where=True),
    interval=IntervalRule(_constant_interval, is_exact=True),
)

DIM_SIZE = _maker(
    "dim_size",
    "The product of some sizes as an i64 scalar.",
    (Attribute("dims", "dims", doc="the sizes"),),
    infer=_infer_dim_size,
    reference=_dim_size_reference,
    samples=(_sample("one", dims=dims(7)), _sample("two", dims=dims(3, 5)), _sample("none", dims=())),
    dtypes=("i64",),
    simplify=_simplify_dim_size,
    lower=Pointwise(_dim_size_block, 0),
    interval=ANYTHING,
)

SPECS: tuple[OpSpec, ...] = (
    IOTA,
    FULL,
    EYE,
    LINSPACE,
    CONSTANT,
    DIM_SIZE,
    _triangle("tril", "The elements on and below a diagonal; zeros above it.", "ge", np.tril),
    _triangle("triu", "The elements on and above a diagonal; zeros below it.", "le", np.triu),
)
