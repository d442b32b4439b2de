"""Documents use the words of the field; what a reader cannot search for is not written."""

from __future__ import annotations

import re

import pytest

from scripts.documents.pages import Page, all_pages

WORDS = {
    r"fold[_ ]place|running fold|\bfolds?\b(?! constants)": "reduce, reduction, scan",
    r"matrix units?": "tensor cores, MMA",
    r"copy engine": "TMA",
    r"\bpairs? of CTAs": "cluster",
    r"way down|ways down": "lowering",
    r"\bdoors?\b": "exit verifier",
    r"\b(?:rooms?|hall)\b(?! (?:for|before))": "stage, package",
    r"stand-?ins?\b": "tracer",
    r"\bprocessors?\b(?! @)": "CPU",
    r"whole numbers?": "integer",
    r"\bcures?\b": "fix",
    r"free (?:sizes?|dims?)\b": "symbolic dim, dynamic dim",
    r"\b(?:left|right) sides?\b": "A operand, B operand, lhs, rhs",
    r"comput\w+ again": "rematerialize",
    r"\bbrought ahead|lies along|written out\b": "prefetch, contiguous in, unroll",
    r"\bgiven? up to\b|\bgives? it up\b": "donate",
    r"\bspeaks? (?:with|along)\b": "communicate",
    r"recordings?\b(?! of)": "CUDA graph",
    r"\bNaN wins\b": "NaN propagates",
    r"\b(?:deeds|meetings)\b": "accesses, barriers",
    r"no place of": "out-of-bounds index",
}
"""What is not written, and the words for it."""

PUBLIC = re.compile(r"\[fold\]\(#fold\)|^## fold$", re.MULTILINE)
"""The entry of `ts.random.fold`, a public name."""

PAGES = {str(page.path): page for page in all_pages()}


def prose(page: Page) -> str:
    """The text of a page without code."""
    text = re.sub(r"^```.*?^```$", "", page.text, flags=re.MULTILINE | re.DOTALL)
    return PUBLIC.sub("", re.sub(r"`[^`\n]*`", "", text))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_uses_the_words_of_the_field(name: str) -> None:
    text = prose(PAGES[name])
    found = [f"{match.group()}: {better}" for word, better in WORDS.items() for match in re.finditer(word, text, re.I)]
    assert found == []


def test_a_word_that_nobody_searches_for_is_found() -> None:
    assert all(re.search(word, text, re.I) for word, text in zip(WORDS, EXAMPLES, strict=True))


EXAMPLES = (
    "a running fold", "matrix units", "the copy engine", "pairs of CTAs", "its way down", "the last door", "a room",
    "a stand-in", "the processor", "a whole number", "the cure", "a free dim", "the left side", "computed again",
    "brought ahead", "given up to a call", "ranks speak with others", "a recording", "NaN wins", "deeds",
    "no place of the dim",
)  # fmt: skip
