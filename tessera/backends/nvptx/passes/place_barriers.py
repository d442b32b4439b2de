"""Say at which barriers copies of a kernel on tensor cores arrive, who waits there, and who leaves what was copied."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.fit import kernels_on_units, refuse_choices
from tessera.backends.nvptx.mma.loops import rings_read
from tessera.backends.nvptx.mma.plan import Plan, read_plan
from tessera.backends.nvptx.mma.rings import Ring, rings_of
from tessera.backends.nvptx.tensor_cores import UnfitError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.typed_ops import ForOp, KernelOp


class PlaceBarriers(Pass):
    """Give each load to shared memory its `ring`, and dots and loops the rings that they `awaits` and `releases`.

    Before: `ttile.load %x, %i, %k`, `ttile.load %w, %j, %k` and a `ttile.dot` of both. After: the same with `ring = 0`
    on the loads, which arrive at one barrier, and `awaits = [0]`, `releases = [0]` on the dot, which waits there and
    hands the stage back. What a whole loop reads, it waits for once, and leaves at its end. A ring that is said is
    kept: loads of one dot may have a barrier each. Rings of two blocks or of two dots, and waits that would
    come too late, too early or never, are refused (T0501).
    """

    def run(self, module: ModuleOp) -> None:
        for kernel, _ in kernels_on_units(module):
            with refuse_choices(kernel, "ring", "awaits", "releases"):
                place_barriers(kernel)


def place_barriers(kernel: KernelOp) -> None:
    """Write the barriers of a kernel whose spaces are chosen; raises `UnfitError` for some that it cannot have."""
    plan = read_plan(kernel)
    rings = rings_of(plan)
    for number, ring in enumerate(rings):
        for side in ring.loads:
            assert side.load is not None
            side.load.set_value("ring", number)
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name in ("ttile.dot", "ttile.for"):
            _write(op, "awaits", _awaits(op, plan, rings))
            _write(op, "releases", [at for at, ring in enumerate(rings) if ring.last is op])


def _awaits(op: SpecOp, plan: Plan, rings: Sequence[Ring]) -> list[int]:
    """The rings that are waited for before an op: what a loop waits for, nothing in it waits for again."""
    if isinstance(op, ForOp):
        return [at for at, ring in enumerate(rings) if ring.last is op]
    return [at for at in rings_read(plan.dots[op], rings) if rings[at].last is op or not rings[at].last.is_ancestor(op)]


def _write(op: SpecOp, name: str, wanted: Sequence[int]) -> None:
    declared = op.value(name)
    if declared and list(declared) != list(wanted):
        raise UnfitError(f"`{op.name}` {name} {_rings(declared)}, and what it reads needs {_rings(wanted)}")
    op.set_value(name, tuple(wanted))


def _rings(numbers: Sequence[int]) -> str:
    return f"ring{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}" if numbers else "none"
