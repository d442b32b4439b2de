"""`tessera cache`: what the cache of compiled code holds, and how to empty it."""

from __future__ import annotations

import json
import time

import typer

from tessera.runtime.cache import default_store


def show(*, as_json: bool) -> int:
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


def clear() -> int:
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
