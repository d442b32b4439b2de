"""What something means stands in one place: no term is defined twice, no sentence stands on two pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.documents import pages
from scripts.documents.definitions import second_definitions, written_pages
from scripts.documents.pages import Page


def test_nothing_is_defined_twice() -> None:
    assert second_definitions() == []


def test_the_guides_are_looked_at() -> None:
    looked_at = {str(page.path) for page in written_pages()}
    assert {"README.md", "ARCHITECTURE.md", "docs/guide/numerics.md", "docs/contributing/stages/tile.md"} <= looked_at


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("# A\n\n## Dtype promotion\n", "# B\n\n## Dtype promotion\n", "`dtype promotion` is defined"),
        ("# A\n\n- **Effect**: one thing\n", "# B\n\n**Effect** is another.\n", "`effect` is defined"),
        ("# A\n\nA policy says how values are stored and rounded.\n",) * 2 + ("says what",),
        ("# A\n\n| a | b |\n|---|---|\n| one two three four | five six seven eight |\n",) * 2 + ("says what",),
    ],
)
def test_a_second_definition_is_found(
    first: str, second: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    for name, text in (("a.md", first), ("b.md", second.replace("# A", "# B"))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = second_definitions([Page(tmp_path / "a.md"), Page(tmp_path / "b.md")])
    assert len(found) == 1
    assert expected in found[0]
    assert second_definitions([Page(tmp_path / "a.md")]) == []
