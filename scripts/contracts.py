"""Writes docs/contributing/contracts.md, every promise and where it is checked, from contracts.tsv beside it.

Usage: python scripts/contracts.py [--check]
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "contributing" / "contracts.tsv"
PAGE = ROOT / "docs" / "contributing" / "contracts.md"

LEVELS = {
    "decoration": "when a function is decorated",
    "call": "when it is called, before anything is traced",
    "trace": "while it is traced, at the line that breaks the contract",
    "graph": "in Graph IR",
    "schedule": "in Schedule IR",
    "tile": "in Tile IR",
    "target": "in Target IR, and in the text for LLVM",
    "load": "when settings, caches and executables are read",
    "run": "in each run: what no earlier level can know",
}
"""Where promises are checked, earliest first."""

OPENING = """# Contracts

What Tessera promises, the earliest place where each promise can be checked, what checks it there, and a program that
breaks it. Made by `scripts/contracts.py` from `docs/contributing/contracts.tsv`; change that table, not this page.

`tests/contracts` runs every program of the last column: it must be refused, with the code of its row, and by the
verifier of its row, whose frame must be on the stack of the error. The same tests refuse a table without a row for some
error code or for some pass that checks.
"""


@dataclass(frozen=True)
class Contract:
    """One promise: where it is checked first, by what, the code of its error, and what breaks it.

    `verifier` is `module:name`. `failing` is a page of `docs/errors`, a section of a file of wrong programs
    (`file.md#section`), or a symbol of a file of IR (`file.mlir@symbol`, with options of the pass after it).
    """

    level: str
    promise: str
    verifier: str
    code: str
    failing: str

    def __str__(self) -> str:
        return "\t".join((self.level, self.promise, self.verifier, self.code, self.failing))

    @property
    def function(self) -> Any:
        """The verifier itself."""
        module, _, path = self.verifier.partition(":")
        found: Any = importlib.import_module(f"tessera.{module}")
        for name in path.split("."):
            found = getattr(found, name)
        return found

    @property
    def file(self) -> Path:
        """The file that holds what breaks the promise."""
        return ROOT / self.failing.partition("#")[0].partition("@")[0]


def read_table() -> list[Contract]:
    """Every contract, in the order of the table."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return [Contract(*line.split("\t")) for line in lines]


def render(contracts: Sequence[Contract]) -> str:
    """The page: one table for each level."""
    lines = [OPENING]
    for level, members in groupby(contracts, key=lambda contract: contract.level):
        lines += [
            f"## {level.capitalize()}: {LEVELS[level]}",
            "",
            "| promise | verifier | error | broken by |",
            "|---|---|---|---|",
        ]
        for contract in members:
            code = f"[{contract.code}](../errors/{contract.code}.md)"
            lines.append(f"| {contract.promise} | `{contract.verifier}` | {code} | `{contract.failing}` |")
        lines.append("")
    return "\n".join(lines)


def complaints(contracts: Sequence[Contract]) -> list[str]:
    """What is wrong with the table: levels out of order, verifiers and programs that do not exist, rows said twice."""
    found: list[str] = []
    order = list(LEVELS)
    unknown = [contract.level for contract in contracts if contract.level not in order]
    if unknown:
        return [f"no such level: {level}" for level in unknown]
    if [contract.level for contract in contracts] != sorted((c.level for c in contracts), key=order.index):
        found.append("the levels are out of order")
    for contract in contracts:
        try:
            contract.function  # noqa: B018 - asked for its error
        except (ImportError, AttributeError) as error:
            found.append(f"{contract.promise}: no such verifier: {error}")
        if not contract.file.is_file():
            found.append(f"{contract.promise}: no such file: {contract.failing}")
    promises = [contract.promise for contract in contracts]
    return found + [f"said twice: {promise}" for promise in set(promises) if promises.count(promise) > 1]


def main(arguments: Sequence[str]) -> int:
    """Write the page, or with `--check` only compare it."""
    contracts = read_table()
    problems = complaints(contracts)
    if arguments[:1] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") != render(contracts):
            problems.append("docs/contributing/contracts.md is out of date: run scripts/contracts.py")
    elif not problems:
        PAGE.write_text(render(contracts), encoding="utf-8")
    print("\n".join(problems) or f"{len(contracts)} contracts")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
