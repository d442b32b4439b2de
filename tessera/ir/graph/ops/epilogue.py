"""The end of a chain of epilogue steps: its value, and the promise that it is one kernel with its contraction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.arrays import Array
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import FLOATS, Attributes, InferContext, OpSpec
from tessera.ir.graph.building import visits
from tessera.ir.tile.facets import Pointwise
from tessera.types.shape import TensorType, is_refuted, text


def _infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, contraction = types
    if x.rank != contraction.rank or any(map(is_refuted, x.shape, contraction.shape)):
        raise ctx.fail(
            f"an epilogue keeps the shape of its contraction, {text(contraction.shape)}, and this gives {text(x.shape)}"
        )
    for axis, (own, other) in enumerate(zip(x.shape, contraction.shape, strict=True)):
        ctx.equal(own, other, f"dim {axis} of an epilogue and of its contraction")
    return [x]


def fused_reference(x: Array, contraction: Array) -> Array:
    """The value of the chain."""
    return x.copy()


def _block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    return tiles[0]


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.fused",
        summary="The first operand, promised to be computed in the kernel that computes the second.",
        operands=("x", "contraction"),
        infer=_infer,
        reference=fused_reference,
        dtypes=FLOATS,
        cost=visits(0),
        lower=Pointwise(_block, flops=0, is_promise=True),
        interval=ANYTHING,
    ),
)
