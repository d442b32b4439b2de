"""Finds second definitions in the documents: terms that are defined twice, and sentences that stand on two pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from scripts.documents.pages import Page, all_pages, plain_text

SHAPES = {
    "not yet", "order", "on a gpu", "on tensor cores", "attention", "results", "latency", "tests", "errors", "rules",
    "examples", "functions", "overlap", "tensors",
}  # fmt: skip
"""Headings that give a page its shape, and define nothing."""

GENERATED = ("docs/api/", "docs/errors/", "docs/features.md", "docs/contributing/ops/", "CHANGELOG.md")
GENERATED_PAGES = ("passes.md", "contracts.md", "constructs.md")
SHORTEST = 8
"""Words from which on a sentence or a row is a definition and no longer a phrase."""


@dataclass(frozen=True)
class Definition:
    """Where a term is defined."""

    term: str
    page: str
    line: int

    def __str__(self) -> str:
        return f"{self.page}:{self.line} `{self.term}`"


def written_pages() -> list[Page]:
    """The pages that people write: all but those made by scripts, and the pages of errors, which quote."""
    pages = [page for page in all_pages() if not str(page.path).startswith(GENERATED)]
    return [page for page in pages if page.file.name not in GENERATED_PAGES]


def definitions(page: Page) -> list[Definition]:
    """Headings, and bold terms that open a paragraph or an item of a list."""
    found: list[Definition] = []
    for before, token in zip(page.tokens, page.tokens[1:], strict=False):
        if token.type != "inline" or before.type in ("td_open", "th_open"):
            continue
        term = plain_text(token) if before.type == "heading_open" else _opening(token)
        normal = normalize(term.partition(":")[0])
        if normal and normal not in SHAPES:
            found.append(Definition(normal, str(page.path), (token.map or [0])[0] + 1))
    return found


def _opening(token: Token) -> str:
    """The bold term at the start of a text, or nothing."""
    children = [child for child in token.children or () if child.content or child.type == "strong_open"]
    if not children or children[0].type != "strong_open":
        return ""
    return "".join(child.content for child in children[1:2])


def normalize(text: str) -> str:
    """A term without case, markup and punctuation."""
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


def statements(page: Page) -> set[str]:
    """Sentences and table rows that are long enough to say something."""
    found: set[str] = set()
    row: list[str] = []
    for token in page.tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            found.add(normalize(" ".join(row)))
        elif token.type == "inline":
            text = plain_text(token)
            row.append(text)
            found |= {normalize(sentence) for sentence in re.split(r"(?<=[.;:])\s", text)}
    return {text for text in found if len(text.split()) >= SHORTEST}


def second_definitions(pages: Sequence[Page] | None = None) -> list[str]:
    """What is defined or said twice, by page."""
    chosen = written_pages() if pages is None else pages
    return [*_terms(definition for page in chosen for definition in definitions(page)), *_sentences(chosen)]


def _terms(all_definitions: Iterable[Definition]) -> list[str]:
    first: dict[str, Definition] = {}
    found: list[str] = []
    for one in all_definitions:
        earlier = first.setdefault(one.term, one)
        if earlier is not one:
            found.append(f"{one} is defined at {earlier}")
    return found


def _sentences(pages: Sequence[Page]) -> list[str]:
    first: dict[str, str] = {}
    found: list[str] = []
    for page in pages:
        for text in sorted(statements(page)):
            earlier = first.setdefault(text, str(page.path))
            if earlier != str(page.path):
                found.append(f"{page.path} says what {earlier} says: {text}")
    return found
