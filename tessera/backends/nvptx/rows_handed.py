"""What warps that share a row hand to each other: extremes of all, and what turns carry, from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    A team has the barrier of the number of its first warp.
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

    def in_turn(
        self,
        loop: SpecOp,
        carried: Sequence[Value],
        wanted: Sequence[int],
        write: Callable[[Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """What turns carry, by one warp after the other, each from what the one before has left; what is left then.

        Only what is wanted is handed over, the rest is as it was. All warps of the team wait at the end of each.
        """
        f, team, kinds = self.emitter.f, self.team, self._kinds(loop.results)
        # A number that nobody knows: the loop would be written out, once for each warp.
        warps = f.raw("i64", f'call i64 asm "mov.b64 $0, $1;", "=l,l"({f.index(team.warps)})')

        def known(number: int, before: dict[int, Value]) -> Value:
            return before.get(number, carried[number])

        def own(turn: Value) -> None:
            every = range(len(carried))
            taken = f.if_(
                f.icmp("sgt", turn, 0),
                lambda: [known(at, self._get(loop, f.sub(self.warp, 1), kinds, [at])) for at in wanted],
                lambda: [carried[at] for at in wanted],
            )
            before = dict(zip(wanted, taken, strict=True))
            self._put(loop, write(turn, [known(at, before) for at in every]), kinds, wanted)

        def turn(number: Value) -> None:
            f.if_(f.icmp("eq", number, team.place), lambda: own(number))
            self.meet()

        f.loop(0, warps, 1, turn)
        found = self._get(loop, f.sub(f.add(team.first, team.warps), 1), kinds, wanted)
        return [known(number, found) for number in range(len(carried))]

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
