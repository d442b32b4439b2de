"""Documents run: the README's program, and every example in a docstring."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import tessera
from tessera.types import dtype
from tessera.types.promotion import INTEGER_EDGES

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/numerics.md")


def modules_with_examples() -> list[str]:
    files = sorted((ROOT / "tessera").rglob("*.py"))
    found = [file for file in files if ">>> " in file.read_text(encoding="utf-8")]
    return [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in found]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_programs_of_a_document_run(name: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, program in enumerate(BLOCK.findall((ROOT / name).read_text(encoding="utf-8")), start=1):
        exec(compile(program, f"{name} program {number}", "exec"), namespace)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_docstring_run(name: str) -> None:
    names = {"ts": tessera, **{element.name: element for element in dtype.ALL if not element.is_bool}}
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_page_on_numerics_has_every_integer_rule() -> None:
    page = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    assert [f"| {case} | {rule} |" for case, rule in INTEGER_EDGES.items() if f"| {case} | {rule} |" not in page] == []
