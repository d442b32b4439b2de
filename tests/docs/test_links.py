"""Links of all documents lead somewhere, and paths and options that they name exist."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

from scripts.documents.pages import ROOT, Page, all_pages

PAGES = {str(page.path): page for page in all_pages()}
PATH = re.compile(r"(?:tessera|tests|scripts|docs|examples|benchmarks|changes)/[\w./-]*\w/?")
FILE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|md|mlir|tsv|json)")
PLACES = ("", "tessera", "tessera/ir", "tests", "docs", "benchmarks", "benchmarks/results")
GENERATED = {"inspect.html", "results.json", "trace.json", "old.json", "new.json", "file.py", "model.py"}
EXAMPLES = re.compile(r"NAME|sibling_maps|drop_selects")  # files that a reader would write


def test_every_page_is_in_the_documentation() -> None:
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md")}
    assert files <= PAGES.keys()


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_pages_files_and_headings(name: str) -> None:
    page = PAGES[name]
    broken: list[str] = []
    for link in page.links:
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = Path(os.path.normpath(page.file.parent / file)) if file else page.file
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@cache
def anchors(file: Path) -> set[str]:
    return {heading.anchor for heading in Page(file).headings} if file.suffix == ".md" else set()


@pytest.mark.parametrize("name", PAGES)
def test_paths_in_running_text_exist(name: str) -> None:
    missing = [span for span in PAGES[name].code_spans if not _exists(span)]
    assert missing == []


def _exists(span: str) -> bool:
    """A span that is a path of the repository, or of a file below one of its packages, must be there."""
    if span in GENERATED or EXAMPLES.search(span):
        return True
    if PATH.fullmatch(span):
        return (ROOT / span).exists()
    if FILE.fullmatch(span):
        return any((ROOT / place / span).exists() for place in PLACES) or _is_somewhere(span)
    return True


def _is_somewhere(name: str) -> bool:
    """Whether a bare file name is that of some file of the package or its tests."""
    return "/" not in name and name in file_names()


@cache
def file_names() -> frozenset[str]:
    folders = ("tessera", "tests", "examples", "benchmarks", "scripts")
    return frozenset(file.name for folder in folders for file in (ROOT / folder).rglob("*.*"))
