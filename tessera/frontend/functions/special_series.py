"""Special functions by series: Bessel functions, zeta and polygamma.

Bessel functions of f64 compute in f64, and all others in f32, within a few units in the last place; zeta and polygamma
compute in f64 whatever they take, and round once. Branches are chosen by `where` on operands that are safe in both, so
that derivatives by composition are finite.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_int, check_repeats
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.operands import dtype_of
from tessera.frontend.functions.special import compute_wide, digamma, evaluate_polynomial, lgamma
from tessera.types.dtype import f32, f64

_INF = float("inf")


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

_BESSEL = {
    f32: (
        (
            (
                1.422414567858396e-13, 5.221019797052584e-12, 6.598948609770616e-10, 3.8865490381567724e-08,
                1.9324888853589073e-06, 6.9429625000339e-05, 0.0017361486097797751, 0.02777772583067417,
                0.2500000298023224, 1.0, 1.0,
            ),
            (
                1.7470179955125786e-05, -2.3357039026450366e-05, 5.2063827752135694e-05, 0.00013343295722734183,
                0.0011003580875694752, 0.015624885447323322, 1.0,
            ),
        ),
        (
            (
                1.4418752650180444e-12, 4.594431779469943e-11, 5.301039163185806e-09, 2.7183702400179754e-07,
                1.1595968317124061e-05, 0.00034714717185124755, 0.006944585591554642, 0.08333320915699005,
                0.5000000596046448, 1.0,
            ),
            (
                -1.9843082554871216e-05, 2.5796613044803962e-05, -6.324020796455443e-05, -0.00018929046927951276,
                -0.001833037007600069, -0.046874869614839554, 1.0,
            ),
        ),
    ),
    f64: (
        (
            (
                5.58305436064429e-32, 3.0055759171772775e-30, 2.7173932200036502e-27, 5.595688150027061e-25,
                1.3261455965530008e-22, 2.5758116565200712e-20, 4.359089358787331e-18, 6.275963154091932e-16,
                7.594073478373294e-14, 7.594056992046221e-12, 6.151187428190949e-10, 3.936759883946228e-08,
                1.9290123458664646e-06, 6.944444444398753e-05, 0.0017361111111118188, 0.027777777777777145,
                0.2500000000000003, 1.0, 1.0,
            ),
            (
                1.6668664934485728e-08, 2.132613883880212e-08, -7.318403072610926e-07, 3.2275640317845248e-06,
                -7.438233683907279e-06, 1.0954733169098477e-05, -1.1178806444780552e-05, 8.2325733579762e-06,
                -4.462284397395734e-06, 1.8014951820898369e-06, -5.215879531249265e-07, 1.652392400481274e-07,
                1.733910204351349e-07, 9.146893695222258e-07, 5.4084270175221296e-06, 4.2385531353886267e-05,
                0.0004882812498592049, 0.010416666666667934, 1.0,
            ),
        ),
        (
            (
                1.0178460543805805e-30, 4.7802486084617096e-29, 4.3855902841103705e-26, 8.367832743060375e-24,
                1.8577583654267167e-21, 3.3481949115479614e-19, 5.230987183706021e-17, 6.903546770369984e-15,
                7.59407490759606e-13, 6.834651182367259e-11, 4.920949947991512e-09, 2.7557319186288253e-07,
                1.15740740751881e-05, 0.0003472222222201142, 0.006944444444446781, 0.08333333333333202,
                0.5000000000000002, 1.0,
            ),
            (
                -2.1350717156178393e-08, 1.2767421179735334e-08, 6.245538280464926e-07, -3.0386177678293674e-06,
                7.241767628350855e-06, -1.0851074136385937e-05, 1.1192804661742772e-05, -8.30550847341371e-06,
                4.527675208648909e-06, -1.837026610887275e-06, 5.32332703109305e-07, -1.7584675069987597e-07,
                -2.0768841524715304e-07, -1.1175783977482712e-06, -6.953727322831697e-06, -5.933974167303855e-05,
                -0.0008138020831863815, -0.031250000000001325, 1.0,
            ),
        ),
    ),
}  # fmt: skip
"""By dtype and order, minimax fits: of `I(x) / (x / 2)**order` over `x**2 / 4` up to some `x`, and from there on of
`I(x) * exp(-x) * sqrt(2 pi x)` over the quotient of that `x` and `x`."""
_LARGE = {f32: 8.0, f64: 12.0}
"""That `x`."""


def _bessel(x: Any, order: int, *, scaled: bool) -> Any:
    """The modified Bessel function of the first kind, or that times `exp(-|x|)`."""
    (powers, inverses), from_here = _BESSEL[dtype_of(x)][order], _LARGE[dtype_of(x)]
    size = e.where(e.lt(x, 0.0), e.neg(x), x)
    is_large = e.gt(size, from_here)
    near, far = e.where(is_large, 0.0, x), e.where(is_large, size, from_here)
    small = evaluate_polynomial(powers, e.mul(e.mul(near, near), 0.25))
    small = e.mul(small, e.mul(near, 0.5)) if order else small
    if scaled:
        # At 0 the slope of `|x|` counts as 0.
        small = e.mul(small, e.exp(e.where(e.lt(near, 0.0), near, e.where(e.gt(near, 0.0), e.neg(near), 0.0))))
    if not scaled:
        far = e.where(e.lt(far, 1e4), far, 1e4)  # beyond it is infinite, and so the same
    root = e.mul(e.rsqrt(e.mul(far, math.pi / 8)), 0.25)  # of `2 pi x`, which may be out of range
    large = e.mul(evaluate_polynomial(inverses, e.div(from_here, far)), root)
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
    return compute_wide("i0", (x,), lambda a: _bessel(a, 0, scaled=False))


def i0e(x: Any) -> Any:
    """`i0(x) * exp(-|x|)`, which does not overflow."""
    return compute_wide("i0e", (x,), lambda a: _bessel(a, 0, scaled=True))


def i1(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 1.

    >>> ts.ops.i1(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0, 0.565159])
    """
    return compute_wide("i1", (x,), lambda a: _bessel(a, 1, scaled=False))


def i1e(x: Any) -> Any:
    """`i1(x) * exp(-|x|)`, which does not overflow."""
    return compute_wide("i1e", (x,), lambda a: _bessel(a, 1, scaled=True))


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

    def derivative(x: Any) -> Any:
        is_legal = e.gt(x, 0.0)
        found = _sum_terms(e.where(is_legal, x, 1.0), number + 1, scale)
        return e.where(is_legal, found, e.where(e.eq(x, 0.0), scale * _INF, float("nan")))

    return compute_wide("polygamma", (x,), derivative, f64)


def _sum_terms(q: Any, power: int, scale: float) -> Any:
    """`_zeta` of an integer from 2 up times `scale`, by products in place of powers, some to a quotient."""
    count = _count_terms(power)
    joined = max(1, min(_JOINED, int(_REACH / (power * math.log10(2 * count)))))
    is_small = e.lt(q, float(count))
    near = e.where(is_small, q, 1.0)
    total: Any = 0.0
    for first in range(0, count, joined):
        over, under = 1.0, _integer_power(e.add(near, first), power)
        for step in range(first + 1, min(first + joined, count)):
            other = _integer_power(e.add(near, step), power)
            over, under = e.add(e.mul(over, other), under), e.mul(under, other)
        total = e.add(total, e.div(over, under))
    base = e.where(is_small, e.add(q, count), q)
    one_over = e.div(1.0, base)
    # Most of the scale is in the base of a power, which may be out of range where the product with the scale is not.
    step_up = round(math.log2(abs(scale)) / (power - 1))
    square, last = e.mul(one_over, one_over), _integer_power(e.mul(one_over, 2.0**step_up), power - 1)
    left = math.ldexp(scale, -step_up * (power - 1))
    # Of `x` in `factor * B(2k) / (2k)!`, by powers of the square.
    factors, factor = list[float](), float(power)
    for number, bernoulli in enumerate(_BERNOULLI, 1):
        factors.append(factor * bernoulli / math.factorial(2 * number))
        factor *= (power + 2 * number - 1) * (power + 2 * number)
    series = e.mul(evaluate_polynomial(factors[::-1], square), one_over)
    rest = e.mul(last, e.mul(e.add(e.mul(e.add(series, 0.5), one_over), 1.0 / (power - 1)), left))
    return e.add(rest, e.where(is_small, e.mul(total, scale), 0.0))


_JOINED, _REACH = 4, 250
"""Terms whose quotients are one at most, and decimal digits that a product of their powers may have."""


def _count_terms(power: int) -> int:
    """From where on what the corrections leave out is nothing beside a sum that is at least the first term."""
    left_out, count = 1425517.1666666667 / math.factorial(26), 8
    for step in range(25):
        left_out *= power + step
    while left_out * float(count) ** (-power - 25) > 1e-17 * float(count) ** -power:
        count += 4
    return count


def _integer_power(x: Any, power: int) -> Any:
    """A power from 1 up by products."""
    made: Any = None
    while power:
        if power & 1:
            made = x if made is None else e.mul(made, x)
        power >>= 1
        x = e.mul(x, x) if power else x
    return made


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
    "entr", "i0", "i0e", "i1", "i1e", "multigammaln", "polygamma", "xlog1py", "zeta",
]  # fmt: skip
