"""Target IR to LLVM text: a kernel's function, and those that give its number of tasks and bytes of scratch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.cpu import emit_values
from tessera.backends.cpu.emit_access import Access
from tessera.backends.cpu.emit_contraction import (
    contraction_scratch,
    contraction_tasks,
    emit_block_dot,
    emit_contraction,
    slot_of,
    split_index,
)
from tessera.backends.cpu.emit_sort import emit_sort
from tessera.backends.cpu.registers import (
    Layout,
    Vectors,
    Version,
    emit_split,
    emit_versions,
    find_split,
    is_worth_versions,
    loop_in_strips,
)
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, IndexAttr, VectorAttr
from tessera.ir.target.llvm.instructions import Index, TargetText, Value, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.ir.target.typed_ops import GemmOp, ProgramsOp
from tessera.types.dim import Dim, product

if TYPE_CHECKING:
    from tessera.ir.target.typed_ops import IndexOp, LoadOp, LoopOp, ScratchOp, StoreOp, TailOp

SMALL = 1 << 15
"""Elements below which one thread does all: waking another takes longer."""

TASKS_PER_THREAD = 4
"""Tasks per thread: enough to even out unequal programs."""


def emit_kernel(kernel: SpecOp, target: TargetText) -> str:
    """The LLVM module of a kernel, whole."""
    return _module_of(kernel, ModuleText(target)).text()


def emit_parts(kernel: SpecOp, target: TargetText) -> tuple[str, dict[str, str]]:
    """The LLVM module of a kernel without what it has in common with others, and those modules by their symbols."""
    module = _module_of(kernel, ModuleText(target, shares=True))
    return module.text(), module.shared_modules()


def _module_of(kernel: SpecOp, module: ModuleText) -> ModuleText:
    name = kernel.value("symbol")
    _emit_tasks(module, kernel, name)
    _emit_scratch(module, kernel, name)
    f = module.function(name, [("ptr", "ctx"), ("i64", "task"), ("i64", "tasks"), ("ptr", "scratch")])
    Emitter(f, kernel).run()
    f.ret()
    return module


def _sizes(f: FunctionText, kernel: SpecOp, context: Value) -> dict[str, Index]:
    """The kernel's sizes, from the slots of a context after its buffers."""
    first = len(kernel.regions[0].block.args)
    return {name: f.load(f.gep(context, first + at, "i64"), "i64") for at, name in enumerate(kernel.value("symbols"))}


def _emit_tasks(module: ModuleText, kernel: SpecOp, name: str) -> None:
    f = module.function(f"{name}_tasks", [("ptr", "ctx"), ("i64", "threads")], ret="i64")
    sizes = _sizes(f, kernel, f.arguments[0])
    first = kernel.regions[0].block.first_op
    if isinstance(first, GemmOp):
        f.ret(contraction_tasks(f, first, sizes, slot_of(kernel)))
        return
    total = dim_value(f, product(_grid_of(kernel)), sizes)
    elements = Dim.constant(0)
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        elements = elements + product(argument.type.shape)
    tasks = f.smin(total, f.mul(f.arguments[1], TASKS_PER_THREAD))
    is_small = f.icmp("slt", dim_value(f, elements, sizes), SMALL)
    f.ret(f.select(is_small, f.smin(total, 1), tasks))


def _grid_of(kernel: SpecOp) -> Sequence[Dim]:
    for op in kernel.regions[0].block.ops:
        if isinstance(op, ProgramsOp):
            return op.grid
    return ()


def _emit_scratch(module: ModuleText, kernel: SpecOp, name: str) -> None:
    f = module.function(f"{name}_scratch", [("ptr", "ctx")], ret="i64")
    sizes, first = _sizes(f, kernel, f.arguments[0]), kernel.regions[0].block.first_op
    extra = contraction_scratch(module.target, first) if isinstance(first, GemmOp) else 0
    own, overflow = f.overflow_of(lambda: dim_value(f, kernel.value("scratch") + extra, sizes))
    # What the pool takes for more than there is.
    f.ret(own if overflow.text == "false" else f.select(overflow, f.const_i(-1), own))


_WRITING = ("ttarget.store", "ttarget.block_dot", "ttarget.sort", "ttarget.tree")


class Emitter:
    """Walks the ops of a kernel and writes each; blocks of vectors are written lazily, memory in order."""

    def __init__(self, f: FunctionText, kernel: SpecOp) -> None:
        self.f, self.kernel = f, kernel
        self.register = kernel.value("lanes")
        self.env: dict[str, Index] = {}
        self.indices: dict[SSAValue, Index] = {}
        self.buffers: dict[SSAValue, Value] = {}
        self.blocks: dict[SSAValue, Vectors] = {}
        self._pending: dict[str, list[Vectors]] = {}
        self.is_inside = False
        """Whether no access reaches beyond a bound here, whatever it guards against."""
        self.version: Version | None = None
        """Which of two versions is being written."""

    def run(self) -> None:
        self.enter(self.f.arguments[0])
        self.f.hoist(self.env)
        self.ops(self.kernel.regions[0].block)

    def enter(self, context: Value) -> None:
        """Read buffers and sizes from the context that a function gets."""
        f = self.f
        for at, argument in enumerate(self.kernel.regions[0].block.args):
            self.buffers[argument] = f.load(f.gep(context, at, "ptr"), "ptr")
        self.env.update(_sizes(f, self.kernel, context))

    def ops(self, block: Block) -> None:
        self.run_ops([op for op in block.ops if isinstance(op, SpecOp)])

    def run_ops(self, ops: Sequence[SpecOp], then: Callable[[], None] | None = None) -> None:
        """Write ops in order, and what `then` writes; what follows the clip of a long row in two versions."""
        for number, op in enumerate(ops):
            if is_worth_versions(self, op):
                emit_versions(self, ops[number:], then)
                return
            self.emit(op)
        if then is not None:
            then()

    def emit(self, op: SpecOp) -> None:
        handler = _HANDLERS.get(op.spec.short_name)
        assert handler is not None, f"{op.name} has no text"
        handler(self, op)

    # Control.

    def on_programs(self, op: ProgramsOp) -> None:
        f = self.f
        grid = [dim_value(f, dim, self.env) for dim in op.grid]
        total: Index = 1
        for extent in grid:
            total = f.mul(total, extent)
        _, task, tasks, _ = f.arguments
        low = f.udiv(f.mul(total, task), tasks)
        high = f.udiv(f.mul(total, f.add(task, 1)), tasks)
        block = op.regions[0].block

        def program(number: Value) -> None:
            self.indices.update(zip(block.args, split_index(f, number, grid), strict=True))
            self.ops(block)

        f.loop(low, high, 1, program)

    def on_index(self, op: IndexOp) -> None:
        self.indices[op.result] = dim_value(self.f, op.expr, self.env_of(op, op.names, 0))

    def env_of(self, op: SpecOp, names: Sequence[str], first: int) -> dict[str, Index]:
        """Sizes, and the index operands of an op by their names."""
        values = [value for value in op.operands[first:] if isinstance(value.type, IndexAttr)]
        return {**self.env, **{name: self.indices[value] for name, value in zip(names, values, strict=True)}}

    def bounds(self, op: LoopOp | TailOp) -> tuple[Value, Value, Value]:
        """Low, high, and where the last whole step ends."""
        f = self.f
        low, high = (f.index(self.indices[value]) for value in op.operands[:2])
        span = f.smax(f.sub(high, low), 0)
        return low, high, f.add(low, f.round_down(span, op.step))

    def on_loop(self, op: LoopOp) -> None:
        split = find_split(op)
        if split is not None:
            emit_split(self, op, split)
            return
        low, high, whole = self.bounds(op)
        whole = high if op.is_partial else whole
        starts = self.prepare_body(op)

        def body(index: Value, carried: list[Value]) -> list[Value]:
            return self._emit_iteration(op, index, carried)

        # The pool cuts tasks of many programs by itself. A loop that nobody knows the length of is worth strips where
        # there are few: to begin one costs some 2 ns, which is much for many short rows.
        is_known = constant_of(low) is not None and constant_of(whole) is not None
        if not is_known and product(_grid_of(self.kernel)).value is None:
            self.bind(op.results, self.f.loop(low, whole, op.step, body, starts))
            return
        has_loops = any(part.regions for part in op.walk() if part is not op)
        self.bind(op.results, loop_in_strips(self.f, low, whole, op.step, body, starts, has_loops=has_loops))

    def on_tail(self, op: TailOp) -> None:
        _, high, whole = self.bounds(op)
        starts = self.prepare_body(op)
        has = self.f.icmp("slt", whole, high)
        if starts:
            self.bind(op.results, self.f.if_(has, lambda: self._emit_iteration(op, whole, starts), lambda: starts))
        else:
            self.f.if_(has, lambda: self._emit_iteration(op, whole, []) and None)

    def prepare_body(self, op: SpecOp) -> list[Value]:
        """Write all that a body will use, before it begins; the flat values carried into it.

        What was loaded from memory that the body writes is loaded now, whether the body uses it or not.
        """
        for part in op.walk():
            for buffer in part.operands:
                if part.name in _WRITING and buffer in self.buffers:
                    self.settle(self.buffers[buffer])
        for value in _used_from_outside(op):
            if value in self.blocks:
                self.blocks[value].all()
        return [vector for value in op.operands[2:] for vector in self.blocks[value].all()]

    def _emit_iteration(self, op: SpecOp, index: Value, carried: list[Value]) -> list[Value]:
        block = op.regions[0].block
        self.indices[block.args[0]] = index
        self.bind(block.args[1:], carried)
        with self.own_reads():
            self.ops(block)
        last = block.last_op
        assert last is not None
        return [vector for value in last.operands for vector in self.blocks[value].all()]

    @contextmanager
    def own_reads(self) -> Generator[None]:
        """What is asked of buffers within a body is read there or not at all."""
        outer, self._pending = self._pending, {}
        yield
        self._pending = outer

    def bind(self, values: Sequence[SSAValue], flat: Sequence[Value]) -> None:
        """Have values be blocks of vectors that were written one after the other."""
        at = 0
        for value in values:
            layout, dtype = self.layout(value)
            self.blocks[value] = Vectors.of(layout, dtype, flat[at : at + layout.count])
            at += layout.count

    def layout(self, value: SSAValue) -> tuple[Layout, Any]:
        assert isinstance(value.type, VectorAttr)
        return Layout([dim.value or 0 for dim in value.type.shape], self.register), value.type.dtype

    # Memory.

    def on_scratch(self, op: ScratchOp) -> None:
        offset = dim_value(self.f, op.offset, self.env)
        self.buffers[op.result] = self.f.gep(self.f.arguments[3], offset, "i8")

    def access(self, op: LoadOp | StoreOp, buffer: SSAValue, block: SSAValue, first: int) -> Access:
        layout, dtype = self.layout(block)
        tiles = [self.blocks[value] for value in op.operands[first:] if isinstance(value.type, VectorAttr)]
        env = self.env_of(op, op.coords, first)
        return Access(self.f, op, self.buffers[buffer], dtype, layout, env, tiles, self.is_inside)

    def on_load(self, op: LoadOp) -> None:
        access = self.access(op, op.operands[0], op.result, 1)
        if access.is_transposable:
            self.blocks[op.result] = Vectors.of(access.layout, access.dtype, access.load_transposed())
            return
        block = Vectors(access.layout, access.dtype, access.load)
        self.blocks[op.result] = block
        self._pending.setdefault(access.base.text, []).append(block)

    def settle(self, base: Value) -> None:
        """Read all that was asked of a buffer, before something writes it."""
        for block in self._pending.pop(base.text, []):
            block.all()

    def settle_all(self) -> None:
        """Read all that was asked of any buffer."""
        for blocks in self._pending.values():
            for block in blocks:
                block.all()
        self.forget()

    def forget(self) -> None:
        """What was asked of buffers and not yet read is not needed any more."""
        self._pending = {}

    def on_store(self, op: StoreOp) -> None:
        access = self.access(op, op.operands[1], op.operands[0], 2)
        self.settle(access.base)
        for number in range(access.layout.count):
            access.store(self.blocks[op.operands[0]], number)

    def on_nothing(self, op: SpecOp) -> None:
        """The end of a block: what it gives is read where it ends."""


def _used_from_outside(op: SpecOp) -> list[SSAValue]:
    """Values that a body reads and does not make."""
    inside: set[SSAValue] = set()
    used: dict[SSAValue, None] = {}
    for part in op.walk():
        if part is op:
            continue
        inside.update(part.results)
        used.update(dict.fromkeys(part.operands))
    for part in op.walk():
        for region in part.regions:
            inside.update(region.block.args)
    return [value for value in used if value not in inside]


_VALUES = (
    *("elementwise", "cast", "bitcast", "round", "select", "constant", "coordinate", "clip", "broadcast"),
    *("reduce", "arg_reduce", "shuffle", "vote", "fetch", "prefetch", "tree"),
)
"""Ops that `emit_values` writes, each by the function of its name."""
_HANDLERS: dict[str, Callable[[Emitter, Any], None]] = {
    "gemm": emit_contraction,
    "programs": Emitter.on_programs,
    "index": Emitter.on_index,
    "loop": Emitter.on_loop,
    "tail": Emitter.on_tail,
    "scratch": Emitter.on_scratch,
    "load": Emitter.on_load,
    "store": Emitter.on_store,
    **{name: getattr(emit_values, f"emit_{name}") for name in _VALUES},
    "block_dot": emit_block_dot,
    "sort": emit_sort,
    "yield": Emitter.on_nothing,
    "return": Emitter.on_nothing,
}
