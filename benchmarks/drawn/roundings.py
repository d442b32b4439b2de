"""What an op rounds inside of itself, by its recipe: how far float64 may be from that."""

# Tensors of a library that is loaded by name have no types to give.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes

from tessera.ir.base.arrays import numpy_dtype
from tessera.types.dtype import BY_NAME

SCORES = 2**27
"""Scores of attention that are computed at a time, in float64."""
WIDEST_HEAD, HEAD_STEP = 256, 8
"""Heads that tensor cores take: others are attended to in f32, of which two bytes keep nothing."""
WHOLE = {"f32": 2.0**-24, "f64": 2.0**-53}
"""Units of formats that results have as they are computed: what an op rounds inside of itself is not rounded away."""
EXP = 2
"""Units that an exp is off by: an ulp (`ULP_BOUNDS` of the functions)."""
INSTRUCTION, PROMOTED = 32, 128
"""Products of 8-bit floats that one instruction adds to its accumulator, and after how many f32 takes that over."""
BEHIND = 2.0**-13
"""What an instruction of 8-bit floats keeps of its terms, of the power of two in the largest: the rest is cut."""
DOUBT = 1e-3
"""How likely one right element of a result may look wrong."""


@dataclass(frozen=True)
class Inside:
    """Roundings inside of an op, element by element: the root of the sum of their squares, and their sum.

    Each is the most that one rounding moves the result by.
    """

    deviation: Any
    most: Any

    def allowed(self, count: int) -> Any:
        """How far an element may be off, of `count`: by Hoeffding's inequality, and never by more than all together.

        Roundings have either sign: the probability of a sum beyond `t` deviations is at most `2 exp(-t * t / 2)`.
        """
        times = math.sqrt(2 * math.log(2 * max(count, 1) / DOUBT))
        return (times * self.deviation).minimum(self.most)


def inside(
    torch: Any,
    op: str,
    dtype: str,
    attributes: Mapping[str, Any],
    operands: tuple[Any, ...],
    *,
    on_tensor_cores: bool = True,
) -> Inside | None:
    """What `op` rounds inside of itself; None where that is nothing beside its result. Operands are in float64."""
    is_attention = op in ("attention", "cached_attention")
    if dtype in WHOLE and is_attention:
        return _chained_scores(torch, WHOLE[dtype], op, attributes, operands)
    if dtype in WHOLE and op in ("softmax", "softmax_safe"):
        return _shares(torch, WHOLE[dtype], int(attributes["axis"]), operands[0])
    if on_tensor_cores and is_attention and dtype in ("bf16", "f16"):
        head, values = operands[0].shape[3], operands[2].shape[3]
        is_narrow = head == values and head % HEAD_STEP == 0 and 0 < head <= WIDEST_HEAD
        return _weights(torch, op, dtype, attributes, operands) if is_narrow else None
    if on_tensor_cores and op == "matmul" and dtype in ("f8e4m3", "f8e5m2") and min(one.ndim for one in operands) > 1:
        return _cut_products(torch, *operands[:2])
    return None


def _shares(torch: Any, unit: float, axis: int, x: Any) -> Inside:
    """A share of a row: its argument rounds by a part of itself, then exp, sums in a tree, and a quotient."""
    below = (x.amax(axis, keepdim=True) - x).nan_to_num_(0.0, 0.0, 0.0)
    levels = math.log2(max(2, x.shape[axis])) + 1
    size = unit * torch.softmax(x, axis).nan_to_num_(0.0)
    return Inside(size * (below**2 + EXP**2 + levels + 1).sqrt(), size * (below + EXP + levels + 1))


def _weights(torch: Any, op: str, dtype: str, attributes: Mapping[str, Any], operands: tuple[Any, ...]) -> Inside:
    """Each weight of a value is rounded to the dtype of the values: by a unit of itself, or of the smallest normal.

    Before it is divided by the sum of its row: the largest weight is 1 then.
    """
    format = ml_dtypes.finfo(numpy_dtype(BY_NAME[dtype]))
    unit, least = float(format.eps) / 2, float(format.smallest_subnormal) / 2

    def measure(given: _Rows) -> tuple[Any, Any]:
        moved = given.shares * unit + given.shares.amax(-1, keepdim=True) * least
        values = given.v
        return ((moved * moved) @ (values * values)).sqrt(), moved @ abs(values)

    return _by_rows(torch, op, attributes, operands, measure)


def _chained_scores(
    torch: Any, unit: float, op: str, attributes: Mapping[str, Any], operands: tuple[Any, ...]
) -> Inside:
    """A score is a chain of multiply-adds over the head, each of which rounds what was added so far.

    Sums so far go up to the score, evenly, and wander by their terms: of n steps the squares of all add up to n times a
    third of the score's square and half of the terms' squares. A weight moves by as much of itself, and the result by
    how far its value is from it.
    """

    def measure(given: _Rows) -> tuple[Any, Any]:
        length, values = given.q.shape[-1], given.v
        terms = (given.q**2) @ (given.k**2).mT
        # The difference to the maximum is rounded as well, and exp.
        moved = given.shares * unit * (length * (given.scores**2 / 3 + terms / 2) + given.scores**2 + EXP**2).sqrt()
        made = given.shares @ values
        squares = moved * moved
        wide = squares @ (values * values) - 2 * made * (squares @ values) + made**2 * squares.sum(-1, keepdim=True)
        most = given.shares * unit * ((length + 2) * (abs(given.q) @ abs(given.k).mT) + EXP)
        return wide.clamp_min_(0.0).sqrt(), most @ abs(values) + abs(made) * most.sum(-1, keepdim=True)

    return _by_rows(torch, op, attributes, operands, measure)


@dataclass(frozen=True)
class _Rows:
    """Some rows of attention: scaled queries, keys and values, scores that are seen, and their shares of 1."""

    q: Any
    k: Any
    v: Any
    scores: Any
    shares: Any


def _by_rows(
    torch: Any,
    op: str,
    attributes: Mapping[str, Any],
    operands: tuple[Any, ...],
    measure: Callable[[_Rows], tuple[Any, Any]],
) -> Inside:
    """What is measured of some rows of attention at a time: deviations, and the most."""
    q, k, v, *rest = operands
    causal, scale = attributes["causal"], attributes["scale"]
    if op == "cached_attention":
        filled = min(max(int(rest.pop()), 0), k.shape[2])
        k, v = k[:, :, :filled], v[:, :, :filled]
    heads, group = k.shape[1], q.shape[1] // max(k.shape[1], 1)
    queries, keys = q.shape[2], k.shape[2]
    added = torch.zeros((), dtype=q.dtype, device=q.device)
    if causal:
        seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        added = torch.where(seen, added, -math.inf)
    for mask in rest:
        added = added + mask
    added = torch.broadcast_to(added, (*q.shape[:3], keys)).unflatten(1, (heads, group))
    apart = q.unflatten(1, (heads, group)) * (1.0 / math.sqrt(q.shape[3]) if scale is None else scale)
    found = [torch.zeros((*q.shape[:2], queries, v.shape[3]), dtype=q.dtype, device=q.device) for _ in range(2)]
    parts = [one.unflatten(1, (heads, group)) for one in found]
    for at in _cuts(q.shape[0], heads, group * queries * keys):
        own, values = k[at].unsqueeze(2), v[at].unsqueeze(2)
        scores = apart[at] @ own.mT + added[at]
        shares = torch.softmax(scores, -1).nan_to_num_(0.0)
        seen = torch.where(shares > 0, scores, 0.0)
        for part, measured in zip(parts, measure(_Rows(apart[at], own, values, seen, shares)), strict=True):
            part[at] = measured
    return Inside(*found)


def _cuts(batch: int, heads: int, scores: int) -> Iterator[tuple[slice, slice]]:
    """Parts of sequences and heads whose scores are few enough."""
    if not batch * heads * scores:
        return
    wide = min(heads, max(1, SCORES // scores))
    deep = max(1, SCORES // (scores * heads)) if wide == heads else 1
    for first in range(0, batch, deep):
        for head in range(0, heads, wide):
            yield slice(first, first + deep), slice(head, head + wide)


def _cut_products(torch: Any, a: Any, b: Any) -> Inside:
    """Terms of an instruction are its products and the accumulator: each is cut by less than what is kept of all.

    The largest product is not above the fourth root of the sum of fourth powers, which is a product of matrices.
    """
    squares = most = torch.zeros((), dtype=a.dtype, device=a.device)
    total = torch.zeros((), dtype=a.dtype, device=a.device)
    length = a.shape[-1]
    for start in range(0, length, INSTRUCTION):
        left, right = a[..., start : start + INSTRUCTION], b[..., start : start + INSTRUCTION, :]
        before = total if start % PROMOTED else total * 0.0
        total = before + left @ right
        largest = ((left**4) @ (right**4)).sqrt().maximum(before * before).maximum(total * total)
        terms = left.shape[-1] + 1
        squares = squares + largest * (terms * BEHIND * BEHIND)
        most = most + largest.sqrt_() * (terms * BEHIND)
    return Inside(squares.sqrt(), most)
