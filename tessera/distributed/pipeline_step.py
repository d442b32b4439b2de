"""The training step of a pipeline: programs of a rank's stages, run in the order of a schedule, and one update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera.api.autodiff import value_and_grad, vjp
from tessera.api.collectives import all_reduce
from tessera.api.jit import Jit, jit
from tessera.diagnostics.codes import ArgumentError
from tessera.distributed.pipeline import Schedule, plan_of
from tessera.distributed.rebuild import rebuild
from tessera.distributed.recipe import Recipe
from tessera.distributed.stages import run_stage
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import dtype_of
from tessera.frontend.pytree import flatten, leaf_names, map_leaves, unflatten
from tessera.optim import Optimizer
from tessera.optim.transforms import zeros_of
from tessera.runtime.ranks import world
from tessera.types.frozen import frozen


@frozen
class StateRules:
    """What a step knows of states: which it refuses, and the new one of new parameters and optimizer states."""

    check: Callable[[Any], None]
    join: Callable[[Any, Any, Any], Any]


class PipelineStep:
    """A step of a model whose stages are on the ranks of an axis: `state, metrics = step(state, batch)`.

    The batch is cut into microbatches, whose gradients are summed in their order, in f32 (f64 for f64). `most_kept` is
    how many inputs of microbatches were kept at a time in the last step.
    """

    def __init__(
        self,
        loss: Any,
        optimizer: Optimizer,
        recipe: Recipe,
        rules: StateRules,
        *,
        grad_norm: bool,
        **options: Any,
    ) -> None:
        self.recipe, self.config = recipe, recipe.config
        axis = recipe.config.pipeline
        assert axis is not None
        self.axis, ranks = axis, recipe.mesh.sizes.get(axis, 1)
        self.plan = plan_of(self.config.schedule, ranks, self.config.microbatches, self.config.chunks)
        self.most_kept = 0
        self._loss, self._optimizer, self._rules, self._grad_norm = loss, optimizer, rules, grad_norm
        self._options = options
        self._programs: dict[tuple[str, int], Jit] = {}
        self._zeros = jit(_zeros_like, **options)
        self._finish = jit(self._update, donate={"state"}, **options)

    def __call__(self, state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        self._rules.check(state)
        self.recipe.check_optimizer(state.opt_state)
        parts = self._microbatches(batch)
        totals: list[Any] = [self._zeros(state.params)]
        losses: list[Any] = []
        shape = self._activation(parts[0])
        schedule = Schedule(self.recipe.mesh, self.axis, self.plan, lambda _: np.zeros(*shape))

        def forward(stage: int, at: int, x: Any) -> Any:
            return self._program("forward", stage)(state.params, parts[at], x)

        def backward(stage: int, at: int, x: Any, cotangent: Any) -> Any:
            if stage == self.plan.virtual_stages - 1:
                loss, made, totals[0] = self._program("last", stage)(state.params, parts[at], x, totals[0])
                losses.append(loss)
                return made
            made, totals[0] = self._program("backward", stage)(state.params, parts[at], x, cotangent, totals[0])
            return made

        schedule.run(forward, backward)
        self.most_kept = schedule.most_kept
        total = np.sum([np.asarray(one) for one in losses], axis=0, dtype=np.float32) if losses else np.float32(0.0)
        return self._finish(state, totals[0], np.asarray(total, np.float32))

    # Programs: one for each stage of this rank and each direction.

    def _program(self, kind: str, stage: int) -> Jit:
        found = self._programs.get((kind, stage))
        if found is None:
            found = self._programs[kind, stage] = getattr(self, f"_make_{kind}")(stage)
        return found

    def _run(self, params: Any, batch: Any, x: Any, stage: int) -> Any:
        return run_stage(self._loss, rebuild(self.recipe, params, batch), batch, x, stage, self.plan.virtual_stages)

    def _make_forward(self, stage: int) -> Jit:
        def forward(params: Any, batch: Any, x: Any) -> Any:
            return self._run(params, batch, x, stage)

        return jit(forward, **self._options)

    def _make_backward(self, stage: int) -> Jit:
        def backward(params: Any, batch: Any, x: Any, cotangent: Any, total: Any) -> tuple[Any, Any]:
            def run(held: Any, value: Any = None) -> Any:
                return self._run(held, batch, value, stage)

            if stage == 0:
                return None, _add(total, vjp(run, params)[1](cotangent)[0])
            _, pull = vjp(run, params, x)
            gradients, back = pull(cotangent)
            return back, _add(total, gradients)

        return jit(backward, donate={"total"}, **self._options)

    def _make_last(self, stage: int) -> Jit:
        def last(params: Any, batch: Any, x: Any, total: Any) -> tuple[Any, Any, Any]:
            def run(held: Any, value: Any = None) -> Any:
                return self._run(held, batch, value, stage)

            if stage == 0:
                loss, gradients = value_and_grad(run)(params)
                return loss, None, _add(total, gradients)
            loss, (gradients, back) = value_and_grad(run, (0, 1))(params, x)
            return loss, back, _add(total, gradients)

        return jit(last, donate={"total"}, **self._options)

    def _update(self, state: Any, total: Any, loss: Any) -> tuple[Any, dict[str, Any]]:
        recipe = self.recipe
        scale = 1.0 / (self.config.microbatches * recipe.sample_ranks)
        leaves, form = flatten(total)
        gradients = unflatten(form, [one * scale for one in recipe.sum_parts(leaves)])
        value = recipe.sum_samples(loss) * scale
        if self.plan.stages > 1:
            value = all_reduce(value, self.axis)
        metrics = {"loss": value}
        if self._grad_norm:
            metrics["grad_norm"] = recipe.norm(gradients)
        params, opt_state = recipe.update(self._optimizer, gradients, state.opt_state, state.params)
        return self._rules.join(state, params, opt_state), metrics

    # Microbatches, and how large what goes between stages is.

    def _microbatches(self, batch: Any) -> list[Any]:
        """This rank's part of each microbatch."""
        # With `local_batch` a rank is given its own part, which it alone cuts.
        is_whole = not self.config.local_batch
        count, ranks, mine = self.config.microbatches, self.recipe.batch_ranks if is_whole else 1, 0
        for axis in self.config.batch_axes if is_whole else ():
            size = self.recipe.mesh.sizes.get(axis, 1)
            mine = mine * size + (self.recipe.mesh.position(axis, world.rank()) if size > 1 else 0)
        leaves, form = flatten(batch)
        cut: list[Any] = []
        for leaf, name in zip(leaves, leaf_names(form), strict=True):
            array = np.asarray(leaf)
            if not array.shape or array.shape[0] % (count * ranks):
                raise ArgumentError(
                    f"`{name or 'batch'}` of the batch is {list(array.shape)}, which does not make {count} "
                    f"microbatches for {ranks} data ranks along its first dim",
                    fix=f"make its first dim a multiple of {count * ranks}",
                )
            cut.append(array.reshape(count, ranks, -1, *array.shape[1:])[:, mine])
        return [unflatten(form, [np.ascontiguousarray(one[at]) for one in cut]) for at in range(count)]

    def _activation(self, batch: Any) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of what goes from stage to stage."""
        tokens = next((leaf for leaf in flatten(batch)[0] if leaf.ndim > 1 and leaf.dtype.kind in "iu"), None)
        if tokens is None:
            raise ArgumentError("a pipeline of a `GPT` takes batches of tokens [batch, length], and there are none")
        whole = self.recipe.whole
        return (*(int(size) for size in tokens.shape[:2]), whole.width), whole.dtype


def _add(total: Any, gradients: Any) -> Any:
    def add(one: Any, more: Any) -> Any:
        return one + ops.astype(more, dtype_of(one))

    return map_leaves(add, total, gradients)


def _zeros_like(params: Any) -> Any:
    leaves, form = flatten(params)
    return zeros_of(leaves, form)
