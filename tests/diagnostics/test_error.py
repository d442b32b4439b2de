"""How errors render: whole texts, compared as they are printed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tessera.diagnostics.codes import ShapeError, all_codes
from tessera.diagnostics.error import CompilationError, Fix, InternalError, Span, TesseraError


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's file in the current directory."""
    file = tmp_path / "model.py"
    file.write_text("y = x @ w\n\nw = make(\n    256,\n)\n" + "\n" * 95 + "\tz = é + y\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return file


def test_span_notes_and_replacement(model: Path) -> None:
    error = ShapeError(
        "cannot multiply [B, 512] by [256, 1024]: the inner dimensions differ (512 and 256)",
        span=Span(str(model), 1, 5, 1, 10),
        notes=("`w` got its shape here: model.py:3",),
        fix=Fix(Span(str(model), 1, 9, 1, 10), "w.T", "transpose `w` if it is stored [out, in]"),
    )
    assert str(error) == "\n".join(
        (
            "error[T0101]: cannot multiply [B, 512] by [256, 1024]: the inner dimensions differ (512 and 256)",
            " --> model.py:1:5",
            "  |",
            "1 | y = x @ w",
            "  |     ^^^^^",
            "  = note: `w` got its shape here: model.py:3",
            "help: transpose `w` if it is stored [out, in]",
            " --> model.py:1:9",
            "  |",
            "1 | y = x @ w.T",
            "  |         +++",
        )
    )


def test_advice_without_a_place() -> None:
    error = ShapeError("`x` has 3 axes, expected 2", span=None, fix="add `[0]`")
    assert str(error) == "error[T0101]: `x` has 3 axes, expected 2\n  = help: add `[0]`"


def test_a_span_of_several_lines_is_marked_to_the_end_of_the_first(model: Path) -> None:
    error = ShapeError("too small", span=Span(str(model), 3, 5, 5, 2))
    assert str(error) == "error[T0101]: too small\n --> model.py:3:5\n  |\n3 | w = make(\n  |     ^^^^^"


def test_tabs_and_wide_line_numbers_keep_the_mark_in_place(model: Path) -> None:
    error = ShapeError("no", span=Span(str(model), 101, 6, 101, 11), fix=Fix(Span(str(model), 1, 5, 1, 6), "v", "yes"))
    assert str(error) == "\n".join(
        (
            "error[T0101]: no",
            "   --> model.py:101:6",
            "    |",
            "101 | \tz = é + y",
            "    | \t    ^^^^^",
            "help: yes",
            "   --> model.py:1:5",
            "    |",
            "  1 | y = v @ w",
            "    |     +",
        )
    )


def test_a_span_whose_source_is_gone_still_names_the_place() -> None:
    assert str(ShapeError("no", span=Span("<gone>", 7, 3))) == "error[T0101]: no\n --> <gone>:7:3"


def test_the_span_is_the_users_line_unless_given() -> None:
    error = ShapeError("here")
    assert error.span is not None
    assert error.span.file == __file__
    assert error.span.source_line.strip() == 'error = ShapeError("here")'
    assert error.span.source_line[error.span.column - 1 :][: error.span.width] == 'ShapeError("here")'


def test_an_error_survives_a_process_border() -> None:
    error = ShapeError("no", span=Span("a.py", 1), notes=("because",), fix="yes")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ShapeError
    assert str(copy) == str(error)


def test_variations_keep_all_else() -> None:
    error = ShapeError("no", span=None, fix="yes").with_note("because").at(Span("<gone>", 2))
    assert str(error) == "error[T0101]: no\n --> <gone>:2:1\n  = note: because\n  = help: yes"


def test_internal_errors_name_the_pass_and_the_command() -> None:
    error = InternalError("block has no terminator", where="tile-x", reproducer="/tmp/r.mlir", command="python r.py")
    assert str(pickle.loads(pickle.dumps(error))) == "\n".join(
        (
            "internal error in `tile-x`: block has no terminator",
            "  = note: the program before it was written to /tmp/r.mlir",
            "  = help: run it again with `python r.py`",
            "  = note: this is a bug in Tessera, not in your program",
        )
    )


def test_codes_are_distinct_and_documented() -> None:
    classes = [cls for cls in _subclasses(TesseraError) if cls.code and cls.__module__.startswith("tessera.")]
    assert sorted(cls.code for cls in classes) == list(all_codes()), "a code is used twice, or minted outside codes.py"
    assert all(cls.__doc__ for cls in classes)


def test_what_is_found_before_anything_runs_is_a_compilation_error() -> None:
    for code, cls in all_codes().items():
        assert issubclass(cls, CompilationError) == (code < "T07"), code


def _subclasses(cls: type[TesseraError]) -> list[type[TesseraError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _subclasses(child))]
