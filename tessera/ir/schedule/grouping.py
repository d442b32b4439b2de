"""Forming fusion groups: one walk over a tape that asks an ordered list of fusion rules.

How grouping decides. Records are visited in program order; each either joins a group or starts one of the kind that its
facet names. Three moments are open to rules (`When`): a record looks for a group, a group that has grown looks at the
groups it now reads, and, once every record is placed, each group looks at the one that reads it. At each of them all
rules of that moment name the groups they could fuse with; these are tried from the cheapest `cost` on (ties in the
order of the rules), and the first pair that is legal, that `matches` and that the user has not switched off is fused by
`apply`. The engine checks size and order: a group has at most `LARGEST` records, and two groups become one only if
nothing that one of them needs has to run between them. Whether the kernel of the group still computes what it did is
the rule's to decide (`matches`); one that is wrong there is refused once all groups are formed (`GroupKind.check`).

Dependencies between groups are kept closed under transitivity as bit sets, which makes the question "does A wait for B"
one shift; a program of a thousand ops asks it some ten thousand times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Any, ClassVar, TypeAlias

from tessera.ir.base.index_maps import coordinates
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.kinds import GroupKind, kind_for
from tessera.ir.schedule.program import Program, Read, RowSpace
from tessera.ir.tile.facets import Pointwise
from tessera.types.dim import Dim
from tessera.types.effect import Effects, may_swap
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

LARGEST = 64
"""Records up to which groups grow: larger kernels gain nothing, hold more values than registers, and compile slowly."""


@dataclass
class Group:
    """Records that become one kernel; `space` is that of a row group, `copies` a free value that it materializes."""

    number: int
    kind: GroupKind
    shape: tuple[Dim, ...]
    records: list[int] = field(default_factory=list[int])
    space: RowSpace | None = None
    copies: int | None = None

    def can_grow(self, more: int = 1) -> bool:
        """Whether the group may take in so many records."""
        return len(self.records) + more <= LARGEST

    @property
    def first(self) -> int:
        return min(self.records, default=-1)


Ask: TypeAlias = Callable[[str, Group], bool]
"""Whether a kind of fusion may happen at a group, as it is so far: `ask("fusion.row", group)`."""


@frozen
class Grouping:
    """Groups in an order in which they can run.

    `owner` is the group of each solid record, `inlined` the values that are computed where they are read although they
    are not free.
    """

    program: Program
    groups: tuple[Group, ...]
    owner: dict[int, Group]
    inlined: frozenset[int]


class Order:
    """Which groups depend on which, kept closed under transitivity as sets of bits."""

    def __init__(self) -> None:
        self.before: dict[int, int] = {}
        """Of each group, those that it depends on; a group that became part of another has no entry any more."""
        self._parts: dict[int, int] = {}
        """The groups that others became part of."""
        self._count = self._needed = 0
        """Groups that others depend on: a change of one that is not among them concerns no other."""

    def add(self) -> int:
        self.before[self._count] = 0
        self._count += 1
        return self._count - 1

    def depends(self, group: int, on: int) -> bool:
        return bool(self.before[group] >> on & 1)

    def needs(self, group: int, others: Iterable[int]) -> None:
        """Record that `group` runs after the others, and with it all that run after `group`."""
        more = 0
        for other in others:
            whole = other
            while whole in self._parts:
                whole = self._parts[whole]
            if whole != group:
                more |= self.before[whole] | 1 << whole | 1 << other
        if more & ~self.before[group]:
            self.before[group] |= more
            self._needed |= more
            self._extend(1 << group, self.before[group])

    def may_merge(self, left: int, right: int) -> bool:
        """Whether no third group has to run between the two."""
        for first, second in ((left, right), (right, left)):
            if not self.depends(second, first):
                continue  # and so does nothing that runs before the second
            between = self.before[second] & ~self.before[first] & ~(1 << first)
            while between:
                third = between.bit_length() - 1
                # One that became part of another is among these beside that, which says what it depends on.
                if self.before.get(third, 0) >> first & 1:
                    return False
                between &= ~(1 << third)
        return True

    def merge(self, kept: int, gone: int) -> None:
        both = (self.before[kept] | self.before[gone]) & ~(1 << kept | 1 << gone)
        self.before[kept] = both
        del self.before[gone]
        self._parts[gone] = kept
        bits = 1 << kept | 1 << gone
        if self._needed & bits:
            self._needed |= bits
        self._extend(bits, both | bits)

    def _extend(self, bits: int, more: int) -> None:
        """Let all that depend on one of some groups depend on more."""
        if self._needed & bits:
            before = self.before
            for group, held in before.items():
                if held & bits:
                    before[group] = held | more


class When(Enum):
    """The moment at which a rule is asked."""

    RECORD = "a record has no group yet: the first rule that can puts it into one"
    GROWN = "a group has taken in a record, and may take in the groups that the record reads"
    FORMED = "every record is in a group: the last group first, each may become part of another"


@frozen
class Site:
    """Where a fusion may happen.

    At `RECORD`, a record that is being placed and what it reads; at `GROWN` also the group that has taken it in; at
    `FORMED` a group alone, with its first record and its shape: no facet, no reads and no sources.
    """

    record: int
    facet: Any
    shape: tuple[Dim, ...]
    reads: Sequence[Read]
    """What the record reads, through views and other free values, and at which index of itself."""
    sources: Sequence[Group]
    """The groups that the reads come from, each once."""
    group: Group | None = None


class FusionRule(ABC):
    """One way in which records and groups become one group; made anew for each program, so it may keep notes.

    Each rule is one file of `ir/schedule/fusion`, which names it `RULE`. `order` says where it stands among the others.
    """

    when: ClassVar[When]
    order: ClassVar[int]

    def __init_subclass__(cls) -> None:
        if getattr(cls, "when", None) is When.FORMED and cls.targets is FusionRule.targets:
            raise TypeError(f"fusion rule `{cls.__name__}` needs `targets`: at {When.FORMED} a site has no sources")

    def __init__(self, groups: Groups) -> None:
        self.groups, self.program = groups, groups.program

    @classmethod
    def applies(cls, machine: Machine) -> bool:
        """Whether the rule is asked in programs for a machine."""
        return True

    def targets(self, site: Site) -> Iterable[Group]:
        """The groups that the record, or the group, at a site could be fused with: those it reads."""
        return site.sources

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        """What a fusion costs beside others at the same site; the cheapest that matches is done."""
        return ()

    @abstractmethod
    def matches(self, site: Site, group: Group) -> bool:
        """Whether the fusion keeps the program's meaning and is worth it; asked only where it is legal."""

    def apply(self, site: Site, group: Group) -> None:
        """Do it: a record joins the group, a grown group takes the other in, a formed one goes into the other."""
        if self.when is When.RECORD:
            self.groups.join(group, site.record)
            return
        assert site.group is not None
        self.groups.merge(*((site.group, group) if self.when is When.GROWN else (group, site.group)))


class Groups:
    """The groups of one program while they are formed, and the walk that forms them."""

    def __init__(self, program: Program, ask: Ask, rules: Sequence[type[FusionRule]]) -> None:
        self.program, self.tape = program, program.tape
        self.order = Order()
        self.groups: dict[int, Group] = {}
        self.owner: dict[int, Group] = {}
        self.inlined: set[int] = set()
        self.collectives: list[int] = []
        """Groups that wait for other ranks."""
        self._has_regions = any(record.region for record in self.tape.records)
        self.ask, self._asked = ask, dict[tuple[str, int], bool]()
        self._effects: list[tuple[int, Effects]] = []
        made = [rule(self) for rule in rules]
        self._rules = {when: [rule for rule in made if rule.when is when] for when in When}

    def run(self) -> Grouping:
        for number in self.program.solid:
            self._place(number, self.tape.records[number])
        for group in sorted(self.groups.values(), key=lambda group: -group.first):
            if group.number in self.groups:
                self._fuse(When.FORMED, Site(group.first, None, group.shape, (), (), group))
        self._copy_free_values()
        return Grouping(self.program, tuple(self._in_order()), self.owner, frozenset(self.inlined))

    def _place(self, number: int, record: Record) -> None:
        facet: object = spec_of(record).lower
        reads = self.program.reads(number)
        sources = self.sources(reads)
        shape = self.program.type(record.results[0]).shape if record.results else ()
        if not self._fuse(When.RECORD, Site(number, facet, shape, reads, sources)):
            kind = kind_for(type(facet))
            group = self._new(kind, kind.shape(self.program, record))
            group.space = kind.row_space(self.program, record)
            self.join(group, number)
        if sources:
            self._fuse(When.GROWN, Site(number, facet, shape, reads, sources, self.owner[number]))

    def _fuse(self, when: When, site: Site) -> bool:
        """Ask the rules of a moment; whether one was applied. A group that has grown may take in several others."""
        found = [(rule.cost(site, group), rule, group) for rule in self._rules[when] for group in rule.targets(site)]
        if len(found) > 1:
            found.sort(key=lambda one: one[0])
        is_done = False
        for _, rule, group in found:
            if not self._is_legal(when, site, group) or not rule.matches(site, group):
                continue
            # A knob is that of the group that loses its own kernel; a record has none yet.
            if self.is_allowed(site.group if when is When.FORMED and site.group is not None else group):
                rule.apply(site, group)
                is_done = True
                if when is not When.GROWN:
                    break
        return is_done

    def _is_legal(self, when: When, site: Site, group: Group) -> bool:
        """Whether the group may grow so far, and nothing would have to run before and after the same group."""
        if self._has_regions:
            own = self.tape.records[site.record].region if site.group is None else self.region(site.group)
            if self.region(group) != own:
                return False
        if when is When.RECORD:
            earlier = (*site.sources, *self.sources(self.program.waits(site.record)))
            return group.can_grow() and not any(
                self.order.depends(other.number, group.number) for other in earlier if other is not group
            )
        assert site.group is not None
        if group is site.group or group.number not in self.groups:
            return False
        kept, gone = (site.group, group) if when is When.GROWN else (group, site.group)
        return kept.can_grow(len(gone.records)) and self.order.may_merge(kept.number, gone.number)

    def region(self, group: Group) -> str:
        """The mesh axes of the scopes that a group stands in; groups of different ones never become one."""
        return self.tape.records[group.first].region if group.records else ""

    def is_allowed(self, group: Group) -> bool:
        """Whether the user lets a group be fused with others; asked once for each."""
        key = (f"fusion.{group.kind.name}", group.first)
        if key not in self._asked:
            self._asked[key] = self.ask(key[0], group)
        return self._asked[key]

    def sources(self, reads: Iterable[Read]) -> list[Group]:
        """The groups that reads come from, each once."""
        makers = self.program.makers
        found = {owner.number: owner for read in reads if (owner := self.owner.get(makers.get(read.value, -1)))}
        return list(found.values())

    def reads_from(self, group: Group, reads: Iterable[Read]) -> list[Read]:
        """Those of some reads that come from a group."""
        return [read for read in reads if self.owner.get(self.program.makers.get(read.value, -1)) is group]

    def is_delayed(self, group: Group, sources: Iterable[Group], taken: Iterable[int]) -> bool:
        """Whether a reduction of everything, read by others than the records `taken`, would wait for more with sources.

        Such a number, as the count of labels, may be needed by what the sources compute, as the gradient of each row:
        behind them it keeps that out of their groups.
        """
        if group.space is None or len(group.space.axes) < len(group.space.shape):
            return False
        before, more = self.order.before, 0
        for source in sources:
            more |= before[source.number] | 1 << source.number
        if not more & ~(before[group.number] | 1 << group.number):
            return False
        results = {value for number in group.records for value in self.tape.records[number].results}
        readers = {reader for value in results for reader, _ in self.program.readers.get(value, ())}
        return bool(results & self.program.result_values) or not readers <= {*group.records, *taken}

    def join(self, group: Group, number: int) -> None:
        """Put a record into a group."""
        group.records.append(number)
        self.owner[number] = group
        earlier = (*self.program.reads(number), *self.program.waits(number))
        self.order.needs(group.number, [other.number for other in self.sources(earlier)])
        group.kind.take(self, group, number)

    def merge(self, kept: Group, gone: Group) -> None:
        """Make two groups one."""
        self.order.merge(kept.number, gone.number)
        kept.records = sorted(kept.records + gone.records)
        if kept.space is not None and gone.space is not None:
            kept.space.rows.update(gone.space.rows)
        for number in gone.records:
            self.owner[number] = kept
        del self.groups[gone.number]

    def order_effects(self, group: Group, record: Record) -> None:
        """Let a group wait for the earlier ones whose effects may not be swapped with its own."""
        effects = _effects_of(record)
        if effects:
            self.order.needs(group.number, [it for it, theirs in self._effects if not may_swap(effects, theirs)])
            self._effects.append((group.number, effects))

    def _new(self, kind: GroupKind, shape: tuple[Dim, ...]) -> Group:
        number = self.order.add()
        self.groups[number] = Group(number, kind, shape)
        return self.groups[number]

    def _copy_free_values(self) -> None:
        """Groups for free values that must be in memory: results of the program, and what is read as a whole tensor."""
        readers: dict[int, list[int]] = {self.program.alias_of(value): [] for value in self.tape.outputs}
        for number in sorted(self.owner):
            for operand in self.program.memory_operands(self.tape.records[number]):
                readers.setdefault(self.program.alias_of(operand), []).append(number)
        for value, numbers in readers.items():
            if value in self.program.free:
                group = self._copy(value)
                for number in numbers:
                    self.order.needs(self.owner[number].number, [group.number])

    def _copy(self, value: int) -> Group:
        """A group that writes a free value to memory."""
        type = self.program.type(value)
        group = self._new(kind_for(Pointwise), type.shape)
        group.copies = value
        reads = self.program.trace(value, coordinates(type.rank)) + self.program.waits(self.program.makers[value])
        self.order.needs(group.number, [other.number for other in self.sources(reads)])
        return group

    def _in_order(self) -> list[Group]:
        """An order that respects all dependencies: a group has more before it than any that it depends on."""
        ordered = sorted(
            self.groups.values(), key=lambda group: (self.order.before[group.number].bit_count(), group.first)
        )
        return self._by_region(ordered) if self._has_regions else ordered

    def _by_region(self, ordered: Sequence[Group]) -> list[Group]:
        """Groups in an order that leaves a region of mesh axes when nothing of it can run yet, and not before.

        A group that cannot run waits for the last of those it needs, and is looked at again when that one runs.
        """
        left = sum(1 << group.number for group in ordered)
        waiting: dict[int, list[int]] = defaultdict(list)
        ready: dict[str, list[int]] = defaultdict(list)

        def put(position: int) -> None:
            group = ordered[position]
            if needed := self.order.before[group.number] & left:
                waiting[needed.bit_length() - 1].append(position)
            else:
                heappush(ready[self.region(group)], position)

        for position in range(len(ordered)):
            put(position)
        region, found = "", list[Group]()
        while len(found) < len(ordered):
            if not ready[region]:
                region = min((there[0], name) for name, there in ready.items() if there)[1]
            taken = ordered[heappop(ready[region])]
            left ^= 1 << taken.number
            found.append(taken)
            for position in waiting.pop(taken.number, ()):
                put(position)
        return found


def _effects_of(record: Record) -> Effects:
    """The effects of a record, its bodies included, as far as they keep an order: random draws do not."""

    def collect(one: Record) -> set[str]:
        tapes = [value for value in one.attributes.values() if isinstance(value, Tape)]
        return set(spec_of(one).effects).union(*(collect(inner) for tape in tapes for inner in tape.records))

    return Effects(collect(record)).without(["random"])


def group_tape(program: Program, ask: Ask, rules: Sequence[type[FusionRule]]) -> Grouping:
    """The fusion groups of a program, by rules in the order in which they are asked."""
    return Groups(program, ask, rules).run()


def forbid_fusion(knob: str, group: object) -> bool:
    """The answer that switches all fusion off."""
    return False
