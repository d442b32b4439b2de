"""Scans, sorts, the first few of rows and scatters on the device: the bits of references, at lengths around blocks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.frontend.pytree import as_tuple
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.graph.eager import reference

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(31)
DTYPES = (np.float32, ml_dtypes.bfloat16, np.float16, np.float64, np.int32, np.int64, np.int16, np.uint8)


def on_gpu(function: Any, *arrays: Any, dynamic: bool = False) -> list[Any]:
    with poisoned(), ts.device(ts.gpu[0]):
        found: Any = ts.jit(function, dynamic=dynamic)(*arrays)
        return [np.asarray(one) for one in as_tuple(found)]


def rows(dtype: Any, *shape: int) -> Any:
    """Many ties; NaN and zeros of both signs among floats."""
    x = RNG.integers(0, 90, shape).astype(np.float32)
    if np.dtype(dtype).kind not in "iu":
        x = x - 40
        x[..., ::7], x[..., ::11] = np.nan, -0.0
    return x.astype(dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_sorts_and_the_first_few(dtype: Any, dynamic: bool) -> None:
    for count in (1, 9, 256, 2047, 4096, 5001, 9001):
        x = rows(dtype, 3, count)
        for descending in (False, True):
            order = reference("argsort", x, descending=descending)
            keep = min(count, 50)

            def find(x: Any, descending: bool = descending, keep: int = keep) -> Any:
                order, values = (sort(x, descending=descending) for sort in (ts.ops.argsort, ts.ops.sort))
                return order, values, ts.ops.topk(x, keep, largest=descending)[1]

            found = on_gpu(find, x, dynamic=dynamic)
            np.testing.assert_array_equal(found[0], order)
            # Which bits a NaN has after a conversion to 16 bits, a machine decides.
            wanted = np.take_along_axis(x, order, 1)
            np.testing.assert_array_equal(found[1].astype(np.float64), wanted.astype(np.float64))
            np.testing.assert_array_equal(found[2], order[:, :keep])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((300, 5), 1), ((40, 200), 1), ((2, 9000), 1), ((300, 4100), 1), ((3, 4500, 21), 1), ((70001,), 0)],
)
def test_scans(shape: tuple[int, ...], axis: int, dynamic: bool) -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int32):
        x = RNG.standard_normal(shape).astype(np.float32).astype(dtype)

        def scan(x: Any) -> Any:
            return ts.ops.cumsum(x, axis=axis)

        (found,) = on_gpu(scan, x, dynamic=dynamic)
        assert found.tobytes() == reference("cumsum", x, axis=axis).tobytes()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("count", "size", "columns"), [(9000, 700, 33), (5000, 3, 600), (300, 5000, 1), (1, 1, 1)])
def test_scatters_add_in_the_order_of_indices(count: int, size: int, columns: int, dynamic: bool) -> None:
    x, updates = (RNG.standard_normal((rows, columns)).astype(np.float32) for rows in (size, count))
    indices = RNG.integers(-size - 2, size + 2, count)
    (found,) = on_gpu(ts.ops.scatter_add, x, indices, updates, dynamic=dynamic)
    assert found.tobytes() == reference("scatter_add", x, indices, updates).tobytes()
