"""What warps that share a row exchange through shared memory: minima and maxima of all, and accumulators, in order.

Minima and maxima are the same in any order: every warp stores its own, all wait, and every warp reduces all of them in
a tree. Sums are not: a warp adds its elements to what the warp before it has left, so that bits are those of one warp
that does all iterations. Warps then go one after the other, with a barrier between, and only the additions are in that
chain; what iterations compute before they add is done by all warps at once (`row_warps.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx import values
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value, bytes_of
from tessera.ir.target.typed_ops import KernelOp, LoopOp
from tessera.ir.target.types import VectorAttr
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter
    from tessera.backends.nvptx.row_warps import WarpGroup

_SLOT = 8
"""Bytes of one exchanged element, of any dtype."""


def exchanged_bytes(kernel: KernelOp) -> int:
    """Shared memory of a block through which its warps exchange what loops carry."""
    loops = [op for op in kernel.walk() if isinstance(op, LoopOp)]
    return _SLOT * WARP * kernel.warps_per_row * sum(len(op.results) for op in loops)


class RowExchange:
    """Shared memory from `start` on, where each loop has a slot for every element that a thread carries.

    A warp group has the named barrier of the number of its first warp.
    """

    group: WarpGroup

    def __init__(self, emitter: Emitter, warp: Value, start: int) -> None:
        self.emitter, self.warp = emitter, warp
        self.slots: dict[SpecOp, int] = {}
        for op in emitter.kernel.walk():
            if isinstance(op, LoopOp):
                self.slots[op] = start
                start += _SLOT * WARP * emitter.warps_per_row * len(self._dtypes(op.results))
        self.end = start

    def synchronize(self) -> None:
        """All warps of the group wait for each other."""
        f = self.emitter.f
        numbers = [
            f.cast("trunc", f.index(one), "i32") if not isinstance(one, int) else Value("i32", str(one))
            for one in (self.group.first, f.mul(self.group.warps, WARP))
        ]
        f.call("llvm.nvvm.barrier.cta.sync.aligned.count", numbers)

    def reduce(self, loop: SpecOp, flat: Sequence[Value], functions: Sequence[str]) -> list[Value]:
        """What all warps of the group have, reduced in any order by the function of each element."""
        f, group, dtypes = self.emitter.f, self.group, self._dtypes(loop.results)
        every = range(len(flat))
        self._put(loop, flat, dtypes, every)
        self.synchronize()
        last = f.sub(f.add(group.first, group.warps), 1)
        # A group of fewer warps reads its last one several times, which a minimum does not mind.
        warps = [f.smin(f.add(group.first, warp), last) for warp in range(self.emitter.warps_per_row)]
        found = [list(self._get(loop, warp, dtypes, every).values()) for warp in warps]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [
                [
                    values.compute(f, name, [one, other], dtype)
                    for name, one, other, dtype in zip(functions, a, b, dtypes, strict=True)
                ]
                for a, b in pairs
            ]
        return found[0]

    def chain(
        self,
        loop: SpecOp,
        carried: Sequence[Value],
        wanted: Sequence[int],
        write: Callable[[Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """What iterations carry, by one warp after the other, each from what the one before has left.

        Only what is wanted is exchanged, the others are as they were. All warps of the group wait at the end of each.
        """
        f, group, dtypes = self.emitter.f, self.group, self._dtypes(loop.results)
        # Behind assembly, so that LLVM does not know the number: it would unroll the loop, once for each warp.
        warps = f.raw("i64", f'call i64 asm "mov.b64 $0, $1;", "=l,l"({f.index(group.warps)})')

        def carried_at(number: int, before: dict[int, Value]) -> Value:
            return before.get(number, carried[number])

        def own(turn: Value) -> None:
            every = range(len(carried))
            taken = f.if_(
                f.icmp("sgt", turn, 0),
                lambda: [carried_at(at, self._get(loop, f.sub(self.warp, 1), dtypes, [at])) for at in wanted],
                lambda: [carried[at] for at in wanted],
            )
            before = dict(zip(wanted, taken, strict=True))
            self._put(loop, write(turn, [carried_at(at, before) for at in every]), dtypes, wanted)

        def turn(number: Value) -> None:
            f.if_(f.icmp("eq", number, group.index), lambda: own(number))
            self.synchronize()

        f.loop(0, warps, 1, turn)
        found = self._get(loop, f.sub(f.add(group.first, group.warps), 1), dtypes, wanted)
        return [carried_at(number, found) for number in range(len(carried))]

    def _dtypes(self, results: Sequence[SSAValue]) -> list[DType]:
        """The dtype of each element that a thread has of some values."""
        found: list[DType] = []
        for value in results:
            assert isinstance(value.type, VectorAttr)
            found += [value.type.dtype] * self.emitter.layout(value)[0].registers
        return found

    def _address(self, loop: SpecOp, warp: Index, number: int) -> Value:
        f, emitter = self.emitter.f, self.emitter
        offset = f.mul(f.add(f.mul(warp, WARP), emitter.thread), _SLOT)
        start = self.slots[loop] + number * _SLOT * WARP * emitter.warps_per_row
        return f.gep(emitter.module.shared_base(), f.add(offset, start), "i8")

    def _put(self, loop: SpecOp, flat: Sequence[Value], dtypes: Sequence[DType], wanted: Sequence[int]) -> None:
        f = self.emitter.f
        for number in wanted:
            kept = values.to_memory(f, flat[number], dtypes[number])
            f.store(kept, self._address(loop, self.warp, number), align=bytes_of(kept.type))

    def _get(self, loop: SpecOp, warp: Index, dtypes: Sequence[DType], wanted: Sequence[int]) -> dict[int, Value]:
        f = self.emitter.f
        found: dict[int, Value] = {}
        for number in wanted:
            stored = f.load(self._address(loop, warp, number), values.memory_type(dtypes[number]))
            found[number] = values.from_memory(f, stored, dtypes[number])
        return found
