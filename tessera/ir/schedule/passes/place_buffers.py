"""Turn the plan into the host program: values become buffers, groups become calls of their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.fusions import programs_in
from tessera.ir.schedule.host_builder import HostBuilder
from tessera.ir.schedule.lifetimes import insert_frees


@dataclass(frozen=True)
class PlaceBuffers(Pass):
    """Give every value memory: a result of the program its own, all others an `alloc` that lives until its last use.

    Before: `%a = tsched.fuse @k(%x)`. After: `%a = tsched.alloc` and `tsched.call @k(%x, %a) sizes = [B]`.
    """

    def run(self, module: ModuleOp) -> None:
        kernels = symbol_table(module)
        for program in programs_in(module):
            _place(program, kernels)


def _place(program: SpecOp, kernels: Mapping[str, SpecOp]) -> None:
    old = program.regions[0].block
    builder = HostBuilder(kernels)
    for left, right, what in program.value("guards"):
        builder.emit("guard", (), {"left": left, "right": right, "what": what})
    for argument in old.args:
        builder.add_argument(argument)
    last = old.last_op
    assert last is not None
    builder.claim_outputs(old, last.operands)
    builder.translate(old)
    builder.emit("return", _returned(builder, last.operands))
    region = Region(builder.block)
    insert_frees(builder.block)
    _replace_region(program, region)


def _returned(builder: HostBuilder, outputs: Sequence[SSAValue]) -> list[SSAValue]:
    """The buffer of each result; one that has no buffer of its own is copied into one."""
    found: list[SSAValue] = []
    for number, output in enumerate(outputs):
        buffer = builder.values[output]
        if builder.owned.get(number) is not output:
            target = builder.alloc(output, number)
            builder.emit("copy", [buffer, target])
            buffer = target
        found.append(buffer)
    return found


def _replace_region(program: SpecOp, region: Region) -> None:
    old: Block = program.regions[0].block
    for op in reversed(list(old.ops)):
        op.drop_all_references()
    program.detach_region(0)
    program.add_region(region)
