"""The pages on kernels run, and the pages of examples show the examples' own kernels."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    programs = BLOCK.findall((ROOT / "docs" / "guide" / "kernels.md").read_text(encoding="utf-8"))
    # A kernel is compiled from its source, so the programs are a file.
    file = tmp_path / "page.py"
    file.write_text("\n".join(programs), encoding="utf-8")
    assert "twice" in runpy.run_path(str(file))


@pytest.mark.parametrize(("name", "longest"), [("matmul", 25), ("softmax", 25), ("flash_attention", 45)])
def test_a_page_shows_the_kernel_of_its_example(name: str, longest: int) -> None:
    (shown,) = BLOCK.findall((ROOT / "docs" / "guide" / "examples" / f"{name}.md").read_text(encoding="utf-8"))
    assert shown in (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert len(ast.unparse(ast.parse(shown)).splitlines()) <= longest
    assert len(shown.splitlines()) <= longest
