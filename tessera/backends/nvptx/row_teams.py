"""Teams of warps that share a row, and which turns of it each of them has.

Where the width of a row is known, a block is one team, and each warp has as many turns as any other; what is left all
of them have. Where it is free, it decides at run time how many warps of a block are a team, and turns come in sections,
each of which a warp has or has not; the last, of which a part may be beyond the row, is the last warp's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.backends.nvptx.text import WARP, special
from tessera.ir.target.llvm.instructions import Index, Value

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

SECTION = 8
"""Turns of a section."""


@dataclass(frozen=True)
class Team:
    """Warps that share a row: how many, which one this is, the number of the first in its block, and their row."""

    warps: Index
    place: Index
    first: Index
    row: Index
    step: Value
    """From one row of a team to the next."""


@dataclass(frozen=True, eq=False)
class Section:
    """Turns that are written one after the other; `condition` says whether this warp has them, None where it does."""

    places: Sequence[Index]
    condition: Value | None = None
    is_ragged: bool = False
    """Whether it goes to the end of the row, and maybe beyond it."""


@dataclass(frozen=True)
class Division:
    """A row divided: the team of this warp, its sections, and turns that all of the team have."""

    team: Team
    sections: Sequence[Section]
    rest: Sequence[int] = ()


def divided(emitter: Emitter, warp: Value, turns: int, is_apart: bool = False) -> Division:
    """A row of so many whole turns, which a block shares; in sections that are kept apart, or in one.

    What is computed of a row in one pass would be kept for the next, though it takes no time to do it again, and there
    are no registers for it. So nobody may know that a warp has all of its sections: no address is that low.
    """
    f, shares = emitter.f, emitter.shares
    block, step = (f.cast("zext", special(f, name), "i64") for name in ("ctaid.x", "nctaid.x"))
    own = turns // shares
    first = f.mul(warp, own * WARP)
    places = [f.add(first, WARP * turn) for turn in range(own)]
    rest = [WARP * turn for turn in range(own * shares, turns)]
    sections = [Section(places)]
    if is_apart:
        address = f.raw("i64", f"ptrtoint {f.arguments[0]} to i64")
        starts = range(0, own, SECTION)
        sections = [Section(places[at : at + SECTION], f.icmp("sgt", address, at)) for at in starts]
    return Division(Team(shares, warp, 0, block, step), sections, rest)


def divided_freely(emitter: Emitter, warp: Value, width: Value, sections: int) -> Division:
    """A row of any width that warps with so many sections each can share."""
    f, shares = emitter.f, emitter.shares
    block, blocks = (f.cast("zext", special(f, name), "i64") for name in ("ctaid.x", "nctaid.x"))
    size = SECTION * WARP
    whole = f.udiv(width, size)
    needed, warps = f.ceil_div(whole, sections), f.index(1)
    count = 1
    while count < shares:
        warps = f.select(f.icmp("sgt", needed, count), f.index(2 * count), warps)
        count *= 2
    number = f.udiv(warp, warps)
    first = f.mul(number, warps)
    place = f.sub(warp, first)
    each = f.smax(f.ceil_div(whole, warps), 1)
    begin = f.mul(place, each)
    own = f.smin(f.sub(whole, begin), each)
    start = f.mul(begin, size)
    places = [f.add(start, WARP * turn) for turn in range(SECTION * sections)]
    parts = [Section(places[SECTION * at : SECTION * (at + 1)], f.icmp("sgt", own, at)) for at in range(sections)]
    end = f.mul(whole, size)
    is_last = f.icmp("eq", place, f.udiv(f.smax(f.sub(whole, 1), 0), each))
    left = [f.add(end, WARP * turn) for turn in range(SECTION)]
    parts.append(Section(left, f.op("and", is_last, f.icmp("slt", end, width)), is_ragged=True))
    teams = f.udiv(f.index(shares), warps)
    row = f.add(f.mul(block, teams), number)
    return Division(Team(warps, place, first, row, f.mul(blocks, teams)), parts)
