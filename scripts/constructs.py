"""Maps every construct to a FileCheck test and a runnable example, and writes IR that no test has yet.

The page is docs/contributing/constructs.md.

Usage: python scripts/constructs.py

Ops that no file below tests/lit names are added to tests/lit/<stage>/every_op.mlir, as their examples lower to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from scripts.ops import STAGES, registry_of
from tessera.ir.base.passes import pass_modules
from tessera.ir.base.text import print_module, stamp
from tessera.ir.graph.dialect import from_tape
from tests.contracts.programs import BOTH, OPTIONS, PROGRAMS, lowered, ops_of, tape
from tests.lit.lit_runner import run_lines

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "contributing" / "constructs.md"
LIT = ROOT / "tests" / "lit"
ROW = re.compile(r"\| `(?P<name>[^`]+)` \| `(?P<lit>[^`]+)` \| (?P<example>[^|]+) \|")

OPENING = """# Constructs

Every op of the four IRs and every pass, with a FileCheck test that has it and an example to run. Made by
`scripts/constructs.py`; `tests/contracts/test_constructs.py` refuses a construct without a row, and rows that are not
true.

An example is a sample that the op declares, which `tests/numerics` and `tests/ir` run; a program of
`tests/contracts/programs.py`, which lowers to the op on the backend named; or a file of IR, for what stands between two
passes or is written by hand: `tessera-opt FILE` runs it.
"""


@dataclass(frozen=True)
class Row:
    """A construct, a file that tests it, and an example: `sample`, `PROGRAM on BACKEND`, or a file of IR."""

    name: str
    lit: str
    example: str

    def __str__(self) -> str:
        return f"| `{self.name}` | `{self.lit}` | {self.example} |"


@cache
def lit_files() -> dict[str, str]:
    """Every FileCheck test by its path, and its text."""
    files = sorted(LIT.rglob("*.mlir"), key=lambda file: (file.stem == "every_op", file))
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def ops() -> dict[str, str]:
    """The stage of every op."""
    return {spec.name: stage for stage in STAGES for spec in registry_of(stage)}


def names_it(text: str, name: str) -> bool:
    """Whether a text of IR has an op, or a RUN line a pass."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text) is not None


def runs_passes(text: str) -> bool:
    """Whether a test looks at what passes make of its IR, and not at how that is printed alone."""
    return any(" -p " in line for line in run_lines(text))


def find_test(name: str) -> str | None:
    """The FileCheck test of a pass, or the first one that names a construct; those that lower it come first."""
    found = [file for file, text in lit_files().items() if names_it(text, name)]
    found.sort(key=lambda file: not runs_passes(lit_files()[file]))
    own = [file for file in found if file.endswith(f"/{name.partition('-')[2].replace('-', '_')}.mlir")]
    return next(iter((*own, *found)), None)


def examples() -> Iterator[tuple[str, str]]:
    """Every example and backend, programs first; samples where all programs run."""
    sampled = [f"sample {spec.short_name}" for spec in registry_of("graph") if spec.samples]
    for backend in OPTIONS:
        able = [name for name, program in PROGRAMS.items() if backend in program.backends]
        yield from ((example, backend) for example in (*able, *(sampled if backend in BOTH else ())))


@cache
def example_of(name: str) -> tuple[str, str] | None:
    """The first example that lowers to an op."""
    return next((pair for pair in examples() if name in ops_of(*pair)), None)


def rows() -> list[Row]:
    """All constructs; raises SystemExit naming those that nothing tests."""
    lit_files.cache_clear()
    sampled = {spec.name for spec in registry_of("graph") if spec.samples}
    found: list[Row] = []
    for name in (*ops(), *pass_modules()):
        test = find_test(name)
        if test is None:
            raise SystemExit(f"nothing tests `{name}`")
        pair = None if name in sampled or name not in ops() else example_of(name)
        example = "sample" if name in sampled else f"`{test}`" if pair is None else f"{pair[0]} on {pair[1]}"
        found.append(Row(name, test, example))
    return found


def render(all_rows: list[Row]) -> str:
    """The page."""
    head = ["| construct | FileCheck test | example |", "|---|---|---|"]
    return "\n".join([OPENING, *head, *map(str, all_rows), ""])


def read_page() -> list[Row]:
    """The rows of the page as it is."""
    return [
        Row(match["name"], match["lit"], match["example"]) for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))
    ]


def add_missing() -> None:
    """Put ops that no test names into the file of their stage, with the function, program or kernel they stand in."""
    for stage in STAGES:
        missing = [name for name, where in ops().items() if where == stage and find_test(name) is None]
        file = LIT / stage / "every_op.mlir"
        text = file.read_text(encoding="utf-8") if file.exists() else _HEAD
        while missing:
            section = _section(stage, missing[0])
            shown = [name for name in missing if names_it(section, name)]
            assert shown, f"no example has `{missing[0]}`"
            text += f"{'' if text == _HEAD else _SPLIT}{_checks(section, shown)}{section}\n"
            missing = [name for name in missing if name not in shown]
        if text != _HEAD:
            file.write_text(text, encoding="utf-8")


_SPLIT = "// -----\n"
_HEAD = """// RUN: tessera-opt %s --split | filecheck %s

// Ops that no other test has, as examples lower to them: they verify, and print as they are written.
"""


def _section(stage: str, name: str) -> str:
    """The part of an example that has an op, as text."""
    spec = next(spec for spec in registry_of(stage) if spec.name == name)
    if stage == "graph":
        example = f"sample {spec.short_name}" if spec.samples else (example_of(name) or ("", ""))[0]
        return _body(from_tape(tape(example))).replace("@main(", f"@{spec.short_name}(")
    pair = example_of(name)
    assert pair is not None, f"no example has `{name}`: write one in tests/contracts/programs.py, or a test by hand"
    found = lowered(*pair)
    roots: list[Operation] = list(found.kernels if stage == "tile" else found.targets)
    if stage == "schedule":
        return _body(ModuleOp([found.program.clone(), *(kernel.clone() for kernel in found.kernels)]))
    smallest = min((root for root in roots if any(op.name == name for op in root.walk())), key=lambda op: len(str(op)))
    return _body(ModuleOp([smallest.clone()]))


def _body(module: ModuleOp) -> str:
    """What stands in a module, as text without the module."""
    stamp(module)
    lines = print_module(module).splitlines()
    inner = lines[1:-1] if lines[0].startswith("builtin.module") else lines
    return "\n".join(line.removeprefix("  ") for line in inner)


def _checks(section: str, names: list[str]) -> str:
    """A label and, for each op in order, its name and its attributes."""
    first, *rest = section.splitlines()
    found, left = list[str](), list(names)
    for line in rest:
        name = next((name for name in left if names_it(line, name)), None)
        if name is not None:
            left.remove(name)
            found.append(f"// CHECK: {name}{'{{.*}} ' + shown if (shown := _attributes_of(line)) else ''}")
    label = re.match(r"[\w.]+ @\w+", first)
    lines = [f"// CHECK-LABEL: {label.group()}(" if label else "", *found]
    return "".join(f"{line}\n" for line in lines if line)


def _attributes_of(line: str) -> str:
    """The attributes of an op, where they are short and mean nothing to FileCheck."""
    match = re.search(r"\{(?!tessera|\s)[^{}]*\}", line)
    return match.group() if match and len(match.group()) < 80 and "[[" not in match.group() else ""


def main() -> int:
    """Add tests that are missing, then write the page."""
    add_missing()
    PAGE.write_text(render(rows()), encoding="utf-8")
    print(f"{len(read_page())} constructs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
