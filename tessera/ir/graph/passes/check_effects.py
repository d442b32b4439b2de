"""Check what functions promise of their effects, and change nothing; a failure is an error of the program."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import DeterminismError
from tessera.ir.base.effects import (
    DETERMINISTIC,
    declared_effects,
    effects_of,
    is_deterministic,
    ops_inside,
    own_effects,
    undeclared_error,
)
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbols_in
from tessera.ir.graph.passes.infer_effects import infer_effects
from tessera.ir.graph.tape_analysis import check_collective_order


class CheckEffects(Pass):
    """Check declared effects, deterministic scopes (no op whose runs may differ), and one order of collectives.

    A function has no effect that it does not declare, if it declares any; all ranks reach collectives in that order.

    Before and after are the same text.
    """

    def run(self, module: ModuleOp) -> None:
        for function in symbols_in(module):
            _check_declared(function)
            _check_determinism(function)
            if "collective" in effects_of(function):
                check_collective_order(function)


def _check_declared(function: SpecOp) -> None:
    declared = declared_effects(function)
    if declared is None:
        return
    extra = infer_effects(function).without(declared)
    if extra:
        culprit = next((op for op in ops_inside(function) if own_effects(op).meet(extra)), function)
        raise undeclared_error(culprit, function, declared, extra)


def _check_determinism(function: SpecOp) -> None:
    for op in (op for op in ops_inside(function) if isinstance(op, SpecOp)):
        if op.spec.nondeterminism is None or not is_deterministic(op):
            continue
        found = op.spec.nondeterminism(rule_attributes(op))
        if found is not None:
            raise DeterminismError(
                f"runs of `{op.spec.short_name}` may differ, and its scope is `{DETERMINISTIC}`: {found.why}",
                span=op.span,
                fix=found.fix,
            )
