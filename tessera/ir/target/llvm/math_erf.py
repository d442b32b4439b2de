"""The error function and the exact gelu, on vectors of f32 or f64."""

from __future__ import annotations

import math

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import exp, over, tables
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import (
    absolute,
    at_most,
    fma,
    horner,
    mul,
    plus,
    product,
    sub,
    times,
    with_sign,
)


def _normal_tail(f: FunctionText, a: Value) -> Value:
    """`e**(a**2 / 2)` times the normal distribution's share above `a >= 0`: smooth, from 1/2 down like `0.4 / a`."""
    t = tables(a)
    ratio = over(f, f.const_like(a, t.normal_k), plus(f, a, t.normal_k))
    return mul(f, horner(f, ratio, t.normal_tail), ratio)


def erf(f: FunctionText, x: Value) -> Value:
    """A polynomial up to 1; beyond, 1 less the tail."""
    t = tables(x)
    magnitude = at_most(f, absolute(f, x), t.erf_one)
    square = mul(f, x, x)
    near = fma(f, x, horner(f, square, t.erf_small), x)
    if t.erf_tail:
        far = sub(f, f.const_like(x, 1.0), exp(f, f.fneg(horner(f, magnitude, t.erf_tail)), negative=True))
    else:
        high, low = product(f, magnitude, magnitude)
        share = _normal_tail(f, times(f, magnitude, math.sqrt(2.0)))
        decay = exp(f, f.fneg(high), f.fneg(low), negative=True)
        far = fma(f, times(f, decay, -2.0), share, f.const_like(x, 1.0))
    return f.select(f.fcmp("olt", absolute(f, x), f.const_like(x, 1.0)), near, with_sign(f, far, x))


def gelu_erf(f: FunctionText, x: Value) -> Value:
    """`x` times the normal distribution's share below `x`, with nothing cancelling.

    A polynomial up to 1; beyond, `max(x, 0) - |x| * share above |x|`.
    """
    t = tables(x)
    magnitude = absolute(f, x)
    near = fma(f, mul(f, x, x), horner(f, mul(f, x, x), t.gelu_near), times(f, x, 0.5))
    bounded = at_most(f, magnitude, t.normal_limit)
    high, low = product(f, bounded, bounded)
    share = mul(f, bounded, _normal_tail(f, bounded))
    lost = exp(f, times(f, high, -0.5), times(f, low, -0.5), negative=True, factor=share)
    positive = f.select(f.fcmp("olt", x, f.const_like(x, 0.0)), f.const_like(x, -0.0), x)
    return f.select(f.fcmp("olt", magnitude, f.const_like(x, 1.0)), near, sub(f, positive, lost))
