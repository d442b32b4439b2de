"""Batches by epoch and number, the same in every process: their items, how these are joined, and how they are sent."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tessera.data.datasets import Dataset, Key, hash_numbers, shuffle_indices
from tessera.diagnostics.codes import DataLoaderError
from tessera.frontend.pytree import flatten, leaf_paths, unflatten
from tessera.types.frozen import frozen


@frozen
class BatchPlan:
    """What determines every batch: a dataset, how many items a batch has, their order, and how they are joined."""

    dataset: Dataset
    size: int
    key: Key
    is_shuffled: bool
    drops_last: bool
    collate: Callable[[list[Any]], Any] | None

    @property
    def count(self) -> int:
        """Batches of an epoch."""
        items = len(self.dataset)
        return items // self.size if self.drops_last else -(-items // self.size)

    def indices(self, epoch: int, batch: int) -> list[int]:
        """The items of a batch."""
        items = len(self.dataset)
        wanted = np.arange(batch * self.size, min((batch + 1) * self.size, items))
        if not self.is_shuffled:
            return wanted.tolist()
        # Another permutation at each epoch.
        low, high = hash_numbers(np.array([2 * epoch, 2 * epoch + 1]), self.key).tolist()
        return shuffle_indices(wanted, items, (low, high)).tolist()

    def make(self, epoch: int, batch: int) -> Any:
        """A batch: what the dataset's own `take` gives, or its items joined."""
        indices = self.indices(epoch, batch)
        take = getattr(self.dataset, "take", None)
        if take is not None and self.collate is None:
            return take(indices)
        items = [self.dataset[index] for index in indices]
        return stack(items, indices) if self.collate is None else self.collate(items)


def stack(items: Sequence[Any], indices: Sequence[int] = ()) -> Any:
    """Items of one form as one: arrays and numbers are stacked along a new first axis.

    Python's floats become f32. Raises DataLoaderError (T0716) where items differ in form, shape or dtype.

    >>> stack([{"x": np.ones(2), "y": 3}, {"x": np.zeros(2), "y": 6}])["y"]
    array([3, 6])
    """
    numbers = list(indices) or list(range(len(items)))
    first, form = flatten(items[0])
    columns: list[list[Any]] = [[leaf] for leaf in first]
    for item, number in zip(items[1:], numbers[1:], strict=True):
        leaves, other = flatten(item)
        if other != form:
            raise DataLoaderError(
                f"items of one batch differ in form: item {numbers[0]} is {form}, item {number} is {other}",
                fix="give items of one form, or join them with a function of your own: `collate=f`",
            )
        for column, leaf in zip(columns, leaves, strict=True):
            column.append(leaf)
    paths = leaf_paths(form)
    return unflatten(form, [_join(column, path, numbers) for column, path in zip(columns, paths, strict=True)])


def _join(leaves: Sequence[Any], path: str, numbers: Sequence[int]) -> Any:
    # NumPy's f64 is a Python float too, and keeps its dtype.
    arrays = [np.asarray(leaf, np.float32 if type(leaf) is float else None) for leaf in leaves]
    first = arrays[0]
    for array, number in zip(arrays, numbers, strict=True):
        if array.shape != first.shape or array.dtype != first.dtype:
            where = f" at `{path}`" if path else ""
            raise DataLoaderError(
                f"items of one batch differ{where}: item {numbers[0]} is {list(first.shape)} {first.dtype}, "
                f"item {number} is {list(array.shape)} {array.dtype}",
                fix="pad or convert items in the dataset, or join them with a function of your own: `collate=f`",
            )
    if first.dtype == object:
        raise DataLoaderError(
            f"item {numbers[0]} has a {type(leaves[0]).__name__} at `{path}`, which is no array",
            fix="items are arrays and numbers, in tuples, lists and dicts",
        )
    return np.stack(arrays)


# Values between processes: a pickle, and beside it the memory of arrays, which is neither copied into it nor out of it.


def send(descriptor: int, value: Any) -> None:
    """Write a value to a pipe; raises BrokenPipeError where nobody reads it."""
    buffers: list[pickle.PickleBuffer] = []
    parts: list[Any] = [pickle.dumps(value, protocol=5, buffer_callback=buffers.append)]
    parts += [buffer.raw() for buffer in buffers]
    sizes = [memoryview(part).nbytes for part in parts]
    for part in (struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes), *parts):
        view = memoryview(part).cast("B")
        while view:
            view = view[os.write(descriptor, view) :]


def receive(descriptor: int) -> Any:
    """Read a value from a pipe; raises EOFError where it has ended."""
    (count,) = struct.unpack("<Q", _read(descriptor, 8))
    sizes = struct.unpack(f"<{count}Q", _read(descriptor, 8 * count))
    data, *buffers = [_read(descriptor, size) for size in sizes]
    return pickle.loads(data, buffers=buffers)


def _read(descriptor: int, size: int) -> memoryview:
    view = memoryview(cast("Any", np.empty(size, np.uint8)))  # bytearrays are zeroed first
    rest = view
    while rest:
        got = os.readv(descriptor, [rest])
        if not got:
            raise EOFError
        rest = rest[got:]
    return view
