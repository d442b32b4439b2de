"""`TesseraError`, the user's mistakes, and `InternalError`, ours: plain data that renders itself."""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, ClassVar, Self, TypeAlias

# Spans of user source: where an op, a dim or an error comes from.


@dataclass(frozen=True, slots=True)
class Span:
    """Lines and columns count from 1; `end_column` is one past the last character.

    `role` says what is meant of what stands there, where it is not that itself: its "derivative", its "tangent" (a
    change of it, in forward mode) or its "backward" (in reverse mode), itself "rematerialized" there, or one of
    these of another.
    """

    file: str
    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    role: str = ""

    def __str__(self) -> str:
        return f"{self.shown_file}:{self.line}:{self.column}"

    @property
    def label(self) -> str:
        """The location; with a role, from where to where, as the parts of an expression may begin in one column."""
        return f"{self}-{self.end_line}:{self.end_column}, {self.role}" if self.role else str(self)

    @property
    def source_text(self) -> str:
        """What is written there, where that is one line and is known."""
        if self.end_line > self.line or not self.end_column:
            return ""
        return self.source_line[self.column - 1 : self.end_column - 1]

    @property
    def described(self) -> str:
        """The location and, where there is a role, what it is a role of: `model.py:3:5, backward of x @ w`."""
        text = self.source_text
        return f"{self}, {self.role}" + (f" of `{text}`" if text else "") if self.role else str(self)

    def with_role(self, role: str) -> Span:
        """The same location as another role of what is there."""
        return replace(self, role=f"{role} of {self.role}" if self.role else role)

    def as_backward(self) -> Span:
        """The backward of what this is the tangent of."""
        kind, _, rest = self.role.partition(" ")
        return replace(self, role=f"backward {rest}".strip()) if kind == "tangent" else self.with_role("backward")

    @property
    def shown_file(self) -> str:
        """The file as a person would type it: relative when it is below the current directory."""
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
    frame = user_frame()
    return None if frame is None else Span.of_frame(frame)


def user_frame() -> FrameType | None:
    """The frame of the user's code that is running now."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (is_ours(frame.f_code.co_filename) or _is_generated(frame)):
        frame = frame.f_back
    return frame


def _is_generated(frame: FrameType) -> bool:
    """Whether it is a method that a dataclass of ours made, which has no file."""
    return frame.f_code.co_filename == "<string>" and str(frame.f_globals.get("__name__")).startswith("tessera.")


def user_stacklevel() -> int:
    """The `stacklevel` of a warning of the caller, so that it shows the user's line."""
    level, frame = 1, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and is_ours(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    return level


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


_PACKAGES = ("numpy", "torch", "ml_dtypes", "xdsl", "llvmlite", "typer", "click", "rich", "_pytest", "pluggy")
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


HERE = Span("<here>", 0)
"""Stands for "where the user's code is when this error is made"."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A way out: what to type (`replacement`, in place of `span`) and why; `span` is None when it is only advice."""

    span: Span | None
    replacement: str
    message: str

    def apply(self, source: str) -> str:
        """A file's text with the replacement typed into it; as it was where this is only advice."""
        if self.span is None:
            return source
        lines = source.splitlines(keepends=True)
        span, last = self.span, max(self.span.line, self.span.end_line)
        end = span.end_column if last > span.line else max(span.column, span.end_column)
        before, after = lines[span.line - 1][: span.column - 1], lines[last - 1][end - 1 :]
        lines[span.line - 1 : last] = [before + self.replacement + after]
        return "".join(lines)


FixLike: TypeAlias = "Fix | str | Callable[[Span | None], Fix | str | None] | None"
"""A way out, advice, or how to find one from the source at a location."""


_DIVISION = re.compile(r"(?<=[\w)] )(floordiv|mod)(?= [\w(])")
_SIGNS = {"floordiv": "//", "mod": "%"}


def format_count(number: int, noun: str, nouns: str = "") -> str:
    """So many of something; `nouns` is the plural of what does not end in `s` then.

    >>> format_count(1, "plan"), format_count(0, "plan"), format_count(2, "entry", "entries")
    ('1 plan', '0 plans', '2 entries')
    """
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def readable(text: str) -> str:
    """A text in which sizes are written as in Python: IR has words for signs that begin a comment there.

    >>> readable("`(N floordiv 2)` and `floordiv`")
    '`(N // 2)` and `floordiv`'
    """
    return _DIVISION.sub(lambda match: _SIGNS[match[0]], text)


class TesseraError(Exception):
    """A mistake in the user's program: a code, a sentence, a span, notes, and a fix.

    The sentence is lower case with no full stop, names in backticks, and shows the numbers that disagree. `span` is
    the user's current line unless one is given; None means there is no location to show. `fix` may be plain advice, or
    a function that finds it for a span.

    >>> print(TesseraError("`axis` must be in 0..1, got 2", span=None, fix="count axes from 0"))
    error: `axis` must be in 0..1, got 2
      = help: count axes from 0
    """

    code: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = HERE,
        notes: tuple[str, ...] = (),
        fix: FixLike = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = user_span() if span is HERE else span
        self.notes = notes
        # A fix that depends on the span is looked up anew when the error is shown at another.
        self._find_fix = fix if callable(fix) else None
        found = fix(self.span) if callable(fix) else fix
        self.fix: Fix | None = Fix(None, "", found) if isinstance(found, str) and found else found or None

    def with_note(self, note: str) -> TesseraError:
        """The same error with one more note."""
        return self.with_notes(note)

    def with_notes(self, *notes: str) -> Self:
        """The same error with more notes."""
        made = type(self)(self.message, span=self.span, notes=(*self.notes, *notes), fix=self.fix)
        made._find_fix = self._find_fix
        return made

    def with_fix(self, fix: FixLike) -> Self:
        """The same error with another fix; with its own where none is given."""
        found = fix(self.span) if callable(fix) else fix
        return type(self)(self.message, span=self.span, notes=self.notes, fix=found or self.fix)

    def at(self, span: Span | None) -> TesseraError:
        """The same error shown at another location."""
        return type(self)(self.message, span=span, notes=self.notes, fix=self._find_fix or self.fix)

    def render(self) -> str:
        """The whole text, as a compiler prints it."""
        head = f"error[{self.code}]" if self.code else "error"
        lines = [f"{head}: {readable(self.message)}"]
        margin = _margin(self.span, self.fix.span if self.fix else None)
        notes = self.notes
        if self.span is not None:
            lines += _snippet(self.span, self.span.source_line, "^" * self.span.width, margin)
            notes = (f"this is about the {self.span.role} of that line", *notes) if self.span.role else notes
        lines += [f"{margin} = note: {readable(note)}" for note in notes]
        if self.fix is not None:
            lines += _help(self.fix, margin)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()

    def __reduce__(self) -> tuple[Callable[..., TesseraError], tuple[Any, ...]]:
        # Errors cross process borders (compile workers), and keyword arguments do not pickle by themselves.
        return _rebuild, (type(self), self.message, self.span, self.notes, self.fix)


class CompilationError(TesseraError):
    """A mistake found before anything ran: while tracing, checking or lowering."""


class InternalError(Exception):
    """A mistake of the compiler, named by the pass it showed in, with the command that shows it again."""

    def __init__(
        self, message: str, *, where: str = "", reproducer: str = "", command: str = "", script: str = ""
    ) -> None:
        super().__init__(message)
        self.message, self.where, self.reproducer, self.command = message, where, reproducer, command
        self.script = script

    def __str__(self) -> str:
        location = f" in `{self.where}`" if self.where else ""
        lines = [f"internal error{location}: {self.message}"]
        if self.reproducer:
            lines.append(f"  = note: the program before it was written to {self.reproducer}")
        if self.command:
            lines.append(f"  = help: run it again with `{self.command}`")
        if self.script:
            lines.append(f"  = note: {self.script} compiles the whole program again")
        lines.append("  = note: this is a bug in Tessera, not in your program")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Callable[..., InternalError], tuple[Any, ...]]:
        return _rebuild_internal, (self.message, self.where, self.reproducer, self.command, self.script)


def _rebuild(
    cls: type[TesseraError], message: str, span: Span | None, notes: tuple[str, ...], fix: Fix | None
) -> TesseraError:
    return cls(message, span=span, notes=notes, fix=fix)


def _rebuild_internal(message: str, where: str, reproducer: str, command: str, script: str) -> InternalError:
    return InternalError(message, where=where, reproducer=reproducer, command=command, script=script)


class RecompileWarning(UserWarning):
    """A function is compiled again and again; `warnings.filterwarnings` takes it by this class.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=RecompileWarning)
    """


def find_nearest(name: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The names that somebody who misspelt one may have meant, nearest first."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone

    return get_close_matches(name, list(known), count, cutoff)


def _margin(*spans: Span | None) -> str:
    """Blanks as wide as the widest line number shown."""
    return " " * max((len(str(span.line)) for span in spans if span is not None), default=1)


def _snippet(span: Span, text: str, marks: str, margin: str) -> list[str]:
    lines = [f"{margin}--> {span}"]
    if not text.strip():
        return lines
    # Tabs stay tabs in the indent of the marks, so that both lines move alike.
    indent = "".join(mark if mark == "\t" else " " for mark in text[: span.column - 1])
    number = str(span.line).rjust(len(margin))
    return [*lines, f"{margin} |", f"{number} | {text}", f"{margin} | {indent}{marks}"]


def _help(fix: Fix, margin: str) -> list[str]:
    if fix.span is None:
        return [f"{margin} = help: {readable(fix.message)}"]
    span, last = fix.span, max(fix.span.line, fix.span.end_line)
    text, end = span.source_line, linecache.getline(span.file, last).rstrip("\r\n")
    after = end[(span.end_column if last > span.line else max(span.column, span.end_column)) - 1 :]
    changed = text[: span.column - 1] + fix.replacement + after
    message = fix.message + (f" (in place of lines {span.line} to {last})" if last > span.line else "")
    return [f"help: {readable(message)}", *_snippet(span, changed, "+" * max(1, len(fix.replacement)), margin)]
