"""What ops of a plan or host program touch in memory, and what effects they have.

A value is in one or several *byte ranges*: of the workspace, once offsets are planned, of an argument, of a result, or
of a memory of its own as long as nothing is planned. Offsets and sizes are symbolic, so whether two ranges overlap is
asked of the constraint prover, and "unknown" counts as yes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.effects import declared_effects, effects_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.schedule.host_program.aliasing import ANNOTATIONS, donated_in
from tessera.ir.schedule.host_program.memory import aligned
from tessera.ir.schedule.ops.flow import has_buffers
from tessera.ir.schedule.typed_ops import (
    AliasOp,
    AllocOp,
    CallbackOp,
    CallOp,
    ConstantOp,
    CopyOp,
    ForOp,
    FreeOp,
    FuseOp,
    GuardOp,
    IfOp,
    ModuleOp,
    ReturnOp,
    WhileOp,
    YieldOp,
)
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.dim import Dim
from tessera.types.effect import Effects
from tessera.types.frozen import frozen
from tessera.types.shape import ZERO, is_at_most

ARGUMENT = "argument "
"""How memory of the caller begins its name: two of its tensors may be one."""
DONATED_ARGUMENT = "donated argument "
WORKSPACE = "workspace"


_is_at_most = lru_cache(maxsize=4096)(is_at_most)
"""Many buffers begin at few offsets, and proofs about symbolic dims take long."""


@frozen
class ByteRange:
    """Bytes of one memory: the workspace, an argument, a result, a constant, or a value that has no offset yet."""

    memory: str
    start: Dim
    bytes: Dim

    @property
    def end(self) -> Dim:
        return self.start + self.bytes

    def may_overlap(self, other: ByteRange) -> bool:
        """Whether two ranges may share a byte, for some values of the dims."""
        if self == other:
            return True
        if self.memory != other.memory:
            return self.memory.startswith(ARGUMENT) and other.memory.startswith(ARGUMENT)
        if self.start == other.start:
            return True
        return not (_is_at_most(self.end, other.start) or _is_at_most(other.end, self.start))

    def __str__(self) -> str:
        return self.memory if self.memory != WORKSPACE else f"{WORKSPACE}[{self.start}, {self.end})"


SCRATCH = ByteRange("scratch", ZERO, Dim.constant(1))
"""Memory behind the workspace that kernels take for themselves while they run."""


@frozen
class Accesses:
    """What an op reads and writes."""

    reads: tuple[ByteRange, ...] = ()
    writes: tuple[ByteRange, ...] = ()

    def join(self, *others: Accesses) -> Accesses:
        every = (self, *others)
        reads = dict.fromkeys(one for accesses in every for one in accesses.reads)
        return Accesses(tuple(reads), tuple(dict.fromkeys(one for accesses in every for one in accesses.writes)))


class Memory:
    """Where the values of one program are; a value that a loop carries is in one of two ranges."""

    def __init__(self, program: SpecOp, kernels: Mapping[str, SpecOp], scratch: Collection[str] = ()) -> None:
        """`scratch` are kernels with memory of their own, which all of them share."""
        assert isinstance(program, ModuleOp)
        self._block, self._kernels, self._scratch = program.body.block, kernels, scratch
        self._names = program.names or ()
        self._donated = donated_in(program)
        self._ranges: dict[SSAValue, tuple[ByteRange, ...]] = {}

    def ranges(self, value: SSAValue) -> tuple[ByteRange, ...]:
        """The ranges that a value may be in."""
        found = self._ranges.get(value)
        if found is None:
            found = self._ranges[value] = self._ranges_of(value)
        return found

    def _ranges_of(self, value: SSAValue) -> tuple[ByteRange, ...]:
        if isinstance(value, BlockArgument):
            return self._argument(value)
        op = value.owner
        assert isinstance(value, OpResult)
        assert isinstance(op, SpecOp)
        if isinstance(op, AliasOp):
            return self.ranges(op.source)
        if isinstance(op, AllocOp) and op.output >= 0:
            return (self._named(f"result {op.output}", value),)
        if isinstance(op, AllocOp) and op.offset is not None:
            # A buffer has whole cache lines to itself.
            return (ByteRange(WORKSPACE, op.offset, aligned(_bytes(value))),)
        if isinstance(op, FuseOp) and value.index == 0 and op.in_place >= 0:
            return self.ranges(op.operands[op.in_place])
        if isinstance(op, WhileOp | ForOp) and has_buffers(op):
            pairs = _pairs(op)
            return self._joined([pairs[value.index], pairs[value.index + len(pairs) // 2]])
        return (self._named(f"{op.spec.short_name} {len(self._ranges)}", value),)

    def _named(self, name: str, value: SSAValue) -> ByteRange:
        return ByteRange(name, ZERO, _bytes(value))

    def _argument(self, value: BlockArgument) -> tuple[ByteRange, ...]:
        block, op = value.block, value.block.parent_op()
        if block is self._block:
            name = self._names[value.index] if value.index < len(self._names) else str(value.index)
            # A donated argument shares memory with no other: every call checks that.
            return (self._named(f"{DONATED_ARGUMENT if value.index in self._donated else ARGUMENT}{name}", value),)
        if isinstance(op, WhileOp) and has_buffers(op):
            count = len(op.results)
            return self._joined([op.operands[value.index], op.operands[(value.index + count) % (2 * count)]])
        if not isinstance(op, ForOp) or not has_buffers(op):
            return (self._named(f"value {len(self._ranges)}", value),)
        index: Sequence[SSAValue] = op.operands[2:3] if op.length is None else ()
        if value.index < len(index):
            return self._joined(index)
        at, pairs = value.index - len(index), _pairs(op)
        if at < len(pairs):
            return self._joined([pairs[at], pairs[(at + len(pairs) // 2) % len(pairs)]])
        # One row of a scanned or stacked tensor: in some iteration each of them.
        return self.ranges(op.operands[(3 if index else 0) + at])

    def _joined(self, values: Iterable[SSAValue]) -> tuple[ByteRange, ...]:
        return tuple(dict.fromkeys(one for value in values for one in self.ranges(value)))

    def accesses(self, op: SpecOp) -> Accesses:
        """What an op reads and writes, its bodies included; an unknown op does both to all its operands."""
        if isinstance(op, (*ANNOTATIONS, GuardOp, AliasOp, ConstantOp)):
            return Accesses()
        inner = [one for region in op.regions for one in region.block.ops if isinstance(one, SpecOp)]
        return self._own(op).join(*map(self.accesses, inner))

    def _own(self, op: SpecOp) -> Accesses:
        operands, every = list(op.operands), [*op.operands, *op.results]
        if isinstance(op, AllocOp | FreeOp):
            # A lifetime begins or ends: what was there before is gone, and what comes later is another's.
            return self._between(writes=every)
        if isinstance(op, CopyOp):
            return self._between([op.source], [op.target])
        if isinstance(op, CallbackOp):
            count = len(operands) - op.outputs
            return self._between(operands[:count], [*operands[count:], *op.results])
        if isinstance(op, CallOp):
            kernel = self._kernels.get(op.kernel)
            modes = ["rw"] * len(operands) if kernel is None else modes_of(kernel)
            pairs = list(zip(operands, modes, strict=True))
            found = self._between(operands, [value for value, mode in pairs if "w" in mode])
            return found.join(Accesses((), (SCRATCH,))) if op.kernel in self._scratch else found
        if isinstance(op, FuseOp | IfOp) or (op.regions and not has_buffers(op)):
            return self._between(operands, op.results)
        if isinstance(op, WhileOp | ForOp):
            # Rows of scanned and stacked tensors are touched by the body, one in each iteration.
            index = operands[2:3] if isinstance(op, ForOp) and op.length is None else []
            return self._between(operands, [*index, *_pairs(op)])
        if isinstance(op, ReturnOp | YieldOp):
            return self._between(operands)
        return self._between(every, every)

    def _between(self, reads: Iterable[SSAValue] = (), writes: Iterable[SSAValue] = ()) -> Accesses:
        return Accesses(self._joined(reads), self._joined(writes))

    def effects(self, op: Operation) -> Effects:
        """The effects of an op, its bodies and the kernels that it calls included, but for those on memory."""
        found = [effects_of(op).without(["memory"])]
        for inner in op.walk():
            if isinstance(inner, CallOp):
                kernel = self._kernels.get(inner.kernel)
                found += [] if kernel is None else [(declared_effects(kernel) or Effects()).without(["memory"])]
        return Effects().join(*found)


def _pairs(op: WhileOp | ForOp) -> Sequence[SSAValue]:
    """The buffers of what a loop carries: those that hold it first, then those that hold it next."""
    if isinstance(op, WhileOp):
        return op.operands
    start = 3 if op.length is None else 0
    return op.operands[start : start + 2 * op.carried]


def _bytes(value: SSAValue) -> Dim:
    assert isinstance(value.type, ShapedAttr)
    return value.type.data.bytes


def modes_of(kernel: SpecOp) -> list[str]:
    """For each argument of a kernel whether it is read (`r`), or written too (`rw`: some elements may stay)."""
    assert isinstance(kernel, KernelOp)
    writes = set(kernel.writes)
    return ["rw" if at in writes else "r" for at in range(len(kernel.regions[0].block.args))]


def accesses_of(kernel: SpecOp) -> dict[str, Any]:
    """Plain values for a runtime: the sizes of a kernel, and of each buffer its mode and its bytes in those sizes."""
    assert isinstance(kernel, KernelOp)
    types = [argument.type for argument in kernel.regions[0].block.args]
    sizes = [str(type.data.bytes) for type in types if isinstance(type, BufferAttr)]
    return {
        "symbols": list(kernel.symbols),
        "buffers": [list(pair) for pair in zip(modes_of(kernel), sizes, strict=True)],
    }
