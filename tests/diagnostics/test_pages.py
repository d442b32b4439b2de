"""The error pages: each failing program fails with its code and prints the text shown; each fix runs."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics.codes import all_codes, explain, pages_folder
from tessera.diagnostics.error import TesseraError
from tests.golden import comparable

PAGE = re.compile(
    r"# (?P<code>T\d{4}): (?P<title>[^\n]+)\n\n(?P<story>.+?)\n\n"
    r"```python\n(?P<fails>.*?)```\n\n```text\n(?P<text>.*?)```\n\n"
    r"## Fix\n\n(?P<advice>.+?)\n\n```python\n(?P<fix>.*?)```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Page:
    """One page, taken apart."""

    file: Path
    whole: str
    fails: str
    text: str
    fix: str

    @staticmethod
    def read(code: str) -> Page:
        file = Path(pages_folder()) / f"{code}.md"
        whole = file.read_text(encoding="utf-8")
        match = PAGE.fullmatch(whole)
        assert match is not None, f"{file.name} does not have the form of a page"
        assert match["code"] == code
        assert match["title"] == (all_codes()[code].__doc__ or "").rstrip("."), f"{file.name}: title and class differ"
        return Page(file, whole, match["fails"], match["text"], match["fix"])


@pytest.fixture(autouse=True)
def kept_environment() -> Iterator[None]:
    """Programs may set variables; the next one does not see them."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def run(program: str, folder: Path) -> None:
    """Run a program from a file, so that its errors have source to show."""
    file = folder / "model.py"
    file.write_text(program, encoding="utf-8")
    linecache.checkcache(str(file))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, str(file), "exec"), namespace)


@pytest.mark.parametrize("code", all_codes())
def test_the_program_fails_as_shown(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    page = Page.read(code)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TesseraError) as caught:
        run(page.fails, tmp_path)
    assert caught.value.code == code
    if update:
        new = page.whole.replace(f"```text\n{page.text}```", f"```text\n{caught.value}\n```")
        page.file.write_text(new, encoding="utf-8")
    else:
        assert comparable(f"{caught.value}\n") == comparable(page.text)


@pytest.mark.parametrize("code", all_codes())
def test_the_fix_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(Page.read(code).fix, tmp_path)


def test_a_code_may_be_typed_carelessly() -> None:
    assert explain("t0101") == explain("101") == explain("T0101")


def test_an_unknown_code_names_its_neighbours() -> None:
    with pytest.raises(KeyError, match="no error has the code `T0199`; there are T0101, T0102"):
        explain("T0199")
    with pytest.raises(KeyError, match=r"T01xx, T02xx"):
        explain("T9901")
