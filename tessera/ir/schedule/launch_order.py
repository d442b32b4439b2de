"""`LaunchOrder`: what must come before what when a program runs, and nothing else, as a value that can be checked.

Nodes are the ops of a program or of a body in it, numbered as they stand; an op of control flow is one node, with an
order for each of its bodies. An arc leads from a node to one that reads what it wrote, or writes what it touched: in
memory as it was planned, so that a place which is used again orders those who had it before. Effects that may not
change places have arcs too. Any order that keeps all arcs gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from random import Random

from xdsl.ir import Block, Operation

from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import HERE
from tessera.diagnostics.span import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.accesses import Memory, Place
from tessera.types.dim import Dim
from tessera.types.effect import PURE, Effects, may_swap
from tessera.types.frozen import frozen

_QUIET = ("guard", "alloc", "alias", "constant", "free", "tile", "layout", "collective", "pipeline")
"""Ops at which nothing is launched."""


@frozen
class Node:
    """One op: what it is, the kernel that it runs or its own name, and what it touches."""

    number: int
    what: str
    name: str
    reads: tuple[Place, ...] = ()
    writes: tuple[Place, ...] = ()
    effects: Effects = PURE
    time: Dim | None = None
    """Nanoseconds, by the static model."""
    needs: tuple[int, ...] = ()
    """Nodes before it whatever they touch: those that make a name it uses, and guards."""
    span: Span | None = None
    inner: tuple[LaunchOrder, ...] = ()

    @property
    def is_launch(self) -> bool:
        """Whether something runs at it."""
        return self.what not in _QUIET

    def meets(self, other: Node) -> tuple[Place, Place] | None:
        """Two places that both touch and one writes, where they may share a byte."""
        for own in self.writes:
            for its in (*other.writes, *other.reads):
                if own.may_meet(its):
                    return own, its
        for own in self.reads:
            for its in other.writes:
                if own.may_meet(its):
                    return own, its
        return None

    def __str__(self) -> str:
        return f"{self.number} {self.what} {self.name}" if self.name != self.what else f"{self.number} {self.what}"


@frozen
class LaunchOrder:
    """The nodes of a block in the order they stand in, and which must come before which: pairs of numbers."""

    nodes: tuple[Node, ...]
    arcs: frozenset[tuple[int, int]]

    def before(self) -> list[int]:
        """For each node all that come before it, as bits; raises ScheduleError (T0401) where some wait in a circle."""
        found: list[int] = [0] * len(self.nodes)
        for number in self._sorted():
            for earlier in self._predecessors(number):
                found[number] |= found[earlier] | 1 << earlier
        return found

    def _predecessors(self, number: int) -> list[int]:
        return self._tables()[0][number]

    def _tables(self) -> tuple[list[list[int]], list[list[int]]]:
        """Those before, and those behind, each node."""
        key = (len(self.nodes), self.arcs)
        found = _TABLES.get(key)
        if found is None:
            behind: list[list[int]] = [[] for _ in self.nodes]
            ahead: list[list[int]] = [[] for _ in self.nodes]
            for first, second in sorted(self.arcs):
                behind[first].append(second)
                ahead[second].append(first)
            if len(_TABLES) > _KEPT:
                _TABLES.clear()
            found = _TABLES[key] = (ahead, behind)
        return found

    def _sorted(self, choose: Callable[[list[int]], int] = lambda ready: ready.index(min(ready))) -> list[int]:
        """The nodes one after the other, each after all that it waits for; `choose` says which of those that may."""
        ahead, behind = self._tables()
        missing = [len(one) for one in ahead]
        ready = [number for number, count in enumerate(missing) if not count]
        found: list[int] = []
        while ready:
            at = choose(ready)
            ready[at], ready[-1] = ready[-1], ready[at]
            number = ready.pop()
            found.append(number)
            for later in behind[number]:
                missing[later] -= 1
                if not missing[later]:
                    ready.append(later)
        if len(found) < len(self.nodes):
            stuck = [str(node) for node in self.nodes if missing[node.number]]
            raise ScheduleError(
                f"launches wait for each other in a circle: {', '.join(stuck)}",
                fix="an arc leads from a node to one that stands behind it",
            )
        return found

    def drawn(self, random: Random) -> list[int]:
        """Some order that keeps all arcs: at each step any node that may come next."""
        return self._sorted(lambda ready: random.randrange(len(ready)))

    def without(self, arc: tuple[int, int]) -> LaunchOrder:
        """The same with one arc less."""
        return LaunchOrder(self.nodes, self.arcs - {arc})

    def reduced(self) -> LaunchOrder:
        """The same order with as few arcs as say it."""
        before = self.before()
        kept: set[tuple[int, int]] = set()
        place = {number: at for at, number in enumerate(self._sorted())}
        for node in self.nodes:
            known = 0
            for earlier in sorted(self._predecessors(node.number), key=place.__getitem__, reverse=True):
                if not known >> earlier & 1:
                    kept.add((earlier, node.number))
                    known |= before[earlier] | 1 << earlier
        return LaunchOrder(self.nodes, frozenset(kept))

    def launches(self) -> LaunchOrder:
        """The order of what runs, with numbers of its own and no arc that others imply."""
        before = self.before()
        numbers = {number: at for at, number in enumerate(n.number for n in self.nodes if n.is_launch)}
        place = {number: at for at, number in enumerate(self._sorted())}
        every = sum(1 << number for number in numbers)
        arcs: set[tuple[int, int]] = set()
        for late in numbers:
            earlier = before[late] & every
            while earlier:
                # The last of them in some order that keeps all arcs comes before no other of them.
                last = max(_bits(earlier), key=place.__getitem__)
                arcs.add((numbers[last], numbers[late]))
                earlier &= ~(before[last] | 1 << last)
        nodes = tuple(_numbered(self.nodes[number], at) for number, at in numbers.items())
        return LaunchOrder(nodes, frozenset(arcs))

    def check(self) -> None:
        """Raises ScheduleError (T0401) unless all that meet in memory or in their effects are ordered as they stand."""
        before = self.before()
        for late in self.nodes:
            # Of several that are not ordered any more the nearest is the one whose arc is missing.
            for early in reversed(self.nodes[: late.number]):
                if not before[late.number] >> early.number & 1:
                    _check_pair(early, late, is_turned=bool(before[early.number] >> late.number & 1))
            for inner in late.inner:
                inner.check()

    @property
    def is_line(self) -> bool:
        """Whether each launch waits for the one before it."""
        order = self.launches()
        return all((at, at + 1) in order.arcs for at in range(len(order.nodes) - 1))

    @property
    def width(self) -> int:
        """How many launches may run at one time at most."""
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

        # As many chains as cover all: whatever may run at one time has one of each at most (Dilworth).
        return len(before) - sum(augment(number, set()) for number in range(len(before)))

    def depths(self) -> list[int]:
        """For each node how many stand before it on the longest way to it; no two of one depth need each other."""
        found = [0] * len(self.nodes)
        for number in self._sorted():
            found[number] = max((found[earlier] + 1 for earlier in self._predecessors(number)), default=0)
        return found

    def critical_path(self, sizes: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """Launches that wait for each other and take longest together, by their number or, with sizes, their times."""
        order = self.launches()
        length: list[int] = []
        last: list[int] = []
        for node in order.nodes:
            own = 1 if sizes is None or node.time is None else max(1, node.time.evaluate(sizes))
            best = max(order._predecessors(node.number), key=lambda number: length[number], default=-1)
            length.append(own + (length[best] if best >= 0 else 0))
            last.append(best)
        found: list[int] = []
        at = max(range(len(length)), key=length.__getitem__, default=-1)
        while at >= 0:
            found.append(at)
            at = last[at]
        return tuple(reversed(found))

    def __str__(self) -> str:
        order = self.launches()
        longest = len(order.critical_path())
        head = f"{len(order.nodes)} launches, {self.width} at a time at most, {longest} one after the other at least"
        return "\n".join((head, *order._lines()))

    def _lines(self) -> Iterator[str]:
        starts: dict[Dim, int] = {}

        def shown(place: Place) -> str:
            # An offset that depends on sizes is long; who shares it shares the place.
            long = place.memory == "workspace" and not place.end.is_static
            return f"workspace at place {starts.setdefault(place.start, len(starts))}" if long else str(place)

        for node in self.nodes:
            after = self._predecessors(node.number)
            parts = [f"after {', '.join(map(str, after))}"] if after else []
            read = [place for place in node.reads if place not in node.writes]
            for verb, places in (("reads", read), ("writes", node.writes)):
                parts += [f"{verb} {', '.join(map(shown, places))}"] if places else []
            parts += [f"does {node.effects}"] if node.effects else []
            yield f"  {node}: {'; '.join(parts)}".rstrip(": ")
            for inner in node.inner:
                yield from (f"  {line}" for line in str(inner).splitlines())


_TABLES: dict[tuple[int, frozenset[tuple[int, int]]], tuple[list[list[int]], list[list[int]]]] = {}
_KEPT = 256
"""Tables of arcs are asked for again and again while an order is drawn from."""


def _bits(number: int) -> Iterator[int]:
    while number:
        yield number.bit_length() - 1
        number &= ~(1 << number.bit_length() - 1)


def _numbered(node: Node, number: int) -> Node:
    """The node among launches alone, where nothing but launches has a number."""
    return Node(
        number, node.what, node.name, node.reads, node.writes, node.effects, node.time, (), node.span, node.inner
    )


def _shared(one: Place, other: Place) -> str:
    """The bytes of two places that meet, where they are known; both places where they are not."""
    starts, ends = (one.start.value, other.start.value), (one.end.value, other.end.value)
    if one.memory != other.memory or None in (*starts, *ends):
        return f"{one} and {other}" if one != other else str(one)
    start, end = max(value or 0 for value in starts), min(value or 0 for value in ends)
    return str(Place(one.memory, Dim.constant(start), Dim.constant(end - start)))


def _check_pair(early: Node, late: Node, is_turned: bool) -> None:
    """Raises where two nodes that nothing orders, or that are ordered the other way, meet."""
    shared = early.meets(late)
    if shared is not None:
        what = f"both touch {_shared(*shared)}"
    elif early.number in late.needs:
        what = "are what makes a name, or a guard, and what comes after it"
    elif not may_swap(early.effects, late.effects):
        what = f"do {early.effects} and {late.effects}, which keep their order"
    else:
        return
    wrong = f"and `{early}` waits for `{late}`" if is_turned else "and nothing orders them"
    raise ScheduleError(
        f"`{early}` and `{late}` {what}, {wrong}",
        span=late.span or HERE,
        notes=("who reads, or writes anew, what another touches comes after it in every order",),
        fix=f"let `{late}` wait for `{early}`: an arc ({early.number}, {late.number})",
    )


def order_of(program: SpecOp, kernels: Mapping[str, SpecOp], scratch: Collection[str] = ()) -> LaunchOrder:
    """The order of a `tsched.module`; `kernels` are those that it calls, `scratch` those with memory of their own."""
    return order_in(program.regions[0].block, Memory(program, kernels, scratch))


def order_among(nodes: Iterable[Node]) -> LaunchOrder:
    """The order of nodes that stand one after the other."""
    arcs = _Arcs()
    found = tuple(nodes)
    for node in found:
        arcs.add(node)
    return LaunchOrder(found, frozenset(arcs.found))


def order_in(block: Block, memory: Memory) -> LaunchOrder:
    """The order of a block of a program."""
    ops = ops_of(block)
    numbers: dict[Operation, int] = {op: number for number, op in enumerate(ops)}
    nodes: list[Node] = []
    guards: list[int] = []
    for number, op in enumerate(ops):
        touched = memory.touched(op)
        inner = tuple(order_in(region.block, memory) for region in op.regions)
        name = op.value("kernel") if op.name == "tsched.call" else op.spec.short_name
        name = op.value("body") if op.name == "tsched.fuse" else name
        time = op.value("time") if op.name in ("tsched.call", "tsched.fuse") else None
        effects = memory.effects(op) if op.spec.short_name not in _QUIET else PURE
        needs = tuple(sorted({*guards, *(numbers[owner] for owner in _makers(op) if owner in numbers)}))
        if _is_guard(op):
            guards.append(number)
        short = op.spec.short_name
        nodes.append(Node(number, short, name, touched.reads, touched.writes, effects, time, needs, op.span, inner))
    return order_among(nodes)


def ops_of(block: Block) -> list[SpecOp]:
    """The ops of a block but its end, which stays there."""
    return [op for op in block.ops if isinstance(op, SpecOp) and not op.spec.is_terminator]


def _is_guard(op: SpecOp) -> bool:
    """Whether an op may end the run before what stands behind it goes astray."""
    return op.name == "tsched.guard" or (op.name == "tsched.callback" and op.value("call").startswith("check_"))


def launches_in(block: Block) -> list[SpecOp]:
    """The ops of a block that are launches, by the numbers that `LaunchOrder.launches` gives them."""
    return [op for op in ops_of(block) if op.spec.short_name not in _QUIET]


def _makers(op: SpecOp) -> Iterator[Operation]:
    """The ops that make what an op, or one inside of it, is given."""
    for inner in op.walk():
        for value in inner.operands:
            if isinstance(value.owner, Operation):
                yield value.owner


class _Arcs:
    """Arcs as a walk through a block meets them: of each place who wrote it last, and who has read it since."""

    def __init__(self) -> None:
        self.found: set[tuple[int, int]] = set()
        self._writer: dict[Place, int] = {}
        self._readers: dict[Place, list[int]] = {}
        self._near: dict[Place, list[Place]] = {}
        self._doing: list[Node] = []

    def add(self, node: Node) -> None:
        earlier = set(node.needs)
        earlier |= {self._writer[near] for place in node.reads for near in self._meeting(place) if near in self._writer}
        for place in node.writes:
            for near in self._meeting(place):
                earlier.update(self._readers.get(near, ()))
                if near in self._writer:
                    earlier.add(self._writer[near])
        if node.effects:
            earlier |= {other.number for other in self._doing if not may_swap(other.effects, node.effects)}
            self._doing.append(node)
        self.found |= {(number, node.number) for number in earlier}
        for place in node.reads:
            self._readers.setdefault(place, []).append(node.number)
        for place in node.writes:
            self._writer[place], self._readers[place] = node.number, []

    def _meeting(self, place: Place) -> list[Place]:
        """Places that were touched so far and may share a byte with one."""
        found = self._near.get(place)
        if found is None:
            found = [other for other in self._near if place.may_meet(other)]
            for other in found:
                self._near[other].append(place)
            self._near[place] = found = [*found, place]
        return found
