"""A search on a recorded trace asks for the same plans as it did on the device, and ends with the same winner."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tessera.tuner.cost_model import Prediction
from tessera.tuner.learned import Correction, correct, examples_of
from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import Space, search
from tessera.tuner.trace import Recorder, Replay, Trace, pick, read_trace, write_trace
from tests.tuner.samples import MATMUL, SAFE_BITS

ROOT = Path(__file__).parents[2]


class NoisyDevice:
    """A device whose times jitter: no two measurements of a plan are alike."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.asked: list[Plan] = []

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        return {plan: "too many registers" for plan in plans if plan.overrides["warps"] == 16}

    def measure(self, plan: Plan, rounds: int) -> Trial:
        self.asked.append(plan)
        choices = plan.overrides
        own = 1000.0 + abs(choices["tile"] - 96) * 3 + choices["warps"] * 5
        samples = tuple(own * self.draw.uniform(0.97, 1.1) for _ in range(rounds))
        baseline = tuple(1500.0 * self.draw.uniform(0.97, 1.1) for _ in range(rounds))
        return Trial(plan, samples, baseline, bits=SAFE_BITS if choices["tile"] != 96 else "0ther")


SPACE = Space.product({"tile": (32, 64, 96, 128, 256), "warps": (4, 8, 16)})


@pytest.mark.parametrize("mode", ["exhaustive", "random", "hyperband", "evolutionary", "hybrid"])
def test_a_replayed_search_has_the_same_winner(mode: str, tmp_path: Path) -> None:
    device = NoisyDevice(seed=3)
    recorder = Recorder(device)
    outcome = search(SPACE, recorder, mode=mode, seed=1)
    write_trace(tmp_path / "trace.json", Trace.of(MATMUL, recorder.trials, SAFE_BITS))
    trace = read_trace(tmp_path / "trace.json")
    decision = pick(trace)
    assert decision.accepted
    for _ in range(2):
        replay = Replay(trace)
        replayed = search(SPACE, replay, mode=mode, seed=1)
        assert replay.asked == device.asked, "the same questions in the same order"
        assert replayed.best == outcome.best, "with every sample"
        assert replayed.trials == outcome.trials
    assert decision.plan == pick(Trace.of(MATMUL, outcome.trials, SAFE_BITS)).plan


def predicted(plan: Plan) -> Prediction:
    """A model that has one knob wrong, which trials correct."""
    choices = plan.overrides
    time = 1000.0 + abs(choices["tile"] - 128) * 2 + choices["warps"] * 9
    return Prediction.of(time, {"tile": choices["tile"] / 256, "warps": choices["warps"] / 16})


def rank_on_replay(path: str) -> str:
    """All that a search asks and ranks where a trace answers: the learned model, predictions, questions, the winner."""
    trace = read_trace(path)
    learned = Correction.fit(examples_of(trace.trials))
    replay = Replay(trace)
    outcome = search(SPACE, replay, predict=predicted, correction=learned, seed=1, confirm=0)
    ranked = [(str(trial.plan), trial.predicted) for trial in outcome.trials]
    return repr((learned, [str(plan) for plan in replay.asked], ranked, outcome.best))


def test_the_cost_models_rank_the_same_on_every_replay(tmp_path: Path) -> None:
    """In this process and in others, whose hashes of strings differ: a recorded trace decides, to the last bit."""
    path = str(tmp_path / "trace.json")
    outcome = search(SPACE, NoisyDevice(seed=5), mode="exhaustive", predict=predicted, seed=1, confirm=0)
    write_trace(path, Trace.of(MATMUL, outcome.trials, SAFE_BITS))
    here = rank_on_replay(path)
    assert "Correction(center=0.0" not in here, "the model has learned something of the trace"
    assert rank_on_replay(path) == here
    script = f"from tests.tuner.test_replayed_search import rank_on_replay; print(rank_on_replay({path!r}))"
    for seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", script]
        there = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
        assert there.strip() == here


def test_a_correction_learned_from_a_trace_is_that_of_the_device(tmp_path: Path) -> None:
    """The trace has every number as it was: what is learned from it predicts as what was learned while measuring."""
    path = tmp_path / "trace.json"
    outcome = search(SPACE, NoisyDevice(seed=6), mode="exhaustive", predict=predicted, seed=1, confirm=0)
    write_trace(path, Trace.of(MATMUL, outcome.trials, SAFE_BITS))
    live, replayed = (Correction.fit(examples_of(one)) for one in (outcome.trials, read_trace(path).trials))
    plans = SPACE.plans(random.Random(0))
    times = [[correct(plan, predicted(plan), one).time for plan in plans] for one in (live, replayed)]
    assert times[0] == times[1]
    assert times[0] != [predicted(plan).time for plan in plans]
