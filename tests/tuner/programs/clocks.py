"""A clock that a test sets: what a program takes comes of its plan, so that a busy machine decides nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tessera.api import workload

Times = Callable[[tuple[tuple[str, Any], ...]], float]


def set_clock(monkeypatch: pytest.MonkeyPatch, times: Times) -> None:
    """Let a run take the nanoseconds that `times` says of the choices of its program, give or take 2 in a thousand.

    Other choices count as other code, whatever the compiler makes of them.
    """
    rng = random.Random(0)

    def run(self: workload.RunnableProgram) -> float:
        monkeypatch.setattr(workload, "_runs", workload.measurements() + 1)
        choices = tuple((name, value) for name, value in self.options.tuned)
        return times(choices) * rng.uniform(0.998, 1.002)

    def code(self: workload.RunnableProgram) -> str:
        return repr(self.options.tuned)

    def why_in_process(_: Any) -> str:
        return "its clock is a test's"

    monkeypatch.setattr(workload, "why_in_process", why_in_process)
    monkeypatch.setattr(workload.RunnableProgram, "run", run)
    monkeypatch.setattr(workload.RunnableProgram, "code", property(code))
