"""Philox4x32-10 on arrays: the counter-based generator that all random ops draw from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.ir.base.arrays import Array

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
FOLDED = 0x6B657900 << 32
"""Turns the stream of a key into one that no sample is drawn from; few bits, so that it is exact as a float too."""


def philox(counter: Sequence[Array], key: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
    """Four random words for each counter of four words under a key of two, all as u64 arrays below 2**32."""
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = (word.astype(np.uint64) for word in key)
    shift, mask = np.uint64(32), np.uint64(WORD)
    m0, m1 = (np.uint64(m) for m in MULTIPLIERS)
    for _ in range(ROUNDS):
        first, second = m0 * c0, m1 * c2
        c0, c1, c2, c3 = (second >> shift) ^ c1 ^ k0, second & mask, (first >> shift) ^ c3 ^ k1, first & mask
        k0, k1 = (k0 + np.uint64(STEPS[0])) & mask, (k1 + np.uint64(STEPS[1])) & mask
    return c0, c1, c2, c3


def split(words: Array) -> tuple[Array, Array]:
    """Low and high halves of u64 words."""
    return words & np.uint64(WORD), words >> np.uint64(32)


def draw(counter: Array, key: Array, stream: Array) -> Array:
    """64 random bits for each u64 counter: the first two words under `key`, `stream` being the counter's upper half."""
    low, high, *_ = philox((*split(counter), *split(stream)), split(key))
    return low | (high << np.uint64(32))


def key_words(key: Array) -> tuple[Array, Array]:
    """Key and stream of a key array, u64[2], or u32[4] with low words first."""
    wide = np.ascontiguousarray(key).view(np.uint64) if key.dtype == np.uint32 else key
    return wide[0], wide[1]


def bits(key: Array, shape: Sequence[int]) -> Array:
    """64 random bits for each element of a shape; the counter is the element's row-major index."""
    count = int(np.prod(tuple(shape), dtype=np.int64))
    return draw(np.arange(count, dtype=np.uint64), *key_words(key)).reshape(tuple(shape))


def fold_key(key: Array, data: Array) -> Array:
    """The key of a branch: u64[2] made from a key and a number that names the branch."""
    own, stream = key_words(key)
    counters = np.asarray(data).astype(np.uint64) * np.uint64(2) + np.arange(2, dtype=np.uint64)
    return draw(counters, own, stream ^ np.uint64(FOLDED))


def make_key(seed: int, *path: int) -> Array:
    """A key, u64[2], from a seed and numbers that say where it is used: function, site, iteration, step."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, 0], np.uint64)
    for number in path:
        key = fold_key(key, np.array(number & 0xFFFFFFFFFFFFFFFF, np.uint64))
    return key
