"""The `tgraph` dialect: the ops of `ir/graph/ops`, and the functions that hold them."""

from __future__ import annotations

from tessera.ir.base.dialect_of import install
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec, Registry
from tessera.ir.base.types import TensorAttr
from tessera.ir.graph.ops import REGISTRY


def _check_function(op: SpecOp) -> None:
    block = op.regions[0].block
    for argument in block.args:
        if not isinstance(argument.type, TensorAttr):
            op.fail(f"argument {argument.index} of `@{op.value('symbol')}` is {argument.type}, not a tensor")
    names = op.value("names")
    if names and len(names) != len(block.args):
        op.fail(f"`@{op.value('symbol')}` has {len(block.args)} arguments and {len(names)} names")


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
        Attribute("guards", "any", (), "triples (left, right, what)"),
    ),
    regions=("body",),
    form="function",
    verify=_check_function,
)
RETURN = OpSpec(
    name="tgraph.return",
    summary="The end of a function: its results.",
    operands=("values*",),
    results=(),
    is_terminator=True,
    verify=_check_end,
)
YIELD = OpSpec(
    name="tgraph.yield",
    summary="The end of a body of control flow: its results.",
    operands=("values*",),
    results=(),
    is_terminator=True,
    verify=_check_end,
)

STRUCTURE = (FUNC, RETURN, YIELD)

DIALECT = install(Registry("tgraph", (*REGISTRY, *STRUCTURE)), [TensorAttr])
"""All ops of `tgraph`; `REGISTRY` has only those that a program may call."""
