"""Dims of a kernel's arguments that it walks as one, seen as one: copies of whole tiles go along single dims."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation
from xdsl.rewriter import Rewriter

from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.types.dim import Dim, product

_ACCESSES = {"ttile.load": 0, "ttile.store": 1, "ttile.fetch": 0}
"""Ops with a map, and which operand is the buffer."""
_CUT = ("mod", "floordiv")


def join_dims(kernel: SpecOp) -> None:
    """Arguments of a kernel get the fewest dims with which each access is at one place of a whole dim.

    `x[m floordiv S, m mod S, k]` of [B, S, K] is `x[m, k]` of [B S, K]: the same elements of the same memory.
    """
    block = kernel.regions[0].block
    for number in range(len(block.args)):
        _join(block, number)


def _join(block: Block, number: int) -> None:
    argument = block.args[number]
    users = {use.operation for use in argument.uses}
    accesses = [op for op in users if isinstance(op, SpecOp) and _is_access(op, argument)]
    assert isinstance(argument.type, BufferAttr)
    shape = argument.type.shape
    groups = groups_of(shape, [op.value("map") for op in accesses])
    if len(accesses) < len(users) or len(groups) == len(shape):
        return
    joined = argument.type.data.with_shape([product(shape[first:end]) for first, end in groups])
    for op in accesses:
        at: Sequence[Dim] = op.value("map")
        op.set_value("map", tuple(linear(at[first:end], shape[first:end]) for first, end in groups))
    Rewriter.replace_value_with_new_type(argument, BufferAttr.of(joined))


def _is_access(op: Operation, argument: object) -> bool:
    place = _ACCESSES.get(op.name)
    return place is not None and op.operands[place] is argument and list(op.operands).count(op.operands[place]) == 1


def groups_of(shape: Sequence[Dim], maps: Sequence[Sequence[Dim]]) -> list[tuple[int, int]]:
    """Runs of dims, each the shortest that all maps walk as one, or a single dim."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < len(shape):
        ends = [end for end in range(first + 2, len(shape) + 1) if maps and _are_one(maps, shape, first, end)]
        found.append((first, min(ends, default=first + 1)))
        first = found[-1][1]
    return found


def _are_one(maps: Sequence[Sequence[Dim]], shape: Sequence[Dim], first: int, end: int) -> bool:
    return all(_is_one(at[first:end], shape[first:end]) for at in maps)


def _is_one(at: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether places that are parts of a cut one are that when they are counted together."""
    parts = [place for place, size in zip(at, shape, strict=True) if size.value != 1]
    is_apart = len(parts) > 1 and all(_is_cut(place) for place in parts)
    return is_apart and shape[-1].value != 1 and not _is_cut(linear(at, shape))


def _is_cut(place: Dim) -> bool:
    return any(atom.kind in _CUT for monomial, _ in place.terms for atom in monomial)
