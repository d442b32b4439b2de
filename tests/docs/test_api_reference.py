"""The API reference has an entry for every public name and no other, and is made from the objects as they are."""

from __future__ import annotations

import inspect

import pytest

from scripts import api_reference
from scripts.api_examples import METHODS, ON_A_GPU, OPS, PROGRAMS, TILE, WITH_TORCH

PAGES = api_reference.pages()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_every_public_name_and_no_other(page: str) -> None:
    text = (api_reference.FOLDER / f"{page}.md").read_text(encoding="utf-8")
    assert api_reference.documented(text) == {entry.name for entry in PAGES[page]}, "run scripts/api_reference.py"


def test_every_public_module_has_a_page() -> None:
    modules = {f"tessera.{name}" for name in api_reference.public_modules()}
    known = {*api_reference.MODULES.values(), *api_reference.ALIASES}
    assert modules <= known


@pytest.mark.parametrize("page", PAGES)
def test_every_name_has_a_summary_and_an_example(page: str) -> None:
    for entry in PAGES[page]:
        if isinstance(entry.value, api_reference.ts.DType):
            continue
        assert entry.summary.endswith((".", ":")), entry.path
        has_example = (
            api_reference.program_of(entry) is not None
            or (entry.module == "tessera.cuda" and entry.name in ON_A_GPU)
            or (entry.module == "tessera.interop.torch" and entry.name in WITH_TORCH)
            or ">>>" in (inspect.getdoc(entry.value) or "")
        )
        assert has_example, entry.path


def test_no_example_is_of_a_name_that_is_gone() -> None:
    paths = {entry.path for entries in PAGES.values() for entry in entries}
    tables = {"tessera.ops": OPS, "tessera.Tensor": METHODS, "tessera.tile": TILE, "tessera.cuda": ON_A_GPU}
    tables["tessera.interop.torch"] = WITH_TORCH
    wanted = {f"{module}.{name}" for module, names in tables.items() for name in names} | PROGRAMS.keys()
    assert sorted(wanted - paths) == []


def test_the_pages_are_current_and_their_examples_print_what_they_show() -> None:
    stale = [
        file.name
        for file, text in api_reference.render_all().items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run scripts/api_reference.py"


def test_the_facts_of_an_op_come_from_its_trace() -> None:
    page = (api_reference.FOLDER / "ops.md").read_text(encoding="utf-8")
    section = page.partition("\n## softmax\n")[2].partition("\n## ")[0]
    assert "- Shapes: `x[A, B]` → `[A, B]`" in section
    assert "- Dtypes of `x`: floats" in section
    assert "- Runs on: CPU and NVIDIA GPU; in Graph IR `tgraph.softmax" in section
