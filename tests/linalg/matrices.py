"""Matrices that linear algebra is tried on, and errors in units of what a backward error bound allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array

EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "complex64": 2.0**-23, "complex128": 2.0**-52}


def numbers(*shape: int, seed: int = 0) -> Array:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def complex_numbers(*shape: int, seed: int = 0) -> Array:
    """Normal complex numbers."""
    return numbers(*shape, seed=seed) + 1j * numbers(*shape, seed=seed + 1000)


def hilbert(n: int) -> Array:
    """The matrix of `1 / (i + j + 1)`, whose condition grows as `exp(3.5 n)`."""
    index = np.arange(n)
    return 1.0 / (index[:, None] + index + 1.0)


def graded(n: int) -> Array:
    """A matrix whose rows and columns go over twelve powers of ten."""
    scales = np.logspace(0, -6, n)
    return scales[:, None] * numbers(n, n, seed=7) * scales


def ill_conditioned(n: int) -> Array:
    """A matrix with singular values from 1 to 1e-12."""
    left, _ = np.linalg.qr(numbers(n, n, seed=8))
    right, _ = np.linalg.qr(numbers(n, n, seed=9))
    return (left * np.logspace(0, -12, n)) @ right


def repeated(n: int) -> Array:
    """A matrix with three different singular values, each of them often."""
    left, _ = np.linalg.qr(numbers(n, n, seed=10))
    right, _ = np.linalg.qr(numbers(n, n, seed=11))
    return (left * np.resize([1.0, 2.0, 1e-9], n)) @ right


FAMILIES: dict[str, Callable[[int], Array]] = {
    "random": lambda n: numbers(n, n),
    "hilbert": hilbert,
    "graded": graded,
    "ill conditioned": ill_conditioned,
    "repeated": repeated,
    "rank one": lambda n: np.ones((n, n)),
    "large": lambda n: numbers(n, n) * 1e150,
    "small": lambda n: numbers(n, n) * 1e-150,
}
"""Square matrices by name."""


def adjoint(a: Array) -> Array:
    """The conjugate transpose."""
    return np.conj(np.swapaxes(a, -1, -2))


def error_of(residual: Array, *factors: Array) -> float:
    """The norm of a residual in units of `n eps` times the norms of what was multiplied."""
    sizes = [max(1, *residual.shape[-2:])]
    norms = [float(np.linalg.norm(one)) for one in factors]
    allowed = sizes[0] * EPS[str(factors[0].dtype)] * float(np.prod(norms))
    norm = float(np.linalg.norm(residual))
    return 0.0 if norm == 0 else norm / allowed if allowed else float("inf")


def departure(q: Any) -> float:
    """How far columns are from orthonormal ones, in units of `n eps`."""
    q = np.asarray(q)
    size = max(1, *q.shape[-2:])
    wide = q.astype(np.complex128 if np.iscomplexobj(q) else np.float64)
    gap = adjoint(wide) @ wide - np.eye(q.shape[-1])
    return float(np.abs(gap).max(initial=0.0)) / (size * EPS[str(q.dtype)])


def differences(function: Callable[[Array], float], at: Array, step: float = 1e-6) -> Array:
    """The derivative of a real function by central differences; by both parts of a complex matrix."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        for direction in (1.0, 1.0j) if np.iscomplexobj(at) else (1.0,):
            change = np.zeros_like(at)
            change[place] = step * direction
            found[place] += direction * (function(at + change) - function(at - change)) / (2 * step)
    return found
