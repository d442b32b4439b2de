"""The `tgraph` dialect: the ops of `ir/graph/ops`, functions that hold them, and conversion from and to tapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region

from tessera.diagnostics.codes import GraphVerifyError
from tessera.diagnostics.error import find_nearest
from tessera.ir.base.build import block_of, tape_of
from tessera.ir.base.dialect_of import install, make
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.spec import Attribute, OpSpec, Registry
from tessera.ir.base.tape import DONATED, Guard, Tape
from tessera.ir.base.text import stamp
from tessera.ir.base.types import TensorAttr, attribute_of
from tessera.ir.graph.ops import REGISTRY


def _check_function(op: SpecOp) -> None:
    block = op.regions[0].block
    for argument in block.args:
        if not isinstance(argument.type, TensorAttr):
            op.fail(f"argument {argument.index} of `@{op.value('symbol')}` is {argument.type}, not a tensor")
    names = op.value("names")
    if names and len(names) != len(block.args):
        op.fail(f"`@{op.value('symbol')}` has {len(block.args)} arguments and {len(names)} names")
    for part in block.ops:
        if part.name.split(".", 1)[0] != "tgraph":
            op.fail(f"`@{op.value('symbol')}` holds `{part.name}`, and a function of Graph IR holds ops of `tgraph`")
    donated = op.attributes.get(DONATED)
    if donated is not None and any(not 0 <= number < len(block.args) for number in plain(donated)):
        op.fail(f"`{DONATED}` names arguments {list(plain(donated))}, and there are {len(block.args)}")


def _check_end(op: SpecOp) -> None:
    for value in op.operands:
        if not isinstance(value.type, TensorAttr):
            op.fail(f"`{op.name}` takes tensors, got {value.type}")


FUNC = OpSpec(
    name="tgraph.func",
    summary="A function from tensors to tensors; `guards` are the equalities of dims that are checked at every call.",
    results=(),
    attributes=(
        Attribute("symbol", "symbol", doc="the name it is called by"),
        Attribute("names", "strs", (), "the path of each argument in the user's call"),
        Attribute("guards", "guards", (), "triples (left, right, what)"),
    ),
    regions=("body",),
    form="function",
    verify=_check_function,
)
RETURN, YIELD = (
    OpSpec(
        name=f"tgraph.{name}",
        summary=f"The end of {what}: its results.",
        operands=("values*",),
        results=(),
        is_terminator=True,
        verify=_check_end,
    )
    for name, what in (("return", "a function"), ("yield", "a body of control flow"))
)

STRUCTURE = (FUNC, RETURN, YIELD)

DIALECT = install(Registry("tgraph", (*REGISTRY, *STRUCTURE)), [TensorAttr])
"""All ops of `tgraph`; `REGISTRY` has only those that a program may call."""


# From a tape to a `tgraph` module, where the compiler starts, and back.


def from_tape(tape: Tape, symbol: str = "main") -> ModuleOp:
    """A module with one function: the tape's records in order, its sub-tapes as regions, its spans as locations.

    Types are taken from the tape, where shape rules put them; nothing is inferred or verified here.
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
    """The tape of a function: the inverse of `from_tape`."""
    tape = tape_of(function.regions[0].block, function.value("names"))
    tape.guards = [Guard(left, right, what) for left, right, what in function.value("guards")]
    tape.promises = {name: plain(value) for name, value in function.attributes.items()}
    return tape


def transform_functions(module: ModuleOp, symbol: str, change: Callable[[SpecOp, Tape], Mapping[str, Tape]]) -> None:
    """Put what `change` makes of a function's tape, functions by name, in its place: of one, or of all without a name.

    Raises GraphVerifyError (T0301) where there is no such function, or a name is taken already.
    """
    functions = [op for op in module.ops if isinstance(op, SpecOp) and op.name == FUNC.name]
    names = [str(op.value("symbol")) for op in functions]
    if symbol and symbol not in names:
        near = find_nearest(symbol, names)
        listed = ", ".join(f"`@{name}`" for name in names)
        raise GraphVerifyError(
            f"there is no function `@{symbol}` in this module, which has {listed or 'none'}",
            span=functions[0].span if functions else None,
            fix=f"did you mean `@{near[0]}`?" if near else None,
        )
    for function, name in zip(functions, names, strict=True):
        if symbol not in ("", name):
            continue
        made = change(function, to_tape(function))
        for new in made:
            if new != name and new in names:
                raise GraphVerifyError(f"`@{name}` becomes `@{new}` too, which is defined already", span=function.span)
        for new, tape in made.items():
            op = function_of(tape, new)
            op.location = function.location
            module.body.block.insert_op_before(op, function)
        function.detach()
        function.erase()
