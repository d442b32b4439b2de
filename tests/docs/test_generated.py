"""Pages that are made by scripts are as the scripts make them."""

from __future__ import annotations

from scripts import passes


def test_the_list_of_passes_is_made_from_their_docstrings() -> None:
    assert passes.PAGE.read_text(encoding="utf-8") == passes.render(), "run scripts/passes.py"
