"""Writing rows by index: a copy, unless it is in place, then one index after the other: equal ones have one answer."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place, TileBuilder
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum

# Rows of a cache with new ones in their midst: each block of rows keeps what lies before and behind the new.

_COLUMNS = 128
"""Columns of a tile where a row is longer, or free."""
_ELEMENTS = 512
"""Elements of a block: larger ones are no faster, and code is written for every vector of one."""
_THREAD_ELEMENTS = 8192
"""The same where threads of a GPU have several pieces of memory on their way at a time."""


def _write_cache(call: Call) -> list[SpecOp]:
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


KV_WRITE = LibraryKernel("kv_write", "Rows of a cache with new ones from a place on.", _write_cache)


# Writing rows by index: a copy, unless it is in place, then one index after the other: equal ones have one answer.

_BLOCK = 4096
"""Elements that one program copies."""


def _copy(call: Call) -> SpecOp:
    """The operand into the result, as one long line."""
    size = call.operands[0].size
    width = 4 * call.lanes
    result = call.outputs[0]
    assert result is not None
    b = call.builder([size.ceildiv(_BLOCK)], "copy", {call.inputs[0]: (size,), result: (size,)})
    start = Dim.symbol("_p") * _BLOCK
    program = {"_p": b.program_id(0)}

    def move(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = Place({"_i": i}, ("_i",), (width,), {"_i": size})
        at = [Dim.symbol("_i")]
        b.store(b.load(call.input(b, 0), at, place), call.output(b, 0), at, place)
        return carried

    b.loop(b.index(start, program), b.index(minimum(size, start + _BLOCK), program), width, move)
    return b.finish()


def _write_scatter(call: Call) -> list[SpecOp]:
    """`out[o, indices[n], j]` for all n in order: programs over o and blocks of j, which no other program writes."""
    x, indices, _ = call.operands
    outer, _, inner = x.shape
    is_vector = inner.value != 1
    width = call.choose("scatter.tile", [times * call.lanes for times in (4, 2, 1, 8)]) if is_vector else 1
    b = call.builder([outer, inner.ceildiv(width)] if is_vector else [outer])
    coords = {"_o": b.program_id(0)}
    if is_vector:
        coords["_j"] = b.index(Dim.symbol("_p") * width, {"_p": b.program_id(1)})
    bounds = {} if inner.value is not None and inner.value % width == 0 else {"_j": inner}
    narrow = call.narrow_accumulator
    outer_at, column = Dim.symbol("_o"), Dim.symbol("_j") if is_vector else Dim.constant(0)

    def put(n: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        number, row = Dim.symbol("_n"), Dim.symbol("_r")
        here = {**coords, "_n": n, "_r": b.fetch(call.input(b, 1), [number], {"_n": n})}
        place = Place(here, ("_j",), (width,), bounds) if is_vector else Place(here)
        update = b.load(call.input(b, 2), [outer_at, number, column], place)
        if call.attributes["mode"] == "add":
            update = b.elementwise("add", b.load(call.output(b, 0), [outer_at, row, column], place), update)
            update = update if narrow is None else b.round(update, format=narrow)
        b.store(update, call.output(b, 0), [outer_at, row, column], place, checked=call.attributes["checked"])
        return carried

    b.loop(b.index(0), b.index(indices.shape[0]), 1, put)
    writer = b.finish()
    return [writer] if call.attributes["in_place"] else [_copy(call), writer]


SCATTER = LibraryKernel("scatter", "Rows replaced or added to by index, in the order of the indices.", _write_scatter)
