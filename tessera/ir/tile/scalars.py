"""What the functions of tiles mean on NumPy arrays: floats in f64 and rounded once, integers in their own width."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, added_once, narrowed, numpy_dtype, rounded
from tessera.ir.base.functions import FUNCTIONS
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

Meaning: TypeAlias = Callable[..., Any]

_erf: Any = np.vectorize(math.erf, otypes=[np.float64])
_erfc: Any = np.vectorize(math.erfc, otypes=[np.float64])


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _reciprocal(x: Array) -> Array:
    return 1.0 / x


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _relu(x: Array) -> Array:
    return np.where(x < 0, np.zeros((), x.dtype), x)


def _maximum(x: Array, y: Array) -> Array:
    return np.where((x > y) | (x != x), x, y)


def _minimum(x: Array, y: Array) -> Array:
    return np.where((x < y) | (x != x), x, y)


def _gelu_erf(x: Array) -> Array:
    # By way of erfc, so that the lower tail does not cancel.
    return 0.5 * x * _erfc(x * -math.sqrt(0.5))


def _gelu_tanh(x: Array) -> Array:
    return x * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _floordiv(x: Array, y: Array) -> Array:
    if x.dtype.kind != "f":
        return np.floor_divide(x, y)
    quotient = x / y
    return np.where(np.isinf(quotient), quotient, np.floor_divide(x, y))


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind != "i":
        return np.power(x, y)
    # The bases 1 and -1 have inverses; a negative power of any other whole number rounds to 0.
    inverse = np.where(x == 1, x, np.where(x == -1, np.where(y % 2 == 0, -x, x), np.zeros_like(x)))
    return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))


_SPLIT = float(2**27 + 1)
"""Multiplying by this cuts a double in two halves of 26 bits."""


def _halves(x: Array) -> tuple[Array, Array]:
    carried = _SPLIT * x
    high = carried - (carried - x)
    return high, x - high


def fused(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of doubles rounded as if once: the error of product and sum is found exactly, and added last."""
    product = x * y
    (xh, xl), (yh, yl) = _halves(x), _halves(y)
    lost = ((xh * yh - product) + xh * yl + xl * yh) + xl * yl
    total = product + z
    part = total - product
    lost = lost + ((product - (total - part)) + (z - part))
    return np.where(np.isfinite(lost), total + lost, total)


def _fma(x: Array, y: Array, z: Array) -> Array:
    return x * y + z


def _fused_once(x: Array, y: Array, z: Array) -> Array:
    """`x * y + z` of f32, which come as f64: there the product is exact."""
    return added_once(np.asarray(x * y), np.asarray(z))


_MEANINGS: dict[str, Meaning] = {
    **{name: getattr(np, name) for name in ("abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "tanh", "floor", "ceil", "trunc", "isnan", "isinf")},
    "neg": np.negative,
    "round": np.rint,
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "relu": _relu,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "softplus": _softplus,
    "not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": _floordiv,
    "mod": np.mod,
    "pow": _pow,
    "atan2": np.arctan2,
    "max": _maximum,
    "min": _minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "fma": _fma,
}
assert _MEANINGS.keys() == FUNCTIONS.keys(), _MEANINGS.keys() ^ FUNCTIONS.keys()


def apply(name: str, tiles: list[Array], dtype: DType) -> Array:
    """A function of the table on tiles of `dtype`.

    f32 is computed in f64 and rounded once: for sums, products, quotients and roots that is the rounding IEEE asks for,
    and a fused multiply-add sees to it; for others it is the nearest f32.
    """
    meaning = (fused if dtype.bits == 64 else _fused_once) if name == "fma" and dtype.is_float else _MEANINGS[name]
    values = [tile.astype(np.float64) for tile in tiles] if dtype.is_float else tiles
    with np.errstate(all="ignore"):
        result = np.asarray(meaning(*values))
    return result.astype(np.bool_) if FUNCTIONS[name].is_predicate else rounded(result, dtype)


def cast(tile: Array, source: DType, target: DType) -> Array:
    """Another dtype, by the table of `docs/numerics.md`."""
    if target.is_bool:
        return np.asarray(tile != 0)
    if target.is_float:
        return narrowed(tile, target)
    if not source.is_float:
        return rounded(tile, target)
    low, high = integer_range(target)
    whole = np.trunc(tile.astype(np.float64))
    # The largest 64-bit integers are not doubles: compare with the power of two above, convert only what is inside.
    inside = (whole >= low) & (whole < float(high + 1))
    exact = np.where(inside, whole, 0.0).astype(np.uint64 if target.kind == "uint" else np.int64)
    ends = np.where(whole > 0, high, low).astype(exact.dtype)
    return np.where(inside, exact, np.where(np.isnan(whole), np.zeros_like(ends), ends)).astype(numpy_dtype(target))


def dot(lhs: Array, rhs: Array, acc: Array) -> Array:
    """`acc + lhs @ rhs` as one chain of fused multiply-adds over k, in order, in the accumulator's dtype."""
    total = acc
    with np.errstate(all="ignore"):
        if acc.dtype.kind != "f":
            return acc + np.matmul(lhs.astype(acc.dtype), rhs.astype(acc.dtype))
        left, right = lhs.astype(np.float64), rhs.astype(np.float64)
        for k in range(lhs.shape[1]):
            x, y = left[:, k : k + 1], right[k : k + 1, :]
            # A product of two f32 is exact in f64.
            total = fused(x, y, total) if acc.dtype == np.float64 else added_once(x * y, total).astype(acc.dtype)
    return total
