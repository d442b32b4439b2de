"""Export and import of the tuning database as one JSON file, which other machines and other vendors' tools can read.

The format is in docs/guide/tuning-files.md. A file is taken as a whole or not at all: every entry is checked before
the first is stored, and they are stored in one transaction. Entries of other machines are kept: their arch is in the
key, so that no lookup here ever finds them, and an export passes them on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import TuningFileError
from tessera.runtime.private_files import open_folder, write_file
from tessera.tuner.database import Database
from tessera.tuner.entry_format import FILE_SCHEMA, MOST_BYTES, MOST_TRIALS, entries_from_text, entries_to_text
from tessera.tuner.records import Entry
from tessera.types.frozen import frozen


@frozen
class Imported:
    """What a file had in it: how many entries, and how many of each arch."""

    entries: int
    by_arch: dict[str, int]

    def foreign(self, arch: str) -> int:
        """How many are for other machines than this arch, and are kept for them alone."""
        return self.entries - self.by_arch.get(arch, 0)


def json_schema() -> dict[str, Any]:
    """The format as JSON Schema (2020-12), for other tools; files are checked by it here too."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tuned plans of Tessera",
        **FILE_SCHEMA,
    }


def write_entries(path: str | os.PathLike[str], entries: Sequence[Entry]) -> None:
    """Write entries to a file, sorted by signature, in one step: whoever reads it sees all of it.

    The safe plan of a signature is an entry too. Raises TuningFileError (T0801) where it cannot be written, or would be
    longer than a file that is read.
    """
    ordered = sorted(entries, key=lambda entry: entry.signature.parts)
    data = entries_to_text([_limit_trials(entry) for entry in ordered]).encode()
    if len(data) > MOST_BYTES:
        raise TuningFileError(
            f"{os.fspath(path)} would have {len(data)} bytes, and at most {MOST_BYTES} are read",
            span=None,
            fix="export fewer entries, or leave out trials",
        )
    folder, name = os.path.split(os.path.abspath(path))
    try:
        with open_folder(folder, is_private=False) as descriptor:
            write_file(name, descriptor, [data], is_private=False)
    except OSError as error:
        raise TuningFileError(
            f"{os.fspath(path)} cannot be written: {error.strerror or error}",
            span=None,
            fix="name a file in a folder that exists and that you may write",
        ) from error


def _limit_trials(entry: Entry) -> Entry:
    """The entry with its latest trials, as many as a file may have."""
    return Entry(entry.signature, entry.plan, entry.trials[-MOST_TRIALS:], entry.source, entry.stored)


def read_entries(path: str | os.PathLike[str]) -> list[Entry]:
    """The entries of a file, all of them checked.

    Raises TuningFileError (T0801), which names the file, the entry and the field that is wrong.
    """
    shown = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)  # no more, however long it is
    except OSError as error:
        raise TuningFileError(
            f"{shown} cannot be read: {error.strerror or error}", span=None, fix="name a file that an export wrote"
        ) from error
    return entries_from_text(data, shown)


def export_database(
    database: Database, path: str | os.PathLike[str], *, arch: str | None = None, trials: bool = True
) -> int:
    """Write what a database has to a file: of one arch, or of all; gives the number of entries.

    Shipped profiles are not in it. Without `trials` the file has plans alone. Raises TuningFileError (T0801) where the
    file cannot be written.
    """
    entries = [entry for entry in database.entries() if arch is None or entry.signature.arch == arch]
    if not trials:
        entries = [Entry(entry.signature, entry.plan, (), entry.source, entry.stored) for entry in entries]
    write_entries(path, entries)
    return len(entries)


def import_database(database: Database, path: str | os.PathLike[str]) -> Imported:
    """Keep what a file has: plans with the source `imported`, behind those that were measured here, and all trials.

    Importing a file twice changes nothing the second time. A plan is found by lookups on a machine with the arch, the
    versions and the policy that it was measured with; on one with other versions a search begins with it.

    Raises TuningFileError (T0801) where anything in it is wrong; then nothing is kept.
    """
    entries = read_entries(path)
    # Who wrote the file says that it measured them; here they are what somebody else has measured.
    database.store_all(
        [Entry(entry.signature, entry.plan, entry.trials, "imported", entry.stored) for entry in entries]
    )
    counted = Counter(entry.signature.arch for entry in entries)
    return Imported(len(entries), dict(sorted(counted.items())))
