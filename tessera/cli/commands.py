"""The small commands: `tessera cache`, `tessera explain` and `tessera run`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.markdown import Markdown

from tessera.diagnostics.codes import all_codes, explain
from tessera.diagnostics.error import TesseraError
from tessera.runtime.cache import default_store
from tessera.runtime.ranks.processes import MOST, launch

# `tessera cache`: what the cache of compiled code holds, and how to empty it.


def show_usage(*, as_json: bool) -> int:
    """Print the folder, how full it is, and the age of its longest unused entry."""
    store = default_store()
    usage = store.usage()
    days = None if usage.oldest is None else max(0.0, time.time() - usage.oldest) / 86400
    if as_json:
        found = {"folder": store.folder, "entries": usage.entries, "bytes": usage.bytes, "limit": store.limit}
        typer.echo(json.dumps({**found, "oldest_days": None if days is None else round(days, 2)}))
        return 0
    typer.echo(f"folder   {store.folder}")
    typer.echo(f"entries  {usage.entries}")
    typer.echo(f"size     {_size(usage.bytes)} of {_size(store.limit)} (TESSERA_CACHE_BYTES)")
    if days is not None:
        typer.echo(f"oldest   last used {days:.1f} days ago; when it is full, those unused for longest are removed")
    return 0


def clear_entries() -> int:
    """Remove every entry; programs that run keep what they have loaded."""
    store = default_store()
    before = store.usage()
    store.clear()
    left = store.usage()
    typer.echo(f"removed {before.entries - left.entries} entries, {_size(before.bytes - left.bytes)}")
    if left.entries:
        typer.echo(f"{left.entries} entries in {store.folder} could not be removed", err=True)
    return 1 if left.entries else 0


def _size(count: int) -> str:
    """Bytes as people read them.

    >>> _size(512), _size(1536), _size(4 << 30)
    ('512 B', '1.5 KiB', '4.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


# `tessera explain`: an error's page in the terminal, or the list of codes.


def show_page(code: str) -> int:
    """Print the page of `code`; 1 when there is none, else 0."""
    try:
        page = explain(code)
    except KeyError as error:
        Console(stderr=True, highlight=False).print(f"error: {error.args[0]}", markup=False)
        return 1
    console = Console()
    if console.is_terminal:
        console.print(Markdown(page))
    else:
        print(page, end="")
    return 0


def list_codes() -> None:
    """Print every code, its class and its meaning."""
    for code, cls in all_codes().items():
        print(f"{code}  {cls.__name__:<24}{(cls.__doc__ or '').splitlines()[0]}")


# `tessera run`: a Python file in several processes, each a rank of one world.


def start(file: str, argv: Sequence[str], ranks: int, seconds: float | None) -> int:
    """Run a file on each rank; 1 where one of them fails, which is reported."""
    if not os.path.isfile(file):
        typer.echo(f"there is no file `{file}`", err=True)
        return 2
    if not 1 <= ranks <= MOST or (seconds is not None and seconds <= 0):
        typer.echo(f"`--ranks` is 1 to {MOST}, and `--timeout` above 0 s", err=True)
        return 2
    try:
        launch({"file": file, "argv": list(argv)}, ranks, seconds=seconds)
    except TesseraError as error:
        typer.echo(str(error.at(None)), err=True)
        return 1
    return 0
