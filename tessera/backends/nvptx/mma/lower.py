"""Tile kernels to matrix kernels: memory and rings, a producer sliced out of the program, consumers for all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.dialect import DIALECT
from tessera.backends.nvptx.mma.boxes import cut_of, staged_rows, stored_dtypes, stores_in
from tessera.backends.nvptx.mma.fit import units_in
from tessera.backends.nvptx.mma.loops import is_longer, rings_read, skew_of, sum_of
from tessera.backends.nvptx.mma.lower_skewed import SkewedLoop
from tessera.backends.nvptx.mma.plan import MmaDot, MmaOperand, read_plan
from tessera.backends.nvptx.mma.programs import PART, Epilogue, epilogue_of, pieces_of
from tessera.backends.nvptx.mma.rings import RingPlan, swizzle_of, target_rings, tile_of
from tessera.backends.nvptx.mma.target_kernels import UNPLACED
from tessera.backends.nvptx.tensor_cores import SPAN, WGMMA_FEATURES, WGMMA_FORMS_TF32
from tessera.backends.nvptx.text import matrix_symbol
from tessera.backends.nvptx.types import (
    CURSOR,
    RING,
    TENSOR_MAP,
    ColumnVectorAttr,
    FragmentAttr,
    OperandAttr,
    PendingAttr,
    RowVectorAttr,
    SharedAttr,
)
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr
from tessera.ir.target.limits import fits, largest
from tessera.ir.tile.choices import BESIDE, DYNAMIC, SHARED, SKEWED, SUM
from tessera.ir.tile.lower_to_target import OpLowering, Writer
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32
from tessera.types.shape import TensorType

# What consumers do with a program: dots with waits, everything else on fragments, stores through shared memory.

# The roles of a matrix kernel: what both walk through, and the producer, which only fills rings.


class Role(OpLowering):
    """One role's walk through the program; it repeats the index arithmetic, and carries its cursors in rings."""

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
        """What the role does before its first tile; `starts` are its cursors in rings."""

    def map_of(self, buffer: SSAValue, box: Sequence[int], cut: int = -1, rounds: str = "") -> SSAValue:
        """The TMA descriptor of a buffer for boxes of a size, which may end early in a dim; made where it is read."""
        assert isinstance(buffer.type, BufferAttr)
        values = {"box": tuple(box), "swizzle": box[-1] * buffer.type.dtype.bytes, "cut": cut, "rounds": rounds}
        return self.emit("tensor_map", [self.lowering.values[buffer]], values, [TENSOR_MAP]).result

    def inside(self, op: SpecOp) -> list[int]:
        """The rings that a loop fills."""
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
        for operand, tile in zip(ring.loads, ring.tiles, strict=True):
            assert operand.load is not None
            assert operand.box is not None
            half, box = self.lowering.half_of(operand)
            cut = cut_of(operand.load)
            map = self.map_of(operand.load.operands[0], box, -1 if cut is None else cut.dim, operand.rounds)
            exprs = [*operand.load.value("map"), *([] if cut is None else [cut.end])]
            operands = [map, ring.ring, cursor, tile, *self._indices_of(operand.load, exprs)]
            self.emit("copy", operands, {"pieces": operand.box.pieces, "half": half})
        self.cursors[at] = self.emit("advance", [ring.ring, cursor], {}, [CURSOR]).result

    def _indices_of(self, load: SpecOp, exprs: Sequence[Dim]) -> list[SSAValue]:
        """Where a load begins in its buffer, along each dim, and where it ends."""
        names, indices = load.value("coords"), self.of(load.operands[1:])
        found: list[SSAValue] = []
        for expr in exprs:
            used = [(name, index) for name, index in zip(names, indices, strict=True) if name in expr.symbols]
            values = {"names": tuple(name for name, _ in used), "expr": expr}
            found.append(self.emit("index", [index for _, index in used], values, [INDEX]).result)
        return found


class Consumer(Role):
    """The walk of the consumers."""

    def begin(self, starts: Sequence[SSAValue]) -> None:
        """Consumers may set out one after the other: tensor cores then have work while one waits for its dots."""
        lag = self.lowering.kernel.value("lag")
        if lag:
            assert self.rings[0].ring is not None
            self.emit("lag", [self.rings[0].ring, starts[0]], {"stages": lag})

    def program(self) -> None:
        epilogue = self.lowering.epilogue
        if epilogue is None:
            self.lower_block(self.lowering.source)
            return
        for op in self.lowering.source.ops:
            assert isinstance(op, SpecOp)
            self.lower(op)
            if op is epilogue.last:
                break
        self._defer_epilogue(epilogue)

    def _defer_epilogue(self, epilogue: Epilogue) -> None:
        """The ops after the dots, which run beside the next program of the CTA: in a block of their own."""
        given, outer = self.values[epilogue.value], (self.block, self.program_ids, dict(self.values))
        block = Block(arg_types=[*[INDEX] * len(self.program_ids), given.type])
        self.block, self.program_ids = block, list(block.args[:-1])
        self.values.update(self.lowering.values)
        self.values[epilogue.value] = block.args[-1]
        for op in epilogue.ops:
            self.lower(op)
        self.emit("yield")
        self.block, self.program_ids = outer[0], outer[1]
        self.values.update(outer[2])
        self.emit("epilogue", [given], {"columns": PART, "pieces": pieces_of(epilogue)}, (), [block])

    def lower(self, op: SpecOp) -> None:
        if op not in self.plan.hidden:
            super().lower(op)

    def vectors(self, results: Sequence[SSAValue]) -> list[Any]:
        return [self.type_of(result) for result in results]

    def type_of(self, value: SSAValue) -> Any:
        """The type of a tile in registers."""
        assert isinstance(value.type, TileAttr)
        type = value.type.data
        if type.rank == 2:
            return FragmentAttr.of(type)
        return ColumnVectorAttr.of(type) if value in self.plan.columns else RowVectorAttr.of(type)

    # Dots.

    def _rings(self, dot: MmaDot) -> list[int]:
        """The rings that a dot reads."""
        return rings_read(dot, self.rings)

    def lower_dot(self, op: SpecOp) -> None:
        dot, given = self.plan.dots[op], self.values[op.operands[2]]
        if not WGMMA_FORMS_TF32[dot.rhs.dtype].is_promoted:
            self.values[op.result] = self.close(self._issue(dot, self.open(given)))
            self.leave(op)
            return
        self.wait_for(dot)
        operands = [given, *map(self.operand, dot.operands), *map(self._cursor, dot.operands)]
        values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major, "parts": dot.parts}
        self.values[op.result] = self.emit("mma_add", operands, values, [given.type]).result
        self.leave(op)

    def open(self, fragment: SSAValue) -> SSAValue:
        assert isinstance(fragment.type, FragmentAttr)
        return self.emit("mma_open", [fragment], {}, [PendingAttr.of(fragment.type.data)]).result

    def close(self, pending: SSAValue, left: int = 0) -> SSAValue:
        assert isinstance(pending.type, PendingAttr)
        return self.emit("mma_wait", [pending], {"left": left}, [FragmentAttr.of(pending.type.data)]).result

    def _issue(self, dot: MmaDot, acc: SSAValue) -> SSAValue:
        """Wait for the operands, and start the dot."""
        lhs = self.operand(dot.lhs)  # made before anything is in flight
        self.wait_for(dot)
        return self.start(dot, acc, lhs)

    def wait_for(self, dot: MmaDot) -> None:
        """Wait until the operands of a dot are in shared memory."""
        for at in dot.op.value("awaits"):
            self._await(at)

    def _await(self, at: int) -> None:
        ring = self.rings[at].ring
        assert ring is not None
        self.emit("await", [ring, self.cursors[at]])

    def start(self, dot: MmaDot, acc: SSAValue, lhs: SSAValue) -> SSAValue:
        """Start a dot whose operands are there."""
        operands = [acc, lhs, self.operand(dot.rhs), self._cursor(dot.lhs), self._cursor(dot.rhs)]
        mode = "tf32" if dot.rhs.dtype is f32 else ""
        values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major, "mode": mode}
        return self.emit("mma_issue", operands, values, [acc.type]).result

    def operand(self, operand: MmaOperand) -> SSAValue:
        if operand.load is None:
            fragment = self.values[operand.value]
            assert isinstance(fragment.type, FragmentAttr)
            return self.emit("pack", [fragment], {}, [OperandAttr.of(fragment.type.data)]).result
        for ring in self.rings:
            for given, tile in zip(ring.loads, ring.tiles, strict=True):
                if given.load is operand.load:
                    return tile
        raise AssertionError("a loaded operand is in a ring")

    def _cursor(self, operand: MmaOperand) -> SSAValue:
        """Where an operand is in its ring; one in registers has any cursor."""
        for at, ring in enumerate(self.rings):
            if operand.load is None or any(given.load is operand.load for given in ring.loads):
                return self.cursors[at]
        raise AssertionError("a loaded operand is in a ring")

    def leave(self, op: SpecOp) -> None:
        """Release the rings that nobody reads after this op, and go on to their next stage."""
        numbers: Sequence[int] = op.value("releases")
        for at in numbers:
            ring = self.rings[at]
            assert ring.ring is not None
            self.emit("release", [ring.ring, self.cursors[at]])
            self._advance(at, ring)

    def _advance(self, at: int, ring: RingPlan) -> None:
        assert ring.ring is not None
        self.cursors[at] = self.emit("advance", [ring.ring, self.cursors[at]], {}, [CURSOR]).result

    # Loops.

    def lower_for(self, op: SpecOp) -> None:
        form = op.value("form")
        # What the whole loop reads is waited for once.
        for at in op.value("awaits"):
            self._await(at)
        if form == SUM:
            dot = sum_of(op, self.plan, self.rings)
            assert dot is not None
            self._sum(op, dot)
        elif form == SKEWED:
            skew = skew_of(op, self.plan)
            assert skew is not None
            SkewedLoop(self, op, skew).run()
        else:
            self._plain_loop(op)
        self.leave(op)

    def _plain_loop(self, op: SpecOp) -> None:
        """The body in the order of the program."""
        rings, source, outer = self.inside(op), op.regions[0].block, self.block
        starts = [*self.of(op.operands[2:]), *[self.cursors[at] for at in rings]]
        body = Block(arg_types=[INDEX, *[value.type for value in starts]])
        count = len(op.operands) - 2
        self.values.update(zip(source.args, body.args[: 1 + count], strict=True))
        self.cursors.update(zip(rings, body.args[1 + count :], strict=True))
        self.block = body
        self.lower_block(source)
        last = source.last_op
        assert last is not None
        self.emit("yield", [*self.of(last.operands), *[self.cursors[at] for at in rings]])
        self._finish_loop(op, outer, body, starts, rings, count)

    def _finish_loop(
        self, op: SpecOp, outer: Block, body: Block, starts: Sequence[SSAValue], rings: Sequence[int], count: int
    ) -> SpecOp:
        self.block, self.span = outer, op.span
        types = [value.type for value in starts]
        operands = [*self.of(op.operands[:2]), *starts]
        values = {"step": op.value("step"), "is_nonempty": self.is_nonempty(op)}
        made = self.emit("steps", operands, values, types, [body])
        self.values.update(zip(op.results, made.results[:count], strict=True))
        self.cursors.update(zip(rings, made.results[count : count + len(rings)], strict=True))
        return made

    def is_nonempty(self, op: SpecOp) -> bool:
        """Whether a loop has a step whenever all sizes are at least 1, which is when a matrix kernel is launched."""
        return is_longer(op, 0)

    def _sum(self, op: SpecOp, dot: MmaDot) -> None:
        """One dot is always in flight: a stage is released one step after it was read."""
        rings, source, outer = self._rings(dot), op.regions[0].block, self.block
        cursors = [self.cursors[at] for at in rings]
        starts = [self.open(self.values[op.operands[2]]), *cursors, *cursors]
        low = self.values[op.operands[0]]
        body = Block(arg_types=[INDEX, *[value.type for value in starts]])
        index, acc, *cursors_in = body.args
        self.values[source.args[0]] = index
        self.cursors.update(zip(rings, cursors_in[: len(rings)], strict=True))
        self.block = body
        pending = self._issue(dot, acc)
        self.emit("mma_wait", (), {"left": 1})
        self._release(rings, cursors_in[len(rings) :], low, index)
        read = [self.cursors[at] for at in rings]
        for at in rings:
            self._advance(at, self.rings[at])
        self.emit("yield", [pending, *[self.cursors[at] for at in rings], *read])
        made = self._finish_loop(op, outer, body, starts, rings, 1)
        self.values[op.results[0]] = self.close(made.results[0])
        for at, cursor in zip(rings, made.results[1 + len(rings) :], strict=True):
            ring = self.rings[at].ring
            assert ring is not None
            self.emit("release", [ring, cursor])

    def _release(self, rings: Sequence[int], cursors: Sequence[SSAValue], low: SSAValue, high: SSAValue) -> None:
        """Release stages, where any step ran."""
        for at, cursor in zip(rings, cursors, strict=True):
            ring = self.rings[at].ring
            assert ring is not None
            self.emit("release", [ring, cursor, low, high])

    # Elements.

    def lower_reduce(self, op: SpecOp) -> None:
        self.replace(op, "reduce_rows", {"kind": op.value("kind")})

    def _access(self, op: SpecOp, tile: SSAValue, first: int) -> dict[str, Any]:
        where = dict(zip(op.value("coords"), op.operands[first:], strict=True))
        assert isinstance(tile.type, TileAttr)
        parts = zip(op.value("axes"), op.value("bounds"), tile.type.shape, strict=True)
        # A bound that the tile never reaches is none.
        bounds = tuple(
            Dim.constant(-1) if self.lowering.is_inside(where[axis], bound, size.value or 1) else bound
            for axis, bound, size in parts
        )
        values = {"coords": op.value("coords"), "bounds": bounds}
        return {**values, **{name: op.value(name) for name in ("axes", "map", "windows")}}

    def lower_load(self, op: SpecOp) -> None:
        values = {**self._access(op, op.result, 1), "pad": op.value("pad")}
        self.replace(op, "fragment_load", values)

    def lower_store(self, op: SpecOp) -> None:
        values = self._access(op, op.operands[0], 2)
        tile, buffer, *at = self.of(op.operands)
        if op.value("space") != SHARED:
            self.emit("fragment_store", [tile, buffer, *at], values)
            return
        assert isinstance(tile.type, FragmentAttr)
        values.pop("windows")
        map = self.map_of(op.operands[1], op.value("box"))
        self.emit("store_tile", [tile, map, self.lowering.staging[tile.type.dtype], buffer, *at], values)


def lower_matrix_kernel(kernel: SpecOp) -> SpecOp:
    """The `ttarget.matrix_kernel` of a `ttile.kernel` for which everything was chosen."""
    return MatrixLowering(kernel).run()


class MatrixLowering(Writer):
    """The lowering of one kernel for which everything was chosen: its attributes say what it does."""

    def __init__(self, kernel: SpecOp) -> None:
        super().__init__()
        self.kernel, self.plan = kernel, read_plan(kernel)
        self.source = kernel.regions[0].block
        self.block = self.entry = Block(arg_types=[argument.type for argument in self.source.args])
        self.values.update(zip(self.source.args, self.entry.args, strict=True))
        self.staging: dict[DType, SSAValue] = {}
        self.mailbox = UNPLACED if kernel.value("scheduler") == DYNAMIC else -1
        self.stores = [op for op in stores_in(kernel) if op.value("space") == SHARED]
        self.epilogue = epilogue_of(kernel, self.plan, self.stores) if kernel.value("epilogue") == BESIDE else None

    def run(self) -> SpecOp:
        rings = target_rings(self.plan)
        self._memory(rings)
        producer, consumer = self._producer(rings), self._consumer(rings)
        self.emit("roles", (), {}, (), [producer, consumer])
        return self._finish(
            "matrix_kernel",
            WGMMA_FEATURES,
            registers=self.kernel.value("registers"),
            multicast=self.kernel.value("multicast"),
        )

    def _finish(self, kind: str, features: Sequence[str], **more: Any) -> SpecOp:
        """The kernel of what was emitted."""
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbols", "writes", "grid")}
        values.update(
            symbol=matrix_symbol(self.kernel.value("symbol")),
            features=tuple(features),
            consumers=self.plan.consumers,
            **more,
        )
        made = make(DIALECT[kind], values=values, types=(), regions=[self.entry])
        assert isinstance(made, SpecOp)
        return made

    def is_inside(self, index: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile of a size that begins at an index never reaches a bound."""
        grid = self.kernel.value("grid")
        expr = _expr_of(index)
        if expr is None or bound.value == -1 or not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(expr, {f"%p{axis}": extent - 1 for axis, extent in enumerate(grid)})
        return top is not None and fits(top, size, bound)

    def _memory(self, rings: Sequence[RingPlan]) -> None:
        self._make_tiles(rings)
        self._make_staging()
        self._make_rings(rings)

    def _make_tiles(self, rings: Sequence[RingPlan]) -> None:
        """Shared memory for what is copied, stage after stage."""
        for ring in rings:
            for operand in ring.loads:
                values = {"stages": ring.stages, "swizzle": swizzle_of(operand)}
                ring.tiles.append(self.emit("shared_tile", (), values, [SharedAttr.of(tile_of(operand))]).result)

    def _make_staging(self) -> None:
        """Shared memory for rows to store."""
        units = units_in(self.kernel)
        assert units is not None
        rows, stages = staged_rows(units, self.plan.consumers)
        for dtype in stored_dtypes(self.stores):
            type = TensorType.of([rows, SPAN // dtype.bytes], dtype)
            made = self.emit("shared_tile", (), {"stages": stages}, [SharedAttr.of(type)])
            self.staging[dtype] = made.result

    def _make_rings(self, rings: Sequence[RingPlan]) -> None:
        """Barriers of stages."""
        for ring in rings:
            copied = ring.copied if ring.copied < ring.bytes else 0
            values = {"stages": ring.stages, "bytes": copied}
            ring.ring = self.emit("ring", ring.tiles, values, [RING]).result

    def half_of(self, operand: MmaOperand) -> tuple[str, tuple[int, ...]]:
        """What a CTA copies half of for both of its pair, and the box it copies."""
        box = operand.box
        assert box is not None
        if not self.kernel.value("multicast") or all(
            operand.load is not dot.rhs.load for dot in self.plan.dots.values()
        ):
            return "", box.sizes
        if operand.major == "mn":
            return "pieces", box.sizes
        outer = [max(1, size // 2) for size in box.sizes[:-1]]
        return "rows", (*outer, box.sizes[-1])

    def _order(self) -> dict[str, Any]:
        """In what order programs are taken."""
        values = {name: self.kernel.value(name) for name in ("grid", "group")}
        return {**values, "is_descending": self.kernel.value("descending"), "mailbox": self.mailbox}

    def _producer(self, rings: Sequence[RingPlan]) -> Block:
        return Producer(self, rings).role(self._order())

    def _consumer(self, rings: Sequence[RingPlan]) -> Block:
        return Consumer(self, rings).role(self._order())


def _expr_of(index: SSAValue) -> Dim | None:
    """An index over sizes and program ids; None for one that depends on a loop or on memory."""
    op = index.op if isinstance(index, OpResult) else None
    if not isinstance(op, SpecOp):
        return None
    if op.name == "ttile.program_id":
        return Dim.symbol(f"%p{op.value('axis')}")
    parts = {name: _expr_of(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
    known = {name: part for name, part in parts.items() if part is not None}
    return op.value("expr").substitute(known) if len(known) == len(parts) else None
