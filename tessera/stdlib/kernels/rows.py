"""Kernels that write rows by index: scatters, and rows written into a cache.

Results must not depend on how work is divided, so what has an order runs in one program: a scatter has programs over
the dims before the axis and over blocks of the columns after it, and each loops over the indices. Integers
that a scatter adds up on a GPU have no order, and programs over blocks of its indices too. A cache has programs over
blocks of its rows, and no row has two writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tessera.ir.base.block_ops import STORE_MODES
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.ir.tile.ops.access import ATOMIC
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.stdlib.kernels.compact import OwnedScatter, has_few_columns
from tessera.types.dim import Dim, maximum, minimum, next_power_of_two, product
from tessera.types.dtype import DType


def column_programs(
    call: Call,
    knob: str,
    outer: Dim,
    inner: Dim,
    shapes: Mapping[int, Sequence[Dim]] | None = None,
    parts: Sequence[Dim] = (),
) -> tuple[TileBuilder, TileRegion, Dim]:
    """A kernel with programs over `outer` and blocks of `inner`: its builder, a program's columns, and their index.

    Last in its grid are `parts` that programs share the rest of the work in.
    """
    is_vector = inner.value != 1
    width = call.choose(knob, [times * call.lanes for times in (4, 2, 1, 8)]) if is_vector else 1
    b = call.builder([outer, *([inner.ceildiv(width)] if is_vector else []), *parts], shapes=shapes)
    coords = {"_o": b.program_id(0)}
    if not is_vector:
        return b, TileRegion(coords), Dim.constant(0)
    coords["_j"] = b.index(Dim.symbol("_p") * width, {"_p": b.program_id(1)})
    bounds = {} if inner.value is not None and inner.value % width == 0 else {"_j": inner}
    return b, TileRegion(coords, ("_j",), (width,), bounds), Dim.symbol("_j")


# Rows of a cache with new ones among them: a block of rows keeps those before and after the new ones.

_COLUMNS = 128
"""Columns of a tile where a row is longer, or dynamic."""
_ELEMENTS = 512
"""Elements of a block: larger ones are no faster, and code is unrolled for every vector of one."""
_THREAD_ELEMENTS = 8192
"""The same on a GPU, whose threads have several loads in flight."""


def _write_cache(call: Call) -> list[SpecOp]:
    """Programs over batch, heads, blocks of rows and of columns."""
    (_, _, new), (out,) = call.operands, call.results
    batch, heads, capacity, width = out.shape
    columns = width.value if width.value and width.value <= 2 * _COLUMNS else _COLUMNS
    if not call.machine.is_gpu:
        columns = -(-columns // call.lanes) * call.lanes  # whole registers, the last one masked: not element by element
    rows = max(1, (_THREAD_ELEMENTS if call.machine.is_gpu else _ELEMENTS) // columns)
    count, first, start = new.shape[2], Dim.symbol("_first"), Dim.symbol("_start")
    is_in_place = bool(call.attributes["in_place"])
    if is_in_place and count.value is not None:
        rows = min(rows, next_power_of_two(count.value))
    written = count if is_in_place else capacity
    b = call.builder([batch, heads, written.ceildiv(rows), width.ceildiv(columns)])
    coords = {"_b": b.program_id(0), "_h": b.program_id(1)}
    coords["_first"] = b.index(Dim.symbol("_p") * rows, {"_p": b.program_id(2)})
    coords["_d"] = b.index(Dim.symbol("_q") * columns, {"_q": b.program_id(3)})
    coords["_start"] = b.fetch(call.input(b, 1), call.at(1, ()), {})

    def move(source: int, low: Dim, high: Dim, offset: Dim) -> None:
        """Rows from `low` to `high`, from an operand that has them `offset` rows earlier."""
        at = [Dim.symbol("_b"), Dim.symbol("_h"), Dim.symbol("_r"), Dim.symbol("_d")]
        there = [*at[:2], Dim.symbol("_r") - offset, at[3]]
        is_whole = width.value is not None and width.value % columns == 0
        bounds = {"_r": maximum(0, high), **({} if is_whole else {"_d": width})}
        region = TileRegion({**coords, "_r": b.index(low, coords)}, ("_r", "_d"), (rows, columns), bounds)
        b.store(b.load(call.input(b, source), call.at(source, there), region), call.output(b, 0), at, region)

    if is_in_place:
        # New rows alone: a length below 0 leaves the first of them out, one near the end the last.
        end = minimum(capacity, minimum(start + count, start + first + rows))
        move(2, maximum(0, start + first), end, start)
    else:
        last, end = minimum(capacity, first + rows), start + count
        move(0, first, minimum(last, start), Dim.constant(0))
        move(2, maximum(first, start), minimum(last, end), start)
        move(0, maximum(first, end), minimum(last, capacity), Dim.constant(0))
    return [b.finish()]


KV_WRITE = LibraryKernel("kv_write", "Rows of a cache with new ones from an index on.", _write_cache)


# Scatter: a copy, unless it is in place, then one index after the other, so that equal ones have one answer; integers
# that a GPU adds up, or takes the largest of, have one in any order.

_BLOCK = 4096
"""Elements that one program copies."""


def _copy(call: Call) -> SpecOp:
    """The operand into the result, as one long row."""
    size = call.operands[0].size
    # Threads of a GPU have all of a block in flight; on a CPU code is unrolled for every vector of a tile.
    width = _BLOCK if call.machine.is_gpu else 4 * call.lanes
    result = call.outputs[0]
    assert result is not None
    b = call.builder([size.ceildiv(_BLOCK)], "copy", {call.inputs[0]: (size,), result: (size,)}, warps=8)
    start = Dim.symbol("_p") * _BLOCK
    program = {"_p": b.program_id(0)}

    def move(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"_i": i}, ("_i",), (width,), {"_i": size})
        at = [Dim.symbol("_i")]
        b.store(b.load(call.input(b, 0), at, region), call.output(b, 0), at, region)
        return carried

    b.loop(b.index(start, program), b.index(minimum(size, start + _BLOCK), program), width, move)
    return b.finish()


def _write_slice(call: Call) -> list[SpecOp]:
    """Programs over what is contiguous in `x`: the last axis that is cut, and all behind it."""
    x, update = call.operands[:2]
    axes: Sequence[int] = call.attributes["axes"]
    last = axes[-1]
    behind = product(x.shape[last + 1 :])
    lead, length = update.shape[:last], update.shape[last] * behind
    own = (*x.shape[:last], x.shape[last] * behind)
    result = call.outputs[0]
    assert result is not None
    width = _BLOCK if call.machine.is_gpu else 4 * call.lanes
    shapes = {call.inputs[0]: own, call.inputs[1]: (*lead, length), result: own}
    b = call.builder([product(lead), length.ceildiv(_BLOCK)], shapes=shapes)
    coords = {"_o": b.program_id(0), "_p": b.program_id(1)}
    coords |= {f"_s{axis}": b.fetch(call.input(b, 2 + at), (), {}) for at, axis in enumerate(axes)}
    row: list[Dim] = []
    for axis, dim in enumerate(lead):
        number = Dim.symbol("_o") // product(lead[axis + 1 :])
        row.append(number % dim if axis else number)
    there = [index + (Dim.symbol(f"_s{axis}") if axis in axes else 0) for axis, index in enumerate(row)]
    start = Dim.symbol("_p") * _BLOCK

    def move(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({**coords, "_i": i}, ("_i",), (width,), {"_i": length})
        at = Dim.symbol("_i")
        moved = b.load(call.input(b, 1), [*row, at], region)
        b.store(moved, call.output(b, 0), [*there, at + Dim.symbol(f"_s{last}") * behind], region)
        return carried

    b.loop(b.index(start, coords), b.index(minimum(length, start + _BLOCK), coords), width, move)
    writer = b.finish()
    return [writer] if call.attributes["in_place"] else [_copy(call), writer]


SLICE_WRITE = LibraryKernel("slice_write", "A slice at computed starts replaced.", _write_slice)

_INDICES = 4
"""Indices of a program where any order of them gives the same: as many loads are in flight."""


def _has_no_order(call: Call, dtype: DType, mode: str) -> bool:
    """Whether programs of a GPU may combine updates as they come: integers, by what its memory can do."""
    if not call.machine.is_gpu or call.attributes["checked"] is not None or call.narrow_accumulator is not None:
        return False
    return dtype.is_integer and dtype.name in ATOMIC and f"atomic_{mode}" in STORE_MODES


def _write_scatter(call: Call) -> list[SpecOp]:
    """`out[o, indices[n], j]` for all n in order; one that is to be dropped is the size of its axis."""
    x, updates, *indices = call.operands
    outer, *extents, inner = x.shape
    narrow, mode, count = call.narrow_accumulator, str(call.attributes["mode"]), updates.shape[1]
    is_shared = _has_no_order(call, x.dtype, mode)
    if call.machine.is_gpu and not is_shared and call.attributes["checked"] is None:
        owned = OwnedScatter(call).write()
        return [owned] if call.attributes["in_place"] else [_copy(call), owned]
    parts = [count.ceildiv(_INDICES)] if is_shared else []
    is_flat = is_shared and has_few_columns(outer, inner)
    number_of_rows, columns_of_row = (Dim.constant(1), outer * inner) if is_flat else (outer, inner)
    b, columns, column = column_programs(call, "scatter.tile", number_of_rows, columns_of_row, parts=parts)
    outer_at, number = Dim.symbol("_o"), Dim.symbol("_n")
    if is_flat:
        outer_at, column = column // inner, column % inner
    rows = [Dim.symbol(f"_r{axis}") for axis in range(len(indices))]
    at = [outer_at, *rows, column]

    def put(n: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        fetched = {f"_r{axis}": b.fetch(call.input(b, 2 + axis), [number], {"_n": n}) for axis in range(len(indices))}
        region = columns.with_coords(_n=n, **fetched)

        def write(_: SSAValue | None, carried: list[SSAValue]) -> list[SSAValue]:
            update = b.load(call.input(b, 1), [outer_at, number, column], region)
            if is_shared:
                b.store(update, call.output(b, 0), at, region, mode=f"atomic_{mode}")
                return carried
            if mode != "set":
                update = b.elementwise(mode, b.load(call.output(b, 0), at, region), update)
                update = update if narrow is None else b.round(update, format=narrow)
            b.store(update, call.output(b, 0), at, region, checked=call.attributes["checked"])
            return carried

        if not call.attributes["drops"]:
            return write(None, carried)
        # A loop of one iteration, or of none: all of a program are at the same index, so that nothing is masked.
        inside = product(minimum(1, extent - row) for extent, row in zip(extents, rows, strict=True))
        b.loop(b.index(0), b.index(inside, fetched), 1, write)
        return carried

    first, last, program = Dim.constant(0), count, dict[str, SSAValue]()
    if is_shared:
        first, program = Dim.symbol("_q") * _INDICES, {"_q": b.program_id(1 if columns_of_row.value == 1 else 2)}
        last = minimum(count, first + _INDICES)
    b.loop(b.index(first, program), b.index(last, program), 1, put)
    writer = b.finish()
    return [writer] if call.attributes["in_place"] else [_copy(call), writer]


SCATTER = LibraryKernel("scatter", "Rows replaced or added to by index, in the order of the indices.", _write_scatter)
