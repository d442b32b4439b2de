"""Forward mode on functions of Graph IR: their tangents, by the rules that traced programs are transformed by."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import transform_functions
from tessera.ir.graph.transforms.linearize import linearize
from tessera.ir.graph.transforms.tape_builder import as_values
from tessera.types.frozen import frozen


@frozen
class Jvp(Pass):
    """Let a function take tangents behind its arguments, and give those of its results behind them.

    Before: `@f(%x, %y) -> z`. After `graph-jvp{argnums = [0]}`: `@f(%x, %y, %tangent_of_x) -> (z, tangent of z)`.
    Without `argnums` it is by all arguments of floats; `function` names one, where a module has several.
    """

    argnums: tuple[int, ...] = ()
    function: str = ""

    def run(self, module: ModuleOp) -> None:
        def push(function: SpecOp, tape: Tape) -> dict[str, Tape]:
            active = find_active(function, tape, self.argnums)
            return {function.value("symbol"): linearize(tape, active).jvp_tape()}

        transform_functions(module, self.function, push)


def find_active(function: SpecOp, tape: Tape, argnums: Any) -> list[int]:
    """The arguments that a function is differentiated by: those given, which are of floats, or all that are."""
    name = function.value("symbol")
    given = as_values(argnums)
    floats = [at for at, value in enumerate(tape.inputs) if tape.types[value].dtype.is_float]
    if not given:
        if not floats:
            raise DifferentiationError(f"`@{name}` has no argument of floats to differentiate by", span=function.span)
        return floats
    for number in given:
        if type(number) is not int or not 0 <= number < len(tape.inputs):
            raise DifferentiationError(
                f"`@{name}` is to be differentiated by argument {number}, and has {len(tape.inputs)}",
                span=function.span,
                fix=f"`argnums` are numbers from 0 to {len(tape.inputs) - 1}",
            )
        if number not in floats:
            raise DifferentiationError(
                f"`@{name}` is differentiated by floats, and argument {number} is {tape.types[tape.inputs[number]]}",
                span=function.span,
                fix="leave it out of `argnums`",
            )
    if len(set(given)) != len(given):
        raise DifferentiationError(
            f"`@{name}` is differentiated by each argument once, got {list(given)}", span=function.span
        )
    return list(given)
