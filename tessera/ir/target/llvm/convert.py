"""Conversions between dtypes as LLVM text: storage and compute types, casts, and rounding to number formats."""

from __future__ import annotations

from tessera.ir.target.llvm.instructions import Value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, add, bits, from_bits, mul, shift, sub, times, with_sign
from tessera.types import dtype as dt
from tessera.types.dtype import FORMATS, DType, NumberFormat
from tessera.types.frozen import frozen

# Rounding f32 vectors to a number format, by lane: the instructions for what `ir/base/arrays.py` means.

_INFINITY = 0x7F800000
_STEPS = 24  # random bits that decide, as in `ir/base/arrays.py`


@frozen
class Rounding:
    """How to round; `random` are 32 bits for each lane, for stochastic rounding only."""

    format: str
    rounding: str
    saturation: str
    denormals: str
    random: Value | None = None

    @property
    def kind(self) -> NumberFormat:
        return FORMATS[self.format]


def round_to(f: FunctionText, value: Value, rule: Rounding) -> Value:
    """The numbers of a format that f32 values become, still as f32."""
    if not rule.kind.is_float:
        return _integer(f, value, rule)
    magnitude = absolute(f, value)
    # With all of f32's exponents a format is f32 with fewer bits; with fewer, small numbers lose more of theirs.
    rounded = _by_bits(f, magnitude, rule) if rule.kind.exponent == 8 else _by_steps(f, magnitude, rule)
    rounded = _limit(f, rounded, magnitude, rule)
    if rule.denormals == "flush":
        is_small = f.fcmp("olt", rounded, f.const_like(rounded, rule.kind.smallest_normal))
        rounded = f.select(is_small, f.const_like(rounded, 0.0), rounded)
    signed = with_sign(f, rounded, value)
    return f.select(f.fcmp("uno", value, value), f.const_like(value, float("nan")), signed)


def _random_fraction(f: FunctionText, rule: Rounding) -> Value:
    assert rule.random is not None, "stochastic rounding needs random bits"
    return shift(f, "lshr", rule.random, 32 - _STEPS)


def _by_bits(f: FunctionText, magnitude: Value, rule: Rounding) -> Value:
    drop = 23 - rule.kind.mantissa
    if not drop:
        return magnitude
    whole = bits(f, magnitude)
    kept = f.op("and", whole, f.const_like(whole, ~((1 << drop) - 1)))
    if rule.rounding == "toward_zero":
        return from_bits(f, kept)
    unit = f.const_like(whole, 1 << drop)
    if rule.rounding == "stochastic":
        lost = shift(f, "shl", f.op("and", whole, f.const_like(whole, (1 << drop) - 1)), _STEPS - drop)
        goes_up = f.icmp("ult", _random_fraction(f, rule), lost)
        return from_bits(f, f.select(goes_up, add(f, kept, unit), kept))
    odd = f.op("and", shift(f, "lshr", whole, drop), f.const_like(whole, 1))
    nearest = add(f, add(f, whole, f.const_like(whole, (1 << (drop - 1)) - 1)), odd)
    # An infinity has no bits to lose, so it stays one.
    return from_bits(f, f.op("and", nearest, f.const_like(whole, ~((1 << drop) - 1))))


def _by_steps(f: FunctionText, magnitude: Value, rule: Rounding) -> Value:
    """Count in steps of the format, which are powers of two and cost no accuracy, and round the count."""
    kind, whole = rule.kind, bits(f, magnitude)
    exponent = shift(f, "lshr", whole, 23)
    exponent = f.intrinsic("umax", exponent, f.const_like(whole, 128 - kind.bias))
    step = sub(f, exponent, f.const_like(whole, kind.mantissa))
    size = from_bits(f, shift(f, "shl", step, 23))
    inverse = from_bits(f, shift(f, "shl", sub(f, f.const_like(whole, 254), step), 23))
    rounded = mul(f, _whole(f, mul(f, magnitude, inverse), rule), size)
    is_infinite = f.icmp("uge", whole, f.const_like(whole, _INFINITY))
    return f.select(is_infinite, magnitude, rounded)


def _whole(f: FunctionText, value: Value, rule: Rounding) -> Value:
    """Integers from any numbers."""
    if rule.rounding == "nearest_even":
        return f.intrinsic("roundeven", value)
    if rule.rounding == "toward_zero":
        return f.intrinsic("trunc", value)
    low = f.intrinsic("floor", value)
    fraction = times(f, f.cast("uitofp", _random_fraction(f, rule), "float"), 2.0**-_STEPS)
    if rule.kind.is_float:
        goes_up = f.fcmp("olt", fraction, sub(f, value, low))
        return f.select(goes_up, add(f, low, f.const_like(low, 1.0)), low)
    # Of a negative number only the distance from the integer above it is always an f32.
    high = f.intrinsic("ceil", value)
    is_negative = f.fcmp("olt", value, f.const_like(value, 0.0))
    fraction = f.select(is_negative, sub(f, fraction, f.const_like(fraction, 1.0)), fraction)
    goes_up = f.fcmp("olt", fraction, sub(f, value, f.select(is_negative, high, low)))
    return f.select(goes_up, high, low)


def _limit(f: FunctionText, rounded: Value, magnitude: Value, rule: Rounding) -> Value:
    kind = rule.kind
    largest = f.const_like(rounded, kind.largest)
    is_beyond = f.fcmp("ogt", rounded, largest)
    if rule.saturation == "saturate" or not (kind.has_infinity or kind.has_nan):
        return f.select(is_beyond, largest, rounded)
    beyond = f.const_like(rounded, float("inf") if kind.has_infinity else float("nan"))
    if rule.rounding == "toward_zero":
        is_infinite = f.fcmp("oeq", magnitude, f.const_like(rounded, float("inf")))
        beyond = f.select(is_infinite, beyond, largest)
    return f.select(is_beyond, beyond, rounded)


def _integer(f: FunctionText, value: Value, rule: Rounding) -> Value:
    kind, whole = rule.kind, _whole(f, value, rule)
    if rule.saturation == "wrap":
        span = kind.largest - kind.lowest + 1
        wraps = f.intrinsic("floor", times(f, whole, 1.0 / span))
        offset = sub(f, whole, times(f, wraps, span))
        above = f.fcmp("ogt", offset, f.const_like(offset, kind.largest))
        whole = f.select(above, sub(f, offset, f.const_like(offset, span)), offset)
    else:
        low, high = f.const_like(whole, kind.lowest), f.const_like(whole, kind.largest)
        whole = f.select(f.fcmp("olt", whole, low), low, whole)
        whole = f.select(f.fcmp("ogt", whole, high), high, whole)
    zero = f.const_like(whole, 0.0)
    return f.select(f.fcmp("uno", whole, whole), zero, add(f, whole, zero))


_FLOATS = {64: "double", 32: "float", 16: "half"}


def storage_type(dtype: DType) -> str:
    """The LLVM type of one element in memory."""
    if dtype is dt.bf16:
        return "i16"
    return _FLOATS[dtype.bits] if dtype.is_float and dtype.bits > 8 else f"i{8 * dtype.bytes}"


def compute_type(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    if dtype.is_float:
        return _FLOATS[dtype.compute.bits]
    return "i1" if dtype.is_bool else storage_type(dtype)


def load(f: FunctionText, pointer: Value, dtype: DType, lanes: int, mask: Value | None = None) -> Value:
    """Elements from memory in their compute type; lanes that the mask leaves out are not touched and read as 0."""
    type_ = vector(storage_type(dtype), lanes)
    stored = f.load(pointer, type_) if mask is None else f.masked_load(pointer, type_, mask)
    return widen(f, stored, dtype)


def load_some(f: FunctionText, pointer: Value, dtype: DType, lanes: int, count: Value) -> Value:
    """The first `count` elements in their compute type, the others zero and not touched."""
    if lanes > 1 and has_masked_memory(f, dtype):
        return load(f, pointer, dtype, lanes, f.lane_mask(count, lanes))
    stored = storage_type(dtype)
    buffer = f.alloca(stored, lanes)
    f.store(f.const(stored, 0, lanes), buffer)

    def copy(lane: Value) -> None:
        f.store(f.load(f.gep(pointer, lane, stored), stored), f.gep(buffer, lane, stored))

    f.loop(0, f.smin(count, lanes), 1, copy)
    return load(f, buffer, dtype, lanes)


def has_masked_memory(f: FunctionText, dtype: DType) -> bool:
    """Whether the target loads and stores parts of a vector of the dtype in one instruction."""
    return dtype.bytes >= 4 or f.target.has_narrow_masks


def store(f: FunctionText, value: Value, pointer: Value, dtype: DType, mask: Value | None = None) -> None:
    """Elements of the compute type to memory, rounded to the dtype; lanes that the mask leaves out are not touched."""
    stored = narrow(f, value, dtype)
    if mask is None:
        f.store(stored, pointer)
    else:
        f.masked_store(stored, pointer, mask)


def widen(f: FunctionText, stored: Value, dtype: DType) -> Value:
    """Stored elements in their compute type; always exact."""
    if dtype is dt.bf16:
        return from_bits(f, shift(f, "shl", f.cast("zext", stored, "i32"), 16))
    if dtype is dt.f16:
        return f.cast("fpext", stored, "float")
    if dtype is dt.f8e5m2:
        return f.cast("fpext", _half(f, shift(f, "shl", f.cast("zext", stored, "i16"), 8)), "float")
    if dtype is dt.f8e4m3:
        return _from_e4m3(f, stored)
    if dtype.is_bool:
        return f.icmp("ne", stored, f.const_like(stored, 0))
    return stored


def narrow(f: FunctionText, value: Value, dtype: DType) -> Value:
    """Values of the compute type as stored elements, rounded to nearest even; i4 wraps."""
    if dtype is dt.bf16:
        return _to_bf16(f, value)
    if dtype is dt.f16:
        return f.cast("fptrunc", value, "half")
    if dtype.is_float and dtype.bits == 8:
        return _to_float8(f, value, dtype)
    if dtype.is_bool:
        return f.cast("zext", value, "i8")
    if dtype is dt.i4:
        return shift(f, "ashr", shift(f, "shl", value, 4), 4)
    return value


def round_to_dtype(f: FunctionText, value: Value, dtype: DType) -> Value:
    """Values of the compute type as they would come back from memory."""
    if dtype.compute is not dtype:
        return widen(f, narrow(f, value, dtype), dtype)
    return narrow(f, value, dtype) if dtype is dt.i4 else value


def cast(f: FunctionText, value: Value, source: DType, to: DType) -> Value:
    """Values of one dtype as another, both in compute types: the table of `docs/guide/numerics.md`."""
    if to.is_bool:
        if source.is_bool:
            return value
        zero = f.const_like(value, 0)
        return f.fcmp("une", value, zero) if source.is_float else f.icmp("ne", value, zero)
    if to.is_float:
        return round_to_dtype(f, before_narrowing(f, value, source, to), to)
    if source.is_float:
        return _float_to_integer(f, value, to)
    return round_to_dtype(f, _resize(f, value, source, compute_type(to)), to)


def before_narrowing(f: FunctionText, value: Value, source: DType, to: DType) -> Value:
    """Values as floats of the compute type of `to`, from which `narrowed` finds the nearest number of `to` itself.

    What f32 does not hold is made the odd one of its two neighbours: as far from every tie of a narrow float as before.
    """
    element = compute_type(to)
    if to.compute is to or source.bits < 32 or (source.is_float and source.compute.bits < 64):
        return value if value.element == element else _to_float(f, value, source, element)
    if not source.is_float:
        mantissa = 24 if source.bits == 32 else 53
        value = _few_bits(f, value, source, mantissa)
        if mantissa == 24:
            return _to_float(f, value, source, element)
        value = _to_float(f, value, source, "double")
    return _odd(f, value)


def _few_bits(f: FunctionText, value: Value, source: DType, count: int) -> Value:
    """Integers that a float of `count` bits holds: of larger ones the bits below become one, set where any was."""
    below = (1 << (source.bits - count + 1)) - 1
    low = f.op("and", value, f.const_like(value, below))
    sticky = f.const_like(value, (below + 1) >> 1)
    zero = f.const_like(value, 0)
    cut = f.op("or", f.op("xor", value, low), f.select(f.icmp("ne", low, zero), sticky, zero))
    half = 1 << count
    if source.kind == "int":
        is_large = f.icmp("ugt", add(f, value, f.const_like(value, half)), f.const_like(value, 2 * half))
    else:
        is_large = f.icmp("ugt", value, f.const_like(value, half))
    return f.select(is_large, cut, value)


def _odd(f: FunctionText, value: Value) -> Value:
    """f64 as f32, cut toward zero with the last bit set where that loses anything."""
    near = f.cast("fptrunc", value, "float")
    back = f.cast("fpext", near, "double")
    whole = bits(f, near)
    is_beyond = f.fcmp("ogt", absolute(f, back), absolute(f, value))
    cut = sub(f, whole, f.cast("zext", is_beyond, "i32"))
    odd = f.op("or", cut, f.const_like(cut, 1))
    return from_bits(f, f.select(f.fcmp("one", back, value), odd, whole))


def _to_float(f: FunctionText, value: Value, source: DType, element: str) -> Value:
    if source.is_float:
        return f.cast("fpext" if element == "double" else "fptrunc", value, element)
    return f.cast("sitofp" if source.kind == "int" else "uitofp", value, element)


def _float_to_integer(f: FunctionText, value: Value, to: DType) -> Value:
    """Cut toward zero, held to the range, NaN to 0."""
    name = "fptosi" if to.kind == "int" else "fptoui"
    if value.lanes > 1:
        whole = _saturate(f, name, value, compute_type(to))
    else:
        whole = f.intrinsic(f"{name}.sat", value, ret=compute_type(to))
    if to is dt.i4:
        whole = f.intrinsic("smin", f.intrinsic("smax", whole, f.const_like(whole, -8)), f.const_like(whole, 7))
    return whole


def _saturate(f: FunctionText, name: str, value: Value, element: str) -> Value:
    """The same of vectors, by comparisons: of the saturating intrinsic LLVM makes code for each lane on x86."""
    width = int(element[1:])
    low, end = (-(2.0 ** (width - 1)), 2.0 ** (width - 1)) if name == "fptosi" else (0.0, 2.0**width)
    is_above, is_below = f.fcmp("oge", value, f.const_like(value, end)), f.fcmp("olt", value, f.const_like(value, low))
    is_outside = f.op("or", f.op("or", is_above, is_below), f.fcmp("uno", value, value))
    inside = f.select(is_outside, f.const_like(value, 0.0), value)
    # Through 32 bits, which machines convert to: narrow numbers are all among them.
    whole = f.cast(name, inside, element) if width >= 32 else f.cast("trunc", f.cast("fptosi", inside, "i32"), element)
    whole = f.select(is_above, f.const_like(whole, int(end) - 1), whole)
    return f.select(is_below, f.const_like(whole, int(low)), whole)


def _resize(f: FunctionText, value: Value, source: DType, element: str) -> Value:
    wide, narrow = int(element[1:]), int(value.element[1:])
    if wide < narrow:
        return f.cast("trunc", value, element)
    return f.cast("sext" if source.kind == "int" else "zext", value, element)


def _half(f: FunctionText, codes: Value) -> Value:
    return f.bitcast(codes, vector("half", codes.lanes))


def _from_e4m3(f: FunctionText, stored: Value) -> Value:
    """Through f16, whose exponent is one bit wider and 8 apart; the hardware takes its denormals at full speed."""
    wide = f.cast("zext", stored, "i16")
    magnitude = f.op("and", wide, f.const_like(wide, 0x7F))
    sign = shift(f, "shl", f.op("and", wide, f.const_like(wide, 0x80)), 8)
    code = f.op("or", shift(f, "shl", magnitude, 7), sign)
    value = times(f, f.cast("fpext", _half(f, code), "float"), 256.0)
    is_nan = f.icmp("eq", magnitude, f.const_like(wide, 0x7F))
    return f.select(is_nan, f.const_like(value, float("nan")), value)


def _to_bf16(f: FunctionText, value: Value) -> Value:
    """The upper half of an f32 after adding just under half a unit, and the odd bit; NaN is made quiet."""
    whole = bits(f, value)
    odd = f.op("and", shift(f, "lshr", whole, 16), f.const_like(whole, 1))
    nearest = add(f, add(f, whole, f.const_like(whole, 0x7FFF)), odd)
    quiet = f.op("or", whole, f.const_like(whole, 0x400000))
    picked = f.select(f.fcmp("uno", value, value), quiet, nearest)
    return f.cast("trunc", shift(f, "lshr", picked, 16), "i16")


def _to_float8(f: FunctionText, value: Value, dtype: DType) -> Value:
    """To nearest even; too large goes to infinity (e5m2) or NaN (e4m3, which has no infinity)."""
    mantissa = dtype.mantissa
    bias = (1 << (dtype.exponent - 1)) - 1
    magnitude = absolute(f, value)
    whole = bits(f, magnitude)
    drop = 23 - mantissa
    odd = f.op("and", shift(f, "lshr", whole, drop), f.const_like(whole, 1))
    nearest = add(f, add(f, whole, f.const_like(whole, (1 << (drop - 1)) - 1)), odd)
    normal = sub(f, shift(f, "lshr", nearest, drop), f.const_like(whole, (127 - bias) << mantissa))
    # Adding a number whose last place is the smallest denormal rounds to it, and leaves the code in the low bits.
    anchor = f.const_like(value, 2.0 ** (1 - bias - mantissa + 23))
    small = sub(f, bits(f, add(f, magnitude, anchor)), f.const_like(whole, (127 + 1 - bias - mantissa + 23) << 23))
    is_small = f.fcmp("olt", magnitude, f.const_like(value, 2.0 ** (1 - bias)))
    overflow, nan = (0x7F, 0x7F) if dtype is dt.f8e4m3 else (0x7C, 0x7E)
    code = f.intrinsic("umin", f.select(is_small, small, normal), f.const_like(whole, overflow))
    code = f.select(f.fcmp("uno", value, value), f.const_like(whole, nan), code)
    sign = f.op("and", shift(f, "lshr", bits(f, value), 24), f.const_like(whole, 0x80))
    return f.cast("trunc", f.op("or", code, sign), "i8")


def atomic_instruction(mode: str, dtype: DType) -> str:
    """LLVM's name for an atomic change of memory."""
    fn = mode.removeprefix("atomic_")
    if dtype.is_float:
        return f"f{fn}"
    return f"u{fn}" if dtype.kind == "uint" and fn != "add" else fn
