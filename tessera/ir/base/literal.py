"""The text of plain values: what attributes hold, printed so that it reads back bit for bit, without any IR.

A value says what it is (`1`, `1.0`, `inf`, `true`, `none`, `"text"`, `[1, 2]`, `{a = 1}`, `bf16`, `dim<B + 1>`,
`tensor<[B, 4], f32>`, `array<f32, [2], [1.0, nan]>`). Where an op declares the kind of an attribute, dims are written
bare: `shape = [B, S + 1]`. Equal texts mean equal values, so the text is also what is hashed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import Any, cast

from tessera.types import dtype as dtypes
from tessera.types.dim import Dim, parse_dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType


def _number(value: Any) -> Any:
    # An integer that no float holds stays one: the largest i64 is a fine value to fill a tensor with.
    return value if type(value) is int and float(value) != value else float(value)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": _number,
    "bool": bool,
    "str": str,
    "symbol": str,
    "dim": Dim.of,
    "dtype": lambda value: value if isinstance(value, DType) else dtypes.BY_NAME[value],
    "type": lambda value: value,
}


def _is_pair_of_numbers(value: Any) -> bool:
    return _is_tuple_of(value, bool | int | float) and len(value) == 2


def _is_tuple_of(value: Any, types: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, types) for item in cast("tuple[Any]", value))


def _is_list_of_tuples(value: Any, *types: type) -> bool:
    """Whether a value is a tuple of tuples whose elements are of these types, in order."""
    return _is_tuple_of(value, tuple) and all(
        len(item) == len(types) and all(map(isinstance, item, types)) for item in value
    )


def _is_options(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_promise_of_runs(value: Any) -> bool:
    """All runs are the same, or are with a seed: `true`, `false` or `{seed = 3}`."""
    return isinstance(value, bool) or (
        isinstance(value, Mapping) and [*cast("Any", value)] == ["seed"] and type(cast("Any", value)["seed"]) is int
    )


COMPOSITE: dict[str, Callable[[Any], bool]] = {
    "count": lambda value: type(value) is int and value >= 0,
    "number": lambda value: isinstance(value, bool | int | float),
    "scalar": lambda value: isinstance(value, bool | int | float | Dim),
    "range": _is_pair_of_numbers,
    "ranges": lambda value: isinstance(value, Mapping) and all(map(_is_pair_of_numbers, cast("Any", value).values())),
    "guards": lambda value: _is_list_of_tuples(value, Dim, Dim, str),
    "sizes": lambda value: _is_list_of_tuples(value, str, Dim),
    "options": _is_options,
    "determinism": _is_promise_of_runs,
    "policies": lambda value: _is_options(value) or _is_tuple_of(value, Mapping),
}
"""Kinds of values that are built of others, and whether a value is one; `scalar` is a number or a dim."""
_SHOWN_ELEMENTS = 16
"""Arrays up to this size are written as numbers, larger ones as their bytes."""
_NAN_BITS = struct.pack("<d", float("nan"))
_DOUBLE_DIGITS, _LONGEST_INTEGER = 16, 20
"""Hexadecimal digits of a double, and letters of the longest integer of 64 bits."""


def normalize(kind: str, value: Any) -> Any:
    """`value` as its kind says: lists become tuples, numbers the right Python number; None stays None."""
    if value is None or isinstance(value, Placeholder):
        return value
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    if kind.endswith("s") and (element := _SCALARS.get(kind[:-1])) is not None:
        return tuple(item if item is None or isinstance(item, Placeholder) else element(item) for item in value)
    if kind == "maps":
        return tuple(tuple(Dim.of(dim) for dim in map) for map in value)
    if kind == "array":
        return _as_array(value)
    if kind == "any" or kind in COMPOSITE:
        return _frozen(value)
    raise ValueError(f"`{kind}` is not a kind of attribute")


def _as_array(value: Any) -> Any:
    import numpy as np  # noqa: PLC0415 - only arrays need it

    array = np.asarray(value)
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


def _frozen(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in cast("list[Any]", value))
    if isinstance(value, Mapping):
        return {str(key): _frozen(item) for key, item in cast("Mapping[str, Any]", value).items()}
    return value


def text_of(value: Any, kind: str = "any") -> str:
    """The text of a value; with a kind of dims, the short form that `Reader.value(kind)` reads."""
    if value is not None and kind in _BARE and not isinstance(value, Placeholder):
        return _BARE[kind](value)
    writer = _WRITERS.get(cast("type", type(value)))
    if writer is not None:
        return writer(value)
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        return _array_text(value)
    raise TypeError(f"a {type(value).__name__} is not a plain value: {value!r}")


def _list_text(items: Any, one: Callable[[Any], str] = text_of) -> str:
    return "[" + ", ".join([one(item) for item in items]) + "]"


def dims_text(dims: tuple[Dim, ...]) -> str:
    """Dims in brackets, as types print them."""
    return _list_text(dims, str)


def float_text(value: float) -> str:
    """The shortest text that reads back as the same bits."""
    if value != value:
        bits = struct.pack("<d", value)
        return "nan" if bits == _NAN_BITS else "0x" + bits[::-1].hex()
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    # A number with an exponent and no point is two words to an MLIR lexer.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def string_text(value: str) -> str:
    """The string in quotes; what is not printable ASCII as `\\XX` of its UTF-8 bytes."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in value.encode()) + '"'


def _dict_text(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join([f"{_key_text(key)} = {text_of(item)}" for key, item in value.items()]) + "}"


def _key_text(key: str) -> str:
    return key if _NAME.fullmatch(key) else string_text(key)


def type_text(value: TensorType) -> str:
    """`[B, 4], f32`: what stands between the angle brackets of a shaped type."""
    return f"{dims_text(value.shape)}, {value.dtype.name}"


def _array_text(array: Any) -> str:
    from tessera.ir.base.arrays import dtype_of  # noqa: PLC0415 - only arrays need NumPy

    name = dtype_of(array)
    head = f"array<{name}, {_list_text(array.shape, str)}"
    if array.size <= _SHOWN_ELEMENTS and array.dtype.kind in "fiubV":
        items = [text_of(item.item() if item.dtype.kind in "iub" else float(item)) for item in array.reshape(-1)]
        # A NaN of another payload does not survive the way through a Python float.
        if not any(item.startswith(("nan", "0x")) for item in items):
            return f"{head}, [{', '.join(items)}]>"
    return f"{head}, 0x{array.tobytes().hex()}>"


_WRITERS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "none",
    bool: lambda value: "true" if value else "false",
    int: str,
    float: float_text,
    str: string_text,
    tuple: _list_text,
    list: _list_text,
    dict: _dict_text,
    Dim: lambda value: f"dim<{value}>",
    DType: lambda value: value.name,
    TensorType: lambda value: f"tensor<{type_text(value)}>",
}
_BARE: dict[str, Callable[[Any], str]] = {
    "dim": str,
    "dims": dims_text,
    "maps": lambda maps: _list_text(maps, dims_text),
    "symbol": lambda name: "@" + _key_text(name),
}

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_HEX = re.compile(r"0x([0-9A-Fa-f]*)")
_STRING = re.compile(r'"((?:[^"\\]|\\[0-9A-Fa-f]{2}|\\["\\nt])*)"')
_ESCAPE = re.compile(rb'\\([0-9A-Fa-f]{2}|["\\nt])')
_WORDS: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "inf": float("inf"),
    "nan": float("nan"),
    **dtypes.BY_NAME,
}


_READ_AS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "symbol": (str,),
    "dtype": (DType,),
    "type": (TensorType,),
}
"""What a text says of each kind: Python would also convert an infinity to an int, and any string to true."""


def is_readable_as(kind: str, value: Any) -> bool:
    """Whether a text may say such a value where one of this kind is wanted."""
    if value is None or kind == "any" or isinstance(value, Placeholder):
        return True
    if kind in COMPOSITE:
        return COMPOSITE[kind](value)
    if kind == "array":
        return hasattr(value, "dtype") and hasattr(value, "tobytes")
    if kind in _READ_AS:
        return isinstance(value, _READ_AS[kind]) and (kind == "bool" or not isinstance(value, bool))
    return isinstance(value, tuple) and all(is_readable_as(kind[:-1], item) for item in cast("tuple[Any]", value))


@frozen
class Placeholder:
    """A value that is given elsewhere: `#attr.tessera.width` is what `tessera.width` says, once that is resolved."""

    name: str

    def __str__(self) -> str:
        return f"#attr.tessera.{self.name}"


def is_placeholder(value: Any) -> bool:
    """Whether a value is a placeholder, or a list with one."""
    if value.__class__ is tuple:
        return any(item.__class__ is Placeholder for item in value)
    return value.__class__ is Placeholder


_WRITERS[Placeholder] = str
_PLACEHOLDER = re.compile(r"#attr\.tessera\.([A-Za-z_][A-Za-z0-9_.]*)")


class LiteralError(ValueError):
    """The text at `position` is not a value."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class Reader:
    """Reads values from `text`, from `at` on; comments and white space may stand between words."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text, self.at = text, at

    def fail(self, expected: str) -> LiteralError:
        got = self.text[self.at : self.at + 1] or "the end"
        return LiteralError(f"expected {expected}, got `{got}`", self.at)

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def sees(self, word: str) -> bool:
        self.space()
        return self.text.startswith(word, self.at)

    def takes(self, word: str) -> bool:
        if not self.sees(word):
            return False
        self.at += len(word)
        return True

    def take(self, word: str) -> None:
        if not self.takes(word):
            raise self.fail(f"`{word}`")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.space()
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
        return found

    def items(self, close: str, one: Callable[[], Any]) -> list[Any]:
        """Values separated by commas up to `close`, which is taken."""
        found: list[Any] = []
        if self.takes(close):
            return found
        while True:
            found.append(one())
            if self.takes(close):
                return found
            self.take(",")

    def dim(self) -> Any:
        """A bare dim: everything up to a comma or a closing bracket that is not its own."""
        if self.sees("#"):
            return self._placeholder()
        start, depth = self.at, 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if depth == 0 and letter in ",]>})":
                break
            depth += (letter == "(") - (letter == ")")
            self.at += 1
        try:
            return parse_dim(self.text[start : self.at])
        except ValueError as error:
            raise LiteralError(str(error), start) from error

    def dims(self) -> tuple[Dim, ...]:
        self.take("[")
        return tuple(self.items("]", self.dim))

    def tensor_type(self) -> TensorType:
        """`[B, 4], f32`."""
        shape = self.dims()
        self.take(",")
        return TensorType(shape, self.dtype())

    def dtype(self) -> DType:
        start = self.at
        name = self.match(_NAME)
        if name is None or name.group() not in dtypes.BY_NAME:
            raise LiteralError(
                f"expected a dtype, got `{name.group() if name else self.text[start : start + 1]}`", start
            )
        return dtypes.BY_NAME[name.group()]

    def key(self) -> str:
        if self.sees('"'):
            return self.string()
        name = self.match(_NAME)
        if name is None:
            raise self.fail("a name")
        return name.group()

    def string(self) -> str:
        found = self.match(_STRING)
        if found is None:
            raise self.fail("a string")
        if "\\" not in found.group(1):
            return found.group(1)
        try:
            return _ESCAPE.sub(_unescape, found.group(1).encode()).decode()
        except UnicodeDecodeError as error:
            raise LiteralError(
                f"a string is text in UTF-8, got the byte {error.object[error.start]:#x}", found.start()
            ) from error

    def value(self, kind: str = "any") -> Any:
        """The value here, made to fit `kind`; a placeholder stands for one of any kind."""
        if self.sees("#"):
            return self._placeholder()
        if kind in ("dim", "dims", "maps") and not self.sees("none"):
            if kind == "dim":
                return self.dim()
            if kind == "dims":
                return self.dims()
            self.take("[")
            return tuple(self.items("]", self.dims))
        at = self.at
        found = self._value()
        if not is_readable_as(kind, found):
            raise LiteralError(f"expected a value of kind `{kind}`", at)
        return normalize(kind, found)

    def entries(self, kind_of: Callable[[str], str], brackets: str = "{}") -> dict[str, Any]:
        """`{a = 1, b = 2}`, each value of the kind its name asks for."""
        self.take(brackets[0])
        found: dict[str, Any] = {}

        def entry() -> None:
            at = self.at
            key = self.key()
            if key in found:
                raise LiteralError(f"`{key}` is given twice", at)
            self.take("=")
            found[key] = self.value(kind_of(key))

        self.items(brackets[1], entry)
        return found

    def _value(self) -> Any:
        self.space()
        letter = self.text[self.at : self.at + 1]
        if letter == '"':
            return self.string()
        if letter == "[":
            self.at += 1
            return tuple(self.items("]", self._value))
        if letter == "{":
            return self.entries(lambda _: "any")
        if letter == "@":
            self.at += 1
            return self.key()
        if letter == "#":
            return self._placeholder()
        if letter.isdigit() or letter == "-":
            return self._number()
        return self._word()

    def _placeholder(self) -> Placeholder:
        found = self.match(_PLACEHOLDER)
        if found is None:
            raise self.fail("`#attr.tessera.name`")
        return Placeholder(found.group(1))

    def _number(self) -> Any:
        bits = self.match(_HEX)
        if bits is not None:
            if len(bits.group(1)) != _DOUBLE_DIGITS:
                raise LiteralError(f"the bits of a float are {_DOUBLE_DIGITS} digits behind `0x`", bits.start())
            return struct.unpack(">d", bytes.fromhex(bits.group(1)))[0]
        number = self.match(_NUMBER)
        if number is None:
            self.take("-")
            self.take("inf")
            return float("-inf")
        if number.group(1) or number.group(2):
            return float(number.group())
        # Python reads no integer of more than 4,300 digits; no longer one than this fits anyway.
        value = int(number.group()) if len(number.group()) <= _LONGEST_INTEGER else None
        if value is None or not -(1 << 63) <= value < 1 << 64:
            raise LiteralError("an integer has 64 bits at most", number.start())
        return value

    def _word(self) -> Any:
        start = self.at
        word = self.match(_NAME)
        if word is None:
            raise self.fail("a value")
        name = word.group()
        if name in _WORDS:
            return _WORDS[name]
        inner = {"dim": self.dim, "tensor": self.tensor_type, "array": self._array}.get(name)
        if inner is None:
            raise LiteralError(f"`{name}` is not a value", start)
        self.take("<")
        found = inner()
        self.take(">")
        return found

    def _array(self) -> Any:
        import numpy as np  # noqa: PLC0415 - only arrays need NumPy

        from tessera.ir.base.arrays import numpy_dtype  # noqa: PLC0415

        declared = self.dtype()
        dtype = numpy_dtype(declared)
        self.take(",")
        self.take("[")
        start = self.at
        shape = tuple(self.items("]", self._value))
        if any(type(size) is not int or size < 0 for size in shape):
            raise LiteralError(f"the sizes of an array are integers from 0 on, got {_list_text(shape)}", start)
        self.take(",")
        bits = self.match(_HEX)
        if bits is None:
            self.take("[")
        try:
            elements: list[Any] = self.items("]", self._value) if bits is None else []
            array: Any = (
                np.array(elements, dtype) if bits is None else np.frombuffer(bytes.fromhex(bits.group(1)), dtype)
            )
            array = array.reshape(shape)
            if not _is_tuple_of(tuple(elements), bool | int | float):
                raise ValueError("an element is no number")
            if bits is None and not declared.is_float and [int(item) for item in array.flat] != elements:
                raise ValueError("a value is not of the dtype")
        except LiteralError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise LiteralError(
                f"these are no elements of an array<{dtype}, {_list_text(shape)}>: {error}", start
            ) from error
        array.flags.writeable = False
        return array


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    plain = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"t": b"\t"}.get(code)
    return bytes.fromhex(code.decode()) if plain is None else plain


def parse_value(text: str, kind: str = "any") -> Any:
    """The value that `text_of(value, kind)` wrote; raises LiteralError where the text is none."""
    reader = Reader(text)
    found = reader.value(kind)
    reader.space()
    if reader.at != len(text):
        raise reader.fail("the end")
    return found
