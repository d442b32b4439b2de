"""Elements in registers of a thread: as they are in memory, bool aside; narrow floats are widened to compute with.

Results are those of `ir/target/llvm/convert.py` to the last bit, by the instructions that NVIDIA has for it.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.ir.target.llvm import convert, math, math_exp
from tessera.ir.target.llvm.instructions import Value, bytes_of
from tessera.ir.target.llvm.text import FunctionText
from tessera.types import dtype as dt
from tessera.types.dtype import DType

EXACT, HARDWARE = "exact", "hardware"
"""How `exp` of f32 is computed: with the bits of every other machine, or by the GPU's own `ex2.approx`."""
NONPOSITIVE, NORMAL = "nonpositive", "normal"
"""What is known of the argument of an `exp`: that it is at most 0, or besides that its result is a normal number."""


def register_type(dtype: DType) -> str:
    """The LLVM type of an element in a register."""
    return "i1" if dtype.is_bool else convert.storage_type(dtype)


def memory_type(dtype: DType) -> str:
    """The LLVM type of an element in memory."""
    return convert.storage_type(dtype)


def is_narrow(dtype: DType) -> bool:
    """Whether elements are computed with in a wider float."""
    return dtype.is_float and dtype.compute is not dtype


def constant(f: FunctionText, dtype: DType, value: Any) -> Value:
    """A number as an element."""
    if is_narrow(dtype):
        from tessera.runtime.arrays import encode  # noqa: PLC0415 - few kernels have such constants

        bits = int.from_bytes(encode(dtype, [float(value)]), "little")
        number = Value(f"i{dtype.bits}", str(bits))
        return f.bitcast(number, "half") if dtype is dt.f16 else number
    if dtype.is_bool:
        return f.const("i1", bool(value))
    if dtype.is_float:
        return f.const(register_type(dtype), float(value))
    return f.const(register_type(dtype), int(value))


def from_memory(f: FunctionText, stored: Value, dtype: DType) -> Value:
    """What was loaded, as it is held."""
    return f.icmp("ne", stored, f.const_like(stored, 0)) if dtype.is_bool else stored


def to_memory(f: FunctionText, value: Value, dtype: DType) -> Value:
    """What is held, as it is stored."""
    return f.cast("zext", value, "i8") if dtype.is_bool else value


def cast(f: FunctionText, values: Sequence[Value], source: DType, to: DType) -> list[Value]:
    """Elements of one dtype as another."""
    if source is to:
        return list(values)
    if is_narrow(source):
        values = [convert.widen(f, value, source) for value in values]
        source = source.compute
    if not is_narrow(to):
        return [value if source is to else convert.cast(f, value, source, to) for value in values]
    wide = [convert.before_narrowing(f, value, source, to) for value in values]
    if to in (dt.bf16, dt.f16):
        return _to_halves(f, wide, to)
    return [convert.narrow(f, value, to) for value in wide]


PAIRED = {"add": "add.rn", "sub": "sub.rn", "mul": "mul.rn", "max": "max.NaN", "min": "min.NaN"}
"""Functions of two bf16 or f16 that Hopper computes for two pairs at a time, rounded once, by their instructions.

Bits are those of f32 rounded to the narrow float: f32 has at least twice the bits of such and two, so that the double
rounding is never seen (Figueroa, When is double rounding innocuous?, 1995).
"""


def compute_pairs(
    f: FunctionText, name: str, left: Sequence[Value], right: Sequence[Value], dtype: DType
) -> list[Value]:
    """A function of `PAIRED` on bf16 or f16, an even number of them, rounded to the same."""
    if dtype is dt.f16:
        left, right = ([f.bitcast(value, "i16") for value in part] for part in (left, right))
    found: list[Value] = []
    for at in range(0, len(left), 2):
        words = [join_halves(f, part[at], part[at + 1]) for part in (left, right)]
        text = f'call i32 asm "{PAIRED[name]}.{dtype.name}x2 $0, $1, $2;", "=r,r,r"({words[0]}, {words[1]})'
        found += split_word(f, f.raw("i32", text))
    return [f.bitcast(value, "half") for value in found] if dtype is dt.f16 else found


def minmax_pairs(f: FunctionText, name: str, left: Value, right: Value) -> Value:
    """The maximum or minimum of two pairs of bf16; NaN propagates."""
    return f.raw("i32", f'call i32 asm "{name}.NaN.bf16x2 $0, $1, $2;", "=r,r,r"({left}, {right})')


_CHAINS = 4
"""Chains of min or max that are reduced side by side, so that none waits for the latency of the last."""


def minmax(
    f: FunctionText, name: str, dtype: DType, elements: Sequence[Value], narrow: tuple[DType, Sequence[Value]] | None
) -> Value:
    """The maximum or minimum of many; of bf16 that were widened to f32 by pairs of bf16, which is the same."""
    if narrow is not None and narrow[0] is dt.bf16 and dtype is dt.f32 and len(elements) % 2 == 0:
        pairs = zip(narrow[1][::2], narrow[1][1::2], strict=True)
        word = _reduce_in_chains(
            [join_halves(f, low, high) for low, high in pairs], lambda a, b: minmax_pairs(f, name, a, b)
        )
        elements = cast(f, split_word(f, word), dt.bf16, dt.f32)
    return _reduce_in_chains(elements, lambda a, b: compute(f, name, [a, b], dtype))


def _reduce_in_chains(elements: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
    chains = list(elements[:_CHAINS])
    for number, value in enumerate(elements[_CHAINS:]):
        chains[number % _CHAINS] = join(chains[number % _CHAINS], value)
    while len(chains) > 1:
        joined = [join(a, b) for a, b in zip(chains[::2], chains[1::2], strict=False)]
        chains = [*joined, *chains[len(chains) // 2 * 2 :]]
    return chains[0]


def _to_halves(f: FunctionText, values: Sequence[Value], dtype: DType) -> list[Value]:
    """f32 as bf16 or f16, two at a time, to nearest even, as one instruction of the machine does it."""
    kind, element = "half" if dtype is dt.f16 else "bfloat", register_type(dtype)
    found: list[Value] = []
    for first, second in zip(values[::2], values[1::2], strict=False):
        pair = f.insert(f.insert(Value("<2 x float>", "poison"), first, 0), second, 1)
        word = f.bitcast(f.raw(f"<2 x {kind}>", f"fptrunc {pair} to <2 x {kind}>"), "i32")
        found += [f.bitcast(part, element) for part in split_word(f, word)]
    if len(values) % 2:
        found.append(f.bitcast(f.raw(kind, f"fptrunc {values[-1]} to {kind}"), element))
    return found


BYTES: Mapping[DType, tuple[str, float, int, int]] = {
    dt.f8e4m3: ("e4m3x2", 464.0, 0x7F, 0x7F),
    dt.f8e5m2: ("e5m2x2", 61439.99609375, 0x7C, 0x7E),
}
"""By dtype: what Hopper calls two of them, the last f32 that is in range, and the codes beyond that and of NaN."""


def to_bytes(f: FunctionText, given: Sequence[Value], dtype: DType, is_saturated: bool = False) -> list[Value]:
    """f32, an even number of them, as floats of 8 bits: to nearest even, and held to the range if `is_saturated`.

    Hopper's conversion does that, with a positive NaN. Others have their own codes where it would hold them.
    """
    kind, most, beyond, nan = BYTES[dtype]
    found: list[Value] = []
    for low, high in zip(given[::2], given[1::2], strict=True):
        text = f"{{ .reg .b16 pair; cvt.rn.satfinite.{kind}.f32 pair, $1, $2; cvt.u32.u16 $0, pair; }}"
        pair = f.raw("i32", f'call i32 asm "{text}", "=r,f,f"({high}, {low})')
        found += [f.cast("trunc", part, "i8") for part in (pair, f.op("lshr", pair, f.const_like(pair, 8)))]
    if is_saturated:
        return found
    return [_replace_beyond(f, value, code, most, (beyond, nan)) for value, code in zip(given, found, strict=True)]


def _replace_beyond(f: FunctionText, value: Value, code: Value, most: float, codes: tuple[int, int]) -> Value:
    """The code of an f32, another one if its size is not up to `most`."""
    size, (beyond, nan) = f.intrinsic("fabs", value), codes
    other = Value("i32", str(beyond))
    if nan != beyond:
        other = f.select(f.fcmp("uno", value, value), Value("i32", str(nan)), other)
    sign = f.op("and", f.op("lshr", f.bitcast(value, "i32"), Value("i32", "24")), Value("i32", "128"))
    is_beyond = f.fcmp("ugt", size, f.const("float", most))
    return f.select(is_beyond, f.cast("trunc", f.op("or", other, sign), "i8"), code)


def split_word(f: FunctionText, word: Value) -> list[Value]:
    """Two elements of 16 bits by shifts, which LLVM merges with those that widen them; it scalarizes vectors first."""
    return [f.cast("trunc", word, "i16"), f.cast("trunc", f.op("lshr", word, f.const_like(word, 16)), "i16")]


def join_halves(f: FunctionText, low: Value, high: Value) -> Value:
    """The word of which `split_word` gives these; of the halves of one word it is that word."""
    above = f.op("shl", f.cast("zext", high, "i32"), Value("i32", "16"))
    return f.op("or", f.cast("zext", low, "i32"), above)


def pack(f: FunctionText, values: Sequence[Value]) -> Value:
    """Elements of memory side by side, as a vector of words where they are smaller than those."""
    element, count = values[0].type, len(values)
    size = bytes_of(element)
    if count == 1:
        return values[0]
    if element in ("i16", "half") and count % 2 == 0:
        halves = [f.bitcast(value, "i16") for value in values]
        words = [join_halves(f, low, high) for low, high in zip(halves[::2], halves[1::2], strict=True)]
        return words[0] if count == 2 else _vector(f, words)
    whole = _vector(f, values)
    words = count * size // 4
    if size >= 4 or not words:
        return whole
    return f.bitcast(whole, "i32" if words == 1 else f"<{words} x i32>")


def _vector(f: FunctionText, values: Sequence[Value]) -> Value:
    whole = Value(f"<{len(values)} x {values[0].type}>", "poison")
    for lane, value in enumerate(values):
        whole = f.insert(whole, value, lane)
    return whole


def unpack(f: FunctionText, whole: Value, element: str, count: int) -> list[Value]:
    """The elements of what `pack` made, or was loaded so."""
    if count == 1:
        return [whole]
    if element in ("i16", "half") and count % 2 == 0:
        words = [whole] if count == 2 else [f.extract(whole, at) for at in range(count // 2)]
        return [f.bitcast(part, element) for word in words for part in split_word(f, word)]
    vector = f.bitcast(whole, f"<{count} x {element}>")
    return [f.extract(vector, lane) for lane in range(count)]


def words_of(f: FunctionText, parts: Sequence[Value]) -> list[Value]:
    """Elements of memory of 2 or 4 bytes as words, an even number of them."""
    if bytes_of(parts[0].type) == 4:
        return [f.bitcast(part, "i32") for part in parts]
    halves = [f.bitcast(part, "i16") for part in parts]
    return [join_halves(f, low, high) for low, high in zip(halves[::2], halves[1::2], strict=True)]


def split_words(f: FunctionText, words: Sequence[Value], element: str) -> list[Value]:
    """Words as elements of memory of 2 or 4 bytes."""
    if bytes_of(element) == 4:
        return [f.bitcast(word, element) for word in words]
    return [f.bitcast(half, element) for word in words for half in split_word(f, word)]


def elements_of(f: FunctionText, words: Sequence[Value], dtype: DType) -> list[Value]:
    """Words of memory as elements, as they are held."""
    return [from_memory(f, one, dtype) for one in split_words(f, words, memory_type(dtype))]


def packed_type(element: str, count: int) -> str:
    """The type that `count` elements are moved as."""
    size = bytes_of(element)
    if count == 1:
        return element
    words = count * size // 4
    if size >= 4 or not words:
        return f"<{count} x {element}>"
    return "i32" if words == 1 else f"<{words} x i32>"


def compute(
    f: FunctionText, name: str, parts: list[Value], dtype: DType, exponential: str = EXACT, promise: str = ""
) -> Value:
    """A scalar function; min and max of f32 by their own instruction, for which 0 is larger than -0.

    `promise` is what is known of the argument of an `exp` or `exp2`.
    """
    if name == "exp" and dtype is dt.f32 and exponential == HARDWARE:
        return _exponential(f, parts[0])
    if name == "exp" and promise == NORMAL:
        return math_exp.exp_normal(f, parts[0])
    if name in ("exp", "exp2") and promise == NONPOSITIVE:
        return (math_exp.exp if name == "exp" else math_exp.exp2)(f, parts[0], negative=True)
    if name in ("max", "min") and dtype is dt.f32:
        return f.intrinsic("maximum" if name == "max" else "minimum", *parts)
    return math.emit(f, name, parts, dtype)


_LOG2E = _math.log2(_math.e)
_LOG2E_LOW = 1.925963033500e-8
"""What f32 loses of it."""


def _exponential(f: FunctionText, x: Value) -> Value:
    """`e**x` within 4 ulp; what is below the smallest normal number is 0."""
    low, high, log2e, log2e_low = (f.const("float", number) for number in (-126.0, 89.0, _LOG2E, _LOG2E_LOW))
    x = f.intrinsic("minimum", f.intrinsic("maximum", x, low), high)
    power = f.op("fmul", x, log2e)
    # What the product lost, put on as a factor close to 1.
    lost = f.intrinsic("fma", x, log2e_low, f.intrinsic("fma", x, log2e, f.fneg(power)))
    factor = f.intrinsic("fma", lost, f.const("float", _math.log(2)), f.const("float", 1.0))
    return f.op("fmul", f.call("llvm.nvvm.ex2.approx.ftz.f", [power], "float"), factor)
