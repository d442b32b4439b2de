"""The inspector: every level's lines know their source lines, in the terminal and on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tessera import ops
from tessera.cli import show as command
from tessera.cli.arguments import Given
from tessera.compiler.inspect import LEVELS, Inspection, inspect_tape
from tessera.compiler.inspect_page import page
from tessera.compiler.options import Options
from tests.schedule.programs import tensor, trace


def program(x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    y = ops.gelu(y)
    for axis in (0, 1):
        y = ops.softmax(y, axis=axis)
    return y


@pytest.fixture(scope="module")
def inspection() -> Inspection:
    return inspect_tape(trace(program, tensor("M K"), tensor("K N"), tensor("N")), Options())


def lines_of(inspection: Inspection, level: str, source: str) -> list[str]:
    (key,) = [key for key, text in inspection.sources.items() if source in text]
    return [line.text for line in inspection.levels[level] if key in line.keys]


def test_a_source_line_is_followed_through_all_levels(inspection: Inspection) -> None:
    assert [text.strip() for text in inspection.sources.values()] == [
        "y = x @ w + b",
        "y = ops.gelu(y)",
        "y = ops.softmax(y, axis=axis)",
    ]
    assert any("tgraph.gelu" in line for line in lines_of(inspection, "graph", "gelu"))
    assert any("tsched.call @matmul" in line for line in lines_of(inspection, "schedule", "gelu"))
    assert any("gelu" in line for line in lines_of(inspection, "tile", "gelu"))
    assert any("gelu" in line for line in lines_of(inspection, "target", "gelu"))
    assert not any("gelu" in line for line in lines_of(inspection, "graph", "softmax"))
    assert sum("tsched.call" in line for line in lines_of(inspection, "schedule", "softmax")) == 2


def test_every_op_of_a_kernel_has_a_source(inspection: Inspection) -> None:
    for level in ("tile", "target"):
        lines = [line for line in inspection.levels[level] if re.match(rf"\s*(%.* = )?t{level}\.\w+", line.text)]
        assert len(lines) > 20
        assert [line.text for line in lines if not line.keys] == []


def test_no_location_is_left_in_the_texts(inspection: Inspection) -> None:
    assert not any(" loc(" in line.text for level in LEVELS for line in inspection.levels[level])


def test_the_page_stands_alone_and_marks_lines(inspection: Inspection) -> None:
    text = page(inspection, "model:forward")
    assert not re.search(r"(src|href)=", text)
    assert re.findall(r'data-level="(\w+)"', text) == ["source", *LEVELS]
    for number in range(len(inspection.sources)):
        marked = re.findall(r'data-k="([\d ]+)"', text)
        assert sum(str(number) in keys.split() for keys in marked) >= 5


def test_the_command_prints_and_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "inspected_model.py").write_text(
        "import tessera as ts\nfrom tessera import ops\n\n\n"
        '@ts.jit\ndef forward(x: ts.Tensor["M", "K"], w: ts.Tensor["K", "N"]):\n    return ops.relu(x @ w)\n\n\n'
        "def plain(x):\n    return ops.exp(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setenv("COLUMNS", "240")
    output = tmp_path / "page.html"
    assert command.show_levels("inspected_model:forward", Given(), str(output)) == 0
    assert "return ops.relu(x @ w)" in capsys.readouterr().out
    assert "ttile.kernel" in output.read_text()
    assert command.show_levels("inspected_model:plain", Given(("x=4x8:bf16",)), str(output)) == 0
    for target, shapes, message in (
        ("inspected_model:plain", (), "nothing says what `x` is"),
        ("inspected_model:plain", ("x=4", "y=3"), "no parameter `y`"),
        ("inspected_model:plain", ("x=ax",), "is no shape"),
        ("inspected_model:missing", (), "missing"),
        ("inspected_model", (), "must be module:function"),
    ):
        assert command.show_levels(target, Given(shapes), str(output)) == 2
        assert message in re.sub(r"\s+", " ", capsys.readouterr().out)
