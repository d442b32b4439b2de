"""Rewrite ops that have no lowering to tiles into ops that have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import Pattern, Rewriter, rewrite
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.graph.passes.canonicalize import replace_results
from tessera.types.frozen import frozen


@frozen
class Decompose(Pass):
    """Apply `decompose` to every op without a `lower` facet, and to what comes out, until all have one.

    Before: `%y = tgraph.variance %x {axes = [1]}`. After: means, differences, squares and sums.
    What has neither facet (control flow, collectives, state) stays, and the exit verifier decides about it. An op that
    reads or writes by index in the mode `error`, and with `checks` each that says no mode, becomes one that is
    `checked`: it clamps nothing, and carries its source line.
    """

    checks: bool = False

    def run(self, module: ModuleOp) -> None:
        rewrite(module, _checked_patterns if self.checks else _patterns)


def _patterns(op: SpecOp) -> Sequence[Pattern]:
    if op.spec.takes_positions and op.value("mode") == "error":
        return (_decompose_checked,)
    return (_decompose,) if op.spec.lower is None and op.spec.decompose is not None else ()


def _checked_patterns(op: SpecOp) -> Sequence[Pattern]:
    return (_decompose_checked,) if op.spec.takes_positions and not op.value("mode") else _patterns(op)


def _decompose_checked(op: SpecOp, rewriter: Rewriter) -> bool:
    span, known = op.span, op.values()
    location = None if span is None else (span.file, span.line, span.column, span.end_line, span.end_column)
    name, does = known.get("by") or op.spec.short_name, "clip" if "may_be_empty" in known else "drop"
    facts = {"op": name, "location": location, "ends": True, "mode": known["mode"] or does}
    return _decompose(op, rewriter, checked=facts)


def _decompose(op: SpecOp, rewriter: Rewriter, **more: Any) -> bool:
    assert op.spec.decompose is not None
    build = rewriter.build(op)
    found = op.spec.decompose(build, tuple(op.operands), {**rule_attributes(op), **more})
    if found is None:
        return False
    replace_results(op, found, build, rewriter)
    return True
