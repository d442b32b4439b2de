"""Overlap collectives with computation: they start early, and are waited for late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.compilation import Chooser, StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.memory import ANNOTATIONS, overwritten_by, strip_aliases
from tessera.ir.schedule.plan import all_effects, programs_in
from tessera.ir.schedule.typed_ops import AliasOp, CollectiveStartOp, CollectiveWaitOp
from tessera.types.effect import Effects, may_swap
from tessera.types.frozen import frozen

KNOB = "collectives.overlap"

MOST_STARTED = 16
"""Collectives that are under way at a time: a rank has one at work, and each keeps memory."""

_UNORDERED = ("memory", "random")
"""Effects that order nothing here: values of a plan say who needs whose memory, and draws depend on keys alone."""


@frozen
class OverlapCollectives(Pass):
    """Put what does not need a collective's result between its start and its wait.

    Before: `%a = tsched.collective_start %x`, `%b = tsched.collective_wait %x, %a`, `%c = tsched.fuse @k(%y)`. After:
    the group stands between the two. What a start needs comes first, then the start, then what needs no wait, and
    the waits where nothing else is left; at most `MOST_STARTED` are under way. Collectives start in the order they
    had, and input and output stay in order with all of them. Every value is computed from the same values, so no
    bit changes. The choice `collectives.overlap` disables it.
    """

    chooser: Chooser = field(default_factory=StaticChooser)

    def run(self, module: ModuleOp) -> None:
        functions = symbol_table(module)
        for program in programs_in(module):
            blocks = list(dict.fromkeys(op.parent for op in program.walk() if isinstance(op, CollectiveStartOp)))
            if blocks and self.chooser.choose(KNOB, (True, False), {}).value:
                for block in blocks:
                    assert block is not None
                    _reorder(block, functions)


def _reorder(block: Block, functions: Mapping[str, SpecOp]) -> None:
    last = block.last_op
    assert last is not None
    ops = [op for op in block.ops if op is not last]
    order = _order(ops, _needs(ops, functions))
    for op in order:
        op.detach()
        block.insert_op_before(op, last)


def _needs(ops: Sequence[Operation], functions: Mapping[str, SpecOp]) -> list[set[int]]:
    """Of each op, the numbers of those that must come before it."""
    makers: dict[SSAValue, int] = {}
    readers: dict[SSAValue, set[int]] = {}
    ordered: list[tuple[int, Effects]] = []
    needs: list[set[int]] = []
    for at, op in enumerate(ops):
        used = set(_operands_of(op))
        needs.append({makers[value] for value in used if value in makers})
        # What is written over must have been read by all earlier readers.
        needs[at].update(*(readers.get(strip_aliases(value), ()) for value in _written_over(op)))
        for value in used:
            readers.setdefault(strip_aliases(value), set()).add(at)
        effects = all_effects(op, functions).without(_UNORDERED)
        if effects:
            needs[at] |= {
                other for other, theirs in ordered if not _may_pass(ops[other], op) and not may_swap(theirs, effects)
            }
            ordered.append((at, effects))
        makers.update(dict.fromkeys(op.results, at))
    return needs


def _written_over(op: Operation) -> Iterator[SSAValue]:
    """The values whose memory a group, or one inside, takes for its result."""
    for inner in op.walk():
        yield from overwritten_by(inner).values()


def _may_pass(before: Operation, after: Operation) -> bool:
    """Whether one of two is a wait, which may pass other collectives: ranks are matched where those start."""
    return any(
        isinstance(one, CollectiveWaitOp) and "io" not in _kinds(other)
        for one, other in ((before, after), (after, before))
    )


def _kinds(op: Operation) -> set[str]:
    """The effects that ops in it are declared with."""
    return {effect for inner in op.walk() if isinstance(inner, SpecOp) for effect in inner.spec.effects}


def _operands_of(op: Operation) -> Iterator[SSAValue]:
    for inner in op.walk():
        yield from inner.operands


def _order(ops: Sequence[Operation], needs: Sequence[set[int]]) -> list[Operation]:
    """The ops in a topological order that takes the most urgent of those that are ready."""
    left = [set(one) for one in needs]
    users: list[list[int]] = [[] for _ in ops]
    for at, one in enumerate(needs):
        for other in one:
            users[other].append(at)
    leading = _leading(ops, needs)
    ready = {at for at, one in enumerate(left) if not one}
    found: list[Operation] = []
    window = _Window(ops)
    while ready:
        at = window.choose(ready)
        if at is None:
            held = window.held_back(ready)
            at = min(ready - held or ready, key=lambda number: (_rank(ops[number], number in leading), number))
        window.done.add(at)
        ready.discard(at)
        found.append(ops[at])
        for user in users[at]:
            left[user].discard(at)
            if not left[user]:
                ready.add(user)
    assert len(found) == len(ops), "ops depend on each other in a cycle"
    return found


class _Window:
    """Which collectives may start: not more than `MOST_STARTED` before one whose result is not asked for yet.

    One that sends what was computed holds its memory until it was waited for: then the first of those under way is
    waited for. One that sends an argument of the program starts later, as its result alone would take memory.
    """

    def __init__(self, ops: Sequence[Operation]) -> None:
        starts = [at for at, op in enumerate(ops) if isinstance(op, CollectiveStartOp)]
        makers: dict[SSAValue, int] = {value: at for at in starts for value in ops[at].results}
        waits: dict[int, int] = {}
        for at, op in enumerate(ops):
            if isinstance(op, CollectiveWaitOp):
                waits.update((makers[value], at) for value in op.operands if value in makers)
        own: set[SSAValue] = {value for op in ops for value in op.results}
        self.done: set[int] = set()
        self._first: dict[int, int] = {}
        """Of each start, the wait that must be done before it."""
        for number, at in enumerate(starts[MOST_STARTED:]):
            if starts[number] in waits:
                self._first[at] = waits[starts[number]]
        self._is_computed = {at: any(strip_aliases(value) in own for value in ops[at].operands) for at in self._first}

    def held_back(self, ready: set[int]) -> set[int]:
        """The starts that are ready and have to wait."""
        return {at for at in ready if at in self._first and self._first[at] not in self.done}

    def choose(self, ready: set[int]) -> int | None:
        """The wait that is due, where what was computed is to be sent behind it."""
        due = [self._first[at] for at in self.held_back(ready) if self._is_computed[at]]
        return min((at for at in due if at in ready), default=None)


def _leading(ops: Sequence[Operation], needs: Sequence[set[int]]) -> set[int]:
    """The ops that some start has to wait for."""
    found: set[int] = set()
    for at in range(len(ops) - 1, -1, -1):
        if isinstance(ops[at], CollectiveStartOp) or at in found:
            found |= needs[at]
    return found


def _rank(op: Operation, leads: bool) -> int:
    if isinstance(op, (AliasOp, *ANNOTATIONS)):  # another shape of a value takes no time, and a start may read it
        return 0
    if isinstance(op, CollectiveStartOp):
        return 1
    if isinstance(op, CollectiveWaitOp):
        return 4
    return 2 if leads else 3
