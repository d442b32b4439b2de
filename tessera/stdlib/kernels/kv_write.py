"""Rows of a cache with new ones in their midst: each block of rows keeps what lies before and behind the new."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place, TileBuilder
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum

_COLUMNS = 128
"""Columns of a tile where a row is longer, or free."""
_ELEMENTS = 512
"""Elements of a block: larger ones are no faster, and code is written for every vector of one."""
_THREAD_ELEMENTS = 8192
"""The same where threads of a GPU have several pieces of memory on their way at a time."""


def _write(call: Call) -> list[SpecOp]:
    """Programs over batch, heads, blocks of rows and of columns; no row has two writers."""
    (_, _, new), (out,) = call.operands, call.results
    batch, heads, capacity, width = out.shape
    columns = width.value if width.value and width.value <= 2 * _COLUMNS else _COLUMNS
    if not call.machine.is_gpu:
        columns = -(-columns // call.lanes) * call.lanes  # whole registers, the last one masked: not element by element
    rows = max(1, (_THREAD_ELEMENTS if call.machine.is_gpu else _ELEMENTS) // columns)
    if call.attributes["in_place"]:
        return [_put(call, rows, columns)]
    b = call.builder([batch, heads, capacity.ceildiv(rows), width.ceildiv(columns)])
    coords = _coords(call, b, rows, columns)
    first, start = Dim.symbol("_first"), Dim.symbol("_start")
    last, end = minimum(capacity, first + rows), start + new.shape[2]
    is_whole = width.value is not None and width.value % columns == 0

    def move(source: int, low: Dim, high: Dim, offset: Dim) -> None:
        """Rows from `low` to `high` of the block, of what holds them `offset` rows earlier."""
        at = [Dim.symbol("_b"), Dim.symbol("_h"), Dim.symbol("_r"), Dim.symbol("_d")]
        there = [*at[:2], Dim.symbol("_r") - offset, at[3]]
        bounds = {"_r": maximum(0, minimum(last, high)), **({} if is_whole else {"_d": width})}
        row = b.index(maximum(first, low), coords)
        place = Place({**coords, "_r": row}, ("_r", "_d"), (rows, columns), bounds)
        b.store(b.load(call.input(b, source), call.at(source, there), place), call.output(b, 0), at, place)

    move(0, first, start, Dim.constant(0))
    move(2, start, end, start)
    move(0, end, capacity, Dim.constant(0))
    return [b.finish()]


def _coords(call: Call, b: TileBuilder, rows: int, columns: int) -> dict[str, SSAValue]:
    """Where the block of a program begins: its batch, head, first row and column, and where new rows start."""
    coords: dict[str, SSAValue] = {"_b": b.program_id(0), "_h": b.program_id(1)}
    coords["_first"] = b.index(Dim.symbol("_p") * rows, {"_p": b.program_id(2)})
    coords["_d"] = b.index(Dim.symbol("_q") * columns, {"_q": b.program_id(3)})
    coords["_start"] = b.fetch(call.input(b, 1), call.at(1, ()), {})
    return coords


def _put(call: Call, rows: int, columns: int) -> SpecOp:
    """The new rows alone, where the result lies in the memory of the old ones: programs over blocks of them."""
    (_, _, new), (out,) = call.operands, call.results
    batch, heads, capacity, width = out.shape
    count = new.shape[2]
    if count.value is not None:
        rows = min(rows, 1 << (max(1, count.value) - 1).bit_length())
    b = call.builder([batch, heads, count.ceildiv(rows), width.ceildiv(columns)])
    coords = _coords(call, b, rows, columns)
    first, start = Dim.symbol("_first"), Dim.symbol("_start")
    # Rows of the cache: a length below 0 leaves the first new ones out, one near the end the last.
    low, high = maximum(0, start + first), minimum(capacity, minimum(start + count, start + first + rows))
    is_whole = width.value is not None and width.value % columns == 0
    at = [Dim.symbol("_b"), Dim.symbol("_h"), Dim.symbol("_r"), Dim.symbol("_d")]
    there = [*at[:2], Dim.symbol("_r") - start, at[3]]
    bounds = {"_r": maximum(0, high), **({} if is_whole else {"_d": width})}
    place = Place({**coords, "_r": b.index(low, coords)}, ("_r", "_d"), (rows, columns), bounds)
    b.store(b.load(call.input(b, 2), call.at(2, there), place), call.output(b, 0), at, place)
    return b.finish()


KERNEL = LibraryKernel("kv_write", "Rows of a cache with new ones from a place on.", _write)
