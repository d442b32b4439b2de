"""Dots that accumulate in f64 on threads: each operand is converted once, and bits are those of the CPU."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS, contraction_block
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, f32, f64
from tests.oracles.native_threads import run

FORMS = ("nn", "nt", "tn", "tt")


def product(form: str) -> Any:
    def program(x: Any, w: Any) -> Any:
        left = ts.ops.transpose(x) if form[0] == "t" else x
        right = ts.ops.transpose(w) if form[1] == "t" else w
        return ts.ops.matmul(left, right, accumulate=ts.f64)

    return program


def operands(form: str, m: int, n: int, k: int, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(m + n + k)
    shapes = (k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(70, 66, 130), (5, 64, 7)])
def test_bits_are_those_of_the_cpu(form: str, dtype: Any, size: tuple[int, int, int]) -> None:
    stored, wanted = run(product(form), operands(form, *size, dtype))
    np.testing.assert_array_equal(stored, wanted)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_elements_are_converted_before_they_are_shared(form: str, dtype: Any) -> None:
    """Far fewer conversions than multiply-adds: in the loop over K there are none."""
    arrays = [np.broadcast_to(one, one.shape) for one in operands(form, 128, 128, 256, dtype)]
    jitted: Any = ts.jit(product(form))
    tape = jitted.trace(*arrays).tape
    code: Any = lower(tape, Options.of(backend="cuda", features=("sm_90a",))).code
    (text,) = [one.text for one in code.codes]
    adds = [found.start() for found in re.finditer(r"@llvm\.fma\.f64\(", text)]
    widened = [found.start() for found in re.finditer(r"fpext ", text)]
    assert widened
    assert len(widened) < len(adds)
    assert not [at for at in widened if adds[0] < at < adds[-2]]


@pytest.mark.parametrize("dtype", [f32, bf16, f64])
def test_blocks_are_those_of_threads_that_have_doubles(dtype: Any) -> None:
    sizes = {"m": Dim.constant(1619), "n": Dim.constant(71936), "k": Dim.constant(4931)}
    context = {"machine": GPUS["sm_90a"], "dtype": dtype, "accumulator": f64, **sizes}
    assert contraction_block(WGMMA_BLOCKS, context)[:2] == (64, 64)
