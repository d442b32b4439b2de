"""Choose how long segments of K are, where a program may have other bits than the recipe gives it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.ops.segments import SHORTEST
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

KNOB = "contraction.segment"
RECIPE, WHOLE = "recipe", "whole"
"""As long as the recipe of docs/guide/numerics.md says, and one segment of all of K."""
LENGTHS = (RECIPE, WHOLE, *(SHORTEST << step for step in range(7)))


@frozen
class ChooseSegments(Pass):
    """Ask the chooser for the segments of each contraction; they say in which order it adds up.

    Before: `%0 = tgraph.matmul %a, %b {segment = 4096}`. After, with `overrides={"contraction.segment": 1024}`:
    `{segment = 1024}`. The choice is numeric: with `fast = false` it is refused (T0402), as no choice may change a bit.
    """

    chooser: Chooser = field(default_factory=StaticChooser)
    fast: bool = False

    def run(self, module: ModuleOp) -> None:
        ops = [op for op in module.walk() if isinstance(op, SpecOp) and "segment" in op.kinds]
        for number, op in enumerate(op for op in ops if not op.value("partial")):
            if not self.fast:
                raise OverrideError(
                    f"`{KNOB}` is numeric: other segments of K give other bits",
                    span=op.span,
                    fix="allow other bits with `fast_math=True`, or leave the override out",
                )
            chosen: Any = self.chooser.choose(f"{KNOB}@{number}", LENGTHS, {}).value
            if chosen != RECIPE:
                op.set_value("segment", None if chosen == WHOLE else Dim.constant(int(chosen)))
