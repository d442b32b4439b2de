"""The roofline of a call: what each kernel computes and moves, how long it took, its share of the bound, and a hint.

Work is that of the static model, rates are those that were measured (`tessera/types/rates.py`). A kernel's bound is the
larger of its bytes at the bandwidth of their footprint and its operations at the rate of their format; its share is
that bound over its time.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.diagnostics.error import format_count
from tessera.types.frozen import frozen
from tessera.types.rates import Rates, Work, bounds, limits, work_in

COLUMNS = (
    "kernel",
    "kind",
    "line",
    "argument",
    "launches",
    "flops",
    "bytes",
    "nanoseconds",
    "bound_nanoseconds",
    "bound_by",
    "percent_of_bound",
    "gflops_per_second",
    "gbytes_per_second",
    "flops_per_byte",
    "hint",
)
"""The columns of the table as a file."""
_NUMBER = re.compile(r"\[\d+\]")
_NEAR = 0.7
"""The share from which on a kernel is near its bound."""
_HALF = 0.5
_LAUNCHES = 4
"""A kernel that takes fewer times what an empty one takes is bound by launches."""


@frozen
class RooflineRow:
    """A group of kernels: its launches in a call, what they do, how long they took, and the least that they could take.

    `bound_by` is `memory` or `compute`, or nothing where no rates or sizes are known; times are nanoseconds. `argument`
    is the first argument of the program that it is given, with `[*]` for the layers of a model.
    """

    kernel: str
    kind: str
    line: str
    launches: int
    flops: float
    bytes: float
    time: float
    bound: float = 0.0
    bound_by: str = ""
    argument: str = ""
    hint: str = ""

    @property
    def share(self) -> float:
        """The bound over the time; 0 where no bound is known."""
        return self.bound / self.time if self.time else 0.0

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    def values(self) -> tuple[Any, ...]:
        """As `COLUMNS` name them."""
        per = max(self.time, 1e-9)
        return (
            *(self.kernel, self.kind, self.line, self.argument, self.launches),
            *(int(self.flops), int(self.bytes), round(self.time)),
            *(round(self.bound, 1), self.bound_by, round(100 * self.share, 1), round(self.flops / per, 2)),
            *(round(self.bytes / per, 2), round(self.intensity, 3), self.hint),
        )


@frozen
class GroupTimes:
    """The time of a call in one fusion group: how often it ran, nanoseconds in all, and where it is from.

    `knob` names the choice of its tiles.
    """

    runs: int
    time: float
    line: str
    argument: str = ""
    knob: str = ""


def roofline_rows(
    work: Sequence[Mapping[str, Any]],
    times: Mapping[int, GroupTimes],
    rates: Rates | None,
    sizes: Mapping[str, int],
) -> list[RooflineRow]:
    """A row for each kernel, the longest first; `times` are by the number of a group, which `work` is listed by."""
    members: dict[tuple[str, ...], list[int]] = {}
    for number in times:
        members.setdefault(tuple(work[number]["kernels"]), []).append(number)
    rows = [_row([(work[number], times[number]) for number in numbers], rates, sizes) for numbers in members.values()]
    return sorted(rows, key=lambda row: -row.time)


def _row(
    members: Sequence[tuple[Mapping[str, Any], GroupTimes]], rates: Rates | None, sizes: Mapping[str, int]
) -> RooflineRow:
    """The groups of one kernel together."""
    facts = members[0][0]
    time, runs = sum(taken.time for _, taken in members), sum(taken.runs for _, taken in members)
    lines = " and ".join(dict.fromkeys(taken.line for _, taken in members if taken.line))
    held: dict[str, float] = {}
    flops = moved = 0.0
    known: list[tuple[Work, int]] = []
    for values, taken in members:
        one = work_in(values, sizes)
        if one is None:
            continue
        known.append((one, taken.runs))
        flops, moved = flops + one.flops * taken.runs, moved + one.bytes * taken.runs
        for name, least in bounds(one, rates).items() if rates is not None else ():
            held[name] = held.get(name, 0.0) + least * taken.runs
    by = max(held, key=lambda name: held[name], default="")
    kernel = " + ".join(facts["kernels"])
    given = " and ".join(dict.fromkeys(_NUMBER.sub("[*]", taken.argument) for _, taken in members if taken.argument))
    row = RooflineRow(kernel, facts["kind"], lines, runs, flops, moved, time, held.get(by, 0.0), by, given)
    knob = next((taken.knob for _, taken in members if taken.knob), "")
    return replace(row, hint=_hint_for(row, {**facts, "knob": knob}, known, rates))


def _hint_for(
    row: RooflineRow, facts: Mapping[str, Any], known: Sequence[tuple[Work, int]], rates: Rates | None
) -> str:
    if rates is None:
        return "no machine like this one was measured: `python -m benchmarks.rates` measures it"
    return _hint(row, facts, known, rates) if known else "its sizes depend on values of the program"


def _hint(row: RooflineRow, facts: Mapping[str, Any], known: Sequence[tuple[Work, int]], rates: Rates) -> str:
    """What to try next: the limit that takes most of the time, where one takes half of it."""
    work, _ = max(known, key=lambda one: one[0].bytes * one[1])
    if facts.get("unseen") == "values":
        return "what it moves depends on values, as indices do: the bound is of all that it may move"
    if row.share >= _NEAR:
        less = "fewer bytes: fuse it with what reads its result, or store a narrower dtype"
        return f"near its bound; next: {less if row.bound_by == 'memory' else 'fewer operations, or a narrower dtype'}"
    if row.time < _LAUNCHES * rates.launch * row.launches:
        return "bound by launches: give each more work, or fuse it with its neighbours"
    if math.isinf(rates.compute(work.kind)) and work.flops > work.bytes:
        return f"no rate of {work.kind} was measured"
    causes = {name: value * row.launches for name, value in limits(work, rates).items() if name != "launch"}
    cause = max(causes, key=lambda name: causes[name], default="")
    if cause and causes[cause] >= _HALF * row.time:
        if cause == "too few blocks":
            few = format_count(work.blocks or 0, "block")
            return f"{few} for {rates.units} cores or multiprocessors: larger sizes, or smaller tiles"
        return "multiplies and adds are apart, for equal bits everywhere; `jit(fast_math=True)` fuses them"
    factor = f"{1 / max(row.share, 1e-9):.1f}x its bound"
    if facts["knob"]:
        return f"{factor}; next: other tiles, `overrides={{'{facts['knob']}': ...}}`"
    return f"{factor}; next: its loops, `tessera inspect`"


def to_csv(rows: Sequence[RooflineRow]) -> str:
    """The table as a file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(row.values() for row in rows)
    return out.getvalue()
