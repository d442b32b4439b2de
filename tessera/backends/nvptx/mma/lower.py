"""Tile kernels to matrix kernels: memory and rings, a producer sliced out of the program, consumers for all else.

A tile kernel says what one program computes; a matrix kernel is specialized by warps. Loads that feed dots become a
program of their own, the producer's: one thread that keeps TMA busy, as many stages before the dots as shared memory
holds. Each stage of a ring has a full barrier, at which bytes arrive, and an empty one, at which consumers do, so both
roles go at their own pace and no barrier of the whole CTA stands in a loop. Both walk the same loops, and so each
computes the indices that it needs by itself: that is cheaper than to communicate them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.dialect import DIALECT
from tessera.backends.nvptx.mma.boxes import cut_at, cut_of, staged_rows, stored_dtypes, stores_in
from tessera.backends.nvptx.mma.fit import units_in
from tessera.backends.nvptx.mma.loops import is_longer, rings_read, skew_of, sum_of
from tessera.backends.nvptx.mma.lower_ordered import OrderedLoop
from tessera.backends.nvptx.mma.lower_skewed import SkewedLoop
from tessera.backends.nvptx.mma.plan import CopiedOperand, MmaDot, MmaOperand, read_plan
from tessera.backends.nvptx.mma.programs import PART, Epilogue, epilogue_of, half_of, idle_of, pieces_of, threaded_loads
from tessera.backends.nvptx.mma.rings import RingPlan, swizzle_of, target_rings, tile_of
from tessera.backends.nvptx.mma.target_kernels import UNPLACED
from tessera.backends.nvptx.mma.window_boxes import find_windows, is_windowed
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
    shaped_type,
    spec_ops,
    yielded_values,
)
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX
from tessera.ir.target.limits import fits, largest
from tessera.ir.tile.choices import BESIDE, DYNAMIC, SHARED, SKEWED, SUM
from tessera.ir.tile.lower_to_target import OpLowering, Writer
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.ir.tile import typed_ops as tile_ops

# The roles of a matrix kernel: what both walk through, and the producer, which only fills rings.


class Role(OpLowering):
    """One role's walk through the program; it repeats the index arithmetic, and carries its cursors in rings."""

    def __init__(self, lowering: MatrixLowering, rings: Sequence[RingPlan]) -> None:
        super().__init__()
        self.lowering, self.rings, self.plan = lowering, rings, lowering.plan
        self.values.update(lowering.values)
        self.cursors: dict[int, SSAValue] = {}
        self.known: frozenset[SpecOp] = frozenset()
        """What a program has done before it is begun."""

    def lower(self, op: SpecOp) -> None:
        if op not in self.known:
            super().lower(op)

    def role(self, order: Mapping[str, Any]) -> Block:
        """The block of the role: its tiles, each with the whole program."""
        outer = self.block
        starts = [self.emit("cursor", (), {}, [CURSOR]).result for _ in self.rings]
        self.begin(starts)
        grid = order["grid"]
        body = Block(arg_types=[*[INDEX] * len(grid), *[CURSOR] * len(starts)])
        self.program_ids = list(body.args[: len(grid)])
        self.cursors = dict(enumerate(body.args[len(grid) :]))
        self.block = body
        self.skip_idle()
        self.program()
        self.emit("yield", self.cursors_of(range(len(self.rings))))
        self.block = outer
        self.emit("tiles", starts, order, (), [body])
        self.end()
        self.emit("yield")
        return outer

    def skip_idle(self) -> None:
        """Pass over programs that would store nothing, where they are to be."""
        idle = idle_of(self.lowering.kernel) if self.lowering.kernel.value("skips") else None
        if idle is None:
            return
        for op in idle.makers:
            self.lower(op)
        self.known = frozenset(idle.makers)
        high = self.index(idle.high, {name: self.values[value] for name, value in idle.where.items()})
        self.emit("skip", [self.values[idle.low], high])

    def program(self) -> None:
        """One program, from its start to its end."""
        self.lower_block(self.lowering.source)

    def begin(self, starts: Sequence[SSAValue]) -> None:
        """What the role does before its first tile; `starts` are its cursors in rings."""

    def end(self) -> None:
        """What the role does after its last tile."""

    def map_of(self, buffer: SSAValue, box: Sequence[int], cut: int = -1, **values: Any) -> SSAValue:
        """The TMA descriptor of a buffer for boxes of a size, which may end early in a dim; made where it is read."""
        values |= {"box": tuple(box), "swizzle": box[-1] * shaped_type(buffer).dtype.bytes, "cut": cut}
        return self.emit("tensor_map", [self.lowering.values[buffer]], values, [TENSOR_MAP]).result

    def emit_at(self, name: str, at: int, types: Sequence[Any] = ()) -> SpecOp:
        """Write an op on the stage of a ring at hand."""
        return self.emit(name, [self.rings[at].ring, self.cursors[at]], {}, types)

    def advance(self, at: int) -> None:
        """Go on to the next stage of a ring."""
        self.cursors[at] = self.emit_at("advance", at, [CURSOR]).result

    def index(self, expr: Dim, where: Mapping[str, SSAValue]) -> SSAValue:
        """An expression of indices that have names."""
        used = {name: index for name, index in where.items() if name in expr.symbols}
        return self.emit("index", list(used.values()), {"names": tuple(used), "expr": expr}, [INDEX]).result

    def cursors_of(self, rings: Iterable[int]) -> list[SSAValue]:
        """The stages of rings at hand."""
        return [self.cursors[at] for at in rings]

    # Loops.

    def inside(self, op: SpecOp) -> list[int]:
        """The rings that a loop fills."""
        return [at for at, ring in enumerate(self.rings) if op.is_ancestor(ring.block)]

    def steps(
        self,
        op: SpecOp,
        limits: Sequence[SSAValue],
        starts: Sequence[SSAValue],
        write: Callable[[SSAValue, Sequence[SSAValue]], Sequence[SSAValue]],
        is_nonempty: bool = False,
        copies: int = 1,
    ) -> list[SSAValue]:
        """Steps of a loop between limits: `write` does one from its index and what is carried, and gives that on."""
        outer, types = self.block, [value.type for value in starts]
        body = self.block = Block(arg_types=[INDEX, *types])
        index, *carried = body.args
        self.values[op.regions[0].block.args[0]] = index
        self.emit("yield", write(index, carried))
        self.block, self.span = outer, op.span
        values = {"step": op.value("step"), "is_nonempty": is_nonempty, "copies": copies}
        return list(self.emit("steps", [*limits, *starts], values, types, [body]).results)

    def plain_loop(self, op: SpecOp, count: int, is_nonempty: bool = False) -> None:
        """The body in the order of the program; so many of the values that it carries are the role's."""
        rings, source = self.inside(op), op.regions[0].block

        def write(_: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
            self.values.update(zip(source.args[1 : 1 + count], carried[:count], strict=True))
            self.cursors.update(zip(rings, carried[count:], strict=True))
            self.lower_block(source)
            return [*self.of(yielded_values(source)[:count]), *self.cursors_of(rings)]

        starts = [*self.of(op.operands[2 : 2 + count]), *self.cursors_of(rings)]
        made = self.steps(op, self.of(op.operands[:2]), starts, write, is_nonempty)
        self.values.update(zip(op.results[:count], made[:count], strict=True))
        self.cursors.update(zip(rings, made[count:], strict=True))

    # Copies.

    def copy_stage(self, ring: RingPlan, cursor: SSAValue, where: Mapping[SSAValue, SSAValue]) -> None:
        """The copies of a stage, at the step of a loop that `where` says; at that at hand where it says none."""
        for operand, tile in zip(ring.loads, ring.tiles, strict=True):
            if is_windowed(operand.load):
                self.copy_windows(operand, ring, cursor, tile, where)
                continue
            half, box = self.lowering.half_of(operand)
            cut = cut_of(operand.load)
            how = {"rounds": operand.rounds, "by_threads": operand.load in self.lowering.threaded}
            map = self.map_of(operand.load.operands[0], box, -1 if cut is None else cut.dim, **how)
            at = [self.index_at(value, where) for value in operand.load.operands[1:]]
            coords = dict(zip(operand.load.value("coords"), at, strict=True))
            corner = [self.index(expr, coords) for expr in operand.load.value("map")]
            end = [] if cut is None else [self.index(cut.end, coords)]
            values = {"pieces": operand.box.pieces, "half": half}
            self.emit("copy", [map, ring.ring, cursor, tile, *corner, *end], values)

    def copy_windows(
        self,
        operand: CopiedOperand,
        ring: RingPlan,
        cursor: SSAValue,
        tile: SSAValue,
        where: Mapping[SSAValue, SSAValue],
    ) -> None:
        """The copy of an operand that is read through windows: each of its boxes is of one element of a window."""
        load, found = operand.load, find_windows(operand.load)
        corners: dict[str, Any] = {"low": found.low, "high": found.high, "strides": found.strides}
        map = self.map_of(load.operands[0], operand.box.sizes, rounds=operand.rounds, **corners)
        at = [self.index_at(value, where) for value in load.operands[1:]]
        coords = dict(zip(load.value("coords"), at, strict=True))
        indices: list[SSAValue] = []
        for piece in range(operand.box.pieces):
            for exprs in found.at(piece * operand.box.sizes[-1]):
                indices += [self.index(expr, coords) for expr in exprs]
        self.emit("copy", [map, ring.ring, cursor, tile, *indices], {"pieces": operand.box.pieces})

    def index_at(self, value: SSAValue, where: Mapping[SSAValue, SSAValue]) -> SSAValue:
        """An index as it is at another step of its loop."""
        if value in where:
            return where[value]
        op = value.op if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or op.parent_block() not in [step.owner for step in where]:
            return self.values[value]
        assert op.name == "ttile.index"
        return self.emit("index", [self.index_at(part, where) for part in op.operands], op.values(), [INDEX]).result

    def later(self, index: SSAValue, distance: int) -> SSAValue:
        """An index so much further on."""
        return self.index(Dim.symbol("i") + distance, {"i": index}) if distance else index


class Producer(Role):
    """One thread that fills rings, in the order in which the program loads."""

    def lower(self, op: SpecOp) -> None:
        if op.spec.short_name in ("program_id", "index", "fetch"):
            super().lower(op)
        elif op.name == "ttile.for" and self.inside(op):
            self.plain_loop(op, 0)
        for at, ring in enumerate(self.rings):
            if op is ring.loads[-1].load:
                self.span = op.span
                self._fill(at, ring)

    def _fill(self, at: int, ring: RingPlan) -> None:
        self.emit_at("acquire", at)
        self.copy_stage(ring, self.cursors[at], {})
        self.advance(at)


class Consumer(Role):
    """The walk of the consumers."""

    def begin(self, starts: Sequence[SSAValue]) -> None:
        """Consumers may set out one after the other: tensor cores then have work while one waits for its dots."""
        lag = self.lowering.kernel.value("lag")
        if lag:
            self.emit("lag", [self.rings[0].ring, starts[0]], {"stages": lag})

    def program(self) -> None:
        epilogue = self.lowering.epilogue
        if epilogue is None:
            self.lower_block(self.lowering.source)
            return
        for op in spec_ops(self.lowering.source):
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
        self.values[epilogue.value], self.known = block.args[-1], frozenset()
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
        type = shaped_type(value).data
        if type.rank == 2:
            return FragmentAttr.of(type)
        return ColumnVectorAttr.of(type) if value in self.plan.columns else RowVectorAttr.of(type)

    # Dots.

    def rings_of(self, dot: MmaDot) -> list[int]:
        """The rings that a dot reads."""
        return rings_read(dot, self.rings)

    def lower_dot(self, op: tile_ops.DotOp) -> None:
        dot, given = self.plan.dots[op], self.values[op.operands[2]]
        if not WGMMA_FORMS_TF32[dot.rhs.dtype].is_promoted:
            self.values[op.result] = self.close(self.issue(dot, self.open(given)))
            self.leave(op)
            return
        self.wait_for(dot)
        sides = dot.lhs, dot.rhs
        operands = [given, *map(self.operand, sides), *map(self._cursor, sides)]
        values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major, "parts": dot.parts}
        self.values[op.result] = self.emit("mma_add", operands, values, [given.type]).result
        self.leave(op)

    def open(self, fragment: SSAValue) -> SSAValue:
        return self.emit("mma_open", [fragment], {}, [PendingAttr.of(shaped_type(fragment).data)]).result

    def close(self, pending: SSAValue, left: int = 0) -> SSAValue:
        return self.emit("mma_wait", [pending], {"left": left}, [FragmentAttr.of(shaped_type(pending).data)]).result

    def issue(self, dot: MmaDot, acc: SSAValue) -> SSAValue:
        """Wait for the operands, and start the dot."""
        lhs = self.operand(dot.lhs)  # made before anything is in flight
        self.wait_for(dot)
        return self.start(dot, acc, lhs)

    def wait_for(self, dot: MmaDot) -> None:
        """Wait until the operands of a dot are in shared memory."""
        for at in dot.op.value("awaits"):
            self.emit_at("await", at)

    def start(self, dot: MmaDot, acc: SSAValue, lhs: SSAValue, name: str = "mma_issue") -> SSAValue:
        """Start a dot whose operands are there."""
        operands = [acc, lhs, self.operand(dot.rhs), self._cursor(dot.lhs), self._cursor(dot.rhs)]
        mode = "tf32" if dot.rhs.dtype is f32 else ""
        values = {"lhs_major": dot.lhs.major, "rhs_major": dot.rhs.major, "mode": mode}
        return self.emit(name, operands, values, [acc.type]).result

    def operand(self, operand: MmaOperand) -> SSAValue:
        if operand.load is None:
            fragment = self.values[operand.value]
            return self.emit("pack", [fragment], {}, [OperandAttr.of(shaped_type(fragment).data)]).result
        for ring in self.rings:
            for given, tile in zip(ring.loads, ring.tiles, strict=True):
                if given.load is operand.load:
                    return tile
        raise AssertionError("a loaded operand is in a ring")

    def _cursor(self, operand: MmaOperand) -> SSAValue:
        """Where an operand is in its ring; one in registers has any cursor."""
        return self.cursors[0 if operand.load is None else self._ring_of(operand)]

    def _ring_of(self, operand: MmaOperand) -> int:
        """The number of the ring that a loaded operand is in."""
        rings = enumerate(self.rings)
        return next(at for at, ring in rings if any(given.load is operand.load for given in ring.loads))

    def leave(self, op: SpecOp) -> None:
        """Release the rings that nobody reads after this op, and go on to their next stage."""
        numbers: Sequence[int] = op.value("releases")
        for at in numbers:
            self.emit_at("release", at)
            self.advance(at)

    # Loops.

    def lower_for(self, op: tile_ops.ForOp) -> None:
        form = op.form
        # What the whole loop reads is waited for once.
        for at in op.awaits:
            self.emit_at("await", at)
        if form == SUM:
            dot = sum_of(op, self.plan, self.rings)
            assert dot is not None
            self.emit_sum(op, dot)
        elif form == SKEWED:
            skew = skew_of(op, self.plan)
            assert skew is not None
            SkewedLoop(self, op, skew).run()
        else:
            OrderedLoop(self, op).run()
        self.leave(op)

    def is_nonempty(self, op: SpecOp) -> bool:
        """Whether a loop has a step whenever all sizes are at least 1, which is when a matrix kernel is launched."""
        return is_longer(op, 0)

    def emit_sum(self, op: SpecOp, dot: MmaDot) -> None:
        """One dot is always in flight: a stage is released one step after it was read.

        What a step computes for its dot, it computes while the dot of the step before is in flight.
        """
        rings, source = self.rings_of(dot), op.regions[0].block
        cursors, count, own = self.cursors_of(rings), len(rings), len(op.results) - 1
        low, high = self.of(op.operands[:2])

        def write(index: SSAValue, carried: Sequence[SSAValue]) -> list[SSAValue]:
            acc, *at = carried
            self.values.update(zip(source.args[2:], at[:own], strict=True))
            at = at[own:]
            self.cursors.update(zip(rings, at[:count], strict=True))
            for part in spec_ops(source)[:-1] if dot.inputs else ():
                if part is not dot.op:
                    self.lower(part)
            pending = self.issue(dot, acc)
            self.emit("mma_wait", (), {"left": 1})
            for ring, cursor in zip(rings, at[count:], strict=True):
                self.emit("release", [self.rings[ring].ring, cursor, low, index])
            read = self.cursors_of(rings)
            for ring in rings:
                self.advance(ring)
            return [pending, *self.of(yielded_values(source)[1:]), *self.cursors_of(rings), *read]

        starts = [self.open(self.values[op.operands[2]]), *self.of(op.operands[3:]), *cursors, *cursors]
        # Registers of an A operand are taken while it is in flight: two steps have registers of their own.
        copies = 2 if dot.inputs else 1
        total, *at = self.steps(op, [low, high], starts, write, self.is_nonempty(op), copies)
        self.values.update(zip(op.results[1:], at[:own], strict=True))
        at = at[own:]
        self.cursors.update(zip(rings, at[:count], strict=True))
        self.values[op.results[0]] = self.close(total)
        for ring, cursor in zip(rings, at[count:], strict=True):
            self.emit("release", [self.rings[ring].ring, cursor])

    # Elements.

    def lower_reduce(self, op: tile_ops.ReduceOp) -> None:
        self.replace(op, "reduce_rows", {"kind": op.kind})

    def _access(self, op: SpecOp, tile: SSAValue, first: int, *, windows: bool = False) -> dict[str, Any]:
        where = dict(zip(op.value("coords"), op.operands[first:], strict=True))
        parts = zip(op.value("axes"), op.value("bounds"), shaped_type(tile).shape, strict=True)
        # A bound that the tile never reaches is none.
        bounds = tuple(
            Dim.constant(-1) if self.lowering.is_inside(where[axis], bound, size.value or 1) else bound
            for axis, bound, size in parts
        )
        names = ("coords", "axes", "map", *(["windows"] if windows else []))
        return {"bounds": bounds, **{name: op.value(name) for name in names}}

    def lower_load(self, op: tile_ops.LoadOp) -> None:
        copied = [one for dot in self.plan.dots.values() for one in dot.inputs if one.load is op]
        if copied:
            # The stage that the dot of this block reads too, which waits for it again, in vain.
            self.emit_at("await", self._ring_of(copied[0]))
            operands, major = [self.operand(copied[0]), self._cursor(copied[0])], {"major": copied[0].major}
            self.values[op.result] = self.emit("fragment_read", operands, major, [self.type_of(op.result)]).result
            return
        self.replace(op, "fragment_load", {**self._access(op, op.result, 1, windows=True), "pad": op.pad})

    def lower_store(self, op: tile_ops.StoreOp) -> None:
        is_shared = op.space == SHARED
        values = self._access(op, op.operands[0], 2, windows=not is_shared)
        tile, buffer, *at = self.of(op.operands)
        if is_shared:
            self.store_shared(op, tile, [self.lowering.staging[shaped_type(tile).dtype], buffer, *at], values)
        else:
            self.emit("fragment_store", [tile, buffer, *at], values)

    def store_shared(self, op: SpecOp, tile: SSAValue, to: Sequence[SSAValue], values: Mapping[str, Any]) -> None:
        """Store a tile through shared memory: `to` a staging buffer, and from there by TMA."""
        cut = cut_at(op, values["bounds"], shaped_type(op.operands[1]).shape)
        map = self.map_of(op.operands[1], op.value("box"), -1 if cut is None else cut.dim)
        self.emit("store_tile", [tile, map, *to], values)


class MatrixLowering(Writer):
    """The lowering of one kernel for which everything was chosen: its attributes say what it does."""

    kind = "matrix_kernel"
    features = WGMMA_FEATURES
    kept: tuple[str, ...] = ("registers", "multicast", "row_pairs")
    """Attributes of the tile kernel that the kernel has too."""
    roles: tuple[type[Role], type[Role]] = (Producer, Consumer)

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
        is_able = self.features == WGMMA_FEATURES
        self.threaded = threaded_loads(kernel, self.plan) if is_able else frozenset[SpecOp]()
        """Loads whose rows TMA does not take, and threads copy."""

    @classmethod
    def lower(cls, kernel: SpecOp) -> SpecOp:
        """The kernel of Target IR that a `ttile.kernel` becomes."""
        return cls(kernel).run()

    def run(self) -> SpecOp:
        rings = target_rings(self.plan)
        self._make_tiles(rings)
        self._make_staging()
        self.write_program(rings)
        self.emit("return")
        values = {name: self.kernel.value(name) for name in ("symbols", "writes", "grid", *self.kept)}
        values.update(
            symbol=matrix_symbol(self.kernel.value("symbol")),
            features=tuple(self.features),
            consumers=self.plan.consumers,
        )
        made = make(DIALECT[self.kind], values=values, types=(), regions=[self.entry])
        assert isinstance(made, SpecOp)
        return made

    def write_program(self, rings: Sequence[RingPlan]) -> None:
        """What the CTA does once its memory is there: its warps walk through its programs."""
        for ring in rings:
            copied = ring.copied if ring.copied < ring.bytes else 0
            values = {"stages": ring.stages, "bytes": copied}
            ring.ring = self.emit("ring", ring.tiles, values, [RING]).result
        self.write_warps(rings)

    def write_warps(self, rings: Sequence[RingPlan]) -> None:
        """The walks of warps through the programs: that of a producer, and that of consumers."""
        order = self.order()
        self.emit("roles", (), {}, (), [role(self, rings).role(order) for role in self.roles])

    def is_inside(self, index: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile of a size that begins at an index never reaches a bound."""
        grid = self.kernel.value("grid")
        expr = _expr_of(index)
        if expr is None or bound.value == -1 or not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(expr, {f"%p{axis}": extent - 1 for axis, extent in enumerate(grid)})
        return top is not None and fits(top, size, bound)

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

    def half_of(self, operand: CopiedOperand) -> tuple[str, tuple[int, ...]]:
        """What a CTA copies half of for both of its cluster, and the box it copies."""
        box = operand.box
        if not self.kernel.value("multicast") or all(
            operand.load is not dot.rhs.load for dot in self.plan.dots.values()
        ):
            return "", box.sizes
        if half_of(operand) == "pieces":
            return "pieces", box.sizes
        outer = [max(1, size // 2) for size in box.sizes[:-1]]
        return "rows", (*outer, box.sizes[-1])

    def order(self) -> dict[str, Any]:
        """In what order programs are taken."""
        values = {name: self.kernel.value(name) for name in ("grid", "group")}
        return {**values, "is_descending": self.kernel.value("descending"), "mailbox": self.mailbox}


def _expr_of(index: SSAValue) -> Dim | None:
    """An index over sizes and program ids; None for one that depends on a loop or on memory."""
    op = index.op if isinstance(index, OpResult) else None
    if not isinstance(op, SpecOp):
        return None
    if op.name == "ttile.program_id":
        return Dim.symbol(f"%p{op.value('axis')}")
    if op.name != "ttile.index":
        return None
    parts = {name: _expr_of(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
    known = {name: part for name, part in parts.items() if part is not None}
    return op.value("expr").substitute(known) if len(known) == len(parts) else None
