"""Running a program in any order that its dependencies allow, by the interpreter or by compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.arrays import Array
from tessera.ir.base.interpret import Run
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.accesses import Memory
from tessera.ir.schedule.host_program.launch_order import LaunchOrder, ops_of, order_in
from tessera.ir.schedule.plan import programs_in
from tessera.runtime.loader import link
from tessera.runtime.tensor import native
from tests.oracles.launch_orders import without_edge
from tests.oracles.schedule_interpreter import run_program

Kernels: TypeAlias = Callable[[str, Sequence[Array], Sequence[int]], None]
"""Runs a kernel by its name, on buffers, with its sizes."""


class AnyOrder:
    """A program and the orders of its blocks; `kernels` runs calls, the interpreter of tiles where there is none."""

    def __init__(self, module: ModuleOp, kernels: Kernels | None = None) -> None:
        self.module, self.kernels = module, kernels
        (self.program,) = programs_in(module)
        self._memory = Memory(self.program, symbol_table(module))
        self._blocks: dict[Block, tuple[LaunchOrder, list[SpecOp]]] = {}

    @property
    def order(self) -> LaunchOrder:
        """That of the whole program."""
        return self.block(self.program.regions[0].block)[0]

    def block(self, block: Block) -> tuple[LaunchOrder, list[SpecOp]]:
        """The order of a block, and its ops by number."""
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = (order_in(block, self._memory), ops_of(block))
        return found

    def forget(self, edge: tuple[int, int]) -> None:
        """Leave an edge of the whole program out from now on."""
        block = self.program.regions[0].block
        order, ops = self.block(block)
        self._blocks[block] = (without_edge(order, edge), ops)

    def run(self, *arrays: Array, seed: int) -> tuple[Array, ...]:
        """The results, with each block in an order of its own, and each round of a loop."""
        return run_program(self.module, *arrays, runner=partial(_Drawn, self, Random(seed)))


class _Drawn(Run):
    """One execution."""

    def __init__(
        self, program: AnyOrder, random: Random, dims: Mapping[str, int], functions: Mapping[str, SpecOp]
    ) -> None:
        super().__init__(dims, functions)
        self._program, self._random = program, random

    def block(self, block: Block, arguments: Sequence[Any]) -> tuple[Any, ...]:
        for argument, content in zip(block.args, arguments, strict=True):
            self[argument] = content
        order, ops = self._program.block(block)
        for number in order.draw(self._random):
            self.op(ops[number])
        last = block.last_op
        return tuple(self.operands(last)) if isinstance(last, SpecOp) and last.spec.is_terminator else ()

    def op(self, op: SpecOp) -> None:
        kernels = self._program.kernels
        if kernels is None or op.name != "tsched.call":
            super().op(op)
        else:
            kernels(op.value("kernel"), self.operands(op), [self.size(size) for size in op.value("sizes")])


_TASKS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
_SCRATCH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class CompiledKernels:
    """Kernels by name; called with buffers and sizes, one distributes its work over threads as always."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        support = native()
        self._code = link(objects, support.code.symbols)
        self._run = _RUN(support.code.address("tessera_pool_run"))
        self._functions: dict[str, tuple[int, Any, Any]] = {}

    def __call__(self, name: str, buffers: Sequence[Array], sizes: Sequence[int]) -> None:
        kernel, tasks, scratch = self._find(name)
        words = [*(buffer.ctypes.data for buffer in buffers), *sizes, 0]
        context = (ctypes.c_int64 * len(words))(*words)
        count = tasks(context, 1)
        if count > 0:
            missing = self._run(kernel, context, count, scratch(context))
            assert not missing, f"no memory for {missing} bytes of scratch"

    def _find(self, name: str) -> tuple[int, Any, Any]:
        found = self._functions.get(name)
        if found is None:
            code = self._code
            functions = _TASKS(code.address(f"{name}_tasks")), _SCRATCH(code.address(f"{name}_scratch"))
            found = self._functions[name] = (code.address(name), *functions)
        return found


def compiled_in_any_order(tape: Tape, options: Options | None = None) -> AnyOrder:
    """A traced program whose kernels are compiled for this CPU, to be run in any order."""
    lowering = lower(tape, options or Options())
    # The first object is the host program, which has an order of its own.
    return AnyOrder(lowering.module, CompiledKernels(lowering.code.objects()[1:]))
