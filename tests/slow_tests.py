"""Which tests are slow: a table of processor time, tests/slow.tsv, which gives the markers `slow` and `thorough`.

A row is a test function, how many cases it has, the processor time of all of them, how many of them stay with the quick
ones, and how many with the suite; the others are thorough. `scripts/slow_tests.py` makes the table from a run with
`--times`, in which `Recorder` writes what each test took: time of processors, of this process and of all that it
started, so that a busy machine changes little of it.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TABLE = Path(__file__).parent / "slow.tsv"
HEADER = (
    "# Made by scripts/slow_tests.py: test function, cases, processor seconds of all of them, cases that stay quick, "
    "cases of the suite"
)


@dataclass(frozen=True)
class Row:
    """A test function that takes long: its cases, their processor seconds, how many stay quick and in the suite."""

    name: str
    cases: int
    seconds: float
    kept: int
    suite: int

    @staticmethod
    def parse(line: str) -> Row:
        name, cases, seconds, kept, suite = line.split("\t")
        return Row(name, int(cases), float(seconds), int(kept), int(suite))

    def __str__(self) -> str:
        return f"{self.name}\t{self.cases}\t{self.seconds:.1f}\t{self.kept}\t{self.suite}"


def read_table(text: str) -> dict[str, Row]:
    """The rows of a table by name."""
    rows = [Row.parse(line) for line in text.splitlines() if line and not line.startswith("#")]
    return {row.name: row for row in rows}


def function_of(test: str) -> str:
    """The test function of a test's id, without the parameters of a case.

    >>> function_of("tests/api/test_jit.py::test_sums[f32-3]")
    'tests/api/test_jit.py::test_sums'
    """
    file, mark, name = test.partition("::")
    return f"{file}{mark}{name.partition('[')[0]}"


def spread(count: int, kept: int) -> set[int]:
    """Numbers of the cases that stay quick: as far apart as can be, the first among them.

    >>> sorted(spread(10, 3))
    [0, 3, 6]
    """
    return {at * count // kept for at in range(min(kept, count))} if kept else set()


def mark_slow(items: Iterable[pytest.Item], table: Mapping[str, Row]) -> None:
    """Mark the cases of functions in the table, but for those that stay quick; thorough ones are slow too."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        name = function_of(item.nodeid)
        if name in table:
            cases[name].append(item)
    for name, found in cases.items():
        quick, suite = (spread(len(found), kept) for kept in (table[name].kept, table[name].suite))
        for number, item in enumerate(found):
            if number not in quick:
                item.add_marker(pytest.mark.slow)
                if number not in suite:
                    item.add_marker(pytest.mark.thorough)


# Times: what a test took of processors.

_TICK = os.sysconf("SC_CLK_TCK")


def _children_of(process: int) -> Iterable[int]:
    """Processes that a process has started and that run still; one that ends meanwhile has none."""
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            yield from map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split())
    except OSError:
        return


def _time_of_descendants(process: int) -> float:
    total = 0.0
    for child in _children_of(process):
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, and is counted among those that have
            continue
        total += sum(map(int, fields[11:15])) / _TICK + _time_of_descendants(child)
    return total


def processor_time() -> float:
    """Seconds that this process and all that it started have had of processors."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + _time_of_descendants(os.getpid())


class Recorder:
    """A plugin that writes a line for each test into a file, which workers of one run share."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = processor_time()
        outcome = yield
        line = json.dumps([item.nodeid, round(processor_time() - before, 4)])
        with self.file.open("a", encoding="utf-8") as stream:  # a line is one write, which others do not cut
            stream.write(f"{line}\n")
        return outcome


def read_times(lines: Iterable[str]) -> dict[str, list[float]]:
    """Seconds of the cases of each test function, in their order; of a test that ran twice the second counts."""
    found: dict[str, float] = {}
    for line in lines:
        test, seconds = json.loads(line)
        found[test] = seconds
    functions: dict[str, list[float]] = defaultdict(list)
    for test, seconds in found.items():
        functions[function_of(test)].append(seconds)
    return dict(functions)


def kept_cases(times: Sequence[float], most: float) -> int:
    """How many cases can stay quick, at most, so that all that do take no longer than `most` together."""
    for kept in range(len(times), 0, -1):
        if sum(times[number] for number in spread(len(times), kept)) <= most:
            return kept
    return 0
