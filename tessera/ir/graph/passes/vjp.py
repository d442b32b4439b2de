"""Reverse mode on functions of Graph IR: their adjoints, by the rules that traced programs are transformed by."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import transform_functions
from tessera.ir.graph.passes.jvp import find_active
from tessera.ir.graph.transforms.linearize import linearize
from tessera.ir.graph.transforms.reverse import vjp_tape
from tessera.types.frozen import frozen


@frozen
class Vjp(Pass):
    """Let a function take cotangents of its results, and give those of its arguments behind the results.

    Before: `@f(%x, %y) -> z`. After `graph-vjp{argnums = [0]}`: `@f(%x, %y, %cotangent_0) -> (z, cotangent of x)`.
    Results that are not of floats have no cotangent. `argnums` and `function` are those of `graph-jvp`.
    """

    argnums: tuple[int, ...] = ()
    function: str = ""

    def run(self, module: ModuleOp) -> None:
        def pull(function: SpecOp, tape: Tape) -> dict[str, Tape]:
            active = find_active(function, tape, self.argnums)
            return {function.value("symbol"): vjp_tape(linearize(tape, active))}

        transform_functions(module, self.function, pull)
