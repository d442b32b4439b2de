"""Programs as children of the tuner have them, with plans that crash, hang, take all memory or cannot be compiled."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Mapping
from typing import Any

from tessera.api.workload import Part, PartWorkload, ProgramParts, RunnableProgram
from tessera.compiler.options import Options
from tessera.tuner.records import Plan

CRASHES, HANGS, EATS, FAILS = 256, 64, 32, 16
"""Columns of a tile that are broken here."""


class BrokenWorkload(PartWorkload):
    """A program that does what the tile of its plan says."""

    def prepare(self, plan: Plan) -> str:
        if FAILS in plan.overrides.values():
            ctypes.string_at(0)
        return super().prepare(plan)

    def compile(self, plan: Plan) -> RunnableProgram:
        made = super().compile(plan)
        chosen = set(plan.overrides.values())
        if CRASHES in chosen:
            made.run = lambda: float(len(ctypes.string_at(0)))  # pyright: ignore[reportAttributeAccessIssue]
        if HANGS in chosen:
            made.bits = _hang  # pyright: ignore[reportAttributeAccessIssue]
        if EATS in chosen:
            made.run = _eat  # pyright: ignore[reportAttributeAccessIssue]
        return made


def _hang() -> str:
    while True:
        pass


def _eat() -> float:
    """Ask for more memory than there may be; without the limit Linux would end the child."""
    limit = 64 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return float(len(bytearray(limit)))


class BrokenParts(ProgramParts):
    """All programs of a tuning, broken so."""

    def __init__(self, parts: Mapping[str, Part], options: str) -> None:
        super().__init__(parts, options)
        self._given: Any = parts
        self._under = Options.parse(options)

    def part(self, name: str) -> PartWorkload:
        return BrokenWorkload(self._given[name], self._under)


def build(parts: Mapping[str, Part], options: str) -> BrokenParts:
    """What a child builds in the place of the real one."""
    return BrokenParts(parts, options)
