"""Lanes: neighbours along the last axis of a tile that look at each other, in segments of a warp or less."""

from __future__ import annotations

from typing import Any

from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.places import within
from tessera.frontend.kernel.tiles import Tile, made, number_of, tile_of
from tessera.types.dtype import BY_NAME
from tessera.types.tensor_type import TensorType

WARP = 32
VOTES = {"any": "bool", "all": "bool", "ballot": "u32", "count": "i32"}
WAYS = ("down", "up", "index")


def _whole(b: KernelBuilder, fn: str, x: Any, width: Any) -> Tile:
    """The tile in its own shape, once its lanes are known to come in whole segments."""
    tile = tile_of(b, fn, x)
    if not tile.shape:
        raise b.misfit(f"`{fn}` looks along the last axis of a tile, and a number has none")
    if isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= WARP or width & (width - 1):
        raise b.fail(f"`width` is a power of two of lanes up to {WARP}, got {width!r}")
    if tile.shape[-1] % width:
        last = tile.shape[-1]
        raise b.misfit(
            f"segments of {width} lanes must fill the last axis, which has {last} elements",
            fix=f"write `width={last & -last if last else 1}`, or take tiles with rows of whole segments",
        )
    if tile.spread is None:
        return tile
    return Tile(number_of(b, tile), TensorType.of(tile.shape, tile.dtype), tile.axes, outside=tile.outside)


def _lane(b: KernelBuilder, by: Any, width: int) -> int:
    if isinstance(by, bool) or not isinstance(by, int) or not 0 <= by < width:
        raise b.fail(f"`by` must be in 0..{width - 1}, as segments have {width} lanes, got {by!r}")
    return by


def shuffle(x: Any, way: str, by: int, width: int = WARP) -> Tile:
    """Each element from another lane of its segment of the last axis: `by` lanes `down` or `up`, or lane `by` itself.

    `way` is `down`, `up` or `index`. Where there is no such lane in the segment an element stays as it is.
    """
    b = current()
    tile = _whole(b, "shuffle", x, width)
    if way not in WAYS:
        raise b.fail(f"`way` is one of {', '.join(WAYS)}, got {way!r}")
    values = {"mode": way, "by": _lane(b, by, width), "width": width}
    return made(b, "shuffle", [tile.number], values, tile.type, tile.axes)


def butterfly(x: Any, by: int, width: int = WARP) -> Tile:
    """Each element from the lane across: the one whose number differs from its own in the bits of `by`."""
    b = current()
    tile = _whole(b, "butterfly", x, width)
    return made(b, "butterfly", [tile.number], {"by": _lane(b, by, width), "width": width}, tile.type, tile.axes)


def vote(x: Any, kind: str = "any", width: int = WARP) -> Tile:
    """What the bools of each segment say together, told to all of its lanes.

    `any` and `all` are bools, `count` says how many are true (i32), and `ballot` which (u32, lane 0 the lowest bit).
    Elements beyond an edge have no vote.
    """
    b = current()
    tile = _whole(b, "vote", x, width)
    if kind not in VOTES:
        raise b.fail(f"`kind` is one of {', '.join(VOTES)}, got {kind!r}")
    if not tile.dtype.is_bool:
        raise b.fail(f"lanes vote with bools, got {tile.dtype}", "compare first: `x > 0`")
    inside = within(b, tile, len(tile.shape) - 1, kind == "all")
    type = TensorType.of(tile.shape, BY_NAME[VOTES[kind]])
    return made(b, "vote", [inside.number], {"kind": kind, "width": width}, type, tile.axes)
