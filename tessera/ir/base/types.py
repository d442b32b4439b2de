"""xDSL attributes and types that wrap our plain values: one class for every attribute, one for every shaped type."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from xdsl.dialects.builtin import FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import BuiltinAttribute, Data, Operation, SSAValue, TypeAttribute
from xdsl.printer import Printer

from tessera.diagnostics.error import Span
from tessera.ir.base.literal import LiteralError, Reader, normalize, text_of, type_text
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from xdsl.parser import AttrParser


# Where an op came from: spans carried as locations, which no hash, comparison or plain text of the IR sees.


class SpanLoc(Data[Span], BuiltinAttribute):
    """A span as a location: `loc("file":1:2)`, and with its end `loc("1:9"("file":1:2))`."""

    name = "tessera.span"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Span:
        parser.raise_error("a span is written as `loc(...)`")

    def print_parameter(self, printer: Printer) -> None:
        self.print_builtin(printer)

    def print_builtin(self, printer: Printer) -> None:
        span = self.data
        with printer.in_location():
            has_name = bool(span.end_line or span.role)
            if has_name:
                printer.print_string(f'"{f"{span.end_line}:{span.end_column} {span.role}".rstrip()}"(')
            printer.print_string_literal(span.file)
            printer.print_string(f":{span.line}:{span.column}")
            if has_name:
                printer.print_string(")")


def location_of(span: Span | None) -> Any:
    """The location to give an op; xDSL types it as a closed union that ours is not in."""
    if span is None:
        return None
    # Past `__init__`, whose checks of a plain value are most of what an op's location would cost.
    location = object.__new__(SpanLoc)
    object.__setattr__(location, "data", span)
    return location


def span_of(op: Operation) -> Span | None:
    """The user's source of an op, or None when no one knows."""
    return _span(op.location)


def _span(location: Any) -> Span | None:
    if location.__class__ is SpanLoc:
        return location.data
    if isinstance(location, FileLineColLoc):
        return Span(location.filename.data, location.line.data, location.column.data)
    if isinstance(location, NameLoc):
        inner = _span(location.location)
        end, _, role = location.desc.data.partition(" ")
        line, _, column = end.partition(":")
        if inner is not None and line.isdigit() and column.isdigit():
            return Span(inner.file, inner.line, inner.column, int(line), int(column), role)
        return inner
    if isinstance(location, FusedLoc):
        parts: Any = location.locations
        return next((span for part in parts if (span := _span(part)) is not None), None)
    return None


_T = TypeVar("_T")


def read_with(parser: AttrParser, read: Callable[[Reader], _T]) -> _T:
    """What `read` makes of the text at the parser's position; the parser goes on after it."""
    content: Any = parser.lexer.input.content
    reader = Reader(content, parser.pos)
    try:
        found = read(reader)
    except LiteralError as error:
        parser.raise_error(str(error), error.position, error.position + 1)
    parser._resume_from(reader.at)  # pyright: ignore[reportPrivateUsage]
    return found


class ValueAttr(Data[Any]):
    """A plain value as an attribute; generic text shows it as `#tessera.value<...>`.

    Equal where the texts are equal, so -0.0 and 0.0, and 1 and 1.0 and true, differ, and one NaN equals itself.
    """

    name = "tessera.value"

    @property
    def text(self) -> str:
        found = self.__dict__.get("_text")
        if found is None:
            found = text_of(self.data)
            object.__setattr__(self, "_text", found)
        return found

    @property
    def known_kind(self) -> str | None:
        """The kind that the value was last found to be of; an attribute is checked by every pass that verifies."""
        return self.__dict__.get("_kind")

    def remember_kind(self, kind: str) -> None:
        object.__setattr__(self, "_kind", kind)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ValueAttr) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Any:
        def read(reader: Reader) -> Any:
            reader.take("<")
            found = normalize("any", reader.value())
            reader.take(">")
            return found

        return read_with(parser, read)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.text}>")


_VALUES: dict[Any, ValueAttr] = {}
_HASHED_KINDS = frozenset(
    ["int", "bool", "str", "dim", "dtype", "type", "symbol", "ints", "bools", "strs", "dims", "dtypes", "types", "maps"]
)
"""Kinds whose equal values have equal texts, so that the value itself can be the key of the table."""


def attribute_of(kind: str, value: Any) -> ValueAttr:
    """The one attribute of a value of a kind; equal small values share it."""
    if kind in _HASHED_KINDS:
        if value.__class__ is not list and (found := _VALUES.get((kind, value))) is not None:
            return found  # values that are equal become one when they are normalized
        value = normalize(kind, value)
        key: Any = (kind, value)
    elif kind == "float":
        value = normalize(kind, value)
        key = value.hex() if isinstance(value, float) else (kind, value)
    else:
        return ValueAttr(normalize(kind, value))
    found = _VALUES.get(key)
    if found is None:
        found = _VALUES[key] = ValueAttr(value)
    return found


class _AttributeClass(ABCMeta):
    """The class of attribute classes: `isinstance` goes by inheritance alone, as it does for ops."""

    __instancecheck__ = type.__instancecheck__


class ShapedAttr(Data[TensorType], TypeAttribute, metaclass=_AttributeClass):
    """A type with dims and an element type: `!tgraph.tensor<[B, S + 1, 128], bf16>`.

    A subclass gives the name. Dims may be symbolic everywhere. Made with `of`, equal types are one object.
    """

    _interned: ClassVar[dict[TensorType, Any]]

    def __init_subclass__(cls) -> None:
        cls._interned = {}

    @classmethod
    def of(cls, type: TensorType) -> Self:
        found = cls._interned.get(type)
        if found is None:
            found = cls._interned[type] = cls(type)
        return found

    @classmethod
    def new(cls, params: TensorType) -> Self:
        return cls.of(params)

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.data.shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """How large it is along each axis; 0 along a dynamic one."""
        return tuple([dim.value or 0 for dim in self.data.shape])

    @property
    def dtype(self) -> DType:
        return self.data.dtype

    @property
    def text(self) -> str:
        found = self.__dict__.get("_text")
        if found is None:
            found = f"!{self.name}<{type_text(self.data)}>"
            object.__setattr__(self, "_text", found)
        return found

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ShapedAttr) and self.text == other.text)

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TensorType:
        def read(reader: Reader) -> TensorType:
            reader.take("<")
            found = reader.tensor_type()
            reader.take(">")
            return found

        return read_with(parser, read)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{type_text(self.data)}>")


def shaped_type(value: SSAValue) -> TensorType:
    """The shape and dtype of a value, whichever kind of tensor, tile, vector or buffer it is."""
    assert isinstance(value.type, ShapedAttr)
    return value.type.data


class TensorAttr(ShapedAttr):
    """The type of every value of Graph IR."""

    name = "tgraph.tensor"


class TileAttr(ShapedAttr):
    """A block of a tensor, held by one program of a kernel."""

    name = "ttile.tile"


class BufferAttr(ShapedAttr):
    """A tensor in memory, as a kernel's argument or its scratch."""

    name = "ttile.buffer"


class VectorAttr(ShapedAttr):
    """A block of Target IR, held in vector registers; lanes run along its last axis."""

    name = "ttarget.vector"


class MarkAttr(Data[None], TypeAttribute):
    """A type without parameters; a subclass gives the name.

    `is_unknown` says that it is no type at all: only the name of a value is known.
    """

    is_unknown: ClassVar[bool] = False

    @property
    def text(self) -> str:
        return f"!{self.name}"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> None:
        return None

    def print_parameter(self, printer: Printer) -> None:
        return

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(self.name)


class IndexAttr(MarkAttr):
    """A number that counts: a program's index in the grid, a loop's step, an offset."""

    name = "ttile.index"


INDEX = IndexAttr(None)


def type_text_of(type: Any) -> str:
    """The text of a type, kept with the types we define."""
    found = getattr(type, "text", None)
    return str(type) if found is None else found
