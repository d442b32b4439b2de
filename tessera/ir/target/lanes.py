"""Lanes: neighbours along the last axis, in segments of up to a warp, that look at each other; and who at whom."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import ShapedAttr

WARP = 32
MODES = ("down", "up", "index", "xor")
"""`down` and `up` look so many lanes on or back, `index` at one lane, `xor` at the partner across."""
VOTES = {"any": "bool", "all": "bool", "ballot": "u32", "count": "i32"}
"""Votes of a segment, and the dtype of what each lane gets."""
WIDTH = Attribute("width", "int", WARP, "lanes of a segment, a power of two")


def partner(mode: str, by: int, width: int, place: int) -> int:
    """The element that the one at `place` of its axis gets; where there is none in its segment, its own.

    >>> [partner("xor", 1, 4, place) for place in range(8)]
    [1, 0, 3, 2, 5, 4, 7, 6]
    >>> [partner("down", 3, 4, place) for place in range(4)]
    [3, 1, 2, 3]
    """
    lane = place % width
    start = place - lane
    if mode == "index":
        return start + by
    if mode == "xor":
        return start + (lane ^ by)
    other = lane + by if mode == "down" else lane - by
    return start + other if 0 <= other < width else place


def check_width(op: SpecOp) -> None:
    """A segment is a power of two of lanes, a warp at most, and segments fill the last axis."""
    width, tile = op.value("width"), op.operands[0].type
    if not isinstance(tile, ShapedAttr) or not tile.shape:
        op.fail(f"lanes run along the last axis of a tile, got {tile}")
    if not 1 <= width <= WARP or width & (width - 1):
        op.fail(f"`width` is a power of two of lanes up to {WARP}, got {width}")
    last = tile.shape[-1].value
    if last is None or last % width:
        op.fail(f"segments of {width} lanes must fill the last axis, which has {tile.shape[-1]} elements")


def check_exchange(op: SpecOp, mode: str) -> None:
    """Elements change lanes and nothing else about them: one type, and a lane that there is."""
    check_width(op)
    if mode not in MODES:
        op.fail(f"`mode` is one of {', '.join(MODES)}, got {mode}")
    by, width = op.value("by"), op.value("width")
    if not 0 <= by < width:
        op.fail(f"`by` must be in 0..{width - 1}, as segments have {width} lanes, got {by}")
    if op.results[0].type != op.operands[0].type:
        op.fail(f"`{op.name}` gives what it takes, {op.operands[0].type}, not {op.results[0].type}")


def check_vote(op: SpecOp) -> None:
    """A vote is of bools, and gives each lane the dtype of its kind."""
    check_width(op)
    kind, tile, out = op.value("kind"), op.operands[0].type, op.results[0].type
    if kind not in VOTES:
        op.fail(f"`kind` is one of {', '.join(VOTES)}, got {kind}")
    assert isinstance(tile, ShapedAttr)
    if not tile.dtype.is_bool:
        op.fail(f"lanes vote with bools, got {tile.dtype}", "compare first: `x > 0`")
    if not isinstance(out, ShapedAttr) or out.shape != tile.shape or out.dtype.name != VOTES[kind]:
        op.fail(f"a vote `{kind}` of {tile} gives {VOTES[kind]} of its shape, not {out}")
