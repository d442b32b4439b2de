"""Builds the documentation as a static site that needs no server and no network: python -m scripts.documents.site.

Every Markdown page becomes an HTML page at the same path; files that pages link to (examples, results) come along.
Search is a list of sections in `search-index.js` and a short script: scripts, unlike data, load from `file://` too.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
from pygments.util import ClassNotFound

from scripts.documents.pages import ROOT, Page, all_pages, inline_tokens, parser, sections

ASSETS = Path(__file__).parent / "assets"
DEFAULT = ROOT / "build" / "site"
LANGUAGES = {"mlir": "text", "text": "text", "sh": "bash", "": "text"}


def output_path(path: Path) -> Path:
    """Where a file of the repository stands in the site."""
    if path == Path("README.md"):
        return Path("index.html")
    if path.suffix == ".md":
        return path.with_suffix(".html")
    return path if path.suffix in {".svg", ".png", ".json", ".tsv"} else path.with_name(path.name + ".html")


@dataclass
class Section:
    """What search finds: a part of a page under one heading."""

    url: str
    page: str
    heading: str
    words: list[str] = field(default_factory=list[str])


class Site:
    """One build: pages, the files they link to, and the search index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sections = sections()
        self.pages = {page.path for page in all_pages()}
        self.extra: set[Path] = set()
        self.index: list[Section] = []
        self.template = (ASSETS / "page.html").read_text(encoding="utf-8")

    def build(self) -> int:
        """Write everything; gives the number of pages."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for pages in self.sections.values():
            for page in pages:
                self._write_page(page)
        for path in sorted(self.extra):
            self._write_extra(path)
        index = [[part.url, part.page, part.heading, " ".join(part.words)] for part in self.index]
        text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
        self._write(Path("search-index.js"), f"var SEARCH_INDEX = {text};\n")
        for name in ("search.js", "style.css"):
            self._write(
                Path(name), (ASSETS / name).read_text(encoding="utf-8") + (_code_style() if ".css" in name else "")
            )
        return len(self.pages)

    def _write(self, path: Path, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def _write_page(self, page: Page) -> None:
        tokens = parser().parse(page.text)
        headings = iter(page.headings)
        for token in tokens:
            if token.type == "heading_open":
                token.attrSet("id", next(headings).anchor)
        for token in inline_tokens(tokens):
            self._rewrite(token, page.path)
        self._collect(page)
        body = _wrap_tables(parser().renderer.render(_with_code(tokens), parser().options, {}))
        contents = [h for h in page.headings[1:] if h.level == 2]
        self._write(
            output_path(page.path), self._page(page.path, page.title, body, [(h.anchor, h.text) for h in contents])
        )

    def _rewrite(self, token: Token, path: Path) -> None:
        """Point links at pages of the site."""
        for name in ("href", "src"):
            target = str(token.attrs.get(name, ""))
            if not target or "://" in target or target.startswith(("#", "mailto:")):
                continue
            file, _, anchor = target.partition("#")
            wanted = Path(os.path.normpath(path.parent / file))
            if wanted not in self.pages:
                self.extra.add(wanted)
            url = self._url(path, wanted)
            token.attrSet(name, f"{url}#{anchor}" if anchor else url)

    def _url(self, page: Path, target: Path) -> str:
        is_folder = (ROOT / target).is_dir()
        place = target / "index.html" if is_folder else output_path(target)
        return os.path.relpath(place, output_path(page).parent)

    def _write_extra(self, path: Path) -> None:
        """A file that a page links to: code is shown highlighted, a folder as a list, data as it is."""
        source = ROOT / path
        if source.is_dir():
            names = sorted(child.relative_to(ROOT) for child in source.iterdir() if child.suffix in {".py", ".md"})
            for child in names:
                if child not in self.pages:
                    self._write_extra(child)
            place = path / "index.html"
            links = [(os.path.relpath(output_path(child), path), child.name) for child in names]
            body = "".join(f'<li><a href="{url}">{html.escape(name)}</a></li>' for url, name in links)
            self._write(place, self._page(place, f"{path}/", f"<h1>{path}/</h1><ul>{body}</ul>", ()))
        elif output_path(path) == path:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, self.folder / path)
        else:
            code = highlighted(source.read_text(encoding="utf-8"), "python" if path.suffix == ".py" else "text")
            self._write(output_path(path), self._page(path, str(path), f"<h1>{path}</h1>{code}", ()))

    def _page(self, path: Path, title: str, body: str, contents: Sequence[tuple[str, str]]) -> str:
        place = output_path(path) if path.suffix != ".html" else path
        top = os.path.relpath(".", place.parent)
        side = "".join(f'<li><a href="#{anchor}">{html.escape(text)}</a></li>' for anchor, text in contents)
        values = {
            "title": html.escape(title),
            "top": top,
            "navigation": self._navigation(path),
            "contents": f"<p>On this page</p><ul>{side}</ul>" if len(contents) > 1 else "",
            "body": body,
        }
        text = self.template
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
        return text

    def _navigation(self, current: Path) -> str:
        parts: list[str] = []
        for name, pages in self.sections.items():
            links = "".join(
                f'<li><a href="{self._url(current, page.path)}"{_mark(page.path == current)}>'
                f"{html.escape(page.title)}</a></li>"
                for page in pages
            )
            is_open = any(page.path == current for page in pages)
            parts.append(f"<details{' open' if is_open else ''}><summary>{name}</summary><ul>{links}</ul></details>")
        return "".join(parts)

    def _collect(self, page: Page) -> None:
        """Add the parts of a page to the search index."""
        url = output_path(page.path).as_posix()
        headings = iter(page.headings)
        part = Section(url, page.title, page.title)
        self.index.append(part)
        is_heading = False
        for token in page.tokens:
            if token.type == "heading_open":
                heading = next(headings)
                if heading.level > 1:
                    part = Section(f"{url}#{heading.anchor}", page.title, heading.text)
                    self.index.append(part)
                is_heading = True
            elif token.type == "inline" and not is_heading:
                part.words.append("".join(child.content or " " for child in token.children or ()))
            elif token.type == "fence" and token.info == "python":
                part.words.append(token.content)
            if token.type == "heading_close":
                is_heading = False


def _mark(is_current: bool) -> str:
    return ' aria-current="page"' if is_current else ""


def formatter(style: str = "default") -> Any:
    """What makes HTML of tokens; its own types are not known."""
    make: Any = HtmlFormatter
    return make(style=style)


def highlighted(code: str, language: str) -> str:
    """Code as HTML; of a language that nobody knows, as plain text."""
    name = LANGUAGES.get(language, language)
    try:
        lexer = get_lexer_by_name(name)
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    return str(highlight(code, lexer, formatter()))


def _with_code(tokens: list[Token]) -> list[Token]:
    """Blocks of code as highlighted HTML."""
    for token in tokens:
        if token.type == "fence":
            token.type, token.content = "html_block", highlighted(token.content, token.info.strip())
    return tokens


def _wrap_tables(body: str) -> str:
    """Tables scroll by themselves on narrow screens."""
    return body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")


def _code_style() -> str:
    """Colours of code in both themes."""
    light, dark = formatter(), formatter("github-dark")
    return "\n".join(
        [
            "",
            light.get_style_defs(".highlight"),
            "@media (prefers-color-scheme: dark) {",
            dark.get_style_defs(':root:not([data-theme="light"]) .highlight'),
            "}",
            dark.get_style_defs(':root[data-theme="dark"] .highlight'),
            "",
        ]
    )


def main(arguments: Sequence[str]) -> int:
    """Build the site into the folder given, or into build/site."""
    folder = Path(arguments[0]) if arguments else DEFAULT
    count = Site(folder).build()
    print(f"{count} pages in {folder}: open {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
