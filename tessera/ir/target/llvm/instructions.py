"""Straight-line LLVM instructions as text: types, typed values, index arithmetic, memory, intrinsics."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias, cast

from tessera.types.dim import Atom, Dim, Monomial
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_least

# LLVM type strings: vectors of elements, their sizes, and constants written in them.

ELEMENT_BYTES = {
    "i1": 1,
    "i8": 1,
    "i16": 2,
    "half": 2,
    "bfloat": 2,
    "i32": 4,
    "float": 4,
    "i64": 8,
    "double": 8,
    "ptr": 8,
}
_MANGLED = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}


@cache
def vector(element: str, lanes: int) -> str:
    """The vector type of `lanes` elements; one lane is the scalar itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


@cache
def element_of(type_: str) -> str:
    """The element type of a vector, or the scalar type itself."""
    return type_[1:-1].split(" x ")[1] if type_[0] == "<" else type_


@cache
def lanes_of(type_: str) -> int:
    """How many elements a type holds; 1 for a scalar."""
    return int(type_[1:].split(" ", 1)[0]) if type_[0] == "<" else 1


@cache
def with_element(type_: str, element: str) -> str:
    """A type of the same lanes and another element."""
    return vector(element, lanes_of(type_))


@cache
def bytes_of(type_: str) -> int:
    """Bytes one value of the type takes in memory (i1 counts as a byte)."""
    return ELEMENT_BYTES[element_of(type_)] * lanes_of(type_)


@cache
def integer_like(type_: str) -> str:
    """The integer type of the same lanes and element width."""
    return with_element(type_, f"i{8 * ELEMENT_BYTES[element_of(type_)]}")


@cache
def mangle(type_: str) -> str:
    """The suffix an overloaded intrinsic carries for a type, such as `v16f32`."""
    element = element_of(type_)
    name = _MANGLED.get(element, element)
    return f"v{lanes_of(type_)}{name}" if type_[0] == "<" else name


def is_float(type_: str) -> bool:
    """Whether the elements are floating point."""
    return element_of(type_) in ("float", "double", "half", "bfloat")


def constant_text(element: str, value: float | bool) -> str:
    """A scalar constant; floats are written by their bits, so nothing is lost."""
    if element == "i1":
        return "true" if value else "false"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "float":
        return f"0x{struct.unpack('<Q', struct.pack('<d', _single(float(value))))[0]:016X}"
    if element == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


def _single(value: float) -> float:
    """The nearest f32 of a number, overflow going to infinity."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


class Value(NamedTuple):
    """An SSA value or constant: its LLVM type and how it is written as an operand."""

    type: str
    text: str

    @property
    def lanes(self) -> int:
        """How many lanes; 1 for a scalar."""
        return lanes_of(self.type)

    @property
    def element(self) -> str:
        """The element type."""
        return element_of(self.type)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


_new_tuple = cast("Any", tuple).__new__
Index: TypeAlias = Value | int
"""An i64: a value, or a number known while emitting."""


def constant_of(value: Index) -> int | None:
    """The number an i64 is known to be, or None."""
    if isinstance(value, int):
        return value
    text = value.text
    if text[0] == "%":
        return None
    return int(text) if text.isdigit() or (text[0] == "-" and text[1:].isdigit()) else None


def _lanes(element: str, values: Sequence[float | int]) -> Value:
    body = ", ".join(f"{element} {constant_text(element, value)}" for value in values)
    return Value(vector(element, len(values)), f"<{body}>")


@cache
def _iota(element: str, lanes: int) -> Value:
    return _lanes(element, range(lanes))


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "slt": int.__lt__,
    "sle": int.__le__,
    "sgt": int.__gt__,
    "sge": int.__ge__,
}


_PURE = frozenset(
    (
        *("add", "sub", "mul", "udiv", "urem", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "select"),
        *("trunc", "zext", "sext", "bitcast", "fptrunc", "fpext", "getelementptr"),
        *("extractelement", "insertelement", "extractvalue"),
    )
)
"""Instructions that give the same for the same operands, and do nothing else."""


def _overloads(name: str, result: str, args: Sequence[Value]) -> tuple[str, ...]:
    """The types an intrinsic's name is mangled on."""
    if name.startswith("vector.reduce."):
        return (args[-1].type,)
    if name.endswith(".sat") and name.startswith("fpto"):
        return (result, args[0].type)
    return (args[0].type,)


@frozen
class TargetText:
    """What the text is compiled for: f32 lanes of a vector register, LLVM's names of CPU and features.

    The other fields are from the tables of `ir/target/architectures`: how many vector registers there are, and
    instructions that the text is written for where the machine has them.
    """

    lanes: int
    cpu: str
    features: str
    registers: int = 16
    has_narrow_masks: bool = False
    has_wide_multiply: bool = False
    scale_intrinsic: str = ""

    def lanes_for(self, element: str) -> int:
        """Lanes of a whole register of another element type."""
        return self.lanes * 4 // bytes_of(element)

    @property
    def attributes(self) -> str:
        """The attribute group of every function."""
        return (
            f'nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{self.lanes * 32}" "no-trapping-math"="true" "frame-pointer"="none"'
        )


class Instructions:
    """The lines of a function, and the instructions that append to them."""

    def __init__(self, target: TargetText, declare: Callable[[str, str, Sequence[str]], None]) -> None:
        self.target = target
        self.declare = declare
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._overflow: Value | None = None
        self.divides_words = False
        """Whether dims are divided by constants in 32 bits: all that is divided is known to fit."""
        self.known: dict[str, Value] | None = None
        """What the block has computed, by its text, where that is to be computed once; emptied with each block."""
        self._first: list[str] = []
        self._sizes: Mapping[str, Index] = {}
        self._hoisted: dict[Atom, Index] = {}

    def _name(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def raw(self, type_: str, expression: str) -> Value:
        """Any instruction with a result, given as text."""
        if self.known is not None and expression in self.known:
            return self.known[expression]
        self._count += 1
        name = f"%t{self._count}"
        self._lines.append(f"  {name} = {expression}")
        made: Value = _new_tuple(Value, (type_, name))  # past `__new__`: a program has hundreds of thousands of them
        if self.known is not None and expression.split(" ", 1)[0] in _PURE:
            self.known[expression] = made
        return made

    def hoist(self, sizes: Mapping[str, Index]) -> None:
        """End the first lines, behind which parts of dims that `sizes` alone decide go from now on, once each.

        These lines are in the first block. No optimiser moves divisions out of loops.
        """
        self._first, self._lines, self._sizes = self._lines, [], dict(sizes)

    def find_hoisted(self, atom: Atom, env: Mapping[str, Index]) -> Index | None:
        """The value of a part of a dim behind the first lines, or None where it is not of the sizes they have."""
        names = atom.args[0].symbols | atom.args[1].symbols
        if not self._sizes or any(self._sizes.get(name) != env[name] for name in names):
            return None
        if atom not in self._hoisted:
            lines, known = self._lines, self.known
            self._lines, self.known = self._first, None
            self._hoisted[atom] = _combine(self, atom, self._sizes, self._hoisted)
            self._lines, self.known = lines, known
        return self._hoisted[atom]

    def line(self, text: str) -> None:
        """Any instruction without a result, given as text."""
        self._lines.append("  " + text)

    def const_i(self, value: int) -> Value:
        """An i64 constant."""
        return Value("i64", str(value))

    def index(self, value: Index) -> Value:
        """An i64 given as a value or a number."""
        return Value("i64", str(value)) if isinstance(value, int) else value

    def const(self, element: str, value: float | bool, lanes: int = 1) -> Value:
        """A constant of an LLVM element type, the same in every lane."""
        text = constant_text(element, value)
        return Value(element, text) if lanes == 1 else Value(vector(element, lanes), f"splat ({element} {text})")

    def const_like(self, like: Value, value: float | bool) -> Value:
        """A constant of another value's type."""
        return self.const(like.element, value, like.lanes)

    def lanes_const(self, element: str, values: Sequence[float | int]) -> Value:
        """A vector constant given lane by lane."""
        return _lanes(element, values)

    def iota(self, element: str, lanes: int) -> Value:
        """The vector 0, 1, 2, ..."""
        return _iota(element, lanes)

    def poison(self, type_: str) -> Value:
        """A value nobody may look at."""
        return Value(type_, "poison")

    # Index arithmetic: i64, never overflowing; constants are computed here.

    def _i64(self, instruction: str, a: Index, b: Index) -> Value:
        a, b = self.index(a), self.index(b)
        if self._overflow is not None and instruction.endswith(" nsw"):
            return self._check_overflow(instruction.split()[0], a, b)
        return self.raw("i64", f"{instruction} i64 {a.text}, {b.text}")

    def _check_overflow(self, instruction: str, a: Value, b: Value) -> Value:
        name = f"llvm.s{instruction}.with.overflow.i64"
        self.declare(name, "{ i64, i1 }", ["i64", "i64"])
        pair = self.raw("{ i64, i1 }", f"call {{ i64, i1 }} @{name}(i64 {a.text}, i64 {b.text})")
        wrapped = self.raw("i1", f"extractvalue {{ i64, i1 }} {pair.text}, 1")
        if self._overflow is not None and self._overflow.text != "false":
            wrapped = self.raw("i1", f"or i1 {self._overflow.text}, {wrapped.text}")
        self._overflow = wrapped
        return self.raw("i64", f"extractvalue {{ i64, i1 }} {pair.text}, 0")

    def overflow_of(self, write: Callable[[], Value]) -> tuple[Value, Value]:
        """What straight code of index arithmetic gives, and whether any of it went beyond 64 bits."""
        self._overflow = Value("i1", "false")
        made, overflow = write(), self._overflow
        self._overflow = None
        number = constant_of(made)
        if number is not None and not -(2**63) <= number < 2**63:
            return self.const_i(0), Value("i1", "true")
        return made, overflow

    def add(self, a: Index, b: Index) -> Value:
        """`a + b`."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None:
            return self.const_i(x + y)
        if x == 0:
            return self.index(b)
        return self.index(a) if y == 0 else self._i64("add nsw", a, b)

    def sub(self, a: Index, b: Index) -> Value:
        """`a - b`."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None:
            return self.const_i(x - y)
        return self.index(a) if y == 0 else self._i64("sub nsw", a, b)

    def mul(self, a: Index, b: Index) -> Value:
        """`a * b`."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None:
            return self.const_i(x * y)
        if x == 0 or y == 0:
            return self.const_i(0)
        if x == 1:
            return self.index(b)
        return self.index(a) if y == 1 else self._i64("mul nsw", a, b)

    def sdiv(self, a: Index, b: Index) -> Value:
        """`a / b`, cut toward zero."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y:
            quotient = abs(x) // abs(y)
            return self.const_i(quotient if (x < 0) == (y < 0) else -quotient)
        return self.index(a) if y == 1 else self._i64("sdiv", a, b)

    def srem(self, a: Index, b: Index) -> Value:
        """The remainder of `sdiv`."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y:
            return self.const_i(abs(x) % abs(y) * (-1 if x < 0 else 1))
        return self.const_i(0) if y == 1 else self._i64("srem", a, b)

    def udiv(self, a: Index, b: Index) -> Value:
        """`a / b` of numbers known not to be negative: cheaper than `sdiv` for a power of two."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y:
            return self.const_i(x // y)
        return self.index(a) if y == 1 else self._i64("udiv", a, b)

    def urem(self, a: Index, b: Index) -> Value:
        """The remainder of `udiv`."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y:
            return self.const_i(x % y)
        return self.const_i(0) if y == 1 else self._i64("urem", a, b)

    def smin(self, a: Index, b: Index) -> Value:
        """The smaller, signed."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None:
            return self.const_i(min(x, y))
        return self.intrinsic("smin", self.index(a), self.index(b))

    def smax(self, a: Index, b: Index) -> Value:
        """The larger, signed."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None:
            return self.const_i(max(x, y))
        return self.intrinsic("smax", self.index(a), self.index(b))

    def ceil_div(self, a: Index, b: Index) -> Value:
        """`a / b` rounded up, neither being negative."""
        return self.udiv(self.sub(self.add(a, b), 1), b)

    def round_down(self, a: Index, multiple: Index) -> Value:
        """The largest multiple not above `a >= 0`."""
        return self.mul(self.udiv(a, multiple), multiple)

    def round_up(self, a: Index, multiple: Index) -> Value:
        """The smallest multiple not below `a >= 0`."""
        return self.mul(self.ceil_div(a, multiple), multiple)

    # Scalars and vectors of any type.

    def op(self, instruction: str, a: Value, b: Value) -> Value:
        """Any binary instruction, flags included: `fadd`, `shl`, `add nuw`; integers wrap."""
        return self.raw(a.type, f"{instruction} {a.type} {a.text}, {b.text}")

    def fneg(self, a: Value) -> Value:
        """`-a`, NaN's sign flipped too."""
        return self.raw(a.type, f"fneg {a.type} {a.text}")

    def icmp(self, predicate: str, a: Index, b: Index) -> Value:
        """Compare integers or pointers; constants are compared here."""
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None and predicate in _COMPARISONS:
            return Value("i1", "true" if _COMPARISONS[predicate](x, y) else "false")
        a, b = self.index(a), self.index(b)
        return self.raw(with_element(a.type, "i1"), f"icmp {predicate} {a.type} {a.text}, {b.text}")

    def fcmp(self, predicate: str, a: Value, b: Value) -> Value:
        """Compare floats."""
        return self.raw(with_element(a.type, "i1"), f"fcmp {predicate} {a.type} {a.text}, {b.text}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where the condition holds, else `b`."""
        if condition.text in ("true", "false"):
            return a if condition.text == "true" else b
        return self.raw(a.type, f"select {condition}, {a}, {b}")

    def cast(self, instruction: str, a: Value, to: str) -> Value:
        """A conversion instruction; an element type as `to` keeps the lanes of `a`."""
        type_ = to if to[0] == "<" else with_element(a.type, to)
        return a if type_ == a.type else self.raw(type_, f"{instruction} {a} to {type_}")

    def bitcast(self, a: Value, to: str) -> Value:
        """The same bits as another type, given whole."""
        return a if to == a.type else self.raw(to, f"bitcast {a} to {to}")

    def freeze(self, a: Value) -> Value:
        """`a`, or some fixed value where `a` is poison."""
        return self.raw(a.type, f"freeze {a}")

    def splat(self, scalar: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return scalar
        type_ = vector(scalar.type, lanes)
        if scalar.text[0] not in "%@":
            return Value(type_, f"splat ({scalar})")
        first = self.raw(type_, f"insertelement {type_} poison, {scalar}, i64 0")
        return self.raw(type_, f"shufflevector {first}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def extract(self, a: Value, lane: Index) -> Value:
        """One lane of a vector; a scalar is its own lane."""
        return a if a.type[0] != "<" else self.raw(a.element, f"extractelement {a}, {self.index(lane)}")

    def insert(self, a: Value, scalar: Value, lane: Index) -> Value:
        """A vector with one lane replaced."""
        return self.raw(a.type, f"insertelement {a}, {scalar}, {self.index(lane)}")

    def shuffle(self, a: Value, b: Value | None, mask: Sequence[int]) -> Value:
        """Lanes picked from `a` then `b`; -1 picks nothing in particular."""
        body = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in mask)
        other = Value(a.type, "poison") if b is None else b
        return self.raw(vector(a.element, len(mask)), f"shufflevector {a}, {other}, <{len(mask)} x i32> <{body}>")

    def lane_mask(self, count: Index, lanes: int) -> Value:
        """True in the first `count` lanes."""
        number = constant_of(count)
        if number is not None:
            return self.lanes_const("i1", [lane < number for lane in range(lanes)])
        bound = self.cast("trunc", self.smin(count, lanes), "i32")
        return self.icmp("slt", self.iota("i32", lanes), self.splat(bound, lanes))

    def intrinsic(
        self, name: str, *args: Value, ret: str | None = None, overloads: Sequence[str] | None = None
    ) -> Value:
        """Call `llvm.<name>`, declared and mangled by itself; the result is of the first argument's type unless given.

        Mangled on the first argument; on the vector of a `vector.reduce`; on result and argument of a saturating
        conversion; or on `overloads`, none for an intrinsic of one architecture.
        """
        result = ret or args[0].type
        if overloads is None:
            overloads = _overloads(name, result, args)
        full = ".".join(["llvm", name, *map(mangle, overloads)])
        return self.call(full, args, result)

    def call(self, name: str, args: Sequence[Value], ret: str = "void") -> Value:
        """Call a function by name, declaring it when the module does not define it; a void result is not a value."""
        self.declare(name, ret, [arg.type for arg in args])
        text = f"call {ret} @{name}({', '.join([f'{a[0]} {a[1]}' for a in args])})"
        if ret == "void":
            self.line(text)
            return Value("void", "")
        return self.raw(ret, text)

    def call_pointer(self, function: Value, args: Sequence[Value]) -> None:
        """Call a function through a pointer; no result."""
        self.line(f"call void {function.text}({', '.join([f'{a[0]} {a[1]}' for a in args])})")

    # Memory.

    def gep(self, pointer: Value, index: Index, element: str) -> Value:
        """The address `index` elements on."""
        if constant_of(index) == 0:
            return pointer
        return self.raw("ptr", f"getelementptr {element}, ptr {pointer.text}, i64 {self.index(index).text}")

    def load(self, pointer: Value, type_: str, align: int | None = None) -> Value:
        """A scalar or vector; aligned as its element unless told."""
        return self.raw(type_, f"load {type_}, ptr {pointer.text}, align {align or bytes_of(element_of(type_))}")

    def atomic(self, instruction: str, pointer: Value, value: Value) -> Value:
        """The old value of what a value is put to atomically: `add`, `fadd`, `max`, ...; in no order with others."""
        align = bytes_of(element_of(value.type))
        return self.raw(value.type, f"atomicrmw {instruction} ptr {pointer.text}, {value} monotonic, align {align}")

    def store(self, value: Value, pointer: Value, align: int | None = None, nontemporal: bool = False) -> None:
        """Write a scalar or vector; aligned as its element unless told."""
        tail = ", !nontemporal !0" if nontemporal else ""
        self.line(f"store {value}, ptr {pointer.text}, align {align or bytes_of(value.element)}{tail}")

    def masked_load(
        self, pointer: Value, type_: str, mask: Value, passthru: Value | None = None, align: int | None = None
    ) -> Value:
        """Lanes of a vector where `mask` holds, else of `passthru` (zero); other addresses are not touched."""
        other = passthru or Value(type_, "zeroinitializer")
        name = f"llvm.masked.load.{mangle(type_)}.p0"
        self.declare(name, type_, ["ptr", mask.type, type_])
        alignment = align or bytes_of(element_of(type_))
        return self.raw(type_, f"call {type_} @{name}(ptr align {alignment} {pointer.text}, {mask}, {other})")

    def gather(self, pointers: Value, type_: str, mask: Value, passthru: Value, align: int) -> Value:
        """A lane from each address where `mask` holds, else of `passthru`; other addresses are not touched."""
        name = f"llvm.masked.gather.{mangle(type_)}.{mangle(pointers.type)}"
        self.declare(name, type_, [pointers.type, mask.type, type_])
        return self.raw(
            type_, f"call {type_} @{name}({pointers.type} align {align} {pointers.text}, {mask}, {passthru})"
        )

    def masked_store(self, value: Value, pointer: Value, mask: Value, align: int | None = None) -> None:
        """Write the lanes where `mask` holds."""
        held = [lane for lane, bit in enumerate(mask.text.split(",")) if "true" in bit]
        if len(held) == 1 and mask.text.startswith("<"):
            # LLVM 22 makes a scalar store of it as well, but as wide as what was truncated to these lanes.
            self.store(self.extract(value, held[0]), self.gep(pointer, held[0], value.element), align)
            return
        name = f"llvm.masked.store.{mangle(value.type)}.p0"
        self.declare(name, "void", [value.type, "ptr", mask.type])
        alignment = align or bytes_of(value.element)
        self.line(f"call void @{name}({value}, ptr align {alignment} {pointer.text}, {mask})")

    def touch(self, pointer: Value) -> None:
        """Read a byte, for what that does to caches."""
        self.raw("i8", f"load volatile i8, {pointer}, align 1")

    def prefetch(self, pointer: Value, write: bool = False, locality: int = 3) -> None:
        """Ask for a cache line ahead of its use."""
        self.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        self.line(f"call void @llvm.prefetch.p0({pointer}, i32 {int(write)}, i32 {locality}, i32 1)")

    def opaque(self, pointer: Value) -> Value:
        """The same pointer, of unknown origin: a loop then keeps it in a register instead of working it out again."""
        return self.raw("ptr", f'call ptr asm "", "=r,0"({pointer})')

    def alloca(self, type_: str, count: int = 1, align: int = 64) -> Value:
        """Stack memory, allocated once at entry."""
        name = self._name()
        self._allocas.append(f"  {name} = alloca {type_}, i64 {count}, align {align}")
        return Value("ptr", name)


# Dims as i64 arithmetic: the exact value of any expression over sizes and coordinates, at run time.


def dim_value(f: Instructions, dim: Dim, env: Mapping[str, Index], parts: dict[Atom, Index] | None = None) -> Value:
    """The value of `dim`, where `env` gives its symbols; none of them is negative.

    Quotients and remainders round toward minus infinity, and are 0 for a divisor of 0, as `Dim.evaluate` has it.
    A part that is there many times is computed once: sizes of sizes grow exponentially where each is written. `parts`
    holds those that are computed already, of the same `env`, and takes new ones.
    """
    made: dict[Atom, Index] = {} if parts is None else parts
    total: Index = 0
    for number, (monomial, coefficient) in enumerate(dim.terms):
        part = _multiply(f, monomial, env, made)
        if number == 0:
            total = part if coefficient == 1 else f.mul(part, coefficient)
        elif coefficient < 0 and constant_of(total) != 0:
            total = f.sub(total, f.mul(part, -coefficient))
        else:
            total = f.add(total, part if coefficient == 1 else f.mul(part, coefficient))
    return f.index(total)


def _multiply(f: Instructions, monomial: Monomial, env: Mapping[str, Index], made: dict[Atom, Index]) -> Index:
    if not monomial:
        return 1
    result = _atom(f, monomial[0], env, made)
    for atom in monomial[1:]:
        result = f.mul(result, _atom(f, atom, env, made))
    return result


def _atom(f: Instructions, atom: Atom, env: Mapping[str, Index], made: dict[Atom, Index]) -> Index:
    if atom.kind == "symbol":
        return env[atom.name]
    if atom not in made:
        hoisted = f.find_hoisted(atom, env)
        made[atom] = _combine(f, atom, env, made) if hoisted is None else hoisted
    return made[atom]


def _combine(f: Instructions, atom: Atom, env: Mapping[str, Index], made: dict[Atom, Index]) -> Index:
    first, second = (dim_value(f, arg, env, made) for arg in atom.args)
    if atom.kind in ("max", "min"):
        return f.smax(first, second) if atom.kind == "max" else f.smin(first, second)
    return _divide(f, atom, first, second)


def _divide(f: Instructions, atom: Atom, first: Value, second: Value) -> Value:
    above, below = atom.args
    is_positive = is_at_least(above, 0) and is_at_least(below, 0)
    if f.divides_words and constant_of(second) and constant_of(first) is None:
        word = f.cast("trunc", first, "i32")
        found = _divide_words(f, atom.kind, word, constant_of(second) or 1, is_positive)
        return f.cast("zext" if is_positive else "sext", found, "i64")
    is_zero = f.icmp("eq", second, 0)
    divisor = f.select(is_zero, f.const_i(1), second)
    if is_positive:
        found = f.udiv(first, divisor) if atom.kind == "floordiv" else f.urem(first, divisor)
    else:
        found = _floor_divide(f, atom.kind, first, divisor)
    # A remainder by the 1 that stands for 0 is 0 already.
    return f.select(is_zero, f.const_i(0), found) if atom.kind == "floordiv" else found


def _divide_words(f: Instructions, kind: str, word: Value, divisor: int, is_positive: bool) -> Value:
    """Python's `//` or `%` of a number of 32 bits by a constant above 0."""
    by = f.const("i32", divisor)
    if is_positive:
        return f.op("udiv" if kind == "floordiv" else "urem", word, by)
    remainder, zero = f.op("srem", word, by), f.const("i32", 0)
    is_off = f.icmp("slt", remainder, zero)
    if kind == "mod":
        return f.select(is_off, f.op("add", remainder, by), remainder)
    quotient = f.op("sdiv", word, by)
    return f.select(is_off, f.op("sub", quotient, f.const("i32", 1)), quotient)


def _floor_divide(f: Instructions, kind: str, first: Value, divisor: Value) -> Value:
    """Python's `//` or `%` from the machine's, which cut toward zero; shifts and masks round down."""
    number = constant_of(divisor) or 0
    if number > 0 and not number & (number - 1) and constant_of(first) is None:
        by = number.bit_length() - 1 if kind == "floordiv" else number - 1
        return f.op("ashr" if kind == "floordiv" else "and", first, f.const_i(by))
    remainder = f.srem(first, divisor)
    is_off = f.op("and", f.icmp("ne", remainder, 0), f.icmp("slt", f.op("xor", remainder, divisor), 0))
    if kind == "mod":
        return f.select(is_off, f.add(remainder, divisor), remainder)
    quotient = f.sdiv(first, divisor)
    return f.select(is_off, f.sub(quotient, 1), quotient)
