"""What launches touch: the places in memory that ops of a host program read and write, and what else they do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.effects import declared_effects, effects_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.schedule.in_place import donated_in
from tessera.ir.schedule.memory import aligned
from tessera.ir.schedule.ops.flow import is_placed
from tessera.types.dim import Dim
from tessera.types.effect import Effects
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_most

ARGUMENT = "argument "
"""How memory of the caller begins its name: two of its tensors may be one."""
GIVEN_UP = "given-up argument "
_SILENT = ("tsched.guard", "tsched.alias", "tsched.constant", "tsched.tile", "tsched.layout", "tsched.collective")
"""Ops that touch no memory: they give it a name, or say something of a group."""
_ZERO = Dim.constant(0)


_is_at_most = lru_cache(maxsize=4096)(is_at_most)
"""Many buffers begin at few places, and proofs about sizes that are not known take long."""


@frozen
class Place:
    """Bytes of one memory: the workspace, an argument, a result, a constant, or a value that has no place yet."""

    memory: str
    start: Dim
    bytes: Dim

    @property
    def end(self) -> Dim:
        return self.start + self.bytes

    def may_meet(self, other: Place) -> bool:
        """Whether two places may share a byte, for some values of the dims."""
        if self == other:
            return True
        if self.memory != other.memory:
            return self.memory.startswith(ARGUMENT) and other.memory.startswith(ARGUMENT)
        if self.start == other.start:
            return True
        return not (_is_at_most(self.end, other.start) or _is_at_most(other.end, self.start))

    def __str__(self) -> str:
        return self.memory if self.memory != "workspace" else f"workspace[{self.start}, {self.end})"


SCRATCH = Place("scratch", _ZERO, Dim.constant(1))
"""Memory behind the workspace that kernels take for themselves while they run."""


@frozen
class Touched:
    """What an op reads and writes."""

    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()

    def join(self, *others: Touched) -> Touched:
        every = (self, *others)
        reads = dict.fromkeys(place for one in every for place in one.reads)
        return Touched(tuple(reads), tuple(dict.fromkeys(place for one in every for place in one.writes)))


class Memory:
    """Where the values of one program lie; a value that a loop carries lies in one of two places."""

    def __init__(self, program: SpecOp, kernels: Mapping[str, SpecOp], scratch: Collection[str] = ()) -> None:
        """`scratch` are kernels with memory of their own, which all of them share."""
        self._block, self._kernels, self._scratch = program.regions[0].block, kernels, scratch
        self._names: Sequence[str] = program.value("names") or ()
        self._donated = donated_in(program)
        self._places: dict[SSAValue, tuple[Place, ...]] = {}

    def places(self, value: SSAValue) -> tuple[Place, ...]:
        """The places that a value may lie in."""
        found = self._places.get(value)
        if found is None:
            found = self._places[value] = self._places_of(value)
        return found

    def _places_of(self, value: SSAValue) -> tuple[Place, ...]:
        if isinstance(value, BlockArgument):
            return self._argument(value)
        op = value.owner
        assert isinstance(value, OpResult)
        assert isinstance(op, SpecOp)
        if op.name == "tsched.alias":
            return self.places(op.operands[0])
        if op.name == "tsched.alloc" and op.value("output") >= 0:
            return (self._named(f"result {op.value('output')}", value),)
        if op.name == "tsched.alloc" and op.value("offset") is not None:
            # A buffer has whole lines to itself.
            return (Place("workspace", op.value("offset"), aligned(_bytes(value))),)
        over: int = op.value("in_place") if op.name == "tsched.fuse" and value.index == 0 else -1
        if over >= 0:
            return self.places(op.operands[over])
        if op.name in ("tsched.while", "tsched.for") and is_placed(op):
            pairs = _pairs(op)
            return self._joined([pairs[value.index], pairs[value.index + len(pairs) // 2]])
        return (self._named(f"{op.spec.short_name} {len(self._places)}", value),)

    def _named(self, name: str, value: SSAValue) -> Place:
        return Place(name, _ZERO, _bytes(value))

    def _argument(self, value: BlockArgument) -> tuple[Place, ...]:
        block, op = value.block, value.block.parent_op()
        if block is self._block:
            name = self._names[value.index] if value.index < len(self._names) else str(value.index)
            # What a caller gives up is no other argument: each call looks.
            return (self._named(f"{GIVEN_UP if value.index in self._donated else ARGUMENT}{name}", value),)
        if not isinstance(op, SpecOp) or not is_placed(op):
            return (self._named(f"value {len(self._places)}", value),)
        if op.name == "tsched.while":
            count = len(op.results)
            return self._joined([op.operands[value.index], op.operands[(value.index + count) % (2 * count)]])
        index: Sequence[SSAValue] = op.operands[2:3] if op.value("length") is None else ()
        if value.index < len(index):
            return self._joined(index)
        at, pairs = value.index - len(index), _pairs(op)
        if at < len(pairs):
            return self._joined([pairs[at], pairs[(at + len(pairs) // 2) % len(pairs)]])
        # One row of a tensor, by turns each of them.
        return self.places(op.operands[(3 if index else 0) + at])

    def _joined(self, values: Iterable[SSAValue]) -> tuple[Place, ...]:
        return tuple(dict.fromkeys(place for value in values for place in self.places(value)))

    def touched(self, op: SpecOp) -> Touched:
        """What an op reads and writes, its bodies included; what nobody knows does both to all that it is given."""
        if op.name in _SILENT:
            return Touched()
        if op.regions:
            return self._own(op).join(*(self.inside(region.block) for region in op.regions))
        return self._own(op)

    def inside(self, block: Block) -> Touched:
        """What a block reads and writes."""
        return Touched().join(*(self.touched(op) for op in block.ops if isinstance(op, SpecOp)))

    def _own(self, op: SpecOp) -> Touched:
        operands, every = list(op.operands), [*op.operands, *op.results]
        if op.name in ("tsched.alloc", "tsched.free"):
            # A life begins and ends: what was there before is over, and what comes later is another's.
            return self._given(writes=every)
        if op.name == "tsched.copy":
            return self._given(operands[:1], operands[1:])
        if op.name == "tsched.callback":
            count = len(operands) - op.value("outputs")
            return self._given(operands[:count], [*operands[count:], *op.results])
        if op.name == "tsched.call":
            kernel = self._kernels.get(op.value("kernel"))
            modes = ["rw"] * len(operands) if kernel is None else modes_of(kernel)
            pairs = list(zip(operands, modes, strict=True))
            found = self._given(operands, [value for value, mode in pairs if "w" in mode])
            return found.join(Touched((), (SCRATCH,))) if op.value("kernel") in self._scratch else found
        if op.name in ("tsched.fuse", "tsched.if") or (op.regions and not is_placed(op)):
            return self._given(operands, op.results)
        if op.name in ("tsched.while", "tsched.for"):
            # Rows that are gone through are touched by the body, each in its turn.
            index = operands[2:3] if op.name == "tsched.for" and op.value("length") is None else []
            return self._given(operands, [*index, *_pairs(op)])
        if op.name in ("tsched.return", "tsched.yield"):
            return self._given(operands)
        return self._given(every, every)

    def _given(self, reads: Iterable[SSAValue] = (), writes: Iterable[SSAValue] = ()) -> Touched:
        return Touched(self._joined(reads), self._joined(writes))

    def effects(self, op: Operation) -> Effects:
        """What an op does besides computing, its bodies and the kernels that it calls included."""
        found = [effects_of(op).without(["memory"])]
        for inner in op.walk():
            if isinstance(inner, SpecOp) and inner.name == "tsched.call":
                kernel = self._kernels.get(inner.value("kernel"))
                found += [] if kernel is None else [(declared_effects(kernel) or Effects()).without(["memory"])]
        return Effects().join(*found)


def _pairs(op: SpecOp) -> Sequence[SSAValue]:
    """The buffers of what a loop carries: those that hold it first, then those that it goes to."""
    if op.name == "tsched.while":
        return op.operands
    start = 3 if op.value("length") is None else 0
    return op.operands[start : start + 2 * op.value("carried")]


def _bytes(value: SSAValue) -> Dim:
    assert isinstance(value.type, ShapedAttr)
    return value.type.data.bytes


def modes_of(kernel: SpecOp) -> list[str]:
    """For each argument of a kernel whether it is read (`r`), or written too (`rw`: cells may stay as they were)."""
    writes = set(kernel.value("writes"))
    return ["rw" if at in writes else "r" for at in range(len(kernel.regions[0].block.args))]


def accesses_of(kernel: SpecOp) -> dict[str, Any]:
    """Plain values for a runtime: the sizes of a kernel, and of each buffer its mode and its bytes in those sizes."""
    types = [argument.type for argument in kernel.regions[0].block.args]
    sizes = [str(type.data.bytes) for type in types if isinstance(type, BufferAttr)]
    return {
        "symbols": list(kernel.value("symbols")),
        "buffers": [list(pair) for pair in zip(modes_of(kernel), sizes, strict=True)],
    }
