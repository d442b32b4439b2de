"""`Call`: what a kernel of the library is written for, and `LibraryKernel`, which writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from xdsl.ir import SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.index_maps import IndexMap, compose
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.shape import TensorType

GENERIC = Machine("generic")
Choose = Callable[[str, Sequence[Any]], Any]
"""Answers a knob with one of its candidates, which are in order of preference."""


def first(knob: str, candidates: Sequence[Any]) -> Any:
    """The answer where no one chooses."""
    return candidates[0]


@frozen
class Epilogue:
    """What follows an op in its kernel: `store` writes it to the arguments `writes`.

    It takes the builder, a tile of the op's first result in its dtype, its region, and where its elements are.
    """

    writes: tuple[int, ...]
    store: Callable[[TileBuilder, SSAValue, TileRegion, Sequence[Dim]], None]


@frozen
class Call:
    """One use of a library op.

    Every kernel takes the same buffers: `arguments`. `inputs[i]` is the argument that holds operand `i` (two operands
    may be one), `outputs[i]` the one for result `i`, or None for a result that no one wants. `maps[i]` says where an
    operand is in its argument, for kernels that read views.
    """

    name: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    attributes: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int | None, ...]
    arguments: tuple[TensorType, ...]
    symbols: tuple[str, ...]
    choose: Choose = first
    lanes: int = 8
    span: Span | None = None
    maps: tuple[IndexMap | None, ...] = ()
    machine: Machine = GENERIC
    features: tuple[str, ...] = ()
    """What that machine has."""
    epilogue: Epilogue | None = None
    temporaries: tuple[int, ...] = ()
    """Arguments behind those of the op: memory between its kernels, which each of them takes."""

    def with_temporary(self, type: TensorType) -> Call:
        """The same call with one more tensor between its kernels, which is the last of its arguments."""
        numbers = (*self.temporaries, len(self.arguments))
        return replace(self, arguments=(*self.arguments, type), temporaries=numbers)

    @property
    def narrow_accumulator(self) -> str | None:
        """The format that running sums are rounded to at each step; None where they are in a dtype that computes."""
        asked: DType | None = self.attributes.get("accumulate")
        if asked is None or not asked.is_float or asked.compute is asked:
            return None
        return str(asked)

    def at(self, number: int, at: Sequence[Dim]) -> Sequence[Dim]:
        """Where an element of operand `number` is in the argument that holds it: elsewhere, if it is a view of it."""
        map = self.maps[number] if self.maps else None
        return at if map is None else compose(map, at)

    def builder(
        self,
        grid: Sequence[Dim],
        part: str = "",
        shapes: Mapping[int, Sequence[Dim]] | None = None,
        warps: int = 0,
        writes: Sequence[int] | None = None,
    ) -> TileBuilder:
        """A kernel of this call; `shapes` sees arguments as contiguous tensors of other dims.

        `warps` is how many a program of a GPU has; 0 leaves that to the backend. It writes all results, and no
        temporary, where `writes` does not say which arguments it writes.
        """
        given = shapes or {}
        types = [type.with_shape(given.get(number, type.shape)) for number, type in enumerate(self.arguments)]
        if writes is None:
            results = [number for number in self.outputs if number is not None]
            writes = sorted({*results, *(self.epilogue.writes if self.epilogue is not None else ())})
        name = f"{self.name}_{part}" if part else self.name
        schedule = {"warps": warps} if warps and self.machine.is_gpu else None
        made = TileBuilder(
            name, types, symbols=self.symbols, grid=grid, writes=writes, kind="library", schedule=schedule
        )
        made.span = self.span
        return made

    def input(self, builder: TileBuilder, number: int) -> SSAValue:
        return builder.arguments[self.inputs[number]]

    def output(self, builder: TileBuilder, number: int) -> SSAValue:
        argument = self.outputs[number]
        assert argument is not None, "no one wants this result"
        return builder.arguments[argument]


@frozen
class LibraryKernel:
    """An entry of the library: `write` gives the kernels of a call, in the order they run."""

    name: str
    summary: str
    write: Callable[[Call], list[SpecOp]]

    def build(
        self,
        name: str,
        operands: Sequence[TensorType],
        results: Sequence[TensorType],
        attributes: Mapping[str, Any],
        machine: Any = None,
        choose: Choose = first,
    ) -> list[SpecOp]:
        """The kernels of one op whose buffers are its operands, then its results."""
        types = (*operands, *results)
        symbols = sorted(set[str]().union(*(type.symbols for type in types)))
        count = len(operands)
        call = Call(
            name,
            tuple(operands),
            tuple(results),
            attributes,
            tuple(range(count)),
            tuple(range(count, count + len(results))),
            types,
            tuple(symbols),
            choose,
            machine.lanes if machine is not None else 8,
            machine=machine if machine is not None else GENERIC,
        )
        return self.write(call)


# Kernels that users wrote, as entries of the library: each writes itself.

USER_KERNEL = LibraryKernel(
    "user_kernel",
    "A kernel written in the kernel language.",
    lambda call: KERNELS[call.attributes["kernel"]].write(call),
)
