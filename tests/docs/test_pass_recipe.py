"""CONTRIBUTING's recipe for a pass, followed literally: its pass is found by name, and its FileCheck test holds."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.documents.pages import ROOT
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import find_pass, pass_modules
from tessera.ir.base.text import parse_module
from tessera.ir.tile import passes
from tessera.ir.tile.interpret import run_kernel
from tests.lit.lit_runner import LitError, run_file

NAME = "tessera.ir.tile.passes.drop_selects"
SECTION = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a pass\n")[2].partition("\n## ")[0]


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)[number]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The pass in a folder that belongs to the stage's passes; what is found is forgotten before and after."""
    (tmp_path / "drop_selects.py").write_text(block("python"), encoding="utf-8")
    monkeypatch.setattr(passes, "__path__", [*passes.__path__, str(tmp_path)])
    pass_modules.cache_clear()
    yield tmp_path
    pass_modules.cache_clear()
    sys.modules.pop(NAME, None)


@pytest.mark.usefixtures("added")
def test_the_pass_is_found_by_its_path() -> None:
    assert pass_modules()["tile-drop-selects"] == NAME
    assert find_pass("tile-drop-selects").__name__ == "DropSelects"


def test_another_decorator_is_named(added: Path) -> None:
    text = block("python").replace("from tessera.types.frozen import frozen", "from dataclasses import dataclass")
    (added / "drop_selects.py").write_text(text.replace("@frozen", "@dataclass(frozen=True)"), encoding="utf-8")
    with pytest.raises(TypeError, match=rf"decorate the pass of {NAME} by `@frozen` of tessera.types.frozen"):
        find_pass("tile-drop-selects")


def test_its_filecheck_test_holds_and_fails_without_it(added: Path) -> None:
    file = added / "drop_selects.mlir"
    file.write_text(block("mlir"), encoding="utf-8")
    run_file(file)
    file.write_text(block("mlir").replace(" -p tile-drop-selects", ""), encoding="utf-8")
    with pytest.raises(LitError):
        run_file(file)


@pytest.mark.usefixtures("added")
def test_its_test_holds() -> None:
    scope: dict[str, Any] = {}
    exec(block("python", 1), scope)
    scope["test_meaning_is_kept"]()


@pytest.mark.usefixtures("added")
def test_meaning_is_kept() -> None:
    found: list[list[float]] = []
    for runs in (False, True):
        module = parse_module(block("mlir"), "<recipe>")
        if runs:
            find_pass("tile-drop-selects")().run(module)
        for kernel in module.ops:
            assert isinstance(kernel, SpecOp)
            out = np.zeros(8, np.float32)
            run_kernel(kernel, [out], {})
            found.append(out.tolist())
    assert found[:2] == found[2:] == [[1.5] * 8, [1.5] * 8]
