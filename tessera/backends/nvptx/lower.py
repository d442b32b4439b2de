"""Tile IR to Target IR for NVIDIA: threads of a program, linear addresses, loops in whole steps and a tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.again import Again, computed_again
from tessera.backends.nvptx.kernel_code import shared_symbol
from tessera.backends.nvptx.mixed_buffers import mixed_buffers
from tessera.backends.nvptx.row_shapes import folds_whole_rows, has_plain_rows
from tessera.backends.nvptx.row_shares import length_of, shares_of, shares_of_free_rows
from tessera.backends.nvptx.text import WARP
from tessera.backends.nvptx.vector_widths import ALIGNED, align_accesses, asked_vector, widest
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr
from tessera.ir.schedule.emit.maps import linear
from tessera.ir.target.dialect import DIALECT
from tessera.ir.target.reach import fits, is_multiple, largest
from tessera.ir.target.types import VectorAttr
from tessera.ir.target.writer import Writer
from tessera.ir.tile.index_exprs import known_ends
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.tensor_type import TensorType

LARGEST = 256
"""Threads of a program at most: more would share too few registers."""
IN_REGISTERS = 144
"""Elements of a row that one thread keeps in registers: its loops are then written out."""
RAGGED = 96
"""The same of a row that does not begin at 16 bytes, which comes element by element."""
PLAIN = 2 * IN_REGISTERS
"""The same of bf16 that are kept as they lie in memory."""
SHARED_SCRATCH = 96 << 10
"""Bytes of scratch that are put in a block's own memory; more lies in global memory."""
FOLDED = 32
"""Elements that one thread has of a row that is folded whole: what it exchanges with others is little beside that.

Where it would have more than twice as many, a program has twice as many threads.
"""
MAP_TURNS = 2
"""Turns of a map that are written one after the other: all that a whole block of it has."""
AHEAD = 1200
"""Instructions of a loop over columns that are written for a thread at most: more would take long to compile."""
GUARDED = 8
"""How many times as many they are where each element is looked at, whether it is there."""
ON_ITS_WAY, SIMPLE = 512, 12
"""Bytes that a thread of a loop over columns has asked for before it looks at the first, if the loop has few ops."""

_RENAMED = {
    "ttile.elementwise": "math",
    "ttile.cast": "convert",
    "ttile.round": "round",
    "ttile.bitcast": "bitcast",
    "ttile.select": "select",
    "ttile.constant": "constant",
    "ttile.broadcast": "spread",
    "ttile.reduce": "fold",
    "ttile.arg_reduce": "fold_place",
    "ttile.shuffle": "shuffle",
    "ttile.vote": "vote",
    "ttile.dot": "dot",
    "ttile.transpose": "transpose",
}


def lower_kernel(kernel: SpecOp, machine: Machine, aligned: bool = True) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel`; `aligned` says that arguments begin at multiples of 16 bytes."""
    return Lowering(kernel, machine, aligned).run()


def lower_shared_rows(kernel: SpecOp, machine: Machine, aligned: bool = True) -> SpecOp | None:
    """The `ttarget.kernel` for rows of a free width that several warps share; None where they cannot."""
    if kernel.value("kind") != "row" or threads_of(kernel) != WARP or not shares_of_free_rows(kernel):
        return None
    lowering = Lowering(kernel, machine, aligned)
    lowering.shares, lowering.keeps_rows = shares_of_free_rows(kernel), True
    made = lowering.run()
    made.set_value("symbol", shared_symbol(kernel.value("symbol")))
    return made


def threads_of(kernel: SpecOp) -> int:
    """Threads of one program: one where tiles are single numbers, a warp for a row, else by the largest tile."""
    sizes = [prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(kernel)]
    names = {op.name for op in kernel.walk()}
    if "ttile.sort" in names:
        return LARGEST
    if max(sizes, default=1) == 1:
        return 1
    schedule: dict[str, Any] = kernel.value("schedule") or {}
    if "warps" in schedule:
        return min(LARGEST, schedule["warps"] * 32)
    if "ttile.dot" in names:
        return LARGEST
    if kernel.value("kind") == "row" and max(sizes) > 32:
        # Columns side by side: few programs, so each has many threads, with a few neighbours each.
        return max(32, min(LARGEST, max(sizes) // 4))
    if max(sizes) <= 64:
        return 32
    if folds_whole_rows(kernel, max(sizes)):
        most = LARGEST if max(sizes) <= 2 * FOLDED * LARGEST else 2 * LARGEST
        return max(32, min(most, 1 << (max(sizes) // FOLDED).bit_length() - 1))
    return max(32, min(LARGEST, 1 << (max(sizes) // 8).bit_length() - 1))


def _tiles_in(kernel: SpecOp) -> list[TileAttr]:
    return [value.type for op in kernel.walk() for value in op.results if isinstance(value.type, TileAttr)]


class Lowering(Writer):
    """The lowering of one kernel."""

    def __init__(self, kernel: SpecOp, machine: Machine, aligned: bool) -> None:
        super().__init__()
        self.kernel, self.machine = kernel, machine
        self.source = kernel.regions[0].block
        self.entry = Block(arg_types=[argument.type for argument in self.source.args])
        self.block = self.entry
        self.values.update(zip(self.source.args, self.entry.args, strict=True))
        self.exprs: dict[SSAValue, Dim] = {}
        self.tops: dict[str, Dim | None] = {}
        self.scratch = Dim.constant(0)
        self.shared = 0
        self.threads = threads_of(kernel)
        self.align = ALIGNED if aligned else 0
        self.vector = 16
        self.mixed = mixed_buffers(kernel)
        self.again: dict[SSAValue, Again] = {}
        self.shares = 0
        self.keeps_rows = self._keeps_rows()
        self.own: dict[str, Callable[[SpecOp], None]] = {
            "ttile.load": self._load,
            "ttile.store": self._store,
            "ttile.scratch": self._scratch,
            "ttile.clip": self._clip,
            "ttile.for": self._loop,
            "ttile.fetch": self._fetch,
            "ttile.sort": self._sort,
            "ttile.barrier": self._barrier,
            "ttile.butterfly": self._butterfly,
            "ttile.coordinate": self._coordinate,
            "ttile.index": self._index,
            "ttile.program_id": self._program_id,
        }

    def run(self) -> SpecOp:
        grid = self.kernel.value("grid")
        body = Block(arg_types=[INDEX] * len(grid))
        self.block, self.places = body, list(body.args)
        for op in self.source.ops:
            assert isinstance(op, SpecOp)
            self.lower(op)
        self.emit("yield")
        self.block = self.entry
        self.emit("programs", (), {"grid": grid}, (), [body])
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbol", "symbols", "writes")}
        values.update(lanes=self.machine.lanes, features=self._features(), scratch=self.scratch)
        values.update(threads=self.threads, align=self.align, shares=self.shares)
        asked: dict[str, Any] = self.kernel.value("schedule") or {}
        values.update({name: asked[name] for name in ("max_registers", "max_shared") if name in asked})
        made = make(DIALECT["kernel"], values=values, types=(), regions=[self.entry])
        align_accesses(made)
        made.set_value("vector", min(widest(made), asked_vector(self.kernel)))
        return made

    def _features(self) -> tuple[str, ...]:
        """Architectures that have all that is used; instructions of one alone are for those who choose them."""
        return tuple(name for name in self.machine.features if name.startswith("sm_"))[:1]

    def lower(self, op: SpecOp) -> None:
        self.span = op.span
        if op.name in _RENAMED:
            # What was chosen of matrix units says nothing here: this is the way around them.
            values = {} if op.name == "ttile.dot" else op.values()
            made = self.emit(_RENAMED[op.name], self.of(op.operands), values, self.vectors(op.results))
            self.values[op.result] = made.result
        elif op.name in self.own:
            self.own[op.name](op)
        else:
            assert op.name in ("ttile.return", "ttile.yield"), f"{op.name} has no lowering to NVIDIA"

    def vectors(self, results: Sequence[SSAValue]) -> list[Any]:
        return [VectorAttr.of(result.type.data) for result in results if isinstance(result.type, TileAttr)]

    # Indices.

    def _program_id(self, op: SpecOp) -> None:
        axis = op.value("axis")
        self.values[op.result] = self.places[axis]
        self.name_index(op.result, f"%p{axis}", self.kernel.value("grid")[axis] - 1)

    def _index(self, op: SpecOp) -> None:
        names = {name: self.expr(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
        self.exprs[op.result] = op.value("expr").substitute(names)
        self.values[op.result] = self.emit("index", self.of(op.operands), op.values(), [INDEX]).result

    def expr(self, index: SSAValue) -> Dim:
        """An index as an expression; one of which nothing is known has a name of its own."""
        if index not in self.exprs:
            self.name_index(index, f"%u{len(self.tops)}", None)
        return self.exprs[index]

    def name_index(self, index: SSAValue, name: str, top: Dim | None) -> None:
        self.exprs[index], self.tops[name] = Dim.symbol(name), top

    def is_safe(self, coordinate: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile that begins at the coordinate cannot reach beyond the bound."""
        if not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(self.expr(coordinate), self.tops)
        return top is not None and fits(top, size, bound)

    def _fetch(self, op: SpecOp) -> None:
        buffer = op.operands[0].type
        assert isinstance(buffer, BufferAttr)
        self._wait_for(op.operands[0])
        values = {"names": op.value("coords"), "offset": linear(op.value("map"), buffer.shape)}
        self.values[op.result] = self.emit("fetch", self.of(op.operands), values, [INDEX]).result

    # Memory.

    def _scratch(self, op: SpecOp) -> None:
        if op.results[0] in self.again:
            return
        type = op.results[0].type
        assert isinstance(type, BufferAttr)
        size = type.data.bytes.value
        space = "private"
        if self.keeps_rows:
            space = "registers"
        elif op.value("space") == "shared" or (size is not None and self.threads > 1 and self._has_room(size)):
            space = "shared"
        values = {"offset": self.scratch, "space": space, "swizzle": op.value("swizzle") if space == "shared" else 0}
        self.values[op.result] = self.emit("scratch", (), values, [type]).result
        self.scratch = self.scratch + (type.data.bytes + 63) // 64 * 64

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes more fit the memory of a block, with all programs that it runs."""
        if self.shared + size > SHARED_SCRATCH // max(1, 128 // self.threads):
            return False
        self.shared += size
        return True

    def _keeps_rows(self) -> bool:
        """Whether a row fits the registers of its threads: all loops are static, and short enough to be written out."""
        if self.kernel.value("kind") != "row":
            return False
        loops = [op for op in self.kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for"]
        counts = [_turns(loop) for loop in loops]
        sizes = [prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(self.kernel)]
        most = max([count or 0 for count in counts], default=0) * max(1, max(sizes, default=1) // self.threads)
        if not loops or None in counts:
            return False
        if self.threads == WARP and not self._has_plain_rows(counts, most):
            self.shares = shares_of(self.kernel, IN_REGISTERS, RAGGED)
        if self.shares or most <= IN_REGISTERS:
            return True
        self.again = computed_again(self.kernel) if self.threads == WARP else {}
        return self._has_plain_rows(counts, most)

    def _has_plain_rows(self, counts: Sequence[int | None], most: int) -> bool:
        """Whether a row is wide and bf16, and stays in the registers of one warp as it lies in memory."""
        is_whole = all(count is not None and count % 8 == 0 for count in counts) and self.align == ALIGNED
        is_narrow = IN_REGISTERS < most <= PLAIN and self.machine.has("sm_90")
        return is_whole and is_narrow and not computed_again(self.kernel) and has_plain_rows(self.kernel)

    def _access(self, op: SpecOp, buffer: TensorType, sizes: Sequence[Dim], first: int) -> dict[str, Any]:
        coords, axes = op.value("coords"), op.value("axes")
        where = dict(zip(coords, op.operands[first:], strict=False))
        guarded = [
            (axis, bound)
            for axis, bound, size in zip(axes, op.value("bounds"), sizes, strict=True)
            if bound.value != -1 and not self.is_safe(where[axis], bound, size.value or 1)
        ]
        offset = linear(op.value("map"), buffer.shape)
        return {
            "names": coords,
            "axes": axes,
            "offset": offset,
            "way": _way(offset, axes, len(op.operands) - first - len(coords)),
            "align": buffer.dtype.bytes,
            "guarded": tuple(axis for axis, _ in guarded),
            "bounds": tuple(bound for _, bound in guarded),
            "windows": op.value("windows"),
        }

    def _load(self, op: SpecOp) -> None:
        if op.operands[0] in self.again:
            self._compute_again(op, self.again[op.operands[0]])
            return
        buffer, tile = op.operands[0].type, op.results[0].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        self._wait_for(op.operands[0])
        values = {**self._access(op, buffer.data, tile.shape, 1), "pad": op.value("pad")}
        self.values[op.result] = self.emit("load", self.of(op.operands), values, self.vectors(op.results)).result

    def _compute_again(self, load: SpecOp, again: Again) -> None:
        """What a load of scratch would give, computed as it was for the store, in the turn of this loop."""
        turn = load.operands[1]
        self.values[again.turn], self.exprs[again.turn] = self.values[turn], self.expr(turn)
        for op in again.ops:
            self.lower(op)
        self.values[load.result] = self.values[again.value]

    def _store(self, op: SpecOp) -> None:
        if op.operands[1] in self.again:
            return
        tile, buffer = op.operands[0].type, op.operands[1].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        self._wait_for(op.operands[1])
        values = {**self._access(op, buffer.data, tile.shape, 2), "mode": op.value("mode")}
        self.emit("store", self.of(op.operands), values)

    def _wait_for(self, buffer: SSAValue) -> None:
        """Memory in order is in order between threads too: where they may meet in it, they wait."""
        if buffer in self.mixed and self.threads > 1:
            self.emit("barrier")

    def _barrier(self, op: SpecOp) -> None:
        if self.threads > 1:
            self.emit("barrier")

    def _butterfly(self, op: SpecOp) -> None:
        values = {"way": "xor", **op.values()}
        self.values[op.result] = self.emit("shuffle", self.of(op.operands), values, self.vectors(op.results)).result

    def _sort(self, op: SpecOp) -> None:
        self.emit("barrier")
        self.emit("sort", self.of(op.operands), op.values())
        self.emit("barrier")

    def _coordinate(self, op: SpecOp) -> None:
        coords = {"names": op.value("coords"), "axes": op.value("axes"), "expr": op.value("expr")}
        self.values[op.result] = self.emit("coordinate", self.of(op.operands), coords, self.vectors(op.results)).result

    def _clip(self, op: SpecOp) -> None:
        where = dict(zip(op.value("coords"), op.operands[1:], strict=True))
        axis, bound, tile = op.value("axis"), op.value("bound"), op.operands[0].type
        assert isinstance(tile, TileAttr)
        axes: tuple[str, ...] = op.value("axes")
        if self.is_safe(where[axis], bound, tile.shape[axes.index(axis)].value or 1):
            self.values[op.result] = self.values[op.operands[0]]
            return
        values = op.values()
        values["names"] = values.pop("coords")
        self.values[op.result] = self.emit("clip", self.of(op.operands), values, self.vectors(op.results)).result

    # Loops.

    def _loop(self, op: SpecOp) -> None:
        """Whole steps with nothing guarded along the loop, then a tail with everything guarded."""
        low, high = (self.expr(value) for value in op.operands[:2])
        step = op.value("step")
        bounds, carried = self.of(op.operands[:2]), self.of(op.operands[2:])
        end = largest(high, self.tops)
        whole = self._copy("loop", op, bounds, carried, None if end is None else end - step)
        results: Sequence[SSAValue] = whole.results
        if not is_multiple(high - low, step) and any(part.name != "ttile.yield" for part in op.regions[0].block.ops):
            results = self._copy("tail", op, bounds, list(results), None if end is None else end - 1).results
        for old, new in zip(op.results, results, strict=True):
            self.values[old] = new

    def _unroll(self, op: SpecOp) -> int:
        if self.keeps_rows:
            return 0
        names = {part.name for part in op.walk()}
        if {"ttile.dot", "ttile.barrier", "ttile.fetch"} & names:
            return 1
        sizes = [prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(op)]
        if self.kernel.value("kind") == "row" and self.threads > 32:
            return self._ahead(op)
        if self.kernel.value("kind") == "map" and max(sizes, default=1) == 8 * self.threads:
            return MAP_TURNS
        return 8 if max(sizes, default=1) <= 4 * self.threads else 1

    def _ahead(self, op: SpecOp) -> int:
        """Turns of a loop over columns: few programs run, so each thread has much of a simple loop on its way."""
        loads = [part.results[0].type for part in op.walk() if part.name == "ttile.load"]
        sizes = [type.data.bytes.value or 0 for type in loads if isinstance(type, TileAttr)]
        parts = [part for part in op.walk() if isinstance(part, SpecOp) and part is not op]
        elements = max([prod(dim.value or 1 for dim in type.shape) for type in _tiles_in(op)], default=1)
        most = AHEAD // (length_of(parts) * max(1, elements // self.threads))
        loops = [part for part in self.kernel.walk() if part.name == "ttile.for"]
        if len(loops) > 1 and any(self._is_guarded_across(part, op) for part in parts):
            most //= GUARDED
        turns = ON_ITS_WAY * self.threads // max(1, sum(sizes))
        turns = 16 if len(parts) >= SIMPLE or not sizes else max(8, min(64, turns))
        return 1 << max(0, min(turns, max(2, most)).bit_length() - 1)

    def _is_guarded_across(self, load: SpecOp, loop: SpecOp) -> bool:
        """Whether a load may reach beyond a bound along another axis than that of the loop."""
        if load.name != "ttile.load":
            return False
        where = dict(zip(load.value("coords"), load.operands[1:], strict=False))
        tile, turn = load.results[0].type, loop.regions[0].block.args[0]
        assert isinstance(tile, TileAttr)
        bounds = zip(load.value("axes"), load.value("bounds"), tile.shape, strict=True)
        return any(
            bound.value != -1 and where[axis] is not turn and not self.is_safe(where[axis], bound, size.value or 1)
            for axis, bound, size in bounds
        )

    def _copy(
        self, name: str, op: SpecOp, bounds: Sequence[SSAValue], carried: Sequence[SSAValue], top: Dim | None
    ) -> SpecOp:
        source, outer = op.regions[0].block, self.block
        inner = Block(arg_types=[INDEX, *[value.type for value in carried]])
        self.values.update(zip(source.args, inner.args, strict=True))
        self.name_index(source.args[0], f"%l{len(self.tops)}", top)
        self.block = inner
        for part in source.ops:
            assert isinstance(part, SpecOp)
            self.lower(part)
        last = source.last_op
        assert last is not None
        self.emit("yield", self.of(last.operands))
        self.block, self.span = outer, op.span
        values = {"step": op.value("step"), "unroll": self._unroll(op) if name == "loop" else 1}
        return self.emit(name, [*bounds, *carried], values, [value.type for value in carried], [inner])


def _turns(loop: SpecOp) -> int | None:
    """How often a loop runs, where that is known."""
    ends = known_ends(loop)
    return None if ends is None else -(-(ends[1] - ends[0]) // loop.value("step"))


def _way(offset: Dim, axes: Sequence[str], tiles: int = 0) -> str:
    """How the lanes of an access lie in memory; `tiles` index tiles find its elements."""
    if any(f"t{number}" in offset.symbols for number in range(tiles)):
        return "indexed"
    if not axes:
        return "contiguous"
    parts = offset.coefficient(axes[-1])
    if parts is None:
        return "indexed"
    return {0: "uniform", 1: "contiguous"}.get(-1 if parts[0].value is None else parts[0].value, "strided")
