"""How bytes of a collective go from rank to rank: who sends which blocks to whom, step by step.

All of them move the same bytes to the same addresses, and reductions are kernels over what was gathered, in rank order:
so no algorithm changes a bit. For `p` ranks:

- `direct`: one step, in which each rank exchanges with each other one. Fewest steps, most messages.
- `ring`: p - 1 steps, in which each rank sends to one and receives from one.
- `tree`: blocks go up a binomial tree to the first rank, and all of them down again, in log2(p) steps each. Fewest
  messages, most bytes; for `all_gather` alone.

Which is fastest depends on the machine and on the bytes, so that is measured (`autotune.collectives`) and put into a
`Table`; without one it is `direct`.

A step is a list of moves: a rank sends all that it has to send in it, and reads all that it has to read, before it
begins the next. What a move sends its sender has by then, and messages between two ranks keep their order, so that
nobody waits for ever: tests play every algorithm with boxes in the place of memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

from tessera.types.frozen import frozen

DIRECT, RING, TREE = "direct", "ring", "tree"
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "all_gather": (DIRECT, RING, TREE),
    "all_to_all": (DIRECT, RING),
}
"""Of each call, what may be chosen, the usual one first."""


@frozen
class Move:
    """What a rank has to do with one other in a step: blocks that it sends, and blocks that it reads.

    Both are a first block and how many; of none nothing is sent, or read.
    """

    peer: int
    sends: tuple[int, int] = (0, 0)
    reads: tuple[int, int] = (0, 0)


Step = tuple[Move, ...]


@lru_cache(maxsize=256)
def steps_of(call: str, algorithm: str, at: int, ranks: int) -> tuple[Step, ...]:
    """What the rank at a position does, step by step; its own block is where it belongs already.

    Blocks of an `all_gather` are those of the target, from which it also sends. An `all_to_all` sends blocks of the
    source.
    """
    others = [(at + step) % ranks for step in range(1, ranks)]
    if algorithm == DIRECT:
        own = {peer: (at, 1) if call == "all_gather" else (peer, 1) for peer in others}
        return (tuple(Move(peer, own[peer], (peer, 1)) for peer in sorted(others)),) if others else ()
    if algorithm == TREE:
        return _tree(at, ranks)
    if call == "all_gather":
        right, left = (at + 1) % ranks, (at - 1) % ranks
        pairs = [(right, (at - step) % ranks, left, (at - step - 1) % ranks) for step in range(ranks - 1)]
    else:
        pairs = [((at + step) % ranks,) * 2 + ((at - step) % ranks,) * 2 for step in range(1, ranks)]
    return tuple(_pair(*pair) for pair in pairs)


def _pair(to: int, sent: int, source: int, read: int) -> Step:
    """A block to one rank and a block from one, which may be the same."""
    if to == source:
        return (Move(to, (sent, 1), (read, 1)),)
    return (Move(to, sends=(sent, 1)), Move(source, reads=(read, 1)))


def _tree(at: int, ranks: int) -> tuple[Step, ...]:
    """Up: a rank whose position ends with a one bit gives all it has to the one without it; down: all of it."""
    distances = [1 << level for level in range((ranks - 1).bit_length())]
    up: list[Step] = []
    down: list[Step] = []
    for distance in distances:
        lower, upper = at - distance, at + distance
        if at % (2 * distance) == distance:
            up.append((Move(lower, sends=(at, min(distance, ranks - at))),))
            down.append((Move(lower, reads=(0, ranks)),))
            break  # what is farther up is done by the one that has it now
        if upper < ranks:
            up.append((Move(upper, reads=(upper, min(distance, ranks - upper))),))
            down.append((Move(upper, sends=(0, ranks)),))
    return (*up, *reversed(down))


Row = tuple[int, str]
"""An algorithm, and the most bytes of a rank's part that it is for."""


class Table:
    """Algorithms by call, number of ranks and bytes; all ranks of a world have the same one.

    >>> table = Table({("all_gather", 4): [(4096, "tree"), (1 << 20, "direct")]})
    >>> [table.choose("all_gather", 4, size) for size in (8, 4096, 4097, 1 << 30)], table.choose("all_gather", 8, 8)
    (['tree', 'tree', 'direct', 'direct'], 'direct')
    """

    def __init__(self, rows: Mapping[tuple[str, int], Sequence[Row]] | None = None) -> None:
        self.rows = {key: tuple(sorted(found)) for key, found in (rows or {}).items() if found}

    def choose(self, call: str, ranks: int, size: int) -> str:
        """The algorithm for so many bytes of each rank's part; that of the largest beyond it."""
        found = self.rows.get((call, ranks))
        if found is None:
            return DIRECT
        at = bisect_left([row[0] for row in found], size)
        return found[min(at, len(found) - 1)][1]


CURRENT: list[Table] = [Table()]
"""The table of this process's world."""
