"""`Checkpointer`: the last few checkpoints of a run in a folder, written by a thread beside training."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

from tessera.diagnostics.codes import ArgumentError, CheckpointError
from tessera.diagnostics.frames import guard_class
from tessera.distributed.placement import gather_objects
from tessera.distributed.recipe import Recipe
from tessera.frontend.arguments import check_bool, check_int
from tessera.runtime.durable_files import recover_folders, remove_folder, remove_leftovers
from tessera.runtime.ranks import world
from tessera.train.checkpoint import NOTES, Snapshot, check_notes, fill, open_checkpoint, own_parts

_NAME = re.compile(r"step-(\d{9,})")


class Restored(NamedTuple):
    """What a checkpoint held: the tree, its step, and the notes that were saved with it."""

    tree: Any
    step: int
    notes: dict[str, Any]


@guard_class
class Checkpointer:
    """The checkpoints of one run, by step, in a folder: the last `keep` of them, and every `keep_every`-th for good.

    `save` copies the tree in host memory, and a thread writes it while training goes on; a save that comes before the
    last one is written waits for it. Each checkpoint is a folder that appears under its name when all of it is on the
    disk, so a process that is killed at any moment leaves the last whole one, and `restore` finds it. Errors of the
    thread are raised by the next call. One process writes to a folder at a time.

    With the `recipe` of a state in parts, all ranks have one of the same folder and make the same calls: each writes
    its parts, before `save` comes back, and reads its own, which may be those of another mesh.

    >>> import tempfile
    >>> checkpoints = ts.train.Checkpointer(tempfile.mkdtemp(), keep=2)
    >>> for step in (10, 20, 30):
    ...     checkpoints.save(step, {"w": ts.full((2,), float(step))})
    >>> checkpoints.wait()
    >>> checkpoints.steps(), checkpoints.restore({"w": ts.zeros((2,))}).tree["w"]
    ([20, 30], Tensor([2] f32, [30, 30]))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int = 3,
        keep_every: int | None = None,
        asynchronous: bool = True,
        recipe: Recipe | None = None,
    ) -> None:
        if check_int("Checkpointer", "keep", keep) < 1:
            raise ArgumentError(f"`Checkpointer` takes `keep` from 1, got {keep}")
        if keep_every is not None and check_int("Checkpointer", "keep_every", keep_every) < 1:
            raise ArgumentError(f"`Checkpointer` takes `keep_every` from 1, got {keep_every}")
        check_bool("Checkpointer", "asynchronous", asynchronous)
        self.folder: str = os.path.abspath(os.fspath(folder))
        self.keep, self.keep_every, self._is_asynchronous = keep, keep_every, asynchronous
        self.recipe = recipe
        # Not a daemon: the interpreter waits at its end for what is being written.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._pending: Future[None] | None = None
        os.makedirs(self.folder, exist_ok=True)
        if self._is_first:
            recover_folders(self.folder)
            remove_leftovers(self.folder)

    @property
    def _is_first(self) -> bool:
        """Whether this is the rank that looks after the folder."""
        return self.recipe is None or world.rank() == 0

    def path(self, step: int) -> str:
        """The folder of the checkpoint of a step."""
        return os.path.join(self.folder, f"step-{step:09d}")

    def save(self, step: int, tree: Any, notes: Mapping[str, Any] | None = None) -> None:
        """Save a tree of tensors as the checkpoint of a step; one of that step is replaced."""
        number = check_int("save", "step", step)
        if number < 0:
            raise ArgumentError(f"`save` takes `step` from 0, got {number}")
        self.wait()
        # Notes are those of now: the caller may change them while a thread writes.
        snapshot, kept = Snapshot.of(tree), json.loads(json.dumps(dict(check_notes(notes or {}))))
        if self.recipe is not None:  # ranks write together, in the order of all their exchanges: not in a thread
            snapshot.write_parts(tree, self.path(number), {**kept, "step": number}, self.recipe)
            if self._is_first:
                self._prune(number)
            return
        self._pending = self._writer.submit(self._write, number, snapshot, kept)
        if not self._is_asynchronous:
            self.wait()

    def _write(self, step: int, snapshot: Snapshot, notes: dict[str, Any]) -> None:
        snapshot.write(self.path(step), {**notes, "step": step})
        self._prune(step)

    def _prune(self, step: int) -> None:
        """Remove what is not to be kept when the checkpoint of a step is there."""
        recent = [number for number in self.steps() if number <= step][-self.keep :]
        for number in self.steps():
            is_kept = number in recent or number > step
            if not is_kept and not (self.keep_every and number % self.keep_every == 0):
                remove_folder(self.path(number))

    def wait(self) -> None:
        """Wait until what was saved is on the disk; raises what went wrong there."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def steps(self) -> list[int]:
        """The steps of which there are checkpoints, in order; one that is being written is not among them."""
        found = ((_NAME.fullmatch(name), name) for name in os.listdir(self.folder))
        return sorted(
            int(match[1])
            for match, name in found
            if match is not None and os.path.isfile(os.path.join(self.folder, name, NOTES))
        )

    def latest(self) -> int | None:
        """The last step of which there is a checkpoint, or None; with a recipe, what the first rank finds."""
        last = max(self.steps(), default=None)
        return last if self.recipe is None else gather_objects(last, "the last checkpoint")[0]

    def restore(self, like: Any, step: int | None = None) -> Restored:
        """The checkpoint of a step, by default the last, as a tree like `like`; see `ts.train.restore`."""
        self.wait()
        wanted = self.latest() if step is None else step
        if wanted is None or wanted not in self.steps():
            held = ", ".join(map(str, self.steps())) or "none"
            which = "no checkpoint" if wanted is None else f"no checkpoint of step {wanted}"
            raise CheckpointError(f"`{self.folder}` has {which}; the steps are: {held}", fix="see the folder")
        path = self.path(wanted)
        found = open_checkpoint(path)
        found = found if self.recipe is None else own_parts(found, like, self.recipe)
        notes = dict(found.notes)
        return Restored(fill(found, like, path), int(notes.pop("step")), notes)

    def close(self) -> None:
        """Wait for what is being written, and end the thread."""
        try:
            self.wait()
        finally:
            self._writer.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpointer({self.folder!r}, keep={self.keep}, steps {self.steps()})"
