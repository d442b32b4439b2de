"""The Adam update of a whole tree of parameters: each element is read once, computed in registers and written once."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tessera.api.eager import install
from tessera.api.jit import jit
from tessera.diagnostics.codes import PytreeError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.frontend.pytree import flatten, leaves_like, unflatten
from tessera.frontend.scopes import policy
from tessera.ir.base import dispatch
from tessera.types.dtype import f32
from tessera.types.policy import SILENT, Policy

install()

FULL_PRECISION = Policy(storage=f32, compute=f32, accumulate=f32, rounding="nearest_even")


@contextmanager
def full_precision() -> Generator[None]:
    """Within it, arithmetic is in the dtypes of its operands, whatever policy is around: updates are small numbers.

    Under `jit(policy=ts.Training())` moments would else be rounded to bf16.
    """
    around: Any = getattr(dispatch.active(), "policy", SILENT)
    if not around:
        yield
        return
    with policy(FULL_PRECISION):
        yield


def bias_correction(decay: float, count: Any, dtype: Any) -> Any:
    """`1 / (1 - decay**count)` of a step count from 1 on, as a scalar of `dtype`.

    By `expm1`: in f32 the difference itself would lose 10 of 24 bits for a decay of 0.999 and the first count.

    >>> from tessera.stdlib.optimizers import bias_correction
    >>> bias_correction(0.5, 1, ts.f32)
    Tensor([] f32, 2)
    """
    if decay <= 0.0:
        return ops.ones((), dtype)
    # The logarithm of a Python float: as exact as the decay that the user wrote.
    return 1.0 / -ops.expm1(cast(as_tensor(count), dtype) * math.log(decay))


def adam_direction(
    gradient: Any, mu: Any, nu: Any, corrections: tuple[Any, Any], b1: float, b2: float, eps: float
) -> tuple[Any, Any, Any]:
    """The new moments of one tensor, and the step that they give at learning rate 1, all in the dtype of `mu`."""
    mu = b1 * mu + (1.0 - b1) * gradient
    nu = b2 * nu + (1.0 - b2) * (gradient * gradient)
    return mu, nu, (mu * corrections[0]) / (ops.sqrt(nu * corrections[1]) + eps)


def _columns(trees: tuple[Any, ...]) -> tuple[list[list[Any]], Any]:
    """The leaves of several trees of one form, side by side."""
    leaves, form = flatten(trees[0], keep_order=True)
    columns = [leaves]
    for name, tree in zip(("gradients", "mu", "nu"), trees[1:], strict=True):
        more = leaves_like(form, tree)
        if more is None:
            raise PytreeError(
                f"`fused_adam` takes `{name}` in the form of the parameters, {form}, got {flatten(tree)[1]}",
                fix="give it a tree with one tensor for each parameter",
            )
        columns.append(more)
    return columns, form


def _fused_adam(
    params: Any,
    gradients: Any,
    mu: Any,
    nu: Any,
    count: Any,
    learning_rate: Any = 1e-3,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> tuple[Any, Any, Any]:
    """AdamW on trees: the parameters, first and second moments after step `count`, which is 1 at the first.

    What is narrower than f32 is computed in f32 and rounded once; moments are f32 then. The update of a tensor is one
    pass that reads and writes each element once, and under `jit(donate=...)` it is in place. The result equals, bit
    for bit, the same formulas in NumPy: `m = b1*m + (1-b1)*g`, `v = b2*v + (1-b2)*(g*g)`,
    `p = p - lr*((m*c1) / (sqrt(v*c2) + eps) + weight_decay*p)`, with the numbers `c = 1 / (1 - b**count)`.

    >>> params = {"w": ts.array([1.0, 2.0])}
    >>> zeros = {"w": ts.zeros((2,))}
    >>> gradients = {"w": ts.array([0.5, -0.5])}
    >>> params, mu, nu = ts.stdlib.fused_adam(params, gradients, zeros, zeros, 1, 0.5)
    >>> params["w"]
    Tensor([2] f32, [0.5, 2.5])
    """
    columns, form = _columns((params, gradients, mu, nu))
    made: list[tuple[Any, Any, Any]] = []
    with full_precision():
        for parameter, gradient, first, second in zip(*columns, strict=True):
            dtype = dtype_of(first)
            corrections = bias_correction(b1, count, dtype), bias_correction(b2, count, dtype)
            first, second, step = adam_direction(cast(gradient, dtype), first, second, corrections, b1, b2, eps)
            wide = cast(parameter, dtype)
            if weight_decay:
                step = step + weight_decay * wide
            rate = learning_rate if isinstance(learning_rate, float) else cast(as_tensor(learning_rate), dtype)
            made.append((cast(wide - rate * step, dtype_of(parameter)), first, second))
    new = [unflatten(form, [row[at] for row in made]) for at in range(3)]
    return new[0], new[1], new[2]


fused_adam = jit(_fused_adam)
