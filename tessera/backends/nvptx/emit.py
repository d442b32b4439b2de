"""Target IR to LLVM text for NVPTX: programs over blocks and warps, loops, arithmetic on tiles that threads hold.

Nothing is decided here: how many programs a block has, what is prefetched and what stays in registers are attributes
that passes have written (`row_plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tessera.backends.nvptx import emit_access, emit_exchange, emit_sort, emit_values, leaf_rows, values
from tessera.backends.nvptx.access_groups import (
    find_adjacent,
    is_transposing,
    overlapping_loads,
    transposed_layout,
)
from tessera.backends.nvptx.approximate_functions import find_exp_bounds, is_exp_of_range
from tessera.backends.nvptx.emit_matmul import MatmulWriter
from tessera.backends.nvptx.emit_rows import find_row_slices
from tessera.backends.nvptx.layout import Layout, Threads, Tile
from tessera.backends.nvptx.leaf_rows import LeafRows
from tessera.backends.nvptx.matmul_plan import grids_of, plan_of
from tessera.backends.nvptx.passes.choose_vectors import is_elementwise
from tessera.backends.nvptx.row_accesses import Left
from tessera.backends.nvptx.row_plan import (
    BLOCKS,
    FETCHES_LINES,
    LAUNCHED,
    NEAR_ROWS,
    PROGRAMS,
    ROW_BLOCKS,
    SLOTS,
    launch_of_rows,
    programs_in,
    shared_widths,
)
from tessera.backends.nvptx.streamed_dots import (
    StreamedOperand,
    find_streamed,
    load_aside,
    resident_of,
    set_inputs_aside,
)
from tessera.backends.nvptx.text import (
    WARP,
    CallTable,
    DeviceModule,
    KernelCode,
    barrier,
    many_symbol,
    special,
    warp_barrier,
)
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import IndexAttr, VectorAttr, shaped_type
from tessera.ir.target.limits import divides_words
from tessera.ir.target.llvm.instructions import Index, Value, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.typed_ops import DotOp, IndexOp, KernelOp, LoadOp, LoopOp, ProgramsOp, ScratchOp, TailOp
from tessera.types.dim import Dim, product
from tessera.types.machine import Machine

_EXCHANGE = "%EXCHANGE%"
"""Stands for the bytes of a program's exchange until all of it is written."""


def emit_kernel(kernel: KernelOp, machine: Machine, exponential: str = values.EXACT) -> KernelCode:
    """The module of a kernel; `exponential` says how `exp` is computed."""
    return Emitter(kernel, machine, exponential).run()


def emit_many(kernel: KernelOp, machine: Machine, exponential: str, calls: int) -> KernelCode | None:
    """The module of a kernel that computes several calls of another in one launch; None where that has scratch.

    The blocks of a call follow those of the one before, and each finds its call by the first blocks of all.
    """
    if kernel.warps_per_row or SLOTS.of(kernel) or LAUNCHED.of(kernel):
        return None
    table = CallTable.of(calls, len(kernel.body.block.args) + len(kernel.symbols))
    emitter = Emitter(kernel, machine, exponential, table)
    code = emitter.run()
    return None if emitter.scratch_bytes != Dim.constant(0) else code


@dataclass
class Held:
    """Scratch that threads keep in registers: tiles by where they were stored."""

    tiles: dict[int | str, Tile] = field(default_factory=dict[int | str, Tile])


def has_rows(kernel: KernelOp) -> bool:
    """Whether a program has rows in registers, which it reduces whole: no loop goes over them, or warps share them."""
    names = {op.name for op in kernel.walk()}
    return bool(kernel.warps_per_row) or ("ttarget.reduce" in names and "ttarget.loop" not in names)


def block_number(f: FunctionText) -> Value:
    """The number of this block in the grid."""
    return f.cast("zext", special(f, "ctaid.x"), "i64")


class Emitter:
    """Walks the ops of a kernel and writes each."""

    is_ordered = False
    """Whether loads stay where they are written."""
    keeps_words = False
    """Whether loads give the words of memory, out of which elements are taken where they are read."""
    holds_back = False
    """Whether terms of a chain of multiply-adds are loaded no sooner than some before them are added up."""
    terms = 0
    """Terms of such chains that were written."""
    is_wanted: Value | None = None
    """Whether loads read anything, where that is not sure."""

    def __init__(
        self, kernel: KernelOp, machine: Machine, exponential: str = values.EXACT, table: CallTable | None = None
    ) -> None:
        self.kernel, self.machine, self.exponential, self.table = kernel, machine, exponential, table
        self.exp_bounds = find_exp_bounds(kernel)
        self.name = kernel.symbol if table is None else many_symbol(kernel.symbol)
        self.threads, self.warps_per_row, self.programs = kernel.threads, kernel.warps_per_row, PROGRAMS.of(kernel)
        self.divided: LeafRows | None = None
        self.matmul = plan_of(kernel)
        self.grids = grids_of(kernel)
        self.streamed, self._copied = self._find_streamed()
        self.leaf_bytes = 0
        """Shared memory that the warps of a row exchange leaves by."""
        self.module = DeviceModule(machine)
        self.fetches_lines = FETCHES_LINES.of(kernel)
        block = kernel.body.block
        arguments = [*[("ptr", f"b{at}") for at in range(len(block.args))]]
        arguments += [("i64", f"s{at}") for at in range(len(kernel.symbols))]
        if table is not None:
            arguments = [(f'ptr byval([{table.words} x i64]) align 8 "nvvm.grid_constant"', "calls")]
        self.f = self.module.kernel(
            self.name,
            [*arguments, ("ptr", "scratch")],
            self.threads * self.programs * max(1, self.warps_per_row),
            blocks=BLOCKS.of(kernel) or resident_of(self.streamed, machine.shared),
            cluster=ROW_BLOCKS.of(kernel),
            registers=kernel.max_registers,
            is_fixed=not self.warps_per_row or launch_of_rows(kernel) is None,
        )
        self.f.divides_words = divides_words(kernel)
        self.env: dict[str, Index] = {}
        self.indices: dict[SSAValue, Index] = {}
        self.buffers: dict[SSAValue, Value] = {}
        self.held: dict[SSAValue, Held] = {}
        self.tiles: dict[SSAValue, Tile] = {}
        self.words: list[tuple[Value, int]] = []
        """The words of memory of the load that is written, each with how many elements it has."""
        self.memo: dict[Any, Tile] = {}
        """What loads gave, by what they depend on."""
        self.known: dict[Any, Index] = {}
        """Indices that were computed, by what they are computed from."""
        self.first_block: Index = 0
        self.exchange_bytes = self.shared_bytes = 0
        self.scratch_bytes = Dim.constant(0)
        self._shared_parts: dict[SSAValue, int] = {}
        self._private_parts: dict[SSAValue, Dim] = {}
        self._threads: dict[Layout, Threads] = {}
        self.writes: set[SSAValue] = {block.args[number] for number in kernel.writes}
        self.is_elementwise, self.has_rows = is_elementwise(kernel), has_rows(kernel)
        self._find_accesses()

    def _find_accesses(self) -> None:
        """How loads that overlap are written, as those of windows do, and accesses that one instruction makes."""
        # Tiles that are slices of the rows of another.
        self.slices = find_row_slices(self.kernel)
        self.adjacent = find_adjacent(self.kernel, self.slices)
        self.near_rows = NEAR_ROWS.of(self.kernel)
        self.overlapping = overlapping_loads(self.kernel) if self.is_elementwise else frozenset[LoadOp]()
        if self.overlapping:
            self.f.known = {}  # what they share is found by its text, and LLVM takes quadratic time to find it
            self.is_ordered = self.holds_back = emit_values.count_terms(self.kernel) >= 2 * emit_values.SPACED

    def _find_streamed(self) -> tuple[dict[DotOp, StreamedOperand], set[SpecOp | None]]:
        """Dots that copy their B operand in steps, and the ops that are written with them."""
        can = self.matmul is None and self.machine.has("cp.async") and self.programs == 1 and not has_rows(self.kernel)
        found = find_streamed(self.kernel, self.threads) if can else {}
        return found, {one for operand in found.values() for one in (operand.load, operand.transpose)}

    def run(self) -> KernelCode:
        f, block = self.f, self.kernel.body.block
        count = len(block.args)
        given = f.arguments[:-1] if self.table is None else self._find_call(self.table, count)
        self.buffers.update(zip(block.args, given[:count], strict=True))
        self.env.update(zip(self.kernel.symbols, given[count:], strict=True))
        number = f.cast("zext", special(f, "tid.x"), "i64")
        self.slot: Index = f.udiv(number, self.threads) if self.programs > 1 else 0
        self.lane = f.urem(number, self.threads) if self.programs > 1 or self.warps_per_row else number
        self.thread = self.lane
        self._place_scratch()
        for part in self.kernel.walk():
            for value in (*part.results, *(arg for region in part.regions for arg in region.block.args)):
                if isinstance(value.type, VectorAttr):
                    layout, _ = self.layout(value)
                    self.at(layout)
                    if isinstance(part, LoadOp) and is_transposing(part, layout):
                        self.at(transposed_layout(part, layout))
                    if layout.size_of_line:
                        self.at(layout.line)
                        self.at(layout.single)
        if self.warps_per_row:
            self.warp = f.udiv(number, WARP)
            self.divided = LeafRows(self, self.warp)
        self.ops(block)
        f.ret()
        return self._finish()

    def _find_call(self, table: CallTable, buffers: int) -> list[Value]:
        """The buffers and sizes of the call that this block computes: the last that begins at it or before."""
        f, start = self.f, block_number(self.f)
        row, step = f.const_i(0), table.firsts // 2
        while step:
            other = f.add(row, step)
            begins = f.load(f.gep(f.arguments[0], other, "i64"), "i64")
            row, step = f.select(f.icmp("sle", begins, start), other, row), step // 2
        self.first_block = f.load(f.gep(f.arguments[0], row, "i64"), "i64")
        own = f.gep(f.arguments[0], f.add(f.mul(row, table.width), table.firsts), "i64")
        found: list[Value] = []
        for at in range(table.width):
            word = f.load(f.gep(own, at, "i64"), "ptr" if at < buffers else "i64")
            if at < buffers:
                # As code generation does with pointers among parameters: what they point to is global memory.
                there = f.raw("ptr addrspace(1)", f"addrspacecast ptr {word.text} to ptr addrspace(1)")
                word = f.raw("ptr", f"addrspacecast ptr addrspace(1) {there.text} to ptr")
            found.append(word)
        return found

    def _finish(self) -> KernelCode:
        exchange = -(-self.exchange_bytes // 16) * 16
        warps = max(1, self.warps_per_row)
        shared = (self.shared_bytes + self.leaf_bytes) * self.programs
        shared += exchange * self.programs * warps
        most, who = self.machine.shared, f"{self.machine.cpu} has"
        if 0 < self.kernel.max_shared < most:
            most, who = self.kernel.max_shared, "`max_shared` allows"
        if shared > most:
            raise TargetVerifyError(
                f"`@{self.name}` needs {shared} bytes of shared memory for a block, and {who} {most}",
                span=self.kernel.span,
                fix="choose smaller tiles",
            )
        return KernelCode(
            self.name,
            self.module.text().replace(_EXCHANGE, str(exchange)),
            product(programs_in(self.kernel).grid) * ROW_BLOCKS.of(self.kernel),
            tuple(self.kernel.symbols),
            self.threads * self.programs * warps,
            self.programs,
            shared,
            self.scratch_bytes,
            SLOTS.of(self.kernel),
            resident=LAUNCHED.of(self.kernel) * self.machine.blocks,
            widths=shared_widths(self.kernel) if self.warps_per_row else None,
            rows=launch_of_rows(self.kernel) if self.warps_per_row else None,
            table=self.table,
        )

    def _place_scratch(self) -> None:
        """Where the parts of scratch are: shared ones first in shared memory, private ones one after the other."""
        for op in self.kernel.walk():
            if not isinstance(op, ScratchOp):
                continue
            size = shaped_type(op.result).bytes
            if op.space == "registers":
                self.held[op.result] = Held()
            elif op.space == "shared":
                self._shared_parts[op.result] = self.shared_bytes
                self.shared_bytes += -(-(size.value or 0) // 64) * 64
            else:
                self._private_parts[op.result] = self.scratch_bytes
                self.scratch_bytes = self.scratch_bytes + (size + 63) // 64 * 64

    # Control.

    def emit(self, op: SpecOp) -> None:
        if op in self._copied:
            return  # what a dot copies by itself
        name = op.spec.short_name
        method = getattr(self, f"on_{name}", None)
        if method is not None:
            method(op)
        else:
            assert name in _EMITTERS, f"{op.name} has no text"
            _EMITTERS[name](self, op)

    def _stops_loads(self, op: Operation) -> bool:
        """Whether an op has branches or barriers, which the assembler moves no load up over."""
        if isinstance(op, LoadOp):
            return is_transposing(op, self.layout(op.result)[0])
        return emit_values.has_branches(op)

    def ops(self, block: Block) -> None:
        is_stopped = self.is_elementwise and any(self._stops_loads(op) for op in block.ops)
        is_recurrence = any(isinstance(op, SpecOp) and is_exp_of_range(self, op) for op in block.ops)
        if is_stopped or is_recurrence:
            emit_access.load_first(self, block, is_ordered=True, keeps_halves=is_recurrence)
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self.emit(op)

    def on_programs(self, op: ProgramsOp) -> None:
        f = self.f
        grid = [dim_value(f, dim, self.env) for dim in op.grid]
        total: Index = 1
        for extent in grid:
            total = f.mul(total, extent)
        block = block_number(f) if self.table is None else f.sub(block_number(f), self.first_block)
        first = f.mul(block, self.programs)
        first = f.add(first, self.slot)
        if self.divided is not None:
            self.divided.write(op, grid, total)
            return
        if self.scratch_bytes != Dim.constant(0):
            self._resident = first
            step = f.mul(f.cast("zext", special(f, "nctaid.x"), "i64"), self.programs)
            f.loop(first, total, step, lambda number: self.program(op, grid, number, is_repeated=True))
        elif self.programs > 1:
            f.if_(f.icmp("slt", first, total), lambda: self.program(op, grid, first))
        else:
            self.program(op, grid, first)

    def program(self, op: ProgramsOp, grid: Sequence[Value], number: Value, is_repeated: bool = False) -> None:
        """One program, whose indices are found from its number in the grid."""
        block = op.body.block
        self.indices.update(zip(block.args, self.program_indices(grid, number), strict=True))
        self.memo = {}
        if self.divided is not None:
            self.divided.begin(number)
        self.ops(block)
        if is_repeated:
            self.wait()

    def program_indices(self, grid: Sequence[Value], number: Value) -> list[Index]:
        """The indices of a program by its number in the grid."""
        f = self.f
        indices: list[Index] = []
        if len(grid) > 1:
            # Blocks of a grid are counted in 31 bits, so that division can be that of 32.
            outer = f.cast("trunc", number, "i32")
            for extent in reversed(grid[1:]):
                size = f.cast("trunc", extent, "i32") if constant_of(extent) is None else Value("i32", extent.text)
                indices.append(f.cast("zext", f.op("urem", outer, size), "i64"))
                outer = f.op("udiv", outer, size)
            indices.append(f.cast("zext", outer, "i64"))
        elif grid:
            indices.append(number)
        return indices[::-1]

    def wait(self) -> None:
        """All threads of the program wait for each other."""
        if self.threads == WARP:
            warp_barrier(self.f)
        elif self.threads > WARP:
            barrier(self.f)

    def on_barrier(self, op: SpecOp) -> None:
        self.wait()

    def on_index(self, op: IndexOp) -> None:
        key = (op.expr, *(f"{name}={self.indices[value]}" for name, value in zip(op.names, op.at, strict=True)))
        if key not in self.known:
            value = dim_value(self.f, op.expr, self.index_values(op.names, op.at))
            number = constant_of(value)
            self.known[key] = value if number is None else number
        self.indices[op.result] = self.known[key]

    def index_values(self, names: Sequence[str], at: Sequence[SSAValue]) -> dict[str, Index]:
        """Sizes, and the indices among the operands `at` of an op by their names."""
        found = [value for value in at if isinstance(value.type, IndexAttr)]
        return {**self.env, **{name: self.indices[value] for name, value in zip(names, found, strict=True)}}

    def on_loop(self, op: LoopOp) -> None:
        if self.matmul is not None:
            MatmulWriter(self, self.matmul).write()
            return
        f, step, unroll = self.f, op.step, op.unroll
        low, high = self.indices[op.low], self.indices[op.high]
        first, last = constant_of(low), constant_of(high)
        carried = self.flatten(op.carried)
        if self.divided is not None:
            self.divided.loop(op, carried)
            return
        if unroll == 0 and first is not None and last is not None:
            starts = range(first, first + (last - first) // step * step, step)
            self.bind(op.results, self.iterate(op, starts, carried))
            return
        set_inputs_aside(self, op)
        span = f.smax(f.sub(high, low), 0)
        whole = f.add(low, f.round_down(span, step))

        def iterate(start: Value, values: list[Value]) -> list[Value]:
            return self.isolate(lambda: self._iterate_once(op, start, values))

        def iterate_unrolled(first: Value, values: list[Value]) -> list[Value]:
            starts = [f.add(first, number * step) for number in range(unroll)]
            for start in starts:
                emit_access.load_early(self, op, start)
            for start in starts:
                values = self.isolate(lambda at=start, had=values: self._iterate_once(op, at, had))
            return values

        begin: Index = low
        if unroll > 1:
            begin = f.add(low, f.round_down(span, step * unroll))
            carried = f.loop(
                low, begin, step * unroll, lambda at, had: self.isolate(lambda: iterate_unrolled(at, had)), carried
            )
        self.bind(op.results, f.loop(begin, whole, step, iterate, carried))

    def on_tail(self, op: TailOp) -> None:
        if self.matmul is not None:
            return  # written with its loop
        if self.divided is not None:
            self.divided.tail(op, lambda: self._tail(op))
        else:
            self._tail(op)

    def _tail(self, op: TailOp) -> None:
        f = self.f
        low, high = (f.index(self.indices[value]) for value in (op.low, op.high))
        whole = f.add(low, f.round_down(f.smax(f.sub(high, low), 0), op.step))
        carried = self.flatten(op.carried)
        has = f.icmp("slt", whole, high)
        number = constant_of(whole)
        start: Index = whole if number is None else number
        if carried:
            ends = f.if_(has, lambda: self.isolate(lambda: self._iterate_once(op, start, carried)), lambda: carried)
            self.bind(op.results, ends)
        else:
            f.if_(has, lambda: self.isolate(lambda: self._iterate_once(op, start, [])) and None)

    def isolate(self, write: Callable[[], list[Value]]) -> list[Value]:
        """Write what may not run, or more than once: what is loaded there is not known behind it."""
        kept, known = dict(self.memo), dict(self.known)
        made = write()
        self.memo, self.known = kept, known
        return made

    def iterate(
        self, op: LoopOp | TailOp, starts: Sequence[Index], carried: list[Value], missing: Left | None = None
    ) -> list[Value]:
        """Iterations one after the other, unrolled: what the last of them carries. `missing` ops are left out."""
        for start in starts:
            carried = self._iterate_once(op, start, carried, missing)
        return carried

    def _iterate_once(
        self, op: LoopOp | TailOp, start: Index, carried: list[Value], missing: Left | None = None
    ) -> list[Value]:
        block = op.body.block
        self.indices[block.args[0]] = start
        self.bind(block.args[1:], carried)
        if missing:
            self._ops_but(block, missing)
        else:
            self.ops(block)
        assert block.last_op is not None
        return self.flatten(block.last_op.operands)

    def _ops_but(self, block: Block, missing: Left) -> None:
        """The ops of a block but for some, whose results are other values, or not used."""
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if op not in missing:
                self.emit(op)
            elif (kept := missing[op]) is not None:
                self.tiles[op.results[0]] = self.tiles[kept]

    def flatten(self, tiles: Sequence[SSAValue]) -> list[Value]:
        return [value for tile in tiles for value in self.registers(self.tiles[tile])]

    def bind(self, results: Sequence[SSAValue], flat: Sequence[Value]) -> None:
        at = 0
        for result in results:
            layout, dtype = self.layout(result)
            self.tiles[result] = Tile(layout, dtype, flat[at : at + layout.registers])
            at += layout.registers

    # Tiles.

    def layout(self, value: SSAValue) -> tuple[Layout, Any]:
        assert isinstance(value.type, VectorAttr)
        has_grid = self.matmul is not None and value.type.sizes == self.matmul.sizes
        grid = self.matmul.grid if has_grid and self.matmul is not None else self.grids.get(value.type.sizes)
        sizes = value.type.sizes
        rows = self.near_rows if len(sizes) > 1 and sizes[-2] % self.near_rows == 0 else 1
        replicas = self.slices.get(sizes, 0)
        return Layout(sizes, self.threads, self.kernel.vector, grid, replicas, rows), value.type.dtype

    def at(self, layout: Layout) -> Threads:
        """Which elements this thread has in tiles of a layout."""
        if layout not in self._threads:
            self._threads[layout] = Threads(self.f, self.thread, layout)
        return self._threads[layout]

    def registers(self, tile: Tile) -> Sequence[Value]:
        """What the thread holds of a tile, moved to it now if it was not before."""
        if tile.aside is not None:
            return load_aside(self, tile.aside, tile.layout.registers)
        if tile.transposed is not None and not tile.registers:
            tile.registers = emit_exchange.move_transposed(self, tile.transposed, tile.layout)
        return tile.registers

    def registers_of(self, value: SSAValue) -> Sequence[Value]:
        return self.registers(self.tiles[value])

    def set_result(self, op: SpecOp, registers: Sequence[Value]) -> Tile:
        """The tile that an op gives."""
        layout, dtype = self.layout(op.result)
        tile = self.tiles[op.result] = Tile(layout, dtype, registers)
        return tile

    def exchange(self, size: int) -> Value:
        """Shared memory of the program for `size` bytes, whatever was there before."""
        self.exchange_bytes = max(self.exchange_bytes, size)
        f = self.f
        start: Index = (self.shared_bytes + self.leaf_bytes) * self.programs
        if self.programs > 1:
            start = f.add(f.mul(self.slot, Value("i64", _EXCHANGE)), start)
        if self.warps_per_row:
            start = f.add(f.mul(self.warp, Value("i64", _EXCHANGE)), start)
        return f.gep(self.module.shared_base(), start, "i8")

    # Memory.

    def on_scratch(self, op: SpecOp) -> None:
        f = self.f
        if op.result in self.held:
            self.held[op.result] = Held()
        elif self.divided is not None and self.divided.has_slots and op.result in self.divided.lines:
            return
        elif op.result in self._shared_parts:
            start = f.add(f.mul(self.slot, self.shared_bytes), self._shared_parts[op.result])
            self.buffers[op.result] = f.gep(self.module.shared_base(), start, "i8")
        else:
            own = f.mul(self._resident, dim_value(f, self.scratch_bytes, self.env))
            part = dim_value(f, self._private_parts[op.result], self.env)
            self.buffers[op.result] = f.gep(f.arguments[-1], f.add(own, part), "i8")

    def coordinates(
        self, env: dict[str, Index], axes: Sequence[str], layout: Layout, register: int
    ) -> dict[str, Index]:
        """What each name stands for at the element in a register."""
        here = dict(env)
        for axis, step in zip(axes, self.at(layout).coordinates(register), strict=True):
            here[axis] = self.f.add(here[axis], step)
        return here

    def is_line_below(
        self, env: dict[str, Index], axes: Sequence[str], axis: str, layout: Layout, register: int, bound: Value
    ) -> Value | None:
        """Whether all lines of a register are below a bound, or none is; None where that is not known while emitting.

        Of the tail of a column most registers have no line at all: what would be computed of them is no one's.
        """
        start, end, lines = constant_of(env[axis]), constant_of(bound), layout.lines_of(register)
        if start is None or end is None or lines is None or axis != axes[0]:
            return None
        is_all, is_any = start + lines.stop <= end, start + lines.start < end
        return self.f.const("i1", is_any) if is_all == is_any else None

    def is_below(
        self, env: dict[str, Index], axes: Sequence[str], axis: str, layout: Layout, register: int, bound: Value
    ) -> Value:
        """Whether the coordinate of the element in a register is below a bound along an axis."""
        f = self.f
        known = self.is_line_below(env, axes, axis, layout, register, bound)
        if known is not None:
            return known
        is_row = self.has_rows and axis == axes[-1] and not layout.is_repeated and not layout.shape[-1] % layout.group
        at = self.coordinates(env, axes, layout, 0 if is_row else register)[axis]
        if not is_row:
            return f.icmp("slt", at, bound)
        # One number of a row serves all elements of a thread: a coordinate of each would take two registers.
        left = f.cast("trunc", f.smin(f.sub(bound, at), 1 << 20), "i32")
        return f.icmp("sgt", left, f.const("i32", layout.start(register) % layout.shape[-1]))

    def on_yield(self, op: SpecOp) -> None:
        """The end of a block: what it gives is read where it ends."""

    on_return = on_yield


_EMITTERS: dict[str, Callable[[Emitter, Any], None]] = {
    name.removeprefix("emit_"): function
    for module in (emit_access, emit_exchange, emit_sort, emit_values, leaf_rows)
    for name, function in vars(module).items()
    if name.startswith("emit_")
}
"""An op that no method `on_...` writes is written by the function `emit_...` with its name."""
