"""`Sharding`: over which axes of a mesh each dim of a tensor is cut into parts, and over which it is a sum of terms.

A dim that axes cut has as many equal parts as they have ranks, the first axis outermost. A size that does not come out
even is refused: a part that is padded would be another tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, cast

from tessera.diagnostics.codes import ShardingError
from tessera.diagnostics.error import format_count
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType, path

_DIM = re.compile(r"\{([\w, ]*)\}")
_TEXT = re.compile(r"\s*\[((?:\s*\{[\w, ]*\}\s*,?)*)\s*\](?:\s*partial\s*\{([\w, ]*)\})?\s*")


@frozen
class Sharding:
    """Mesh axes for each dim, the outermost first, and the axes over which ranks hold terms of a sum.

    >>> print(Sharding.of("dp", None, ("tp", "sp")))
    [{dp}, {}, {tp, sp}]
    >>> Sharding.parse("[{dp}, {}] partial {tp}").partial
    ('tp',)
    """

    dims: tuple[tuple[str, ...], ...]
    partial: tuple[str, ...] = ()

    @staticmethod
    def of(*dims: str | Sequence[str] | None, partial: Sequence[str] = ()) -> Sharding:
        """From an axis, several, or None for each dim. Raises ShardingError (T0307) for an axis that is there twice."""
        made = Sharding(tuple(_axes(one) for one in dims), tuple(partial))
        used = made.axes
        for axis in used:
            if used.count(axis) > 1:
                where = ", ".join(f"dim {at}" for at, own in enumerate(made.dims) if axis in own)
                raise ShardingError(
                    f"mesh axis `{axis}` is there {used.count(axis)} times in {made}: {where or 'partial'}",
                    notes=("rule: a rank has one position along an axis, so that it has one part along it",),
                    fix="shard one of them over another axis",
                )
        return made

    @staticmethod
    def whole(rank: int) -> Sharding:
        """Every rank has all of a tensor of that rank."""
        return Sharding(((),) * rank)

    @staticmethod
    def parse(text: str) -> Sharding:
        """What `str(sharding)` wrote. Raises ShardingError (T0307)."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ShardingError(f"`{text}` is no sharding", fix='write `"[{dp}, {}]"`: the axes of each dim in braces')
        dims = [_names(one) for one in _DIM.findall(found[1])]
        return Sharding.of(*dims, partial=_names(found[2] or ""))

    @property
    def axes(self) -> tuple[str, ...]:
        """All axes that are named, in order."""
        return (*(axis for own in self.dims for axis in own), *self.partial)

    @property
    def is_whole(self) -> bool:
        """Whether every rank has all of it."""
        return not self.axes

    def dim_of(self, axis: str) -> int | None:
        """The dim that an axis cuts; None where it cuts none."""
        return next((at for at, own in enumerate(self.dims) if axis in own), None)

    def with_dim(self, at: int, axes: Sequence[str]) -> Sharding:
        """The same with other axes for a dim."""
        return Sharding.of(*(axes if own == at else one for own, one in enumerate(self.dims)), partial=self.partial)

    def only(self, *axes: str) -> Sharding:
        """What it says of some axes alone."""
        dims = tuple(tuple(axis for axis in own if axis in axes) for own in self.dims)
        return Sharding(dims, tuple(axis for axis in self.partial if axis in axes))

    def local_shape(self, shape: Sequence[int], mesh: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of one rank's part."""
        return tuple(size // prod(mesh[axis] for axis in own) for size, own in zip(shape, self.dims, strict=True))

    def __str__(self) -> str:
        dims = ", ".join("{" + ", ".join(own) + "}" for own in self.dims)
        return f"[{dims}]" + (f" partial {{{', '.join(self.partial)}}}" if self.partial else "")

    __repr__ = __str__


@frozen
class DimAxes:
    """What `shard("dp", None)` or `shard(B="dp")` says: axes for the first dims, and for dims by name."""

    first: tuple[tuple[str, ...], ...]
    named: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def make(first: Sequence[Any], named: Mapping[str, Any]) -> DimAxes:
        """From axes, several, or None, by position and by name. Raises ShardingError (T0307) for what is no axis."""
        return DimAxes(tuple(map(_axes, first)), tuple((name, _axes(one)) for name, one in named.items()))

    @staticmethod
    def of(sharding: Sharding) -> DimAxes:
        """What gives a sharding, whatever the dims are called."""
        return DimAxes(sharding.dims)

    def resolve(self, what: str, names: Sequence[str]) -> Sharding:
        """The sharding of a tensor whose dims have these names. Raises ShardingError (T0307)."""
        if len(self.first) > len(names):
            raise ShardingError(f"`{what}` has {len(names)} dims, and `{self}` has axes for {len(self.first)}")
        dims: list[tuple[str, ...]] = [*self.first, *((),) * (len(names) - len(self.first))]
        for name, own in self.named:
            if names.count(name) != 1:
                raise ShardingError(
                    f"`{what}` has {names.count(name)} dims named `{name}`, and `{self}` shards one",
                    fix="name a dim of the tensor, or give axes by position",
                )
            dims[names.index(name)] = (*dims[names.index(name)], *own)
        return Sharding.of(*dims)

    def __str__(self) -> str:
        items = [_item(own) for own in self.first] + [f"{name}={_item(own)}" for name, own in self.named]
        return f"shard({', '.join(items)})"

    __repr__ = __str__


def _item(own: tuple[str, ...]) -> str:
    if len(own) == 1:
        return f'"{own[0]}"'
    return "(" + ", ".join(f'"{one}"' for one in own) + ")" if own else "None"


def _axes(given: Any) -> tuple[str, ...]:
    if given is None or (isinstance(given, str) and not given):
        return ()
    listed = tuple(cast("Sequence[Any]", given)) if isinstance(given, tuple | list) else (given,)
    for one in listed:
        if not isinstance(one, str) or not one.isidentifier():
            raise ShardingError(f"a dim is sharded over axes by name, got {one!r}", fix='write `"dp"`, or None')
    return listed


def _names(text: str) -> tuple[str, ...]:
    return tuple(one for one in re.split(r"[,\s]+", text.strip()) if one)


def check_sharding(
    name: str, type: TensorType, sharding: Sharding, mesh: Mapping[str, int], *, symbolic: bool = False
) -> None:
    """Raises ShardingError (T0307) unless a tensor can be sharded so on a mesh, naming tensor, dim, axis and sizes.

    With `symbolic`, sizes that are no numbers yet may be cut.
    """
    if len(sharding.dims) != type.rank:
        raise ShardingError(
            f"`{name}` is {type} of {type.rank} dims, and its sharding {sharding} is of {len(sharding.dims)}",
            fix="give axes, or None, for each dim",
        )
    listed = ", ".join(f"`{axis}` ({format_count(size, 'rank')})" for axis, size in mesh.items()) or "no axis"
    order = list(mesh)
    for at, own in enumerate((*sharding.dims, sharding.partial)):
        where = path(name, at, type.shape[at]) if at < type.rank else f"`{name}`"
        missing = [axis for axis in own if axis not in mesh]
        if missing:
            raise ShardingError(
                f"{where} is sharded over mesh axis `{missing[0]}`, and the mesh has {listed}", fix="name one of them"
            )
        if sorted(own, key=order.index) != list(own):
            raise ShardingError(
                f"{where} is sharded over {', '.join(own)}, and the mesh has these axes in another order: {listed}",
                fix=f"write them in the order of the mesh: {', '.join(sorted(own, key=order.index))}",
            )
    for at, (dim, own) in enumerate(zip(type.shape, sharding.dims, strict=True)):
        ranks = prod(mesh[axis] for axis in own)
        if symbolic and dim.value is None:
            continue
        if own and (dim.value is None or dim.value % ranks or dim.value == 0):
            sizes = " * ".join(f"`{axis}` {mesh[axis]}" for axis in own)
            raise ShardingError(
                f"{path(name, at, dim)} cannot be cut into {ranks} equal parts over {sizes}",
                notes=("rule: parts are equal and not empty; a size that does not come out even is not padded",),
                fix=f"pad it to a multiple of {ranks}, or shard another dim",
            )
