"""Swizzles of shared memory: pieces of a row permuted by its number, so that columns are in different banks."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr

SWIZZLES = (0, 4, 8, 16)
"""Bytes of the pieces of a row that are permuted by its number; 0 where nothing does."""


def swizzle_index(index: int, row: int, piece: int) -> int:
    """Where element `index` of rows of `row` elements is, when pieces of a row are permuted by the row's number.

    >>> [swizzle_index(index, 4, 1) for index in range(8)]
    [0, 1, 2, 3, 5, 4, 7, 6]
    """
    return index ^ index // row % (row // piece) * piece


def why_not_swizzled(row: int, size: int, swizzle: int) -> str:
    """What keeps rows of so many elements of `size` bytes from a swizzle; nothing where nothing does."""
    if swizzle not in SWIZZLES:
        return f"`swizzle` is one of {', '.join(map(str, SWIZZLES))} bytes, got {swizzle}"
    if not swizzle:
        return ""
    if swizzle % size or row * size % swizzle:
        return f"a swizzle of {swizzle} bytes must divide a row, which is {row} elements of {size} bytes"
    if row & (row - 1) or row * size < 2 * swizzle:
        return f"a swizzled row has a power of two of pieces, two at least, got {row} elements of {size} bytes"
    return ""


def check_swizzle(op: SpecOp) -> None:
    """Scratch that is swizzled is shared, has rows that pieces divide, and is found by loads and stores alone."""
    swizzle, buffer = op.value("swizzle"), op.results[0].type
    if not swizzle:
        return
    if op.value("space") != "shared":
        op.fail(f"`swizzle` orders shared memory, and this is {op.value('space')}", "leave one of the two out")
    if not isinstance(buffer, BufferAttr) or not buffer.shape or any(not dim.is_static for dim in buffer.shape):
        op.fail(f"swizzled memory has rows of a static size, got {buffer}")
    why = why_not_swizzled(buffer.shape[-1].value or 0, buffer.dtype.bytes, swizzle)
    if why:
        op.fail(why)
    for use in op.results[0].uses:
        if use.operation.name.split(".")[-1] not in ("load", "store"):
            op.fail(f"`{use.operation.name}` goes through memory in order, and this is swizzled")
