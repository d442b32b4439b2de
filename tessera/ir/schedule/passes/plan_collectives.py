"""Choose an algorithm for each collective of a plan, by its bytes and the topology that it describes."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.types import TensorAttr
from tessera.ir.schedule.ops.mesh import declared_mesh, size_of_axis
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.planning.collectives import CALLS, Plan, plan_collective, topology_of_axis
from tessera.ir.schedule.typed_ops import CollectiveOp
from tessera.types.frozen import frozen
from tessera.types.topology import Topology, topology_of


@frozen
class PlanCollectives(Pass):
    """Write `algo` and `plan` on collectives that describe a topology; `deterministic` keeps to those of fixed bits.

    Before: `tsched.collective %a {pattern = "all_reduce", axis = "dp", topology = {nodes = 2, devices = 8}}`. After:
    the same with `algo = "hierarchical", plan = {hops = 16, bytes = 61440, time = 43210}`. What names an `algo` keeps
    it; patterns with a matmul, and values of symbolic sizes, are left alone. In no pipeline: what runs is `direct`.
    """

    deterministic: bool = False

    def run(self, module: ModuleOp) -> None:
        for program in programs_in(module):
            for op in [op for op in program.walk() if isinstance(op, CollectiveOp)]:
                if op.topology is not None and op.pattern in CALLS:
                    self._plan(op)

    def _plan(self, op: CollectiveOp) -> None:
        type_ = op.operands[0].type
        size = type_.data.bytes.value if isinstance(type_, TensorAttr) else None
        if size is None:
            return
        try:
            found = plan_collective(
                op.pattern,
                _bytes_of(op, size),
                _group_topology(op, topology_of(op.topology)),
                deterministic=self.deterministic,
                algorithm=op.algo,
            )
        except ScheduleError as error:
            refuse(op, error.message, error.fix.message if error.fix else "")
        op.set_value("algo", found.algorithm)
        op.set_value("plan", _entries_of(found))


def _bytes_of(op: CollectiveOp, size: int) -> int:
    """Bytes as plans count them: a gathered tensor is that of all ranks."""
    return size * (size_of_axis(op, op.axis) or 1) if op.pattern == "all_gather" else size


def _group_topology(op: CollectiveOp, topology: Topology) -> Topology:
    """The devices of one group along the axis; those of the whole topology where the mesh is not that of it."""
    mesh = declared_mesh(op)
    return topology if mesh is None or not op.axis else topology_of_axis(topology, mesh, op.axis)


def _entries_of(plan: Plan) -> dict[str, object]:
    """What the text says of a plan."""
    ring = {"ring": plan.order} if plan.order else {}
    return {"hops": plan.hops, "bytes": round(plan.sent), "time": round(plan.time), **ring}
