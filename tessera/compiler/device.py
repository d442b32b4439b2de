"""The last rooms of a program for a GPU: kernels to PTX, the host program to native code, both in one executable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tessera.backends.cpu.backend import CpuBackend
from tessera.backends.cpu.host import interface_of
from tessera.backends.cpu.machine import machine_of, target_text
from tessera.backends.nvptx.backend import DEFAULT, NvptxBackend
from tessera.backends.nvptx.empty_sides import without_products
from tessera.backends.nvptx.host import STATE, HostCode, host_code, unaligned_kernels
from tessera.backends.nvptx.host_call import PLAN
from tessera.backends.nvptx.host_maps import area_bytes
from tessera.backends.nvptx.host_queues import preferred_queues, queue_plan
from tessera.backends.nvptx.kernel_code import KernelCode, plain_symbol
from tessera.backends.nvptx.matrix_units import Lowered, units_lines
from tessera.backends.nvptx.values import EXACT, HARDWARE
from tessera.compiler.line import Begin
from tessera.compiler.options import Options
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.choice import Chooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.pipeline import Stages
from tessera.ir.schedule.accesses import accesses_of
from tessera.ir.schedule.launch_order import LaunchOrder, launches_in, order_of
from tessera.ir.schedule.launch_queues import QueuePlan
from tessera.ir.target.door import check_kernels
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.tile.matrix.programs import PAIRS
from tessera.ir.tile.matrix.units import units_of
from tessera.ir.tile.order import EPILOGUES
from tessera.ir.tile.passes.overlap_products import LAGS
from tessera.types.machine import GPUS, Machine

MANY = 2
"""Launches from which on a program may have some that run beside each other."""
_HOST = CpuBackend(machine_of(frozenset()))
"""The host program computes little: one for every x86-64 processor will do, and travels with its kernels."""


@dataclass(frozen=True)
class DeviceParts:
    """What a program for a GPU is made of: its kernels, lowered and as text, and its host program."""

    backend: NvptxBackend
    targets: tuple[SpecOp, ...]
    codes: tuple[KernelCode, ...]
    entry: HostCode
    accesses: tuple[tuple[str, dict[str, Any]], ...] = ()
    """By kernel: its sizes, and whether it reads or writes how many bytes of each buffer."""
    units: tuple[str, ...] = ()
    """Which matrix units run which kernel with products, and why others do not."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Kernels as LLVM text."""
        return tuple(code.text for code in self.codes)

    @property
    def host(self) -> str:
        """The host program as LLVM text."""
        return self.entry.text

    def objects(self) -> Sequence[bytes]:
        """The entry as an ELF object, the PTX of each kernel, and all constants one after the other."""
        ptx = compile_texts(self.texts, self.backend.code_target)
        entry = compile_texts([self.host], _HOST.code_target)
        return (*entry, *ptx, b"".join(_padded(data) for data in self.entry.constants))

    def metadata(self, program: SpecOp) -> dict[str, Any]:
        """What the runtime must know beside the code; plain values only."""
        host = self.entry
        return {
            "target": "cuda",
            "architecture": self.backend.machine.cpu,
            "kernels": [
                {
                    "name": code.name,
                    "shared": code.shared,
                    "threads": code.threads,
                    "resident": code.resident,
                    "waits": list(code.waits),
                    "like": plain_symbol(code.name),
                    "maps": len(code.maps),
                    "scratch": code.uses_scratch,
                }
                for code in self.codes
            ],
            "accesses": dict(self.accesses),
            "called": list(host.kernels),
            "constants": [len(_padded(data)) for data in host.constants],
            "workspace": str(program.value("workspace") or 0),
            "scratches": [list(scratch) for scratch in host.scratches],
            "state": list(STATE),
            "plan": list(PLAN),
            "maps": area_bytes(host.maps),
            "queues": host.queues,
            "events": host.events,
        }

    def facts(self) -> dict[str, Any]:
        """Whether anyone ran such code, and the matrix units of each kernel with products."""
        machine = self.backend.machine
        known = machine.name if machine.is_proven else f"{machine.name}, never executed: assembled only"
        return {"machine": known, **({"matrix units": list(self.units)} if self.units else {})}

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """What kernels compute by functions of the machine's own, by kernel."""
        return {kernel.value("symbol"): self.backend.approximations(kernel) for kernel in self.targets}


@dataclass(frozen=True)
class DeviceLine:
    """The `Line` of a GPU."""

    backend: NvptxBackend
    fast_math: bool = False

    @staticmethod
    def of(options: Options) -> DeviceLine:
        """For the GPU that the features name, or for a Hopper one.

        Raises OverrideError (T0402) where they name none.
        """
        return DeviceLine(_backend(options), options.fast_math)

    @property
    def machine(self) -> Machine:
        """The GPU."""
        return self.backend.machine

    def finish(
        self, program: SpecOp, kernels: Sequence[SpecOp], stages: Stages, chooser: Chooser, begin: Begin | None
    ) -> DeviceParts:
        """Kernels for matrix units and others, and the host program that launches them."""
        backend = with_choices(self.backend, chooser, fast_math=self.fast_math)
        return _parts(backend, program, kernels, stages, begin, chooser)


def _backend(options: Options) -> NvptxBackend:
    names = options.features or (DEFAULT,)
    found = [GPUS[name] for name in names if name in GPUS]
    if not found:
        raise OverrideError(
            f"there is no GPU `{', '.join(names)}` to compile for", fix=f"architectures are {', '.join(GPUS)}"
        )
    return NvptxBackend(found[-1], bounded=options.debug)


def with_choices(backend: NvptxBackend, chooser: Chooser, *, fast_math: bool = False) -> NvptxBackend:
    """The backend as the chooser wants it: `math.exp` changes bits, so it is exact unless someone asks.

    Kernels for matrix units have a recipe of their own, with the machine's powers, unless someone asks for exact ones.
    """
    candidates = (HARDWARE, EXACT) if fast_math else (EXACT, HARDWARE)
    choice = chooser.choose("math.exp@gpu", candidates, {"machine": backend.machine})
    is_asked = choice.source == "override" and choice.value == EXACT
    backend = replace(backend, exponential=choice.value, exact_matrices=is_asked)
    units = chooser.choose("matrix.units@gpu", units_of(backend.machine), {"machine": backend.machine})
    backend = replace(backend, units=units.value)
    if not backend.machine.has("wgmma"):
        return backend
    pair = chooser.choose("matrix.pair@gpu", PAIRS, {"machine": backend.machine})
    lag = chooser.choose("matrix.lag@gpu", LAGS, {"machine": backend.machine})
    epilogue = chooser.choose("matrix.epilogue@gpu", EPILOGUES, {"machine": backend.machine})
    return replace(backend, pairs=pair.value, lag=lag.value, epilogue=epilogue.value)


def _parts(
    backend: NvptxBackend,
    program: SpecOp,
    kernels: Sequence[SpecOp],
    stages: Stages,
    begin: Begin | None,
    chooser: Chooser,
) -> DeviceParts:
    """Everything but the machine code."""
    unaligned = unaligned_kernels(program)
    units: list[str] = []
    with stages.measure("target", "lower"):
        targets = tuple(
            target
            for kernel in kernels
            for target in _targets(backend, program, kernel, kernel.value("symbol") not in unaligned, units)
        )
    with stages.measure("target", "door"):
        check_kernels(targets, backend.machine)
    with stages.measure("target", "emit"):
        codes = backend.codes(targets, begin)
        face = interface_of(program)
        known = {code.name: code for code in codes}
        plan = _queues(program, kernels, codes, chooser, backend.machine)
        host = host_code(program, face.symbols, known, target_text(_HOST.machine), plan)
    accesses = tuple((kernel.value("symbol"), accesses_of(kernel)) for kernel in kernels)
    return DeviceParts(backend, targets, tuple(codes), host, accesses, tuple(units))


def _queues(
    program: SpecOp, kernels: Sequence[SpecOp], codes: Sequence[KernelCode], chooser: Chooser, machine: Machine
) -> QueuePlan | None:
    """The queues of a program with more than one launch; None for the one of its call."""
    if len(launches_in(program.regions[0].block)) < MANY:
        return None

    @cache
    def order() -> LaunchOrder:
        named = {kernel.value("symbol"): kernel for kernel in kernels}
        return order_of(program, named, {plain_symbol(code.name) for code in codes if code.uses_scratch})

    found = preferred_queues(program, codes, machine, order)
    count = chooser.choose("launch.queues@gpu", found, {"program": program}).value
    return None if count == 1 else queue_plan(order(), count)


def _targets(backend: NvptxBackend, program: SpecOp, kernel: SpecOp, aligned: bool, units: list[str]) -> list[SpecOp]:
    """A kernel for matrix units where it fits them, and the one that runs anywhere, where that may be wanted.

    `units` gets a line on a kernel with products: where it runs, and why not elsewhere.
    """
    found = backend.fitted(kernel) if aligned else Lowered(None, ("its arguments begin anywhere",))
    units += units_lines(kernel, found)
    matrix = found.kernel
    if matrix is None:
        return [*backend.shared(kernel, aligned), backend.lower(kernel, aligned)]
    if matrix.name == "ttarget.warp_kernel":
        # It takes sides of any size, empty ones too.
        return [matrix]
    calls = [op for op in program.walk() if isinstance(op, SpecOp) and op.name == "tsched.call"]
    sizes = [op.value("sizes") for op in calls if op.value("kernel") == kernel.value("symbol")]
    if all(size.value is not None and size.value > 0 for given in sizes for size in given):
        return [matrix]
    # What goes around matrix units is a call with an empty tensor, where most kernels have nothing to multiply.
    return [matrix, backend.lower(without_products(kernel, matrix) or kernel, aligned)]


def _padded(data: bytes) -> bytes:
    """Constants begin at lines of their own, as all memory of the device does."""
    return data + bytes(-len(data) % 256)
