"""Optimizers as pairs of pure functions on trees, how they are chained, and how their updates are applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tessera.api.eager import install
from tessera.api.loss_scale import join_pairs
from tessera.diagnostics.codes import ArgumentError, PytreeError
from tessera.frontend.arguments import check_number, describe_value
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, is_tensor, rank_of
from tessera.frontend.pytree import Tree, flatten, leaf_paths, leaves_like, unflatten
from tessera.stdlib.optimizers import full_precision
from tessera.types.dtype import DType, f32, i32
from tessera.types.frozen import frozen

install()  # optimizers run eagerly too

Schedule: TypeAlias = Callable[[Any], Any]
"""A learning rate of the step count, which is 0 at the first step."""
Rate: TypeAlias = "float | Schedule"
Mask: TypeAlias = "Callable[[str, Any], bool] | Any"
"""Which parameters something is done to: a function of path and tensor, or a tree of bools."""


@frozen
class Optimizer:
    """A pair of pure functions: `init(params)` gives a state, `update(gradients, state, params)` updates and a state.

    All are trees of tensors, in and outside of `jit`; `apply_updates` adds updates to parameters. What transforms
    gradients without being a whole optimizer (clipping, say) is one too, and `chain` joins them.

    >>> optimizer = ts.optim.sgd(0.5)
    >>> params = {"w": ts.array([1.0, 2.0])}
    >>> state = optimizer.init(params)
    >>> updates, state = optimizer.update({"w": ts.array([1.0, -1.0])}, state, params)
    >>> ts.optim.apply_updates(params, updates)["w"]
    Tensor([2] f32, [0.5, 2.5])
    """

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]
    assigns: bool = False
    """Whether its updates are `Assigned`: new parameters in place of differences."""

    def __post_init__(self) -> None:
        for name in ("init", "update"):
            object.__setattr__(self, name, full_precision()(getattr(self, name)))


class EmptyState(NamedTuple):
    """The state of what needs none."""


class CountState(NamedTuple):
    """The number of updates so far."""

    count: Any


# Trees: what optimizers take, checked, with words for what is wrong.


def flatten_in_order(tree: Any) -> tuple[list[Any], Tree]:
    """The leaves of a tree and its form, with the keys of dicts in their own order.

    That order is part of what `jit` compiles for: a step gives its parameters back as it took them.
    """
    return flatten(tree, keep_order=True)


def leaves_alike(name: str, what: str, tree: Any, form: Tree) -> list[Any]:
    """The leaves of a tree that must have the form of the parameters; raises PytreeError where it has another."""
    leaves = leaves_like(form, tree)
    if leaves is None:
        raise PytreeError(
            f"`{name}` takes `{what}` in the form of the parameters, {form}, got {flatten_in_order(tree)[1]}",
            fix=f"give `{what}` one tensor for each parameter, in the same containers",
        )
    return leaves


def float_leaves(name: str, params: Any) -> tuple[list[Any], Tree]:
    """The leaves of parameters and their form; raises ArgumentError (T0202) for one that is no tensor of floats."""
    leaves, form = flatten_in_order(params)
    for leaf, path in zip(leaves, leaf_paths(form, "params"), strict=True):
        if not is_tensor(leaf) or not dtype_of(leaf).is_float:
            got = f"a tensor of {dtype_of(leaf)}" if is_tensor(leaf) else describe_value(leaf)
            raise ArgumentError(
                f"`{name}` updates tensors of floats, and `{path}` is {got}",
                fix="give it the parameters alone, without counters and other constants",
            )
    return [as_tensor(leaf) for leaf in leaves], form


def required_params(name: str, params: Any) -> Any:
    """The parameters of an update that needs them; raises ArgumentError (T0202) where they were left out."""
    if params is None:
        raise ArgumentError(
            f"`{name}` needs the parameters to compute an update, and got none",
            fix="write `optimizer.update(gradients, state, params)`",
        )
    return params


def state_dtype(value: Any) -> DType:
    """The dtype in which the state of a parameter is held and its update computed: f32, or f64 for f64."""
    return dtype_of(value).compute


def zeros_of(params: Sequence[Any], form: Tree) -> Any:
    """A tree of zeros in the dtypes of states."""
    return unflatten(form, [ops.zeros(leaf.shape, state_dtype(leaf)) for leaf in params])


def map_trees(name: str, function: Callable[..., Any], tree: Any, **others: Any) -> Any:
    """`function` of the leaves of trees that all have the form of the first."""
    leaves, form = flatten_in_order(tree)
    columns = [leaves_alike(name, what, other, form) for what, other in others.items()]
    return unflatten(form, [function(*row) for row in zip(leaves, *columns, strict=True)])


def masked_leaves(name: str, mask: Mask | None, leaves: Sequence[Any], form: Tree) -> list[bool]:
    """For each leaf whether a mask names it; all of them without a mask."""
    if mask is None:
        return [True] * len(leaves)
    if callable(mask):
        paths = [path.lstrip(".") for path in leaf_paths(form)]
        found: list[Any] = [mask(path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
    else:
        found = leaves_alike(name, "mask", mask, form)
    for one in found:
        if one.__class__ is not bool:
            raise ArgumentError(
                f"`mask` of `{name}` says True or False for each parameter, got {describe_value(one)}",
                fix="write a function of path and tensor, as in `mask=lambda path, w: w.ndim >= 2`",
            )
    return found


def matrices(path: str, parameter: Any) -> bool:
    """A mask of parameters with two dims or more: weights decay, biases and gains of norms do not.

    >>> ts.optim.matrices("w", ts.ones((2, 3))), ts.optim.matrices("b", ts.ones((3,)))
    (True, False)
    """
    return rank_of(parameter) >= 2


# Learning rates: numbers, or functions of the step count.


def check_rate(name: str, rate: Any) -> Any:
    """A learning rate as a float, or the schedule that it is; raises ArgumentError (T0202) for anything else."""
    return rate if callable(rate) else check_fraction(name, "learning_rate", rate, most=float("inf"))


def check_fraction(name: str, what: str, value: Any, *, most: float = 1.0) -> float:
    """A number from 0 to `most`; raises ArgumentError (T0202) for anything else."""
    number = float(check_number(name, what, value))
    if not 0.0 <= number <= most:
        limits = f"from 0 to {most:g}" if most < float("inf") else "of at least 0"
        raise ArgumentError(f"`{name}` takes `{what}` as a number {limits}, got {value!r}", fix=f"change `{what}`")
    return number


def rate_at(rate: Any, count: Any) -> Any:
    """The learning rate at a step count: a float, or a scalar tensor."""
    return rate(count) if callable(rate) else rate


def times(rate: Any, value: Any) -> Any:
    """A value times a learning rate, in the dtype of the value."""
    return (cast(as_tensor(rate), dtype_of(value)) if is_tensor(rate) else rate) * value


def zero_count() -> Any:
    """The step count of a new state."""
    return ops.zeros((), i32)


# Optimizers of optimizers.


def chain(*transforms: Optimizer) -> Optimizer:
    """What applies transformations one after the other: each gets the updates of the one before it.

    >>> optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.sgd(1.0))
    >>> params = {"w": ts.zeros((2,))}
    >>> updates, _ = optimizer.update({"w": ts.array([3.0, 4.0])}, optimizer.init(params))
    >>> updates["w"]
    Tensor([2] f32, [-0.6, -0.8])
    """
    for one in transforms:
        if not isinstance(one, Optimizer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"`chain` takes optimizers and transformations, got {describe_value(one)}",
                fix="pass what `ts.optim.adamw(...)`, `ts.optim.clip(...)` and the like return",
            )

    def init(params: Any) -> Any:
        return tuple(one.init(params) for one in transforms)

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if len(state) != len(transforms):
            raise PytreeError(f"a chain of {len(transforms)} has as many states, got {len(state)}")
        states: list[Any] = []
        for one, own in zip(transforms, state, strict=True):
            gradients, own = one.update(gradients, own, params)
            states.append(own)
        return gradients, tuple(states)

    return Optimizer(init, update, bool(transforms) and transforms[-1].assigns)


def stateless(function: Callable[[Any, Any], Any]) -> Optimizer:
    """A transformation `function(gradients, params)` of updates that needs no state.

    >>> negate = ts.optim.stateless(lambda gradients, params: {"w": -gradients["w"]})
    >>> negate.update({"w": ts.ones((1,))}, negate.init(None))[0]["w"]
    Tensor([1] f32, [-1])
    """

    def update(gradients: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return function(gradients, params), state

    return Optimizer(lambda params: EmptyState(), update)


class Assigned(NamedTuple):
    """An update that is the new parameters themselves, as optimizers give that hold a wider copy of them."""

    params: Any


@full_precision()
def apply_updates(params: Any, updates: Any) -> Any:
    """The parameters after an update, each in its own dtype: a sum in f32 that is rounded once.

    >>> ts.optim.apply_updates({"w": ts.array([1.0])}, {"w": ts.array([-0.25])})["w"]
    Tensor([1] f32, [0.75])
    """
    if isinstance(updates, Assigned):
        form = flatten_in_order(params)[1]
        return unflatten(form, leaves_alike("apply_updates", "updates", updates.params, form))
    return map_trees("apply_updates", add_rounded, params, updates=updates)


def add_rounded(parameter: Any, update: Any) -> Any:
    """The sum of a parameter and its update, in the dtype of the parameter."""
    dtype = state_dtype(parameter)
    return cast(cast(as_tensor(parameter), dtype) + cast(as_tensor(update), dtype), dtype_of(parameter))


def scale(factor: float) -> Optimizer:
    """Updates times a number.

    >>> ts.optim.scale(-2.0).update(ts.array([1.0]), ts.optim.EmptyState())[0]
    Tensor([1] f32, [-2])
    """
    number = float(check_number("scale", "factor", factor))
    return stateless(lambda gradients, _: map_trees("scale", partial(times, number), gradients))


def scale_by_schedule(schedule: Schedule) -> Optimizer:
    """Updates times a function of the number of updates before this one.

    >>> halved = ts.optim.scale_by_schedule(ts.optim.exponential(1.0, decay=0.5, steps=1))
    >>> updates, state = halved.update(ts.array([8.0]), halved.init(None))
    >>> halved.update(ts.array([8.0]), state)[0]
    Tensor([1] f32, [4])
    """

    def update(gradients: Any, state: CountState, params: Any = None) -> tuple[Any, CountState]:
        factor = schedule(state.count)
        scaled = map_trees("scale_by_schedule", partial(times, factor), gradients)
        return scaled, CountState(state.count + 1)

    return Optimizer(lambda params: CountState(zero_count()), update)


def add_decayed_weights(weight_decay: float, *, mask: Mask | None = None) -> Optimizer:
    """Updates plus `weight_decay` times the parameters that `mask` names: L2 regularization where it comes first.

    >>> decay = ts.optim.add_decayed_weights(0.5)
    >>> decay.update(ts.array([1.0]), ts.optim.EmptyState(), ts.array([4.0]))[0]
    Tensor([1] f32, [3])
    """
    number = check_fraction("add_decayed_weights", "weight_decay", weight_decay, most=float("inf"))

    def function(gradients: Any, params: Any) -> Any:
        leaves, form = flatten_in_order(required_params("add_decayed_weights", params))
        chosen = masked_leaves("add_decayed_weights", mask, leaves, form)
        updates = leaves_alike("add_decayed_weights", "gradients", gradients, form)
        return unflatten(form, [add_decay(*row, number) for row in zip(updates, leaves, chosen, strict=True)])

    return stateless(function)


def add_decay(update: Any, parameter: Any, is_chosen: bool, weight_decay: float) -> Any:
    """An update with the decay of its parameter, in the dtype of states, where a mask has chosen it."""
    if not is_chosen or not weight_decay:
        return update
    dtype = state_dtype(parameter)
    return cast(as_tensor(update), dtype) + weight_decay * cast(as_tensor(parameter), dtype)


# Clipping.

SHARDED_NORM: ContextVar[Callable[[Any, Sequence[Any]], Sequence[Any]] | None] = ContextVar("norm", default=None)
"""Where ranks have parts of gradients: what makes sums of squares of the whole of those of their parts."""


@full_precision()
def global_norm(tree: Any) -> Any:
    """The Euclidean norm of all elements of a tree, summed in f32 (f64 for f64).

    >>> ts.optim.global_norm({"a": ts.array([3.0]), "b": ts.array([0.0, 4.0])})
    Tensor([] f32, 5)
    """
    totals: Sequence[Any] = [_sum_of_squares(leaf) for leaf in flatten_in_order(tree)[0]]
    join = SHARDED_NORM.get()
    totals = totals if join is None else join(tree, totals)
    return ops.sqrt(join_pairs(ops.add, totals)) if totals else ops.zeros((), f32)


def _sum_of_squares(leaf: Any) -> Any:
    wide = cast(as_tensor(leaf), state_dtype(leaf))
    # As a line of its own shape: what follows would else become part of the last reduction, where shapes agree.
    line = ops.reshape(wide, (1, -1))
    return ops.sum(line * line)


def clip(limit: float) -> Optimizer:
    """Every element of the gradients, kept between `-limit` and `limit`.

    >>> ts.optim.clip(1.0).update(ts.array([-3.0, 0.5]), ts.optim.EmptyState())[0]
    Tensor([2] f32, [-1, 0.5])
    """
    most = check_fraction("clip", "limit", limit, most=float("inf"))

    def keep(leaf: Any) -> Any:
        return ops.clamp(leaf, -most, most)

    return stateless(lambda gradients, _: map_trees("clip", keep, gradients))


def clip_by_global_norm(limit: float) -> Optimizer:
    """Gradients divided by their global norm times `limit` where that norm is larger; others are left as they are.

    >>> clip = ts.optim.clip_by_global_norm(1.0)
    >>> clip.update({"a": ts.array([3.0]), "b": ts.array([4.0])}, clip.init(None))[0]
    {'a': Tensor([1] f32, [0.6]), 'b': Tensor([1] f32, [0.8])}
    """
    most = check_fraction("clip_by_global_norm", "limit", limit, most=float("inf"))

    def function(gradients: Any, _: Any) -> Any:
        norm = global_norm(gradients)
        # A norm below the limit gives exactly 1, so that such gradients keep their bits; NaN stays NaN.
        factor = most / ops.maximum(norm, most) if most else ops.zeros((), dtype_of(norm))

        def shrink(leaf: Any) -> Any:
            dtype = state_dtype(leaf)
            return cast(cast(as_tensor(leaf), dtype) * cast(factor, dtype), dtype_of(leaf))

        return map_trees("clip_by_global_norm", shrink, gradients)

    return stateless(function)
