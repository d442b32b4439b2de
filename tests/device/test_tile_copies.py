"""Dots on tensor cores of a GPU whose rows are of several dims, or whose operands are seen through views."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from examples.transformer import block, random_layer
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.schedule.test_tile_copies import PROGRAMS, step, step_arguments

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]
RNG = np.random.default_rng(31)


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_any_form_are_exact_on_small_numbers(name: str) -> None:
    function, shapes, _ = PROGRAMS[name]
    arrays = [RNG.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    jitted: Any = ts.jit(function, backend="cuda")
    with poisoned():
        found = np.asarray(jitted(*arrays))
    exact: Any = ts.jit(function, backend="reference")
    wanted: Any = exact(*arrays)
    np.testing.assert_array_equal(found.astype(np.float32), np.asarray(wanted).astype(np.float32))


@pytest.mark.parametrize(("batch", "length"), [(2, 128), (3, 77), (1, 200)])
def test_a_block_of_a_transformer_has_all_its_products_on_matrix_units(batch: int, length: int) -> None:
    layer: Any = random_layer(512, RNG)
    narrow = type(layer)(*(np.asarray(part).astype(ml_dtypes.bfloat16) for part in layer))
    x = RNG.standard_normal((batch, length, 512)).astype(ml_dtypes.bfloat16)

    def one(x: Any, p: Any) -> Any:
        return block(x, p, 8)

    jitted = ts.jit(one, backend="cuda")
    with poisoned():
        found = np.asarray(jitted(x, narrow)).astype(np.float64)
    wanted = np.asarray(ts.jit(one, backend="reference")(x, narrow)).astype(np.float64)
    assert np.linalg.norm(found - wanted) <= 5e-3 * np.linalg.norm(wanted)
    assert jitted.lower(x, narrow).target.count("ttarget.matrix_kernel") == 5


def test_one_step_serves_any_number_of_positions() -> None:
    jitted: Any = ts.jit(step, backend="cuda")
    exact: Any = ts.jit(step, backend="reference")
    for sizes in ((2, 7, 33, 3), (1, 130, 300, 170), (3, 1, 64, 63), (2, 1, 4096, 4000)):
        arguments = step_arguments(*sizes)
        with poisoned():
            found, cache = jitted(*arguments)
        wanted, kept = exact(*arguments)
        for mine, other in ((found, wanted), (cache.K, kept.K), (cache.V, kept.V)):
            mine, other = (np.asarray(one).astype(np.float64) for one in (mine, other))
            assert np.linalg.norm(mine - other) <= 5e-3 * np.linalg.norm(other)
        assert int(cache.length) == int(kept.length) == sizes[3] + sizes[1]
    assert jitted.cache_info().misses == 1
