"""The kernel language on a GPU: the sources that run on the CPU, its bits where both promise them, any blocks."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import Schedule, kernel
from tessera.frontend.pytree import as_tuple
from tessera.runtime.devices.cuda.driver import is_available
from tessera.stdlib import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax
from tests.device.poison import poisoned
from tests.kernel import document, kernels, test_dtypes, test_gather, test_pipelines, test_schedule
from tests.kernel.compare import attention
from tests.kernel.test_attention import make_cache
from tests.kernel.test_attention_epilogue import attention_then, subset
from tests.kernel.test_epilogue import STEPS, chained, put_through

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(21)
NARROW = ml_dtypes.bfloat16


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


def numbers(high: int, *shape: int, low: int = 0) -> Any:
    return RNG.integers(low, high, shape).astype(np.int32)


def wide(result: Any) -> Any:
    return np.asarray(result).astype(np.float64)


def on_gpu(made: Any, *args: Any, **kwargs: Any) -> Any:
    """What a kernel gives on the GPU, all its memory full of NaN before."""
    with poisoned(), ts.device(ts.gpu[0]):
        return made(*args, **kwargs)


def equal(made: Any, *args: Any, **kwargs: Any) -> None:
    """The same bits on both machines."""
    here, there = made(*args, **kwargs), on_gpu(made, *args, **kwargs)
    for one, other in zip(as_tuple(here), as_tuple(there), strict=True):
        np.testing.assert_array_equal(np.asarray(other), np.asarray(one))


@pytest.mark.parametrize("name", ["matmul", "softmax", "flash_attention"])
def test_an_example_runs_from_the_same_source(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"examples.{name}").main(where=ts.gpu[0])
    assert "error" in capsys.readouterr().out


@pytest.mark.parametrize("width", [96, 192, 229, 7168])
def test_rows_of_any_width_have_the_bits_of_the_cpu(width: int) -> None:
    equal(kernels.rows, normal(21, width))
    equal(kernels.softmax, normal(21, width))


@pytest.mark.parametrize("block", [(96, 192, 48), (29, 31, 7), (64, 96, 64), (64, 229, 64), (192, 96, 64)], ids=str)
def test_dots_of_any_block_are_right(block: tuple[int, int, int]) -> None:
    schedule = Schedule(block=block)
    equal(kernels.matmul.with_schedule(schedule), normal(70, 90), normal(90, 233))
    a, b = normal(300, 200, dtype=NARROW), normal(200, 520, dtype=NARROW)
    found = wide(on_gpu(test_schedule.product.with_schedule(schedule), a, b))
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.astype(np.float64), rtol=2.0**-7, atol=2.0**-6)


@pytest.mark.parametrize("name", test_dtypes.DTYPES)
def test_matmuls_of_every_dtype_are_near_float64(name: str) -> None:
    dtype, total, _ = test_dtypes.DTYPES[name]
    a, b = test_dtypes.numbers(dtype, 300, 264), test_dtypes.numbers(dtype, 520, 264)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    found = wide(on_gpu(test_dtypes.product, a, b, total=total))
    # Tensor cores keep fewer digits in sums of 8-bit floats.
    allowed = {"f64": 1e-14, "e4m3": 3e-4, "e5m2": 3e-4, "i8": 0.0}.get(name, 1e-6)
    assert np.linalg.norm(found - exact) <= allowed * np.linalg.norm(exact)


def test_one_kernel_under_many_schedules_has_one_result() -> None:
    a, b = normal(300, 512, dtype=NARROW), normal(512, 520, dtype=NARROW)
    space = [Schedule(block=(m, n, 64), stages=s) for m, n in ((64, 128), (128, 128), (128, 256)) for s in (2, 3)]
    found = {np.asarray(on_gpu(test_schedule.product.with_schedule(one), a, b)).tobytes() for one in space}
    assert len(found) == 1


def test_a_tuned_kernel_has_the_bits_of_any_other(tmp_path: Path) -> None:
    a, b = normal(512, 512, dtype=NARROW), normal(512, 512, dtype=NARROW)
    function = test_schedule.product.definition.function
    space = {"BM": [64, 128], "BN": [128, 256], "BK": [64], "stages": [2, 4]}
    tuned = kernel.autotune(space=space, budget_ms=500, cache=str(tmp_path))(function)
    usual = np.asarray(on_gpu(test_schedule.product, a, b))
    np.testing.assert_array_equal(np.asarray(on_gpu(tuned, a, b)), usual)
    assert tuned.tuning is not None
    assert len(tuned.tuning.trials) > 1
    again = kernel.autotune(space=space, cache=str(tmp_path))(function)
    np.testing.assert_array_equal(np.asarray(on_gpu(again, a, b)), usual)
    assert again.tuning is not None
    assert again.tuning.trials == []


def test_tiles_of_numbers_find_and_put() -> None:
    equal(test_gather.embedded, numbers(13, 300, low=-2), normal(11, 200))
    equal(test_gather.picked, normal(300, 40), numbers(40, 300))
    equal(test_gather.scattered, normal(6, 200), np.array([3, 0, 7, -1, 9, 5], np.int32), normal(8))
    equal(test_gather.halves, normal(33, 257), above=0.25)


def test_atomics_of_integers_are_exact() -> None:
    equal(test_gather.counted, numbers(12, 100_001, low=-3), normal(9))
    equal(kernels.column_sums, numbers(9, 700, 24, low=-9))


def test_scans_transposes_and_pipelines() -> None:
    equal(kernels.running, normal(30, 50), exclusive=True, reverse=True)
    equal(kernels.decayed, normal(30, 50))
    equal(kernels.transposed.with_schedule(Schedule(block=(8, 16))), normal(19, 23), scale=2.0)
    for slots in (2, 3):
        equal(test_pipelines.ahead, normal(40, 70), normal(70, 33), slots=slots)
    equal(test_pipelines.two_ahead, normal(20, 100))


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("size", [512, 700])
def test_a_triangle_is_that_of_the_whole(side: str, size: int) -> None:
    a, b = normal(size, 256, dtype=NARROW), normal(256, size, dtype=NARROW)
    base = Schedule(block=(128, 128, 64))
    whole = wide(on_gpu(test_schedule.product.with_schedule(base), a, b))
    half = wide(on_gpu(test_schedule.product.with_schedule(base.triangular_only(side)), a, b))
    np.testing.assert_array_equal(half, np.tril(whole) if side == "lower" else np.triu(whole))


@pytest.mark.parametrize("causal", [False, True])
def test_the_attention_of_the_document_reads_a_cache(causal: bool) -> None:
    q = normal(2, 2, 40, 64, dtype=NARROW)
    k, v = (normal(2, 2, 170, 64, dtype=NARROW) for _ in range(2))
    cache, key = make_cache(200, k, v), ts.random.key(7)
    found = on_gpu(document.small_attention, ts.array(q), cache, dropout=0.0, causal=causal)
    np.testing.assert_allclose(wide(found), attention(q, k, v, causal=causal), atol=8e-3)
    given = {"dropout": 0.25, "causal": causal, "key": key}
    dropped = on_gpu(document.small_attention, ts.array(q), cache, **given)
    np.testing.assert_allclose(wide(dropped), wide(document.small_attention(ts.array(q), cache, **given)), atol=2e-2)


def test_kernels_of_the_library() -> None:
    q, k, v = (normal(2, heads, rows, 128, dtype=NARROW) for heads, rows in ((4, 300), (2, 520), (2, 520)))
    exact = attention(q, k, v, causal=True)
    np.testing.assert_allclose(wide(on_gpu(flash_attention_2, q, k, v, causal=True)), exact, atol=2e-2)
    mine = flash_attention_2.with_schedule(Schedule(block=(64, 64), stages=2))
    np.testing.assert_allclose(wide(on_gpu(mine, q, k, v, causal=True)), exact, atol=2e-2)
    x = normal(3, 70, 1000, dtype=NARROW)
    equal(efficient_layernorm, x, normal(1000), normal(1000))
    equal(stable_softmax, x)
    angles = normal(300, 64)
    equal(rotary_embedding, q, np.cos(angles), np.sin(angles))


@pytest.mark.parametrize("number", [0, 1, 6, 11, 15])
def test_an_epilogue_is_one_launch_and_equals_plain_ops(number: int) -> None:
    steps = frozenset(name for place, name in enumerate(STEPS) if number >> place & 1)
    operands = normal(300, 256, dtype=NARROW), normal(256, 392, dtype=NARROW), normal(392), normal(300, 392)

    @ts.jit(backend="cuda")
    def fused(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        return chained(steps, ts.ops.matmul(x, w, dtype=ts.f32), b, r, key)

    @ts.jit
    def plain(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        return put_through(steps, ts.ops.matmul(x, w, dtype=ts.f32), b, r, key)

    key = ts.random.key(5)
    with poisoned():
        found = wide(fused(*operands, key))
    np.testing.assert_allclose(found, wide(plain(*operands, key)), rtol=1e-3, atol=2e-3)
    assert len(fused.explain(*operands, key).report["kernels"]) == 1


@pytest.mark.parametrize("number", [0, 4, 11, 15])
def test_what_follows_an_attention_in_a_kernel_is_that_of_the_cpu(number: int) -> None:
    """Elements that are dropped are the same ones: both machines draw by the place of each."""
    q, k, v, r = (normal(2, rows, 64, dtype=NARROW) for rows in (300, 333, 333, 300))
    given = {"steps": subset(number), **({"key": ts.random.key(3)} if "dropout" in subset(number) else {})}
    found = wide(on_gpu(attention_then, q, k, v, normal(64) * 0.0 + 0.5, r, **given))
    wanted = wide(attention_then(q, k, v, normal(64) * 0.0 + 0.5, r, **given))
    np.testing.assert_allclose(found, wanted, atol=4e-2)
    assert ((found == 0) == (wanted == 0)).mean() > 0.999


@pytest.mark.parametrize("dtype", [NARROW, np.float16])
@pytest.mark.parametrize(("keys", "head"), [(64, 64), (300, 16), (1000, 64), (257, 128)])
def test_an_a_operand_from_before_a_loop_is_there_in_all_steps(dtype: Any, keys: int, head: int) -> None:
    q, k, v = normal(2, 130, head, dtype=dtype), normal(2, keys, head, dtype=dtype), normal(2, keys, head, dtype=dtype)
    found = wide(on_gpu(kernels.prescaled, q, k, v))
    np.testing.assert_allclose(found, attention(q, k, v), atol=0.03)


@pytest.mark.parametrize("head", [160, 192, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_wide_heads_on_tensor_cores(head: int, causal: bool) -> None:
    q, k, v = (normal(2, length, head, dtype=NARROW) for length in (130, 300, 300))
    np.testing.assert_allclose(
        wide(on_gpu(flash_attention_2, q, k, v, causal=causal)), attention(q, k, v, causal=causal), atol=0.03
    )
