"""Depthwise convolutions: products of few rows whose B operand is windows on one plane, computed as a stencil.

Such a product has little arithmetic for what it reads, so nothing is packed. Rows of a plane are copied to scratch with
the zeros around them, columns of a stride apart from each other, so that every tap is a plain load at a fixed distance.
A block of rows of the result is kept in registers; each register of the plane that is loaded is multiplied for all
rows that a tap reaches it from. Every result is the chain of multiply-adds over the taps in order, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tessera.backends.cpu.gemm import GemmPlan, GemmProblem, outline_epilogue, scratch_bytes
from tessera.backends.cpu.micro_kernel import multiply_add
from tessera.backends.cpu.packing import pack_panel
from tessera.backends.cpu.registers import leave_when_stopped
from tessera.backends.cpu.windows import Area, Inside, split_by_axis
from tessera.ir.base.index_maps import simplify
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of, dim_value, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

_MOST_STEPS = 512
"""Multiply-adds that a block is unrolled to: some kilobytes of code, as measured on a Zen 4 to be as fast as less."""
_FEWEST_CHAINS = 6
"""Registers of a block that hide the latency of a multiply-add, 4 cycles at one or two a cycle."""
_BAND = 6144
"""Elements of a plane in scratch at a time: they stay in the first cache of 32 KB while they are multiplied."""
CAPACITY = 1 << 16
"""Elements of scratch for a part of a plane, and for results."""


@frozen
class Axis:
    """A window along one axis: `stride * position + dilation * tap - low`, zero unless it is in `0 .. extent - 1`."""

    stride: int
    dilation: int
    low: Dim
    extent: Dim
    taps: int
    positions: Dim


@frozen
class Stencil:
    """A window on planes that lie row by row: `rows` of them, then `columns`."""

    rows: Axis
    columns: Axis

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.rows.taps * self.columns.taps

    @property
    def block(self) -> tuple[int, int]:
        """Rows of the result in a block, and registers of each: as many rows as cost the least for all of them."""
        most, known = max(1, min(8, _MOST_STEPS // self.taps)), self.rows.positions.value
        rows = min(most, 6) if known is None else min(range(1, most + 1), key=lambda own: self._cost(own, known))
        vectors = max(1, min(-(-_FEWEST_CHAINS // rows), _MOST_STEPS // (self.taps * rows)))
        return rows, vectors

    def _cost(self, own: int, rows: int) -> int:
        """What blocks of so many rows cost: multiply-adds, too few of which wait for each other, and loads of lines.

        A load that begins anywhere is two, as most lie across two lines of the cache.
        """
        lines = (own - 1) * self.rows.stride + (self.rows.taps - 1) * self.rows.dilation + 1
        return -(-rows // own) * (max(own, _FEWEST_CHAINS) * self.rows.taps + 2 * lines)


def find_stencil(offset: Dim, windows: tuple[Dim, ...], n: Dim, k: int) -> Stencil | None:
    """The stencil that an operand is read by, from its offset and its windows; None where it is none.

    Windows are one or two, the offset is that of planes of their extents.
    """
    exprs, extents = windows[::2], windows[1::2]
    if not 1 <= len(exprs) <= 2:
        return None
    plane = exprs[0] if len(exprs) == 1 else exprs[0] * extents[1] + exprs[1]
    if (offset - simplify(plane)).symbols & {"_n", "_k"}:
        return None
    terms = [_terms_of(expr) for expr in exprs]
    parts = [term for term in terms if term is not None]
    if len(parts) != len(exprs):
        return None
    width = _width(parts, 0, n)
    taps = _width(parts, 1, Dim.constant(k))
    if width is None or taps is None or taps.value is None:
        return None
    axes = [Axis(part.n[0], part.k[0], -part.start, extent, 0, n) for part, extent in zip(parts, extents, strict=True)]
    last = axes[-1]
    columns = Axis(last.stride, last.dilation, last.low, last.extent, taps.value, width)
    if len(axes) == 1:
        return Stencil(Axis(1, 1, Dim.constant(0), Dim.constant(1), 1, Dim.constant(1)), columns)
    first = axes[0]
    rows = Axis(first.stride, first.dilation, first.low, first.extent, k // taps.value, n // width)
    return Stencil(rows, columns)


@frozen
class _Terms:
    """A coordinate: where it starts, and the factor and kind of what a position and a tap add to it."""

    start: Dim
    n: tuple[int, str, Dim]
    k: tuple[int, str, Dim]


def _terms_of(expr: Dim) -> _Terms | None:
    parts = split_by_axis(expr, ("_n", "_k"))
    if parts is None:
        return None
    n, k = _term(parts[1], "_n"), _term(parts[2], "_k")
    return None if n is None or k is None else _Terms(parts[0], n, k)


def _term(part: Dim, name: str) -> tuple[int, str, Dim] | None:
    """The factor of `name`, `name // size` or `name % size`, which of them it is, and the size; 1 of nothing."""
    if not part.terms:
        return 1, "", Dim.constant(1)
    if len(part.terms) != 1 or len(part.terms[0][0]) != 1 or part.terms[0][1] < 1:
        return None
    (atom,), factor = part.terms[0]
    if atom.kind == "symbol":
        return factor, "symbol", Dim.constant(1)
    is_plain = atom.kind in ("floordiv", "mod") and atom.args[0] == Dim.symbol(name)
    return (factor, atom.kind, atom.args[1]) if is_plain else None


def _width(parts: list[_Terms], number: int, whole: Dim) -> Dim | None:
    """The size of the last axis that `_n` or `_k` counts along; None where the axes are not the digits of one."""
    found = [(part.n, part.k)[number] for part in parts]
    kinds = tuple(kind for _, kind, _ in found)
    if kinds in (("symbol",), ("", "symbol")):
        return whole
    if kinds in (("",), ("", ""), ("symbol", "")):
        return Dim.constant(1)
    return found[1][2] if kinds == ("floordiv", "mod") and found[0][2] == found[1][2] else None


def fits_scratch(stencil: Stencil, plan: GemmPlan) -> bool:
    """Whether a block is small enough to be unrolled, and lines of a known width fit scratch."""
    element, width = bytes_of(plan.shape.element), stencil.columns.positions.value
    is_small = stencil.taps <= _MOST_STEPS // 2 and scratch_bytes(plan) >= 2 * CAPACITY * element
    return is_small and (width is None or width <= widest(stencil))


def widest(stencil: Stencil) -> int:
    """Columns of results up to which what a block reads and writes fits scratch."""
    (rows, vectors), columns = stencil.block, stencil.columns
    lines = (rows - 1) * stencil.rows.stride + (stencil.rows.taps - 1) * stencil.rows.dilation + 1
    # A row has space for registers that reach over its end, and whole lines of the cache.
    over = (columns.taps - 1) * columns.dilation // columns.stride + 1 + 16 * vectors + 16
    return min(CAPACITY // (lines * columns.stride) - over, CAPACITY // 2 // rows - 16 * vectors)


@frozen
class PlaneSource:
    """Where planes are: the pointer of the operand and the values of its symbols, and the offset of a plane."""

    inside: Inside
    offset: Dim
    dtype: DType
    stencil: Stencil

    def start(self, f: FunctionText, frame: tuple[Value, ...]) -> tuple[Value, dict[str, Index]]:
        """The first element of the plane of a frame, and the symbols."""
        base, env = self.inside(f, frame)
        axes = (self.stencil.rows, self.stencil.columns)
        origin = self.offset.substitute({"_n": 0, "_k": 0}) + axes[0].low * axes[1].extent + axes[1].low
        return f.gep(base, dim_value(f, origin, env), convert.storage_type(self.dtype)), dict(env)


def emit_stencil(
    f: FunctionText,
    plan: GemmPlan,
    first: Value,
    last: Value,
    problem_at: Callable[[Value], GemmProblem],
    source: PlaneSource,
) -> None:
    """The matmuls `first..last` of a batch, all columns of each."""
    _Stencil(f, plan, problem_at, source).write(first, last)


class _Stencil:
    """The loops of one task, written into its kernel."""

    def __init__(
        self, f: FunctionText, plan: GemmPlan, problem_at: Callable[[Value], GemmProblem], source: PlaneSource
    ) -> None:
        self.f, self.shape, self.problem_at, self.source = f, plan.shape, problem_at, source
        self.stencil, self.element = source.stencil, plan.shape.element
        self.any = problem_at(f.const_i(0))
        rows = self.any.rows
        assert rows is not None, "the caller has looked"
        self.out_rows = rows
        self.image = self.any.scratch
        self.results = f.gep(self.image, CAPACITY, self.element)
        # Packing may write a register past the end.
        self.factors = f.alloca(self.element, rows * self.stencil.taps + plan.shape.lanes)
        self.finish = outline_epilogue(f, plan.shape, self.any)
        _, env = source.start(f, self.any.frame)
        self._measure(env)

    def _measure(self, env: dict[str, Index]) -> None:
        """The sizes of planes, results and bands, the same for the whole batch."""
        f, rows, columns = self.f, self.stencil.rows, self.stencil.columns
        self.height, self.width = (dim_value(f, axis.extent, env) for axis in (rows, columns))
        self.low = [dim_value(f, axis.low, env) for axis in (rows, columns)]
        self.positions = [dim_value(f, axis.positions, env) for axis in (rows, columns)]
        reach = f.add(self.positions[1], (columns.taps - 1) * columns.dilation // columns.stride + 1)
        slack = self.shape.lanes * self.stencil.block[1]
        self.phase = f.round_up(f.add(reach, slack), 16)
        self.pitch = f.mul(self.phase, columns.stride)
        block = self.stencil.block[0]
        reached = (rows.taps - 1) * rows.dilation + 1
        held = f.sdiv(f.sub(f.udiv(_BAND, f.smax(self.pitch, 1)), reached), rows.stride)
        kept = f.udiv(CAPACITY // 2, f.smax(self.positions[1], 1))
        self.band = f.smax(f.round_down(f.smax(f.smin(held, kept), 0), block), block)

    def write(self, first: Value, last: Value) -> None:
        f = self.f

        def plane(number: Value) -> None:
            leave_when_stopped(f, number)
            problem = self.problem_at(number)
            factors = self._factors_of(problem)
            start, _ = self.source.start(f, problem.frame)
            f.loop(0, self.positions[0], self.band, lambda y: self._band(problem, factors, start, y))

        # Where a band is a whole plane the zeros around it are written once, and stay.
        self.is_whole = f.icmp("sle", self.positions[0], self.band)
        f.if_(self.is_whole, lambda: self._clear(self._lines_of(f.round_up(self.positions[0], self.stencil.block[0]))))
        f.loop(first, last, 1, plane)

    def _factors_of(self, problem: GemmProblem) -> Value:
        """The weights of all rows, tap by tap: in place where they lie so."""
        f, rows, lhs = self.f, self.out_rows, problem.lhs
        if rows == 1 and lhs.base is not None and lhs.is_rows_of(self.shape.dtype):
            return lhs.base
        area = Area(0, rows, 0, self.stencil.taps)
        pack_panel(f, self.factors, lhs, rows, self.shape.dtype, area, self.shape.lanes)
        return self.factors

    def _lines_of(self, count: Value) -> Value:
        """Rows of a plane that so many rows of results read."""
        f, rows = self.f, self.stencil.rows
        return f.add(f.mul(f.sub(count, 1), rows.stride), (rows.taps - 1) * rows.dilation + 1)

    def _clear(self, lines: Value) -> None:
        f, lanes = self.f, self.shape.lanes
        zero = f.const(self.element, 0, lanes)
        f.loop(0, f.mul(lines, self.pitch), lanes, lambda at: f.store(zero, f.gep(self.image, at, self.element)))

    def _band(self, problem: GemmProblem, factors: Value, start: Value, y: Value) -> None:
        """Rows of results from `y` on, up to a band of them."""
        f = self.f
        count = f.smin(self.band, f.sub(self.positions[0], y))
        block, _ = self.stencil.block
        whole = f.round_up(count, block)
        lines = self._lines_of(whole)
        f.if_(f.op("xor", self.is_whole, f.const("i1", True)), lambda: self._clear(lines))
        self._fill(start, f.sub(f.mul(y, self.stencil.rows.stride), self.low[0]), lines)
        for row in range(self.out_rows):
            own = f.gep(factors, row, self.element)
            f.loop(0, whole, block, lambda at, own=own: self._rows(own, at))
            self._store(problem, row, f.mul(y, self.positions[1]), f.mul(count, self.positions[1]))

    def _store(self, problem: GemmProblem, row: int, column: Value, count: Value) -> None:
        f, columns = self.f, self.shape.columns

        def strip(at: Value) -> None:
            tile = f.gep(self.results, at, self.element)
            args = [tile, f.const_i(columns), f.const_i(1), f.const_i(row), f.add(column, at), f.sub(count, at)]
            f.call(self.finish, [*args, *problem.frame])

        f.loop(0, count, columns, strip)

    # Rows of a plane with zeros around them.

    def _fill(self, start: Value, first: Value, count: Value) -> None:
        source = self.source
        arguments = [("ptr", "to"), ("ptr", "from")]
        names = ("first", "count", "pitch", "phase", "height", "width", "low", "positions")
        arguments += [("i64", name) for name in names]
        key = ("stencil rows", source.dtype, self.shape, self.stencil.columns.stride)
        name = self.f.module.outline(key, "plane_rows", arguments, self._write_fill)
        sizes = [first, count, self.pitch, self.phase, self.height, self.width, self.low[1], self.positions[1]]
        self.f.call(name, [self.image, start, *sizes])

    def _write_fill(self, g: FunctionText) -> None:
        to, source, first, count, pitch, phase, height, width, low, _ = g.arguments
        dtype, lanes, stored = self.source.dtype, self.shape.lanes, convert.storage_type(self.source.dtype)
        stride = self.stencil.columns.stride
        # What lies beyond the last register of a row is not read.
        most = g.smin(width, g.sub(g.mul(g.sub(phase, lanes), stride), low))

        def row(i: Value) -> None:
            line = g.gep(to, g.mul(i, pitch), self.element)
            copy(line, g.gep(source, g.mul(g.add(first, i), width), stored))

        def copy(line: Value, origin: Value) -> None:
            if stride > 2:
                g.loop(0, most, 1, lambda j: one(line, origin, j))
                return
            ends = [g.add(low, number) for number in range(stride)]
            places = [g.add(g.mul(g.urem(end, stride), phase), g.udiv(end, stride)) for end in ends]
            targets = [g.gep(line, place, self.element) for place in places]

            def run(j: Value, load: Callable[[Value], Value]) -> None:
                starts = [g.add(j, number * lanes) for number in range(stride)]
                parts = [convert.cast(g, load(start), dtype, self.shape.dtype) for start in starts]
                for number, target in enumerate(targets):
                    every = range(number, stride * lanes, stride)
                    part = parts[0] if stride == 1 else g.shuffle(parts[0], parts[1], every)
                    g.store(part, g.gep(target, g.udiv(j, stride), self.element))

            def some(j: Value) -> Value:
                return convert.load_some(g, g.gep(origin, j, stored), dtype, lanes, g.smax(g.sub(most, j), 0))

            whole = g.round_down(most, stride * lanes)
            full = partial(run, load=lambda j: convert.load(g, g.gep(origin, j, stored), dtype, lanes))
            g.loop(0, whole, stride * lanes, full)
            g.loop(whole, most, stride * lanes, partial(run, load=some))

        def one(line: Value, origin: Value, j: Value) -> None:
            at = g.add(j, low)
            place = g.add(g.mul(g.urem(at, stride), phase), g.udiv(at, stride))
            value = convert.cast(g, convert.load(g, g.gep(origin, j, stored), dtype, 1), dtype, self.shape.dtype)
            g.store(value, g.gep(line, place, self.element))

        g.loop(g.smax(g.sub(0, first), 0), g.smin(count, g.sub(height, first)), 1, row)
        g.ret()

    # Blocks of results.

    def _rows(self, factors: Value, at: Value) -> None:
        """A block of rows, its registers from the last to the first: what reaches over an end is then overwritten."""
        f, (_, vectors) = self.f, self.stencil.block
        image = f.gep(self.image, f.mul(f.mul(at, self.stencil.rows.stride), self.pitch), self.element)
        out = f.gep(self.results, f.mul(at, self.positions[1]), self.element)
        lanes, step = self.shape.lanes, self.shape.lanes * vectors
        width = self.stencil.columns.positions.value
        tail = 0 if width is None else width % step
        count = f.ceil_div(self.positions[1], step)
        if 0 < tail <= lanes // 2:
            whole = f.udiv(self.positions[1], step)
            self._call_block(lanes // 2, 1, image, factors, out, f.mul(whole, step))
            count = whole
        f.loop(
            0,
            count,
            1,
            lambda down: self._call_block(
                lanes, vectors, image, factors, out, f.mul(f.sub(f.sub(count, 1), down), step)
            ),
        )

    def _call_block(self, lanes: int, vectors: int, image: Value, factors: Value, out: Value, x: Value) -> None:
        f, stencil = self.f, self.stencil
        arguments = [("ptr", "image"), ("ptr", "factors"), ("ptr", "out"), ("i64", "pitch"), ("i64", "phase")]
        arguments += [("i64", "apart")]
        key = ("stencil", self.shape, stencil.block, stencil.rows, stencil.columns, lanes, vectors, self.out_rows)
        name = f.module.outline(key, "stencil", arguments, lambda g: self._write_block(g, lanes, vectors))
        starts = [f.gep(image, x, self.element), factors, f.gep(out, x, self.element)]
        f.call(name, [*starts, self.pitch, self.phase, self.positions[1]])

    def _write_block(self, g: FunctionText, lanes: int, vectors: int) -> None:
        image, factors, out, pitch, phase, apart = g.arguments
        element, count = self.element, self.stencil.block[0]
        rows, columns = self.stencil.rows, self.stencil.columns
        phases = [image, *(g.gep(image, g.mul(phase, number), element) for number in range(1, columns.stride))]
        lines = [phases]
        for _ in range((count - 1) * rows.stride + (rows.taps - 1) * rows.dilation):
            lines.append([g.gep(one, pitch, element) for one in lines[-1]])
        block = _Block(g, self.stencil, element, lanes, vectors, lines, factors, self.out_rows)
        # Half registers are multiplied two in a cycle: only chains that all begin together keep up with that.
        held = block.tap_by_tap() if lanes < self.shape.lanes else block.line_by_line()
        for own, accs in enumerate(held):
            for v, acc in enumerate(accs):
                g.store(acc, g.gep(g.gep(out, g.mul(apart, own), element), v * lanes, element))
        g.ret()


@frozen
class _Block:
    """A block of results in registers: the lines of the plane that it reads, by phase, and the factors."""

    g: FunctionText
    stencil: Stencil
    element: str
    lanes: int
    vectors: int
    lines: list[list[Value]]
    factors: Value
    apart: int

    @property
    def _zeros(self) -> list[list[Value]]:
        return [[self.g.const(self.element, 0, self.lanes)] * self.vectors for _ in range(self.stencil.block[0])]

    def line_by_line(self) -> list[list[Value]]:
        """Each register of a line is loaded once, for all rows of results that a tap reaches it from."""
        g, rows, held = self.g, self.stencil.rows, self._zeros
        for line in range(len(self.lines)):
            steps = [(own, line - own * rows.stride) for own in range(len(held))]
            taps = [(own, at // rows.dilation) for own, at in steps if at >= 0 and at % rows.dilation == 0]
            reached = [(own, tap) for own, tap in taps if tap < rows.taps]
            # Otherwise a factor that several lines read would wait in a register for them, and there are too many.
            factors = g.opaque(self.factors)
            for tap in range(self.stencil.columns.taps) if reached else ():
                values = self._load(line, tap)
                for own, row_tap in reached:
                    held[own] = self._add(held[own], self._factor(factors, row_tap, tap), values)
        return held

    def tap_by_tap(self) -> list[list[Value]]:
        """Each factor is loaded once, for all rows of results."""
        rows, held = self.stencil.rows, self._zeros
        for row_tap in range(rows.taps):
            for tap in range(self.stencil.columns.taps):
                factor = self._factor(self.factors, row_tap, tap)
                for own in range(len(held)):
                    values = self._load(own * rows.stride + row_tap * rows.dilation, tap)
                    held[own] = self._add(held[own], factor, values)
        return held

    def _load(self, line: int, tap: int) -> list[Value]:
        g, columns = self.g, self.stencil.columns
        at, phase = divmod(tap * columns.dilation, columns.stride)
        starts = [g.gep(self.lines[line][phase], at + v * self.lanes, self.element) for v in range(self.vectors)]
        return [g.load(start, vector(self.element, self.lanes)) for start in starts]

    def _factor(self, factors: Value, row_tap: int, tap: int) -> Value:
        g, place = self.g, (row_tap * self.stencil.columns.taps + tap) * self.apart
        return g.splat(g.load(g.gep(factors, place, self.element), self.element), self.lanes)

    def _add(self, accs: list[Value], factor: Value, values: list[Value]) -> list[Value]:
        return [multiply_add(self.g, factor, value, acc) for value, acc in zip(values, accs, strict=True)]
