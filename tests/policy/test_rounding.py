"""Rounding to formats: every code of eight bits, every bf16 as input, and compiled code to the last bit."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import round_to
from tessera.types.dtype import BY_NAME
from tests.policy.tables import decoded, magnitudes, nearest

FLOAT8 = ("f8e4m3", "f8e5m2")


def every_bf16() -> Any:
    """All 65,536 numbers of 16 bits, as f32."""
    return (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)


def same(given: Any, wanted: Any) -> None:
    """Equal to the last bit, the sign of zero included; NaN is NaN."""
    a, b = np.asarray(given).astype(np.float64), np.asarray(wanted).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    kept = ~np.isnan(a)
    np.testing.assert_array_equal(a[kept], b[kept])
    np.testing.assert_array_equal(np.signbit(a[kept]), np.signbit(b[kept]))


@pytest.mark.parametrize("format", FLOAT8)
def test_q8_1_every_code_is_the_number_it_stands_for_and_rounds_to_itself(format: str) -> None:
    wanted = np.array([decoded(format, code) for code in range(256)])
    stored = ts.ops.bitcast(ts.array(np.arange(256, dtype=np.uint8)), BY_NAME[format])
    same(np.asarray(stored), wanted)
    again = ts.jit(lambda x: ops.round_to(x, format))(wanted.astype(np.float32))
    same(np.asarray(again), wanted)
    codes = np.asarray(ops.bitcast(again, ts.u8))
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(codes[numbers], np.arange(256)[numbers])


@pytest.mark.parametrize("saturation", ["", "saturate"])
@pytest.mark.parametrize("rounding", ["nearest_even", "toward_zero"])
@pytest.mark.parametrize("format", FLOAT8)
def test_n3_2_every_number_of_16_bits_is_clamped_or_not_as_said(format: str, rounding: str, saturation: str) -> None:
    x = every_bf16()
    way = {"toward_zero": rounding == "toward_zero", "saturate": saturation == "saturate"}
    wanted = [nearest(format, float(value), **way) for value in x]
    given = ts.jit(lambda x: ops.round_to(x, format, rounding=rounding, saturation=saturation))(x)
    same(np.asarray(given), wanted)


@pytest.mark.parametrize("saturation", ["saturate", "wrap"])
def test_n3_2_integers_are_clamped_or_wrapped_as_said(saturation: str) -> None:
    x = every_bf16()
    given = np.asarray(ts.jit(lambda x: ops.round_to(x, ts.i8, rounding="toward_zero", saturation=saturation))(x))
    whole = [0 if math.isnan(value) else value for value in map(float, x)]
    if saturation == "saturate":
        wanted = [max(-128, min(127, math.trunc(v) if math.isfinite(v) else int(math.copysign(1e9, v)))) for v in whole]
    else:
        wanted = [((math.trunc(v) if math.isfinite(v) else 0) + 128) % 256 - 128 for v in whole]
    np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("scale", [2.0**-6, 0.013, 1.0, 7.5, 1000.0])
@pytest.mark.parametrize("format", FLOAT8)
def test_q8_1_scaled_values_come_back_within_half_a_step(format: str, scale: float) -> None:
    known = magnitudes(format)
    rng = np.random.default_rng(3)
    x = (rng.uniform(-1, 1, 4096) * known[-1] * scale).astype(np.float32)

    @ts.jit(dynamic=True)
    def there_and_back(x: Any, scale: Any) -> Any:
        return ops.dequantize(ops.quantize(x, scale, format), scale)

    given = np.asarray(there_and_back(x, np.float32(scale)))
    shares = np.abs(x / np.float32(scale)).astype(np.float64)
    at = np.clip(np.searchsorted(known, shares), 1, len(known) - 1)
    step = np.array(known)[at] - np.array(known)[at - 1]
    # Half a step of the format, and one rounding of f32 each for the quotient and the product.
    bound = scale * step / 2 + 2 * 2.0**-23 * np.abs(x)
    assert (np.abs(given - x) <= bound).all()


@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.sampled_from(["f8e4m3", "f8e5m2", "f4e2m1"]))
def test_the_reference_agrees_with_the_table(values: list[float], format: str) -> None:
    x = np.array(values, np.float32)
    same(round_to(x, format=format), [nearest(format, float(value), saturate=False) for value in x])


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1), st.sampled_from(["bf16", "tf32", "f16", "f8e4m3"]))
def test_rounding_twice_is_rounding_once(values: list[float], format: str) -> None:
    once = round_to(np.array(values, np.float32), format=format)
    same(round_to(once, format=format), once)


def test_l4_tf32_keeps_ten_bits() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 10000, dtype=np.uint32)
    x = x[(x & 0x7F800000) != 0x7F800000]
    half, odd = np.uint32(0xFFF), (x >> np.uint32(13)) & np.uint32(1)
    wanted = ((x + half + odd) & np.uint32(0xFFFFE000)).view(np.float32)
    given = np.asarray(ts.jit(lambda x: ops.round_to(x, ts.tf32))(x.view(np.float32)))
    same(given, wanted)


def tie_patterns() -> Any:
    """Bits of f32 around every tie of tf32: all ten-bit fractions, a few exponents, subnormals too, and both signs."""
    exponents = np.array([0, 127, 254], np.uint32)[:, None, None, None]
    fractions = np.arange(1 << 10, dtype=np.uint32)[:, None, None]
    rest = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF], np.uint32)[:, None]
    signs = np.array([0, 1], np.uint32)
    return ((signs << 31) | (exponents << 23) | (fractions << 13) | rest).astype(np.uint32).ravel()


def round_exactly(bits: int) -> int:
    """The nearest number with ten fraction bits, of two equally near the one whose last bit is 0; in exact fractions.

    Infinity is as far as the next power of two would be, as IEEE 754 has it.
    """
    sign, low = bits & 0x80000000, bits & 0x7FFFE000
    high = low + 0x2000

    def value(pattern: int) -> Fraction:
        exponent, fraction = pattern >> 23, Fraction(pattern & 0x7FFFFF, 1 << 23)
        return (1 + fraction) * Fraction(2) ** (exponent - 127) if exponent else fraction * Fraction(2) ** -126

    given = value(bits & 0x7FFFFFFF)
    below, above = given - value(low), value(high) - given
    chosen = low if below < above or (below == above and not low >> 13 & 1) else high
    return sign | chosen


@cache
def compute_rounded() -> Any:
    """What each pattern rounds to."""
    return np.array([round_exactly(int(bits)) for bits in tie_patterns()], np.uint32)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_l4_tf32_decides_every_tie_to_even(backend: str) -> None:
    patterns = tie_patterns()
    wanted = compute_rounded()
    ties = (patterns & 0x1FFF) == 0x1000
    up = (wanted & 0x7FFFFFFF) > (patterns & 0x7FFFFFFF)
    assert up[ties].sum() == (~up[ties]).sum() == ties.sum() // 2 == 3 << 10, "ties are decided both ways"
    given = ts.jit(lambda x: ops.round_to(x, ts.tf32), backend=backend)(patterns.view(np.float32))
    np.testing.assert_array_equal(np.asarray(given).view(np.uint32), wanted)


def test_l4_a_dot_in_tf32_rounds_its_operands_at_ties() -> None:
    """Operands that are ties, times the identity, show what was rounded: the sums add zeros alone."""
    patterns = tie_patterns()
    rows = patterns[((patterns >> 23) & 0xFF) == 127][:4096].reshape(-1, 64)
    wanted = np.array([round_exactly(int(bits)) for bits in rows.ravel()], np.uint32).reshape(rows.shape)
    f = ts.jit(lambda x, y: x @ y, policy=ts.compute(ts.tf32))
    given = f(rows.view(np.float32), np.eye(64, dtype=np.float32))
    np.testing.assert_array_equal(np.asarray(given).view(np.uint32), wanted)


@pytest.mark.parametrize("format", ["bf16", "f16", "f8e4m3"])
def test_n3_1_stochastic_rounding_is_unbiased_over_seeds_and_elements_and_repeats(format: str) -> None:
    """The mean over 1e5 seeds, and over 1e5 elements of one seed, is the number within 4 standard errors."""
    count, few = 100_000, np.array([1.3, -0.7, 3.1416, 100.02], np.float32)
    f = ts.jit(lambda x, key: ops.round_to(x, format, rounding="stochastic", key=key).cast(ts.f32))
    keys = np.zeros((count, 2), np.uint64)
    keys[:, 0] = np.arange(count)
    assert np.asarray(ts.random.key(77)).tolist() == keys[77].tolist()
    by_seed = np.array([np.asarray(f(few, key)) for key in keys], np.float64)
    by_element = np.asarray(f(np.repeat(few, count), ts.random.key(5))).astype(np.float64).reshape(len(few), count).T
    for rounded in (by_seed, by_element):
        low, high = rounded.min(axis=0), rounded.max(axis=0)
        assert (low < few).all()
        assert (few < high).all()
        assert all(len(np.unique(column)) == 2 for column in rounded.T)
        share = (few - low) / (high - low)
        sigma = (high - low) * np.sqrt(share * (1 - share) / count)
        assert (np.abs(rounded.mean(axis=0) - few) < 4 * sigma).all()
    again = np.array([np.asarray(f(few, key)) for key in keys[:1000]], np.float64)
    assert again.tobytes() == by_seed[:1000].tobytes()
    assert len(np.unique(by_seed, axis=0)) == 2 ** len(few)


def test_what_is_a_number_of_the_format_is_never_moved_at_random() -> None:
    x = np.array(magnitudes("f8e4m3"), np.float32)
    for seed in range(5):
        given = ops.round_to(x, "f8e4m3", rounding="stochastic", key=ts.random.key(seed))
        same(np.asarray(given), x)


def test_n1_1_denormals_are_flushed_with_their_sign_or_kept() -> None:
    tiny = np.array([1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, -0.0], np.float32)
    flushed = np.asarray(ts.jit(lambda x: ops.round_to(x, ts.f32, denormals="flush"))(tiny))
    same(flushed, np.array([0.0, -0.0, 0.0, 1.1754944e-38, -0.0], np.float32))
    same(np.asarray(ts.jit(lambda x: ops.round_to(x, ts.f32))(tiny)), tiny)
