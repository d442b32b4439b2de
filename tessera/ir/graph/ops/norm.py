"""layernorm and rmsnorm, safe by construction: constant rows, tiny rows and rows of 1e18 all come out finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, round_as
from tessera.ir.base.interval import Interval, IntervalQuery, IntervalRule, add, multiply
from tessera.ir.base.spec import FLOATS, ROUND, Attribute, Attributes, Builder, InferContext, OpSpec, Sample
from tessera.ir.graph.building import cast, check_float, constant, normal, same_dim, visits, widen
from tessera.types.dtype import DType
from tessera.types.shape import TensorType, normalize_axis, text

SCALE = {"f32": 2.0**-52, "f64": 2.0**-400}
"""Powers of two, so scaling by them does not round; what overflows when squared no longer does after it.

Not smaller: squares of usual values must stay clear of denormals, on which CPUs take a hundred cycles.
"""

ATTRIBUTES = (
    Attribute("axis", "int", -1, "normalise over this axis and all after it"),
    Attribute("eps", "float", 1e-5, "added to the mean square before its root; above 0"),
)


def _infer(op: str, parameters: int) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x = types[0]
        check_float(ctx, op, x)
        axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
        if not attributes["eps"] > 0:
            raise ctx.fail(
                f"`{op}` needs `eps` above 0, got {attributes['eps']}", help="a constant row has no variance"
            )
        if len(types) > 1 + parameters:
            raise ctx.fail(f"`{op}` takes at most {parameters} parameters, got {len(types) - 1}")
        for name, parameter in zip(("weight", "bias"), types[1:], strict=False):
            check_float(ctx, op, parameter, name)
            wanted = x.shape[axis:]
            if parameter.rank != len(wanted):
                raise ctx.fail(
                    f"`{op}` over {text(wanted)} needs a `{name}` of that shape, got {text(parameter.shape)}"
                )
            for left, right in zip(wanted, parameter.shape, strict=True):
                same_dim(ctx, left, right, f"`{op}` of {text(x.shape)} needs a `{name}` of {text(wanted)}")
        return [x]

    return infer


def _inverse_root(b: Builder, centred: Any, axes: tuple[int, ...], eps: float) -> Any:
    """One over the root of the mean square; where that overflows, from squares of scaled values, in the same pass."""
    dtype: DType = b.type_of(centred).dtype
    scale = constant(b, SCALE[dtype.name], dtype)
    small = b.emit("mul", centred, scale)
    square = b.emit("mean", b.emit("mul", centred, centred), axes=axes, keepdims=True)
    scaled = b.emit("mean", b.emit("mul", small, small), axes=axes, keepdims=True)
    usual = b.emit("rsqrt", b.emit("add", square, constant(b, eps, dtype)))
    # eps is far below the last bit of a mean square this large
    huge = b.emit("mul", b.emit("rsqrt", scaled), scale)
    return b.emit("where", b.emit("isinf", square), huge, usual)


def _decompose(*, centre: bool) -> Any:
    def decompose(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
        x, *parameters = operands
        kind = b.type_of(x)
        axes = tuple(range(attributes["axis"] % kind.rank, kind.rank))
        if any(kind.shape[axis].value == 0 for axis in axes):
            return x
        value = widen(b, x)
        compute = b.type_of(value).dtype
        if centre:
            value = b.emit("sub", value, b.emit("mean", value, axes=axes, keepdims=True))
        out = b.emit("mul", value, _inverse_root(b, value, axes, attributes["eps"]))
        if parameters:
            out = b.emit("mul", out, cast(b, parameters[0], compute))
        if len(parameters) > 1:
            out = b.emit("add", out, cast(b, parameters[1], compute))
        return cast(b, out, kind.dtype)

    return decompose


def _normalize(x: Array, parameters: Sequence[Array], axis: int, eps: float, *, centre: bool) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    if not all(x.shape[a] for a in axes):
        return x
    with np.errstate(all="ignore"):
        if centre:
            wide = wide - wide.mean(axes, keepdims=True)
        out = wide / np.sqrt(np.square(wide).mean(axes, keepdims=True) + eps)
        for parameter, combine in zip(parameters, (np.multiply, np.add), strict=False):
            out = combine(out, parameter.astype(np.float64))
        return round_as(out, dtype_of(x))


def layernorm_reference(x: Array, *parameters: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    """(x - mean) over the root of the variance plus eps, times weight, plus bias."""
    return _normalize(x, parameters, axis, eps, centre=True)


def rmsnorm_reference(x: Array, *parameters: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    """x over the root of its mean square plus eps, times weight."""
    return _normalize(x, parameters, axis, eps, centre=False)


def _rows(*scales: float, constants: Sequence[float] = ()) -> Any:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        rows = [rng.standard_normal(37) * scale for scale in scales] + [np.full(37, value) for value in constants]
        return [np.array(rows, np.float32)]

    return make


SAMPLES = (
    Sample("rows", normal((4, 48))),
    Sample("weighted", normal((3, 5, 16), (16,))),
    Sample("two axes", normal((2, 3, 4), (3, 4)), {"axis": 1}),
    Sample("one element", normal((3, 1))),
    Sample("large eps", normal((3, 7)), {"eps": 0.5}),
    Sample("empty", normal((0, 5))),
    Sample("constant, tiny and huge rows", _rows(1e-40, 1e-6, 1e15, 1e18, 1e19, constants=(0.0, 3.0))),
)


def _normalized_interval(query: IntervalQuery) -> Interval:
    """A row divided by its root mean square: no element exceeds the root of the row's length."""
    axis, rank = query.attributes.get("axis", -1), query.types[0].rank
    count = query.count(range(axis % rank if rank else 0, rank))
    made = Interval(-math.sqrt(count), math.sqrt(count), query.x.may_be_nan, False, query.x.sources)
    for number, other in enumerate(query.operands[1:]):
        made = multiply(made, other) if number == 0 else add(IntervalQuery((made, other), (), {}, query.result))
    return made.without_reach()


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.layernorm_safe",
        summary="(x - mean) / sqrt(variance + eps) over the last axes, then weight and bias; in f32, rounded once.",
        operands=("x", "parameters*"),
        attributes=ATTRIBUTES,
        infer=_infer("layernorm_safe", 2),
        reference=layernorm_reference,
        samples=(*SAMPLES, Sample("weight and bias", normal((3, 5, 16), (16,), (16,)))),
        dtypes=FLOATS,
        cost=visits(9),
        decompose=_decompose(centre=True),
        policy=ROUND,
        interval=IntervalRule(_normalized_interval),
    ),
    OpSpec(
        name="tgraph.rmsnorm_safe",
        summary="x / sqrt(mean(x * x) + eps) over the last axes, then weight; in f32, rounded once.",
        operands=("x", "parameters*"),
        attributes=ATTRIBUTES,
        infer=_infer("rmsnorm_safe", 1),
        reference=rmsnorm_reference,
        samples=SAMPLES,
        dtypes=FLOATS,
        cost=visits(7),
        decompose=_decompose(centre=False),
        policy=ROUND,
        interval=IntervalRule(_normalized_interval),
    ),
)
