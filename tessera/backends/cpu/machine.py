"""Which cpu machine this is: its vector features, read from the processor, and what code is generated for it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from tessera.ir.target.llvm.instructions import TargetText
from tessera.types.machine import Machine

_AVX2 = ("avx2", "fma", "f16c", "bmi", "bmi2", "popcnt", "sse4.2", "avx")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_SPELLED = {"sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt"}


def machine_of(features: frozenset[str]) -> Machine:
    """The widest machine whose features are all present."""
    if set(_AVX2) <= features and set(_AVX512) <= features:
        return Machine("x86-64-v4", lanes=16, registers=32, features=(*_AVX2, *_AVX512), cpu="x86-64-v4")
    if set(_AVX2) <= features:
        return Machine("x86-64-v3", lanes=8, registers=16, features=_AVX2, cpu="x86-64-v3")
    return Machine("x86-64", lanes=4, registers=16, features=("sse2",), cpu="x86-64")


@lru_cache(maxsize=1)
def host_features() -> frozenset[str]:
    """The features this processor has, in LLVM's spelling."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    none: list[str] = []
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), none)
    return frozenset(_SPELLED.get(flag, flag) for flag in flags)


def host_machine() -> Machine:
    """This machine."""
    return machine_of(host_features())


def target_text(machine: Machine) -> TargetText:
    """What the text emitters are told."""
    features = ",".join(f"+{feature}" for feature in machine.features)
    return TargetText(machine.lanes, machine.cpu, features)
