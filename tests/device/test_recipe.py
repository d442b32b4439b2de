"""One recipe for all schedules, on the device: dots of a dtype have one result over a space of blocks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.ir.base.arrays import round_to
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.kernel.test_dtypes import DTYPES, product

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(29)
SPACE = [
    *(Schedule(block=block) for block in ((64, 64, 64), (128, 128, 32), (128, 256, 64), (64, 40, 96), (192, 128, 192))),
    *(Schedule(block=(128, 128, 128), stages=stages) for stages in (1, 2)),
    Schedule(block=(128, 64, 256), warps=4),
    Schedule(block=(64, 128, 24), stages=3),
]


def numbers(dtype: Any, *shape: int) -> Any:
    """Numbers of many sizes, so that it shows where sums are rounded."""
    if dtype is np.int8:
        return RNG.integers(-128, 128, shape).astype(np.int8)
    return (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-6, 7, shape)).astype(np.float32).astype(dtype)


def into_f32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32)


def on_gpu(function: Any, *args: Any, **kwargs: Any) -> Any:
    with poisoned(), ts.device(ts.gpu[0]):
        return np.asarray(function(*args, **kwargs))


@pytest.mark.parametrize("name", ["bf16", "f16", "e4m3", "e5m2", "i8"])
def test_all_schedules_of_a_space_give_one_result(name: str) -> None:
    dtype, total, _ = DTYPES[name]
    a, b = numbers(dtype, 300, 1040), numbers(dtype, 264, 1040)
    found = {str(one): on_gpu(product.with_schedule(one), a, b, total=total) for one in SPACE}
    first = found[str(SPACE[0])]
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.linalg.norm(first - exact) <= {"i8": 0.0}.get(name, 2e-3) * np.linalg.norm(exact)
    assert [one for one, made in found.items() if made.tobytes() != first.tobytes()] == []


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_a_dot_of_a_graph_has_the_bits_of_one_that_is_written(dtype: Any) -> None:
    a, b = numbers(dtype, 300, 1040), numbers(dtype, 264, 1040)
    graph = ts.jit(into_f32)
    written = product.with_schedule(Schedule(block=(128, 128, 64)))
    np.testing.assert_array_equal(on_gpu(graph, a, b), on_gpu(written, a, b, total=ts.f32))


def test_dots_of_tf32_have_one_result_over_blocks() -> None:
    a, b = numbers(np.float32, 300, 1040), numbers(np.float32, 264, 1040)
    found = set[bytes]()
    for block in ((64, 64, 64), (128, 256, 64), (128, 128, 64), (192, 192, 64), (64, 64, 128)):
        made = ts.jit(into_f32, policy=ts.compute(ts.tf32), overrides={"contraction.block": block})
        found.add(on_gpu(made, a, b).tobytes())
    assert len(found) == 1


@kernel(Schedule(block=(128, 128, 128)))
def scaled(
    a: KTile["M", "K"], sa: KTile["M", "T", f32], b: KTile["N", "K"], sb: KTile["N", "T", f32]
) -> KTile["M", "N", f32]:
    """A dot of 8-bit floats with a scale for each row and 128 dots."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        part = tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=T.n, cols=k).T)
        acc += part * tile.load(sa, T.m, k.start // 128)[:, None] * tile.load(sb, T.n, k.start // 128)[None, :]
    return acc


def test_scaled_steps_have_one_result_over_rows_columns_and_stages() -> None:
    a, b = (numbers(ml_dtypes.float8_e4m3fn, rows, 1024) for rows in (300, 264))
    sa, sb = (np.exp2(RNG.integers(-3, 4, (rows, 8))).astype(np.float32) for rows in (300, 264))
    space = [Schedule(block=(128, 128, 128)), Schedule(block=(64, 64, 128)), Schedule(block=(64, 128, 128), stages=2)]
    found = {on_gpu(scaled.with_schedule(one), a, sa, b, sb).tobytes() for one in space}
    assert len(found) == 1


def test_copies_round_f32_to_tf32_as_the_recipe_says() -> None:
    """Times the identity: numbers of every kind, ties and denormals too; what is not finite in rows of their own."""
    bits = RNG.integers(0, 2**32, (512, 256), dtype=np.uint64).astype(np.uint32)
    bits[:128] = (bits[:128] & 0xFFFFE000) | 0x1000  # half way between two
    bits[128:136] &= 0x807FFFFF
    bits[(bits >> 23) & 0xFF >= 254] &= 0x80FFFFFF  # one that becomes infinite makes its row NaN
    special = [0x7F800000, 0xFF800000, 0x7F800001, 0x7F801000, 0x7FFFFFFF, 0xFFC00001, 0x7F7FFFFF, 0x7F7FEFFF, 1]
    bits[-len(special) :] = 0
    for at, word in enumerate(special):
        bits[at - len(special), at] = word
    x, one = bits.view(np.float32), np.eye(256, dtype=np.float32)
    made = ts.jit(into_f32, policy=ts.compute(ts.tf32))
    with np.errstate(invalid="ignore"):  # NaN that signal
        found, wanted = on_gpu(made, x, one), round_to(x, format="tf32")
    rows = len(x) - len(special)
    np.testing.assert_array_equal(found[:rows], wanted[:rows])
    for at in range(len(special)):
        np.testing.assert_array_equal(found[rows + at, at], wanted[rows + at, at])


@pytest.mark.parametrize("size", [(300, 264, 1040), (4, 40, 1040), (300, 264, 1041)])
def test_dots_of_tf32_are_those_of_what_was_rounded(size: tuple[int, int, int]) -> None:
    """Of rows that no TMA takes too, which plain multiply-adds round by themselves."""
    m, n, k = size
    a, b = numbers(np.float32, m, k), numbers(np.float32, n, k)
    made = ts.jit(into_f32, policy=ts.compute(ts.tf32))
    rounded = [round_to(one, format="tf32") for one in (a, b)]
    found = on_gpu(made, a, b)
    np.testing.assert_array_equal(found, on_gpu(made, *rounded))
    exact = rounded[0].astype(np.float64) @ rounded[1].astype(np.float64).T
    assert np.linalg.norm(found - exact) <= 1e-5 * np.linalg.norm(exact)
