"""Rewrite ops that have no way down to tiles into ops that have one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass
from tessera.ir.base.rewrite import Pattern, Rewriter, rewrite
from tessera.ir.graph.passes.canonicalize import put_instead


@dataclass(frozen=True)
class Decompose(Pass):
    """Apply `decompose` to every op without a `lower` facet, and to what comes out, until all have one.

    Before: `%y = tgraph.variance %x {axes = [1]}`. After: the means, differences, squares and sums it stands for.
    What has neither facet (control flow, collectives, state) stays; the door of the room looks at it.
    """

    def run(self, module: ModuleOp) -> None:
        rewrite(module, _patterns)


def _patterns(op: SpecOp) -> Sequence[Pattern]:
    return (_decompose,) if op.spec.lower is None and op.spec.decompose is not None else ()


def _decompose(op: SpecOp, rewriter: Rewriter) -> bool:
    assert op.spec.decompose is not None
    build = rewriter.build(op)
    found = op.spec.decompose(build, tuple(op.operands), rule_attributes(op))
    put_instead(op, found, build, rewriter)
    return True
