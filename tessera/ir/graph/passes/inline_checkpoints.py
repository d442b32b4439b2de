"""Put the bodies of checkpoints in their place: derivatives have been taken, and the rest is plain ops."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.typed_ops import CheckpointOp


class InlineCheckpoints(Pass):
    """Replace each `checkpoint` by the ops of its body, which keep their own lines.

    Before: `%y = tgraph.checkpoint %x {policy = [...]} ({ ^bb0(%a): %b = tgraph.exp %a; tgraph.yield %b })`.
    After: `%y = tgraph.exp %x`. Barriers that the body has stay, and keep what is rematerialized apart.
    """

    def run(self, module: ModuleOp) -> None:
        # Inner ones first: what they leave behind moves with the body around them.
        for op in list(module.walk(reverse=True)):
            if isinstance(op, CheckpointOp):
                inline_body(op)


def inline_body(op: SpecOp) -> None:
    """Put the ops of an op's first body in its place."""
    block, body = op.parent, op.regions[0].block
    assert block is not None
    for argument, operand in zip(body.args, op.operands, strict=True):
        argument.replace_all_uses_with(operand)
    for inner in list(body.ops):
        if isinstance(inner, SpecOp) and inner.spec.is_terminator:
            for old, new in zip(op.results, inner.operands, strict=True):
                old.replace_all_uses_with(new)
            continue
        inner.detach()
        block.insert_op_before(inner, op)
    op.detach()
    op.erase()
