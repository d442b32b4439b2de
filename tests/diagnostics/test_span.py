"""Spans from frames and from syntax: the smallest expression, in characters, on the user's side."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Callable
from pathlib import Path

from tessera.diagnostics.error import Span, TesseraError, user_span


class Recorder:
    """A value that notes where it is used."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def __matmul__(self, other: object) -> Recorder:
        self.spans.append(Span.of_frame(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
        return self

    __add__ = __matmul__


def shown(span: Span) -> str:
    """The characters a span marks."""
    return span.source_line[span.column - 1 :][: span.width]


def test_an_operator_is_marked_with_its_operands_alone() -> None:
    x, w = Recorder(), Recorder()
    _ = (x @ w) + x
    assert [shown(span) for span in x.spans] == ["x @ w", "(x @ w) + x"]


def test_columns_count_characters_not_bytes() -> None:
    x = Recorder()
    _ = ("é", x @ "ü")
    assert [shown(span) for span in x.spans] == ['x @ "ü"']


def test_a_span_of_several_lines_ends_with_the_first() -> None:
    x = Recorder()
    _ = x @ (
        1,
        2,
    )
    (span,) = x.spans
    assert (span.end_line - span.line, shown(span)) == (3, "x @ (")


def test_every_call_site_of_one_line_has_its_own_span() -> None:
    x, y = Recorder(), Recorder()
    for _ in range(2):
        _ = (x @ 1, y @ 2)
    assert [shown(span) for span in x.spans + y.spans] == ["x @ 1", "x @ 1", "y @ 2", "y @ 2"]


def test_frames_of_the_package_and_the_standard_library_are_stepped_over() -> None:
    make = functools.singledispatch(TesseraError)  # its wrapper is a frame of functools.py
    error = make("no")
    assert error.span is not None
    assert shown(error.span) == 'make("no")'


def test_code_without_a_file_has_a_line() -> None:
    namespace: dict[str, Callable[[], Span | None]] = {"find": user_span}
    exec(compile("def run():\n    return find()\n", "<typed>", "exec"), namespace)
    span = namespace["run"]()
    assert span is not None
    assert (span.file, span.line, span.source_line) == ("<typed>", 2, "")


def test_a_syntax_node_of_a_fragment_is_moved_to_its_place(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("import math\n\nacc = math.exp(\n  1)\n", encoding="utf-8")
    linecache.checkcache(str(file))
    statement = ast.parse("acc = math.exp(\n  1)").body[0]
    assert isinstance(statement, ast.Assign)
    span = Span.of_node(str(file), statement.value, line_offset=2)
    assert span == Span(str(file), 3, 7, 4, 5)
    assert shown(span) == "math.exp("
