"""`tessera lint module:function`: what each kernel takes of a GPU, and what makes it wait."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from tessera.cli.arguments import Given, TargetError, find, looked_at
from tessera.compiler.backend import backend_for_kind
from tessera.compiler.compile import lower
from tessera.diagnostics.error import TesseraError


def show(target: str, given: Given, architecture: str, *, as_json: bool = False) -> int:
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
        console.print(Text(f"  shared memory: {clean} of {len(one.accesses)} accesses meet no other in a bank"))
    for complaint in one.complaints:
        console.print(Text(f"  warning: {complaint}"), style="yellow")
