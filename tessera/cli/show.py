"""`tessera inspect`, `profile` and `lint`: a function at four levels, what its call did, and its kernels on a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.cli.arguments import Given, Look, TargetError, arguments_for, arrange, call_described, looked_at
from tessera.compiler.backend import backend_for_kind
from tessera.compiler.compile import lower
from tessera.compiler.inspect import FOR_GROUPS, LEVELS, Inspection, KernelView, Line, inspect_tape, kernel_views
from tessera.compiler.inspect_page import page
from tessera.compiler.report import work_of
from tessera.diagnostics.error import TesseraError
from tessera.types.rates import describe_shares, rates_of

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


def show_levels(
    target: str, given: Given, output: str, rows: int = _ROWS, architecture: str = "", look: Look | None = None
) -> int:
    """Print the levels of a function and write its page; the exit status.

    With an `architecture` the page also has PTX, occupancy and bank conflicts of its kernels on that GPU.
    """
    console, look = Console(), look or Look()
    try:
        function = look.find(target)
        look.say(f"tracing `{function.name}`")
        tape, note, _ = looked_at(function, given)
        look.say("lowering it to all levels")
        found = inspect_tape(tape, function.options, function.name)
        if architecture:
            look.say(f"compiling its kernels for {architecture}")
            found = _with_gpu(found, tape, function, architecture)
    except TargetError as error:
        console.print(Text(f"tessera inspect: {error}"), style="red", soft_wrap=True)
        return 2
    except TesseraError as error:
        console.print(Text(error.render()), soft_wrap=True)
        return 1
    shown = columns_table if console.width >= _WIDE else rows_table
    console.print(shown(found, rows or _ROWS))
    for kernel in found.kernels:
        cost = ", ".join(filter(None, (kernel.grid, f"{kernel.flops} flops", f"{kernel.bytes} bytes", kernel.gpu)))
        console.print(Text(f"kernel {kernel.name} ({kernel.detail}): {cost}"))
    Path(output).write_text(page(found, target), encoding="utf-8")
    if note:
        console.print(Text(note))
    console.print(Text(f"the whole of it, to click through: {output}"))
    return 0


def _with_gpu(found: Inspection, tape: Any, function: Any, architecture: str) -> Inspection:
    """An inspection with what its kernels are on a GPU: those of a CPU program are compiled for one beside it."""
    try:
        lowering, looked = _lower_for_gpu(tape, function, architecture)
        objects = lowering.code.objects()
    except TesseraError as error:
        return replace(
            found, kernels=tuple(replace(one, gpu=f"not compiled: {error.message}") for one in found.kernels)
        )
    views = {one.symbol: one for one in kernel_views(lowering, function.name)}
    made: dict[str, KernelView] = {}
    # The host program comes first among the objects, and then the PTX of each kernel.
    for one, ptx in zip(looked, objects[1:], strict=False):
        view = views[one.resources.name]
        gpu = f"{architecture}: {_occupancy_text(one)}; {_conflicts_text(one)}"
        made[view.symbol] = replace(view, gpu=gpu, ptx=ptx.decode())
    kept = [
        replace(one, gpu=made[one.symbol].gpu, ptx=made[one.symbol].ptx) if one.symbol in made else one
        for one in found.kernels
    ]
    known = {one.symbol for one in kept}
    return replace(found, kernels=(*kept, *(one for name, one in made.items() if name not in known)))


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


# `tessera profile module:function`: where time and memory of a call went.


def show_profile(target: str, given: Given, output: str, look: Look | None = None) -> int:
    """Run a function with arguments made up for it, print where time went, and write a folder; the exit status."""
    console, look = Console(), look or Look()
    try:
        function = look.find(target)
        arguments = arguments_for(function, given)
        positional, named = arrange(function, arguments)
        look.say(f"compiling and running `{function.name}`")
        found = call_described(lambda: function.profile(*positional, **named))
        console.print(found)
        look.say("writing what was seen, and the levels of the longest kernel")
        report = found.save(output)
    except TargetError as error:
        console.print(Text(f"tessera profile: {error}"), style="red", soft_wrap=True)
        return 2
    except TesseraError as error:
        console.print(Text(error.render()), soft_wrap=True)
        return 1
    if arguments.chosen:
        sizes = ", ".join(f"{name} = {size}" for name, size in arguments.chosen.items())
        console.print(Text(f"run with {sizes}; for others, --size {next(reversed(arguments.chosen))}=1024"))
    console.print(
        Text(f"{report} has it as a page; beside it are a trace for Perfetto, the tables and a flame graph"),
        soft_wrap=True,
    )
    return 0


# `tessera lint module:function`: what each kernel takes of a GPU, and what makes it wait.


def _lower_for_gpu(tape: Any, function: Any, architecture: str) -> tuple[Any, Sequence[Any]]:
    """A program lowered for a GPU that need not be here, and what there is to say of its kernels."""
    options = replace(function.options, backend=backend_for_kind("gpu").name, features=(architecture,))
    lowering = lower(tape, options, keep_snapshots=FOR_GROUPS, keep_locations=True)
    return lowering, lowering.code.lint()


def show_lint(target: str, given: Given, architecture: str, *, as_json: bool = False, look: Look | None = None) -> int:
    """Print what was seen; 1 where there is something to complain of, 2 where nothing could be looked at."""
    console, look = Console(highlight=False, soft_wrap=True), look or Look()
    try:
        function = look.find(target)
        look.say(f"tracing `{function.name}`")
        tape, note, sizes = looked_at(function, given)
        look.say(f"compiling its kernels for {architecture}")
        lowering, looked = _lower_for_gpu(tape, function, architecture)
        views = {one.symbol: one for one in kernel_views(lowering, function.name)}
        shares = _shares_of(lowering, architecture, sizes)
    except TargetError as error:
        console.print(Text(f"tessera lint: {error}"), style="red")
        return 2
    except TesseraError as error:
        console.print(Text(error.render()))
        return 2
    if as_json:
        console.print_json(json.dumps([_fields(one, views[one.resources.name], shares) for one in looked]))
    else:
        for one in looked:
            _print(console, one, views[one.resources.name], shares)
        if note:
            console.print(Text(note))
    return 1 if any(one.complaints for one in looked) else 0


def _shares_of(lowering: Any, architecture: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """What each kernel takes of the roofline at most, where such a GPU was measured: by the symbols of its forms."""
    rates = rates_of(architecture)
    if rates is None:
        return {}
    whole = [kernel for kernel in lowering.kernels if not kernel.variant_of]
    lines = describe_shares(work_of(lowering.program, whole, lowering.targets), rates, sizes)
    symbols = [kernel.value("symbol") for kernel in lowering.targets]
    found: dict[str, str] = {}
    for symbol in symbols:
        own = dict.fromkeys(text for name, text in lines if symbol == name or symbol.startswith(f"{name}__"))
        if own:
            found[symbol] = f"{'; or '.join(own)} (rates of {rates.machine or 'some other machine'})"
    return found


def _fields(one: Any, view: KernelView, shares: Mapping[str, str]) -> dict[str, object]:
    resources = one.resources
    return {
        "kernel": view.name,
        "symbol": view.symbol,
        "threads": resources.threads,
        "shared": resources.shared,
        "registers": resources.registers.registers,
        "live": resources.registers.live,
        "blocks": resources.occupancy.blocks,
        "occupancy": _occupancy_text(one),
        "limiter": resources.occupancy.limiter,
        "launch": resources.launch,
        "roofline": shares.get(view.symbol, ""),
        "bank_conflicts": [{"degree": access.degree, "what": str(access)} for access in one.conflicts],
        "accesses": [{"op": access.op.name, "what": access.what, "degree": access.degree} for access in one.accesses],
        "complaints": _complaints(one, view),
    }


def _occupancy_text(one: Any) -> str:
    held = one.resources.occupancy
    blocks = f"{held.blocks} block{'s' * (held.blocks != 1)} per SM"
    return (
        f"occupancy {held.fraction:.0%}: {held.warps} of {held.most_warps} warps, {blocks}, limited by {held.limiter}"
    )


def _conflicts_text(one: Any) -> str:
    """How many accesses of shared memory have bank conflicts, and of which degree."""
    if not one.accesses:
        return "no bank conflicts: no access of shared memory whose lanes are known"
    if not one.conflicts:
        return f"no bank conflicts in {len(one.accesses)} accesses of shared memory"
    worst = max(access.degree for access in one.conflicts)
    return f"bank conflicts in {len(one.conflicts)} of {len(one.accesses)} accesses of shared memory, up to {worst}-way"


def _complaints(one: Any, view: KernelView) -> list[str]:
    """What should be otherwise, with the kernel called as its user calls it."""
    return [complaint.replace(view.symbol, view.name) for complaint in one.complaints]


def _print(console: Console, one: Any, view: KernelView, shares: Mapping[str, str]) -> None:
    resources = one.resources
    console.print(Text(f"{view.name}", style="bold"), Text(f" ({view.detail})"), sep="")
    shared = f"{resources.shared} bytes of shared memory"
    console.print(Text(f"  {resources.threads} threads a block, {resources.registers}, {shared}"))
    console.print(Text(f"  {_occupancy_text(one)}; launched {resources.launch}"))
    console.print(Text(f"  {_conflicts_text(one)}"))
    if view.symbol in shares:
        console.print(Text(f"  roofline: {shares[view.symbol]}"))
    for complaint in _complaints(one, view):
        console.print(Text(f"  warning: {complaint}"), style="yellow")
