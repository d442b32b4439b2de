"""Clocks for the process that measures online: what a program takes comes of its plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tessera.api import workload

FASTER = (32, 64, 64)
"""The block that `likes_blocks` finds fast."""


def likes_blocks() -> None:
    """One block saves 30 % of the time of a program."""
    _set_clock(lambda choices: 70_000.0 if FASTER in choices else 100_000.0)


def likes_little() -> None:
    """One block saves 5 %, which is less than the threshold."""
    _set_clock(lambda choices: 95_000.0 if FASTER in choices else 100_000.0)


def _set_clock(times: Callable[[list[Any]], float]) -> None:
    rng = random.Random(0)

    def run(self: workload.RunnableProgram) -> float:
        return times([value for _, value in self.options.tuned]) * rng.uniform(0.998, 1.002)

    def code(self: workload.RunnableProgram) -> str:
        return repr(self.options.tuned)

    workload.RunnableProgram.run = run
    workload.RunnableProgram.code = property(code)  # pyright: ignore[reportAttributeAccessIssue]
