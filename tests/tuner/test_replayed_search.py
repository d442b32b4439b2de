"""A search on a recorded trace asks for the same plans as it did on the device, and ends with the same winner."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import Space, search
from tessera.tuner.trace import Recorder, Replay, Trace, pick, read_trace, write_trace
from tests.tuner.samples import MATMUL, SAFE_BITS


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
