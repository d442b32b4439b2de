"""What the processor at hand can do, and whether code made for another one may run on it."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache

# Where Linux and LLVM differ by more than punctuation.
_LINUX_NAMES = {"bmi": "bmi1", "lzcnt": "abm", "sse3": "pni", "crc32": "sse42", "64bit": "lm"}


def _plain(name: str) -> str:
    """`avx512_bf16`, `avx512bf16` and `amx-tile` without what they disagree on."""
    bare = name.removeprefix("+").lower().replace("_", "").replace("-", "").replace(".", "")
    return _LINUX_NAMES.get(bare, bare)


@cache
def host_features() -> frozenset[str] | None:
    """The features of this processor, spelled as `missing_features` compares them; None where nobody says."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            # The first processor speaks for all; the file has a block for each.
            flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    except OSError:
        return None
    return None if flags is None else frozenset(map(_plain, flags))


def missing_features(needed: Iterable[str]) -> list[str]:
    """Which of LLVM's feature names this processor lacks; none where it does not say what it has."""
    host = host_features()
    # `-name` in a feature list means code made without it, which runs anywhere.
    return [] if host is None else [name for name in needed if name[:1] != "-" and _plain(name) not in host]


def is_supported() -> bool:
    """Whether our objects can run here at all."""
    return platform.machine() in ("x86_64", "AMD64") and platform.system() == "Linux"
