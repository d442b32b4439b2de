"""The pages of the documentation: their order, headings, anchors and links, as the site and the tests see them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
GUIDE = (
    "install",
    "first-day",
    "kernels",
    "gpu",
    "ranks",
    "numerics",
    "effects",
    "interop",
    "performance",
    "environment",
    "from-pytorch",
    "pytorch-ops",
    "from-jax",
    "from-triton",
)
CONTRIBUTING = (
    "index",
    "ir",
    "stages/graph",
    "stages/schedule",
    "stages/tile",
    "stages/target",
    "native-calls",
    "documents",
)


@dataclass(frozen=True)
class Heading:
    """A heading of a page: its depth, its text, and the anchor that links name."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Page:
    """A Markdown file of the documentation."""

    file: Path

    @property
    def path(self) -> Path:
        """From the root of the repository."""
        return self.file.relative_to(ROOT)

    @cached_property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def tokens(self) -> list[Token]:
        return parser().parse(self.text)

    @cached_property
    def headings(self) -> list[Heading]:
        found: list[Heading] = []
        taken: dict[str, int] = {}
        for before, inline in zip(self.tokens, self.tokens[1:], strict=False):
            if before.type == "heading_open":
                text = plain_text(inline)
                anchor = slug(text)
                count = taken.get(anchor, 0)
                taken[anchor] = count + 1
                found.append(Heading(int(before.tag[1]), text, f"{anchor}-{count}" if count else anchor))
        return found

    @property
    def title(self) -> str:
        return self.headings[0].text if self.headings else self.file.stem

    @cached_property
    def links(self) -> list[str]:
        """Every target of a link or image."""
        found: list[str] = []
        for token in inline_tokens(self.tokens):
            target = token.attrs.get("href") or token.attrs.get("src")
            if target is not None:
                found.append(str(target))
        return found

    @cached_property
    def code_spans(self) -> list[str]:
        """What stands between backticks in running text."""
        return [token.content for token in inline_tokens(self.tokens) if token.type == "code_inline"]


def parser() -> MarkdownIt:
    """CommonMark with tables, as GitHub shows it."""
    return MarkdownIt("commonmark", {"html": True}).enable("table")


def inline_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    """All tokens of running text."""
    for token in tokens:
        yield from token.children or ()


def plain_text(inline: Token) -> str:
    """A heading without its markup."""
    return "".join(child.content for child in inline.children or ())


def slug(text: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _listed(folder: str, names: Sequence[str]) -> list[Page]:
    """Pages of a folder: those named, in their order, then all others."""
    first = [ROOT / folder / f"{name}.md" for name in names]
    others = sorted(file for file in (ROOT / folder).rglob("*.md") if file not in first)
    return [Page(file) for file in (*first, *others) if file.is_file()]


def sections() -> dict[str, list[Page]]:
    """The whole documentation in reading order."""
    return {
        "Start": [Page(ROOT / "README.md")],
        "User guide": _listed("docs/guide", GUIDE),
        "API reference": _listed("docs/api", ("index", "functions", "classes", "tensor", "ops")),
        "Contributor guide": [
            Page(ROOT / "CONTRIBUTING.md"),
            Page(ROOT / "ARCHITECTURE.md"),
            *_listed("docs/contributing", CONTRIBUTING),
        ],
        "Errors": _listed("docs/errors", ()),
        "Project": [Page(ROOT / "docs" / "features.md"), Page(ROOT / "CHANGELOG.md")],
    }


def all_pages() -> list[Page]:
    """Every page once."""
    return [page for pages in sections().values() for page in pages]
