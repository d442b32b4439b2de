"""Random tensors of more distributions, made from uniform and normal ones, from bits, and from sorts of them.

As those they depend on the key and on the index of an element alone, and so not on tiling, threads or machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tessera.api.autodiff import stop_gradient
from tessera.api.gamma_distributions import between
from tessera.api.randomness import bernoulli, bits, fold, normal
from tessera.api.truncation import draw_truncated
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_number, explain_wrong_calls
from tessera.frontend.concrete import is_array
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, axis_of, cast, dtype_of, is_tensor, rank_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.frontend.size import Size
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import f32, f64, i64, parse_dtype, u64
from tessera.types.promotion import integer_range


def _between(key: Any, shape: Any, dtype: Any) -> Any:
    """Uniform numbers that are neither 0 nor 1, from which those of a dtype are made."""
    return between(key, shape, f64 if parse_dtype(dtype) is f64 else f32)


@explain_wrong_calls
def randint(key: Any, shape: Any, low: int, high: int, dtype: Any = i64) -> Any:
    """Integers from `low` up to and without `high`, each equally likely to within one in 2^32.

    >>> ts.random.randint(ts.random.key(0), (2, 3), 0, 10).shape
    (2, 3)
    """
    first, last = check_int("randint", "low", low), check_int("randint", "high", high)
    if not 0 < last - first <= 1 << 32:
        raise ArgumentError(f"`randint` draws from 1 to 2^32 integers, got {first} up to and without {last}")
    wanted = parse_dtype(dtype)
    if not wanted.is_integer:
        raise ArgumentError(f"`randint` draws integers, got `dtype={wanted}`", fix="write `dtype=ts.i64`")
    lowest, largest = integer_range(wanted)
    if first < lowest or last - 1 > largest:
        raise ArgumentError(
            f"`randint` draws from {first} to {last - 1}, and {wanted} has {lowest} to {largest}",
            notes=("rule: every integer that may be drawn is one of the dtype",),
            fix="pass a wider `dtype`",
        )
    wide = u64 if wanted is u64 else i64
    drawn = ops.mod(bits(key, shape, u64), last - first)
    return ops.astype(ops.add(ops.astype(drawn, wide), first), wanted)


@explain_wrong_calls
def exponential(key: Any, shape: Any, *, scale: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers of the exponential distribution with the mean `scale`."""
    size = check_number("exponential", "scale", scale)
    if not 0 < size < math.inf:
        raise ArgumentError(f"`exponential` takes a `scale` above 0 and finite, got {size}", fix="pass the mean")
    return cast(ops.mul(ops.neg(ops.log(_between(key, shape, dtype))), size), parse_dtype(dtype))


@explain_wrong_calls
def gumbel(key: Any, shape: Any, *, dtype: Any = f32) -> Any:
    """Numbers of the Gumbel distribution: the largest of them plus logits is a draw by their softmax."""
    return cast(ops.neg(ops.log(ops.neg(ops.log(_between(key, shape, dtype))))), parse_dtype(dtype))


@explain_wrong_calls
def laplace(key: Any, shape: Any, *, dtype: Any = f32) -> Any:
    """Numbers of the Laplace distribution."""
    apart = ops.sub(ops.mul(_between(key, shape, dtype), 2.0), 1.0)
    return cast(ops.neg(ops.copysign(ops.log1p(ops.neg(ops.abs(apart))), apart)), parse_dtype(dtype))


@explain_wrong_calls
def logistic(key: Any, shape: Any, *, dtype: Any = f32) -> Any:
    """Numbers of the logistic distribution."""
    return cast(ops.logit(_between(key, shape, dtype)), parse_dtype(dtype))


@explain_wrong_calls
def cauchy(key: Any, shape: Any, *, dtype: Any = f32) -> Any:
    """Numbers of the Cauchy distribution."""
    angle = ops.mul(ops.sub(_between(key, shape, dtype), 0.5), math.pi)
    return cast(ops.tan(angle), parse_dtype(dtype))


def _positive(op: str, name: str, value: Any) -> float:
    number = check_number(op, name, value)
    if not 0 < number < math.inf:
        raise ArgumentError(f"`{op}` takes `{name}` above 0 and finite, got {number}", fix=f"write `{name}=1.0`")
    return number


@explain_wrong_calls
def lognormal(key: Any, shape: Any, *, mean: float = 0.0, std: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers whose logarithms are of the normal distribution with this mean and standard deviation."""
    wanted = parse_dtype(dtype)
    return cast(ops.exp(normal(key, shape, mean=mean, std=std, dtype=f64 if wanted is f64 else f32)), wanted)


@explain_wrong_calls
def rademacher(key: Any, shape: Any, *, dtype: Any = f32) -> Any:
    """Numbers that are -1 or 1, each equally likely.

    >>> abs(ts.random.rademacher(ts.random.key(0), (4,))).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    wanted = parse_dtype(dtype)
    if not wanted.is_float and wanted.kind != "int":
        raise ArgumentError(f"`rademacher` draws -1 and 1, which {wanted} does not hold", fix="write `dtype=ts.i64`")
    odd = ops.bitwise_and(bits(key, shape), 1)
    return cast(ops.sub(ops.mul(cast(odd, i64), 2), 1), wanted)


@explain_wrong_calls
def rayleigh(key: Any, shape: Any, *, scale: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers of the Rayleigh distribution: lengths of vectors of two normal numbers with the deviation `scale`."""
    size = _positive("rayleigh", "scale", scale)
    squares = ops.mul(ops.log(_between(key, shape, dtype)), -2.0)
    return cast(ops.mul(ops.sqrt(squares), size), parse_dtype(dtype))


@explain_wrong_calls
def maxwell(key: Any, shape: Any, *, scale: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers of the Maxwell distribution: lengths of vectors of three normal numbers with the deviation `scale`."""
    size, wanted = _positive("maxwell", "scale", scale), parse_dtype(dtype)
    parts = [normal(fold(key, at), shape, dtype=f64 if wanted is f64 else f32) for at in range(3)]
    squares = [ops.mul(one, one) for one in parts]
    return cast(ops.mul(ops.sqrt(ops.add(ops.add(squares[0], squares[1]), squares[2])), size), wanted)


@explain_wrong_calls
def weibull(key: Any, shape: Any, concentration: float, *, scale: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers of the Weibull distribution: of the exponential one to the power `1 / concentration`, times `scale`."""
    power, size = _positive("weibull", "concentration", concentration), _positive("weibull", "scale", scale)
    drawn = ops.neg(ops.log(_between(key, shape, dtype)))
    return cast(ops.mul(ops.pow(drawn, 1.0 / power), size), parse_dtype(dtype))


@explain_wrong_calls
def pareto(key: Any, shape: Any, concentration: float, *, scale: float = 1.0, dtype: Any = f32) -> Any:
    """Numbers from `scale` up of the Pareto distribution, whose logarithm falls by `concentration` in that of them.

    NumPy's are those of a scale of 1 less 1.
    """
    power, size = _positive("pareto", "concentration", concentration), _positive("pareto", "scale", scale)
    drawn = ops.exp(ops.div(ops.neg(ops.log(_between(key, shape, dtype))), power))
    return cast(ops.mul(drawn, size), parse_dtype(dtype))


@explain_wrong_calls
def triangular(key: Any, shape: Any, left: float, mode: float, right: float, *, dtype: Any = f32) -> Any:
    """Numbers from `left` to `right` whose density is a triangle with its top at `mode`.

    >>> float(ts.random.triangular(ts.random.key(0), (100,), 0.0, 1.0, 3.0).max()) <= 3.0
    True
    """
    ends = [check_number("triangular", name, one) for name, one in (("left", left), ("mode", mode), ("right", right))]
    low, top, high = (float(one) for one in ends)
    if not low <= top <= high or not low < high or not math.isfinite(high - low):
        raise ArgumentError(
            f"`triangular` needs finite `left <= mode <= right`, not all equal, got {low}, {top}, {high}"
        )
    u, width = _between(key, shape, dtype), high - low
    below, above = (top - low) / width, (high - top) / width
    rising = ops.add(ops.mul(ops.sqrt(ops.mul(u, below)), width), low)
    falling = ops.sub(high, ops.mul(ops.sqrt(ops.mul(ops.sub(1.0, u), above)), width))
    return cast(ops.where(ops.lt(u, below), rising, falling), parse_dtype(dtype))


@explain_wrong_calls
def truncated_normal(key: Any, shape: Any, low: float = -2.0, high: float = 2.0, *, dtype: Any = f32) -> Any:
    """Numbers of the normal distribution that lie in `low..high`, by its inverse; far in a tail too.

    >>> float(ts.random.truncated_normal(ts.random.key(0), (100,)).max()) <= 2.0
    True
    """
    first, last = check_number("truncated_normal", "low", low), check_number("truncated_normal", "high", high)
    if not first < last:
        raise ArgumentError(f"`truncated_normal` needs `low` below `high`, got {first} and {last}")
    return draw_truncated(_between(key, shape, dtype), float(first), float(last), parse_dtype(dtype))


@explain_wrong_calls
def categorical(key: Any, logits: Any, axis: int = -1, *, shape: Any = None) -> Any:
    """Classes drawn by the softmax of `logits` along `axis`: one for each row, or as many as `shape` in front of them.

    >>> ts.random.categorical(ts.random.key(0), ts.array([0.0, 100.0])).item()
    1
    """
    own = ops.astype(logits, f32) if not dtype_of(logits).is_float else logits
    at = axis_of("categorical", axis, rank_of(logits)) - rank_of(logits)
    front = () if shape is None else as_tuple(shape)
    noise = gumbel(key, (*front, *tuple(logits.shape)))
    return ops.argmax(ops.add(noise, own), at)


@explain_wrong_calls
def permutation(key: Any, x: Any, axis: int = 0) -> Any:
    """The numbers below `x`, or the slices of a tensor along `axis`, in random order.

    >>> sorted(ts.random.permutation(ts.random.key(0), 4).tolist())
    [0, 1, 2, 3]
    """
    if not is_tensor(x):
        return ops.argsort(bits(key, (check_int("permutation", "x", x),), u64))
    at = axis_of("permutation", axis, rank_of(x))
    return ops.take(x, ops.argsort(bits(key, (x.shape[at],), u64)), at)


@explain_wrong_calls
def gumbel_softmax(key: Any, logits: Any, temperature: float = 1.0, *, hard: bool = False, axis: int = -1) -> Any:
    """The softmax of `logits` plus Gumbel noise over a temperature: nearly a class drawn by them, with a derivative.

    With `hard` the result is a class, 1 among zeros, and has the derivative of the softmax.

    >>> ts.random.gumbel_softmax(ts.random.key(0), ts.array([0.0, 100.0]), hard=True)
    Tensor([2] f32, [0, 1])
    """
    heat = _positive("gumbel_softmax", "temperature", temperature)
    own = ops.astype(logits, f32) if not dtype_of(logits).is_float else logits
    noise = gumbel(key, tuple(logits.shape), dtype=dtype_of(own))
    soft = ops.softmax(ops.div(ops.add(own, noise), heat), axis)
    if not check_bool("gumbel_softmax", "hard", hard):
        return soft
    at = axis_of("gumbel_softmax", axis, rank_of(logits))
    classes = ops.one_hot(ops.argmax(soft, at), logits.shape[at], dtype_of(own))
    return ops.add(soft, stop_gradient(ops.sub(ops.moveaxis(classes, -1, at), soft)))


# Dropout of whole channels, and one that keeps variances.

_SELU_LOW = -1.7580993408473766
"""What `selu` comes to far below 0: its slope there times its scale, with the sign."""


def _share(op: str, rate: Any) -> float:
    share = check_number(op, "rate", rate)
    if not 0 <= share < 1:
        raise ArgumentError(f"`{op}` takes `rate` of at least 0 and below 1, got {share}", fix="write `rate=0.1`")
    return share


@explain_wrong_calls
def feature_dropout(x: Any, key: Any, rate: float) -> Any:
    """`x` [batch, channels, ...] with a share `rate` of its channels zero, and the others scaled up to keep the mean.

    >>> ts.random.feature_dropout(ts.ones((2, 3, 4)), ts.random.key(0), 0.0).sum()
    Tensor([] f32, 24)
    """
    share = _share("feature_dropout", rate)
    if rank_of(x) < 2:
        raise ShapeError(f"`feature_dropout` takes features [batch, channels, ...], got {list(x.shape)}")
    kept = bernoulli(key, 1.0 - share, (*tuple(x.shape)[:2], *([1] * (rank_of(x) - 2))))
    return ops.where(kept, ops.mul(x, 1.0 / (1.0 - share)), 0.0)


@explain_wrong_calls
def alpha_dropout(x: Any, key: Any, rate: float) -> Any:
    """`x` with a share `rate` of its elements what `selu` is far below 0, scaled so that mean 0 and variance 1 stay.

    >>> ts.random.alpha_dropout(ts.ones((4,)), ts.random.key(0), 0.0)
    Tensor([4] f32, [1, 1, 1, 1])
    """
    share = _share("alpha_dropout", rate)
    x = as_tensor(x)
    kept = bernoulli(key, 1.0 - share, tuple(x.shape))
    scale = ((1.0 - share) * (1.0 + share * _SELU_LOW**2)) ** -0.5
    made = ops.add(ops.mul(ops.where(kept, x, _SELU_LOW), scale), -scale * share * _SELU_LOW)
    return cast(made, dtype_of(x)) if dtype_of(x).is_float else made


@explain_wrong_calls
def choice(key: Any, a: Any, shape: Any = (), *, replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Numbers below `a`, or slices of a tensor along `axis`, drawn with probabilities `p`, or equal ones.

    Without `replace` none is drawn twice.

    >>> sorted(ts.random.choice(ts.random.key(0), 3, (3,), replace=False).tolist())
    [0, 1, 2]
    """
    sizes = tuple(one if isinstance(one, Size) else check_int("choice", "shape", one) for one in as_tuple(shape))
    axis = axis_of("choice", axis, rank_of(a) if is_tensor(a) else 1)
    count = a.shape[axis] if is_tensor(a) else check_int("choice", "a", a)
    drawn = math.prod(sizes)
    with_replacement = check_bool("choice", "replace", replace)
    if p is not None:
        p = np.asarray([check_number("choice", "p", one) for one in p], np.float64) if is_sequence(p) else p
        _check_probabilities(p, count, None if with_replacement else drawn)
    if with_replacement:
        if p is None:
            at = randint(key, sizes, 0, count)
        else:
            ends = ops.cumsum(ops.astype(p, f64))
            share = ops.mul(cast(_between(key, sizes, f32), f64), ops.max(ends))
            at = ops.clamp(ops.searchsorted(ends, share, "right"), 0, count - 1)
    else:
        if drawn > count:
            raise ArgumentError(f"`choice` cannot draw {drawn} of {count} without `replace`")
        order = permutation(key, count) if p is None else _order_by(key, p, count)
        at = ops.reshape(order[:drawn], sizes)
    return ops.take(a, at, axis) if is_tensor(a) else at


def _check_probabilities(p: Any, count: Any, drawn: Any) -> None:
    """Raise where `p` is not one probability for each choice, or, where it has values, cannot be drawn by.

    `drawn` is how many different ones are asked for; None where one may be drawn twice.
    """
    if rank_of(p) != 1 or (isinstance(p.shape[0], int) and isinstance(count, int) and p.shape[0] != count):
        raise ShapeError(
            f"`choice` takes one probability for each of {count}, got `p` of the shape {list(p.shape)}",
            fix=f"pass {count} probabilities",
        )
    if not is_array(p) and not isinstance(p, Tensor):
        return
    values = np.asarray(p).astype(np.float64)
    wrong = values[~((values >= 0) & (values < math.inf))]
    if wrong.size:
        raise ArgumentError(f"`choice` takes probabilities of at least 0, got {wrong[0]} in `p`")
    positive = int(np.count_nonzero(values))
    if not positive and values.size:
        raise ArgumentError("`choice` needs a probability above 0, and all of `p` are 0")
    if drawn is not None and drawn > positive:
        raise ArgumentError(
            f"`choice` cannot draw {drawn} without `replace` where {positive} of {count} probabilities are above 0"
        )


def _order_by(key: Any, p: Any, count: int) -> Any:
    """All numbers in the order of draws without replacement: the largest of logarithms plus Gumbel noise first."""
    return ops.argsort(ops.add(ops.log(ops.astype(p, f32)), gumbel(key, (count,))), descending=True)


@explain_wrong_calls
def multivariate_normal(key: Any, mean: Any, factor: Any, shape: Any = ()) -> Any:
    """Vectors of a normal distribution with a mean and the covariance `factor @ factor.T`.

    There are as many as `shape` for each mean and factor of a batch, whose shapes broadcast.

    >>> key, means = ts.random.key(0), ts.zeros((4, 2))
    >>> ts.random.multivariate_normal(key, means, ts.ops.eye(2), (3,)).shape
    (3, 4, 2)
    """
    for name, given, least in (("mean", mean, 1), ("factor", factor, 2)):
        dtype_of(given)
        if rank_of(given) < least:
            raise ShapeError(
                f"`multivariate_normal` takes `{name}` of at least {least} dims, got {rank_of(given)}",
                fix="pass a vector as `mean` and a matrix as `factor`",
            )
    mean, factor = as_tensor(mean), as_tensor(factor)
    batch = ops.broadcast_arrays(mean[..., 0], factor[..., 0, 0])[0].shape
    drawn = normal(key, (*as_tuple(shape), *batch, mean.shape[-1]), dtype=dtype_of(mean))
    return ops.add(ops.squeeze(ops.matmul(factor, ops.expand_dims(drawn, -1)), -1), mean)
