"""Functions of one element at a time that are written with others: tests of floats, remainders, special functions.

What needs care is written here once: branches are chosen by `where` on operands that are safe in both, so that a
derivative of the branch not taken is finite, and narrow floats are computed in f32 and rounded once. The gamma
functions compute in f64, whatever they take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.frontend.arguments import check_bool, check_number
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, promote_operands
from tessera.frontend.functions.reduction import all as all_of
from tessera.ir.base.interval import largest_of
from tessera.types.dtype import BY_NAME, DType, f64, i32, i64
from tessera.types.promotion import FLOATING

_INF = float("inf")


Formula: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any]
"""A function of operands in one float dtype."""


def compute_wide(op: str, values: tuple[Any, ...], formula: Formula, dtype: DType | None = None) -> Any:
    """What a formula makes of floats in the dtype of computation (or a given one), rounded once to their own."""
    function: Any = formula
    operands = promote_operands(op, values, FLOATING)
    own = dtype_of(operands[0])
    wide = dtype or own.compute
    return cast(function(*(cast(operand, wide) for operand in operands)), own)


_LONG = 8
"""Coefficients from which on a polynomial is two, of even and odd powers, whose chains of products run side by side."""


def evaluate_polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """A polynomial from its highest coefficient down."""
    if len(coefficients) < _LONG:
        return _add_terms(coefficients, x)
    square = e.mul(x, x)
    even, odd = (_add_terms(coefficients[len(coefficients) - 1 - first :: -2][::-1], square) for first in (0, 1))
    return e.add(e.mul(x, odd), even)


def _add_terms(coefficients: Sequence[float], x: Any) -> Any:
    total: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        total = e.add(e.mul(x, total), coefficient)
    return total


# Tests of floats.


def isfinite(x: Any) -> Any:
    """Whether `x` is neither infinite nor NaN.

    >>> ts.ops.isfinite(ts.array([1.0, float("inf")]))
    Tensor([2] bool, [True, False])
    """
    return e.logical_not(e.logical_or(e.isnan(x), e.isinf(x)))


def isposinf(x: Any) -> Any:
    """Whether `x` is positive infinity."""
    return e.logical_and(e.isinf(x), e.gt(x, 0))


def isneginf(x: Any) -> Any:
    """Whether `x` is negative infinity."""
    return e.logical_and(e.isinf(x), e.lt(x, 0))


def signbit(x: Any) -> Any:
    """Whether the sign of `x` is negative: of -0.0 and of NaN too, as their bits say.

    >>> ts.ops.signbit(ts.array([-0.0, 0.0, 2.0]))
    Tensor([3] bool, [True, False, False])
    """
    dtype = dtype_of(x)
    if not dtype.is_float:
        return e.lt(x, 0)
    return e.lt(e.bitcast(x, BY_NAME[f"i{dtype.bits}"]), 0)


def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Whether `|x - y| <= atol + rtol * |y|`; equal infinities are close, and NaNs with `equal_nan`.

    >>> ts.ops.isclose(ts.array([1.0, 1.0]), ts.array([1.000001, 1.1]))
    Tensor([2] bool, [True, False])
    """
    relative, absolute = check_number("isclose", "rtol", rtol), check_number("isclose", "atol", atol)
    x, y = promote_operands("isclose", (x, y), FLOATING)
    wide_x, wide_y = cast(x, dtype_of(x).compute), cast(y, dtype_of(y).compute)
    near = e.le(e.abs(e.sub(wide_x, wide_y)), e.add(e.mul(e.abs(wide_y), relative), absolute))
    close = e.logical_or(e.logical_and(near, isfinite(y)), e.eq(x, y))
    if check_bool("isclose", "equal_nan", equal_nan):
        close = e.logical_or(close, e.logical_and(e.isnan(x), e.isnan(y)))
    return close


def allclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False) -> Any:
    """Whether all elements are `isclose`."""
    return all_of(isclose(x, y, rtol, atol, equal_nan=equal_nan))


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """`x` with numbers for NaN and infinities: by default 0, and the largest and smallest finite number.

    >>> ts.ops.nan_to_num(ts.array([float("nan"), 2.0, float("inf")]), posinf=9.0)
    Tensor([3] f32, [0, 2, 9])
    """
    dtype = dtype_of(x)
    if not dtype.is_float:
        return x
    largest = largest_of(dtype)
    high = largest if posinf is None else check_number("nan_to_num", "posinf", posinf)
    low = -largest if neginf is None else check_number("nan_to_num", "neginf", neginf)
    made = e.where(e.eq(x, _INF), high, e.where(e.eq(x, -_INF), low, x))
    return e.where(e.isnan(x), check_number("nan_to_num", "nan", nan), made)


# Parts and remainders.


def fmod(x: Any, y: Any) -> Any:
    """What `x / y` without its fraction leaves, with the sign of `x`; `mod` has the sign of `y`.

    >>> ts.ops.fmod(ts.array([-7.0, 7.0]), 3.0)
    Tensor([2] f32, [-1, 1])
    """
    x, y = promote_operands("fmod", (x, y))
    if not dtype_of(x).is_float:
        # From `mod`, not from magnitudes: the smallest integer has none.
        rest = e.mod(x, y)
        differs = e.logical_and(e.ne(rest, 0), e.ne(e.lt(rest, 0), e.lt(x, 0)))
        return e.where(differs, e.sub(rest, y), rest)
    sign, size = _sign_and_size(x)
    return e.mul(e.mod(size, _sign_and_size(y)[1]), sign)


def _sign_and_size(x: Any) -> tuple[Any, Any]:
    """1 or -1 with the sign of floats, of -0.0 too, and their product with it, whose slope is that sign at 0 too."""
    sign = e.copysign(1.0, x)
    return sign, e.mul(x, sign)


def lerp(x: Any, y: Any, weight: Any) -> Any:
    """`x + weight * (y - x)`: the point that far from `x` to `y`, which it meets at 1.

    >>> ts.ops.lerp(ts.array([0.0, 10.0]), ts.array([4.0, 20.0]), 0.25)
    Tensor([2] f32, [1, 12.5])
    """
    if not isinstance(weight, float):
        return compute_wide("lerp", (x, y, weight), interpolate_between)
    # A number keeps its digits beside operands that have few.
    return compute_wide(
        "lerp", (x, y), lambda low, high: interpolate_between(low, high, as_tensor(weight, dtype_of(low)))
    )


def interpolate_between(low: Any, high: Any, weight: Any) -> Any:
    """The point between two numbers, of operands in the dtype of computation: from the nearer end, so exact at both."""
    apart = e.sub(high, low)
    from_high = e.sub(high, e.mul(apart, e.sub(1.0, weight)))
    return e.where(e.ge(weight, 0.5), from_high, e.add(low, e.mul(apart, weight)))


def lcm(x: Any, y: Any) -> Any:
    """The least common multiple of integers, not negative; 0 where either is 0.

    >>> ts.ops.lcm(ts.array([4, 6]), ts.array([6, 0]))
    Tensor([2] i64, [12, 0])
    """
    x, y = promote_operands("lcm", (x, y))
    return e.abs(e.mul(e.floordiv(x, e.maximum(e.gcd(x, y), 1)), y))


def bitwise_count(x: Any) -> Any:
    """How many bits of the magnitude of an integer are set; `population_count` counts those of two's complement.

    >>> ts.ops.bitwise_count(ts.array([7, -8]))
    Tensor([2] i64, [3, 1])
    """
    return e.population_count(e.abs(x))


def ldexp(x: Any, exponent: Any) -> Any:
    """`x * 2**exponent` of a float and an integer, computed in f64 and rounded once.

    >>> ts.ops.ldexp(ts.array([0.5, 3.0]), ts.array([4, 1]))
    Tensor([2] f32, [8, 6])
    """
    (x,) = promote_operands("ldexp", (x,), FLOATING)
    left = as_tensor(exponent, f64 if isinstance(exponent, float) else i64)
    power = e.exp2 if dtype_of(left).is_float else _power_of_two
    if dtype_of(x) is not f64:
        # f64 holds each product that is neither zero nor infinite in a narrower float, whose range is far smaller.
        return cast(e.mul(cast(x, f64), power(_clamp_exponent(left, 600))), dtype_of(x))
    left, made = _clamp_exponent(left, 2200), cast(x, f64)
    # A power may be out of range where the product is not, so that it is applied in three factors. A step down leaves
    # 53 bits above the smallest normal number: what one of them rounds away, the last one makes zero.
    for _ in range(2):
        step = e.where(e.lt(left, -1022), as_tensor(-969, dtype_of(left)), e.minimum(left, 1023))
        made, left = e.mul(made, power(step)), e.sub(left, step)
    return e.mul(made, power(left))


def _clamp_exponent(exponent: Any, most: int) -> Any:
    """An exponent of at most so much, in i32, or in f64 where it is a float."""
    if dtype_of(exponent).is_float:
        return e.clamp(cast(exponent, f64), float(-most), float(most))
    wide = i32 if dtype_of(exponent).bits < 32 else dtype_of(exponent)
    return cast(e.clamp(cast(exponent, wide), -most if wide.kind == "int" else 0, most), i32)


def _power_of_two(exponent: Any) -> Any:
    """2 to an exponent of a normal number in f64, which is made of its bits."""
    return e.bitcast(e.shift_left(cast(e.add(exponent, 1023), i64), 52), f64)


def frexp(x: Any) -> tuple[Any, Any]:
    """Fractions from a half up to 1, with the sign of `x`, and exponents of 2, as integers: what `ldexp` puts together.

    0, infinities and NaN are their own fractions, with an exponent of 0.

    >>> [one.tolist() for one in ts.ops.frexp(ts.array([8.0, -0.75]))]
    [[0.5, -0.75], [4, 0]]
    """
    (x,) = promote_operands("frexp", (x,), FLOATING)
    wide = cast(x, f64)
    is_small = e.lt(e.abs(wide), 2.0**-1000)
    # What is too small for an exponent of its own is scaled up first, which is exact.
    bits = e.bitcast(e.abs(e.where(is_small, e.mul(wide, 2.0**100), wide)), i64)
    found = e.sub(e.shift_right(bits, 52), e.where(is_small, 1122, 1022))
    has_none = e.logical_or(e.eq(wide, 0.0), e.logical_not(isfinite(wide)))
    exponent = e.where(has_none, 0, found)
    return ldexp(x, e.neg(exponent)), exponent


def nextafter(x: Any, y: Any) -> Any:
    """The number next to `x` towards `y`; it has no derivative.

    >>> ts.ops.nextafter(ts.array([1.0]), 2.0) - 1.0
    Tensor([1] f32, [1.19209e-07])
    """
    x, y = promote_operands("nextafter", (x, y), FLOATING)
    dtype = dtype_of(x)
    integer = BY_NAME[f"i{dtype.bits}"]
    bits = e.bitcast(x, integer)
    # The bits of a float rise with its size, so a step away from zero is one more.
    moved = e.add(bits, cast(e.where(e.eq(e.gt(x, 0), e.gt(y, x)), 1, -1), integer))
    sign = e.bitwise_and(e.bitcast(y, integer), -(1 << (dtype.bits - 1)))
    stepped = e.bitcast(e.where(e.eq(x, 0), e.bitwise_or(sign, 1), moved), dtype)
    made = e.where(e.eq(x, y), y, stepped)
    return e.where(e.logical_or(e.isnan(x), e.isnan(y)), e.add(x, y), made)


# Logarithms of sums and products.


def logaddexp(x: Any, y: Any) -> Any:
    """`log(exp(x) + exp(y))`, without overflow.

    >>> ts.ops.logaddexp(ts.array([1000.0]), 1000.0)
    Tensor([1] f32, [1000.69])
    """
    return compute_wide("logaddexp", (x, y), log_of_exponentials)


def log_of_exponentials(x: Any, y: Any) -> Any:
    """The logarithm of the sum of two exponentials, of operands in the dtype of computation."""
    high, low = e.maximum(x, y), e.minimum(x, y)
    # Equal infinities have no difference; the share of each is a half, as it is of equal numbers.
    return e.add(high, e.softplus(e.where(e.eq(high, low), 0.0, e.sub(low, high))))


def logaddexp2(x: Any, y: Any) -> Any:
    """`log2(2**x + 2**y)`, without overflow."""
    scale = math.log(2.0)
    return compute_wide(
        "logaddexp2", (x, y), lambda a, b: e.div(log_of_exponentials(e.mul(a, scale), e.mul(b, scale)), scale)
    )


def xlogy(x: Any, y: Any) -> Any:
    """`x * log(y)`, and 0 where `x` is 0, whatever number `y` is; NaN stays.

    >>> ts.ops.xlogy(ts.array([0.0, 2.0]), ts.array([0.0, 1.0]))
    Tensor([2] f32, [0, 0])
    """

    def product(x: Any, y: Any) -> Any:
        # Only where the logarithm is no number: where it is one, it is the derivative by `x`, at 0 too.
        has_none = e.logical_or(e.le(y, 0.0), e.eq(y, _INF))
        is_void = e.logical_and(e.eq(x, 0.0), has_none)
        made = e.mul(x, e.log(e.where(is_void, 1.0, y)))
        return e.where(is_void, 0.0, e.add(made, 0.0))  # -0.0 and 0.0 are 0.0

    return compute_wide("xlogy", (x, y), product)


def logit(x: Any) -> Any:
    """`log(x / (1 - x))`, the inverse of `sigmoid`; of 0 and 1 infinite.

    >>> ts.ops.logit(ts.array([0.5, 1.0]))
    Tensor([2] f32, [0, inf])
    """

    def logarithm(x: Any) -> Any:
        # Around a half the two logarithms cancel, and `2x - 1` is exact.
        is_middle = e.logical_and(e.gt(x, 0.25), e.lt(x, 0.75))
        odds = e.div(e.sub(e.mul(x, 2.0), 1.0), e.where(is_middle, e.sub(1.0, x), 1.0))
        other = e.log1p(e.where(is_middle, odds, e.neg(x)))
        return e.where(is_middle, other, e.sub(e.log(e.where(is_middle, 1.0, x)), other))

    return compute_wide("logit", (x,), logarithm)


_SINE_OVER_ANGLE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(10, -1, -1))
"""Coefficients of even powers of an angle, from the 20th down, in the series for its sine over it."""


def sinc(x: Any) -> Any:
    """`sin(pi x) / (pi x)`, and 1 at 0.

    >>> ts.ops.sinc(ts.array([0.0, 0.5]))
    Tensor([2] f32, [1, 0.63662])
    """

    def ratio(x: Any) -> Any:
        angle = e.mul(x, math.pi)
        # Below 1 by the series, whose derivative does not cancel, as that of the quotient does.
        is_small = e.lt(e.abs(angle), 1.0)
        near, far = e.where(is_small, angle, 0.0), e.where(is_small, 1.0, angle)
        return e.where(is_small, evaluate_polynomial(_SINE_OVER_ANGLE, e.mul(near, near)), e.div(e.sin(far), far))

    return compute_wide("sinc", (x,), ratio)


def deg2rad(x: Any) -> Any:
    """An angle in degrees as radians."""
    return compute_wide("deg2rad", (x,), lambda a: e.mul(a, math.pi / 180.0))


def rad2deg(x: Any) -> Any:
    """An angle in radians as degrees."""
    return compute_wide("rad2deg", (x,), lambda a: e.mul(a, 180.0 / math.pi))


def heaviside(x: Any, y: Any) -> Any:
    """0 below 0, 1 above, and `y` at 0; NaN stays."""
    x, y = promote_operands("heaviside", (x, y), FLOATING)
    step = e.where(e.lt(x, 0), 0.0, e.where(e.gt(x, 0), 1.0, x))
    return e.where(e.eq(x, 0), y, step)


# The gamma function, in f64.

_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
"""Coefficients of odd powers of `1/z`, from z**-13 up, in the series for the logarithm of the gamma function."""
_PSI = (-1 / 12, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12)
"""Coefficients of even powers of `1/z`, from z**-14 up, in that for its derivative."""
_SINE, _COSINE = (
    tuple((-1) ** k * math.pi ** (2 * k + first) / math.factorial(2 * k + first) for k in range(12, -1, -1))
    for first in (1, 0)
)
"""Coefficients of even powers of `t`, up to a half, in the series for `sin(pi t) / t` and `cos(pi t)`."""
_SHIFT = 8
"""From here on both series have all digits of f64; smaller arguments are moved up by the recurrence."""


def _reflect(x: Any) -> tuple[Any, Any, Any]:
    """Whether `x` is below a half; what is used in its place, not below; and its distance to the nearest integer."""
    below = e.lt(x, 0.5)
    return below, e.where(below, e.sub(1.0, x), x), e.where(below, e.where(e.eq(x, 0.0), x, e.sub(x, e.round(x))), 0.5)


def _evaluate_sine(distance: Any) -> Any:
    return e.mul(evaluate_polynomial(_SINE, e.mul(distance, distance)), distance)


def _evaluate_cosine(distance: Any) -> Any:
    return evaluate_polynomial(_COSINE, e.mul(distance, distance))


def lgamma(x: Any) -> Any:
    """The logarithm of the size of the gamma function; infinite at 0, at negative integers and at infinities.

    Computed in f64, with an error of some 1e-14 times the larger of 1 and the result, and rounded once.

    >>> ts.ops.lgamma(ts.array([0.5, 5.0]))
    Tensor([2] f32, [0.572365, 3.17805])
    """

    def logarithm(x: Any) -> Any:
        below, z, distance = _reflect(x)
        is_small = e.lt(z, _SHIFT)
        product: Any = 1.0
        for step in range(_SHIFT):
            product = e.mul(product, e.add(e.where(is_small, z, 1.0), step))
        moved = e.where(is_small, e.add(z, _SHIFT), z)
        one_over = e.div(1.0, moved)
        main = e.sub(e.mul(e.sub(moved, 0.5), e.sub(e.log(moved), 1.0)), 0.5)
        tail = e.add(
            e.mul(one_over, evaluate_polynomial(_STIRLING, e.mul(one_over, one_over))), 0.5 * math.log(2 * math.pi)
        )
        # One logarithm of all factors: of what steps moved up, and of the sine. One over a tiny sine is out of range.
        is_tiny = e.lt(e.abs(distance), 2.0**-900)
        product, sine = (
            e.where(is_small, product, 1.0),
            e.abs(_evaluate_sine(e.mul(distance, e.where(is_tiny, 2.0**100, 1.0)))),
        )
        factor = e.log(e.div(e.where(below, product, 1.0), e.where(below, sine, product)))
        factor = e.where(is_tiny, e.add(factor, 100 * math.log(2)), factor)
        plain = e.add(main, tail)
        mirrored = e.sub(math.log(math.pi), plain)
        return e.where(e.isinf(x), _INF, e.add(e.where(below, mirrored, plain), factor))

    return compute_wide("lgamma", (x,), logarithm, f64)


def digamma(x: Any) -> Any:
    """The derivative of `lgamma`; NaN at negative integers, -inf at 0. Computed in f64 and rounded once.

    >>> ts.ops.digamma(ts.array([1.0, 0.5]))
    Tensor([2] f32, [-0.577216, -1.96351])
    """

    def slope(x: Any) -> Any:
        below, z, distance = _reflect(x)
        is_small = e.lt(z, _SHIFT)
        total: Any = 0.0
        for step in range(_SHIFT):
            total = e.add(total, e.div(1.0, e.add(e.where(is_small, z, 1.0), step)))
        moved = e.where(is_small, e.add(z, _SHIFT), z)
        square = e.div(1.0, e.mul(moved, moved))
        plain = e.sub(e.log(moved), e.sub(e.div(0.5, moved), e.mul(square, evaluate_polynomial(_PSI, square))))
        plain = e.sub(plain, e.where(is_small, total, 0.0))
        mirrored = e.sub(plain, e.div(e.mul(_evaluate_cosine(distance), math.pi), _evaluate_sine(distance)))
        is_pole = e.logical_and(e.eq(distance, 0.0), e.lt(x, 0.0))
        return e.where(is_pole, float("nan"), e.where(below, mirrored, plain))

    return compute_wide("digamma", (x,), slope, f64)


__all__ = [
    "allclose",
    "bitwise_count",
    "deg2rad",
    "digamma",
    "fmod",
    "frexp",
    "heaviside",
    "isclose",
    "isfinite",
    "isneginf",
    "isposinf",
    "lcm",
    "ldexp",
    "lerp",
    "lgamma",
    "logaddexp",
    "logaddexp2",
    "logit",
    "nan_to_num",
    "nextafter",
    "rad2deg",
    "signbit",
    "sinc",
    "xlogy",
]
