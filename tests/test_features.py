"""The table of features: every promise listed once, every claim with a test that exists, the page up to date."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "features.py"))


def test_the_table_is_whole_and_the_page_is_made_from_it() -> None:
    features = SCRIPT["read_table"]()
    assert len(features) == 360
    assert SCRIPT["complaints"](features) == []
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["render"](features), "run scripts/features.py"


def feature(**changes: Any) -> Any:
    """A feature that there is nothing to say about, with some cells changed."""
    cells: dict[str, Any] = {"id": "A1", "group": "g", "text": "t", "status": "not yet", "reason": "", "wording": "w"}
    return SCRIPT["Feature"](**{**cells, "places": (), "proof": (), **changes})


def complaints(**changes: Any) -> list[str]:
    return SCRIPT["complaints"]([feature(**changes)])


def test_a_claim_without_a_test_is_refused() -> None:
    assert complaints(status="works") == ["A1: nothing proves that it works"]
    absent = "tests/test_features.py::test_that_is_not_there"
    assert complaints(status="partial", reason="r", proof=(absent,)) == [f"A1: no such test: {absent}"]
    assert complaints(status="maybe") == ["A1: no such status: maybe"]


def test_a_partial_feature_says_what_is_missing_and_every_feature_how_it_is_proved() -> None:
    wanted = "A1: a partial feature, and no other, says what is missing"
    assert complaints(status="partial") == [wanted]
    assert complaints(reason="r") == [wanted]
    assert complaints(wording="") == ["A1: no proof is asked for"]


def test_where_a_proof_ran_is_checked() -> None:
    own = ("tests/test_features.py",)
    assert complaints(status="works", proof=own, places=("CPU",)) == []
    assert complaints(status="works", proof=own, places=("H200",)) == ["A1: its tests ran on CPU, not H200"]
    on_device = {"wording": "[H200] runs", "status": "works", "proof": own, "places": ("CPU",)}
    assert complaints(**on_device) == ["A1: its proof is of an H200, and no test or record is"]
    places = SCRIPT["places_of"]
    assert places(["tests/device/test_rows.py::test_x", "tests/benchmarks/test_gpu_records.py"]) == ("H200", "record")
    assert places(["tests/backends/nvptx/test_sass.py"]) == ("assembled",)
