"""Tile kernels whose tiles fit vector registers: every tile is a block of registers, a contraction one `gemm` op.

One worker runs a program from its first op to its last, so a tile is nothing but unrolled vectors, and a barrier is
nothing at all. Index tiles that hold one number throughout (the row that an embedding looks up) are read as scalars:
what they index is then contiguous in its last dim, and a gather becomes a vector load.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.cpu.match_contraction import Match, match_contraction
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, TileAttr, VectorAttr
from tessera.ir.tile.lower_to_target import KernelLowering, access_pattern
from tessera.ir.tile.typed_ops import IndexOp, LoadOp, ProgramIdOp
from tessera.types.dim import Dim
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.ir.tile.typed_ops import FetchOp, StoreOp

# Index tiles that hold one number for the whole tile are read once, as a scalar: what they index is then contiguous.

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

    def __init__(self, kernel: SpecOp, machine: Machine) -> None:
        super().__init__(kernel, machine)
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
        self.emit(
            "gemm", self.of([match.lhs_load.operands[0], match.rhs_load.operands[0]]), match.values(), (), [epilogue]
        )

    def _before(self, op: SpecOp, match: Match) -> None:
        """Program ids and offsets: the epilogue gets batch indices, and element row and column directly."""
        if isinstance(op, ProgramIdOp):
            self.values[op.result] = self.program_ids[op.axis]
        elif isinstance(op, IndexOp) and op.result in match.starts:
            self.values[op.result] = self.program_ids[match.starts[op.result]]
        elif isinstance(op, IndexOp):
            self.values[op.result] = self.emit("index", self.of(op.operands), op.values(), [INDEX]).result
