"""Writes docs/features.md, what works and where it is proved, from the table docs/features.tsv.

Usage: python scripts/features.py [--check] | set STATUS ID[,ID...] [TEST...]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "features.tsv"
PAGE = ROOT / "docs" / "features.md"
STATUSES = ("works", "partial", "not yet")


@dataclass(frozen=True)
class Feature:
    """One promise: what it is, how far it is kept, and the tests that show it."""

    id: str
    group: str
    text: str
    status: str
    proof: tuple[str, ...]

    @staticmethod
    def parse(line: str) -> Feature:
        id, group, text, status, proof = line.split("\t")
        return Feature(id, group, text, status, tuple(proof.split()))

    def __str__(self) -> str:
        return "\t".join((self.id, self.group, self.text, self.status, " ".join(self.proof)))


def read_table() -> list[Feature]:
    """Every feature, in the order of the table."""
    return [Feature.parse(line) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]


def render(features: Sequence[Feature]) -> str:
    """The page: a count, then one table per group."""
    counts = Counter(feature.status for feature in features)
    lines = [
        "# Features",
        "",
        "Made by `scripts/features.py` from `docs/features.tsv`; change that table, not this page.",
        "",
    ]
    lines += [", ".join(f"{counts[status]} {status}" for status in STATUSES) + f", {len(features)} in all.", ""]
    for group, members in groupby(features, key=lambda feature: feature.group):
        lines += [f"## {group}", "", "| id | feature | status | proved by |", "|---|---|---|---|"]
        for feature in members:
            text, proof = feature.text.replace("|", "\\|"), ", ".join(f"`{test}`" for test in feature.proof)
            lines.append(f"| {feature.id} | {text} | {feature.status} | {proof} |")
        lines.append("")
    return "\n".join(lines)


def complaints(features: Sequence[Feature]) -> list[str]:
    """What is wrong with the table: unknown statuses, claims without a test, tests that do not exist."""
    found: list[str] = []
    for feature in features:
        if feature.status not in STATUSES:
            found.append(f"{feature.id}: no such status: {feature.status}")
        if feature.status == "works" and not feature.proof:
            found.append(f"{feature.id}: nothing proves that it works")
        found += [f"{feature.id}: no such test: {test}" for test in feature.proof if not _exists(test)]
    found += [f"{id}: listed twice" for id, count in Counter(feature.id for feature in features).items() if count > 1]
    return found


def _exists(test: str) -> bool:
    """Whether `path` is a file, or `path::name` a file that defines `name`."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not name or f"def {name}(" in file.read_text(encoding="utf-8"))


def set_status(status: str, ids: str, tests: Sequence[str]) -> list[Feature]:
    """The table with some features changed."""
    wanted, features = set(ids.split(",")), read_table()
    unknown = wanted - {feature.id for feature in features}
    if unknown:
        raise SystemExit(f"no such feature: {', '.join(sorted(unknown))}")
    return [Feature(f.id, f.group, f.text, status, tuple(tests) or f.proof) if f.id in wanted else f for f in features]


def main(arguments: Sequence[str]) -> int:
    """Change the table if asked, then write the page, or with `--check` only compare it."""
    features = set_status(arguments[1], arguments[2], arguments[3:]) if arguments[:1] == ["set"] else read_table()
    problems = complaints(features)
    if arguments[:1] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render(features):
            problems.append("docs/features.md is out of date: run scripts/features.py")
    elif not problems:
        text = "\n".join(("id\tgroup\tfeature\tstatus\tproof", *map(str, features))) + "\n"
        TABLE.write_text(text, encoding="utf-8")
        PAGE.write_text(render(features), encoding="utf-8")
    print("\n".join(problems) or f"{len(features)} features")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
