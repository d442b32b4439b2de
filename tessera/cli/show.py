"""`tessera inspect` and `tessera lint`: a function at four levels, and what its kernels take of a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.arguments import Given, TargetError, find, looked_at
from tessera.compiler.backend import backend_for_kind
from tessera.compiler.compile import lower
from tessera.compiler.inspect import LEVELS, Inspection, Line, inspect_tape, page
from tessera.diagnostics.error import TesseraError

# `tessera inspect module:function`: a function at four levels, side by side in the terminal and as a page.

_SIGNATURE = re.compile(r" : \(.*$| : !.*$")
_SHORTER = (
    (re.compile(r"\b(?:tgraph|tsched|ttile|ttarget)\.(?=\w)"), ""),
    (re.compile(r"^(kernel @\w+).*"), r"\1"),
    (re.compile(r"^(call .*\]) \{flops.*\}"), r"\1"),
    (re.compile(r" candidates = \[.*\] chosen"), " chosen"),
)
_WIDE = 120
"""Columns of a terminal from which on all levels fit side by side."""
_ROWS = 24
"""Lines of a cell; the page has all of them."""


def show_levels(target: str, given: Given, output: str, rows: int = _ROWS) -> int:
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
    shown = columns_table if console.width >= _WIDE else rows_table
    console.print(shown(found, rows or _ROWS))
    Path(output).write_text(page(found, target), encoding="utf-8")
    if sizes:
        console.print(Text(sizes))
    console.print(Text(f"the whole of it, to click through: {output}"))
    return 0


def columns_table(found: Inspection, rows: int) -> Table:
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


def rows_table(found: Inspection, rows: int) -> Table:
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


# `tessera lint module:function`: what each kernel takes of a GPU, and what makes it wait.


def show_lint(target: str, given: Given, architecture: str, *, as_json: bool = False) -> int:
    """Print what was seen; 1 where there is something to complain of, 2 where nothing could be looked at."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        function = find(target)
        tape, sizes = looked_at(function, given)
        backend = backend_for_kind("gpu").name
        looked = lower(tape, replace(function.options, backend=backend, features=(architecture,))).code.lint()
    except TargetError as error:
        console.print(Text(f"tessera lint: {error}"), style="red")
        return 2
    except TesseraError as error:
        console.print(Text(error.render()))
        return 2
    if as_json:
        console.print_json(json.dumps([_fields(one) for one in looked]))
    else:
        for one in looked:
            _print(console, one)
        if sizes:
            console.print(Text(sizes))
    return 1 if any(one.complaints for one in looked) else 0


def _fields(one: Any) -> dict[str, object]:
    resources = one.resources
    return {
        "kernel": resources.name,
        "threads": resources.threads,
        "shared": resources.shared,
        "registers": resources.registers.registers,
        "live": resources.registers.live,
        "blocks": resources.occupancy.blocks,
        "limiter": resources.occupancy.limiter,
        "launch": resources.launch,
        "accesses": [{"op": access.op.name, "what": access.what, "degree": access.degree} for access in one.accesses],
        "complaints": list(one.complaints),
    }


def _print(console: Console, one: Any) -> None:
    console.print(Text(str(one.resources)))
    clean = len(one.accesses) - len(one.conflicts)
    if one.accesses:
        console.print(Text(f"  shared memory: {clean} of {len(one.accesses)} accesses have no bank conflict"))
    for complaint in one.complaints:
        console.print(Text(f"  warning: {complaint}"), style="yellow")
