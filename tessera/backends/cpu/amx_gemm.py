"""Matmuls for one task on AMX tiles: the loops of `gemm` around a block of 2 x 2 tiles of accumulators.

Columns are outermost, then K, then rows: KC along K of NC columns of B are packed and stay in the second cache, then MC
rows of A beside them where they are not read in place, and two columns of tiles of B are multiplied by all those rows.
A tile is never narrower than sixteen lines: blocks that reach beyond the matrix are computed in scratch, and their
epilogue stores what is inside.

Integers of 8 bits add up exactly in 32 (modulo 2**32), in any order: the bits are those of multiply-adds. bf16 is added
as the instruction does it: of each 32 along K the products of even k and those of odd k are two chains of FMAs from
zero, whose sum is added to the accumulator; denormals are zeros. A block of K continues from the accumulators of the
one before, which are stored and loaded, never added: block sizes, threads and rows change no bit of those either.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from tessera.backends.cpu.amx_packing import WIDE, pack_tiles
from tessera.backends.cpu.amx_tiles import (
    ACROSS,
    TILE,
    TILE_BYTES,
    TILE_LINES,
    LhsTiles,
    TileShape,
    call_tile_kernel,
    outline_tile_kernel,
    release_tiles,
)
from tessera.backends.cpu.gemm import GemmProblem, outline_epilogue
from tessera.backends.cpu.registers import leave_when_stopped
from tessera.backends.cpu.windows import Area
from tessera.ir.target.llvm.instructions import TargetText, Value, constant_of
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen


@frozen
class TilePlan:
    """Block sizes, as in `GemmPlan`; KC is bytes. None of them changes a bit of the result."""

    shape: TileShape
    MC: int
    KC: int
    NC: int
    MB: int
    in_place: bool = True

    @staticmethod
    def of(target: TargetText, lhs: DType, rhs: DType, accumulator: DType) -> TilePlan:
        """The plan for operands on a machine."""
        shape = TileShape.for_operands(target, lhs, rhs, accumulator)
        # Of KC = 512, 1024, 2048 and 4096 the third was best for four sizes on 16 CPUs of an Emerald Rapids: tiles come
        # from the second cache at nearly the rate of the first, and accumulators are stored and loaded less often.
        return TilePlan(shape, MC=256, KC=2048, NC=512, MB=512)

    @property
    def k_block(self) -> int:
        """The most of K that is packed at a time."""
        return self.KC // self.shape.size

    @property
    def ends(self) -> list[int]:
        """Where the parts of scratch end, in bytes: a block, panels of A and B, kept accumulators, gathered lines."""
        shape = self.shape
        parts = (
            4 * shape.rows * shape.columns,
            _whole(self.MC, WIDE) * self.KC,
            _whole(self.NC, WIDE) * self.KC,
            4 * self.MB * self.NC,
            WIDE * self.KC + TILE,
        )
        return list(accumulate(parts))

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch one task needs, whatever its sizes."""
        return self.ends[-1]


def _whole(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def emit_tile_gemm(f: FunctionText, plan: TilePlan, problem: GemmProblem) -> None:
    """Write the matmul of one task into a kernel whose tiles are configured."""
    _TileGemm(f, plan, problem).emit()


class _TileGemm:
    """The loops around the block, written into one kernel."""

    def __init__(self, f: FunctionText, plan: TilePlan, problem: GemmProblem) -> None:
        self.f, self.plan, self.problem, self.shape = f, plan, problem, plan.shape
        self.block = problem.scratch
        starts = (f.gep(problem.scratch, end, "i8") for end in plan.ends[:-1])
        self.lhs_panels, self.rhs_panels, self.kept, self.gathered = starts
        self.finish = outline_epilogue(f, plan.shape, problem)
        sizes = range(1, ACROSS + 1)
        self.kernels = [[outline_tile_kernel(f.module, plan.shape, i, j) for j in sizes] for i in sizes]

    def emit(self) -> None:
        f, plan, p = self.f, self.plan, self.problem
        # An empty sum is still a result. Blocks of K are even, and whole tiles.
        k_count = f.smax(p.k, 1)
        parts = f.ceil_div(k_count, plan.k_block)
        step = f.round_up(f.ceil_div(k_count, parts), self.shape.k_count)
        one_block = f.icmp("sle", k_count, plan.k_block)

        def columns(j: Value) -> None:
            nc = f.smin(plan.NC, f.sub(p.n_hi, j))
            whole = f.icmp("eq", f.urem(nc, self.shape.columns), 0)
            in_result = whole if p.result is not None else f.const("i1", False)
            # Where accumulators are not kept in scratch, but for a last few rows, B is packed once for all rows.
            packs_once = f.op("or", one_block, in_result)
            rows = f.select(packs_once, f.smax(f.sub(p.m_hi, p.m_lo), 1), f.const_i(plan.MB))

            def row_block(i: Value) -> None:
                end = f.smin(f.add(i, rows), p.m_hi)
                f.loop(0, k_count, step, lambda k: self._k_block(i, end, j, nc, k, step, one_block))

            f.loop(p.m_lo, p.m_hi, rows, row_block)

        f.loop(p.n_lo, p.n_hi, plan.NC, columns)

    def _k_block(self, i: Value, end: Value, j: Value, nc: Value, k: Value, step: Value, one_block: Value) -> None:
        """One block of K: pack B, then every block of rows."""
        f, plan, p = self.f, self.plan, self.problem
        kc = f.smin(step, f.sub(p.k, k))
        tiles = f.ceil_div(kc, self.shape.k_count)
        is_last = f.icmp("sge", f.add(k, step), p.k)
        self._pack(self.rhs_panels, Area(j, nc, k, kc), is_rhs=True)

        def rows(ic: Value) -> None:
            leave_when_stopped(f, f.add(f.add(k, f.sub(ic, p.m_lo)), f.sub(j, p.n_lo)), self._leave)
            mc = f.smin(plan.MC, f.sub(end, ic))
            packed = self._first_packed(mc, kc)
            f.if_(f.icmp("slt", packed, mc), lambda: self._pack_rows(Area(ic, mc, k, kc), packed))

            def panel(jr: Value) -> None:
                kernels = self._kernels_for(f.sub(nc, jr))
                rhs = f.gep(self.rhs_panels, f.mul(f.mul(jr, tiles), TILE_BYTES), "i8")

                def block(at: Value) -> None:
                    height = f.smin(self.shape.rows, f.sub(mc, at))
                    lhs = self._lhs_tiles(f.add(ic, at), k, f.sub(at, packed), tiles)
                    kept = f.add(f.mul(f.urem(f.add(f.sub(ic, i), at), plan.MB), plan.NC), jr)
                    row, column = f.add(ic, at), f.add(j, jr)
                    out, stride, is_result = self._output_at(row, column, height, kept, one_block)
                    kernel = f.select(f.icmp("sgt", height, TILE_LINES), kernels[1], kernels[0])
                    call_tile_kernel(f, kernel, lhs, rhs, tiles, out, f.mul(stride, 4), f.icmp("ne", k, 0))
                    self._finish(is_last, is_result, [out, stride, height, row, column, f.sub(p.n_hi, column)])

                f.loop(0, mc, self.shape.rows, block)

            f.loop(0, nc, self.shape.columns, panel)

        f.loop(i, end, plan.MC, rows)

    def _first_packed(self, rows: Value, k_count: Value) -> Value:
        """The first of some rows that are packed: those before it are whole tiles in memory, and are read there."""
        f, along = self.f, self.problem.lhs.column_stride
        if not self.plan.in_place or constant_of(along) not in (1, None):
            return f.const_i(0)
        whole = f.op("and", f.icmp("eq", along, 1), f.icmp("eq", f.urem(k_count, self.shape.k_count), 0))
        return f.select(whole, f.round_down(rows, self.shape.rows), f.const_i(0))

    def _pack_rows(self, area: Area, first: Value) -> None:
        """Pack the rows of A from the first that is."""
        row, rows = self.f.add(area.row, first), self.f.sub(area.rows, first)
        self._pack(self.lhs_panels, replace(area, row=row, rows=rows), is_rhs=False)

    def _lhs_tiles(self, row: Value, k: Value, packed: Value, tiles: Value) -> LhsTiles:
        """The tiles of A from a row on: number `packed` of those that are, or in place where that is negative."""
        f, lhs, size = self.f, self.problem.lhs, self.shape.size
        assert lhs.base is not None, "tiles are made of memory"
        own = f.gep(self.lhs_panels, f.mul(f.mul(packed, tiles), TILE_BYTES), "i8")
        if not self.plan.in_place or constant_of(lhs.column_stride) not in (1, None):
            return LhsTiles(own, f.const_i(TILE_BYTES), f.const_i(TILE), f.mul(tiles, TILE))
        is_packed = f.icmp("sge", packed, 0)
        stride = f.mul(lhs.row_stride, size)
        there = f.gep(lhs.base, f.add(f.mul(row, stride), f.mul(k, size)), "i8")
        return LhsTiles(
            f.select(is_packed, own, there),
            f.select(is_packed, f.const_i(TILE_BYTES), stride),
            f.select(is_packed, f.const_i(TILE), f.const_i(TILE_BYTES)),
            f.select(is_packed, f.mul(tiles, TILE), f.mul(stride, TILE_LINES)),
        )

    def _pack(self, to: Value, area: Area, *, is_rhs: bool) -> None:
        source = self.problem.rhs.transposed if is_rhs else self.problem.lhs
        pack_tiles(self.f, self.shape, to, source, area, self.gathered, is_rhs)

    def _leave(self) -> None:
        release_tiles(self.f)
        self.f.ret()

    def _kernels_for(self, left: Value) -> list[Value]:
        """For one and two tiles of rows the kernel of as many columns as are left."""
        is_wide = self.f.icmp("sgt", left, TILE_LINES)
        return [self.f.select(is_wide, two, one) for one, two in self.kernels]

    def _output_at(
        self, row: Value, column: Value, height: Value, kept: Value, one_block: Value
    ) -> tuple[Value, Value, Value]:
        """Where a block goes, how many elements its rows are apart, and whether that is the result itself."""
        f, p, element = self.f, self.problem, self.shape.element
        scratch = f.select(one_block, self.block, f.gep(self.kept, kept, element))
        stride = f.select(one_block, f.const_i(self.shape.columns), f.const_i(self.plan.NC))
        if p.result is None:
            return scratch, stride, f.const("i1", False)
        is_high = f.icmp("eq", height, self.shape.rows)
        is_inside = f.op("and", is_high, f.icmp("sle", f.add(column, self.shape.columns), p.n_hi))
        own = f.gep(p.result.base, f.add(f.mul(row, p.result.row_stride), column), element)
        return f.select(is_inside, own, scratch), f.select(is_inside, f.index(p.result.row_stride), stride), is_inside

    def _finish(self, is_last: Value, is_result: Value, block: list[Value]) -> None:
        """Call the epilogue on a finished block, unless it does nothing but store what is stored already."""
        f, p = self.f, self.problem
        if p.result is not None and p.result.is_plain:
            is_last = f.select(is_result, f.const("i1", False), is_last)
        f.if_(is_last, lambda: self._call_epilogue(block))

    def _call_epilogue(self, block: list[Value]) -> None:
        self.f.call(self.finish, [*block, *self.problem.frame])
