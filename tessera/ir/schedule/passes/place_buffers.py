"""Bufferize the plan into the host program: values become buffers, groups become calls of their kernels."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Region, SSAValue

from tessera.ir.base.infer import needed_checks
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule import typed_ops
from tessera.ir.schedule.host_program.builder import HostBuilder
from tessera.ir.schedule.host_program.memory import donated_in, insert_frees, root_of
from tessera.ir.schedule.plan import programs_in, tensor_of


class PlaceBuffers(Pass):
    """Give every value a buffer: a result of the program its own, all others an `alloc` that is freed at the last use.

    Before: `%a = tsched.fuse @k(%x)`. After: `%a = tsched.alloc` and `tsched.call @k(%x, %a) sizes = [B]`. A result
    that is `in_place` has the memory of its operand, and so has what iterations of a loop leave where they found it. A
    donated argument is returned without a copy. What is offloaded is copied to an `alloc` in host memory, and from
    there to another one where it is prefetched.
    """

    def run(self, module: ModuleOp) -> None:
        kernels = symbol_table(module)
        for program in programs_in(module):
            placed = next((op for op in program.walk() if isinstance(op, typed_ops.AllocOp | typed_ops.FreeOp)), None)
            if placed is not None or program.workspace is not None:
                refuse(placed or program, "values have buffers here already, and are given them once")
            place_buffers(program, kernels)


def place_buffers(program: typed_ops.ModuleOp, kernels: Mapping[str, SpecOp]) -> None:
    """Bufferize one program, which calls these kernels."""
    old = program.regions[0].block
    builder = HostBuilder(kernels)
    guards = tuple(needed_checks(program.guards))
    program.guards = guards
    for left, right, what in guards:
        builder.emit("guard", (), {"left": left, "right": right, "what": what})
    for argument in old.args:
        builder.values[argument] = builder.add_argument(tensor_of(argument), argument.name_hint)
    last, donated = old.last_op, donated_in(program)
    assert last is not None
    is_there = builder.set_targets(old, last.operands, range(len(last.operands)))
    builder.translate(old)
    returned: list[SSAValue] = []
    taken = set[SSAValue]()
    for number, (output, done) in enumerate(zip(last.operands, is_there, strict=True)):
        buffer, root = builder.values[output], root_of(output)
        if isinstance(root, BlockArgument) and root.index in donated and root not in taken:
            taken.add(root)
        elif not done:
            # An input, a constant, or the same value twice has no memory of its own to be returned in.
            target = builder.allocate(tensor_of(output), number)
            builder.emit("copy", [buffer, target])
            buffer = target
        returned.append(buffer)
    builder.emit("return", returned)
    insert_frees(builder.block)
    _replace_region(program, Region(builder.block))


def _replace_region(program: SpecOp, region: Region) -> None:
    for op in program.regions[0].block.walk():
        op.drop_all_references()
    program.detach_region(0)
    program.add_region(region)
