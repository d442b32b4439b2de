"""How tiles leave a kernel on tensor cores: which stores go through shared memory, and in which boxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import BlockArgument, SSAValue

from tessera.backends.nvptx.tensor_cores import MAX_BOX, MAX_RANK, SPAN, WGMMA_ROWS, TensorCores, UnfitError
from tessera.backends.nvptx.types import shaped_type, sizes_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.tile.choices import COLUMNS, REGISTERS, SHARED
from tessera.ir.tile.choices import ROWS as ALONG
from tessera.ir.tile.typed_ops import StoreOp
from tessera.runtime.devices.cuda.metrics import MOST_ELEMENTS
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bf16, f16
from tessera.types.frozen import frozen

# What TMA copies at a time: boxes of tensors, and where they end.


@frozen
class Box:
    """A load or store as TMA makes it: which axis of the tile is contiguous in memory, and the box of a span.

    There are `pieces` of them, and `remainder` elements along memory beyond the last.
    """

    inner: int
    sizes: tuple[int, ...]
    pieces: int
    remainder: int = 0


def layout_of(box: Box) -> str:
    """What of a tile is contiguous in memory."""
    return (COLUMNS, ALONG)[box.inner]


def box_of(op: SpecOp, tile: SSAValue, first: int, cuts: bool = False) -> Box:
    """An access as TMA makes it; raises `UnfitError` where it cannot.

    Each axis of the tile walks one dim of the buffer, one element at a time, one of them the last dim; and what lies
    beyond a bound lies beyond the buffer, where TMA reads zeros and writes nothing. With `cuts` one of the other
    dims may end earlier, at an index that is the same for the whole tile.
    """
    buffer = op.operands[first - 1]
    axes, bounds, map = op.value("axes"), op.value("bounds"), op.value("map")
    if not isinstance(buffer, BlockArgument) or not isinstance(buffer.type, BufferAttr) or len(axes) != 2:
        raise UnfitError("only tiles of two dims of an argument are copied whole")
    if any(dim.value == 0 for dim in buffer.type.shape):
        raise UnfitError("there is nothing to copy")
    rank, sizes = len(buffer.type.shape), sizes_of(tile)
    if rank > MAX_RANK or op.value("windows") or len(op.operands) != first + len(op.value("coords")):
        raise UnfitError(f"a tensor of {rank} dims, windows or index tiles are beyond TMA")
    largest = max(buffer.type.sizes, default=0)
    if largest > MOST_ELEMENTS:
        raise UnfitError(f"TMA indexes elements up to {MOST_ELEMENTS}, and a dim has {largest} elements")
    if op.name == "ttile.load" and op.value("pad"):
        raise UnfitError(f"what TMA reads outside is 0, not {op.value('pad')}")
    box, inner = [1] * rank, -1
    for axis, bound, size in zip(axes, bounds, sizes, strict=True):
        dim = _dim_along(axis, map, buffer.type.shape, bound, cuts and not bound.symbols.intersection(axes))
        box[dim] = size
        inner = axes.index(axis) if dim == rank - 1 else inner
    if inner < 0:
        raise UnfitError("no axis of the tile is contiguous in memory")
    cut = cut_of(op) if cuts else None
    if cut is not None and rank == MAX_RANK:
        raise UnfitError(f"dim {cut.dim} of {rank} ends at {cut.end}, and TMA has no dim left for that")
    span = SPAN // buffer.type.dtype.bytes
    is_short = sizes[inner] < span and op.name == "ttile.store"
    if is_short or sizes[inner] % 8 or sizes[1 - inner] > MAX_BOX or sizes[1 - inner] % 8:
        raise UnfitError(f"a tile of {sizes[1 - inner]} x {sizes[inner]} is not made of spans of {span}")
    box[-1] = span
    return Box(inner, tuple(box), sizes[inner] // span, sizes[inner] % span)


@frozen
class Cut:
    """Where an access ends within its buffer: the index along a dim from which on a load reads zeros.

    A store writes nothing from there on.
    """

    dim: int
    end: Dim


def cut_of(op: SpecOp) -> Cut | None:
    """Where a load or store of which TMA knows the boxes ends before its buffer does."""
    buffer = shaped_type(op.operands[1 if isinstance(op, StoreOp) else 0])
    return cut_at(op, op.value("bounds"), buffer.shape)


def cut_at(op: SpecOp, bounds: Sequence[Dim], shape: Sequence[Dim]) -> Cut | None:
    """Where an access with these bounds ends before a buffer of a shape does."""
    for axis, bound in zip(op.value("axes"), bounds, strict=True):
        for dim, expr in enumerate(op.value("map")):
            if axis in expr.symbols and bound.value != -1:
                end = expr.substitute({axis: bound})
                if end != shape[dim]:
                    return Cut(dim, end)
    return None


def _dim_along(axis: str, map: Sequence[Dim], shape: Sequence[Dim], bound: Dim, cuts: bool) -> int:
    """The dim that an axis walks."""
    dims = [dim for dim, expr in enumerate(map) if axis in expr.symbols]
    if len(dims) != 1:
        raise UnfitError(f"`{axis}` walks {len(dims)} dims")
    parts = map[dims[0]].coefficient(axis)
    if parts is None or parts[0].value != 1 or axis in parts[1].symbols:
        raise UnfitError(f"`{axis}` walks `{map[dims[0]]}`, not one element at a time")
    is_cut = cuts and dims[0] != len(shape) - 1
    if not is_cut and bound.value != -1 and bound + parts[1] != shape[dims[0]]:
        raise UnfitError(f"`{axis}` ends at {bound}, and the buffer at {shape[dims[0]]}")
    return dims[0]


# How tiles leave a kernel on tensor cores: which stores go through shared memory, and in which boxes.


def stores_in(kernel: SpecOp) -> list[SpecOp]:
    """All stores of a kernel."""
    return [op for op in kernel.walk() if isinstance(op, StoreOp)]


def shared_stores(kernel: SpecOp, units: TensorCores) -> dict[SpecOp, Box]:
    """The stores that go through shared memory, each with the boxes in which TMA takes them.

    Where threads move them on, they are whole spans: rows leave 16 bytes at a time. Raises `UnfitError` for a store
    that says it goes there and cannot.
    """
    found: dict[SpecOp, Box] = {}
    for op in stores_in(kernel):
        box, space = _box_out(op, units.cuts), op.value("space")
        tile = shaped_type(op.operands[0])
        is_able = box is not None and (units.sends or tile.sizes[-1] * tile.dtype.bytes % SPAN == 0)
        if space == SHARED and not is_able:
            raise UnfitError("a store says that it goes through shared memory, and is not made of whole spans there")
        if box is not None and op.value("box") and tuple(op.value("box")) != box.sizes:
            raise UnfitError(f"`box` is {list(op.value('box'))}, and what is stored at a time is {list(box.sizes)}")
        if op.value("swizzle") not in (0, SPAN):
            raise UnfitError(f"rows leave in lines of {SPAN} bytes, and `swizzle` is {op.value('swizzle')}")
        if op.value("layout") == COLUMNS:
            raise UnfitError("a store says that columns are contiguous in memory, and rows leave")
        if box is not None and is_able and space != REGISTERS:
            found[op] = box
    return found


def _box_out(op: SpecOp, cuts: bool) -> Box | None:
    """The boxes of a store that TMA can make; None for one element by element.

    Where a number says how many rows there are, as of few queries in a block of 64, threads have less to store.
    """
    is_indexed = any(not bound.symbols.isdisjoint(op.value("coords")) for bound in op.value("bounds"))
    try:
        box = box_of(op, op.operands[0], 2, cuts and is_indexed)
    except UnfitError:
        return None
    dtype = shaped_type(op.operands[0]).dtype
    is_staged = dtype in (bf16, f16) or dtype.bytes == 4
    if box.inner != 1 or op.value("mode") != "set" or not is_staged:
        return None
    # Each consumer stores 64 rows at a time.
    rows = [size if size == 1 else WGMMA_ROWS for size in box.sizes[:-1]]
    return Box(1, (*rows, box.sizes[-1]), box.pieces)


def stored_dtypes(stores: Iterable[SpecOp]) -> list[DType]:
    """The dtypes of tiles that stores take, by name."""
    return sorted({shaped_type(op.operands[0]).dtype for op in stores}, key=lambda dtype: dtype.name)


def staged_rows(units: TensorCores, consumers: int) -> tuple[int, int]:
    """Rows of a staging buffer for stores, and how many buffers there are: each consumer of Hopper's has two of 64."""
    return (WGMMA_ROWS, 2 * consumers) if units.sends else (WGMMA_ROWS * consumers, 1)


def staging_bytes(units: TensorCores, consumers: int, stores: Iterable[SpecOp]) -> int:
    """Shared bytes of staging buffers for stores."""
    rows, buffers = staged_rows(units, consumers)
    return rows * SPAN * buffers * len(stored_dtypes(stores))
