"""The selective scan: the recurrence in f64 for any length, its derivatives, and bits that a batch leaves alone."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tests.stdlib.slopes import check_gradients, compare, normal

ROUNDINGS = [(np.float32, 2.0**-18), (np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7)]


def recur(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any = None, z: Any = None) -> Any:
    """Row after row, in f64."""
    x, delta, a, b, c = (np.asarray(one).astype(np.float64) for one in (x, delta, a, b, c))
    state, rows = np.zeros((x.shape[0], x.shape[2], a.shape[1])), list[Any]()
    for t in range(x.shape[1]):
        step = delta[:, t, :, None]
        state = np.exp(step * a) * state + step * x[:, t, :, None] * b[:, t, None, :]
        rows.append((state * c[:, t, None, :]).sum(-1))
    out = np.stack(rows, axis=1) if rows else np.zeros_like(x)
    out = out if d is None else out + np.asarray(d).astype(np.float64) * x
    wide = None if z is None else np.asarray(z).astype(np.float64)
    return out if wide is None else out * wide / (1 + np.exp(-wide))


def operands(batch: int, length: int, channels: int, states: int, dtype: Any = np.float32) -> list[Any]:
    x, delta = normal(batch, length, channels, dtype=dtype), np.abs(normal(batch, length, channels)) * 0.2 + 0.01
    rows = [normal(batch, length, states, dtype=dtype) for _ in range(2)]
    return [x, delta, -np.abs(normal(channels, states)), *rows]


@pytest.mark.parametrize(("dtype", "step"), ROUNDINGS, ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize(("length", "channels", "states"), [(1, 1, 1), (255, 7, 16), (256, 130, 4), (600, 20, 5)])
def test_segments_equal_the_recurrence(dtype: Any, step: float, length: int, channels: int, states: int) -> None:
    given = operands(2, length, channels, states, dtype)
    compare(ts.ops.selective_scan(*given), recur(*given), step)
    d, z = normal(channels), normal(2, length, channels, dtype=dtype)
    compare(ts.ops.selective_scan(*given, d=d, z=z), recur(*given, d=d, z=z), step)


@pytest.mark.parametrize(("length", "channels", "states"), [(260, 5, 4), (20, 130, 20), (9, 3, 40)])
def test_gradients_are_slopes_of_the_recurrence(length: int, channels: int, states: int) -> None:
    given = operands(1, length, channels, states)
    check_gradients(ts.ops.selective_scan, recur, *given, normal(channels), normal(1, length, channels))


def test_gradients_in_narrow_floats_are_near() -> None:
    given = operands(2, 300, 8, 4, ml_dtypes.bfloat16)

    def total(*x: Any) -> Any:
        return ts.ops.cast(ts.ops.selective_scan(*x), ts.f32).sum()

    found = ts.grad(total, argnums=(0, 1, 2, 3, 4))(*given)
    exact = ts.grad(total, argnums=(0, 1, 2, 3, 4))(*(one.astype(np.float32) for one in given))
    for one, other in zip(found, exact, strict=True):
        compare(one, np.asarray(other).astype(np.float64), 2.0**-6)


def test_a_batch_and_other_channels_change_no_bit() -> None:
    x, delta, a, b, c = operands(3, 300, 140, 4)
    whole = np.asarray(ts.ops.selective_scan(x, delta, a, b, c))
    alone = ts.ops.selective_scan(x[1:2, :, :9], delta[1:2, :, :9], a[:9], b[1:2], c[1:2])
    np.testing.assert_array_equal(whole[1:2, :, :9], np.asarray(alone))


def test_one_program_serves_all_lengths() -> None:
    @ts.jit
    def program(
        x: ts.Tensor["B", "L", "D", ts.f32], a: ts.Tensor["D", 3, ts.f32], b: ts.Tensor["B", "L", 3, ts.f32]
    ) -> Any:
        return ts.ops.selective_scan(x, ts.ops.abs(x) * 0.1, a, b, b)

    for length in (5, 256, 300):
        x, _, a, b, _ = operands(1, length, 4, 3)
        compare(program(x, a, b), recur(x, np.abs(x) * 0.1, a, b, b), 2.0**-18)


def test_calls_that_do_not_fit_are_refused() -> None:
    x, delta, a, b, c = operands(2, 5, 4, 3)
    with pytest.raises(ts.TesseraError, match="its `D` is 3, and that of `x` is 4"):
        ts.ops.selective_scan(x, delta, a[:3], b, c)
    with pytest.raises(ts.TesseraError, match=r"takes `b` as .B, L, N., got 2 dims"):
        ts.ops.selective_scan(x, delta, a, b[0], c)
