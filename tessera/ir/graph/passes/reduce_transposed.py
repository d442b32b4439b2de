"""Reduce what a transposed tensor is a view of, so that reductions walk memory in its own order."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.build import Build, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import carried_policy
from tessera.ir.graph.typed_ops import CastOp, TransposeOp
from tessera.ir.tile.facets import Reduction


class ReduceTransposed(Pass):
    """Move transposes from before reductions to behind them, where reductions are all that reads what is transposed.

    Before: `%0 = tgraph.transpose %x {axes = [1, 0]}`, `%1 = tgraph.sum %0 {axes = [1]}`.
    After: `%1 = tgraph.sum %x {axes = [0]}`.

    A conversion between the two stays with the reduction. Elements are reduced in the same order, so no bit changes:
    where several axes are reduced, they have the same order in both tensors. A softmax, which reads what it reduces
    once more, keeps its transposed rows: it is fused as it is.
    """

    def run(self, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, TransposeOp):
                readers = _reductions_of(op)
                if readers and all(_keeps_order(op.axes, one.value("axes")) for one in readers):
                    for reader in readers:
                        _reduce_source(op, reader)


def _reductions_of(op: TransposeOp) -> list[SpecOp]:
    """The reductions of a transposed tensor or of a conversion of it; none where anything else reads either."""
    found: list[SpecOp] = []
    values: list[SSAValue] = [op.results[0]]
    for value in values:
        for use in value.uses:
            reader = use.operation
            if isinstance(reader, CastOp):
                values.append(reader.results[0])
            elif isinstance(reader, SpecOp) and isinstance(reader.spec.lower, Reduction) and "axes" in reader.kinds:
                found.append(reader)
            else:
                return []
    return found


def _keeps_order(permutation: Sequence[int], axes: Sequence[int]) -> bool:
    sources = [permutation[axis] for axis in sorted(axes)]
    return sources == sorted(sources)


def _reduce_source(op: TransposeOp, reader: SpecOp) -> None:
    """Write a reduction of the source, and its result as it was; what is not read any more goes."""
    value, chain = reader.operands[0], list[CastOp]()
    while value is not op.results[0]:
        maker = value.owner
        assert isinstance(maker, CastOp)
        chain.append(maker)
        value = maker.operands[0]
    source = op.operands[0]
    for cast in reversed(chain):
        source = _build_like(cast, reader).emit("cast", source, **cast.values())
    axes: tuple[int, ...] = reader.value("axes")
    values = reader.values()
    values_of_source = {**values, "axes": tuple(sorted(op.axes[axis] for axis in axes))}
    made = _build_like(reader, reader).emit(reader.name, source, **values_of_source)
    kept = [at for at in range(len(op.axes)) if values["keepdims"] or at not in axes]
    order = [op.axes[at] for at in kept]
    if order != sorted(order):
        made = _build_like(op, reader).emit("transpose", made, axes=tuple(sorted(order).index(one) for one in order))
    assert tensor_value(made) == tensor_value(reader.results[0])
    reader.results[0].replace_all_uses_with(made)
    for gone in (reader, *chain, op):
        if not any(result.uses for result in gone.results) and gone.parent is not None:
            gone.detach()
            gone.erase()


def _build_like(op: SpecOp, before: SpecOp) -> Build:
    """What writes ops with the location, policy and device of another, which they take the place of."""
    assert before.parent is not None
    return Build(before.parent, before, op.span, promises=carried_policy(op))
