"""How tensors stand on a mesh: shardings that are given, those that its layout says, and the parts of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

from tessera.diagnostics.codes import ArgumentError, ShardingError
from tessera.diagnostics.error import format_count
from tessera.frontend.annotations import leaf_annotations
from tessera.frontend.arguments import describe_value
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
            has = f"dims 0 to {rank - 1}" if rank else "no dims"
            raise ShardingError(f"{what} has {has}, and its sharding names dim {dim!r}", fix="leave that dim out")
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


def _axes_for(mesh: Mesh, what: str, dim: Any, fix: str) -> Any:
    """The axes of a dim that is to be cut: those of the layout, or the only one; `fix` names one of several."""
    layout = dict(mesh.layout)
    if dim in layout:
        return layout[dim]
    if len(mesh.axes) == 1:
        return mesh.axes[0][0]
    listed = ", ".join(f"`{axis}` ({format_count(size, 'rank')})" for axis, size in mesh.axes) or "none"
    raise ShardingError(
        f"dim `{dim}` of {what} is to be sharded, and the axes of the mesh are {listed}",
        fix=f"name one: `{fix}`" if mesh.axes else "make one with axes: `mesh(2)`, or `mesh(dp=2, tp=2)`",
    )


def _shard_annotation(
    mesh: Mesh, given: TensorAnnotation, dims: Sequence[Any], axes: Mapping[str, Any]
) -> TensorAnnotation:
    """An annotation with these dims cut, and the others as they are; with what it and the layout say where none is."""
    names = [str(dim) for dim in given.dims]
    if dims or axes:
        own = list((given.sharding or Sharding.whole(given.rank)).dims)
        for dim in dims:
            name = names[_position_of(given, names, dim)]
            if name not in axes:
                fix = f'mesh.shard(W, {name if name.isidentifier() else "d_model"}="{next(iter(mesh.sizes), "")}")'
                own[_position_of(given, names, dim)] = _axes_for(mesh, f"`{given}`", name, fix)
        for name, listed in axes.items():
            own[_position_of(given, names, name)] = listed
        found = Sharding.of(*own)
    else:
        found = declared_sharding(str(given), given, mesh) or Sharding.whole(given.rank)
    check_sharding(str(given), _type_of(given), found, mesh.sizes, symbolic=True)
    return given @ DimAxes.of(found)


def _position_of(given: TensorAnnotation, names: Sequence[str], dim: Any) -> int:
    """The position of a dim that is given by its name or number."""
    if isinstance(dim, int) and not isinstance(dim, bool) and -len(names) <= dim < len(names):
        return dim % len(names)
    if isinstance(dim, str) and names.count(dim) == 1:
        return names.index(dim)
    raise ShardingError(
        f"`{given}` has dims {', '.join(names) or 'none'}, and is to be sharded along {dim!r}",
        fix="name a dim that it has once, or give its number",
    )


def _type_of(annotation: TensorAnnotation) -> TensorType:
    return TensorType(annotation.dims, annotation.dtype or f32)


def _leaf_sharding(mesh: Mesh, path: str, type: TensorType, spec: Any) -> Sharding:
    given = spec(path, tuple(dim.value or 0 for dim in type.shape)) if callable(spec) else spec
    made = sharding_of(f"`{path}`", given, type.rank)
    check_sharding(path, type, made, mesh.sizes)
    return made


def _tree_shardings(mesh: Mesh, x: Any, dims: Sequence[Any], axes: Mapping[str, Any]) -> Any:
    """Leaves of a value with their paths and shardings, and its form; None for what is no tensor."""
    like = [_split_named(one) for one in dims if isinstance(one, NamedDims | TensorAnnotation)]
    others = [one for one in dims if not isinstance(one, NamedDims | TensorAnnotation)]
    leaves, tree = flatten(x, keep_order=True)
    if like:
        annotation, names = like[0]
        declared = _shard_annotation(mesh, annotation, (*names, *others), axes)
        specs: list[Any] = [declared.sharding] * len(leaves)
    elif dims or axes:
        named = [one for one in (*dims, *axes) if not isinstance(one, int)]
        if named:
            raise ArgumentError(
                f"`shard` of a tensor takes dims by number, got {named[0]!r}: its dims have no names",
                fix='name them by an annotation: `mesh.shard(w, Tensor["vocab", "d_model", f32]["d_model"])`',
            )
        fix = f'with mesh: dist.shard_of(x, ("{next(iter(mesh.sizes), "")}", None))'
        specs = [{dim: _axes_for(mesh, "the tensor", dim, fix) for dim in dims}] * len(leaves)
    else:
        specs = layout_shardings(PARAMS, None, tree, mesh)
    paths = leaf_paths(tree, "x" if dims or axes else PARAMS)
    found: list[Any] = []
    for leaf, path, spec in zip(leaves, paths, specs, strict=True):
        if not (is_tensor(leaf) or hasattr(leaf, "shape")):
            found.append((path, None))
            continue
        own = type_of(as_tensor(leaf))
        found.append((path, _leaf_sharding(mesh, path, own, spec)))
        if like:
            _check_type(path, own, like[0][0])
    if leaves and all(one is None for _, one in found):
        raise ArgumentError(
            f"`shard` takes an annotation, a tensor or a tree of them, got {describe_value(x)}",
            fix="make a tensor of it: `tessera.array(...)`",
        )
    return leaves, found, tree


def _split_named(given: Any) -> tuple[TensorAnnotation, tuple[Any, ...]]:
    return (given.annotation, given.names) if isinstance(given, NamedDims) else (given, ())


def _check_type(path: str, own: TensorType, annotation: TensorAnnotation) -> None:
    """Raises ShardingError (T0307) where a tensor is none of those that an annotation describes."""
    sizes = zip(own.shape, annotation.dims, strict=True)
    if annotation.dtype not in (None, own.dtype) or any(dim.value not in (None, size.value) for size, dim in sizes):
        raise ShardingError(
            f"`{path}` is {own}, and it is to be sharded as `{annotation}`", fix="give the annotation of this tensor"
        )


def _shard(mesh: Mesh, x: Any, dims: tuple[Any, ...], axes: dict[str, Any]) -> Any:
    if isinstance(x, NamedDims | TensorAnnotation):
        x, names = _split_named(x)
        return _shard_annotation(mesh, x, (*names, *dims), axes)
    leaves, found, tree = _tree_shardings(mesh, x, dims, axes)
    with mesh:
        parts = [leaf if own is None else shard_of(leaf, own) for leaf, (_, own) in zip(leaves, found, strict=True)]
    return unflatten(tree, parts)


def _report(mesh: Mesh, x: Any, dims: tuple[Any, ...], axes: dict[str, Any]) -> ShardReport:
    if isinstance(x, NamedDims | TensorAnnotation):
        x, names = _split_named(x)
        made = _shard_annotation(mesh, x, (*names, *dims), axes)
        own: list[Any] = [(f"{x.head}[...]", _type_of(x), made.sharding)]
    else:
        leaves, found, _ = _tree_shardings(mesh, x, dims, axes)
        own = [(path, type_of(as_tensor(leaf)), one) for leaf, (path, one) in zip(leaves, found, strict=True) if one]
    return ShardReport(mesh, tuple(_value_of(mesh, *one) for one in own))


def _value_of(mesh: Mesh, name: str, whole: TensorType, sharding: Sharding) -> ShardedValue:
    counts = [prod(mesh.sizes[axis] for axis in own) for own in sharding.dims]
    part = whole.with_shape(dim if count == 1 else dim // count for dim, count in zip(whole.shape, counts, strict=True))
    return ShardedValue(name, whole, sharding, part)


world.SHARD[:] = [_shard, _report]
