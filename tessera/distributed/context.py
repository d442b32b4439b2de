"""Long sequences in parts: attention around a ring, scans over ranks, and models whose tokens are cut along it.

Each rank has a part of the sequence. In ring attention keys and values go round the ranks, and queries, which stay,
take each part into a running softmax (Liu et al., 2023); positions are absolute, so that causal order holds across
parts. A scan runs on each part, and what the parts before it come to is combined with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tessera.api.algebra import associative_scan
from tessera.api.autodiff import stop_gradient
from tessera.api.checkpoint import checkpoint
from tessera.api.collectives import all_gather, axis_index
from tessera.api.vmap import vmap
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.distributed.exchanges import shift, size_of
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of, rank_of
from tessera.frontend.pytree import flatten, unflatten
from tessera.nn.attention import Attention, merge_heads
from tessera.nn.layers import Embedding
from tessera.nn.transformer import GPT
from tessera.types.dtype import DType, f32, i64

MASKED = -1e30
"""The score of a key that a query does not see: its weight is 0 beside any other, and differences are finite."""


def ring_attention(q: Any, k: Any, v: Any, axis: str, *, causal: bool = False, scale: float | None = None) -> Any:
    """Attention of [batch, heads, length, head dim] where each rank of a mesh axis has a part of the sequence.

    Keys may have fewer heads, which groups of queries share. No rank has more than one part of the keys at a time, and
    the backward pass sends them round again. Equal to `ops.attention` of the whole up to the order of sums.

    >>> q = ts.ones((1, 2, 4, 8))
    >>> with ts.dist.mesh(sp=1):
    ...     ts.jit(lambda q: ts.dist.ring_attention(q, q, q, "sp", causal=True))(q).shape
    (1, 2, 4, 8)
    """
    for name, given in (("q", q), ("k", k), ("v", v)):
        if rank_of(given) != 4:
            raise ShapeError(
                f"`ring_attention` takes [batch, heads, length, head dim], and `{name}` has {rank_of(given)} dims",
                fix="give it four dims",
            )
    q, k, v = (as_tensor(one) for one in (q, k, v))
    batch, heads, length, size = q.shape
    shared = k.shape[1]
    if heads % shared or k.shape != v.shape or k.shape[2] != length:
        raise ShapeError(
            f"`ring_attention` takes queries {list(q.shape)} with as many positions as keys {list(k.shape)} and values "
            f"{list(v.shape)}, and a multiple of their heads",
            fix="cut queries, keys and values along the sequence by the same axis",
        )
    wide = dtype_of(q).compute
    factor = 1.0 / math.sqrt(size) if scale is None else scale
    grouped = ops.reshape(ops.astype(q, wide) * factor, (batch, shared, heads // shared, length, size))
    ranks = size_of(axis)
    here = ops.astype(axis_index(axis), i64) if ranks > 1 else as_tensor(0, i64)
    most = ops.full((batch, shared, heads // shared, length, 1), MASKED, wide)
    total, mixed = most * 0.0, grouped * 0.0

    def fold(q: Any, k: Any, v: Any, start: Any, most: Any, total: Any, mixed: Any) -> tuple[Any, Any, Any]:
        scores = ops.matmul(q, ops.expand_dims(ops.astype(k, wide), 2).swapaxes(-1, -2))
        if causal:
            rows = ops.reshape(ops.iota((length,)) + here * length, (length, 1))
            columns = ops.reshape(ops.iota((length,)) + start * length, (1, length))
            scores = ops.where(columns <= rows, scores, ops.full((), MASKED, wide))
        # Weights are relative to the largest score so far, which cancels in the end.
        largest = stop_gradient(ops.maximum(most, ops.max(scores, axis=-1, keepdims=True)))
        weights, decay = ops.exp(scores - largest), ops.exp(stop_gradient(most) - largest)
        summed = total * decay + ops.sum(weights, axis=-1, keepdims=True)
        return largest, summed, mixed * decay + ops.matmul(weights, ops.expand_dims(ops.astype(v, wide), 2))

    step = checkpoint(fold)
    for turn in range(ranks):
        start = (here - turn) % ranks
        most, total, mixed = step(grouped, k, v, start, most, total, mixed)
        if turn + 1 < ranks:
            k, v = shift(k, axis), shift(v, axis)
    return ops.astype(ops.reshape(mixed / total, (batch, heads, length, size)), dtype_of(q))


def sharded_scan(combine: Callable[[Any, Any], Any], elements: Any, axis: str, dim: int = 0) -> Any:
    """`associative_scan` along a dim of which each rank of a mesh axis has a part, one after the other.

    `elements` is a tensor or a tree of them. Each rank scans its part; what the parts before it come to is combined
    with every element. As for `associative_scan`, `combine` is associative, and the grouping is part of the bits.

    >>> with ts.dist.mesh(sp=1):
    ...     ts.jit(lambda x: ts.dist.sharded_scan(ts.ops.add, x, "sp"))(ts.ones((3,)))
    Tensor([3] f32, [1, 2, 3])
    """
    local = associative_scan(combine, elements, axis=dim)
    ranks = size_of(axis)
    if ranks == 1:
        return local
    leaves, form = flatten(local)
    ends = [
        all_gather(ops.expand_dims(leaf[(*[slice(None)] * (dim % len(leaf.shape)), -1)], 0), axis, 0) for leaf in leaves
    ]
    parts = [unflatten(form, [end[at] for end in ends]) for at in range(ranks)]
    before = [parts[0]]
    for part in parts[1:-1]:
        before.append(combine(before[-1], part))
    index = axis_index(axis)
    carried = before[0]
    for at in range(1, ranks - 1):
        carried = _choose(index > at, before[at], carried)
    return _choose(index > 0, vmap(combine, (None, dim), dim)(carried, local), local)


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    (left, form), right = flatten(yes), flatten(no)[0]
    return unflatten(form, [ops.where(condition, one, other) for one, other in zip(left, right, strict=True)])


# Models whose tokens are cut along the sequence.


class RingAttention(Attention):
    """Attention where each rank has a part of the sequence, at its absolute positions; `length` is that of a part."""

    axis: str = ""
    length: int | None = None

    def angles(self, length: Any, start: Any = 0, *, dtype: DType = f32) -> tuple[Any, Any] | None:
        return super().angles(length, _offset(self.axis, length) + as_tensor(start, i64), dtype=dtype)

    def __call__(self, x: Any, *, cache: Any = None, mask: Any = None, angles: Any = None, key: Any = None) -> Any:
        if cache is not None or mask is not None or (key is not None and self.dropout):
            raise ArgumentError(
                "attention around a ring has no cache, no mask but the causal one, and drops no weights",
                fix="train without dropout of attention weights, and generate on one rank",
            )
        self._check_part(x)
        q, k, v = ops.split_qkv(self.qkv(x), heads=self.heads, kv_heads=self.kv_heads)
        angles = self.angles(x.shape[1], dtype=dtype_of(q).compute) if angles is None else angles
        if angles is not None:
            cos, sin = (ops.cast_like(one, q) for one in angles)
            q, k = ops.rotary(q, cos, sin), ops.rotary(k, cos, sin)
        return self.out(merge_heads(ring_attention(q, k, v, self.axis, causal=self.causal)))

    def _check_part(self, x: Any) -> None:
        """Raise ShapeError (T0101) for positions that are not those of this rank's part of the batch."""
        if self.length is not None and x.shape[1] != self.length:
            ranks = size_of(self.axis)
            raise ShapeError(
                f"the model is called with {x.shape[1]} positions, and each of the {ranks} ranks of `{self.axis}` has "
                f"{self.length} of the {self.length * ranks} of the batch",
                notes=(
                    "rule: the loss gets a part of the batch, cut along the sequence, and gives the model all of it",
                ),
                fix='shift targets when batches are made: `{"x": tokens[:, :-1], "y": tokens[:, 1:]}`',
            )


def length_of(batch: Any) -> int | None:
    """How long the sequences of a batch are: of tokens, or of the first tensor that has a second dim."""
    leaves = [as_tensor(leaf) for leaf in flatten(batch)[0]]
    long = [leaf for leaf in leaves if len(leaf.shape) > 1]
    tokens = [leaf for leaf in long if dtype_of(leaf).is_integer]
    return next((int(leaf.shape[1]) for leaf in (*tokens, *long)), None)


def _offset(axis: str, length: int) -> Any:
    return ops.astype(axis_index(axis), i64) * length


def split(module: Any, axis: str, length: int | None) -> Any:
    """The module that runs on a part of the sequence, of which each rank has `length` positions."""
    if type(module) is Attention:
        fields = (module.qkv, module.out, module.heads, module.kv_heads, module.causal, module.rotary, module.dropout)
        return RingAttention(*fields, axis, length)
    if isinstance(module, GPT) and module.positions is not None:
        if length is None:
            raise ArgumentError(
                f"`context` cuts batches along their second dim by `{axis}`, and no tensor of this one has any",
                fix="give tokens [batch, length]",
            )
        _check_length(module, length, axis)
        table = module.positions.weight
        starts = (_offset(axis, length), as_tensor(0, i64))
        rows = ops.dynamic_slice(table, starts, (length, table.shape[1]))
        return module.replace(positions=Embedding(rows))
    return module


def _check_length(model: GPT, length: int, axis: str) -> None:
    ranks = size_of(axis)
    if length * ranks > model.config.length:
        raise ShapeError(
            f"`GPT` takes a length of at most {model.config.length}, got {length} on each of the {ranks} ranks of "
            f"`{axis}`",
            fix="give it fewer tokens at a time, or make it with a larger `length`",
        )
