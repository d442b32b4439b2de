"""Loss scales as values of a program: what to multiply a loss by, adapted by pure functions that run under `jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from tessera.api.precision import adapt_scale, check_scale
from tessera.diagnostics.codes import PolicyError, PytreeError
from tessera.frontend import pytree
from tessera.frontend.concrete import is_concrete
from tessera.frontend.functions.elementwise import abs as magnitude
from tessera.frontend.functions.elementwise import div, logical_and, lt, where
from tessera.frontend.functions.movement import reshape
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, is_tensor
from tessera.frontend.functions.reduction import all as every
from tessera.frontend.pytree import flatten, leaves_like, unflatten
from tessera.frontend.subprograms import type_of
from tessera.frontend.traced_number import is_traced_number
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.types.dtype import bool_, f32, i32


def join_pairs(function: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Values joined two by two, so that none waits for all others: `f(f(a, b), f(c, d))`."""
    found = list(values)
    while len(found) > 1:
        joined = [function(one, two) for one, two in zip(found[::2], found[1::2], strict=False)]
        found = [*joined, *found[len(joined) * 2 :]]
    return found[0]


def _number(value: float, dtype: Any) -> Any:
    return apply("full", (), {"shape": (), "value": value, "dtype": dtype})


def all_finite(tree: Any) -> Any:
    """Whether all floats of a tree of tensors are finite, as a bool tensor: what decides if a step is taken.

    >>> ts.all_finite({"w": ts.array([1.0, 2.0]), "b": ts.array([float("inf")])})
    Tensor([] bool, False)
    """
    tensors = [tensor for leaf in flatten(tree)[0] if dtype_of(tensor := as_tensor(leaf)).is_float]
    # As lines: what reads the answer would else become part of the reduction of a tensor of its shape.
    lines = [reshape(tensor, (1, -1)) for tensor in tensors]
    found = [every(lt(magnitude(line), float("inf")), axis=None) for line in lines]
    return join_pairs(logical_and, found) if found else _number(1.0, bool_)


def _known_number(scale: Any) -> float | None:
    """The number that a loss scale starts as; None where only the run of a program knows it."""
    if scale.__class__ is not bool and issubclass(scale.__class__, Real) and not is_traced_number(scale):
        return float(scale)
    if is_tensor(scale):
        got = "" if scale.shape == () else str(type_of(scale))
    else:
        got = "" if is_traced_number(scale) else repr(scale)
    if got:
        raise PolicyError(f"a loss scale takes `scale` as a number or a scalar, got {got}", fix="pass one number")
    return float(scale) if is_concrete(scale) and dispatch.tracing() is None else None


class LossScale:
    """A factor on the loss that keeps small gradients representable, as a pair of tensors that a step takes and gives.

    Multiply the loss with `scaled`, divide the gradients with `unscaled`, and let `update` adapt it: after a step whose
    gradients were not all finite it is multiplied by `backoff`, after `interval` good ones in a row by `growth`, up to
    `largest` and down to `least`; with `interval=0` it stays as it is. `choose` takes the new values of a good step,
    and the old ones else. All are pure functions of tensors, under `jit` and outside; `LossScaler` is the same with a
    history, outside of `jit`.

    >>> scale = ts.LossScale(8.0, interval=2)
    >>> for is_good in (True, False, True, True):
    ...     scale = scale.update(is_good)
    >>> scale
    LossScale(8, 0 good steps)
    """

    def __init__(
        self,
        scale: Any = 2.0**15,
        *,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
        largest: float = 2.0**24,
        least: float = 2.0**-14,
    ) -> None:
        known = _known_number(scale)
        check_scale("a loss scale", known, 0, growth, backoff, interval, largest, least)
        self.scale = cast(as_tensor(scale), f32) if known is None else _number(known, f32)
        self.good_steps = _number(0.0, i32)
        self.settings = (growth, backoff, interval, largest, least)

    def scaled(self, loss: Any) -> Any:
        """The loss times the scale, in f32."""
        return cast(as_tensor(loss), f32) * self.scale

    def unscaled(self, gradients: Any) -> Any:
        """A tree of gradients in f32, without the scale."""
        leaves, form = flatten(gradients, keep_order=True)
        return unflatten(form, [div(cast(as_tensor(leaf), f32), self.scale) for leaf in leaves])

    def update(self, is_finite: Any) -> LossScale:
        """The scale of the next step, by whether the gradients of this one were finite."""
        if not self.settings[2]:
            return self
        state = (self.scale, self.good_steps)
        return _restore(self.settings, adapt_scale(self.settings, state, as_tensor(is_finite), where))

    def choose(self, is_finite: Any, new: Any, old: Any) -> Any:
        """The tree `new` after a good step, else `old`, which has its form: a step that is not good is skipped."""
        before, form = flatten(old, keep_order=True)  # the order of keys is part of what `jit` compiles for
        leaves = leaves_like(form, new)
        if leaves is None:
            raise PytreeError(f"`LossScale.choose` takes two trees of one form, got {flatten(new)[1]} and {form}")
        good = as_tensor(is_finite)
        return unflatten(form, [where(good, one, two) for one, two in zip(leaves, before, strict=True)])

    def __repr__(self) -> str:
        if any(not hasattr(one, "item") or not hasattr(one, "tolist") for one in (self.scale, self.good_steps)):
            return f"LossScale({self.scale!r})"
        return f"LossScale({float(self.scale):g}, {int(self.good_steps)} good steps)"


def _split(scale: LossScale) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return (scale.scale, scale.good_steps), scale.settings


def _restore(settings: Any, children: Any) -> LossScale:
    made = object.__new__(LossScale)
    made.scale, made.good_steps = children
    made.settings = settings
    return made


pytree.register(LossScale, _split, _restore, fields=("scale", "good_steps"))
