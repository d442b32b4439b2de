"""Steps of a loop in which masks change nothing: where they begin and end, so that they are a loop without masks.

A causal kernel has two kinds of masks. A clip hides columns from a bound on, which grows with the row: it changes
nothing in steps whose last column is below the bound of the first row. A choice by such a clip hides columns below the
bound: it changes nothing in steps whose first column is at or above the bound of the last row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.ir import Block, Operation, SSAValue

from tessera.backends.nvptx.types import shaped_type
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.typed_ops import ClipOp, ConstantOp, ForOp, IndexOp, SelectOp
from tessera.types.dim import Atom, Dim, maximum, minimum
from tessera.types.dtype import bool_
from tessera.types.frozen import frozen


@frozen
class StepLimit:
    """A coordinate of a loop, computed from indices by name, up to which or from which on a mask changes nothing."""

    limit: Dim
    where: Mapping[str, SSAValue]


def whole_up_to(op: SpecOp, source: Block) -> StepLimit | None:
    """Up to which coordinate of the loop a clip keeps all of a tile: its bound at the first row, less the tile."""
    found = _bound_along(op, source) if isinstance(op, ClipOp) else None
    return None if found is None else StepLimit(found.limit - shaped_type(op.operands[0]).shape[1], found.where)


def whole_from(op: SpecOp, source: Block) -> StepLimit | None:
    """From which coordinate of the loop on a choice takes all of a tile: its bound at the last row.

    The condition is a clip of nothing but False to True.
    """
    clip = op.operands[0].owner if isinstance(op, SelectOp) else None
    if not isinstance(clip, ClipOp) or not clip.identity or not _is_false(clip.operands[0]):
        return None
    found = _bound_along(clip, source)
    if found is None:
        return None
    row, rows = clip.value("axes")[0], shaped_type(clip.operands[0]).shape[0]
    return StepLimit(found.limit.substitute({row: Dim.symbol(row) + rows - 1}), found.where)


def _bound_along(op: ClipOp, source: Block) -> StepLimit | None:
    """The bound of a clip of the columns that a loop goes along; None where it is not known before the step."""
    where = dict(zip(op.value("coords"), op.operands[1:], strict=True))
    axis, (row, column) = op.value("axis"), op.value("axes")
    bound: Dim = op.value("bound")
    if axis != column or where[axis] is not source.args[0] or axis in bound.symbols:
        return None
    if not _grows_with(bound, row) or any(index.owner in list(source.ops) for index in where.values()):
        return None
    return StepLimit(bound, where)


def _is_false(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp) and shaped_type(value).dtype is bool_ and not value.owner.value("value")


# Loops cut where masks begin or end to matter.

_FEW = 2
"""A loop of so many steps is not cut: what is saved is less than the code of another loop costs."""


@frozen
class Steps:
    """Some steps of a loop, and the masks that they leave out."""

    low: SSAValue
    high: SSAValue
    without: frozenset[SpecOp] = frozenset()


def cut_steps(
    op: ForOp,
    limits: tuple[SSAValue, SSAValue],
    values: Mapping[SSAValue, SSAValue],
    index: Callable[[Dim, Mapping[str, SSAValue]], SSAValue],
) -> list[Steps]:
    """All steps of a loop between limits in order; `index` computes an expression of named `values`."""
    source, (low, high), step = op.regions[0].block, limits, op.value("step")
    parts = [part for part in source.ops if isinstance(part, SpecOp)]
    begins = {part: found for part in parts if (found := whole_from(part, source)) is not None}
    conditions = [part for part in parts if part in [choice.operands[0].owner for choice in begins]]
    clips = [part for part in parts if part not in conditions]
    ends = {part: found for part in clips if (found := whole_up_to(part, source)) is not None}
    known = known_limits(op)
    if not (ends or begins) or (known is not None and known[1] - known[0] <= _FEW * step):
        return [Steps(low, high)]
    names, first, last = {"_low": low, "_high": high}, Dim.symbol("_low"), Dim.symbol("_high")
    begin = begin_of_whole(first, last, [_give_names(found, names, values) for found in begins.values()], step)
    end = end_of_whole(begin, last, [_give_names(found, names, values) for found in ends.values()], step)
    begin_at, end_at = index(begin, names) if begins else low, index(end, names) if ends else high
    # A condition that nobody else reads is left out with the choice by it.
    unread = [part for part in conditions if _users(part) <= set(begins)]
    whole = Steps(begin_at, end_at, frozenset((*ends, *begins, *unread)))
    return [*([Steps(low, begin_at)] if begins else []), whole, *([Steps(end_at, high)] if ends else [])]


def _give_names(found: StepLimit, names: dict[str, SSAValue], values: Mapping[SSAValue, SSAValue]) -> Dim:
    """A limit with names of its own for the indices that it is computed from."""
    own: dict[str, Dim] = {}
    for name, index in found.where.items():
        if name in found.limit.symbols:
            own[name] = Dim.symbol(f"_{len(names)}")
            names[f"_{len(names)}"] = values[index]
    return found.limit.substitute(own)


def _users(op: SpecOp) -> set[Operation]:
    return {use.operation for result in op.results for use in result.uses}


def end_of_whole(begin: Dim, high: Dim, bounds: Sequence[Dim], step: int) -> Dim:
    """Where the steps end, from `begin` to `high`, that begin at or below all bounds."""
    end = high
    for bound in bounds:
        end = minimum(end, begin + ((bound - begin) // step + 1) * step)
    return maximum(begin, end)


def begin_of_whole(low: Dim, high: Dim, bounds: Sequence[Dim], step: int) -> Dim:
    """Where the steps begin, from `low` to `high`, that begin at or above all bounds."""
    begin = low
    for bound in bounds:
        begin = maximum(begin, low + (bound - low).ceildiv(step) * step)
    return minimum(begin, high)


def known_limits(op: SpecOp) -> tuple[int, int] | None:
    """Where a loop between numbers begins and ends."""
    low, high = (index.owner.expr.value if isinstance(index.owner, IndexOp) else None for index in op.operands[:2])
    return None if low is None or high is None else (low, high)


def _grows_with(dim: Dim, name: str) -> bool:
    """Whether an expression never gets smaller as a symbol gets larger, seen from its form."""

    def grows(atom: Atom) -> bool:
        return atom.kind in ("symbol", "min", "max") and all(_grows_with(arg, name) for arg in atom.args)

    for monomial, coefficient in dim.terms:
        touched = [atom for atom in monomial if name in Dim((((atom,), 1),)).symbols]
        if touched and (coefficient < 0 or len(monomial) != 1 or not all(grows(atom) for atom in touched)):
            return False
    return True
