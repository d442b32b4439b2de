"""The choices of a group: what may be chosen for each kind, and answers that were given before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.ir.base.choice import Choice, Chooser
from tessera.ir.base.tape import Tape
from tessera.ir.schedule.emit.contraction_kernel import blocks_of, layout_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.map_kernel import map_tiles
from tessera.ir.tile.facets import Contraction
from tessera.types.dim import product
from tessera.types.machine import Machine
from tessera.types.policy import SILENT, Policy


def knobs_of(kind: str, machine: Machine) -> Sequence[tuple[str, Sequence[Any]]]:
    """The choices of a kind of group, each with its candidates in order of preference."""
    if kind == "contraction":
        # Only machines that copy ahead have buffers to count; 0 is as many as fit.
        ahead = (("pipeline.stages", (0, 2, 3, 4, 5, 6, 8, 1)),) if machine.has("tma") else ()
        return (("contraction.block", blocks_of(machine)), *ahead)
    if kind == "map":
        return (("map.tile", map_tiles(machine)),)
    return ()


def extents_of(body: Tape, policy: Policy = SILENT) -> dict[str, Any]:
    """What a contraction's choices depend on: its rows, columns and products summed, and what it multiplies."""
    for record in body.records:
        lower = spec_of(record).lower
        if isinstance(lower, Contraction):
            types = [body.types[operand] for operand in record.operands]
            maps = lower.maps(types, record.attributes)
            extents = {"m": product(maps.m), "n": product(maps.n), "k": product(maps.k)}
            return {**extents, "batch": product(maps.batch), **layout_of(body, record, maps, policy)}
    return {}


@dataclass
class Recorded:
    """Answers with what was chosen before; what was not is asked of `chooser`, and is then in `new`, by knob."""

    chooser: Chooser
    given: Mapping[str, Choice]
    new: dict[str, tuple[Sequence[Any], Choice]] = field(default_factory=dict[str, tuple[Sequence[Any], Choice]])

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        knob = key.partition("@")[0]
        found = self.given.get(knob)
        if found is None or found.value not in tuple(candidates):
            found = self.chooser.choose(key, candidates, context)
            self.new[knob] = (candidates, found)
        return found
