"""Put the body of a function with derivatives of its own in its place."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.ops.custom import FUNCTION, LINEAR, refuse_forward
from tessera.ir.graph.passes.inline_checkpoints import inline_body


class InlineCustom(Pass):
    """Move the ops of a `custom_function`'s body before it, and take it away with its rules.

    Before: `%y = tgraph.custom_function %x ({ ... tgraph.exp ... }, {...}, {...})`. After: `%y = tgraph.exp %x`.
    A `custom_linear` is its rule `forward`; one without it is an error.
    """

    def run(self, module: ModuleOp) -> None:
        for op in [op for op in module.walk() if isinstance(op, SpecOp) and op.name in (FUNCTION, LINEAR)]:
            # The rules of a function that is inlined go with it, and all that is in them.
            if op.get_toplevel_object() is not module:
                continue
            if op.name == LINEAR and "forward" not in op.value("modes"):
                raise refuse_forward(op.value("function"), op.span)
            inline_body(op)
