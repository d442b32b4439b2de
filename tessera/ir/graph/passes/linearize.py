"""Linearization of functions of Graph IR: what is computed once, and what is linear in the tangents."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import transform_functions
from tessera.ir.graph.passes.jvp import find_active
from tessera.ir.graph.transforms.linearize import linearize
from tessera.ir.graph.transforms.reverse import partition
from tessera.types.frozen import frozen


@frozen
class Linearize(Pass):
    """Make two functions of one: the second is linear in tangents, and the first gives the residuals that it needs.

    Before: `@f(%x) -> y`. After: `@f(%x) -> (y, residuals)` and `@f_linear(arguments of f that it reads, residuals,
    tangents) -> tangents of y`. `argnums` and `function` are those of `graph-jvp`.
    """

    argnums: tuple[int, ...] = ()
    function: str = ""

    def run(self, module: ModuleOp) -> None:
        def split(function: SpecOp, tape: Tape) -> dict[str, Tape]:
            active, name = find_active(function, tape, self.argnums), function.value("symbol")
            floats = [at for at, value in enumerate(tape.outputs) if tape.types[value].dtype.is_float]
            part = partition(linearize(tape, active), floats, always=floats)
            return {name: part.primal, f"{name}_linear": part.linear}

        transform_functions(module, self.function, split)
