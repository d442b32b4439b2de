"""Orthogonal polynomials by their recurrences: Chebyshev's of four kinds, Hermite's of two, Laguerre's and Legendre's.

The polynomial of degree `n` is made from the two below it, in the dtype of computation and rounded once. A degree is a
number: a program has one step for each, and each step has a derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_int
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.creation import ones_like
from tessera.frontend.functions.special import compute_wide

_HIGHEST = 256
"""The highest degree: all steps below it are in a program."""
_Step = Callable[[Any, int, Any, Any], Any]
"""The polynomial of degree k + 1 at `x`, from k, that of degree k and that below it."""


def _line(x: Any, slope: float, at_zero: float) -> Any:
    scaled = x if slope == 1.0 else e.mul(x, slope)
    return scaled if at_zero == 0.0 else e.add(scaled, at_zero)


def _compute(name: str, x: Any, n: int, first: tuple[float, float], step: _Step) -> Any:
    """The polynomial of degree `n`; that of degree 1 is a line, given by its slope and its value at 0."""
    degree = check_int(name, "n", n)
    if not 0 <= degree <= _HIGHEST:
        raise ArgumentError(f"`{name}` takes `n` from 0 to {_HIGHEST}, got {degree}", fix="write `n=2`")

    def evaluate(x: Any) -> Any:
        below, made = ones_like(x), _line(x, *first)
        for k in range(1, degree):
            below, made = made, step(x, k, made, below)
        return made if degree else below

    return compute_wide(name, (x,), evaluate)


def _double(x: Any, k: int, made: Any, below: Any) -> Any:
    """Chebyshev's step, whatever the kind: `2 x P - Q`."""
    return e.sub(e.mul(e.mul(x, 2.0), made), below)


def _shift(x: Any) -> Any:
    """0..1 as -1..1."""
    return compute_wide("shift", (x,), lambda a: e.sub(e.mul(a, 2.0), 1.0))


def chebyshev_polynomial_t(x: Any, n: int) -> Any:
    """Chebyshev's polynomial of the first kind, of degree `n`: `cos(n acos(x))` for `x` in -1..1.

    >>> ts.ops.chebyshev_polynomial_t(ts.array([0.5, 2.0]), 2)
    Tensor([2] f32, [-0.5, 7])
    """
    return _compute("chebyshev_polynomial_t", x, n, (1.0, 0.0), _double)


def chebyshev_polynomial_u(x: Any, n: int) -> Any:
    """Chebyshev's polynomial of the second kind, of degree `n`: `sin((n + 1) a) / sin(a)` for `a = acos(x)`."""
    return _compute("chebyshev_polynomial_u", x, n, (2.0, 0.0), _double)


def chebyshev_polynomial_v(x: Any, n: int) -> Any:
    """Chebyshev's polynomial of the third kind, of degree `n`: `cos((n + 1/2) a) / cos(a / 2)` for `a = acos(x)`."""
    return _compute("chebyshev_polynomial_v", x, n, (2.0, -1.0), _double)


def chebyshev_polynomial_w(x: Any, n: int) -> Any:
    """Chebyshev's polynomial of the fourth kind, of degree `n`: `sin((n + 1/2) a) / sin(a / 2)` for `a = acos(x)`."""
    return _compute("chebyshev_polynomial_w", x, n, (2.0, 1.0), _double)


def shifted_chebyshev_polynomial_t(x: Any, n: int) -> Any:
    """`chebyshev_polynomial_t` at `2 x - 1`, for `x` in 0..1."""
    return compute_wide("shifted_chebyshev_polynomial_t", (x,), lambda a: chebyshev_polynomial_t(_shift(a), n))


def shifted_chebyshev_polynomial_u(x: Any, n: int) -> Any:
    """`chebyshev_polynomial_u` at `2 x - 1`, for `x` in 0..1."""
    return compute_wide("shifted_chebyshev_polynomial_u", (x,), lambda a: chebyshev_polynomial_u(_shift(a), n))


def shifted_chebyshev_polynomial_v(x: Any, n: int) -> Any:
    """`chebyshev_polynomial_v` at `2 x - 1`, for `x` in 0..1."""
    return compute_wide("shifted_chebyshev_polynomial_v", (x,), lambda a: chebyshev_polynomial_v(_shift(a), n))


def shifted_chebyshev_polynomial_w(x: Any, n: int) -> Any:
    """`chebyshev_polynomial_w` at `2 x - 1`, for `x` in 0..1."""
    return compute_wide("shifted_chebyshev_polynomial_w", (x,), lambda a: chebyshev_polynomial_w(_shift(a), n))


def hermite_polynomial_h(x: Any, n: int) -> Any:
    """Hermite's polynomial of degree `n` as physicists have it, orthogonal under `exp(-x**2)`.

    >>> ts.ops.hermite_polynomial_h(ts.array([0.5, 2.0]), 2)
    Tensor([2] f32, [-1, 14])
    """

    def step(x: Any, k: int, made: Any, below: Any) -> Any:
        return e.sub(e.mul(e.mul(x, 2.0), made), e.mul(below, 2.0 * k))

    return _compute("hermite_polynomial_h", x, n, (2.0, 0.0), step)


def hermite_polynomial_he(x: Any, n: int) -> Any:
    """Hermite's polynomial of degree `n` as statisticians have it, orthogonal under `exp(-x**2 / 2)`."""

    def step(x: Any, k: int, made: Any, below: Any) -> Any:
        return e.sub(e.mul(x, made), e.mul(below, float(k)))

    return _compute("hermite_polynomial_he", x, n, (1.0, 0.0), step)


def laguerre_polynomial_l(x: Any, n: int) -> Any:
    """Laguerre's polynomial of degree `n`, orthogonal under `exp(-x)` from 0 up.

    >>> ts.ops.laguerre_polynomial_l(ts.array([0.0, 2.0]), 2)
    Tensor([2] f32, [1, -1])
    """

    def step(x: Any, k: int, made: Any, below: Any) -> Any:
        return e.div(e.sub(e.mul(_line(x, -1.0, 2.0 * k + 1.0), made), e.mul(below, float(k))), k + 1.0)

    return _compute("laguerre_polynomial_l", x, n, (-1.0, 1.0), step)


def legendre_polynomial_p(x: Any, n: int) -> Any:
    """Legendre's polynomial of degree `n`, orthogonal in -1..1.

    >>> ts.ops.legendre_polynomial_p(ts.array([0.0, 1.0]), 2)
    Tensor([2] f32, [-0.5, 1])
    """

    def step(x: Any, k: int, made: Any, below: Any) -> Any:
        return e.div(e.sub(e.mul(e.mul(x, 2.0 * k + 1.0), made), e.mul(below, float(k))), k + 1.0)

    return _compute("legendre_polynomial_p", x, n, (1.0, 0.0), step)


__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip
