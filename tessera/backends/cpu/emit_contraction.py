"""Contractions as LLVM text: `ttarget.gemm` with its tasks and its epilogue, and `ttarget.block_dot` of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from xdsl.ir import SSAValue

from tessera.backends.cpu.amx_gemm import TilePlan, emit_tile_gemm
from tessera.backends.cpu.amx_tiles import configure_tiles, release_tiles
from tessera.backends.cpu.gemm import (
    FEW_ROWS,
    GemmPlan,
    GemmProblem,
    Result,
    can_emit_few_rows,
    emit_few_rows,
    emit_gemm,
    scratch_bytes,
)
from tessera.backends.cpu.micro_kernel import LhsRows, MicroForm, MicroShape, call_micro_kernel
from tessera.backends.cpu.packing import (
    Operand,
    choose_kernels,
    for_each_height,
    pack_lhs,
    pack_rhs,
    panel_elements,
    split_offset,
    strided_operand,
)
from tessera.backends.cpu.plane_lanes import emit_plane_lanes
from tessera.backends.cpu.registers import Vectors
from tessera.backends.cpu.stencil import PlaneSource, emit_stencil, find_stencil, fits_scratch, widest
from tessera.backends.cpu.windows import MAX_K, Area, DimWindows
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, VectorAttr
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Index, TargetText, Value, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.ir.target.typed_ops import StoreOp
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter
    from tessera.ir.target.typed_ops import BlockDotOp, GemmOp


# How the tasks of a matmul divide its rows and columns, as arithmetic in the program that launches them.

# Below this many multiply-adds a task does not pay for waking a thread.
_SMALL = 1 << 16

# A thread is late by 2 to the minus so much of a task: small tasks let the others finish what is left sooner.
_LATE = 5


class Grid(NamedTuple):
    """Tasks of one matmul: `rows` strips by `columns` strips."""

    rows: Value
    columns: Value


class Block(NamedTuple):
    """The rows and columns of one task; empty where the grid is larger than the matrix."""

    m_lo: Value
    m_hi: Value
    n_lo: Value
    n_hi: Value


def choose_grid(f: FunctionText, shape: MicroShape, m: Index, n: Index, k: Index, batch: Index, threads: Index) -> Grid:
    """The grid of tasks for each of `batch` matmuls that finishes first on `threads` threads.

    The cost of a grid is that of its largest task (whole register blocks, and the packing it does for itself), times
    the tasks that a thread runs one after the other, and what the last of them is late by. Grids with one to four
    tasks for every thread are tried; with few rows only one, since memory gives long runs of a row faster than short
    ones.
    """
    name = _grid_function(f.module, shape)
    packed = f.call(name, [f.index(m), f.index(n), f.index(k), f.index(batch), f.index(threads)], "i64")
    return Grid(f.op("lshr", packed, f.const_i(32)), f.op("and", packed, f.const_i((1 << 32) - 1)))


def task_block(f: FunctionText, shape: MicroShape, m: Index, n: Index, grid: Grid, task: Index) -> Block:
    """The block of one task, counted along the columns first, cut at whole register blocks."""
    row, column = f.udiv(task, grid.columns), f.urem(task, grid.columns)
    m_lo, m_hi = _strip(f, m, shape.rows, grid.rows, row)
    n_lo, n_hi = _strip(f, n, shape.columns, grid.columns, column)
    return Block(m_lo, m_hi, n_lo, n_hi)


def _strip(f: FunctionText, size: Index, unit: int, parts: Value, part: Value) -> tuple[Value, Value]:
    """The bounds of one of `parts` strips, in units, as even as they go."""
    units = f.ceil_div(size, unit)
    low = f.mul(f.udiv(f.mul(units, part), parts), unit)
    high = f.mul(f.udiv(f.mul(units, f.add(part, 1)), parts), unit)
    return low, f.smin(high, size)


def _grid_function(module: ModuleText, shape: MicroShape) -> str:
    arguments = [("i64", "m"), ("i64", "n"), ("i64", "k"), ("i64", "batch"), ("i64", "threads")]
    return module.outline(("grid", shape), "grid", arguments, lambda g: _write_grid(g, shape), "i64", shared=True)


def _write_grid(g: FunctionText, shape: MicroShape) -> None:
    """Rows and columns of the best grid, in the upper and lower half of the result."""
    m, n, k, batch, threads = g.arguments
    one, least = g.const_i((1 << 32) + 1), _SMALL * shape.speed
    work = g.mul(g.mul(m, n), k)
    small = g.icmp("slt", g.mul(work, batch), 2 * least)
    busy = g.icmp("sge", batch, g.mul(threads, 4))
    g.if_(g.op("or", small, busy), lambda: g.ret(one))
    row_units = g.smax(g.ceil_div(m, shape.rows), 1)
    column_units = g.smax(g.ceil_div(n, shape.columns), 1)

    def cost(rows: Value, columns: Value) -> Value:
        height = g.mul(g.ceil_div(row_units, rows), shape.rows)
        width = g.mul(g.ceil_div(column_units, columns), shape.columns)
        each = g.add(g.mul(height, width), g.mul(g.add(height, width), shape.packing))
        tasks_each = g.ceil_div(g.mul(batch, g.mul(rows, columns)), threads)
        task = g.add(g.mul(each, k), least)
        return g.add(g.mul(tasks_each, task), g.op("lshr", task, g.const_i(_LATE)))

    def for_total(tasks_each: Value, best: list[Value]) -> list[Value]:
        tasks = g.ceil_div(g.mul(threads, tasks_each), batch)

        def for_rows(rows: Value, best: list[Value]) -> list[Value]:
            columns = g.udiv(tasks, rows)
            fits = g.op("and", g.icmp("eq", g.mul(rows, columns), tasks), g.icmp("sle", columns, column_units))

            def compare() -> list[Value]:
                price = cost(rows, columns)
                cheaper = g.icmp("slt", price, best[0])
                grid = g.op("or", g.op("shl", rows, g.const_i(32)), columns)
                return [g.select(cheaper, price, best[0]), g.select(cheaper, grid, best[1])]

            return g.if_(fits, compare, lambda: best)

        return g.loop(1, g.add(g.smin(tasks, row_units), 1), 1, for_rows, best)

    start = [cost(g.const_i(1), g.const_i(1)), one]
    tasks_each = g.select(g.icmp("sle", m, FEW_ROWS), g.const_i(1), g.const_i(4))
    _, grid = g.loop(1, g.add(tasks_each, 1), 1, for_total, start)
    g.ret(grid)


SMALL = 1 << 17
"""Multiply-adds below which one thread does all."""
_OPERANDS = {"lhs": ("_m", "_k"), "rhs": ("_k", "_n")}


def accumulator_of(op: GemmOp) -> DType:
    """The dtype that a contraction accumulates in."""
    type = op.regions[0].block.args[-1].type
    assert isinstance(type, VectorAttr)
    return type.dtype


NUMBERED = 1 << 62
"""Added to a number of tasks, it asks the pool for them as they are: each is a part of a grid, known by its number."""


def slot_of(kernel: SpecOp) -> int:
    """The slot of the context that belongs to the kernel: it follows buffers and sizes."""
    return len(kernel.regions[0].block.args) + len(kernel.value("symbols"))


def contraction_scratch(target: TargetText, op: GemmOp) -> int:
    """Bytes a thread needs for panels and accumulators."""
    plan = plan_of(target, op)
    return plan.scratch_bytes if isinstance(plan, TilePlan) else scratch_bytes(plan)


def plan_of(target: TargetText, op: GemmOp) -> GemmPlan | TilePlan:
    """The blocks of a contraction on what multiplies it."""
    if op.unit:
        return TilePlan.of(target, op.lhs_dtype, op.rhs_dtype, accumulator_of(op))
    return GemmPlan.of(target, accumulator_of(op))


def longest_k(op: GemmOp) -> Dim:
    """The contracted dim of the first batch: a last segment of it may have less than the others."""
    return op.k.substitute({f"_b{axis}": 0 for axis in range(len(op.batch))})


def contraction_tasks(f: FunctionText, op: GemmOp, sizes: Mapping[str, Index], slot: int) -> Value:
    """Tasks of a batch of matmuls; how each is cut goes into the slot of the context that kernels own."""
    threads = f.arguments[1]
    batch, m, n, k = (dim_value(f, dim, sizes) for dim in (product(op.batch), op.m, op.n, longest_k(op)))
    shape = plan_of(f.target, op).shape
    grid = choose_grid(f, shape, m, n, k, batch, threads)
    packed = f.op("or", f.op("shl", grid.rows, f.const_i(32)), grid.columns)
    f.store(packed, f.gep(f.arguments[0], slot, "i64"))
    parts = f.mul(grid.rows, grid.columns)
    whole = f.icmp("eq", parts, 1)
    work = f.mul(f.mul(batch, m), f.mul(n, f.smax(k, 1)))
    batch_tasks = f.select(f.icmp("slt", work, SMALL * shape.speed), f.const_i(1), f.smin(batch, f.mul(threads, 4)))
    tasks = f.select(whole, batch_tasks, f.op("or", f.mul(batch, parts), f.const_i(NUMBERED)))
    return f.select(f.icmp("eq", f.mul(f.mul(batch, m), n), 0), f.const_i(0), tasks)


@frozen
class _Part:
    """What a task computes: matmuls from the first up to the last, whether each is cut, and its block of them."""

    first: Value
    last: Value
    cuts: Value
    block: Block


def _part_of(emitter: Emitter, shape: MicroShape, batch: Value, m: Value, n: Value) -> _Part:
    """The part of this task, by how `contraction_tasks` cut the matmuls."""
    f = emitter.f
    _, task, tasks, _ = f.arguments
    packed = f.load(f.gep(f.arguments[0], slot_of(emitter.kernel), "i64"), "i64")
    grid = Grid(f.op("lshr", packed, f.const_i(32)), f.op("and", packed, f.const_i((1 << 32) - 1)))
    parts = f.mul(grid.rows, grid.columns)
    cuts = f.icmp("sgt", parts, 1)
    first = f.select(cuts, f.udiv(task, parts), f.udiv(f.mul(batch, task), tasks))
    last = f.select(cuts, f.add(first, 1), f.udiv(f.mul(batch, f.add(task, 1)), tasks))
    return _Part(first, last, cuts, task_block(f, shape, m, n, grid, f.select(cuts, f.urem(task, parts), f.const_i(0))))


def emit_contraction(emitter: Emitter, op: GemmOp) -> None:
    """This task's part of a batch of matmuls."""
    f = emitter.f
    extents = [dim_value(f, dim, emitter.env) for dim in op.batch]
    m, n, k = (dim_value(f, dim, emitter.env) for dim in (op.m, op.n, longest_k(op)))
    batch = reduce(f.mul, extents, f.const_i(1))
    plan = plan_of(f.target, op)
    part = _part_of(emitter, plan.shape, batch, m, n)

    def problem_at(number: Value) -> GemmProblem:
        here = split_index(f, number, extents) if extents else []
        frame = (f.arguments[0], *(f.index(index) for index in here))
        return GemmProblem(
            *part.block,
            k if op.k == longest_k(op) else dim_value(f, op.k, {**emitter.env, **_batch_env(frame)}),
            lhs=_operand(emitter, op, "lhs", _OPERANDS["lhs"], frame),
            rhs=_operand(emitter, op, "rhs", _OPERANDS["rhs"], frame),
            scratch=f.arguments[3],
            epilogue=_Epilogue(emitter, op),
            result=_result(emitter, op, frame),
            frame=frame,
            rows=op.m.value,
            columns=op.n.value,
        )

    if isinstance(plan, TilePlan):
        configure_tiles(f)
        f.loop(part.first, part.last, 1, lambda number: emit_tile_gemm(f, plan, problem_at(number)))
        release_tiles(f)
        return

    def by_panels() -> None:
        f.loop(part.first, part.last, 1, lambda number: emit_gemm(f, plan, problem_at(number)))

    if not _reads_in_place(emitter, op, plan):
        by_panels()
        return

    def in_place() -> None:
        f.if_(f.icmp("sle", k, MAX_K), lambda: emit_few_rows(f, plan, part.first, part.last, problem_at), by_panels)

    planes = _planes_of(emitter, op, plan)
    if planes is None:
        in_place()
        return
    width = dim_value(f, planes.stencil.columns.positions, emitter.env)
    is_wide = f.icmp("sgt", width, widest(planes.stencil))
    by_stencil = f.op("xor", f.op("or", part.cuts, is_wide), f.const("i1", True))

    def stencil() -> None:
        count = product(op.batch).value
        is_few = count is not None and count < plan.shape.lanes
        begin = part.first if is_few else emit_plane_lanes(f, plan, part.first, part.last, problem_at, planes)
        emit_stencil(f, plan, begin, part.last, problem_at, planes)

    f.if_(by_stencil, stencil, in_place)


def _planes_of(emitter: Emitter, op: GemmOp, plan: GemmPlan) -> PlaneSource | None:
    """The planes that B is windows on, where a stencil computes them."""
    found = None if op.k.value is None else find_stencil(op.rhs_offset, op.rhs_windows, op.n, op.k.value)
    if found is None or not fits_scratch(found, plan):
        return None
    return PlaneSource(_Element(emitter, op, "rhs", _OPERANDS["rhs"]).inside, op.rhs_offset, op.rhs_dtype, found)


def split_index(f: FunctionText, number: Value, extents: Sequence[Value]) -> list[Index]:
    """The index along each extent of an element of a grid that is numbered row by row."""
    left: Index = number
    found: list[Index] = []
    for extent in reversed(extents[1:]):
        found.append(f.urem(left, extent))
        left = f.udiv(left, extent)
    return [left, *reversed(found)]


def _reads_in_place(emitter: Emitter, op: GemmOp, plan: GemmPlan) -> bool:
    """Whether A has few rows, and B windows whose tables serve the whole batch."""
    frame = (emitter.f.arguments[0], *[emitter.f.const_i(0)] * len(op.batch))
    lhs, rhs = (_operand(emitter, op, name, axes, frame) for name, axes in _OPERANDS.items())
    batch = {f"_b{axis}" for axis in range(len(op.batch))}
    is_shared = isinstance(rhs.windows, DimWindows) and not rhs.windows.depends_on(batch)
    return is_shared and can_emit_few_rows(plan, op.m.value, op.k.value, lhs, rhs)


def _batch_env(frame: Sequence[Value]) -> dict[str, Index]:
    return {f"_b{i}": value for i, value in enumerate(frame[1:])}


def _operand(emitter: Emitter, op: GemmOp, name: str, axes: tuple[str, str], frame: tuple[Value, ...]) -> Operand:
    """One operand as the packers take it: two strides where the offset is linear, else an element at a time."""
    f, offset, dtype = emitter.f, op.value(f"{name}_offset"), op.value(f"{name}_dtype")
    base = emitter.buffers[op.operands[0 if name == "lhs" else 1]]
    parts, windows = split_offset(offset, axes), op.value(f"{name}_windows")
    if parts is None or windows:
        element = _Element(emitter, op, name, axes)
        split = DimWindows.make(axes, offset, windows, element.inside)
        if split is not None:
            return Operand(dtype, windows=split, frame=frame)
        return Operand(dtype, element=element, frame=frame)
    return strided_operand(f, base, dtype, parts, {**emitter.env, **_batch_env(frame)})


def _result(emitter: Emitter, op: GemmOp, frame: tuple[Value, ...]) -> Result | None:
    """The one buffer that the epilogue writes, where accumulators can be kept in it."""
    block = op.regions[0].block
    stores = [part for part in block.ops if isinstance(part, StoreOp)]
    if len(stores) != 1:
        return None
    (store,) = stores
    buffer, dtype = store.operands[1], accumulator_of(op)
    assert isinstance(buffer.type, BufferAttr)
    parts = split_offset(store.offset, ("_m", "_n"))
    if parts is None or buffer.type.dtype is not dtype or parts[1].value != 1:
        return None
    if store.mode != "set" or store.axes != ("_m", "_n"):
        return None
    if any(buffer in part.operands and part is not store for part in block.ops):
        return None
    f = emitter.f
    env = {**emitter.env, **_batch_env(frame)}
    stride, _, first = parts
    if not (first.symbols | stride.symbols) <= env.keys():
        return None
    base = f.gep(emitter.buffers[buffer], dim_value(f, first, env), convert.storage_type(dtype))
    return Result(base, dim_value(f, stride, env), is_plain=store.operands[0] is block.args[-1])


class _Element:
    """One element of an operand with a map that is not linear, or with windows."""

    def __init__(self, emitter: Emitter, op: GemmOp, name: str, axes: tuple[str, str]) -> None:
        self.kernel, self.op, self.name, self.axes = emitter.kernel, op, name, axes

    def inside(self, f: FunctionText, frame: Sequence[Value]) -> tuple[Value, dict[str, Index]]:
        """The operand's pointer and the symbols' values, in a function of its own."""
        inner = _enter(f, self.kernel, frame)
        base = inner.buffers[self.op.operands[0 if self.name == "lhs" else 1]]
        return base, {**inner.env, **_batch_env(frame)}

    def __call__(self, f: FunctionText, row: Value, column: Value, frame: Sequence[Value]) -> Value:
        op, dtype = self.op, self.op.value(f"{self.name}_dtype")
        base, sizes = self.inside(f, frame)
        env = {**sizes, self.axes[0]: row, self.axes[1]: column}
        windows: tuple[Dim, ...] = op.value(f"{self.name}_windows")
        inside: Value | None = None
        for expr, extent in zip(windows[::2], windows[1::2], strict=True):
            ok = f.icmp("ult", dim_value(f, expr, env), dim_value(f, extent, env))
            inside = ok if inside is None else f.op("and", inside, ok)

        def read() -> Value:
            offset = dim_value(f, op.value(f"{self.name}_offset"), env)
            return convert.load(f, f.gep(base, offset, convert.storage_type(dtype)), dtype, 1)

        if inside is None:
            return read()
        (found,) = f.if_(inside, read, lambda: f.const(convert.compute_type(dtype), 0))
        return found


def _enter(f: FunctionText, kernel: SpecOp, frame: Sequence[Value]) -> Emitter:
    """An emitter inside an outlined function: buffers and sizes are read from the context once more."""
    from tessera.backends.cpu.emit import Emitter  # noqa: PLC0415 - it emits contractions through this file

    inner = Emitter(f, kernel)
    inner.enter(frame[0])
    return inner


class _Epilogue:
    """The ops after the contraction, on one row of accumulators."""

    def __init__(self, emitter: Emitter, op: GemmOp) -> None:
        self.kernel, self.op = emitter.kernel, op

    def __call__(
        self,
        f: FunctionText,
        accumulators: list[Value],
        row: Value,
        column: Value,
        masks: list[Value] | None,
        frame: list[Value],
    ) -> None:
        block = self.op.regions[0].block
        count = len(self.op.batch)
        args: Sequence[SSAValue] = block.args
        for number, accumulator in enumerate(accumulators):
            inner = _enter(f, self.kernel, frame)
            inner.is_inside = masks is None
            for argument, value in zip(args[:count], frame[1:], strict=True):
                inner.indices[argument] = value
            inner.indices[args[count]] = row
            inner.indices[args[count + 1]] = f.add(column, number * accumulator.lanes)
            layout, dtype = inner.layout(args[-1])
            inner.blocks[args[-1]] = Vectors.of(layout, dtype, [accumulator])
            inner.ops(block)


# `ttarget.block_dot`: operands packed as panels, or read in place, then the micro-kernel over them. A block is small,
# so packing it has to be worth its pass: rows of A in the accumulator's dtype are read where they are, and so are rows
# of B where whole register blocks cover it. A long K is cut into parts whose panel of B stays in the first cache while
# every row of A goes by.

_PANEL_BYTES = 1 << 14
"""Bytes of a panel of B that stays in the first cache while every row of A is multiplied by it."""


def emit_block_dot(emitter: Emitter, op: BlockDotOp) -> None:
    """Pack both operands, then compute every register block of the result."""
    f = emitter.f
    lhs_at, rhs_at, out_at, scratch_at = op.operands[:4]
    out_type = out_at.type
    assert isinstance(out_type, BufferAttr)
    env = emitter.env_of(op, op.names, 4)
    shape = MicroShape.of(f.target, out_type.dtype)
    m, n, k = (f.smax(dim_value(f, op.value(name), env), 0) for name in ("m", "n", "k"))

    def operand(value: SSAValue, offset: Dim, axes: tuple[str, str]) -> Operand:
        parts = split_offset(offset, axes)
        assert isinstance(value.type, BufferAttr)
        assert parts is not None
        return strided_operand(f, emitter.buffers[value], value.type.dtype, parts, env)

    lhs = operand(lhs_at, op.lhs_offset, ("_row", "_inner_k"))
    rhs = operand(rhs_at, op.rhs_offset, ("_inner_k", "_col"))
    left = emitter.buffers[scratch_at]
    right = f.gep(left, panel_elements(shape, op.max_rows, op.max_k), shape.element)
    packed = _BlockDot(
        f,
        shape,
        (m, n, k),
        _Operand(left, lhs, lhs.is_rows_of(shape.dtype)),
        _Operand(right, rhs, is_in_place=False),
        emitter.buffers[out_at],
        op.out_stride,
    )
    max_k, is_fresh = op.max_k, op.is_fresh
    can_read_in_place = rhs.dtype is shape.dtype and constant_of(rhs.column_stride) == 1
    whole = f.icmp("eq", f.urem(n, shape.columns), 0)
    in_place = replace(packed, rhs=replace(packed.rhs, is_in_place=True)) if can_read_in_place else packed
    if not can_read_in_place and max_k < 2 * _part(shape):
        whole = f.const("i1", False)  # both branches would be the same
    f.if_(whole, lambda: in_place.write(max_k, is_fresh, has_whole_panels=True), lambda: packed.write(max_k, is_fresh))
    if is_fresh:
        out, stride = packed.out, packed.stride
        f.if_(f.icmp("slt", n, stride), lambda: _clear_columns(f, shape, out, m, n, stride))


def _part(shape: MicroShape) -> int:
    """How much of K a panel has that stays in the first cache."""
    return _PANEL_BYTES // (shape.columns * shape.dtype.bytes)


@frozen
class _Operand:
    """An operand, where its panels go, and whether it is read in place instead."""

    panels: Value
    operand: Operand
    is_in_place: bool


@frozen
class _BlockDot:
    """A dot of blocks: the extents m, n and k, both operands, and rows of the result `stride` apart."""

    f: FunctionText
    shape: MicroShape
    extents: tuple[Value, Value, Value]
    lhs: _Operand
    rhs: _Operand
    out: Value
    stride: int

    def write(self, most: int, is_fresh: bool, has_whole_panels: bool = False) -> None:
        """Panels of the operands that need them, then the accumulators; K is at most `most`."""
        f, shape, (m, n, k) = self.f, self.shape, self.extents
        if not self.lhs.is_in_place:
            pack_lhs(f, shape, self.lhs.panels, self.lhs.operand, Area(0, m, 0, k))
        if not self.rhs.is_in_place:
            pack_rhs(f, shape, self.rhs.panels, self.rhs.operand, Area(0, n, 0, k))
        adds_first = f.const("i1", not is_fresh)
        part = _part(shape)
        if most < 2 * part or not has_whole_panels:
            self.add(0, k, adds_first)
            return

        def step(at: Value) -> None:
            self.add(at, f.smin(f.sub(k, at), part), f.op("or", adds_first, f.icmp("ne", at, 0)))

        # An empty K makes one iteration too: it clears a fresh result.
        f.loop(0, f.smax(k, 1), part, step)

    def add(self, at: Index, k_count: Value, adds: Value) -> None:
        """The part of K from `at` on; `adds` says whether the result is added to, or overwritten."""
        f, shape, (m, n, _) = self.f, self.shape, self.extents
        rhs_stride = self.rhs.operand.row_stride if self.rhs.is_in_place else None

        # Rows follow each other in memory, so a register that goes beyond the end of one would write into the next.
        cut = not shape.ends_with(self.stride)

        def columns(j: Value) -> None:
            form = MicroForm(self.rhs.is_in_place, cut)
            kernels = choose_kernels(f, shape, f.sub(n, j), form)
            end = f.sub(f.const_i(self.stride), j) if cut else None
            panel = self._right(j, at)

            def rows(i: Value, height: int) -> None:
                target = f.gep(self.out, f.add(f.mul(i, self.stride), j), shape.element)
                kernel = kernels[shape.heights.index(height)]
                left = self._left(i, at, height)
                call_micro_kernel(f, kernel, left, panel, k_count, target, self.stride, adds, rhs_stride, end)

            for_each_height(f, shape, m, rows)

        f.loop(0, n, shape.columns, columns)

    @property
    def _reads_rows_in_place(self) -> bool:
        return self.lhs.operand.base is not None and self.lhs.is_in_place

    def _left(self, row: Value, at: Index, height: int) -> LhsRows:
        f, operand = self.f, self.lhs.operand
        if operand.base is None or not self._reads_rows_in_place:
            offset = f.add(f.mul(row, self.extents[2]), f.mul(at, height))
            return LhsRows(f.gep(self.lhs.panels, offset, self.shape.element), 1, height)
        offset = f.add(f.mul(row, operand.row_stride), at)
        return LhsRows(f.gep(operand.base, offset, self.shape.element), operand.row_stride)

    def _right(self, column: Value, at: Index) -> Value:
        f, operand = self.f, self.rhs.operand
        if operand.base is None or not self.rhs.is_in_place:
            offset = f.add(f.mul(column, self.extents[2]), f.mul(at, self.shape.columns))
            return f.gep(self.rhs.panels, offset, self.shape.element)
        return f.gep(operand.base, f.add(column, f.mul(at, operand.row_stride)), self.shape.element)


def _clear_columns(f: FunctionText, shape: MicroShape, out: Value, m: Value, n: Value, stride: int) -> None:
    """Clear the columns of a fresh result beyond the edge of B."""
    zero = f.const(shape.element, 0)

    def row(i: Value) -> None:
        line = f.gep(out, f.mul(i, stride), shape.element)
        f.loop(n, stride, 1, lambda j: f.store(zero, f.gep(line, j, shape.element)))

    f.loop(0, m, 1, row)
