"""Matmuls of f32 that threads compute: the bits of the CPU, whatever block, transposes and odd sizes there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_model import PLAIN_BLOCKS
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

FORMS = ("nn", "nt", "tn", "tt")
SIZES = [
    *((300, 264, 200), (47, 501, 333), (130, 61, 2048), (1, 777, 500), (901, 1, 130), (2, 21, 679), (257, 129, 16)),
    (1423, 125, 859),
]


def product(form: str, x: Any, w: Any) -> Any:
    return (x.T if form[0] == "t" else x) @ (w.T if form[1] == "t" else w)


def operands(form: str, size: tuple[int, int, int]) -> list[Any]:
    (m, n, k), rng = size, np.random.default_rng(sum(size))
    shapes = ((k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def on_gpu(form: str, arrays: list[Any], **overrides: Any) -> Any:
    def function(x: Any, w: Any) -> Any:
        return product(form, x, w)

    jitted: Any = ts.jit(function, overrides=overrides)
    with poisoned():
        return np.asarray(jitted(*map(ts.cuda.array, arrays)).cpu())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_threads_have_the_bits_of_the_cpu(form: str, size: tuple[int, int, int]) -> None:
    def function(x: Any, w: Any) -> Any:
        return product(form, x, w)

    arrays = operands(form, size)
    jitted: Any = ts.jit(function)
    assert on_gpu(form, arrays).tobytes() == np.asarray(jitted(*arrays)).tobytes()


@pytest.mark.parametrize("form", ["nt", "tn"])
def test_bits_depend_on_no_block(form: str) -> None:
    arrays = operands(form, (147, 203, 210))
    expected = on_gpu(form, arrays)
    for block in PLAIN_BLOCKS[::7]:
        if min(block[:2]) > 1:
            assert on_gpu(form, arrays, **{"contraction.block": block}).tobytes() == expected.tobytes()
