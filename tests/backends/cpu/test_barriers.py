"""Shared memory on CPUs, where a program is one worker: barriers cost nothing, results are those of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.diagnostics.codes import TargetVerifyError
from tests.backends.cpu.native import build, machines
from tests.tile import shared_kernels
from tests.tile.shared_kernels import CASES


@pytest.mark.parametrize("name", [name for name in CASES if name != "product"])
def test_kernels_compute_what_they_say(name: str) -> None:
    case = CASES[name]
    buffers = case.buffers(np.random.default_rng(0), case.sizes)
    for machine in machines():
        *_, out = build(case.make(), machine).run(buffers, case.sizes)
        np.testing.assert_array_equal(out, case.wanted(*buffers[:-1]))


def test_a_barrier_becomes_nothing() -> None:
    kernel = shared_kernels.reversed_blocks()
    (barrier,) = (op for op in kernel.walk() if op.name == "ttile.barrier")
    before = str(lower_kernel(kernel, machines()[0]))
    barrier.detach()
    assert str(lower_kernel(kernel, machines()[0])) == before


def test_dots_of_shared_blocks_are_refused() -> None:
    """Rows go one after the other between two products, so none would see what a later one stores."""
    with pytest.raises(TargetVerifyError, match="has no shared memory on CPUs") as caught:
        lower_kernel(shared_kernels.matmul(), machines()[0])
    assert caught.value.span is not None
