"""What ops of Target IR move between which memory spaces, and with which feature of the machine."""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from tessera.diagnostics.codes import FeatureError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.types.device import moves, problem
from tessera.types.frozen import frozen


@frozen
class Move:
    """From one space to another, by a feature; "" is what every machine does."""

    source: str
    target: str
    feature: str = ""


MOVES: dict[str, tuple[Move, ...]] = {}
"""What ops move, by name; backends add theirs."""


def space_of(buffer: SSAValue) -> str:
    """Where a buffer of a kernel is: arguments and private scratch in global memory, on a processor its only one."""
    op = buffer.op if isinstance(buffer, OpResult) else None
    if isinstance(op, SpecOp) and op.name == "ttarget.scratch":
        return {"shared": "shared", "registers": "register"}.get(op.value("space"), "global")
    assert isinstance(buffer.type, BufferAttr)
    return "global"


def moves_of(op: SpecOp) -> tuple[Move, ...]:
    """What an op moves."""
    if op.name == "ttarget.load":
        return (Move(space_of(op.operands[0]), "register"),)
    if op.name == "ttarget.store":
        return (Move("register", space_of(op.operands[1])),)
    return MOVES.get(op.name, ())


def check_moves(kernel: SpecOp, features: tuple[str, ...]) -> None:
    """Raises FeatureError (T0602) for an op that moves what the machine cannot, with the way that it can."""
    for op in kernel.walk():
        for move in moves_of(op) if isinstance(op, SpecOp) else ():
            wrong = problem(move.source, move.target)
            if not wrong and move.feature and move.feature not in features:
                wrong = f"moving from {move.source} to {move.target} memory by {move.feature} is not this machine's"
            if wrong:
                ways = [way or "plain loads and stores" for way in moves(move.source, move.target)]
                others = [way for way in ways if way in (*features, "plain loads and stores")]
                by_registers = "pass through registers" if "register" not in (move.source, move.target) else ""
                advice = f"it moves there by {others[0]}" if others else by_registers
                raise FeatureError(f"`{op.name}`: {wrong}", span=getattr(op, "span", None), fix=advice or None)
