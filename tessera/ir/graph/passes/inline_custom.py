"""Put the body of a function with derivatives of its own in its place."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.ops.custom import FUNCTION, LINEAR, Step, check_tangent_effects, refuse_forward
from tessera.ir.graph.passes.inline_checkpoints import inline_body


class InlineCustom(Pass):
    """Move the ops of a `custom_function`'s body before it, and take it away with its rules.

    Before: `%y = tgraph.custom_function %x ({ ... tgraph.exp ... }, {...}, {...})`. After: `%y = tgraph.exp %x`.
    A `custom_linear` is its rule `forward`; one without it is an error, and so is an effect that would happen again.
    """

    def run(self, module: ModuleOp) -> None:
        for op in [op for op in module.walk() if isinstance(op, SpecOp) and op.name in (FUNCTION, LINEAR)]:
            # The rules of a function that is inlined go with it, and all that is in them.
            if op.get_toplevel_object() is not module:
                continue
            if op.name == LINEAR:
                _check_rule(op)
            inline_body(op)


def _check_rule(op: SpecOp) -> None:
    """Raises DifferentiationError (T0306) unless a `custom_linear` may run forward, apart from its function."""
    if "forward" not in op.value("modes"):
        raise refuse_forward(op.value("function"), op.span)
    block = op.regions[0].block
    steps = [
        Step(one.operands, one.results, _effects_of(one), one.spec.short_name, one.span)
        for one in block.ops
        if isinstance(one, SpecOp) and not one.spec.is_terminator
    ]
    last = block.last_op
    assert last is not None
    check_tangent_effects(op.value("function"), steps, block.args[int(op.value("residuals")) :], last.operands)


def _effects_of(op: SpecOp) -> frozenset[str]:
    inner = [one for one in op.walk() if isinstance(one, SpecOp)]
    return frozenset[str]().union(*(one.spec.effects_for(one.values()) for one in inner))
