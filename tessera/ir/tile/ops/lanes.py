"""Elements that look at their neighbours: shuffles, butterflies and votes in segments of the last axis.

A segment has the lanes of a warp or fewer, and what a lane gets depends on its index in the tile alone: it is the same
on a machine that has no warps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.target.ops.vector import MODES, VOTES, WIDTH, check_exchange, check_vote, partner


def _check_shuffle(op: SpecOp) -> None:
    check_exchange(op, op.value("mode"))
    if op.value("mode") == "xor":
        op.fail("`mode` is one of down, up, index, got xor", "write `ttile.butterfly`")


def _check_butterfly(op: SpecOp) -> None:
    check_exchange(op, "xor")


def _shuffle(tile: Any, *, mode: str, by: int, width: int) -> Any:
    sources = [partner(mode, by, width, index) for index in range(tile.shape[-1])]
    return np.ascontiguousarray(tile[..., sources])


def _exchange(tile: Any, *, by: int, width: int) -> Any:
    return _shuffle(tile, mode="xor", by=by, width=width)


def _vote(tile: Any, *, kind: str, width: int) -> Any:
    segments = tile.reshape(*tile.shape[:-1], -1, width)
    bits = segments.astype(np.uint64) << np.arange(width, dtype=np.uint64)
    found = {
        "any": segments.any(-1),
        "all": segments.all(-1),
        "count": segments.sum(-1, dtype=np.int32),
        "ballot": bits.sum(-1, dtype=np.uint64).astype(np.uint32),
    }[kind]
    return np.ascontiguousarray(np.repeat(found, width, axis=-1))


SPECS = (
    OpSpec(
        name="ttile.shuffle",
        summary="Each element from another lane of its segment; its own where there is none.",
        operands=("tile",),
        attributes=(
            Attribute("mode", "str", doc=", ".join(MODES[:3])),
            Attribute("by", "int", doc="lanes, or the lane"),
            WIDTH,
        ),
        type_rule=lambda types, values: [types[0]],
        reference=_shuffle,
        verify=_check_shuffle,
    ),
    OpSpec(
        name="ttile.butterfly",
        summary="Each element from the lane whose number differs in the bits of `by`.",
        operands=("tile",),
        attributes=(Attribute("by", "int", doc="the bits of the lane's number that differ"), WIDTH),
        type_rule=lambda types, values: [types[0]],
        reference=_exchange,
        verify=_check_butterfly,
    ),
    OpSpec(
        name="ttile.vote",
        summary="What a segment's bools say together, told to each of its lanes; lane 0 is the lowest bit of a ballot.",
        operands=("tile",),
        attributes=(Attribute("kind", "str", doc=", ".join(VOTES)), WIDTH),
        reference=_vote,
        verify=check_vote,
    ),
)
