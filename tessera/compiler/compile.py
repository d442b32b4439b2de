"""From a tape to an executable: every stage, in order, on this page."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.compiler.backend import backend_of
from tessera.compiler.options import Options
from tessera.compiler.report import arithmetic_of, report_of, work_of
from tessera.diagnostics.codes import CodegenError, MemoryBudgetError, TargetVerifyError
from tessera.diagnostics.error import InternalError, TesseraError
from tessera.ir.base.compilation import KNOBS, StaticChooser, without_collection
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass, Stages
from tessera.ir.base.reproducers import write_reproducer
from tessera.ir.base.tape import CONSTANT, GIVEN, Tape
from tessera.ir.base.text import parse_module, print_module, stamp
from tessera.ir.base.types import ValueAttr
from tessera.ir.base.verify import symbol_table
from tessera.ir.graph import pipeline as graph
from tessera.ir.graph.dialect import from_tape, to_tape
from tessera.ir.graph.passes.choose_segments import KNOB as SEGMENT
from tessera.ir.graph.passes.chunk_contractions import LIMIT
from tessera.ir.graph.passes.recognize_attention import PATTERNS
from tessera.ir.graph.passes.rematerialize import BYTES, POINTWISE, ROWS, count_heavy
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.schedule import typed_ops
from tessera.ir.schedule.conversions import given_orders, read_ordered
from tessera.ir.schedule.emit.request import KernelLibrary
from tessera.ir.schedule.host_program.launch_order import order_of
from tessera.ir.schedule.host_program.memory import donated_in, kept_in
from tessera.ir.schedule.kinds import all_models
from tessera.ir.schedule.plan import programs_in
from tessera.ir.target import pipeline as target
from tessera.ir.target.llvm.text import callbacks_in
from tessera.ir.target.machine_code import begin
from tessera.ir.target.program import Begin, Code, callback_of, interface_of
from tessera.ir.tile import pipeline as tile
from tessera.ir.tile.typed_ops import KernelOp
from tessera.runtime.executable import Executable, Guard, Port
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

# What a failed compilation leaves behind: a script that holds the whole program and compiles it again.


@contextmanager
def leaving_a_script(tape: Tape, options: Options) -> Generator[None]:
    """Within it, a failure that is not the user's names a script that shows it again."""
    try:
        yield
    except CodegenError as error:
        note = f"{write_script(tape, options, error.message)} compiles the whole program again"
        raise CodegenError(error.message, span=error.span, notes=(*error.notes, note), fix=error.fix) from error
    except TesseraError:
        raise
    except InternalError as error:
        error.script = error.script or write_script(tape, options, error.message)
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, RecursionError):
            message += "; a program or a stack this deep needs `sys.setrecursionlimit(10_000)` before it is compiled"
        script = write_script(tape, options, message)
        command = f"python {script}" if script else ""
        raise InternalError(message, where="compiler", script=script, command=command) from error


def write_script(tape: Tape, options: Options, message: str) -> str:
    """The path of a script that needs nothing but Tessera: the program as Graph IR, its options, and the call."""
    graph = print_module(from_tape(tape))
    first = message.splitlines()[0] if message else "unknown"
    quoted = first.replace("\\", "\\\\").replace('"', "'")
    text = (
        f'"""Compiles a program that failed with: {quoted}"""\n\n'
        "from tessera.compiler.compile import replay\n\n"
        f"OPTIONS = {options.text!r}\n"
        f"GRAPH = {_literal(graph)}\n\n"
        "replay(GRAPH, OPTIONS)\n"
    )
    return str(write_reproducer("compile", ".py", text) or "")


def _literal(text: str) -> str:
    """A string of several lines as Python source that reads like the text."""
    return repr(text) if '"""' in text or "\\" in text else f'"""\\\n{text}"""'


@frozen
class Lowering:
    """One program at the end of its walk: host program and kernels, and everything on the way that can be shown."""

    parts: tuple[Operation, ...]
    """The host program and its tile kernels, as they left the tile stage."""
    program: typed_ops.ModuleOp
    kernels: tuple[KernelOp, ...]
    code: Code
    stages: Stages
    chooser: StaticChooser

    @property
    def module(self) -> ModuleOp:
        """The host program and its tile kernels as a module of their own."""
        return ModuleOp([op.clone() for op in self.parts])

    @property
    def targets(self) -> tuple[SpecOp, ...]:
        """The kernels as Target IR."""
        return self.code.targets

    @property
    def texts(self) -> tuple[str, ...]:
        """The kernels as LLVM text, and what they share."""
        return self.code.texts

    @property
    def host(self) -> str:
        """The host program as LLVM text."""
        return self.code.host


def compile_tape(tape: Tape, options: Options, library: KernelLibrary | None = None) -> Executable:
    """The executable of a traced program.

    Raises what a stage says to the user (span and fix), CodegenError (T0603) where LLVM refuses a kernel, and
    InternalError with a reproducer for a mistake of ours.
    """
    with leaving_a_script(tape, options):
        lowering = lower(tape, options, library, begin=begin)
        # All that is said of the program, while workers make its machine code.
        facts = _facts_of(lowering, tape)
        with lowering.stages.measure("target", "machine-code"):
            executable = Executable(objects=tuple(lowering.code.objects()), **facts)
    lowering.stages.finish()
    lowering.chooser.check_overrides()
    return executable


def _facts_of(lowering: Lowering, tape: Tape) -> dict[str, Any]:
    """What an executable says of itself: all of it but the machine code."""
    program, face = lowering.program, interface_of(lowering.program)
    whole = [kernel for kernel in lowering.kernels if not kernel.variant_of]
    return {
        "inputs": _ports(face.inputs, tape.names),
        "outputs": _ports(face.outputs),
        "symbols": face.symbols,
        "binding": face.binding,
        "guards": tuple(Guard(what, str(left), str(right)) for left, right, what in program.guards),
        "metadata": {
            **lowering.code.metadata(program),
            "report": report_of(program, whole, lowering.chooser, lowering.code),
            "work": work_of(program, whole, lowering.targets),
            "arithmetic": arithmetic_of(program, whole, lowering.code),
            **_donation(program),
            **_list_given(program),
            "callbacks": [callback_of(op).fields() for op in callbacks_in(program)],
        },
    }


def _donation(program: SpecOp) -> dict[str, Any]:
    """What callers donate, and which results have their memory, where there is any of that."""
    given = donated_in(program)
    return {"donated": {"given": list(given), "kept": [list(pair) for pair in kept_in(program)]}} if given else {}


def _list_given(program: SpecOp) -> dict[str, Any]:
    """Pairs (argument, order of its dims) of constants that are given in another order, where there are any."""
    found = program.attributes.get(GIVEN)
    return {"given": found.data} if isinstance(found, ValueAttr) else {}


@without_collection()
def lower(
    tape: Tape,
    options: Options,
    library: KernelLibrary | None = None,
    *,
    keep_snapshots: bool | Collection[str] = False,
    keep_locations: bool = False,
    begin: Begin | None = None,
    observe: Callable[[str, ModuleOp], None] | None = None,
) -> Lowering:
    """All of a compilation but the machine code; `begin` gets each kernel's text as soon as there is one.

    `observe` is given the module after each pass of the graph and schedule stages.
    """
    plan = fit_memory(tape, options, library)
    module, compilation, chooser, stages = _schedule(
        tape, options, library, plan, keep_snapshots, keep_locations, observe
    )
    # General passes first, as what a backend contributes may rely on them; all in one list, for one runner.
    tile_passes = [*tile.pipeline(debug=options.debug, fast_math=options.fast_math), *compilation.tile_passes()]
    stages.run("tile", tile_passes, module, tile.EXIT)
    (program,) = programs_in(module)
    parts = tuple(module.ops)
    kernels = tuple(op for op in parts if isinstance(op, KernelOp))
    try:
        # In place too, so that a failure is found again from the tape; the tile kernels stay alive in `parts`.
        stages.run("target", compilation.target_passes(), module, target.EXIT, are_verified=True)
        with stages.measure("target", "check"):
            target.check_module(module, compilation.machine, check=compilation.check_target)
        with stages.measure("target", "emit"):
            code = compilation.emit(program, kernels, target.targets_in(module), begin)
    except TargetVerifyError:
        from tessera.compiler.kernel_trial import check_schedules  # noqa: PLC0415 - loads the kernel front end

        check_schedules(tape, compilation.machine)
        raise
    return Lowering(parts, program, kernels, code, stages, chooser)


def _joining(machine: Machine, options: Options) -> int:
    """Blocks that a machine computes at a time whose kernels join segments of K; 0 for one that does not.

    Whoever asks for a matrix instruction or a block gets kernels that all of them take.
    """
    asked = ("matrix.instruction", "contraction.block")
    is_asked = any(name.startswith(asked) for name, _ in options.overrides)
    joins = machine.instructions and machine.instructions[0].joins and not is_asked
    return machine.blocks if joins else 0


def _schedule(
    tape: Tape,
    options: Options,
    library: KernelLibrary | None,
    plan: _MemoryPlan,
    keep_snapshots: bool | Collection[str] = False,
    keep_locations: bool = False,
    observe: Callable[[str, ModuleOp], None] | None = None,
) -> tuple[ModuleOp, Any, StaticChooser, Stages]:
    """A program after the graph and schedule stages."""
    backend = backend_of(options.backend)
    models = {**all_models(), **backend.models}
    chooser = StaticChooser(dict(options.overrides), models, KNOBS, dict(options.tuned))
    compilation = backend.compilation(options, chooser)
    joining = _joining(compilation.machine, options)
    kept = plan.limit if joining else 0
    given = {"level": plan.level, "joining": joining, "limit": plan.limit, "kept": kept}
    passes = graph.with_chunks(graph.pipeline(checks=options.debug, fast=options.fast_math, **given), chooser)
    if compilation.machine.instructions:
        passes = graph.with_unfolded(passes, compilation.machine.instructions[0])
    if options.fast_math or any(name.partition("@")[0] == SEGMENT for name, _ in options.overrides):
        passes = graph.with_segments(passes, chooser, fast=options.fast_math)
    if CONSTANT in tape.promises:
        whole = schedule.pipeline(compilation.machine, chooser, library or standard_library(), fusion=options.fusion)
        tape = _with_constants_in_order(tape, [("graph", passes), ("schedule", schedule.until_layouts(whole))])
    stages = Stages(lambda: from_tape(tape), keep_snapshots, keep_locations, observe=observe)
    module = from_tape(tape)
    stages.run("graph", passes, module, graph.EXIT)
    stages.run(
        "schedule",
        schedule.pipeline(
            compilation.machine,
            chooser,
            library or standard_library(),
            fusion=options.fusion,
            debug=options.debug,
            memory=options.memory if options.offload and options.memory is not None else -1,
            plan=options.plan or "",
            patterns=PATTERNS,
        ),
        module,
        schedule.EXIT,
    )
    return module, compilation, chooser, stages


def _with_constants_in_order(tape: Tape, passes: Sequence[tuple[str, Sequence[Pass]]]) -> Tape:
    """A tape that takes its constants in the orders that are chosen for them, by passes up to where they are chosen.

    What it computes stays: it sees them as before, by views.
    """
    module, trial = from_tape(tape), Stages(lambda: from_tape(tape))
    for name, several in passes:
        trial.run(name, several, module)
    orders = given_orders(module)
    for number, order in orders.items():
        tape = read_ordered(tape, number, order)
    promises = {name: value for name, value in tape.promises.items() if name != CONSTANT}
    return replace(tape, promises={**promises, **({GIVEN: tuple(orders.items())} if orders else {})})


def schedule_tape(tape: Tape, options: Options, observe: Callable[[str, ModuleOp], None] | None = None) -> ModuleOp:
    """A program after the schedule stage, as its code is made from it; `observe` is given it after each pass."""
    return _schedule(tape, options, None, fit_memory(tape, options), observe=observe)[0]


@frozen
class _MemoryPlan:
    """How much a backward part may rematerialize, and the bytes of a product from which on it is in chunks."""

    level: int = BYTES
    limit: int = LIMIT


_SHARES = (4, 16)
"""What part of the memory a product may have that is computed in chunks: a loss and its gradient have a few of them."""


def fit_memory(tape: Tape, options: Options, library: KernelLibrary | None = None) -> _MemoryPlan:
    """The lowest level of rematerialization at which the workspace of a program has at most `options.memory` bytes.

    Each is planned to the end of the schedule stage: what is compared is the plan that is carried out, with what it
    offloads. Before contractions are rematerialized, products are computed in chunks, where the program has such.
    Levels of single contractions are many, and are bisected where the highest fits. A higher one may need more, as what
    is rematerialized takes memory too: where the highest does not fit, each is tried. Raises MemoryBudgetError (T0404)
    where none fits.
    """
    usual = LIMIT if options.largest_contraction is None else options.largest_contraction
    if options.memory is None:
        return _MemoryPlan(limit=usual)
    trials = _Trials(tape, options, library)
    found = trials.first(usual) or trials.first_in_chunks(usual)
    if found is not None:
        return found
    limit = min(plan.limit for plan in trials.planned)
    low, high = ROWS, ROWS + count_heavy(tape)
    if not trials.fits(_MemoryPlan(high, limit)):
        for level in range(low + 1, high):
            if trials.fits(_MemoryPlan(level, limit)):
                return _MemoryPlan(level, limit)
            if trials.plans[_MemoryPlan(level, limit)] == trials.plans[_MemoryPlan(high, limit)]:
                break  # no contraction is left that a level above could add
        raise trials.fail(usual)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if trials.fits(_MemoryPlan(middle, limit)) else (middle, high)
    return _MemoryPlan(high, limit)


class _Trials:
    """Plans that were tried, and what workspace each has."""

    def __init__(self, tape: Tape, options: Options, library: KernelLibrary | None) -> None:
        self.tape, self.options, self.library = tape, options, library
        self.allowed = options.memory or 0
        self.planned: dict[_MemoryPlan, int] = {}
        self.plans: dict[_MemoryPlan, str] = {}

    def fits(self, plan: _MemoryPlan) -> bool:
        """Whether the workspace of a plan has as few bytes as allowed."""
        module = _schedule(self.tape, self.options, self.library, plan)[0]
        (program,) = programs_in(module)
        bytes = program.workspace
        if bytes is None or bytes.value is None:
            raise MemoryBudgetError(
                f"`memory` is {self.allowed} bytes, and the workspace is {bytes} bytes, for sizes not known yet",
                fix="leave `memory` out, or let the sizes of the arguments be known: no symbolic dims, no `dynamic`",
            )
        self.planned[plan], self.plans[plan] = bytes.value, print_module(module)
        return self.planned[plan] <= self.allowed

    def first(self, limit: int) -> _MemoryPlan | None:
        """The first plan that fits, of those that rematerialize no contraction."""
        plans = (_MemoryPlan(level, limit) for level in (BYTES, POINTWISE, ROWS))
        return next((plan for plan in plans if self.fits(plan)), None)

    def first_in_chunks(self, usual: int) -> _MemoryPlan | None:
        """The same with products in chunks, where that changes anything."""
        for share in _SHARES:
            limit = max(1, self.allowed // share)
            plan = _MemoryPlan(BYTES, limit)
            if limit < usual and self.fits(plan):
                return plan
            if limit >= usual or self.plans[plan] == self.plans[_MemoryPlan(BYTES, usual)]:
                self.planned.pop(plan, None)
                continue
            found = self.first(limit)
            if found is not None:
                return found
        return None

    def fail(self, usual: int) -> MemoryBudgetError:
        """The error that none fits."""
        offload = self.options.offload
        least, offloaded = min(self.planned.values()), "with values offloaded, and " if offload else ""
        usually = self.planned[_MemoryPlan(BYTES, usual)]
        return MemoryBudgetError(
            f"`memory` allows {self.allowed} bytes of workspace, and the program needs {least}",
            notes=(f"it needs {usually} bytes {offloaded}where only what moves fewer bytes is rematerialized",),
            fix=f"allow {least} bytes, or wrap parts of the function in `tessera.checkpoint`"
            + ("" if offload else ", or offload values to host memory: `offload=True`"),
        )


def standard_library() -> KernelLibrary:
    """The library that ships with the compiler; found by name, since it is written on top of it."""
    return importlib.import_module("tessera.stdlib.kernels").StandardLibrary()


def lower_tape(tape: Tape, options: Options, library: KernelLibrary | None = None) -> dict[str, str]:
    """The text of a program at every level; of the schedule both the plan, with its groups, and the host program."""
    lowering = lower(tape, options, library, keep_snapshots=("schedule-input", "schedule-choose-tiles"))
    graph, plan = lowering.stages.snapshots
    return {
        "graph": graph.text,
        "schedule": f"{plan.text}\n{_module_text(lowering.program)}\n{_order_text(lowering)}",
        "tile": _module_text(*lowering.kernels),
        "target": _module_text(*lowering.targets),
        "llvm": "\n".join((lowering.host, *lowering.texts)),
    }


def _order_text(lowering: Lowering) -> str:
    """Which launches wait for which, as comments."""
    order = order_of(lowering.program, {kernel.symbol: kernel for kernel in lowering.kernels})
    return "\n".join(f"// {line}" for line in str(order).splitlines())


def graph_text(tape: Tape, options: Options) -> str:
    """The text of a program's Graph IR, simplified and checked, of one that goes no further too."""
    module = from_tape(tape)
    limit = LIMIT if options.largest_contraction is None else options.largest_contraction
    Stages(lambda: from_tape(tape)).run(
        "graph", graph.pipeline(checks=options.debug, limit=limit, fast=options.fast_math), module, graph.EXIT
    )
    return print_module(module)


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


# Compiling a program again from its text: what the scripts of failed compilations call.


def replay(graph: str, options: str) -> Executable:
    """The executable of a program given as Graph IR and the text of its options; raises as compiling it did."""
    function = symbol_table(parse_module(graph))["main"]
    return compile_tape(to_tape(function), Options.parse(options))
