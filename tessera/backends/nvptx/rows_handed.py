"""What warps that share a row hand to each other: extremes of all, and what turns carry, from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.row_teams import Team
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.types import bytes_of
from tessera.ir.target.types import VectorAttr
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

_SLOT = 8
"""Bytes of one number on its way."""


def handed_bytes(kernel: SpecOp) -> int:
    """Shared memory of a block that goes from warp to warp."""
    loops = [op for op in kernel.walk() if op.name == "ttarget.loop"]
    return _SLOT * WARP * kernel.value("shares") * sum(len(op.results) for op in loops)


class Handed:
    """Shared memory from `start` on, where each loop has a slot for every number that a thread carries.

    A warp has a barrier by its own number: the first of a team that at which all of them meet, the others that at
    which they wait for the one before.
    """

    team: Team

    def __init__(self, emitter: Emitter, warp: Value, start: int) -> None:
        self.emitter, self.warp = emitter, warp
        self.slots: dict[SpecOp, int] = {}
        for op in emitter.kernel.walk():
            if isinstance(op, SpecOp) and op.name == "ttarget.loop":
                self.slots[op] = start
                start += _SLOT * WARP * emitter.shares * len(self._kinds(op.results))
        self.end = start

    def meet(self) -> None:
        """All warps of the team wait for each other."""
        f = self.emitter.f
        self._barrier(self.team.first, f.mul(self.team.warps, WARP))

    def _barrier(self, name: Index, threads: Index) -> None:
        f = self.emitter.f
        given = [f.cast("trunc", f.index(one), "i32") if not isinstance(one, int) else Value("i32", str(one))
                 for one in (name, threads)]  # fmt: skip
        f.call("llvm.nvvm.barrier.cta.sync.aligned.count", given)

    def _meet_pair(self, later: Value) -> None:
        """This warp and one beside it wait for each other; `later` is the number of the later of them.

        Where teams are blocks each number is written out: a block of which nobody knows which barriers it has would
        take all of them, and fewer blocks would fit a multiprocessor.
        """
        f, warps = self.emitter.f, self.team.warps
        if not isinstance(warps, int):
            self._barrier(later, 2 * WARP)
            return
        cases = {number: partial(self._barrier, number, 2 * WARP) for number in range(1, warps)}
        f.switch(later, cases)

    def joined(self, loop: SpecOp, flat: Sequence[Value], names: Sequence[str]) -> list[Value]:
        """What all warps of the team have, joined in any order by the function of each name."""
        f, team, kinds = self.emitter.f, self.team, self._kinds(loop.results)
        every = range(len(flat))
        self._put(loop, flat, kinds, every)
        self.meet()
        last = f.sub(f.add(team.first, team.warps), 1)
        warps = [f.smin(f.add(team.first, warp), last) for warp in range(self.emitter.shares)]
        found = [list(self._get(loop, warp, kinds, every).values()) for warp in warps]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [
                [
                    values.computed(f, name, [one, other], dtype)
                    for name, one, other, dtype in zip(names, a, b, kinds, strict=True)
                ]
                for a, b in pairs
            ]
        return found[0]

    def taken(self, loop: SpecOp, carried: Sequence[Value], wanted: Sequence[int]) -> list[Value]:
        """What the warp before has carried, once it has; of the first warp, what the loop begins with.

        Only those that are wanted are handed over; the others are as they were.
        """
        f, kinds = self.emitter.f, self._kinds(loop.results)

        def wait() -> list[Value]:
            self._meet_pair(self.warp)
            before = self._get(loop, f.sub(self.warp, 1), kinds, wanted)
            return [before.get(number, value) for number, value in enumerate(carried)]

        return f.if_(f.icmp("sgt", self.team.place, 0), wait, lambda: list(carried))

    def passed_on(self, loop: SpecOp, flat: Sequence[Value], wanted: Sequence[int]) -> list[Value]:
        """Let the next warp have what this one carried; what the last one has then, for all."""
        f, team, kinds = self.emitter.f, self.team, self._kinds(loop.results)
        self._put(loop, flat, kinds, wanted)
        last = f.sub(f.add(team.first, team.warps), 1)
        f.if_(f.icmp("slt", self.warp, last), lambda: self._meet_pair(f.add(self.warp, 1)))
        self.meet()
        found = self._get(loop, last, kinds, wanted)
        return [found.get(number, value) for number, value in enumerate(flat)]

    def _kinds(self, results: Sequence[SSAValue]) -> list[DType]:
        """The dtype of each number that a thread has of some values."""
        found: list[DType] = []
        for value in results:
            assert isinstance(value.type, VectorAttr)
            found += [value.type.dtype] * self.emitter.layout(value)[0].registers
        return found

    def _at(self, loop: SpecOp, warp: Index, number: int) -> Value:
        f, emitter = self.emitter.f, self.emitter
        place = f.mul(f.add(f.mul(warp, WARP), emitter.thread), _SLOT)
        start = self.slots[loop] + number * _SLOT * WARP * emitter.shares
        return f.gep(emitter.module.shared_base(), f.add(place, start), "i8")

    def _put(self, loop: SpecOp, flat: Sequence[Value], kinds: Sequence[DType], wanted: Sequence[int]) -> None:
        f = self.emitter.f
        for number in wanted:
            kept = values.to_memory(f, flat[number], kinds[number])
            f.store(kept, self._at(loop, self.warp, number), align=bytes_of(kept.type))

    def _get(self, loop: SpecOp, warp: Index, kinds: Sequence[DType], wanted: Sequence[int]) -> dict[int, Value]:
        f = self.emitter.f
        found: dict[int, Value] = {}
        for number in wanted:
            stored = f.load(self._at(loop, warp, number), values.memory_type(kinds[number]))
            found[number] = values.from_memory(f, stored, kinds[number])
        return found
