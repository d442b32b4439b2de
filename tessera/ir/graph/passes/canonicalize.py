"""Simplify each op by its own `simplify`, until nothing changes; drop what no one uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.build import Build, Pattern, Rewriter, rewrite
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.passes import Pass


class Canonicalize(Pass):
    """Apply every op's `simplify`.

    Before: `%1 = tgraph.transpose %x {axes = [1, 0]}`, `%2 = tgraph.transpose %1 {axes = [1, 0]}`, uses of `%2`.
    After: uses of `%x`.
    """

    def run(self, module: ModuleOp) -> None:
        rewrite(module, _patterns)


def _patterns(op: SpecOp) -> Sequence[Pattern]:
    return () if op.spec.simplify is None else (_simplify,)


def _simplify(op: SpecOp, rewriter: Rewriter) -> bool:
    assert op.spec.simplify is not None
    build = rewriter.build(op)
    found = op.spec.simplify(build, tuple(op.operands), rule_attributes(op))
    if found is None:
        build.undo()
        return False
    replace_results(op, found, build, rewriter)
    return True


def replace_results(op: SpecOp, found: Any, build: Build, rewriter: Rewriter) -> None:
    """Use what a facet gave (a value, or a tuple of them) for the results of an op; the types must not change."""
    values = cast("tuple[SSAValue, ...]", found if isinstance(found, tuple) else (found,))
    for index, (old, new) in enumerate(zip(op.results, values, strict=True)):
        if old.type != new.type:
            op.fail(f"result {index} of `{op.name}` is {old.type}, and was rewritten to {new.type}")
    rewriter.replace(op, values, build.made)
