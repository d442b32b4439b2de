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
from tessera.ir.schedule.typed_ops import CollectiveStartOp, CollectiveWaitOp
from tessera.types.effect import Effects, may_swap
from tessera.types.frozen import frozen

KNOB = "collectives.overlap"

_UNORDERED = ("memory", "random")
"""Effects that order nothing here: values of a plan say who needs whose memory, and draws depend on keys alone."""


@frozen
class OverlapCollectives(Pass):
    """Put what does not need a collective's result between its start and its wait.

    Before: `%a = tsched.collective_start %x`, `%b = tsched.collective_wait %x, %a`, `%c = tsched.fuse @k(%y)`. After:
    the group stands between the two. What a start needs comes first, then the start, then what needs no wait, and the
    waits where nothing else is left. Collectives start in the order they had, and input and output stay in order with
    all of them. Every value is computed from the same values, so no bit changes. The choice `collectives.overlap`
    disables it.
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
    while ready:
        at = min(ready, key=lambda number: (_rank(ops[number], number in leading), number))
        ready.discard(at)
        found.append(ops[at])
        for user in users[at]:
            left[user].discard(at)
            if not left[user]:
                ready.add(user)
    assert len(found) == len(ops), "ops depend on each other in a cycle"
    return found


def _leading(ops: Sequence[Operation], needs: Sequence[set[int]]) -> set[int]:
    """The ops that some start has to wait for."""
    found: set[int] = set()
    for at in range(len(ops) - 1, -1, -1):
        if isinstance(ops[at], CollectiveStartOp) or at in found:
            found |= needs[at]
    return found


def _rank(op: Operation, leads: bool) -> int:
    if isinstance(op, ANNOTATIONS):
        return 0
    if isinstance(op, CollectiveStartOp):
        return 1
    if isinstance(op, CollectiveWaitOp):
        return 4
    return 2 if leads else 3
