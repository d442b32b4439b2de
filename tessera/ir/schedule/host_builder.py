"""Writing host programs: one buffer for each value of a plan, and calls in place of its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TensorAttr
from tessera.ir.schedule.dialect import DIALECT
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType


class HostBuilder:
    """A host program being written from a plan.

    `values` gives the buffer of each value of the plan; `wanted` the result of the program that a value is, when its
    memory can be that result's; `owned` the values that got theirs, by number of the result.
    """

    def __init__(self, kernels: Mapping[str, SpecOp]) -> None:
        self.kernels = kernels
        self.block = Block()
        self.values: dict[SSAValue, SSAValue] = {}
        self.wanted: dict[SSAValue, int] = {}
        self.owned: dict[int, SSAValue] = {}

    def emit(
        self, name: str, operands: Sequence[SSAValue] = (), values: Mapping[str, Any] | None = None, types: Any = ()
    ) -> SpecOp:
        op = make(DIALECT[name], list(operands), values, types=types)
        self.block.add_op(op)
        return op

    def add_argument(self, argument: SSAValue) -> None:
        """An input of the plan as an input of the program."""
        new = self.block.insert_arg(BufferAttr.of(tensor_of(argument)), len(self.block.args))
        new.name_hint = argument.name_hint
        self.values[argument] = new

    def alloc(self, value: SSAValue, output: int = -1) -> SSAValue:
        """Memory for a value."""
        return self.room(tensor_of(value), output)

    def room(self, type: TensorType, output: int = -1) -> SSAValue:
        """Memory for a tensor of a type."""
        return self.emit("alloc", (), {"output": output}, [BufferAttr.of(type)]).result

    def claim_outputs(self, block: Block, outputs: Sequence[SSAValue]) -> None:
        """Let a value that the program returns, itself or in another shape, be computed into the result's memory."""
        for number, output in enumerate(outputs):
            root = root_of(output)
            op = root.owner
            if isinstance(op, SpecOp) and op.name == "tsched.fuse" and op.parent is block and root not in self.wanted:
                self.wanted[root] = number
                self.owned[number] = output

    def translate(self, block: Block) -> None:
        """Write what a block of the plan does, up to its terminator."""
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if not op.spec.is_terminator:
                self._translate(op)

    def _translate(self, op: SpecOp) -> None:
        if op.name == "tsched.fuse":
            self._call(op)
        elif op.name == "tsched.tile":
            self.emit("tile", [self.values[op.operands[0]]], op.values())
        else:
            # What is left makes a value from values without a kernel: constants and other shapes.
            types = [BufferAttr.of(tensor_of(result)) for result in op.results]
            new = self.emit(op.spec.short_name, [self.values[v] for v in op.operands], op.values(), types)
            self.values.update(zip(op.results, new.results, strict=True))

    def _call(self, fuse: SpecOp) -> None:
        for result in fuse.results:
            self.values[result] = self.alloc(result, self.wanted.get(result, -1))
        buffers = [self.values[value] for value in (*fuse.operands, *fuse.results)]
        sizes = dict(fuse.value("sizes"))
        for number, name in enumerate(fuse.value("kernels")):
            kernel = self.kernels[name]
            values = {
                "kernel": name,
                "sizes": tuple(Dim.of(sizes.get(size, size)) for size in kernel.value("symbols")),
                "flops": fuse.value("flops") if number == 0 else None,
                "bytes": fuse.value("bytes") if number == 0 else None,
            }
            call = make(DIALECT["call"], buffers, values, types=(), span=fuse.span)
            self.block.add_op(call)


def tensor_of(value: SSAValue) -> TensorType:
    """The type of a value of a plan."""
    assert isinstance(value.type, TensorAttr | BufferAttr)
    return value.type.data


def root_of(value: SSAValue) -> SSAValue:
    """The value whose memory holds `value`."""
    while isinstance(value, OpResult) and value.owner.name == "tsched.alias":
        value = value.owner.operands[0]
    return value
