"""The training script of the examples on a GPU: the losses of the CPU in f32, bf16, checkpoints and a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.gpt2 import main
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.tensor import CudaTensor

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

SIZES: dict[str, Any] = {
    "layers": 2, "d_model": 128, "heads": 2, "sequence": 64, "batch": 4, "steps": 20, "learning_rate": 3e-3,
}  # fmt: skip


def test_losses_in_f32_are_those_of_the_cpu(tmp_path: Path) -> None:
    here, there = (main(**SIZES, folder=str(tmp_path / name), backend=name) for name in ("cpu", "cuda"))
    assert isinstance(there.state.params.norm.weight, CudaTensor)
    # The first differs by roundings of sums alone; updates by Adam of gradients near zero enlarge those later.
    np.testing.assert_allclose(there.losses[0], here.losses[0], rtol=1e-5)
    np.testing.assert_allclose(there.losses, here.losses, rtol=0.02)
    np.testing.assert_allclose(there.held_out, here.held_out, rtol=0.02)


def test_a_gpt_trains_in_bf16_and_continues_from_its_checkpoint(tmp_path: Path) -> None:
    options: dict[str, Any] = {**SIZES, "folder": str(tmp_path), "backend": "cuda", "precision": "bf16"}
    found = main(**options, save_every=10)
    assert found.losses[-1] < found.losses[0] - 0.5
    options["steps"] = 24
    longer = main(**options, resume=True, profile=True)
    assert longer.losses[:20] == found.losses
    assert len(longer.losses) == 24
    assert (tmp_path / "report.html").stat().st_size > 10_000
