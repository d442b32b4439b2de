"""`tessera inspect module:function`: a function at four levels, side by side in the terminal and as a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.arguments import Given, TargetError, find, looked_at
from tessera.compiler.inspect import LEVELS, Inspection, Line, inspect_tape, page
from tessera.diagnostics.error import TesseraError

_SIGNATURE = re.compile(r" : \(.*$| : !.*$")
_SHORTER = (
    (re.compile(r"\b(?:tgraph|tsched|ttile|ttarget)\.(?=\w)"), ""),
    (re.compile(r"^(kernel @\w+).*"), r"\1"),
    (re.compile(r"^(call .*\]) \{flops.*\}"), r"\1"),
    (re.compile(r" candidates = \[.*\] chosen"), " chosen"),
)
_WIDE = 120
"""Columns of a terminal from which on all levels have room side by side."""
_ROWS = 24
"""Lines of a cell; the page has all of them."""


def show(target: str, given: Given, output: str, rows: int = _ROWS) -> int:
    """Print the levels of a function and write its page; the exit status."""
    console = Console()
    try:
        function = find(target)
        tape, sizes = looked_at(function, given)
        found = inspect_tape(tape, function.options)
    except TargetError as error:
        console.print(Text(f"tessera inspect: {error}"), style="red", soft_wrap=True)
        return 2
    except TesseraError as error:
        console.print(Text(error.render()), soft_wrap=True)
        return 1
    shown = side_by_side if console.width >= _WIDE else one_by_one
    console.print(shown(found, rows or _ROWS))
    Path(output).write_text(page(found, target), encoding="utf-8")
    if sizes:
        console.print(Text(sizes))
    console.print(Text(f"the whole of it, to click through: {output}"))
    return 0


def side_by_side(found: Inspection, rows: int) -> Table:
    """One row for each source line, and in it what became of the line at each level."""
    table = Table(show_lines=True, expand=True, highlight=False)
    table.add_column("source", ratio=2, overflow="fold")
    for level in LEVELS:
        table.add_column(level, ratio=3, overflow="fold")
    for key, source in found.sources.items():
        file, _, line = key.rpartition(":")
        cells = [_cell(found.levels[level], key, rows) for level in LEVELS]
        table.add_row(Text(f"{Path(file).name}:{line}\n{source.strip()}", style="bold"), *cells)
    return table


def one_by_one(found: Inspection, rows: int) -> Table:
    """The same for a narrow terminal: each source line, and below it what became of it, level by level."""
    table = Table(show_header=False, expand=True, highlight=False)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for key, source in found.sources.items():
        file, _, line = key.rpartition(":")
        table.add_row("source", Text(f"{Path(file).name}:{line}\n{source.strip()}", style="bold"), end_section=False)
        for level in LEVELS:
            table.add_row(level, _cell(found.levels[level], key, rows), end_section=level == LEVELS[-1])
    return table


def _cell(lines: Sequence[Line], key: str, rows: int) -> Text:
    own = [_short(line.text) for line in lines if key in line.keys]
    shown = own[:rows]
    if len(own) > rows:
        shown.append(f"... and {len(own) - rows} more")
    return Text("\n".join(shown))


def _short(text: str) -> str:
    """A line without types, costs and alternatives, and without the dialect, which the column says."""
    bare = _SIGNATURE.sub("", text.strip())
    for pattern, instead in _SHORTER:
        bare = pattern.sub(instead, bare)
    return bare
