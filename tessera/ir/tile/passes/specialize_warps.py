"""Say what warps of a kernel on matrix units do: whether one copies for the others, and registers of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.target.hopper_limits import REGISTERS, WARPGROUP
from tessera.ir.tile.matrix.across import across_of, across_problem
from tessera.ir.tile.matrix.chosen import dots_in, kernels_on_units, refusing
from tessera.ir.tile.matrix.plan import UnfitError, Units, plan_of
from tessera.ir.tile.matrix.units import WARPGROUPS, WARPS
from tessera.ir.tile.order import PRODUCER, UNIFORM

_REGISTERS: dict[int, tuple[int, ...]] = {1: (), 2: (40, 232), 3: (24, 160)}
"""Registers of a producer's and a consumer's thread, by the number of consumers."""
_TURNING = (24, 240)
"""The same where two products turn in one loop: sums of both are live."""


@dataclass(frozen=True)
class SpecializeWarps(Pass):
    """Give each kernel its `roles`: with a producer `registers` of both, and without one how warps stand `across`.

    Before: a kernel on `wgmma` with `warpgroups = 2`. After: the same with `roles = "producer"` and
    `registers = [40, 232]`: what the producer does not need, those that multiply have. On `mma.sync` all warps copy
    (`roles = "uniform"`), and `across = 2` of each four stand side by side where what each reads is the least so. A
    kernel that says its `roles` keeps its registers too, and one that says `across` that, or is refused (T0501).
    """

    def run(self, module: ModuleOp) -> None:
        for kernel, units in kernels_on_units(module):
            with refusing(kernel, "roles", "registers", "across"):
                specialize_warps(kernel, units)


def specialize_warps(kernel: SpecOp, units: Units) -> None:
    """Write the roles of a kernel; raises `UnfitError` for those that it says and its units do not have."""
    roles, groups = UNIFORM if units is WARPS else PRODUCER, kernel.value("warpgroups")
    written = kernel.value("roles")
    if written and written != roles:
        copies = "by tensor maps, which one thread starts" if roles == PRODUCER else "by all threads"
        raise UnfitError(f"kernels on {units.name} copy {copies}, and `roles` is {written}")
    if kernel.value("registers") and units is not WARPGROUPS:
        raise UnfitError(f"threads of kernels on {units.name} have equal shares of registers, and some are said")
    _share_columns(kernel, units)
    if written:
        _check_registers(kernel.value("registers"), groups)
        return
    kernel.set_value("roles", roles)
    if units is WARPGROUPS:
        is_turning = groups == 2 and len(dots_in(kernel)) > 1
        kernel.set_value("registers", _TURNING if is_turning else _REGISTERS[groups])


def _share_columns(kernel: SpecOp, units: Units) -> None:
    """Write how single warps stand; raises `UnfitError` for what a kernel says of it and cannot have."""
    said = kernel.value("across")
    if units is not WARPS:
        if said:
            raise UnfitError(f"kernels on {units.name} have warps that share rows by fours, and `across` is {said}")
        return
    plan = plan_of(kernel, units)
    if said and (problem := across_problem(kernel, plan, said)):
        raise UnfitError(problem)
    kernel.set_value("across", said or across_of(kernel, plan))


def _check_registers(registers: Sequence[int], groups: int) -> None:
    """Raises `UnfitError` for more registers than a multiprocessor has."""
    total = WARPGROUP * (registers[0] + groups * registers[1]) if registers else 0
    if total > REGISTERS:
        raise UnfitError(
            f"a producer and {groups} consumers with {list(registers)} registers take {total} of {REGISTERS}"
        )
