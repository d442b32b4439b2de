"""The lowering from Tile to Target IR that all backends share: ops one by one, linear addresses, loops with a tail.

Target IR has Tile's ops under Tile's names wherever the op is the same, so most of them are copied with their types
changed. What changes: index maps become linear offsets with an access pattern, guards that can be
proven away go, and a loop becomes whole steps plus a tail, so that only the tail pays for its edge. Backends extend
these classes with what is theirs: `lower_<op>` is the lowering of `ttile.<op>`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.ir.base.block_ops import SHARED
from tessera.ir.base.build import OpWriter
from tessera.ir.base.dialect_of import make
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr, VectorAttr
from tessera.ir.target.dialect import DIALECT
from tessera.ir.target.limits import LINE, IndexRanges, is_multiple, largest
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.ir.tile.typed_ops import (
        ButterflyOp,
        ClipOp,
        FetchOp,
        ForOp,
        IndexOp,
        LoadOp,
        ProgramIdOp,
        ScratchOp,
        StoreOp,
    )


class Writer(OpWriter):
    """Where ops are written, and what stands for each value of the tile kernel there."""

    dialect = DIALECT

    def __init__(self) -> None:
        super().__init__(Block())
        self.values: dict[SSAValue, SSAValue] = {}

    def of(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """What stands for values of the tile kernel."""
        return [self.values[value] for value in values]


_SAME = {shared.name for shared in SHARED} - {"dot", "transpose", "barrier", "return", "yield"}
"""Ops that are the same in both dialects: attributes stay, tiles become registers."""


class OpLowering(Writer):
    """Lowers the ops of a tile kernel one by one, each by a method `lower_<op>`, or as it is."""

    program_ids: list[SSAValue]
    """The index of the program along each axis of the grid."""

    def lower(self, op: SpecOp) -> None:
        """Lower one op."""
        self.span = op.span
        name = op.spec.short_name
        own = getattr(self, f"lower_{name}", None)
        if own is not None:
            own(op)
        elif name in _SAME:
            self.lower_same(op)
        elif name not in ("return", "yield"):
            op.fail(f"`{op.name}` has no lowering in {type(self).__name__}")

    def lower_block(self, source: Block) -> None:
        """Lower the ops of a block, in order."""
        for op in source.ops:
            assert isinstance(op, SpecOp)
            self.lower(op)

    def lower_same(self, op: SpecOp) -> None:
        """Lower an op that Target IR has under the same name."""
        self.replace(op, op.spec.short_name, op.values())

    def replace(self, op: SpecOp, name: str, values: dict[str, Any]) -> None:
        """Emit an op of the same operands in place of a tile op."""
        made = self.emit(name, self.of(op.operands), values, self.vectors(op.results))
        self.values.update(zip(op.results, made.results, strict=True))

    def vectors(self, results: Sequence[SSAValue]) -> list[Any]:
        """The types that results have in registers."""
        return [VectorAttr.of(result.type.data) for result in results if isinstance(result.type, TileAttr)]

    def lower_program_id(self, op: ProgramIdOp) -> None:
        self.values[op.result] = self.program_ids[op.axis]

    def lower_index(self, op: IndexOp) -> None:
        self.values[op.result] = self.emit("index", self.of(op.operands), op.values(), [INDEX]).result

    def lower_fetch(self, op: FetchOp) -> None:
        buffer = op.operands[0].type
        assert isinstance(buffer, BufferAttr)
        values = {"coords": op.coords, "offset": linear(op.map, buffer.shape)}
        self.values[op.result] = self.emit("fetch", self.of(op.operands), values, [INDEX]).result

    def lower_butterfly(self, op: ButterflyOp) -> None:
        self.replace(op, "shuffle", {"mode": "xor", **op.values()})


class KernelLowering(OpLowering, IndexRanges):
    """Lowers a kernel to `ttarget.kernel`: programs with tiles in registers, accesses at linear offsets."""

    def __init__(self, kernel: SpecOp, machine: Machine) -> None:
        OpLowering.__init__(self)
        IndexRanges.__init__(self, kernel)
        self.machine = machine
        self.source = kernel.regions[0].block
        self.entry = Block(arg_types=[argument.type for argument in self.source.args])
        self.block = self.entry
        self.values.update(zip(self.source.args, self.entry.args, strict=True))
        self.scratch = Dim.constant(0)
        """Bytes of scratch allocated so far."""

    def lower_programs(self) -> None:
        """Lower the whole body as the programs of the grid."""
        grid = self.kernel.value("grid")
        body = Block(arg_types=[INDEX] * len(grid))
        self.block, self.program_ids = body, list(body.args)
        self.lower_block(self.source)
        self.emit("yield")
        self.block = self.entry
        self.emit("programs", (), {"grid": grid}, (), [body])

    def finish(self, features: Sequence[str], **more: Any) -> SpecOp:
        """The kernel of what was emitted."""
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbol", "symbols", "writes")}
        values.update(lanes=self.machine.lanes, features=tuple(features), scratch=self.scratch, **more)
        return make(DIALECT["kernel"], values=values, types=(), regions=[self.entry])

    def lower_scratch(self, op: ScratchOp) -> None:
        type = op.results[0].type
        assert isinstance(type, BufferAttr)
        self.values[op.result] = self.allocate(type.data)

    def allocate(self, type: TensorType, **more: Any) -> SSAValue:
        """A new part of scratch, which begins at a cache line."""
        made = self.emit("scratch", (), {"offset": self.scratch, **more}, [BufferAttr.of(type)])
        self.scratch = self.scratch + (type.bytes + LINE - 1) // LINE * LINE
        return made.result

    # Indices.

    def lower_program_id(self, op: ProgramIdOp) -> None:
        super().lower_program_id(op)
        self.name_program(op)

    def lower_index(self, op: IndexOp) -> None:
        self.substitute_index(op)
        super().lower_index(op)

    def guards(
        self, op: LoadOp | StoreOp, where: dict[str, SSAValue], sizes: Sequence[Dim], first: int = 0
    ) -> list[tuple[str, Dim]]:
        """The axes of an access, from the axis `first` on, that may reach beyond their bound."""
        return [
            (axis, bound)
            for axis, bound, size in list(zip(op.axes, op.bounds, sizes, strict=True))[first:]
            if bound.value != -1 and not self.is_safe(where[axis], bound, size.value or 1)
        ]

    # Accesses.

    def access(self, op: LoadOp | StoreOp, buffer: TensorType, sizes: Sequence[Dim], first: int) -> dict[str, Any]:
        """The attributes of a load or store whose coordinates begin at the operand `first`."""
        coords, axes = op.coords, op.axes
        guarded = self.guards(op, dict(zip(coords, op.operands[first:], strict=False)), sizes)
        offset = linear(op.map, buffer.shape)
        return {
            "coords": coords,
            "axes": axes,
            "offset": offset,
            "pattern": access_pattern(offset, axes, len(op.operands) - first - len(coords)),
            "align": buffer.dtype.bytes,
            "guarded": tuple(axis for axis, _ in guarded),
            "bounds": tuple(bound for _, bound in guarded),
            "windows": op.windows,
        }

    def lower_load(self, op: LoadOp) -> None:
        buffer, tile = op.operands[0].type, op.results[0].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        self.replace(op, "load", {**self.access(op, buffer.data, tile.shape, 1), "pad": op.pad})

    def lower_store(self, op: StoreOp) -> None:
        tile, buffer = op.operands[0].type, op.operands[1].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        self.replace(op, "store", {**self.access(op, buffer.data, tile.shape, 2), "mode": op.mode})

    def lower_clip(self, op: ClipOp) -> None:
        if self.is_clip_safe(op):
            self.values[op.result] = self.values[op.operands[0]]
        else:
            self.lower_same(op)

    # Loops.

    def lower_for(self, op: ForOp) -> None:
        """Whole steps with nothing guarded along the loop, then a tail with everything guarded."""
        low, high = (self.expr(value) for value in op.operands[:2])
        step = op.step
        carried = self.of(op.operands[2:])
        end = largest(high, self.tops)
        results: Sequence[SSAValue] = self.lower_body("loop", op, carried, None if end is None else end - step).results
        is_empty = all(part.name == "ttile.yield" for part in op.regions[0].block.ops)
        if not is_multiple(high - low, step) and not is_empty:
            results = self.lower_body("tail", op, list(results), None if end is None else end - 1).results
        self.values.update(zip(op.results, results, strict=True))

    def loop_values(self, op: SpecOp, name: str) -> dict[str, Any]:
        """The attributes of a `loop` or `tail`."""
        return {"step": op.value("step")}

    def lower_body(self, name: str, op: ForOp, carried: Sequence[SSAValue], top: Dim | None) -> SpecOp:
        """The body as a `loop` or a `tail`; `top` is the largest value of its index."""
        source, outer = op.regions[0].block, self.block
        types = [value.type for value in carried]
        inner = Block(arg_types=[INDEX, *types])
        self.values.update(zip(source.args, inner.args, strict=True))
        self.name_index(source.args[0], top)
        self.block = inner
        self.lower_block(source)
        last = source.last_op
        assert last is not None
        self.emit("yield", self.of(last.operands))
        self.block, self.span = outer, op.span
        return self.emit(name, [*self.of(op.operands[:2]), *carried], self.loop_values(op, name), types, [inner])


def access_pattern(offset: Dim, axes: Sequence[str], tiles: int = 0) -> str:
    """How the lanes of an access are laid out in memory; `tiles` is how many index tiles find its elements."""
    if any(f"t{number}" in offset.symbols for number in range(tiles)):
        return "indexed"
    if not axes:
        return "contiguous"
    parts = offset.coefficient(axes[-1])
    if parts is None:
        return "indexed"
    return {0: "uniform", 1: "contiguous"}.get(-1 if parts[0].value is None else parts[0].value, "strided")
