"""What ops of a plan or host program touch in memory, and what effects they have.

A value is in one or several *byte ranges*: of the workspace, once offsets are planned, of an argument, of a result, or
of a memory of its own as long as nothing is planned. Offsets and sizes are symbolic, so whether two ranges overlap is
asked of the constraint prover, and "unknown" counts as yes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.effects import declared_effects, effects_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import refuse
from tessera.ir.base.tape import DONATED
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.schedule import typed_ops as tsched
from tessera.ir.schedule.costs import check_costs
from tessera.ir.schedule.host_program.memory import (
    ANNOTATIONS,
    align_bytes,
    carried_in,
    donated_in,
    enclosing_op,
    kept_by,
    launch_of,
    may_be_written,
    overwritten_by,
    readers_of,
    root_of,
    strip_aliases,
)
from tessera.ir.schedule.ops.host import has_buffers
from tessera.ir.schedule.plan import tensor_of
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.dim import Dim
from tessera.types.effect import Effects
from tessera.types.frozen import frozen
from tessera.types.shape import ZERO, is_at_most

# Verifiers of host programs: lifetimes of buffers, collectives in flight, and results written in place.

WAIT = "tsched.collective_wait"


def check_program(program: tsched.ModuleOp) -> None:
    """Fail at the first op that uses memory it may not."""
    _check_calls(program)
    _check_lifetimes(program.body.block, set())
    _check_spaces(program)
    if any(isinstance(op, tsched.CollectiveStartOp | tsched.CollectiveWaitOp) for op in program.walk()):
        _Collectives(program).block(program.body.block)
    _check_in_place(program)
    _check_launches(program)
    check_costs(program)


def _check_calls(program: tsched.ModuleOp) -> None:
    """Fail at a call with other sizes and buffers than its kernel has, where that is at hand; types may be unknown."""
    kernels = _kernels_beside(program)
    for op in program.walk():
        if isinstance(op, tsched.CallOp) and op.kernel in kernels:
            _check_call(op, kernels[op.kernel])


def _check_call(op: tsched.CallOp, kernel: KernelOp) -> None:
    arguments = kernel.regions[0].block.args
    if len(op.sizes) != len(kernel.symbols) or len(op.operands) != len(arguments):
        op.fail(
            f"`@{op.kernel}` takes {len(arguments)} buffers and {len(kernel.symbols)} sizes, "
            f"got {len(op.operands)} and {len(op.sizes)}"
        )
    for number, pair in enumerate(zip(arguments, op.operands, strict=True)):
        dtypes = [value.type.dtype for value in pair if isinstance(value.type, ShapedAttr)]
        if len(set(dtypes)) > 1:
            op.fail(f"buffer {number} of `@{op.kernel}` is {dtypes[0]}, got {dtypes[1]}")


def _ops_in(block: Block) -> list[SpecOp]:
    return [op for op in block.ops if isinstance(op, SpecOp)]


def _check_lifetimes(block: Block, freed: set[SSAValue]) -> set[SSAValue]:
    """Fail at an op that uses a buffer behind its `free`, or frees it again; the buffers freed behind a block."""
    for op in _ops_in(block):
        if freed and not freed.isdisjoint(map(strip_aliases, op.operand_values)):
            if isinstance(op, tsched.FreeOp):
                op.fail("a buffer is freed twice", "leave this `tsched.free` out")
            # A yield ends its body, and nothing can come behind it.
            if not isinstance(op, (*ANNOTATIONS, tsched.YieldOp)):
                op.fail(f"`{op.name}` uses a buffer that was freed", "move the `tsched.free` behind its last use")
        for region in op.regions:
            behind = _check_lifetimes(region.block, set(freed))
            if isinstance(op, tsched.WhileOp | tsched.ForOp):
                behind = _check_lifetimes(region.block, behind)  # the second iteration finds what the first one left
            freed |= behind
        freed.difference_update(op.results)
        if isinstance(op, tsched.FreeOp):
            freed.add(strip_aliases(op.buffer))
    return freed


def _check_spaces(program: tsched.ModuleOp) -> None:
    """Fail at an op that uses a buffer in host memory, unless it copies it to or from the device."""
    for op in program.walk():
        if not isinstance(op, tsched.AllocOp) or not op.space:
            continue
        for use in op.result.uses:
            user = use.operation
            ends = [value.owner for value in user.operands] if isinstance(user, tsched.CopyOp) else []
            is_copy = sum(isinstance(end, tsched.AllocOp) and bool(end.space) for end in ends) == 1
            if not is_copy and not isinstance(user, tsched.FreeOp):
                assert isinstance(user, SpecOp)
                user.fail(
                    f"`{user.name}` uses a buffer in host memory, which copies to and from the device alone reach",
                    "copy it to a buffer of the workspace, and use that",
                )


class _Collectives:
    """Each collective is waited for once, in its block; nothing touches its memory before; all keep one order."""

    def __init__(self, program: SpecOp) -> None:
        self.last = -1
        self.kernels = _kernels_beside(program)

    def block(self, block: Block) -> None:
        """All collectives that start in a block end in it: between iterations and branches none is in flight."""
        in_flight: dict[int, tsched.CollectiveStartOp] = {}
        for op in _ops_in(block):
            if isinstance(op, tsched.CollectiveWaitOp):
                self._end(op, in_flight)
            for started in in_flight.values():
                self._check_untouched(op, started)
            if isinstance(op, tsched.CollectiveStartOp):
                self._begin(op, in_flight)
            for region in op.regions:
                self.block(region.block)
        for started in in_flight.values():
            started.fail(f"collective {started.number} is never waited for", f"put a `{WAIT}` behind it, in its block")

    def _begin(self, op: tsched.CollectiveStartOp, in_flight: dict[int, tsched.CollectiveStartOp]) -> None:
        if op.number <= self.last:
            op.fail(
                f"collective {op.number} starts behind collective {self.last}, and ranks match them by their numbers",
                "start them in their order, each once",
            )
        self.last = op.number
        in_flight[op.number] = op
        for use in (use for result in op.results for use in result.uses):
            if not isinstance(use.operation, tsched.CollectiveWaitOp | tsched.TileOp):
                op.fail(f"`{use.operation.name}` uses the result of collective {op.number} before it was waited for")

    def _end(self, op: tsched.CollectiveWaitOp, in_flight: dict[int, tsched.CollectiveStartOp]) -> None:
        started = in_flight.pop(op.number, None)
        if started is None:
            op.fail(f"collective {op.number} is waited for, and was not started before in this block")
        if (*op.operands,) != (*started.operands, *started.results):
            op.fail(f"collective {op.number} is waited for with other values than it was started with")

    def _check_untouched(self, op: SpecOp, started: tsched.CollectiveStartOp) -> None:
        """Between start and wait the received buffer belongs to nobody, and the sent one may only be read."""
        if started.results:
            return  # a value does not change
        source, target = (strip_aliases(value) for value in started.operands)
        for inner in (one for one in op.walk() if isinstance(one, SpecOp)):
            if isinstance(inner, (*ANNOTATIONS, tsched.AliasOp)):
                continue
            used = {strip_aliases(value) for value in inner.operands}
            written = {strip_aliases(value) for value in self._written_buffers(inner)}
            if target in used or source in written:
                touched = "writes what" if target not in used else "uses the buffer that"
                verb = "sends" if target not in used else "still fills"
                inner.fail(
                    f"`{inner.name}` {touched} collective {started.number} {verb}",
                    f"put the `{WAIT}` of it before this",
                )

    def _written_buffers(self, op: SpecOp) -> list[SSAValue]:
        """The buffers that an op writes; of a kernel that is not at hand, all."""
        if isinstance(op, tsched.CallOp):
            kernel = self.kernels.get(op.kernel)
            return list(op.operands) if kernel is None else [op.operands[at] for at in kernel.writes]
        if isinstance(op, tsched.CopyOp):
            return [op.target]
        if isinstance(op, tsched.CallbackOp):
            return list(op.operands[len(op.operands) - op.outputs :])
        if isinstance(op, tsched.CollectiveStartOp):
            return [] if op.results else [op.operands[1]]
        if isinstance(op, tsched.ForOp):
            return [*_index(op), *_pairs(op), *op.operands[len(op.operands) - op.stacked :]]
        return list(op.operands) if isinstance(op, tsched.WhileOp) else []


def _kernels_beside(program: Operation) -> Mapping[str, KernelOp]:
    """The kernels of the module around, by name."""
    ops = program.parent.ops if program.parent is not None else ()
    return {op.symbol: op for op in ops if isinstance(op, KernelOp)}


def _check_in_place(program: tsched.ModuleOp) -> None:
    """Fail at a group or loop that may not write over its operand, and at an op that reads what was written over."""
    arguments, donated = len(program.body.block.args), donated_in(program)
    if any(not 0 <= number < arguments for number in donated):
        program.fail(f"`{DONATED}` names arguments {list(donated)}, and there are {arguments}")
    orders: dict[Block, dict[Operation, int]] = {}
    for op in program.walk():
        block = op.parent
        if isinstance(op, _Writer) and op.in_place and block is not None:
            _check_numbers(op)
            order = orders.setdefault(block, {op: at for at, op in enumerate(block.ops)})
            for result, old in overwritten_by(op).items():
                _check_overwritten(block, op, result, old, order)
        if isinstance(op, tsched.ReturnOp):
            _check_returned(op, program, donated)


Part = tsched.FuseOp | tsched.CallOp


def _launches_in(program: tsched.ModuleOp) -> Iterable[list[Part]]:
    """The groups, or calls, of each launch of several."""
    seen: set[Operation] = set()
    for op in program.walk():
        if isinstance(op, Part) and op.launch >= 0 and op not in seen:
            parts = [part for part in launch_of(op) if isinstance(part, Part)]
            seen.update(parts)
            yield parts


def _check_launches(program: tsched.ModuleOp) -> None:
    """Fail where groups, or calls, of one launch are of several kernels, or share memory that one of them writes."""
    find = _finder_of_shared(program)
    for parts in _launches_in(program):
        first = parts[0]
        names = dict.fromkeys(part.kernel if isinstance(part, tsched.CallOp) else part.body for part in parts)
        if len(names) > 1:
            first.fail(f"launch {first.launch} is of one kernel, got {', '.join(f'`@{name}`' for name in names)}")
        shared = find(parts)
        if shared is not None:
            shared[0].fail(
                f"parts of launch {first.launch} run beside each other, and both touch {shared[1]}",
                "give them launches of their own",
            )


def separate_launches(program: tsched.ModuleOp) -> None:
    """Take launches apart whose parts nobody can prove to be apart in memory, as where offsets are symbolic."""
    find = _finder_of_shared(program)
    for parts in list(_launches_in(program)):
        if find(parts) is not None:
            for part in parts:
                part.launch = -1


def _finder_of_shared(program: tsched.ModuleOp) -> Callable[[Sequence[Part]], tuple[Part, ByteRange] | None]:
    """A function that finds a part of a launch, and what of it another one writes."""
    kernels = _kernels_beside(program)
    # Without loops nothing is carried, and one iteration is all there is.
    has_loops = any(isinstance(op, tsched.WhileOp | tsched.ForOp) for op in program.walk())
    iterations = [_OneIteration(program, kernels, number) for number in ((0, 1) if has_loops else (0,))]

    def find(parts: Sequence[Part]) -> tuple[Part, ByteRange] | None:
        tried = (_find_shared([(part, memory.accesses(part)) for part in parts]) for memory in iterations)
        return next((found for found in tried if found is not None), None)

    return find


def _find_shared(parts: Sequence[tuple[Part, Accesses]]) -> tuple[Part, ByteRange] | None:
    """A part of a launch that may touch what another one writes, and what that is."""
    near: dict[str, list[tuple[int, ByteRange]]] = {}
    for number, (_, touched) in enumerate(parts):
        for one in touched.writes:
            near.setdefault(one.family, []).append((number, one))
    for number, (part, touched) in enumerate(parts):
        for one in dict.fromkeys((*touched.reads, *touched.writes)):
            for other, written in near.get(one.family, ()):
                if other != number and one.may_overlap(written):
                    return part, written
    return None


_Writer = tsched.FuseOp | tsched.WhileOp | tsched.ForOp


def _check_numbers(op: _Writer) -> None:
    """Fail where `in_place` names no operands, other types than those of results, or one operand twice."""
    numbers = [number for number in op.in_place if number >= 0]
    if len(op.in_place) > len(op.results) or len(set(numbers)) < len(numbers):
        op.fail(f"`in_place` has an operand of its own for each result at most, got {list(op.in_place)}")
    for result, number in enumerate(op.in_place):
        if number >= len(op.operands) or (number >= 0 and op.operands[number].type != op.results[result].type):
            op.fail(f"`in_place` is the number of an operand with the type of result {result}, got {number}")


def _check_overwritten(block: Block, op: _Writer, result: int, old: SSAValue, order: Mapping[Operation, int]) -> None:
    number = op.in_place[result]
    if not isinstance(op, tsched.FuseOp) and (result not in kept_by(op) or number != carried_in(op)[1] + result):
        op.fail(
            f"`{op.name}` writes over operand {number}, and its body does not leave result {result} in that memory",
            "leave `in_place` out, so that the loop has memory of its own",
        )
    if not may_be_written(block, old):
        op.fail(
            f"`{op.name}` writes over operand {number}, which is neither donated by the caller nor made here",
            f"name its argument in `{DONATED}`, or leave `in_place` out",
        )
    if sum(root_of(value) is root_of(old) for value in op.operands) > 1:
        op.fail(f"`{op.name}` writes over operand {number}, and reads it as another one too")
    for reader in readers_of(old):
        if order[enclosing_op(reader, block)] > order[op]:
            op.fail(
                f"`{op.name}` writes over operand {number}, which `{reader.name}` reads later",
                "leave `in_place` out, so that the result has memory of its own",
            )


def _check_returned(op: tsched.ReturnOp, program: tsched.ModuleOp, donated: tuple[int, ...]) -> None:
    """Once buffers are placed, an argument is returned without a copy only where it was donated, and once."""
    is_placed = program.workspace is not None or any(
        isinstance(other, tsched.AllocOp) for other in program.body.block.ops
    )
    problem = _returned_problem(op, donated) if is_placed else ""
    if problem:
        op.fail(problem)


def _returned_problem(op: Operation, donated: tuple[int, ...]) -> str:
    returned = [root for root in map(root_of, op.operands) if isinstance(root, BlockArgument)]
    for root in returned:
        if root.index not in donated:
            return f"argument {root.index} is returned without a copy, and its caller has not donated it"
    is_twice = len(set(returned)) != len(returned)
    return "an argument is returned twice without a copy: two results would be one memory" if is_twice else ""


def refuse_unplaced(program: tsched.ModuleOp) -> None:
    """Refuse (T0401) a program whose memory cannot be planned: its results have no buffers yet."""
    last = program.body.block.last_op
    assert last is not None
    problem = _returned_problem(last, donated_in(program))
    if problem:
        refuse(last, problem, "run `schedule-place-buffers` before")


ARGUMENT = "argument "
"""How memory of the caller begins its name: two of its tensors may be one."""
DONATED_ARGUMENT = "donated argument "
WORKSPACE, HOST_MEMORY = "workspace", "host memory"


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

    @property
    def family(self) -> str:
        """What ranges that may overlap have in common."""
        return ARGUMENT if self.memory.startswith(ARGUMENT) else self.memory

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
        is_part = self.memory in (WORKSPACE, HOST_MEMORY)
        return f"{self.memory}[{self.start}, {self.end})" if is_part else self.memory


def overlaps_among(ranges: Iterable[ByteRange]) -> dict[ByteRange, list[ByteRange]]:
    """For each of some ranges those that may share a byte with it, itself included.

    Ranges of known bytes are swept in the order in which they begin, which takes time for pairs that overlap alone;
    the few of symbolic bytes are compared with all others of their memory.
    """
    families: dict[str, list[ByteRange]] = {}
    found: dict[ByteRange, list[ByteRange]] = {}
    for one in dict.fromkeys(ranges):
        found[one] = [one]
        families.setdefault(one.family, []).append(one)
    for family, members in families.items():
        # Arguments are memories of their own, any two of which may be one.
        is_one = family != ARGUMENT
        known = [one for one in members if is_one and one.start.is_static and one.bytes.is_static]
        _sweep(known, found)
        others = list(known)
        for one in (one for one in members if not is_one or not one.start.is_static or not one.bytes.is_static):
            for other in (other for other in others if one.may_overlap(other)):
                found[one].append(other)
                found[other].append(one)
            others.append(one)
    return found


def _sweep(ranges: Iterable[ByteRange], found: Mapping[ByteRange, list[ByteRange]]) -> None:
    """Add to what is found the pairs that overlap among ranges of known bytes in one memory."""
    placed = [(one.start.value or 0, one.end.value or 0, one) for one in ranges]
    open_ones: list[tuple[int, int, ByteRange]] = []
    for start, end, one in sorted(placed, key=lambda place: place[:2]):
        open_ones = [place for place in open_ones if place[1] > start or place[0] == start]
        for _, _, other in open_ones:
            found[one].append(other)
            found[other].append(one)
        open_ones.append((start, end, one))


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
        assert isinstance(program, tsched.ModuleOp)
        self._block, self._kernels, self._scratch = program.body.block, kernels, scratch
        self._names = program.names
        self._donated = donated_in(program)
        self._ranges: dict[SSAValue, tuple[ByteRange, ...]] = {}
        self._effects: dict[str, Effects] = {}

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
        if isinstance(op, tsched.AliasOp):
            return self.ranges(op.source)
        if isinstance(op, tsched.AllocOp) and op.output >= 0:
            return (self._own_range(f"result {op.output}", value),)
        if isinstance(op, tsched.AllocOp) and op.offset is not None:
            # A buffer has whole cache lines to itself.
            return (ByteRange(HOST_MEMORY if op.space else WORKSPACE, op.offset, align_bytes(_bytes(value))),)
        old = overwritten_by(op).get(value.index)
        if old is not None:
            return self.ranges(old)
        if isinstance(op, tsched.WhileOp | tsched.ForOp) and has_buffers(op):
            return self._all_ranges(_both(_pairs(op), value.index))
        return (self._own_range(f"{op.spec.short_name} {len(self._ranges)}", value),)

    def _own_range(self, name: str, value: SSAValue) -> ByteRange:
        return ByteRange(name, ZERO, _bytes(value))

    def _argument(self, value: BlockArgument) -> tuple[ByteRange, ...]:
        block, op = value.block, value.block.parent_op()
        if block is self._block:
            name = self._names[value.index] if value.index < len(self._names) else str(value.index)
            # A donated argument shares memory with no other: every call checks that.
            return (self._own_range(f"{DONATED_ARGUMENT if value.index in self._donated else ARGUMENT}{name}", value),)
        assert isinstance(op, tsched.WhileOp | tsched.ForOp)
        if not has_buffers(op):
            return (self._own_range(f"value {len(self._ranges)}", value),)
        # The body takes the index and, behind it, what is carried; then a row of what is scanned or stacked, in some
        # iteration each of them.
        pairs, at = _pairs(op), value.index - len(_index(op))
        if 0 <= at < len(pairs):
            return self._find_carried(pairs, at)
        return self.ranges(op.operands[2 * len(_index(op)) + value.index])

    def _find_carried(self, pairs: Sequence[SSAValue], at: int) -> tuple[ByteRange, ...]:
        return self._all_ranges(_both(pairs, at))

    def _all_ranges(self, values: Iterable[SSAValue]) -> tuple[ByteRange, ...]:
        return tuple(dict.fromkeys(one for value in values for one in self.ranges(value)))

    def accesses(self, op: SpecOp) -> Accesses:
        """What an op reads and writes, its bodies included; an unknown op does both to all its operands."""
        if isinstance(op, (*ANNOTATIONS, tsched.GuardOp, tsched.AliasOp, tsched.ConstantOp)):
            return Accesses()
        if not op.regions:
            return self._own(op)
        inner = [one for region in op.regions for one in _ops_in(region.block)]
        return self._own(op).join(*map(self.accesses, inner))

    def _own(self, op: SpecOp) -> Accesses:
        operands, every = list(op.operands), [*op.operands, *op.results]
        if isinstance(op, tsched.AllocOp | tsched.FreeOp):
            # A lifetime begins or ends: what was there before is gone, and what comes later is another's.
            return self._between(writes=every)
        if isinstance(op, tsched.CopyOp):
            return self._between([op.source], [op.target])
        if isinstance(op, tsched.CallbackOp):
            count = len(operands) - op.outputs
            return self._between(operands[:count], [*operands[count:], *op.results])
        if isinstance(op, tsched.CallOp):
            kernel = self._kernels.get(op.kernel)
            modes = ["rw"] * len(operands) if kernel is None else modes_of(kernel)
            pairs = list(zip(operands, modes, strict=True))
            found = self._between(operands, [value for value, mode in pairs if "w" in mode])
            return found.join(Accesses((), (SCRATCH,))) if op.kernel in self._scratch else found
        if isinstance(op, tsched.FuseOp | tsched.IfOp) or (op.regions and not has_buffers(op)):
            return self._between(operands, op.results)
        if isinstance(op, tsched.WhileOp | tsched.ForOp):
            # Rows of scanned and stacked tensors are touched by the body, one in each iteration.
            return self._between(operands, [*_index(op), *_pairs(op)])
        if isinstance(op, tsched.ReturnOp | tsched.YieldOp):
            return self._between(operands)
        return self._between(every, every)

    def _between(self, reads: Iterable[SSAValue] = (), writes: Iterable[SSAValue] = ()) -> Accesses:
        return Accesses(self._all_ranges(reads), self._all_ranges(writes))

    def effects(self, op: Operation) -> Effects:
        """The effects of an op, its bodies and the kernels that it calls included, but for those on memory."""
        if not isinstance(op, tsched.CallOp):
            return self._effects_of(op)
        # A program of many layers calls each kernel many times.
        if op.kernel not in self._effects:
            self._effects[op.kernel] = self._effects_of(op)
        return self._effects[op.kernel]

    def _effects_of(self, op: Operation) -> Effects:
        found = [effects_of(op).without(["memory"])]
        for inner in op.walk():
            if isinstance(inner, tsched.CallOp):
                kernel = self._kernels.get(inner.kernel)
                found += [] if kernel is None else [(declared_effects(kernel) or Effects()).without(["memory"])]
        return Effects().join(*found)


class _OneIteration(Memory):
    """Where values are in every second iteration of a loop: what it carries in one buffer, and its next in the other.

    What runs at one time is in one iteration, in which neither is where the other is.
    """

    def __init__(self, program: SpecOp, kernels: Mapping[str, SpecOp], parity: int) -> None:
        super().__init__(program, kernels)
        self._parity = parity

    def _find_carried(self, pairs: Sequence[SSAValue], at: int) -> tuple[ByteRange, ...]:
        return self.ranges(pairs[(at + self._parity * (len(pairs) // 2)) % len(pairs)])


def _index(op: tsched.WhileOp | tsched.ForOp) -> Sequence[SSAValue]:
    """The buffer of a loop's index, behind its bounds; a loop that counts iterations by `length` has none of them."""
    return op.operands[2:3] if isinstance(op, tsched.ForOp) and op.length is None else ()


def _pairs(op: tsched.WhileOp | tsched.ForOp) -> Sequence[SSAValue]:
    """The buffers of what a loop carries: those that hold it first, then those that hold it next."""
    if isinstance(op, tsched.WhileOp):
        return op.operands
    start = 3 * len(_index(op))
    return op.operands[start : start + 2 * op.carried]


def _both(pairs: Sequence[SSAValue], at: int) -> Sequence[SSAValue]:
    """The two buffers of what is carried in one of them."""
    half = len(pairs) // 2
    return tuple(pairs)[at % half :: half]


def _bytes(value: SSAValue) -> Dim:
    return tensor_of(value).bytes


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
