"""Every pass of a kernel for a GPU runs in one runner: all have snapshots, in the order of the pages that list them."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.pipeline import MmaChoices, target_passes, tile_passes
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.pipeline import pipeline
from tests.backends.nvptx.matrices import nt

UNITS = {"sm_80": "mma.sync", "sm_90a": "wgmma", "sm_100a": "tcgen05"}
"""What runs a matmul of these sizes on each machine."""


def lowered(machine: str) -> Lowering:
    arrays = [np.zeros((256, 192), ml_dtypes.bfloat16), np.zeros((512, 192), ml_dtypes.bfloat16)]
    tape = ts.jit(nt).trace(*arrays).tape
    return lower(tape, Options.of(backend="cuda", features=(machine,)), keep_snapshots=True)


@pytest.mark.parametrize("machine", UNITS)
def test_every_pass_of_the_lists_has_a_snapshot_in_order(machine: str) -> None:
    snapshots = lowered(machine).stages.snapshots
    choices = MmaChoices()
    for stage, passes in (
        ("tile", [*pipeline(), *tile_passes(GPUS[machine], choices)]),
        ("target", target_passes(GPUS[machine], choices)),
    ):
        names = [one.name for one in snapshots if one.stage == stage]
        assert names == ["input", *(one.name for one in passes)]


@pytest.mark.parametrize(("machine", "unit"), UNITS.items())
def test_what_was_chosen_is_on_the_kernel_as_it_leaves_the_tile_stage(machine: str, unit: str) -> None:
    lowering = lowered(machine)
    (kernel,) = lowering.kernels
    dots = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.dot"]
    assert {dot.value("unit") for dot in dots} == {unit}
    assert [target.value("symbol") for target in lowering.targets] == [f"{kernel.value('symbol')}__matrix"]


def test_a_cpu_compile_loads_nothing_of_the_backend() -> None:
    program = """
import sys
import numpy as np
import tessera as ts
ts.jit(lambda x: ts.ops.softmax(x @ x))(np.ones((8, 8), np.float32))
assert not [name for name in sys.modules if name.startswith("tessera.backends.nvptx.")]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
