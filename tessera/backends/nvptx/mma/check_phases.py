"""Barrier phases of warpgroups that copy for themselves: no wait is for what comes later in the same walk.

With a producer the two walks may be looked at one by one (`check_copies.py`): each waits only for the other. Here one
walk fills rings and reads them, so that a stage that is acquired before it was released, or waited for before its
copies were started, is a deadlock. So the walk is followed as it runs, through two programs of a CTA and loops of all
lengths that matter, with the stages of rings by number: the n-th stage of a ring is in phase `n / stages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.mma.check_copies import check_filled
from tessera.backends.nvptx.types import SharedAttr, spec_ops, yielded_values
from tessera.ir.base.op import SpecOp
from tessera.ir.target.typed_ops import IndexOp

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_PROGRAMS = 2
"""Programs of a CTA that are followed: the second begins in the phases that the first leaves."""
_MORE = 3
"""Steps of a loop that are followed beside twice the stages, after which everything repeats itself."""


class _Ring:
    """How many stages of a ring were copied so far, which of them were waited for, and which released."""

    def __init__(self, op: SpecOp) -> None:
        self.op, self.stages = op, op.value("stages")
        self.copied = 0
        self.there: set[int] = set()
        self.released: set[int] = set()


class PhaseCheck:
    """The walk of one CTA; `check_<op>` follows a `ttarget.<op>`.

    Loops have so many `steps` where it is not known, and are followed for `most` of them.
    """

    def __init__(self, steps: int, most: int) -> None:
        self.steps, self.most = steps, most
        self.rings: dict[SSAValue, _Ring] = {}
        self.numbers: dict[SSAValue, int] = {}
        """Cursors by the number of their stage, and indices that are known."""
        self.limits: dict[SSAValue, int] = {}
        """Where loops end."""
        self.flying: list[list[tuple[SSAValue, int]]] = []
        """What each dot in flight reads: rings, and numbers of stages."""

    def run(self, block: Block) -> None:
        """Fails where the walk waits for itself, or reads what is not there."""
        for op in spec_ops(block):
            if (check := getattr(self, f"check_{op.spec.short_name}", None)) is not None:
                check(op)
            else:
                for region in op.regions:
                    self.run(region.block)

    def _ring(self, value: SSAValue) -> _Ring:
        assert isinstance(value.owner, SpecOp)
        return self.rings.setdefault(value, _Ring(value.owner))

    def _of(self, values: Sequence[SSAValue]) -> list[int | None]:
        return [self.numbers.get(value) for value in values]

    def _bind(self, names: Sequence[SSAValue], numbers: Sequence[int | None]) -> None:
        for name, number in zip(names, numbers, strict=True):
            self.numbers.pop(name, None)
            if number is not None:
                self.numbers[name] = number

    # Control.

    def check_tiles(self, op: ops.TilesOp) -> None:
        body = op.regions[0].block
        heads = len(body.args) - len(op.operands)
        for loop in (part for part in spec_ops(body) if part.name == "ttarget.steps"):
            count = _count_steps(loop)
            count = self.steps if count is None else min(count, self.most)
            low = self.limits.setdefault(loop.operands[0], 0)
            self.limits[loop.operands[1]] = low + count * loop.value("step")
        self._bind(body.args[heads:], self._of(op.operands))
        for _ in range(_PROGRAMS):
            self.run(body)
            self._bind(body.args[heads:], self._of(yielded_values(body)))
            for ring in self.rings.values():
                if len(ring.released) != ring.copied:
                    left = ring.copied - len(ring.released)
                    ring.op.fail(
                        f"a program copies {ring.copied} stages and leaves {left} unread: the next one is out of phase",
                        "wait for every stage that is copied, and release it",
                    )

    def check_steps(self, op: ops.StepsOp) -> None:
        body = op.regions[0].block
        steps = range(self._limit(op.operands[0]), self._limit(op.operands[1]), op.step)
        carried = self._of(op.operands[2:])
        for index in steps:
            self._bind(body.args, [index, *carried])
            self.run(body)
            carried = self._of(yielded_values(body))
        self._bind(op.results, carried)

    def _limit(self, value: SSAValue) -> int:
        return self.limits.get(value, self.numbers.get(value, 0))

    def check_when(self, op: ops.WhenOp) -> None:
        low, high = (self.limits.get(value, self.numbers.get(value)) for value in op.operands[:2])
        if low is None or high is None:
            op.fail("whether a step is copied does not follow from the steps of its loop", "compare with its limits")
        body = op.regions[0].block
        if low < high:
            self.run(body)
        self._bind(op.results, self._of(yielded_values(body) if low < high else op.operands[2:]))

    def check_index(self, op: SpecOp) -> None:
        assert isinstance(op, IndexOp)
        known = {
            name: self.limits.get(value, self.numbers.get(value))
            for name, value in zip(op.names, op.operands, strict=True)
        }
        numbers = {name: number for name, number in known.items() if number is not None}
        self.numbers.pop(op.result, None)
        if op.expr.symbols <= set(numbers):
            self.numbers[op.result] = op.expr.evaluate(numbers)

    # Stages.

    def check_cursor(self, op: ops.CursorOp) -> None:
        self.numbers[op.result] = 0

    def check_advance(self, op: ops.AdvanceOp) -> None:
        self.numbers[op.result] = self.numbers[op.operands[1]] + 1

    def check_elect(self, op: SpecOp) -> None:
        """One thread waits for stages and fills them, each as a whole."""
        copies = [part for part in spec_ops(op.regions[0].block) if part.name == "ttarget.copy"]
        for part in spec_ops(op.regions[0].block):
            if part.name == "ttarget.acquire":
                self._acquire(part)
                check_filled(part, [copy for copy in copies if list(copy.operands[1:3]) == list(part.operands)])
        for copy in copies:
            if self._ring(copy.operands[1]).copied - 1 != self.numbers[copy.operands[2]]:
                copy.fail("a copy goes to a stage that was not acquired", "wait for it with `ttarget.acquire`")

    def _acquire(self, op: SpecOp) -> None:
        ring, number = self._ring(op.operands[0]), self.numbers[op.operands[1]]
        if number != ring.copied:
            op.fail(f"stage {number} is acquired, and {ring.copied} is the next whose phase ends")
        if number >= ring.stages and number - ring.stages not in ring.released:
            op.fail(
                f"stage {number} is acquired before {number - ring.stages}, which it replaces, is released: the thread "
                "that copies would wait for its own warpgroup for ever",
                "release the stage first",
            )
        ring.copied += 1

    def check_await(self, op: ops.AwaitOp) -> None:
        ring, number = self._ring(op.operands[0]), self.numbers[op.operands[1]]
        if number >= ring.copied or number in ring.released:
            what = "released already" if number in ring.released else "copied later"
            op.fail(f"stage {number} is waited for, and it is {what}: the wait would never end")
        ring.there.add(number)

    def check_mma_issue(self, op: ops.MmaIssueOp) -> None:
        read: list[tuple[SSAValue, int]] = []
        for tile, cursor in zip(op.operands[1:3], op.operands[3:5], strict=True):
            if not isinstance(tile.type, SharedAttr):
                continue
            number = self.numbers[cursor]
            rings = [key for key, ring in self.rings.items() if tile in ring.op.operands and number in ring.there]
            if not rings:
                op.fail(f"a dot reads stage {number}, which nobody waited for", "put a `ttarget.await` before it")
            read += [(key, number) for key in rings]
        self.flying.append(read)

    def check_mma_wait(self, op: ops.MmaWaitOp) -> None:
        self.flying = self.flying[len(self.flying) - op.left :] if op.left else []

    def check_release(self, op: ops.ReleaseOp) -> None:
        key, number = op.operands[0], self.numbers[op.operands[1]]
        ring = self._ring(key)
        limits = [self._limit(value) for value in op.operands[2:]]
        if limits and limits[0] >= limits[1]:
            return
        if number not in ring.there:
            what = "released twice" if number in ring.released else "released, and nobody waited for it"
            op.fail(f"stage {number} is {what}: the barrier would end a phase too early")
        if any((key, number) in read for read in self.flying):
            op.fail(f"stage {number} is released while a dot in flight reads it", "wait for the dot first")
        ring.there.discard(number)
        ring.released.add(number)


def _count_steps(loop: SpecOp) -> int | None:
    """The steps of a loop between numbers; None for other limits."""
    made = [value.owner for value in loop.operands[:2]]
    low, high = (one.expr.value if isinstance(one, IndexOp) else None for one in made)
    return None if low is None or high is None else max(0, -(-(high - low) // loop.value("step")))


def check_phases(block: Block, stages: int) -> None:
    """Fails where warpgroups that copy for themselves, in rings of so many stages at most, would wait for ever."""
    loops = [op for op in block.walk() if isinstance(op, SpecOp) and op.name == "ttarget.steps"]
    most = 2 * stages + _MORE
    if all(_count_steps(loop) is not None for loop in loops):
        PhaseCheck(most, most).run(block)
        return
    for steps in range(1 if all(loop.value("is_nonempty") for loop in loops) else 0, most + 1):
        PhaseCheck(steps, most).run(block)
