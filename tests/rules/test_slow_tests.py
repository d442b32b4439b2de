"""The table of slow tests is true of the tests there are, and what it is made of counts processors' time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.slow_tests import exists, rows_of
from tests.slow_tests import (
    TABLE,
    Recorder,
    Row,
    function_of,
    kept_cases,
    mark_slow,
    processor_time,
    read_table,
    read_times,
    spread,
)


def test_every_row_is_of_a_test_there_is() -> None:
    stale = [name for name in read_table(TABLE.read_text(encoding="utf-8")) if not exists(name)]
    assert not stale, f"remove these rows of tests/slow.tsv, or run scripts/slow_tests.py: {stale}"


def test_a_row_of_no_test_is_seen() -> None:
    assert exists("tests/rules/test_slow_tests.py::test_a_row_of_no_test_is_seen")
    assert not exists("tests/rules/test_slow_tests.py::test_there_is_none")
    assert not exists("tests/rules/test_nothing.py::test_a_row_of_no_test_is_seen")


def test_rows_keep_fewer_cases_than_there_are_and_say_so_in_text() -> None:
    rows = read_table(TABLE.read_text(encoding="utf-8"))
    assert all(0 <= row.kept < row.cases and row.kept <= row.suite <= row.cases for row in rows.values())
    assert read_table("\n".join(map(str, rows.values()))) == rows


class _Item:
    """As much of a test as is marked."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid, self.marks = nodeid, list[str]()

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)


def test_cases_are_slow_but_for_some_that_are_far_apart() -> None:
    items = [_Item(f"tests/a.py::test_x[{number}]") for number in range(6)]
    others = [_Item("tests/a.py::test_y"), _Item("tests/a.py::test_x_too")]
    mark_slow(cast("Any", [*others, *items]), {"tests/a.py::test_x": Row("tests/a.py::test_x", 6, 9.0, 2, 4)})
    left_out = ["slow", "thorough"]
    assert [item.marks for item in items] == [[], ["slow"], left_out, [], ["slow"], left_out]
    assert [item.marks for item in others] == [[], []]
    mark_slow(cast("Any", others), {"tests/a.py::test_y": Row("tests/a.py::test_y", 1, 2.0, 0, 1)})
    assert [item.marks for item in others] == [["slow"], []]


@given(st.lists(st.floats(0, 2), min_size=1, max_size=30), st.floats(0.1, 3))
def test_what_stays_is_within_its_share_and_no_more_would_be(times: list[float], share: float) -> None:
    kept = kept_cases(times, share)
    assert len(spread(len(times), kept)) == kept
    for count in range(kept, len(times) + 1):
        chosen = [times[number] for number in spread(len(times), count)]
        assert (sum(chosen) <= share) is (count == kept)


def test_rows_are_of_functions_that_take_more_than_their_share() -> None:
    few = {"tests/a.py::test_few": [0.1] * 2, "tests/a.py::test_long": [0.9]}
    rows, quick, suite = rows_of({**few, "tests/a.py::test_longest": [9.0], "tests/a.py::test_many": [0.25] * 40})
    assert [(row.name, row.cases, row.kept, row.suite) for row in rows] == [
        ("tests/a.py::test_long", 1, 0, 1),
        ("tests/a.py::test_longest", 1, 0, 0),
        ("tests/a.py::test_many", 40, 1, 20),
    ]
    assert (quick, suite) == (pytest.approx(0.45), pytest.approx(6.1))


def test_times_are_those_of_processors_children_included(tmp_path: Path) -> None:
    file = tmp_path / "times.jsonl"
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    for name, command in {"works": [burn], "waits": ["import time; time.sleep(0.4)"]}.items():
        steps = Recorder(file).pytest_runtest_protocol(cast("Any", _Item(f"tests/a.py::test_{name}[x]")))
        next(steps)
        subprocess.run([sys.executable, "-I", "-S", "-c", *command], check=True)
        with pytest.raises(StopIteration) as ended:
            steps.send(True)
        assert ended.value.value is True
    times = read_times(file.read_text().splitlines())
    assert times["tests/a.py::test_works"][0] >= 0.3 > times["tests/a.py::test_waits"][0]


def test_a_child_that_runs_still_is_counted() -> None:
    before = processor_time()
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert processor_time() - before >= 0.15
        child.communicate(b"\n")


def test_cases_belong_to_their_function_in_order() -> None:
    lines = [json.dumps(["tests/a.py::test_x[b::c[0]]", 1]), json.dumps(["tests/a.py::test_x[a]", 2])]
    assert read_times(lines) == {"tests/a.py::test_x": [1, 2]}
    assert function_of("tests/lit/a.mlir::RUN 0") == "tests/lit/a.mlir::RUN 0"
