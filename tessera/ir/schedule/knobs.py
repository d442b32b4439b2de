"""The choices of a group: what may be chosen for each kind, and answers that were given before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.ir.base.choice import Choice, Chooser
from tessera.ir.schedule.emit.contraction_kernel import BLOCKS
from tessera.types.machine import Machine


def knobs_of(kind: str, machine: Machine) -> Sequence[tuple[str, Sequence[Any]]]:
    """The choices of a kind of group, each with its candidates in order of preference."""
    if kind == "contraction":
        return (("contraction.block", BLOCKS),)
    if kind == "map":
        return (("map.tile", tuple(times * machine.lanes for times in (2, 1, 4, 8))),)
    return ()


@dataclass
class Recorded:
    """Answers with what was chosen before; what was not is asked of `chooser`."""

    chooser: Chooser
    given: Mapping[str, Choice]
    asked: dict[str, tuple[Sequence[Any], Choice]] = field(default_factory=dict[str, tuple[Sequence[Any], Choice]])

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        knob = key.partition("@")[0]
        found = self.given.get(knob)
        if found is None or found.value not in tuple(candidates):
            found = self.chooser.choose(key, candidates, context)
        self.asked[key] = (candidates, found)
        return found
