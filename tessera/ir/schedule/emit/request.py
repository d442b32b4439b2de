"""What a kernel is made from: its body, sizes, grid and buffers, the walk over its parallel dims, and the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from xdsl.ir import SSAValue

from tessera.ir.base.choice import Chooser
from tessera.ir.base.index_maps import IndexMap, collapse, delinear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.tile.language import TileBuilder
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.policy import SILENT, Policy
from tessera.types.tensor_type import TensorType


class KernelLibrary(Protocol):
    """Kernels by name, which `api` gives the compiler."""

    def emit(self, name: str, request: Request) -> Sequence[SpecOp]:
        """The tile kernels of entry `name` for the one library op of `request.body`, in the order they run.

        Each takes the body's inputs and then its outputs as buffers, and is named after `request.name`.
        """
        ...


@frozen
class Request:
    """One kernel to emit: its name, its body, the machine and who chooses sizes."""

    name: str
    body: Tape
    machine: Machine
    chooser: Chooser
    policy: Policy = SILENT
    """The policy of records that have none of their own."""
    axes: tuple[int, ...] = ()
    """The reduced axes of a row group."""
    library: KernelLibrary | None = None
    """Where kernels of library ops come from."""

    @property
    def sizes(self) -> list[str]:
        """The names of the sizes a kernel of this body takes, in order."""
        return size_names(self.body)

    @property
    def arguments(self) -> list[TensorType]:
        """Inputs, then outputs."""
        return [self.body.types[value] for value in (*self.body.inputs, *self.body.outputs)]

    @property
    def writes(self) -> list[int]:
        first = len(self.body.inputs)
        return list(range(first, first + len(self.body.outputs)))

    def choose(self, knob: str, candidates: Sequence[int], **context: object) -> int:
        return self.chooser.choose(f"{knob}@{self.name}", candidates, {"machine": self.machine, **context}).value

    def builder(self, grid: Sequence[Dim], kind: str, flat: bool) -> TileBuilder:
        types = [TensorType.of([t.size], t.dtype) if flat else t for t in self.arguments]
        return TileBuilder(self.name, types, symbols=self.sizes, grid=grid, writes=self.writes, kind=kind)


def size_names(body: Tape) -> list[str]:
    """All symbols of a body: of its types, and of the dims among its attributes."""
    found: set[str] = set()
    for type in body.types:
        found |= type.symbols
    for record in body.records:
        for value in record.attributes.values():
            found |= _symbols(value)
    return sorted(found)


def _symbols(value: object) -> set[str]:
    if isinstance(value, Dim):
        return set(value.symbols)
    found: set[str] = set()
    if isinstance(value, (tuple, list)):
        for part in cast("Sequence[object]", value):
            found |= _symbols(part)
    return found


@frozen
class Walk:
    """The parallel dims in groups that are walked as one: coordinate `names[g]` runs over all dims of group `g`."""

    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    shape: tuple[Dim, ...]

    @property
    def extents(self) -> tuple[Dim, ...]:
        return tuple(product(self.shape[axis] for axis in group) for group in self.groups)

    def at(self) -> IndexMap:
        """The coordinates of every dim, from those of the groups."""
        found: dict[int, Dim] = {}
        for name, group in zip(self.names, self.groups, strict=True):
            parts = delinear(Dim.symbol(name), [self.shape[axis] for axis in group])
            found.update(zip(group, parts, strict=True))
        return tuple(found[axis] for axis in range(len(self.shape)))


def walk_over(names: Sequence[str], extents: Sequence[Dim], addresses: Sequence[Dim], numbers: Sequence[Dim]) -> Walk:
    """The walk over dims that joins as many as all addresses allow, but for those used as `numbers`."""
    groups = collapse(names, extents, addresses, numbers)
    return Walk(tuple(f"_p{g}" for g in range(len(groups))), tuple(map(tuple, groups)), tuple(extents))


def buffers_of(body: Tape, tile: TileBuilder) -> tuple[dict[int, SSAValue], list[SSAValue]]:
    """The buffers of inputs by value, and of outputs in order."""
    count = len(body.inputs)
    inputs = dict(zip(body.inputs, tile.arguments[:count], strict=True))
    return inputs, tile.arguments[count:]
