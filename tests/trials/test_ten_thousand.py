"""The first systems and programs of the long trials, and that a fault would be told."""

from __future__ import annotations

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
