"""The training script of the examples on a GPU: the losses of the CPU in f32, bf16, checkpoints and a profile."""

from __future__ import annotations

import json
import subprocess
import sys
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

ROOT = Path(__file__).parents[2]
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


DIGEST = """
import hashlib, json, pathlib, shutil, sys
import numpy as np
from examples.gpt2 import main
from tessera import nn

options, is_cut = json.loads(sys.argv[1]), sys.argv[2] == "resumed"
found = main(**options, save_every=10)
if is_cut:  # its last ten steps are lost
    latest = max((pathlib.Path(options["folder"]) / "checkpoints").glob("step-*"), key=lambda one: int(one.name[5:]))
    shutil.rmtree(latest)
    found = main(**options, save_every=10, resume=True)
digest = hashlib.sha256()
for name, leaf in sorted(nn.state_dict(found.state.params).items()):
    digest.update(name.encode() + np.asarray(leaf.cpu()).tobytes())
print(digest.hexdigest(), len(found.losses), found.losses[-1])
"""


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Weights and losses of runs, each in a process of its own, all at the same time."""
    sizes: dict[str, Any] = {**SIZES, "d_model": 256, "sequence": 256, "backend": "cuda", "precision": "bf16"}
    started = dict[str, subprocess.Popen[str]]()
    for name in ("once", "again", "remat", "resumed"):
        options = {**sizes, "folder": str(tmp_path_factory.mktemp(name)), "remat": name == "remat"}
        command = [sys.executable, "-c", DIGEST, json.dumps(options), name]
        started[name] = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
    said = {name: process.communicate() for name, process in started.items()}
    return {
        name: out.splitlines()[-1] if out and not started[name].returncode else err for name, (out, err) in said.items()
    }


@pytest.mark.parametrize("name", ["again", "remat", "resumed"])
def test_weights_have_one_set_of_bits_in_every_process(digests: dict[str, str], name: str) -> None:
    """Trained twice, with rematerialized blocks, and cut off and resumed."""
    assert digests[name] == digests["once"]
