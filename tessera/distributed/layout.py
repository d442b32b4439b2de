"""What a recipe divides: the choices (`Parallel`), and the cuts of every parameter and state that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.distributed import experts
from tessera.distributed.layers import RULES
from tessera.distributed.placement import (
    Cut,
    Placement,
    as_host,
    as_own,
    check_cut,
    gather_arrays,
    join_host,
    part_shape,
    take_host,
)
from tessera.frontend.concrete import is_concrete
from tessera.frontend.pytree import Tree, flatten, leaf_names, node_of, unflatten
from tessera.nn.feed_forward import MoE
from tessera.nn.module import Module
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Mesh
from tessera.types.dtype import parse_dtype
from tessera.types.frozen import frozen


@frozen
class Parallel:
    """Which mesh axes divide what in training; an axis that the mesh does not have counts as one rank.

    `data` divides the batch. `shards` is into how many shards the batch is cut whatever the number of ranks: their
    gradients are computed one by one and joined by one tree, so that losses and parameters have the same bits on 1, 2
    and 4 ranks, but where `expert` divides them; without it each rank's part is one, and sums are by `all_reduce`.
    `tensor` divides heads and hidden features, with `sequence` also what lies between. `expert` divides experts,
    `capacity` is how many times its even share an expert takes at most (None drops nothing), `throttle` a hook that
    lowers it for each expert, `wire` the dtype in which tokens travel. `context` divides the sequence, with attention
    around a ring. `zero` divides the optimizer's states (1), gradients (2) and parameters (3, also called FSDP) over
    `data`. With `local_batch` each rank passes its own part of the batch. `pipeline` divides the blocks of a GPT into
    stages, through which `microbatches` pass in the order of `schedule`: `1f1b`, or `interleaved` with `chunks` stages
    on each rank.

    The loss is called with one part of the batch at a time, and the step takes the mean of what it gives for all parts.
    That is the loss of the whole where it is a mean over equally many terms in each part: `x.mean()` is, and
    `(x * mask).sum() / mask.sum()` is not, where masks of parts count differently; divide by a number that does not
    depend on the part there. With `context` every tensor of a batch that has two dims or more is cut along its second
    one, and the loss gives the model a part of the tokens as it is: targets come with the batch, already shifted,
    `{"x": tokens[:, :-1], "y": tokens[:, 1:]}`. Dropout is drawn for each part by itself.

    >>> ts.dist.Parallel(tensor="tp", zero=1).axes
    ('dp', 'tp')
    """

    data: str | None = "dp"
    shards: int | None = None
    tensor: str | None = None
    sequence: bool = False
    expert: str | None = None
    capacity: float | None = None
    wire: str | None = None
    throttle: experts.Throttle | None = None
    context: str | None = None
    zero: int = 0
    local_batch: bool = False
    pipeline: str | None = None
    microbatches: int = 1
    schedule: str = "1f1b"
    chunks: int = 1

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """The axes that divide the samples of a batch."""
        named = (self.data, self.expert)
        return tuple(dict.fromkeys(axis for axis in named if axis is not None))

    @property
    def sample_axes(self) -> tuple[str, ...]:
        """The axes whose ranks have losses of different samples or positions: gradients are summed over them."""
        return tuple(dict.fromkeys((*self.batch_axes, *([self.context] if self.context else []))))

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes that it names."""
        named = (*self.sample_axes, self.tensor, self.pipeline)
        return tuple(dict.fromkeys(axis for axis in named if axis is not None))


@frozen
class Layout:
    """The cuts of each parameter, in the order of a tree's leaves.

    `stored` are those of the parameters that a rank keeps, `states` the cut that divides states and, where it is among
    `stored`, parameters; `shapes` are whole.
    """

    form: Tree
    numbers: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    stored: tuple[Placement, ...]
    states: tuple[Cut | None, ...]


def layout_of(params: Any, config: Parallel, mesh: Mesh) -> Layout:
    """The layout of whole parameters; raises ShapeError (T0101) where an axis does not divide what it is to divide."""
    leaves, form = flatten(params)
    names = leaf_names(form)
    other = next((name for name, leaf in zip(names, leaves, strict=True) if not hasattr(leaf, "shape")), None)
    if other is not None or not leaves:
        raise ArgumentError(
            f"a recipe divides a model of tensors, and {f'`{other}` is none' if leaves else 'there is none in it'}",
            fix="give it the model: `recipe(nn.GPT.init(key, config), data=...)`",
        )
    shapes = tuple(tuple(int(size) for size in leaf.shape) for leaf in leaves)
    cuts = _layer_cuts(params, config, mesh)
    placements: list[Placement] = []
    for name, shape, own in zip(names, shapes, cuts, strict=True):
        for cut in own:
            check_cut(name, shape, cut, mesh.sizes.get(cut.axis, 1))
        placements.append(own)
    states = [_state_cut(shape, own, config, mesh) for shape, own in zip(shapes, placements, strict=True)]
    if config.zero == 3:
        placements = [(*own, cut) if cut is not None else own for own, cut in zip(placements, states, strict=True)]
    numbers = {name: at for at, name in enumerate(names)}
    return Layout(form, numbers, shapes, tuple(placements), tuple(states))


def _state_cut(shape: Sequence[int], own: Placement, config: Parallel, mesh: Mesh) -> Cut | None:
    """The first dim that the data axis divides and nothing else does; None for a tensor that has none.

    Where bits do not depend on ranks, it is one that the shards divide, whatever the ranks are: sums over a part are
    those over shards of it.
    """
    count = 1 if config.data is None else mesh.sizes.get(config.data, 1)
    if config.zero == 0 or count == 1 or any(cut.axis == config.data for cut in own):
        return None
    dim = free_dim(shape, own, count if config.shards is None else config.shards)
    assert config.data is not None
    return None if dim is None else Cut(config.data, dim)


def free_dim(shape: Sequence[int], own: Placement, count: int) -> int | None:
    """The first dim that a number divides and no cut is along."""
    found = (dim for dim, size in enumerate(shape) if size and size % count == 0 and all(one.dim != dim for one in own))
    return next(found, None)


def _layer_cuts(value: Any, config: Parallel, mesh: Mesh) -> list[Placement]:
    """The cuts that layers make, for each leaf of a tree."""
    leaves, form = flatten(value)
    if form.is_leaf:
        return [()]
    if value is None:
        return []
    kind: type[Any] = value.__class__
    children = node_of(kind).split(value)[0]
    made = [placement for child in children for placement in _layer_cuts(child, config, mesh)]
    own = _rule_cuts(value, config, mesh)
    if not own:
        return made
    names = leaf_names(form)
    assert len(made) == len(leaves)
    return [(own[name],) if name in own else cuts for name, cuts in zip(names, made, strict=True)]


def _rule_cuts(value: Any, config: Parallel, mesh: Mesh) -> Mapping[str, Cut]:
    if not isinstance(value, Module):
        return {}
    if isinstance(value, MoE):
        return experts.cuts(config.expert) if mesh.sizes.get(config.expert or "", 1) > 1 else {}
    rule = RULES.get(type(value))
    axis = config.tensor
    return rule.cuts(value, axis) if rule is not None and axis is not None and mesh.sizes.get(axis, 1) > 1 else {}


# Whole trees and parts of them, in host memory.


def take(layout: Layout, params: Any, mesh: Mesh) -> Any:
    """This rank's parts of whole parameters."""
    leaves, form = flatten(params)
    if form != layout.form:
        raise ArgumentError(
            f"the recipe was made for parameters of another form: {layout.form}, got {form}",
            fix="make the recipe of this model: `ts.dist.recipe(model, ...)`",
        )
    rank = world.rank()
    return unflatten(
        form,
        [as_own(take_host(as_host(leaf), cuts, mesh, rank)) for leaf, cuts in zip(leaves, layout.stored, strict=True)],
    )


def take_state_part(recipe: Any, at: int, leaf: Any) -> Any:
    """The part of a parameter that this rank's states are of."""
    cut = recipe.layout.states[at]
    return leaf if cut is None else as_own(take_host(as_host(leaf), (cut,), recipe.mesh, world.rank()))


# Which parameter each tensor of a state is of: trees of the parameters' form, wherever they are in it, are of them.


@frozen
class Placed:
    """Where a tensor of a state is: its cuts, its whole shape, and whether it is of a parameter."""

    cuts: Placement
    whole: tuple[int, ...]
    is_parameter: bool


def placements_of(layout: Layout, tree: Any, mesh: Mesh) -> dict[str, Placed]:
    """The cuts of each tensor of a state, by name; raises ArgumentError (T0202) for a part of no known cut.

    Moments and averages are trees of the form of the parameters, of which each leaf has the shape of its parameter or
    of a part of it. Tensors outside of such trees, as a step count, are whole.
    """
    leaves, form = flatten(tree, keep_order=True)
    numbers, made = _parameters_in(layout, tree), dict[str, Placed]()
    for leaf, name, found in zip(leaves, leaf_names(form), numbers, strict=True):
        if not hasattr(leaf, "shape"):
            continue
        shape = tuple(int(size) for size in leaf.shape)
        at = _parameter_named(layout, name, leaf) if found is None else found
        made[name] = Placed((), shape, False) if at is None else _place(layout, at, name, shape, mesh)
    return made


def _parameters_in(layout: Layout, value: Any) -> list[int | None]:
    """The number of the parameter that each leaf is of, where it is in a tree of the parameters' form."""
    leaves, form = flatten(value)
    if form == layout.form:
        if form.is_leaf:  # a single parameter: every leaf has its form
            return [0 if _is_float(value) and len(value.shape) == len(layout.shapes[0]) else None]
        return [layout.numbers[name] for name in leaf_names(flatten(value, keep_order=True)[1])]
    if form.is_leaf or not leaves:
        return [None] * len(leaves)
    kind: type[Any] = value.__class__
    children = list(value.values()) if kind is dict else node_of(kind).split(value)[0]
    return [number for child in children for number in _parameters_in(layout, child)]


def _parameter_named(layout: Layout, name: str, leaf: Any) -> int | None:
    """The parameter whose name that of a tensor ends in: of states of some parameters alone. Scalars have no parts."""
    if not _is_float(leaf) or not leaf.shape:
        return None
    parts = name.split(".")
    found = (layout.numbers.get(".".join(parts[start:])) for start in range(len(parts)))
    return next((at for at in found if at is not None), None)


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and parse_dtype(leaf.dtype).is_float


def _place(layout: Layout, at: int, name: str, shape: tuple[int, ...], mesh: Mesh) -> Placed:
    stored, whole, cut = layout.stored[at], layout.shapes[at], layout.states[at]
    choices: list[Placement] = [stored, (*stored, cut)] if cut is not None and cut not in stored else [stored]
    for cuts in (*choices, ()):
        if part_shape(whole, cuts, mesh.sizes) == shape:
            return Placed(cuts, whole, True)
    parts = [part_shape(whole, cuts, mesh.sizes) for cuts in choices]
    if all(part == whole for part in parts):  # it is not divided, and neither is what belongs to it
        return Placed((), shape, True)
    raise ArgumentError(
        f"`{name}` is {list(shape)}, and its parameter is {list(whole)}, of which this rank has "
        f"{' or '.join(str(list(part)) for part in parts)}",
        notes=("rule: what an optimizer keeps of a divided parameter has the shape of the parameter or of its part",),
        fix="keep it out of the tree, or train with an optimizer whose states have the shapes of parameters",
    )


def gather(layout: Layout, tree: Any, mesh: Mesh, pipeline: str | None = None) -> Any:
    """The tree of whole tensors of one whose tensors are parts; all ranks call it, of a pipeline those of a stage."""
    stage = None if pipeline is None else mesh.position(pipeline, world.rank())
    group = [rank for rank in range(world.size()) if pipeline is None or mesh.position(pipeline, rank) == stage]
    leaves, form = flatten(tree, keep_order=True)
    made: list[Any] = []
    places = placements_of(layout, tree, mesh)
    for leaf, name in zip(leaves, leaf_names(form), strict=True):
        if not is_concrete(leaf):
            made.append(leaf)
            continue
        array, cuts, whole = as_host(leaf), places[name].cuts, places[name].whole
        if all(mesh.sizes.get(cut.axis, 1) == 1 for cut in cuts):
            made.append(as_own(array))
            continue
        parts = gather_arrays(array, f"`{name}`", group)
        made.append(as_own(join_host(dict(zip(group, parts, strict=True)), cuts, mesh, whole)))
    return unflatten(form, made)
