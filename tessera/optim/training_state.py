"""Optimizers around optimizers: gradient accumulation, f32 master parameters, loss scaling; averages of parameters."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tessera.api.control import cond
from tessera.api.loss_scale import LossScale, all_finite
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_int, describe_value
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.frontend.pytree import unflatten
from tessera.optim.transforms import (
    Assigned,
    Optimizer,
    apply_updates,
    check_fraction,
    flatten_in_order,
    float_leaves,
    leaves_alike,
    map_trees,
    required_params,
    state_dtype,
    times,
    zero_count,
    zeros_of,
)
from tessera.stdlib.optimizers import full_precision
from tessera.types.dtype import DType, f32
from tessera.types.frozen import frozen

# Gradient accumulation.


class AccumulationState(NamedTuple):
    """Gradients so far (`micro_steps` of them), their sum, and the state of the optimizer that gets their mean."""

    micro_steps: Any
    total: Any
    inner: Any


def accumulate(optimizer: Optimizer, steps: int) -> Optimizer:
    """An optimizer that is asked once in `steps` updates, with the mean of their gradients; other updates are zeros.

    The sum is f32 (f64 for f64). Only the update that completes it runs the optimizer.

    >>> optimizer = ts.optim.accumulate(ts.optim.sgd(1.0), steps=2)
    >>> params = ts.zeros((1,))
    >>> first, state = optimizer.update(ts.array([1.0]), optimizer.init(params), params)
    >>> second, state = optimizer.update(ts.array([3.0]), state, params)
    >>> first, second
    (Tensor([1] f32, [0]), Tensor([1] f32, [-2]))
    """
    count = check_int("accumulate", "steps", steps)
    if count < 1:
        raise ArgumentError(f"`accumulate` takes `steps` as at least 1, got {count}", fix="give a number of updates")

    def init(params: Any) -> AccumulationState:
        return AccumulationState(zero_count(), zeros_of(*float_leaves("accumulate", params)), optimizer.init(params))

    def update(gradients: Any, state: AccumulationState, params: Any = None) -> tuple[Any, AccumulationState]:
        total = map_trees("accumulate", _add_gradient, state.total, gradients=gradients)

        def step(total: Any, inner: Any) -> Any:
            mean = map_trees("accumulate", partial(times, 1.0 / count), total)
            updates, inner = optimizer.update(mean, inner, params)
            return updates, map_trees("accumulate", ops.zeros_like, total), inner

        def wait(total: Any, inner: Any) -> Any:
            return _no_update(optimizer, total, params), total, inner

        seen = state.micro_steps + 1
        is_last = ops.ge(seen, count)
        updates, total, inner = cond(is_last, step, wait, total, state.inner)
        return updates, AccumulationState(ops.where(is_last, 0, seen).cast(dtype_of(seen)), total, inner)

    return Optimizer(init, update, optimizer.assigns)


def _add_gradient(total: Any, gradient: Any) -> Any:
    return total + cast(as_tensor(gradient), dtype_of(total))


def _no_update(optimizer: Optimizer, gradients: Any, params: Any) -> Any:
    """An update that changes nothing, in the form and dtypes of the optimizer's."""
    if optimizer.assigns:
        return Assigned(map_trees("accumulate", as_tensor, required_params("accumulate", params)))
    return map_trees("accumulate", ops.zeros_like, gradients)


# Parameters of a narrow dtype with a wider master copy.


class MasterState(NamedTuple):
    """Parameters in the wide dtype, and the state of the optimizer that updates them."""

    params: Any
    inner: Any


def with_master(optimizer: Optimizer, dtype: DType = f32) -> Optimizer:
    """An optimizer that updates a copy of the parameters in `dtype`, of which the parameters are the rounded values.

    Updates that are too small to change a bf16 parameter add up in the copy. `apply_updates` gives the parameters
    the rounded copy, so that both never drift apart. Parameters that are as wide already are their own copy in value.

    >>> optimizer = ts.optim.with_master(ts.optim.sgd(2.0**-10))
    >>> params = ts.ones((1,), ts.bf16)
    >>> state = optimizer.init(params)
    >>> for _ in range(4):
    ...     updates, state = optimizer.update(ts.ones((1,), ts.bf16), state, params)
    ...     params = ts.optim.apply_updates(params, updates)
    >>> params, float(state.params[0])
    (Tensor([1] bf16, [0.996094]), 0.99609375)
    """

    def widen(leaf: Any) -> Any:
        held = dtype_of(leaf)
        return cast(leaf, dtype) if held.bits < dtype.bits else as_tensor(leaf)

    def init(params: Any) -> MasterState:
        leaves, form = float_leaves("with_master", params)
        master = unflatten(form, [widen(leaf) for leaf in leaves])
        return MasterState(master, optimizer.init(master))

    def update(gradients: Any, state: MasterState, params: Any = None) -> tuple[Any, MasterState]:
        leaves, form = flatten_in_order(required_params("with_master", params))
        held = leaves_alike("with_master", "the master parameters", state.params, form)
        given = leaves_alike("with_master", "gradients", gradients, form)
        wide = [cast(as_tensor(one), dtype_of(master)) for one, master in zip(given, held, strict=True)]
        updates, inner = optimizer.update(unflatten(form, wide), state.inner, state.params)
        master = apply_updates(state.params, updates)
        narrow = [cast(new, dtype_of(leaf)) for new, leaf in zip(flatten_in_order(master)[0], leaves, strict=True)]
        return Assigned(unflatten(form, narrow)), MasterState(master, inner)

    return Optimizer(init, update, assigns=True)


# Loss scaling.


class ScaledState(NamedTuple):
    """The scale that the loss is multiplied by, the number of steps that were skipped, and the optimizer's state."""

    scale: LossScale
    skipped: Any
    inner: Any

    @full_precision()
    def scaled(self, loss: Any) -> Any:
        """The loss times the scale, in f32: what to differentiate."""
        return self.scale.scaled(loss)


def with_loss_scale(optimizer: Optimizer, scale: LossScale | None = None) -> Optimizer:
    """An optimizer of gradients of `state.scaled(loss)`: it divides them by the scale, and adapts that.

    A step whose gradients are not all finite changes neither parameters nor the optimizer's state, and the scale is
    halved; after `interval` good steps it is doubled (`ts.LossScale` has the numbers).

    >>> optimizer = ts.optim.with_loss_scale(ts.optim.sgd(1.0), ts.LossScale(8.0))
    >>> params = ts.ones((1,))
    >>> state = optimizer.init(params)
    >>> updates, state = optimizer.update(ts.array([float("inf")]), state, params)
    >>> updates, state.scale, int(state.skipped)
    (Tensor([1] f32, [0]), LossScale(4, 0 good steps), 1)
    """
    start = LossScale() if scale is None else scale
    if not isinstance(start, LossScale):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"`with_loss_scale` takes a `LossScale`, got {describe_value(start)}", fix="write `ts.LossScale(2.0**15)`"
        )

    def init(params: Any) -> ScaledState:
        return ScaledState(start, zero_count(), optimizer.init(params))

    def update(gradients: Any, state: ScaledState, params: Any = None) -> tuple[Any, ScaledState]:
        # Finite before they are divided: a quotient of two large numbers may be finite where a gradient is not.
        is_good = all_finite(gradients)
        updates, inner = optimizer.update(state.scale.unscaled(gradients), state.inner, params)
        if isinstance(updates, Assigned):
            updates = Assigned(state.scale.choose(is_good, updates.params, params))
        else:
            updates = state.scale.choose(is_good, updates, map_trees("with_loss_scale", ops.zeros_like, updates))
        inner = state.scale.choose(is_good, inner, state.inner)
        skipped = state.skipped + cast(ops.logical_not(is_good), dtype_of(state.skipped))
        return updates, ScaledState(state.scale.update(is_good), skipped, inner)

    return Optimizer(init, update, optimizer.assigns)


# Averages of parameters.


class AverageState(NamedTuple):
    """The number of parameters averaged so far, and their average, in f32 (f64 for f64)."""

    count: Any
    average: Any


@frozen
class ParameterAverage:
    """An exponential moving average of parameters: `a = decay*a + (1-decay)*p`; made by `ts.optim.ema`."""

    decay: float
    warmup: bool

    def init(self, params: Any) -> AverageState:
        """The average of the parameters that training starts with."""
        leaves, form = float_leaves("ema", params)
        return AverageState(zero_count(), unflatten(form, [cast(leaf, state_dtype(leaf)) for leaf in leaves]))

    @full_precision()
    def update(self, state: AverageState, params: Any) -> AverageState:
        """The average with the parameters of one more step."""
        count = state.count + 1

        def mix(average: Any, parameter: Any) -> Any:
            dtype = dtype_of(average)
            steps = cast(count, dtype)
            decay = ops.minimum((1.0 + steps) / (10.0 + steps), self.decay) if self.warmup else self.decay
            return decay * average + (1.0 - decay) * cast(as_tensor(parameter), dtype)

        return AverageState(count, map_trees("ema", mix, state.average, params=params))

    def params(self, state: AverageState, like: Any) -> Any:
        """The average in the dtypes of the parameters `like`, to evaluate or to save."""
        return map_trees("ema", _cast_like, like, average=state.average)


def _cast_like(parameter: Any, average: Any) -> Any:
    return cast(average, dtype_of(parameter))


def ema(decay: float, *, warmup: bool = False) -> ParameterAverage:
    """An exponential moving average of parameters, which often evaluates better than the last ones.

    With `warmup` the decay of step t is at most `(1+t)/(10+t)`, so that early parameters are forgotten soon.

    >>> average = ts.optim.ema(0.5)
    >>> state = average.update(average.init(ts.array([0.0])), ts.array([1.0]))
    >>> state.average
    Tensor([1] f32, [0.5])
    """
    return ParameterAverage(check_fraction("ema", "decay", decay), bool(warmup))
