"""Plans that crash, hang, raise or break the device cost one plan each, and their trials say what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics.codes import SearchError
from tessera.tuner.records import Plan
from tessera.tuner.runner import LOADING, Isolated, Job
from tessera.tuner.search import Space, search

BUILDER = "tests.tuner.search.jobs:build"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolated]:
    with Isolated(Job(BUILDER), workers=2, timeout=2.0) as measurer:
        yield measurer


def test_a_plan_is_measured_in_a_child(isolated: Isolated) -> None:
    trial = isolated.measure(Plan.of({"time": 50.0}), 10)
    assert trial.samples == (50.0,) * 10
    assert trial.baseline == (100.0,) * 10
    assert trial.bits == isolated.safe_bits == "same"
    assert trial.reason == ""


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("exit", "crashed: exit status 3"),
        ("crash", "crashed: SIGSEGV"),
        ("raise", "ZeroDivisionError: a bug of ours"),
        ("break the device", "failed: error[T0720]"),
        ("hang", "it did not end in time"),
    ],
)
def test_a_broken_plan_costs_itself_alone(isolated: Isolated, does: str, reason: str) -> None:
    before = isolated.restarts
    trial = isolated.measure(Plan.of({"does": does}), 10)
    assert trial.reason.startswith(reason)
    assert trial.samples == ()
    assert isolated.restarts == before + 1, "a child that failed is not asked more"
    assert isolated.measure(Plan.of({"time": 60.0}), 10).time == 60.0


@pytest.mark.parametrize(
    ("does", "reason"),
    [("refuse", "not compiled: error[T0401]"), ("change bits", "its bits differ from the safe plan's")],
)
def test_a_plan_that_may_not_be_leaves_the_child_alone(isolated: Isolated, does: str, reason: str) -> None:
    before = isolated.restarts
    assert isolated.measure(Plan.of({"does": does}), 10).reason.startswith(reason)
    assert isolated.restarts == before


def test_plans_are_compiled_in_parallel_and_once(tmp_path: Path) -> None:
    plans = [Plan.of({"n": n, "seconds": 0.3}) for n in range(4)]
    with Isolated(Job(BUILDER, (str(tmp_path),)), workers=2, timeout=5.0) as measurer:
        assert measurer.prepare(plans[:2]) == {}
        start = time.monotonic()
        assert measurer.prepare(plans) == {}
        assert time.monotonic() - start < 0.55, "two of them at a time, and the first two not again"
    workers = {Path(tmp_path, plan.digest).read_text(encoding="utf-8") for plan in plans}
    assert len(workers) == 2
    assert str(os.getpid()) not in workers


def test_compiling_that_crashes_hangs_or_is_refused_gives_the_reason(tmp_path: Path) -> None:
    crash, hang = (Plan.of({"prepare": what}) for what in ("exit", "hang"))
    refuse, good = Plan.of({"does": "refuse"}), Plan.of({"n": 1})
    with Isolated(Job(BUILDER, (str(tmp_path),)), workers=2, timeout=0.5, start_timeout=5.0) as measurer:
        measurer.prepare([Plan.of({"n": 8}), Plan.of({"n": 9})])  # children are there, so their time-out is a plan's
        found = measurer.prepare([crash, hang, refuse, good])
    assert found[crash] == "not compiled: crashed: exit status 5"
    assert found[hang] == "not compiled: it did not end in time"
    assert found[refuse].startswith("not compiled: error[T0401]")
    assert good not in found
    assert Path(tmp_path, good.digest).exists()


def test_no_compilation_begins_after_the_time(tmp_path: Path) -> None:
    plans = [Plan.of({"n": n, "seconds": 0.3}) for n in range(8)]
    with Isolated(Job(BUILDER, (str(tmp_path),)), workers=1, timeout=5.0) as measurer:
        measurer.prepare(plans[:1])
        assert measurer.prepare(plans, seconds=0.4) == {}
    assert len(list(tmp_path.iterdir())) == 3


def test_parts_share_children_and_each_has_its_safe_plan() -> None:
    with Isolated(Job("tests.tuner.search.jobs:build_parts"), workers=1, timeout=5.0) as measurer:
        assert [measurer.bits_of(part) for part in ("a", "b")] == ["a same", "b same"]
        trial = measurer.measure(Plan.of({"time": 50.0}), 10, "a")
        assert (trial.time, trial.bits) == (50.0, "a same")
        assert measurer.measure(Plan.of({"does": "crash"}), 10, "b").reason == "crashed: SIGSEGV"
        assert measurer.measure(Plan.of({"time": 70.0}), 10, "b").bits == "b same", "the new child is about that part"
        assert measurer.restarts == 1


def test_a_plan_with_the_code_of_another_is_not_measured() -> None:
    safe, one, same, other = (Plan.of({"code": code, "n": n}) for n, code in enumerate((0, 1, 1, 2)))
    with Isolated(Job("tests.tuner.search.jobs:build_parts"), workers=1, timeout=5.0) as measurer:
        assert measurer.prepare([Plan(), safe, one, same, other], part="a") == {}
        reasons = {plan: measurer.measure(plan, 3, "a").reason for plan in (safe, same, one, other, same)}
    assert reasons == {safe: "the same code as the safe plan", same: "", one: f"the same code as {same}", other: ""}


def test_a_plan_that_hangs_is_told_by_the_time_of_the_safe_plan() -> None:
    with Isolated(Job(BUILDER), workers=1, timeout=60.0) as measurer:
        measurer.measure(Plan.of({"time": 60.0}), 10)
        start = time.monotonic()
        assert measurer.measure(Plan.of({"does": "hang"}), 10).reason == "it did not end in time"
        assert time.monotonic() - start < LOADING + 5.0
        start = time.monotonic()
        assert measurer.measure(Plan.of({"does": "hang"}), 10, timeout=0.5).reason == "it did not end in time"
        assert time.monotonic() - start < LOADING


def test_a_compilation_ends_with_the_time_it_has() -> None:
    with Isolated(Job(BUILDER), workers=1, timeout=60.0) as measurer:
        measurer.prepare([Plan.of({"n": 1})])
        start, hang = time.monotonic(), Plan.of({"prepare": "hang"})
        assert measurer.prepare([hang], seconds=0.5) == {hang: "not compiled: it did not end in time"}
        assert time.monotonic() - start < 10.0


def test_a_child_is_what_linux_ends_where_memory_is_used_up() -> None:
    with Isolated(Job(BUILDER), workers=1) as measurer:
        measurer.measure(Plan(), 1)
        child: Any = getattr(measurer, "_measuring")  # noqa: B009 - the process that measures
        assert Path(f"/proc/{child.process.pid}/oom_score_adj").read_text().strip() == "1000"


def test_a_whole_search_survives_its_worst_plans() -> None:
    broken = [Plan.of({"does": does}) for does in ("crash", "exit", "break the device", "change bits")]
    good = [Plan.of({"time": 100.0 - n}) for n in range(5)]
    with Isolated(Job(BUILDER), workers=1, timeout=5.0) as measurer:
        outcome = search(Space.of([*broken, *good]), measurer, mode="exhaustive")
    assert outcome.best is not None
    assert outcome.best.plan == good[-1]
    assert {trial.plan: bool(trial.reason) for trial in outcome.trials} == {
        **dict.fromkeys(broken, True),
        **dict.fromkeys(good, False),
    }


def test_a_workload_that_cannot_be_built_is_an_error_with_what_it_said() -> None:
    with (
        Isolated(Job("tests.tuner.search.jobs:build_nothing"), workers=1) as measurer,
        pytest.raises(SearchError, match=r"the safe plan cannot be measured: error.T0720"),
    ):
        measurer.measure(Plan(), 10)


def test_jobs_that_cannot_be_sent_are_refused() -> None:
    with pytest.raises(SearchError, match="cannot be sent to another process"):
        Isolated(Job(BUILDER, (lambda: 1,)))
    with pytest.raises(SearchError, match="names no function"):
        Isolated(Job("tests.tuner.search.jobs"))


def test_a_builder_of_a_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text("from tests.tuner.search.jobs import build\n", encoding="utf-8")
    with Isolated(Job(f"{file}:build"), workers=1) as measurer:
        assert measurer.measure(Plan.of({"time": 7.0}), 10).time == 7.0


def test_a_script_without_a_guard_tunes_and_an_interrupt_keeps_the_best(tmp_path: Path) -> None:
    """The script's children never run it, and Ctrl-C, which goes to all of a terminal's processes, is the search's."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""
from tessera.tuner.records import Plan
from tessera.tuner.runner import LOADING, Isolated, Job
from tessera.tuner.search import Space, search

plans = [Plan.of({{"time": 100.0 - n}}) for n in range(3)] + [Plan.of({{"does": "hang"}})]
with Isolated(Job("{BUILDER}"), workers=1, timeout=60.0) as measurer:
    tell = lambda progress: print("done", progress.done, flush=True)
    outcome = search(Space.of(plans), measurer, mode="exhaustive", progress=tell)
print(outcome.stopped, outcome.best.plan)
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines == ["done 1\n", "done 2\n", "done 3\n"]
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.read() == "interrupted time = 98.0\n"
    process.stdout.close()
    assert process.wait() == 0
