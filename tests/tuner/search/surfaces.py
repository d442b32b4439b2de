"""Surfaces that tests search: times that are known for every plan, and a measurer that gives them with noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.tuner.cost_model import Prediction
from tessera.tuner.records import Plan, Trial
from tessera.tuner.search import Space

AXES: dict[str, tuple[Any, ...]] = {
    "block.m": (64, 128, 192, 256),
    "block.n": (64, 128, 192, 256),
    "block.k": (32, 64, 128),
    "stages": (2, 3, 4),
    "order": ("rows", "columns"),
}
SPACE = Space.product(AXES)
PLANS = SPACE.plans(random.Random(0))
Surface = Callable[[Plan], float]


def surface(seed: int) -> Surface:
    """A time for each plan: the further a knob from its best value, the longer, and two knobs together beside."""
    rng = random.Random(seed)
    best = {name: rng.choice(values) for name, values in AXES.items()}
    weights = {name: rng.uniform(0.05, 0.5) for name in AXES}
    joint = rng.uniform(0.0, 0.3)

    def time(plan: Plan) -> float:
        chosen = plan.overrides
        away = {
            name: float(chosen[name] != best[name])
            if isinstance(best[name], str)
            else abs(math.log(chosen[name] / best[name]))
            for name in AXES
        }
        area = chosen["block.m"] * chosen["block.n"] / best["block.m"] / best["block.n"]
        return 50.0 * math.exp(sum(weights[name] * away[name] for name in AXES) + joint * abs(math.log(area)))

    return time


def model_of(time: Surface, seed: int, error: float = 0.2) -> Callable[[Plan], Prediction]:
    """A model of a surface that is off by a factor, by a power, and by an error of its own for each plan."""
    rng = random.Random(seed)
    errors = {plan: rng.gauss(0.0, error) for plan in PLANS}
    return lambda plan: Prediction.of(3.0 * time(plan) ** 0.8 * math.exp(errors[plan]))


class Synthetic:
    """Measures a surface: times with noise, reasons of plans that fail, and what was asked."""

    def __init__(self, time: Surface, *, noise: float = 0.01, seed: int = 0) -> None:
        self.time, self.noise, self.rng = time, noise, random.Random(seed)
        self.measured: list[tuple[Plan, int]] = []
        self.prepared: list[Plan] = []
        self.reasons: dict[Plan, str] = {}
        self.before: Callable[[], None] = lambda: None

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        self.prepared += plans
        return {plan: reason for plan, reason in self.reasons.items() if plan in plans}

    def measure(self, plan: Plan, rounds: int) -> Trial:
        self.before()
        self.measured.append((plan, rounds))
        own, safe = self.time(plan), 100.0
        factors = [math.exp(self.rng.gauss(0.0, self.noise)) for _ in range(2 * rounds)]
        samples = tuple(own * factor for factor in factors[:rounds])
        return Trial(plan, samples, tuple(safe * factor for factor in factors[rounds:]), bits="same")
