"""Rows of drawn programs as text: a line each, and what follows from all of them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.drawn.draw import public_ops
from benchmarks.drawn.spell_torch import SPELLINGS
from benchmarks.result import OURS, geometric_mean
from benchmarks.tables import seconds_text

BELOW, WORST = 0.8, 10


def line(row: dict[str, Any]) -> str:
    """A row: its number, the ratio, our time, the best peer's, and the program."""
    head = f"{row['number']:4d} "
    if row["status"] == "timed":
        peer, times = row["peer"], row["medians"]
        text = f"{row['ratio']:7.3f}  {seconds_text(times[OURS]):>8}  {seconds_text(times[peer]):>8} {peer:13}"
        return f"{head}{text} {row['program']}"
    reasons = row.get("skipped", {})
    why = row.get("reason") or reasons.get(OURS) or "; ".join(f"{name}: {said}" for name, said in reasons.items())
    return f"{head}{row['status']:>7}  {row['program']}: {why}"


def summary(rows: Sequence[dict[str, Any]], asked: int) -> str:
    """Means, shares, the worst rows, and what was not measured and why."""
    timed = [row for row in rows if row["status"] == "timed"]
    lines = ["", f"{asked} asked for, {len(rows)} drawn, {len(timed)} timed, {asked - len(rows)} not reached in time"]
    for status, count in Counter(row["status"] for row in rows if row["status"] != "timed").items():
        lines.append(f"{count} {status}:")
        lines += [f"  {line(row)}" for row in rows if row["status"] == status]
    for kind in ("all", *sorted({row["kind"] for row in timed})):
        chosen = [row["ratio"] for row in timed if kind in ("all", row["kind"])]
        if chosen:
            low = sum(ratio < BELOW for ratio in chosen)
            mean = geometric_mean(chosen) or 0.0
            share = f"{low} of {len(chosen)} ({100 * low / len(chosen):.0f} %) below {BELOW}"
            middle = statistics.median(chosen)
            lines.append(f"{kind:10} geometric mean {mean:.3f}, median {middle:.3f}, {share}, least {min(chosen):.3f}")
    lines += [f"the {WORST} worst:", *map(line, sorted(timed, key=lambda row: row["ratio"])[:WORST])]
    unchecked = sum(row["checked"].startswith("not") for row in timed)
    alone = sorted(spec.short_name for spec in public_ops() if spec.short_name not in SPELLINGS)
    lines.append(f"{unchecked} rows were too large for their reference and were not checked")
    lines.append(f"public ops that torch does not have: {', '.join(alone)}")
    for name, reasons in _left_out(rows).items():
        lines.append(f"{name} left out: " + "; ".join(f"{count} x {why}" for why, count in reasons.most_common(6)))
    return "\n".join(lines)


def _left_out(rows: Sequence[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Why peers were missing, most frequent first."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for name, why in row.get("skipped", {}).items():
            if name != OURS:
                found.setdefault(name, Counter())[why[:90]] += 1
    return found
