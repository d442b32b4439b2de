"""Orthogonal polynomials and windows of signals, against PyTorch in f64, with their derivatives and their ends."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError
from tests.functions.cases import Case, check_case

torch: Any = pytest.importorskip("torch")
ops = ts.ops

FUNCTIONS = (
    ops.chebyshev_polynomial_t, ops.chebyshev_polynomial_u, ops.chebyshev_polynomial_v, ops.chebyshev_polynomial_w,
    ops.shifted_chebyshev_polynomial_t, ops.shifted_chebyshev_polynomial_u, ops.shifted_chebyshev_polynomial_v,
    ops.shifted_chebyshev_polynomial_w, ops.hermite_polynomial_h, ops.hermite_polynomial_he,
    ops.laguerre_polynomial_l, ops.legendre_polynomial_p,
)  # fmt: skip
NAMES = [function.__name__ for function in FUNCTIONS]


def theirs(name: str, n: int) -> Callable[[Any], Any]:
    return lambda x: getattr(torch.special, name)(torch.tensor(x), n).numpy()


def case_of(name: str, n: int) -> Case:
    low = 0.0 if "shifted" in name or "laguerre" in name else -1.0
    return Case(
        f"{name} of degree {n}",
        partial(getattr(ops, name), n=n),
        lambda rng, size: [rng.uniform(low, 1.0, (size, 3))],
        theirs(name, n),
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_polynomial_holds(name: str) -> None:
    check_case(case_of(name, 4), NAMES.index(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_degree_is_that_of_pytorch(name: str) -> None:
    x = np.array([-3.0, -1.0, -0.3, 0.0, 0.7, 1.0, 2.5])
    for n in range(12):
        found = np.asarray(getattr(ops, name)(ts.array(x), n))
        np.testing.assert_allclose(found, theirs(name, n)(x), rtol=1e-9, atol=1e-9, err_msg=f"{n}")
        assert getattr(ops, name)(ts.zeros((0, 2)), n).shape == (0, 2)


def test_degrees_are_numbers_within_bounds() -> None:
    for wrong in (-1, 257):
        with pytest.raises(ArgumentError, match=f"`legendre_polynomial_p` takes `n` from 0 to 256, got {wrong}"):
            ops.legendre_polynomial_p(ts.ones((2,)), wrong)
    np.testing.assert_allclose(np.asarray(ops.legendre_polynomial_p(ts.ones((2,)), 256)), 1.0, rtol=1e-5)
    nan = np.asarray(ops.chebyshev_polynomial_t(ts.array([float("nan"), float("inf")]), 0))
    assert nan.tolist() == [1.0, 1.0]


signal = torch.signal.windows
WINDOWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "hann": (ops.hann_window, signal.hann),
    "hamming": (ops.hamming_window, signal.hamming),
    "blackman": (ops.blackman_window, signal.blackman),
    "nuttall": (ops.nuttall_window, signal.nuttall),
    "bartlett": (ops.bartlett_window, signal.bartlett),
    "gaussian": (partial(ops.gaussian_window, std=3.0), partial(signal.gaussian, std=3.0)),
    "kaiser": (partial(ops.kaiser_window, beta=7.0), partial(signal.kaiser, beta=7.0)),
    "general cosine": (
        partial(ops.general_cosine_window, weights=[0.4, 0.3, 0.2]), partial(signal.general_cosine, a=[0.4, 0.3, 0.2])
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_periodic", [True, False])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_is_that_of_pytorch(name: str, is_periodic: bool) -> None:
    own, other = WINDOWS[name]
    for n in (0, 1, 2, 3, 8, 17):
        found = own(n, periodic=is_periodic, dtype=ts.f64)
        expected = other(n, sym=not is_periodic, dtype=torch.float64).numpy()
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-15)
        np.testing.assert_array_equal(np.asarray(own(n, periodic=is_periodic)), np.asarray(found.cast(ts.f32)))


@pytest.mark.parametrize("name", WINDOWS)
def test_one_program_makes_windows_of_all_sizes(name: str) -> None:
    own = WINDOWS[name][0]
    weigh = ts.jit(lambda x: x * own(x.shape[-1], dtype=ts.f64), dynamic=True)
    for n in (1, 6, 11):
        expected = np.asarray(own(n, dtype=ts.f64))
        np.testing.assert_allclose(np.asarray(weigh(np.ones((2, n))))[1], expected, rtol=1e-14, atol=1e-16)
    assert weigh.cache_info().misses == 1


def test_arguments_of_windows_are_checked() -> None:
    with pytest.raises(ArgumentError, match="`hann_window` takes `n` as a size, got -1"):
        ops.hann_window(-1)
    with pytest.raises(ArgumentError, match="`gaussian_window` takes `std` above 0, got 0"):
        ops.gaussian_window(4, 0.0)
    assert ops.bartlett_window(3, dtype="bf16").dtype is ts.bf16


def test_the_number_of_two_is_that_of_pytorch() -> None:
    nan, inf = float("nan"), float("inf")
    x, y = np.array([nan, 1.0, nan, 3.0, -inf, 0.0]), np.array([2.0, nan, nan, -3.0, nan, -0.0])
    for own, other in ((ops.fmax, torch.fmax), (ops.fmin, torch.fmin)):
        expected = other(torch.tensor(x), torch.tensor(y)).numpy()
        for function in (own, ts.jit(own, dynamic=True), ts.vmap(own)):
            np.testing.assert_array_equal(np.asarray(function(x, y)), expected)
        assert own(ts.array([1, 5]), 3).dtype is ts.i64
    slopes = ts.grad(lambda x, y: ops.fmax(x, y).sum(), (0, 1))(np.array([nan, 1.0, 3.0]), np.array([2.0, nan, 5.0]))
    assert [np.asarray(one).tolist() for one in slopes] == [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]


def test_windows_of_kaiser_are_finite_where_bessel_functions_are_not() -> None:
    found = np.asarray(ops.kaiser_window(5, 1e5, dtype=ts.f64))
    assert found[2:4].max() < 1
    assert np.isfinite(found).all()
    wide = np.asarray(ops.kaiser_window(5, 700.0, periodic=False, dtype=ts.f64))
    np.testing.assert_allclose(wide[2], 1.0)


@pytest.mark.parametrize("weights", [0.5, []])
def test_weights_of_cosines_are_a_list(weights: Any) -> None:
    with pytest.raises(ArgumentError, match="takes `weights` as a list of at least one number, got"):
        ops.general_cosine_window(4, weights)
