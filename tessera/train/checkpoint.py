"""Checkpoints on disk: trees of tensors as safetensors and JSON, written in one step and checked against a tree.

A path that ends in `.safetensors` is one file; any other is a folder of two: `tensors.safetensors`, the tensors by
their paths in the tree, and `checkpoint.json`, all else: version, checksum, Python numbers of the tree, and notes.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import ArgumentError, CheckpointError, FileFormatError
from tessera.diagnostics.error import find_nearest
from tessera.distributed.recipe import Recipe
from tessera.frontend.concrete import is_concrete
from tessera.frontend.pytree import flatten, leaf_names, unflatten
from tessera.runtime import safetensors
from tessera.runtime.durable_files import make_durable_folder, recover_folder, write_flushed
from tessera.runtime.safetensors import SafetensorsFile
from tessera.runtime.tensor import Tensor
from tessera.train import sharded_checkpoint
from tessera.train.sharded_checkpoint import OwnParts, PartsFile
from tessera.train.state import cast_like, to_host
from tessera.types.dtype import parse_dtype
from tessera.types.frozen import frozen

VERSION = 1
TENSORS, NOTES = "tensors.safetensors", "checkpoint.json"
SUFFIX = ".safetensors"
_PLAIN = (bool, int, float, str)


@frozen
class Snapshot:
    """A tree as it was at one moment, in host memory that nothing else writes: tensors and Python values by name."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    @staticmethod
    def of(tree: Any) -> Snapshot:
        """The tree of now; raises ArgumentError (T0202) for a leaf that no file holds."""
        leaves, form = flatten(tree, keep_order=True)
        tensors, values = dict[str, Tensor](), dict[str, Any]()
        for leaf, name in zip(leaves, leaf_names(form), strict=True):
            if is_concrete(leaf):
                tensors[name] = to_host(leaf)
            elif isinstance(leaf, _PLAIN):
                values[name] = leaf
            else:
                raise ArgumentError(
                    f"a checkpoint holds tensors, numbers and strings, and `{name}` is a {type(leaf).__name__}",
                    fix="keep it out of the tree, or declare it a static field",
                )
        return Snapshot(tensors, values)

    def write_parts(self, tree: Any, path: str, notes: Mapping[str, Any], recipe: Recipe) -> None:
        """Write this rank's parts of the tree that it was taken of; all ranks call it."""
        form = flatten(tree, keep_order=True)[1]
        held = unflatten(form, [self.tensors.get(name, self.values.get(name)) for name in leaf_names(form)])
        sharded_checkpoint.write_parts(path, held, (self.values, notes), recipe, lambda: _check_target(path))

    def write(self, path: str, notes: Mapping[str, Any]) -> None:
        """Write it in one step; see `save`."""
        _check_target(path)
        if path.endswith(SUFFIX):
            texts = {"values": json.dumps(self.values), "notes": json.dumps(dict(notes))}
            safetensors.write(path, self.tensors, {"version": str(VERSION), **texts})
            return
        make_durable_folder(path, lambda folder: self._fill(folder, notes))

    def _fill(self, folder: str, notes: Mapping[str, Any]) -> None:
        head, parts = safetensors.encode(self.tensors)
        checksum = 0
        for part in (head, *parts):
            checksum = zlib.crc32(part, checksum)
        write_flushed(os.path.join(folder, TENSORS), [head, *parts])
        facts = {"version": VERSION, "crc32": checksum, "values": self.values, "notes": dict(notes)}
        write_flushed(os.path.join(folder, NOTES), [json.dumps(facts).encode("utf-8")])


def _path_of(path: str | os.PathLike[str]) -> str:
    """A path without a slash at its end, with which it would have no name."""
    name = os.fspath(path)
    return name.rstrip(os.sep) or name


def _check_target(path: str) -> None:
    """Raises CheckpointError (T0715) where nothing can be saved."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise CheckpointError(
            f"`{path}` cannot be saved: there is no folder `{folder}`",
            fix=f"make it first: `os.makedirs({folder!r})`",
        )
    is_file = path.endswith(SUFFIX)
    if os.path.isdir(path) if is_file else os.path.exists(path) and not os.path.isdir(path):
        there, saved = ("folder", "file") if is_file else ("file", "folder")
        raise CheckpointError(
            f"`{path}` is a {there}, and the checkpoint would be a {saved}",
            notes=(f"a checkpoint is one file where its path ends in `{SUFFIX}`, and else a folder",),
            fix="save to another path",
        )
    held = {*os.listdir(path)} if not is_file and os.path.isdir(path) else set[str]()
    # Files of ranks are those of a checkpoint where its notes are there too.
    others = sorted(
        name
        for name in held - {TENSORS, NOTES}
        if NOTES not in held or not sharded_checkpoint.PART.fullmatch(name) or os.path.isdir(os.path.join(path, name))
    )
    if others:
        raise CheckpointError(
            f"`{path}` is a folder that holds other things than a checkpoint: {', '.join(others[:3])}",
            notes=("rule: a checkpoint replaces the folder that it is saved as, with all that is in it",),
            fix="save to another path, as to a new folder in this one",
        )


def save(
    path: str | os.PathLike[str], tree: Any, notes: Mapping[str, Any] | None = None, *, recipe: Recipe | None = None
) -> None:
    """Write a tree of tensors to disk in one step: at any moment the old one or the whole new one is there.

    A path that ends in `.safetensors` becomes one file, which every reader of that format reads; any other a folder
    with the tensors and a JSON file. Tensors have their paths in the tree as names: `params.layers.0.weight`. Python
    numbers and strings of the tree are kept too, and so are `notes`, values that JSON has. Both have a checksum, which
    `restore` compares. With the `recipe` of a state in parts all ranks call it, and each writes its own into one
    folder, which any other mesh restores. Raises CheckpointError (T0715) for a path that cannot be saved to.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> ts.train.save(path, {"layers": [ts.ones((2,)), ts.zeros((3,))]})
    >>> ts.train.restore(path, {"layers": [ts.zeros((2,)), ts.zeros((3,))]})
    {'layers': [Tensor([2] f32, [1, 1]), Tensor([3] f32, [0, 0, 0])]}
    """
    snapshot, name, kept = Snapshot.of(tree), _path_of(path), check_notes(notes or {})
    if recipe is None:
        snapshot.write(name, kept)
        return
    if name.endswith(SUFFIX):
        raise CheckpointError(
            f"`{name}` is one file, and ranks write a file each",
            fix="save to a folder, or `recipe.gather(state)` first",
        )
    snapshot.write_parts(tree, name, kept, recipe)


def check_notes(notes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Notes that JSON has; raises ArgumentError (T0202) for others."""
    try:
        json.dumps(dict(notes))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"notes of a checkpoint are values that JSON has: {error}") from None
    return notes


# Reading.


@frozen
class Contents:
    """What is on disk: tensors and values by name, not read yet, and the notes."""

    tensors: SafetensorsFile | PartsFile | OwnParts
    values: dict[str, Any]
    notes: dict[str, Any]


def open_checkpoint(path: str | os.PathLike[str]) -> Contents:
    """A checkpoint on disk, checked; raises CheckpointError (T0715) where there is none, FileFormatError (T0714)."""
    name = _path_of(path)
    if os.path.isfile(name):
        file = SafetensorsFile(name)
        file.verify()
        texts = file.metadata if file.metadata.get("version") == str(VERSION) else {}
        return Contents(file, json.loads(texts.get("values", "{}")), json.loads(texts.get("notes", "{}")))
    recover_folder(name)  # where a process was stopped while it replaced one
    if not os.path.isfile(os.path.join(name, NOTES)):
        raise CheckpointError(
            f"there is no checkpoint at `{name}`",
            notes=(f"a checkpoint is a `*{SUFFIX}` file, or a folder with `{NOTES}`",),
            fix="see the path; `ts.train.Checkpointer(folder).latest()` finds the last of a folder",
        )
    with open(os.path.join(name, NOTES), encoding="utf-8") as file:
        try:
            facts = json.load(file)
        except ValueError as error:
            raise FileFormatError(f"`{name}/{NOTES}` is not JSON: {error}") from None
    known = cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}
    if known.get("version") == sharded_checkpoint.VERSION:
        return Contents(PartsFile(name, known), known["values"], known["notes"])
    if known.get("version") != VERSION:
        raise FileFormatError(f"`{name}/{NOTES}` is not of version {VERSION}, which this release reads")
    tensors = SafetensorsFile(os.path.join(name, TENSORS))
    if tensors.checksum() != known["crc32"]:
        raise FileFormatError(
            f"`{name}/{TENSORS}` is damaged: its checksum is not the one that was written",
            fix="restore an older checkpoint",
        )
    return Contents(tensors, known["values"], known["notes"])


def restore(path: str | os.PathLike[str], like: Any = None, *, recipe: Recipe | None = None) -> Any:
    """The tree that was saved: with the form, dtypes and devices of `like`, or, without it, a dict by name.

    Names, shapes and dtypes must be those of `like`, which is a tree of tensors, or of anything with `shape` and
    `dtype`. Tensors without `like` show the mapped file, and are read when they are used; with it they are in memory
    of their own, ready to be donated. With a `recipe`, `like` is this rank's parts, and the checkpoint may be whole, or
    of another mesh.

    Raises: CheckpointError (T0715) where there is no checkpoint, or another tree; FileFormatError (T0714) where a file
    is damaged.
    """
    found = open_checkpoint(path)
    if like is None:
        return {**found.tensors, **found.values}
    if recipe is not None:
        found = own_parts(found, like, recipe)
    return fill(found, like, os.fspath(path))


def own_parts(found: Contents, like: Any, recipe: Recipe) -> Contents:
    """What this rank, whose parts are like `like`, keeps of a checkpoint."""
    return Contents(OwnParts(found.tensors, recipe, like), found.values, found.notes)


def fill(found: Contents, like: Any, path: str) -> Any:
    """The tree `like` with what a checkpoint holds."""
    leaves, form = flatten(like, keep_order=True)
    names = leaf_names(form)
    _check_names(path, names, [*found.tensors, *found.values])
    made: list[Any] = []
    for name, leaf in zip(names, leaves, strict=True):
        if name in found.values:
            if is_concrete(leaf) or type(leaf) is not type(found.values[name]):
                raise _misfit(path, f"`{name}` is {found.values[name]!r} there, and {_describe(leaf)} here")
            made.append(found.values[name])
            continue
        entry = found.tensors.entries[name]
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise _misfit(path, f"`{name}` is a tensor {list(entry.shape)} there, and {_describe(leaf)} here")
        if tuple(leaf.shape) != entry.shape or parse_dtype(leaf.dtype) != entry.dtype:
            held = f"{list(entry.shape)} {entry.dtype}"
            raise _misfit(path, f"`{name}` is {held} there, and {list(leaf.shape)} {parse_dtype(leaf.dtype)} here")
        made.append(cast_like(found.tensors[name].copy(), leaf))
    return unflatten(form, made)


def _describe(leaf: Any) -> str:
    return f"a {type(leaf).__name__}" if not hasattr(leaf, "shape") else f"a tensor {list(leaf.shape)}"


def _misfit(path: str, what: str, fix: str = "") -> CheckpointError:
    return CheckpointError(
        f"the checkpoint `{path}` does not fit: {what}",
        fix=fix or "make the tree as it was when it was saved; `ts.train.restore(path)` alone shows what is there",
    )


def _check_names(path: str, names: Sequence[str], held: Sequence[str]) -> None:
    missing = [name for name in names if name not in set(held)]
    unexpected = [name for name in held if name not in set(names)]
    if not missing and not unexpected:
        return
    parts: list[str] = []
    for what, some in (("it lacks", missing), ("nothing here takes", unexpected)):
        if some:
            more = f" and {len(some) - 3} more" if len(some) > 3 else ""
            parts.append(f"{what} `{'`, `'.join(some[:3])}`{more}")
    near = find_nearest(missing[0], unexpected, 1) if missing else []
    fix = f"`{missing[0]}` may be `{near[0]}` there: rename it" if near else ""
    raise _misfit(path, f"{', and '.join(parts)} ({len(names)} names here, {len(held)} there)", fix)
