"""`LaunchOrder`: the dependency DAG of a host program, and nothing else, as a value that can be checked.

Nodes are the ops of a program or of a body in it, in program order; an op of control flow is one node, with a DAG for
each of its bodies. An edge leads from a node to one that reads what it wrote, or writes what it read or wrote: in
memory as it was planned, so that bytes which are reused order their old users before the new ones. Effects that may not
be swapped have edges too. Any topological order gives the same bits, which tests check by running random ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from random import Random

from xdsl.ir import Block, Operation, OpResult

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import HERE, Span
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.host_program.accesses import (
    HOST_MEMORY,
    WORKSPACE,
    Accesses,
    ByteRange,
    Memory,
    overlaps_among,
)
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.typed_ops import CallbackOp, CallOp, FuseOp, GuardOp
from tessera.types.dim import Dim
from tessera.types.effect import PURE, Effects, may_swap
from tessera.types.frozen import frozen

_PART = "part"
"""What a call is that is launched with later ones: at the last of them."""
_QUIET = ("guard", "alloc", "alias", "constant", "free", "tile", "layout", "collective", "pipeline", _PART)
"""Ops at which nothing is launched."""


@frozen
class Node:
    """One op: its name, the kernel that it runs if it does, and what it touches."""

    number: int
    what: str
    name: str
    reads: tuple[ByteRange, ...] = ()
    writes: tuple[ByteRange, ...] = ()
    effects: Effects = PURE
    time: Dim | None = None
    """Nanoseconds, by the static model."""
    needs: tuple[int, ...] = ()
    """Nodes before it whatever they touch: those that define a value it uses, and guards."""
    span: Span | None = None
    inner: tuple[LaunchOrder, ...] = ()

    @property
    def is_launch(self) -> bool:
        """Whether something runs at it."""
        return self.what not in _QUIET

    def conflict_with(self, other: Node) -> tuple[ByteRange, ByteRange] | None:
        """Two ranges that may share a byte, of which at least one is written."""
        written = ((own, its) for own in self.writes for its in (*other.writes, *other.reads))
        read = ((own, its) for own in self.reads for its in other.writes)
        return next(((own, its) for own, its in (*written, *read) if own.may_overlap(its)), None)

    def __str__(self) -> str:
        return f"{self.number} {self.what} {self.name}" if self.name != self.what else f"{self.number} {self.what}"


@frozen
class LaunchOrder:
    """The nodes of a block in program order, and its edges: pairs (earlier, later) of node numbers."""

    nodes: tuple[Node, ...]
    edges: frozenset[tuple[int, int]]

    def before(self) -> list[int]:
        """For each node all that come before it, as bits; raises ScheduleError (T0401) where edges form a cycle."""
        found: list[int] = [0] * len(self.nodes)
        predecessors, _ = self.tables()
        for number in self._sort():
            for earlier in predecessors[number]:
                found[number] |= found[earlier] | 1 << earlier
        return found

    def tables(self) -> tuple[list[list[int]], list[list[int]]]:
        """The predecessors and the successors of each node."""
        return _tables_of(len(self.nodes), self.edges)

    def _sort(self, random: Random | None = None) -> list[int]:
        """A topological order: of the nodes that are ready the first in program order, or any of them."""
        predecessors, successors = self.tables()
        missing = [len(one) for one in predecessors]
        ready = [number for number, count in enumerate(missing) if not count]
        found: list[int] = []
        while ready:
            if random is None:
                number = heappop(ready)
            else:
                at = random.randrange(len(ready))
                ready[at], ready[-1] = ready[-1], ready[at]
                number = ready.pop()
            found.append(number)
            for later in successors[number]:
                missing[later] -= 1
                if not missing[later]:
                    heappush(ready, later)
        if len(found) < len(self.nodes):
            stuck = [str(node) for node in self.nodes if missing[node.number]]
            raise ScheduleError(
                f"launches wait for each other in a cycle: {', '.join(stuck)}",
                fix="an edge leads from a node to a later one",
            )
        return found

    def draw(self, random: Random) -> list[int]:
        """Some topological order: at each step any node that is ready."""
        return self._sort(random)

    def launches(self) -> LaunchOrder:
        """The order of launches alone, with numbers of its own and no edge that others imply."""
        numbers = {number: at for at, number in enumerate(n.number for n in self.nodes if n.is_launch)}
        order = self._sort()
        # Bits are positions in a topological order here, in which the highest of some comes before no other of them.
        before = [0] * len(order)
        place = {number: at for at, number in enumerate(order)}
        predecessors, _ = self.tables()
        for at, number in enumerate(order):
            for earlier in predecessors[number]:
                before[at] |= before[place[earlier]] | 1 << place[earlier]
        every = sum(1 << place[number] for number in numbers)
        edges: set[tuple[int, int]] = set()
        for late, number in numbers.items():
            earlier = before[place[late]] & every
            while earlier:
                last = earlier.bit_length() - 1
                edges.add((numbers[order[last]], number))
                earlier &= ~(before[last] | 1 << last)
        nodes = tuple(replace(self.nodes[number], number=at, needs=()) for number, at in numbers.items())
        return LaunchOrder(nodes, frozenset(edges))

    def check(self) -> None:
        """Raises ScheduleError (T0401) unless all that conflict in memory or effects are in program order."""
        before = self.before()
        for late in self.nodes:
            # Of several that are not ordered the nearest is the one whose edge is missing.
            for early in reversed(self.nodes[: late.number]):
                if not before[late.number] >> early.number & 1:
                    _check_pair(early, late, is_reversed=bool(before[early.number] >> late.number & 1))
            for inner in late.inner:
                inner.check()

    @property
    def width(self) -> int:
        """How many launches may run at the same time at most."""
        before = self.launches().before()
        matched: dict[int, int] = {}

        def augment(number: int, seen: set[int]) -> bool:
            for earlier in range(len(before)):
                if before[number] >> earlier & 1 and earlier not in seen:
                    seen.add(earlier)
                    if earlier not in matched or augment(matched[earlier], seen):
                        matched[earlier] = number
                        return True
            return False

        # Dilworth: the largest set of independent launches has as many as the fewest chains that cover the order, and a
        # maximum matching of launches with predecessors gives those.
        return len(before) - sum(augment(number, set()) for number in range(len(before)))

    def depths(self) -> list[int]:
        """For each node the length of the longest path to it; no two nodes of one depth depend on each other."""
        found = [0] * len(self.nodes)
        predecessors, _ = self.tables()
        for number in self._sort():
            found[number] = max((found[earlier] + 1 for earlier in predecessors[number]), default=0)
        return found

    def __str__(self) -> str:
        order = self.launches()
        longest = 1 + max(order.depths(), default=-1)
        head = f"{len(order.nodes)} launches, {self.width} at a time at most, {longest} one after the other at least"
        return "\n".join((head, *order._lines()))

    def _lines(self) -> Iterator[str]:
        starts: dict[Dim, int] = {}

        def text(part: ByteRange) -> str:
            # A symbolic offset is long: it is shown by a number, which those that share it share.
            is_long = part.memory == WORKSPACE and not part.end.is_static
            return f"workspace at offset #{starts.setdefault(part.start, len(starts))}" if is_long else str(part)

        predecessors, _ = self.tables()
        for node in self.nodes:
            after = predecessors[node.number]
            parts = [f"after {', '.join(map(str, after))}"] if after else []
            read = [part for part in node.reads if part not in node.writes]
            for verb, ranges in (("reads", read), ("writes", node.writes)):
                parts += [f"{verb} {', '.join(map(text, ranges))}"] if ranges else []
            parts += [f"does {node.effects}"] if node.effects else []
            yield f"  {node}: {'; '.join(parts)}".rstrip(": ")
            for inner in node.inner:
                yield from (f"  {line}" for line in str(inner).splitlines())


@lru_cache(maxsize=256)  # tests draw thousands of orders from one
def _tables_of(count: int, edges: frozenset[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    predecessors, successors = ([list[int]() for _ in range(count)] for _ in range(2))
    for first, second in sorted(edges):
        successors[first].append(second)
        predecessors[second].append(first)
    return predecessors, successors


def _overlap_text(one: ByteRange, other: ByteRange) -> str:
    """The bytes that two ranges share, where they are known; both ranges where they are not."""
    starts, ends = (one.start.value, other.start.value), (one.end.value, other.end.value)
    if one.memory != other.memory or None in (*starts, *ends):
        return f"{one} and {other}" if one != other else str(one)
    start, end = max(value or 0 for value in starts), min(value or 0 for value in ends)
    return str(ByteRange(one.memory, Dim.constant(start), Dim.constant(end - start)))


def _check_pair(early: Node, late: Node, is_reversed: bool) -> None:
    """Raises where two nodes conflict that nothing orders, or that are ordered the other way."""
    shared = early.conflict_with(late)
    if shared is not None:
        what = f"both touch {_overlap_text(*shared)}"
    elif early.number in late.needs:
        what = "are what defines a value, or a guard, and what needs it"
    elif not may_swap(early.effects, late.effects):
        what = f"do {early.effects} and {late.effects}, which keep their order"
    else:
        return
    wrong = f"and `{early}` waits for `{late}`" if is_reversed else "and nothing orders them"
    raise ScheduleError(
        f"`{early}` and `{late}` {what}, {wrong}",
        span=late.span or HERE,
        notes=("an op that reads or overwrites what another touches comes after it in every order",),
        fix=f"let `{late}` wait for `{early}`: an edge ({early.number}, {late.number})",
    )


def order_of(program: SpecOp, kernels: Mapping[str, SpecOp], scratch: Collection[str] = ()) -> LaunchOrder:
    """The order of a `tsched.module`; `kernels` are those that it calls, `scratch` those with memory of their own."""
    return order_in(program.regions[0].block, Memory(program, kernels, scratch))


def order_among(nodes: Iterable[Node]) -> LaunchOrder:
    """The order of nodes that are given in program order."""
    found = tuple(nodes)
    edges = _Edges(overlaps_among(one for node in found for one in (*node.reads, *node.writes)))
    for node in found:
        edges.add(node)
    return LaunchOrder(found, frozenset(edges.found))


def order_in(block: Block, memory: Memory) -> LaunchOrder:
    """The order of a block of a program."""
    ops = ops_of(block)
    numbers: dict[Operation, int] = {op: number for number, op in enumerate(ops)}
    launches: dict[Operation, Accesses] = {}
    """What launches touch, by their first parts: ops of memory may be between those and the rest."""
    nodes: list[Node] = []
    guards: list[int] = []
    for number, op in enumerate(ops):
        parts = launch_of(op)
        if op is parts[0]:
            # All of a launch waits for what any of it waits for.
            several = [memory.accesses(part) for part in parts if isinstance(part, SpecOp)]
            launches[op] = several[0] if len(several) == 1 else Accesses().join(*several)
        touched = launches[parts[0]]
        inner = tuple(order_in(region.block, memory) for region in op.regions)
        short = op.spec.short_name if op is parts[-1] else _PART
        name = op.kernel if isinstance(op, CallOp) else op.body if isinstance(op, FuseOp) else short
        time = op.time if isinstance(op, CallOp | FuseOp) else None
        effects = memory.effects(op) if short not in _QUIET else PURE
        needs = tuple(sorted({*guards, *(numbers[owner] for owner in _makers(op) if owner in numbers)}))
        if _is_guard(op):
            guards.append(number)
        nodes.append(Node(number, short, name, touched.reads, touched.writes, effects, time, needs, op.span, inner))
    return order_among(nodes)


def ops_of(block: Block) -> list[SpecOp]:
    """The ops of a block but its terminator."""
    return [op for op in block.ops if isinstance(op, SpecOp) and not op.spec.is_terminator]


def _is_guard(op: SpecOp) -> bool:
    """Whether an op may end the run, which later ones rely on."""
    return isinstance(op, GuardOp) or (isinstance(op, CallbackOp) and op.call.startswith("check_"))


def launches_in(block: Block) -> list[SpecOp]:
    """The ops of a block that are launches, by the numbers that `LaunchOrder.launches` gives them."""
    return [op for op in ops_of(block) if op.spec.short_name not in _QUIET and op is launch_of(op)[-1]]


def _makers(op: SpecOp) -> Iterator[Operation]:
    """The ops that define the operands of an op, or of one inside of it."""
    for inner in op.walk():
        for value in inner.operands:
            if isinstance(value, OpResult):
                yield value.owner


class _Edges:
    """Edges in one walk through a block: for each byte range its last writer, and the readers since."""

    def __init__(self, overlaps: Mapping[ByteRange, Sequence[ByteRange]]) -> None:
        self.found: set[tuple[int, int]] = set()
        self._writer: dict[ByteRange, int] = {}
        self._readers: dict[ByteRange, list[int]] = {}
        self._overlaps = overlaps
        self._effectful: list[Node] = []

    def add(self, node: Node) -> None:
        earlier = set(node.needs)
        earlier |= {self._writer[near] for one in node.reads for near in self._overlaps[one] if near in self._writer}
        for one in node.writes:
            for near in self._overlaps[one]:
                earlier.update(self._readers.get(near, ()))
                if near in self._writer:
                    earlier.add(self._writer[near])
        if node.effects:
            earlier |= {other.number for other in self._effectful if not may_swap(other.effects, node.effects)}
            self._effectful.append(node)
        self.found |= {(number, node.number) for number in earlier}
        for one in node.reads:
            self._readers.setdefault(one, []).append(node.number)
        for one in node.writes:
            self._writer[one], self._readers[one] = node.number, []


# Launches distributed over concurrent CUDA streams, with as few events between them as keep every edge of their
# order.

BEGIN = -1
"""In place of a launch that is waited for: the work of the first stream before the program."""
_ANYWHERE = ("call",)
"""Launches that may leave the first stream: others wait for the host, or contain bodies."""


@frozen
class Step:
    """One launch: its stream, the launches of other streams that it waits for, and whether one waits for it."""

    node: Node
    stream: int
    waits: tuple[int, ...] = ()
    signals: bool = False

    def __str__(self) -> str:
        waits = (
            f" waits for {', '.join('the start' if n == BEGIN else str(n) for n in self.waits)}" if self.waits else ""
        )
        return f"stream {self.stream}: {self.node}{waits}{' signals' if self.signals else ''}"


@frozen
class StreamPlan:
    """Launches in the order they are issued; at the end the first stream waits for `joins`, and so for all of them."""

    steps: tuple[Step, ...]
    joins: tuple[int, ...]
    begins: bool
    """Whether some stream waits for the start."""

    @property
    def streams(self) -> int:
        """How many there are."""
        return 1 + max((step.stream for step in self.steps), default=0)

    @property
    def events(self) -> tuple[int, ...]:
        """The launches after which there is an event, the start before them."""
        return (*((BEGIN,) if self.begins else ()), *(step.node.number for step in self.steps if step.signals))

    @property
    def waits(self) -> int:
        """How often one stream waits for another."""
        return len(self.joins) + sum(len(step.waits) for step in self.steps)

    def __str__(self) -> str:
        joined = [f"stream 0: waits for {', '.join(map(str, self.joins))}"] if self.joins else []
        return "\n".join([*map(str, self.steps), *joined])

    def happens_before(self) -> list[int]:
        """For each launch all that happen before it, by the order within streams and by waits, as bits."""
        streams: dict[int, int] = {}
        found: list[int] = []
        for number, step in enumerate(self.steps):
            known = streams.get(step.stream, 0)
            for wait in step.waits:
                known |= found[wait] | 1 << wait if wait != BEGIN else 0
            found.append(known)
            streams[step.stream] = known | 1 << number
        return found

    def check(self, order: LaunchOrder) -> None:
        """Raises ScheduleError (T0401) where a launch could begin before one that it waits for in an order."""
        needed = order.launches().before()
        for step, known in zip(self.steps, self.happens_before(), strict=True):
            missing = needed[step.node.number] & ~known
            if missing:
                earlier = self.steps[missing.bit_length() - 1]
                raise ScheduleError(
                    f"`{step.node}` in stream {step.stream} comes after `{earlier.node}` in stream {earlier.stream}, "
                    "and does not wait for it",
                    span=step.node.span or HERE,
                    notes=("launches of two streams are ordered by events alone",),
                    fix=f"let stream {step.stream} wait for an event after `{earlier.node}`",
                )


def assign_streams(order: LaunchOrder, count: int) -> StreamPlan:
    """Distribute the launches of a program over at most `count` streams.

    Copies to host memory have one stream more, and those from there another: both run beside each other and beside
    kernels. Of the waits between streams only those are kept that no other implies.
    """
    launches = order.launches()
    streams = _streams_of(launches, count)
    before = launches.before()
    known = [0] * (1 + max([*streams, count - 1]))
    """What has happened before what comes next in each stream, as bits; the start is the first."""
    known[0] = 1
    at_end: list[int] = []
    waits: list[tuple[int, ...]] = []
    for node in launches.nodes:
        stream = streams[node.number]
        waits.append(_add_waits(before[node.number] << 1 | 1, stream, known, at_end))
        known[stream] |= 1 << (node.number + 1)
        at_end.append(known[stream])
    joins = _add_waits((1 << len(launches.nodes)) - 1 << 1, 0, known, at_end)
    signalled = {number for one in (*waits, joins) for number in one}
    steps = [Step(n, streams[n.number], waits[n.number], n.number in signalled) for n in launches.nodes]
    return StreamPlan(tuple(steps), joins, BEGIN in signalled)


def _add_waits(needed: int, stream: int, known: list[int], at_end: Sequence[int]) -> tuple[int, ...]:
    """Those of the needed launches that a stream does not know to be complete; it knows them from here on.

    They are bits, the start the first of them. Later launches know of earlier ones, so that those are looked at first.
    """
    found: list[int] = []
    while missing := needed & ~known[stream]:
        number = BEGIN + missing.bit_length() - 1
        found.append(number)
        known[stream] |= 1 if number == BEGIN else at_end[number]
    return tuple(sorted(found))


def _streams_of(launches: LaunchOrder, count: int) -> list[int]:
    """The stream of each launch; time is counted in launches."""
    last: list[int | None] = [BEGIN, *[None] * (count - 1)]
    ends = [0] * count
    done: list[int] = []
    found: list[int] = []
    predecessors, _ = launches.tables()
    for node in launches.nodes:
        behind = predecessors[node.number]
        ready = max((done[number] for number in behind), default=0)
        directions = [any(part.memory == HOST_MEMORY for part in parts) for parts in (node.writes, node.reads)]
        if any(directions):
            done.append(ready + 1)
            found.append(count + directions.index(True))
            continue
        stream = _choose_stream(node, behind, last, ends, ready)
        last[stream] = node.number
        ends[stream] = max(ends[stream], ready) + 1
        done.append(ends[stream])
        found.append(stream)
    return found


def _choose_stream(
    node: Node, behind: Sequence[int], last: Sequence[int | None], ends: Sequence[int], ready: int
) -> int:
    if node.what not in _ANYWHERE:
        return 0
    following = [stream for stream, number in enumerate(last) if number in (behind or [BEGIN])]
    if following:
        return max(following, key=lambda stream: ends[stream])
    free = [stream for stream, number in enumerate(last) if number is None]
    # An open stream that is idle by then costs a wait, and a new one no less.
    idle = [stream for stream, number in enumerate(last) if number is not None and ends[stream] <= ready]
    return (idle or free or sorted(range(len(last)), key=lambda stream: ends[stream]))[0]
