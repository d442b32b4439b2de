"""Random numbers: Philox against its published vectors, samples by index alone, and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.graph.ops.random import draw_bits, fold_key, keep_mask, philox
from tessera.ir.tile.facets import Pointwise
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bf16, f32, f64, i32, u32, u64
from tests.graph.eager import RuleDTypeError, RuleError, infer, make_key, reference, registry, run_decomposition, tensor

KEY = make_key(42)


def dims(*sizes: int) -> tuple[Dim, ...]:
    return tuple(map(Dim.of, sizes))


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter: Sequence[int], key: Sequence[int], wanted: Sequence[int]) -> None:
    words = philox([np.array(word, np.uint64) for word in counter], [np.array(word, np.uint64) for word in key])
    assert tuple(int(word) for word in words) == tuple(wanted)


class ArrayBuilder:
    """What a block builds with, on arrays."""

    def constant(self, value: float, dtype: DType) -> Array:
        return np.array(value, numpy_dtype(dtype))

    def cast(self, tile: Array, dtype: DType) -> Array:
        return tile.astype(numpy_dtype(dtype))

    def elementwise(self, name: str, *tiles: Array) -> Any:
        assert len({dtype_of(tile) for tile in tiles}) == 1, name
        functions: dict[str, Any] = {
            "mul": np.multiply,
            "add": np.add,
            "xor": np.bitwise_xor,
            "or": np.bitwise_or,
            "shr": np.right_shift,
            "shl": np.left_shift,
        }
        with np.errstate(over="ignore"):
            return np.asarray(functions[name](*tiles))


def test_the_block_of_philox_is_philox() -> None:
    spec = registry()["philox"]
    assert isinstance(spec.lower, Pointwise)
    counter, key, stream = spec.samples[0].make(np.random.default_rng(0))
    out = infer("philox", *(tensor(*x.shape, dtype=u64) for x in (counter, key, stream)))[0]
    block = spec.lower.block(ArrayBuilder(), [counter, key, stream], {}, out)
    np.testing.assert_array_equal(block, draw_bits(counter, key, stream))


def test_an_element_depends_on_its_index_and_not_on_the_shape() -> None:
    flat = reference("random_bits", KEY, shape=dims(24))
    np.testing.assert_array_equal(reference("random_bits", KEY, shape=dims(4, 6)).reshape(-1), flat)
    np.testing.assert_array_equal(reference("random_bits", KEY, shape=dims(10)), flat[:10])


def test_a_key_of_words_is_the_same_key() -> None:
    wide = run_decomposition("random_bits", KEY, shape=dims(9), dtype=u64)
    np.testing.assert_array_equal(run_decomposition("random_bits", KEY.view(np.uint32), shape=dims(9), dtype=u64), wide)


@pytest.mark.parametrize("dtype", [f32, f64, bf16])
def test_uniform_is_bit_exact_and_below_one(dtype: DType) -> None:
    values = reference("uniform", KEY, shape=dims(1 << 16), dtype=dtype)
    np.testing.assert_array_equal(run_decomposition("uniform", KEY, shape=dims(1 << 16), dtype=dtype), values)
    wide = values.astype(np.float64)
    assert wide.min() >= 0
    assert wide.max() < 1
    assert abs(wide.mean() - 0.5) < 4 * np.sqrt(1 / 12 / wide.size) + dtype.epsilon


def test_normal_has_mean_and_deviation() -> None:
    values = reference("normal", KEY, shape=dims(1 << 16), mean=3.0, std=2.0).astype(np.float64)
    assert abs(values.mean() - 3.0) < 4 * 2.0 / np.sqrt(values.size)
    assert abs(values.std() - 2.0) < 0.05
    assert np.isfinite(values).all()


def test_dropout_keeps_its_share_and_scales_it() -> None:
    x = np.ones((256, 256), np.float32)
    out = run_decomposition("dropout", x, KEY, rate=0.25)
    mask = keep_mask(KEY, x.shape, 0.25)
    np.testing.assert_array_equal(out, np.where(mask, np.float32(1 / 0.75), np.float32(0)))
    assert abs(mask.mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / mask.size)


def test_keys_of_branches_differ_and_are_reproducible() -> None:
    keys = [fold_key(KEY, np.array(branch)) for branch in range(4)]
    assert len({key.tobytes() for key in (KEY, *keys)}) == 5
    np.testing.assert_array_equal(run_decomposition("fold_key", KEY, np.array(3)), keys[3])
    np.testing.assert_array_equal(make_key(42, 3), keys[3])
    assert make_key(42, 1, 2).tobytes() != make_key(42, 2, 1).tobytes()


def test_random_ops_say_they_are_random_and_equal_draws_may_become_one() -> None:
    for name in ("philox", "random_bits", "uniform", "normal", "bernoulli", "dropout"):
        assert registry()[name].effects == {"random"}
        assert registry()[name].is_mergeable


def test_random_says_what_is_wrong() -> None:
    with pytest.raises(RuleError, match="needs a key"):
        infer("uniform", tensor(3, dtype=u64), shape=dims(4))
    with pytest.raises(RuleError, match=r"in 0..1, got 1.5"):
        infer("dropout", tensor(4, dtype=f32), tensor(2, dtype=u64), rate=1.5)
    with pytest.raises(RuleDTypeError, match="gives floats"):
        infer("normal", tensor(4, dtype=u32), shape=dims(4), dtype=i32)
