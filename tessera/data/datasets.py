"""Datasets: items by number, each a function of its number alone; windows of tokens, and orders that need no memory.

Everything random here comes from a key by hashing numbers, so any item of any epoch is known without those before it:
that is what lets a loader continue in the middle of an epoch, and any number of processes share the work.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from tessera.diagnostics.codes import ArgumentError, IndexRangeError
from tessera.diagnostics.frames import guard_class

Array: TypeAlias = "np.ndarray[Any, Any]"
Key: TypeAlias = "tuple[int, int]"

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: steps by it visit all numbers evenly
_ENDLESS = 1 << 40
_SORTED = 1 << 20  # an order of 8 MB


class Dataset(Protocol):
    """Items by number: a list, or anything else with a length; `take(indices)` gives a whole batch where it has one."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def key_of(given: Any) -> Key:
    """A key as two numbers: of an integer seed, a key of `ts.random.key`, or two numbers."""
    if isinstance(given, bool) or given is None or isinstance(given, str | float):
        raise ArgumentError(f"a key is a seed or a key, got {given!r}", fix="write `key=0` or `ts.random.key(0)`")
    if isinstance(given, int):
        return given & _MASK, 0
    values: Any = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, int):
        return values & _MASK, 0
    numbers = cast("list[Any]", values) if isinstance(values, list | tuple) else []
    if len(numbers) != 2:
        raise ArgumentError(f"a key is a seed or two numbers, got {given!r}", fix="write `ts.random.key(0)`")
    first, second = (operator.index(number) & _MASK for number in numbers)
    return first, second


def hash_numbers(numbers: Array, key: Key, salt: int = 0) -> Array:
    """A 64-bit number for each number, a key and a salt; all bits of each look random.

    The mixing function is that of SplitMix64 (Steele, Lea, Flood, 2014), once for each part of the key.
    """
    mixed = numbers.astype(np.uint64)
    for part in (key[0], key[1] ^ (salt * _GOLDEN & _MASK)):
        mixed = mixed * np.uint64(_GOLDEN) + np.uint64(part)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def shuffle_indices(indices: Array, count: int, key: Key) -> Array:
    """Where a random permutation of `count` numbers takes some of them.

    Up to a million are sorted by their hashes, once. Beyond that, only those that are asked for are computed: a Feistel
    network permutes the numbers of an even number of bits, whatever its function; one that comes out beyond `count`
    goes through it again until it does not, which permutes those below.

    >>> sorted(shuffle_indices(np.arange(5), 5, (1, 2)).tolist())
    [0, 1, 2, 3, 4]
    """
    return _sorted_order(count, key)[indices] if count <= _SORTED else network_order(indices, count, key)


@lru_cache(maxsize=2)
def _sorted_order(count: int, key: Key) -> Array:
    return np.argsort(hash_numbers(np.arange(count), key), kind="stable")


def network_order(indices: Array, count: int, key: Key) -> Array:
    """The permutation of a Feistel network of eight rounds."""
    half = np.uint64(((count - 1).bit_length() + 1) // 2)
    mask = (np.uint64(1) << half) - np.uint64(1)
    found = indices.astype(np.uint64)
    beyond = np.ones(found.shape, bool)
    while beyond.any():
        left, right = found[beyond] >> half, found[beyond] & mask
        for number in range(8):
            left, right = right, left ^ (hash_numbers(right, key, number + 1) & mask)
        found[beyond] = left << half | right
        beyond = found >= np.uint64(count)
    return found.astype(np.int64)


def _check_length(name: str, tokens: Any, length: int) -> int:
    number = operator.index(length)
    if not 1 <= number < len(tokens):
        raise ArgumentError(
            f"`{name}` takes windows of 1 to {len(tokens) - 1} tokens, one less than there are, got {number}",
            fix="give shorter windows, or more tokens",
        )
    return number


def _cut(tokens: Any, starts: Array, length: int) -> tuple[Array, Array]:
    """Windows [batch, length] and the same one token later, as i32."""
    array: Array = getattr(tokens, "array", tokens)
    rows = np.empty((len(starts), length + 1), np.int32)
    limits = np.iinfo(np.int32)
    for row, start in zip(rows, starts.tolist(), strict=True):
        part = array[start : start + length + 1]
        if array.dtype.itemsize >= 4 and part.max() > limits.max:
            at = int(part.argmax())
            raise ArgumentError(
                f"token {start + at} is {int(part[at])}, and windows are i32, up to {limits.max}",
                fix="number tokens from 0 on; above that range no table of embeddings has rows for them",
            )
        row[:] = part
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


@guard_class
class Windows:
    """Windows of `length` tokens one after the other: item `i` is (inputs, targets), i32, the targets a token later.

    `stride` is how far apart they start, by default `length`: then each token is a target once, but for the rest.

    >>> windows = ts.data.Windows(np.arange(10), 4)
    >>> len(windows), [part.tolist() for part in windows[1]]
    (2, [[4, 5, 6, 7], [5, 6, 7, 8]])
    """

    def __init__(self, tokens: Any, length: int, *, stride: int | None = None) -> None:
        self.tokens, self.length = _sequence(tokens), _check_length("Windows", tokens, length)
        self.stride = self.length if stride is None else operator.index(stride)
        if self.stride < 1:
            raise ArgumentError(f"`Windows` takes `stride` from 1, got {stride}", fix="leave it out")

    def __len__(self) -> int:
        return (len(self.tokens) - 1 - self.length) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        inputs, targets = self.take([index])
        return inputs[0], targets[0]

    def take(self, indices: Sequence[int]) -> tuple[Array, Array]:
        """A batch: inputs and targets [batch, length]."""
        return _cut(self.tokens, _check_indices(indices, len(self)) * self.stride, self.length)


@guard_class
class RandomWindows:
    """Windows of `length` tokens at random positions; item `i` is (inputs, targets), by the key and `i` alone.

    There are `count` of them, by default more than anybody reads: an epoch then has no end.

    >>> windows = ts.data.RandomWindows(np.arange(1000), 4, key=ts.random.key(0))
    >>> inputs, targets = windows[7]
    >>> bool((targets == inputs + 1).all())
    True
    """

    def __init__(self, tokens: Any, length: int, *, key: Any = 0, count: int = _ENDLESS) -> None:
        self.tokens, self.length = _sequence(tokens), _check_length("RandomWindows", tokens, length)
        self.key, self.count = key_of(key), operator.index(count)
        if self.count < 1:
            raise ArgumentError(f"`RandomWindows` takes `count` from 1, got {count}", fix="leave it out")

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        inputs, targets = self.take([index])
        return inputs[0], targets[0]

    def take(self, indices: Sequence[int]) -> tuple[Array, Array]:
        """A batch: inputs and targets [batch, length]."""
        # Some positions are likelier than others by less than one part in 2^64 / len(tokens).
        drawn = hash_numbers(_check_indices(indices, self.count), self.key) % np.uint64(len(self.tokens) - self.length)
        return _cut(self.tokens, drawn.astype(np.int64), self.length)


def _sequence(tokens: Any) -> Any:
    return tokens if hasattr(tokens, "array") else np.asarray(tokens)


def _check_indices(indices: Sequence[int], count: int) -> Array:
    found = np.asarray(indices, np.int64)
    wrong = found[(found < 0) | (found >= count)]
    if wrong.size:
        raise IndexRangeError(f"item {int(wrong[0])} of a dataset of {count}")
    return found
