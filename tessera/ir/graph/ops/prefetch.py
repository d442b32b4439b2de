"""Prefetch: the same elements, and a hint to the loops that load them."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.arrays import Array
from tessera.ir.base.index_maps import IndexMap, coordinates
from tessera.ir.base.spec import Attribute, Attributes, InferContext, OpSpec
from tessera.ir.graph.ops.movement import moving_sample, view
from tessera.types.device import problem
from tessera.types.shape import TensorType

OVERLAPS = ("compute",)
"""What a movement may go on beside."""


def _infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    wrong = problem("global", attributes["space"])
    if wrong:
        raise ctx.fail(f"`prefetch`: {wrong}", help="write `shared`, the memory of a program")
    if attributes["overlap"] not in OVERLAPS:
        raise ctx.fail(f"`prefetch` goes on beside {' or '.join(OVERLAPS)}, got {attributes['overlap']!r}")
    return list(types)


def _maps(x: TensorType, outs: Sequence[TensorType], attributes: Attributes) -> Sequence[IndexMap]:
    return [coordinates(x.rank)]


def _space(attributes: Attributes) -> str:
    return str(attributes["space"])


def prefetch_reference(x: Array, *, space: str = "shared", overlap: str = "compute") -> Array:
    """A memory space does not change elements."""
    return x.copy()


SPECS: tuple[OpSpec, ...] = (
    view(
        "prefetch",
        "A tensor prefetched to a memory space before its use, overlapped with other work; elements are the same.",
        attributes=(
            Attribute("space", "str", "shared", "the memory it goes to"),
            Attribute("overlap", "str", "compute", "what the movement goes on beside"),
        ),
        infer=_infer,
        reference=prefetch_reference,
        maps=_maps,
        space=_space,
        samples=(moving_sample((3, 4), "shared"), moving_sample((), "scalar")),
    ),
)
