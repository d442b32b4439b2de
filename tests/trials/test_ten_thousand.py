"""The first systems and programs of the long trials, and that a fault would be told."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.trials import ten_thousand


@pytest.mark.parametrize(("trial", "count"), [("systems", 60), ("programs", 5)])
def test_a_part_of_each_trial(trial: str, count: int) -> None:
    written: list[Any] = []
    record = ten_thousand.run(trial, count, 100, written.append)
    assert record["failures"] == []
    assert record["count"] == sum(record["results"].values()) == count
    assert written[-1] == {**record, "seconds": written[-1]["seconds"]}


def test_a_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("wrong")

    monkeypatch.setattr(ten_thousand, "check_by_z3", refuse)
    monkeypatch.setattr(ten_thousand, "check_together", refuse)
    for trial in ten_thousand.TRIALS:
        record = ten_thousand.run(trial, 5)
        assert record["results"] == {"failed": 5}
        assert record["failures"]
        assert ten_thousand.main([trial, "--count", "5"]) == 1


@pytest.mark.parametrize(("trial", "count"), [("systems", 10_000), ("programs", 10_000)])
def test_what_was_recorded_had_no_failure(trial: str, count: int) -> None:
    """When and of which commit it ran is in the record; of its seeds this test and others rerun the first."""
    file = ten_thousand.environment.ROOT / "benchmarks" / "results" / f"trial-{trial}.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["count"] == sum(record["results"].values()) >= count
    assert record["failures"] == []
    assert "failed" not in record["results"]
    assert "slower than a second" not in record["results"]
    assert record["changed_files"] == 0
    assert re.fullmatch(r"[0-9a-f]{40}", record["commit"])
    assert record["versions"]["python"]
    again = ten_thousand.run(trial, 5, record["first"] + record["count"] - 5)
    assert again["failures"] == []
