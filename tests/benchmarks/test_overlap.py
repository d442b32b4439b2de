"""The overlap of recipes: how it is measured, and that the record and the page of the guide are of all recipes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.overlap import RECIPES, merge, overlap_of, render
from tessera.runtime.timeline import Span

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "overlap.json"
PAGE = ROOT / "docs" / "guide" / "training-on-ranks.md"

KINDS = ("collective", "kernel", "wait")
SPANS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 40), st.integers(1, 10)), max_size=12)


@given(SPANS)
def test_overlap_is_counted_as_by_looking_at_every_nanosecond(given_spans: list[tuple[str, int, int]]) -> None:
    spans = [Span(kind, "x", start, start + length, 0) for kind, start, length in given_spans]
    at = {kind: {t for one in spans if one.kind == kind for t in range(one.start, one.end)} for kind in KINDS}
    assert overlap_of(spans) == (len(at["collective"]), len(at["collective"] & at["kernel"]))
    merged = merge(spans)
    assert all(left[1] < right[0] for left, right in pairwise(merged))
    assert sum(end - start for start, end in merged) == len(set[int]().union(*at.values()))


def test_the_record_is_of_all_recipes_and_the_page_shows_it() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = record["recipes"]
    assert set(rows) == set(RECIPES)
    for name, row in rows.items():
        assert row["mesh"] == RECIPES[name][2], name
        assert 0 < row["with"]["ratio"] < 1, name
        # Waited for where they start, collectives have nothing beside them.
        assert row.get("without", {"ratio": 0.0})["ratio"] < 0.01, name
    assert record["environment"]["date"]
    assert render(rows) in PAGE.read_text(encoding="utf-8")
