"""Watching kernels: of one whose positions are read from memory, the part that finds them, to be looked at first.

What a kernel does is taken apart: what its watched accesses are indexed by stays, all else goes, and in place of each
access stands a record of out-of-bounds indices. Records are integers, so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, IndexAttr
from tessera.ir.tile.language import TileBuilder, TileRegion, buffer_type
from tessera.types.dim import Dim
from tessera.types.dtype import i64
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

CELLS = 4
"""Numbers of a record: the least below 0, how far the least beyond the end is from `MOST`, the extent and 1."""
MOST = (1 << 63) - 1


@frozen
class Site:
    """One position of a watched access: what is known of it, where it stands, and the argument it is read from."""

    facts: Mapping[str, Any]
    span: Any
    source: int | None


@frozen
class Watch:
    """What looks at a kernel's positions: a kernel that begins its records, one that fills them, and what they are of.

    `arguments` are those of the kernel's own that the second takes, before the records.
    """

    begin: SpecOp
    look: SpecOp
    arguments: tuple[int, ...]
    sites: tuple[Site, ...]


@frozen
class _Position:
    """A dim of a watched access that numbers find: a tile of them, or a coordinate that was fetched."""

    access: SpecOp
    extent: Dim
    tile: SSAValue | None
    coordinate: str = ""


def watch(kernel: SpecOp, *, every: bool = True) -> Watch | None:
    """The kernels that look at what a kernel is indexed by; None where none is checked, or it reads what it writes.

    Without `every`, only what is in the mode `error` is looked at.
    """
    accesses = [op for op in kernel.walk() if isinstance(op, SpecOp) and _is_checked(op, every)]
    if not accesses:
        return None
    found = [position for op in accesses for position in _positions(op)]
    live = _Live(kernel, found)
    if not found or live.reads & set(kernel.value("writes")):
        return None
    return _Writer(kernel, found, live).write()


def _first(op: SpecOp) -> int:
    """The number of the first operand of an access after its buffer."""
    return 1 if op.name == "ttile.load" else 2


def _parts(op: SpecOp) -> tuple[list[SSAValue], list[SSAValue]]:
    """The index operands of an access, and its tiles."""
    operands = list(op.operands)[_first(op) :]
    indices = [value for value in operands if isinstance(value.type, IndexAttr)]
    return indices, operands[len(indices) :]


def _is_checked(op: SpecOp, every: bool) -> bool:
    if op.name not in ("ttile.load", "ttile.store"):
        return False
    facts = op.value("checked")
    return facts is not None and (every or facts.get("mode") == "error")


def _positions(op: SpecOp) -> list[_Position]:
    indices, tiles = _parts(op)
    windows = list(op.value("windows"))
    numbers = tiles[:-1] if op.value("checked").get("masked") else tiles
    named = {f"t{number}": tile for number, tile in enumerate(numbers)}
    found = [
        _Position(op, extent, named[expr.symbol_name])
        for expr, extent in zip(windows[::2], windows[1::2], strict=True)
        if expr.symbol_name in named
    ]
    shape = buffer_type(op.operands[_first(op) - 1]).shape
    fetched = {
        name
        for name, value in zip(op.value("coords"), indices, strict=True)
        if isinstance(value, OpResult) and value.op.name == "ttile.fetch"
    }
    for expr, extent in zip(op.value("map"), shape, strict=True):
        if expr.symbol_name in fetched:
            found.append(_Position(op, extent, None, expr.symbol_name or ""))
    return found


class _Live:
    """What must run for positions to be known: ops, what loops carry, and the arguments that are read."""

    def __init__(self, kernel: SpecOp, positions: Sequence[_Position]) -> None:
        self.kernel = kernel
        self.ops: set[Operation] = set()
        self.carried: dict[Operation, set[int]] = {}
        self.reads: set[int] = set()
        for position in positions:
            indices, tiles = _parts(position.access)
            for value in (*indices, *tiles):
                self.value(value)
            self._around(position.access)

    def value(self, value: SSAValue) -> None:
        if isinstance(value, OpResult):
            if value.op.name == "ttile.for":
                self._carry(value.op, value.index)
            else:
                self.op(value.op)
            return
        assert isinstance(value, BlockArgument)
        loop = value.block.parent_op()
        if loop is self.kernel:
            self.reads.add(value.index)
        elif loop is not None and value.index:
            self._carry(loop, value.index - 1)

    def op(self, op: Operation) -> None:
        if op in self.ops:
            return
        self.ops.add(op)
        self._around(op)
        for operand in op.operands if op.name != "ttile.for" else op.operands[:2]:
            self.value(operand)
        if op.name == "ttile.scratch":
            # What is kept in memory of the program: all that touches it, in order.
            for use in list(op.results[0].uses):
                self.op(use.operation)
            for other in self.kernel.walk():
                if other.name == "ttile.barrier":
                    self.op(other)

    def _around(self, op: Operation) -> None:
        outer = op.parent_op()
        if outer is not None and outer is not self.kernel:
            self.op(outer)

    def _carry(self, loop: Operation, number: int) -> None:
        self.op(loop)
        kept = self.carried.setdefault(loop, set())
        if number in kept:
            return
        kept.add(number)
        self.value(loop.operands[2 + number])
        last = loop.regions[0].block.last_op
        assert last is not None
        self.value(last.operands[number])


class _Writer:
    """Writes the kernel that looks."""

    def __init__(self, kernel: SpecOp, positions: Sequence[_Position], live: _Live) -> None:
        self.kernel, self.positions, self.live = kernel, positions, live
        own = kernel.regions[0].block.args
        self.arguments = tuple(sorted(live.reads))
        self.grid: tuple[Dim, ...] = tuple(kernel.value("grid"))
        self.records = TensorType((*self.grid, Dim.constant(CELLS * len(positions))), i64)
        self.b = TileBuilder(
            f"{kernel.value('symbol')}_watch",
            [*(buffer_type(own[number]) for number in self.arguments), self.records],
            symbols=kernel.value("symbols"),
            grid=self.grid,
            writes=[len(self.arguments)],
            kind="library",
        )
        self.values: dict[SSAValue, SSAValue] = {
            own[number]: self.b.arguments[at] for at, number in enumerate(self.arguments)
        }
        self.programs = {f"_g{axis}": self.b.program_id(axis) for axis in range(len(self.grid))}

    def write(self) -> Watch:
        self._block(self.kernel.regions[0].block)
        sites = tuple(
            Site(position.access.value("checked"), position.access.span, self._source(position))
            for position in self.positions
        )
        return Watch(self._begin(), self.b.finish(), self.arguments, sites)

    def _begin(self) -> SpecOp:
        """Each program's records as zeros."""
        b = TileBuilder(
            f"{self.kernel.value('symbol')}_begin",
            [self.records],
            symbols=self.kernel.value("symbols"),
            grid=self.grid,
            writes=[0],
            kind="library",
        )
        programs = {f"_g{axis}": b.program_id(axis) for axis in range(len(self.grid))}
        width = CELLS * len(self.positions)
        region = TileRegion({**programs, "_c": b.index(0)}, ("_c",), (width,))
        b.store(b.full(0, (width,), i64), b.arguments[0], [*map(Dim.symbol, programs), Dim.symbol("_c")], region)
        return b.finish()

    def _block(self, block: Block) -> None:
        for op in block.ops:
            for number, position in enumerate(self.positions):
                if position.access is op:
                    self._look(number, position)
            if op in self.live.ops:
                if op.name == "ttile.for":
                    self._loop(op)
                else:
                    self.b.block.add_op(op.clone(self.values))

    def _loop(self, loop: Operation) -> None:
        assert isinstance(loop, SpecOp)
        kept = sorted(self.live.carried.get(loop, ()))
        old = loop.regions[0].block

        def body(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
            self.values[old.args[0]] = index
            self.values.update({old.args[1 + number]: value for number, value in zip(kept, carried, strict=True)})
            self._block(old)
            last = old.last_op
            assert last is not None
            return [self.values[last.operands[number]] for number in kept]

        starts = [self.values[loop.operands[2 + number]] for number in kept]
        low, high = (self.values[value] for value in loop.operands[:2])
        made = self.b.loop(low, high, loop.value("step"), body, starts)
        self.values.update({loop.results[number]: value for number, value in zip(kept, made, strict=True)})

    def _look(self, number: int, position: _Position) -> None:
        """Record out-of-bounds indices: elements beyond the edges, and those that a mask leaves out, take no part."""
        b, op = self.b, position.access
        indices, tiles = _parts(op)
        coords = {name: self.values[value] for name, value in zip(op.value("coords"), indices, strict=True)}
        axes = tuple(op.value("axes"))
        tile = op.operands[0] if op.name == "ttile.store" else op.results[0]
        sizes = tuple(int(dim.value or 0) for dim in tile.type.shape)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]
        bounds = {axis: bound for axis, bound in zip(axes, op.value("bounds"), strict=True) if bound.value != -1}
        region = TileRegion({**coords, **self.programs}, axes, sizes, bounds)
        b.span = op.span
        if position.tile is None:
            found = b.coordinate_of(Dim.symbol(position.coordinate), region)
        else:
            found = b.cast(self.values[position.tile], i64)
        zero, extent = b.full(0, sizes, i64), b.coordinate_of(position.extent, region)
        below, beyond = b.elementwise("lt", found, zero), b.elementwise("ge", found, extent)
        if op.value("checked").get("masked"):
            taken = b.elementwise("eq", b.cast(self.values[tiles[-1]], i64), zero)
            below, beyond = b.elementwise("and", below, taken), b.elementwise("and", beyond, taken)
        far = b.elementwise("sub", b.full(MOST, sizes, i64), found)
        self._record(number, 0, found, below, "atomic_min", region)
        self._record(number, 1, far, beyond, "atomic_max", region)
        more = b.elementwise("add", extent, b.full(1, sizes, i64))
        self._record(number, 2, more, b.elementwise("or", below, beyond), "atomic_max", region)
        b.span = None

    def _record(self, number: int, cell: int, value: SSAValue, wrong: SSAValue, mode: str, region: TileRegion) -> None:
        """Join a number to the program's record where an element is wrong."""
        b = self.b
        out = b.cast(b.elementwise("not", wrong), i64)
        # The cell is a tile too, as the elements of a block that is stored have addresses of their own.
        where, width = b.full(CELLS * number + cell, region.sizes, i64), Dim.constant(CELLS * len(self.positions))
        map = (*(Dim.symbol(name) for name in self.programs), Dim.symbol("t1"))
        names = set(region.axes).union(self.programs, *(bound.symbols for bound in region.bound_list))
        coords = tuple(name for name in region.coords if name in names)
        values = {
            "coords": coords,
            "axes": region.axes,
            "map": map,
            "bounds": region.bound_list,
            "windows": (Dim.symbol("t0"), Dim.constant(1), Dim.symbol("t1"), width),
            "mode": mode,
        }
        b.emit("store", [value, b.arguments[-1], *(region.coords[name] for name in coords), out, where], values)

    def _source(self, position: _Position) -> int | None:
        """The argument that positions are read from, where it is one."""
        indices, _ = _parts(position.access)
        coords: tuple[str, ...] = position.access.value("coords")
        pending = [indices[coords.index(position.coordinate)] if position.tile is None else position.tile]
        found, seen = set[int](), set[SSAValue]()
        while pending:
            value = pending.pop()
            if value in seen or not isinstance(value, OpResult):
                continue
            seen.add(value)  # pyright: ignore[reportUnknownArgumentType]
            if value.op.name in ("ttile.load", "ttile.fetch"):
                buffer = value.op.operands[0]
                is_own = isinstance(buffer, BlockArgument) and buffer_type(buffer).dtype.is_integer
                found.add(buffer.index if is_own and isinstance(buffer, BlockArgument) else -1)
            else:
                pending += [operand for operand in value.op.operands if operand.type != INDEX]
        return next(iter(found)) if len(found) == 1 and -1 not in found else None
