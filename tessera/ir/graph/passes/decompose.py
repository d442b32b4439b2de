"""Rewrite ops that have no way down to tiles into ops that have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import tensor_value
from tessera.ir.base.effects import declare_effects, declared_effects, effects_of
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import Pattern, Rewriter, rewrite
from tessera.ir.graph.building import size
from tessera.ir.graph.passes.canonicalize import put_instead


@dataclass(frozen=True)
class Decompose(Pass):
    """Apply `decompose` to every op without a `lower` facet, and to what comes out, until all have one.

    Before: `%y = tgraph.variance %x {axes = [1]}`. After: the means, differences, squares and sums it stands for.
    What has neither facet (control flow, collectives, state) stays; the door of the room looks at it. With `checks`,
    every op that reads or writes by index has a `tgraph.check_index` before it, and its function the effect `io`.
    """

    checks: bool = False

    def run(self, module: ModuleOp) -> None:
        rewrite(module, _checked if self.checks else _patterns)
        for function in module.ops if self.checks else ():
            if any(op.name == "tgraph.check_index" for op in function.walk()):
                declared = declared_effects(function)
                declare_effects(function, effects_of(function) if declared is None else declared.join(["io"]))


def _patterns(op: SpecOp) -> Sequence[Pattern]:
    return (_decompose,) if op.spec.lower is None and op.spec.decompose is not None else ()


def _checked(op: SpecOp) -> Sequence[Pattern]:
    return (_check_and_decompose,) if op.spec.positions is not None else _patterns(op)


def _check_and_decompose(op: SpecOp, rewriter: Rewriter) -> bool:
    assert op.spec.positions is not None
    build = rewriter.build(op)
    types = [tensor_value(value) for value in op.operands]
    for at, extent in op.spec.positions(types, rule_attributes(op)):
        build.emit("check_index", op.operands[at], size(build, extent), op=op.spec.short_name)
    return _decompose(op, rewriter)


def _decompose(op: SpecOp, rewriter: Rewriter) -> bool:
    assert op.spec.decompose is not None
    build = rewriter.build(op)
    found = op.spec.decompose(build, tuple(op.operands), rule_attributes(op))
    put_instead(op, found, build, rewriter)
    return True
