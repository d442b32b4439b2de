"""Kernels tried on Tile IR, before anything is compiled or launched: whether code is made, and which units add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp

from tessera.compiler.backend import backend_for_machine
from tessera.compiler.kernel_instance import KernelInstance
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.kernels import KERNELS
from tessera.ir.base.tape import Tape
from tessera.ir.tile.pipeline import pipeline
from tessera.ir.tile.records import KernelProgram
from tessera.ir.tile.write_records import write_kernel
from tessera.types.machine import Machine

Key = TypeVar("Key")


def refusal(program: KernelProgram, machine: Machine) -> str:
    """What keeps a machine from having code of a kernel, with its numbers; empty where nothing does."""
    compilation = backend_for_machine(machine).compilation_for(machine)
    kernel = write_kernel(program)
    module = ModuleOp([kernel])
    for one in (*pipeline(), *compilation.tile_passes()):
        one.run(module)
    try:
        compilation.check_kernel(kernel)
    except TargetVerifyError as error:
        return error.message
    return ""


def check_schedules(tape: Tape, machine: Machine) -> None:
    """Raises ScheduleError (T0401) for a kernel of a program that was given a schedule no code is made of."""
    for record in tape.records:
        called = KERNELS.get(str(record.attributes.get("kernel"))) if record.op == "tgraph.kernel_call" else None
        if isinstance(called, KernelInstance) and called.schedule is not None:
            called.check([tape.types[operand] for operand in record.operands], machine)


def accumulation_unit(program: KernelProgram, machine: Machine) -> str:
    """What adds up the float dots of a kernel on a machine; empty where nothing there changes bits."""
    return backend_for_machine(machine).accumulation_unit(write_kernel(program), machine)


def with_other_bits(found: Mapping[Key, str], machine: Machine) -> dict[Key, str]:
    """Of what runs on units by name, all that is not on the best of them, with the reason to leave it out."""
    order = backend_for_machine(machine).accumulation_units
    best = next((name for name in order if name in found.values()), "")
    return {
        key: f"its accumulators are those of {name}, and have other bits than those of {best}"
        for key, name in found.items()
        if name != best
    }


__all__ = ["accumulation_unit", "check_schedules", "refusal", "with_other_bits"]
