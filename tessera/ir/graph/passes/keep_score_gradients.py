"""Keep the gradients of scores of attention where that is sooner done than computing them twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import Pattern, Rewriter, rewrite, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import cast, slice_axis
from tessera.ir.graph.ops.attention import scale_value
from tessera.ir.graph.passes.canonicalize import replace_results
from tessera.types.dim import product
from tessera.types.dtype import bf16, f16, f32
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

LEAST_HEAD, WIDEST_HEAD, LINE = 112, 128, 16
"""Heads of which a score costs more to compute than to write and read, heads whose gradients registers hold together
with a block of scores, and what both are multiples of. On an H200 4 x 16 x 3072 x 128 takes 0.89 of the time so, and
heads of 64 take 1.1 of it."""
_ALIGNED = 8
"""Elements of two bytes whose rows bulk copies can write."""
_WITHOUT_MASK = 6
"""Operands of an `attention_backward` to whose scores nothing is added."""


@frozen
class KeepScoreGradients(Pass):
    """Compute the gradients of scores once, where a machine has tensor cores and memory for them.

    Before: `%dq, %dk, %dv = tgraph.attention_backward %q, %k, %v, ...`, two kernels of which each computes all scores.
    After: `%ds, %dk, %dv = tgraph.attention_backward_keys`, whose kernel stores what it multiplies by, and `%dq` is a
    matmul of it with `%k`: five products where there were seven, of the same numbers in the same order. `most` is how
    many bytes the gradients of scores may have, 0 for a machine on which they are computed twice: a batch of more is
    cut into chunks, one after the other.
    """

    most: int = 0

    def run(self, module: ModuleOp) -> None:
        rewrite(module, self._patterns)

    def _patterns(self, op: SpecOp) -> Sequence[Pattern]:
        is_one = op.name == "tgraph.attention_backward" and is_kept(op, self.most)
        return (lambda op, rewriter: _keep(op, self.most, rewriter),) if is_one else ()


def is_kept(op: SpecOp, most: int) -> bool:
    """Whether gradients of the scores of an `attention_backward` are stored, at most so many bytes at a time."""
    q, k, v, cotangent, *_ = types = [tensor_value(value) for value in op.operands]
    count, given = _chunks(q, k, most), op.value("scale")
    if not count or len(types) > _WITHOUT_MASK or op.value("causal"):
        return False
    sizes = [one.shape[3].value or 0 for one in (q, v)]
    is_even = all((one.shape[2].value or 0) % _ALIGNED == 0 for one in (q, k)) and sizes[0] == sizes[1]
    is_narrow = q.dtype in (bf16, f16) and cotangent.dtype is q.dtype and (given or 1.0) > 0
    is_read = all(any(True for _ in result.uses) for result in op.results)
    is_sized = LEAST_HEAD <= sizes[0] <= WIDEST_HEAD and sizes[0] % LINE == 0
    return is_even and is_narrow and is_sized and is_read and q.shape[1] == k.shape[1]


def _chunks(q: TensorType, k: TensorType, most: int) -> int:
    """Into how many chunks a batch is cut for so many bytes; 0 where none is small enough, or sizes are not known."""
    batch, scores = q.shape[0].value, product((*q.shape[1:3], k.shape[2])).value
    if not batch or not scores:
        return 0
    together = most // (scores * q.dtype.bytes)
    return -(-batch // min(batch, together)) if together else 0


def _keep(op: SpecOp, most: int, rewriter: Rewriter) -> bool:
    b = rewriter.build(op)
    q, k = (tensor_value(value) for value in op.operands[:2])
    batch, count = q.shape[0].value or 0, _chunks(q, k, most)
    limits = [batch * at // count for at in range(count + 1)]
    found: list[tuple[Any, ...]] = []
    for low, high in pairwise(limits):
        cut = list(op.operands) if count == 1 else [slice_axis(b, value, 0, low, high) for value in op.operands]
        if found:
            # Not before the chunk before is done with its gradients of scores, whose memory is then free.
            cut[-1] = b.emit("optimization_barrier", cut[-1], found[-1][0])
        found.append(_differentiate(b, cut, op.value("scale")))
    whole = found[0] if count == 1 else tuple(b.emit("concat", *parts, axis=0) for parts in zip(*found, strict=True))
    replace_results(op, whole, b, rewriter)
    return True


def _differentiate(b: Builder, operands: Sequence[Any], given: float | None) -> tuple[Any, ...]:
    """The gradients by queries, keys and values."""
    q, k = operands[:2]
    changes, by_keys, by_values = b.emit("attention_backward_keys", *operands, scale=given)
    rows = b.emit("transpose", changes, axes=(0, 1, 3, 2))
    found = b.emit("matmul", rows, k, dtype=f32, segment=None)
    scale = scale_value(b, b.type_of(q).shape[3], given, f32)
    return cast(b, b.emit("mul", found, scale), b.type_of(q).dtype), by_keys, by_values
