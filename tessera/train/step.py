"""Steps and evaluations: a loss and an optimizer as one program, and means of metrics over batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from tessera.api.autodiff import value_and_grad
from tessera.api.jit import Jit, jit
from tessera.api.randomness import fold
from tessera.diagnostics.codes import ArgumentError
from tessera.distributed.exchanges import key_of_part
from tessera.distributed.pipeline_step import PipelineStep, StateRules
from tessera.distributed.recipe import Recipe
from tessera.frontend.arguments import check_bool, check_callables
from tessera.frontend.functions.operands import is_tensor
from tessera.frontend.pytree import flatten
from tessera.optim import Optimizer, ScaledState, apply_updates, global_norm
from tessera.train.state import State, find_on_device, move_batch
from tessera.types.frozen import frozen


def make_step(
    loss: Callable[..., Any],
    optimizer: Optimizer,
    *,
    has_aux: bool = False,
    average: Any = None,
    grad_norm: bool = False,
    donate: bool = True,
    recipe: Recipe | None = None,
    **options: Any,
) -> Any:
    """A training step, `state, metrics = step(state, batch)`: forward, backward and update in one compiled program.

    `loss(params, batch)` gives a scalar; with `has_aux` a pair of it and a dict of more scalars to report. One that has
    a parameter `key` gets a key of its own at each step, derived from that of the state; one that has a parameter
    `extra` gets that of the state, and gives the new one behind all else, as layers with running means need it: `return
    loss, extra`. Metrics are `loss`, those of `has_aux`, and
    with `grad_norm` the norm of all gradients. `average` is an `optim.ema` that `State.init` was given too. With an
    `optim.with_loss_scale`, the loss is scaled and the metrics are not. The state is donated: continue with the one
    that comes back. With a `recipe` of `ts.dist.recipe`, the ranks of its mesh do the step together: the state has this
    rank's parts, and the batch is the whole one on all of them. Further keywords are those of `jit`:
    `policy=ts.Training()`, `backend="cuda"`.

    >>> optimizer = ts.optim.sgd(0.25)
    >>> step = ts.train.make_step(lambda params, batch: ((params["w"] - batch) ** 2.0).sum(), optimizer)
    >>> state = ts.train.State.init({"w": ts.zeros((2,))}, optimizer)
    >>> for _ in range(3):
    ...     state, metrics = step(state, ts.array([1.0, 2.0]))
    >>> state.params["w"], metrics["loss"]
    (Tensor([2] f32, [0.875, 1.75]), Tensor([] f32, 0.3125))
    """
    _check_arguments(loss, optimizer, has_aux=has_aux, grad_norm=grad_norm, donate=donate)
    names = inspect.signature(loss).parameters
    takes_key, takes_extra = "key" in names, "extra" in names
    if recipe is not None:
        _check_recipe(recipe, takes_extra)
        if recipe.config.pipeline is not None:
            has_more = has_aux or takes_key or average is not None
            return _pipeline_step(loss, optimizer, recipe, has_more, grad_norm, options)
    parts = _Parts(loss, has_aux, takes_key, takes_extra)

    def step(state: Any, batch: Any) -> Any:
        _check_state(state, average)
        metrics, gradients, extra = parts.gradients(state, batch, recipe)
        if grad_norm:
            is_scaled = isinstance(state.opt_state, ScaledState)
            unscaled = state.opt_state.scale.unscaled(gradients) if is_scaled else gradients
            metrics["grad_norm"] = global_norm(unscaled) if recipe is None else recipe.norm(unscaled)
        params, opt_state = _update(optimizer, gradients, state, recipe)
        mean = None if average is None else average.update(state.average, params)
        return State(params, opt_state, state.step + 1, state.key, mean, extra), metrics

    step.__name__ = step.__qualname__ = f"step_of_{getattr(loss, '__name__', 'loss')}".replace("<lambda>", "lambda")
    vars(step)["recipe"] = recipe  # of which `fit` asks
    return jit(step, donate={"state"} if donate else (), **options)


def _check_arguments(loss: Any, optimizer: Any, **flags: Any) -> None:
    check_callables("make_step", loss=loss)
    for name, flag in flags.items():
        check_bool("make_step", name, flag)
    if not hasattr(optimizer, "update") or not hasattr(optimizer, "init"):
        raise ArgumentError(
            f"`make_step` takes an optimizer, got {optimizer!r}", fix="write `ts.optim.adamw(3e-4)` or another one"
        )


def _update(optimizer: Optimizer, gradients: Any, state: State, recipe: Recipe | None) -> tuple[Any, Any]:
    """New parameters and the new state of the optimizer."""
    if recipe is not None:
        return recipe.update(optimizer, gradients, state.opt_state, state.params)
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    return apply_updates(state.params, updates), opt_state


@frozen
class _Parts:
    """A loss and what it takes and gives, as objectives of the parameters of a state."""

    loss: Callable[..., Any]
    has_aux: bool
    takes_key: bool
    takes_extra: bool

    def gradients(self, state: State, batch: Any, recipe: Recipe | None) -> tuple[dict[str, Any], Any, Any]:
        """Metrics, gradients and what the next step gets, of one batch."""
        if recipe is not None:
            return *recipe.gradients(self._of_shard(state, recipe.config.context), state.params, batch), state.extra

        def objective(params: Any) -> Any:
            scaled, metrics, extra = self._run(state, params, batch, fold(state.key, state.step))
            return scaled, (metrics, extra if self.takes_extra else state.extra)

        (_, (metrics, extra)), gradients = value_and_grad(objective, has_aux=True)(state.params)
        return metrics, gradients, extra

    def _of_shard(self, state: State, context: str | None) -> Callable[..., Any]:
        """The objective of a shard of a batch, whose key is its own by its number, and on parts of it by theirs."""

        def objective(params: Any, batch: Any, number: Any) -> Any:
            key = fold(fold(state.key, state.step), number) if self.takes_key else None
            key = key_of_part(key, context)
            return self._run(state, params, batch, key)[:2]

        return objective

    def _run(self, state: State, params: Any, batch: Any, key: Any) -> tuple[Any, dict[str, Any], Any]:
        own = {"key": key} if self.takes_key else {}
        own |= {"extra": state.extra} if self.takes_extra else {}
        value, metrics, extra = _take_apart(self.loss(params, batch, **own), self.has_aux, self.takes_extra)
        scaled = state.opt_state.scaled(value) if isinstance(state.opt_state, ScaledState) else value
        return scaled, {"loss": value, **metrics}, extra


def _pipeline_step(
    loss: Callable[..., Any], optimizer: Optimizer, recipe: Recipe, has_more: bool, grad_norm: bool, options: Any
) -> PipelineStep:
    if has_more:
        raise ArgumentError(
            "a step of a pipeline takes a loss without `key` and `has_aux`, and keeps no `average`",
            fix="write `def loss(model, batch): return model.loss(batch[0], batch[1])`",
        )

    def join(state: State, params: Any, opt_state: Any) -> State:
        return State(params, opt_state, state.step + 1, state.key, state.average, state.extra)

    rules = StateRules(lambda state: _check_state(state, None), join)
    return PipelineStep(loss, optimizer, recipe, rules, grad_norm=grad_norm, **options)


def _check_recipe(recipe: Recipe, takes_extra: bool) -> None:
    if not isinstance(recipe, Recipe):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`make_step` takes a `recipe` of `ts.dist.recipe`, got {recipe!r}")
    if takes_extra:
        raise ArgumentError(
            "a step of several ranks carries no `extra`: running means of shards would depend on their order",
            fix="normalize within a sample, as `nn.LayerNorm` does",
        )


def _check_state(state: Any, average: Any) -> None:
    if not isinstance(state, State):
        raise ArgumentError(
            f"a step of `make_step` takes a `State`, got {type(state).__name__}",
            fix="make one: `ts.train.State.init(params, optimizer)`",
        )
    if any(isinstance(one, ScaledState) for one in _states_inside(state.opt_state)):
        raise ArgumentError(
            "the optimizer scales the loss inside of another one, where the step does not see it",
            notes=("rule: gradients are divided by the scale that the loss was multiplied with",),
            fix="put it around all others: `ts.optim.with_loss_scale(ts.optim.chain(...))`",
        )
    if (state.average is None) != (average is None):
        has, lacks = ("step", "state") if state.average is None else ("state", "step")
        raise ArgumentError(
            f"the {has} has an `average`, and the {lacks} has none",
            fix="give the same `average=ts.optim.ema(...)` to `State.init` and to `make_step`",
        )


def _states_inside(state: Any) -> Iterator[Any]:
    """The states that the state of an optimizer is made of, which are tuples, without itself."""
    for part in cast("tuple[Any, ...]", state) if isinstance(state, tuple) else ():
        yield part
        yield from _states_inside(part)


def _take_apart(found: Any, has_aux: bool, takes_extra: bool) -> tuple[Any, dict[str, Any], Any]:
    """What a loss gives: the loss, its metrics, and what the next step gets; raises ArgumentError (T0202)."""
    if not has_aux and not takes_extra:
        return found, {}, None
    parts: list[Any] = list(cast("tuple[Any, ...]", found)) if isinstance(found, tuple) else [found]
    names = ["loss", *(["metrics"] if has_aux else []), *(["extra"] if takes_extra else [])]
    if len(parts) != len(names) or (has_aux and not isinstance(parts[1], dict)):
        raise ArgumentError(
            f"such a loss gives {', '.join(f'`{name}`' for name in names)}, got {len(parts)} values"
            + (", of which the second is no dict" if has_aux and len(parts) == len(names) else ""),
            notes=("rule: metrics, a dict, come with `has_aux`, and `extra` where the loss takes `extra`",),
            fix=f"write `return {', '.join(names)}`",
        )
    metrics = cast("dict[str, Any]", parts[1]) if has_aux else dict[str, Any]()
    _check_metrics(metrics)
    return parts[0], metrics, parts[-1] if takes_extra else None


def _check_metrics(metrics: dict[str, Any]) -> None:
    """Raises ArgumentError (T0202) where a metric would take the name of one of the step, which `fit` ends on."""
    hidden = next((name for name in ("loss", "grad_norm") if name in metrics), None)
    if hidden is not None:
        raise ArgumentError(
            f"the metrics of the loss have `{hidden}`, which the step reports itself",
            fix=f"give it another name, as `raw_{hidden}`, or leave it out",
        )


# Means of metrics over many batches.


@lru_cache(maxsize=32)
def _compile(metric: Callable[..., Any]) -> Jit:
    return metric if isinstance(metric, Jit) else jit(metric)


def evaluate(
    metric: Callable[..., Any], params: Any, batches: Iterable[Any], *, steps: int | None = None
) -> dict[str, float]:
    """Means over batches of what `metric(params, batch)` gives: a scalar, called `loss`, or a dict of scalars.

    Batches count by their items, so that a shorter one at the end counts less; sums are in f64, in order. `steps` is
    how many batches to read at most; they are copied to the GPU that parameters are on. A `ts.data.Loader` is read
    from the start of its first epoch, and keeps its position. The function is compiled once, also where it is evaluated
    again.

    >>> batches = [ts.array([1.0, 2.0, 3.0]), ts.array([6.0])]
    >>> ts.train.evaluate(lambda w, x: (w * x).mean(), ts.array(2.0), batches)
    {'loss': 6.0}
    """
    check_callables("evaluate", metric=metric)
    run, total, sums, like = _compile(metric), 0, dict[str, float](), find_on_device(params)
    for batch in islice(_from_the_start(batches), steps):
        found = run(params, move_batch(batch, like))
        values: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {"loss": found}
        count = items_of(batch)
        for name, value in values.items():
            if not is_tensor(value) or value.shape != ():
                raise ArgumentError(
                    f"`evaluate` takes a metric that gives scalars, and `{name}` is {getattr(value, 'shape', value)}",
                    fix="reduce it: `.mean()`",
                )
            sums[name] = sums.get(name, 0.0) + count * float(value)
        total += count
    if not total:
        raise ArgumentError("`evaluate` got no batches", fix="see that the iterable is not used up: pass a loader")
    return {name: value / total for name, value in sums.items()}


def _from_the_start(batches: Any) -> Iterator[Any]:
    """Batches of a loader from its first one on, which afterwards is where it was; any others as they come."""
    if not hasattr(batches, "state") or not hasattr(batches, "restore"):
        yield from batches
        return
    position = batches.state()
    batches.restore({**position, "epoch": 0, "batch": 0})
    try:
        yield from batches
    finally:
        batches.restore(position)


def items_of(batch: Any) -> int:
    """How many items a batch has: the first dim of its first tensor that has dims, else 1."""
    shapes: list[tuple[int, ...]] = [tuple(leaf.shape) for leaf in flatten(batch)[0] if getattr(leaf, "shape", ())]
    return int(shapes[0][0]) if shapes else 1


def tokens_of(batch: Any) -> tuple[int, str]:
    """How much a batch is, to say how fast training goes: tokens [batch, length] of integers, else items."""
    for leaf in flatten(batch)[0]:
        shape = tuple(getattr(leaf, "shape", ()))
        if len(shape) == 2 and str(getattr(leaf, "dtype", "")).lstrip("u").startswith(("i", "int")):
            return int(shape[0] * shape[1]), "tokens"
    return items_of(batch), "items"
