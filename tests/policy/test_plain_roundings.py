"""Roundings that are a cast's own become casts of the same bits; dots under policies then are on tensor cores."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import CodegenError, OverrideError
from tessera.ir.base.arrays import round_to
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.oracles.nvptx_backend import NvptxBackend
from tests.policy.test_bits import bits_of

X = np.zeros((256, 256), np.float32)
HELD = ts.Policy(storage=ts.bf16, saturation="saturate")
BLOCKS = ts.Policy(storage=ts.nvfp4, compute=ts.bf16, accumulate=ts.f32)
UNITS = {"sm_80": "ttarget.warp_kernel", "sm_90a": "ttarget.matrix_kernel", "sm_100a": "ttarget.tensor_kernel"}


def product(a: Any, b: Any) -> Any:
    return a @ b


def lowered(policy: Any, gpu: str, **overrides: Any) -> Any:
    function: Any = ts.jit(product, policy=policy)
    return lower(function.trace(X, X).tape, Options.of(backend="cuda", features=(gpu,), overrides=overrides))


@pytest.mark.parametrize("saturation", ["", "saturate"])
@pytest.mark.parametrize("format", ["bf16", "f16"])
def test_bits_are_those_of_the_rounding(format: str, saturation: Any) -> None:
    """Every upper half of an f32, with ties and their neighbours below it."""
    upper = np.repeat(np.arange(1 << 16, dtype=np.uint32) << 16, 4)
    ends = np.tile(np.array([0, 0x7FFF, 0x8000, 0x8001], np.uint32), 1 << 16)
    ties = np.arange(1 << 16, dtype=np.uint32) * np.uint32(0x1000) + np.uint32(0x38000000)
    x = np.concatenate([upper | ends, ties, ties + np.uint32(1)]).view(np.float32)
    x[np.isnan(x)] = np.nan  # one that warns nobody
    policy = ts.Policy(storage=getattr(ts, format), saturation=saturation)
    function = ts.jit(lambda x: x * 1.0, policy=policy)
    assert "ttile.round" not in function.lower(x).tile
    assert "tgraph.round_to" in function.lower(x).graph
    np.testing.assert_array_equal(bits_of(function(x)), bits_of(round_to(x, format=format, saturation=saturation)))


@pytest.mark.parametrize(
    "policy",
    [
        ts.Policy(storage=ts.bf16, saturation="saturate", denormals="flush"),
        ts.Policy(storage=ts.bf16, rounding="toward_zero"),
        ts.Policy(storage=ts.bf16, rounding="stochastic"),
        ts.Policy(storage=ts.f16, denormals="flush"),
    ],
    ids=str,
)
def test_other_roundings_stay(policy: Any) -> None:
    assert "ttile.round" in ts.jit(product, policy=policy).lower(X, X).tile
    assert lowered(policy, "sm_90a").targets[-1].name == "ttarget.kernel"


def test_a_value_that_is_computed_with_after_its_rounding_keeps_it() -> None:
    function = ts.jit(lambda x: (x * 1.001) + 1.0, policy=ts.Training())
    text = function.lower(X).tile
    assert "ttile.round" in text or text.count("ttile.cast") >= 3
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    first = round_to(x * np.float32(1.001), format="bf16")
    np.testing.assert_array_equal(bits_of(function(x)), bits_of(round_to(first + np.float32(1), format="bf16")))


@pytest.mark.parametrize("gpu", UNITS)
@pytest.mark.parametrize(
    "policy", [ts.Training(), ts.Training(ts.f16), BLOCKS, ts.NVFP4(), ts.Inference(), HELD], ids=str
)
def test_products_under_policies_are_on_matrix_units(gpu: str, policy: Any) -> None:
    assert lowered(policy, gpu).targets[-1].name == UNITS[gpu]


@pytest.mark.parametrize("rows", [16, 64, 256])
def test_inference_is_on_matrix_units_whatever_the_number_of_rows(rows: int) -> None:
    """A weight of 8 bits is computed as bf16 where units multiply it: a row alone has the bits it has."""
    function: Any = ts.jit(product, policy=ts.Inference())
    options = Options.of(backend="cuda", features=("sm_90a",))
    made = lower(function.trace(X[:rows], X).tape, options)
    assert made.targets[-1].name == "ttarget.matrix_kernel"
    sides = [argument.type for argument in made.kernels[-1].regions[0].block.args[:2]]
    assert [str(getattr(side, "dtype", "")) for side in sides] == ["f8e4m3", "bf16"]


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
def test_n2_2_products_of_blocks_sum_in_tensor_memory_of_sm_100a_alone() -> None:
    def ptx(gpu: str) -> bytes:
        return compile_texts(lowered(BLOCKS, gpu).texts, NvptxBackend(GPUS[gpu]).code_target)[-1]

    text = ptx("sm_100a")
    assert b"tcgen05.mma" in text
    assert assemble(text, "sm_100a").startswith(b"\x7fELF")
    with pytest.raises(CodegenError, match=r"not supported on .target 'sm_90a'"):
        assemble(text.replace(b".target sm_100a", b".target sm_90a"), "sm_90a")
    assert b"tcgen05" not in ptx("sm_90a")
    for gpu in ("sm_80", "sm_90a"):
        with pytest.raises(OverrideError, match=r"`matrix.instruction` cannot be tcgen05"):
            lowered(BLOCKS, gpu, **{"matrix.instruction": "tcgen05"})
