"""Reading by index: against NumPy, through the maps the reads lower by, and where an index is outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tessera.ir.tile.facets import Gather
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i32, i64
from tests.graph.eager import (
    RuleDTypeError,
    RuleError,
    Rules,
    infer,
    reference,
    registry,
    run_decomposition,
    tensor,
    type_of,
)


def read(op: str, arrays: list[Array], attributes: dict[str, object]) -> Array:
    """What the maps of a gather read, one element at a time."""
    spec = registry()[op]
    assert isinstance(spec.lower, Gather)
    filled = spec.with_defaults(attributes)
    types = [type_of(array) for array in arrays]
    outs = spec.infer(Rules(), types, filled)
    first, *others = spec.lower.maps(types, outs, filled)
    out = np.zeros([int(dim.value or 0) for dim in outs[0].shape], arrays[0].dtype)
    for place in np.ndindex(*out.shape):
        env = {f"d{axis}": value for axis, value in enumerate(place)}
        for number, (map, index) in enumerate(zip(others, arrays[1:], strict=True)):
            env[f"t{number}"] = int(index[tuple(e.evaluate(env) for e in map)])
        out[place] = arrays[0][tuple(e.evaluate(env) for e in first)]
    return out


@pytest.mark.parametrize("op", ["index_legal", "take_along_legal"])
def test_maps_read_what_the_reference_reads(op: str) -> None:
    for sample in registry()[op].samples:
        arrays = list(sample.make(np.random.default_rng(0)))
        wanted = reference(op, *arrays, **sample.attributes)
        np.testing.assert_array_equal(read(op, arrays, dict(sample.attributes)), wanted, err_msg=sample.name)


def test_legal_indices_read_as_numpy_does() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    a, c = rng.integers(-4, 4, (3, 1)), rng.integers(-6, 6, (7,))
    np.testing.assert_array_equal(run_decomposition("take", x, a, axis=0), np.take(x, a, 0))
    np.testing.assert_array_equal(run_decomposition("index_get", x, a, c, axes=(0, 2), out_axis=0), x[a, :, c])
    np.testing.assert_array_equal(run_decomposition("index_get", x, c, axes=(2,), out_axis=2), x[:, :, c])
    along = rng.integers(-5, 5, (4, 2, 6))
    np.testing.assert_array_equal(
        run_decomposition("take_along_axis", x, along, axis=1), np.take_along_axis(x, along, 1)
    )
    pairs = rng.integers(0, 4, (8, 2))
    np.testing.assert_array_equal(run_decomposition("gather", x, pairs), x[pairs[:, 0], pairs[:, 1]])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_an_index_outside_is_clamped_to_the_nearest_end(dtype: Any) -> None:
    x = np.arange(5, dtype=np.float32)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    signed = low < 0
    indices: Array = np.array([0, 4, 5, high, *([-1, -5, -6, low] if signed else [])], dtype)
    wanted = [0, 4, 4, 4, *([4, 0, 0, 0] if signed else [])]
    np.testing.assert_array_equal(run_decomposition("take", x, indices), wanted)
    np.testing.assert_array_equal(reference("take", x, indices), wanted)


def test_shapes_stay_symbolic_and_an_axis_that_may_be_empty_is_guarded() -> None:
    rules = Rules()
    (out,) = infer("embedding", tensor("V", 64, dtype=f32), tensor("B", "S", dtype=i32), rules=rules)
    assert str(out) == "[B, S, 64] f32"
    assert rules.guards == [(Dim.of("min(V, 1)"), Dim.constant(1))]
    (out,) = infer("take", tensor("B", 7, "D", dtype=f32), tensor("I", "J", dtype=i64), axis=1)
    assert str(out) == "[B, I, J, D] f32"
    (out,) = infer("one_hot", tensor("B", dtype=i32), depth=(Dim.symbol("V"),))
    assert str(out) == "[B, V] f32"


def test_indexing_says_what_is_wrong() -> None:
    x, index = tensor(3, 4, dtype=f32), tensor(5, dtype=i64)
    with pytest.raises(RuleDTypeError, match="integer"):
        infer("take", x, tensor(5, dtype=f32))
    with pytest.raises(RuleError, match="no axis 2"):
        infer("take", x, index, axis=2)
    with pytest.raises(RuleError, match="no elements"):
        infer("take", tensor(0, 4, dtype=f32), index)
    with pytest.raises(RuleError, match="rank 2"):
        infer("take_along_axis", x, index)
    with pytest.raises(RuleError, match="equal sizes"):
        infer("take_along_axis", x, tensor(2, 4, dtype=i64), axis=1)
    with pytest.raises(RuleError, match="one index for each"):
        infer("index_get", x, index, axes=(0, 1))
    with pytest.raises(RuleError, match=r"indices \[..., 1..2\]"):
        infer("gather", x, tensor(5, 3, dtype=i64))
