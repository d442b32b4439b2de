"""Expressions taken apart at a span: operands, arguments and literals, where they stand, and edits of them."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path

import pytest

from tessera import ops
from tessera.diagnostics.edit import Expression, edit_literal, edit_text, expression_at
from tessera.diagnostics.error import Fix, Span, TesseraError

IMPORTS = "import tessera as ts\nfrom tessera import f32, ops as o\nimport numpy as np\n"


def parsed(folder: Path, text: str, before: str = "z = ", imports: str = IMPORTS) -> tuple[Expression, str]:
    """An expression in a file, and the text of the file."""
    file = folder / f"m{len(list(folder.iterdir()))}.py"
    whole = f"{imports}{before}{text}\n"
    file.write_text(whole, encoding="utf-8")
    line, lines, column = imports.count("\n") + 1, text.split("\n"), len(before) + 1
    end = len(lines[-1]) + 1 if len(lines) > 1 else column + len(text)
    found = expression_at(Span(str(file), line, column, line + len(lines) - 1, end))
    assert found is not None
    return found, whole


@pytest.mark.parametrize(
    ("text", "count", "operands"),
    [
        ("x + y", 2, ["x", "y"]),
        ("x @ w.T + b", 2, ["x @ w.T", "b"]),
        ("x < y", 2, ["x", "y"]),
        ("-x", 1, ["x"]),
        ("x[1:]", 1, ["x"]),
        ("ts.ops.where(c, x, 0.0)", 3, ["c", "x", "0.0"]),
        ("o.matmul(a, b)", 2, ["a", "b"]),
        ("x.matmul(w)", 2, ["x", "w"]),
        ("x.sum(axis=1)", 1, ["x"]),
        ("ts.ops.concat([x, y], axis=0)", 2, ["x", "y"]),
        ('ts.ops.einsum("ij,jk->ik", x, y)', 2, ["x", "y"]),
        ("ts.ops.concat(\n    [aé + b,\n     c], axis=1)", 2, ["aé + b", "c"]),
        ("ts.ops.stack(*rest)", 1, []),
        ("x + y", 3, []),
    ],
)
def test_operands(tmp_path: Path, text: str, count: int, operands: list[str]) -> None:
    expression, whole = parsed(tmp_path, text)
    found = expression.operands(count)
    assert [part.text for part in found] == operands
    for part in found:
        line = whole.splitlines()[part.span.line - 1]
        assert line[part.span.column - 1 : part.span.end_column - 1] == part.text


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("ops.matmul(a, b)", ["a", "b"]),
        ("ops.concat([a, b[:3]], axis=0)", ["a", "b[:3]"]),
        ("w.matmul(b)", ["w", "b"]),
        ("made.matmul(b)", ["made", "b"]),
    ],
)
def test_a_name_for_a_part_of_tessera_is_no_operand_and_other_names_are(
    tmp_path: Path, text: str, operands: list[str]
) -> None:
    imports = "import model\nimport tessera as ts\nops = ts.ops\nw = model.weights\nmade = ts.ones((2, 3))\n"
    expression, _ = parsed(tmp_path, text, imports=imports)
    assert [part.text for part in expression.operands(2)] == operands


def test_an_edit_types_into_the_right_place(tmp_path: Path) -> None:
    expression, whole = parsed(tmp_path, "ts.ops.concat([x, xé],\n  axis=0)", before="é = ")
    second = expression.operands(2)[1]
    fix = second.edit("xé.T", "turn it")
    assert fix is not None
    assert fix.apply(whole) == whole.replace("xé]", "xé.T]")
    axis = expression.argument("axis")
    assert axis is not None
    changed = axis.edit("1", "")
    assert changed is not None
    assert changed.apply(whole) == whole.replace("axis=0", "axis=1")
    assert expression.whole.edit("x", "") is None, "over two lines"


def test_what_a_dot_can_follow(tmp_path: Path) -> None:
    expression, _ = parsed(tmp_path, "a + b * f(c)")
    assert [part.operand for part in expression.operands(2)] == ["a", "(b * f(c))"]


@pytest.mark.parametrize(
    ("imports", "path", "name"),
    [
        (IMPORTS, "f32", "f32"),
        (IMPORTS, "bf16", "ts.bf16"),
        (IMPORTS, "ops.pad", "o.pad"),
        ("import tessera\n", "ops.pad", "tessera.ops.pad"),
        ("from tessera.ops import pad as p\n", "ops.pad", "p"),
        ("import tessera.ops as t\n", "ops.pad", "t.pad"),
        ("import numpy as np\n", "ops.pad", None),
        ("import tessera as ts\nops = ts.ops\n", "ops.pad", "ops.pad"),
        ("import numpy as np\nops = np.linalg\n", "ops.pad", None),
    ],
)
def test_names_are_written_as_the_file_imports_them(tmp_path: Path, imports: str, path: str, name: str | None) -> None:
    expression, _ = parsed(tmp_path, "x + y", imports=imports)
    assert expression.name_of(path) == name


def test_literals_and_texts(tmp_path: Path) -> None:
    expression, whole = parsed(tmp_path, "f('1 <= B', -1, (2, 3), 2)")
    span = expression.whole.span
    fix = edit_text(span, "1 <= B", "B >= 1", "")
    assert fix is not None
    assert "f('B >= 1', -1" in fix.apply(whole)
    assert edit_literal(span, 2, "5", "") is None, "it stands there twice"
    assert edit_literal(span, True, "5", "") is None, "1 is no bool"
    changed = edit_literal(span, -1, "'_'", "")
    assert changed is not None
    assert "'1 <= B', '_', (2" in changed.apply(whole)


def test_a_keyword_is_renamed(tmp_path: Path) -> None:
    expression, whole = parsed(tmp_path, "ts.jit(fuse=True)")
    part = expression.keyword("fuse")
    assert part is not None
    fix = part.edit("fusion", "")
    assert fix is not None
    assert fix.apply(whole) == whole.replace("fuse", "fusion")
    assert expression.keyword("debug") is None


def test_what_is_no_expression(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("x += y\n", encoding="utf-8")
    assert expression_at(Span(str(file), 1, 1, 1, 7)) is None
    assert expression_at(Span("<gone>", 1, 1, 1, 7)) is None
    assert expression_at(None) is None


def test_a_fix_is_looked_up_anew_at_another_span(tmp_path: Path) -> None:
    expression, _ = parsed(tmp_path, "f(1)")
    error = TesseraError("wrong", span=None, fix=lambda span: edit_literal(span, 1, "2", "write 2") or "somehow")
    assert error.fix == Fix(None, "", "somehow")
    moved = error.with_note("so").at(expression.whole.span)
    assert moved.fix is not None
    assert moved.fix.replacement == "2"
    assert moved.notes == ("so",)
    assert Fix(None, "", "advice").apply("text") == "text"


def test_a_cell_has_what_was_imported_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports of a notebook stand in another cell; names of the main module say what is a module here."""
    text = "o.squeeze(x, axis=0)"
    monkeypatch.setitem(linecache.cache, "<cell 2>", (len(text), None, [text], "<cell 2>"))
    monkeypatch.setattr(sys.modules["__main__"], "o", ops, raising=False)
    found = expression_at(Span("<cell 2>", 1, 1, 1, len(text) + 1))
    assert found is not None
    assert [part.text for part in found.operands(1)] == ["x"]
    assert found.name_of("ops.pad") == "o.pad"
