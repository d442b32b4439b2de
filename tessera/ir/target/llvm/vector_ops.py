"""Small operations on vectors of floats that the math functions are written in, and on the keys of sorts."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, integer_like, is_float
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType


def fma(f: FunctionText, a: Value, b: Value, c: Value) -> Value:
    """`a * b + c`, rounded once."""
    return f.intrinsic("fma", a, b, c)


def horner(f: FunctionText, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with these coefficients, highest power first."""
    total = f.const_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fma(f, total, x, f.const_like(x, coefficient))
    return total


def smaller(f: FunctionText, a: Value, b: Value) -> Value:
    """The smaller, `b` where either is NaN: one machine instruction."""
    return f.select(f.fcmp("olt", a, b), a, b)


def larger(f: FunctionText, a: Value, b: Value) -> Value:
    """The larger, `b` where either is NaN: one machine instruction."""
    return f.select(f.fcmp("ogt", a, b), a, b)


def at_least(f: FunctionText, x: Value, low: float) -> Value:
    """`x`, not below a bound; NaN stays."""
    if is_thread(f, x):
        return f.intrinsic("maximum", x, f.const_like(x, low))
    return larger(f, f.const_like(x, low), x)


def at_most(f: FunctionText, x: Value, high: float) -> Value:
    """`x`, not above a bound; NaN stays."""
    if is_thread(f, x):
        return f.intrinsic("minimum", x, f.const_like(x, high))
    return smaller(f, f.const_like(x, high), x)


def absolute(f: FunctionText, x: Value) -> Value:
    """The magnitude."""
    return f.intrinsic("fabs", x)


def with_sign(f: FunctionText, magnitude: Value, sign: Value) -> Value:
    """The magnitude of one value with the sign of another."""
    if is_thread(f, magnitude) and is_thread(f, sign):
        # One instruction for a GPU; LLVM rounds to a narrow float before `copysign`, which then takes several.
        given = bits(f, magnitude)
        differs = f.op("and", f.op("xor", given, bits(f, sign)), f.const("i32", -1 << 31))
        return from_bits(f, f.op("xor", given, differs))
    return f.intrinsic("copysign", magnitude, sign)


def bits(f: FunctionText, x: Value) -> Value:
    """The bits of a float as an integer."""
    return f.bitcast(x, integer_like(x.type))


def from_bits(f: FunctionText, x: Value) -> Value:
    """The f32 or f64 whose bits an integer holds."""
    element = "float" if x.element == "i32" else "double"
    return f.bitcast(x, x.type.replace(x.element, element))


def integer(f: FunctionText, x: Value, number: int) -> Value:
    """An integer constant of the lanes and width of a float, or of another integer."""
    return f.const(integer_like(x.element), number, x.lanes)


def shift(f: FunctionText, instruction: str, x: Value, count: int) -> Value:
    """An integer shifted by a constant count."""
    return f.op(instruction, x, f.const_like(x, count))


def add(f: FunctionText, a: Value, b: Value) -> Value:
    """`a + b`, of floats or of integers."""
    return f.op("fadd" if is_float(a.type) else "add", a, b)


def sub(f: FunctionText, a: Value, b: Value) -> Value:
    """`a - b`, of floats or of integers."""
    return f.op("fsub" if is_float(a.type) else "sub", a, b)


def mul(f: FunctionText, a: Value, b: Value) -> Value:
    """`a * b`, of floats or of integers."""
    return f.op("fmul" if is_float(a.type) else "mul", a, b)


def times(f: FunctionText, a: Value, number: float) -> Value:
    """`a` times a constant."""
    return mul(f, a, f.const_like(a, number))


def plus(f: FunctionText, a: Value, number: float) -> Value:
    """`a` plus a constant."""
    return add(f, a, f.const_like(a, number))


def is_thread(f: FunctionText, x: Value) -> bool:
    """Whether the code is a thread's of a GPU and the value an f32, for which it has instructions of its own."""
    return f.target.lanes == 1 and x.type == "float"


def is_whole_register(f: FunctionText, x: Value) -> bool:
    """Whether a vector is exactly one register of the target, so that the architecture's own instructions fit it."""
    return f.target.lanes > 1 and bytes_of(x.type) == 4 * f.target.lanes


def two_product(f: FunctionText, a: Value, b: Value) -> tuple[Value, Value]:
    """`a * b` without error, as a rounded part and the error."""
    high = mul(f, a, b)
    return high, fma(f, a, b, f.fneg(high))


def two_sum(f: FunctionText, a: Value, b: Value) -> tuple[Value, Value]:
    """`a + b` without error, as a rounded part and the error."""
    high = add(f, a, b)
    virtual = sub(f, high, a)
    return high, add(f, sub(f, a, sub(f, high, virtual)), sub(f, b, virtual))


class KeySort:
    """What all sorts share: a row is a pair of pointers, to keys and to their indices."""

    def __init__(self, f: FunctionText, dtype: DType, descending: bool, element: str, index: str = "i64") -> None:
        self.f, self.dtype, self.descending, self.element, self.index_type = f, dtype, descending, element, index

    def key(self, keys: Value, at: Index) -> Value:
        return self.f.load(self.f.gep(keys, at, self.element), self.element)

    def index(self, indices: Value, at: Index) -> Value:
        return self.f.load(self.f.gep(indices, at, self.index_type), self.index_type)

    def put(self, keys: Value, indices: Value, at: Index, key: Value, index: Value) -> None:
        self.f.store(key, self.f.gep(keys, at, self.element))
        self.f.store(index, self.f.gep(indices, at, self.index_type))

    def is_before(self, a: Value, b: Value) -> Value:
        """Whether `a` must come before `b`; NaN comes before nothing, all numbers before NaN."""
        f = self.f
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "int" else "u"
            return f.icmp(f"{sign}gt" if self.descending else f"{sign}lt", a, b)
        ordered = f.fcmp("ogt" if self.descending else "olt", a, b)
        missing = f.op("and", f.fcmp("ord", a, a), f.fcmp("uno", b, b))
        return f.op("or", ordered, missing)
