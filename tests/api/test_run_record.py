"""The record of a run: one root seed for all draws that have none of their own, and the same numbers from it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, RuntimeArgumentError
from tessera.runtime.run_record import RunRecord


def sample() -> list[Any]:
    """Draws of all kinds: outside `jit`, in a compiled program, and twice in one."""
    noisy = ts.jit(lambda x: x + ts.random.uniform(ts.random.key(), x.shape), backend="reference")  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType, reportUnknownArgumentType]
    x = np.zeros(4, np.float32)
    outside = np.asarray(ts.random.key())
    return [outside.tolist(), np.asarray(noisy(x)).tolist(), np.asarray(noisy(x)).tolist()]


def test_a_run_has_its_seed_on_record_and_can_be_repeated(tmp_path: Path) -> None:
    with ts.random.run() as record:
        first = sample()
    assert record.draws == 3
    record.save(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == record.seed
    with ts.random.run(RunRecord.load(tmp_path / "run.json")) as again:
        assert sample() == first
    assert (again.seed, again.draws) == (record.seed, record.draws)
    with ts.random.run(record.seed + 1):
        assert sample() != first


def test_draws_of_one_run_differ() -> None:
    with ts.random.run(3):
        first, second, third = sample()
        assert second != third
        assert sample() != [first, second, third]


def test_compiled_programs_draw_from_the_run_they_are_called_in() -> None:
    noisy = ts.jit(lambda x: ts.random.bits(ts.random.key(), x.shape))  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType, reportUnknownArgumentType]
    x = np.zeros(4, np.float32)
    drawn: list[Any] = []
    for seed in (5, 5, 6):
        with ts.random.run(seed):
            drawn.append(np.asarray(noisy(x)).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_runs_inside_one_another() -> None:
    with ts.random.run(1) as outer:
        ts.random.key()
        with ts.random.run(2) as inner:
            ts.random.key()
            assert ts.random.record() is inner
        assert ts.random.record() is outer
    assert (outer.draws, inner.draws) == (1, 1)


def test_code_outside_draws_from_the_run_of_the_process() -> None:
    record = ts.random.record()
    before = record.draws
    first, second = np.asarray(ts.random.key()).tolist(), np.asarray(ts.random.key()).tolist()
    assert first != second
    assert first[0] == second[0] == record.seed
    assert record.draws == before + 2


def test_keys_of_a_run_are_none_of_those_of_its_seed() -> None:
    with ts.random.run(7):
        drawn = np.asarray(ts.random.key()).tolist()
    assert drawn != np.asarray(ts.random.key(7)).tolist()


@pytest.mark.parametrize("seed", [1.5, "text", True])
def test_a_seed_is_an_int(seed: Any) -> None:
    with pytest.raises(ArgumentError, match="`run` takes `seed` as an int"):
        ts.random.run(seed)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"seed": "x", "draws": 0, "version": ""}'])
def test_a_text_that_is_no_record(text: str) -> None:
    with pytest.raises(RuntimeArgumentError, match="no record of a run"):
        RunRecord.from_json(text)
