"""The table of features: every promise listed once, every claim with a test that exists, the page up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "features.py"))


def test_the_table_is_whole_and_the_page_is_made_from_it() -> None:
    features = SCRIPT["read_table"]()
    assert len(features) == 360
    assert SCRIPT["complaints"](features) == []
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["render"](features), "run scripts/features.py"


def test_a_claim_without_a_test_is_refused() -> None:
    make = SCRIPT["Feature"]
    assert SCRIPT["complaints"]([make("A1", "g", "t", "works", ())]) == ["A1: nothing proves that it works"]
    absent = "tests/test_features.py::test_that_is_not_there"
    assert SCRIPT["complaints"]([make("A1", "g", "t", "partial", (absent,))]) == [f"A1: no such test: {absent}"]
    assert SCRIPT["complaints"]([make("A1", "g", "t", "maybe", ())]) == ["A1: no such status: maybe"]
