"""From records to `ttile`: the one place where a kernel of the language meets xDSL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.frontend.kernel.records import INDEX, Body, KernelProgram, Memory, TileOp
from tessera.ir.base import types as attrs
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.dialect import DIALECT
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType


def type_attr(type: Any) -> Any:
    """The type of a value, as xDSL knows it."""
    if type == INDEX:
        return attrs.INDEX
    return attrs.BufferAttr.of(type.type) if isinstance(type, Memory) else attrs.TileAttr.of(type)


class Writer:
    """Writes records at the end of a block, and knows which value each number is."""

    def __init__(self, types: Sequence[Any], block: Block, values: dict[int, SSAValue]) -> None:
        self.types, self.block, self.values = types, block, values

    def body(self, body: Body) -> None:
        for op in body.ops:
            self.op(op)

    def op(self, op: TileOp) -> SpecOp:
        regions: list[Block] = []
        if op.body is not None:
            inner = Block(arg_types=[type_attr(self.types[value]) for value in op.body.arguments])
            self.values.update(zip(op.body.arguments, inner.args, strict=True))
            outer, self.block = self.block, inner
            self.body(op.body)
            self.block.add_op(make(DIALECT["yield"], [self.values[value] for value in op.body.results], types=()))
            self.block = outer
            regions.append(inner)
        made = make(
            DIALECT[op.name],
            [self.values[value] for value in op.operands],
            op.values,
            types=[type_attr(self.types[value]) for value in op.results],
            regions=regions,
            span=op.span,
        )
        self.block.add_op(made)
        self.values.update(zip(op.results, made.results, strict=True))
        return made


def write_kernel(
    program: KernelProgram,
    name: str = "",
    arguments: Sequence[TensorType] | None = None,
    places: Sequence[int] | None = None,
    symbols: Sequence[str] | None = None,
) -> SpecOp:
    """The `ttile.kernel` of a program.

    As a part of a larger program it may take other `arguments`; `places` says which of them each of its own is.
    """
    types = list(arguments if arguments is not None else program.arguments)
    where = list(places if places is not None else range(len(program.arguments)))
    block = Block(arg_types=[attrs.BufferAttr.of(type) for type in types])
    values = {number: block.args[place] for number, place in zip(program.buffers, where, strict=True)}
    Writer(program.types, block, values).body(program.body)
    block.add_op(make(DIALECT["return"], types=()))
    return make(
        DIALECT["kernel"],
        values={
            "symbol": name or program.name,
            "symbols": tuple(symbols if symbols is not None else program.symbols),
            "grid": tuple(Dim.of(dim) for dim in program.grid),
            "writes": tuple(where[program.inputs :]),
            "kind": "library",
            "schedule": dict(program.schedule),
        },
        types=(),
        regions=[block],
    )

