"""Collects `*.mlir` as tests: one item for each RUN line, run in process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.lit.lit_runner import LitError, run_line, run_lines


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".mlir":
        return LitFile.from_parent(parent, path=file_path)  # pyright: ignore[reportUnknownMemberType]
    return None


class LitFile(pytest.File):
    """A test file of IR."""

    def collect(self) -> Iterable[pytest.Item]:
        lines = run_lines(self.path.read_text())
        assert lines, f"{self.path} has no RUN line"
        for number, line in enumerate(lines):
            yield LitLine.from_parent(self, name=f"RUN {number}", line=line)  # pyright: ignore[reportUnknownMemberType]


class LitLine(pytest.Item):
    """One RUN line."""

    def __init__(self, *, line: str, **rest: Any) -> None:
        super().__init__(**rest)  # pyright: ignore[reportUnknownMemberType]
        self.line = line

    def runtest(self) -> None:
        run_line(self.line, self.path)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, LitError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.line}"
