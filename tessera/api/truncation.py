"""Numbers of the normal distribution between two ends, from uniform ones, by its inverse.

Around zero the inverse is that of `erf`. In a tail `erf` is 1 to all its digits, so there the draw is of the distance
`d` from the nearer end `a`: with the upper tail Q and the Mills ratio `R(x) = Q(x) / phi(x)`,

    log(Q(a) / Q(a + d)) = a d + d^2 / 2 - log(R(a + d) / R(a)),

where nothing cancels and nothing underflows. It is convex in `d`, and starts from `R(x) = 1 / x`, which is too far: so
Newton's steps come down to the root without passing it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import cast
from tessera.types.dtype import FORMATS, DType, f64

_TAIL = 3.0
"""Where the tail begins. Up to it Q is above 1e-3, of which `erf` in f64 leaves 13 digits."""
_TERMS = 32
"""Terms of the continued fraction of R: its relative error from `_TAIL` on is below 1e-12."""
_STEPS = 4


def draw_truncated(share: Any, low: float, high: float, dtype: DType) -> Any:
    """Normal numbers in `low..high` of uniform ones in 0..1, in a floating dtype, whose rounding stays in there too."""
    ends = _round_inward(low, high, dtype)
    wide = cast(share, f64)
    if low >= _TAIL:
        made = ops.add(_distance(wide, low, high), low)
    elif high <= -_TAIL:
        made = ops.sub(high, _distance(wide, -high, -low))
    else:
        made = _invert_erf(wide, low, high)
    return ops.clamp(cast(made, dtype), *ends)


def _invert_erf(share: Any, low: float, high: float) -> Any:
    first, last = (math.erf(end / math.sqrt(2.0)) for end in (low, high))
    # At 1 the inverse is infinite, and a sum may round to it.
    most = 1.0 - 2.0**-53
    at = ops.clamp(ops.add(ops.mul(share, last - first), first), -most, most)
    return ops.mul(ops.erfinv(at), math.sqrt(2.0))


def _distance(share: Any, start: float, end: float) -> Any:
    """How far above `start`, which is in the tail, the numbers are that end at `end`."""
    own = _mills(start)
    length = end - start
    whole = math.inf
    if math.isfinite(length):
        whole = start * length + 0.5 * length * length - math.log(_mills(end) / own)
    # log(Q(start) / Q(x)) of each: a share of the mass that is in between.
    goal = ops.neg(ops.log1p(ops.mul(share, math.expm1(-whole))))
    apart = ops.div(ops.mul(goal, 2.0), ops.add(ops.sqrt(ops.add(ops.mul(goal, 2.0), start * start)), start))
    for _ in range(_STEPS):
        ratio = _mills(ops.add(apart, start))
        found = ops.sub(ops.mul(apart, ops.add(ops.mul(apart, 0.5), start)), ops.log(ops.div(ratio, own)))
        # The derivative is the hazard 1 / R.
        apart = ops.sub(apart, ops.mul(ops.sub(found, goal), ratio))
    return apart


def _mills(x: Any) -> Any:
    """R(x) in the tail, of a number or a tensor: its continued fraction as a quotient of polynomials in 1 / x^2."""
    inverse = 1.0 / x
    at = inverse * inverse
    numerator, denominator = (_evaluate(terms, at) for terms in _fraction())
    return inverse * numerator / denominator


def _evaluate(terms: tuple[float, ...], x: Any) -> Any:
    value: Any = terms[-1]
    for term in reversed(terms[:-1]):
        value = value * x + term
    return value


@lru_cache(maxsize=1)
def _fraction() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The polynomials of `1 / (x + 1 / (x + 2 / (x + ...)))`, whose coefficients are positive: no digits are lost."""
    return _polynomial([0], [1]), _polynomial([1], [1])


def _polynomial(before: list[int], terms: list[int]) -> tuple[float, ...]:
    """The polynomial that the recurrence `p_(k+1) = p_k + k x p_(k-1)` ends in, from the lowest coefficient."""
    for step in range(1, _TERMS):
        added = [0, *(step * term for term in before)]
        before, terms = terms, [a + b for a, b in zip_longest(terms, added, fillvalue=0)]
    return tuple(map(float, terms))


def _round_inward(low: float, high: float, dtype: DType) -> tuple[float, float]:
    """The least and the largest number of a dtype in `low..high`; raises where there is none."""
    first, last = -_round_down(-low, dtype), _round_down(high, dtype)
    if first > last:
        raise ArgumentError(
            f"`truncated_normal` draws {dtype} from {low} to {high}, and no number of {dtype} lies there",
            fix="pass a wider `dtype`, or ends that are further apart",
        )
    return first, last


def _round_down(value: float, dtype: DType) -> float:
    """The largest finite number of a dtype up to `value`; minus infinity where there is none."""
    if dtype is f64:
        return min(value, math.nextafter(math.inf, 0.0))
    format = FORMATS[dtype.name]
    if value >= format.largest or value == 0.0:
        return min(value, format.largest)
    if value < -format.largest:
        return -math.inf
    exponent = max(math.frexp(value)[1] - 1, 1 - format.bias)
    step = math.ldexp(1.0, exponent - format.mantissa)
    return math.floor(value / step) * step
