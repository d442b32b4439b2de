"""Tape in, `tgraph` module out: the first door of the compiler."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.region_tape import block_of, tape_of
from tessera.ir.base.tape import Guard, Tape
from tessera.ir.base.types import attribute_of
from tessera.ir.base.version import stamp
from tessera.ir.graph.dialect import FUNC, RETURN


def from_tape(tape: Tape, symbol: str = "main") -> ModuleOp:
    """A module with one function: the tape's records in order, its sub-tapes as regions, its spans as locations.

    Types are taken from the tape, where shape rules put them; nothing is inferred or verified again here.
    """
    module = ModuleOp([function_of(tape, symbol)])
    stamp(module)
    return module


def function_of(tape: Tape, symbol: str) -> SpecOp:
    """The tape as a function."""
    made = make(
        FUNC,
        values={
            "symbol": symbol,
            "names": tuple(tape.names),
            "guards": tuple((guard.left, guard.right, guard.what) for guard in tape.guards),
        },
        types=(),
        regions=[block_of(tape, RETURN.name)],
    )
    made.attributes.update({name: attribute_of("any", value) for name, value in tape.promises.items()})
    return made


def new_function(symbol: str, arguments: list[object], names: tuple[str, ...] = ()) -> tuple[SpecOp, Block]:
    """A function without ops, and its block to fill; `arguments` are its types."""
    block = Block(arg_types=arguments)  # pyright: ignore[reportArgumentType]
    return make(FUNC, values={"symbol": symbol, "names": names}, types=(), regions=[Region(block)]), block


def to_tape(function: SpecOp) -> Tape:
    """The tape of a function: `from_tape` undone."""
    tape = tape_of(function.regions[0].block, function.value("names"))
    tape.guards = [Guard(left, right, what) for left, right, what in function.value("guards")]
    tape.promises = {name: plain(value) for name, value in function.attributes.items()}
    return tape
