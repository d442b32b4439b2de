"""Rings of a kernel for matrix units with what they became in Target IR."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import SSAValue

from tessera.ir.tile.matrix.plan import Plan
from tessera.ir.tile.matrix.rings import Ring
from tessera.ir.tile.matrix.rings import rings_of as tile_rings


@dataclass
class RingPlan(Ring):
    """A ring with what it became."""

    stages: int
    tiles: list[SSAValue] = field(default_factory=list[SSAValue])
    ring: SSAValue | None = None


def rings_of(plan: Plan) -> list[RingPlan]:
    """The rings of a kernel, in the order in which products wait for them, with the stages that it says."""
    return [RingPlan(ring.block, ring.loads, ring.last, ring.written) for ring in tile_rings(plan)]
