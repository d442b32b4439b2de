"""What `explain` says of tensors on their way: which kernel reads each, and by what it is moved where."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import BlockArgument, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import ShapedAttr

ENGINES = {
    "ttarget.tensor_map": "by the copy engine (TMA), blocks ahead of their use",
    "ttarget.copy_async": "by copies that nobody waits for (cp.async), blocks ahead of their use",
}
"""What a machine moves an argument with, by the op that says so."""
LIES = "by its own loads"


def movements_of(program: SpecOp, targets: Sequence[SpecOp]) -> list[str]:
    """A line for each argument of a kernel that a program brings somewhere ahead of its use."""
    lines: dict[str, None] = {}
    for call in program.walk():
        if not isinstance(call, SpecOp) or call.name != "tsched.call":
            continue
        for place, operand in enumerate(call.operands):
            alias = operand.owner
            if isinstance(alias, SpecOp) and alias.name == "tsched.alias" and alias.value("space"):
                lines[_line(program, call, place, alias, targets)] = None
    return list(lines)


def _line(program: SpecOp, call: SpecOp, place: int, alias: SpecOp, targets: Sequence[SpecOp]) -> str:
    type = alias.result.type
    assert isinstance(type, ShapedAttr)
    name = call.value("kernel")
    how = _engine(name, place, targets)
    where = f" at {alias.span}" if alias.span is not None else ""
    shape = f"[{', '.join(map(str, type.shape))}] {type.dtype}"
    said = f"{_named(program, alias.operands[0])} {shape} to {alias.value('space')} for {name}, beside compute: {how}"
    return said + where


def _named(program: SpecOp, value: SSAValue) -> str:
    """An argument by its name; what the program computes by what it is."""
    while isinstance(value.owner, SpecOp) and value.owner.name == "tsched.alias":
        value = value.owner.operands[0]
    if isinstance(value, BlockArgument) and value.block is program.regions[0].block:
        return f"`{program.value('names')[value.index]}`"
    return "a value"


def _engine(name: str, place: int, targets: Sequence[SpecOp]) -> str:
    """What moves an argument of a kernel; a kernel may have several forms, of which the first that moves it tells."""
    for kernel in targets:
        symbol = kernel.value("symbol")
        if symbol != name and not symbol.startswith(f"{name}__"):
            continue
        for op in kernel.walk():
            read = [value for value in op.operands if isinstance(value, BlockArgument) and value.index == place]
            if op.name in ENGINES and any(value.block is kernel.regions[0].block for value in read):
                return ENGINES[op.name]
    return LIES


__all__ = ["movements_of"]
