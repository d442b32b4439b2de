"""Banks of shared memory: how many turns an access of a warp takes, and orders of memory in which it takes one.

Shared memory has 32 banks of 4 bytes, and a bank gives one word a turn. Lanes that ask for 4 bytes or less are served
together; with 8 bytes each, half a warp at a time; with 16, a quarter (CUDA C++ Programming Guide, shared memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.types.frozen import frozen

BANKS = 32
WORD = 4
WARP = 32
SWIZZLES = (0, 4, 8, 16)
"""Bytes of the pieces of a row that change places by the number of the row; 0 where nothing does."""


@frozen
class Turns:
    """What an access of one warp costs: turns it takes, and those it would take if no two lanes met in a bank."""

    taken: int
    least: int

    @property
    def degree(self) -> int:
        """How many lanes wait for one bank: 1 where none do."""
        return -(-self.taken // self.least)


def turns_of(addresses: Sequence[int | None], width: int) -> Turns:
    """The turns of a warp whose lanes ask for `width` bytes each at these addresses; None for one that does not.

    >>> turns_of([4 * lane for lane in range(32)], 4)
    Turns(taken=1, least=1)
    >>> turns_of([128 * lane for lane in range(32)], 4).degree
    32
    """
    served = WARP if width <= WORD else WARP * WORD // width
    taken = least = 0
    for start in range(0, len(addresses), served):
        words = _words(addresses[start : start + served], width)
        if words:
            banks = [word % BANKS for word in words]
            taken += max(banks.count(bank) for bank in set(banks))
            least += 1
    return Turns(max(taken, 1), max(least, 1))


def _words(addresses: Iterable[int | None], width: int) -> set[int]:
    return {
        word
        for address in addresses
        if address is not None
        for word in range(address // WORD, -(-(address + width) // WORD))
    }


def swizzled(index: int, row: int, piece: int) -> int:
    """Where element `index` of rows of `row` elements lies, when pieces of a row change places by the row's number.

    >>> [swizzled(index, 4, 1) for index in range(8)]
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


def banked(row: int, column: int, line: int) -> int:
    """Where a byte of a tile with lines of 128, 64 or 32 bytes lies, as the copy engine and matrix units swizzle it.

    Pieces of 16 bytes of a line change places by the number of the 128 bytes that it lies in, counted to 8, 4 or 2 (PTX
    ISA, tensor swizzling modes).

    >>> [banked(row, 0, 32) for row in range(6)]
    [0, 32, 64, 96, 144, 176]
    """
    address = row * line + column
    return address ^ (address >> 7 & line // 16 - 1) << 4


def banked_128(row: int, column: int) -> int:
    """Where a byte of a tile with the widest lines lies."""
    return banked(row, column, 128)
