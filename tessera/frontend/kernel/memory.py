"""Memory access: `load`, `store` and atomics, with hints that are checked and never change a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.diagnostics.codes import DTypeError
from tessera.frontend.kernel.attention import Transposed
from tessera.frontend.kernel.block_scope import check_number
from tessera.frontend.kernel.builder import KernelBuilder, current
from tessera.frontend.kernel.extents import Extent
from tessera.frontend.kernel.indexing import DimAccess, Origin, TensorRef, access_of, dim_accesses
from tessera.frontend.kernel.tiles import Operand, Tile, broadcast_shape, broadcast_to, cast_to, tile_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.types.schedule import SWIZZLES

SPACES = ("global", "shared", "register")
WIDEST = 16
"""Bytes of the widest access of one thread."""


def load(
    x: Any,
    *positions: Any,
    rows: Any = None,
    cols: Any = None,
    pad: Any = None,
    mask: Any = None,
    vector: int | None = None,
    prefetch: int | None = None,
    stages: int | None = None,
    swizzle: str | None = None,
    space: str | None = None,
) -> Tile:
    """A tile of a tensor; elements out of bounds, and where `mask` is false, are `pad`, by default 0.

    Indices are for the last dims: `T.m` and `T.n` this program's block, the index of a tile loop its step, `T.d` or `:`
    the whole dim, an integer one element, an integer tile a gather: `load(table, ids, cols=T.d)` has row `ids[i]` of
    the table as row i, and `pad` for an out-of-bounds index, which a debug build reports (T0710) unless `pad` or
    `mask` is given. Leading dims without an index are batch dims of the grid. `load(x, (m, k), (BM, BK))` takes
    indices and shape as tuples. All that follows `mask` is a hint to the compiler.
    """
    b = current()
    tensor = _tensor(b, x, "load")
    if tensor.is_result:
        raise b.fail(f"`{tensor.name}` is a result of this kernel, which is write-only", "keep the tile in a variable")
    indices, shape = _positions(b, positions, rows, cols)
    entries = dim_accesses(b, tensor, indices)
    hints = _hints(b, tensor, vector=vector, prefetch=prefetch, stages=stages, swizzle=swizzle, space=space)
    # A program that gives `pad` or `mask` expects out-of-bounds indices.
    is_checked = pad is None and mask is None and any(entry.indices is not None for entry in entries)
    checked = {"checked": {"op": "load", "kernel": b.name, "into": tensor.name}} if is_checked else {}
    pad = 0 if pad is None else pad
    values = {"pad": _number(b, tensor, pad), **hints, **checked}
    tile = Origin(tensor, tuple(entries), values, tensor.dtype).load(b)
    if shape is not None and tile.shape != shape:
        raise b.misfit(f"the tile at these indices is {list(tile.shape)}, and the given shape is {list(shape)}")
    if mask is not None:
        from tessera.frontend.kernel.elementwise import where  # noqa: PLC0415 - it uses tiles alone

        tile = where(mask, tile, pad)
    return tile


def store(x: Any, *given: Any, rows: Any = None, cols: Any = None, mask: Any = None) -> None:
    """Write a tile: `store(out, (m, n), tile)` or `store(out, tile, rows=T.m, cols=T.n)`; nothing out of bounds.

    Nothing is written where `mask` is false, nor at an out-of-bounds index of an index tile. Floats are rounded to the
    tensor's dtype. The tensors that a kernel stores to are its results; elements that no program stores are undefined,
    except in results stored with a mask or index tile, which are zero-initialized.
    """
    _write(current(), x, given, rows, cols, mask, "set", "store")


def atomic_add(x: Any, *given: Any, rows: Any = None, cols: Any = None, mask: Any = None) -> None:
    """Atomically add a tile to a result, which is zero-initialized; integer sums are exact in any order."""
    _write(current(), x, given, rows, cols, mask, "atomic_add", "atomic_add")


def atomic_max(x: Any, *given: Any, rows: Any = None, cols: Any = None, mask: Any = None) -> None:
    """Atomic maximum of a tile and a result, which is zero-initialized; the order does not matter."""
    _write(current(), x, given, rows, cols, mask, "atomic_max", "atomic_max")


def atomic_min(x: Any, *given: Any, rows: Any = None, cols: Any = None, mask: Any = None) -> None:
    """Atomic minimum of a tile and a result, which is zero-initialized; the order does not matter."""
    _write(current(), x, given, rows, cols, mask, "atomic_min", "atomic_min")


def _write(b: KernelBuilder, x: Any, given: Sequence[Any], rows: Any, cols: Any, mask: Any, mode: str, fn: str) -> None:
    tensor = _tensor(b, x, fn)
    if not tensor.is_result:
        raise b.fail(f"`{tensor.name}` is an operand of this kernel, which is read-only", "store to a result parameter")
    # The tile comes first or last; of two tiles the second is an index.
    first, *others = given if given else (None,)
    positions, tile = (others, first) if isinstance(first, Operand) or not others else (given[:-1], given[-1])
    indices, _ = _positions(b, positions, rows, cols)
    chosen = tile_of(b, f"the mask of {fn}", mask) if mask is not None else None
    entries = dim_accesses(b, tensor, indices)
    accumulator = _untransposed_accumulator(b, tile, entries) if chosen is None and mode == "set" else None
    access = access_of(b, entries, order=None if accumulator is None else (1, 0), mask=chosen)
    source = cast_for_store(b, tile_of(b, fn, tile if accumulator is None else accumulator), tensor, fn)
    if source.shape != access.sizes:
        joined = broadcast_shape(b, fn, [source.shape, access.sizes])
        if joined != access.sizes:
            raise b.misfit(f"`{fn}` writes {list(source.shape)} to {list(access.sizes)} of `{tensor.name}`")
    number = broadcast_to(b, source, access.sizes)
    b.has_stores = True
    if mode != "set" or access.tiles:
        b.zeroed[next(at for at, result in enumerate(b.result_buffers) if result is tensor)] = None
    values = {**access.values, "mode": mode}
    if any(entry.indices is not None for entry in entries):
        values["checked"] = {"op": fn, "kernel": b.name, "into": tensor.name, "masked": mask is not None}
    b.emit("store", [number, tensor.number, *access.operands, *access.tiles], values)


def _untransposed_accumulator(b: KernelBuilder, tile: Any, entries: Sequence[DimAccess]) -> Tile | None:
    """The accumulator behind a lazily transposed tile, to be stored with swapped indices: it stays in its registers.

    Tensor cores distribute accumulators over threads in their own layout, so transposing them first gains nothing;
    other tiles are transposed first, so that stores are contiguous.
    """
    found = tile.tile if isinstance(tile, Transposed) else None
    is_block = sum(entry.axis is not None for entry in entries) == 2 and all(entry.indices is None for entry in entries)
    return found if found is not None and b.has_dots and found.origin is None and is_block else None


def cast_for_store(b: KernelBuilder, tile: Tile, tensor: TensorRef, fn: str) -> Tile:
    """The tile in the tensor's dtype: floats round, integers stay integers."""
    if tile.dtype.kind != tensor.dtype.kind and not (tile.dtype.is_integer and tensor.dtype.is_integer):
        raise DTypeError(
            f"`{fn}` writes {tile.dtype} to `{tensor.name}` of {tensor.dtype}",
            span=b.span,
            fix=f"cast it first: `tile.cast(x, {tensor.dtype})`",
        )
    return cast_to(b, tile, tensor.dtype)


def _tensor(b: KernelBuilder, x: Any, fn: str) -> TensorRef:
    found = getattr(x, "tensor", x)
    if not isinstance(found, TensorRef):
        raise b.fail(f"`{fn}` takes a tensor parameter of the kernel, got {type(x).__name__}")
    return found


def _positions(
    b: KernelBuilder, given: Sequence[Any], rows: Any, cols: Any
) -> tuple[list[Any], tuple[int, ...] | None]:
    """Indices for the last dims in order, and the shape if given."""
    indices, shape = list(given), None
    if indices and is_sequence(indices[0]):
        if len(indices) > 1:
            shape = tuple(int(size) for size in indices[1])
        indices = list(as_tuple(indices[0]))
    indices += [index for index in (rows, cols) if index is not None]
    return indices, shape


def _number(b: KernelBuilder, tensor: TensorRef, pad: Any) -> Any:
    if isinstance(pad, bool | int | float):
        check_number(b, pad)
        return float(pad) if tensor.dtype.is_float else pad
    raise b.fail(f"`pad` is a number, got {type(pad).__name__}")


def _hints(b: KernelBuilder, tensor: TensorRef, **given: Any) -> dict[str, Any]:
    """The hints to the compiler, checked: `{}` for none."""
    hints = {name: int(value) if isinstance(value, Extent) else value for name, value in given.items() if value}
    vector = hints.get("vector")
    if vector is not None:
        if not isinstance(vector, int) or vector < 1 or vector & (vector - 1):
            raise b.fail(f"`vector` is a power of two of elements, got {vector}")
        if vector * tensor.dtype.bytes > WIDEST:
            widest = WIDEST // tensor.dtype.bytes
            hints["vector"] = widest  # fewer elements of a wider dtype fit
    if hints.get("space", "shared") not in SPACES:
        raise b.fail(f"`space` is one of {', '.join(SPACES)}, got {hints['space']!r}")
    if hints.get("swizzle", "none") not in SWIZZLES:
        raise b.fail(f"`swizzle` is one of {', '.join(SWIZZLES)}, got {hints['swizzle']!r}")
    if hints.get("swizzle", "none") != "none" and hints.get("space", "shared") != "shared":
        raise b.fail(f"`swizzle` orders shared memory, and this is in {hints['space']}", "omit one of the two")
    for name in ("prefetch", "stages"):
        if name in hints and (not isinstance(hints[name], int) or not 0 <= hints[name] <= 8):
            raise b.fail(f"`{name}` is 0..8 iterations, got {hints[name]}")
    return {"hints": dict(sorted(hints.items()))} if hints else {}
