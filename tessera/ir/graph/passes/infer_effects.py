"""Write on each function what it does besides computing, found from its ops."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.effects import declare_effects, declared_effects, effects_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbols_in
from tessera.ir.graph.dialect import to_tape
from tessera.ir.graph.tape_analysis import tape_effects
from tessera.types.effect import PURE, Effects


class InferEffects(Pass):
    """Join the effects of all ops of a function, those in bodies of control flow included.

    Before: `tgraph.func @f(...)` with a `tgraph.dropout`. After: `tgraph.func @f(...) attributes {tessera.effects =
    ["random"]}`. What a function already says is kept; a pure function says nothing.
    """

    def run(self, module: ModuleOp) -> None:
        for function in symbols_in(module):
            declare_effects(function, infer_effects(function).join(declared_effects(function) or PURE))


def infer_effects(function: SpecOp) -> Effects:
    """The effects of a function's ops; a state has the name of the argument that it came in by."""
    found = effects_of(function)
    return tape_effects(to_tape(function)) if found.has("state") else found
