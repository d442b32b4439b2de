"""Copies of whole tiles: TMA and cp.async go along single dims of memory, so buffers have as few as serve.

A contraction over a batch and a sequence walks `m` over both: it reads `x[m floordiv S, m mod S, k]`, a row split over
two dims. `join_dims` gives the argument the shape [B*S, K], in which the same element is `x[m, k]` and a tile is one
box of memory. `is_walkable` asks the same of an operand before groups exist: whether, after joining, each axis of a
tile runs along one dim of the buffer. Where it does not, the operand is materialized first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from tessera.ir.base.index_maps import IndexMap, delinear, linear, simplify
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.tile.facets import ContractionMaps
from tessera.ir.tile.typed_ops import FetchOp, LoadOp, StoreOp
from tessera.types.dim import Dim, product

_SPLIT = ("mod", "floordiv")


def join_dims(kernel: SpecOp) -> None:
    """Give the arguments of a kernel the fewest dims with which each access is at one index of a whole dim.

    `x[m floordiv S, m mod S, k]` of [B, S, K] is `x[m, k]` of [B S, K]: the same elements of the same memory.
    """
    block = kernel.regions[0].block
    for number in range(len(block.args)):
        _join(block, number)


def _join(block: Block, number: int) -> None:
    argument = block.args[number]
    users = {use.operation for use in argument.uses}
    accesses = [op for op in users if isinstance(op, LoadOp | StoreOp | FetchOp) and _is_access(op, argument)]
    assert isinstance(argument.type, BufferAttr)
    shape = argument.type.shape
    runs = joined_runs(shape, [op.map for op in accesses])
    if len(accesses) < len(users) or len(runs) == len(shape):
        return
    joined = argument.type.data.with_shape([product(shape[first:end]) for first, end in runs])
    for op in accesses:
        op.map = tuple(linear(op.map[first:end], shape[first:end]) for first, end in runs)
    Rewriter.replace_value_with_new_type(argument, BufferAttr.of(joined))


def _is_access(op: LoadOp | StoreOp | FetchOp, argument: SSAValue) -> bool:
    """Whether an argument is the buffer of an access, and no other operand of it."""
    return op.buffer is argument and list(op.operands).count(argument) == 1


def joined_runs(shape: Sequence[Dim], maps: Sequence[Sequence[Dim]]) -> list[tuple[int, int]]:
    """Runs of dims, each the shortest that all maps walk as one, or a single dim."""
    found: list[tuple[int, int]] = []
    first = 0
    while first < len(shape):
        ends = [
            end
            for end in range(first + 2, len(shape) + 1)
            if maps and all(_is_one(at[first:end], shape[first:end]) for at in maps)
        ]
        found.append((first, min(ends, default=first + 1)))
        first = found[-1][1]
    return found


def _is_one(at: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether indices that are parts of a split coordinate are that coordinate when they are linearized."""
    parts = [index for index, size in zip(at, shape, strict=True) if size.value != 1]
    is_split = len(parts) > 1 and all(_is_split(index) for index in parts)
    return is_split and shape[-1].value != 1 and not _is_split(linear(at, shape))


def _is_split(index: Dim) -> bool:
    return any(atom.kind in _SPLIT for monomial, _ in index.terms for atom in monomial)


def operand_at(maps: ContractionMaps, number: int) -> IndexMap:
    """The index of a contraction's lhs (0) or rhs (1), over the coordinates `_m`, `_n`, `_k` of its tiles."""
    where: dict[str, Dim] = {}
    for letter, extents in (("m", maps.m), ("n", maps.n), ("k", maps.k)):
        parts = delinear(Dim.symbol(f"_{letter}"), extents)
        where.update({f"{letter}{axis}": part for axis, part in enumerate(parts)})
    return tuple(simplify(index.substitute(where)) for index in (maps.lhs, maps.rhs)[number])


def axes_of(maps: ContractionMaps, number: int) -> dict[str, Dim]:
    """The axes of a tile of the lhs (0) or rhs (1), each with its extent."""
    extents = {"_m": product(maps.m), "_n": product(maps.n), "_k": product(maps.k)}
    return {axis: extents[axis] for axis in (("_m", "_k"), ("_k", "_n"))[number]}


def is_walkable(at: Sequence[Dim], shape: Sequence[Dim], axes: Mapping[str, Dim], may_cut: bool = False) -> bool:
    """Whether each axis runs along one dim, element by element, to its end, and one of them along the last.

    With `may_cut`, outer dims may go on where an axis ends.
    """
    runs = joined_runs(shape, [at])
    joined = [linear(at[first:end], shape[first:end]) if end > first + 1 else at[first] for first, end in runs]
    sizes = [product(shape[first:end]) for first, end in runs]
    dims = {axis: [dim for dim, index in enumerate(joined) if axis in index.symbols] for axis in axes}
    if any(len(found) > 1 for found in dims.values()):
        return False
    steps: Mapping[str, Dim | None] = {axis: _step(joined[found[0]], axis) for axis, found in dims.items() if found}
    has_last = any(found == [len(joined) - 1] for found in dims.values())
    if not has_last or any(step is None or step.value != 1 for step in steps.values()):
        return False
    kept = {axis: found[0] for axis, found in dims.items() if found and not (may_cut and found[0] < len(joined) - 1)}
    return all(joined[dim].substitute({axis: axes[axis]}) == sizes[dim] for axis, dim in kept.items())


def _step(index: Dim, axis: str) -> Dim | None:
    parts = index.coefficient(axis)
    return None if parts is None or axis in parts[1].symbols else parts[0]
