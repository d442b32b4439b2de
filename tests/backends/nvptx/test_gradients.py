"""Backward programs for NVIDIA: the assembler takes the kernels of gradients of ops, nets and random programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tessera.api.jit import Jit
from tessera.compiler.compile import compile_tape
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tessera.types import dtype as dt
from tests.backends.nvptx.kernels import ptx_in_turns
from tests.device.cases import OPTIONS
from tests.device.gradients import GRADIENTS, SEEDS, random_gradient
from tests.transforms.op_derivatives import OpDerivative, derivatives

OPS = [one for one in derivatives((dt.f32,)) if one.spec.short_name in ("sort", "cumulative", "conv2d", "index_put")]


def assemble_kernels(function: Any, *arguments: Any) -> None:
    """Compile a function for sm_90a, and let the assembler have its kernels where there is one."""
    jitted: Jit = function if isinstance(function, Jit) else Jit(function)
    _, *kernels, _ = compile_tape(jitted.trace(*arguments).tape, OPTIONS).objects
    assemble_all(kernels)


def assemble_all(kernels: Sequence[bytes]) -> None:
    """Let the assembler have some kernels, where there is one."""
    assert kernels
    assert all(b".visible .entry" in ptx for ptx in kernels)
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    for ptx in kernels:
        assemble(ptx, "sm_90a")


@pytest.mark.slow
@pytest.mark.parametrize("one", OPS, ids=lambda one: one.spec.short_name)
def test_derivatives_of_ops_assemble(one: OpDerivative) -> None:
    case, directions = one.case(one.numbers_of_sizes()[-1])
    # All variants of the kernels of ops themselves are in `test_compile.py`.
    assemble_all(ptx_in_turns(one.jitted().trace(*case.given, *directions).tape, turn=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["block", "attention", "branches", "writes", "batch of gradients"])
def test_gradients_of_nets_assemble(name: str) -> None:
    assemble_kernels(GRADIENTS[name].function, *GRADIENTS[name].arrays())


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_gradients_of_random_programs_assemble(seed: int) -> None:
    function, calls = random_gradient(seed)
    assemble_kernels(function, *calls[0])
