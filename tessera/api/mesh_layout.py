"""How tensors stand on a mesh: shardings that are given, those that its layout says, and the parts of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

from tessera.diagnostics.codes import ArgumentError, ShardingError
from tessera.frontend.annotations import leaf_annotations
from tessera.frontend.functions.operands import as_tensor, is_tensor
from tessera.frontend.pytree import Tree, flatten, leaf_paths, unflatten
from tessera.frontend.subprograms import type_of
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Mesh, mesh_in_force
from tessera.types.annotation import NamedDims, TensorAnnotation
from tessera.types.dtype import f32
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType
from tessera.types.sharding import DimAxes, Sharding, check_sharding

PARAMS = "params"
"""The name in a layout that stands for parameters: they are cut along their first dim where nothing else is said."""


def sharding_of(what: str, given: Any, rank: int) -> Sharding:
    """The sharding that a value stands for: a `Sharding`, its text, an axis or None for each dim, or axes by dim.

    Raises ShardingError (T0307) where it is none, or of another number of dims.
    """
    if given is None:
        return Sharding.whole(rank)
    if isinstance(given, Sharding):
        made = given
    elif isinstance(given, str):
        made = Sharding.parse(given)
    elif isinstance(given, Mapping):
        made = _by_dim(what, cast("Mapping[Any, Any]", given), rank)
    elif isinstance(given, tuple | list):
        made = Sharding.of(*cast("Sequence[Any]", given))
    else:
        raise ShardingError(
            f"{what} is sharded as {given!r}, which is no sharding",
            fix='write `("dp", None)`, `{0: "dp"}` or `Sharding.of("dp", None)`',
        )
    if len(made.dims) != rank:
        raise ShardingError(
            f"{what} has {rank} dims, and its sharding {made} is of {len(made.dims)}",
            fix="give axes, or None, for each dim",
        )
    return made


def _by_dim(what: str, given: Mapping[Any, Any], rank: int) -> Sharding:
    dims: list[Any] = [None] * rank
    for dim, axes in given.items():
        if isinstance(dim, bool) or not isinstance(dim, int) or not -rank <= dim < rank:
            raise ShardingError(f"{what} has dims 0 to {rank - 1}, and its sharding names dim {dim!r}")
        dims[dim] = axes
    return Sharding.of(*dims)


# What the layout of a mesh says.


def declared_sharding(name: str, annotation: Any, mesh: Mesh) -> Sharding | None:
    """What an annotation says, and the layout of the mesh of its dims by name; None where neither says anything.

    Raises ShardingError (T0307) where both do and differ, or the layout has an axis for two dims of the tensor.
    """
    if not isinstance(annotation, TensorAnnotation):
        return None
    layout, names = dict(mesh.layout), [str(dim) for dim in annotation.dims]
    if not any(name in layout for name in names):
        return annotation.sharding
    given = annotation.sharding
    for at, dim in enumerate(names):
        if given is not None and dim in layout and given.dims[at] != layout[dim]:
            raise ShardingError(
                f"`{name}` is annotated as {annotation}, and the layout of the mesh shards its dim `{dim}` over "
                f"{', '.join(layout[dim]) or 'nothing'}",
                fix="leave one of them out",
            )
    dims = [layout.get(dim, () if given is None else given.dims[at]) for at, dim in enumerate(names)]
    used = [axis for own in dims for axis in own]
    twice = next((axis for axis in used if used.count(axis) > 1), None)
    if twice is not None:
        both = " and ".join(f"`{dim}`" for dim, own in zip(names, dims, strict=True) if twice in own)
        raise ShardingError(
            f"the layout of the mesh shards dims {both} of `{name}`, {annotation}, over one axis, `{twice}`",
            notes=("rule: a rank has one position along an axis, so that it has one part along it",),
            fix="shard one of them over another axis",
        )
    return Sharding.of(*dims)


def layout_shardings(name: str, annotation: Any, tree: Tree, mesh: Mesh) -> list[Any]:
    """What annotations and the layout of the mesh say of each leaf of an argument; a rule of path and shape, or None.

    Parameters (of a module, or of an argument named `params`) of which nothing else is said are cut along their first
    dim over the axes of `params`.
    """
    over = dict(mesh.layout).get(PARAMS)

    def cut_first(_: str, shape: Sequence[int]) -> Sharding:
        return Sharding.of(over or (), *[None] * (len(shape) - 1)) if shape else Sharding.whole(0)

    annotations = leaf_annotations(annotation, tree)
    if not tree.is_leaf and not any(annotations):
        annotations = leaf_annotations(tree.type, tree)
    are_parameters = name == PARAMS or _has_parameters(tree)
    found: list[Any] = []
    for path, own in zip(leaf_paths(tree, name), annotations, strict=True):
        declared = declared_sharding(path, own, mesh)
        is_free = declared is None and over is not None and are_parameters
        found.append(cut_first if is_free else declared)
    return found


def _has_parameters(tree: Tree) -> bool:
    return getattr(tree.type, "has_parameters", False) or any(map(_has_parameters, tree.children))


# Parts.


def shard_of(x: Any, sharding: Any) -> Any:
    """This rank's part of `x`, which is the same on every rank, on the mesh around: `shard_of(x, ("dp", None))`.

    Raises: ShardingError (T0307) where `x` cannot be sharded so.

    >>> with ts.dist.mesh(dp=1):
    ...     ts.dist.shard_of(ts.ones((2, 2)), ("dp", None)).shape
    (2, 2)
    """
    mesh, whole = mesh_in_force(), as_tensor(x)
    own = type_of(whole)
    made = sharding_of("`x` of `shard_of`", sharding, own.rank)
    check_sharding("x", own, made, mesh.sizes)
    rank = world.rank()
    index: list[slice] = []
    for dim, axes in zip(own.shape, made.dims, strict=True):
        at, parts = 0, 1
        for axis in axes:
            at, parts = at * mesh.sizes[axis] + mesh.position(axis, rank), parts * mesh.sizes[axis]
        size = (dim.value or 0) // parts
        index.append(slice(at * size, (at + 1) * size) if axes else slice(None))
    return whole[tuple(index)] if made.axes else whole


# `mesh.shard`, and what it reports.


@frozen
class ShardedValue:
    """One tensor on a mesh: its name, type, sharding, and the type of a rank's part."""

    name: str
    whole: TensorType
    sharding: Sharding
    part: TensorType

    def __str__(self) -> str:
        size = f", {self.part.bytes} of {self.whole.bytes} bytes" if self.whole.bytes.value is not None else ""
        return f"{self.name}: {self.whole} as {self.sharding}, a part is {self.part}{size}"


@frozen
class ShardReport:
    """What each rank of a mesh has of some tensors."""

    mesh: Mesh
    values: tuple[ShardedValue, ...]

    @property
    def bytes(self) -> int:
        """Bytes of a rank's parts, of tensors of known sizes."""
        return sum(one.part.bytes.value or 0 for one in self.values)

    def __str__(self) -> str:
        return "\n".join([f"sharded over {self.mesh}: a rank has {self.bytes} bytes", *(f"  {v}" for v in self.values)])

    __repr__ = __str__


def _axes_for(mesh: Mesh, what: str, dims: Sequence[Any], axes: Mapping[str, Any]) -> dict[Any, Any]:
    """The axes of each dim that is to be cut: those given for it, those of the layout, or the only one."""
    layout, found = dict(mesh.layout), dict[Any, Any](axes)
    for dim in dims:
        if dim in layout:
            found[dim] = layout[dim]
        elif len(mesh.axes) == 1:
            found[dim] = mesh.axes[0][0]
        else:
            listed = ", ".join(f"`{axis}` ({size} ranks)" for axis, size in mesh.axes) or "none"
            name = dim if isinstance(dim, str) and dim.isidentifier() else "d_model"
            raise ShardingError(
                f"dim `{dim}` of {what} is to be sharded, and the axes of the mesh are {listed}",
                fix=f'name one: `mesh.shard(W, {name}="{mesh.axes[0][0] if mesh.axes else "tp"}")`',
            )
    return found


def _shard_annotation(mesh: Mesh, given: TensorAnnotation, dims: Sequence[Any], axes: Mapping[str, Any]) -> Any:
    names = [str(dim) for dim in given.dims]
    wanted = _axes_for(mesh, f"`{given}`", [names[one] if isinstance(one, int) else one for one in dims], axes)
    if not wanted:
        found = declared_sharding(str(given), given, mesh) or Sharding.whole(given.rank)
        return given @ DimAxes.of(found)
    made = given @ DimAxes.make((), wanted)
    missing = [axis for axis in made.sharding.axes if axis not in mesh.sizes] if made.sharding is not None else []
    if missing:
        listed = ", ".join(f"`{axis}` ({size} ranks)" for axis, size in mesh.axes) or "no axis"
        raise ShardingError(
            f"`{given}` is sharded over mesh axis `{missing[0]}`, and the mesh has {listed}", fix="name one of them"
        )
    return made


def _leaf_sharding(mesh: Mesh, path: str, type: TensorType, spec: Any) -> Sharding:
    given = spec(path, tuple(dim.value or 0 for dim in type.shape)) if callable(spec) else spec
    made = sharding_of(f"`{path}`", given, type.rank)
    check_sharding(path, type, made, mesh.sizes)
    return made


def _tree_shardings(mesh: Mesh, x: Any, dims: Sequence[Any], axes: Mapping[str, Any]) -> Any:
    """Leaves of a value with their paths and shardings, and its form; None for what is no tensor."""
    like = next((one for one in dims if isinstance(one, NamedDims)), None)
    leaves, tree = flatten(x, keep_order=True)
    if like is not None:
        declared = _shard_annotation(mesh, like.annotation, like.names, axes)
        specs: list[Any] = [declared.sharding] * len(leaves)
    elif dims or axes:
        named = [one for one in (*dims, *axes) if not isinstance(one, int)]
        if named:
            raise ArgumentError(
                f"`shard` of a tensor takes dims by number, got {named[0]!r}: its dims have no names",
                fix='name them by an annotation: `mesh.shard(w, Tensor["vocab", "d_model", f32]["d_model"])`',
            )
        specs = [_axes_for(mesh, "the tensor", dims, {})] * len(leaves)
    else:
        specs = layout_shardings(PARAMS, None, tree, mesh)
    paths = leaf_paths(tree, "x" if dims or axes else PARAMS)
    found: list[Any] = []
    for leaf, path, spec in zip(leaves, paths, specs, strict=True):
        is_cut = is_tensor(leaf) or hasattr(leaf, "shape")
        found.append((path, _leaf_sharding(mesh, path, type_of(as_tensor(leaf)), spec) if is_cut else None))
    return leaves, found, tree


def _shard(mesh: Mesh, x: Any, dims: tuple[Any, ...], axes: dict[str, Any]) -> Any:
    if isinstance(x, NamedDims):
        x, dims = x.annotation, (*x.names, *dims)
    if isinstance(x, TensorAnnotation):
        return _shard_annotation(mesh, x, dims, axes)
    leaves, found, tree = _tree_shardings(mesh, x, dims, axes)
    with mesh:
        parts = [leaf if own is None else shard_of(leaf, own) for leaf, (_, own) in zip(leaves, found, strict=True)]
    return unflatten(tree, parts)


def _report(mesh: Mesh, x: Any, dims: tuple[Any, ...], axes: dict[str, Any]) -> ShardReport:
    if isinstance(x, NamedDims):
        x, dims = x.annotation, (*x.names, *dims)
    if isinstance(x, TensorAnnotation):
        made = _shard_annotation(mesh, x, dims, axes)
        own = [(f"{x.head}[...]", TensorType(x.dims, x.dtype or f32), made.sharding)]
    else:
        leaves, found, _ = _tree_shardings(mesh, x, dims, axes)
        own = [(path, type_of(as_tensor(leaf)), one) for leaf, (path, one) in zip(leaves, found, strict=True) if one]
    return ShardReport(mesh, tuple(_value_of(mesh, *one) for one in own))


def _value_of(mesh: Mesh, name: str, whole: TensorType, sharding: Sharding) -> ShardedValue:
    counts = [prod(mesh.sizes[axis] for axis in own) for own in sharding.dims]
    part = whole.with_shape(dim if count == 1 else dim // count for dim, count in zip(whole.shape, counts, strict=True))
    return ShardedValue(name, whole, sharding, part)


world.SHARD[:] = [_shard, _report]
