"""A pytest plugin that writes which tests reach each line of the modules that `scripts.mutate` changes.

    python -m pytest -p scripts.reach --reach build/reach.json.gz -n 2 -m "not slow"

Lines are watched by `sys.settrace`, in the thread that runs a test: the suite takes about twice its time. A line is
known by its text, so that the map stays true where lines above it come and go; of the tests that reach a line the
quickest are kept, few of each function and file. Lines that run while modules are loaded belong to no test.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from scripts.mutate import ROOT, modules

OF_FUNCTION, OF_FILE, OF_LINE, SECONDS = 4, 15, 120, 25.0
"""The most tests that are kept of a test function, of a file, for a line, and how long those of a line may take."""

Reached = dict[str, list[tuple[float, str]]]
"""A line, as `path: text`, and the tests that reach it with the seconds each took."""


class Watch:
    """Which lines the test that runs now has reached, and what is known of those before it."""

    def __init__(self) -> None:
        self.files = {str(ROOT / path): path for path in modules()}
        self.texts = {path: (ROOT / path).read_text(encoding="utf-8").splitlines() for path in modules()}
        self.lines: set[tuple[str, int]] = set()
        self.reached: Reached = defaultdict(list)

    def see_call(self, frame: FrameType, event: str, argument: object) -> Any:
        """Watch the lines of a function of ours."""
        return self.see_line if frame.f_code.co_filename in self.files else None

    def see_line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self.see_line

    def run(self, test: str) -> Generator[None, Any, None]:
        """Around one test; one that fails or is skipped reaches nothing."""
        self.lines.clear()
        start = time.monotonic()
        sys.settrace(self.see_call)
        outcome = yield
        sys.settrace(None)
        took = round(time.monotonic() - start, 3)
        for file, line in self.lines if outcome.excinfo is None else ():
            path = self.files[file]
            self.reached[f"{path}: {self.texts[path][line - 1].strip()}"].append((took, test))


def choose(tests: Sequence[tuple[float, str]]) -> list[str]:
    """The quickest of the tests that reach a line, few of each function and file."""
    chosen: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for took, test in sorted(tests):
        file, function = test.partition("::")[0], test.partition("[")[0]
        is_more = len(chosen) < OF_LINE and sum(chosen.values()) + took <= SECONDS
        if test not in chosen and counts[function] < OF_FUNCTION and counts[file] < OF_FILE and is_more:
            counts.update({file, function})
            chosen[test] = took
    return list(chosen)


def write_map(file: Path, reached: Reached) -> None:
    """Tests by number, and the numbers of those that reach each line."""
    chosen = {line: choose(tests) for line, tests in sorted(reached.items())}
    numbers = {
        test: number for number, test in enumerate(sorted({test for tests in chosen.values() for test in tests}))
    }
    lines = {line: [numbers[test] for test in tests] for line, tests in chosen.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps({"tests": list(numbers), "lines": lines}).encode(), mtime=0))


class Plugin:
    """Watches tests in the process that runs them, and joins what those of a parallel run saw."""

    def __init__(self, file: Path, is_worker: bool) -> None:
        self.file, self.is_worker, self.watch = file, is_worker, Watch()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        yield from self.watch.run(item.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for line, tests in json.loads(getattr(node, "workeroutput", {}).get("reach", "{}")).items():
            self.watch.reached[line] += [(took, test) for took, test in tests]

    def pytest_sessionfinish(self, session: Any) -> None:
        if self.is_worker:
            session.config.workeroutput["reach"] = json.dumps(self.watch.reached)
        else:
            write_map(self.file, self.watch.reached)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--reach FILE`."""
    parser.addoption("--reach", type=Path, metavar="FILE", help="where to write which tests reach which lines")


def pytest_configure(config: pytest.Config) -> None:
    """Watch where a file is given."""
    if file := config.getoption("reach"):
        config.pluginmanager.register(Plugin(file.resolve(), hasattr(config, "workerinput")), "reach-lines")
