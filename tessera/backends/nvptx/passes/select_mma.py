"""Say of every dot which tensor cores run it, and by which instruction."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.fit import (
    Choice,
    check_fit,
    choose_units,
    dots_in,
    mark_plain,
    refuse_choices,
    tile_kernels,
)
from tessera.backends.nvptx.mma.plan import Plan, plan_of
from tessera.backends.nvptx.passes.add_fallbacks import unaligned_in
from tessera.backends.nvptx.passes.fit_steps import fit_steps, unfit_loops
from tessera.backends.nvptx.tensor_cores import DEFAULT, TENSOR_CORES, TensorCores, UnfitError, gpu_of
from tessera.diagnostics.codes import FeatureError, TileVerifyError
from tessera.ir.base.passes import Pass
from tessera.ir.target.passes.check_features import advice_on
from tessera.ir.tile.choices import tensor_core_attributes
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, PLAIN, Machine


@frozen
class SelectMma(Pass):
    """Give each `ttile.dot` its `unit` and `instruction` for the GPU `machine`, and its kernel `warpgroups`.

    Before: `ttile.dot %a, %b, %c` of 128 x 256 x 64 in bf16. After, on sm_90a: the same with `unit = "wgmma"` and
    `instruction = [64, 256, 16]`, in a kernel with `warpgroups = 2`; on sm_80 with `unit = "mma.sync"` and
    `instruction = [16, 8, 16]`. Dots that no units take get `unit = "multiply-adds"`. `units` asks for some; what a
    kernel says itself is kept, or refused: units that the machine lacks (T0602), or that do not take it (T0501).
    """

    machine: Machine | str = DEFAULT
    units: str = AUTOMATIC

    def run(self, module: ModuleOp) -> None:
        machine, unaligned = gpu_of(self.machine), unaligned_in(module)
        for kernel in tile_kernels(module):
            is_decided = kernel.reasons or kernel.variant_of
            if is_decided or kernel.symbol in unaligned:
                continue
            if dots_in(kernel) or tensor_core_attributes(kernel):
                choice = choose_with_steps(kernel, machine, self.units)
                select_mma(kernel, choice.units)
                kernel.set_value("reasons", choice.reasons if dots_in(kernel) else ())


def choose_with_steps(kernel: KernelOp, machine: Machine, asked: str = AUTOMATIC) -> Choice:
    """The tensor cores for a kernel; where none take its loops, in steps of less K if some take those.

    No K of a block is to be what decides which tensor cores accumulate, and so over bits.
    """
    choice = choose_or_refuse(kernel, machine, asked)
    if choice.units is None and unfit_loops(kernel, shallow=True):
        trial = kernel.clone()
        fit_steps(trial, shallow=True)
        again = choose_or_refuse(trial, machine, asked)
        if again.units is not None:
            fit_steps(kernel, shallow=True)
            return again
    return choice


def choose_or_refuse(kernel: KernelOp, machine: Machine, asked: str = AUTOMATIC) -> Choice:
    """The units that a kernel says itself, else those that are asked for, else the best that take it.

    Raises FeatureError (T0602) for units that the machine lacks, and TileVerifyError (T0501) where a kernel says what
    it does not fit.
    """
    written = sorted({op.unit for op in dots_in(kernel)} - {""})
    if len(written) > 1:
        raise TileVerifyError(
            f"dots of `@{kernel.value('symbol')}` are on {' and '.join(written)}, and a kernel is for one of them",
            span=kernel.span,
            fix="give all dots the same `unit`, or none",
        )
    name = written[0] if written else asked
    if name in TENSOR_CORES and not machine.has(name):
        raise FeatureError(
            f"`@{kernel.value('symbol')}` asks for {name}, and {machine.name} has {', '.join(machine.features)}",
            span=kernel.span,
            fix=advice_on(name, machine.features),
        )
    if written and name != PLAIN:
        with refuse_choices(kernel, "unit", "instruction", "warpgroups"):
            check_fit(kernel, TENSOR_CORES[name], machine)
        return Choice(TENSOR_CORES[name], ())
    choice = choose_units(kernel, machine, name)
    if choice.units is None and (names := tensor_core_attributes(kernel)):
        with refuse_choices(kernel, *names):
            raise UnfitError("; ".join(choice.reasons) or f"its dots are {PLAIN} on {machine.name}")
    return choice


def select_mma(kernel: KernelOp, units: TensorCores | None) -> Plan | None:
    """Write what units a kernel runs on, and how; None for those that run dots by multiply-adds."""
    if units is None:
        mark_plain(kernel)
        return None
    plan = plan_of(kernel, units)
    for op, product in plan.dots.items():
        op.set_value("unit", units.name)
        op.set_value("instruction", product.instruction)
    kernel.set_value("warpgroups", plan.consumers)
    return plan
