"""Modules as text: parsing with source locations, printing, and errors that show the line."""

from __future__ import annotations

import linecache
import re
from bisect import bisect_right
from functools import cache
from io import StringIO
from typing import Any

from xdsl.dialects.builtin import UNKNOWN_LOC, ModuleOp
from xdsl.ir import Operation
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError

from tessera.diagnostics.codes import IRSyntaxError
from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import DialectContext
from tessera.ir.base.location import location_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.version import new_name, stamp, upgrade, version_of_text


@cache
def _parser_class() -> Any:
    """The class of parsers, made when a text is first parsed: compilations parse none, and load no parser."""
    from xdsl.parser import Parser  # noqa: PLC0415 - see above

    class TextParser(Parser):
        """A parser that gives each op its location in the text, where the text does not give one itself."""

        def __init__(self, text: str, name: str, version: int) -> None:
            super().__init__(DialectContext(), text, name)
            self.version = version
            self._text, self._name = text, name
            self._starts = [0, *(at + 1 for at, letter in enumerate(text) if letter == "\n")]

        def parse_operation(self) -> Operation:
            start = self.pos
            op = super().parse_operation()
            if isinstance(op, SpecOp):
                upgrade(op, self.version)
            if op.location == UNKNOWN_LOC:
                op.location = location_of(self.span_at(start))
            return op

        def _get_op_by_name(self, name: str) -> type[Operation]:
            return super()._get_op_by_name(new_name(name, self.version))

        def span_at(self, start: int, end: int | None = None) -> Span:
            """The span from one offset to another, or to the end of its line."""
            row = bisect_right(self._starts, start) - 1
            line_end = self._text.find("\n", start)
            line_end = len(self._text) if line_end < 0 else line_end
            end = line_end if end is None else min(end, line_end)
            column = start - self._starts[row] + 1
            return Span(self._name, row + 1, column, row + 1, max(column + 1, end - self._starts[row] + 1))

    return TextParser


def parse_module(text: str, name: str = "<text>") -> ModuleOp:
    """The module of a text; a text of an older version is upgraded to this one.

    Raises IRSyntaxError (T0304) where the text is not a module, VersionError (T0303) for a version that
    this one does not read. Nothing is verified.
    """
    if name.startswith("<"):
        # No file has these lines, so errors find them here.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    parser = _parser_class()(text, name, version_of_text(text, name))
    try:
        module = parser.parse_module()
    except ParseError as error:
        raise IRSyntaxError(_syntax_message(error, text), span=_error_span(error, text, parser)) from error
    stamp(module)
    return module


def _syntax_message(error: ParseError, text: str) -> str:
    """What is wrong with a text; of a region that does not go on as one, xDSL says only where it was."""
    if error.msg.strip() != "in block definition":
        return error.msg
    if not text[error.span.start :].strip():
        return "the text ends inside a region: `}` is missing"
    return "expected an op, a block (`^name:`) or the `}` that ends the region"


def _error_span(error: ParseError, text: str, parser: Any) -> Span:
    """Where a text is wrong; that a value is defined nowhere is noticed at the end, and is shown where it is used."""
    unknown = re.match(r"values used but not defined: \[(%[\w.$-]+)", error.msg)
    used = re.search(rf"{re.escape(unknown.group(1))}(?![\w.$-])", text) if unknown else None
    return parser.span_at(*used.span()) if used else parser.span_at(error.span.start, error.span.end)


def print_module(op: Operation, *, generic: bool = False, locations: bool = False) -> str:
    """The text of a module or of any op, ending in a new line."""
    stream = StringIO()
    Printer(stream, print_generic_format=generic, print_debuginfo=locations).print_op(op)
    return stream.getvalue() + "\n"
