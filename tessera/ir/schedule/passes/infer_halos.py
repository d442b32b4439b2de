"""Infer the halo of each sharded dim that a group reads as a stencil, and write it on the layout."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.build import tape_of
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.ops.mesh import dim_positions, size_of_axis
from tessera.ir.schedule.plan import body_of, programs_in, tensor_of
from tessera.ir.schedule.planning.stencils import DimRead, halo_of, reads_of
from tessera.ir.schedule.typed_ops import FuseOp, LayoutOp
from tessera.types.frozen import frozen

ALL = "all"
"""What stands for the halo of a dim that is read in whole: every rank needs all of it."""


@frozen
class InferHalos(Pass):
    """Write `halo` on layouts of typed values, from the bodies of all groups that read them.

    Before: `tsched.layout %x {partition = ["H"], mesh_axes = ["sp"]}`, and a group with a 3x3 convolution reads `%x`.
    After: the same with `halo = [[1, 1]]`: a row of each neighbour. A dim that is read in whole has `"all"`. In no
    pipeline: programs do not yet run on shards that they were not written for.
    """

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        for program in programs_in(module):
            for op in [op for op in program.walk() if isinstance(op, LayoutOp)]:
                readers = [use.operation for use in op.operands[0].uses if isinstance(use.operation, FuseOp)]
                halos: dict[str, Any] = {}
                for fuse in readers:
                    reads = reads_of(tape_of(body_of(fuse, functions).regions[0].block))
                    for number, operand in enumerate(fuse.operands):
                        if operand is op.operands[0]:
                            _widen(halos, op, fuse, [read[number] for read in reads if number in read])
                if halos:
                    op.set_value("halo", tuple(halos.get(dim, (0, 0)) for dim in op.partition))


def _widen(halos: dict[str, Any], op: LayoutOp, fuse: FuseOp, reads: list[tuple[DimRead | None, ...]]) -> None:
    """Take one group's reads into account."""
    tensor = tensor_of(op.operands[0])
    for dim, position in dim_positions(op).items():
        axes = [axis for name, axis in zip(op.partition, op.mesh_axes, strict=True) if name == dim]
        ranks = 1
        for axis in axes:
            ranks *= size_of_axis(op, axis) or refuse(
                op, f"nobody says how many ranks `{axis}` has", "declare the mesh"
            )
        for output, read in enumerate(reads):
            at = read[position]
            if at is None:
                halos[dim] = ALL
            elif halos.get(dim) != ALL:
                results = tensor_of(fuse.results[output]).shape[at.axis]
                try:
                    found = halo_of(at, tensor.shape[position], results, ranks)
                except ScheduleError as error:
                    refuse(op, f"dim `{dim}`: {error.message}", error.fix.message if error.fix else "")
                low, high = halos.get(dim, (0, 0))
                halos[dim] = (max(low, found.low), max(high, found.high))
