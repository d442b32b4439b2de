"""Expand pipelines: write down what each rank runs, in its order."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.schedule.planning.pipelines import pipeline_of
from tessera.types.frozen import frozen

PIPELINES = ("tsched.pipeline", "tsched.pipeline.region")


@frozen
class ExpandPipelines(Pass):
    """Write `orders` on pipelines that have none.

    Before: `tsched.pipeline @train {axis = "pp", stages = 2, microbatch = 2}`. After: the same with
    `orders = [["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]]`. A text may have orders of its own, which stay, and
    are verified: every action once, and no deadlock. In no pipeline of passes: no backend runs stages yet.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, SpecOp) and op.name in PIPELINES and not op.value("orders"):
                plan = pipeline_of(op)
                op.set_value("orders", tuple(tuple(map(str, plan.order(rank))) for rank in range(plan.stages)))
