"""Checkpoints of many ranks: each writes its parts of a tree, and any mesh reads them again.

A folder has a file of tensors for each rank and one `checkpoint.json`, which says of every tensor its whole shape and,
for each file that has a part of it, how it was cut: mesh axes, dims and sections. Of parts that several ranks have, the
first writes it. Readers put together whole tensors, one at a time, and take what they keep of them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tessera.diagnostics.codes import CheckpointError, FileFormatError
from tessera.distributed.layout import parameter_of, placement_of
from tessera.distributed.placement import Cut, Placement, as_host, gather_objects, part_shape, region_of, take_host
from tessera.distributed.recipe import Recipe
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


# Writing: all ranks together, into one folder that appears when all of it is there.


def write_parts(path: str, tensors: Mapping[str, Tensor], values: Any, notes: Any, recipe: Recipe) -> None:
    """Write this rank's parts of a tree; all ranks call it, and come back when the checkpoint is there."""
    if world.rank() == 0:
        make_durable_folder(path, lambda folder: _write(folder, tensors, recipe, (values, notes)))
    else:
        _write(None, tensors, recipe, (values, notes))
    gather_objects("done", "the end of a checkpoint")


def _write(folder: str | None, tensors: Mapping[str, Tensor], recipe: Recipe, others: tuple[Any, Any]) -> None:
    where = gather_objects(folder, "the folder of a checkpoint")[0]
    rank, mesh = world.rank(), recipe.mesh
    held, facts = dict[str, Tensor](), dict[str, Any]()
    for name, tensor in tensors.items():
        cuts, whole = placement_of(recipe.layout, name, tensor.shape, mesh)
        if _is_first(name, cuts, recipe, rank):
            held[name] = tensor
            listed = [[cut.axis, cut.dim, list(cut.sections)] for cut in cuts]
            facts[name] = {"shape": list(whole), "dtype": tensor.dtype.name, "cuts": listed}
    head, parts = safetensors.encode(held)
    checksum = 0
    for part in (head, *parts):
        checksum = zlib.crc32(part, checksum)
    file = f"part-{rank:05d}.safetensors"
    write_flushed(os.path.join(where, file), [head, *parts])
    files = gather_objects({"file": file, "crc32": checksum, "rank": rank, "tensors": facts}, "parts of a checkpoint")
    if folder is not None:
        values, notes = others
        said = {"version": VERSION, "axes": [list(one) for one in mesh.axes], "files": files}
        said |= {"values": values, "notes": dict(notes)}
        write_flushed(os.path.join(folder, NOTES), [json.dumps(said).encode("utf-8")])


def _is_first(name: str, cuts: Placement, recipe: Recipe, rank: int) -> bool:
    """Whether a rank is the first of those that have the same part."""
    cut = {one.axis for one in cuts}
    if parameter_of(recipe.layout, name) is not None:
        cut.add(recipe.config.pipeline or "")  # ranks of other stages have other parameters, and the same counts
    return all(recipe.mesh.position(axis, rank) == 0 for axis, size in recipe.mesh.axes if size > 1 and axis not in cut)


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

    def __init__(self, whole: Any, recipe: Recipe, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """`shapes` are those of the tensors that this rank has, by name."""
        self._whole, self._recipe, self._cuts = whole, recipe, dict[str, Placement]()
        self.entries: dict[str, Whole] = {}
        for name, entry in whole.entries.items():
            if name not in shapes:
                if recipe.config.pipeline is None:
                    self.entries[name] = Whole(entry.dtype, entry.shape)  # which nothing here takes: an error
                continue
            cuts, _ = placement_of(recipe.layout, name, shapes[name], recipe.mesh)
            self._cuts[name] = cuts
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
