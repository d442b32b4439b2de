"""`Recipe`: how a model is trained by the ranks of a mesh, as configuration of one training step.

A step is written once, for a model and a batch. The recipe says which mesh axes divide what: the batch (data parallel),
the layers (tensor parallel, with the sequence between them), the experts, the sequence (context parallel), and states
and parameters (ZeRO). It takes a rank's parts of parameters, makes the model that runs on them, sums gradients over the
ranks that have shares of them, and lets each rank update what it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from tessera.api.autodiff import value_and_grad
from tessera.api.collectives import all_gather, all_reduce, axis_index
from tessera.api.control import scan
from tessera.api.shard_map import P, take_part
from tessera.diagnostics.codes import ArgumentError
from tessera.distributed import layout as layouts
from tessera.distributed.exchanges import scatter_sum, sum_by_tree, tree_all_reduce, tree_reduce_scatter
from tessera.distributed.experts import check_wire
from tessera.distributed.layout import Layout, Parallel, free_dim, layout_of
from tessera.distributed.pipeline import plan_of
from tessera.distributed.placement import Cut, Placement, join_traced, take_traced
from tessera.distributed.rebuild import rebuild
from tessera.distributed.stages import Whole
from tessera.frontend.arguments import check_bool, check_int
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, dtype_of
from tessera.frontend.pytree import flatten, leaf_names, unflatten
from tessera.optim import AdafactorState, Optimizer, ScaledState, apply_updates, global_norm
from tessera.optim.transforms import SHARDED_NORM
from tessera.runtime import tensor
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Mesh, mesh_in_force
from tessera.types.dtype import i64

BUCKET = 1 << 22
"""Bytes of gradients that are summed at a time, so that the first sum runs while later gradients are computed."""


class Recipe:
    """How a model is trained by the ranks of the mesh around: see `ts.dist.recipe`.

    >>> with ts.dist.mesh(dp=1):
    ...     recipe = ts.dist.recipe({"w": ts.ones((4, 2))}, zero=3)
    ...     recipe.gather(recipe.take({"w": ts.ones((4, 2))}))["w"].shape
    (4, 2)
    """

    def __init__(self, config: Parallel, layout: Layout, mesh: Mesh, whole: Whole) -> None:
        self.config, self.layout, self.mesh, self.whole = config, layout, mesh, whole

    def __repr__(self) -> str:
        return f"Recipe({self.config}, {self.mesh})"

    # Parts of parameters and states.

    def take(self, params: Any) -> Any:
        """This rank's parts of whole parameters, in memory of their own; of a pipeline, those of its stages."""
        own = params if self.config.pipeline is None else self.whole.stages_of(params)
        return layouts.take(self.layout, own, self.mesh)

    def gather(self, tree: Any) -> Any:
        """A tree of whole tensors of one whose tensors are parts, as a state is; all ranks call it, and get it.

        Of a pipeline, whose ranks have different trees, it takes the parameters alone.
        """
        if self.config.pipeline is None:
            return layouts.gather(self.layout, tree, self.mesh)
        if flatten(tree)[1] != self.layout.form:
            raise ArgumentError(
                "the ranks of a pipeline have states of different forms, and `gather` puts together parameters",
                fix="write `recipe.gather(state.params)`, or save it: `ts.train.save(path, state, recipe=recipe)`",
            )
        return self.whole.join(layouts.gather(self.layout, tree, self.mesh, self.config.pipeline))

    def state_params(self, params: Any) -> Any:
        """The parameters that this rank's optimizer states are of: with ZeRO, its parts of them."""
        if self.config.zero in (0, 3):
            return params
        leaves, form = flatten(params)
        return unflatten(form, [layouts.take_state_part(self, at, leaf) for at, leaf in enumerate(leaves)])

    # One step.

    def gradients(self, objective: Callable[..., Any], params: Any, batch: Any) -> tuple[Any, Any]:
        """Metrics and gradients over the whole batch, of `objective(params, batch, number)` with metrics as its aux.

        The batch is cut into shards, which the objective gets with their numbers. Metrics and gradients are means.
        """
        tensor.notify_readers(self._check_mesh())
        shards, local = self._shards(batch), self._local_shards

        def of_shard(shard: Any, number: Any) -> tuple[Any, Any]:
            def own(held: Any) -> Any:
                return objective(rebuild(self, held, shard), shard, number)

            (_, metrics), gradients = value_and_grad(own, has_aux=True)(params)
            found = flatten(gradients)[0]
            # Ranks that have shards in turn are at the leaves of the tree over shards: sums over them come first.
            return (self._sum_tree(metrics), self.sum_parts(found)) if self.is_strided else (metrics, found)

        if local == 1:
            metrics, gradients = of_shard(*_element(shards, 0))
        else:
            _, (many, stacked) = scan(lambda carry, one: (carry, of_shard(*one)), (), shards)
            metrics = _tree_over(many, local)
            gradients = _tree_over(stacked, local)
        if not self.is_strided:
            gradients = self.sum_parts(gradients)
        total = self.sample_ranks * local
        scale = 1.0 / total
        metrics = metrics if self.is_strided else self._sum_tree(metrics)
        leaves, form = flatten(metrics)
        means = unflatten(form, [one * scale for one in leaves])
        return means, unflatten(self.layout.form, [one * scale for one in gradients])

    def _sum_tree(self, tree: Any) -> Any:
        """A tree of values, each summed over ranks."""
        leaves, form = flatten(tree)
        return unflatten(form, [self._sum(one, self.config.shards is not None) for one in leaves])

    def update(self, optimizer: Optimizer, gradients: Any, opt_state: Any, params: Any) -> tuple[Any, Any]:
        """New parameters and the new state of the optimizer, each rank computing those of its parts."""
        self.check_optimizer(opt_state)
        token = SHARDED_NORM.set(self.sum_squares)
        try:
            held = params
            if self.config.zero in (1, 2):
                held = self._map_parts(params, take_traced)
                gradients = self._map_parts(gradients, take_traced) if self.config.zero == 1 else gradients
            updates, opt_state = optimizer.update(gradients, opt_state, held)
            made = apply_updates(held, updates)
        finally:
            SHARDED_NORM.reset(token)
        return self._map_parts(made, join_traced) if self.config.zero in (1, 2) else made, opt_state

    def norm(self, gradients: Any) -> Any:
        """The global norm of gradients in parts."""
        # With ZeRO-1 gradients are whole until they are used.
        token = SHARDED_NORM.set(partial(self.sum_squares, has_parts=self.config.zero == 2))
        try:
            return global_norm(gradients)
        finally:
            SHARDED_NORM.reset(token)

    def sum_squares(self, tree: Any, totals: Sequence[Any], *, has_parts: bool = True) -> Sequence[Any]:
        """Sums of squares of whole gradients, of those of the parts that this rank has."""
        leaves, form = flatten(tree, keep_order=True)
        numbers = [self.layout.numbers[name] for name in leaf_names(form)]
        cuts = [(*self.layout.stored[at], *(self._state_cut(at) if has_parts else ())) for at in numbers]
        done = {} if self.config.shards is None else self._sum_shards(leaves, totals, numbers, cuts)
        made: list[Any] = []
        for number, (own, total) in enumerate(zip(cuts, totals, strict=True)):
            total, skipped = (done[number], self.config.data) if number in done else (total, None)
            for axis in dict.fromkeys(cut.axis for cut in own):
                total = all_reduce(total, axis) if axis != skipped and self.mesh.sizes.get(axis, 1) > 1 else total
            made.append(total)
        axis = self.config.pipeline
        if axis is None or self.mesh.sizes.get(axis, 1) == 1:
            return made
        # Stages have different numbers of parameters: they agree on one sum.
        return [all_reduce(sum_in_order(made), axis)]

    def _sum_shards(
        self, leaves: Sequence[Any], totals: Sequence[Any], numbers: Sequence[int], cuts: Sequence[Placement]
    ) -> dict[int, Any]:
        """Sums of squares by a tree over shards of each gradient that they divide: the same bits on any data ranks."""
        count, data = self.config.shards or 1, self.config.data
        ranks = 1 if data is None else self.mesh.sizes.get(data, 1)
        made, divided = dict[int, Any](), list[int]()
        for number, (leaf, at, own) in enumerate(zip(leaves, numbers, cuts, strict=True)):
            mine = [cut.dim for cut in own if cut.axis == data and ranks > 1]
            shape, others = self.layout.shapes[at], tuple(cut for cut in own if cut.axis != data)
            dim = free_dim(shape, others, count) if not mine else mine[0] if shape[mine[0]] % count == 0 else None
            if dim is None:
                continue
            local = count // ranks if mine else count
            parts = (*leaf.shape[:dim], local, leaf.shape[dim] // local, *leaf.shape[dim + 1 :])
            apart = ops.moveaxis(ops.reshape(ops.cast_like(leaf, totals[number]), parts), dim, 0)
            rows = ops.reshape(apart, (local, -1))
            squares = ops.sum(rows * rows, axis=1)
            made[number] = sum_by_tree([squares[one] for one in range(local)])
            divided += [number] if mine else []
        if divided and data is not None:
            own = ops.stack([ops.cast_like(made[one], made[divided[0]]) for one in divided])
            every = all_gather(ops.expand_dims(own, 0), data)
            whole = sum_by_tree([every[rank] for rank in range(ranks)])
            made |= {number: ops.cast_like(whole[at], made[number]) for at, number in enumerate(divided)}
        return made

    def _state_cut(self, at: int) -> tuple[Cut, ...]:
        cut = self.layout.states[at]
        return (cut,) if cut is not None and self.config.zero in (1, 2) else ()

    def _map_parts(self, tree: Any, move: Callable[[Any, Cut], Any]) -> Any:
        leaves, form = flatten(tree)
        cuts = self.layout.states
        return unflatten(
            form, [leaf if cut is None else move(leaf, cut) for leaf, cut in zip(leaves, cuts, strict=True)]
        )

    # Shards of the batch, and sums over those who have them.

    @property
    def is_strided(self) -> bool:
        """Whether shards go to ranks in turn: where gradients are summed over ranks while they are computed.

        A tree over shards then has ranks at its leaves; else a rank has neighbours, and sums its own first. Both are
        one tree over the numbers of shards.
        """
        return self.config.shards is not None and (self.config.zero == 3 or self.config.expert is not None)

    @property
    def sample_ranks(self) -> int:
        """How many ranks have losses of different samples or positions."""
        return math.prod(self.mesh.sizes.get(axis, 1) for axis in self.config.sample_axes)

    @property
    def batch_ranks(self) -> int:
        """How many ranks divide the samples of a batch."""
        return math.prod(self.mesh.sizes.get(axis, 1) for axis in self.config.batch_axes)

    @property
    def _local_shards(self) -> int:
        return 1 if self.config.shards is None else self.config.shards // self.batch_ranks

    def _shards(self, batch: Any) -> Any:
        """This rank's shards of a batch, one after the other, and their numbers."""
        ranks, local = self.batch_ranks, self._local_shards
        index = as_tensor(0, i64)
        for axis in self.config.batch_axes:
            if self.mesh.sizes.get(axis, 1) > 1:
                index = index * self.mesh.sizes[axis] + ops.astype(axis_index(axis), i64)
        order = (local, ranks) if self.is_strided else (ranks, local)
        numbers = ops.iota((local,)) * ranks + index if self.is_strided else index * local + ops.iota((local,))
        leaves, form = flatten(batch)
        made = [self._cut_batch(leaf, path, order, index) for leaf, path in zip(leaves, leaf_names(form), strict=True)]
        return unflatten(form, made), numbers

    def _cut_batch(self, leaf: Any, path: str, order: tuple[int, int], index: Any) -> Any:
        value = as_tensor(leaf)
        count, own = math.prod(order), self._local_shards if self.config.local_batch else math.prod(order)
        if not value.shape or value.shape[0] % own:
            raise ArgumentError(
                f"`{path or 'batch'}` of the batch is {list(value.shape)}, which does not make {own} shards along its "
                f"first dim ({self.batch_ranks} ranks, {self._local_shards} for each)",
                fix=f"make its first dim a multiple of {count}",
            )
        axis = self.config.context
        if axis is not None and len(value.shape) > 1 and self.mesh.sizes.get(axis, 1) > 1:
            value = take_part(value, P(None, axis), self.mesh)
        if self.config.local_batch:
            return ops.reshape(value, (order[0] if self.is_strided else order[1], -1, *value.shape[1:]))
        split = ops.reshape(value, (*order, value.shape[0] // count, *value.shape[1:]))
        if self.batch_ranks == 1:
            return ops.squeeze(split, 1 if self.is_strided else 0)
        dim = 1 if self.is_strided else 0
        starts = [as_tensor(0, i64)] * len(split.shape)
        starts[dim] = index
        sizes = tuple(1 if at == dim else size for at, size in enumerate(split.shape))
        return ops.squeeze(ops.dynamic_slice(split, tuple(starts), sizes), dim)

    def sum_parts(self, gradients: Sequence[Any]) -> list[Any]:
        """Gradients summed over all ranks that have shares of them; with ZeRO-2, this rank's parts of the sums."""
        made: list[Any] = list(gradients)
        whole: list[int] = []
        for at, gradient in enumerate(gradients):
            cut = self.layout.states[at]
            held = {one.axis for one in self.layout.stored[at]}
            if self.config.zero == 2 and cut is not None:
                others = [axis for axis in self.config.sample_axes if axis != cut.axis and axis not in held]
                reduced = self._sum(gradient, self.config.shards is not None, others)
                made[at] = self._scatter(reduced, cut)
            elif not held.intersection(self.config.sample_axes):
                whole.append(at)
            else:  # what is gathered for use, and experts: their shares came by the exchanges' derivatives
                others = [axis for axis in self.config.sample_axes if axis not in held]
                made[at] = self._sum(gradient, self.config.shards is not None, others)
        for bucket in _buckets(gradients, whole):
            for at, total in zip(bucket, self._sum_bucket([gradients[at] for at in bucket]), strict=True):
                made[at] = total
        return made

    def _scatter(self, value: Any, cut: Cut) -> Any:
        if self.config.shards is not None:
            return tree_reduce_scatter(value, cut.axis, cut.dim)
        return scatter_sum(value, cut.axis, cut.dim)

    def _sum_bucket(self, values: Sequence[Any]) -> list[Any]:
        if self.config.shards is None or self.sample_ranks == 1:
            return [self._sum(one, False) for one in values]  # small ones are merged when they are scheduled
        flat = ops.concat([ops.reshape(one, (-1,)) for one in values])
        total, made, start = self._sum(flat, True), list[Any](), 0
        for one in values:
            size = math.prod(one.shape)
            made.append(ops.reshape(total[start : start + size], one.shape))
            start += size
        return made

    def sum_samples(self, value: Any) -> Any:
        """The sum over all ranks that have losses of different samples."""
        return self._sum(value, False)

    def _sum(self, value: Any, is_tree: bool, axes: Sequence[str] | None = None) -> Any:
        """A sum over ranks; those of the last axis are next to each other, and first in the tree."""
        for axis in reversed(self.config.sample_axes if axes is None else axes):
            if self.mesh.sizes.get(axis, 1) > 1:
                value = tree_all_reduce(value, axis) if is_tree else all_reduce(value, axis)
        return value

    # What is refused.

    def _check_mesh(self) -> Mesh:
        around = mesh_in_force()
        if around is not self.mesh:
            raise ArgumentError(
                f"the recipe was made for {self.mesh}, and what is in force is {around}",
                fix="call the step within the mesh of its recipe, or make a recipe for this one",
            )
        return around

    def check_optimizer(self, state: Any) -> None:
        """Raise ArgumentError (T0202) for the state of an optimizer that does not know what ranks divide."""
        is_cut = any(self.layout.stored) or (self.config.zero and any(self.layout.states))
        if is_cut and _holds(state, AdafactorState):
            raise ArgumentError(
                "`adafactor` keeps means over rows and columns, which parts of a parameter do not have",
                notes=("rule: where parameters or states are divided, an update is one of each element by itself",),
                fix="train with `ts.optim.adamw`, or with data parallelism alone",
            )
        if (is_cut or self.config.pipeline is not None) and _holds(state, ScaledState):
            raise ArgumentError(
                "a scale of the loss changes where a gradient is not finite, which ranks with other parts do not see",
                notes=("rule: `with_loss_scale` goes with data parallelism, where each rank has all gradients",),
                fix="train in bf16, which needs none, or with data parallelism alone",
            )


def sum_in_order(values: Sequence[Any]) -> Any:
    """The sum of values, the first ones first."""
    total = values[0]
    for one in values[1:]:
        total = total + one
    return total


def _holds(state: Any, kind: type[Any]) -> bool:
    """Whether the state of an optimizer is of a kind, or one that it is made of."""
    if isinstance(state, kind):
        return True
    return isinstance(state, tuple) and any(_holds(one, kind) for one in cast("tuple[Any, ...]", state))


def _element(tree: Any, at: int) -> Any:
    leaves, form = flatten(tree)
    return unflatten(form, [leaf[at] for leaf in leaves])


def _tree_over(stacked: Any, count: int) -> Any:
    """Sums over the first dim of stacked values, by the tree over shards."""
    leaves, form = flatten(stacked)
    return unflatten(form, [sum_by_tree([leaf[at] for at in range(count)]) for leaf in leaves])


def _buckets(gradients: Sequence[Any], chosen: Sequence[int]) -> list[list[int]]:
    """Which gradients are summed together: the last first, as backward passes make them, and of one dtype."""
    made: list[list[int]] = []
    bytes_left, dtype = 0, None
    for at in reversed(chosen):
        one = gradients[at]
        size = math.prod(one.shape) * dtype_of(one).bytes
        if not made or size > bytes_left or dtype_of(one) != dtype:
            made.append([])
            bytes_left, dtype = BUCKET, dtype_of(one)
        made[-1].append(at)
        bytes_left -= size
    return made


# A recipe of choices, checked against a mesh and a model.


def recipe(model: Any, config: Parallel | None = None, /, **choices: Any) -> Recipe:
    """How the ranks of the mesh around train a model: `recipe(model, data="dp", tensor="tp", zero=1)`.

    Choices are those of `Parallel`. The model, or any tree of parameters, is whole; `ts.train.State.init(model,
    optimizer, recipe=recipe)` keeps this rank's parts of it, and `ts.train.make_step(loss, optimizer, recipe=recipe)`
    makes the step, which takes the mean of the losses of all parts of a batch: that of the whole, where the loss is a
    mean over equally many terms in each part (see `Parallel`). Raises ShapeError (T0101) where an axis does not divide
    a dim that it is to divide; ArgumentError (T0202) where choices and mesh do not go together.

    >>> model = {"w": ts.ones((4, 2))}
    >>> optimizer = ts.optim.sgd(0.5)
    >>> with ts.dist.mesh(dp=1):
    ...     recipe = ts.dist.recipe(model, shards=2)
    ...     step = ts.train.make_step(lambda p, x: ((x @ p["w"]) ** 2.0).mean(), optimizer, recipe=recipe)
    ...     state, metrics = step(ts.train.State.init(model, optimizer, recipe=recipe), ts.ones((2, 4)))
    >>> metrics["loss"]
    Tensor([] f32, 16)
    """
    made = Parallel(**choices) if config is None else config
    mesh = mesh_in_force()
    _check(made, mesh)
    axis = made.pipeline
    if axis is None:
        return Recipe(made, layout_of(model, made, mesh), mesh, Whole.of(model))
    ranks = mesh.sizes.get(axis, 1)
    position = mesh.position(axis, world.rank()) if ranks > 1 else 0
    owned = tuple(chunk * ranks + position for chunk in range(made.chunks))
    whole = Whole.of(model, plan_of(made.schedule, ranks, made.microbatches, made.chunks).virtual_stages, owned)
    return Recipe(made, layout_of(whole.stages_of(model), made, mesh), mesh, whole)


def _check(config: Parallel, mesh: Mesh) -> None:
    for name in ("sequence", "local_batch"):
        check_bool("recipe", name, getattr(config, name))
    if config.zero not in (0, 1, 2, 3):
        raise ArgumentError(f"`recipe` takes `zero` as 0, 1, 2 or 3, got {config.zero!r}", fix="write `zero=1`")
    unused = [axis for axis, size in mesh.axes if size > 1 and axis not in config.axes]
    if unused:
        raise ArgumentError(
            f"{mesh} has axis `{unused[0]}` of {mesh.sizes[unused[0]]} ranks, which the recipe gives nothing to do",
            fix=f'name it: `recipe(model, data="{unused[0]}")`, or as `tensor`, `expert` or `context`',
        )
    if config.sequence and config.tensor is None:
        raise ArgumentError(
            "`sequence` divides what lies between tensor parallel layers, and there is no `tensor` axis",
            fix='write `recipe(model, tensor="tp", sequence=True)`, or `context="sp"` for long sequences',
        )
    if config.context is not None and config.tensor is not None:
        raise ArgumentError(
            f"`tensor` and `context` both divide attention, by `{config.tensor}` and by `{config.context}`",
            fix="choose one of them: `context` for long sequences, `tensor` for wide layers",
        )
    check_wire(config.wire)
    if config.pipeline is not None and (config.sequence or config.context or config.expert or config.shards):
        names = [name for name in ("sequence", "context", "expert", "shards") if getattr(config, name)]
        raise ArgumentError(
            f"a pipeline goes with `data`, `tensor` and `zero`, and not with `{names[0]}`",
            fix=f"leave out `{names[0]}`",
        )
    _check_shards(config, mesh)


def _check_shards(config: Parallel, mesh: Mesh) -> None:
    shards = config.shards
    if shards is None:
        return
    ranks = 1
    for axis in config.batch_axes:
        ranks *= mesh.sizes.get(axis, 1)
    if check_int("recipe", "shards", shards) < 1 or shards & (shards - 1) or shards % ranks:
        raise ArgumentError(
            f"`recipe` takes `shards` as a power of two that its {ranks} data ranks divide, got {shards!r}",
            notes=("rule: gradients of shards are joined by a binary tree, of which each rank has a part",),
            fix="write `shards=8`",
        )
    context = mesh.sizes.get(config.context or "", 1)
    if context & (context - 1):
        raise ArgumentError(
            f"`recipe` takes `shards` with a power of two of ranks along the sequence, got {context} of "
            f"`{config.context}`",
            notes=("rule: gradients of shards are joined by a binary tree, of which each rank has a part",),
            fix=f"make `{config.context}` a power of two, or leave out `shards`",
        )
