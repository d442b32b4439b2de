"""Matmuls for one task: packed panels, a register block inside, an epilogue on every finished tile.

The loops are those of Goto and BLIS ("Anatomy of High-Performance Matrix Multiplication", 2008): NC columns of B are
packed for the caches shared by all rows, MC rows of A for the second cache, KC of K for the first; the micro-kernel
keeps a block of accumulators in registers. Where rows of A are read in place, the first are multiplied while B is
packed, which hides most of that. Where there are few rows packing would not pay: B is streamed once, and operands
seen through windows are read in place.

Each result is one chain of multiply-adds over k = 0, 1, 2, ... from zero. Where K is cut into blocks the accumulator is
stored and loaded again, never added, so its bits depend on neither block sizes, threads, rows nor columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

from tessera.backends.cpu.micro_kernel import FirstRows, LhsRows, MicroForm, MicroShape, call_micro_kernel, multiply_add
from tessera.backends.cpu.packing import (
    Operand,
    can_multiply,
    choose_kernels,
    for_each_height,
    pack_lhs,
    pack_panel,
    pack_rhs,
    panel_elements,
)
from tessera.backends.cpu.registers import leave_when_stopped
from tessera.backends.cpu.windows import MAX_K, Area, Read, WindowVectors
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Index, TargetText, Value, bytes_of, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

FEW_ROWS = 8
"""Rows up to which the B operand is streamed, not packed: it is read once, at the bandwidth of memory."""

Epilogue: TypeAlias = Callable[[FunctionText, list[Value], Value, Value, "list[Value] | None", list[Value]], None]
"""`epilogue(f, accumulators, row, column, masks, frame)`: finish and store one row of a tile.

The accumulators are neighbouring vectors that begin at (row, column); `masks` has one mask each where the tile
reaches beyond the matrix, else it is None. `frame` holds the problem's frame as the function being written sees it.
"""


@frozen
class GemmPlan:
    """Block sizes; none of them changes a bit of the result."""

    shape: MicroShape
    MC: int  # rows packed at a time: MC x KC stays in the second cache
    KC: int  # length of a block of K: KC x one panel stays in the first cache
    NC: int  # columns packed at a time
    MB: int  # rows whose accumulators are kept for the next block of K
    skinny: int  # up to so many rows B is streamed, not packed
    NS: int  # columns whose accumulators a streamed matmul keeps

    @staticmethod
    def of(target: TargetText, dtype: DType) -> GemmPlan:
        """The plan for an accumulator dtype on a machine."""
        shape = MicroShape.of(target, dtype)
        half = 8 // bytes_of(shape.element)
        return GemmPlan(shape, MC=96, KC=256 * half, NC=256 * half, MB=768, skinny=FEW_ROWS, NS=2048 * half)

    @property
    def for_rows_in_place(self) -> GemmPlan:
        """Where rows of A are read in place, no strip of columns packs them: narrow strips of a long K are best."""
        return replace(self, KC=2 * self.KC, NC=max(self.NC // 4, self.shape.columns))


@frozen
class Result:
    """Where the result is, when it is of the accumulator's dtype and its rows are contiguous.

    Accumulators are then kept in the result itself between two blocks of K. `is_plain` says that the epilogue does
    nothing but store them there.
    """

    base: Value
    row_stride: Index
    is_plain: bool


@frozen
class GemmProblem:
    """One task: the rows and columns it owns, the operands, where to work, what to do with the result."""

    m_lo: Index
    m_hi: Index
    n_lo: Index
    n_hi: Index
    k: Index
    lhs: Operand
    rhs: Operand
    scratch: Value
    epilogue: Epilogue
    frame: tuple[Value, ...] = ()
    rows: int | None = None  # of the whole matrix, where known: saves code for the cuts it does not have
    columns: int | None = None
    result: Result | None = None


def scratch_bytes(plan: GemmPlan) -> int:
    """Bytes of scratch one task needs, whatever its sizes."""
    return _scratch_ends(plan)[-1]


def _scratch_ends(plan: GemmPlan) -> list[int]:
    """Where the parts of scratch end, in bytes: a tile, panels of A, panels of B, and kept accumulators."""
    shape = plan.shape
    parts = (
        shape.rows * shape.columns,
        panel_elements(shape, max(plan.MC, plan.skinny), plan.KC),
        panel_elements(shape, plan.NC, plan.KC),
        max(plan.MB * plan.NC, plan.skinny * plan.NS),
    )
    return list(accumulate(-(-part * bytes_of(shape.element) // 64) * 64 for part in parts))


def emit_gemm(f: FunctionText, plan: GemmPlan, problem: GemmProblem) -> None:
    """Write the matmul of one task into a kernel."""
    writer = _Gemm(f, plan.for_rows_in_place if problem.lhs.is_rows_of(plan.shape.dtype) else plan, problem)
    few_rows = f.icmp("sle", f.sub(problem.m_hi, problem.m_lo), plan.skinny)
    if problem.rows is not None and (problem.rows <= plan.skinny or problem.rows > 4 * plan.skinny):
        # Decided now: a large matrix is not streamed even where a task happens to own few of its rows.
        few_rows = f.const("i1", problem.rows <= plan.skinny)
    streams = problem.rhs.is_memory
    contiguous = f.icmp("eq", problem.rhs.column_stride, 1) if streams else f.const("i1", False)
    if "false" in (contiguous.text, few_rows.text):
        writer.emit_packed()
    elif "true" in (contiguous.text, few_rows.text):
        f.if_(few_rows if contiguous.text == "true" else contiguous, writer.emit_streamed, writer.emit_packed)
    else:
        f.if_(f.op("and", few_rows, contiguous), writer.emit_streamed, writer.emit_packed)


class _Gemm:
    """The loops around the register block, written into one kernel."""

    def __init__(self, f: FunctionText, plan: GemmPlan, problem: GemmProblem) -> None:
        self.f, self.plan, self.problem = f, plan, problem
        self.shape = plan.shape
        self.element = plan.shape.element
        self.tile = problem.scratch
        ends = _scratch_ends(plan)[:-1]
        self.lhs_panels, self.rhs_panels, self.kept = (f.gep(problem.scratch, end, "i8") for end in ends)
        self.finish = outline_epilogue(f, plan.shape, problem)

    def emit_packed(self) -> None:
        """Both operands packed; columns outermost, then rows, then k."""
        f, plan, p = self.f, self.plan, self.problem
        one_block = f.icmp("sle", p.k, plan.KC)
        # An empty sum is still a result: K = 0 makes one iteration with nothing in it. Blocks of K are even: a last one
        # of a few k would cost a whole pass over the accumulators.
        k_count = f.smax(p.k, 1)
        step = f.ceil_div(k_count, f.ceil_div(k_count, plan.KC))

        def columns(j: Value) -> None:
            nc = f.smin(plan.NC, f.sub(p.n_hi, j))
            # Whole register blocks may go straight to the result; others would write past the end of a row.
            whole = f.icmp("eq", f.urem(nc, self.shape.columns), 0)
            direct = whole if p.result is not None else f.const("i1", False)
            # Where no accumulator is kept in scratch, B is packed once for all rows.
            packs_once = f.op("or", one_block, direct)
            rows = f.select(packs_once, f.smax(f.sub(p.m_hi, p.m_lo), 1), f.const_i(plan.MB))

            def row_block(i: Value) -> None:
                end = f.smin(f.add(i, rows), p.m_hi)
                f.loop(0, k_count, step, lambda k: self._k_block(i, end, j, nc, k, step, one_block, direct))

            f.loop(p.m_lo, p.m_hi, rows, row_block)

        f.loop(p.n_lo, p.n_hi, plan.NC, columns)

    def _output_of(
        self, row: Value, column: Value, kept: Value, one_block: Value, direct: Value
    ) -> tuple[Value, Value]:
        """Where a register block goes, and how far apart its rows are."""
        f, result = self.f, self.problem.result
        scratch_out = f.select(one_block, self.tile, kept)
        stride = f.select(one_block, f.const_i(self.shape.columns), f.const_i(self.plan.NC))
        if result is None:
            return scratch_out, stride
        own = f.gep(result.base, f.add(f.mul(row, result.row_stride), column), self.element)
        return f.select(direct, own, scratch_out), f.select(direct, f.index(result.row_stride), stride)

    def _k_block(
        self, i: Value, end: Value, j: Value, nc: Value, k: Value, step: Value, one_block: Value, direct: Value
    ) -> None:
        """One block of k: pack B, then every block of rows."""
        f, plan, p = self.f, self.plan, self.problem
        kc = f.smin(step, f.sub(p.k, k))
        last = f.icmp("sge", f.add(k, step), p.k)
        if p.result is not None and p.result.is_plain:
            last = f.select(direct, f.const("i1", False), last)
        area = Area(j, nc, k, kc)
        begin = i
        if can_multiply(p.lhs, p.rhs, self.shape):
            begin = self._multiply_first(i, end, area, direct, last)
        else:
            pack_rhs(f, self.shape, self.rhs_panels, p.rhs, area, p.columns)

        def rows(ic: Value) -> None:
            leave_when_stopped(f, f.add(f.add(k, f.sub(ic, p.m_lo)), f.sub(j, p.n_lo)))
            mc = f.smin(plan.MC, f.sub(end, ic))
            if not p.lhs.is_runs:
                pack_lhs(f, self.shape, self.lhs_panels, p.lhs, Area(ic, mc, k, kc), p.rows)
            elif not p.lhs.is_rows_of(self.shape.dtype):
                self._copy_lhs(ic, mc, k, kc)
            row = f.sub(ic, i)

            def panel(jr: Value, kernels: Sequence[Value]) -> None:
                rhs = f.gep(self.rhs_panels, f.mul(jr, kc), self.element)
                wait = f.gep(self.kept, f.add(f.mul(row, plan.NC), jr), self.element)

                def block(at: Value, height: int) -> None:
                    kept = f.gep(wait, f.mul(at, plan.NC), self.element)
                    out, stride = self._output_of(f.add(ic, at), f.add(j, jr), kept, one_block, direct)
                    lhs = self._lhs_rows(f.add(ic, at), k, at, kc, height)
                    call_micro_kernel(
                        f, kernels[self.shape.heights.index(height)], lhs, rhs, kc, out, stride, f.icmp("ne", k, 0)
                    )
                    f.if_(last, lambda: self._finish(out, stride, height, f.add(ic, at), f.add(j, jr)))

                for_each_height(f, self.shape, mc, block, p.rows)

            def strip(jr: Value) -> None:
                panel(jr, choose_kernels(f, self.shape, f.sub(nc, jr), MicroForm(), p.rows, p.columns))

            f.loop(0, nc, self.shape.columns, strip)

        f.loop(begin, end, plan.MC, rows)

    def _multiply_first(self, i: Value, end: Value, area: Area, direct: Value, last: Value) -> Value:
        """Pack an area of B, and multiply it by the first block of rows on the way; returns the row after those."""
        f, plan, p = self.f, self.plan, self.problem
        assert p.lhs.base is not None, "the caller has looked"
        rows = f.smin(self.shape.rows, f.sub(end, i))
        out, stride, column = self.kept, f.const_i(plan.NC), f.index(area.row)
        if p.result is not None:
            own = f.gep(p.result.base, f.add(f.mul(i, p.result.row_stride), column), self.element)
            out, stride = f.select(direct, own, out), f.select(direct, f.index(p.result.row_stride), stride)
        lhs = f.gep(p.lhs.base, f.add(f.mul(i, p.lhs.row_stride), area.k), self.element)
        first = FirstRows(lhs, p.lhs.row_stride, out, stride, rows, f.icmp("ne", area.k, 0))
        pack_rhs(f, self.shape, self.rhs_panels, p.rhs, area, p.columns, first)

        def finish() -> None:
            def strip(jr: Value) -> None:
                self._finish(f.gep(out, jr, self.element), stride, rows, i, f.add(column, jr))

            f.loop(0, area.rows, self.shape.columns, strip)

        f.if_(last, finish)
        return f.add(i, rows)

    def _lhs_rows(self, row: Value, k: Value, at: Value, kc: Value, height: int) -> LhsRows:
        """Rows of A in place, or a copy of them, or their panel."""
        f, lhs = self.f, self.problem.lhs
        if lhs.base is not None and lhs.is_rows_of(self.shape.dtype):
            start = f.gep(lhs.base, f.add(f.mul(row, lhs.row_stride), k), self.element)
            return LhsRows(start, lhs.row_stride)
        start = f.gep(self.lhs_panels, f.mul(at, kc), self.element)
        return LhsRows(start, kc) if lhs.is_runs else LhsRows(start, 1, height)

    def _finish(self, tile: Value, stride: Index, rows: Index, row: Value, column: Value) -> None:
        """Call the epilogue on a finished tile."""
        f = self.f
        left = f.sub(self.problem.n_hi, column)
        args = [tile, f.index(stride), f.index(rows), row, column, left]
        f.call(self.finish, [*args, *self.problem.frame])

    def emit_streamed(self) -> None:
        """Few rows: read B once, row after row, into accumulators that stay in the cache."""
        f, plan, p = self.f, self.plan, self.problem
        m = f.sub(p.m_hi, p.m_lo)
        columns = self.shape.columns

        def chunk(j: Value) -> None:
            nc = f.smin(plan.NS, f.sub(p.n_hi, j))
            self._clear(m, nc)

            def k_count(k: Value) -> None:
                leave_when_stopped(f, f.add(k, f.sub(j, p.n_lo)))
                kc = f.smin(plan.KC, f.sub(p.k, k))
                self._copy_lhs(f.index(p.m_lo), m, k, kc)
                self._stream(m, Area(j, nc, k, kc))

            f.loop(0, p.k, plan.KC, k_count)

            def finish(jr: Value) -> None:
                tile = f.gep(self.kept, jr, self.element)
                self._finish(tile, plan.NS, m, f.index(p.m_lo), f.add(j, jr))

            f.loop(0, nc, columns, finish)

        f.loop(p.n_lo, p.n_hi, plan.NS, chunk)

    def _stream(self, m: Value, area: Area) -> None:
        """Call the outlined streaming kernel on an area of B, whose rows are columns of B."""
        f, plan, rhs = self.f, self.plan, self.problem.rhs
        assert rhs.base is not None, "only memory is streamed"
        offset = f.add(f.mul(area.k, rhs.row_stride), area.row)
        start = f.gep(rhs.base, offset, convert.storage_type(rhs.dtype))
        arguments = [("ptr", name) for name in ("lhs", "rhs", "out")]
        arguments += [("i64", name) for name in ("m", "n", "k", "stride")]
        key = ("stream", plan.shape, plan.NS, rhs.dtype)
        name = f.module.outline(key, "stream", arguments, lambda g: _write_stream(g, plan, rhs.dtype), shared=True)
        sizes = [m, *(f.index(one) for one in (area.rows, area.k_count, rhs.row_stride))]
        f.call(name, [self.lhs_panels, start, self.kept, *sizes])

    def _clear(self, rows: Value, columns: Value) -> None:
        """Zero the accumulators in scratch."""
        f, plan = self.f, self.plan
        zero = f.const(self.element, 0, self.shape.lanes)

        def row(i: Value) -> None:
            line = f.gep(self.kept, f.mul(i, plan.NS), self.element)
            f.loop(0, columns, self.shape.lanes, lambda j: f.store(zero, f.gep(line, j, self.element)))

        f.loop(0, rows, 1, row)

    def _copy_lhs(self, first: Value, rows: Value, k: Value, kc: Value) -> None:
        """Each row of A as a panel of its own: contiguous in k, in the accumulator dtype."""
        f, p = self.f, self.problem

        def row(i: Value) -> None:
            panel = f.gep(self.lhs_panels, f.mul(i, kc), self.element)
            area = Area(f.add(first, i), 1, k, kc)
            pack_panel(f, panel, p.lhs, 1, self.shape.dtype, area, self.shape.lanes)

        f.loop(0, rows, 1, row)


def _write_stream(g: FunctionText, plan: GemmPlan, dtype: DType) -> None:
    """`out[i, n] += lhs[i, k] * rhs[k, n]`, several k at a time: their rows of B stay in registers for all i."""
    lhs, rhs, out, m, n, k_count, stride = g.arguments
    shape, stored, element = plan.shape, convert.storage_type(dtype), plan.shape.element
    type_ = vector(element, shape.lanes)

    def lines_at(k: Value, count: int) -> list[Value]:
        return [g.gep(rhs, g.mul(g.add(k, step), stride), stored) for step in range(count)]

    def factors_of(i: Index, k: Value, count: int) -> list[Value]:
        first = g.gep(lhs, g.add(g.mul(i, k_count), k), element)
        return [g.splat(g.load(g.gep(first, s, element), element), shape.lanes) for s in range(count)]

    def add_up(i: Index, j: Value, factors: list[Value], values: Iterable[Value]) -> None:
        address = g.gep(out, g.add(g.mul(i, plan.NS), j), element)
        acc = g.load(address, type_)
        for factor, value in zip(factors, values, strict=True):
            acc = multiply_add(g, factor, value, acc)
        g.store(acc, address)

    def one_row(k: Value, count: int) -> None:
        # What is read between two rows of B keeps memory waiting: the factors stay in registers.
        lines, factors = lines_at(k, count), factors_of(0, k, count)

        def at(j: Value, load: Callable[[Value], Value]) -> None:
            add_up(0, j, factors, (load(g.gep(line, j, stored)) for line in lines))

        _along(g, shape, dtype, n, at)

    def several_rows(k: Value, count: int) -> None:
        lines = lines_at(k, count)

        def at(j: Value, load: Callable[[Value], Value]) -> None:
            values = [load(g.gep(line, j, stored)) for line in lines]
            g.loop(0, m, 1, lambda i: add_up(i, j, factors_of(i, k, count), values))

        _along(g, shape, dtype, n, at)

    def down(rows_at: Callable[[Value, int], None], together: int) -> None:
        most = g.round_down(k_count, together)
        g.loop(0, most, together, lambda k: rows_at(k, together))
        g.loop(most, k_count, 1, lambda k: rows_at(k, 1))

    # Memory serves many streams faster than few; their factors leave space for accumulators in 32 or 16 registers.
    alone = 20 if shape.lanes * bytes_of(element) == 64 else 12
    g.if_(g.icmp("eq", m, 1), lambda: down(one_row, alone), lambda: down(several_rows, 12))
    g.ret()


def _along(
    g: FunctionText,
    shape: MicroShape,
    dtype: DType,
    columns: Value,
    at: Callable[[Value, Callable[[Value], Value]], None],
) -> None:
    """`at(j, load)` for every register of columns; the last may be cut short."""

    def load(pointer: Value) -> Value:
        return convert.cast(g, convert.load(g, pointer, dtype, shape.lanes), dtype, shape.dtype)

    def load_some(pointer: Value) -> Value:
        return convert.cast(g, convert.load_some(g, pointer, dtype, shape.lanes, tail), dtype, shape.dtype)

    whole = g.round_down(columns, shape.lanes)
    g.loop(0, whole, shape.lanes, lambda j: at(j, load))
    tail = g.sub(columns, whole)
    g.if_(g.icmp("sgt", tail, 0), lambda: at(whole, load_some))


def outline_epilogue(f: FunctionText, shape: MicroShape, problem: GemmProblem) -> str:
    """Outline the epilogue: a loop over the rows of a tile, once for whole tiles and once for those cut by an edge."""
    arguments = [("ptr", "tile"), *(("i64", name) for name in ("stride", "rows", "row", "column", "left"))]
    arguments += [(value.type, f"frame{i}") for i, value in enumerate(problem.frame)]
    g = f.module.function(f.module.unique("epilogue"), arguments, internal=True)
    tile, stride, rows, row, column, left, *frame = g.arguments
    type_ = vector(shape.element, shape.lanes)

    def every_row(masks: list[Value] | None) -> None:
        def body(i: Value) -> None:
            line = g.gep(tile, g.mul(i, stride), shape.element)
            accs = [g.load(g.gep(line, v * shape.lanes, shape.element), type_) for v in range(shape.vectors)]
            problem.epilogue(g, accs, g.add(row, i), column, masks, frame)

        g.loop(0, rows, 1, body)

    def cut() -> None:
        every_row([g.lane_mask(g.sub(left, v * shape.lanes), shape.lanes) for v in range(shape.vectors)])

    g.if_(g.icmp("sge", left, shape.columns), lambda: every_row(None), cut)
    g.ret()
    return g.name


# Matmuls of few rows with a B operand seen through windows, as in depthwise convolutions. A packed element would be
# used once or a few times, so none is packed: a vector of columns reads its elements tap by tap, in place, and
# multiplies them right away. Each result is the same chain of multiply-adds as everywhere.

_COLUMNS = 1024
"""Columns tabled at a time: their tables stay in the first cache for the whole batch."""


def can_emit_few_rows(plan: GemmPlan, rows: int | None, k_count: int | None, lhs: Operand, rhs: Operand) -> bool:
    """Whether accumulators of all rows fit registers, and K may fit the tables."""
    is_shallow = k_count is None or k_count <= MAX_K
    return lhs.is_memory and rhs.windows is not None and rows is not None and rows <= plan.shape.rows and is_shallow


def emit_few_rows(
    f: FunctionText, plan: GemmPlan, first: Value, last: Value, problem_at: Callable[[Value], GemmProblem]
) -> None:
    """The matmuls `first..last` of a batch, of a K up to `MAX_K`; their windows differ only in where they start."""
    _FewRows(f, plan, problem_at).write(first, last)


class _FewRows:
    """The loops of one task, written into its kernel."""

    def __init__(self, f: FunctionText, plan: GemmPlan, problem_at: Callable[[Value], GemmProblem]) -> None:
        self.f, self.shape, self.problem_at = f, plan.shape, problem_at
        self.any = problem_at(f.const_i(0))
        windows, rows = self.any.rhs.transposed.windows, self.any.rows
        assert windows is not None, "the caller has looked"
        assert rows is not None, "the caller has looked"
        self.rows = rows
        self.tile = self.any.scratch
        dtype, lanes = self.any.rhs.dtype, plan.shape.lanes
        self.vectors = WindowVectors(f, windows, dtype, plan.shape.dtype, self.any.frame, _COLUMNS, lanes)
        # Packing may write a register past the end.
        self.factors = f.alloca(plan.shape.element, rows * MAX_K + lanes)
        self.finish = outline_epilogue(f, plan.shape, self.any)

    def write(self, first: Value, last: Value) -> None:
        f, p = self.f, self.any
        self.vectors.fill_columns(0, p.k)

        def some_columns(j: Value) -> None:
            count = f.smin(_COLUMNS, f.sub(p.n_hi, j))
            self.vectors.fill_rows(j, count, self.shape.columns)
            f.loop(first, last, 1, lambda number: self._one_matmul(self.problem_at(number), j, count))

        f.loop(p.n_lo, p.n_hi, _COLUMNS, some_columns)

    def _one_matmul(self, problem: GemmProblem, j: Value, count: Value) -> None:
        """Columns `j..j+count` of one matmul."""
        f, shape, rows = self.f, self.shape, self.rows
        self.vectors.move(problem.frame)
        pack_panel(f, self.factors, problem.lhs, rows, shape.dtype, Area(0, rows, 0, problem.k), shape.lanes)

        def strip(at: Value) -> None:
            left = f.sub(count, at)

            def one(offset: Value) -> None:
                out = f.gep(self.tile, offset, shape.element)
                self.vectors.at(f.add(at, offset), lambda read: self._accumulate([read], problem.k, out))

            def one_by_one() -> None:
                f.loop(0, f.smin(left, shape.columns), shape.lanes, one)

            self.vectors.read_several(
                at,
                shape.vectors,
                f.icmp("sgt", left, shape.columns // 2),
                lambda reads: self._accumulate(reads, problem.k, self.tile),
                one_by_one,
            )
            column = f.add(j, at)
            args = [self.tile, f.const_i(shape.columns), f.const_i(rows), f.const_i(0), column]
            f.call(self.finish, [*args, f.sub(problem.n_hi, column), *problem.frame])

        f.loop(0, count, shape.columns, strip)

    def _accumulate(self, reads: Sequence[Read], k: Index, out: Value) -> None:
        """Neighbouring vectors of every row, stored where the tile has their columns."""
        f, shape, rows = self.f, self.shape, self.rows

        def step(i: Value, accumulators: list[Value]) -> list[Value]:
            values = [read(i) for read in reads]
            result: list[Value] = []
            for row in range(rows):
                address = f.gep(self.factors, f.add(f.mul(i, rows), row), shape.element)
                factor = f.splat(f.load(address, shape.element), shape.lanes)
                result += [
                    multiply_add(f, factor, value, accumulators[len(result) + v]) for v, value in enumerate(values)
                ]
            return result

        accumulators = f.loop(0, k, 1, step, [f.const(shape.element, 0, shape.lanes)] * (rows * len(reads)))
        for number, value in enumerate(accumulators):
            row, v = divmod(number, len(reads))
            f.store(value, f.gep(out, row * shape.columns + v * shape.lanes, shape.element))
