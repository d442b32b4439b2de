"""Checkpoints of many ranks: each writes its parts of a tree, and any mesh reads them again.

A folder has a file of tensors for each rank and one `checkpoint.json`, which says of every tensor its whole shape and,
for each file that has a part of it, how it was cut: mesh axes, dims and sections. Of parts that several ranks have, the
first writes it. Readers put together whole tensors, one at a time, and take what they keep of them.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tessera.diagnostics.codes import CheckpointError, FileFormatError
from tessera.distributed.layout import Placed, placements_of
from tessera.distributed.placement import Cut, Placement, as_host, gather_objects, part_shape, region_of, take_host
from tessera.distributed.recipe import Recipe
from tessera.frontend.pytree import flatten, leaf_names
from tessera.runtime import safetensors
from tessera.runtime.durable_files import make_durable_folder, write_flushed
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Mesh, mesh_of
from tessera.runtime.safetensors import SafetensorsFile
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import BY_NAME, DType
from tessera.types.frozen import frozen

NOTES = "checkpoint.json"
VERSION = 2
PART = re.compile(r"part-\d{5,}\.safetensors")
"""Names of the files of ranks."""


# Writing: all ranks together, into one folder that appears when all of it is there. Every piece of work ends with an
# exchange that carries what went wrong, so that all ranks raise where one fails, and none waits for it.

_FOLDER, _PARTS, _END = "the folder of a checkpoint", "parts of a checkpoint", "the end of a checkpoint"


def write_parts(path: str, tree: Any, others: tuple[Any, Any], recipe: Recipe, check: Callable[[], None]) -> None:
    """Write this rank's parts of a tree; all ranks call it, and come back when the checkpoint is there.

    `others` are values and notes; `check` raises on the first rank, and then on all, where nothing may be written.
    """
    _share("whether a checkpoint can be saved", check if world.rank() == 0 else lambda: None)
    if world.rank():
        _write(None, tree, recipe)
        _share(_END, lambda: None)
        return
    reached: list[str] = []

    def fill(folder: str) -> None:
        reached.append(_FOLDER)
        files = _write(folder, tree, recipe)
        reached.append(_PARTS)
        said = {"version": VERSION, "axes": [list(one) for one in recipe.mesh.axes], "files": files}
        said |= {"values": others[0], "notes": dict(others[1])}
        write_flushed(os.path.join(folder, NOTES), [json.dumps(said).encode("utf-8")])

    try:
        make_durable_folder(path, fill)
    except Exception as error:
        if reached != [_FOLDER]:  # an error within `_write` was told to all
            _share(_END if reached else _FOLDER, partial(_raise, error))
        raise
    _share(_END, lambda: None)


def _raise(error: Exception) -> None:
    raise error


def _share(what: str, work: Callable[[], Any]) -> list[Any]:
    """What a piece of work gives on every rank; raises CheckpointError (T0715) where it failed on another one."""
    made, error = None, None
    try:
        made = work()
    except Exception as caught:  # which is raised when the others know
        error = caught
    text = None if error is None else f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    told = gather_objects((made, text), what)
    if error is not None:
        raise error
    for rank, (_, failure) in enumerate(told):
        if failure is not None:
            raise CheckpointError(
                f"the checkpoint was not written: on rank {rank} of {len(told)}: {failure}",
                notes=("rule: a checkpoint in parts is there when all ranks have written theirs, or not at all",),
                fix=f"see the error of rank {rank}",
            )
    return [value for value, _ in told]


def _write(folder: str | None, tree: Any, recipe: Recipe) -> list[Any]:
    """Write this rank's file into the folder that the first rank names; what all ranks say of theirs."""
    where = _share(_FOLDER, lambda: folder)[0]
    return _share(_PARTS, lambda: _write_own(where, tree, recipe, world.rank()))


def _write_own(folder: str, tree: Any, recipe: Recipe, rank: int) -> dict[str, Any]:
    held, facts = dict[str, Tensor](), dict[str, Any]()
    leaves, form = flatten(tree, keep_order=True)
    by_name = dict(zip(leaf_names(form), leaves, strict=True))
    for name, placed in placements_of(recipe.layout, tree, recipe.mesh).items():
        if _is_first(placed, recipe, rank):
            held[name] = by_name[name]
            listed = [[cut.axis, cut.dim, list(cut.sections)] for cut in placed.cuts]
            facts[name] = {"shape": list(placed.whole), "dtype": held[name].dtype.name, "cuts": listed}
    head, parts = safetensors.encode(held)
    checksum = 0
    for part in (head, *parts):
        checksum = zlib.crc32(part, checksum)
    file = f"part-{rank:05d}.safetensors"
    write_flushed(os.path.join(folder, file), [head, *parts])
    return {"file": file, "crc32": checksum, "rank": rank, "tensors": facts}


def _is_first(placed: Placed, recipe: Recipe, rank: int) -> bool:
    """Whether a rank is the first of those that have the same part; a world may have the ranks of a mesh many times."""
    cut = {one.axis for one in placed.cuts}
    if placed.is_parameter:
        cut.add(recipe.config.pipeline or "")  # ranks of other stages have other parameters, and the same counts
    others = [axis for axis, size in recipe.mesh.axes if size > 1 and axis not in cut]
    return rank < recipe.mesh.size and all(recipe.mesh.position(axis, rank) == 0 for axis in others)


# Reading: whole tensors of parts, and parts of whole tensors.


@frozen
class Whole:
    """A tensor of a checkpoint as a whole."""

    dtype: DType
    shape: tuple[int, ...]


class PartsFile(Mapping[str, Tensor]):
    """The whole tensors of a checkpoint in parts, by name; each is put together when it is asked for."""

    def __init__(self, folder: str, facts: Mapping[str, Any]) -> None:
        """Opens all files; raises FileFormatError (T0714) where one is damaged or missing."""
        self._mesh: Mesh = mesh_of(tuple((str(name), int(size)) for name, size in facts["axes"]))
        self.entries: dict[str, Whole] = {}
        self._parts: dict[str, list[tuple[SafetensorsFile, int, Placement]]] = {}
        for one in facts["files"]:
            path = os.path.join(folder, one["file"])
            if not os.path.isfile(path):
                raise FileFormatError(f"`{path}` is missing, and the checkpoint has parts there")
            file = SafetensorsFile(path)
            if file.checksum() != one["crc32"]:
                raise FileFormatError(
                    f"`{path}` is damaged: its checksum is not the one that was written",
                    fix="restore an older checkpoint",
                )
            for name, told in one["tensors"].items():
                cuts = tuple(Cut(axis, dim, tuple(sections)) for axis, dim, sections in told["cuts"])
                self.entries[name] = Whole(BY_NAME[told["dtype"]], tuple(told["shape"]))
                self._parts.setdefault(name, []).append((file, int(one["rank"]), cuts))

    def __getitem__(self, name: str) -> Tensor:
        entry, parts = self.entries[name], self._parts[name]
        whole = np.empty(entry.shape, as_host(parts[0][0][name]).dtype)
        left = whole.size
        for file, rank, cuts in parts:
            part = as_host(file[name])
            whole[region_of(entry.shape, cuts, self._mesh, rank)] = part
            left -= part.size
        if left:
            raise FileFormatError(f"the parts of `{name}` have {whole.size - left} of its {whole.size} elements")
        return Tensor.of(whole)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class OwnParts(Mapping[str, Tensor]):
    """What this rank of a recipe keeps of the whole tensors of a checkpoint."""

    def __init__(self, whole: Any, recipe: Recipe, like: Any) -> None:
        """`like` is a tree of the tensors that this rank has, or of anything with their shapes."""
        places = placements_of(recipe.layout, like, recipe.mesh)
        self._whole, self._recipe, self._cuts = whole, recipe, dict[str, Placement]()
        self.entries: dict[str, Whole] = {}
        for name, entry in whole.entries.items():
            if name not in places:
                if recipe.config.pipeline is None:
                    self.entries[name] = Whole(entry.dtype, entry.shape)  # which nothing here takes: an error
                continue
            cuts = self._cuts[name] = places[name].cuts
            self.entries[name] = Whole(entry.dtype, self._part_shape(name, entry.shape, cuts))

    def _part_shape(self, name: str, shape: tuple[int, ...], cuts: Placement) -> tuple[int, ...]:
        if cuts and max(cut.dim for cut in cuts) >= len(shape):
            raise CheckpointError(f"the checkpoint does not fit: `{name}` is {list(shape)} there, and is cut here")
        return part_shape(shape, cuts, self._recipe.mesh.sizes)

    def __getitem__(self, name: str) -> Tensor:
        return Tensor.of(take_host(as_host(self._whole[name]), self._cuts[name], self._recipe.mesh, world.rank()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
