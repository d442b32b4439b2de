"""The cpu backend: kernels and host program of a compilation as objects for one machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from xdsl.ir import SSAValue

from tessera.backends.cpu.emit import SMALL, emit_kernel, emit_parts
from tessera.backends.cpu.match_contraction import inexact_accumulations, instruction_choices, units_of
from tessera.backends.cpu.passes.lower_kernels import LowerKernels, lower_kernel
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.compilation import Chooser, Model
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.collective_chunks import choose_chunks
from tessera.ir.graph.passes.chunk_collective_matmuls import KNOB as COLLECTIVE_CHUNKS
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.typed_ops import CallOp, GuardOp
from tessera.ir.target.architectures import host_machine, level_of, machine_of, target_text
from tessera.ir.target.llvm.instructions import Index, TargetText, Value, dim_value
from tessera.ir.target.llvm.text import (
    EXCHANGES,
    FunctionText,
    HostProgram,
    ModuleText,
    buffer_type,
    callbacks_in,
    sizes_at,
)
from tessera.ir.target.machine_code import CodeTarget, begin, compile_texts
from tessera.ir.target.passes.check_kernels import CheckKernels, check_kernel
from tessera.ir.target.program import LLVM, Begin, CompileOptions, Interface, LlvmEmitter, interface_of
from tessera.runtime.launch import CALLBACK
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, PLAIN, Machine

# The host program as LLVM text: the four functions of an executable, with kernels called through the thread pool.

_MOST = 2**63 - 1
"""The largest size that a program computes with."""
_LOOPS = ("tsched.while", "tsched.for")


def host_text(program: SpecOp, target: TargetText) -> str:
    """The LLVM module of a host program."""
    module = ModuleText(target)
    face = interface_of(program)
    _emit_check(module, program, face)
    _emit_shapes(module, face)
    _emit_workspace(module, program, face)
    f = module.function(
        "tessera_entry", [("ptr", "inputs"), ("ptr", "outputs"), ("ptr", "symbols"), ("ptr", "workspace")], ret="i64"
    )
    _Entry(f, program, face).run()
    f.ret(f.const_i(0))
    return module.text()


def _emit_check(module: ModuleText, program: SpecOp, face: Interface) -> None:
    """Guards in order, then every input dim against its expression; the number of the first that fails, plus 1."""
    f = module.function("tessera_check", [("ptr", "symbols"), ("ptr", "in_dims")], ret="i64")
    symbols = sizes_at(f, f.arguments[0], face.symbols)
    number = 0
    for guard in (op for op in program.regions[0].block.ops if isinstance(op, GuardOp)):
        assert isinstance(guard, SpecOp)
        number += 1
        left, right = (checked_dim(f, guard.value(name), symbols) for name in ("left", "right"))
        _fail_unless_equal(f, left, right, number)
    dims = [dim for type in face.inputs for dim in type.shape]
    for at, dim in enumerate(dims):
        number += 1
        if at not in face.binding:
            given = f.load(f.gep(f.arguments[1], at, "i64"), "i64")
            _fail_unless_equal(f, (given, Value("i1", "false")), checked_dim(f, dim, symbols), number)
    f.ret(f.const_i(0))


def checked_dim(f: FunctionText, dim: Dim, symbols: dict[str, Index]) -> tuple[Value, Value]:
    """The value of a dim, and whether it, or a part of it, is beyond 64 bits."""
    return f.overflow_of(lambda: dim_value(f, dim, symbols))


def _saturating_dim(f: FunctionText, dim: Dim, symbols: dict[str, Index]) -> Value:
    """The value of a dim, or the most there is where it is beyond 64 bits: what no memory is found for."""
    value, overflow = checked_dim(f, dim, symbols)
    return value if overflow.text == "false" else f.select(overflow, f.const_i(_MOST), value)


def _fail_unless_equal(f: FunctionText, left: tuple[Value, Value], right: tuple[Value, Value], number: int) -> None:
    fails = f.icmp("ne", left[0], right[0])
    for _, overflow in (left, right):
        if overflow.text != "false":
            fails = f.op("or", fails, overflow)
    f.if_(fails, lambda: f.ret(f.const_i(number)))


def _emit_shapes(module: ModuleText, face: Interface) -> None:
    f = module.function("tessera_shapes", [("ptr", "symbols"), ("ptr", "out_dims")])
    symbols = sizes_at(f, f.arguments[0], face.symbols)
    for at, dim in enumerate(dim for type in face.outputs for dim in type.shape):
        f.store(_saturating_dim(f, dim, symbols), f.gep(f.arguments[1], at, "i64"))
    f.ret()


def _emit_workspace(module: ModuleText, program: SpecOp, face: Interface) -> None:
    f = module.function("tessera_workspace", [("ptr", "symbols")], ret="i64")
    symbols = sizes_at(f, f.arguments[0], face.symbols)
    parts = (program.value(name) or Dim.constant(0) for name in ("workspace", "offloaded"))
    f.ret(_saturating_dim(f, sum(parts, Dim.constant(0)), symbols))


class _Entry(HostProgram):
    """The function that runs the program, kernels divided among threads."""

    def __init__(self, f: FunctionText, program: SpecOp, face: Interface) -> None:
        super().__init__(f, program, face.symbols)
        self.callbacks = callbacks_in(program)
        self.context = f.alloca("i64", _longest_context(program))
        self.rounds: Value | None = None
        if any(op.name in _LOOPS for op in program.walk()):
            self.rounds = f.alloca("i64", 3, align=8)  # `%Rounds` of the native code
            for at in range(3):
                f.store(f.const_i(0), f.gep(self.rounds, at, "i64"))

    def constant(self, op: SpecOp) -> None:
        data: bytes = op.value("value").tobytes()
        self.pointers[op.result] = self.f.module.constant("i8", list(data))

    def copy(self, op: SpecOp) -> None:
        source, target = (self.pointers[value] for value in op.operands)
        size = self.dim(buffer_type(op.operands[0]).bytes)
        self.f.call("memcpy", [target, source, size], "ptr")

    def call(self, op: SpecOp) -> None:
        """Fill the context with pointers and sizes, ask for the number of tasks, and run them."""
        f, name, parts = self.f, op.value("kernel"), launch_of(op)
        if len(parts) > 1:
            if op is parts[-1]:
                self._call_together([part for part in parts if isinstance(part, CallOp)])
            return
        self._fill(op, self.context)
        threads = f.call("tessera_threads", [], "i64")
        tasks = f.call(f"{name}_tasks", [self.context, threads], "i64")

        def run() -> None:
            scratch = f.call(f"{name}_scratch", [self.context], "i64")
            f.declare(name, "void", ["ptr", "i64", "i64", "ptr"])
            missing = f.call("tessera_pool_run", [Value("ptr", f"@{name}"), self.context, tasks, scratch], "i64")
            f.if_(f.icmp("ne", missing, 0), lambda: self._leave(missing))

        f.if_(f.icmp("sgt", tasks, 0), run)

    def _fill(self, op: SpecOp, context: Value) -> None:
        f = self.f
        slots = [self.pointers[value] for value in op.operands] + [self.dim(size) for size in op.value("sizes")]
        for at, slot in enumerate(slots):
            f.store(slot, f.gep(context, at, "i64"), align=8)

    def _call_together(self, calls: Sequence[CallOp]) -> None:
        """Run the tasks of several calls of one kernel as those of one, so that threads are woken once.

        Their contexts follow each other, each with the number of the first of its tasks behind it; the last is that of
        nothing, and has the number of all.
        """
        f, name, width = self.f, calls[0].kernel, _context_words(calls[0]) + 1
        context = f.alloca("i64", width * (len(calls) + 1))
        threads = f.call("tessera_threads", [], "i64")
        total, scratch, elements = f.const_i(0), f.const_i(0), Dim.constant(0)
        for number, call in enumerate(calls):
            own = f.gep(context, number * width, "i64")
            self._fill(call, own)
            f.store(total, f.gep(own, width - 1, "i64"), align=8)
            total = f.add(total, f.smax(f.call(f"{name}_tasks", [own, threads], "i64"), 0))
            # Of no memory for one there is too little for all: as an unsigned number it is the largest.
            bytes_ = f.call(f"{name}_scratch", [own], "i64")
            scratch = f.select(f.icmp("ugt", bytes_, scratch), bytes_, scratch)
            elements = sum((buffer_type(value).size for value in call.operands), elements)
        f.store(total, f.gep(context, (len(calls) + 1) * width - 1, "i64"), align=8)
        f.declare(name, "void", ["ptr", "i64", "i64", "ptr"])
        together = _write_together(f.module, name, len(calls), width)
        # One thread does a few elements sooner than it wakes others.
        tasks = f.select(f.icmp("slt", self.dim(elements), SMALL), f.smin(total, 1), total)

        def run() -> None:
            missing = f.call("tessera_pool_run", [Value("ptr", f"@{together}"), context, tasks, scratch], "i64")
            f.if_(f.icmp("ne", missing, 0), lambda: self._leave(missing))

        f.if_(f.icmp("sgt", total, 0), run)

    def call_back(self, op: SpecOp) -> None:
        """Give Python the buffers and their dims; whatever it raised ends the program."""
        f = self.f
        dims = [dim for value in op.operands for dim in buffer_type(value).shape]
        for at, slot in enumerate([*(self.pointers[value] for value in op.operands), *map(self.dim, dims)]):
            f.store(slot, f.gep(self.context, at, "i64"), align=8)
        failed = f.call(CALLBACK, [f.const_i(self.callbacks.index(op)), self.context], "i64")
        f.if_(f.icmp("ne", failed, 0), lambda: self._leave(failed))

    def _leave(self, code: Value) -> None:
        """Return early; the memory of collectives that are under way is freed with the program's."""
        if any(op.name in EXCHANGES for op in self.callbacks):
            self.f.call(CALLBACK, [self.f.const_i(-1), self.context], "i64")
        self.f.ret(code)

    def next_round(self) -> None:
        """Ask for signals, and seldom where rounds are short; what a handler raised ends the program."""
        f, rounds = self.f, self.rounds
        assert rounds is not None, "a loop that nobody has seen"
        left = f.load(rounds, "i64")

        def ask() -> None:
            raised = f.call("tessera_poll", [rounds], "i64")
            f.if_(f.icmp("ne", raised, 0), lambda: self._leave(raised))

        f.if_(f.icmp("eq", left, 0), ask, lambda: f.store(f.sub(left, 1), rounds))

    def read(self, buffer: SSAValue, type_: str) -> Value:
        return self.f.load(self.pointers[buffer], type_)

    def write(self, number: Value, buffer: SSAValue) -> None:
        f, dtype = self.f, f"i{buffer_type(buffer).dtype.bits}"
        f.store(f.cast("trunc", number, dtype) if dtype != "i64" else number, self.pointers[buffer])


def _longest_context(program: SpecOp) -> int:
    """Slots of the longest call."""
    calls = (_context_words(op) for op in program.walk() if isinstance(op, CallOp))
    called = (sum(1 + buffer_type(value).rank for value in op.operands) for op in callbacks_in(program))
    return max((*calls, *called), default=1)


def _context_words(call: CallOp) -> int:
    """Slots of a call: buffers, sizes, and one that the kernel keeps its grid of tasks in."""
    return len(call.operands) + len(call.sizes) + 1


def _write_together(module: ModuleText, kernel: str, count: int, width: int) -> str:
    """A kernel whose tasks are those of `count` calls of another, one after the other; its name.

    The pool may ask for more tasks than there are, each a part of one, and then so does this.
    """
    name = f"{kernel}__together{count}"
    if module.has_function(name):
        return name
    f = module.function(name, [("ptr", "ctx"), ("i64", "task"), ("i64", "tasks"), ("ptr", "scratch")])
    context, task, tasks, scratch = f.arguments
    whole = f.load(f.gep(context, (count + 1) * width - 1, "i64"), "i64")
    parts = f.smax(f.udiv(tasks, whole), 1)
    units = f.mul(whole, parts)
    low, high = (f.udiv(f.mul(units, at), tasks) for at in (task, f.add(task, 1)))

    def run(number: Value) -> None:
        own = f.gep(context, f.mul(number, width), "i64")
        first, last = (f.mul(f.load(f.gep(own, at, "i64"), "i64"), parts) for at in (width - 1, 2 * width - 1))
        inside = f.sub(last, first)
        f.loop(
            f.smax(low, first),
            f.smin(high, last),
            1,
            lambda unit: f.call(kernel, [own, f.sub(unit, first), inside, scratch]) and None,
        )

    f.loop(0, count, 1, run)
    f.ret()
    return name


@frozen
class CpuBackend:
    """Compiles for one CPU, as a `Compilation` of `compiler/backend.py`."""

    machine: Machine = field(default_factory=host_machine)
    is_checked: bool = False
    """Whether lowered kernels are compared with their tile kernels."""
    unit: str = AUTOMATIC
    """The matrix instruction that is asked for."""

    @property
    def code_target(self) -> CodeTarget:
        """What the code generator is told."""
        architecture, level = level_of(self.machine)
        return CodeTarget(triple=architecture.triple, cpu=level.text.cpu, features=level.text.features)

    @property
    def host_target(self) -> CodeTarget:
        """What it is told for host programs: to optimize nothing.

        They compare, multiply a few sizes and call kernels; well selected instructions take four times as long to
        make, ten milliseconds for each function that is compiled, and save a call some five nanoseconds of 500.
        """
        return replace(self.code_target, opt=0)

    def lower(self, kernel: SpecOp) -> SpecOp:
        """A `ttile.kernel` as a `ttarget.kernel`.

        Raises TargetVerifyError (T0601) for a kernel that asks for more than the machine has.
        """
        target = lower_kernel(kernel, self.machine, self.unit)
        check_kernel(target)
        return target

    @property
    def emitter(self) -> LlvmEmitter:
        """How kernels leave: as LLVM text, and objects of it."""
        return LlvmEmitter(self.text, self.code_target)

    def text(self, kernel: SpecOp) -> str:
        """A `ttarget.kernel` as LLVM text."""
        return emit_kernel(kernel, target_text(self.machine))

    def parts(
        self, kernels: Sequence[SpecOp], begin: Callable[[str, CodeTarget], None] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Kernels as LLVM texts, and the modules they share, by symbol: each compiled once for all programs.

        Each text goes to `begin` when it is done, so that its machine code is made while the next one is written.
        """
        texts: list[str] = []
        shared: dict[str, str] = {}
        for kernel in kernels:
            text, common = emit_parts(kernel, target_text(self.machine))
            if begin is not None:
                for new in (text, *(common[symbol] for symbol in common.keys() - shared.keys())):
                    begin(new, self.code_target)
            texts.append(text)
            shared.update(common)
        return texts, shared

    def tile_passes(self) -> Sequence[Pass]:
        return ()

    def target_passes(self) -> Sequence[Pass]:
        return (LowerKernels(self.machine.features, self.is_checked, self.unit), CheckKernels())

    def check_target(self, kernel: SpecOp) -> None:
        """Nothing beside the verifiers."""

    def emit(
        self, program: SpecOp, kernels: Sequence[SpecOp], targets: Sequence[SpecOp], begin: Begin | None
    ) -> CpuCode:
        texts, shared = self.parts(targets, begin)
        host = host_text(program, target_text(self.machine))
        return CpuCode(self, tuple(targets), (*texts, *shared.values()), host)

    def check_code(self, targets: Sequence[SpecOp]) -> None:
        for target in targets:
            self.text(target)


@frozen
class CpuCode:
    """The `Code` of a program for a CPU; the last texts are modules that kernels share."""

    backend: CpuBackend
    targets: tuple[SpecOp, ...]
    texts: tuple[str, ...]
    host: str
    language: str = LLVM

    def objects(self) -> Sequence[bytes]:
        """One object for each text, the host program's first."""
        begin(self.host, self.backend.host_target)  # beside the kernels
        kernels = self.backend.emitter.objects(self.texts)
        return [*compile_texts([self.host], self.backend.host_target), *kernels]

    def metadata(self, program: SpecOp) -> dict[str, Any]:
        """The features without which the code must not run."""
        return {"features": list(self.backend.machine.features)}

    def facts(self) -> dict[str, Any]:
        """The matrix instruction of each kernel that has one."""
        found = [f"{kernel.value('symbol')}: {unit}" for kernel in self.targets for unit in units_of(kernel)]
        return {"matrix instructions": found} if found else {}

    def approximations(self) -> dict[str, tuple[str, ...]]:
        """Sums of matrix instructions in an order of their own; all functions are the compiler's own."""
        return {kernel.value("symbol"): inexact_accumulations(kernel) for kernel in self.targets}

    def lint(self) -> Sequence[Any]:
        raise OverrideError("only kernels for a GPU are looked at", fix='compile with `backend="cuda"`')


class _Cpu:
    """The CPU backend, as `compiler/backend.py` describes one."""

    accumulation_units: tuple[str, ...] = ()
    models: Mapping[str, tuple[str, Model]] = {COLLECTIVE_CHUNKS: ("ranks of one machine", choose_chunks)}
    times: Mapping[str, Callable[[Any, Mapping[str, Any], Mapping[str, Any]], float | None]] = {}

    def compilation(self, options: CompileOptions, chooser: Chooser) -> CpuBackend:
        """For the machine at hand, or one with the features that are asked for."""
        features = options.features
        machine = host_machine() if features is None else machine_of(frozenset(features))
        # Asked for only where there is one: elsewhere an override is refused, as one that nobody reads.
        choices, unit = instruction_choices(machine), AUTOMATIC
        if len(choices) > len((AUTOMATIC, PLAIN)):
            unit = chooser.choose("matrix.instruction", choices, {"machine": machine}).value
        return CpuBackend(machine, options.debug or os.environ.get("TESSERA_VERIFY") == "1", unit)

    def compilation_for(self, machine: Machine) -> CpuBackend:
        return CpuBackend(machine)

    def accumulation_unit(self, kernel: SpecOp, machine: Machine) -> str:
        """None: every kernel adds up in the order that numerics fix."""
        return ""

    def resources(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        """Nothing: registers and caches are the CPU's own business."""
        return []

    def spilling(self, metadata: dict[str, Any], objects: Sequence[bytes]) -> list[str]:
        """None: what a CPU spills is in its first cache."""
        return []


BACKEND = _Cpu()
