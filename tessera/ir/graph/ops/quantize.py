"""Narrowing that says how: rounding to a number format, quantizing by scales, and blocks with scales of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import CONVERSION, Array, dtype_of, round_as, round_to, widen_array
from tessera.ir.base.interval import ANYTHING, INF, Interval, IntervalQuery, IntervalRule
from tessera.ir.base.spec import KEEP, Attribute, Attributes, Builder, InferContext, OpSpec, Sample, Simplifier
from tessera.ir.graph.building import Types, cast, check_float, constant, pointwise_cost, same_dim
from tessera.ir.graph.samples import SPECIAL_VALUES, UNARY_SHAPES, Make, normal, over
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import BLOCK_FORMATS, FORMATS, BlockFormat, DType, conversion_fault
from tessera.types.promotion import holds
from tessera.types.shape import Named, TensorType, broadcast, text

ROUNDED = ("f32", "bf16", "f16", "f8e4m3", "f8e5m2")
INTEGERS = ("i8", "i4", "u8", "i16")
LIMITS = CONVERSION[2:]
BLOCK = Attribute("block", "ints", (), "elements of each axis that share a scale; none where scales broadcast")


def conversion_of(attributes: Attributes) -> dict[str, str]:
    """The attributes that say how an op rounds."""
    return {attribute.name: attributes.get(attribute.name, attribute.default) for attribute in CONVERSION}


def _check_operand(ctx: InferContext, op: str, x: TensorType, name: str = "x") -> None:
    check_float(ctx, op, x, name)
    if x.dtype is dt.f64:
        raise ctx.fail_dtype(f"`{op}` rounds what is computed in f32, got `{name}` of f64", help="cast it to f32 first")


def _check_conversion(ctx: InferContext, op: str, conversion: Attributes) -> None:
    fault = conversion_fault(*(conversion[name] for name in ("format", "rounding", "saturation", "denormals")))
    if fault:
        raise ctx.fail_dtype(f"`{op}`: {fault}")


def _result(x: TensorType, format: str) -> TensorType:
    return x.with_dtype(FORMATS[format].dtype or x.dtype)


def _infer_round(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    _check_operand(ctx, "round_to", types[0])
    _check_conversion(ctx, "round_to", attributes)
    if attributes["rounding"] == "stochastic":
        raise ctx.fail_dtype("`round_to` has no random bits to round by", help="use `round_stochastic`")
    return [_result(types[0], attributes["format"])]


def _infer_stochastic(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, bits = types
    _check_operand(ctx, "round_stochastic", x)
    _check_conversion(ctx, "round_stochastic", {**attributes, "rounding": "stochastic"})
    if bits.dtype is not dt.u32:
        raise ctx.fail_dtype(f"`round_stochastic` takes 32 random bits of u32 for each element, got {bits.dtype}")
    shape = broadcast(ctx, "round_stochastic", Named("x", x.shape), Named("bits", bits.shape))
    return [_result(x.with_shape(shape), attributes["format"])]


def _round_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    conversion = conversion_of(attributes)
    if len(tiles) > 1:
        conversion["rounding"] = "stochastic"
    return builder.cast(builder.round(*tiles, **conversion), out.dtype.compute)


def _rounds_to(attributes: Attributes) -> str:
    conversion = conversion_of(attributes)
    format = conversion.pop("format")
    return format if conversion == {"rounding": "nearest_even", "saturation": "", "denormals": "keep"} else ""


def _store(values: Array, format: str, source: DType) -> Array:
    return round_as(values, FORMATS[format].dtype or source)


def round_reference(x: Array, *, format: str, **conversion: Any) -> Array:
    """`x` as numbers of the format, in the dtype that stores it, else in its own."""
    return _store(round_to(widen_array(x), format=format, **conversion), format, dtype_of(x))


def stochastic_reference(x: Array, bits: Array, *, format: str, **conversion: Any) -> Array:
    """As `round_reference`, up or down by the bits of each element."""
    x, bits = np.broadcast_arrays(x, bits)
    values = round_to(widen_array(x), format=format, rounding="stochastic", bits=bits, **conversion)
    return _store(values, format, dtype_of(x))


PASSED = frozenset({"transpose", "reshape", "broadcast_to", "flip", "expand_dims", "squeeze"})
"""Views with no fewer elements than their operand: rounding moves before them, where equal roundings are merged."""


def _simplify_round(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a rounding that was done already, and move one before a view.

    An element's rounding depends on its value alone. Stochastic rounding, which depends on the element's index, stays.
    What is in f32 is a number of f32.
    """
    is_plain = attributes["saturation"] != "saturate" and attributes["denormals"] == "keep"
    if attributes["format"] == "f32" and is_plain and simplifier.type_of(operands[0]).dtype is dt.f32:
        return operands[0]
    before = simplifier.producer(operands[0])
    if before is None:
        return None
    if before.name == "round_to" and dict(before.attributes) == dict(attributes):
        return operands[0]
    if before.name == "cast" and holds(before.attributes["dtype"], simplifier.type_of(before.operands[0]).dtype):
        source = simplifier.producer(before.operands[0])
        if source is not None and source.name == "round_to" and dict(source.attributes) == dict(attributes):
            return before.operands[0]
    if before.name not in PASSED:
        return None
    return simplifier.emit(
        before.name, simplifier.emit("round_to", before.operands[0], **attributes), **before.attributes
    )


def check_scale(ctx: InferContext, op: str, x: TensorType, scale: TensorType, block: Sequence[int]) -> None:
    """Raises unless there is one scale for each block of `x`; without blocks scales broadcast to `x`."""
    check_float(ctx, op, scale, "scale")
    if not block:
        joined = broadcast(ctx, op, Named("x", x.shape), Named("scale", scale.shape))
        if joined != x.shape:
            raise ctx.fail(f"`{op}` has scales {text(scale.shape)} for {text(x.shape)}: more scales than elements")
        return
    if len(block) != x.rank or scale.rank != x.rank or any(size < 1 for size in block):
        raise ctx.fail(
            f"`{op}` of {text(x.shape)} with blocks of {list(block)} needs scales of rank {x.rank}, "
            f"got {text(scale.shape)}",
            help="`block` has one size for each axis, and `scale` one element for each block",
        )
    for axis, (size, dim, own) in enumerate(zip(block, x.shape, scale.shape, strict=True)):
        message = f"`{op}` has blocks of {size} along axis {axis}, and scales for another number of elements"
        same_dim(ctx, own * size, dim, message)


def _infer_quantize(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, scale = types
    _check_operand(ctx, "quantize", x)
    _check_operand(ctx, "quantize", scale, "scale")
    dtype: DType = attributes["dtype"]
    if dtype.name not in (*ROUNDED[1:], *INTEGERS):
        raise ctx.fail_dtype(f"`quantize` gives {' '.join((*ROUNDED[1:], *INTEGERS))}, not {dtype}")
    _check_conversion(ctx, "quantize", {**attributes, "format": dtype.name})
    check_scale(ctx, "quantize", x, scale, attributes["block"])
    return [x.with_dtype(dtype)]


def _infer_dequantize(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    q, scale = types
    dtype: DType = attributes["dtype"]
    if q.dtype.is_bool or not dtype.is_float:
        raise ctx.fail_dtype(f"`dequantize` takes numbers and gives floats, not {q.dtype} and {dtype}")
    _check_operand(ctx, "dequantize", scale, "scale")
    check_scale(ctx, "dequantize", q, scale, attributes["block"])
    return [q.with_dtype(dtype)]


def _broadcast_scale(b: Builder, scale: Any, x: TensorType, block: Sequence[int]) -> Any:
    """One scale for each element, in f32."""
    wide = cast(b, scale, dt.f32)
    if not block:
        return wide
    shape, one = b.type_of(scale).shape, Dim.constant(1)
    lifted = b.emit("reshape", wide, shape=tuple(dim for size in shape for dim in (size, one)))
    pairs = tuple(dim for size, own in zip(shape, block, strict=True) for dim in (size, Dim.constant(own)))
    return b.emit("reshape", b.emit("broadcast_to", lifted, shape=pairs), shape=x.shape)


def _broadcast_scale_array(scale: Array, block: Sequence[int]) -> Array:
    wide = scale.astype(np.float32)
    for axis, size in enumerate(block):
        wide = np.repeat(wide, size, axis)
    return wide


def _decompose_quantize(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, scale = operands
    kind = b.type_of(x)
    scaled = b.emit("div", cast(b, x, dt.f32), _broadcast_scale(b, scale, kind, attributes["block"]))
    return b.emit("round_to", scaled, **conversion_of({**attributes, "format": attributes["dtype"].name}))


def _decompose_dequantize(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    q, scale = operands
    wide = _broadcast_scale(b, scale, b.type_of(q), attributes["block"])
    return cast(b, b.emit("mul", cast(b, q, dt.f32), wide), attributes["dtype"])


def quantize_reference(
    x: Array, scale: Array, *, dtype: DType, block: Sequence[int] = (), rounding: str = "nearest_even", **limits: Any
) -> Array:
    """`x / scale` in f32, rounded to the dtype."""
    with np.errstate(all="ignore"):
        scaled = x.astype(np.float32) / _broadcast_scale_array(scale, block)
    return round_as(round_to(scaled, format=dtype.name, rounding=rounding, **limits), dtype)


def dequantize_reference(q: Array, scale: Array, *, dtype: DType = dt.f32, block: Sequence[int] = ()) -> Array:
    """`q * scale` in f32, rounded to the dtype."""
    with np.errstate(all="ignore"):
        return round_as(q.astype(np.float32) * _broadcast_scale_array(scale, block), dtype)


def _infer_blocks(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    _check_operand(ctx, "round_blocks", x)
    kind = BLOCK_FORMATS.get(attributes["format"])
    axis: int = attributes["axis"]
    if kind is None:
        raise ctx.fail_dtype(f"`round_blocks` knows {', '.join(BLOCK_FORMATS)}, not `{attributes['format']}`")
    if x.dtype.name not in ("f32", "bf16", "f16"):
        raise ctx.fail_dtype(f"`round_blocks` keeps values in f32, bf16 or f16, not {x.dtype}")
    if not 0 <= axis < x.rank:
        raise ctx.fail(f"`round_blocks` has no axis {axis} on a value of rank {x.rank}")
    size, dim = kind.block, x.shape[axis]
    message = f"`{kind}` has blocks of {size}, and axis {axis} of {text(x.shape)} is not made of whole ones"
    if dim.value is not None and dim.value % size:
        raise ctx.fail(message, help=f"pad it to {-(-dim.value // size) * size}")
    same_dim(ctx, dim // size * size, dim, message)
    return [x]


def _reach(kind: BlockFormat) -> float:
    """The largest number of a block whose scale is the largest: to which the largest of a tensor is scaled."""
    return FORMATS[kind.element].largest * FORMATS[kind.scale].largest


def tensor_scale(b: Builder, x: Any, format: str) -> Any:
    """What brings the largest finite number of an f32 tensor to the reach of its blocks; 1 for a tensor of zeros."""
    sizes, zero = b.emit("abs", x), constant(b, 0.0, dt.f32)
    finite = b.emit("where", b.emit("lt", sizes, constant(b, float("inf"), dt.f32)), sizes, zero)
    top = b.emit("max", finite, axes=tuple(range(b.type_of(x).rank)), keepdims=False, identity=True)
    scale = b.emit("div", top, constant(b, _reach(BLOCK_FORMATS[format]), dt.f32))
    return b.emit("where", b.emit("gt", scale, zero), scale, constant(b, 1.0, dt.f32))


def _decompose_blocks(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    (x,) = operands
    axis: int = attributes["axis"]
    kind, own = BLOCK_FORMATS[attributes["format"]], b.type_of(x)
    wide = cast(b, x, dt.f32)
    if attributes["whole"]:
        scale = tensor_scale(b, wide, kind.name)
        made = b.emit("round_blocks", b.emit("div", wide, scale), format=kind.name, axis=axis)
        return cast(b, b.emit("mul", made, scale), own.dtype)
    size = Dim.constant(kind.block)
    cut = (*own.shape[:axis], own.shape[axis] // kind.block, size, *own.shape[axis + 1 :])
    blocks = b.emit("reshape", wide, shape=cut)
    top = b.emit("max", b.emit("abs", blocks), axes=(axis + 1,), keepdims=True)
    ratio = b.emit("div", top, constant(b, FORMATS[kind.element].largest, dt.f32))
    scale = cast(b, b.emit("round_to", ratio, format=kind.scale, saturation="saturate"), dt.f32)
    zero = constant(b, 0.0, dt.f32)
    kept = b.emit("round_to", b.emit("div", blocks, scale), format=kind.element, saturation="saturate")
    made = b.emit("where", b.emit("eq", scale, zero), zero, b.emit("mul", kept, scale))
    return cast(b, b.emit("reshape", made, shape=own.shape), own.dtype)


def blocks_reference(x: Array, *, format: str, axis: int, whole: bool = False) -> Array:
    """Each block divided by its scale, and all by one where there is one for all; rounded, and multiplied back."""
    kind = BLOCK_FORMATS[format]
    shape = (*x.shape[:axis], x.shape[axis] // kind.block, kind.block, *x.shape[axis + 1 :])
    blocks, one = widen_array(x).reshape(shape), np.float32(1)
    with np.errstate(all="ignore"):
        if whole:
            sizes = np.abs(blocks)
            one = np.where(sizes < np.inf, sizes, np.float32(0)).max(initial=np.float32(0)) / np.float32(_reach(kind))
            one = one if one > 0 else np.float32(1)
            blocks = blocks / one
        top = np.abs(blocks).max(axis + 1, keepdims=True)
        ratio = top / np.float32(FORMATS[kind.element].largest)
        scale = round_to(ratio, format=kind.scale, saturation="saturate")
        kept = round_to(blocks / scale, format=kind.element, saturation="saturate")
        made = np.where(scale == 0, np.float32(0), kept * scale) * one
    return round_as(made.reshape(x.shape), dtype_of(x))


def _odd(rng: np.random.Generator) -> Sequence[Any]:
    return [np.array([[1, np.inf] * 8, [np.nan, 2] * 8, [3, -4] * 8], np.float32)]


def _ends(rng: np.random.Generator) -> Sequence[Any]:
    powers = np.ldexp(rng.uniform(-2, 2, 300), rng.integers(-30, 20, 300))
    ends = np.array([*SPECIAL_VALUES, 448.0, 464.0, 465.0, 57344.0, 61440.0, 65519.0])
    return [np.concatenate([ends, powers]).astype(np.float32)]


def _with_bits(make: Make) -> Make:
    def make_both(rng: np.random.Generator) -> Sequence[Any]:
        (x,) = make(rng)
        return [x, rng.integers(0, 1 << 32, x.shape, dtype=np.uint32)]

    return make_both


def _scaled_sample(shape: tuple[int, ...], scales: tuple[int, ...]) -> Make:
    return lambda rng: [*normal(shape)(rng), rng.uniform(0.01, 0.2, scales).astype(np.float32)]


def _quantized_sample(shape: tuple[int, ...], scales: tuple[int, ...]) -> Make:
    return lambda rng: [rng.integers(-128, 128, shape, dtype=np.int8), *_scaled_sample((), scales)(rng)[1:]]


_CONVERSIONS: tuple[dict[str, str], ...] = (
    *({"format": name} for name in FORMATS if name != "f32"),
    *({"format": name, "rounding": "toward_zero"} for name in ("bf16", "f16", "f8e4m3", "tf32", "i8")),
    *({"format": name, "saturation": "saturate"} for name in ("f8e4m3", "f8e5m2", "f16", "i4")),
    *({"format": name, "denormals": "flush"} for name in ("f32", "f16", "f8e4m3")),
    *({"format": name, "saturation": "wrap"} for name in ("i8", "u8", "i4")),
)


def _round_interval(query: IntervalQuery) -> Interval:
    kind, x = FORMATS[query.attributes["format"]], query.x
    if query.attributes["saturation"] or not kind.is_float:
        low = kind.lowest if not kind.is_float else -kind.largest
        nan = x.may_be_nan and kind.is_float
        return Interval(max(x.low, low), min(x.high, kind.largest), nan, False, x.sources)
    step = 2.0**-kind.mantissa
    ends = ((x.low, -1), (x.high, 1))
    low, high = (end + side * (abs(end) * step + kind.smallest) if math.isfinite(end) else end for end, side in ends)
    beyond = x.magnitude > kind.largest * (1 + step / 4)
    reach = INF if beyond else kind.largest
    nan = x.may_be_nan or (beyond and not kind.has_infinity)
    return Interval(max(low, -reach), min(high, reach), nan, x.is_reached, x.sources)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.round_to",
        summary="The values as numbers of a format, in the dtype that stores it: cast that says how it rounds.",
        operands=("x",),
        attributes=CONVERSION,
        infer=_infer_round,
        reference=round_reference,
        samples=(
            *over([(shape,) for shape in UNARY_SHAPES], normal, {"format": "bf16"}),
            *(Sample(" ".join(conversion.values()), _ends, conversion) for conversion in _CONVERSIONS),
        ),
        dtypes=ROUNDED,
        cost=pointwise_cost(8),
        simplify=_simplify_round,
        lower=Pointwise(_round_block, 8, rounds_to=_rounds_to),
        jvp="elementwise:identity_jvp",
        transpose="elementwise:cast_transpose",
        policy=KEEP,
        interval=IntervalRule(_round_interval),
    ),
    OpSpec(
        name="tgraph.round_stochastic",
        summary="As `round_to`, up or down at random: up where 24 of an element's bits are below what is lost.",
        operands=("x", "bits"),
        attributes=(CONVERSION[0], *LIMITS),
        infer=_infer_stochastic,
        reference=stochastic_reference,
        samples=tuple(
            Sample(name, _with_bits(_ends), {"format": name, "saturation": mode})
            for name, mode in (("bf16", ""), ("f16", ""), ("f8e4m3", "saturate"), ("f8e5m2", ""), ("i8", ""))
        ),
        dtypes=ROUNDED,
        cost=pointwise_cost(10),
        lower=Pointwise(_round_block, 10),
        jvp="elementwise:identity_jvp",
        transpose="elementwise:cast_transpose",
        policy=KEEP,
        interval=IntervalRule(_round_interval),
    ),
    OpSpec(
        name="tgraph.quantize",
        summary="`x / scale` rounded to a narrow dtype; scales broadcast, or are one for each block of elements.",
        operands=("x", "scale"),
        attributes=(Attribute("dtype", "dtype", doc="dtype of the result"), BLOCK, *CONVERSION[1:]),
        infer=_infer_quantize,
        reference=quantize_reference,
        samples=(
            Sample("channels", _scaled_sample((6, 5), (1, 5)), {"dtype": dt.i8}),
            Sample("rows", _scaled_sample((6, 5), (6, 1)), {"dtype": dt.f8e4m3, "saturation": "saturate"}),
            Sample(
                "tiles", _scaled_sample((6, 8), (3, 2)), {"dtype": dt.i4, "block": (2, 4), "saturation": "saturate"}
            ),
            Sample("cut", _scaled_sample((31,), (1,)), {"dtype": dt.i8, "rounding": "toward_zero"}),
        ),
        dtypes=ROUNDED[:3],
        cost=pointwise_cost(10),
        decompose=_decompose_quantize,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.dequantize",
        summary="`q * scale` in f32, rounded to a float dtype; scales as those of `quantize`.",
        operands=("q", "scale"),
        attributes=(Attribute("dtype", "dtype", dt.f32, "dtype of the result"), BLOCK),
        infer=_infer_dequantize,
        reference=dequantize_reference,
        samples=(
            Sample("channels", _quantized_sample((6, 5), (1, 5))),
            Sample("tiles", _quantized_sample((6, 8), (3, 2)), {"dtype": dt.bf16, "block": (2, 4)}),
        ),
        dtypes=("i8", "u8", "i4", "f8e4m3", "f8e5m2"),
        cost=pointwise_cost(2),
        decompose=_decompose_dequantize,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.round_blocks",
        summary="The values as blocks of narrow numbers along an axis, each block with a scale, would keep them.",
        operands=("x",),
        attributes=(
            Attribute("format", "str", "nvfp4", "the numbers, the block and the scale"),
            Attribute("axis", "int", doc="the axis that is cut into blocks"),
            Attribute("whole", "bool", False, "one more scale in f32, for the whole tensor"),
        ),
        infer=_infer_blocks,
        reference=blocks_reference,
        samples=(
            Sample("last", normal((5, 48)), {"axis": 1}),
            Sample("first", normal((32, 7)), {"axis": 0}),
            Sample("small", lambda rng: [normal((3, 16))(rng)[0] * np.float32(1e-4)], {"axis": 1}),
            Sample("tiny", lambda rng: [normal((3, 16))(rng)[0] * np.float32(1e-30)], {"axis": 1, "whole": True}),
            Sample("first, whole", normal((32, 7)), {"axis": 0, "whole": True}),
            Sample("zeros", lambda rng: [np.zeros((2, 32), np.float32)], {"axis": 1, "whole": True}),
            Sample("not finite", _odd, {"axis": 1, "whole": True}),
        ),
        dtypes=("f32", "bf16", "f16"),
        cost=pointwise_cost(20),
        decompose=_decompose_blocks,
        jvp="elementwise:identity_jvp",
        policy=KEEP,
        interval=ANYTHING,
    ),
)
