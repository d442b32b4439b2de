"""What only one vendor's GPUs have stays in its backend: no stage of `ir`, and no type, names a generation of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.runtime.devices.cuda import program

ROOT = Path(__file__).parents[2] / "tessera"
GENERATIONS = re.compile(r"hopper|ampere|blackwell|wgmma|tcgen05|sm_\d", re.IGNORECASE)
SPACES = ROOT / "types" / "device.py"
"""Memory spaces are a language's, and each is said to be there with the feature of a machine that has it."""


@pytest.mark.parametrize("package", ["ir", "types"])
def test_no_generation_of_gpus_is_named(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / package).rglob("*.py*"))
        if path.suffix in (".py", ".pyi") and path != SPACES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if GENERATIONS.search(line)
    ]
    assert not found


def test_the_runtime_loads_code_of_the_gpus_that_code_is_made_for() -> None:
    assert tuple(GPUS) == program.ARCHITECTURES
