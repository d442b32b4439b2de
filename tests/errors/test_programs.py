"""Programs that are wrong: each is refused before anything runs, with its code, its span and the rule it breaks."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics.error import TesseraError
from tests.golden import comparable

PRELUDE = """import numpy as np
import tessera as ts
from tessera import Tensor, bf16, f32

"""
SECTION = re.compile(r"## (?P<name>[^\n]+)\n\n```python\n(?P<program>.*?)```\n\n```text\n(?P<text>.*?)```\n", re.DOTALL)
FILES = sorted(Path(__file__).parent.glob("T*.md"))


@dataclass(frozen=True)
class Wrong:
    """One wrong program and the text it must print."""

    file: Path
    name: str
    program: str
    text: str

    def __str__(self) -> str:
        return f"{self.file.stem} {self.name}"


def programs() -> list[Wrong]:
    found: list[Wrong] = []
    for file in FILES:
        whole = file.read_text(encoding="utf-8")
        sections = [Wrong(file, match["name"], match["program"], match["text"]) for match in SECTION.finditer(whole)]
        assert len(sections) == whole.count("\n## "), f"{file.name}: a section does not have the form of one"
        found += sections
    return found


def run(program: str, folder: Path) -> None:
    """Run a program from a file, so that its errors have source to show."""
    file = folder / "model.py"
    file.write_text(PRELUDE + program, encoding="utf-8")
    linecache.checkcache(str(file))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(PRELUDE + program, str(file), "exec"), namespace)


@pytest.mark.parametrize("wrong", programs(), ids=str)
def test_a_wrong_program_is_refused(
    wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TesseraError) as caught:
        run(wrong.program, tmp_path)
    assert caught.value.code == wrong.file.stem, str(caught.value)
    if update:
        section = f"## {wrong.name}\n\n```python\n{wrong.program}```\n\n```text\n"
        whole = wrong.file.read_text(encoding="utf-8")
        wrong.file.write_text(
            whole.replace(f"{section}{wrong.text}```", f"{section}{caught.value}\n```"), encoding="utf-8"
        )
    else:
        assert comparable(f"{caught.value}\n") == comparable(wrong.text)


@pytest.mark.parametrize("wrong", programs(), ids=str)
def test_the_text_shows_where_and_why(wrong: Wrong) -> None:
    assert "--> model.py:" in wrong.text
    assert "^" in wrong.text


def test_there_are_at_least_sixty() -> None:
    assert len(programs()) >= 60
