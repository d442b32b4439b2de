"""The NVIDIA backend, and how it takes part in a compilation: kernels as PTX, the host program as native code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.ampere.emit import emit_warp_kernel
from tessera.backends.nvptx.approximate_functions import approximations
from tessera.backends.nvptx.bank_lint import KernelLint, lint_kernels
from tessera.backends.nvptx.blackwell.emit import emit_tensor_kernel
from tessera.backends.nvptx.block_model import MODELS
from tessera.backends.nvptx.emit import emit_kernel, emit_many
from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel
from tessera.backends.nvptx.host import STATE, HostCode, host_code, plan_streams
from tessera.backends.nvptx.host_descriptors import area_bytes
from tessera.backends.nvptx.host_graphs import PLAN
from tessera.backends.nvptx.mma.fit import dots_in, units_in
from tessera.backends.nvptx.mma.programs import MULTICAST
from tessera.backends.nvptx.mma.target_kernels import check_laid_out
from tessera.backends.nvptx.passes.broadcast_scalars import BroadcastScalars
from tessera.backends.nvptx.passes.fit_steps import FitSteps
from tessera.backends.nvptx.passes.overlap_mma import LAGS
from tessera.backends.nvptx.passes.select_mma import SelectMma
from tessera.backends.nvptx.passes.separate_vectors import SeparateVectors
from tessera.backends.nvptx.pipeline import MmaChoices, target_passes, tile_passes
from tessera.backends.nvptx.plan_times import TIMES
from tessera.backends.nvptx.register_estimate import resources_in
from tessera.backends.nvptx.row_copies import ACCESSES, NAME, is_needed, row_copies
from tessera.backends.nvptx.tensor_cores import DEFAULT, GPUS, TENSOR_CORES, gpu_name
from tessera.backends.nvptx.text import KernelCode, plain_symbol
from tessera.backends.nvptx.values import EXACT, HARDWARE
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import TileAttr
from tessera.ir.schedule.host_program.accesses import accesses_of
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.typed_ops import CallOp
from tessera.ir.target.machine_code import CodeTarget, begin, compile_texts
from tessera.ir.target.program import BASELINE_CODE, BASELINE_TEXT, Begin, CompileOptions, LlvmEmitter, interface_of
from tessera.ir.target.typed_ops import KernelOp
from tessera.ir.tile.choices import EPILOGUES, ROLES
from tessera.runtime.devices.cuda.assembler import starter
from tessera.types.frozen import frozen
from tessera.types.machine import PLAIN, Machine

_EMITTERS = {
    "ttarget.matrix_kernel": emit_matrix_kernel,
    "ttarget.warp_kernel": emit_warp_kernel,
    "ttarget.tensor_kernel": emit_tensor_kernel,
}
"""What writes a kernel on tensor cores, by its op."""


@frozen
class NvptxBackend:
    """Compiles for one GPU.

    `exponential` says how `exp` is computed outside of tensor-core kernels; waits that are `bounded` say where they
    are if they never end, and stop the kernel.
    """

    machine: Machine = GPUS[DEFAULT]
    choices: MmaChoices = MmaChoices()
    exponential: str = EXACT
    bounded: bool = False

    @property
    def code_target(self) -> CodeTarget:
        """What the code generator is told: PTX, which an assembler or the driver finishes."""
        return CodeTarget(
            triple="nvptx64-nvidia-cuda", cpu=self.machine.cpu, features=self.machine.isa, opt=3, emit="assembly"
        )

    @property
    def emitter(self) -> LlvmEmitter:
        """How kernels leave: as LLVM text, and PTX of it."""
        return LlvmEmitter(lambda kernel: self.code(kernel).text, self.code_target)

    def tile_passes(self) -> list[Pass]:
        """Passes over Tile IR that follow the general ones."""
        return tile_passes(self.machine, self.choices)

    def target_passes(self) -> list[Pass]:
        """The lowering, and passes over Target IR."""
        return target_passes(self.machine, self.choices)

    def code(self, kernel: SpecOp) -> KernelCode:
        """A `ttarget` kernel as LLVM text, with what a launch must know."""
        if isinstance(kernel, KernelOp):
            return emit_kernel(kernel, self.machine, self.exponential)
        return _EMITTERS[kernel.name](kernel, self.machine, bounded=self.bounded)


@frozen
class NvptxCode:
    """What a program for a GPU is made of: its kernels, lowered and as text, and its host program."""

    backend: NvptxBackend
    targets: tuple[SpecOp, ...]
    codes: tuple[KernelCode, ...]
    entry: HostCode
    accesses: tuple[tuple[str, dict[str, Any]], ...] = ()
    """By kernel: its sizes, and whether it reads or writes how many bytes of each buffer."""
    units: tuple[str, ...] = ()
    """Which tensor cores run which kernel with dots, and why others do not."""

    @property
    def language(self) -> str:
        """LLVM IR, of which PTX is made."""
        return self.backend.emitter.language

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
        begin(self.host, BASELINE_CODE)  # beside the kernels
        ptx = self.backend.emitter.objects(self.texts)
        entry = compile_texts([self.host], BASELINE_CODE)
        return (*entry, *ptx, b"".join(_pad(data) for data in self.entry.constants))

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
                    **({"rows": code.table.rows} if code.table is not None else {}),
                }
                for code in self.codes
            ],
            "accesses": dict(self.accesses),
            "called": list(host.kernels),
            "constants": [len(_pad(data)) for data in host.constants],
            "workspace": str(program.value("workspace") or 0),
            "offloaded": str(program.value("offloaded") or 0),
            "scratches": [list(scratch) for scratch in host.scratches],
            "state": list(STATE),
            "plan": list(PLAN),
            "maps": area_bytes(host.maps),
            "streams": host.streams,
            "events": host.events,
        }

    def facts(self) -> dict[str, Any]:
        """Whether anyone ran such code, and the tensor cores of each kernel with dots."""
        machine = self.backend.machine
        known = machine.name if machine.is_proven else f"{machine.name}, never executed: assembled only"
        return {"machine": known, **({"tensor cores": list(self.units)} if self.units else {})}

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """What kernels compute by functions of the machine's own, by kernel."""
        return {kernel.value("symbol"): approximations(kernel, self.backend.exponential) for kernel in self.targets}

    def lint(self) -> Sequence[KernelLint]:
        """The kernels of the program, assembled to PTX; the GPU need not be here."""
        count = len(self.targets)  # behind them are those for several calls, whose accesses are the same
        return lint_kernels(
            self.targets, self.codes[:count], self.backend.emitter.objects(self.texts[:count]), self.backend.machine.cpu
        )


@frozen
class NvptxCompilation:
    """One compilation for a GPU."""

    backend: NvptxBackend
    chooser: Chooser

    @property
    def machine(self) -> Machine:
        """The GPU."""
        return self.backend.machine

    def tile_passes(self) -> Sequence[Pass]:
        return self.backend.tile_passes()

    def target_passes(self) -> Sequence[Pass]:
        return self.backend.target_passes()

    def check_target(self, kernel: SpecOp) -> None:
        check_laid_out(kernel)

    def emit(
        self, program: SpecOp, kernels: Sequence[SpecOp], targets: Sequence[SpecOp], begin: Begin | None
    ) -> NvptxCode:
        """Kernels as LLVM text, and the host program that launches them."""
        backend = self.backend
        called = [kernel for kernel in kernels if not kernel.value("variant_of")]
        codes: list[KernelCode] = []
        assemble = starter(backend.machine.cpu) if begin is not None else None

        def start(code: KernelCode) -> KernelCode:
            if begin is not None:
                # PTX of this one is made while the next is written, and is assembled as soon as it is there.
                begin(code.text, backend.code_target, assemble)
            return code

        # Kernels on tensor cores first: `ptxas` takes 0.2 to 0.5 s for one of GPT-2's, and 0.1 s for any other.
        early = {target: start(backend.code(target)) for target in targets if not isinstance(target, KernelOp)}
        written = (early.get(target) or start(backend.code(target)) for target in targets)
        others = itertools.chain(self._many_calls(program, targets), self._row_copies(codes))
        for code in itertools.chain(written, map(start, others)):
            codes.append(code)
        plan = plan_streams(program, called, codes, self.chooser, backend.machine)
        known = {code.name: code for code in codes}
        host = host_code(program, interface_of(program).symbols, known, BASELINE_TEXT, plan)
        if begin is not None:
            begin(host.text, BASELINE_CODE, None)
        accesses = tuple((kernel.value("symbol"), accesses_of(kernel)) for kernel in called)
        accesses += ((NAME, ACCESSES),) if NAME in known else ()
        units = tuple(_unit_line(kernel) for kernel in called if dots_in(kernel))
        return NvptxCode(backend, tuple(targets), tuple(codes), host, accesses, units)

    def _many_calls(self, program: SpecOp, targets: Sequence[SpecOp]) -> Iterator[KernelCode]:
        """Kernels for the calls that are launched together, where they can be."""
        most: dict[str, int] = {}
        for op in program.walk():
            if isinstance(op, CallOp) and op.launch >= 0:
                most[op.kernel] = max(most.get(op.kernel, 0), len(launch_of(op)))
        for target in targets:
            if isinstance(target, KernelOp) and most.get(target.symbol, 0) > 1:
                code = emit_many(target, self.machine, self.backend.exponential, most[target.symbol])
                if code is not None:
                    yield code

    def _row_copies(self, codes: Sequence[KernelCode]) -> Iterator[KernelCode]:
        """The kernel that copies rows for others, where one of those that were written may need it."""
        if is_needed(codes):
            yield row_copies(self.machine)

    def check_code(self, targets: Sequence[SpecOp]) -> None:
        for target in targets:
            if isinstance(target, KernelOp):
                self.backend.code(target)


class _Nvptx:
    """The NVIDIA backend, as `compiler/backend.py` describes one."""

    accumulation_units: tuple[str, ...] = (*TENSOR_CORES, PLAIN)
    models = MODELS
    times = TIMES

    def compilation(self, options: CompileOptions, chooser: Chooser) -> NvptxCompilation:
        """For the GPU that the features name, or for a Hopper one.

        Raises OverrideError (T0402) where they name none.
        """
        names = options.features or (DEFAULT,)
        found = [GPUS[name] for name in names if name in GPUS]
        if not found:
            raise OverrideError(
                f"there is no GPU `{', '.join(names)}` to compile for", fix=f"architectures are {', '.join(GPUS)}"
            )
        backend = NvptxBackend(found[-1], bounded=options.debug)
        return NvptxCompilation(with_choices(backend, chooser, fast_math=options.fast_math), chooser)

    def compilation_for(self, machine: Machine) -> NvptxCompilation:
        return NvptxCompilation(NvptxBackend(machine), StaticChooser({}))

    def accumulation_unit(self, kernel: SpecOp, machine: Machine) -> str:
        """The units that add up dots of floats; none where there are none, as those of integers are exact."""
        types = [dot.results[0].type for dot in dots_in(kernel)]
        if not any(isinstance(type, TileAttr) and type.dtype.is_float for type in types):
            return ""
        module = ModuleOp([kernel])
        for one in (BroadcastScalars(), SeparateVectors(), FitSteps(), SelectMma(gpu_name(machine))):
            one.run(module)
        units = units_in(kernel)
        return PLAIN if units is None else units.name

    def resources(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        return [str(one) for one in resources_in(metadata, objects)]

    def spilling(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        return [one.name for one in resources_in(metadata, objects) if one.registers.spills]


BACKEND = _Nvptx()


def with_choices(backend: NvptxBackend, chooser: Chooser, *, fast_math: bool = False) -> NvptxBackend:
    """The backend as the chooser wants it: `math.exp` changes bits, so it is exact unless someone asks.

    Kernels for tensor cores have a recipe of their own, with the machine's `ex2`, unless someone asks for exact ones.
    """
    machine = backend.machine

    def choose(knob: str, candidates: Sequence[Any]) -> Any:
        return chooser.choose(f"{knob}@gpu", candidates, {"machine": machine})

    exp = choose("math.exp", (HARDWARE, EXACT) if fast_math else (EXACT, HARDWARE))
    is_exact = exp.source == "override" and exp.value == EXACT
    choices = MmaChoices(choose("matrix.instruction", machine.matrix_choices).value, exact_math=is_exact)
    if machine.has("wgmma"):
        knobs = {"multicast": MULTICAST, "roles": ROLES, "lag": LAGS, "epilogue": EPILOGUES}
        choices = replace(choices, **{name: choose(f"matrix.{name}", found).value for name, found in knobs.items()})
    return replace(backend, exponential=exp.value, choices=choices)


def _unit_line(kernel: SpecOp) -> str:
    """What `explain` says of a kernel with dots: the tensor cores it runs on, and why not on others."""
    units, reasons = units_in(kernel), kernel.value("reasons")
    text = f"{kernel.value('symbol')}: {PLAIN if units is None else units.name}"
    return f"{text} ({'; '.join(reasons)})" if reasons else text


def _pad(data: bytes) -> bytes:
    """Constants begin at lines of their own, as all memory of the device does."""
    return data + bytes(-len(data) % 256)
