"""Tiles that are whole arrays: what blocks of pointwise ops compute, in plain NumPy and in the dtype of computation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as, widen_array
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS, resolve
from tessera.ir.base.spec import OpSpec
from tessera.ir.tile.facets import Pointwise
from tessera.types.dtype import DType, f64
from tessera.types.promotion import integer_range
from tests.graph.eager import infer, type_of

_ERF: Any = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), x.dtype))


def _gelu_erf(x: Array) -> Array:
    return 0.5 * x * (1 + _ERF(x / math.sqrt(2)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _softplus(x: Array) -> Array:
    return np.logaddexp(x, 0.0)


def _fma(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x, y)
    bits = 8 * x.dtype.itemsize
    wide = [_whole_power(int(a), int(b)) % (1 << bits) for a, b in np.broadcast(x, y)]
    shape = np.broadcast_shapes(x.shape, y.shape)
    return np.array(wide, np.uint64).astype(f"u{x.dtype.itemsize}").view(x.dtype).reshape(shape)


def _whole_power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return base**exponent
    return base ** (exponent % 2) if abs(base) == 1 else 0


SCALARS: dict[str, Callable[..., Any]] = {
    **{name: resolve(function.reference) for name, function in SCALAR_FUNCTIONS.items()},
    **{name: getattr(np, name) for name in ("abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt")},
    **{name: getattr(np, name) for name in ("reciprocal", "sin", "cos", "tan", "tanh", "floor", "ceil", "trunc")},
    **{name: getattr(np, name) for name in ("isnan", "isinf", "mod")},
    "neg": np.negative,
    "round": np.rint,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "erf": _ERF,
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
    "floordiv": np.floor_divide,
    "pow": _pow,
    "atan2": np.arctan2,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "fma": _fma,
}


class Tiles:
    """The builder a block is given: one tile is the whole result."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def elementwise(self, function: str, *tiles: Array) -> Array:
        dtype = dtype_of(tiles[0])
        exact = [tile.astype(np.float64) for tile in tiles] if dtype.is_float else tiles
        assert all(dtype_of(tile) is dtype for tile in tiles), f"{function} of {[tile.dtype for tile in tiles]}"
        result = np.asarray(SCALARS[function](*exact))
        return result if result.dtype == np.bool_ else round_as(result, dtype)

    def select(self, condition: Array, x: Array, y: Array) -> Array:
        assert condition.dtype == np.bool_
        assert x.dtype == y.dtype
        return np.where(condition, x, y)

    def cast(self, tile: Array, dtype: DType) -> Array:
        if dtype.is_bool:
            return tile != 0
        if dtype_of(tile).is_float and not dtype.is_float:
            low, high = integer_range(dtype)
            whole = [0 if math.isnan(v) else max(low, min(high, v if math.isinf(v) else int(v))) for v in tile.flat]
            return np.array(whole, object).astype(numpy_dtype(dtype)).reshape(tile.shape)
        return round_as(tile, dtype)

    def bitcast(self, tile: Array, dtype: DType) -> Array:
        return np.ascontiguousarray(tile).view(numpy_dtype(dtype)).reshape(tile.shape)

    def constant(self, value: float, dtype: DType) -> Array:
        return round_as(value if dtype is f64 or not dtype.is_float else np.float64(value), dtype)

    def coordinate(self, axis: int) -> Array:
        along = np.arange(self.shape[axis], dtype=np.int64)
        return along.reshape([-1 if own == axis else 1 for own in range(len(self.shape))])


def run_block(spec: OpSpec, arrays: Sequence[Array], attributes: dict[str, Any]) -> Array:
    """The result of a pointwise op as its block computes it."""
    assert isinstance(spec.lower, Pointwise)
    (out,) = infer(spec.short_name, *(type_of(array) for array in arrays), **attributes)
    shape = tuple(dim.value or 0 for dim in out.shape)
    with np.errstate(all="ignore"):
        tiles = [widen_array(array) for array in arrays]
        tile = spec.lower.block(Tiles(shape), tiles, spec.with_defaults(attributes), out)
        # What converts goes to the result's dtype itself, others stay in the one they compute in.
        assert dtype_of(tile) is (out.dtype if spec.lower.converts else out.dtype.compute) or out.dtype.name == "i4"
        return np.broadcast_to(round_as(tile, out.dtype), shape)
