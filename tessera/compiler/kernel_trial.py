"""Kernels before they are compiled: run on NumPy, as tile programs or as Python, and tried on Tile IR."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.compiler.backend import backend_for_machine
from tessera.compiler.kernel_instance import KernelInstance
from tessera.diagnostics.codes import TargetVerifyError
from tessera.diagnostics.error import user_span
from tessera.frontend.kernel.builder import KernelBuilder, ProgramAxis
from tessera.frontend.kernel.extents import Loop
from tessera.frontend.kernel.loops import Blocks
from tessera.frontend.kernel.operands import CallOperands, return_tiles
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.dialect_of import make
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.tape import Tape
from tessera.ir.target.pipeline import targets_in
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.interpret import Observer, TileRun, run_kernel
from tessera.ir.tile.pipeline import pipeline
from tessera.ir.tile.records import INDEX, Body, KernelProgram, Memory, TileOp
from tessera.ir.tile.write_records import Writer, type_attr, write_kernel
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.frontend.kernel.definition import KernelDefinition

Key = TypeVar("Key")

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
        # A loop of no steps says nothing of where tiles are that it would have changed: Python sees none of it.
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


# Kernels tried on a machine before any is compiled: whether it takes them, and what adds up their dots.


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
