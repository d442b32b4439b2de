"""Where an op came from: spans carried as locations, which no hash, comparison or plain text of the IR sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import BuiltinAttribute, Data, Operation
from xdsl.printer import Printer

from tessera.diagnostics.span import Span

if TYPE_CHECKING:
    from xdsl.parser import AttrParser


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
            if span.end_line:
                printer.print_string(f'"{span.end_line}:{span.end_column}"(')
            printer.print_string_literal(span.file)
            printer.print_string(f":{span.line}:{span.column}")
            if span.end_line:
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
    if isinstance(location, SpanLoc):
        return location.data
    if isinstance(location, FileLineColLoc):
        return Span(location.filename.data, location.line.data, location.column.data)
    if isinstance(location, NameLoc):
        inner = _span(location.location)
        line, _, column = location.desc.data.partition(":")
        if inner is not None and line.isdigit() and column.isdigit():
            return Span(inner.file, inner.line, inner.column, int(line), int(column))
        return inner
    if isinstance(location, FusedLoc):
        parts: Any = location.locations
        return next((span for part in parts if (span := _span(part)) is not None), None)
    return None
