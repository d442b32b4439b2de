"""Replay: kernels for tensor cores are what they were, down to their LLVM text; moving code must not move them.

The tile kernels are those of the lit tests, so nothing that schedules or traces has a part in it. Hashes are in
`matrix_replay.json`. After a change that is meant to alter code, look at what moved, have it run on a device, and run
`pytest tests/backends/nvptx/test_matrix_replay.py --update`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tessera.backends.nvptx.pipeline import MmaChoices
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tests.backends.nvptx.matrices import text_of
from tests.oracles.nvptx_backend import NvptxBackend

FILE = Path(__file__).with_name("matrix_replay.json")
KERNELS = Path(__file__).parents[2] / "lit" / "nvptx" / "lower_to_hopper.mlir"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sm_80": ("sm_80", {}),
    "sm_90a": ("sm_90a", {}),
    "sm_90a in pairs": ("sm_90a", {"multicast": "always", "epilogue": "after", "lag": 3}),
    "sm_90a by warps": ("sm_90a", {"units": "mma.sync"}),
    "sm_100a": ("sm_100a", {}),
}


def kernels() -> list[SpecOp]:
    """The tile kernels of the lit test."""
    load_dialects()
    modules = [parse_module(part) for part in KERNELS.read_text().split("// -----\n")]
    return [op for module in modules for op in module.ops if isinstance(op, SpecOp)]


def summary(case: str) -> dict[str, str]:
    """The hash of each kernel that tensor cores take, Target IR and LLVM text."""
    machine, choices = CASES[case]
    backend = NvptxBackend(GPUS[machine], MmaChoices(**choices))
    found: dict[str, str] = {}
    for kernel in kernels():
        made = backend.matrix(kernel)
        if made is not None:
            text = text_of(made) + backend.code(made).text
            found[f"{kernel.value('symbol')} {case}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


@pytest.mark.parametrize("case", CASES)
def test_kernels_for_tensor_cores_have_not_moved(case: str, update: bool) -> None:
    found = summary(case)
    kept: dict[str, str] = json.loads(FILE.read_text())
    others = {name: text for name, text in kept.items() if name.split(" ", 1)[1] != case}
    if update:
        kept = {**others, **found}
        FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    assert found
    assert {**others, **found} == kept, "code changed; if it was meant to, have it run on a device and use --update"
