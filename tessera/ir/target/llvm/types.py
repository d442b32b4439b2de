"""LLVM type strings: vectors of elements, their sizes, and constants written in them."""

from __future__ import annotations

import math
import struct
from functools import cache

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
def mangled(type_: str) -> str:
    """The suffix an overloaded intrinsic carries for a type, such as `v16f32`."""
    element = element_of(type_)
    name = _MANGLED.get(element, element)
    return f"v{lanes_of(type_)}{name}" if type_[0] == "<" else name


def is_float(type_: str) -> bool:
    """Whether the elements are floating point."""
    return element_of(type_) in ("float", "double", "half", "bfloat")


def constant_text(element: str, value: float | bool) -> str:
    """A scalar constant; floats are written by their bits, so nothing is lost on the way."""
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
