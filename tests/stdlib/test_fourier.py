"""Fourier transforms against those of NumPy in f64: lengths, arguments, derivatives, batches, and what is refused."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.ir.base.arrays import Array
from tessera.stdlib.fourier import error_bound

LENGTHS = [1, 2, 3, 7, 16, 64, 65, 67, 96, 127, 128, 131, 360, 1000, 1009, 4096, 67 * 71]
"""One matmul, one step, several, primes by a chirp, and products of primes that have no short divisor."""
UNIT = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def joined(made: Any) -> Array:
    real, imaginary = (made.real, made.imag) if isinstance(made, ts.ComplexTensor) else made
    return np.asarray(real).astype(np.float64) + 1j * np.asarray(imaginary).astype(np.float64)


def error_of(found: Array, expected: Array, unit: float) -> float:
    """The norm of an error in units of rounding of the norm of what it is one of."""
    norm = np.linalg.norm(expected)
    return float(np.linalg.norm(found - expected) / norm / unit) if norm else float(np.abs(found).max(initial=0))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_length_is_within_its_bound(n: int, dtype: Any) -> None:
    real, imaginary = numbers(2, n).astype(dtype), numbers(2, n, seed=1).astype(dtype)
    z, unit = real + 1j * imaginary.astype(np.float64), UNIT[np.dtype(dtype)]
    assert error_of(joined(ts.ops.fft((real, imaginary))), np.fft.fft(z), unit) <= error_bound(n)
    assert error_of(joined(ts.ops.ifft((real, imaginary))), np.fft.ifft(z), unit) <= error_bound(n) + 2
    found, half = ts.ops.rfft(real), np.fft.rfft(real.astype(np.float64))
    assert found.shape == half.shape
    assert np.asarray(found.imag).dtype == dtype
    # Half of a spectrum may have less than half of its norm.
    whole = np.linalg.norm(np.fft.fft(real.astype(np.float64)))
    assert np.linalg.norm(joined(found) - half) <= error_bound(n) * unit * whole
    back = ts.ops.irfft(found, n)
    assert error_of(np.asarray(back), real.astype(np.float64), unit) <= 2 * error_bound(n) + 2


def test_bounds_grow_with_steps_and_not_with_lengths() -> None:
    assert error_bound(64**3) < 4 * error_bound(64)
    assert error_bound(1009) > error_bound(1024)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize(("n", "axis"), [(None, 1), (5, 1), (12, 0), (100, -1), (1, -2)])
def test_arguments_are_those_of_numpy(n: int | None, axis: int, norm: Any) -> None:
    x, y = numbers(3, 8, 6), numbers(3, 8, 6, seed=1)
    z = x + 1j * y
    for name in ("fft", "ifft"):
        found = joined(getattr(ts.ops, name)((x, y), n, axis, norm))
        np.testing.assert_allclose(found, getattr(np.fft, name)(z, n, axis, norm), rtol=0, atol=1e-13 * 100)
    np.testing.assert_allclose(joined(ts.ops.rfft(x, n, axis, norm)), np.fft.rfft(x, n, axis, norm), rtol=0, atol=1e-11)
    found = np.asarray(ts.ops.irfft((x, y), n, axis, norm))
    np.testing.assert_allclose(found, np.fft.irfft(z, n, axis, norm), rtol=0, atol=1e-11)


def test_narrow_floats_compute_in_f32_and_round_once() -> None:
    x = numbers(4, 100).astype(ml_dtypes.bfloat16)
    y = numbers(4, 100, seed=1).astype(ml_dtypes.bfloat16)
    found = ts.ops.fft((x, y))
    wide = ts.ops.fft((x.astype(np.float32), y.astype(np.float32)))
    for narrow, exact in zip(found, wide, strict=True):
        assert np.asarray(narrow).tobytes() == np.asarray(exact).astype(ml_dtypes.bfloat16).tobytes()
    # There are no narrow complex numbers: of one tensor the transform is not rounded.
    assert ts.ops.fft(x).dtype is ts.c64


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tensors_go_in_and_come_out(dtype: Any) -> None:
    z: Any = (numbers(3, 70) + 1j * numbers(3, 70, seed=1)).astype(dtype)
    for name in ("fft", "ifft"):
        for given in (z, ts.array(z)):
            found = getattr(ts.ops, name)(given, None, 0, "ortho")
            assert found.dtype is (ts.c64 if dtype is np.complex64 else ts.c128)
            parts = getattr(ts.ops, name)((z.real, z.imag), None, 0, "ortho")
            np.testing.assert_array_equal(np.asarray(found), joined(parts).astype(dtype))
    back = np.asarray(ts.ops.irfft(ts.array(z)))
    np.testing.assert_array_equal(back, np.asarray(ts.ops.irfft((z.real, z.imag))))


def test_empty_batches_and_integers() -> None:
    assert ts.ops.fft(np.zeros((0, 5), np.float32)).shape == (0, 5)
    np.testing.assert_allclose(joined(ts.ops.fft(np.arange(4))), np.fft.fft(np.arange(4)), atol=1e-5)


def test_compiled_transforms_are_eager_ones_and_serve_any_batch() -> None:
    @ts.jit
    def spectrum(x: ts.Tensor["B", 90, ts.f32]) -> Any:
        return ts.ops.rfft(x)

    for batch in (1, 3):
        x = numbers(batch, 90).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(spectrum(x)), np.asarray(ts.ops.rfft(x)))
    assert spectrum.cache_info().misses == 1


@pytest.mark.parametrize("n", [12, 67, 100])
def test_the_gradient_is_the_transform_backwards(n: int) -> None:
    """The cotangent of `fft` at real numbers is the real part of the unscaled inverse."""
    x, c, s = numbers(n), numbers(n, seed=1), numbers(n, seed=2)

    def loss(x: Any) -> Any:
        z = ts.ops.fft(x)
        return (z.real * c + z.imag * s).sum()

    found = np.asarray(ts.grad(loss)(x))
    expected = (np.fft.fft(c - 1j * s)).real
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_batches_of_calls_are_calls_of_batches() -> None:
    x = numbers(3, 70).astype(np.float32)
    mapped = ts.vmap(lambda row: ts.ops.irfft(ts.ops.rfft(row), 70))(x)
    np.testing.assert_array_equal(np.asarray(mapped), np.asarray(ts.ops.irfft(ts.ops.rfft(x), 70)))


def test_wrong_calls_are_refused() -> None:
    x = np.ones((2, 8), np.float32)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: ts.ops.fft(x, norm="both"), ArgumentError, "has the norms backward, ortho, forward, not 'both'"),
        (lambda: ts.ops.fft(x, 0), ArgumentError, "takes `n` of at least 1, got 0"),
        (lambda: ts.ops.fft(x, axis=2), ShapeError, "has `axis=2`, and `x` has 2 axes"),
        (lambda: ts.ops.fft((x, x[:1])), ShapeError, r"parts of one shape, got \[2, 8\] and \[1, 8\]"),
        (lambda: ts.ops.rfft((x, x)), ArgumentError, "takes a real tensor, got a pair"),
        (lambda: ts.ops.rfft(x + 1j), ArgumentError, "takes a real tensor, got a complex one"),
        (lambda: ts.ops.irfft(x), ArgumentError, "or the tuple .real, imaginary., got `ndarray`"),
        (lambda: ts.ops.irfft((x[:, :1], x[:, :1])), ArgumentError, "takes `n` of at least 1, got 0"),
    ]
    for call, kind, message in wrong:
        with pytest.raises(kind, match=message):
            call()

    @ts.jit
    def any_length(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.ops.fft(x)

    with pytest.raises(ShapeError, match=r"takes a known length, got `x.shape\[-1\] = N`"):
        any_length(x[0])


@pytest.mark.parametrize("length", [1, 4, 7])
def test_n_is_the_length_where_that_of_the_tensor_is_symbolic(length: int) -> None:
    def first(x: ts.Tensor["N", ts.f64]) -> Any:
        return ts.ops.fft(x, 4), ts.ops.irfft((x, x), 5)

    x = numbers(length)
    spectrum, back = ts.jit(first)(x)
    np.testing.assert_allclose(joined(spectrum), np.fft.fft(x, 4), atol=1e-13)
    np.testing.assert_allclose(np.asarray(back), np.fft.irfft(x + 1j * x, 5), atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 131])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_imaginary_parts_that_mirror_themselves_are_not_read(n: int, value: float) -> None:
    half = n // 2 + 1
    real, imaginary = numbers(half, 3), numbers(half, 3, seed=1)
    unread = [0, half - 1] if n % 2 == 0 else [0]
    imaginary[unread] = 0.0
    expected = np.fft.irfft(real + 1j * imaginary, n, axis=0)
    imaginary[unread] = value
    np.testing.assert_allclose(np.asarray(ts.ops.irfft((real, imaginary), n, 0)), expected, atol=1e-13)
