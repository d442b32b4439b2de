"""The first race of a log of launches, by the order that the runtime checks."""

from __future__ import annotations

from collections.abc import Iterable

from tessera.runtime.timeline import Entry, HappensBefore, Race


def first_race(entries: Iterable[Entry]) -> Race | None:
    """The first race of a log that one thread wrote."""
    order = HappensBefore()
    return next((race for entry in entries if (race := order.add(entry)) is not None), None)
