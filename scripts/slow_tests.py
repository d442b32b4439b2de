"""Writes tests/slow.tsv, the tests that `make quick` and `make suite` leave out, from the processor times of a run.

    python -m pytest -n 2 --dist worksteal --times build/times.jsonl
    python -m scripts.slow_tests build/times.jsonl

Tests that the run did not have keep their rows, so that a folder can be measured by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.slow_tests import HEADER, TABLE, Row, kept_cases, read_table, read_times, spread

ROOT = Path(__file__).parents[1]
SHARE = 0.3
"""Processor seconds of all quick cases of a test function: some 5000 functions then take four minutes."""


SUITE_SHARE = 5.0
"""Processor seconds of all cases of a test function in the suite, which two cores then run in less than 20 minutes."""


def rows_of(times: Mapping[str, Sequence[float]]) -> tuple[list[Row], float, float]:
    """The rows of functions with slow cases, and how long all quick cases and those of the suite take."""
    rows: list[Row] = []
    totals = [0.0, 0.0]
    for name, cases in sorted(times.items()):
        quick, suite = (kept_cases(cases, share) for share in (SHARE, SUITE_SHARE))
        for at, kept in enumerate((quick, suite)):
            totals[at] += sum(cases[number] for number in spread(len(cases), kept))
        if quick < len(cases):
            rows.append(Row(name, len(cases), sum(cases), quick, suite))
    return rows, totals[0], totals[1]


def exists(name: str) -> bool:
    """Whether the file of a test function is there, and has a function of that name if it is Python."""
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and (path.suffix != ".py" or f"def {function.split('::')[-1]}(" in path.read_text())


def main(files: Sequence[str]) -> None:
    """Write the table from files of times."""
    if not files:
        raise SystemExit(__doc__)
    times = read_times(line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines())
    rows, quick, suite = rows_of(times)
    before = read_table(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    rows += [row for name, row in before.items() if name not in times and exists(name)]
    TABLE.write_text("\n".join([HEADER, *map(str, sorted(rows, key=lambda row: row.name))]) + "\n", encoding="utf-8")
    whole = sum(sum(cases) for cases in times.values())
    print(f"{len(times)} functions take {whole:.0f} s, quick cases {quick:.0f} s, those of the suite {suite:.0f} s")
    print(f"{len(rows)} functions have slow cases")


if __name__ == "__main__":
    main(sys.argv[1:])
