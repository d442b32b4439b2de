"""A kernel as plain records, without xDSL: what the language writes, what is hashed, and what becomes `ttile`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base import types as attrs
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.language import Place
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

INDEX = "index"
"""The type of an index."""


@frozen
class Memory:
    """The type of a buffer, as a value of a kernel."""

    type: TensorType


@dataclass(slots=True)
class Body:
    """Ops in order; `arguments` and `results` are the values a loop's body takes and carries on."""

    ops: list[TileOp] = field(default_factory=list["TileOp"])
    arguments: tuple[int, ...] = ()
    results: tuple[int, ...] = ()


@dataclass(slots=True)
class TileOp:
    """One op of `ttile`: operands and results are numbers of values."""

    name: str
    operands: tuple[int, ...]
    values: Mapping[str, Any]
    results: tuple[int, ...]
    span: Span | None = None
    body: Body | None = None


@dataclass(slots=True)
class KernelProgram:
    """A whole kernel: arguments (inputs, then results), grid, ops, and what is known of it for schedules."""

    name: str
    arguments: tuple[TensorType, ...]
    inputs: int
    buffers: tuple[int, ...]
    grid: tuple[Dim, ...]
    body: Body
    types: list[Any]
    schedule: tuple[tuple[str, Any], ...] = ()
    numeric: tuple[str, ...] = ()
    """Extents that change bits, not only speed: the block of an online softmax."""
    equalities: tuple[tuple[Dim, Dim, str], ...] = ()
    """Dims that must be equal, where that is not known yet."""
    zeroed: tuple[int, ...] = ()
    """Results that begin as zeros: those that programs add to."""

    @property
    def results(self) -> tuple[TensorType, ...]:
        return self.arguments[self.inputs :]

    @property
    def symbols(self) -> list[str]:
        """The sizes that the kernel is given."""
        return sorted(set[str]().union(*(type.symbols for type in self.arguments)))

    def text(self) -> str:
        """The kernel as text that is the same in every process; spans are left out."""
        head = f"{self.name} {list(map(str, self.arguments))} {self.inputs} {list(map(str, self.grid))} {self.schedule}"
        return "\n".join([head, *_lines(self.body, "")])

    def work(self) -> str:
        """The text of what is done, whatever schedule it came from; hints, which change no result, are left out."""
        lines = _lines(self.body, "", without=("hints", "prefetch", "buffers"))
        return "\n".join([str(list(map(str, self.grid))), *lines])

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text().encode()).hexdigest()


def without_unused(body: Body) -> None:
    """Take out of a body what nothing reads: tiles that were loaded in one order and then again in another."""
    wanted = set(body.results)
    kept: list[TileOp] = []
    for op in reversed(body.ops):
        if op.name in EFFECTS or wanted.intersection(op.results):
            if op.body is not None:
                without_unused(op.body)
                wanted |= _read(op.body)
            wanted.update(op.operands)
            kept.append(op)
    body.ops[:] = reversed(kept)


EFFECTS = ("store", "barrier", "for")
"""Ops that do something besides giving a value."""


def _read(body: Body) -> set[int]:
    found = set(body.results)
    for op in body.ops:
        found.update(op.operands)
        if op.body is not None:
            found |= _read(op.body)
    return found


def _lines(body: Body, indent: str, without: tuple[str, ...] = ()) -> list[str]:
    found: list[str] = []
    for op in body.ops:
        values = ", ".join(f"{name}={_text(value)}" for name, value in sorted(op.values.items()) if name not in without)
        found.append(f"{indent}{op.results} = {op.name}{op.operands} {{{values}}}")
        if op.body is not None:
            found.append(f"{indent}  takes {op.body.arguments}")
            found += _lines(op.body, indent + "  ", without)
            found.append(f"{indent}  gives {op.body.results}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, Dim | DType):
        return str(value)
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return f"({', '.join(map(_text, items))})"
    return repr(value)


# From records to `ttile`: the one place where a kernel of the language meets xDSL.


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
    places: Sequence[int | None] | None = None,
    symbols: Sequence[str] | None = None,
) -> SpecOp:
    """The `ttile.kernel` of a program.

    As a part of a larger program it may take other `arguments`; `places` says which of them each of its own is, or None
    for a result that no one wants.
    """
    types = list(arguments if arguments is not None else program.arguments)
    where: list[int | None] = list(places if places is not None else range(len(program.arguments)))
    block = Block(arg_types=[attrs.BufferAttr.of(type) for type in types])
    values: dict[int, SSAValue] = {
        number: block.args[place] for number, place in zip(program.buffers, where, strict=True) if place is not None
    }
    Writer(program.types, block, values).body(program.body)
    block.add_op(make(DIALECT["return"], types=()))
    return make(
        DIALECT["kernel"],
        values={
            "symbol": name or program.name,
            "symbols": tuple(symbols if symbols is not None else program.symbols),
            "grid": tuple(Dim.of(dim) for dim in program.grid),
            "writes": tuple(place for place in where[program.inputs :] if place is not None),
            "kind": "library",
            "schedule": dict(program.schedule),
        },
        types=(),
        regions=[block],
    )


def write_call(program: KernelProgram, call: Any) -> list[SpecOp]:
    """The kernels of a call inside a larger program: results that programs add to are zeroed first."""
    wanted = [(number, place) for number in program.zeroed if (place := call.outputs[number]) is not None]
    made = [_zeroed(program, call, number, place) for number, place in wanted]
    places = [*call.inputs, *call.outputs]
    return [*made, write_kernel(program, call.name, call.arguments, places, call.symbols)]


def _zeroed(program: KernelProgram, call: Any, number: int, place: int) -> SpecOp:
    """A kernel that fills one result with zeros."""
    size, width = program.results[number].size, 4 * call.lanes
    b = call.builder([size.ceildiv(width)], f"zero{number}", {place: (size,)})
    at = b.index(Dim.symbol("_p") * width, {"_p": b.program_id(0)})
    where = Place({"_i": at}, ("_i",), (width,), {"_i": size})
    b.store(b.full(0, (width,), program.results[number].dtype), b.arguments[place], [Dim.symbol("_i")], where)
    return b.finish()
