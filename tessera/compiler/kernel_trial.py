"""Whether code is made of a kernel under its schedule: tried on Tile IR, before anything is compiled or launched."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.compiler.kernel_instance import KernelInstance
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.kernels import KERNELS
from tessera.ir.base.tape import Tape
from tessera.ir.tile.pipeline import pipeline
from tessera.ir.tile.records import KernelProgram
from tessera.ir.tile.write_records import write_kernel
from tessera.types.machine import Machine


def refusal(program: KernelProgram, machine: Machine) -> str:
    """What keeps a GPU from having code of a kernel, with its numbers; empty where nothing does."""
    backend = NvptxBackend(machine)
    kernel = write_kernel(program)
    module = ModuleOp([kernel])
    for one in pipeline():
        one.run(module)
    try:
        if backend.matrix(kernel) is None:
            backend.code(backend.lower(kernel))
    except TargetVerifyError as error:
        return error.message
    return ""


def check_schedules(tape: Tape, machine: Machine) -> None:
    """Raises ScheduleError (T0401) for a kernel of a program that was given a schedule no code is made of."""
    for record in tape.records:
        called = KERNELS.get(str(record.attributes.get("kernel"))) if record.op == "tgraph.kernel_call" else None
        if isinstance(called, KernelInstance) and called.schedule is not None:
            called.check([tape.types[operand] for operand in record.operands], machine)


__all__ = ["check_schedules", "refusal"]
