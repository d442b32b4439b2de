"""A pointwise op joins the contraction or library kernel before it, to be computed on the result block in registers.

Which ops those are is decided for the whole program before any group exists, because it depends on who reads their
results. All that could go there does, but for ops that read only values which must be in memory anyway and whose own
readers can compute them as they read: in the epilogue those would be one more result to write. Where whole tiles are in
registers, an epilogue with many results leaves but their common source there, and what the user promised: operands and
results of an optimizer's update spill (528 bytes of AdamW's), and save less than that costs. Library kernels take
nothing but what the user promised to be one kernel with them (`epilogue.chain`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.grouping import FusionRule, Group, Groups, Site, When
from tessera.ir.schedule.program import Program, Read
from tessera.ir.tile.facets import Contraction, Library, Pointwise, Reduction
from tessera.types.dim import Dim

_MOST_RESULTS = 2
"""Results of a contraction whose tiles are in registers: an activation, and what its derivative is computed from."""


class Epilogue(FusionRule):
    """Before: `%1 = contraction group`, `%2 = tgraph.add %1, %bias`. After: one contraction group with both."""

    when = When.RECORD
    order = 10

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self.epilogues = find_epilogues(self.program)

    def targets(self, site: Site) -> Iterable[Group]:
        return [one for one in site.sources if one.kind.takes_epilogue]

    def cost(self, site: Site, group: Group) -> tuple[int, ...]:
        return 0, -group.number

    def matches(self, site: Site, group: Group) -> bool:
        if site.record not in self.epilogues.get(group.first, ()) or site.shape != group.shape:
            return False
        reads = self.groups.reads_from(group, site.reads)
        is_computed = self.program.are_elementwise(reads, site.shape) and self.groups.is_allowed(group)
        return is_computed and not self._would_wait(site, group)

    def _would_wait(self, site: Site, group: Group) -> bool:
        """Whether a contraction would have to wait for other ranks because of its epilogue; a promised one does."""
        depends = self.groups.order.depends
        others = [other for other in site.sources if other is not group]
        waited = (
            one
            for one in self.groups.collectives
            if any(other.number == one or depends(other.number, one) for other in others)
            and not depends(group.number, one)
        )
        if next(waited, None) is None:
            return False
        taken = (spec_of(self.program.tape.records[number]).lower for number in self.epilogues[group.first])
        if any(isinstance(lower, Pointwise) and lower.is_promise for lower in taken):
            return False
        return self.groups.ask("collectives.overlap", group)


RULE = Epilogue


def find_epilogues(program: Program) -> dict[int, frozenset[int]]:
    """The records of the epilogue of each op that takes one, by its number; one that two could take is in both."""
    finder = _Finder(program)
    records = program.tape.records
    found = {
        number: finder.epilogue(number)
        for number in program.solid
        if isinstance(spec_of(records[number]).lower, Contraction)
    }
    for number in program.solid:
        lower = spec_of(records[number]).lower
        if not isinstance(lower, Pointwise) or not lower.is_promise:
            continue
        maker = program.makers.get(program.alias_of(records[number].operands[1]), -1)
        source = spec_of(records[maker]).lower if maker >= 0 else None
        if isinstance(source, Library) and source.takes_epilogue:
            found[maker] = found.get(maker, frozenset()) | finder.find_promise(maker, number)
    return found


class _Finder:
    """Walks from an op along its readers; `before` has, for each record, all that it depends on as bits."""

    def __init__(self, program: Program) -> None:
        self.program, self.records = program, program.tape.records
        self.readers = program.readers
        self.results = program.result_values
        self.before: dict[int, int] = {}
        for number in program.solid:
            self.before[number] = 0
            for read in (*program.reads(number), *program.waits(number)):
                maker = program.makers.get(read.value, -1)
                if maker >= 0:
                    self.before[number] |= self.before.get(maker, 0) | 1 << maker

    def epilogue(self, start: int) -> frozenset[int]:
        """What follows a contraction element by element, less what its readers had better compute themselves."""
        shape = self.program.type(self.records[start].results[0]).shape
        inside = self._reach(start, shape)
        moved: set[int] = set()
        absorbable = self._absorbable(inside)
        for number in sorted(inside - {start}):
            makers = {self.program.makers[read.value] for read in self._own(number, inside)}
            on_moved = all(maker in moved or self._escapes(maker, inside) for maker in makers)
            if number in absorbable and on_moved:
                moved.add(number)
        found = inside - moved - {start}
        written = sum(self._escapes(number, found) for number in found)
        if not self.program.whole_tiles or written <= _MOST_RESULTS:
            return frozenset(found)
        promised = (self.find_promise(start, number) for number in found if self._is_promise(number))
        return frozenset(self._chain(start, found)).union(*promised)

    def _chain(self, start: int, inside: set[int]) -> list[int]:
        """The ops behind an op that read nothing else, one after the other, as long as none has a wider result."""
        found, bits = list[int](), self._bits(start)
        users = self._users(start)
        while len(users) == 1 and users <= inside:
            (number,) = users
            if len(self.program.reads(number)) > 1 or self._bits(number) > bits:
                break
            found.append(number)
            users, bits = self._users(number), self._bits(number)
        return found

    def _is_promise(self, number: int) -> bool:
        lower = spec_of(self.records[number]).lower
        return isinstance(lower, Pointwise) and lower.is_promise

    def _bits(self, number: int) -> int:
        return self.program.type(self.records[number].results[0]).dtype.bits

    def find_promise(self, start: int, end: int) -> frozenset[int]:
        """The pointwise ops from an op to a promise on it, which is among them; none where it cannot be reached."""
        inside = self._reach(start, self.program.type(self.records[start].results[0]).shape)
        found: set[int] = set()
        pending = {end} & inside
        while pending:
            number = pending.pop()
            found.add(number)
            pending |= {self.program.makers[read.value] for read in self._own(number, inside)} - found - {start}
        return frozenset(found)

    def _reach(self, start: int, shape: tuple[Dim, ...]) -> set[int]:
        """The op and every pointwise op that follows from it element by element, and depends on it in no other way."""
        inside, bits = {start}, 1 << start
        pending = self._users(start)
        while pending:
            number = min(pending)
            pending.discard(number)
            if number not in inside and self._fits(number, inside, bits, shape):
                inside.add(number)
                bits |= 1 << number
                pending |= self._users(number)
        return inside

    def _users(self, number: int) -> set[int]:
        return {reader for value in self.records[number].results for reader, _ in self.readers.get(value, ())}

    def _own(self, number: int, inside: set[int]) -> list[Read]:
        return [read for read in self.program.reads(number) if self.program.makers.get(read.value) in inside]

    def _fits(self, number: int, inside: set[int], bits: int, shape: tuple[Dim, ...]) -> bool:
        record = self.records[number]
        if not isinstance(spec_of(record).lower, Pointwise) or self.program.type(record.results[0]).shape != shape:
            return False
        waited = (self.program.makers.get(read.value, -1) for read in self.program.waits(number))
        if any(maker >= 0 and (self.before.get(maker, 0) | 1 << maker) & bits for maker in waited):
            return False
        for read in self.program.reads(number):
            maker = self.program.makers.get(read.value, -1)
            if maker in inside:
                if not self.program.are_elementwise([read], shape):
                    return False
            elif maker >= 0 and self.before.get(maker, 0) & bits:
                return False
        return True

    def _escapes(self, number: int, inside: set[int]) -> bool:
        """Whether a result must be in memory whatever the epilogue is."""
        results = self.records[number].results
        return any(value in self.results for value in results) or not self._users(number) <= inside

    def _absorbable(self, inside: set[int]) -> set[int]:
        """Ops whose results are read only by ops that can compute them as they read."""
        found: set[int] = set()
        for number in sorted(inside, reverse=True):
            users = self._users(number)
            is_kept = any(value in self.results for value in self.records[number].results)
            if not is_kept and all(user in found or (user not in inside and self._absorbs(user)) for user in users):
                found.add(number)
        return found

    def _absorbs(self, user: int) -> bool:
        return isinstance(spec_of(self.records[user]).lower, Pointwise | Reduction)
