"""The passes of the schedule stage, in order, each with the reason for its position, and its exit verifier."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.compilation import Chooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import Legality
from tessera.ir.schedule.costs import read_charge
from tessera.ir.schedule.emit.request import KernelLibrary
from tessera.ir.schedule.passes.annotate_costs import AnnotateCosts
from tessera.ir.schedule.passes.branch_on_rows import BranchOnRows
from tessera.ir.schedule.passes.check_effects import CheckEffects
from tessera.ir.schedule.passes.check_policy import CheckPolicy
from tessera.ir.schedule.passes.choose_layouts import ChooseLayouts
from tessera.ir.schedule.passes.choose_tiles import ChooseTiles
from tessera.ir.schedule.passes.deduplicate import Deduplicate
from tessera.ir.schedule.passes.emit_tiles import EmitTiles
from tessera.ir.schedule.passes.form_groups import FormGroups
from tessera.ir.schedule.passes.merge_launches import MergeLaunches
from tessera.ir.schedule.passes.offload_values import OffloadValues
from tessera.ir.schedule.passes.overlap_collectives import OverlapCollectives
from tessera.ir.schedule.passes.place_buffers import PlaceBuffers
from tessera.ir.schedule.passes.plan_memory import PlanMemory
from tessera.ir.schedule.passes.read_plan import Patterns, ReadPlan
from tessera.ir.schedule.passes.update_in_place import UpdateInPlace
from tessera.ir.schedule.passes.watch_positions import WatchPositions
from tessera.ir.schedule.typed_ops import AllocOp, FuseOp, TileOp
from tessera.types.machine import Machine


def _problem(op: SpecOp) -> str | None:
    if isinstance(op, FuseOp):
        return "it is not yet a call of kernels"
    if isinstance(op, TileOp) and op.chosen is not None and not op.source:
        return "the choice does not say who made it"
    if isinstance(op, AllocOp) and op.output < 0 and op.offset is None:
        return "its buffer has no offset in the workspace"
    if op.name.startswith("tsched.") and read_charge(op) is None:
        return "nothing says what it costs: `flops`, `bytes` and `time`"
    return None


EXIT = Legality("schedule", frozenset(["tsched", "ttile"]), _problem)
"""No op of Graph IR leaves: what it meant is in the kernels and in the host program, and every choice has a source."""


def until_layouts(passes: Sequence[Pass]) -> Sequence[Pass]:
    """The passes of the stage up to the one that chooses layouts."""
    return passes[: 1 + next(at for at, one in enumerate(passes) if isinstance(one, ChooseLayouts))]


def _without_layouts(groups: Sequence[Pass]) -> Sequence[Pass]:
    """The passes that form the groups which a plan is compared with: orders of dims are the plan's alone."""
    return tuple(one for one in groups if not isinstance(one, ChooseLayouts))


def pipeline(
    machine: Machine,
    chooser: Chooser,
    library: KernelLibrary,
    *,
    fusion: bool = True,
    debug: bool = False,
    memory: int = -1,
    plan: str = "",
    patterns: Patterns | None = None,
) -> Sequence[Pass]:
    """From a simplified graph to kernels and the program that runs them; values are offloaded to fit into `memory`.

    With a `plan`, groups, their order and what is chosen for them are those of its text; `patterns` are what a group of
    it may ask to be computed as.
    """
    groups: tuple[Pass, ...] = (
        # First: all that follows is done for each group.
        FormGroups(fusion, chooser, machine),
        # While each group has its own readers, and before equal ones share a body: with and without a copy they differ.
        UpdateInPlace(machine),
        # Before anything is chosen or emitted: a model of twelve equal layers then has the kernels of one.
        Deduplicate(),
        # Once bodies have names that come of their content, and before launches are merged: conversions may be.
        ChooseLayouts(machine, chooser),
        # Of bodies that are known by name, and before tiles are chosen for them: a body of any shape is another one.
        MergeLaunches(),
        # Once bodies are shared and merged, so that each is asked about once, and before its tiles are chosen.
        BranchOnRows(machine, chooser),
    )
    return (
        # What all of them do is in the text of a plan already.
        *((ReadPlan(plan, _without_layouts(groups), machine, patterns or {}),) if plan else groups),
        # After it, so that groups of one body get one answer.
        ChooseTiles(machine, chooser),
        # With the sizes chosen, loops and accesses can be written; Graph IR ends here.
        EmitTiles(machine, chooser, library),
        # While SSA values are the only dependencies, and before buffers, whose reuse would add more. A plan has one.
        *(() if plan else (OverlapCollectives(chooser),)),
        # In the final order of groups, which says how long values wait, and before buffers: what is offloaded has two.
        OffloadValues(memory, machine),
        # Once kernels are known by name and arguments, calls can be.
        PlaceBuffers(),
        # With the calls there, and before offsets are planned: index checks have buffers too.
        WatchPositions(every=debug),
        # The order of all calls is fixed now, and with it the lifetimes of buffers.
        PlanMemory(),
        # Once no op is added any more: what a loop and the program cost is the sum of all that is in them.
        AnnotateCosts(machine),
        # Last: what the program declares must hold of its host program and kernels.
        CheckEffects(),
        CheckPolicy(),
    )
