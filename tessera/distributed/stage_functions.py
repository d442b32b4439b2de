"""`pipeline`: functions one after the other, each on a rank of its own, that microbatches pass through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.api.autodiff import value_and_grad, vjp
from tessera.api.jit import Jit, jit
from tessera.diagnostics.codes import ArgumentError, TracingError
from tessera.distributed.pipeline import Mailbox, Message, Schedule, plan_of
from tessera.distributed.placement import gather_arrays, gather_objects
from tessera.frontend.arguments import check_int, check_string
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of
from tessera.frontend.pytree import flatten, map_leaves, unflatten
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import numpy_dtype
from tessera.optim.transforms import state_dtype
from tessera.runtime.ranks.world import mesh_in_force
from tessera.runtime.tensor import Tensor


def pipeline(
    stages: Sequence[Callable[..., Any]], axis: str = "pp", *, microbatches: int = 1, schedule: str = "1f1b"
) -> StageFunctions:
    """Functions `stage(params, x)` as one function, each on a rank of a mesh axis, microbatch after microbatch.

    `run(params, x)` takes a list with the parameters of each stage, of which a rank uses its own, and `x`, whose first
    dim is cut into microbatches; all ranks get the result. `run.value_and_grad(loss)(params, x, target)` gives the mean
    of `loss(y, target)` over microbatches, and the gradients of this rank's stages in a list with None for all others,
    in the order of a schedule: `1f1b`, or `interleaved` where ranks have several stages, in turn. Gradients of
    microbatches are summed in f32 (f64 for f64).

    >>> double = ts.dist.pipeline([lambda w, x: x * w, lambda w, x: x + w], microbatches=2)
    >>> with ts.dist.mesh(pp=1):
    ...     double([ts.array(3.0), ts.array(1.0)], ts.array([1.0, 2.0]))
    Tensor([2] f32, [4, 7])
    """
    given = list(stages) if isinstance(stages, list | tuple) else []
    if not given or not all(callable(one) for one in given):
        raise ArgumentError(
            f"`pipeline` takes a list of functions, got {stages!r}", fix="write `pipeline([first, second])`"
        )
    check_string("pipeline", "axis", axis)
    if check_int("pipeline", "microbatches", microbatches) < 1:
        raise ArgumentError(f"`pipeline` takes `microbatches` from 1, got {microbatches}")
    return StageFunctions(given, axis, microbatches, schedule)


class StageFunctions:
    """Functions on the ranks of a mesh axis: see `ts.dist.pipeline`."""

    def __init__(self, stages: list[Callable[..., Any]], axis: str, microbatches: int, schedule: str) -> None:
        self._stages = [jit(stage) for stage in stages]
        self._axis, self._count, self._schedule = axis, microbatches, schedule
        self._backward: dict[tuple[int, Any], Jit] = {}
        self._shapes: dict[Any, list[Any]] = {}

    def __call__(self, params: Sequence[Any], x: Any) -> Tensor:
        """What the stages make of `x`, on all ranks; no gradients are kept."""
        parts, (ranks, _) = self._microbatches(x), self._ranks(params)
        mesh, last = mesh_in_force(), len(self._stages) - 1
        mail = Mailbox(mesh, self._axis, plan_of("1f1b", ranks, self._count, 1), self._blanks(params, parts[0]))
        found: list[Any] = []
        for at, stage in _waves(self._count, last + 1):
            into = Message("F", at, stage - 1, stage)
            if stage % ranks == mail.position:
                if stage:
                    mail.exchange(into)
                made = self._stages[stage](params[stage], mail.take(into) if stage else parts[at])
                if stage == last:
                    found.append(np.asarray(made))
                else:
                    mail.put(Message("F", at, stage, stage + 1), made)
            elif stage and (stage - 1) % ranks == mail.position:
                mail.exchange(into)
        mail.finish()
        shape, dtype = self._shapes[_key_of(params, parts[0])][-1]
        whole = (shape[0] * self._count, *shape[1:])
        own = np.concatenate(found) if found else np.zeros(whole, dtype)
        return Tensor.of(gather_arrays(own, "the result of a pipeline", mail.group)[last % ranks]).copy()

    def value_and_grad(self, loss: Callable[..., Any]) -> Callable[..., tuple[Any, list[Any]]]:
        """A function of parameters, `x` and what `loss` takes behind `y`: the mean loss, and own stages' gradients."""

        def run(params: Sequence[Any], x: Any, *targets: Any) -> tuple[Any, list[Any]]:
            return self._train(loss, params, x, targets)

        return run

    def _train(self, loss: Callable[..., Any], params: Sequence[Any], x: Any, targets: Any) -> tuple[Any, list[Any]]:
        parts, wanted = self._microbatches(x), [self._microbatches(one) for one in targets]
        ranks, chunks = self._ranks(params)
        last = len(self._stages) - 1
        plan = plan_of(self._schedule, ranks, self._count, chunks)
        work = Schedule(mesh_in_force(), self._axis, plan, self._blanks(params, parts[0]))
        gradients: list[Any] = [None] * (last + 1)
        losses: list[float] = []

        def forward(stage: int, at: int, arrived: Any) -> Any:
            return self._stages[stage](params[stage], arrived if stage else parts[at])

        def backward(stage: int, at: int, arrived: Any, cotangent: Any) -> Any:
            own = arrived if stage else parts[at]
            if stage == last:
                value, (gradient, back) = self._last(loss, stage)(params[stage], own, *(one[at] for one in wanted))
                losses.append(float(value))
            else:
                gradient, back = self._pull(stage)(params[stage], own, cotangent)
            before = gradients[stage]
            wide = _cast(gradient, state_dtype)
            gradients[stage] = wide if before is None else map_leaves(ops.add, before, wide)
            return back

        work.run(forward, backward)
        means = [
            None if one is None else _mean(one, float(self._count), own)
            for one, own in zip(gradients, params, strict=True)
        ]
        told = np.array([sum(losses) / self._count if losses else 0.0])
        return float(gather_arrays(told, "the loss of a pipeline", work.mail.group)[last % ranks][0]), means

    # Programs, microbatches, and how large what goes between stages is.

    # Nothing is before the first stage: its `x`, which may be tokens, has no gradient.

    def _last(self, loss: Callable[..., Any], stage: int) -> Jit:
        def run(params: Any, x: Any, *targets: Any) -> Any:
            def objective(held: Any, value: Any) -> Any:
                return loss(self._stages[stage](held, value), *targets)

            if stage == 0:
                value, gradient = value_and_grad(objective)(params, x)
                return value, (gradient, None)
            return value_and_grad(objective, (0, 1))(params, x)

        return self._keep((stage, loss), run)

    def _pull(self, stage: int) -> Jit:
        def run(params: Any, x: Any, cotangent: Any) -> Any:
            def first(held: Any) -> Any:
                return self._stages[0](held, x)

            if stage == 0:
                return vjp(first, params)[1](cotangent)[0], None
            return vjp(self._stages[stage], params, x)[1](cotangent)

        return self._keep((stage, None), run)

    def _keep(self, key: tuple[int, Any], run: Callable[..., Any]) -> Jit:
        return self._backward.setdefault(key, jit(run))

    def _ranks(self, params: Sequence[Any]) -> tuple[int, int]:
        if dispatch.tracing() is not None:
            raise TracingError(
                "a pipeline runs other programs on each rank, and is not part of one",
                fix="call it outside of `jit`; its stages are jitted",
            )
        ranks, count = mesh_in_force().sizes.get(self._axis, 1), len(self._stages)
        if count % ranks or len(params) != count:
            raise ArgumentError(
                f"a pipeline of {count} stages on the {ranks} ranks of `{self._axis}` takes as many parameters, and as "
                f"many stages for each rank, got parameters of {len(params)}",
                fix=f"make the stages a multiple of {ranks}, and pass a list with the parameters of each",
            )
        return ranks, count // ranks

    def _microbatches(self, x: Any) -> list[Any]:
        array = np.asarray(x)
        if not array.shape or array.shape[0] % self._count:
            raise ArgumentError(
                f"{list(array.shape)} does not make {self._count} microbatches along its first dim",
                fix=f"make it a multiple of {self._count}",
            )
        return [np.ascontiguousarray(one) for one in np.split(array, self._count)]

    def _blanks(self, params: Sequence[Any], x: Any) -> Callable[[int], Any]:
        """Memory for what enters a stage; ranks tell each other once what their stages give."""
        key = _key_of(params, x)
        if key not in self._shapes:
            ranks = mesh_in_force().sizes.get(self._axis, 1)
            given: list[Any] = [(x.shape, x.dtype)]
            for stage, run in enumerate(self._stages):
                shape, dtype = given[-1]
                tape = run.trace(params[stage], np.zeros(shape, dtype)).tape
                made = tape.types[tape.outputs[0]]
                given.append((tuple(int(dim.value or 0) for dim in made.shape), numpy_dtype(made.dtype)))
            told = gather_objects(given, "shapes of stages") if ranks > 1 else [given]
            assert all(one == given for one in told), "all ranks have the parameters of all stages, or their shapes"
            self._shapes[key] = given
        given = self._shapes[key]
        return lambda stage: np.zeros(*given[stage])


def _cast(tree: Any, dtype: Callable[[Any], Any]) -> Any:
    leaves, form = flatten(tree)
    return unflatten(form, [ops.astype(leaf, dtype(leaf)) for leaf in leaves])


def _mean(total: Any, count: float, params: Any) -> Any:
    """The mean of gradients of which `total` is the sum, in the dtypes of parameters."""

    def divide(one: Any, own: Any) -> Any:
        return ops.astype(one / count, dtype_of(as_tensor(own)))

    return map_leaves(divide, total, params)


def _key_of(params: Sequence[Any], x: Any) -> Any:
    return (
        x.shape,
        str(x.dtype),
        tuple(tuple(leaf.shape) for leaf in flatten(list(params))[0] if hasattr(leaf, "shape")),
    )


def _waves(microbatches: int, stages: int) -> list[tuple[int, int]]:
    """Microbatches and stages, in the order in which an ideal pipeline runs them."""
    pairs = [(at, stage) for at in range(microbatches) for stage in range(stages)]
    return sorted(pairs, key=lambda one: (one[0] + one[1], one[1]))
