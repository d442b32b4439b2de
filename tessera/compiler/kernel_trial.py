"""Kernels before they are compiled: run on NumPy, as tile programs or as Python, and tried on Tile IR."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.compiler.backend import backend_for_machine
from tessera.diagnostics.codes import TargetVerifyError
from tessera.diagnostics.error import user_span
from tessera.frontend.kernel.builder import KernelBuilder, ProgramAxis
from tessera.frontend.kernel.definition import KernelDefinition
from tessera.frontend.kernel.extents import Loop
from tessera.frontend.kernel.loops import Blocks
from tessera.frontend.kernel.operands import CallOperands, return_tiles
from tessera.frontend.kernel.tiles import check_width, pad_rows
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.dialect_of import make
from tessera.ir.base.dispatch import KERNELS, Outcome, register
from tessera.ir.base.tape import Tape
from tessera.ir.target.pipeline import targets_in
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.interpret import Observer, TileRun, run_kernel
from tessera.ir.tile.pipeline import pipeline
from tessera.ir.tile.records import INDEX, Body, KernelProgram, Memory, TileOp, Writer, type_attr, write_kernel
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.frontend.kernel.definition import KernelDefinition


# `KernelInstance`: a kernel with its static arguments and schedule, as ops that call it know it.


def candidates(usual: tuple[int, ...], numeric: Sequence[str], between: bool = False) -> tuple[tuple[int, ...], ...]:
    """Blocks of rows, columns and depth to choose from, the usual ones first; columns stay where they change bits.

    Matrix units take columns `between` powers of two, which leave fewer multiprocessors idle where programs are few.
    """
    m, n, k = usual
    rows = (m, m // 2, m * 2, m // 4)
    columns = (n,) if "n" in numeric else (n, n // 2, n * 2, *([n + n // 2] if between else []))
    return tuple((max(1, row), max(1, column), k) for row in rows for column in columns)


class KernelInstance:
    """One use of a kernel: what it computes is known but for the types of its operands."""

    def __init__(
        self, definition: KernelDefinition, statics: Mapping[str, Any], schedule: Schedule | None = None
    ) -> None:
        self.definition, self.statics, self.schedule = definition, dict(statics), schedule
        self._programs: dict[Any, KernelProgram] = {}

    def program(self, types: Sequence[TensorType], kind: str = "cpu") -> KernelProgram:
        """The kernel on tiles for operands of these types, on a kind of machine."""
        key = (tuple(types), kind)
        found = self._programs.get(key)
        if found is None:
            schedule = self.definition.complete(self.schedule, kind, types)
            found = self.definition.build(types, self.statics, schedule)
            found = self._programs[key] = pad_rows(found) if kind == "cpu" else found
        return found

    def registered(self, types: Sequence[TensorType]) -> str:
        """The name that ops call it by: the same for the same work, in every process.

        A schedule that is given and one that is found are told apart, even where they agree on this machine.
        """
        digest = self.program(types).digest
        if self.schedule is not None:
            digest = hashlib.sha256(f"{digest} {self.schedule.choices()}".encode()).hexdigest()
        name = f"{self.definition.name}:{digest[:24]}"
        register(name, self)
        return name

    def outcome(self, types: Sequence[TensorType]) -> Outcome:
        made = self.program(types)
        return Outcome(made.results, made.equalities)

    def reference(self, arrays: Sequence[Any]) -> tuple[Any, ...]:

        return run_program(self, arrays)

    def write(self, call: Any) -> list[Any]:
        from tessera.ir.tile.records import write_call  # noqa: PLC0415 - it needs xDSL

        program = self._chosen(call)
        if call.machine.kind == "cpu":
            from tessera.ir.target.limits import MAX_REGISTERS  # noqa: PLC0415 - for machine code alone

            check_width(program, call.lanes, MAX_REGISTERS * call.machine.registers)
        return write_call(program, call)

    def _chosen(self, call: Any) -> KernelProgram:
        """The program under its schedule, or under blocks that are asked for: those that change no bit alone."""
        kind = call.machine.kind
        if self.schedule is not None:
            self.check(call.operands, call.machine, tries=False)
            return self.program(call.operands, kind)
        made = self.program(call.operands, kind)
        usual = self.definition.complete(None, kind, call.operands).block
        block = call.choose("kernel.block", self._blocks(call.operands, call.machine))
        return made if tuple(block) == usual else self._under(block).program(call.operands, kind)

    def _blocks(self, types: Sequence[TensorType], machine: Machine) -> Sequence[tuple[int, ...]]:
        """Blocks to choose from, the one that does best by the model of the machine first."""
        usual = self.definition.complete(None, machine.kind, types).block
        between = machine.is_gpu and self.definition.has_dots
        blocks = candidates(usual, self.program(types, machine.kind).numeric, between)
        if not machine.is_gpu:
            return blocks
        from tessera.frontend.kernel.legality import rank_blocks  # noqa: PLC0415 - for GPUs alone

        return rank_blocks(blocks, lambda block: self._under(block).program(types, machine.kind), machine)

    def discovered(self, types: Sequence[TensorType], machine: Machine) -> Schedule:
        """The schedule that is in force for such operands: the one given, or the one that is found for a machine."""
        if self.schedule is not None:
            return self.definition.complete(self.schedule, machine.kind, types)
        first, *others = self._blocks(types, machine)
        why = f"found for {machine.cpu or machine.name}, the first of {1 + len(others)} blocks"
        return Schedule(block=first, lineage=(f"{why}{self._share(first, types, machine)}",))

    def _share(self, block: tuple[int, ...], types: Sequence[TensorType], machine: Machine) -> str:
        """How much of a GPU a block keeps at work, where sizes are known."""
        if not machine.is_gpu:
            return ""
        from tessera.frontend.kernel.legality import busy_fraction  # noqa: PLC0415 - for GPUs alone

        share = busy_fraction(self._under(block).program(types, machine.kind), block, machine)
        return "" if share is None else f": {share:.0%} of it are at work"

    def _under(self, block: Sequence[int]) -> KernelInstance:
        return KernelInstance(self.definition, self.statics, Schedule(block=tuple(block)))

    def check(self, types: Sequence[TensorType], machine: Machine, *, tries: bool = True) -> None:
        """Raises ScheduleError (T0401) where the machine cannot carry the schedule out: its numbers, and its code.

        Code is written for it only if it `tries`; a compilation does that anyway, and comes back where it fails.
        """
        from tessera.frontend.kernel.legality import check  # noqa: PLC0415 - for schedules that users give

        def build(schedule: Schedule) -> KernelProgram:
            return KernelInstance(self.definition, self.statics, schedule).program(types, machine.kind)

        schedule = self.definition.complete(self.schedule, machine.kind, types)
        source = self.definition.source
        span = source.span(source.tree)
        if not (tries and machine.is_gpu):
            check(build, schedule, machine, self.definition.name, span)
            return

        check(build, schedule, machine, self.definition.name, span, lambda program: refusal(program, machine))

    @property
    def place(self) -> str:
        return str(self.definition.source.span(self.definition.source.tree))

    @property
    def vjp(self) -> Callable[..., Any] | None:
        return self.definition.vjp


# Running kernels on NumPy: as tile programs, and as the Python functions they are, where a debugger can follow.


def types_of(arrays: Sequence[Array]) -> list[TensorType]:
    """The types of arrays, with their sizes as numbers."""
    return [TensorType.of(array.shape, dtype_of(array)) for array in arrays]


def results_for(program: KernelProgram) -> list[Array]:
    """Memory for the results of a program whose sizes are numbers."""
    return [np.zeros([dim.value or 0 for dim in type.shape], numpy_dtype(type.dtype)) for type in program.results]


def run_program(
    instance: KernelInstance, arrays: Sequence[Array], observer: Observer | None = None
) -> tuple[Array, ...]:
    """The results of a kernel on arrays: its tile program, run one program of the grid after the other."""
    return _run_tiles(instance.program(types_of(arrays)), arrays, observer)


def _run_tiles(program: KernelProgram, arrays: Sequence[Array], observer: Observer | None = None) -> tuple[Array, ...]:
    results = results_for(program)
    kernel = write_kernel(program)
    kernel.verify()
    with np.errstate(all="ignore"):
        run_kernel(kernel, [*(np.asarray(array, order="C") for array in arrays), *results], {}, observer=observer)
    return tuple(results)


def run_python(
    definition: KernelDefinition, arrays: Sequence[Array], statics: Mapping[str, Any], schedule: Schedule
) -> tuple[Array, ...]:
    """The results of a kernel's function itself, run by Python for each program of the grid on tiles with data."""
    types = types_of(arrays)
    # Python goes through the whole grid; what a triangle leaves out comes out as zero there too.
    program = definition.build(types, statics, schedule.with_(triangular=None))
    if any(0 in array.shape for array in arrays):
        # A loop of no steps says nothing of where tiles lie that it would have changed: Python sees none of it.
        return _run_tiles(program, arrays)
    results = results_for(program)
    names = _grid_names(program)
    grid = [dim.value or 0 for dim in program.grid]
    with np.errstate(all="ignore"):
        for index in itertools.product(*(range(extent) for extent in grid)):
            at = dict(zip(names, index, strict=False))
            b = NativeBuilder(definition.name, arrays, results, schedule, at)
            given = CallOperands(definition, types)
            with b.active():
                env = definition.environment(b, given, statics)
                value = definition.function(**env)
                return_tiles(b, definition, given, value)
    return tuple(results)


def _grid_names(program: KernelProgram) -> list[str]:
    """The coordinate of each axis of the grid, which its ops are named by."""
    found: list[str] = []
    ops = program.body.ops
    for op, after in itertools.pairwise(ops):
        if op.name != "program_id":
            continue
        is_start = after.name == "index" and after.operands == op.results
        found.append(after.values["names"][0] if is_start else f"_b{len(found)}")
    return found


class NativeBuilder(KernelBuilder):
    """Carries out every op as soon as it is written, for one program of the grid."""

    def __init__(
        self, name: str, arrays: Sequence[Array], results: Sequence[Array], schedule: Schedule, index: Mapping[str, int]
    ) -> None:
        types = types_of(arrays)
        super().__init__(name, types, schedule, {})
        self.is_native = True
        self.program_index, self.results = index, list(results)
        self.block = Block(arg_types=[type_attr(Memory(type)) for type in types])
        values: dict[int, SSAValue] = dict(enumerate(self.block.args))
        self.writer = Writer(self.types, self.block, values)
        kernel = make(
            DIALECT["kernel"],
            values={"symbol": name, "symbols": (), "grid": (), "writes": ()},
            types=(),
            regions=[Block(arg_types=[])],
        )
        self.run = TileRun(kernel, {})
        for argument, array in zip(self.block.args, arrays, strict=True):
            self.run[argument] = np.asarray(array, order="C")

    def add(self, op: TileOp) -> None:
        op.span = op.span or user_span()
        self.run.op(self.writer.op(op))

    def emit_first(self, name: str, operands: Sequence[int], values: Mapping[str, Any], type: Any) -> int:
        return self.emit(name, operands, values, [type])[0]

    def result_memory(self, type: TensorType) -> int:
        number = self.new(Memory(type))
        made = make(DIALECT["scratch"], types=[type_attr(Memory(type))])
        self.block.add_op(made)
        self.writer.values[number] = made.result
        self.run[made.result] = self.results[len(self.result_buffers)]
        return number

    def _axis(self, name: str, extent: Dim, size: int) -> str:
        if name not in self.axes:
            self.axes[name] = ProgramAxis(name, extent, size)  # with its number here, not that of any program
            self._names.setdefault(name, 1)
            self.coords[name] = self._number(self.program_index.get(name, 0) * size)
        return super()._axis(name, extent, size)

    def _number(self, value: int) -> int:
        return self.emit("index", (), {"names": (), "expr": Dim.constant(value)}, [INDEX])[0]

    def value(self, dim: Dim) -> int:
        """The number that an expression over coordinates is here."""
        env = {name: self.run[self.writer.values[number]] for name, number in self.coords.items()}
        return dim.evaluate({name: env[name] for name in dim.symbols})

    def steps(self, over: Blocks) -> Iterator[Loop]:
        """The steps of a loop, one after the other."""
        for start in range(0, self.value(over.extent), over.size):
            name = self.fresh_name(over.letter)
            self.coords[name] = self._number(start)
            yield Loop(name, over.size, over.extent, is_whole=over.is_whole)
            del self.coords[name]

    @contextmanager
    def inside(self, body: Body, *names: str) -> Generator[None]:
        raise AssertionError("a native run writes no loops")
        yield


Key = TypeVar("Key")


def refusal(program: KernelProgram, machine: Machine) -> str:
    """What keeps a machine from having code of a kernel, with its numbers; empty where nothing does."""
    compilation = backend_for_machine(machine).compilation_for(machine)
    module = ModuleOp([write_kernel(program)])
    for one in (*pipeline(), *compilation.tile_passes()):
        one.run(module)
    try:
        for one in compilation.target_passes():
            one.run(module)
        compilation.check_code(targets_in(module))
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
