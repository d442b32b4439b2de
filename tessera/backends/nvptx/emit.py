"""Target IR to LLVM text for NVPTX: programs over blocks and warps, loops, arithmetic on tiles that threads hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xdsl.ir import Block, Operation, SSAValue

from tessera.backends.nvptx import emit_access, emit_exchange, emit_lanes, emit_order, emit_values, row_extremes, values
from tessera.backends.nvptx.falling import Bound, falling
from tessera.backends.nvptx.kernel_code import KernelCode
from tessera.backends.nvptx.layout import Layout, Threads, Tile
from tessera.backends.nvptx.rows_ahead import BLOCKS, Stage
from tessera.backends.nvptx.rows_brought import blocks_of, launched, widths_of
from tessera.backends.nvptx.rows_divided import Divided
from tessera.backends.nvptx.rows_matrix import Matrices, PlacedRows, lane_of, load_rows, place_rows
from tessera.backends.nvptx.text import WARP, DeviceModule, barrier, special, warp_barrier
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, IndexAttr
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value, known
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim, product
from tessera.types.machine import Machine

BLOCK = 128
"""Threads of a block that runs several small programs side by side."""
RESIDENT = 16
"""Blocks for each multiprocessor that go through the grid in turns, where programs have memory of their own."""
MUCH = 32
"""Turns of a loop written one after the other whose loads all come first."""
_EXCHANGE = "%EXCHANGE%"
"""Stands for the bytes of a program's exchange until all of it is written."""


def emit_kernel(kernel: SpecOp, machine: Machine, exponential: str = values.EXACT) -> KernelCode:
    """The module of a kernel; `exponential` says how `exp` is computed."""
    return Emitter(kernel, machine, exponential).run()


@dataclass
class Held:
    """Scratch that threads keep in registers: tiles by where they were stored."""

    tiles: dict[int | str, Tile] = field(default_factory=dict[int | str, Tile])


class Emitter:
    """Walks the ops of a kernel and writes each."""

    def __init__(self, kernel: SpecOp, machine: Machine, exponential: str = values.EXACT) -> None:
        self.kernel, self.machine, self.exponential = kernel, machine, exponential
        self.falling = falling(kernel)
        self.ordinary: frozenset[SpecOp] = frozenset()
        self.smallest: dict[Bound, list[Value]] = {}
        """Powers whose arguments are known to be neither positive nor far below 0, and what will say so of others."""
        self.name: str = kernel.value("symbol")
        self.threads: int = kernel.value("threads")
        self.shares: int = kernel.value("shares")
        self.programs = 1 if self.shares else max(1, BLOCK // self.threads)
        placed = PlacedRows([], None) if self.shares else place_rows(kernel, machine, self.programs)
        self.rows, self.matrix, self.has_wide_rows = placed.rows, placed.matrix, placed.is_wide
        self.on_stage: dict[SSAValue, Value] = {}
        self.passes = 0
        """Loops that are written out, so far."""
        self.matrices: Matrices | None = None
        self.divided: Divided | None = None
        self.stage_bytes = self.matrix_bytes = 0
        self.module = DeviceModule(machine)
        self.has_much_ahead = any(_has_much_ahead(op) for op in kernel.walk())
        block = kernel.regions[0].block
        arguments = [*[("ptr", f"b{at}") for at in range(len(block.args))]]
        arguments += [("i64", f"s{at}") for at in range(len(kernel.value("symbols")))]
        self.f = self.module.kernel(
            self.name,
            [*arguments, ("ptr", "scratch")],
            self.threads * self.programs * max(1, self.shares),
            # One that has much on its way needs registers for it more than others beside it.
            blocks=placed.held if self.rows else blocks_of(kernel, machine) or int(self.has_much_ahead),
            registers=kernel.value("max_registers"),
        )
        self.env: dict[str, Index] = {}
        self.indices: dict[SSAValue, Index] = {}
        self.buffers: dict[SSAValue, Value] = {}
        self.held: dict[SSAValue, Held] = {}
        self.tiles: dict[SSAValue, Tile] = {}
        self.memo: dict[Any, Tile] = {}
        self.exchange_bytes = 0
        self.shared_bytes = 0
        self.scratch_bytes = Dim.constant(0)
        self._shared_parts: dict[SSAValue, int] = {}
        self._private_parts: dict[SSAValue, Dim] = {}
        self._threads: dict[Layout, Threads] = {}
        self.writes: set[SSAValue] = {block.args[place] for place in kernel.value("writes")}

    def run(self) -> KernelCode:
        f, block = self.f, self.kernel.regions[0].block
        count = len(block.args)
        self.buffers.update(zip(block.args, f.arguments[:count], strict=True))
        self.env.update(zip(self.kernel.value("symbols"), f.arguments[count:-1], strict=True))
        place = f.cast("zext", special(f, "tid.x"), "i64")
        self.slot: Index = f.udiv(place, self.threads) if self.programs > 1 else 0
        self.lane = f.urem(place, self.threads) if self.programs > 1 or self.shares else place
        self.thread = self.lane if self.matrix is None else lane_of(self)
        self._place_scratch()
        for part in self.kernel.walk():
            for value in (*part.results, *(arg for region in part.regions for arg in region.block.args)):
                if isinstance(value.type, VectorAttr):
                    layout, _ = self.layout(value)
                    self.at(layout)
                    if part.name == "ttarget.load" and len(layout.shape) == 2:
                        self.at(emit_access.turned_layout(layout))
                    if layout.size_of_line:
                        self.at(layout.line)
                        self.at(layout.single)
        if self.shares:
            self.warp = f.udiv(place, WARP)
            self.divided = Divided(self, self.warp)
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self.emit(op)
        f.ret()
        return self._finished()

    def _finished(self) -> KernelCode:
        exchange = -(-self.exchange_bytes // 16) * 16
        shared = (self.shared_bytes + self.stage_bytes) * self.programs + self.matrix_bytes
        shared += exchange * self.programs * max(1, self.shares)
        most, who = self.machine.shared, f"{self.machine.cpu} has"
        if 0 < self.kernel.value("max_shared") < most:
            most, who = self.kernel.value("max_shared"), "`max_shared` allows"
        if shared > most:
            raise TargetVerifyError(
                f"`@{self.name}` needs {shared} bytes of shared memory for a block, and {who} {most}",
                span=self.kernel.span,
                fix="choose smaller tiles",
            )
        (programs,) = [op for op in self.kernel.regions[0].block.ops if op.name == "ttarget.programs"]
        assert isinstance(programs, SpecOp)
        slots = 0 if self.scratch_bytes == Dim.constant(0) else self.machine.blocks * RESIDENT * self.programs
        text = self.module.text().replace(_EXCHANGE, str(exchange))
        symbols = tuple(self.kernel.value("symbols"))
        grid = product(programs.value("grid"))
        threads = self.threads * self.programs * max(1, self.shares)
        resident = (BLOCKS if self.rows else launched(self.kernel, self.machine)) * self.machine.blocks
        code = KernelCode(
            self.name, text, grid, symbols, threads, self.programs, shared, self.scratch_bytes, slots, (), resident
        )
        return replace(code, widths=widths_of(self.kernel)) if self.shares else code

    def _place_scratch(self) -> None:
        """Where the parts of scratch are: shared ones first in shared memory, private ones one after the other."""
        for op in self.kernel.walk():
            if not isinstance(op, SpecOp) or op.name != "ttarget.scratch":
                continue
            type = op.results[0].type
            assert isinstance(type, BufferAttr)
            if op.value("space") == "registers":
                self.held[op.result] = Held()
            elif op.value("space") == "shared":
                size = -(-(type.data.bytes.value or 0) // 64) * 64
                self._shared_parts[op.result] = self.shared_bytes
                self.shared_bytes += size
            else:
                self._private_parts[op.result] = self.scratch_bytes
                self.scratch_bytes = self.scratch_bytes + (type.data.bytes + 63) // 64 * 64

    # Control.

    def emit(self, op: SpecOp) -> None:
        handler = _HANDLERS.get(op.spec.short_name)
        assert handler is not None, f"{op.name} has no text"
        handler(self, op)

    def ops(self, block: Block) -> None:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self.emit(op)

    def on_programs(self, op: SpecOp) -> None:
        f = self.f
        grid = [dim_value(f, dim, self.env) for dim in op.value("grid")]
        total: Index = 1
        for extent in grid:
            total = f.mul(total, extent)
        first = f.mul(f.cast("zext", special(f, "ctaid.x"), "i64"), self.programs)
        first = f.add(first, self.slot)
        if self.rows:
            self._rows(op, grid, first, total)
            return
        if self.divided is not None:
            self.divided.write(op, grid, total)
            return
        if self.scratch_bytes != Dim.constant(0):
            self._resident = first
            step = f.mul(f.cast("zext", special(f, "nctaid.x"), "i64"), self.programs)
            f.loop(first, total, step, lambda number: self.program(op, grid, number, is_again=True))
        elif self.programs > 1:
            f.if_(f.icmp("slt", first, total), lambda: self.program(op, grid, first))
        else:
            self.program(op, grid, first)

    def _rows(self, op: SpecOp, grid: Sequence[Value], first: Value, total: Index) -> None:
        """Programs that take rows in turn, each with the next one on its way."""
        f, stage = self.f, Stage(self, self.rows, self.shared_bytes * self.programs)
        self.module.shared_base()
        self.stage_bytes = stage.size
        step = f.mul(f.cast("zext", special(f, "nctaid.x"), "i64"), self.programs)
        stage.fetch(first, total)
        if self.matrix is not None:
            start = (self.shared_bytes + stage.size) * self.programs
            self.matrices = Matrices(self, self.matrix, start)
            self.matrix_bytes = self.matrices.end - start
            self.matrices.bring()

        def round_(number: Value) -> None:
            stage.arrive()
            self.memo = {}
            (place,) = op.regions[0].block.args
            self.indices[place] = number
            if self.matrices is not None:
                load_rows(self, stage)
            else:
                emit_access.load_rows(self, stage, number)
            self.wait()
            stage.fetch(f.add(number, step), total)
            self.program(op, grid, number, kept=True)

        f.loop(first, total, step, round_)

    def program(
        self, op: SpecOp, grid: Sequence[Value], number: Value, is_again: bool = False, kept: bool = False
    ) -> None:
        f = self.f
        block = op.regions[0].block
        places: list[Index] = []
        if len(grid) > 1:
            # Blocks of a grid are counted in 31 bits, so division is that of 32.
            rest = f.cast("trunc", number, "i32")
            for extent in reversed(grid[1:]):
                size = f.cast("trunc", extent, "i32") if known(extent) is None else Value("i32", extent.text)
                places.append(f.cast("zext", f.op("urem", rest, size), "i64"))
                rest = f.op("udiv", rest, size)
            places.append(f.cast("zext", rest, "i64"))
        elif grid:
            places.append(number)
        for argument, place in zip(block.args, reversed(places), strict=True):
            self.indices[argument] = place
        self.memo = self.memo if kept else {}
        self.ops(block)
        if is_again:
            self.wait()

    def wait(self) -> None:
        """All threads of the program wait for each other."""
        if self.threads == WARP:
            warp_barrier(self.f)
        elif self.threads > WARP:
            barrier(self.f)

    def on_barrier(self, op: SpecOp) -> None:
        self.wait()

    def on_index(self, op: SpecOp) -> None:
        value = dim_value(self.f, op.value("expr"), self.named(op, op.value("names"), 0))
        number = known(value)
        self.indices[op.result] = value if number is None else number

    def named(self, op: SpecOp, names: Sequence[str], first: int) -> dict[str, Index]:
        """Sizes, and the index operands of an op by their names."""
        found = [value for value in op.operands[first:] if isinstance(value.type, IndexAttr)]
        return {**self.env, **{name: self.indices[value] for name, value in zip(names, found, strict=True)}}

    def on_loop(self, op: SpecOp) -> None:
        f, step, unroll = self.f, op.value("step"), op.value("unroll")
        low, high = (self.indices[value] for value in op.operands[:2])
        first, last = known(low), known(high)
        carried = self.flat(op.operands[2:])
        if self.divided is not None:
            self.divided.loop(op, carried)
            return
        if unroll == 0 and first is not None and last is not None:
            places = range(first, first + (last - first) // step * step, step)
            self.passes += 1
            if not row_extremes.write_extremes(self, op, places, carried):
                ends = row_extremes.write_ordinary(self, op, lambda: self.turns(op, places, carried))
                self.bind(op.results, self.turns(op, places, carried) if ends is None else ends)
            return
        span = f.smax(f.sub(high, low), 0)
        whole = f.add(low, f.round_down(span, step))

        def turn(index: Value, values: list[Value]) -> list[Value]:
            return self.apart(lambda: self._turn(op, index, values))

        def turns(index: Value, values: list[Value]) -> list[Value]:
            places = [f.add(index, number * step) for number in range(unroll)]
            for place in places:
                emit_access.load_early(self, op, place)
            for place in places:
                values = self.apart(lambda at=place, had=values: self._turn(op, at, had))
            return values

        begin: Index = low
        if unroll > 1:
            begin = f.add(low, f.round_down(span, step * unroll))
            carried = f.loop(low, begin, step * unroll, lambda at, had: self.apart(lambda: turns(at, had)), carried)
        self.bind(op.results, f.loop(begin, whole, step, turn, carried))

    def on_tail(self, op: SpecOp) -> None:
        if self.divided is not None:
            self.divided.tail(op, lambda: self._tail(op))
        else:
            self._tail(op)

    def _tail(self, op: SpecOp) -> None:
        f, step = self.f, op.value("step")
        low, high = (f.index(self.indices[value]) for value in op.operands[:2])
        whole = f.add(low, f.round_down(f.smax(f.sub(high, low), 0), step))
        carried = self.flat(op.operands[2:])
        has = f.icmp("slt", whole, high)
        number = known(whole)
        start: Index = whole if number is None else number
        if carried:
            ends = f.if_(has, lambda: self.apart(lambda: self._turn(op, start, carried)), lambda: carried)
            self.bind(op.results, ends)
        else:
            f.if_(has, lambda: self.apart(lambda: self._turn(op, start, [])) and None)

    def apart(self, write: Callable[[], list[Value]]) -> list[Value]:
        """Write what may not run, or more than once: what is loaded there is not known behind it."""
        kept = dict(self.memo)
        made = write()
        self.memo = kept
        return made

    def turns(self, op: SpecOp, places: Sequence[Index], carried: list[Value]) -> list[Value]:
        for index in places:
            carried = self._turn(op, index, carried)
        return carried

    def _turn(self, op: SpecOp, index: Index, carried: list[Value]) -> list[Value]:
        block = op.regions[0].block
        self.indices[block.args[0]] = index
        self.bind(block.args[1:], carried)
        self.ops(block)
        last = block.last_op
        assert last is not None
        return self.flat(last.operands)

    def flat(self, tiles: Sequence[SSAValue]) -> list[Value]:
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
        shape = tuple(dim.value or 0 for dim in value.type.shape)
        return Layout(shape, self.threads, self.kernel.value("vector")), value.type.dtype

    def at(self, layout: Layout) -> Threads:
        """Where this thread is in tiles of a layout."""
        if layout not in self._threads:
            self._threads[layout] = Threads(self.f, self.thread, layout)
        return self._threads[layout]

    def registers(self, tile: Tile) -> Sequence[Value]:
        """What the thread holds of a tile, moved to it now if it was not before."""
        if tile.turned is not None and not tile.registers:
            tile.registers = emit_exchange.transposed(self, tile.turned, tile.layout)
        return tile.registers

    def of(self, value: SSAValue) -> Sequence[Value]:
        return self.registers(self.tiles[value])

    def made(self, op: SpecOp, registers: Sequence[Value]) -> Tile:
        """The tile that an op gives."""
        layout, dtype = self.layout(op.result)
        tile = self.tiles[op.result] = Tile(layout, dtype, registers)
        return tile

    def exchange(self, size: int) -> Value:
        """Shared memory of the program for `size` bytes, whatever was there before."""
        self.exchange_bytes = max(self.exchange_bytes, size)
        f = self.f
        start: Index = (self.shared_bytes + self.stage_bytes) * self.programs + self.matrix_bytes
        if self.programs > 1:
            start = f.add(f.mul(self.slot, Value("i64", _EXCHANGE)), start)
        if self.shares:
            start = f.add(f.mul(self.warp, Value("i64", _EXCHANGE)), start)
        return f.gep(self.module.shared_base(), start, "i8")

    # Memory.

    def on_scratch(self, op: SpecOp) -> None:
        f = self.f
        if op.result in self.held:
            self.held[op.result] = Held()
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

    def on_nothing(self, op: SpecOp) -> None:
        """The end of a block: what it gives is read where it ends."""


def _has_much_ahead(op: Operation) -> bool:
    return isinstance(op, SpecOp) and op.name == "ttarget.loop" and op.value("unroll") >= MUCH


_HANDLERS: dict[str, Callable[[Emitter, SpecOp], None]] = {
    "programs": Emitter.on_programs,
    "index": Emitter.on_index,
    "loop": Emitter.on_loop,
    "tail": Emitter.on_tail,
    "barrier": Emitter.on_barrier,
    "scratch": Emitter.on_scratch,
    "load": emit_access.emit_load,
    "store": emit_access.emit_store,
    "elementwise": emit_values.emit_math,
    "cast": emit_values.emit_convert,
    "round": emit_values.emit_round,
    "bitcast": emit_values.emit_bitcast,
    "select": emit_values.emit_select,
    "constant": emit_values.emit_constant,
    "coordinate": emit_values.emit_coordinate,
    "clip": emit_values.emit_clip,
    "broadcast": emit_exchange.emit_spread,
    "reduce": emit_exchange.emit_fold,
    "arg_reduce": emit_exchange.emit_fold_place,
    "transpose": emit_exchange.emit_transpose,
    "dot": emit_exchange.emit_dot,
    "shuffle": emit_lanes.emit_shuffle,
    "vote": emit_lanes.emit_vote,
    "fetch": emit_order.emit_fetch,
    "sort": emit_order.emit_sort,
    "yield": Emitter.on_nothing,
    "return": Emitter.on_nothing,
}
