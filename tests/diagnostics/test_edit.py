"""Expressions taken apart at a span: operands, arguments and literals, where they stand, and edits of them."""

from __future__ import annotations

import linecache
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tessera
from tessera import ops
from tessera.diagnostics.edit import Expression, edit_literal, edit_text, expression_at
from tessera.diagnostics.error import Fix, Span, TesseraError

IMPORTS = "import tessera as ts\nfrom tessera import f32, ops as o\nimport numpy as np\nx = y = w = None\n"


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


def raised(namespace: dict[str, Any], text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of a text that is run like a cell of a notebook: what it uses comes from elsewhere."""
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
    with pytest.raises(TesseraError) as caught:
        exec(compile(text, name, "exec"), namespace)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "ts.ops.matmul(a, b)\n",
        "o.matmul(a, b)\n",
        "held.matmul(a, b)\n",
        "held.ops.matmul(a, b)\n",
        "def f():\n    q = ts.ops\n    return q.matmul(a, b)\nf()\n",
        "def f(q):\n    return q.matmul(a, b)\nf(o)\n",
        "@ts.jit\ndef f(a, b):\n    return ts.ops.matmul(a, b)\nf(a, b)\n",
    ],
)
def test_where_a_function_is_found_is_no_operand_of_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import stands in another cell or module, or there is none: the frame says what a name is."""
    held = SimpleNamespace(ops=ops, matmul=ops.matmul)
    namespace = {"ts": tessera, "o": ops, "held": held, "a": tessera.ones((2, 3)), "b": tessera.ones((2, 3))}
    shown = raised(namespace, text, "<cell of a notebook>", monkeypatch)
    assert "`a.shape[1] = 3` and `b.shape[0] = 2`" in shown
    assert "transpose `b`" in shown
    assert "(a, b.T)" in shown


def test_a_module_of_a_star_import_is_no_operand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "star_names.py").write_text("import tessera as ts\na = b = ts.ones((2, 3))\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    file = tmp_path / "star_program.py"
    file.write_text("from star_names import *\nts.ops.matmul(a, b)\n", encoding="utf-8")
    with pytest.raises(TesseraError, match=r"`a\.shape\[1\] = 3` and `b\.shape\[0\] = 2`"):
        runpy.run_path(str(file))


def test_a_receiver_that_nobody_knows_gives_no_operands(tmp_path: Path) -> None:
    expression, _ = parsed(tmp_path, "unknown.matmul(a, b, axis=1)", imports="from model import *\n")
    assert expression.operands(2) == []
    assert expression.argument("x", 0) is None
    axis = expression.argument("axis")
    assert axis is not None
    assert axis.text == "1"


@pytest.mark.parametrize("method", ["autotune", "schedule", "lower", "explain", "profile", "trace"])
@pytest.mark.parametrize("receiver", ["forward", "holder.forward", "ts.jit(plain)"])
def test_a_jitted_function_is_no_argument_of_its_methods(
    receiver: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(x: tessera.Tensor["M", 3, tessera.f32], y: tessera.Tensor["M", 4, tessera.f32]) -> tessera.Tensor:
        return ops.sum(x) + ops.sum(y)

    forward = tessera.jit(plain)
    namespace = {"ts": tessera, "plain": plain, "forward": forward, "holder": SimpleNamespace(forward=forward)}
    namespace |= {"a": tessera.ones((2, 3)), "b": tessera.ones((2, 3))}
    shown = raised(namespace, f"{receiver}.{method}(a, b)\n", f"<cell {receiver} {method}>", monkeypatch)
    assert f"{receiver}.{method}(a, ts.ops.pad(b, [(0, 0), (0, 1)]))" in shown


def test_an_object_is_the_first_argument_of_its_jitted_method(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
class Model:
    @ts.jit
    def forward(self, x: ts.Tensor["M", 4, ts.f32]):
        return x

Model().forward(a)
"""
    namespace: dict[str, Any] = {"ts": tessera, "a": tessera.ones((2, 3))}
    made = raised(namespace, text, "<cell of a model>", monkeypatch)
    assert "Model().forward(ts.ops.pad(a, [(0, 0), (0, 1)]))" in made
    namespace["model"] = namespace["Model"]()
    named = raised(namespace, "model.forward(a)\n", "<cell of a call>", monkeypatch)
    assert "model.forward(ts.ops.pad(a, [(0, 0), (0, 1)]))" in named
