"""Documents run: the README's program, and every example in a docstring."""

from __future__ import annotations

import doctest
import importlib
import re
import runpy
from pathlib import Path

import pytest

import tessera
from tessera.ir.base.passes import check_entry, pass_modules
from tessera.ir.base.text import parse_module, print_module
from tessera.types import dtype
from tessera.types.promotion import INTEGER_EDGES

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"^```mlir\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STAGES = ("graph", "schedule", "tile", "target")
DOCUMENTS = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/guide/*.md", "docs/contributing/**/*.md")
    for page in ROOT.glob(pattern)
    # CONTRIBUTING's blocks are files to write, which tests/test_recipes.py does.
    if page.name != "CONTRIBUTING.md" and BLOCK.search(page.read_text(encoding="utf-8"))
)


def modules_with_examples() -> list[str]:
    files = sorted((ROOT / "tessera").rglob("*.py"))
    found = [file for file in files if ">>> " in file.read_text(encoding="utf-8")]
    return [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in found]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_programs_of_a_document_run(name: str, tmp_path: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, program in enumerate(BLOCK.findall((ROOT / name).read_text(encoding="utf-8")), start=1):
        file = tmp_path / f"program_{number}.py"  # kernels are compiled from their source
        file.write_text(program, encoding="utf-8")
        # Without what this file asks of the future: programs run as they stand.
        exec(compile(program, str(file), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_docstring_run(name: str) -> None:
    names = {"ts": tessera, **{element.name: element for element in dtype.ALL if not element.is_bool}}
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_page_on_numerics_has_every_integer_rule() -> None:
    page = (ROOT / "docs" / "guide" / "numerics.md").read_text(encoding="utf-8")
    assert [f"| {case} | {rule} |" for case, rule in INTEGER_EDGES.items() if f"| {case} | {rule} |" not in page] == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_modules_of_a_stage_are_right_and_print_as_shown(stage: str) -> None:
    for name in STAGES:
        importlib.import_module(f"tessera.ir.{name}.dialect")
    texts = MODULE.findall((ROOT / "docs" / "contributing" / "stages" / f"{stage}.md").read_text(encoding="utf-8"))
    assert texts
    for text in texts:
        module = parse_module(text, f"<{stage}.md>")
        check_entry(stage, module)
        assert print_module(module) == text


@pytest.mark.parametrize("stage", STAGES)
def test_the_list_of_passes_has_those_of_a_stage_and_no_other(stage: str) -> None:
    listed = (ROOT / "docs" / "contributing" / "passes.md").read_text(encoding="utf-8")
    names = [name for name, module in pass_modules().items() if module.startswith(f"tessera.ir.{stage}.passes.")]
    assert [name for name in names if f"| `{name}` |" not in listed] == []
    assert sorted(set(re.findall(rf"`({stage}-[a-z-]+)`", listed)) - set(names)) == []


def test_the_lists_of_ops_are_made_from_their_declarations() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "ops.py"))
    for stage, page in script["PAGES"].items():
        assert page.read_text(encoding="utf-8") == script["render"](stage), "run scripts/ops.py"
