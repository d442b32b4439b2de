"""From a tape to an executable: every stage, in order, on this page."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.x86.backend import X86Backend
from tessera.backends.x86.host import callback_of, callbacks_in, host_text, interface_of
from tessera.backends.x86.machine import host_machine, machine_of, target_text
from tessera.compiler.device import (
    DeviceParts,
    device_backend,
    device_metadata,
    device_objects,
    device_parts,
    with_choices,
)
from tessera.compiler.failure import leaving_a_script
from tessera.compiler.options import Options
from tessera.compiler.report import report_of
from tessera.ir.base.choice import StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.pipeline import Stages
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import print_module
from tessera.ir.base.version import stamp
from tessera.ir.graph import pipeline as graph
from tessera.ir.graph.from_tape import from_tape
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.schedule.fusions import programs_in
from tessera.ir.schedule.library import KernelLibrary
from tessera.ir.schedule.models import MODELS
from tessera.ir.target.door import check_kernels
from tessera.ir.target.machine_code import CodeTarget, begin, compile_texts
from tessera.ir.tile import pipeline as tile
from tessera.runtime.executable import Executable, Guard, Port
from tessera.types.tensor_type import TensorType


@dataclass(frozen=True)
class Lowering:
    """One program at the end of its walk: host program and kernels, and everything on the way that can be shown."""

    module: ModuleOp
    program: SpecOp
    kernels: tuple[SpecOp, ...]
    targets: tuple[SpecOp, ...]
    texts: tuple[str, ...]
    shared: tuple[str, ...]
    host: str
    stages: Stages
    chooser: StaticChooser
    backend: X86Backend | NvptxBackend
    device: DeviceParts | None = None


def compile_tape(tape: Tape, options: Options, library: KernelLibrary | None = None) -> Executable:
    """The executable of a traced program.

    Raises what a stage says to the user (span and fix), CodegenError (T0603) where LLVM refuses a kernel, and
    InternalError with a reproducer for a mistake of ours.
    """
    with leaving_a_script(tape, options):
        lowering = lower(tape, options, library, begin=begin)
        with lowering.stages.measure("target", "machine-code"):
            objects = _objects(lowering)
    lowering.stages.finish()
    lowering.chooser.check_overrides()
    face = interface_of(lowering.program)
    return Executable(
        objects=tuple(objects),
        inputs=_ports(face.inputs, tape.names),
        outputs=_ports(face.outputs),
        symbols=face.symbols,
        binding=face.binding,
        guards=tuple(Guard(what, str(left), str(right)) for left, right, what in lowering.program.value("guards")),
        metadata={
            **_machine_facts(lowering),
            "report": report_of(
                lowering.program, lowering.kernels, lowering.chooser, _approximations(lowering), _device_facts(lowering)
            ),
            "callbacks": [callback_of(op).fields() for op in callbacks_in(lowering.program)],
        },
    )


def _device_facts(lowering: Lowering) -> dict[str, Any]:
    """What `explain` says of a GPU: whether anyone ran such code, and the matrix units of each kernel with products."""
    if lowering.device is None or not isinstance(lowering.backend, NvptxBackend):
        return {}
    machine = lowering.backend.machine
    known = machine.name if machine.is_proven else f"{machine.name}, never executed: assembled only"
    return {"machine": known, **({"matrix units": list(lowering.device.units)} if lowering.device.units else {})}


def _objects(lowering: Lowering) -> Sequence[bytes]:
    if isinstance(lowering.backend, NvptxBackend):
        assert lowering.device is not None
        return device_objects(lowering.device, lowering.backend)
    return compile_texts([lowering.host, *lowering.texts, *lowering.shared], lowering.backend.code_target)


def _approximations(lowering: Lowering) -> dict[str, tuple[str, ...]]:
    """What kernels compute by functions of the machine's own, by kernel."""
    if not isinstance(lowering.backend, NvptxBackend):
        return {}
    return {kernel.value("symbol"): lowering.backend.approximations(kernel) for kernel in lowering.targets}


def _machine_facts(lowering: Lowering) -> dict[str, Any]:
    """What the code needs of the machine it runs on."""
    if isinstance(lowering.backend, NvptxBackend):
        assert lowering.device is not None
        return device_metadata(lowering.device, lowering.backend, lowering.program)
    return {"features": list(lowering.backend.machine.features)}


def lower(
    tape: Tape,
    options: Options,
    library: KernelLibrary | None = None,
    *,
    keep_snapshots: bool = False,
    keep_locations: bool = False,
    begin: Callable[[str, CodeTarget], None] | None = None,
) -> Lowering:
    """All of a compilation but the machine code; `begin` gets each kernel's text as soon as there is one."""
    backend = _backend(options)
    chooser = StaticChooser(dict(options.overrides), MODELS)
    stages = Stages(lambda: from_tape(tape), keep_snapshots, keep_locations)
    module = from_tape(tape)
    # Callbacks are of processors: a GPU's host program has none.
    checks = options.debug and not isinstance(backend, NvptxBackend)
    stages.run("graph", graph.pipeline(checks=checks), module, graph.DOOR)
    stages.run(
        "schedule",
        schedule.pipeline(backend.machine, chooser, library or standard_library(), fusion=options.fusion),
        module,
        schedule.DOOR,
    )
    stages.run("tile", tile.pipeline(debug=options.debug, fast_math=options.fast_math), module, tile.DOOR)
    (program,) = programs_in(module)
    kernels = tuple(op for op in module.ops if isinstance(op, SpecOp) and op.name == "ttile.kernel")
    if isinstance(backend, NvptxBackend):
        backend = with_choices(backend, chooser, fast_math=options.fast_math)
        device = device_parts(backend, program, kernels, stages, begin)
        texts = tuple(code.text for code in device.codes)
        return Lowering(
            module, program, kernels, device.targets, texts, (), device.host.text, stages, chooser, backend, device
        )
    with stages.measure("target", "lower"):
        targets = tuple(backend.lower(kernel) for kernel in kernels)
    with stages.measure("target", "door"):
        check_kernels(targets, backend.machine)
    with stages.measure("target", "emit"):
        texts, shared = backend.parts(targets, begin)
        host = host_text(program, target_text(backend.machine))
    return Lowering(
        module, program, kernels, targets, tuple(texts), tuple(shared.values()), host, stages, chooser, backend
    )


def _backend(options: Options) -> X86Backend | NvptxBackend:
    if options.backend == "cuda":
        return device_backend(options)
    return X86Backend(host_machine() if options.features is None else machine_of(frozenset(options.features)))


def standard_library() -> KernelLibrary:
    """The library that ships with the compiler; found by name, since it is written on top of it."""
    return importlib.import_module("tessera.stdlib.kernels").StandardLibrary()


def lower_tape(tape: Tape, options: Options, library: KernelLibrary | None = None) -> dict[str, str]:
    """The text of a program at every level; of the schedule both the plan, with its groups, and the host program."""
    lowering = lower(tape, options, library, keep_snapshots=True)
    graph_text = next(snapshot.text for snapshot in reversed(lowering.stages.snapshots) if snapshot.room == "graph")
    plan = next(one.text for one in lowering.stages.snapshots if one.name == "schedule-choose-tiles")
    return {
        "graph": graph_text,
        "schedule": f"{plan}\n{_module_text(lowering.program)}",
        "tile": _module_text(*lowering.kernels),
        "target": _module_text(*lowering.targets),
        "llvm": "\n".join((lowering.host, *lowering.texts, *lowering.shared)),
    }


def _module_text(*ops: SpecOp) -> str:
    """Ops as the text of a module, which says the version it is written in."""
    module = ModuleOp([op.clone() for op in ops])
    stamp(module)
    return print_module(module)


def _ports(types: Sequence[TensorType], names: Sequence[str] = ()) -> tuple[Port, ...]:
    return tuple(
        Port(type.dtype.name, tuple(map(str, type.shape)), names[at] if at < len(names) else "")
        for at, type in enumerate(types)
    )
