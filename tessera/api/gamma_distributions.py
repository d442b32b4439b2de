"""Random tensors of distributions made from gamma variables: gamma, beta, Dirichlet, chi-squared, Student's t.

Gamma variables are drawn by rejection. Each trip over those that are still missing draws for every element by the key
of that trip and the index of the element, so that what an element gets depends on no other one, nor on tiling, sharding
or machine. No derivative flows back to the parameters that decide what is rejected; scales have theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tessera.api.autodiff import stop_gradient
from tessera.api.control import while_loop
from tessera.api.randomness import fold, normal, uniform
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_number, explain_wrong_calls
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import cast, dims_of, is_tensor, rank_of
from tessera.frontend.pytree import as_tuple
from tessera.types.dtype import DType, f32, f64, parse_dtype

_MOST_TRIPS = 64
"""How often a rejected element is drawn again at most: at least 1 in 2 is accepted, so that none is left over."""


def wide_dtype(dtype: DType) -> DType:
    """In which floats of a dtype are drawn."""
    return f64 if dtype is f64 else f32


def between(key: Any, shape: Any, dtype: DType) -> Any:
    """Uniform numbers in the middle of their steps: neither 0 nor 1, whose logarithms are infinite."""
    step = 2.0**-53 if dtype is f64 else 2.0**-24
    return ops.add(ops.mul(uniform(key, shape, dtype=dtype), 1.0 - step), 0.5 * step)


def parameter(op: str, name: str, value: Any, shape: Any, dtype: DType, *, least: float = 0.0, most: float = math.inf,
              is_open: bool = True) -> tuple[Any, Any]:  # fmt: skip
    """A parameter for each element, legal everywhere, and whether what was given was legal.

    A number is checked here. A tensor broadcasts to `shape`, and its elements are tested where they are used.
    """
    if not is_tensor(value):
        number = check_number(op, name, value)
        is_legal = (least < number if is_open else least <= number) and number <= most and math.isfinite(number)
        if not is_legal:
            bound = f"{'above' if is_open else 'of at least'} {least:g}"
            raise ArgumentError(
                f"`{op}` takes `{name}` {bound}{f' and at most {most:g}' if most < math.inf else ' and finite'},"
                f" got {number}",
                fix=f"write `{name}={0.5 if most == 1 else 2.0}`",
            )
        return ops.full(shape, float(number), dtype), None
    given = ops.broadcast_to(cast(value, dtype), shape)
    above = ops.gt(given, least) if is_open else ops.ge(given, least)
    legal = ops.logical_and(above, ops.le(given, most) if most < math.inf else ops.lt(given, most))
    return ops.where(legal, given, 1.0 if most == math.inf else 0.5), legal


def only_legal(made: Any, *legal: Any, instead: Any = math.nan) -> Any:
    """What was drawn, and NaN (or another number) where a parameter was none."""
    for one in legal:
        made = made if one is None else ops.where(one, made, instead)
    return made


def draw_until_accepted(key: Any, start: Any, propose: Callable[[Any], tuple[Any, Any]]) -> Any:
    """For each element the first accepted of what `propose(key)` gives: numbers, and whether each is accepted."""

    def goes_on(state: tuple[Any, Any, Any]) -> Any:
        return ops.logical_and(ops.lt(state[0], _MOST_TRIPS), ops.logical_not(ops.all(state[2])))

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        trip, found, done = state
        proposed, accepted = propose(fold(key, trip))
        return ops.add(trip, 1), ops.where(done, found, proposed), ops.logical_or(done, accepted)

    state = (ops.full((), 0), start, ops.ne(start, start))
    return while_loop(goes_on, step, state)[1]


def _draw_gamma(key: Any, a: Any) -> tuple[Any, Any]:
    """A gamma variable of a shape of at least 1, and the logarithm of what makes it one of `a` (Marsaglia, Tsang)."""
    sizes, dtype = tuple(a.shape), a.dtype
    boosted = ops.where(ops.lt(a, 1.0), ops.add(a, 1.0), a)
    d = ops.sub(boosted, 1.0 / 3.0)
    c = ops.rsqrt(ops.mul(d, 9.0))

    def propose(key: Any) -> tuple[Any, Any]:
        x, u = normal(fold(key, 0), sizes, dtype=dtype), between(fold(key, 1), sizes, dtype)
        t = ops.mul(c, x)
        has_cube = ops.gt(t, -1.0)
        t = ops.where(has_cube, t, 0.0)
        cube = ops.add(ops.mul(ops.mul(ops.add(t, 3.0), t), t), ops.mul(t, 3.0))
        # `d - d v + d log(v)` for `v = (1 + t)**3`, in terms that are small where `t` is.
        slope = ops.sub(ops.mul(ops.sub(ops.log1p(t), t), 3.0), ops.mul(ops.mul(t, t), ops.add(t, 3.0)))
        bound = ops.add(ops.mul(ops.mul(x, x), 0.5), ops.mul(d, slope))
        accepted = ops.logical_and(has_cube, ops.lt(ops.log(u), bound))
        return ops.mul(d, ops.add(cube, 1.0)), accepted

    made = draw_until_accepted(fold(key, 0), boosted, propose)
    share = ops.div(ops.log(between(fold(key, 1), sizes, dtype)), a)
    return made, ops.where(ops.lt(a, 1.0), share, 0.0)


def _log_gamma(key: Any, a: Any) -> Any:
    """The logarithm of a gamma variable, which is a number where the variable is too small for one."""
    made, boost = _draw_gamma(key, a)
    return ops.add(ops.log(made), boost)


@explain_wrong_calls
def gamma(key: Any, shape: Any, a: Any, *, scale: Any = 1.0, dtype: Any = f32) -> Any:
    """Numbers of the gamma distribution with the shape parameter `a` and a scale: their mean is `a * scale`.

    Both are numbers above 0, or tensors that broadcast to `shape`; an element of a tensor that is not above 0 gives
    NaN. A derivative flows to `scale`, and none to `a`.

    >>> ts.random.gamma(ts.random.key(0), (2, 3), 2.5).shape
    (2, 3)
    """
    wanted = parse_dtype(dtype)
    wide, sizes = wide_dtype(wanted), dims_of(shape)
    (form, is_form), (size, is_size) = (
        parameter("gamma", name, one, sizes, wide) for name, one in (("a", a), ("scale", scale))
    )
    made, boost = _draw_gamma(key, stop_gradient(form))
    drawn = stop_gradient(ops.mul(made, ops.exp(boost)))
    return cast(only_legal(ops.mul(drawn, size), is_form, is_size), wanted)


@explain_wrong_calls
def chi_square(key: Any, shape: Any, df: Any, *, dtype: Any = f32) -> Any:
    """Numbers of the chi-squared distribution with `df` degrees of freedom, above 0: a number, or a tensor.

    >>> ts.random.chi_square(ts.random.key(0), (2, 3), 4).shape
    (2, 3)
    """
    wanted = parse_dtype(dtype)
    half, legal = parameter("chi_square", "df", df, dims_of(shape), wide_dtype(wanted))
    made, boost = _draw_gamma(key, stop_gradient(ops.mul(half, 0.5)))
    return cast(only_legal(stop_gradient(ops.mul(ops.mul(made, ops.exp(boost)), 2.0)), legal), wanted)


@explain_wrong_calls
def student_t(key: Any, shape: Any, df: Any, *, dtype: Any = f32) -> Any:
    """Numbers of Student's t distribution with `df` degrees of freedom, above 0: a number, or a tensor.

    >>> ts.random.student_t(ts.random.key(0), (2, 3), 4).shape
    (2, 3)
    """
    wanted = parse_dtype(dtype)
    wide, sizes = wide_dtype(wanted), dims_of(shape)
    number, legal = parameter("student_t", "df", df, sizes, wide)
    half = stop_gradient(ops.mul(number, 0.5))
    spread = ops.exp(ops.mul(ops.sub(ops.log(half), _log_gamma(fold(key, 1), half)), 0.5))
    return cast(only_legal(stop_gradient(ops.mul(normal(fold(key, 0), sizes, dtype=wide), spread)), legal), wanted)


@explain_wrong_calls
def beta(key: Any, shape: Any, a: Any, b: Any, *, dtype: Any = f32) -> Any:
    """Numbers from 0 to 1 of the beta distribution with parameters above 0: numbers, or tensors that broadcast.

    >>> ts.random.beta(ts.random.key(0), (2, 3), 2.0, 0.5).shape
    (2, 3)
    """
    wanted = parse_dtype(dtype)
    wide, sizes = wide_dtype(wanted), dims_of(shape)
    (first, is_first), (second, is_second) = (
        parameter("beta", name, one, sizes, wide) for name, one in (("a", a), ("b", b))
    )
    left, right = (_log_gamma(fold(key, at), stop_gradient(one)) for at, one in enumerate((first, second)))
    return cast(only_legal(stop_gradient(ops.sigmoid(ops.sub(left, right))), is_first, is_second), wanted)


@explain_wrong_calls
def dirichlet(key: Any, alpha: Any, shape: Any = (), *, dtype: Any = f32) -> Any:
    """Probabilities of the Dirichlet distribution with the concentrations `alpha` [..., classes], all above 0.

    There are as many as `shape` for each row of `alpha`; each sums to 1 along its last axis.

    >>> ts.random.dirichlet(ts.random.key(0), ts.array([1.0, 2.0, 3.0]), (5,)).shape
    (5, 3)
    """
    if rank_of(alpha) < 1:
        raise ShapeError("`dirichlet` takes concentrations [..., classes], got a scalar", fix="write `ts.array([1.0])`")
    wanted = parse_dtype(dtype)
    sizes = dims_of((*as_tuple(shape), *alpha.shape))
    form, legal = parameter("dirichlet", "alpha", alpha, sizes, wide_dtype(wanted))
    made = ops.softmax(_log_gamma(key, stop_gradient(form)), -1)
    is_row = None if legal is None else ops.all(legal, -1, keepdims=True)
    return cast(only_legal(stop_gradient(made), is_row), wanted)
