"""The normal distribution and the error functions that are one with it: its function, its tails and its quantiles.

Everything below zero is a tail, and a tail is `exp(-a**2 / 2)` times a smooth function of `a` that falls like
`0.4 / a`: a polynomial of `v = k / (a + k)`, which goes from 1 to 0 as `a` goes from 0 to infinity. The square is taken
apart into what is exact and what is small, as the exponential multiplies a rounding of it by its size. Quantiles are
quotients of polynomials: around a half of the distance from it, whose sign and digits they keep, and in the tails of
`sqrt(-log q)`, of which the quantile is nearly a multiple.

f64 is computed in f64, everything else in f32, within a few units in the last place. Coefficients are minimax fits,
tight enough that derivatives by composition have nearly all digits too.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.operands import dtype_of
from tessera.frontend.functions.special import compute_wide, evaluate_polynomial
from tessera.ir.base.dispatch import apply
from tessera.types.dtype import DType, f64, i32, i64
from tessera.types.frozen import frozen

_INF = float("inf")


@frozen
class _Quotient:
    """Coefficients of a quotient of two polynomials, from the highest down."""

    over: tuple[float, ...]
    under: tuple[float, ...]


@frozen
class _Fits:
    """What one float dtype needs."""

    integer: DType
    low_bits: int  # of a number, so that the square of the others is exact
    limit: float  # from here on a tail is 0
    overflow: float  # from here on `exp(x**2)` is infinite
    k: float
    tail: tuple[float, ...]  # exp(a**2 / 2) * ndtr(-a) / v over v = k / (a + k)
    middle: _Quotient  # ndtri(0.5 + c) / c over 0.425**2 - c**2, |c| <= 0.425
    tails: tuple[
        _Quotient, ...
    ]  # -ndtri(q) over r - 1.6, r = sqrt(-log q), q <= 0.075; the second over r - 5 from there


_SINGLE = _Fits(
    integer=i32,
    low_bits=12,
    limit=14.5,
    overflow=10.0,
    k=4.0,
    tail=(
        -0.010538838803768158, 0.05760463327169418, -0.11571470648050308, 0.09853193908929825, -0.05126281827688217,
        0.04512520134449005, 0.0380222424864769, 0.06429017335176468, 0.08096586912870407, 0.09350521862506866,
        0.09973551332950592, 0.0997355729341507,
    ),
    middle=_Quotient(
        (-26.422588348388672, 174.92417907714844, 247.0157012939453, 58.81741714477539, 3.3871328830718994),
        (147.3577117919922, 112.08868408203125, 20.370208740234375, 1.0),
    ),
    tails=(
        _Quotient(
            (
                0.0031855206470936537, 0.09157934039831161, 0.770918071269989, 2.5514323711395264,
                3.3990933895111084, 1.4234371185302734,
            ),
            (0.0022523540537804365, 0.06117377430200577, 0.4533615708351135, 1.1882116794586182, 1.0),
        ),
    ),
)  # fmt: skip

_DOUBLE = _Fits(
    integer=i64,
    low_bits=27,
    limit=39.0,
    overflow=27.0,
    k=5.0,
    tail=(
        0.0004605787351031069, -0.005297886241507816, 0.027796794513628063, -0.08774127671116738, 0.18535367436061317,
        -0.27698457771329305, 0.3042564195680389, -0.25446856119461453, 0.1659573620690992, -0.08336166295942829,
        0.032776323900442814, -0.011346804705946133, 0.0003022539407047134, -0.0016276492323420624,
        0.0014863887929468073, 0.006913153525148037, 0.015109364257841047, 0.025634695640740095, 0.037583528708267665,
        0.04978799825465262, 0.06102221114104808, 0.07021384135240129, 0.0765969178370504, 0.07978845608028672,
        0.07978845608028654,
    ),
    middle=_Quotient(
        (
            2511.5488111829595, 33456.49684590356, 67305.43014667736, 45941.62706743151, 13735.696845912089,
            1971.9392114195432, 133.1523930368689, 3.3871328727963665,
        ),
        (
            5231.1794790564845, 28749.428008525567, 39329.111143177724, 21222.140584533994, 5395.6456204219785,
            687.2993423034908, 42.31649713925993, 1.0,
        ),
    ),
    tails=(
        _Quotient(
            (
                0.0007740762463340818, 0.02270968312342682, 0.2416468304846101, 1.26991044124511,
                3.6467806352643795, 5.768535964530719, 4.6300241328691945, 1.4234371107496835,
            ),
            (
                1.0507313110650587e-09, 0.0005472623640873313, 0.01518917976146706, 0.14802357401357244,
                0.6894911681372455, 1.6759739347438731, 2.0529712352449945, 1.0,
            ),
        ),
        _Quotient(
            (
                1.9960450613369933e-07, 2.698478761810297e-05, 0.0012386415661021434, 0.026475725115694636,
                0.2961628150405876, 1.783460391296746, 5.461968310272079, 6.657904643501104,
            ),
            (
                2.0028294803564353e-15, 1.4114078091720902e-07, 1.8375764549642555e-05, 0.0007844608063557895,
                0.014847268678523439, 0.13678493779634818, 0.5995593578160359, 1.0,
            ),
        ),
    ),
)  # fmt: skip

_MIDDLE, _TAILS = 0.425, (1.6, 5.0)
"""Up to where quantiles are those around a half, and from which `r` on those of the tails.

Polynomials of what is beyond have no terms that cancel.
"""


_SMALL_EXPONENTIAL = (1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)
"""The exponential of what is left of a square: less than 0.1, and of f64 less than 1e-4."""


def _fits_of(x: Any) -> _Fits:
    return _DOUBLE if dtype_of(x) is f64 else _SINGLE


# Tails.


def _tail_over_density(a: Any) -> Any:
    """`exp(a**2 / 2) * ndtr(-a)` of an `a` from 0 to infinity."""
    fits = _fits_of(a)
    v = e.div(fits.k, e.add(a, fits.k))
    return e.mul(evaluate_polynomial(fits.tail, v), v)


def _exponential_of_square(a: Any, factor: float) -> Any:
    """`exp(factor * a**2)` of finite numbers."""
    fits = _fits_of(a)
    kept = e.bitwise_and(e.bitcast(a, fits.integer), -(1 << fits.low_bits))
    # A constant of differentiation: what is left of the square has all of its slope.
    high = apply("stop_gradient", (e.bitcast(kept, dtype_of(a)),))
    rest = e.mul(e.mul(e.sub(a, high), e.add(a, high)), factor)
    return e.mul(e.exp(e.mul(e.mul(high, high), factor)), evaluate_polynomial(_SMALL_EXPONENTIAL, rest))


def _tail(a: Any) -> Any:
    """`ndtr(-a)` of an `a` from 0 on."""
    bounded = e.minimum(a, _fits_of(a).limit)
    return e.mul(_exponential_of_square(bounded, -0.5), _tail_over_density(bounded))


def ndtr(x: Any) -> Any:
    """The distribution function of the normal distribution.

    >>> ts.ops.ndtr(ts.array([0.0, 1.0]))
    Tensor([2] f32, [0.5, 0.841345])
    """

    def share(x: Any) -> Any:
        tail = _tail(e.abs(x))
        return e.where(e.lt(x, 0.0), tail, e.sub(1.0, tail))

    return compute_wide("ndtr", (x,), share)


def erfcx(x: Any) -> Any:
    """`exp(x**2) * erfc(x)`, where either factor alone is out of range.

    >>> ts.ops.erfcx(ts.array([0.0, 100.0]))
    Tensor([2] f32, [1, 0.00564161])
    """

    def scaled(x: Any) -> Any:
        is_low = e.lt(x, 0.0)
        above = e.mul(_tail_over_density(e.mul(e.abs(x), math.sqrt(2.0))), 2.0)
        size = e.minimum(e.where(is_low, e.neg(x), 0.0), _fits_of(x).overflow)
        return e.where(is_low, e.sub(e.mul(_exponential_of_square(size, 1.0), 2.0), above), above)

    return compute_wide("erfcx", (x,), scaled)


def log_ndtr(x: Any) -> Any:
    """The logarithm of `ndtr`, far in both tails too.

    >>> ts.ops.log_ndtr(ts.array([-100.0, 0.0]))
    Tensor([2] f32, [-5005.52, -0.693147])
    """

    def logarithm(x: Any) -> Any:
        is_low = e.lt(x, -1.0)
        low, high = e.where(is_low, x, -1.0), e.where(is_low, -1.0, x)
        far = e.sub(e.log(_tail_over_density(e.neg(low))), e.mul(e.mul(low, low), 0.5))
        tail = _tail(e.abs(high))
        above = e.where(e.lt(high, 0.0), e.sub(1.0, tail), tail)
        return e.where(is_low, far, e.log1p(e.neg(above)))

    return compute_wide("log_ndtr", (x,), logarithm)


# Quantiles.


def _quantile(c: Any, q: Any) -> Any:
    """The number that a share `0.5 + c` of the normal distribution lies below, and `q` beyond it in its direction."""
    fits = _fits_of(c)
    near, is_middle = e.sub(_MIDDLE**2, e.mul(c, c)), e.le(e.abs(c), _MIDDLE)
    r = e.sqrt(e.neg(e.log(q)))
    over, under = _evaluate(fits.tails[0], e.sub(r, _TAILS[0]))
    if len(fits.tails) > 1:
        is_far, others = e.gt(r, _TAILS[1]), _evaluate(fits.tails[1], e.sub(r, _TAILS[1]))
        over, under = (e.where(is_far, other, own) for own, other in zip((over, under), others, strict=True))
    top, bottom = _evaluate(fits.middle, near)
    over = e.where(is_middle, e.mul(top, c), e.where(e.lt(c, 0.0), e.neg(over), over))
    return e.div(over, e.where(is_middle, bottom, under))


def _evaluate(quotient: _Quotient, x: Any) -> tuple[Any, Any]:
    return evaluate_polynomial(quotient.over, x), evaluate_polynomial(quotient.under, x)


def ndtri(p: Any) -> Any:
    """The inverse of `ndtr`: the number below which a share `p` of the normal distribution lies.

    Infinite at 0 and 1, and NaN beyond.

    >>> ts.ops.ndtri(ts.array([0.5, 0.975]))
    Tensor([2] f32, [0, 1.95996])
    """

    def inverse(p: Any) -> Any:
        is_inside = e.logical_and(e.gt(p, 0.0), e.lt(p, 1.0))
        safe = e.where(is_inside, p, 0.5)
        found = _quantile(e.sub(safe, 0.5), e.where(e.gt(safe, 0.5), e.sub(1.0, safe), safe))
        edge = e.where(e.eq(p, 0.0), -_INF, e.where(e.eq(p, 1.0), _INF, float("nan")))
        return e.where(is_inside, found, edge)

    return compute_wide("ndtri", (p,), inverse)


def erfinv(x: Any) -> Any:
    """The inverse of `erf`: infinite at -1 and 1, NaN beyond.

    >>> ts.ops.erfinv(ts.array([0.0, 0.5, 1.0]))
    Tensor([3] f32, [0, 0.476936, inf])
    """

    def inverse(x: Any) -> Any:
        size = e.abs(x)
        is_inside = e.lt(size, 1.0)
        safe = e.where(is_inside, x, 0.0)
        found = _quantile(e.mul(safe, 0.5), e.mul(e.sub(1.0, e.where(is_inside, size, 0.0)), 0.5))
        edge = e.where(e.eq(x, 1.0), _INF, e.where(e.eq(x, -1.0), -_INF, float("nan")))
        return e.where(is_inside, e.mul(found, math.sqrt(0.5)), edge)

    return compute_wide("erfinv", (x,), inverse)


__all__ = ["erfcx", "erfinv", "log_ndtr", "ndtr", "ndtri"]
