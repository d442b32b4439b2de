"""How the tasks of a matrix product share its rows and columns, as arithmetic in the program that launches them."""

from __future__ import annotations

from typing import NamedTuple

from tessera.backends.cpu.micro import MicroShape
from tessera.ir.target.llvm.text import FunctionText, Index, ModuleText, Value

# Below this many multiply-adds a task does not pay for waking a thread.
_SMALL = 1 << 16

# Packing an element costs about as much as so many multiply-adds.
_PACKING = 24

# Up to so many rows the right side is streamed, not packed: it is read once, and its time is that of memory.
FEW_ROWS = 8

# A thread is late by 2 to the minus so much of a task: the others are done with the rest sooner where tasks are small.
_LATE = 5


class Grid(NamedTuple):
    """Tasks of one product: `rows` strips by `columns` strips."""

    rows: Value
    columns: Value


class Block(NamedTuple):
    """The rows and columns of one task; empty where the grid is larger than the matrix."""

    m_lo: Value
    m_hi: Value
    n_lo: Value
    n_hi: Value


def choose_grid(f: FunctionText, shape: MicroShape, m: Index, n: Index, k: Index, batch: Index, threads: Index) -> Grid:
    """The grid of tasks for each of `batch` products that finishes first on `threads` threads.

    The cost of a grid is that of its largest task (whole register blocks, and the packing it does for itself), times
    the turns the threads take, and what the last of them is late by. Grids with one to four tasks for every
    thread are tried; with few rows only one, since memory gives long runs of a row faster than short ones.
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
    one = g.const_i((1 << 32) + 1)
    work = g.mul(g.mul(m, n), k)
    small = g.icmp("slt", g.mul(work, batch), 2 * _SMALL)
    busy = g.icmp("sge", batch, g.mul(threads, 4))
    g.if_(g.op("or", small, busy), lambda: g.ret(one))
    row_units = g.smax(g.ceil_div(m, shape.rows), 1)
    column_units = g.smax(g.ceil_div(n, shape.columns), 1)

    def cost(rows: Value, columns: Value) -> Value:
        height = g.mul(g.ceil_div(row_units, rows), shape.rows)
        width = g.mul(g.ceil_div(column_units, columns), shape.columns)
        each = g.add(g.mul(height, width), g.mul(g.add(height, width), _PACKING))
        turns = g.ceil_div(g.mul(batch, g.mul(rows, columns)), threads)
        task = g.add(g.mul(each, k), _SMALL)
        return g.add(g.mul(turns, task), g.op("lshr", task, g.const_i(_LATE)))

    def for_total(turn: Value, best: list[Value]) -> list[Value]:
        tasks = g.ceil_div(g.mul(threads, turn), batch)

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
    turns = g.select(g.icmp("sle", m, FEW_ROWS), g.const_i(1), g.const_i(4))
    _, grid = g.loop(1, g.add(turns, 1), 1, for_total, start)
    g.ret(grid)
