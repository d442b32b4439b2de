"""Random numbers by key and element index: bits, samples, dropout, the residual sum with it, and keys from keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, static_shape, widen_array
from tessera.ir.base.interval import ANYTHING, BOOLEAN, Interval, IntervalQuery, IntervalRule
from tessera.ir.base.spec import (
    FLOATS,
    KEEP,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    Decompose,
    Infer,
    InferContext,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import (
    Types,
    broadcast_types,
    cast,
    check_float,
    check_integer,
    common_dtype,
    constant,
    dims,
    drop_when,
    index_axis,
    pointwise_cost,
    visits,
    widen,
)
from tessera.ir.graph.samples import Make, normal
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import Shape, TensorType, text

RANDOM = frozenset({"random"})
SHAPE = Attribute("shape", "dims", doc="dims of the result")
UNSIGNED = ("u64", "u32", "u16", "u8")


# Philox4x32-10 on arrays: the counter-based generator that all random ops draw from.

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)


PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


PHILOX_ROUNDS = 10


_WORD = 0xFFFFFFFF


KEY_BRANCH = 0x6B657900 << 32
"""XORed with the stream of a key, it gives one that no sample is drawn from; few bits, so that it is an exact float."""


def philox(counter: Sequence[Array], key: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Four random words for each counter of four words under a key of two, all as u64 arrays below 2**32."""
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = (word.astype(np.uint64) for word in key)
    shift, mask = np.uint64(32), np.uint64(_WORD)
    m0, m1 = (np.uint64(m) for m in PHILOX_MULTIPLIERS)
    for _ in range(PHILOX_ROUNDS):
        first, second = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (second >> shift) ^ c1 ^ k0, second & mask, (first >> shift) ^ c3 ^ k1, first & mask
        k0, k1 = (k0 + np.uint64(PHILOX_KEY_STEPS[0])) & mask, (k1 + np.uint64(PHILOX_KEY_STEPS[1])) & mask
    return c0, c1, c2, c3


def split_words(words: Array) -> tuple[Array, Array]:
    """Low and high halves of u64 words."""
    return words & np.uint64(_WORD), words >> np.uint64(32)


def draw_bits(counter: Array, key: Array, stream: Array) -> Array:
    """64 random bits for each u64 counter: the first two words under `key`, `stream` being the counter's upper half."""
    low, high, *_ = philox((*split_words(counter), *split_words(stream)), split_words(key))
    return low | (high << np.uint64(32))


def key_words(key: Array) -> tuple[Array, Array]:
    """Key and stream of a key array, u64[2], or u32[4] with low words first."""
    wide = np.ascontiguousarray(key).view(np.uint64) if key.dtype == np.uint32 else key
    return wide[0], wide[1]


def random_bits(key: Array, shape: Sequence[int]) -> Array:
    """64 random bits for each element of a shape; the counter is the element's row-major index."""
    count = int(np.prod(tuple(shape), dtype=np.int64))
    return draw_bits(np.arange(count, dtype=np.uint64), *key_words(key)).reshape(tuple(shape))


def fold_key(key: Array, data: Array) -> Array:
    """The key of a branch: u64[2] made from a key and a number that names the branch."""
    own, stream = key_words(key)
    counters = np.asarray(data).astype(np.uint64) * np.uint64(2) + np.arange(2, dtype=np.uint64)
    return draw_bits(counters, own, stream ^ np.uint64(KEY_BRANCH))


# Checks, and decompositions on values.


def check_key(ctx: InferContext, op: str, key: TensorType) -> None:
    """Raises unless the operand is a key: u64[2] or u32[4]."""
    if (key.dtype, key.rank, key.size.value) not in ((dt.u64, 1, 2), (dt.u32, 1, 4)):
        raise ctx.fail(f"`{op}` needs a key of [2] u64 or [4] u32, got {key}", help="make one with `random.key(seed)`")


def check_rate(ctx: InferContext, op: str, rate: float, name: str = "rate") -> float:
    """The probability, which is in 0..1."""
    if not 0.0 <= rate <= 1.0:
        raise ctx.fail(f"`{op}` needs `{name}` in 0..1, got {rate}")
    return rate


def unit_bits(dtype: DType) -> int:
    """How many random bits a uniform number of this dtype has, so that it is exact and below 1."""
    return dtype.mantissa + 1


def threshold(probability: float) -> int:
    """Of 2**24 equally likely numbers, how many fall under a probability."""
    return round(probability * 2.0**24)


def _infer_shaped(op: str, ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    check_key(ctx, op, types[0])
    dtype: DType = attributes["dtype"]
    allowed, wanted = (UNSIGNED, "unsigned integers") if op == "random_bits" else (FLOATS, "floats")
    if dtype.name not in allowed:
        raise ctx.fail_dtype(f"`{op}` gives {wanted}, not {dtype}")
    return [TensorType.of(attributes["shape"], dtype)]


def _infer_bernoulli(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    check_key(ctx, "bernoulli", types[0])
    check_rate(ctx, "bernoulli", attributes["p"], "p")
    return [TensorType.of(attributes["shape"], dt.bool_)]


def _infer_dropout(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, key = types
    check_float(ctx, "dropout", x)
    check_key(ctx, "dropout", key)
    check_rate(ctx, "dropout", attributes["rate"])
    return [x]


def _infer_fold_key(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    key, data = types
    check_key(ctx, "fold_key", key)
    check_integer(ctx, "fold_key", data, "data")
    if data.rank:
        raise ctx.fail(f"`fold_key` needs one number as `data`, got {text(data.shape)}")
    return [TensorType.of((2,), dt.u64)]


def _infer_philox(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    names = ("counter", "key", "stream")
    for name, operand in zip(names, types, strict=True):
        if operand.dtype is not dt.u64:
            raise ctx.fail_dtype(f"`philox` needs u64, got `{name}` of {operand.dtype}")
    return [TensorType(broadcast_types(ctx, "philox", names, types), dt.u64)]


def _philox_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    """Ten rounds on tiles of u32, multiplied in u64, whose upper half is the multiplier's whole point."""
    half = builder.constant(32, dt.u64)

    def low(tile: Any) -> Any:
        return builder.cast(tile, dt.u32)

    def high(tile: Any) -> Any:
        return builder.cast(builder.elementwise("shr", tile, half), dt.u32)

    def multiply(word: Any, multiplier: int) -> Any:
        return builder.elementwise("mul", builder.cast(word, dt.u64), builder.constant(multiplier, dt.u64))

    def mix(word: Any, other: Any, key: Any) -> Any:
        return builder.elementwise("xor", builder.elementwise("xor", word, other), key)

    counter, key, stream = tiles
    c0, c1, c2, c3 = low(counter), high(counter), low(stream), high(stream)
    k0, k1 = low(key), high(key)
    for _ in range(PHILOX_ROUNDS):
        first, second = multiply(c0, PHILOX_MULTIPLIERS[0]), multiply(c2, PHILOX_MULTIPLIERS[1])
        c0, c1, c2, c3 = mix(high(second), c1, k0), low(second), mix(high(first), c3, k1), low(first)
        k0 = builder.elementwise("add", k0, builder.constant(PHILOX_KEY_STEPS[0], dt.u32))
        k1 = builder.elementwise("add", k1, builder.constant(PHILOX_KEY_STEPS[1], dt.u32))
    upper = builder.elementwise("shl", builder.cast(c1, dt.u64), half)
    return builder.elementwise("or", builder.cast(c0, dt.u64), upper)


def key_parts(b: Builder, key: Any) -> tuple[Any, Any]:
    """Key and stream as u64 scalars."""
    count = 2 if b.type_of(key).dtype is dt.u64 else 4
    words = [cast(b, index_axis(b, key, 0, at), dt.u64) for at in range(count)]
    if count == 2:
        return words[0], words[1]
    half = constant(b, 32, dt.u64)
    first, second = (b.emit("bitwise_or", words[at], b.emit("shift_left", words[at + 1], half)) for at in (0, 2))
    return first, second


def element_index(b: Builder, shape: Shape) -> Any:
    """The index of each element in row-major order."""
    index = b.emit("iota", shape=(TensorType(shape, dt.u64).size,), axis=0, dtype=dt.u64)
    return b.emit("reshape", index, shape=shape)


def _draw(b: Builder, key: Any, attributes: Attributes) -> Any:
    """64 random bits for each element."""
    return b.emit("philox", element_index(b, tuple(attributes["shape"])), *key_parts(b, key))


def _top_bits(b: Builder, words: Any, count: int) -> Any:
    """The upper `count` of a word's bits, as the integer they are."""
    dtype = b.type_of(words).dtype
    return b.emit("shift_right", words, constant(b, dtype.bits - count, dtype))


def _unit(b: Builder, words: Any, dtype: DType) -> Any:
    """A number in 0..1, 1 excluded, in the dtype floats compute in, exact in `dtype`."""
    count = unit_bits(dtype)
    source = words if dtype is dt.f64 else cast(b, words, dt.u32)
    signed = dt.i64 if dtype is dt.f64 else dt.i32  # machines convert signed integers fastest, and these fit
    whole = cast(b, cast(b, _top_bits(b, source, count), signed), dtype.compute)
    return b.emit("mul", whole, constant(b, 2.0**-count, dtype.compute))


def _decompose_uniform(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    dtype: DType = attributes["dtype"]
    low, high = float(attributes["low"]), float(attributes["high"])
    value = _unit(b, _draw(b, operands[0], attributes), dtype)
    if (low, high) != (0.0, 1.0):
        value = b.emit("mul", value, constant(b, high - low, dtype.compute))
        value = b.emit("add", value, constant(b, low, dtype.compute))
    return cast(b, value, dtype)


def _decompose_normal(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Box and Muller: a radius from one half of the bits, an angle from the other."""
    dtype: DType = attributes["dtype"]
    compute = dtype.compute
    words = _draw(b, operands[0], attributes)
    first = cast(b, cast(b, words, dt.u32), compute)
    second = cast(b, cast(b, b.emit("shift_right", words, constant(b, 32, dt.u64)), dt.u32), compute)
    # Half a step up: the logarithm of 0 is never taken.
    uniform = b.emit("mul", b.emit("add", first, constant(b, 0.5, compute)), constant(b, 2.0**-32, compute))
    radius = b.emit("sqrt", b.emit("mul", b.emit("log", uniform), constant(b, -2.0, compute)))
    angle = b.emit("cos", b.emit("mul", second, constant(b, 2.0 * np.pi * 2.0**-32, compute)))
    value = b.emit("mul", radius, angle)
    value = b.emit("mul", value, constant(b, float(attributes["std"]), compute))
    return cast(b, b.emit("add", value, constant(b, float(attributes["mean"]), compute)), dtype)


def _decompose_bernoulli(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    words = cast(b, _draw(b, operands[0], attributes), dt.u32)
    drawn = cast(b, _top_bits(b, words, 24), dt.i32)
    return b.emit("lt", drawn, constant(b, threshold(attributes["p"]), dt.i32))


def _decompose_dropout(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, key = operands
    kind, rate = b.type_of(x), float(attributes["rate"])
    compute = kind.dtype.compute
    kept = b.emit("bernoulli", key, shape=kind.shape, p=1.0 - rate)
    scaled = b.emit("mul", cast(b, x, compute), constant(b, _keep_scale(rate), compute))
    return cast(b, b.emit("where", kept, scaled, constant(b, 0.0, compute)), kind.dtype)


def _decompose_fold_key(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    key, data = operands
    own, stream = key_parts(b, key)
    doubled = b.emit("mul", cast(b, data, dt.u64), constant(b, 2, dt.u64))
    counters = b.emit("add", b.emit("iota", shape=(Dim.constant(2),), axis=0, dtype=dt.u64), doubled)
    return b.emit("philox", counters, own, b.emit("bitwise_xor", stream, constant(b, KEY_BRANCH, dt.u64)))


def _keep_scale(rate: float) -> float:
    return 1.0 / (1.0 - rate) if rate < 1.0 else 0.0


def keep_mask(key: Array, shape: Sequence[int], rate: float) -> Array:
    """Which elements dropout keeps."""
    return bernoulli_reference(key, shape=[Dim.of(size) for size in shape], p=1.0 - rate)


def bits_reference(key: Array, *, shape: Sequence[Dim], dtype: DType = dt.u32) -> Array:
    """The low bits of each element's draw."""
    return random_bits(key, static_shape(shape)).astype(numpy_dtype(dtype))


def _unit_values(words: Array, dtype: DType) -> Array:
    source = words if dtype is dt.f64 else words.astype(np.uint32)
    width, count = dtype_of(source).bits, unit_bits(dtype)
    compute = numpy_dtype(dtype.compute)
    return (source >> source.dtype.type(width - count)).astype(compute) * compute.type(2.0**-count)


def uniform_reference(
    key: Array, *, shape: Sequence[Dim], low: float = 0.0, high: float = 1.0, dtype: DType = dt.f32
) -> Array:
    """Numbers from `low` up to `high`, bit for bit as compiled."""
    value = _unit_values(random_bits(key, static_shape(shape)), dtype)
    if (low, high) != (0.0, 1.0):
        value = value * value.dtype.type(high - low) + value.dtype.type(low)
    return round_as(value, dtype)


def normal_reference(
    key: Array, *, shape: Sequence[Dim], mean: float = 0.0, std: float = 1.0, dtype: DType = dt.f32
) -> Array:
    """Box and Muller in f64, rounded once; compiled code differs by its sine and logarithm."""
    first, second = split_words(random_bits(key, static_shape(shape)))
    radius = np.sqrt(-2.0 * np.log((first.astype(np.float64) + 0.5) * 2.0**-32))
    return round_as(radius * np.cos(second.astype(np.float64) * (2.0 * np.pi * 2.0**-32)) * std + mean, dtype)


def bernoulli_reference(key: Array, *, shape: Sequence[Dim], p: float = 0.5) -> Array:
    """True with probability `p`, in steps of 2**-24."""
    words = random_bits(key, static_shape(shape)).astype(np.uint32)
    return np.asarray((words >> np.uint32(8)).astype(np.int64) < threshold(p))


def dropout_reference(x: Array, key: Array, *, rate: float) -> Array:
    """Kept elements scaled by 1 / (1 - rate), the others 0."""
    wide = widen_array(x)
    with np.errstate(over="ignore"):
        scaled = wide * wide.dtype.type(_keep_scale(rate))
    return round_as(np.where(keep_mask(key, x.shape, rate), scaled, wide.dtype.type(0)), dtype_of(x))


def _infer_residual(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    x, y, *keys = types
    for name, operand in (("x", x), ("y", y)):
        check_float(ctx, "residual", operand, name)
    dtype = common_dtype(ctx, "residual", (x, y))
    rate = check_rate(ctx, "residual", attributes["dropout"])
    if len(keys) > 1 or (rate > 0 and not keys):
        raise ctx.fail(
            f"`residual` with dropout {rate} needs one `key`, got {len(keys)}",
            help="pass a random key, or leave dropout at 0",
        )
    for key in keys:
        check_key(ctx, "residual", key)
    return [TensorType(broadcast_types(ctx, "residual", ("x", "y"), (x, y)), dtype)]


def _decompose_residual(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    x, y, *keys = operands
    dtype = b.type_of(x).dtype
    branch = widen(b, y)
    if attributes["dropout"] > 0:
        branch = b.emit("dropout", branch, keys[0], rate=attributes["dropout"])
    return cast(b, b.emit("add", widen(b, x), branch), dtype)


def residual_reference(x: Array, y: Array, *keys: Array, dropout: float = 0.0) -> Array:
    """The sum, with elements of `y` dropped by the key's mask and the others scaled up; rounded once."""
    branch: Array = widen_array(y)
    with np.errstate(all="ignore"):
        if dropout > 0:
            dropped: Array = ~keep_mask(keys[0], y.shape, dropout)
            branch = branch * branch.dtype.type(1.0 / (1.0 - dropout))
            branch[dropped] = 0
        return round_as(widen_array(x) + branch, dtype_of(x))


def key_sample(make: Make) -> Make:
    """A sample's operands and a key."""
    return lambda rng: [*make(rng), np.array([rng.integers(1 << 62), rng.integers(1 << 62)], np.uint64)]


def _key(*, words: bool = False) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        (key,) = key_sample(normal())(rng)
        return [key.view(np.uint32) if words else key]

    return make


def _counters(rng: np.random.Generator) -> Sequence[Array]:
    words = rng.integers(0, 1 << 63, (3, 37), dtype=np.uint64)
    return [words, np.array(rng.integers(1 << 62), np.uint64), np.array([rng.integers(1 << 62)], np.uint64)]


def _branch_sample(rng: np.random.Generator) -> Sequence[Array]:
    return [*_key()(rng), np.array(7, np.int64)]


def _sampler(
    name: str,
    summary: str,
    extra: tuple[Attribute, ...],
    infer: Infer,
    reference: Any,
    decompose: Decompose,
    cases: Any,
    interval: IntervalRule = ANYTHING,
) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("key",),
        attributes=(SHAPE, *extra),
        infer=infer,
        reference=reference,
        effects=RANDOM,
        samples=tuple(Sample(label, _key(words=at == 1), case) for at, (label, case) in enumerate(cases.items())),
        dtypes=("u64",),
        cost=pointwise_cost(60),
        decompose=decompose,
        policy=KEEP,
        interval=interval,
    )


def _normal_interval(query: IntervalQuery) -> Interval:
    # Box and Muller's radius is largest for the least uniform number, half a step of 2**-32.
    reach = math.sqrt(-2.0 * math.log(0.5 * 2.0**-32)) * abs(query.attributes["std"])
    return Interval(query.attributes["mean"] - reach, query.attributes["mean"] + reach)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.philox",
        summary="64 random bits by Philox4x32-10 for each u64 counter, under a key and a stream (upper counter words).",
        operands=("counter", "key", "stream"),
        infer=_infer_philox,
        shard="library:philox",
        reference=draw_bits,
        effects=RANDOM,
        samples=(Sample("counters", _counters),),
        dtypes=("u64",),
        cost=visits(90),
        lower=Pointwise(_philox_block, flops=90, expensive=True, asks_where=True),
        policy=KEEP,
        interval=ANYTHING,
    ),
    _sampler(
        "random_bits",
        "Random unsigned integers; element i depends on the key and on i alone.",
        (Attribute("dtype", "dtype", dt.u32),),
        partial(_infer_shaped, "random_bits"),
        bits_reference,
        lambda b, operands, attributes: cast(b, _draw(b, operands[0], attributes), attributes["dtype"]),
        {"words": {"shape": dims(3, 5)}, "wide": {"shape": dims(33), "dtype": dt.u64}, "empty": {"shape": dims(0)}},
    ),
    _sampler(
        "uniform",
        "Numbers from `low` up to but (before scaling) without `high`, with as many bits as the dtype holds exactly.",
        (Attribute("low", "float", 0.0), Attribute("high", "float", 1.0), Attribute("dtype", "dtype", dt.f32)),
        partial(_infer_shaped, "uniform"),
        uniform_reference,
        _decompose_uniform,
        {
            "unit": {"shape": dims(7, 13)},
            "range": {"shape": dims(64), "low": -3.0, "high": 5.5},
            "narrow": {"shape": dims(100), "dtype": dt.bf16},
            "wide": {"shape": dims(9), "dtype": dt.f64},
        },
        IntervalRule(lambda query: Interval(float(query.attributes["low"]), float(query.attributes["high"]))),
    ),
    _sampler(
        "normal",
        "Normal numbers by Box and Muller.",
        (Attribute("mean", "float", 0.0), Attribute("std", "float", 1.0), Attribute("dtype", "dtype", dt.f32)),
        partial(_infer_shaped, "normal"),
        normal_reference,
        _decompose_normal,
        {"standard": {"shape": dims(7, 13)}, "moved": {"shape": dims(50), "mean": 2.0, "std": 0.5}},
        IntervalRule(_normal_interval),
    ),
    _sampler(
        "bernoulli",
        "True with probability `p`, in steps of 2**-24.",
        (Attribute("p", "float", 0.5),),
        _infer_bernoulli,
        bernoulli_reference,
        _decompose_bernoulli,
        {"fair": {"shape": dims(7, 13)}, "rare": {"shape": dims(200), "p": 0.05}, "sure": {"shape": dims(9), "p": 1.0}},
        BOOLEAN,
    ),
    OpSpec(
        name="tgraph.dropout",
        summary="Elements set to 0 with probability `rate`, by key and index; the others times 1 / (1 - rate).",
        operands=("x", "key"),
        attributes=(Attribute("rate", "float", doc="fraction that is dropped"),),
        infer=_infer_dropout,
        reference=dropout_reference,
        effects=RANDOM,
        samples=(
            Sample("a tenth", key_sample(normal((17, 33))), {"rate": 0.1}),
            Sample("nothing", key_sample(normal((5, 3))), {"rate": 0.0}),
            Sample("everything", key_sample(normal((5, 3))), {"rate": 1.0}),
        ),
        dtypes=FLOATS,
        cost=visits(62),
        simplify=drop_when(lambda attributes: attributes["rate"] == 0.0),
        decompose=_decompose_dropout,
        policy=ROUND,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.fold_key",
        summary="The key of a branch (a layer, a step) from a key and a number; its draws are unrelated to the key's.",
        operands=("key", "data"),
        infer=_infer_fold_key,
        reference=fold_key,
        samples=(Sample("seven", _branch_sample),),
        dtypes=("u64",),
        cost=visits(180),
        decompose=_decompose_fold_key,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.residual",
        summary="x + y, `y` with dropout if asked for, in f32 and rounded once.",
        operands=("x", "y", "key*"),
        attributes=(Attribute("dropout", "float", 0.0, "fraction of `y` that is dropped; above 0 it needs a key"),),
        infer=_infer_residual,
        reference=residual_reference,
        samples=(
            Sample("plain", normal((3, 5), (3, 5))),
            Sample("dropout", key_sample(normal((17, 33), (17, 33))), {"dropout": 0.25}),
        ),
        dtypes=FLOATS,
        cost=visits(1),
        decompose=_decompose_residual,
        policy=ROUND,
        interval=ANYTHING,
    ),
)
