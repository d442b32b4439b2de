"""`tessera inspect` in terminals of any width, and of functions that want parts nobody described."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tessera.cli.arguments import Given, TargetError, find, looked_at
from tessera.cli.main import app
from tessera.cli.show import show_levels

MODULE = """
import tessera as ts
from tessera import ops

@ts.jit
def forward(x: ts.Tensor["B", 8, ts.f32], w: ts.Tensor[8, 4, ts.f32]):
    return ops.relu(x @ w)

def layer(params, x):
    return x @ params["w"] + params["b"]

def model(p, x):
    return x @ p.w
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "inspected_here.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "inspected_here", raising=False)
    return "inspected_here"


@pytest.mark.parametrize(("width", "is_stacked"), [(80, True), (160, False)])
def test_levels_stand_below_each_other_on_a_narrow_terminal(
    module: str, tmp_path: Path, width: int, is_stacked: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert show_levels(f"{module}:forward", Given(), str(tmp_path / "page.html")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= width
    assert any("%0 = matmul %x, %w {accumulate = f32}" in line for line in lines) == is_stacked
    assert any("schedule" in line and "target" in line for line in lines) == (not is_stacked)


@pytest.mark.parametrize(
    ("name", "path", "error", "option"),
    [
        ("layer", "params[w]", "KeyError at inspected_here.py:10: 'b'", "params[b]=64x128"),
        ("model", "p.v", "AttributeError at inspected_here.py:13", "params.w=64x128"),
    ],
)
def test_parts_that_nobody_described_are_named(module: str, name: str, path: str, error: str, option: str) -> None:
    given = Given(shapes=(f"{path}=4x4", "x=2x4"))
    with pytest.raises(TargetError) as caught:
        looked_at(find(f"{module}:{name}"), given)
    assert error in str(caught.value)
    assert option in str(caught.value)


def test_a_variant_of_a_kernel_has_its_sizes_and_costs(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(
        app, ["inspect", "examples.softmax:by_hand", "--output", str(page)], env={"COLUMNS": "400"}
    )
    assert done.exit_code == 0, done.output
    (line,) = [one for one in done.stdout.splitlines() if "variant `shared`" in one]
    assert "grid [M], 17*M*N flops, 8*M*N bytes" in line
    assert "<td></td>" not in page.read_text(encoding="utf-8")
    assert "tessera: tracing `by_hand`" in done.stderr
