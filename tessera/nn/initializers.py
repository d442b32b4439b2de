"""Initializers: how parameters are drawn from a key, by the names that other libraries have for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tessera.api.eager import Tensor, zeros
from tessera.api.jit import Jit, jit
from tessera.api.randomness import normal as draw_normal
from tessera.api.randomness import uniform as draw_uniform
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_number
from tessera.frontend.functions import public as ops
from tessera.ir.base import dispatch
from tessera.types.dtype import DType, f32, f64, parse_dtype, u8, u64


def _draw(kind: str, key: Any, shape: Sequence[Any], dtype: Any) -> Any:
    """Standard normal numbers, or uniform ones from 0 to 1; eagerly, one compiled program serves all shapes.

    A number depends on the key and on its index in memory alone, so a vector of as many has the same.
    """
    dtype = parse_dtype(dtype)
    if dispatch.tracing() is not None or not all(isinstance(size, int) for size in shape):
        return _DRAWS[kind](key, tuple(shape), dtype=dtype)
    return _program(kind, dtype)(key, zeros((math.prod(shape),), dtype=u8)).reshape(*shape)


_DRAWS: dict[str, Callable[..., Any]] = {"normal": draw_normal, "uniform": draw_uniform}


@cache
def _program(kind: str, dtype: DType) -> Jit:
    def draw(key: Tensor[2, u64], like: Tensor["N", u8]) -> Any:
        return _DRAWS[kind](key, like.shape, dtype=dtype)

    return jit(draw)


def normal(key: Any, shape: Sequence[int], std: float = 0.02, *, mean: float = 0.0, dtype: Any = f32) -> Any:
    """Numbers of the normal distribution.

    >>> ts.nn.initializers.normal(ts.random.key(0), (64, 32)).shape
    (64, 32)
    """
    return _draw("normal", key, shape, dtype) * check_number("normal", "std", std) + mean


def truncated_normal(
    key: Any, shape: Sequence[int], std: float = 0.02, *, low: float = -2.0, high: float = 2.0, dtype: Any = f32
) -> Any:
    """Numbers of the normal distribution of which those beyond `low` and `high` standard deviations are left out.

    They are the inverse of the distribution function at uniform numbers. `std` is that of the distribution before it is
    truncated: with bounds of two, what is drawn has 0.88 of it.

    >>> drawn = ts.nn.initializers.truncated_normal(ts.random.key(0), (1000,), std=1.0)
    >>> float(ts.ops.abs(drawn).max()) <= 2.0
    True
    """
    if not low < high:
        raise ArgumentError(f"`truncated_normal` takes `low` below `high`, got {low} and {high}")
    root = math.sqrt(2.0)
    ends = [math.erf(end / root) for end in (low, high)]
    drawn = _draw("uniform", key, shape, f64) * (ends[1] - ends[0]) + ends[0]
    made = ops.clamp(_inverse_error_function(drawn) * root, low, high)
    return ops.astype(made * std, dtype)


def _inverse_error_function(x: Any) -> Any:
    """The number whose error function is `x`: Winitzki's closed form, good to 0.002, and three steps of Newton."""
    shape = 0.147
    logarithm = ops.log(ops.maximum((1.0 - x) * (1.0 + x), 1e-30))
    middle = 2.0 / (math.pi * shape) + logarithm * 0.5
    root = ops.sqrt(ops.sqrt(middle * middle - logarithm / shape) - middle)
    made = ops.where(x < 0.0, -root, root)
    for _ in range(3):
        made = made - (ops.erf(made) - x) * ops.exp(made * made) * (0.5 * math.sqrt(math.pi))
    return made


def _fans(name: str, shape: Sequence[int]) -> tuple[int, int]:
    """Inputs and outputs of a weight: [in, out] of a matrix, [out, in, taps...] of a convolution."""
    if len(shape) < 2:
        raise ShapeError(
            f"`{name}` takes the shape of a weight with inputs and outputs, got {list(shape)}",
            fix="draw vectors with `normal` or `uniform`",
        )
    if len(shape) == 2:
        return shape[0], shape[1]
    taps = math.prod(shape[2:])
    return shape[1] * taps, shape[0] * taps


def xavier_uniform(key: Any, shape: Sequence[int], gain: float = 1.0, *, dtype: Any = f32) -> Any:
    """Uniform numbers that keep the variance of values and of gradients, after Glorot and Bengio.

    A matrix is [in, out], the weight of a convolution [out, in, taps...].

    >>> float(ts.ops.abs(ts.nn.initializers.xavier_uniform(ts.random.key(0), (50, 4))).max()) <= 1 / 3
    True
    """
    inputs, outputs = _fans("xavier_uniform", shape)
    return uniform(key, shape, gain * math.sqrt(6.0 / (inputs + outputs)), dtype=dtype)


def xavier_normal(key: Any, shape: Sequence[int], gain: float = 1.0, *, dtype: Any = f32) -> Any:
    """Normal numbers that keep the variance of values and of gradients, after Glorot and Bengio.

    >>> ts.nn.initializers.xavier_normal(ts.random.key(0), (64, 32)).shape
    (64, 32)
    """
    inputs, outputs = _fans("xavier_normal", shape)
    return normal(key, shape, gain * math.sqrt(2.0 / (inputs + outputs)), dtype=dtype)


def kaiming_uniform(key: Any, shape: Sequence[int], gain: float = math.sqrt(2.0), *, dtype: Any = f32) -> Any:
    """Uniform numbers that keep the variance of values through ReLU, after He and others; `gain` is 1 without one.

    >>> ts.nn.initializers.kaiming_uniform(ts.random.key(0), (8, 3, 3, 3)).shape
    (8, 3, 3, 3)
    """
    return uniform(key, shape, gain * math.sqrt(3.0 / max(_fans("kaiming_uniform", shape)[0], 1)), dtype=dtype)


def kaiming_normal(key: Any, shape: Sequence[int], gain: float = math.sqrt(2.0), *, dtype: Any = f32) -> Any:
    """Normal numbers that keep the variance of values through ReLU, after He and others; `gain` is 1 without one.

    >>> ts.nn.initializers.kaiming_normal(ts.random.key(0), (64, 32)).shape
    (64, 32)
    """
    return normal(key, shape, gain / math.sqrt(max(_fans("kaiming_normal", shape)[0], 1)), dtype=dtype)


def uniform(key: Any, shape: Sequence[int], bound: float, *, dtype: Any = f32) -> Any:
    """Uniform numbers between `-bound` and `bound`.

    >>> ts.nn.initializers.uniform(ts.random.key(0), (3,), 0.1).shape
    (3,)
    """
    return _draw("uniform", key, shape, dtype) * (2.0 * bound) - bound


_SMALLEST = 1e-13
"""Singular values from which `orthogonalize` reaches 1, of a matrix whose largest is at most 1. The smallest of a
normal matrix [n, n] is below `u / n` of the largest with a probability of about `u`."""


def _newton_scales() -> list[float]:
    """How a matrix is scaled before each step of Newton and Schulz, until all singular values are 1 in f64.

    A step takes singular values in [low, 1] into an interval up to 1 again; of all scales this one raises its lower end
    most, by up to 2.6 at first, where steps without a scale raise it by 1.5 (Chen and Chow, 2014).
    """
    found, low = list[float](), _SMALLEST
    while 1.0 - low > 1e-9:  # errors square: the last step comes from there
        scale = math.sqrt(3.0 / (1.0 + low + low * low))
        found.append(scale)
        low = 1.5 * scale * low - 0.5 * (scale * low) ** 3
    return [*found, 1.0, 1.0]


def orthogonalize(x: Any) -> Any:
    """The orthogonal factor of the polar decomposition of `x` [n, m], n at most m, with singular values up to 1."""
    for scale in _newton_scales():
        x = (1.5 * scale) * x - (0.5 * scale**3) * (x @ x.T) @ x
    return x


def orthogonal(key: Any, shape: Sequence[int], gain: float = 1.0, *, dtype: Any = f32) -> Any:
    """A matrix with orthonormal rows or columns, whichever are fewer, times `gain`; further axes count as columns.

    It is the orthogonal factor of the polar decomposition of a normal matrix, which is as uniformly distributed as that
    of a QR decomposition, by the scaled iteration of Newton and Schulz in f64.

    >>> q = ts.nn.initializers.orthogonal(ts.random.key(0), (8, 3))
    >>> float(ts.ops.abs(q.T @ q - ts.ops.eye(3)).max()) < 1e-6
    True
    """
    if len(shape) < 2:
        raise ShapeError(f"`orthogonal` takes the shape of a matrix, got {list(shape)}", fix="give it two sizes")
    rows, columns = shape[0], math.prod(shape[1:])
    x = _draw("normal", key, (min(rows, columns), max(rows, columns)), f64)
    # The largest singular value is at most the root of the product of the largest sums of rows and of columns.
    size = ops.sqrt(ops.abs(x).sum(axis=0).max() * ops.abs(x).sum(axis=1).max())
    x = orthogonalize(x / size)
    made = x if rows <= columns else x.T
    return ops.astype(made * gain, dtype).reshape(tuple(shape))
