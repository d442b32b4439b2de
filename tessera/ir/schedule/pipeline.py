"""The passes of the schedule room, in order, each with the reason for its place, and its last door."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.choice import Chooser
from tessera.ir.base.legality import Legality
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.schedule.emit.request import KernelLibrary
from tessera.ir.schedule.passes.check_effects import CheckEffects
from tessera.ir.schedule.passes.check_policy import CheckPolicy
from tessera.ir.schedule.passes.choose_tiles import ChooseTiles
from tessera.ir.schedule.passes.deduplicate import Deduplicate
from tessera.ir.schedule.passes.emit_tiles import EmitTiles
from tessera.ir.schedule.passes.form_groups import FormGroups
from tessera.ir.schedule.passes.overlap_collectives import OverlapCollectives
from tessera.ir.schedule.passes.place_buffers import PlaceBuffers
from tessera.ir.schedule.passes.plan_memory import PlanMemory
from tessera.ir.schedule.passes.update_in_place import UpdateInPlace
from tessera.ir.schedule.passes.watch_positions import WatchPositions
from tessera.types.machine import Machine


def _refusal(op: SpecOp) -> str | None:
    if op.name == "tsched.fuse":
        return "it is not yet a call of kernels"
    if op.name == "tsched.tile" and op.value("chosen") is not None and not op.value("source"):
        return "nobody is named as the source of the choice"
    if op.name == "tsched.alloc" and op.value("output") < 0 and op.value("offset") is None:
        return "its buffer has no place in the workspace"
    return None


DOOR = Legality("schedule", frozenset(["tsched", "ttile"]), _refusal)
"""No op of Graph IR leaves: what it meant is in the kernels and in the host program, and every choice has a source."""


def pipeline(
    machine: Machine, chooser: Chooser, library: KernelLibrary, *, fusion: bool = True, debug: bool = False
) -> Sequence[Pass]:
    """From a simplified graph to kernels and the program that runs them."""
    return (
        # First: all that follows is done for each group.
        FormGroups(fusion, chooser, machine),
        # While groups are told apart by who reads them, and before equal ones are one: a copy and none are not equal.
        UpdateInPlace(),
        # Before anything is chosen or emitted: a model of twelve equal layers has the kernels of one.
        Deduplicate(),
        # After it, so that groups of one body get one answer.
        ChooseTiles(machine, chooser),
        # With the sizes chosen, loops and accesses can be written; Graph IR ends here.
        EmitTiles(machine, chooser, library),
        # While values say who needs whom, and before they have memory, which would hold ops to an order.
        OverlapCollectives(chooser),
        # Once kernels are known by name and arguments, calls can be.
        PlaceBuffers(),
        # With the calls there, and before their buffers have places: what looks at positions has buffers too.
        *([WatchPositions()] if debug else []),
        # The order of all calls is fixed now, and with it how long buffers live.
        PlanMemory(),
        # Last: what the program promised of itself must hold of what it has become.
        CheckEffects(),
        CheckPolicy(),
    )
