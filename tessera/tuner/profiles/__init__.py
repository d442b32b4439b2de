"""Plans that are shipped with the package: files of the exchange format beside this one, one for each machine.

They are written by `tessera.tuner.exchange` from measurements on such a machine, and by nothing else. Their plans serve
until the first measurement on the user's own machine, whatever its driver is: a plan that does not fit there any more
does not compile, and the safe plan takes its place. An arch may be a family, which is a machine's own up to one of its
`-`: a profile of the instruction set `cpu-avx512` serves `cpu-avx512-1a2b`, and one of `cpu` every CPU, where nothing
that is nearer is shipped. `benchmarks/tuned_profile.py` makes them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from tessera.tuner.entry_format import MOST_BYTES, entries_from_text
from tessera.tuner.records import Entry, Signature

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_Key = tuple[str, ...]


def profile_files(folder: str = _FOLDER) -> list[str]:
    """The paths of all profiles, sorted by name."""
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".json"))


def read_profiles(folder: str = _FOLDER) -> dict[_Key, Entry]:
    """The entries of all profiles by their keys without the driver; raises TuningFileError (T0801) for a bad file.

    Where two files, or drivers, have an entry of one key, the later one stands: files in the order of their names.
    """
    found: dict[_Key, Entry] = {}
    for path in profile_files(folder):
        with open(path, "rb") as file:
            entries = entries_from_text(file.read(MOST_BYTES + 1), os.path.basename(path))
        for entry in entries:
            kept = Signature(*entry.signature.parts[:-1])
            found[kept.parts] = Entry(kept, entry.plan, entry.trials, "profile", entry.stored)
    return found


@lru_cache(maxsize=1)
def _load_shipped() -> Mapping[_Key, Entry]:
    return read_profiles()


def shipped_entries(arch: str) -> list[Entry]:
    """The entries of the package's profiles for a machine, or else its family, under the arch of the machine."""
    found = [entry for entry in _load_shipped().values() if entry.signature.arch in _families(arch)]
    return [replace(entry, signature=replace(entry.signature, arch=arch)) for entry in found]


def find_profile(signature: Signature) -> Entry | None:
    """What is shipped for a signature, whatever its driver; under that signature, and without its trials."""
    for arch in _families(signature.arch):
        found = _load_shipped().get(replace(signature, arch=arch, runtime="").parts)
        if found is not None:
            return Entry(signature, found.plan, (), "profile", found.stored)
    return None


def _families(arch: str) -> list[str]:
    """A machine's arch and its families, the nearest first; none of them is empty."""
    parts = arch.split("-")
    return [name for end in range(len(parts), 0, -1) if (name := "-".join(parts[:end]))]


def family_of(arch: str) -> str:
    """The family that a profile measured on a machine is for: its instruction set, or a GPU's architecture.

    >>> family_of("cpu-avx512-1a2b"), family_of("sm_90a")
    ('cpu-avx512', 'sm_90a')
    """
    return "-".join(arch.split("-")[:2])
