"""The mutation run: what it makes of a line, that a copy kills and keeps as its tests say, and what was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import mutate

SOURCE = '''"""A module."""

def f(a: int, b: int) -> bool:
    """A text with 1 < 2."""
    if a < b and b != 3:
        return check(a, b + 1)
    assert a > 0
    raise ValueError(f"{a} > {b}")
'''


def test_mutants_are_single_lines_of_code_and_of_nothing_else() -> None:
    found = list(mutate.mutants_of("m.py", SOURCE))
    assert {(one.line, one.kind) for one in found} == {
        (5, "comparison"),
        (5, "conjunct"),
        (5, "condition"),
        (5, "number"),
        (6, "arguments"),
        (6, "arithmetic"),
        (6, "number"),
    }
    assert {one.after for one in found if one.line == 5} == {
        "if a <= b and b != 3:",
        "if a < b and b == 3:",
        "if a < b:",
        "if b != 3:",
        "if not (a < b and b != 3):",
        "if a < b and b != 4:",
    }
    for one in found:
        lines = zip(one.source(SOURCE).splitlines(), SOURCE.splitlines(), strict=True)
        differing = [number for number, (new, old) in enumerate(lines, 1) if new != old]
        assert differing == [one.line]


def test_what_is_drawn_is_the_same_for_a_seed_and_of_every_module() -> None:
    first, again, other = (mutate.draw(200, seed) for seed in (1, 1, 2))
    assert [one for one, _ in first] == [one for one, _ in again] != [one for one, _ in other]
    assert len({one.path for one, _ in first}) >= 40
    for _, tests in first:
        assert all((mutate.ROOT / test).exists() for test in tests)


def test_every_neighbourhood_is_there() -> None:
    for pattern, tests in mutate.NEIGHBOURHOODS.items():
        assert list(mutate.ROOT.glob(pattern)), pattern
        assert [test for test in tests.split() if not (mutate.ROOT / test).exists()] == [], pattern


@pytest.mark.slow
def test_a_mutant_is_killed_in_a_copy_and_the_tree_is_left_alone() -> None:
    laboratory = mutate.Laboratory(180)
    try:
        path, tests = "tessera/types/promotion.py", ["tests/types/test_promotion.py"]
        source = (mutate.ROOT / path).read_text()
        killed = next(one for one in mutate.mutants_of(path, source) if one.kind == "condition")
        assert laboratory.run(tests) == "passed"
        assert laboratory.try_mutant(killed, tests) in ("failed", "broken")
        assert laboratory.run(tests) == "passed"
        assert (mutate.ROOT / path).read_text() == source
    finally:
        laboratory.close()
    assert not laboratory.folder.exists()


def test_the_record_lists_every_survivor() -> None:
    record = json.loads((mutate.ROOT / "benchmarks" / "results" / "mutants.json").read_text(encoding="utf-8"))
    assert record["mutants"] == sum(record["results"].values())
    assert record["results"]["passed"] == len(record["survivors"]) + len(record["equivalent"])
    counted = record["mutants"] - len(record["equivalent"])
    assert record["rate"] == round((counted - len(record["survivors"])) / counted, 4)
    assert all(one["reason"] for one in record["equivalent"])
    for one in (*record["survivors"], *record["equivalent"]):
        assert Path(mutate.ROOT, one["path"]).is_file()
