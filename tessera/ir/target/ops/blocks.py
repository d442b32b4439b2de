"""Blocks of vector registers and memory: ops on blocks, loads and stores at linear offsets, scratch, swizzles."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from xdsl.ir import SSAValue

from tessera.ir.base.block_ops import (
    AXES,
    COORDS,
    MEMORY,
    MODE,
    PAD,
    SWIZZLE,
    BlockOps,
    check_fetch,
    check_mode,
    check_names,
    check_symbols,
)
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, VectorAttr
from tessera.ir.target.limits import LINE, buffer_alignment, index_multiple, kernel_around, multiple_of, size_multiples
from tessera.types.shape import is_at_least

# Ops on blocks of registers: those that all kernels have, and what threads of a GPU do together.


def _check_threads(op: SpecOp) -> None:
    kernel = kernel_around(op)
    if kernel is not None and not kernel.value("threads"):
        op.fail(f"`{op.name}` is for programs of several threads, and `@{kernel.value('symbol')}` has one")


OPS = BlockOps(
    "ttarget",
    VectorAttr,
    "block",
    {"barrier": _check_threads, "dot": _check_threads, "transpose": _check_threads},
)


# Swizzles of shared memory: pieces of a row permuted by its number, so that columns are in different banks.

SWIZZLES = (0, 4, 8, 16)
"""Bytes of the pieces of a row that are permuted by its number; 0 where none are."""


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
    if row & (row - 1) or row * size <= swizzle:
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
    why = why_not_swizzled(buffer.sizes[-1], buffer.dtype.bytes, swizzle)
    if why:
        op.fail(why)
    for use in op.results[0].uses:
        if use.operation.name.split(".")[-1] not in ("load", "store"):
            op.fail(f"`{use.operation.name}` goes through memory in order, and this is swizzled")


def _check_prefetch(op: SpecOp) -> None:
    """Elements of an argument are touched, by named indices: scratch is in a cache."""
    buffer = op.operands[0]
    if not isinstance(buffer.type, BufferAttr) or _is_scratch(buffer):
        op.fail(f"`{op.name}` takes an argument of the kernel, and scratch is in a cache")
    if check_names(op, op.value("coords"), 1):
        op.fail(f"`{op.name}` takes one index for each name")
    check_symbols(op, "the offset", [op.value("offset")], op.value("coords"))
    for name, least in (("elements", 1), ("ahead", 0), ("least", 0)):
        if op.value(name) < least:
            op.fail(f"`{name}` is {least} at least, got {op.value(name)}")


def _is_scratch(buffer: SSAValue) -> bool:
    return isinstance(buffer.owner, SpecOp)


def _check_fetch(op: SpecOp) -> None:
    check_fetch(op)
    check_symbols(op, "the offset", [op.value("offset")], op.value("coords"))


PATTERNS = ("contiguous", "uniform", "strided", "indexed")
_BY_STRIDE: Mapping[int | None, str] = {0: "uniform", 1: "contiguous"}
"""What lanes so many elements apart are; others, and those a size apart, are strided."""
SPACES = ("private", "shared", "registers")

_OFFSET = Attribute("offset", "dim", doc="elements from the start of the buffer")
_ACCESS = (
    COORDS,
    AXES,
    _OFFSET,
    Attribute("pattern", "str", doc="how lanes access memory: " + ", ".join(PATTERNS)),
    Attribute("align", "int", doc="bytes that the start of every row of lanes is a multiple of"),
    Attribute("guarded", "strs", (), "axes that may reach beyond their bound"),
    Attribute("bounds", "dims", (), "the extent of each guarded axis"),
    Attribute("windows", "dims", (), "expression, extent, ...: beyond them nothing is touched"),
)


def _check_access(op: SpecOp, buffer_at: int, block: SSAValue) -> None:
    buffer, first = op.operands[buffer_at], buffer_at + 1
    if not isinstance(buffer.type, BufferAttr):
        op.fail(f"`{op.name}` takes a buffer, got {buffer.type}")
    (moved,) = OPS.blocks(op, [block])
    if buffer.type.dtype != moved.dtype:
        op.fail(f"`{op.name}` moves {moved.dtype} and the buffer holds {buffer.type.dtype}")
    tiles = tuple(f"t{number}" for number in range(len(OPS.check_coords(op, block, first))))
    check_symbols(op, "the offset", [op.value("offset")], (*op.value("coords"), *tiles))
    _check_edges(op, tiles)
    _check_pattern(op, tiles)
    _check_align(op, buffer, first)


def _check_edges(op: SpecOp, tiles: tuple[str, ...]) -> None:
    """Guards are of axes, each with its extent; windows come in pairs."""
    names, axes = op.value("coords"), op.value("axes")
    guarded, bounds, windows = op.value("guarded"), op.value("bounds"), op.value("windows")
    if not set(guarded) <= set(axes) or len(guarded) != len(bounds) or len(set(guarded)) != len(guarded):
        op.fail("every guarded axis is an axis of the block and has a bound")
    if any(bound.value is not None and bound.value < 0 for bound in bounds):
        op.fail(f"the extent of an axis is not negative, got {[str(bound) for bound in bounds]}")
    for axis, bound in zip(guarded, bounds, strict=True):
        if axis in bound.symbols:
            op.fail(f"the extent `{bound}` of {axis} depends on {axis} itself")
    check_symbols(op, "the bound", bounds, names)
    if len(windows) % 2:
        op.fail(f"`windows` are pairs of an expression and an extent, got {len(windows)} expressions")
    check_symbols(op, "the window", windows[::2], (*names, *tiles))
    check_symbols(op, "the extent of a window", windows[1::2], (name for name in names if name not in axes))


def _check_align(op: SpecOp, buffer: SSAValue, first: int) -> None:
    """An access is aligned to its elements, and to no more than follows from where it begins."""
    align, axes = op.value("align"), op.value("axes")
    assert isinstance(buffer.type, BufferAttr)
    item = buffer.type.dtype.bytes
    if align not in (1, 2, 4, 8, 16, 32, 64):
        op.fail(f"`align` is a power of two up to {LINE}, got {align}")
    if align < item:
        op.fail(f"an element of {buffer.type.dtype} is aligned to {item} bytes at least, got {align}")
    if align == item:
        return
    multiples = dict(zip(op.value("coords"), map(index_multiple, op.operands[first:]), strict=False))
    rows = dict.fromkeys(axes[:-1], 1)  # a block has every row from where it starts
    steps = multiple_of(op.value("offset"), {**size_multiples(op), **multiples, **rows})
    known = gcd(buffer_alignment(buffer), item * steps)
    if known % align:
        op.fail(f"all that is known of `{op.value('offset')}` is that it is aligned to {known} bytes, not to {align}")


def _check_pattern(op: SpecOp, tiles: tuple[str, ...]) -> None:
    axes, offset = op.value("axes"), op.value("offset")
    if op.value("pattern") not in PATTERNS:
        op.fail(f"`pattern` is one of {', '.join(PATTERNS)}, got {op.value('pattern')}")
    parts = offset.coefficient(axes[-1]) if axes else None
    if set(tiles) & offset.symbols:
        wanted, why = "indexed", f"the offset {offset} is read from index vectors"
    elif not axes:
        wanted, why = "contiguous", "a single element is contiguous"
    elif parts is None:
        wanted, why = "indexed", f"the offset {offset} is not linear in {axes[-1]}"
    else:
        wanted = _BY_STRIDE.get(parts[0].value, "strided")
        why = f"lanes of {axes[-1]} are {parts[0]} elements apart"
    if op.value("pattern") != wanted:
        op.fail(f"{why}: the access pattern is {wanted}, not {op.value('pattern')}")


def _check_load(op: SpecOp) -> None:
    _check_access(op, 0, op.results[0])
    _check_number(op, "pad")


def _check_store(op: SpecOp) -> None:
    _check_access(op, 1, op.operands[0])
    check_mode(op)
    if op.value("pattern") == "uniform" and not _is_single(op, op.value("axes")[-1]):
        op.fail("all lanes of a store would write one element", "store a block whose axes all reach the address")


def _is_shared_by_warps(op: SpecOp) -> bool:
    """Whether an op is in a kernel whose warps share rows: each has a part of what registers hold, of any width."""
    kernel = kernel_around(op)
    return kernel is not None and bool(kernel.value("warps_per_row"))


def _check_scratch(op: SpecOp) -> None:
    type = op.results[0].type
    if not isinstance(type, BufferAttr):
        op.fail(f"`{op.name}` gives a buffer, got {type}")
    check_symbols(op, "the offset", [op.value("offset"), *type.shape], ())
    if op.value("space") not in SPACES:
        op.fail(f"`space` is one of {', '.join(SPACES)}, got {op.value('space')}")
    is_divided = op.value("space") == "registers" and _is_shared_by_warps(op)
    if op.value("space") != "private" and not is_divided and any(not dim.is_static for dim in type.shape):
        op.fail(f"memory of the space {op.value('space')} has static sizes, got {type}")
    if not is_at_least(op.value("offset"), 0) or multiple_of(op.value("offset"), {}) % LINE:
        op.fail(f"a part of scratch begins at a line of {LINE} bytes, got {op.value('offset')}")
    check_swizzle(op)


def _is_single(op: SpecOp, axis: str) -> bool:
    """Whether no more than the first element along an axis is inside: its extent is 1."""
    bounds = dict(zip(op.value("guarded"), op.value("bounds"), strict=True))
    return axis in bounds and bounds[axis].value == 1


def _check_number(op: SpecOp, name: str) -> None:
    """An attribute is a number that its block's dtype has."""
    value, type = op.value(name), op.results[0].type
    assert isinstance(type, VectorAttr)
    if isinstance(value, float) and not (type.dtype.is_float or value.is_integer()):
        op.fail(f"`{name}` is a number of {type.dtype}, got {value}")


SPECS = (
    *OPS.specs(),
    OpSpec(
        name="ttarget.load",
        summary="Elements into registers; those out of bounds are `pad`.",
        operands=("buffer", "at*"),
        attributes=(
            *_ACCESS,
            PAD,
            Attribute("prefetch", "int", 0, "bytes from each cache line that it reads to the one it asks for; 0: none"),
        ),
        effects=MEMORY,
        verify=_check_load,
    ),
    OpSpec(
        name="ttarget.store",
        summary="Registers to memory.",
        operands=("block", "buffer", "at*"),
        results=(),
        attributes=(*_ACCESS, MODE),
        effects=MEMORY,
        verify=_check_store,
    ),
    OpSpec(
        name="ttarget.scratch",
        summary="A part of the thread's scratch, `offset` bytes from its start.",
        results=("buffer",),
        attributes=(
            Attribute("offset", "dim", doc="bytes from the start"),
            Attribute("space", "str", "private", "private, or on a GPU shared (a block's own memory) or registers"),
            SWIZZLE,
        ),
        effects=MEMORY,
        verify=_check_scratch,
    ),
    OpSpec(
        name="ttarget.fetch",
        summary="One integer of a buffer, in 64 bits.",
        operands=("buffer", "at*"),
        results=("index",),
        attributes=(COORDS, _OFFSET),
        effects=MEMORY,
        verify=_check_fetch,
    ),
    OpSpec(
        name="ttarget.prefetch",
        summary="Touches elements of a large buffer line by line, in order, and prefetches others into L2.",
        operands=("buffer", "at*"),
        results=(),
        attributes=(
            COORDS,
            _OFFSET,
            Attribute("elements", "int", doc="how many, from the offset on, all of them in the buffer"),
            Attribute(
                "ahead", "int", doc="bytes from each line to the one that is prefetched, which may be beyond the end"
            ),
            Attribute("least", "int", 0, "bytes of a buffer from which on anything is done"),
        ),
        effects=MEMORY,
        verify=_check_prefetch,
    ),
)
