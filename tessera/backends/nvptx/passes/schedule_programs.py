"""Say in what order the programs of a kernel on tensor cores run: which CTA takes which, and who shares copies."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.fit import kernels_on_units, refuse_choices
from tessera.backends.nvptx.mma.plan import read_plan
from tessera.backends.nvptx.mma.programs import (
    MULTICAST,
    even_rows,
    group_of,
    idle_of,
    is_longer_later,
    is_multicast_faster,
    is_uneven,
    multicast_problem,
)
from tessera.backends.nvptx.tensor_cores import DEFAULT, MMA_SYNC, TCGEN05, WGMMA, TensorCores, UnfitError, gpu_of
from tessera.ir.base.passes import Pass
from tessera.ir.tile.choices import DYNAMIC, ONCE, PERSISTENT, UNIFORM
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

_SCHEDULERS = {WGMMA.name: (PERSISTENT, DYNAMIC), TCGEN05.name: (PERSISTENT,), MMA_SYNC.name: (ONCE,)}
"""The schedulers that kernels on each tensor cores can have, the first of which they have where programs are alike."""


@frozen
class SchedulePrograms(Pass):
    """Give each kernel its `scheduler`, `group` of programs that run together, order, `multicast` and `skips`.

    Before: a kernel of 64 x 32 programs on `wgmma`. After: the same with `scheduler = "persistent"`, `group = 16` and
    `multicast = true`: a CTA for each multiprocessor takes program after program, and two of them copy for each other.
    Where programs take unequally long, as those of a causal mask do, `scheduler = "dynamic"` hands them out as CTAs get
    done, the longest first. Where memory says how far a program stores, `skips` passes over those that store nothing.
    `multicast` says where clusters are used (model, always, never). A kernel that says its `scheduler` keeps all of
    them as they are, or is refused (T0501).
    """

    machine: Machine | str = DEFAULT
    multicast: str = MULTICAST[0]

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refuse_choices(kernel, "scheduler", "group", "multicast"):
                schedule_programs(kernel, units, gpu_of(self.machine), self.multicast)


def schedule_programs(kernel: KernelOp, units: TensorCores, machine: Machine, multicast: str = MULTICAST[0]) -> None:
    """Write the order of programs; raises `UnfitError` for one that a kernel says and cannot have."""
    plan, able = read_plan(kernel), _SCHEDULERS[units.name]
    is_uniform = units is WGMMA and kernel.roles == UNIFORM
    able = able[:1] if is_uniform else able
    problem = multicast_problem(kernel, plan) if units is WGMMA else f"clusters are for {WGMMA.name}"
    problem = "producers of a cluster copy for each other, and there are none" if is_uniform else problem
    if kernel.scheduler:
        if kernel.scheduler not in able:
            where = f"on {units.name}{' without a producer' if is_uniform else ''}"
            raise UnfitError(f"{where} the scheduler is {' or '.join(able)}, not {kernel.value('scheduler')}")
        if kernel.multicast and problem:
            raise UnfitError(problem)
        if kernel.skips and (units is not WGMMA or is_uniform or idle_of(kernel) is None):
            raise UnfitError("programs are passed over that store nothing, and nobody knows which")
        _pair_rows(kernel)
        return
    # A CTA of single warps does one program, and finds little of others in the second cache.
    group = group_of(kernel, plan, *((machine.l2, machine.blocks) if units is WGMMA else (0,)))
    is_wanted = multicast == "always" or (multicast == "model" and is_multicast_faster(kernel, plan, machine.blocks))
    scheduler, is_paired = able[-1] if is_uneven(kernel) else able[0], is_wanted and not problem
    kernel.set_value("scheduler", scheduler)
    kernel.set_value("group", group)
    kernel.set_value("descending", is_longer_later(kernel))
    kernel.set_value("multicast", is_paired)
    is_able = units is WGMMA and not is_uniform and scheduler == PERSISTENT and not is_paired
    kernel.set_value("skips", is_able and idle_of(kernel) is not None)
    _pair_rows(kernel)


def _pair_rows(kernel: KernelOp) -> None:
    """Give clusters an even number of rows of blocks.

    One program of the last may be wholly outside: TMA copies zeros for it, and stores nothing.
    """
    if kernel.multicast:
        kernel.set_value("grid", (*kernel.grid[:-2], Dim.of(even_rows(kernel)), kernel.grid[-1]))
