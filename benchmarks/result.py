"""A result file: rows, where they were made, and what follows from them (ratios, geometric means, targets)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Row
from benchmarks.workloads import FLOOR, FREE_SHARE, TARGET_OVERALL, TARGETS

SCHEMA = 1
OURS, OURS_STATIC = "tessera", "tessera static"
OVERALL = "all"


@dataclass(frozen=True)
class Result:
    """One run of the benchmark."""

    environment: dict[str, Any]
    settings: dict[str, Any]
    rows: tuple[Row, ...]

    def save(self, file: Path) -> None:
        """Write the file, readable by people too: summary first."""
        file.parent.mkdir(parents=True, exist_ok=True)
        values = {
            "schema": SCHEMA,
            **self.environment,
            "settings": self.settings,
            "summary": [family.as_json() for family in summary(self.rows)],
            "rows": [{**row.as_json(), **_verdict_json(row)} for row in self.rows],
        }
        file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(file: Path) -> Result:
        """Read a file back; raises ValueError for one of another schema."""
        values = json.loads(file.read_text(encoding="utf-8"))
        if values.get("schema") != SCHEMA:
            raise ValueError(f"{file} has schema {values.get('schema')}, this program reads {SCHEMA}")
        environment = {name: values[name] for name in ("date", "commit", "changed_files", "hardware", "versions")}
        fields = Row.__dataclass_fields__
        rows = tuple(Row(**{name: row[name] for name in fields}) for row in values["rows"])
        return Result(environment, values["settings"], rows)


@dataclass(frozen=True)
class Verdict:
    """A row judged: the peer that does best against us, and its time over ours with dynamic and with static dims."""

    peer: str
    ratio: float
    ratio_static: float | None = None
    share: float | None = None
    """How much of the speed with static dims is kept with dynamic ones."""


def verdict(row: Row) -> Verdict | None:
    """None where we or all peers are missing."""
    if OURS not in row.samples:
        return None
    ratios = {name: row.ratio(name, OURS) for name in row.samples if name not in (OURS, OURS_STATIC)}
    judged = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not judged:
        return None
    peer = min(judged, key=lambda name: judged[name])
    if OURS_STATIC not in row.samples:
        return Verdict(peer, judged[peer])
    return Verdict(peer, judged[peer], row.ratio(peer, OURS_STATIC), row.ratio(OURS_STATIC, OURS))


def _verdict_json(row: Row) -> dict[str, Any]:
    found = verdict(row)
    return {} if found is None else {"best_peer": found.peer, "ratio": found.ratio, "ratio_static": found.ratio_static}


@dataclass(frozen=True)
class FamilySummary:
    """A family at one number of threads: geometric means, and the row that does worst."""

    family: str
    threads: int
    ratio: float
    ratio_static: float | None
    share: float | None
    target: float
    worst: str
    worst_ratio: float
    rows: int

    @property
    def is_reached(self) -> bool:
        """Whether the mean, every row, and the share of dynamic dims are what they are meant to be."""
        return self.ratio >= self.target and self.worst_ratio >= FLOOR and (self.share or 1.0) >= FREE_SHARE

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.__dict__, "is_reached": self.is_reached}


def summary(rows: Sequence[Row]) -> list[FamilySummary]:
    """Every family at every number of threads, then all rows together."""
    found: list[FamilySummary] = []
    for threads in sorted({row.threads for row in rows}):
        here = [row for row in rows if row.threads == threads]
        for family in (*TARGETS, OVERALL):
            chosen = [row for row in here if family in (row.family, OVERALL)]
            made = _summarize(family, threads, chosen)
            if made is not None:
                found.append(made)
    return found


def _summarize(family: str, threads: int, rows: Sequence[Row]) -> FamilySummary | None:
    judged = [(row, found) for row in rows if (found := verdict(row)) is not None]
    if not judged:
        return None
    worst, worst_verdict = min(judged, key=lambda pair: pair[1].ratio)
    return FamilySummary(
        family=family,
        threads=threads,
        ratio=geometric_mean(found.ratio for _, found in judged) or 0.0,
        ratio_static=geometric_mean(found.ratio_static for _, found in judged),
        share=geometric_mean(found.share for _, found in judged),
        target=TARGETS.get(family, TARGET_OVERALL),
        worst=worst.name,
        worst_ratio=worst_verdict.ratio,
        rows=len(judged),
    )


def geometric_mean(numbers: Iterable[float | None]) -> float | None:
    """Of the numbers that are there; None if there are none."""
    logarithms = [math.log(number) for number in numbers if number is not None and number > 0]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None
