"""Numbers at the ends of their range: remainders of any quotient, casts that round once, norms of any size."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import Array
from tessera.types.dtype import FORMATS

NARROW = [ts.bf16, ts.f16, ts.f8e5m2, ts.f8e4m3]
BACKENDS = pytest.mark.parametrize("backend", [None, "reference"], ids=["compiled", "reference"])


def run(function: Any, *arrays: Array, backend: str | None = None) -> Array:
    jitted: Any = ts.jit(function, backend=backend) if backend else ts.jit(function)
    return np.asarray(jitted(*arrays))


def spread(rng: np.random.Generator, count: int, low: int, high: int, dtype: Any) -> Array:
    """Numbers of both signs with exponents of two from all of a range."""
    size = np.ldexp(rng.uniform(0.5, 1.0, count), rng.integers(low, high, count))
    return np.asarray(size * rng.choice([-1.0, 1.0], count), dtype)


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.float32, -148, 128), (np.float64, -1073, 1024)])
def test_remainders_are_exact_at_any_quotient(dtype: Any, low: int, high: int) -> None:
    rng = np.random.default_rng(7)
    a, b = (spread(rng, 4000, low, high, dtype) for _ in range(2))
    with np.errstate(over="ignore"):
        near = np.asarray(b * rng.integers(1, 1 << 20, 4000), dtype)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0], dtype)
    a = np.concatenate([a, near[np.isfinite(near)], np.repeat(ends, len(ends))])
    b = np.concatenate([b, b[np.isfinite(near)], np.tile(ends, len(ends))])
    with np.errstate(all="ignore"):
        wanted = np.mod(a, b)
    given = run(lambda a, b: a % b, a, b)
    np.testing.assert_array_equal(given, wanted)
    np.testing.assert_array_equal(np.signbit(given[~np.isnan(given)]), np.signbit(wanted[~np.isnan(wanted)]))
    whole = run(lambda a, b: a // b, a, b)
    np.testing.assert_array_equal(whole, run(lambda a, b: a // b, a, b, backend="reference"))


def test_remainders_of_large_quotients() -> None:
    a, b = np.array([1e10, 1e8, 1.0], np.float32), np.array([-1.5, 0.3, 1e-40], np.float32)
    np.testing.assert_array_equal(run(lambda a, b: a % b, a, b), np.mod(a, b))
    assert run(lambda a, b: a % b, np.array([1e20]), np.array([-1.5])).tolist() == [-0.5]


def nearest(number: Fraction, name: str) -> float:
    """The nearest number of a format, ties to even, by whole numbers alone."""
    kind = FORMATS[name]
    size = abs(number)
    if not size:
        return 0.0
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, 1 - kind.bias)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - kind.mantissa)
    found = round(size / step) * step
    beyond = math.inf if kind.has_infinity else math.nan
    return math.copysign(float(found) if found <= Fraction(kind.largest) else beyond, number)


def near_ties(dtype: Any, rng: np.random.Generator) -> Array:
    """Numbers of a format, the ties between them, and what is just beside those."""
    kind = FORMATS[dtype.name]
    steps = rng.integers(1, 2 << kind.mantissa, 300)
    top = math.frexp(kind.largest)[1]
    steps = np.concatenate([steps, np.full(40, (2 << kind.mantissa) - 1)])
    exponents = np.concatenate([rng.integers(1 - kind.bias, top, 300), np.full(40, top - 1)])
    base = np.ldexp(steps + rng.choice([0.0, 0.5, 0.25], len(steps)), exponents - kind.mantissa)
    base[-20:] = np.ldexp(2.0 ** (kind.mantissa + 1) - 0.5, top - 1 - kind.mantissa)
    moved = base * (1 + rng.choice([0.0, 1.0, -1.0, 2.0**20, -(2.0**20), 2.0**30], len(base)) * 2.0**-52)
    return np.concatenate([moved, -moved, [0.0, 2.0**-1074, 1e300, 3.4e38, 2049.0000001, 65519.9999]])


@BACKENDS
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_doubles_round_once(dtype: Any, backend: str | None) -> None:
    x = near_ties(dtype, np.random.default_rng(11))
    given = run(lambda x: x.cast(dtype), x, backend=backend).astype(np.float64)
    np.testing.assert_array_equal(given, [nearest(Fraction(float(one)), dtype.name) for one in x])
    ends = run(lambda x: x.cast(dtype), np.array([np.inf, -np.inf, np.nan]), backend=backend).astype(np.float64)
    is_open = FORMATS[dtype.name].has_infinity
    np.testing.assert_array_equal(ends, [np.inf, -np.inf, np.nan] if is_open else [np.nan] * 3)


@BACKENDS
@pytest.mark.parametrize("source", [np.int32, np.uint32, np.int64, np.uint64], ids=lambda one: one.__name__)
@pytest.mark.parametrize("dtype", NARROW[:2], ids=str)
def test_integers_round_once(dtype: Any, source: Any, backend: str | None) -> None:
    rng, ends = np.random.default_rng(13), np.iinfo(source)
    width, drop = ends.bits - (ends.min < 0), FORMATS[dtype.name].mantissa + 1
    values: list[int] = [ends.min, ends.max, ends.max - 1, 0, 1, 1 << 24, (1 << 24) + 1]
    for _ in range(300):
        bits = int(rng.integers(drop + 1, width + 1))
        tie = (int(rng.integers(1 << drop - 1, 1 << drop)) << 1 | 1) << (bits - drop - 1)
        value = min(tie + int(rng.integers(-1, 2)), ends.max)
        values.append(-value if ends.min < 0 and rng.integers(2) else value)
    given = run(lambda x: x.cast(dtype), np.array(values, source), backend=backend).astype(np.float64)
    np.testing.assert_array_equal(given, [nearest(Fraction(one), dtype.name) for one in values])


@BACKENDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_norms_of_any_size(dtype: Any, backend: str | None) -> None:
    far = np.finfo(dtype)
    least, top = math.frexp(float(far.smallest_subnormal))[1], far.maxexp - 3
    rows = np.random.default_rng(17).uniform(0.5, 1.0, (64, 37))
    scales = np.concatenate([np.linspace(least + far.nmant + 2, top, 61), [-1.0, 0.0, 1.0]]).astype(int)
    x = np.ldexp(rows, scales[:, None]).astype(dtype)
    given = run(lambda x: ops.norm(x, axis=-1), x, backend=backend)
    shifted = np.linalg.norm(np.ldexp(x.astype(np.longdouble), -scales[:, None]), axis=-1)
    np.testing.assert_allclose(given.astype(np.longdouble), np.ldexp(shifted, scales), rtol=8 * float(far.eps))


@BACKENDS
def test_norms_at_the_corners(backend: str | None) -> None:
    rows = [[3e38, 4e37], [1e-45, 0.0], [0.0, -0.0], [np.inf, 1.0], [np.nan, np.inf], [1e30, 1e-30], [3e-40, 4e-40]]
    given = run(lambda x: ops.norm(x, axis=-1), np.array(rows, np.float32), backend=backend)
    wanted = [math.hypot(*row) for row in np.array(rows, np.float32).astype(float).tolist()]
    wanted[4] = math.nan  # a NaN among the elements is the result
    np.testing.assert_allclose(given, np.array(wanted, np.float32), rtol=1e-6)
