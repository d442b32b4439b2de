"""Sizes in a signature: their text, the buckets of symbolic dims, and which signatures are nearest by shape.

A plan for a symbolic dim serves many sizes, so its key holds a bucket and not a size. Buckets end at powers of two and
halfway between them: a size is at least two thirds of the end of its bucket, and a plan that was measured there has at
most half as many blocks again as it needs. Signatures that were never measured begin from those of nearby sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence

from tessera.tuner.records import SOURCES, Entry, Signature

_DIGEST = re.compile(r"_[0-9a-f]{10}$")
"""Behind the name of a fusion group: a digest of its body, sizes included."""
_NUMBER = re.compile(r"\d+")
_LONGEST_NUMBER = 19
"""Digits of a size: more are no size of anything, and `int` of many takes long."""
_MARK = "~"
EVERY_SIZE = "~*"
"""In the place of a bucket: the code of a symbolic program, which serves them all."""


def bucket(size: int) -> int:
    """The end of the bucket of a size: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on; 0 has its own.

    >>> [bucket(size) for size in (0, 1, 3, 5, 7, 100, 1024, 1025)]
    [0, 1, 3, 6, 8, 128, 1024, 1536]
    """
    if size <= 2:
        return max(0, size)
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


def shape_signature(sizes: Sequence[int], symbolic: Collection[int] = ()) -> str:
    """The `shape_sig` of sizes; those at the indices in `symbolic` are written as their buckets.

    >>> shape_signature((4096, 500, 1024), symbolic=(1,))
    '4096x~512x1024'
    """
    parts = [
        f"{_MARK}{bucket(size)}" if index in symbolic else str(size) for index, size in enumerate(sizes)
    ]  # fmt: skip
    return "x".join(parts)


def serves_every_size(shape_sig: str) -> bool:
    """Whether a `shape_sig` is of code for all sizes of its symbolic dims, and not of one bucket.

    >>> serves_every_size("~*x512;512x8"), serves_every_size("~64x512;512x8")
    (True, False)
    """
    return EVERY_SIZE in shape_sig


def is_bucketed(shape_sig: str) -> bool:
    """Whether a `shape_sig` has a symbolic dim, by its bucket."""
    return _MARK in shape_sig and not serves_every_size(shape_sig)


def shapes_signature(shapes: Sequence[Sequence[int | str]]) -> str:
    """The `shape_sig` of several tensors: a symbolic size is the text of its bucket, or its name where none is known.

    >>> shapes_signature([(4096, "~512"), (512, 8), ()])
    '4096x~512,512x8,'
    """
    return ",".join("x".join(map(str, shape)) for shape in shapes)


def sizes_of(shape_sig: str) -> tuple[int, ...]:
    """The integers in a `shape_sig`, in order; of a symbolic dim the end of its bucket.

    >>> sizes_of("4096x~512,512x8")
    (4096, 512, 512, 8)
    """
    return tuple(int(number[:_LONGEST_NUMBER]) for number in _NUMBER.findall(shape_sig))


def form_of(shape_sig: str) -> str:
    """What is left of a `shape_sig` without its sizes: how many there are, and which belong together."""
    return _NUMBER.sub("#", shape_sig).replace(_MARK, "")


def distance(one: str, other: str) -> float | None:
    """How far the sizes of two shapes are apart; None where they have other forms, as of another rank.

    It is the Euclidean distance of the logarithms: what a plan gains depends on ratios, as of a size to a tile, so
    that 128 is as far from 256 as 4096 from 8192. A symbolic dim is at the end of its bucket, and as near to an exact
    size as that end is.

    >>> distance("128x64", "256x64"), distance("4096x64", "8192x64"), distance("8x8", "8x8x8")
    (1.0, 1.0, None)
    """
    if form_of(one) != form_of(other):
        return None
    pairs = zip(sizes_of(one), sizes_of(other), strict=True)
    return math.sqrt(sum((_log(mine) - _log(theirs)) ** 2 for mine, theirs in pairs))


def _log(size: int) -> float:
    return math.log2(size) if size else -1.0  # an empty tensor is as far from one element as that from two


def can_start_from(signature: Signature, other: Signature) -> bool:
    """Whether a plan of `other` is worth measuring for `signature`: all is equal but sizes and versions.

    A plan that an earlier driver or compiler was fastest with is a good start, and no more than that.
    """
    return _without_sizes(signature) == _without_sizes(other)


def _without_sizes(signature: Signature) -> tuple[str, ...]:
    return (kind_of(signature.op_kind), signature.dtype, signature.mesh_sig, signature.arch, signature.policy_hash)


def kind_of(op_kind: str) -> str:
    """What an op does, whatever its sizes: the name of a fusion group without the digest of its content.

    >>> kind_of("matmul_add_gelu_9345bb2f2a"), kind_of("flash_attention")
    ('matmul_add_gelu', 'flash_attention')
    """
    return _DIGEST.sub("", op_kind)


def nearest(signature: Signature, entries: Iterable[Entry], count: int) -> list[Entry]:
    """The entries with the nearest sizes, one for each plan, nearest first; the signature's own entry is none of them.

    Of equally near ones those of the same versions come first, then those that were measured here, then the larger
    signature by its text: the order is the same in every process.
    """
    ranked: list[tuple[float, bool, int, tuple[str, ...], Entry]] = []
    for entry in entries:
        other = entry.signature
        if other == signature or not can_start_from(signature, other):
            continue
        apart = distance(signature.shape_sig, other.shape_sig)
        if apart is not None:
            priority = SOURCES.index(entry.source)
            ranked.append((apart, other.runtime != signature.runtime, priority, other.parts, entry))
    ranked.sort(key=lambda one: one[:4])
    found: dict[str, Entry] = {}
    for *_, entry in ranked:
        found.setdefault(entry.plan.digest, entry)
    return list(found.values())[: max(0, count)]
