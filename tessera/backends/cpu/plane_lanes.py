"""Depthwise convolutions of small planes: as many planes together as a register has lanes, one in each.

A row of a small plane ends within a register, and every tap is a load that lies across two lines of the cache. With
planes across the lanes every load is whole and aligned, and any width is as good as another; the price is that images,
factors and results are transposed, a square of a register's lanes at a time. Elements of the result that lie beside
each other stay in registers over all taps, and an element of the plane that is loaded is multiplied for all of them.
Every result is the chain of multiply-adds over the taps in order, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tessera.backends.cpu.gemm import GemmPlan, GemmProblem, outline_epilogue
from tessera.backends.cpu.micro_kernel import multiply_add
from tessera.backends.cpu.registers import can_transpose, leave_when_stopped, transpose
from tessera.backends.cpu.stencil import CAPACITY, Axis, PlaneSource, Stencil
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import Value, bytes_of, vector
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

_CHAINS = 6
"""Results beside each other from which on their chains of multiply-adds hide the latency of one."""
_WIDEST = 128
"""Elements of a row, with its zeros, up to which planes go across lanes, as measured on a Zen 5 with 9 to 49 taps."""
_CHUNK = 512
"""Results of a plane that are transposed together, before they leave the caches."""


@frozen
class _Line:
    """An axis of known sizes: how far a window goes, what is read of the plane, and where zeros are."""

    stride: int
    dilation: int
    low: int
    extent: int
    taps: int
    positions: int

    @staticmethod
    def of(axis: Axis) -> _Line | None:
        """None where a size is not known, or the window begins within the plane."""
        sizes = [axis.low.value, axis.extent.value, axis.positions.value]
        known = [size for size in sizes if size is not None and size >= 0]
        if len(known) < len(sizes) or not axis.taps or not known[1] or not known[2]:
            return None
        return _Line(axis.stride, axis.dilation, known[0], known[1], axis.taps, known[2])

    def reach(self, positions: int) -> int:
        """Elements that so many neighbouring windows cover."""
        return (positions - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@frozen
class PlaneLanes:
    """How planes are computed: lines of both axes, columns of a block, rows of a band, and rows transposed together."""

    rows: _Line
    columns: _Line
    block: int
    band: int
    chunk: int
    lanes: int

    @property
    def pitch(self) -> int:
        """Elements of a row of the plane with the zeros around it."""
        return self.columns.reach(self.columns.positions)

    @property
    def apart(self) -> int:
        """Elements from the results of one plane to those of the next, in whole registers."""
        return (self.chunk * self.columns.positions // self.lanes + 2) * self.lanes


def plan_lanes(stencil: Stencil, plan: GemmPlan, registers: int) -> PlaneLanes | None:
    """How a stencil is computed with planes across lanes; None where that is not possible, or not better."""
    rows, columns, lanes = _Line.of(stencil.rows), _Line.of(stencil.columns), plan.shape.lanes
    if rows is None or columns is None or not can_transpose(lanes, bytes_of(plan.shape.element)) or lanes < 4:
        return None
    most = min(registers // 2, registers - columns.taps - 2)
    pitch = columns.reach(columns.positions)
    if columns.positions < _CHAINS or most < _CHAINS or pitch > _WIDEST:
        return None
    blocks = -(-columns.positions // most)
    held = CAPACITY // (lanes * pitch)
    band = min(rows.positions, (held - (rows.taps - 1) * rows.dilation - 1) // rows.stride + 1)
    chunk = max(1, min(band, _CHUNK // columns.positions))
    # Rows that two bands read are transposed twice.
    is_worth = band >= min(rows.positions, 2 * rows.taps * rows.dilation)
    made = PlaneLanes(rows, columns, -(-columns.positions // blocks), band, chunk, lanes)
    fits = 2 * lanes * made.apart + lanes * (stencil.taps + lanes) <= CAPACITY
    return made if is_worth and fits else None


def emit_plane_lanes(
    f: FunctionText,
    plan: GemmPlan,
    first: Value,
    last: Value,
    problem_at: Callable[[Value], GemmProblem],
    source: PlaneSource,
) -> Value:
    """The matmuls of a batch from `first` on, in whole registers of planes; returns the first that is left."""
    problem, stencil = problem_at(f.const_i(0)), source.stencil
    own = plan_lanes(stencil, plan, f.target.registers)
    if own is None or problem.rows != 1 or not problem.lhs.is_runs:
        return first
    end = f.add(first, f.round_down(f.sub(last, first), own.lanes))
    _Planes(f, plan, own, problem_at, source).write(first, end)
    return end


class _Planes:
    """The loops of one task, written into its kernel."""

    def __init__(
        self,
        f: FunctionText,
        plan: GemmPlan,
        own: PlaneLanes,
        problem_at: Callable[[Value], GemmProblem],
        source: PlaneSource,
    ) -> None:
        self.f, self.shape, self.own, self.problem_at, self.source = f, plan.shape, own, problem_at, source
        self.element, self.lanes = plan.shape.element, own.lanes
        self.any = problem_at(f.const_i(0))
        self.finish = outline_epilogue(f, plan.shape, self.any)
        self.image = self.any.scratch
        self.results = f.gep(self.image, CAPACITY, self.element)
        self.in_lanes = f.gep(self.results, own.apart * own.lanes, self.element)
        self.factors = f.gep(self.in_lanes, own.apart * own.lanes, self.element)
        self.planes, self.weights = f.alloca("ptr", own.lanes), f.alloca("ptr", own.lanes)

    def write(self, first: Value, last: Value) -> None:
        """All planes from `first` up to `last`."""
        f, own = self.f, self.own
        lines = own.rows.reach(own.band)
        zero = f.const(self.element, 0, self.lanes)

        def clear() -> None:
            f.loop(0, lines * own.pitch, 1, lambda at: f.store(zero, self._at(self.image, at)))

        # Zeros beside the rows of a plane are written once; those before and after it with its rows.
        f.if_(f.icmp("slt", first, last), clear)
        f.loop(first, last, self.lanes, self._several)

    def _several(self, number: Value) -> None:
        """The planes in one register."""
        f, own = self.f, self.own
        leave_when_stopped(f, number)

        def find(lane: Value) -> None:
            problem = self.problem_at(f.add(number, lane))
            start, _ = self.source.start(f, problem.frame)
            factors = problem.lhs.base
            assert factors is not None, "the caller has looked"
            f.store(start, f.gep(self.planes, lane, "ptr"))
            f.store(factors, f.gep(self.weights, lane, "ptr"))

        f.loop(0, self.lanes, 1, find)
        taps = own.rows.taps * own.columns.taps
        self._transpose(self.factors, self.weights, f.const_i(0), self.any.lhs.dtype, taps)
        f.loop(0, own.rows.positions, own.band, lambda y: self._band(number, y))

    def _at(self, base: Value, at: Value | int) -> Value:
        """The register number `at` from a base."""
        return self.f.gep(base, self.f.mul(at, self.lanes), self.element)

    def _transpose(self, to: Value, table: Value, offset: Value, dtype: DType, count: int) -> None:
        """`count` elements from an offset on of each lane's memory, as a register each."""
        arguments = [("ptr", "to"), ("ptr", "table"), ("i64", "offset")]
        key = ("lanes", dtype, self.shape, count)
        write = partial(_write_transpose, lanes=self.lanes, dtype=dtype, to=self.shape.dtype, count=count)
        f = self.f
        f.call(f.module.outline(key, "across_lanes", arguments, write, shared=True), [to, table, offset])

    def _band(self, number: Value, y: Value) -> None:
        """Rows of results from `y` on, up to a band of them: first what of the planes they read."""
        f, own = self.f, self.own
        rows, columns = own.rows, own.columns
        count = f.smin(own.band, f.sub(rows.positions, y))
        top = f.sub(f.mul(y, rows.stride), rows.low)
        read = min(columns.extent, own.pitch - columns.low)
        zero = f.const(self.element, 0, self.lanes)

        def line(i: Value) -> None:
            start = self._at(self.image, f.add(f.mul(i, own.pitch), columns.low))
            at = f.add(top, i)

            def fill() -> None:
                offset = f.mul(at, columns.extent)
                self._transpose(start, self.planes, offset, self.source.dtype, read)

            def clear() -> None:
                f.loop(0, read, 1, lambda x: f.store(zero, self._at(start, x)))

            f.if_(f.icmp("ult", at, rows.extent), fill, clear)

        if read > 0:
            lines = f.add(f.mul(f.sub(count, 1), rows.stride), rows.reach(1))
            f.loop(0, lines, 1, line)
        f.loop(0, count, own.chunk, lambda at: self._chunk(number, y, at, f.smin(own.chunk, f.sub(count, at))))

    def _chunk(self, number: Value, y: Value, at: Value, count: Value) -> None:
        """Some rows of a band: computed, transposed back, and finished plane by plane."""
        f, own = self.f, self.own
        columns, width = own.columns, own.columns.positions
        blocks = -(-width // own.block)

        def row(i: Value) -> None:
            line = self._at(self.image, f.mul(f.add(at, i), own.rows.stride * own.pitch))
            out = self._at(self.in_lanes, f.mul(i, width))

            def block(number: Value) -> None:
                x = f.smin(f.mul(number, own.block), width - own.block)
                self._call_block(self._at(line, f.mul(x, columns.stride)), self._at(out, x))

            f.loop(0, blocks, 1, block)

        f.loop(0, count, 1, row)
        positions = f.mul(count, width)
        self._transpose_back(positions)
        column = f.mul(f.add(y, at), width)

        def plane(lane: Value) -> None:
            problem = self.problem_at(f.add(number, lane))
            results = f.gep(self.results, f.mul(lane, own.apart), self.element)

            def strip(start: Value) -> None:
                tile, left = f.gep(results, start, self.element), f.sub(positions, start)
                args = [tile, f.const_i(self.shape.columns), f.const_i(1), f.const_i(0), f.add(column, start), left]
                f.call(self.finish, [*args, *problem.frame])

            f.loop(0, positions, self.shape.columns, strip)

        f.loop(0, self.lanes, 1, plane)

    def _transpose_back(self, positions: Value) -> None:
        """Results of each plane beside each other; what is beyond the last of them is not read."""
        f, lanes, type_ = self.f, self.lanes, vector(self.element, self.lanes)

        def square(at: Value) -> None:
            values = [f.load(self._at(self.in_lanes, f.add(at, number)), type_) for number in range(lanes)]
            for lane, value in enumerate(transpose(f, values)):
                f.store(value, f.gep(self.results, f.add(at, lane * self.own.apart), self.element))

        f.loop(0, positions, lanes, square)

    def _call_block(self, image: Value, out: Value) -> None:
        arguments = [("ptr", "image"), ("ptr", "factors"), ("ptr", "out")]
        key = ("plane lanes", self.shape, self.own)
        name = self.f.module.outline(key, "plane_lanes", arguments, self._write_block)
        self.f.call(name, [image, self.factors, out])

    def _write_block(self, g: FunctionText) -> None:
        """Neighbouring results of a row: for each row of taps, elements from the first that one of them reads on."""
        image, factors, out = g.arguments
        own, type_ = self.own, vector(self.element, self.lanes)
        columns = own.columns

        def register(base: Value, at: int) -> Value:
            return g.load(g.gep(base, at * self.lanes, self.element), type_)

        def taps(_: Value, values: list[Value]) -> list[Value]:
            line, weights, *accs = values
            read: dict[int, Value] = {}
            for tap in range(columns.taps):
                held = register(weights, tap)
                for at in range(own.block):
                    x = at * columns.stride + tap * columns.dilation
                    read[x] = read.get(x) or register(line, x)
                    accs[at] = multiply_add(g, held, read[x], accs[at])
            below = g.gep(line, own.rows.dilation * own.pitch * self.lanes, self.element)
            return [below, g.gep(weights, columns.taps * self.lanes, self.element), *accs]

        zeros = [g.const(self.element, 0, self.lanes)] * own.block
        _, _, *accs = g.loop(0, own.rows.taps, 1, taps, [image, factors, *zeros])
        for number, acc in enumerate(accs):
            g.store(acc, g.gep(out, number * self.lanes, self.element))
        g.ret()


def _write_transpose(g: FunctionText, lanes: int, dtype: DType, to: DType, count: int) -> None:
    """Squares of a register's lanes, and of half a register where no more is left; as many registers as elements."""
    out, table, offset = g.arguments
    element, stored = convert.compute_type(to), convert.storage_type(dtype)
    starts = [g.gep(g.load(g.gep(table, lane, "ptr"), "ptr"), offset, stored) for lane in range(lanes)]

    def square(at: Value, size: int, left: int) -> None:
        for first in range(0, lanes, size):
            values: list[Value] = []
            for start in starts[first : first + size]:
                place = g.gep(start, at, stored)
                whole = left >= size
                value = (
                    convert.load(g, place, dtype, size)
                    if whole
                    else convert.load_some(g, place, dtype, size, g.const_i(left))
                )
                values.append(convert.cast(g, value, dtype, to))
            for number, column in enumerate(transpose(g, values)[:left]):
                g.store(column, g.gep(out, g.add(g.mul(g.add(at, number), lanes), first), element))

    whole = count - count % lanes
    g.loop(0, whole, lanes, lambda at: square(at, lanes, lanes))
    left = count - whole
    if left:
        square(g.const_i(whole), lanes // 2 if left <= lanes // 2 else lanes, left)
    g.ret()
