"""From records to `ttile`: the one module in which a kernel of the language becomes xDSL ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.ir.base import types as attrs
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.language import TileRegion
from tessera.ir.tile.records import INDEX, Body, KernelProgram, Memory, TileOp
from tessera.types.dim import Dim
from tessera.types.shape import TensorType


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
            if op.name != "store" or op.operands[1] in self.values:
                self.op(op)

    def op(self, op: TileOp) -> SpecOp:
        """One op; a store to a result that no one wants is left to `body` to leave out."""
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
    positions: Sequence[int | None] | None = None,
    symbols: Sequence[str] | None = None,
) -> SpecOp:
    """The `ttile.kernel` of a program.

    As a part of a larger program it may take other `arguments`; `positions` says which of them each of its own is, or
    None for a result that no one wants.
    """
    types = list(arguments if arguments is not None else program.arguments)
    where: list[int | None] = list(positions if positions is not None else range(len(program.arguments)))
    block = Block(arg_types=[attrs.BufferAttr.of(type) for type in types])
    values: dict[int, SSAValue] = {
        number: block.args[index] for number, index in zip(program.buffers, where, strict=True) if index is not None
    }
    Writer(program.types, block, values).body(program.body)
    block.add_op(make(DIALECT["return"], types=()))
    return make(
        DIALECT["kernel"],
        values={
            "symbol": name or program.name,
            "symbols": tuple(symbols if symbols is not None else program.symbols),
            "grid": tuple(Dim.of(dim) for dim in program.grid),
            "writes": tuple(index for index in where[program.inputs :] if index is not None),
            "kind": "library",
            "schedule": dict(program.schedule),
        },
        types=(),
        regions=[block],
    )


def write_call(program: KernelProgram, call: Any) -> list[SpecOp]:
    """The kernels of a call inside a larger program: results that programs add to are zeroed first."""
    wanted = [(number, index) for number in program.zeroed if (index := call.outputs[number]) is not None]
    made = [_zero(program, call, number, index) for number, index in wanted]
    positions = [*call.inputs, *call.outputs]
    return [*made, write_kernel(program, call.name, call.arguments, positions, call.symbols)]


def _zero(program: KernelProgram, call: Any, number: int, index: int) -> SpecOp:
    """A kernel that fills one result with zeros."""
    size, width = program.results[number].size, 4 * call.lanes
    b = call.builder([size.ceildiv(width)], f"zero{number}", {index: (size,)})
    at = b.index(Dim.symbol("_p") * width, {"_p": b.program_id(0)})
    where = TileRegion({"_i": at}, ("_i",), (width,), {"_i": size})
    b.store(b.full(0, (width,), program.results[number].dtype), b.arguments[index], [Dim.symbol("_i")], where)
    return b.finish()
