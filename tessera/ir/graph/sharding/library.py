"""Factor rules of ops whose lowering does not imply one: kernels of the library, counters and random bits."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.spec import Attributes
from tessera.ir.graph.sharding.factors import FactorRule, Factors, RuleBuilder
from tessera.types.dim import Dim
from tessera.types.shape import TensorType

Types = Sequence[TensorType]


def philox(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Random bits by a counter that is an operand: each element is by itself."""
    b = RuleBuilder()
    own = b.dims_of(results[0])
    rows = [
        tuple(own[results[0].rank - type.rank + axis] if dim.value != 1 else () for axis, dim in enumerate(type.shape))
        for type in operands
    ]
    return b.finish(rows, [own])


def iota(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Whole along the axis that it counts."""
    b = RuleBuilder()
    return b.finish([], [b.dims_of(results[0], [attributes["axis"] % max(results[0].rank, 1)])])


def along_axis(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """An op that works along `axis` of its first operand and keeps the shape."""
    b = RuleBuilder()
    own = b.dims_of(operands[0], [attributes["axis"] % max(operands[0].rank, 1)])
    return b.finish([own], [own] * len(results))


def along_last(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """An op that works along the last axis, which may come out shorter."""
    b = RuleBuilder()
    own = b.dims_of(operands[0], [operands[0].rank - 1])
    return b.finish([own], [own] * len(results))


def scatter_rows(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """[outer, axes, inner], [outer, n, inner] and indices [n]: outer and inner are independent."""
    b = RuleBuilder()
    x, _, *indices = operands
    own = b.dims_of(x, range(1, x.rank - 1))
    return b.finish([own, (own[0], (), own[-1]), *(((),) for _ in indices)], [own])


def attention(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Batch, heads by the group that shares keys, queries where no mask depends on their position, value channels."""
    b = RuleBuilder()
    q, k, v, *others = operands
    batch = _factor_of(b, q.shape[0])
    shared = _factor_of(b, k.shape[1])
    group = _factor_of(b, q.shape[1] // k.shape[1])
    # Which queries see which keys is counted from the ends of both.
    rows = () if attributes.get("causal") else _factor_of(b, q.shape[2])
    channels = _factor_of(b, v.shape[3])
    heads = (*shared, *group)
    known = (batch, heads, rows, ())
    masks: list[Factors] = []
    for mask in others:
        missing = 4 - mask.rank
        masks.append(
            tuple(() if dim.value == 1 else known[missing + axis] for axis, dim in enumerate(mask.shape))
            if mask.rank
            else ()
        )
    inside = [(batch, heads, rows, ()), (batch, shared, (), ()), (batch, shared, (), channels), *masks]
    found: list[Factors] = [(batch, heads, rows, channels), (batch, heads, rows)]
    if len(results) == 2 and channels:
        inside[2], found[0] = (batch, shared, (), ()), (batch, heads, rows, ())
    return b.finish(inside, found[: len(results)], weight=1)


def _factor_of(b: RuleBuilder, dim: Dim) -> tuple[int, ...]:
    return () if dim.value in (0, 1) else (b.new(dim),)


def attention_backward(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Batch, and heads by the group that shares keys."""
    b = RuleBuilder()
    q, k, _, _, lse, delta, *others = operands
    batch, shared = _factor_of(b, q.shape[0]), _factor_of(b, k.shape[1])
    group = _factor_of(b, q.shape[1] // k.shape[1])
    heads = (*shared, *group)
    wide, narrow = (batch, heads, (), ()), (batch, shared, (), ())
    masks: list[Factors] = [
        tuple(() if dim.value == 1 else wide[4 - mask.rank + axis] for axis, dim in enumerate(mask.shape))
        for mask in others
    ]
    rows = [wide[: one.rank] for one in (lse, delta)]
    return b.finish([wide, narrow, narrow, wide, *rows, *masks], [wide, narrow, narrow], weight=1)


def kv_write(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """[batch, heads, positions, channels] of a cache: all but the positions, of which some are written."""
    b = RuleBuilder()
    own = b.dims_of(operands[0], [2])
    return b.finish([own, (), own], [own])


def slice_write(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """All axes but those that are cut, of which a part is written."""
    b = RuleBuilder()
    own = b.dims_of(operands[0], list(attributes["axes"]))
    return b.finish([own, own, *(() for _ in operands[2:])], [own])


def join_segments(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """Segments along the first axis are added in order; all other dims are independent."""
    b = RuleBuilder()
    own = b.dims_of(operands[0], [0])
    return b.finish([own], [own[1:]])


def collective(operands: Types, results: Types, attributes: Attributes) -> FactorRule:
    """A collective over another axis: along dims that it neither cuts nor joins ranks have parts as before."""
    b = RuleBuilder()
    moved = [int(attributes[name]) for name in ("dim", "split", "concat") if name in attributes]
    own = b.dims_of(operands[0], moved)
    op = attributes.get("op", "sum")
    is_linear = op == "sum" or (op == "mean" and operands[0].dtype.is_float)
    return b.finish([own], [own], linear=(frozenset({0}),) if is_linear else ())
