"""The IR verifier: one walk that checks each op, dominance, isolation, and how blocks end."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.dialect_of import is_isolated
from tessera.ir.base.infer import Guards
from tessera.ir.base.op import OpError, SpecOp, check_form, check_meaning
from tessera.ir.base.types import ValueAttr


def verify(root: Operation) -> None:
    """Raises `OpError` at the first op that breaks a rule.

    Beyond each op's own check: a value is used after it is defined, in its block or below, and not across an op that
    is isolated; a region has one block, which ends in a terminator unless its op is a module.
    """
    _verify_op(root, set(), Guards())


def _verify_op(op: Operation, visible: set[SSAValue], guards: Guards) -> None:
    for index, operand in enumerate(op.operands):
        if operand not in visible:
            raise OpError(op, f"operand {index} of `{op.name}` is used before, or outside of where, it is defined")
    if isinstance(op, SpecOp):
        check_form(op)
        if op.regions:
            _verify_regions(op, visible, guards)
        check_meaning(op, guards)
    elif isinstance(op, ModuleOp):
        check_symbols(op)
        _verify_regions(op, visible, guards)
    else:
        raise OpError(op, f"`{op.name}` is an op of no dialect of ours")


def _verify_regions(op: Operation, visible: set[SSAValue], guards: Guards) -> None:
    found = op.properties.get("guards")
    inner = Guards(found.data) if isinstance(found, ValueAttr) and found.data else guards
    hides = not isinstance(op, SpecOp) or is_isolated(op.spec)
    for region in op.regions:
        blocks = list(region.blocks)
        if len(blocks) != 1:
            raise OpError(op, f"a region of `{op.name}` has {len(blocks)} blocks, not one")
        _verify_block(op, blocks[0], set() if hides else visible, inner)


def _verify_block(parent: Operation, block: Block, visible: set[SSAValue], guards: Guards) -> None:
    added: list[SSAValue] = list(block.args)
    visible.update(added)
    last = block.last_op
    for op in block.ops:
        _verify_op(op, visible, guards)
        visible.update(op.results)
        added.extend(op.results)
        if isinstance(op, SpecOp) and op.spec.is_terminator and op is not last:
            raise OpError(op, f"`{op.name}` ends a block, but is not the last op of one")
    if isinstance(parent, SpecOp) and not (isinstance(last, SpecOp) and last.spec.is_terminator):
        raise OpError(parent, f"the block of `{parent.name}` does not end in a terminator")
    visible.difference_update(added)


def check_symbols(module: ModuleOp) -> None:
    """Raises `OpError` where two functions of a module have one name."""
    seen: set[str] = set()
    for op in symbols_in(module):
        if "symbol" not in op.properties and "symbol" not in op.defaults:
            continue  # the check of the op's own form says that it is missing
        name = op.value("symbol")
        if name in seen:
            raise OpError(op, f"`@{name}` is defined twice")
        seen.add(name)


def symbols_in(module: ModuleOp) -> Iterable[SpecOp]:
    """The functions of a module."""
    return (op for op in module.ops if isinstance(op, SpecOp) and op.spec.form == "function")


def symbol_table(module: ModuleOp) -> dict[str, SpecOp]:
    """The functions of a module by name: a dict, since xDSL's own look-up walks the module each time."""
    return {op.value("symbol"): op for op in symbols_in(module)}
