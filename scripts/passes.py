"""Writes docs/contributing/passes.md, every pass with what it does and its FileCheck test: python scripts/passes.py."""

from __future__ import annotations

import inspect
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.passes import find_pass, pass_modules

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "contributing" / "passes.md"
MACHINES = {"cpu": ("cpu", None), "sm_90a": ("cuda", ("sm_90a",)), "sm_80": ("cuda", ("sm_80",))}
"""Machines whose order of passes is shown, each by its backend and its features."""

OPENING = """# Passes

<!-- Made by scripts/passes.py from the docstrings of the passes; change those, not this page. -->

The name of a pass is the path of its file: `tile-drop-bounds` is `drop_bounds.py` in the folder of passes of
the tile stage. `tessera-opt FILE -p NAME,NAME` runs passes on IR text. The pipeline of a stage gives the order, with
the reason for each position; `TESSERA_TIMING=1` prints the passes that ran, and `TESSERA_DUMP=dir` writes the IR after
each of them, by its name (`tessera inspect` shows the levels, and names no pass).
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
    own = [file for file in found if file.parent.name == stage_of(name)] or found
    return f"`{own[0].relative_to(ROOT)}`" if own else ""


def order_on(machine: str) -> list[str]:
    """The passes that the runner of a compilation takes a matmul with an epilogue through, in order."""
    backend, features = MACHINES[machine]
    x = ts.Tensor.empty((256, 256), ts.bf16)
    traced = ts.jit(_matmul).trace(x, x)
    steps = lower(traced.tape, Options.of(backend=backend, features=features)).stages.steps
    return [step.name for step in steps if step.name in pass_modules()]


def _matmul(a: Any, b: Any) -> Any:
    return ts.ops.relu(a @ b)


def render() -> str:
    """The page: the order on some machines, one table for each stage, then one for each backend."""
    stages = ("graph", "schedule", "tile", "target")
    names = sorted(pass_modules(), key=lambda name: (stage_of(name) not in stages, *_rank(name, stages)))
    lines = [OPENING, "## Order of a compilation", "", "What one matmul with an epilogue goes through:", ""]
    orders = {machine: order_on(machine) for machine in MACHINES}
    shared = [name for name in orders["cpu"] if stage_of(name) in ("graph", "schedule")]
    lines.append(f"- all machines: {', '.join(f'`{name}`' for name in shared)}")
    for machine, order in orders.items():
        own = order[len(shared) :]
        assert order[: len(shared)] == shared, machine
        lines.append(f"- then {machine}: {', '.join(f'`{name}`' for name in own)}")
    lines.append("")
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
