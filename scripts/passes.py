"""Writes docs/contributing/passes.md, every pass with what it does and its FileCheck test: python scripts/passes.py."""

from __future__ import annotations

import inspect
import sys
from itertools import groupby
from pathlib import Path

from tessera.ir.base.passes import find_pass, pass_modules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "contributing" / "passes.md"
OPENING = """# Passes

<!-- Made by scripts/passes.py from the docstrings of the passes; change those, not this page. -->

The name of a pass is the path of its file: `tile-drop-bounds` is `drop_bounds.py` in the folder of passes of
the tile stage. `tessera-opt FILE -p NAME,NAME` runs passes on IR text. The pipeline of a stage gives the order, with
the reason for each place; `TESSERA_TIMING=1` prints the passes that ran, and `TESSERA_DUMP=dir` writes the IR after
each of them.
"""


def stage_of(name: str) -> str:
    """The stage or backend that a pass belongs to."""
    return name.partition("-")[0]


def summary_of(name: str) -> str:
    """The first paragraph of a pass's docstring, on one line."""
    return " ".join((inspect.getdoc(find_pass(name)) or "").split("\n\n")[0].split()).replace("|", "\\|")


def test_of(name: str) -> str:
    """The FileCheck test of a pass."""
    stem = name.partition("-")[2].replace("-", "_")
    found = sorted((ROOT / "tests" / "lit").rglob(f"{stem}.mlir"))
    own = [file for file in found if stage_of(name) in file.parts] or found
    return f"`{own[0].relative_to(ROOT)}`" if own else ""


def render() -> str:
    """The page: one table for each stage, then one for each backend."""
    stages = ("graph", "schedule", "tile", "target")
    names = sorted(pass_modules(), key=lambda name: (stage_of(name) not in stages, *_rank(name, stages)))
    lines = [OPENING]
    for stage, members in groupby(names, key=stage_of):
        title = f"{stage.capitalize()} stage" if stage in stages else f"Backend {stage}"
        lines += [f"## {title}", "", "| pass | does | test |", "|---|---|---|"]
        lines += [f"| `{name}` | {summary_of(name)} | {test_of(name)} |" for name in members]
        lines.append("")
    return "\n".join(lines)


def _rank(name: str, stages: tuple[str, ...]) -> tuple[int, str]:
    stage = stage_of(name)
    return (stages.index(stage) if stage in stages else 0, name)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` only compare it."""
    text = render()
    if arguments[:1] == ["--check"]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
