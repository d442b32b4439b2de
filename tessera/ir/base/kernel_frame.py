"""What kernels and loops of every level have in common: attributes, and checks of arguments, grids and steps."""

from __future__ import annotations

from xdsl.ir import Operation

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr

KERNEL = (
    Attribute("symbol", "symbol", doc="the kernel's name"),
    Attribute("symbols", "strs", doc="the sizes passed at a call"),
    Attribute("grid", "dims", doc="programs along each axis"),
    Attribute("writes", "ints", doc="the arguments it writes"),
)
"""What a kernel of a grid of programs says about itself."""
STEP = Attribute("step", "int", doc="the step, positive")


def check_arguments(op: SpecOp) -> None:
    """Arguments are buffers, those written are among them, and the grid uses declared sizes only."""
    block = op.regions[0].block
    for argument in block.args:
        if not isinstance(argument.type, BufferAttr):
            op.fail(f"argument {argument.index} of `@{op.value('symbol')}` is {argument.type}, not a buffer")
    if any(not 0 <= index < len(block.args) for index in op.value("writes")):
        op.fail(f"`writes` names arguments 0..{len(block.args) - 1}, got {list(op.value('writes'))}")
    known = set(op.value("symbols"))
    for dim in op.value("grid"):
        if not dim.symbols <= known:
            op.fail(f"the grid uses {sorted(dim.symbols - known)}, and the kernel's sizes are {sorted(known)}")


def check_step(op: SpecOp) -> None:
    """Raises unless a loop makes progress."""
    if op.value("step") <= 0:
        op.fail(f"`step` must be positive, got {op.value('step')}")


def around(op: Operation, *names: str) -> SpecOp | None:
    """The innermost op of one of these names that encloses an op, or is it; None where there is none."""
    at: Operation | None = op
    while at is not None and at.name not in names:
        at = at.parent_op()
    return at if isinstance(at, SpecOp) else None
