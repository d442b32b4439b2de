"""`TesseraError`, the user's mistakes, and `InternalError`, ours: plain data that renders itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

from tessera.diagnostics.span import Span, user_span

HERE = Span("<here>", 0)
"""Stands for "where the user's code is when this error is made"."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A way out: what to type (`replacement`, in place of `span`) and why; `span` is None when it is only advice."""

    span: Span | None
    replacement: str
    message: str

    def applied(self, source: str) -> str:
        """A file's text with the replacement typed into it; as it was where this is only advice."""
        if self.span is None:
            return source
        lines = source.splitlines(keepends=True)
        text, span = lines[self.span.line - 1], self.span
        lines[span.line - 1] = (
            text[: span.column - 1] + self.replacement + text[max(span.column, span.end_column) - 1 :]
        )
        return "".join(lines)


FixLike: TypeAlias = "Fix | str | Callable[[Span | None], Fix | str | None] | None"
"""A way out, advice, or how to find one from the source at a place."""


_DIVISION = re.compile(r"(?<=[\w)] )(floordiv|mod)(?= [\w(])")
_SIGNS = {"floordiv": "//", "mod": "%"}


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
        # A way out that depends on the place is looked for again when the error is shown at another.
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
        if self.span is not None:
            lines += _snippet(self.span, self.span.source_line, "^" * self.span.width, margin)
        lines += [f"{margin} = note: {readable(note)}" for note in self.notes]
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
        place = f" in `{self.where}`" if self.where else ""
        lines = [f"internal error{place}: {self.message}"]
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
    text, span = fix.span.source_line, fix.span
    start, width = span.column - 1, max(0, span.end_column - span.column)
    changed = text[:start] + fix.replacement + text[start + width :]
    return [f"help: {readable(fix.message)}", *_snippet(span, changed, "+" * max(1, len(fix.replacement)), margin)]
