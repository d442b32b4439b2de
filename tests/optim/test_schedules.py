"""Learning rate schedules against their formulas, as functions of numbers and of tensors of a program."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError
from tessera.optim.transforms import Schedule

STEPS = range(0, 130, 3)
EPSILON = float(np.finfo(np.float32).eps)


def cosine(start: float, end: float, steps: int, at: int) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(at / steps, 1.0)))


CASES: dict[str, tuple[Schedule, Callable[[int], float]]] = {
    "constant": (ts.optim.constant(0.3), lambda at: 0.3),
    "linear": (ts.optim.linear(0.3, 0.1, 50), lambda at: 0.3 + (0.1 - 0.3) * min(at / 50, 1)),
    "cosine": (ts.optim.cosine(0.3, 50, end=0.1), lambda at: cosine(0.3, 0.1, 50, at)),
    "warmup_cosine": (
        ts.optim.warmup_cosine(0.3, warmup=20, steps=100, start=0.01, end=0.1),
        lambda at: 0.01 + 0.29 * at / 20 if at < 20 else cosine(0.3, 0.1, 80, at - 20),
    ),
    "exponential": (
        ts.optim.exponential(0.3, decay=0.5, steps=10, end=0.01),
        lambda at: max(0.3 * 0.5 ** (at / 10), 0.01),
    ),
    "staircase": (
        ts.optim.exponential(0.3, decay=0.9, steps=10, staircase=True),
        lambda at: 0.3 * 0.9 ** (at // 10),
    ),
    "piecewise": (
        ts.optim.piecewise(0.3, {60: 0.5, 30: 0.1}),
        lambda at: 0.3 * (0.1 if at >= 30 else 1) * (0.5 if at >= 60 else 1),
    ),
    "join": (
        ts.optim.join([ts.optim.linear(0, 1, 30), ts.optim.constant(1), ts.optim.linear(1, 0, 30)], [30, 60]),
        lambda at: at / 30 if at < 30 else 1 if at < 60 else max(0, 1 - (at - 60) / 30),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_schedules_follow_their_formulas(name: str) -> None:
    schedule, formula = CASES[name]
    compiled = ts.jit(schedule)
    found = [float(compiled(ts.array(np.int32(step)))) for step in STEPS]
    # Some ten operations round, and the argument of an exponential, up to 13, as often.
    np.testing.assert_allclose(found, [formula(step) for step in STEPS], rtol=0, atol=13 * EPSILON)
    assert compiled.cache_info().misses == 1
    assert float(schedule(7)) == pytest.approx(float(compiled(ts.array(np.int32(7)))), abs=2e-7)


def test_wrong_schedules_are_refused() -> None:
    with pytest.raises(ArgumentError, match="`linear` takes `steps` as at least 1, got 0"):
        ts.optim.linear(1.0, 0.0, 0)
    with pytest.raises(ArgumentError, match="ends at step 10, and its warmup of 10 steps"):
        ts.optim.warmup_cosine(1.0, warmup=10, steps=10)
    with pytest.raises(ArgumentError, match="2 schedules with 1 rising boundaries"):
        ts.optim.join([ts.optim.constant(1.0), ts.optim.constant(1.0)], [3, 2])
    with pytest.raises(ArgumentError, match="`exponential` takes `decay`"):
        ts.optim.exponential(1.0, decay=0.0, steps=3)
