"""Special functions by series and by the normal distribution function: Bessel, zeta, polygamma, tails of `erf`.

All compute in f64 whatever they take, and round once. Branches are chosen by `where` on operands that are safe in both,
so that derivatives by composition are finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_int, check_repeats
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.special import compute_wide, digamma, erfinv, lgamma
from tessera.types.dtype import f64

_INF = float("inf")


def _evaluate_polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """A polynomial from its highest coefficient down."""
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = e.add(e.mul(x, total), coefficient)
    return total


# The normal distribution.


def ndtr(x: Any) -> Any:
    """The distribution function of the normal distribution.

    >>> ts.ops.ndtr(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0.5, 0.841345])
    """
    return compute_wide("ndtr", (x,), lambda a: e.mul(e.erfc(e.mul(a, -math.sqrt(0.5))), 0.5), f64)


_FAR = 10.0
"""From here on the series of `erfcx` in `1 / x**2` has all digits of f64 in 14 terms."""
_TAIL = tuple(math.prod(range(1, 2 * k, 2)) * (-0.5) ** k for k in range(14, -1, -1))


def _scaled_tail(x: Any) -> Any:
    """`exp(x**2) * erfc(x)`, of operands in f64."""
    is_far = e.gt(x, _FAR)
    near, far = e.where(is_far, 0.0, x), e.where(is_far, x, _FAR)
    inverse = e.div(1.0, far)
    tail = e.mul(e.mul(_evaluate_polynomial(_TAIL, e.mul(inverse, inverse)), inverse), 1.0 / math.sqrt(math.pi))
    return e.where(is_far, tail, e.mul(e.exp(e.mul(near, near)), e.erfc(near)))


def erfcx(x: Any) -> Any:
    """`exp(x**2) * erfc(x)`, where either factor alone is out of range.

    >>> ts.ops.erfcx(ts.array([0.0, 100.0]))
    Tensor([2] f32, [1, 0.00564161])
    """
    return compute_wide("erfcx", (x,), _scaled_tail, f64)


def _log_ndtr(x: Any) -> Any:
    is_low = e.lt(x, -1.0)
    low, high = e.where(is_low, x, -1.0), e.where(is_low, 0.0, x)
    tail = e.log(e.mul(_scaled_tail(e.mul(low, -math.sqrt(0.5))), 0.5))
    middle = e.log1p(e.mul(e.erfc(e.mul(high, math.sqrt(0.5))), -0.5))
    return e.where(is_low, e.sub(tail, e.mul(e.mul(low, low), 0.5)), middle)


def log_ndtr(x: Any) -> Any:
    """The logarithm of `ndtr`, far in both tails too.

    >>> ts.ops.log_ndtr(ts.array([-100.0, 0.0]))
    Tensor([2] f32, [-5005.52, -0.693147])
    """
    return compute_wide("log_ndtr", (x,), _log_ndtr, f64)


def ndtri(p: Any) -> Any:
    """The inverse of `ndtr`: the number below which a share `p` of the normal distribution lies.

    Infinite at 0 and 1, and NaN beyond.

    >>> ts.ops.ndtri(ts.array([0.5, 0.975]))
    Tensor([2] f32, [0, 1.95996])
    """

    def inverse(p: Any) -> Any:
        is_inside = e.logical_and(e.gt(p, 0.0), e.lt(p, 1.0))
        safe = e.where(is_inside, p, 0.5)
        is_high = e.gt(safe, 0.5)
        logarithm = e.log(e.where(is_high, e.sub(1.0, safe), safe))
        # Newton's method on a concave logarithm from below comes to the root from there, and never passes it.
        x = e.neg(e.sqrt(e.mul(logarithm, -2.0)))
        for _ in range(6):
            # The density over the distribution function is the slope.
            slope = e.div(math.sqrt(2.0 / math.pi), _scaled_tail(e.mul(x, -math.sqrt(0.5))))
            x = e.sub(x, e.div(e.sub(_log_ndtr(x), logarithm), slope))
        # Around a half `2p - 1` is exact, and its distance from 0 has all digits.
        middle = e.sub(e.mul(safe, 2.0), 1.0)
        is_middle = e.lt(e.abs(middle), 0.5)
        near = e.mul(erfinv(e.where(is_middle, middle, 0.0)), math.sqrt(2.0))
        found = e.where(is_middle, near, e.where(is_high, e.neg(x), x))
        edge = e.where(e.eq(p, 0.0), -_INF, e.where(e.eq(p, 1.0), _INF, float("nan")))
        return e.where(is_inside, found, edge)

    return compute_wide("ndtri", (p,), inverse, f64)


# Logarithms with a factor.


def entr(x: Any) -> Any:
    """`-x * log(x)`, the part of a probability in entropy: 0 at 0, and -inf below.

    >>> ts.ops.entr(ts.array([0.0, 0.5]))
    Tensor([2] f32, [0, 0.346574])
    """

    def entropy(x: Any) -> Any:
        is_positive = e.gt(x, 0.0)
        made = e.neg(e.mul(x, e.log(e.where(is_positive, x, 1.0))))
        return e.where(e.logical_or(is_positive, e.isnan(x)), made, e.where(e.eq(x, 0.0), 0.0, -_INF))

    return compute_wide("entr", (x,), entropy)


def xlog1py(x: Any, y: Any) -> Any:
    """`x * log(1 + y)`, and 0 where `x` is 0, whatever number `y` is; NaN stays.

    >>> ts.ops.xlog1py(ts.array([0.0, 2.0]), ts.array([-1.0, 0.0]))
    Tensor([2] f32, [0, 0])
    """

    def product(x: Any, y: Any) -> Any:
        has_none = e.logical_or(e.le(y, -1.0), e.eq(y, _INF))
        is_void = e.logical_and(e.eq(x, 0.0), has_none)
        made = e.mul(x, e.log1p(e.where(is_void, 0.0, y)))
        return e.where(is_void, 0.0, e.add(made, 0.0))  # -0.0 and 0.0 are 0.0

    return compute_wide("xlog1py", (x, y), product)


# Bessel functions.

_LARGE = 30.0
"""From here on 24 terms of the series in `1 / x` have all digits of f64; below, 64 of that in `x**2`."""


def _power_series(order: int) -> tuple[float, ...]:
    return tuple(float(Fraction(1, math.factorial(k) * math.factorial(k + order))) for k in range(64, -1, -1))


def _inverse_series(order: int) -> tuple[float, ...]:
    """Coefficients of powers of `1 / x` in `I(x) * exp(-x) * sqrt(2 pi x)`."""
    terms = [1.0]
    for k in range(1, 25):
        terms.append(-terms[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8.0 * k))
    return tuple(reversed(terms))


_BESSEL = {order: (_power_series(order), _inverse_series(order)) for order in (0, 1)}


def _bessel(x: Any, order: int, *, scaled: bool) -> Any:
    """The modified Bessel function of the first kind, or that times `exp(-|x|)`."""
    powers, inverses = _BESSEL[order]
    size = e.where(e.lt(x, 0.0), e.neg(x), x)
    is_large = e.gt(size, _LARGE)
    near, far = e.where(is_large, 0.0, x), e.where(is_large, size, _LARGE)
    small = _evaluate_polynomial(powers, e.mul(e.mul(near, near), 0.25))
    small = e.mul(small, e.mul(near, 0.5)) if order else small
    if scaled:
        # At 0 the slope of `|x|` counts as 0.
        small = e.mul(small, e.exp(e.where(e.lt(near, 0.0), near, e.where(e.gt(near, 0.0), e.neg(near), 0.0))))
    if not scaled:
        far = e.where(e.lt(far, 1e4), far, 1e4)  # beyond it is infinite, and so the same
    large = e.mul(_evaluate_polynomial(inverses, e.div(1.0, far)), e.rsqrt(e.mul(far, 2.0 * math.pi)))
    if not scaled:
        # Two factors: their product may be in range where the exponential is not.
        half = e.exp(e.mul(far, 0.5))
        large = e.mul(e.mul(large, half), half)
    return e.where(is_large, e.where(e.lt(x, 0.0), e.neg(large), large) if order else large, small)


def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 0.

    >>> ts.ops.i0(ts.array([0.0, 1.0]))
    Tensor([2] f32, [1, 1.26607])
    """
    return compute_wide("i0", (x,), lambda a: _bessel(a, 0, scaled=False), f64)


def i0e(x: Any) -> Any:
    """`i0(x) * exp(-|x|)`, which does not overflow."""
    return compute_wide("i0e", (x,), lambda a: _bessel(a, 0, scaled=True), f64)


def i1(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 1.

    >>> ts.ops.i1(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0, 0.565159])
    """
    return compute_wide("i1", (x,), lambda a: _bessel(a, 1, scaled=False), f64)


def i1e(x: Any) -> Any:
    """`i1(x) * exp(-|x|)`, which does not overflow."""
    return compute_wide("i1e", (x,), lambda a: _bessel(a, 1, scaled=True), f64)


# Zeta, and derivatives of the gamma function.

_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330, 854513 / 138,
    -236364091 / 2730,
)  # fmt: skip
"""Bernoulli numbers of even index from 2 up."""
_SHIFT = 12
"""How many terms are added one by one, before the rest is an integral with corrections (Euler and Maclaurin)."""


def _zeta(x: Any, q: Any) -> Any:
    """The sum of `(q + k)**-x`, of operands in f64 with `x` above 1 and `q` above 0."""
    total: Any = 0.0
    for step in range(_SHIFT):
        total = e.add(total, e.pow(e.add(q, step), e.neg(x)))
    # From 400 on the rest is nothing beside the first term, or that is nothing itself.
    base, x = e.add(q, _SHIFT), e.minimum(x, 400.0)
    whole = e.pow(base, e.sub(1.0, x))  # in range where `base**-x` may not be
    power = e.div(whole, base)
    total = e.add(total, e.add(e.div(whole, e.sub(x, 1.0)), e.mul(power, 0.5)))
    factor, square = e.div(e.mul(power, x), base), e.mul(base, base)
    for number, bernoulli in enumerate(_BERNOULLI, 1):
        total = e.add(total, e.mul(factor, bernoulli / math.factorial(2 * number)))
        step = e.mul(e.add(x, 2 * number - 1), e.add(x, 2 * number))
        factor = e.div(e.mul(factor, step), square)
    return total


def zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function: the sum of `(q + k)**-x` over all `k` from 0, for `x` above 1 and `q` above 0.

    Infinite for an `x` of 1 and a `q` of 0, and NaN below; Riemann's has a `q` of 1.

    >>> ts.ops.zeta(ts.array([2.0]), 1.0)
    Tensor([1] f32, [1.64493])
    """

    def add_up(x: Any, q: Any) -> Any:
        is_legal = e.logical_and(e.gt(x, 1.0), e.gt(q, 0.0))
        found = _zeta(e.where(is_legal, x, 2.0), e.where(is_legal, q, 1.0))
        is_pole = e.logical_and(e.ge(x, 1.0), e.ge(q, 0.0))
        is_missing = e.logical_or(e.isnan(x), e.isnan(q))
        return e.where(is_legal, found, e.where(is_missing, float("nan"), e.where(is_pole, _INF, float("nan"))))

    return compute_wide("zeta", (x, q), add_up, f64)


def polygamma(n: int, x: Any) -> Any:
    """The derivative number `n` of `digamma`; for `n` from 1 up of positive `x`, infinite at 0, and NaN below.

    >>> ts.ops.polygamma(1, ts.array([1.0]))
    Tensor([1] f32, [1.64493])
    """
    number = check_int("polygamma", "n", n)
    if not 0 <= number <= 100:
        raise ArgumentError(f"`polygamma` takes `n` from 0 to 100, got {number}")
    if number == 0:
        return digamma(x)
    scale = (-1.0) ** (number + 1) * math.factorial(number)
    return compute_wide("polygamma", (x,), lambda a: e.mul(zeta(number + 1.0, a), scale), f64)


def multigammaln(x: Any, d: int) -> Any:
    """The logarithm of the gamma function of `d` dims: a sum of `lgamma` at `x` less 0, 1/2, up to `(d - 1) / 2`.

    >>> ts.ops.multigammaln(ts.array([3.0]), 2)
    Tensor([1] f32, [1.55019])
    """
    count = check_repeats("multigammaln", "d", d)

    def logarithm(x: Any) -> Any:
        total: Any = count * (count - 1) / 4 * math.log(math.pi)
        for step in range(count):
            total = e.add(lgamma(e.sub(x, step / 2)), total)
        return e.where(e.gt(x, (count - 1) / 2), total, float("nan"))

    return compute_wide("multigammaln", (x,), logarithm, f64)


__all__ = [
    "entr", "erfcx", "i0", "i0e", "i1", "i1e", "log_ndtr", "multigammaln", "ndtr", "ndtri", "polygamma", "xlog1py",
    "zeta",
]  # fmt: skip
