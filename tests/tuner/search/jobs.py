"""Workloads that tests of the runner build in children: they run, raise, crash and hang as their plan says."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tessera.diagnostics.codes import DeviceError, ScheduleError
from tessera.tuner.records import Plan


class Timed:
    """A compiled plan that takes as long as its plan says."""

    def __init__(self, plan: Plan) -> None:
        self.does = plan.overrides.get("does", "run")
        self.time = float(plan.overrides.get("time", 100.0))

    def run(self) -> float:
        if self.does == "hang":
            time.sleep(60)
        if self.does == "exit":
            os._exit(3)
        if self.does == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.does == "break the device":
            raise DeviceError("`cuStreamSynchronize` failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
        if self.does == "raise":
            raise ZeroDivisionError("a bug of ours")
        return self.time

    def bits(self) -> str:
        return "other" if self.does == "change bits" else "same"

    def close(self) -> None:
        pass


class Example:
    """A workload of such plans, which leaves a file for each plan that it prepared, with its process."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder

    def compile(self, plan: Plan) -> Timed:
        if plan.overrides.get("does") == "refuse":
            raise ScheduleError("the tile takes 300000 bytes of shared memory, there are 232448")
        return Timed(plan)

    def prepare(self, plan: Plan) -> str | None:
        if plan.overrides.get("prepare") == "exit":
            os._exit(5)
        if plan.overrides.get("prepare") == "hang":
            time.sleep(60)
        time.sleep(float(plan.overrides.get("seconds", 0.0)))
        self.compile(plan)
        if self.folder:
            Path(self.folder, plan.digest).write_text(str(os.getpid()), encoding="utf-8")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class Parts:
    """A job of several parts, each with a safe plan and bits of its own; some of their plans have the same code."""

    def part(self, name: str) -> PartOfJob:
        return PartOfJob(name)


class PartOfJob(Example):
    """One of them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def compile(self, plan: Plan) -> Timed:
        made = super().compile(plan)
        made.bits = lambda: f"{self.name} same"  # pyright: ignore[reportAttributeAccessIssue]
        return made

    def prepare(self, plan: Plan) -> str:
        super().prepare(plan)
        return f"code {plan.overrides.get('code', 0)}"


def build_parts() -> Parts:
    """What a child of several parts builds."""
    return Parts()


def build(folder: str = "") -> Example:
    """What a child builds."""
    return Example(folder)


def build_nothing() -> Example:
    """A builder that fails."""
    raise DeviceError("there is no CUDA driver here")
