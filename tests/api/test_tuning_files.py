"""Files of tuned schedules: many processes add to one, and nothing that one of them chose is lost or torn."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.tuning import Tuning
from tessera.diagnostics.codes import ScheduleError
from tessera.types.schedule import Schedule

ROOT = Path(__file__).parents[2]

# Stands for a kernel: all that the file needs to know of it is its name.
TUNER = """
    import sys, time
    from types import SimpleNamespace
    from tessera.api.tuning import Tuning
    from tessera.types.schedule import Schedule

    folder, number, start = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    tuning, kernel = Tuning({"BM": [8, 16]}, "latency_ms", 1.0, folder), SimpleNamespace(name="k")
    time.sleep(max(0.0, start - time.time()))
    for iteration in range(5):
        tuning._store(kernel, f"{number} {iteration}", Schedule(stages=1 + number))
        found = tuning._read_stored(kernel)
        assert found[f"{number} {iteration}"]["stages"] == 1 + number, found
"""


def test_32_processes_keep_what_each_has_chosen(tmp_path: Path) -> None:
    start, program = str(time.time() + 2.0), textwrap.dedent(TUNER)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path), str(n), start], stderr=subprocess.PIPE, cwd=ROOT
        )
        for n in range(32)
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [error for error in errors if error] == []
    assert [process.returncode for process in processes] == [0] * 32
    stored = json.loads((tmp_path / "k.json").read_text())
    assert len(stored) == 32 * 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.json", "k.json.lock"]


def tuning_of(**given: Any) -> Tuning:
    usual: dict[str, Any] = {"space": {"BM": [8, 16]}, "metric": "latency_ms", "budget_ms": 1.0, "cache": ""}
    return Tuning(**{**usual, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budget_ms": "a"}, "`budget_ms` must be a positive number, got 'a'"),
        ({"budget_ms": None}, "`budget_ms` must be a positive number, got None"),
        ({"budget_ms": True}, "`budget_ms` must be a positive number, got True"),
        ({"budget_ms": float("nan")}, "`budget_ms` must be a positive number, got nan"),
        ({"space": None}, "a space is names with lists, a chain, or a list of schedules, got None"),
        ({"space": "BM"}, "a space is .* got 'BM'"),
        ({"space": []}, "a space is .* got \\[\\]"),
        ({"cache": 3}, "`cache` is the path of a folder or of a `.json` file, got 3"),
    ],
)
def test_what_is_no_tuning_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        tuning_of(**given)


def test_what_a_file_keeps_counts_while_the_space_has_it(tmp_path: Path) -> None:
    kernel: Any = SimpleNamespace(name="k")
    first, schedule = tuning_of(cache=str(tmp_path)), Schedule(block=(16,))
    (tmp_path / "k.json").write_text(json.dumps({"key": json.loads(schedule.to_json())}))
    assert first.lookup(kernel, "key") == schedule
    assert first.lookup(kernel, "other") is None
    assert tuning_of(cache=str(tmp_path), space={"BM": [8, 32]}).lookup(kernel, "key") is None


@pytest.mark.parametrize("text", ["[1, 2]", "{torn", "3", '{"key": [16]}', '{"key": {"blocks": [16]}}'])
def test_a_file_of_something_else_is_measured_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "k.json").write_text(text)
    kernel: Any = SimpleNamespace(name="k")
    assert tuning_of(cache=str(tmp_path)).lookup(kernel, "key") is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    @ts.kernel.autotune(space={"BM": [8]}, budget_ms=1.0, cache=str(tmp_path / "file" / "folder"))
    def twice(x: ts.KTile["N", ts.f32]) -> Any:
        T = ts.tile.context()
        return ts.tile.load(x, T.m) * 2.0

    with pytest.raises(ScheduleError, match=r"no schedule can be kept in .*twice.json"):
        twice(np.ones(4, np.float32))
