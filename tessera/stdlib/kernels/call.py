"""`Call`: what a kernel of the library is written for, and `LibraryKernel`, which writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.index_maps import IndexMap, compose
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place, TileBuilder
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

GENERIC = Machine("generic")
Choose = Callable[[str, Sequence[Any]], Any]
"""Answers a knob with one of its candidates, which are in order of preference."""


def first(knob: str, candidates: Sequence[Any]) -> Any:
    """The answer where no one chooses."""
    return candidates[0]


@frozen
class Epilogue:
    """What follows an op in its kernel: `store` writes it to the arguments `writes`.

    It takes the builder, a tile of the op's first result in its dtype, its place, and where its elements are.
    """

    writes: tuple[int, ...]
    store: Callable[[TileBuilder, SSAValue, Place, Sequence[Dim]], None]


@frozen
class Call:
    """One use of a library op.

    Every kernel takes the same buffers: `arguments`. `inputs[i]` is the argument that holds operand `i` (two operands
    may be one), `outputs[i]` the one for result `i`, or None for a result that no one wants. `maps[i]` says where an
    operand is in its argument, for kernels that read views.
    """

    name: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    attributes: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]
    arguments: tuple[TensorType, ...]
    symbols: tuple[str, ...]
    choose: Choose = first
    lanes: int = 8
    span: Span | None = None
    maps: tuple[IndexMap | None, ...] = ()
    machine: Machine = GENERIC
    features: tuple[str, ...] = ()
    """What that machine has."""
    epilogue: Epilogue | None = None

    @property
    def narrow_accumulator(self) -> str | None:
        """The format that running sums are rounded to at each step; None where they are in a dtype that computes."""
        asked: DType | None = self.attributes.get("accumulate")
        if asked is None or not asked.is_float or asked.compute is asked:
            return None
        return str(asked)

    def at(self, number: int, at: Sequence[Dim]) -> Sequence[Dim]:
        """Where an element of operand `number` is in the argument that holds it: elsewhere, if it is a view of it."""
        map = self.maps[number] if self.maps else None
        return at if map is None else compose(map, at)

    def builder(
        self, grid: Sequence[Dim], part: str = "", shapes: Mapping[int, Sequence[Dim]] | None = None
    ) -> TileBuilder:
        """A kernel of this call; `shapes` sees arguments as contiguous tensors of other dims."""
        given = shapes or {}
        types = [type.with_shape(given.get(number, type.shape)) for number, type in enumerate(self.arguments)]
        writes = [number for number in self.outputs if number is not None]
        writes = sorted({*writes, *(self.epilogue.writes if self.epilogue is not None else ())})
        name = f"{self.name}_{part}" if part else self.name
        made = TileBuilder(name, types, symbols=self.symbols, grid=grid, writes=writes, kind="library")
        made.span = self.span
        return made

    def input(self, builder: TileBuilder, number: int) -> SSAValue:
        return builder.arguments[self.inputs[number]]

    def output(self, builder: TileBuilder, number: int) -> SSAValue:
        place = self.outputs[number]
        assert place is not None, "no one wants this result"
        return builder.arguments[place]


@frozen
class LibraryKernel:
    """An entry of the library: `write` gives the kernels of a call, in the order they run."""

    name: str
    summary: str
    write: Callable[[Call], list[SpecOp]]

    def build(
        self,
        name: str,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
        attributes: Mapping[str, Any],
        machine: Any = None,
        choose: Choose = first,
    ) -> list[SpecOp]:
        """The kernels of one op whose buffers are its operands, then its results."""
        types = (*operands, *results)
        symbols = sorted(set[str]().union(*(type.symbols for type in types)))
        count = len(operands)
        call = Call(
            name,
            tuple(operands),
            tuple(results),
            attributes,
            tuple(range(count)),
            tuple(range(count, count + len(results))),
            types,
            tuple(symbols),
            choose,
            machine.lanes if machine is not None else 8,
        )
        return self.write(call)


# Kernels that users wrote, as entries of the library: each writes itself.


def _write_user_kernel(call: Call) -> list[SpecOp]:
    return KERNELS[call.attributes["kernel"]].write(call)


USER_KERNEL = LibraryKernel("user_kernel", "A kernel written in the kernel language.", _write_user_kernel)


# Writing rows by index: a copy, unless it is in place, then one index after the other: equal ones have one answer.

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
