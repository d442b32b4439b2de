"""Transforms in any order: all ordered pairs and random triples, on a small net, against nested dual numbers."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import Array
from tests.runtime.ranks.threads import on_ranks

SIZE = 3
RNG = np.random.default_rng(23)
W, X, DIRECTION = RNG.standard_normal((SIZE, SIZE)), RNG.standard_normal(SIZE), RNG.standard_normal(SIZE)
UNITS = np.eye(SIZE)
TRIPLES = 24

Net = Callable[..., Any]
"""A function of weights and a vector that gives a vector: all transforms here make another one of it."""


class Dual:
    """A number and its change, in NumPy; both may be such pairs themselves, for derivatives of derivatives."""

    __array_ufunc__ = None  # an array times such a pair is the pair's business

    def __init__(self, value: Any, change: Any) -> None:
        self.value, self.change = value, change

    def __add__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.change + other.change)
        return Dual(self.value + other, self.change)

    def __mul__(self, other: Any) -> Dual:
        if isinstance(other, Dual):
            return Dual(self.value * other.value, self.change * other.value + self.value * other.change)
        return Dual(self.value * other, self.change * other)

    __radd__, __rmul__ = __add__, __mul__

    def __matmul__(self, w: Array) -> Dual:
        return Dual(self.value @ w, self.change @ w)

    def sum(self) -> Dual:
        return Dual(self.value.sum(), self.change.sum())


def tanh(x: Any) -> Any:
    if not isinstance(x, Dual):
        return np.tanh(x)
    found = tanh(x.value)
    return Dual(found, x.change * (found * found * -1.0 + 1.0))


def net(w: Any, x: Any) -> Any:
    return ops.tanh(x @ w) * x + x * x * 0.25


def reference_net(w: Any, x: Any) -> Any:
    return tanh(x @ w) * x + x * x * 0.25


def by_grad(f: Net) -> Net:
    return lambda w, x: ts.grad(lambda v: (f(w, v) * DIRECTION).sum())(x)


def by_jvp(f: Net) -> Net:
    return lambda w, x: ts.jvp(lambda v: f(w, v), (x,), (ops.cast(DIRECTION, ts.f64),))[1]


def by_vmap(f: Net) -> Net:
    return lambda w, x: ts.vmap(f, in_axes=(None, 0))(w, ops.stack((x, x * 0.5))).sum(axis=0)


def by_scan(f: Net) -> Net:
    def run(w: Any, x: Any) -> Any:
        last, rows = ts.scan(lambda h, r: (f(w, h * r), h), x, ops.cast(np.array([1.0, 0.5]), ts.f64))
        return last + rows.sum(axis=0)

    return run


TRANSFORMS: dict[str, Callable[[Net], Net]] = {
    "jit": ts.jit,
    "grad": by_grad,
    "jvp": by_jvp,
    "vmap": by_vmap,
    "checkpoint": ts.checkpoint,
    "scan": by_scan,
}


def _gradient(f: Net) -> Net:
    """One change after the other: what a product with a row of unit vectors is."""

    def run(w: Any, x: Any) -> Any:
        found: Any = None
        for at in range(SIZE):
            slope = (f(w, Dual(x, UNITS[at])) * DIRECTION).sum().change
            part = slope * UNITS[at]
            found = part if found is None else found + part
        return found

    return run


def _rows(f: Net) -> Net:
    def run(w: Any, x: Any) -> Any:
        second = f(w, x)
        return f(w, second * 0.5) + second + x

    return run


REFERENCES: dict[str, Callable[[Net], Net]] = {
    "jit": lambda f: f,
    "checkpoint": lambda f: f,
    "grad": _gradient,
    "jvp": lambda f: lambda w, x: f(w, Dual(x, DIRECTION)).change,
    "vmap": lambda f: lambda w, x: f(w, x) + f(w, x * 0.5),
    "scan": _rows,
}


def check_order(names: tuple[str, ...]) -> None:
    """The net with transforms around it, the last one outermost, called eagerly and jitted."""
    mine, reference = net, reference_net
    for name in names:
        mine, reference = TRANSFORMS[name](mine), REFERENCES[name](reference)
    expected = reference(W, X)
    eagerly = np.asarray(mine(W, X))
    np.testing.assert_allclose(eagerly, expected, rtol=1e-11, atol=1e-12, err_msg=str(names))
    jitted = np.asarray(ts.jit(mine)(W, X))
    np.testing.assert_allclose(jitted, expected, rtol=1e-11, atol=1e-12, err_msg=f"{names}, jitted")


@pytest.mark.parametrize("outer", TRANSFORMS)
def test_all_ordered_pairs_agree_with_dual_numbers(outer: str) -> None:
    for inner in TRANSFORMS:
        check_order((inner, outer))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, TRIPLES, 4))
def test_random_triples_agree_with_dual_numbers(number: int) -> None:
    rng = random.Random(7)
    triples = [tuple(rng.choices(list(TRANSFORMS), k=3)) for _ in range(TRIPLES)]
    for names in triples[number : number + 4]:
        check_order(names)


# With `pmap`: rows of a batch on the ranks of an axis, which have no less than each other's results.


def by_pmap(f: Net, axis: str = "dp") -> Net:
    """As `by_vmap`, with a row on each of two ranks."""
    return lambda w, x: ts.dist.pmap(f, axis, in_axes=(None, 0))(w, ops.stack((x, x * 0.5))).sum(axis=0)


MAPPED: list[tuple[str, str]] = [
    *((name, "pmap") for name in TRANSFORMS),
    *(("pmap", name) for name in TRANSFORMS),
    ("pmap", "pmap"),
]


@pytest.mark.parametrize("names", MAPPED, ids="-".join)
def test_t6_all_ordered_pairs_with_pmap_agree_with_dual_numbers(names: tuple[str, str]) -> None:
    axes = {"dp": 2, "tp": 2} if names == ("pmap", "pmap") else {"dp": 2}
    mine, reference, left = net, reference_net, list(axes)
    for name in names:
        mine = by_pmap(mine, left.pop()) if name == "pmap" else TRANSFORMS[name](mine)
        reference = REFERENCES["vmap" if name == "pmap" else name](reference)
    run = ts.jit(mine, backend="reference")
    expected = reference(W, X)
    for found in on_ranks(lambda _: np.asarray(run(W, X)), **axes):
        assert not isinstance(found, Exception), found
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12, err_msg=str(names))


def test_what_all_orders_are_compared_with_is_right() -> None:
    """Dual numbers against central differences, once and nested."""
    step = 1e-6
    slope = (reference_net(W, X + step * DIRECTION) - reference_net(W, X - step * DIRECTION)) / (2 * step)
    np.testing.assert_allclose(REFERENCES["jvp"](reference_net)(W, X), slope, rtol=1e-8)
    first = REFERENCES["grad"](reference_net)
    again = (first(W, X + step * DIRECTION) - first(W, X - step * DIRECTION)) / (2 * step)
    np.testing.assert_allclose(REFERENCES["jvp"](first)(W, X), again, rtol=1e-7)
