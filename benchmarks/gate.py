"""Fails where this checkout is surely slower than another one: what to ask before a commit, on a quiet machine.

    python -m benchmarks.gate OTHER [--device cpu|gpu] [--allowed 0.1] [--rounds N] [--only ROWS] [--delay 0.2]

Rows are those of `benchmarks.commits`, timed in rounds with the other checkout. A row whose median over rounds is
slower by half of what is allowed is measured again, by new processes and in four times the rounds, since one process
may be unlucky with its memory from begin to end. It fails where the median is then slower by `allowed`, and by half of
that at least with a confidence of 99 %: an interval that order statistics give, whatever noise is like. With `--delay`
this checkout waits after each call, for so much of its time: that is how to see the gate fail.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.commits import ROOT, ROWS, Asked, Checkout, compare
from tessera.tuner.acceptance import median_interval
from tessera.types.frozen import frozen

ALLOWED = 0.1
CONFIDENCE = 0.99
ROUNDS = 20
MORE = 4
"""Times the rounds of what is measured again."""
Samples = Sequence[tuple[float, float]]
Open = Callable[[], tuple[Asked, Asked]]
"""Starts both checkouts: this one, and the other."""


@frozen
class Slowdown:
    """How many times as long this checkout takes, and between what bounds."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(samples: Samples) -> Slowdown:
        """Of the times of both in each round, this checkout's first."""
        ratios = [mine / theirs for mine, theirs in samples]
        low, high = median_interval(ratios, CONFIDENCE) or (0.0, float("inf"))
        return Slowdown(statistics.median(ratios), low, high)

    def is_slow(self, allowed: float) -> bool:
        """Whether that is more than is allowed, and not by chance."""
        return self.median >= 1 + allowed and self.low > 1 + allowed / 2

    def __str__(self) -> str:
        return f"{self.median:.3f} times the time of the other, between {self.low:.3f} and {self.high:.3f}"


def check(names: Sequence[str], start: Open, rounds: int, allowed: float, tell: Callable[[str], None]) -> list[str]:
    """The rows that look slow, and are when they are measured again."""
    this, other = start()
    found: list[str] = []
    for name in names:
        first = Slowdown.of(compare(this, other, name, rounds)["samples"])
        tell(f"{name}: {first}")
        if first.median < 1 + allowed / 2:
            continue
        again = Slowdown.of(compare(*start(), name, MORE * rounds)["samples"])
        tell(f"{name}: {again}, measured again")
        if again.is_slow(allowed):
            found.append(name)
    return found


def main() -> int:
    """The command line; 1 where a row is slow."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument("--device", choices=sorted(ROWS), default="cpu")
    parser.add_argument("--allowed", type=float, default=ALLOWED, help="the slowdown that is allowed, 0.1 for 10 %%")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="rows, separated by commas")
    parser.add_argument("--delay", type=float, default=0.0, help="make this checkout slower by such a part, on purpose")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(ROWS[given.device])
    unknown = [name for name in names if name not in ROWS[given.device]]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; rows are {', '.join(ROWS[given.device])}")
    started: list[Checkout] = []

    def start() -> tuple[Checkout, Checkout]:
        pair = Checkout(ROOT, given.device, given.delay), Checkout(given.other.resolve(), given.device)
        started.extend(pair)
        return pair

    try:
        slow = check(names, start, given.rounds, given.allowed, lambda line: print(line, flush=True))
    finally:
        for one in started:
            one.close()
    print(f"slower than {given.other}: {', '.join(slow)}" if slow else f"no row is slower than {given.other}")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
