"""The roles of a matrix kernel: what both walk through, and the producer, which only fills rings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.mma.boxes import cut_of
from tessera.backends.nvptx.mma.rings import RingPlan
from tessera.backends.nvptx.types import CURSOR, TENSOR_MAP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr
from tessera.ir.tile.lower_to_target import OpLowering
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.nvptx.mma.lower import MatrixLowering


class Role(OpLowering):
    """One role's walk through the program; it re-does the index arithmetic, and carries its places in rings."""

    def __init__(self, lowering: MatrixLowering, rings: Sequence[RingPlan]) -> None:
        super().__init__()
        self.lowering, self.rings, self.plan = lowering, rings, lowering.plan
        self.values.update(lowering.values)
        self.cursors: dict[int, SSAValue] = {}

    def role(self, order: Mapping[str, Any]) -> Block:
        """The block of the role: its tiles, each with the whole program."""
        outer = self.block
        starts = [self.emit("cursor", (), {}, [CURSOR]).result for _ in self.rings]
        grid = order["grid"]
        body = Block(arg_types=[*[INDEX] * len(grid), *[CURSOR] * len(starts)])
        self.program_ids = list(body.args[: len(grid)])
        self.cursors = dict(enumerate(body.args[len(grid) :]))
        self.block = body
        self.program()
        self.emit("yield", [self.cursors[at] for at in range(len(self.rings))])
        self.block = outer
        self.begin(starts)
        self.emit("tiles", starts, order, (), [body])
        self.emit("yield")
        return outer

    def program(self) -> None:
        """One program, from its start to its end."""
        self.lower_block(self.lowering.source)

    def begin(self, starts: Sequence[SSAValue]) -> None:
        """What the role does before its first tile; `starts` are its places in rings."""

    def map_of(self, buffer: SSAValue, box: Sequence[int], cut: int = -1, rounds: str = "") -> SSAValue:
        """The TMA descriptor of a buffer for boxes of a size, which may end early in a dim; made where it is read."""
        assert isinstance(buffer.type, BufferAttr)
        values = {"box": tuple(box), "swizzle": box[-1] * buffer.type.dtype.bytes, "cut": cut, "rounds": rounds}
        return self.emit("tensor_map", [self.lowering.values[buffer]], values, [TENSOR_MAP]).result

    def inside(self, op: SpecOp) -> list[int]:
        """The rings that turn inside a loop."""
        return [at for at, ring in enumerate(self.rings) if _is_inside(ring.block, op)]


def _is_inside(block: Block, op: SpecOp) -> bool:
    at = block.parent_op()
    while at is not None and at is not op:
        at = at.parent_op()
    return at is op


class Producer(Role):
    """One thread that fills rings, in the order in which the program loads."""

    def lower(self, op: SpecOp) -> None:
        if op.spec.short_name in ("program_id", "index", "fetch"):
            super().lower(op)
        elif op.name == "ttile.for" and self.inside(op):
            self._loop(op)
        for at, ring in enumerate(self.rings):
            if op is ring.loads[-1].load:
                self.span = op.span
                self._fill(at, ring)

    def _loop(self, op: SpecOp) -> None:
        rings = self.inside(op)
        source, outer = op.regions[0].block, self.block
        starts = [self.cursors[at] for at in rings]
        body = Block(arg_types=[INDEX, *[CURSOR] * len(rings)])
        self.values[source.args[0]] = body.args[0]
        self.cursors.update(zip(rings, body.args[1:], strict=True))
        self.block = body
        self.lower_block(source)
        self.emit("yield", [self.cursors[at] for at in rings])
        self.block = outer
        values = {"step": op.value("step")}
        made = self.emit("steps", [*self.of(op.operands[:2]), *starts], values, [CURSOR] * len(rings), [body])
        self.cursors.update(zip(rings, made.results, strict=True))

    def _fill(self, at: int, ring: RingPlan) -> None:
        assert ring.ring is not None
        cursor = self.cursors[at]
        self.emit("acquire", [ring.ring, cursor])
        for side, tile in zip(ring.loads, ring.tiles, strict=True):
            assert side.load is not None
            assert side.box is not None
            half, box = self.lowering.half_of(side)
            cut = cut_of(side.load)
            map = self.map_of(side.load.operands[0], box, -1 if cut is None else cut.dim, side.rounds)
            places = [*side.load.value("map"), *([] if cut is None else [cut.end])]
            operands = [map, ring.ring, cursor, tile, *self._places(side.load, places)]
            self.emit("copy", operands, {"pieces": side.box.pieces, "half": half})
        self.cursors[at] = self.emit("advance", [ring.ring, cursor], {}, [CURSOR]).result

    def _places(self, load: SpecOp, places: Sequence[Dim]) -> list[SSAValue]:
        """Where a load begins in its buffer, along each dim, and where it ends."""
        names, indices = load.value("coords"), self.of(load.operands[1:])
        found: list[SSAValue] = []
        for expr in places:
            used = [(name, index) for name, index in zip(names, indices, strict=True) if name in expr.symbols]
            values = {"names": tuple(name for name, _ in used), "expr": expr}
            found.append(self.emit("index", [index for _, index in used], values, [INDEX]).result)
        return found
