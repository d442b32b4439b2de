"""Random counts: of the Poisson, binomial and geometric distributions, drawn in f64 and exact in their integers.

Where few are expected the distribution function is inverted step by step at one uniform number for each element;
otherwise counts are drawn by rejection from a hat with a table mountain's shape (Hörmann 1993: PTRS and BTRS).

A count that an integer dtype does not have is refused where parameters are numbers, as soon as a draw in 2**53 may be
one; of parameters that are tensors such a count gives the largest integer that the dtype has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tessera.api.control import while_loop
from tessera.api.gamma_distributions import between, draw_until_accepted, only_legal, parameter
from tessera.api.randomness import fold
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import explain_wrong_calls
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import cast, dims_of, is_tensor
from tessera.types.dtype import DType, f64, i64, parse_dtype
from tessera.types.promotion import integer_range

_FEW = 10.0
"""From so many expected on, rejection takes fewer steps than inversion, and accepts as its constants assume."""
_MOST_STEPS = 128
"""More counts than inversion ever takes: 10 are expected at most, and beyond 90 lies less than one in 2**53."""


_CERTAIN = 53 * math.log(2.0)
"""A probability whose logarithm is below minus this one is less than that of any uniform number that is drawn."""


def _integer_dtype(op: str, dtype: Any) -> DType:
    wanted = parse_dtype(dtype)
    if not wanted.is_integer and not wanted.is_float:
        raise ArgumentError(f"`{op}` draws counts, got `dtype={wanted}`", fix="write `dtype=ts.i64`")
    return wanted


def _check_range(op: str, dtype: DType, given: str, values: Sequence[Any], bound: Callable[..., float]) -> None:
    """Raises where counts of these parameters may be beyond a dtype; `bound(largest, *values)` is how unlikely that is.

    It is a bound of the logarithm of the probability, with the other sign. Elements of tensors are not known.
    """
    if dtype.is_float or any(is_tensor(value) for value in values):
        return
    _, largest = integer_range(dtype)
    numbers = [float(value) for value in values]
    if bound(float(largest), *numbers) < _CERTAIN:
        raise ArgumentError(
            f"`{op}` with {given.format(*numbers)} draws counts beyond {largest}, the largest that {dtype} has",
            fix="write `dtype=ts.i64`, or `dtype=ts.f64` for counts that are larger still",
        )


def _as_counts(made: Any, dtype: DType, *legal: Any) -> Any:
    """What was drawn in a dtype; -1 where a parameter was none, and the largest integer of a dtype without a sign."""
    instead = float(integer_range(dtype)[1]) if dtype.kind == "uint" else -1.0
    return cast(only_legal(made, *legal, instead=instead), dtype)


def _unlikely_events(largest: float, rate: float) -> float:
    """By Chernoff's bound."""
    if rate == 0.0:
        return math.inf
    return rate - largest + largest * math.log(largest / rate) if rate < largest else 0.0


def _unlikely_successes(largest: float, n: float, p: float) -> float:
    """By Chernoff's bound, which is the divergence of the two shares."""
    if n <= largest or p == 0.0:
        return math.inf
    share = largest / n
    if share <= p:
        return 0.0
    return largest * math.log(share / p) + (n - largest) * (math.log1p(-share) - math.log1p(-p))


def _unlikely_trials(largest: float, p: float) -> float:
    return math.inf if p == 1.0 else -largest * math.log1p(-p)


def _invert(u: Any, none: Any, ratio: Callable[[Any], Any]) -> Any:
    """The count up to which probabilities add up to `u`, of that of 0 and the ratio of that of `k` to that before."""

    def goes_on(state: tuple[Any, Any, Any, Any]) -> Any:
        return ops.logical_and(ops.lt(state[0], _MOST_STEPS), ops.any(ops.gt(u, state[2])))

    def step(state: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        count, own, total, found = state
        above = ops.gt(u, total)
        count = ops.add(count, 1.0)
        own = ops.mul(own, ratio(count))
        return count, own, ops.where(above, ops.add(total, own), total), ops.where(above, count, found)

    state = (ops.full((), 0.0, f64), none, none, ops.zeros_like(none))
    return while_loop(goes_on, step, state)[3]


def _shares(key: Any, sizes: Any) -> tuple[Any, Any, Any]:
    """A uniform number around 0, how far it is from the ends, and another one from 0 to 1."""
    u = ops.sub(between(fold(key, 0), sizes, f64), 0.5)
    return u, ops.sub(0.5, ops.abs(u)), between(fold(key, 1), sizes, f64)


def _many_events(key: Any, rate: Any) -> Any:
    """Counts of rates of at least 10 (PTRS)."""
    sizes = tuple(rate.shape)
    b = ops.add(ops.mul(ops.sqrt(rate), 2.53), 0.931)
    a = ops.sub(ops.mul(b, 0.02483), 0.059)
    scale = ops.add(ops.div(1.1328, ops.sub(b, 3.4)), 1.1239)
    sure = ops.sub(0.9277, ops.div(3.6224, ops.sub(b, 2.0)))

    def propose(key: Any) -> tuple[Any, Any]:
        u, us, v = _shares(key, sizes)
        k = ops.floor(ops.add(ops.mul(ops.add(ops.div(ops.mul(a, 2.0), us), b), u), ops.add(rate, 0.43)))
        hat = ops.sub(ops.add(ops.log(v), ops.log(scale)), ops.log(ops.add(ops.div(a, ops.mul(us, us)), b)))
        safe = ops.maximum(k, 0.0)
        own = ops.sub(ops.sub(ops.mul(safe, ops.log(rate)), rate), ops.lgamma(ops.add(safe, 1.0)))
        return k, _accept(us, v, sure, ops.ge(k, 0.0), ops.le(hat, own))

    return draw_until_accepted(key, rate, propose)


def _accept(us: Any, v: Any, sure: Any, is_count: Any, is_below: Any) -> Any:
    """Whether a point under the hat counts: in its middle, or where it is one under the distribution too."""
    in_middle = ops.logical_and(ops.ge(us, 0.07), ops.le(v, sure))
    in_corner = ops.logical_and(ops.lt(us, 0.013), ops.gt(v, us))
    in_tail = ops.logical_and(ops.logical_and(is_count, ops.logical_not(in_corner)), is_below)
    return ops.logical_or(in_middle, in_tail)


@explain_wrong_calls
def poisson(key: Any, shape: Any, rate: Any, *, dtype: Any = i64) -> Any:
    """Counts of the Poisson distribution with the mean `rate`: a number from 0, or a tensor that broadcasts to `shape`.

    An element of a tensor that is no such number gives -1, and the largest integer of a dtype without a sign. So does,
    in any integer dtype, a count beyond it; where `rate` is a number that draws such counts it is refused.

    >>> ts.random.poisson(ts.random.key(0), (3,), 0.0)
    Tensor([3] i64, [0, 0, 0])
    """
    wanted, sizes = _integer_dtype("poisson", dtype), dims_of(shape)
    mean, legal = parameter("poisson", "rate", rate, sizes, f64, is_open=False)
    _check_range("poisson", wanted, "`rate={:g}`", (rate,), _unlikely_events)
    is_few = ops.lt(mean, _FEW)
    low, high = ops.where(is_few, mean, 1.0), ops.where(is_few, _FEW, mean)
    few = _invert(between(fold(key, 0), sizes, f64), ops.exp(ops.neg(low)), lambda k: ops.div(low, k))
    many = _many_events(fold(key, 1), high)
    return _as_counts(ops.where(is_few, few, many), wanted, legal)


def _many_successes(key: Any, n: Any, p: Any) -> Any:
    """How many of `n` trials succeed, where at least 10 are expected to, and `p` is at most a half (BTRS)."""
    sizes = tuple(n.shape)
    q = ops.sub(1.0, p)
    spread = ops.sqrt(ops.mul(ops.mul(n, p), q))
    b = ops.add(ops.mul(spread, 2.53), 1.15)
    a = ops.add(ops.add(ops.mul(b, 0.0248), ops.mul(p, 0.01)), -0.0873)
    sure = ops.sub(0.92, ops.div(4.2, b))
    scale = ops.mul(ops.add(ops.div(5.1, b), 2.83), spread)
    mode, odds = ops.floor(ops.mul(ops.add(n, 1.0), p)), ops.log(ops.div(p, q))
    top = ops.add(ops.lgamma(ops.add(mode, 1.0)), ops.lgamma(ops.add(ops.sub(n, mode), 1.0)))

    def propose(key: Any) -> tuple[Any, Any]:
        u, us, v = _shares(key, sizes)
        k = ops.floor(ops.add(ops.mul(ops.add(ops.div(ops.mul(a, 2.0), us), b), u), ops.add(ops.mul(n, p), 0.5)))
        is_count = ops.logical_and(ops.ge(k, 0.0), ops.le(k, n))
        safe = ops.where(is_count, k, 0.0)
        hat = ops.log(ops.div(ops.mul(v, scale), ops.add(ops.div(a, ops.mul(us, us)), b)))
        ways = ops.add(ops.lgamma(ops.add(safe, 1.0)), ops.lgamma(ops.add(ops.sub(n, safe), 1.0)))
        own = ops.add(ops.sub(top, ways), ops.mul(ops.sub(safe, mode), odds))
        return safe, ops.logical_and(is_count, _accept(us, v, sure, is_count, ops.le(hat, own)))

    return draw_until_accepted(key, n, propose)


@explain_wrong_calls
def binomial(key: Any, shape: Any, n: Any, p: Any, *, dtype: Any = i64) -> Any:
    """How many of `n` trials succeed, each with probability `p`: numbers, or tensors that broadcast to `shape`.

    `n` is rounded down. An element of a tensor that is no number of trials, or no probability, gives -1, and what
    counts beyond the dtype give is as with `poisson`.

    >>> ts.random.binomial(ts.random.key(0), (3,), 5, 1.0)
    Tensor([3] i64, [5, 5, 5])
    """
    wanted, sizes = _integer_dtype("binomial", dtype), dims_of(shape)
    trials, is_count = parameter("binomial", "n", n, sizes, f64, is_open=False)
    share, is_share = parameter("binomial", "p", p, sizes, f64, is_open=False, most=1.0)
    _check_range("binomial", wanted, "`n={:g}` and `p={:g}`", (n, p), _unlikely_successes)
    trials, is_likely = ops.floor(trials), ops.gt(share, 0.5)
    rare = ops.where(is_likely, ops.sub(1.0, share), share)
    is_few = ops.lt(ops.mul(trials, rare), _FEW)
    low, high = ops.where(is_few, rare, 0.0), ops.where(is_few, 0.5, rare)
    odds, none = ops.div(low, ops.sub(1.0, low)), ops.exp(ops.mul(trials, ops.log1p(ops.neg(low))))

    def ratio(k: Any) -> Any:
        return ops.mul(ops.div(ops.maximum(ops.sub(trials, ops.sub(k, 1.0)), 0.0), k), odds)

    few = ops.minimum(_invert(between(fold(key, 0), sizes, f64), none, ratio), trials)
    many = _many_successes(fold(key, 1), ops.where(is_few, 4 * _FEW, trials), high)
    made = ops.where(is_few, few, many)
    made = ops.where(is_likely, ops.sub(trials, made), made)
    return _as_counts(made, wanted, is_count, is_share)


@explain_wrong_calls
def geometric(key: Any, shape: Any, p: Any, *, dtype: Any = i64) -> Any:
    """How many trials there are up to and with the first success, each with probability `p` above 0 and at most 1.

    `p` is a number, or a tensor that broadcasts to `shape`; an element of it that is no such number gives -1, and what
    counts beyond the dtype give is as with `poisson`.

    >>> ts.random.geometric(ts.random.key(0), (3,), 1.0)
    Tensor([3] i64, [1, 1, 1])
    """
    wanted, sizes = _integer_dtype("geometric", dtype), dims_of(shape)
    share, legal = parameter("geometric", "p", p, sizes, f64, most=1.0)
    _check_range("geometric", wanted, "`p={:g}`", (p,), _unlikely_trials)
    failures = ops.floor(ops.div(ops.log(between(key, sizes, f64)), ops.log1p(ops.neg(share))))
    return _as_counts(ops.add(failures, 1.0), wanted, legal)
