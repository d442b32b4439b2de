"""Names that hand-written pages give to users exist: of tables side by side, of variables, and of overrides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tessera as ts
from scripts.documents.pages import ROOT, all_pages
from tessera import tile
from tessera.diagnostics.codes import explain
from tessera.ir.base.passes import pass_modules
from tessera.types.settings import VARIABLES

GUIDE = ROOT / "docs" / "guide"
TABLES = sorted(GUIDE.glob("from-*.md"))
ROW = re.compile(r"^\|(?P<theirs>[^|\n]+)\|(?P<ours>[^|\n]+)\|$", re.MULTILINE)
NAME = re.compile(r"(?:ts|tile|x)\.[A-Za-z_][\w.]*")
OWNERS: dict[str, Any] = {"ts": ts, "tile": tile, "x": ts.Tensor}


def rows(page: Path) -> list[tuple[str, str]]:
    found = [(match["theirs"], match["ours"]) for match in ROW.finditer(page.read_text(encoding="utf-8"))]
    return [row for row in found if "---" not in row[0] and "Tessera" not in row[1]]


def find(name: str) -> Any:
    owner, *path = name.split(".")
    found = OWNERS[owner]
    for part in path:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.stem)
def test_every_name_on_our_side_of_a_table_exists(page: Path) -> None:
    table = rows(page)
    assert len(table) >= 20
    for theirs, ours in table:
        for name in NAME.findall(ours):
            assert find(name) is not None, (theirs, name)


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.stem)
def test_a_table_has_each_name_of_theirs_once(page: Path) -> None:
    theirs = [span for left, _ in rows(page) for span in re.findall(r"`([^`]+)`", left)]
    assert sorted({name for name in theirs if theirs.count(name) > 1}) == []


def test_every_table_gives_a_name_for_every_row() -> None:
    silent = [theirs for page in TABLES for theirs, ours in rows(page) if "`" not in ours]
    assert silent == []


def test_the_page_on_variables_has_each_of_them_as_the_page_of_their_error_has() -> None:
    table = re.compile(r"^\| `TESSERA_.*$", re.MULTILINE)
    listed = table.findall((GUIDE / "environment.md").read_text(encoding="utf-8"))
    assert [line.split("`")[1] for line in listed] == list(VARIABLES)
    assert listed == table.findall(explain("T0705"))


def test_overrides_that_pages_name_are_asked_for_somewhere() -> None:
    source = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tessera").rglob("*.py"))
    named = {
        name
        for page in all_pages()
        for name in re.findall(r"overrides=\{\"([\w.]+)\"", page.text)
        if not str(page.path).startswith("docs/errors")
    }
    asked = [f'"{name}"' in source or f'"{name}@' in source for name in sorted(named)]
    assert [name for name, is_asked in zip(sorted(named), asked, strict=True) if not is_asked] == []


def test_passes_that_pages_name_exist() -> None:
    names = pass_modules().keys()
    stages = {name.partition("-")[0] for name in names}
    pattern = re.compile(rf"(?:{'|'.join(sorted(stages))})-[a-z0-9]+(?:-[a-z0-9]+)*")
    named = {(str(page.path), span) for page in all_pages() for span in page.code_spans if pattern.fullmatch(span)}
    recipe = ("CONTRIBUTING.md", "tile-drop-selects")  # which tests/docs/test_pass_recipe.py adds
    assert sorted(one for one in named if one[1] not in names and one != recipe) == []
