"""Attention that takes its keys in parts: when it does, and when programs of their own compute them.

A few queries have too little in their result to fill a large machine. Their keys are cut into parts by position, each
computed by itself and joined in order. Whether they are is decided when an op is first made, from the lengths of
queries and keys alone, and kept by every rewrite; who computes the parts changes no bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, Simplifier
from tessera.ir.graph.building import Types
from tessera.types.shape import ONE, TensorType

PART = 512
"""Keys of a part where attention splits them. It decides in which order sums are joined, so it is never chosen."""
PART_UNIT = 256
SPLIT = "keys of a part, joined in order, a multiple of 256; 0 for one pass over all"
DECIDED = f"{SPLIT}; not given, the lengths decide"
FEW_QUERIES, MANY_KEYS = 64, 1024
"""Queries up to which keys beyond so many are split without being asked: fewer fill no GPU by themselves."""
_ROWS, _FEW_ROWS, _FILLING, _WIDE_HEAD = 64, 16, 256, 128
"""Queries of a program on tensor cores; how many of them write little beside what a part has to read; programs that
fill a large GPU, two for each of 132 multiprocessors; and heads beyond which registers hold no two accumulators."""


def decide_part(types: Types, attributes: Attributes) -> Attributes:
    """Keys of a part where nobody says: by the lengths alone, never by batch, heads, dtype or machine.

    Queries that are few beside their keys have the recipe of a cache, by which parts of the keys can be computed at the
    same time. All others have one pass: their own number fills a machine, which then has nothing to join.
    """
    if any(one.rank != 4 for one in types[:3]) or len(types) != 3:
        return {}  # with a mask all keys are one pass; other ranks are refused
    queries, keys = types[0].shape[2].value, types[1].shape[2].value
    is_few = queries is not None and keys is not None and queries <= FEW_QUERIES and keys > MANY_KEYS
    return {"part": PART if is_few else 0}


def _is_apart(q: TensorType) -> bool:
    """Whether parts are computed by programs of their own: those of few queries, or where queries fill no GPU."""
    count, heads, size = q.shape[2].value, (q.shape[0] * q.shape[1]).value, q.shape[3].value
    if count is None or count <= _FEW_ROWS or (size is not None and size > _WIDE_HEAD):
        return count is not None
    return heads is not None and heads * -(-count // _ROWS) < _FILLING


def split_keys(b: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Few queries: parts of the keys in parallel, then joined. Kernels with all parts have the same bits.

    Queries that see the same keys are heads of one query each. `causal` hides nothing from a last query. A fourth
    operand is a mask, or how many keys of a cache there are.
    """
    q, k, v, *others = (b.type_of(value) for value in operands)
    keys, part, count = k.shape[2].value, attributes["part"], q.shape[2].value
    is_masked = any(not other.dtype.is_integer for other in others) or (attributes["causal"] and count != 1)
    if not part or is_masked or not count or (keys is not None and keys <= part) or not _is_apart(q):
        return None
    queries, lengths = operands[0], operands[3:]
    if count > 1:
        queries = b.emit("reshape", queries, shape=(q.shape[0], q.shape[1] * count, ONE, q.shape[3]))
    parts = b.emit("attention_parts", queries, *operands[1:], keys=part, scale=attributes["scale"])
    out = b.emit("attention_join", *parts, *lengths, dtype=q.dtype, keys=part if lengths else 0)
    return out if count == 1 else b.emit("reshape", out, shape=(*q.shape[:3], v.shape[3]))
