"""Tile kernels to Target IR on a CPU: tiles become registers where they fit, else blocks in scratch."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.cpu.block_kernels import (
    check_dots,
    check_memory,
    check_owners,
    find_load,
    find_rows,
    is_fresh,
    is_rowwise,
    is_same_index,
    row_vectors_of,
)
from tessera.backends.cpu.match_contraction import Match, choose_instruction, join_images, match_contraction
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr, VectorAttr
from tessera.ir.target import typed_ops as ttarget
from tessera.ir.target.limits import is_multiple, largest
from tessera.ir.tile import typed_ops as ttile
from tessera.ir.tile.lower_to_target import KernelLowering, access_pattern
from tessera.ir.tile.typed_ops import IndexOp, LoadOp, ProgramIdOp
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import u8
from tessera.types.machine import AUTOMATIC, Machine
from tessera.types.shape import TensorType

PREFETCH_BYTES = 512
"""How far ahead loads of prefetched tensors ask for memory: eight cache lines. It is a choice, not a measurement: far
enough for some iterations of a vectorized loop, and near enough to be in the first cache when it is read."""

if TYPE_CHECKING:
    from tessera.ir.tile.typed_ops import FetchOp, StoreOp


# Kernels whose tiles fit vector registers: every tile is a block of registers, a contraction one `gemm` op. One worker
# runs a program from its first op to its last, so a tile is nothing but unrolled vectors, and a barrier is nothing at
# all. Index tiles that hold one number throughout (the row that an embedding looks up) are read as scalars: what they
# index is then contiguous in its last dim, and a gather becomes a vector load.

_KINDS = ("map", "row")
"""Kernels that the schedule makes: a tile of theirs has an element inside, so that its index is there to be read."""


def scalar_index_tiles(kernel: SpecOp) -> set[SSAValue]:
    """Index tiles that hold one number throughout, and that all their users take for nothing else."""
    if kernel.value("kind") not in _KINDS:
        return set()
    loads = [op for op in kernel.walk() if isinstance(op, LoadOp)]
    found = {op.result: _users(op) for op in loads if _is_one_number(op)}
    while True:
        # The index tiles of one reader are all scalars or all tiles: a reader that keeps one as a tile keeps all.
        kept = {tile: users for tile, users in found.items() if all(_finds_rows(user, tile, found) for user in users)}
        if len(kept) == len(found):
            return set(kept)
        found = kept


def _users(op: SpecOp) -> list[SpecOp]:
    return [use.operation for use in op.result.uses if isinstance(use.operation, SpecOp)]


def _is_one_number(op: LoadOp) -> bool:
    """Whether an integer is read at an index that no axis of the tile reaches."""
    axes, coords = set(op.axes), op.coords
    is_plain = len(op.operands) == 1 + len(coords) and not op.windows
    reached = set[str]().union(*(expr.symbols for expr in op.map))
    type = op.result.type
    is_integer = isinstance(type, TileAttr) and type.dtype.is_integer and type.dtype.bits >= 8
    return bool(axes) and is_plain and is_integer and not reached & axes


def _finds_rows(reader: SpecOp, tile: SSAValue, numbers: Container[SSAValue]) -> bool:
    """Whether a load takes a tile as an index only, and reads nothing where that one would not have been read."""
    if not isinstance(reader, LoadOp) or not isinstance(tile.owner, LoadOp):
        return False
    tiles = reader.operands[1 + len(reader.coords) :]
    return all(other in numbers for other in tiles) and _edges(tile.owner) <= _edges(reader)


def _edges(op: LoadOp) -> set[tuple[SSAValue, object]]:
    where = dict(zip(op.coords, op.operands[1:], strict=False))
    edges = zip(op.axes, op.bounds, strict=True)
    return {(where[axis], bound) for axis, bound in edges if bound.value != -1}


class Lowering(KernelLowering):
    """The lowering of one kernel whose tiles fit registers."""

    def __init__(self, kernel: SpecOp, machine: Machine, unit: str = AUTOMATIC) -> None:
        super().__init__(kernel, machine)
        self.unit = unit
        """The matrix instruction that is asked for."""
        self.inside: dict[SSAValue, Dim] = {}
        """Bounds that an index is below, because the loop that gives the index ends there."""
        self.scalar_indices = scalar_index_tiles(kernel)
        """Index tiles that hold one number, and are read as that."""
        self.narrow = 0
        """Lanes of an epilogue: its tiles become one row of so many, whatever they were."""
        self.prepare()

    def prepare(self) -> None:
        """What a subclass adds."""

    def run(self) -> SpecOp:
        match = match_contraction(self.kernel)
        if match is None:
            self.lower_programs()
        else:
            self._contraction(match)
        return self.finish(self.machine.features)

    def vectors(self, results: Sequence[SSAValue]) -> list[Any]:
        types = [result.type.data for result in results if isinstance(result.type, TileAttr)]
        if self.narrow:
            types = [type.with_shape([1, self.narrow][-type.rank :] if type.rank else []) for type in types]
        return [VectorAttr.of(type) for type in types]

    def lower_barrier(self, op: SpecOp) -> None:
        """A program is one worker here, so nobody waits at a barrier."""

    # Accesses.

    def lower_fetch(self, op: FetchOp | LoadOp) -> None:
        buffer = op.operands[0].type
        assert isinstance(buffer, BufferAttr)
        offset = linear(op.map, buffer.shape)
        where = {name: at for name, at in zip(op.coords, op.operands[1:], strict=True) if name in offset.symbols}
        values = {"coords": tuple(where), "offset": offset}
        self.values[op.result] = self.emit("fetch", self.of([op.operands[0], *where.values()]), values, [INDEX]).result

    def is_safe(self, coordinate: SSAValue, bound: Dim, size: int) -> bool:
        return self.inside.get(coordinate) == bound or super().is_safe(coordinate, bound, size)

    def access(self, op: LoadOp | StoreOp, buffer: TensorType, sizes: Sequence[Dim], first: int) -> dict[str, Any]:
        """An access whose index tiles may be single numbers: those become coordinates."""
        values = super().access(op, buffer, sizes, first)
        tiles = op.operands[first + len(op.coords) :]
        numbers = {
            f"t{number}": Dim.symbol(f"_t{number}") for number, tile in enumerate(tiles) if tile in self.scalar_indices
        }
        if numbers:
            offset = values["offset"].substitute(numbers)
            values.update(
                coords=(*values["coords"], *(f"_{name}" for name in numbers)),
                offset=offset,
                pattern=access_pattern(offset, values["axes"], len(tiles) - len(numbers)),
                windows=tuple(expr.substitute(numbers) for expr in values["windows"]),
            )
        return values

    def lower_load(self, op: LoadOp) -> None:
        if op.result in self.scalar_indices:
            self.lower_fetch(op)
        else:
            super().lower_load(op)
            self._prefetch(op)

    def _prefetch(self, op: LoadOp) -> None:
        """Write how far ahead a load of a prefetched tensor asks for memory: caches are this machine's `shared`."""
        made = self.values[op.result].owner
        hints: dict[str, Any] = op.hints or {}
        is_asked = hints.get("space") == "shared"
        if is_asked and isinstance(made, ttarget.LoadOp) and made.pattern == "contiguous" and made.axes:
            made.prefetch = PREFETCH_BYTES

    # Contractions.

    def _contraction(self, match: Match) -> None:
        """One `gemm` op; what follows the loop over K becomes its epilogue, on one row of accumulators."""
        count = len(match.batch)
        acc = match.loop.results[0].type
        assert isinstance(acc, TileAttr)
        self.narrow = self.machine.lanes * 4 // acc.dtype.bytes
        row_type = VectorAttr.of(TensorType.of([1, self.narrow], acc.dtype))
        epilogue = Block(arg_types=[*[INDEX] * (count + 2), row_type])
        self.block = epilogue
        self.program_ids = list(epilogue.args[: count + 2])
        self.values[match.loop.results[0]] = epilogue.args[-1]
        for start, axis in match.starts.items():
            if axis == count:
                self.inside[start] = match.m
        for op in match.before:
            self._before(op, match)
        for op in match.after:
            self.lower(op)
        self.emit("yield")
        self.block, self.span = self.entry, match.loop.span
        values = match.values()
        values |= choose_instruction(match, acc.dtype, self.machine, self.unit)
        operands = self.of([match.lhs_load.operands[0], match.rhs_load.operands[0]])
        made = self.emit("gemm", operands, values, (), [epilogue])
        assert isinstance(made, ttarget.GemmOp)
        join_images(made, self.narrow, self.machine.registers // 8)

    def _before(self, op: SpecOp, match: Match) -> None:
        """Program ids and offsets: the epilogue gets batch indices, and element row and column directly."""
        if isinstance(op, ProgramIdOp):
            self.values[op.result] = self.program_ids[op.axis]
        elif isinstance(op, IndexOp) and op.result in match.starts:
            self.values[op.result] = self.program_ids[match.starts[op.result]]
        elif isinstance(op, IndexOp):
            self.values[op.result] = self.emit("index", self.of(op.operands), op.values(), [INDEX]).result


# Kernels with dots inside: tiles are blocks in scratch, and ops between two dots are loops over their rows. Every such
# op works row by row (elementwise, broadcast along a row, reduced along it), so a run of them becomes one loop over the
# rows of the block, with a row in registers: one pass over memory for the whole run. Dots run on packed panels of the
# blocks. Rows beyond the edge are not computed at all: nothing reads them.

_LEFT_TO_DOT = ("ttile.load", "ttile.cast", "ttile.transpose")
_SCALAR = ("ttile.program_id", "ttile.index", "ttile.fetch", "ttile.scratch")


def panel_bytes(lanes: int, lhs: TileAttr, out: TileAttr) -> int:
    """Bytes for both operands of a dot in panels, with slack for whole registers."""
    rows, max_k = (dim.value or 0 for dim in lhs.shape)
    columns = out.shape[1].value or 0
    wide = -(-columns // (4 * lanes)) * 4 * lanes
    return (rows * max_k + wide * max_k + 16 * lanes) * 8 + 128


def has_dots(kernel: SpecOp) -> bool:
    """Whether a kernel multiplies tiles."""
    return any(isinstance(op, ttile.DotOp) for op in kernel.walk())


def goes_by_rows(kernel: SpecOp) -> bool:
    """Whether a tile kernel has its tiles as blocks in scratch, which code goes over row by row."""
    return match_contraction(kernel) is None and (has_dots(kernel) or is_rowwise(kernel))


class BlockLowering(Lowering):
    """Lowers a kernel whose tiles are blocks in memory."""

    def prepare(self) -> None:
        self.storage: dict[SSAValue, SSAValue] = {}
        self.segment: list[SpecOp] = []
        self.in_row = False
        check_memory(self.kernel)
        check_dots(self.kernel)
        check_owners(self.kernel)
        self.rows = find_rows(self.kernel)
        self.row_vectors = row_vectors_of(self.kernel)

    # Rows.

    def row_type(self, type: Any) -> TensorType:
        """A block as one of its rows; a column as one number."""
        return type.data.with_shape(type.shape[1:])

    def vectors(self, results: Sequence[SSAValue]) -> list[Any]:
        tiles = [(result, result.type) for result in results if isinstance(result.type, TileAttr)]
        in_rows = [self.in_row and result not in self.row_vectors for result, _ in tiles]
        return [
            VectorAttr.of(self.row_type(type) if is_row else type.data)
            for (_, type), is_row in zip(tiles, in_rows, strict=True)
        ]

    def lower_block(self, source: Block) -> None:
        for op in source.ops:
            assert isinstance(op, SpecOp)
            if op.name in _SCALAR:
                if op.results[0] not in self.values:
                    self.lower(op)
                continue
            if source is self.source:
                self._begin_rows(self.rows.coords.values())
            if isinstance(op, ttile.BarrierOp):
                self._flush()
            elif isinstance(op, ttile.DotOp):
                self._flush()
                self._dot(op)
            elif isinstance(op, ttile.ForOp):
                self._flush()
                self._block_loop(op)
            elif op.results and op.results[0] in self.row_vectors:
                continue  # computed in the rows that want it
            elif not isinstance(op, ttile.ReturnOp | ttile.YieldOp) and not self._is_left_to_dot(op):
                self.segment.append(op)
        self._flush()

    def _begin_rows(self, indices: Iterable[SSAValue]) -> None:
        """Compute where rows begin and end before any row: a store says it, which may be behind all that has rows."""
        for index in indices:
            op = index.owner
            if index not in self.values and isinstance(op, IndexOp | ProgramIdOp):
                self._begin_rows(op.operands)
                if all(operand in self.values for operand in op.operands):
                    self.lower(op)

    def _is_left_to_dot(self, op: SpecOp) -> bool:
        """Whether an op only leads memory, or the zero it starts from, to a dot, which reads it itself."""
        if isinstance(op, ttile.ConstantOp):
            uses = op.results[0].uses
            return not op.value("value") and all(isinstance(u.operation, ttile.DotOp) and u.index == 2 for u in uses)
        if op.name not in _LEFT_TO_DOT:
            return False
        for use in op.results[0].uses:
            user = use.operation
            is_rhs = isinstance(user, ttile.DotOp) and use.index == 1
            if not is_rhs and not (isinstance(user, SpecOp) and self._is_left_to_dot(user)):
                return False
        return bool(op.results[0].uses)

    def storage_of(self, value: SSAValue) -> SSAValue:
        """The scratch of a block; made when first asked for."""
        if value not in self.storage:
            assert isinstance(value.type, TileAttr)
            self.storage[value] = self.allocate(value.type.data)
        return self.storage[value]

    def _flush(self) -> None:
        """Write the pending ops as one loop over rows."""
        ops, self.segment = self.segment, []
        if not ops:
            return
        inside = set(ops)
        kept = [
            op.results[0] for op in ops if op.results and any(u.operation not in inside for u in op.results[0].uses)
        ]
        self._reuse_storage(kept, ops)
        for value in kept:
            self.storage_of(value)
        outer, body = self.block, Block(arg_types=[INDEX])
        rows, coords = self.rows.extent, self.rows.coords
        names = tuple(coords)
        low = self.emit("index", (), {"names": (), "expr": Dim.constant(0)}, [INDEX]).result
        high = self.emit("index", self.of(list(coords.values())), {"names": names, "expr": rows}, [INDEX]).result
        self.block, self.in_row = body, True
        saved = dict(self.values)
        self.row_index = body.args[0]
        for op in ops:
            self.lower_row(op)
        for value in kept:
            self._store_row(value)
        self.emit("yield")
        self.values = saved
        self.block, self.in_row = outer, False
        self.emit("loop", [low, high], {"step": 1}, (), [body])

    def _reuse_storage(self, kept: Sequence[SSAValue], ops: Sequence[SpecOp]) -> None:
        """Let a block reuse the scratch of one that nothing reads any more: a row is read before it is written."""
        inside = set(ops)
        dying = [
            operand
            for operand in dict.fromkeys(operand for op in ops for operand in op.operands)
            if isinstance(operand, OpResult)
            and operand.op.parent is ops[0].parent  # one from before a loop is read in the next iteration too
            and operand in self.storage
            and all(use.operation in inside for use in operand.uses)
        ]
        taken = {self.storage[value] for value in kept if value in self.storage}
        for value in kept:
            if value in self.storage:
                continue
            for operand in dying:
                storage_of = self.storage[operand]
                if operand.type == value.type and storage_of not in taken and self._is_alone(operand):
                    self.storage[value] = storage_of
                    taken.add(storage_of)
                    break

    def _is_alone(self, value: SSAValue) -> bool:
        """Whether no other value has this scratch."""
        return sum(buffer is self.storage[value] for buffer in self.storage.values()) == 1

    def of(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [self.values[value] if value in self.values else self._materialize(value) for value in values]

    def _materialize(self, value: SSAValue) -> SSAValue:
        """What is not in a register: a row of a block in scratch, or a row vector, which each row computes."""
        if value not in self.row_vectors:
            return self._load_row(value)
        assert isinstance(value, OpResult)
        assert isinstance(value.op, SpecOp)
        self.lower(value.op)
        return self.values[value]

    def _load_row(self, value: SSAValue) -> SSAValue:
        """A row of a block in scratch."""
        if value.type == INDEX:
            raise TargetVerifyError(
                "rows of a kernel that multiplies tiles begin and end where its programs say, not its loops, on CPUs",
                span=self.span,
                fix="store behind the loop",
            )
        assert self.in_row, f"{value} is not in a register"
        at, access = self._row_address(value)
        types = [VectorAttr.of(self.row_type(value.type))]
        made = self.values[value] = self.emit("load", [self.storage[value], *at], {**access, "pad": 0}, types).result
        return made

    def _store_row(self, value: SSAValue) -> None:
        at, access = self._row_address(value)
        self.emit("store", [self.values[value], self.storage[value], *at], {**access, "mode": "set"})

    def _row_address(self, value: SSAValue) -> tuple[list[SSAValue], dict[str, Any]]:
        """The coordinates and attributes of an access of the current row of a block in scratch."""
        assert isinstance(value.type, TileAttr)
        type, row, column = self.row_type(value.type), Dim.symbol("_row"), Dim.symbol("_col")
        coords: dict[str, SSAValue] = {"_row": self.row_index}
        offset = row
        if not value.type.shape:
            coords, offset = {}, Dim.constant(0)  # one number, which all rows have
        elif type.rank:
            coords["_col"] = self.emit("index", (), {"names": (), "expr": Dim.constant(0)}, [INDEX]).result
            offset = row * type.shape[0] + column
        align = 64 if type.rank and (type.bytes % 64).value == 0 else type.dtype.bytes
        axes = ("_col",) if "_col" in coords else ()
        access = {"coords": tuple(coords), "axes": axes, "offset": offset, "pattern": "contiguous", "align": align}
        return list(coords.values()), access

    def lower_row(self, op: SpecOp) -> None:
        """An op on blocks, for one row."""
        self.span = op.span
        if isinstance(op, ttile.BroadcastOp):
            operands = self.of(op.operands)
            if op.operands[0] in self.row_vectors:
                self.values[op.result] = operands[0]  # all rows have it
            else:
                self.values[op.result] = self.emit("broadcast", operands, {"axes": ()}, self.vectors(op.results)).result
        elif isinstance(op, ttile.TransposeOp):
            raise TargetVerifyError(
                "rows of a transposed tile are not rows of the block it comes from",
                span=op.span,
                fix="load the tile transposed",
            )
        elif isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp):
            self._row_reduce(op)
        elif isinstance(op, ttile.LoadOp | ttile.StoreOp | ttile.CoordinateOp | ttile.ClipOp) and op.axes:
            self._row_access(op)
        else:
            self.lower(op)

    def _row_reduce(self, op: SpecOp) -> None:
        self.replace(op, op.spec.short_name, {"kind": op.value("kind"), "axis": op.value("axis") - 1})

    def _row_access(self, op: SpecOp) -> None:
        """The first axis becomes a coordinate: where the block starts, and the row."""
        first = {"ttile.load": 1, "ttile.store": 2, "ttile.coordinate": 0, "ttile.clip": 1}[op.name]
        coords: tuple[str, ...] = op.value("coords")
        axes: tuple[str, ...] = op.value("axes")
        where = dict(zip(coords, op.operands[first:], strict=False))
        start = self.values[where[axes[0]]]
        names = {"names": (axes[0], "_row"), "expr": Dim.symbol(axes[0]) + Dim.symbol("_row")}
        row = self.emit("index", [start, self.row_index], names, [INDEX]).result
        at = [row if name == axes[0] else self.values[where[name]] for name in coords]
        values: dict[str, Any] = {"coords": coords, "axes": axes[1:]}
        if isinstance(op, ttile.CoordinateOp):
            values["expr"] = op.expr
            self.values[op.result] = self.emit("coordinate", at, values, self.vectors(op.results)).result
        elif isinstance(op, ttile.ClipOp):
            values.update({name: op.value(name) for name in ("axis", "bound", "identity")})
            operands = [*self.of(op.operands[:1]), *at]
            self.values[op.result] = self.emit("clip", operands, values, self.vectors(op.results)).result
        else:
            assert isinstance(op, ttile.LoadOp | ttile.StoreOp)
            self._row_memory(op, values, at, where, first)

    def _row_memory(
        self,
        op: ttile.LoadOp | ttile.StoreOp,
        values: dict[str, Any],
        at: list[SSAValue],
        where: dict[str, SSAValue],
        first: int,
    ) -> None:
        buffer = op.operands[first - 1].type
        tile = op.results[0].type if first == 1 else op.operands[0].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        axes: tuple[str, ...] = op.axes
        if isinstance(op, ttile.LoadOp):
            self._check_rows(op, where[axes[0]], tile.shape[0])
        offset = linear(op.map, buffer.shape)
        guarded = self.guards(op, where, tile.shape, 1)
        values.update(
            offset=offset,
            pattern=access_pattern(offset, axes[1:], len(op.operands) - first - len(where)),
            align=buffer.dtype.bytes,
            guarded=tuple(axis for axis, _ in guarded),
            bounds=tuple(bound for _, bound in guarded),
            windows=op.windows,
        )
        tiles = self.of(op.operands[first + len(where) :])
        if isinstance(op, ttile.LoadOp):
            values["pad"] = op.pad
            operands = [*self.of(op.operands[:1]), *at, *tiles]
            self.values[op.result] = self.emit("load", operands, values, self.vectors(op.results)).result
            self._prefetch(op)
        else:
            values["mode"] = op.mode
            self.emit("store", [*self.of(op.operands[:2]), *at, *tiles], values)

    def _check_rows(self, load: ttile.LoadOp, start: SSAValue, height: Dim) -> None:
        """Raises where a load may end before the rows that are computed do: rows are read without a guard."""
        axis, bound = load.axes[0], load.bounds[0]
        is_row = bound == self.rows.bound and is_same_index(start, self.rows.start)
        if bound.value != -1 and not is_row and not self.is_safe(start, bound, height.value or 1):
            raise TargetVerifyError(
                f"`{axis}` of this load ends at {bound}, but the kernel computes {self.rows.extent} rows",
                span=load.span,
                fix="let loads and stores of a kernel that multiplies tiles end at the same row",
            )

    # Loops and dots.

    def _block_loop(self, op: SpecOp) -> None:
        """A loop that carries blocks: each has one buffer, which its body reads and writes."""
        source = op.regions[0].block
        last = source.last_op
        assert last is not None
        for start, inner, result, end in zip(op.operands[2:], source.args[1:], op.results, last.operands, strict=True):
            storage_of = self.storage_of(start)
            self.storage[inner] = self.storage[result] = storage_of
            self._assign_storage(end, storage_of, inner)
        outer, body = self.block, Block(arg_types=[INDEX])
        bounds = self.of(op.operands[:2])
        self.values[source.args[0]] = body.args[0]
        low, high, step = self.expr(op.operands[0]), self.expr(op.operands[1]), op.value("step")
        end = largest(high, self.tops)
        is_even = low.value == 0 and is_multiple(high, step)
        top = None if end is None else end - (step if is_even else 1)
        self.name_index(source.args[0], top)
        self.block = body
        self.lower_block(source)
        self.emit("yield")
        self.block = outer
        # A last part of a step is a whole iteration here: dots and rows know their own edges.
        self.emit("loop", bounds, {"step": op.value("step"), "is_partial": True}, (), [body])

    def _assign_storage(self, value: SSAValue, storage_of: SSAValue, inner: SSAValue) -> None:
        """What a body ends with gets the buffer of the carried block, and so does the accumulator it was added to."""
        if value is inner:
            return
        assert value not in self.storage, "a block is carried on twice"
        self.storage[value] = storage_of
        if isinstance(value, OpResult) and isinstance(value.op, ttile.DotOp) and not is_fresh(value.op.operands[2]):
            self._assign_storage(value.op.operands[2], storage_of, inner)

    def _dot(self, op: SpecOp) -> None:
        self.span = op.span
        lhs, rhs, acc = op.operands
        assert isinstance(lhs.type, TileAttr)
        assert isinstance(acc.type, TileAttr)
        fresh = is_fresh(acc)
        if op.result not in self.storage:
            self.storage[op.result] = self.storage_of(op.result) if fresh else self.storage_of(acc)
        assert fresh or self.storage[acc] is self.storage[op.result], "an accumulator is used after its dot"
        rows, coords = self.rows.extent, self.rows.coords
        load, is_transposed = find_load(rhs, op)
        k, n, where, offset = self._rhs_in_memory(load, is_transposed)
        names = dict(coords) | where
        width = acc.type.shape[1].value or 0
        max_k = lhs.type.shape[1].value or 0
        panels = self.allocate(TensorType.of([panel_bytes(self.machine.lanes, lhs.type, acc.type)], u8))
        values = {
            "names": tuple(names),
            "m": rows,
            "n": n,
            "k": k,
            "max_rows": lhs.type.shape[0].value,
            "max_k": max_k,
            "lhs_offset": Dim.symbol("_row") * max_k + Dim.symbol("_inner_k"),
            "rhs_offset": offset,
            "out_stride": width,
            "is_fresh": fresh,
        }
        operands = [self.storage[lhs], self.values[load.operands[0]], self.storage[op.result], panels]
        self.emit("block_dot", [*operands, *self.of(list(names.values()))], values)

    def _rhs_in_memory(self, load: ttile.LoadOp, is_transposed: bool) -> tuple[Dim, Dim, dict[str, SSAValue], Dim]:
        """B in memory: how much of K and of its columns is there, index values, offset over `_inner_k` and `_col`."""
        buffer, tile = load.operands[0].type, load.results[0].type
        assert isinstance(buffer, BufferAttr)
        assert isinstance(tile, TileAttr)
        axes: tuple[str, ...] = load.axes
        if load.windows or load.pad or len(load.operands) != 1 + len(load.coords):
            raise TargetVerifyError(
                "the B operand of a dot is read in place on CPUs: without windows, pads and index tiles",
                span=load.span,
                fix="store the tile to scratch first, and load it from there",
            )
        coords = dict(zip(load.coords, load.operands[1:], strict=True))
        inner = ("_col", "_inner_k") if is_transposed else ("_inner_k", "_col")
        extents = {
            name: size if bound.value == -1 else minimum(size, bound - Dim.symbol(axis))
            for name, axis, bound, size in zip(inner, axes, load.bounds, tile.shape, strict=True)
        }
        offset = linear(load.map, buffer.shape)
        offset = offset.substitute(
            {axis: Dim.symbol(axis) + Dim.symbol(name) for axis, name in zip(axes, inner, strict=True)}
        )
        return extents["_inner_k"], extents["_col"], coords, offset


# Kernels whose tiles are computed in loops over parts of them (`tile_loops.py`): whole tiles are left to dots alone,
# which find them in scratch.


class LoopLowering(Lowering):
    """The lowering of a kernel that `TileLoops` has written."""

    def lower_load(self, op: LoadOp) -> None:
        if not _is_of_dots(op):
            super().lower_load(op)

    def lower_constant(self, op: SpecOp) -> None:
        if not _is_of_dots(op):
            self.lower_same(op)

    def lower_store(self, op: StoreOp) -> None:
        if not isinstance(op.operands[0].owner, ttile.DotOp):
            super().lower_store(op)

    def lower_dot(self, op: SpecOp) -> None:
        (use,) = op.results[0].uses
        out, acc = use.operation.operands[1], op.results[0].type
        assert isinstance(acc, TileAttr)
        lhs, lhs_offset = self._in_scratch(op.operands[0], ("_row", "_inner_k"))
        rhs, rhs_offset = self._in_scratch(op.operands[1], ("_inner_k", "_col"))
        type = op.operands[0].type
        assert isinstance(type, TileAttr)
        panels = self.allocate(TensorType.of([panel_bytes(self.machine.lanes, type, acc)], u8))
        (m, k), n = type.shape, acc.shape[1]
        values = {
            "names": (),
            "m": m,
            "n": n,
            "k": k,
            "max_rows": m.value,
            "max_k": k.value,
            "out_stride": n.value,
            "lhs_offset": lhs_offset,
            "rhs_offset": rhs_offset,
            "is_fresh": is_fresh(op.operands[2]),
        }
        self.emit("block_dot", [lhs, rhs, self.values[out], panels], values)

    def _in_scratch(self, value: SSAValue, axes: tuple[str, str]) -> tuple[SSAValue, Dim]:
        """The memory of an operand, and the offset of an element."""
        load = value.owner
        assert isinstance(load, LoadOp)
        buffer = load.operands[0].type
        assert isinstance(buffer, BufferAttr)
        names = dict(zip(load.axes, map(Dim.symbol, axes), strict=True))
        return self.values[load.operands[0]], linear(load.map, buffer.shape).substitute(names)

    def loop_values(self, op: SpecOp, name: str) -> dict[str, Any]:
        low, high = (self.expr(value) for value in op.operands[:2])
        return {"step": op.value("step"), "is_partial": not is_multiple(high - low, op.value("step"))}

    def lower_for(self, op: ttile.ForOp) -> None:
        """One loop, whose last iteration may be of a part of a step: a tail would be the whole text once more."""
        low, high = (self.expr(value) for value in op.operands[:2])
        end = largest(high, self.tops)
        step = op.step if is_multiple(high - low, op.step) else 1
        self.lower_body("loop", op, [], None if end is None else end - step)


def _is_of_dots(op: SpecOp) -> bool:
    """Whether only dots read a tile."""
    return all(isinstance(use.operation, ttile.DotOp) for use in op.results[0].uses)
