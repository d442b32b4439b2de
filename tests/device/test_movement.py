"""Copies to and from shared memory on a GPU: as far ahead as is asked for, whole tiles and ragged ones, and scales."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Schedule
from tessera.backends.nvptx.compile import NvptxCode
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.device.test_matrix import distance, nn, nt, on_gpu, random, wide
from tests.kernel import kernels, test_machine_hints, test_scaled, test_schedule

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(31)
BF16 = np.dtype(ml_dtypes.bfloat16)


def called(made: Any, *args: Any, **kwargs: Any) -> Any:
    """What a kernel gives on the GPU, all its memory full of NaN before."""
    with poisoned(), ts.device(ts.gpu[0]):
        return np.asarray(made(*args, **kwargs))


@pytest.mark.parametrize("size", [(256, 512, 512), (300, 520, 200), (77, 104, 40)])
def test_copies_as_far_ahead_as_a_loop_asks_have_one_result(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random((m, k)), random((k, n))
    found = [called(test_machine_hints.product_ahead, a, b, ahead=ahead) for ahead in (0, 1, 2, None)]
    assert distance(found[0], wide(a) @ wide(b)) <= 1e-6
    assert len({one.tobytes() for one in found}) == 1


def test_one_stage_or_many_have_one_result() -> None:
    a, b = random((300, 520)), random((520, 264))
    ways = [test_schedule.product.with_schedule(Schedule(block=(128, 128, 64), stages=count)) for count in range(1, 7)]
    assert len({called(way, a, b).tobytes() for way in ways}) == 1
    x, w = random((700, 584)), random((904, 584))
    plain = [on_gpu(nt, x, w, overrides={"pipeline.stages": count}) for count in (0, 1, 2, 3, 8)]
    assert distance(plain[0], wide(x) @ wide(w).T) <= 2.0**-8
    assert len({one.tobytes() for one in plain}) == 1


def test_an_attention_with_one_stage_is_right() -> None:
    q, k, v = random((3, 300, 128)), random((3, 333, 128)), random((3, 333, 128))
    for causal in (False, True):
        found = [
            called(kernels.flash.with_schedule(Schedule(block=(128, 128), stages=count)), q, k, v, causal=causal)
            for count in (1, 2)
        ]
        assert distance(found[0], wide(found[1])) <= 4e-3
        assert np.isfinite(wide(found[0])).all()


def texts_of(function: Any, *arrays: Any) -> str:
    """The LLVM text of a program for the GPU, whose copies are unrolled."""
    jitted: Any = ts.jit(function)
    parts = lower(jitted.trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",))).code
    assert isinstance(parts, NvptxCode)
    return "\n".join(code.text for code in parts.codes)


@pytest.mark.parametrize("shape", [(256, 256), (300, 200), (129, 72), (130, 8), (1001, 264)], ids=str)
def test_a_tensor_of_two_dims_goes_through_shared_memory_unchanged(shape: tuple[int, int]) -> None:
    """A dot with the unit matrix moves tiles in and out by the TMA and changes no element."""
    x, unit = random(shape), np.eye(shape[1], dtype=BF16)
    made = on_gpu(nn, x, unit)
    np.testing.assert_array_equal(made.view(np.uint16), np.asarray(ts.cuda.array(x)).view(np.uint16))
    text = texts_of(nn, x, unit)
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in text
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in text


@pytest.mark.parametrize("shape", [(2, 256, 256), (3, 300, 200), (5, 129, 72), (4, 130, 8)], ids=str)
def test_a_tensor_of_three_dims_goes_through_shared_memory_unchanged(shape: tuple[int, int, int]) -> None:
    """Edges of one matrix are not those of the next: none of them reaches into another."""
    x, unit = random(shape), np.broadcast_to(np.eye(shape[2], dtype=BF16), (shape[0], shape[2], shape[2])).copy()
    made = on_gpu(nn, x, unit)
    np.testing.assert_array_equal(made.view(np.uint16), np.asarray(ts.cuda.array(x)).view(np.uint16))
    text = texts_of(nn, x, unit)
    assert "cp.async.bulk.tensor.3d.shared::cluster.global" in text
    assert "cp.async.bulk.tensor.3d.global.shared::cta" in text


def product_near(x: Any, w: Any) -> Any:
    with ts.prefetch(w, into="smem", overlap="compute"):
        return ts.ops.matmul(x, w)


@pytest.mark.parametrize("size", [(512, 512, 512), (300, 520, 200)])
def test_what_is_on_its_way_comes_by_the_copy_engine_and_changes_nothing(size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w = random((m, k)), random((k, n))
    near: Any = ts.jit(product_near, backend="cuda")
    with poisoned():
        found = np.asarray(near(x, w))
    assert found.tobytes() == on_gpu(nn, x, w).tobytes()
    (line,) = near.explain(x, w).report["movements"]
    assert "to shared for matmul" in line
    assert "by the TMA" in line
    assert "cp.async.bulk.tensor.2d.shared::cluster.global" in texts_of(product_near, x, w)


@pytest.mark.parametrize("name", test_scaled.DTYPES)
def test_products_with_a_scale_for_each_tile_are_near_float64(name: str) -> None:
    a, b = test_scaled.sides(name, 512, 384, 1024)
    found = on_gpu(test_scaled.product, a, b)
    assert distance(found, test_scaled.exact(a) @ test_scaled.exact(b).T) <= 3e-4


@pytest.mark.parametrize("name", test_scaled.DTYPES)
def test_quantized_products_are_near_float64(name: str) -> None:
    a, b = test_scaled.sides(name, 256, 384, 512)

    def multiplied(x: Any, w: Any) -> Any:
        return x.dequantize() @ w.dequantize().T

    assert distance(on_gpu(multiplied, a, b), test_scaled.exact(a) @ test_scaled.exact(b).T) <= 1e-6


def test_one_buffer_and_two_of_what_is_prefetched_have_one_result() -> None:
    def multiply(x: Any, w: Any, *, prefetched: bool) -> Any:
        if not prefetched:
            return x @ w
        with ts.prefetch(w, into="smem", overlap="compute"):
            return x @ w

    x, w = random((300, 520)), random((520, 264))
    found = [
        on_gpu(partial(multiply, prefetched=prefetched), x, w, overrides=overrides)
        for prefetched in (False, True)
        for overrides in ({}, {"pipeline.stages": 1})
    ]
    assert distance(found[0], wide(x) @ wide(w)) <= 2.0**-8
    assert len({one.tobytes() for one in found}) == 1
