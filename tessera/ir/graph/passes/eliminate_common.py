"""Compute each value once: merge equal pure ops of a block, and drop pure ops that no one uses."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from tessera.ir.base.build import is_removable, is_used
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.text import canonical_text


class EliminateCommon(Pass):
    """Common subexpressions and dead code.

    Before: `%1 = tgraph.exp %x`, `%2 = tgraph.exp %x`, `%3 = tgraph.add %1, %2`.
    After: `%1 = tgraph.exp %x`, `%3 = tgraph.add %1, %1`.
    An op with an effect is neither merged nor dropped, nor is one whose body has an op with an effect.
    """

    def run(self, module: ModuleOp) -> None:
        # Bodies before the ops that have them: an op that is merged goes with its bodies.
        for block in reversed(list(module.walk_blocks())):
            _merge(block)
        _drop(module)


def _merge(block: Block) -> None:
    seen: dict[Any, Operation] = {}
    for op in list(block.ops):
        if not isinstance(op, SpecOp) or not is_removable(op):
            continue
        key = _key(op)
        first = seen.setdefault(key, op)
        if first is op:
            continue
        for old, new in zip(op.results, first.results, strict=True):
            old.replace_all_uses_with(new)
        op.detach()
        op.erase()


def _key(op: SpecOp) -> Any:
    """What two ops share exactly when they compute the same: bodies are isolated, so their text is enough."""
    return (
        op.name,
        tuple([id(value) for value in op.operand_values]),
        tuple([op.properties.get(name) for name in op.kinds]),
        tuple([result.type for result in op.results]),
        # As one text, in which a body's arguments are numbered: what it reads of them is part of what it computes.
        canonical_text(op) if op.regions else "",
    )


def _drop(module: ModuleOp) -> None:
    # Users come after what they use, so going backwards one walk is enough.
    for op in list(module.walk(reverse=True)):
        if op.parent is not None and isinstance(op, SpecOp) and not is_used(op) and is_removable(op):
            op.detach()
            op.erase()
