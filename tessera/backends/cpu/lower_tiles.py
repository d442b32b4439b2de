"""Tiles to registers: linear addresses, loops split into whole steps and a tail, a product as one op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.backends.cpu.match_contraction import Match, match_contraction
from tessera.backends.cpu.whole_rows import row_numbers
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr
from tessera.ir.schedule.emit.maps import linear
from tessera.ir.target.dialect import DIALECT
from tessera.ir.target.reach import fits, is_multiple, largest
from tessera.ir.target.types import VectorAttr
from tessera.ir.target.writer import Writer
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.tensor_type import TensorType

_RENAMED = {
    "ttile.elementwise": "math",
    "ttile.cast": "convert",
    "ttile.bitcast": "bitcast",
    "ttile.round": "round",
    "ttile.select": "select",
    "ttile.constant": "constant",
    "ttile.broadcast": "spread",
    "ttile.reduce": "fold",
    "ttile.arg_reduce": "fold_place",
    "ttile.shuffle": "shuffle",
    "ttile.vote": "vote",
}


class Lowering(Writer):
    """The lowering of one kernel whose tiles fit registers."""

    def __init__(self, kernel: SpecOp, machine: Machine) -> None:
        super().__init__()
        self.kernel, self.machine = kernel, machine
        self.source = kernel.regions[0].block
        self.entry = Block(arg_types=[argument.type for argument in self.source.args])
        self.block = self.entry
        self.values.update(zip(self.source.args, self.entry.args, strict=True))
        self.exprs: dict[SSAValue, Dim] = {}
        """Every index over sizes, programs and steps of loops."""
        self.tops: dict[str, Dim | None] = {}
        """The largest value of each program and step; None where nothing is known."""
        self.inside: dict[SSAValue, Dim] = {}
        """Bounds that an index is below, by who gives it."""
        self.whole_rows = row_numbers(kernel)
        """Index tiles that are one number, and are read as that."""
        self.scratch = Dim.constant(0)
        self.narrow = 0
        """Lanes of an epilogue: its tiles become one row of so many, whatever they were."""
        self.own: dict[str, Callable[[SpecOp], None]] = {
            "ttile.load": self._load,
            "ttile.store": self._store,
            "ttile.scratch": self._scratch,
            "ttile.clip": self._clip,
            "ttile.for": self._loop,
            "ttile.fetch": self._fetch,
            "ttile.sort": self._sort,
            "ttile.butterfly": self._butterfly,
        }
        self.prepare()

    def prepare(self) -> None:
        """What a subclass adds."""

    def run(self) -> SpecOp:
        match = match_contraction(self.kernel)
        if match is None:
            self._programs()
        else:
            self._product(match)
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbol", "symbols", "writes")}
        values.update(lanes=self.machine.lanes, features=self.machine.features, scratch=self.scratch)
        return make(DIALECT["kernel"], values=values, types=(), regions=[self.entry])

    def _programs(self) -> None:
        grid = self.kernel.value("grid")
        body = Block(arg_types=[INDEX] * len(grid))
        self.block = body
        self.places = list(body.args)
        self.run_block(self.source)
        self.emit("yield")
        self.block = self.entry
        self.emit("programs", (), {"grid": grid}, (), [body])

    def run_block(self, source: Block) -> None:
        """Lower the ops of a block, in order."""
        for op in source.ops:
            assert isinstance(op, SpecOp)
            self.lower(op)

    def lower(self, op: SpecOp) -> None:
        self.span = op.span
        name = op.name
        if name == "ttile.program_id":
            self.values[op.result] = self.places[op.value("axis")]
            self.name_index(op.result, f"%p{op.value('axis')}", self.kernel.value("grid")[op.value("axis")] - 1)
        elif name == "ttile.index":
            names = {name: self.expr(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
            self.exprs[op.result] = op.value("expr").substitute(names)
            self.values[op.result] = self.emit("index", self.of(op.operands), op.values(), [INDEX]).result
        elif name in _RENAMED:
            made = self.emit(_RENAMED[name], self.of(op.operands), op.values(), self.vectors(op.results))
            self.values[op.result] = made.result
        elif name == "ttile.coordinate":
            coords = {"names": op.value("coords"), "axes": op.value("axes"), "expr": op.value("expr")}
            made = self.emit("coordinate", self.of(op.operands), coords, self.vectors(op.results))
            self.values[op.result] = made.result
        elif name in self.own:
            self.own[name](op)
        else:
            # A program is one worker here, so nobody waits at a barrier.
            assert name in ("ttile.return", "ttile.yield", "ttile.barrier"), f"{name} has no lowering to cpu"

    def vectors(self, results: Sequence[SSAValue]) -> list[Any]:
        """The types of results in registers."""
        types = [result.type.data for result in results if isinstance(result.type, TileAttr)]
        if self.narrow:
            types = [type.with_shape([1, self.narrow][-type.rank :] if type.rank else []) for type in types]
        return [VectorAttr.of(type) for type in types]

    def _butterfly(self, op: SpecOp) -> None:
        values = {"way": "xor", **op.values()}
        self.values[op.result] = self.emit("shuffle", self.of(op.operands), values, self.vectors(op.results)).result

    def _scratch(self, op: SpecOp) -> None:
        type = op.results[0].type
        assert isinstance(type, BufferAttr)
        self.values[op.result] = self.emit("scratch", (), {"offset": self.scratch}, [type]).result
        self.scratch = self.scratch + (type.data.bytes + 63) // 64 * 64

    # Accesses.

    def _sort(self, op: SpecOp) -> None:
        self.emit("sort", self.of(op.operands), op.values())

    def _fetch(self, op: SpecOp) -> None:
        buffer = op.operands[0].type
        assert isinstance(buffer, BufferAttr)
        offset = linear(op.value("map"), buffer.shape)
        where = {
            name: at for name, at in zip(op.value("coords"), op.operands[1:], strict=True) if name in offset.symbols
        }
        values = {"names": tuple(where), "offset": offset}
        self.values[op.result] = self.emit("fetch", self.of([op.operands[0], *where.values()]), values, [INDEX]).result

    def expr(self, index: SSAValue) -> Dim:
        """An index as an expression; one of which nothing is known has a name of its own."""
        if index not in self.exprs:
            self.name_index(index, f"%u{len(self.tops)}", None)
        return self.exprs[index]

    def name_index(self, index: SSAValue, name: str, top: Dim | None) -> None:
        """Let an index be known by a name, which no size has, and its largest value."""
        self.exprs[index], self.tops[name] = Dim.symbol(name), top

    def is_safe(self, coordinate: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile that begins at the coordinate cannot reach beyond the bound."""
        if self.inside.get(coordinate) == bound:
            return True
        if not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(self.expr(coordinate), self.tops)
        return top is not None and fits(top, size, bound)

    def _access(self, op: SpecOp, buffer: TensorType, sizes: Sequence[Dim], first: int) -> dict[str, Any]:
        coords, axes = op.value("coords"), op.value("axes")
        where = dict(zip(coords, op.operands[first:], strict=False))
        tiles = op.operands[first + len(coords) :]
        numbers = {f"t{place}": Dim.symbol(f"_t{place}") for place, tile in enumerate(tiles) if tile in self.whole_rows}
        guarded = [
            (axis, bound)
            for axis, bound, size in zip(axes, op.value("bounds"), sizes, strict=True)
            if bound.value != -1 and not self.is_safe(where[axis], bound, size.value or 1)
        ]
        offset = linear(op.value("map"), buffer.shape).substitute(numbers)
        return {
            "names": (*coords, *(f"_{name}" for name in numbers)),
            "axes": axes,
            "offset": offset,
            "way": self.way(offset, axes, len(tiles) - len(numbers)),
            "align": buffer.dtype.bytes,
            "guarded": tuple(axis for axis, _ in guarded),
            "bounds": tuple(bound for _, bound in guarded),
            "windows": tuple(expr.substitute(numbers) for expr in op.value("windows")),
        }

    @staticmethod
    def way(offset: Dim, axes: Sequence[str], tiles: int = 0) -> str:
        """How the lanes of an access lie in memory; `tiles` index tiles find its elements."""
        if any(f"t{number}" in offset.symbols for number in range(tiles)):
            return "indexed"
        if not axes:
            return "contiguous"
        parts = offset.coefficient(axes[-1])
        if parts is None:
            return "indexed"
        return {0: "uniform", 1: "contiguous"}.get(-1 if parts[0].value is None else parts[0].value, "strided")

    def _load(self, op: SpecOp) -> None:
        if op.result in self.whole_rows:
            self._fetch(op)
            return
        buffer, tile = op.operands[0].type, op.results[0].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        values = {**self._access(op, buffer.data, tile.shape, 1), "pad": op.value("pad")}
        self.values[op.result] = self.emit("load", self.of(op.operands), values, self.vectors(op.results)).result

    def _store(self, op: SpecOp) -> None:
        tile, buffer = op.operands[0].type, op.operands[1].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        values = {**self._access(op, buffer.data, tile.shape, 2), "mode": op.value("mode")}
        self.emit("store", self.of(op.operands), values)

    def _clip(self, op: SpecOp) -> None:
        where = dict(zip(op.value("coords"), op.operands[1:], strict=True))
        axis, bound, tile = op.value("axis"), op.value("bound"), op.operands[0].type
        assert isinstance(tile, TileAttr)
        axes: tuple[str, ...] = op.value("axes")
        size = tile.shape[axes.index(axis)].value or 1
        if self.is_safe(where[axis], bound, size):
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
        bounds = self.of(op.operands[:2])
        carried = self.of(op.operands[2:])
        end = largest(high, self.tops)
        whole = self._copy("loop", op, bounds, carried, None if end is None else end - step)
        results: Sequence[SSAValue] = whole.results
        if not is_multiple(high - low, step) and _is_used(op):
            results = self._copy("tail", op, bounds, list(results), None if end is None else end - 1).results
        for old, new in zip(op.results, results, strict=True):
            self.values[old] = new

    def _copy(
        self, name: str, op: SpecOp, bounds: Sequence[SSAValue], carried: Sequence[SSAValue], top: Dim | None
    ) -> SpecOp:
        """The body once more; `top` is the largest value of its index."""
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
        types = [value.type for value in carried]
        return self.emit(name, [*bounds, *carried], {"step": op.value("step")}, types, [inner])

    # Products.

    def _product(self, match: Match) -> None:
        """One `gemm` op; what follows the loop over k becomes its epilogue, on one row of accumulators."""
        count = len(match.batch)
        acc = match.loop.results[0].type
        assert isinstance(acc, TileAttr)
        self.narrow = self.machine.lanes * 4 // acc.dtype.bytes
        row_type = VectorAttr.of(TensorType.of([1, self.narrow], acc.dtype))
        epilogue = Block(arg_types=[*[INDEX] * (count + 2), row_type])
        self.block = epilogue
        places = [*epilogue.args[:count], epilogue.args[count], epilogue.args[count + 1]]
        self.values[match.loop.results[0]] = epilogue.args[-1]
        for start, place in match.starts.items():
            if place == count:
                self.inside[start] = match.m
        self.places = places
        for op in match.before:
            self._before(op, match, places)
        for op in match.after:
            self.lower(op)
        self.emit("yield")
        self.block, self.span = self.entry, match.loop.span
        self.emit("gemm", self.of([match.lhs, match.rhs]), match.values(), (), [epilogue])

    def _before(self, op: SpecOp, match: Match, places: Sequence[SSAValue]) -> None:
        """Program ids and offsets: the epilogue gets batch places, and element row and column directly."""
        if op.name == "ttile.program_id":
            self.values[op.result] = places[op.value("axis")]
        elif op.name == "ttile.index" and op.result in match.starts:
            self.values[op.result] = places[match.starts[op.result]]
        elif op.name == "ttile.index":
            self.values[op.result] = self.emit("index", self.of(op.operands), op.values(), [INDEX]).result


def _is_used(op: SpecOp) -> bool:
    """Whether a body with nothing in it but its yield would be copied."""
    return any(part.name != "ttile.yield" for part in op.regions[0].block.ops)
