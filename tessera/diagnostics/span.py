"""Spans of user source: where an op, a dim or an error comes from.

A span of traced code comes from the frame of the user's call: `f_lasti` is the instruction being executed, and
`co_positions` maps it to the lines and columns of its expression, so `a @ b + c` shows the operator that failed and not
only the line.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType


@dataclass(frozen=True, slots=True)
class Span:
    """Lines and columns count from 1; `end_column` is one past the last character."""

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.shown_file}:{self.line}:{self.column}"

    @property
    def shown_file(self) -> str:
        """The file as a person would type it: relative when it lies below the current directory."""
        here = os.getcwd() + os.sep
        return self.file[len(here) :] if self.file.startswith(here) else self.file

    @property
    def source_line(self) -> str:
        """The text of the first line, without its end; empty when the source cannot be found."""
        return linecache.getline(self.file, self.line).rstrip("\r\n")

    @property
    def width(self) -> int:
        """How many characters of the first line the span covers, at least 1."""
        if self.end_line > self.line:
            return max(1, len(self.source_line.rstrip()) - self.column + 1)
        return max(1, self.end_column - self.column)

    @staticmethod
    def of_frame(frame: FrameType) -> Span:
        """The expression that `frame` is evaluating now."""
        return _span_at(frame.f_code, frame.f_lasti, frame.f_lineno)

    @staticmethod
    def of_node(file: str, node: ast.expr | ast.stmt, line_offset: int = 0) -> Span:
        """The source of a syntax node; `line_offset` is added when a fragment of a file was parsed."""
        line, end_line = node.lineno + line_offset, (node.end_lineno or node.lineno) + line_offset
        column = _character_column(file, line, node.col_offset)
        return Span(file, line, column, end_line, _character_column(file, end_line, node.end_col_offset or 0))


def user_span() -> Span | None:
    """Where the user's code stands now: the innermost frame that is neither Tessera nor what it is built on."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            return Span.of_frame(frame)
        frame = frame.f_back
    return None


# Positions are decoded by walking a table from its start, so each call site is decoded once. The key holds the code's
# address, because hashing a code object reads all of it; the value keeps the code alive, so no address is used twice.
_SEEN: dict[tuple[int, int], tuple[CodeType, Span]] = {}
_SEEN_LIMIT = 1 << 14


def _span_at(code: CodeType, instruction: int, line: int) -> Span:
    key = (id(code), instruction)
    found = _SEEN.get(key)
    if found is None:
        if len(_SEEN) >= _SEEN_LIMIT:
            _SEEN.clear()
        found = _SEEN[key] = code, _decode(code, instruction, line)
    return found[1]


def _decode(code: CodeType, instruction: int, line: int) -> Span:
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    start, end, column, end_column = position or (None, None, None, None)
    if start is None or column is None:
        return Span(code.co_filename, line)
    end = end or start
    first = _character_column(code.co_filename, start, column)
    return Span(code.co_filename, start, first, end, _character_column(code.co_filename, end, end_column or column))


def _character_column(file: str, line: int, offset: int) -> int:
    """Python counts columns in bytes of UTF-8; people count characters."""
    text = linecache.getline(file, line)
    return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1


@lru_cache(maxsize=1024)
def is_ours(file: str) -> bool:
    """Whether a file is Tessera's, or what it is built on, and not the user's."""
    return file.startswith(("<frozen", *_machinery()))


_PACKAGES = ("numpy", "ml_dtypes", "xdsl", "llvmlite", "typer", "click", "rich", "_pytest", "pluggy")
_LIBRARY = (
    "contextlib.py",
    "dataclasses.py",
    "functools.py",
    "threading.py",
    "runpy.py",
    "inspect.py",
    "concurrent",
    "asyncio",
)


@lru_cache(maxsize=1)
def _machinery() -> tuple[str, ...]:
    """Folders whose frames are never the user's: Tessera, the standard library, our dependencies, entry points."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    library = os.path.dirname(os.__file__)
    # Of site-packages only what we build on is listed, and it may lie inside the standard library's folder, so that one
    # is listed by its modules. All this is read off what is loaded: `sysconfig` would take a millisecond to say it.
    packages = {os.path.join(folder, name) for folder in sys.path if folder.endswith("-packages") for name in _PACKAGES}
    modules = [os.path.join(library, name) for name in _LIBRARY]
    return (package + os.sep, os.path.dirname(sys.executable) + os.sep, *packages, *modules)
