"""Views that change a shape and no order of work: reshape, transpose, broadcast_to, expand_dims, squeeze."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.index_maps import IndexMap, broadcast_map, expand_map, reshape_map, squeeze_map, transpose_map
from tessera.ir.base.scalar_functions import keeps_shape, producer_named
from tessera.ir.base.spec import (
    ANY,
    Attribute,
    Attributes,
    Cost,
    CostRule,
    InferContext,
    OpSpec,
    Sample,
    Simplifier,
    Simplify,
)
from tessera.ir.graph.building import normal, shape_name, traffic
from tessera.ir.graph.ops.reduce import check_axes
from tessera.ir.tile.facets import View
from tessera.types.dim import Dim, product
from tessera.types.shape import Shape, TensorType, equal_dims, is_refuted, path, text

STORED = (*ANY, "i4")
"""Moving elements asks nothing of their dtype."""


def dims(*sizes: int) -> Shape:
    """A `dims` attribute of a sample."""
    return tuple(Dim.of(size) for size in sizes)


def moving_sample(shape: tuple[int, ...], label: str = "", /, **attributes: Any) -> Sample:
    """A sample of one operand, named by its shape and by what happens to it."""
    shown = label or " ".join(f"{name}={value}" for name, value in attributes.items())
    return Sample(f"{shape_name([shape])} {shown}", normal(shape), attributes)


def moving_cost() -> CostRule:
    """No arithmetic: each result element is read and written once."""

    def cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
        return Cost(Dim.constant(0), traffic(results, results))

    return cost


def view(
    name: str,
    summary: str,
    *,
    attributes: tuple[Attribute, ...],
    infer: Any,
    reference: Callable[..., Any],
    maps: Callable[[TensorType, Sequence[TensorType], Attributes], Sequence[IndexMap]],
    samples: tuple[Sample, ...],
    simplify: Simplify | None = None,
    results: tuple[str, ...] = ("out",),
    space: Callable[[Attributes], str] | None = None,
) -> OpSpec:
    """The declaration of an op that only reads elsewhere."""
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x",),
        attributes=attributes,
        results=results,
        infer=infer,
        reference=reference,
        samples=samples,
        dtypes=STORED,
        cost=moving_cost(),
        simplify=simplify,
        lower=View(maps, space),
    )


def _infer_reshape(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    out = x.with_shape(attributes["shape"])
    for axis, dim in enumerate(out.shape):
        if dim.value is not None and dim.value < 0:
            raise ctx.fail(f"`reshape` got a size below zero: {path('out', axis, dim)}", help="sizes are 0 or more")
    if x.size != out.size:
        if is_refuted(x.size, out.size):
            raise ctx.fail(
                f"`reshape` cannot give {text(x.shape)} the shape {text(out.shape)}: it has {x.size} elements, "
                f"the new shape {out.size}"
            )
        ctx.equal(x.size, out.size, f"`reshape` from {text(x.shape)} to {text(out.shape)} keeps the number of elements")
    return [out]


def _reshape_reference(x: Array, *, shape: Sequence[Dim]) -> Array:
    return np.reshape(x, static_shape(shape))


def _simplify_reshape(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a reshape to the same shape; rewrite reshape(reshape(x)) to reshape(x)."""
    if simplifier.type_of(operands[0]).shape == tuple(attributes["shape"]):
        return operands[0]
    inner = simplifier.producer(operands[0])
    if inner is None or inner.name not in ("reshape", "expand_dims", "squeeze"):
        return None
    x = simplifier.type_of(inner.operands[0])
    if x.shape == tuple(attributes["shape"]):
        return inner.operands[0]
    # sizes equal by a guard only are left alone: the one reshape would need a guard of its own
    return (
        simplifier.emit("reshape", inner.operands[0], **attributes) if x.size == product(attributes["shape"]) else None
    )


def _infer_transpose(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    axes: tuple[int, ...] = tuple(attributes["axes"])
    if sorted(axes) != list(range(x.rank)):
        raise ctx.fail(
            f"`transpose` needs each axis of {text(x.shape)} once, got {axes}",
            help=f"an order of {', '.join(map(str, range(x.rank)))}" if x.rank else "a scalar has no axes",
        )
    return [x.with_shape(x.shape[axis] for axis in axes)]


def _transpose_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.ascontiguousarray(np.transpose(x, axes)).reshape([x.shape[axis] for axis in axes])


def _simplify_transpose(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a transpose that keeps the order; rewrite transpose(transpose(x, p), q) to transpose(x, p[q])."""
    axes = tuple(attributes["axes"])
    if axes == tuple(range(len(axes))):
        return operands[0]
    inner = producer_named(simplifier, operands[0], "transpose")
    if inner is None:
        return None
    merged = tuple(inner.attributes["axes"][axis] for axis in axes)
    return (
        inner.operands[0]
        if merged == tuple(range(len(axes)))
        else simplifier.emit("transpose", inner.operands[0], axes=merged)
    )


def _infer_broadcast(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    out = x.with_shape(attributes["shape"])
    if out.rank < x.rank:
        raise ctx.fail(f"`broadcast_to` cannot drop dims: from {text(x.shape)} to {text(out.shape)}")
    missing = out.rank - x.rank
    for axis, dim in enumerate(x.shape):
        wanted = out.shape[axis + missing]
        if dim.value != 1:
            what = f"{path('x', axis, dim)} and {path('out', axis + missing, wanted)}"
            equal_dims(ctx, "broadcast_to", dim, wanted, what)
    return [out]


def _broadcast_reference(x: Array, *, shape: Sequence[Dim]) -> Array:
    return np.broadcast_to(x, static_shape(shape)).copy()


def _simplify_broadcast(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a broadcast to the same shape; rewrite broadcast(broadcast(x)) to broadcast(x)."""
    if simplifier.type_of(operands[0]).shape == tuple(attributes["shape"]):
        return operands[0]
    inner = producer_named(simplifier, operands[0], "broadcast_to")
    if inner is None or not keeps_shape(tuple(attributes["shape"]), simplifier.type_of(inner.operands[0]).shape):
        return None
    return simplifier.emit("broadcast_to", inner.operands[0], shape=attributes["shape"])


def _infer_expand(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,), axes = types, tuple(attributes["axes"])
    rank = x.rank + len(axes)
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < rank for axis in axes):
        raise ctx.fail(f"`expand_dims` needs different sorted axes within 0..{rank - 1} of its result, got {axes}")
    own = iter(x.shape)
    return [x.with_shape(1 if axis in axes else next(own) for axis in range(rank))]


def _expand_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.expand_dims(x, tuple(axes))


def _simplify_expand(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop an insertion of no dims."""
    return None if attributes["axes"] else operands[0]


def _infer_squeeze(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    (x,) = types
    axes = check_axes(ctx, "squeeze", x, attributes["axes"])
    for axis in axes:
        if x.shape[axis].value != 1:
            what = f"{path('x', axis, x.shape[axis])} and 1"
            equal_dims(ctx, "squeeze", x.shape[axis], Dim.constant(1), what)
    return [x.with_shape(dim for axis, dim in enumerate(x.shape) if axis not in axes)]


def _squeeze_reference(x: Array, *, axes: Sequence[int]) -> Array:
    return np.squeeze(x, tuple(axes))


def _simplify_squeeze(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a squeeze of no dims, and one that undoes an insertion."""
    if not attributes["axes"]:
        return operands[0]
    inner = producer_named(simplifier, operands[0], "expand_dims")
    undone = inner is not None and tuple(inner.attributes["axes"]) == tuple(attributes["axes"])
    return inner.operands[0] if inner is not None and undone else None


def _reshape_sample(x: tuple[int, ...], *out: int) -> Sample:
    return moving_sample(x, f"to {shape_name([out])}", shape=dims(*out))


RESHAPE = view(
    "reshape",
    "The same elements in row-major order in another shape.",
    attributes=(Attribute("shape", "dims", doc="the new shape; its size is that of `x`"),),
    infer=_infer_reshape,
    reference=_reshape_reference,
    maps=lambda x, outs, attributes: [reshape_map(x.shape, outs[0].shape)],
    samples=(
        _reshape_sample((6,), 2, 3),
        _reshape_sample((2, 3), 6),
        _reshape_sample((2, 3, 5), 2, 15),
        _reshape_sample((2, 15), 2, 3, 5),
        _reshape_sample((4, 6), 6, 4),
        _reshape_sample((1, 7, 1), 7),
        _reshape_sample((), 1, 1),
        _reshape_sample((0, 3), 5, 0),
        _reshape_sample((7, 11, 13), 13, 77),
    ),
    simplify=_simplify_reshape,
)

TRANSPOSE = view(
    "transpose",
    "The axes in another order: result axis `j` is operand axis `axes[j]`.",
    attributes=(Attribute("axes", "ints", doc="an order of all axes"),),
    infer=_infer_transpose,
    reference=_transpose_reference,
    maps=lambda x, outs, attributes: [transpose_map(attributes["axes"])],
    samples=(
        moving_sample((3, 5), axes=(1, 0)),
        moving_sample((2, 3, 5), axes=(2, 0, 1)),
        moving_sample((2, 3, 5, 7), axes=(0, 2, 1, 3)),
        moving_sample((1, 7), axes=(1, 0)),
        moving_sample((0, 3), axes=(1, 0)),
        moving_sample((), axes=()),
        moving_sample((67, 131), axes=(1, 0)),
    ),
    simplify=_simplify_transpose,
)

BROADCAST_TO = view(
    "broadcast_to",
    "Stretched to a shape: trailing dims aligned, dims of 1 repeated.",
    attributes=(Attribute("shape", "dims", doc="the new shape"),),
    infer=_infer_broadcast,
    reference=_broadcast_reference,
    maps=lambda x, outs, attributes: [broadcast_map(x.shape, outs[0].shape)],
    samples=(
        _reshape_sample((), 3, 5),
        _reshape_sample((5,), 3, 5),
        _reshape_sample((3, 1), 3, 5),
        _reshape_sample((1, 3, 1), 2, 3, 5),
        _reshape_sample((1,), 0),
        _reshape_sample((7, 13), 7, 13),
    ),
    simplify=_simplify_broadcast,
)

EXPAND_DIMS = view(
    "expand_dims",
    "Dims of 1 inserted where the result is to have them.",
    attributes=(Attribute("axes", "ints", doc="sorted positions in the result"),),
    infer=_infer_expand,
    reference=_expand_reference,
    maps=lambda x, outs, attributes: [expand_map(x.shape, attributes["axes"])],
    samples=(
        moving_sample((3, 5), axes=(0,)),
        moving_sample((3, 5), axes=(1, 3)),
        moving_sample((), axes=(0,)),
        moving_sample((0, 3), axes=(2,)),
    ),
    simplify=_simplify_expand,
)

SQUEEZE = view(
    "squeeze",
    "Dims of 1 dropped.",
    attributes=(Attribute("axes", "ints", doc="sorted positions in the operand"),),
    infer=_infer_squeeze,
    reference=_squeeze_reference,
    maps=lambda x, outs, attributes: [squeeze_map(x.shape, attributes["axes"])],
    samples=(
        moving_sample((1, 3, 5), axes=(0,)),
        moving_sample((3, 1, 5, 1), axes=(1, 3)),
        moving_sample((1,), axes=(0,)),
        moving_sample((0, 1), axes=(1,)),
    ),
    simplify=_simplify_squeeze,
)

SPECS: tuple[OpSpec, ...] = (RESHAPE, TRANSPOSE, BROADCAST_TO, EXPAND_DIMS, SQUEEZE)
