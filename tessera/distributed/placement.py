"""Where the parts of a tensor lie: the cuts that mesh axes make, and exchanges of arrays in host memory.

A tensor is cut along a dim by an axis, each rank having a part of the same size. A dim may have sections, as the fused
projection to queries, keys and values has three: then a rank has its part of each. Cuts are applied one after the
other, so that a tensor-parallel part may be cut again by the axis that optimizer states are divided over.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from tessera.api.collectives import all_gather
from tessera.api.shard_map import P, take_part
from tessera.diagnostics.codes import RankError, ShapeError
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Exchange, Handle, Mesh, mesh_in_force
from tessera.runtime.tensor import Tensor
from tessera.types.frozen import frozen


@frozen
class Cut:
    """One cut of a tensor: the mesh axis, the dim, and the sizes of sections of that dim, where it has several.

    >>> ts.dist.Cut("tp", 1).size(whole=48, count=4), ts.dist.Cut("tp", 1, (16, 8, 8)).size(whole=32, count=4)
    (12, 8)
    """

    axis: str
    dim: int
    sections: tuple[int, ...] = ()

    def size(self, whole: int, count: int) -> int:
        """The size of a part of a dim."""
        return sum(section // count for section in self.sections or (whole,))


Placement: TypeAlias = tuple[Cut, ...]


def check_cut(name: str, shape: Sequence[int], cut: Cut, count: int) -> None:
    """Raise ShapeError (T0101) where an axis does not divide the dim, or a section of it."""
    whole = shape[cut.dim]
    wrong = next((section for section in cut.sections or (whole,) if section % count), None)
    if wrong is not None:
        what = f"{whole}" if not cut.sections else f"{whole} in sections of {', '.join(map(str, cut.sections))}"
        raise ShapeError(
            f"dim {cut.dim} of `{name}` {list(shape)} is {what}, which the {count} ranks of `{cut.axis}` do not divide",
            notes=("rule: every rank has a part of the same size",),
            fix=f"make it a multiple of {count}, or the axis smaller",
        )


def part_shape(shape: Sequence[int], placement: Placement, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of a part."""
    made = list(shape)
    for cut in placement:
        made[cut.dim] = cut.size(made[cut.dim], sizes.get(cut.axis, 1))
    return tuple(made)


# On arrays in host memory: any part by its coordinates, and the whole of all parts.


def take_host(array: Any, placement: Placement, mesh: Mesh, rank: int) -> Any:
    """The part of an array that a rank has."""
    for cut in placement:
        count = mesh.sizes.get(cut.axis, 1)
        if count == 1:
            continue
        at = mesh.position(cut.axis, rank)
        array = np.concatenate([array[one] for one in _pieces(array.shape, cut, count, at)], axis=cut.dim)
    return np.ascontiguousarray(array).reshape(array.shape)  # which would make a scalar a vector


def join_host(parts: Mapping[int, Any], placement: Placement, mesh: Mesh, shape: Sequence[int]) -> Any:
    """The whole array of shape `shape` of the parts of ranks, of which at least one has each part."""
    whole = np.empty(tuple(shape), next(iter(parts.values())).dtype)
    for rank, part in parts.items():
        whole[region_of(shape, placement, mesh, rank)] = part
    return whole


def region_of(shape: Sequence[int], placement: Placement, mesh: Mesh, rank: int) -> Any:
    """The elements of a whole tensor that a rank has, as one index for each dim."""
    held = [np.arange(size) for size in shape]
    for cut in placement:
        count = mesh.sizes.get(cut.axis, 1)
        if count > 1:
            size = (len(held[cut.dim]),)
            pieces = _pieces(size, Cut(cut.axis, 0, cut.sections), count, mesh.position(cut.axis, rank))
            held[cut.dim] = np.concatenate([held[cut.dim][one] for one in pieces])
    return np.ix_(*held) if shape else ()


def _pieces(shape: Sequence[int], cut: Cut, count: int, at: int) -> list[Any]:
    """The slices of one cut that position `at` of `count` has: one for each section."""
    sections = cut.sections or (shape[cut.dim],)
    begins = [0, *accumulate(sections)]
    made: list[Any] = []
    for begin, section in zip(begins, sections, strict=False):
        part = section // count
        made.append((*[slice(None)] * cut.dim, slice(begin + at * part, begin + (at + 1) * part)))
    return made


def as_host(leaf: Any) -> Any:
    """A tensor as an array of NumPy."""
    return np.asarray(leaf)


def as_own(array: Any) -> Tensor:
    """An array as a tensor in memory of its own."""
    return Tensor.of(array).copy()


# On traced values: the cuts of optimizer states, which have no sections.


def take_traced(value: Any, cut: Cut) -> Any:
    """This rank's part of a value that all ranks of the axis have."""
    assert not cut.sections, "states are cut along whole dims"
    mesh = mesh_in_force()
    return take_part(value, P(*[None] * cut.dim, cut.axis), mesh) if mesh.sizes.get(cut.axis, 1) > 1 else value


def join_traced(value: Any, cut: Cut) -> Any:
    """The whole of a value of which each rank of the axis has a part."""
    assert not cut.sections, "states are cut along whole dims"
    return all_gather(value, cut.axis, cut.dim) if mesh_in_force().sizes.get(cut.axis, 1) > 1 else value


# Exchanges of arrays in host memory, outside of programs: whole states, checkpoints, pipelines.


class Pending:
    """An exchange under way: what was sent, and where what arrives lies, kept alive until it was waited for."""

    def __init__(self, handle: Handle | None, sent: Any, arrived: Any) -> None:
        self._handle, self._sent, self._arrived = handle, sent, arrived

    def wait(self) -> Any:
        """What every rank of the group sent, in the order of the group."""
        if self._handle is not None:
            world.wait(self._handle)
            self._handle = None
        return self._arrived


def start_gather(array: Any, group: Sequence[int], what: str) -> Pending:
    """Begin to exchange arrays of one shape and dtype among the ranks of a group, which all do the same."""
    sent = np.ascontiguousarray(array).reshape(np.shape(array))
    arrived = np.empty((len(group), *sent.shape), sent.dtype)
    communicator = world.current()
    if len(group) == 1 or not sent.nbytes:
        arrived[:] = sent
        return Pending(None, sent, arrived)
    if communicator is None:
        raise RankError(
            f"{what} is exchanged among {len(group)} ranks, and this process is alone",
            fix=f"start it with `tessera.dist.run(function, ranks={len(group)})`",
        )
    text = f"`all_gather` of {sent.nbytes} bytes of {sent.dtype} {list(sent.shape)} for {what}"
    exchange = Exchange("all_gather", tuple(group), sent.ctypes.data, arrived.ctypes.data, sent.nbytes, text)
    return Pending(communicator.start(exchange), sent, arrived)


def gather_arrays(array: Any, what: str, group: Sequence[int] | None = None) -> Any:
    """The arrays of all ranks, or of a group of them, stacked in order."""
    return start_gather(array, tuple(range(world.size())) if group is None else group, what).wait()


def gather_objects(value: Any, what: str) -> list[Any]:
    """The values of all ranks, as `pickle` has them, in order."""
    sent = np.frombuffer(pickle.dumps(value), np.uint8)
    sizes = [int(one[0]) for one in gather_arrays(np.array([len(sent)], np.int64), f"the size of {what}")]
    padded = np.zeros(max(sizes), np.uint8)
    padded[: len(sent)] = sent
    arrived = gather_arrays(padded, what)
    return [pickle.loads(one[:size].tobytes()) for one, size in zip(arrived, sizes, strict=True)]
