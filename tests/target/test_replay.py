"""Replay: the Target IR of the sample kernels is what it was; a change that only moves code must not move it.

Hashes and lengths are in `replay.json`. After a change that is meant to alter the code, look at what moved and run
`pytest tests/target/test_replay.py --update`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tessera.ir.base.text import print_module
from tests.target.samples import MACHINES, NAMES, lowered

FILE = Path(__file__).with_name("replay.json")


def texts() -> dict[str, str]:
    """The Target IR of every sample on every machine."""
    return {
        f"{name} {machine}": "\n".join(print_module(target) for _, target in lowered(name, MACHINES[machine]))
        for name in NAMES
        for machine in MACHINES
    }


def summary(text: str) -> dict[str, str | int]:
    return {"sha256": hashlib.sha256(text.encode()).hexdigest()[:16], "lines": text.count("\n")}


def test_target_ir_has_not_moved(update: bool) -> None:
    found = {name: summary(text) for name, text in texts().items()}
    if update:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    kept = json.loads(FILE.read_text())
    moved = [name for name in found.keys() | kept.keys() if found.get(name) != kept.get(name)]
    assert not moved, f"the Target IR of {sorted(moved)} changed; if it was meant to, run this test with --update"


def test_lowering_twice_gives_the_same_text() -> None:
    assert texts() == texts()
