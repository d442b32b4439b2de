"""Algorithms of collectives as candidates: measured on ranks, chosen by size, kept, used, and never a bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tessera as ts
from tessera.api import collective_tuning, stored_plans
from tessera.api.collective_tuning import KNOB, bound_rows, choose, join_ranks, stored_table
from tessera.diagnostics.codes import TuningError
from tessera.runtime.ranks import processes
from tessera.runtime.ranks.algorithms import ALGORITHMS, DIRECT, RING, TREE
from tessera.tuner.acceptance import Criteria
from tessera.tuner.database import default_database
from tessera.tuner.records import Plan
from tests.tuner.rank_programs import reduce_here


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


MICROSECONDS = {
    64: {DIRECT: 100.0, RING: 150.0, TREE: 60.0},
    1 << 14: {DIRECT: 100.0, RING: 90.0, TREE: 98.0},
    1 << 22: {DIRECT: 1000.0, RING: 1100.0, TREE: 2000.0},
}
"""Made-up times by size: a tree is best for few bytes, a ring for some, and direct exchange for many."""


def synthetic(noise: float = 0.0) -> Any:
    """What a rank measures by those times, in ten rounds."""

    def measure(cases: Any, budget: float) -> Any:
        del budget
        found: Any = {}
        for call, size in cases:
            table = MICROSECONDS[size]
            rounds = {
                name: [table[name] * (1 + noise * ((at * 7) % 10 - 4.5)) for at in range(10)]
                for name in ALGORITHMS[call]
            }
            found[call, size] = rounds, dict.fromkeys(ALGORITHMS[call], "c0ffee")
        return found

    return measure


def launch_of(measure: Any) -> Any:
    """In the place of `launch`: ranks that take longer, each than the one before it."""

    def launch(task: Any, ranks: int, **_: Any) -> list[Any]:
        found = [measure(*task["args"]) for _ in range(ranks)]
        for at, one in enumerate(found):
            for times, _ in one.values():
                for name in times:
                    times[name] = [time * (1 + 0.01 * at) for time in times[name]]
        return found

    return launch


def test_each_size_has_the_algorithm_that_was_fastest_and_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "launch", launch_of(synthetic()))
    found = ts.autotune.collectives(4, sizes=tuple(MICROSECONDS), calls=("all_gather",))
    assert [one.algorithm for one in found.choices] == [TREE, RING, DIRECT]
    assert found.source == "measured"
    assert "tree" in str(found)
    monkeypatch.setattr(processes, "launch", None)
    again = ts.autotune.collectives(4, sizes=tuple(MICROSECONDS), calls=("all_gather",))
    assert again.source == "database", "a second time nothing is measured"
    assert [one.algorithm for one in again.choices] == [TREE, RING, DIRECT]
    table = stored_table(4)
    sizes = (1, 64, 1024, 1025, 1 << 14, 1 << 18, (1 << 18) + 1, 1 << 30)
    assert [table.choose("all_gather", 4, size) for size in sizes] == [*[TREE] * 3, *[RING] * 3, *[DIRECT] * 2]
    assert stored_table(2).choose("all_gather", 2, 64) == DIRECT, "another world is measured by itself"


@pytest.mark.parametrize(("gain", "noise", "chosen"), [(1.06, 0.0, DIRECT), (1.08, 0.0, RING), (1.08, 0.05, DIRECT)])
def test_the_rule_of_plans_is_that_of_algorithms(gain: float, noise: float, chosen: str) -> None:
    rounds = [gain * (1 + noise * ((at * 7) % 10 - 4.5)) for at in range(10)]
    times = {DIRECT: [100.0 * ratio for ratio in rounds], RING: [100.0] * 10}
    bits = {DIRECT: "a", RING: "a"}
    assert choose("all_to_all", 4, 64, times, "a", bits, Criteria()).algorithm == chosen


def test_an_algorithm_with_other_bytes_is_never_chosen() -> None:
    times = {DIRECT: [100.0] * 10, RING: [10.0] * 10}
    found = choose("all_to_all", 4, 64, times, "a", {DIRECT: "a", RING: "b"}, Criteria())
    assert found.algorithm == DIRECT
    assert "bit for bit" in found.reason


def test_a_round_takes_as_long_as_its_slowest_rank() -> None:
    case = ("all_to_all", 64)
    ranks: Any = [
        {case: ({DIRECT: [1.0, 5.0], RING: [2.0, 2.0]}, {DIRECT: "a", RING: "a"})},
        {case: ({DIRECT: [3.0, 1.0], RING: [1.0, 4.0]}, {DIRECT: "b", RING: "b"})},
    ]
    times, safe, bits = join_ranks(ranks)[case]
    assert times == {DIRECT: [3.0, 5.0], RING: [2.0, 4.0]}
    assert safe == bits[RING] == "ab"


def test_ranks_measure_and_others_use_what_they_found() -> None:
    found = ts.autotune.collectives(3, sizes=(256, 1 << 16), budget=60.0)
    assert {(one.call, one.bytes) for one in found.choices} == {
        (call, size) for call in ALGORITHMS for size in (256, 1 << 16)
    }
    for one in found.choices:
        assert {trial.plan.overrides[KNOB] for trial in one.trials} == set(ALGORITHMS[one.call]) - {DIRECT}
        assert all(len(trial.samples) >= 10 for trial in one.trials)
        assert len({trial.bits for trial in one.trials}) == 1
    assert ts.autotune.collectives(3, sizes=(256, 1 << 16)).source == "database"


def test_no_algorithm_changes_a_bit_of_a_reduction() -> None:
    expected: list[Any] = ts.dist.run(reduce_here, ranks=4, args=(8,))
    assert not [name for _, names in expected for name in names if " by " in name]
    for algorithm in (RING, TREE):
        for call, known in ALGORITHMS.items():
            if algorithm in known:
                signature = collective_tuning.signature_of(4, call, 64)
                default_database().store(signature, Plan.of({KNOB: algorithm}))
        found: list[Any] = ts.dist.run(reduce_here, ranks=4, args=(8,))
        assert [bits for bits, _ in found] == [bits for bits, _ in expected]
        assert any(f" by {algorithm}" in name for _, names in found for name in names)


def test_the_budget_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ts.autotune.collectives(2, sizes=(64, 128), budget=0.001)
    assert found.stopped == "budget"
    assert not found.choices
    assert stored_table(2).choose("all_gather", 2, 64) == DIRECT


def test_what_this_version_does_not_have_is_not_taken() -> None:
    default_database().store(collective_tuning.signature_of(4, "all_gather", 64), Plan.of({KNOB: "butterfly"}))
    assert stored_table(4).choose("all_gather", 4, 64) == DIRECT


def test_bounds_are_halfway_by_ratio() -> None:
    assert bound_rows([]) == []
    assert bound_rows([(1 << 20, DIRECT), (1 << 10, TREE)]) == [(1 << 15, TREE), (1 << 20, DIRECT)]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ranks": 1}, "`ranks` is a number from 2 to 64, got 1"),
        ({"ranks": 4, "sizes": (0,)}, "`sizes` are bytes, each more than 0"),
        ({"ranks": 4, "calls": ("all_reduce",)}, "`calls` are of all_gather, all_to_all, got 'all_reduce'"),
        ({"ranks": 4, "budget": 0}, "`budget` is a number of seconds"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(TuningError, match=text):
        ts.autotune.collectives(**settings)
