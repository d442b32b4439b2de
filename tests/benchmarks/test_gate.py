"""The gate on speed: a fifth more time turns it red, noise and unlucky processes do not."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from benchmarks import gate
from benchmarks.commits import ROOT, ROWS
from benchmarks.gate import Slowdown, check

Noise = Callable[[random.Random], float]


def bell(rng: random.Random) -> float:
    """Times that differ by a tenth: twice what an idle machine shows."""
    return max(0.5, rng.gauss(1.0, 0.1))


def bursts(rng: random.Random) -> float:
    """Neighbours that come in on one run of five, and double it."""
    return rng.uniform(0.98, 1.02) * (2.0 if rng.random() < 0.2 else 1.0)


def drift(rng: random.Random) -> float:
    """Long tails."""
    return 1.0 + rng.expovariate(12.0)


class Timed:
    """A checkout whose times are drawn; `slower` is how many times as long it takes."""

    def __init__(self, seed: str, noise: Noise, slower: float = 1.0) -> None:
        self.rng, self.noise, self.slower = random.Random(seed), noise, slower

    def ask(self, **question: Any) -> Any:
        if "calls" not in question:
            return {"hash": "5afe", "seconds": 1.0}
        return self.slower * self.noise(self.rng)


def fails(slower: float, noise: Noise, seed: int, unlucky: float = 1.0) -> bool:
    """Whether the gate is red; the first process of this checkout is `unlucky` by a factor."""
    started = count()

    def start() -> tuple[Timed, Timed]:
        number = next(started)
        factor = slower * (unlucky if number == 0 else 1.0)
        return Timed(f"{seed} {number} this", noise, factor), Timed(f"{seed} {number} other", noise)

    return bool(check(["row"], start, gate.ROUNDS, gate.ALLOWED, lambda line: None))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on(seconds: float) -> None:
        del seconds

    monkeypatch.setattr("time.sleep", go_on)


@pytest.mark.parametrize("noise", [bell, bursts, drift])
def test_a_fifth_more_time_is_red_and_noise_is_not(noise: Noise) -> None:
    assert sum(fails(1.2, noise, seed) for seed in range(100)) >= 99
    assert not any(fails(1.0, noise, seed) for seed in range(300))
    assert not any(fails(0.8, noise, seed) for seed in range(20)), "what became faster is no fault"


def test_a_process_that_is_slow_from_begin_to_end_is_asked_again() -> None:
    assert not any(fails(1.0, bell, seed, unlucky=1.3) for seed in range(50))


def test_few_rounds_decide_nothing() -> None:
    assert not Slowdown.of([(2.0, 1.0)] * 5).is_slow(0.1)
    assert Slowdown.of([(2.0, 1.0)] * 20).is_slow(0.1)


def test_a_delay_on_purpose_turns_the_gate_red() -> None:
    command = [sys.executable, "-m", "benchmarks.gate", str(ROOT), "--only", "call 4", "--rounds", "4"]
    done = subprocess.run([*command, "--delay", "9"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"slower than {ROOT}: call 4"


def test_a_row_that_there_is_not_is_named_with_those_there_are() -> None:
    command = [sys.executable, "-m", "benchmarks.gate", str(ROOT), "--only", "matmul"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "there is no row 'matmul'" in done.stderr
    assert next(iter(ROWS["cpu"])) in done.stderr
