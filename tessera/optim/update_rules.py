"""Update rules: SGD, Adam, AdamW, Lion and Adafactor, each a pair of pure functions on trees of parameters.

Every rule computes in f32 (f64 for f64 parameters), and holds its state in that dtype. A tensor's whole update is
elementwise, apart from Adafactor's means, so that under `jit` it is one kernel that reads and writes each element once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, rank_of
from tessera.frontend.pytree import Tree, unflatten
from tessera.optim.transforms import (
    Mask,
    Optimizer,
    Rate,
    add_decay,
    check_fraction,
    check_rate,
    flatten_in_order,
    float_leaves,
    leaves_alike,
    masked_leaves,
    rate_at,
    required_params,
    state_dtype,
    times,
    zero_count,
    zeros_of,
)
from tessera.stdlib.optimizers import adam_direction, bias_correction


class MomentumState(NamedTuple):
    """The step count of SGD, and its momentum: None where it has none."""

    count: Any
    momentum: Any


class AdamState(NamedTuple):
    """The step count of Adam, and its moments: `mu` of gradients, `nu` of their squares."""

    count: Any
    mu: Any
    nu: Any


class LionState(NamedTuple):
    """The step count of Lion, and its momentum."""

    count: Any
    mu: Any


class AdafactorState(NamedTuple):
    """The step count of Adafactor, and second moments: of rows and columns of matrices, of elements of vectors."""

    count: Any
    rows: Any
    columns: Any
    elements: Any


def _wide(gradients: Sequence[Any], states: Sequence[Any]) -> list[Any]:
    """Gradients in the dtypes of states."""
    return [cast(as_tensor(gradient), dtype_of(state)) for gradient, state in zip(gradients, states, strict=True)]


def _descend(rate: Any, steps: Sequence[Any]) -> list[Any]:
    """Updates: steps times the learning rate, downwards."""
    return [-times(rate, step) for step in steps]


def _decay(
    name: str, weight_decay: float, mask: Mask | None, steps: Sequence[Any], params: Any, form: Tree
) -> list[Any]:
    """Steps with the decay of the parameters that a mask names."""
    if not weight_decay:
        return list(steps)
    leaves = leaves_alike(name, "params", required_params(name, params), form)
    chosen = masked_leaves(name, mask, leaves, form)
    return [add_decay(*row, weight_decay) for row in zip(steps, leaves, chosen, strict=True)]


def sgd(learning_rate: Rate, *, momentum: float = 0.0, nesterov: bool = False) -> Optimizer:
    """Stochastic gradient descent: `m = momentum*m + g`, `p = p - lr*m`, or with `nesterov` `p - lr*(g + momentum*m)`.

    >>> optimizer = ts.optim.sgd(0.1, momentum=0.9)
    >>> params = ts.array([1.0])
    >>> updates, state = optimizer.update(ts.array([2.0]), optimizer.init(params))
    >>> optimizer.update(ts.array([2.0]), state)[0]
    Tensor([1] f32, [-0.38])
    """
    rate, factor = check_rate("sgd", learning_rate), check_fraction("sgd", "momentum", momentum)
    if nesterov and not factor:
        raise ArgumentError("`sgd` has Nesterov's update of a momentum only, and `momentum` is 0", fix="set `momentum`")

    def init(params: Any) -> MomentumState:
        return MomentumState(zero_count(), zeros_of(*float_leaves("sgd", params)) if factor else None)

    def update(gradients: Any, state: MomentumState, params: Any = None) -> tuple[Any, MomentumState]:
        if not factor:
            leaves, form = flatten_in_order(gradients)
            steps, made = [cast(as_tensor(leaf), state_dtype(leaf)) for leaf in leaves], None
        else:
            held, form = flatten_in_order(state.momentum)
            given = _wide(leaves_alike("sgd", "gradients", gradients, form), held)
            moved = [factor * old + new for old, new in zip(held, given, strict=True)]
            steps = [new + factor * one for new, one in zip(given, moved, strict=True)] if nesterov else moved
            made = unflatten(form, moved)
        updates = _descend(rate_at(rate, state.count), steps)
        return unflatten(form, updates), MomentumState(state.count + 1, made)

    return Optimizer(init, update)


def scale_by_adam(*, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    """Adam's direction without learning rate and sign, to build other optimizers with `chain`.

    >>> direction = ts.optim.scale_by_adam()
    >>> direction.update(ts.array([3.0, -0.5]), direction.init(ts.zeros((2,))))[0].round()
    Tensor([2] f32, [1, -1])
    """
    first, second = (check_fraction("scale_by_adam", name, one) for name, one in (("b1", b1), ("b2", b2)))
    least = check_fraction("scale_by_adam", "eps", eps, most=math.inf)

    def init(params: Any) -> AdamState:
        leaves, form = float_leaves("adam", params)
        return AdamState(zero_count(), zeros_of(leaves, form), zeros_of(leaves, form))

    def update(gradients: Any, state: AdamState, params: Any = None) -> tuple[Any, AdamState]:
        mu, form = flatten_in_order(state.mu)
        nu = leaves_alike("adam", "nu", state.nu, form)
        leaves = leaves_alike("adam", "gradients", gradients, form)
        count = state.count + 1
        # Leaves of one dtype share their scalars.
        corrections = {
            dtype: (bias_correction(first, count, dtype), bias_correction(second, count, dtype))
            for dtype in dict.fromkeys(map(dtype_of, mu))
        }
        rows = [
            adam_direction(gradient, one, two, corrections[dtype_of(one)], first, second, least)
            for gradient, one, two in zip(_wide(leaves, mu), mu, nu, strict=True)
        ]
        mu, nu, steps = (unflatten(form, [row[at] for row in rows]) for at in range(3))
        return steps, AdamState(count, mu, nu)

    return Optimizer(init, update)


def adamw(
    learning_rate: Rate,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    mask: Mask | None = None,
) -> Optimizer:
    """Adam with decoupled weight decay: `p = p - lr*(m / (sqrt(v) + eps) + weight_decay*p)`, moments corrected.

    `mask` says which parameters decay: a function of path and tensor (`ts.optim.matrices`), or a tree of bools.

    >>> optimizer = ts.optim.adamw(0.5, weight_decay=0.0)
    >>> params = ts.array([1.0])
    >>> updates, state = optimizer.update(ts.array([3.0]), optimizer.init(params), params)
    >>> updates, int(state.count)
    (Tensor([1] f32, [-0.5]), 1)
    """
    rate, direction = check_rate("adamw", learning_rate), scale_by_adam(b1=b1, b2=b2, eps=eps)
    decay = check_fraction("adamw", "weight_decay", weight_decay, most=math.inf)

    def update(gradients: Any, state: AdamState, params: Any = None) -> tuple[Any, AdamState]:
        made, new = direction.update(gradients, state, params)
        steps, form = flatten_in_order(made)
        steps = _decay("adamw", decay, mask, steps, params, form)
        return unflatten(form, _descend(rate_at(rate, state.count), steps)), new

    return Optimizer(direction.init, update)


def adam(learning_rate: Rate, *, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    """Adam: `adamw` without weight decay.

    >>> optimizer = ts.optim.adam(ts.optim.constant(0.5))
    >>> optimizer.update(ts.array([3.0]), optimizer.init(ts.array([1.0])))[0]
    Tensor([1] f32, [-0.5])
    """
    return adamw(learning_rate, b1=b1, b2=b2, eps=eps, weight_decay=0.0)


def lion(
    learning_rate: Rate, *, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 0.0, mask: Mask | None = None
) -> Optimizer:
    """Lion: the sign of `b1*m + (1-b1)*g` is the step, and `m = b2*m + (1-b2)*g` the momentum.

    >>> optimizer = ts.optim.lion(0.5)
    >>> optimizer.update(ts.array([3.0, -0.1]), optimizer.init(ts.zeros((2,))))[0]
    Tensor([2] f32, [-0.5, 0.5])
    """
    rate, decay = check_rate("lion", learning_rate), check_fraction("lion", "weight_decay", weight_decay, most=math.inf)
    first, second = (check_fraction("lion", name, one) for name, one in (("b1", b1), ("b2", b2)))

    def init(params: Any) -> LionState:
        return LionState(zero_count(), zeros_of(*float_leaves("lion", params)))

    def update(gradients: Any, state: LionState, params: Any = None) -> tuple[Any, LionState]:
        held, form = flatten_in_order(state.mu)
        given = _wide(leaves_alike("lion", "gradients", gradients, form), held)
        # Both averages are of one difference, so that one kernel reads momentum and gradient for them.
        rows = [(old, new - old) for old, new in zip(held, given, strict=True)]
        steps = [ops.sign(old + (1.0 - first) * gap) for old, gap in rows]
        mu = [old + (1.0 - second) * gap for old, gap in rows]
        steps = _decay("lion", decay, mask, steps, params, form)
        updates = _descend(rate_at(rate, state.count), steps)
        return unflatten(form, updates), LionState(state.count + 1, unflatten(form, mu))

    return Optimizer(init, update)


class _Adafactor(NamedTuple):
    """The numbers of an Adafactor update."""

    rate: Any
    decay: float
    least: float | None
    least_scale: float
    threshold: float
    weight_decay: float


def adafactor(
    learning_rate: Rate = 1e-2,
    *,
    decay: float = 0.8,
    eps: tuple[float | None, float] = (None, 1e-3),
    threshold: float = 1.0,
    weight_decay: float = 0.0,
    mask: Mask | None = None,
) -> Optimizer:
    """Adafactor: Adam's second moment of a matrix as that of its rows times that of its columns, and no first one.

    The last two dims of a tensor are its rows and columns. Second moments of step t weigh the newest squares by
    `t**-decay`; the learning rate is at most `1/sqrt(t)` and is relative to the root mean square of the parameter,
    `eps[1]` at least; a step whose root mean square is above `threshold` is scaled to it. `eps[0]` is the least second
    moment's root (None: the epsilon of the dtype).

    >>> optimizer = ts.optim.adafactor()
    >>> state = optimizer.init({"w": ts.ones((64, 32)), "b": ts.ones((32,))})
    >>> state.rows["w"].shape, state.columns["w"].shape, state.elements["b"].shape
    ((64, 1), (1, 32), (32,))
    """
    number = check_fraction("adafactor", "decay", decay)
    least = None if eps[0] is None else check_fraction("adafactor", "eps", eps[0], most=math.inf)
    settings = _Adafactor(
        check_rate("adafactor", learning_rate),
        number,
        least,
        check_fraction("adafactor", "eps", eps[1], most=math.inf),
        check_fraction("adafactor", "threshold", threshold, most=math.inf),
        check_fraction("adafactor", "weight_decay", weight_decay, most=math.inf),
    )

    def init(params: Any) -> AdafactorState:
        leaves, form = float_leaves("adafactor", params)
        rows, columns, elements = zip(*map(_factors_of, leaves), strict=True) if leaves else ((), (), ())
        return AdafactorState(zero_count(), *(unflatten(form, made) for made in (rows, columns, elements)))

    def update(gradients: Any, state: AdafactorState, params: Any = None) -> tuple[Any, AdafactorState]:
        own, form = flatten_in_order(required_params("adafactor", params))
        leaves = leaves_alike("adafactor", "gradients", gradients, form)
        held = [leaves_alike("adafactor", name, getattr(state, name), form) for name in state._fields[1:]]
        chosen = masked_leaves("adafactor", mask, own, form)
        count = state.count + 1
        made = [
            _factored_update(settings, state.count, count, *row)
            for row in zip(leaves, own, zip(*held, strict=True), chosen, strict=True)
        ]
        updates = unflatten(form, [update for update, _ in made])
        factors = [unflatten(form, [moments[at] for _, moments in made]) for at in range(3)]
        return updates, AdafactorState(count, *factors)

    return Optimizer(init, update)


def _factors_of(parameter: Any) -> tuple[Any, Any, Any]:
    """Zeros for second moments of rows, columns and elements; those that a parameter has no use for are empty."""
    dtype, shape = state_dtype(parameter), parameter.shape
    empty = ops.zeros((0,), dtype)
    if rank_of(parameter) < 2:
        return empty, empty, ops.zeros(shape, dtype)
    return ops.zeros((*shape[:-1], 1), dtype), ops.zeros((*shape[:-2], 1, shape[-1]), dtype), empty


def _mix(old: Any, new: Any, share: Any) -> Any:
    return old + share * (new - old)


def _root_mean_square(value: Any) -> Any:
    return ops.sqrt(ops.mean(value * value))


def _factored_update(
    settings: _Adafactor, before: Any, count: Any, gradient: Any, parameter: Any, held: Sequence[Any], is_decayed: bool
) -> tuple[Any, tuple[Any, Any, Any]]:
    """The update of one parameter, and its new second moments."""
    rows, columns, elements = held
    dtype = state_dtype(parameter)
    gradient, wide = cast(as_tensor(gradient), dtype), cast(as_tensor(parameter), dtype)
    steps = cast(count, dtype)
    share = ops.exp2(ops.log2(steps) * -settings.decay)
    least = dtype.epsilon if settings.least is None else settings.least
    squares = gradient * gradient
    if rank_of(parameter) < 2:
        moments = elements = _mix(elements, squares, share)
    else:
        rows = _mix(rows, ops.mean(squares, axis=-1, keepdims=True), share)
        columns = _mix(columns, ops.mean(squares, axis=-2, keepdims=True), share)
        moments = rows * columns / ops.maximum(ops.mean(rows, axis=-2, keepdims=True), least)
    step = gradient * ops.rsqrt(ops.maximum(moments, least * least))
    # The step is scaled by two scalars of the whole tensor.
    given = rate_at(settings.rate, before)
    rate = cast(as_tensor(given, dtype), dtype)
    size = ops.maximum(_root_mean_square(wide), settings.least_scale)
    shrink = ops.maximum(_root_mean_square(step) / settings.threshold, 1.0)
    update = -(ops.minimum(rate, ops.rsqrt(steps)) * size / shrink) * step
    if is_decayed and settings.weight_decay:
        update = update - (rate * settings.weight_decay) * wide
    return update, (rows, columns, elements)
