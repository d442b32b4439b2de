"""`tessera.xp` beyond its conformance suite: inside `jit`, with symbolic sizes, derivatives, and what it refuses."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.diagnostics.codes import ArgumentError, DTypeError, RuntimeArgumentError, TracingError


def normalized(x: Any) -> Any:
    """A function that asks its argument for the namespace, as libraries do that are written for the standard."""
    namespace = x.__array_namespace__()
    centred = x - namespace.mean(x, axis=-1, keepdims=True)
    return centred / namespace.std(x, axis=-1, keepdims=True)


def test_a_tensor_names_its_namespace() -> None:
    assert ts.ones((2,)).__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match=r"follows the array API of 2024\.12, not of '2030\.01'"):
        ts.ones((2,)).__array_namespace__(api_version="2030.01")


def test_one_program_serves_all_sizes_inside_jit() -> None:
    function = ts.jit(normalized, dynamic=True)
    for rows in (1, 5):
        x = np.random.default_rng(rows).normal(size=(rows, 7))
        expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        np.testing.assert_allclose(np.asarray(function(x)), expected, rtol=1e-12)
    assert function.cache_info().misses == 1


def test_derivatives_and_batches_go_through() -> None:
    x = ts.array([[1.0, 2.0, 4.0]])
    slopes = ts.grad(lambda x: xp.sum(xp.logaddexp(x, xp.asarray(0.0)) * x))(x)
    value = np.array([[1.0, 2.0, 4.0]])
    expected = np.logaddexp(value, 0) + value / (1 + np.exp(-value))
    np.testing.assert_allclose(np.asarray(slopes), expected, rtol=1e-6)
    batched = ts.vmap(lambda row: xp.cumulative_sum(row, include_initial=True))(x)
    assert batched.tolist() == [[0.0, 1.0, 3.0, 7.0]]


def test_sizes_that_depend_on_values() -> None:
    x = xp.asarray([[0, 3], [3, 0]])
    assert [one.tolist() for one in xp.nonzero(x)] == [[0, 1], [1, 0]]
    assert xp.unique_values(x).tolist() == [0, 3]
    assert ts.jit(lambda x: xp.unique_values(x, size=3))(x).tolist() == [0, 3, 3]
    with pytest.raises(TracingError, match="finds depends on values"):
        ts.jit(lambda x: xp.unique_values(x))(x)


@pytest.mark.parametrize("mask", [True, False])
def test_a_mask_without_axes_picks_all_or_nothing(mask: bool) -> None:
    array = np.arange(6.0).reshape(2, 3)
    found = xp.asarray(array)[xp.asarray(mask)]
    np.testing.assert_array_equal(np.asarray(found), array[np.asarray(mask)])


def test_floor_division_follows_the_standard_where_the_operator_follows_python() -> None:
    inf = float("inf")
    x, y = xp.asarray([inf, -inf, 3.0, -3.0]), xp.asarray([2.0, 2.0, -inf, inf])
    found = np.asarray(xp.floor_divide(x, y))
    np.testing.assert_array_equal(found, [inf, -inf, -0.0, -0.0])
    assert np.signbit(found[2:]).all()
    np.testing.assert_array_equal(np.asarray(x // y), [np.nan, np.nan, -1.0, -1.0])


def test_real_and_complex_operands_of_linear_algebra_meet() -> None:
    a, b = np.array([[2.0, 1j], [0.0, 4.0]]), np.array([[2.0], [8.0]])
    np.testing.assert_allclose(np.asarray(xp.linalg.solve(xp.asarray(a), xp.asarray(b))), np.linalg.solve(a, b))
    np.testing.assert_allclose(np.asarray(xp.linalg.solve(xp.asarray(b[:1]), xp.asarray(a[:1]))), a[:1] / 2.0)
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1j, 0.0, 2.0])
    np.testing.assert_allclose(np.asarray(xp.linalg.outer(xp.asarray(x), xp.asarray(y))), np.outer(x, y))
    np.testing.assert_allclose(np.asarray(xp.linalg.cross(xp.asarray(x), xp.asarray(y))), np.cross(x, y))


def test_what_there_is_not_is_named_and_extensions_are_loaded() -> None:
    with pytest.raises(AttributeError, match=r"`tessera\.xp` has no attribute `einsum`"):
        _ = xp.einsum
    assert sorted(xp.linalg.__all__) == sorted(set(xp.linalg.__all__) & set(dir(xp.linalg)))
    assert len(xp.linalg.__all__) == 23
    found = xp.linalg.eigh(xp.asarray([[2.0, 1j], [-1j, 2.0]]))
    np.testing.assert_allclose(np.asarray(found.eigenvalues), [1.0, 3.0], rtol=1e-6)


def test_complex_dtypes_meet_real_ones() -> None:
    assert xp.complex64 is ts.c64
    assert xp.asarray(1j).dtype is xp.full((2,), 1j).dtype is xp.complex64
    assert xp.result_type(xp.complex64, xp.float64) is xp.complex128
    assert xp.result_type(xp.float32, 1j) is xp.complex64
    assert xp.can_cast(xp.float32, xp.complex64)
    assert not xp.can_cast(xp.complex64, xp.float64)
    assert not xp.can_cast(xp.float64, xp.complex64)
    assert xp.isdtype(xp.complex64, ("complex floating", "bool"))
    assert not xp.isdtype(xp.complex64, "real floating")
    assert xp.finfo(xp.complex64).dtype is xp.float32
    info = xp.__array_namespace_info__()
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert info.default_dtypes()["complex floating"] is xp.complex64


def test_complex_tensors_are_made_and_computed_with() -> None:
    z = xp.linspace(0, 1 + 2j, 3)
    assert z.tolist() == [0, 0.5 + 1j, 1 + 2j]
    assert z.__array_namespace__() is xp
    assert xp.arange(3, dtype=xp.complex128).tolist() == [0, 1, 2]
    assert xp.eye(2, dtype=xp.complex64).tolist() == [[1, 0], [0, 1]]
    assert xp.cumulative_sum(z, include_initial=True).tolist() == [0, 0, 0.5 + 1j, 1.5 + 3j]
    assert xp.unique_values(xp.asarray([1j, 1j, 1.0])).tolist() == [1j, 1]
    assert xp.nonzero(z)[0].tolist() == [1, 2]
    assert xp.mean(z).item() == 0.5 + 1j
    assert [xp.real(z).tolist(), xp.imag(z).tolist()] == [[0, 0.5, 1], [0, 1, 2]]
    assert ts.jit(lambda z: xp.exp(xp.astype(z, xp.complex128)))(z).dtype is xp.complex128
    for function in (xp.sort, xp.max, xp.argmax, xp.floor, xp.var, xp.signbit):
        with pytest.raises(DTypeError):
            function(z)


TRANSFORMS = ["fft", "ifft", "fftn", "ifftn", "rfft", "rfftn", "irfft", "irfftn", "hfft", "ihfft"]


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_those_of_numpy(name: str, norm: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4, 5))
    z = x if name in ("rfft", "rfftn", "ihfft") else x + 1j * rng.normal(size=x.shape)
    options: list[dict[str, Any]] = (
        [{}, {"s": (2, 7), "axes": (0, -1)}] if name.endswith("n") else [{}, {"n": 6, "axis": 1}]
    )
    for given in options:
        found = np.asarray(getattr(xp.fft, name)(xp.asarray(z), norm=norm, **given))
        expected = getattr(np.fft, name)(z, norm=norm, **given)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_frequencies_and_shifts_are_those_of_numpy() -> None:
    for n in (1, 4, 5):
        np.testing.assert_array_equal(np.asarray(xp.fft.fftfreq(n, d=0.1, dtype=xp.float64)), np.fft.fftfreq(n, 0.1))
        np.testing.assert_array_equal(np.asarray(xp.fft.rfftfreq(n, d=0.1, dtype=xp.float64)), np.fft.rfftfreq(n, 0.1))
    z = np.arange(12.0).reshape(3, 4) * 1j
    for axes in (None, 0, (0, 1)):
        found = xp.fft.fftshift(xp.asarray(z), axes=axes)
        np.testing.assert_array_equal(np.asarray(found), np.fft.fftshift(z, axes))
        np.testing.assert_array_equal(np.asarray(xp.fft.ifftshift(found, axes=axes)), z)


def test_wrong_transforms_are_refused() -> None:
    x = xp.ones((2, 4))
    with pytest.raises(DTypeError, match="`irfft` takes complex floating tensors, got f32"):
        xp.fft.irfft(x)
    with pytest.raises(DTypeError, match="`rfft` takes real floating tensors, got c64"):
        xp.fft.rfft(xp.astype(x, xp.complex64))
    with pytest.raises(ArgumentError, match="one length for each axis, got 1 lengths, 2 axes"):
        xp.fft.fftn(x, s=(4,), axes=(0, 1))
    with pytest.raises(ArgumentError, match="`hfft` has the norms backward, ortho, forward, not 'both'"):
        xp.fft.hfft(xp.astype(x, xp.complex64), norm="both")


def test_kinds_that_the_standard_leaves_undefined_are_refused() -> None:
    with pytest.raises(DTypeError, match="`sin` takes floating tensors, got i64"):
        xp.sin(xp.asarray([1]))
    with pytest.raises(DTypeError, match="`finfo` takes a float dtype, got i8"):
        xp.finfo(xp.int8)
    with pytest.raises(DTypeError, match="no dtype holds every value of i64, u64"):
        xp.result_type(xp.int64, xp.uint64)
    with pytest.raises(ArgumentError, match="there is no kind of dtypes 'real'"):
        xp.isdtype(xp.int8, "real")


def test_tensors_stay_on_their_device() -> None:
    x = ts.ones((2,))
    assert x.to_device(x.device) is x
    with pytest.raises(RuntimeArgumentError, match="`to_device` takes no stream, got 7"):
        x.to_device(x.device, stream=7)
    with pytest.raises(ArgumentError, match="makes tensors on `cpu`, not on tpu"):
        xp.zeros((2,), device="tpu")


@pytest.mark.parametrize("correction", [3, 4, 3.5, 4.0, 7])
def test_a_variance_divided_by_nothing_is_nan(correction: float) -> None:
    x = np.array([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]])
    for function in (xp.var, xp.std):
        assert np.isnan(np.asarray(function(xp.asarray(x), axis=1, correction=correction))).all()
    assert np.isfinite(np.asarray(xp.var(xp.asarray(x), correction=5))).all()


def test_a_variance_of_symbolic_sizes_is_nan_where_nothing_is_left() -> None:
    function = ts.jit(lambda x: xp.var(x, correction=3), dynamic=True)
    for count in (2, 3, 5):
        x = np.arange(float(count))
        expected = np.var(x, ddof=3) if count > 3 else np.nan
        np.testing.assert_allclose(np.asarray(function(x)), expected)


@pytest.mark.parametrize("endpoint", [True, False])
def test_even_spaces_are_those_of_numpy(endpoint: bool) -> None:
    ends = [(0, 49), (0.1, 0.1), (-1.3, 2.7), (1e308, -1e307), (0.0, 5e-324), (3, 3), (5, -2)]
    for start, stop in ends:
        for count in (1, 2, 7, 50):
            found = np.asarray(xp.linspace(start, stop, count, dtype=xp.float64, endpoint=endpoint))
            np.testing.assert_array_equal(found, np.linspace(start, stop, count, endpoint=endpoint))
    found = np.asarray(xp.linspace(-1, 1, 4, dtype=xp.int64, endpoint=endpoint))
    np.testing.assert_array_equal(found, np.linspace(-1, 1, 4, dtype=np.int64, endpoint=endpoint))
    wide = np.asarray(xp.linspace(-1.7e308, 1.7e308, 3, dtype=xp.float64))
    assert wide.tolist() == [-1.7e308, 0.0, 1.7e308]
    assert xp.linspace(0, 1, 0).shape == (0,)


def test_nothing_is_tiled_no_times() -> None:
    x = xp.asarray([[1, 2]])
    assert xp.tile(x, 0).shape == xp.tile(x, (0,)).shape == (1, 0)
    assert xp.tile(x, ()).tolist() == [[1, 2]]
    assert xp.tile(x, (0, 1, 2)).shape == (0, 1, 4)


def test_negative_repetitions_are_refused() -> None:
    x = xp.asarray([1, 2])
    assert xp.repeat(x, xp.asarray([0, 2])).tolist() == [2, 2]
    with pytest.raises(ArgumentError, match="`repeat` takes numbers of at least 0, got -1"):
        xp.repeat(x, xp.asarray([-1, 2]))
    with pytest.raises(ArgumentError, match="`repeat` takes numbers of at least 0, got -2"):
        xp.repeat(x, -2)


def test_distinct_elements_of_nothing_fill_no_size() -> None:
    empty = xp.zeros((0, 2))
    assert xp.unique_values(empty).shape == xp.unique_values(empty, size=0).shape == (0,)
    with pytest.raises(
        ArgumentError, match=r"`size=3` distinct elements were asked for of a tensor of the shape \[0, 2\]"
    ):
        xp.unique_values(empty, size=3)


@pytest.mark.parametrize(("start", "stop", "step"), [(2**63, 2**63 + 3, 1), (2**63 + 2, 2**63 - 3, -2), (5, 0, -2)])
def test_ranges_of_large_integers(start: int, stop: int, step: int) -> None:
    assert xp.arange(start, stop, step, dtype=xp.uint64).tolist() == list(range(start, stop, step))


def test_counts_of_large_ranges_are_exact() -> None:
    assert xp.arange(0, 3 * (2**61 + 1), 2**61 + 1).tolist() == list(range(0, 3 * (2**61 + 1), 2**61 + 1))
