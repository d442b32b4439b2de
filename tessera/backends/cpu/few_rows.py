"""Products of few rows with what is seen through windows, as in depthwise convolutions: read where it lies, not packed.

A packed element would be used once or a few times. Here a vector of places reads its elements tap by tap and multiplies
them at once; each result is the same chain of multiply-adds over k = 0, 1, 2, ... as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.backends.cpu.gemm import GemmPlan, GemmProblem, epilogue_function
from tessera.backends.cpu.micro import multiply_add
from tessera.backends.cpu.pack import Operand, pack_panel
from tessera.backends.cpu.window_vectors import DEPTH, Read, WindowVectors
from tessera.ir.target.llvm.text import FunctionText, Index, Value

_PLACES = 1024
"""Columns tabled at a time: their tables stay in the first cache while the whole batch goes by."""


def suits_few_rows(plan: GemmPlan, rows: int | None, depth: int | None, lhs: Operand, rhs: Operand) -> bool:
    """Whether accumulators of all rows fit in registers and the sum may fit the tables."""
    is_shallow = depth is None or depth <= DEPTH
    return lhs.is_memory and rhs.windows is not None and rows is not None and rows <= plan.shape.rows and is_shallow


def emit_few_rows(
    f: FunctionText, plan: GemmPlan, first: Value, last: Value, problem_at: Callable[[Value], GemmProblem]
) -> None:
    """The products `first..last` of a batch, at most `DEPTH` deep; their windows differ in where they start alone."""
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
        self.vectors = WindowVectors(f, windows, dtype, plan.shape.dtype, self.any.frame, _PLACES, lanes)
        # Packing may write a register past the end.
        self.factors = f.alloca(plan.shape.element, rows * DEPTH + lanes)
        self.finish = epilogue_function(f, plan, self.any)

    def write(self, first: Value, last: Value) -> None:
        f, p = self.f, self.any
        self.vectors.fill_columns(0, p.k)

        def some_places(j: Value) -> None:
            count = f.smin(_PLACES, f.sub(p.n_hi, j))
            self.vectors.fill_rows(j, count, self.shape.columns)
            f.loop(first, last, 1, lambda number: self._product(self.problem_at(number), j, count))

        f.loop(p.n_lo, p.n_hi, _PLACES, some_places)

    def _product(self, problem: GemmProblem, j: Value, count: Value) -> None:
        """One product's columns `j..j+count`."""
        f, shape, rows = self.f, self.shape, self.rows
        self.vectors.move(problem.frame)
        pack_panel(f, self.factors, problem.lhs, rows, shape.dtype, 0, 0, rows, problem.k, shape.lanes)

        def strip(at: Value) -> None:
            left = f.sub(count, at)

            def one(offset: Value) -> None:
                out = f.gep(self.tile, offset, shape.element)
                self.vectors.at(f.add(at, offset), lambda read: self._sums([read], problem.k, out))

            def one_by_one() -> None:
                f.loop(0, f.smin(left, shape.columns), shape.lanes, one)

            self.vectors.several(
                at,
                shape.vectors,
                f.icmp("sgt", left, shape.columns // 2),
                lambda reads: self._sums(reads, problem.k, self.tile),
                one_by_one,
            )
            column = f.add(j, at)
            args = [self.tile, f.const_i(shape.columns), f.const_i(rows), f.const_i(0), column]
            f.call(self.finish, [*args, f.sub(problem.n_hi, column), *problem.frame])

        f.loop(0, count, shape.columns, strip)

    def _sums(self, reads: Sequence[Read], k: Index, out: Value) -> None:
        """Neighbouring vectors of every row, stored where the tile has their columns."""
        f, shape, rows = self.f, self.shape, self.rows

        def step(i: Value, sums: list[Value]) -> list[Value]:
            values = [read(i) for read in reads]
            result: list[Value] = []
            for row in range(rows):
                address = f.gep(self.factors, f.add(f.mul(i, rows), row), shape.element)
                factor = f.splat(f.load(address, shape.element), shape.lanes)
                result += [multiply_add(f, factor, value, sums[len(result) + v]) for v, value in enumerate(values)]
            return result

        sums = f.loop(0, k, 1, step, [f.const(shape.element, 0, shape.lanes)] * (rows * len(reads)))
        for number, value in enumerate(sums):
            row, v = divmod(number, len(reads))
            f.store(value, f.gep(out, row * shape.columns + v * shape.lanes, shape.element))
