"""Writes docs/features.md, what works and where it is proved, from the table docs/features.tsv.

Usage: python scripts/features.py [--check] | set STATUS ID[,ID...] [--because TEXT] [TEST...]
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "features.tsv"
PAGE = ROOT / "docs" / "features.md"
STATUSES = ("works", "partial", "not yet")
PLACES = ("CPU", "H200", "assembled", "record")
OPENING = """# Features

<!-- Made by scripts/features.py from docs/features.tsv; change that table, not this page. -->

Every feature of the language, whether it works, in part or not yet, the proof that was asked for, the tests that give
it, and where they ran: on a **CPU**, on an **H200** (tests that are skipped without one), **assembled** (NVIDIA's
assembler took the code, which was not run; skipped where there is no `ptxas`), or as a **record** (a result file of a
run on an H200, which a test reads). A feature that is partial says what is missing. Tags of a proof: CPU, H200, ASM
(assembled), MP (several processes).
"""


@dataclass(frozen=True)
class Feature:
    """One promise: what it is, how far it is kept, the proof that was asked for, and the tests that give it.

    `reason` says why a feature is partial; `wording` is the proof in words; `places` are where the tests ran.
    """

    id: str
    group: str
    text: str
    status: str
    reason: str
    wording: str
    places: tuple[str, ...]
    proof: tuple[str, ...]

    @staticmethod
    def parse(line: str) -> Feature:
        id, group, text, status, reason, wording, places, proof = line.split("\t")
        found = tuple(place for place in places.split(", ") if place)
        return Feature(id, group, text, status, reason, wording, found, tuple(proof.split()))

    def __str__(self) -> str:
        cells = (self.id, self.group, self.text, self.status, self.reason, self.wording)
        return "\t".join((*cells, ", ".join(self.places), " ".join(self.proof)))


def read_table() -> list[Feature]:
    """Every feature, in the order of the table."""
    return [Feature.parse(line) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]


def render(features: Sequence[Feature]) -> str:
    """The page: a count, then one table per group."""
    counts = Counter(feature.status for feature in features)
    total = ", ".join(f"{counts[status]} {status}" for status in STATUSES) + f", {len(features)} in all."
    lines = [OPENING, total, ""]
    for group, members in groupby(features, key=lambda feature: feature.group):
        lines += [f"## {group}", "", "| id | feature | status | proof asked for | ran on | proved by |"]
        lines.append("|---|---|---|---|---|---|")
        for feature in members:
            status = f"{feature.status}: {feature.reason}" if feature.reason else feature.status
            tests = ", ".join(f"`{test}`" for test in feature.proof)
            cells = (feature.id, feature.text, status, feature.wording, ", ".join(feature.places), tests)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def complaints(features: Sequence[Feature]) -> list[str]:
    """What is wrong with the table: unknown statuses, claims without a test or reason, tests that do not exist."""
    found: list[str] = []
    for feature in features:
        found += [f"{feature.id}: {text}" for text in _complaints_of(feature)]
    found += [f"{id}: listed twice" for id, count in Counter(feature.id for feature in features).items() if count > 1]
    return found


def _complaints_of(feature: Feature) -> list[str]:
    found: list[str] = []
    if feature.status not in STATUSES:
        found.append(f"no such status: {feature.status}")
    if feature.status == "works" and not feature.proof:
        found.append("nothing proves that it works")
    if (feature.status == "partial") != bool(feature.reason):
        found.append("a partial feature, and no other, says what is missing")
    if not feature.wording:
        found.append("no proof is asked for")
    missing = [test for test in feature.proof if not _exists(test)]
    found += [f"no such test: {test}" for test in missing]
    if not missing and feature.places != places_of(feature.proof):
        found.append(f"its tests ran on {', '.join(places_of(feature.proof))}, not {', '.join(feature.places)}")
    needs_device = feature.wording.startswith("[H200]") and not re.search(r"\bPTX\b|reported", feature.wording)
    if feature.status == "works" and needs_device and not {"H200", "record"} & set(feature.places):
        found.append("its proof is of an H200, and no test or record is")
    return found


def places_of(tests: Sequence[str]) -> tuple[str, ...]:
    """Where tests run, by where they stand and what they use."""
    found = {_place_of(test.partition("::")[0]) for test in tests}
    return tuple(place for place in PLACES if place in found)


@cache
def _place_of(path: str) -> str:
    if path.startswith("tests/device/"):
        return "H200"
    text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
    if re.search(r"\bRESULTS\b|benchmarks/results|\brecord\(|_results\b|\bncu\b", text):
        return "record"
    return "assembled" if re.search(r"ptxas|\bassembled?\(|needs_assembler|nvdisasm", text) else "CPU"


def _exists(test: str) -> bool:
    """Whether `path` is a file, or `path::name` a file that defines `name`."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not name or f"def {name}(" in file.read_text(encoding="utf-8"))


def set_status(status: str, ids: str, arguments: Sequence[str]) -> list[Feature]:
    """The table with some features changed."""
    tests, reason = list(arguments), ""
    if "--because" in tests:
        at = tests.index("--because")
        reason = tests[at + 1]
        del tests[at : at + 2]
    wanted, features = set(ids.split(",")), read_table()
    unknown = wanted - {feature.id for feature in features}
    if unknown:
        raise SystemExit(f"no such feature: {', '.join(sorted(unknown))}")
    return [
        replace(one, status=status, reason=reason, proof=tuple(tests) or one.proof) if one.id in wanted else one
        for one in features
    ]


def main(arguments: Sequence[str]) -> int:
    """Change the table if asked, then write the page, or with `--check` only compare it."""
    if arguments[:1] == ["--check"]:
        features = read_table()
        problems = complaints(features)
        if PAGE.read_text(encoding="utf-8") != render(features):
            problems.append("docs/features.md is out of date: run scripts/features.py")
    else:
        changed = set_status(arguments[1], arguments[2], arguments[3:]) if arguments[:1] == ["set"] else read_table()
        features = [replace(feature, places=places_of(feature.proof)) for feature in changed]
        problems = complaints(features)
        if not problems:
            names = ["feature" if field.name == "text" else field.name for field in fields(Feature)]
            TABLE.write_text("\n".join(("\t".join(names), *map(str, features))) + "\n", encoding="utf-8")
            PAGE.write_text(render(features), encoding="utf-8")
    print("\n".join(problems) or f"{len(features)} features")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
