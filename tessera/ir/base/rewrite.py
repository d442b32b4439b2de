"""Rewriting by a worklist: patterns found by op name, each change followed to those it touches, within a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tessera.ir.base.build import Build
from tessera.ir.base.op import SpecOp
from tessera.ir.base.policies import carried_policy

Pattern: TypeAlias = "Callable[[SpecOp, Rewriter], bool]"
"""Looks at an op and either changes something through the rewriter and says True, or leaves all as it is."""

Find: TypeAlias = Callable[[SpecOp], Sequence[Pattern]]
"""The patterns for an op; a dict by `op.name` behind it keeps an op that has none at the price of a look-up."""


def replace_ops(module: ModuleOp, name: str, make: Callable[[SpecOp], SpecOp | None]) -> None:
    """Put what is made of each op of a name in its place; those that nothing is made of stay."""
    for op in list(module.ops):
        made = make(op) if isinstance(op, SpecOp) and op.name == name else None
        if made is not None:
            module.body.block.insert_op_before(made, op)
            op.detach()  # and not erased: what shows a program still reads what it was made of


class BudgetError(Exception):
    """Patterns went on changing for longer than any program should take: two of them undo each other."""


class Rewriter:
    """What a pattern may do; every change puts the ops it touches back on the worklist."""

    def __init__(self) -> None:
        self._pending: list[SpecOp] = []
        self._waiting: set[SpecOp] = set()
        self._gone: set[Operation] = set()

    def push(self, op: Operation) -> None:
        if isinstance(op, SpecOp) and op not in self._waiting and op not in self._gone:
            self._waiting.add(op)
            self._pending.append(op)

    def pop(self) -> SpecOp | None:
        while self._pending:
            op = self._pending.pop()
            self._waiting.discard(op)
            if op not in self._gone:
                return op
        return None

    def build(self, op: SpecOp) -> Build:
        """A builder that puts ops before `op`, with its span."""
        assert op.parent is not None
        return Build(op.parent, op, op.span, op.dialect_name(), carried_policy(op) if op.attributes else None)

    def replace(self, op: SpecOp, values: Sequence[SSAValue], made: Sequence[SpecOp] = ()) -> None:
        """Use `values` for the op's results and take the op away; `made` are new ops to look at."""
        for old, new in zip(op.results, values, strict=True):
            for use in list(old.uses):
                self.push(use.operation)
            if new.name_hint is None:
                new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        for one in made:
            self.push(one)
        self.erase(op)

    def erase(self, op: SpecOp) -> None:
        """Take away an op whose results no one uses; what it used may now be dead too."""
        owners = [value.owner for value in op.operands]
        for inner in op.walk():
            self._gone.add(inner)
        op.detach()
        op.erase()
        for owner in owners:
            if isinstance(owner, Operation):
                self.push(owner)

    def erase_if_dead(self, op: SpecOp) -> bool:
        """Erase a pure op that no one uses, and so on up its operands (through the worklist)."""
        if not is_removable(op) or any(result.uses for result in op.results):
            return False
        self.erase(op)
        return True


def is_removable(op: SpecOp) -> bool:
    """Whether nothing is lost with the op but its results: it, and all inside it, is pure but for keyed draws."""
    if op.spec.is_terminator or op.spec.form == "function" or not op.spec.is_mergeable or not op.results:
        return False
    return all(
        isinstance(inner, SpecOp) and inner.spec.is_mergeable for region in op.regions for inner in region.walk()
    )


def rewrite(root: Operation, find: Find, *, budget: int = 16) -> bool:
    """Apply patterns until none applies; whether anything changed. Ops that are dead on the way are removed.

    Ops are looked at in program order, so facts flow from operands to users in one go. Raises BudgetError when the
    changes outnumber `budget` for each op of the program.
    """
    rewriter = Rewriter()
    ops = [op for op in root.walk() if isinstance(op, SpecOp)]
    for op in reversed(ops):
        rewriter.push(op)
    left = budget * (len(ops) + 16)
    counts: Counter[str] = Counter()
    while (op := rewriter.pop()) is not None:
        if rewriter.erase_if_dead(op):
            counts["dead"] += 1
            continue
        for pattern in find(op):
            name = op.name
            if pattern(op, rewriter):
                counts[name] += 1
                left -= 1
                break
        if left < 0:
            worst = ", ".join(f"`{name}` {count} times" for name, count in counts.most_common(3))
            raise BudgetError(f"rewriting does not come to an end: {worst}")
    return bool(counts)
