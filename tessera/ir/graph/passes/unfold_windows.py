"""Make contractions over windows products of matrices, or chains of multiply-adds where there is little to multiply."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product as positions
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.build import Pattern, Rewriter, rewrite, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import policies_of
from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import restate, slice_axis
from tessera.ir.graph.copied_windows import SEVERAL, CopyLimits, emit_dot_windows, is_copied, other_names, reorder
from tessera.ir.graph.passes.canonicalize import replace_results
from tessera.ir.graph.typed_ops import TransposeOp
from tessera.ir.graph.window_readings import Reading, WindowedContraction, behind_slices, find_windows
from tessera.ir.tile.facets import Contraction
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType, f32
from tessera.types.frozen import frozen
from tessera.types.policy import tf32
from tessera.types.shape import ONE, ZERO

MOST_TAPS, FEW = 52, 4
"""Elements of K that are a chain of multiply-adds, of which a kernel has so many and a few ops that follow; and rows of
the other operand up to which they are.

A matrix has too few rows then for tensor cores, and what windows read costs more to write down than to read again from
caches: a depthwise convolution reads and writes each element once from memory."""
LARGEST = 1 << 31
"""Bytes of what windows read that are in memory at a time: a larger batch is multiplied in parts."""
NARROW = 32
"""Columns of a matrix below which tensor cores have little to do."""
ALIGNED = 16
"""Bytes that rows begin at multiples of where copies take them as they are."""


@frozen
class UnfoldWindows(Pass):
    """Write what windows read as rows of a matrix, for machines that multiply whole tiles of matrices.

    Before: `%0 = tgraph.conv_windows %w, %x` of `[64, 32, 3, 3]` over `[8, 32, 28, 28]`. After: `%p = tgraph.unfold
    %x`, which is `[8, 28, 28, 32, 3, 3]`, and a `tgraph.dot_general` of `%w` and `%p`. A window of one element is the
    `dot_general` alone. Where the other operand has few rows and K is short, as in a depthwise convolution, it is a
    `tgraph.fma_chain` over its taps, which has the bits of the contraction.

    K keeps its order, and so do segments; which of the three it is depends on windows and channels, never on the batch
    or on how many positions windows have. What is written has positions or K as its last dims, as memory had them; K
    where they are rows of no multiple of 16 bytes, and for what is only multiplied `along_k`: names of dtypes, or
    `tf32`, with spaces between them. It `applies` to machines with matrix instructions.

    Where copies of the machine read windows of such images by themselves, nothing is written: the same is a
    `tgraph.dot_windows` of the image with its channels last. `copies` are their limits (`CopyLimits.of`).
    """

    along_k: str = ""
    applies: bool = True
    copies: str = ""

    def run(self, module: ModuleOp) -> None:
        if self.applies:
            rewrite(module, self._patterns)

    def _patterns(self, op: SpecOp) -> Sequence[Pattern]:
        is_windowed = isinstance(op.spec.lower, Contraction) and op.name != "tgraph.dot_windows"
        return (partial(_unfold, self.along_k.split(), CopyLimits.of(self.copies)),) if is_windowed else ()


def _unfold(along_k: Sequence[str], limits: CopyLimits | None, op: SpecOp, rewriter: Rewriter) -> bool:
    found = find_windows(op)
    if found is None:
        return False
    build = rewriter.build(op)
    taps = product(found.shape(found.names("k"))).value
    sides = [product(found.shape(found.names(letter))).value for letter in "mn"]
    is_short = taps is not None and 0 < taps <= MOST_TAPS and op.value("accumulate") is not None
    pairs = zip(sides, found.readings, strict=True)
    is_few = any(side is not None and side <= FEW and reading.is_plain for side, reading in pairs)
    copied = [number for number in range(2) if is_copied(build, op, found, number, limits)]
    if is_short and is_few:
        made = _chain(build, op, found)
    elif copied:
        made = _multiply_copied(build, op, found, copied[0])
    else:
        made = _multiply_parts(build, op, found, along_k)
    replace_results(op, made, build, rewriter)
    return True


def _multiply_copied(b: Builder, op: SpecOp, found: WindowedContraction, number: int) -> Any:
    """The contraction with an image whose windows copies read, of the other operand as it is multiplied."""
    names = other_names(found, number)
    shape = found.shape(names)
    whole, reading = found.operands[1 - number], found.readings[1 - number]
    value, reading = behind_slices(whole, reading)
    several = [name for name in names if found.sizes[name].value != 1]
    if value is whole and reading.is_plain and sorted(reading.names) == sorted(several):
        order = [name for name in several if name in reading.names]
        axes = [next(axis for axis, row in enumerate(reading.steps) if name in row) for name in order]
        single = [axis for axis in range(len(reading.shape)) if axis not in axes]
        value = value if [*axes] == sorted(axes) else reorder(b, op, value, (*single, *axes))
        value = value if b.type_of(value).shape == shape else b.emit("reshape", value, shape=shape)
    else:
        value = _emit_unfold(b, value, reading, found, names)
    return emit_dot_windows(b, op, found, number, value, _is_read_last(op, found, number))


# A product of matrices.


def _multiply_parts(b: Builder, op: SpecOp, found: WindowedContraction, along_k: Sequence[str]) -> Any:
    """The product of each part of the batch, of which what windows read has at most `LARGEST` bytes; one after another.

    No bit of an image depends on the others.
    """
    count, pairs = found.sizes.get("b0", ONE).value, tuple(zip(found.operands, found.readings, strict=True))
    bytes = sum(_unfolded_bytes(b, value, one, found) for value, one in pairs)
    if count is None or count < 2 or bytes <= LARGEST:
        return _multiply(b, op, found, along_k)
    length = max(1, count * LARGEST // bytes)
    made: list[Any] = []
    for first in range(0, count, length):
        size = Dim.constant(min(length, count - first))
        lhs, rhs = (_take(b, value, one, first, size) for value, one in pairs)
        part = WindowedContraction((lhs, rhs), {**found.sizes, "b0": size}, found.readings)
        made.append(_multiply(b, op, part, along_k))
    return b.emit("concat", *made, axis=0)


def _unfolded_bytes(b: Builder, value: Any, reading: Reading, found: WindowedContraction) -> int:
    """Bytes of what windows of images read; 0 for an operand that is read as it is, or of a size that is not known."""
    elements = product(found.shape(reading.names)).value if "b0" in reading.names else None
    return 0 if reading.is_plain or elements is None else elements * b.type_of(value).dtype.bytes


def _take(b: Builder, value: Any, reading: Reading, first: int, size: Dim) -> Any:
    """Some images of an operand that has any."""
    axes = [axis for axis, row in enumerate(reading.steps) if "b0" in row]
    return slice_axis(b, value, axes[0], first, size + first) if axes else value


def _multiply(b: Builder, op: SpecOp, found: WindowedContraction, along_k: Sequence[str]) -> Any:
    """A `dot_general`, of operands in which coordinates of each kind are beside each other."""
    contracted = [name for name in found.names("k") if found.sizes[name].value != 1]
    kept = {name: value for name, value in op.values().items() if name in ("accumulate", "dtype", "segment")}
    is_last = [_is_read_last(op, found, number) for number in range(2)]
    sides = [(value, found.readings[number], found.names("mn"[number])) for number, value in enumerate(found.operands)]
    batch = found.names("b")
    if any(is_last):
        # Rows of the result are then positions, those of the whole batch, and its columns what the other operand has.
        sides = sides[::-1] if is_last[1] else sides
        sides[0] = (*sides[0][:2], [*batch, *sides[0][2]])
        batch = []
    operands: list[Any] = []
    axes: dict[str, tuple[int, ...]] = {}
    for side, (value, reading, free) in zip(("lhs", "rhs"), sides, strict=True):
        is_along_k = _name(op, tensor_value(value).dtype) in along_k
        value, order = _gather_operand(b, value, found, reading, (batch, free, contracted), is_along_k)
        operands.append(_with_batch(b, value, order, found, batch))
        order = [*batch, *(name for name in order if name not in batch)]
        axes[f"{side}_batch"] = tuple(range(len(batch)))
        axes[f"{side}_contract"] = tuple(order.index(name) for name in contracted)
    made = b.emit("dot_general", *operands, **axes, **kept, partial=False)
    order = [*batch, *sides[0][2], *sides[1][2]]
    wanted = found.names("bmn")
    return made if order == wanted else b.emit("transpose", made, axes=tuple(map(order.index, wanted)))


def _is_read_last(op: SpecOp, found: WindowedContraction, number: int) -> bool:
    """Whether a result has positions of one operand first, those of all images, and what the other has as its last dim.

    All its readers want that between transposes to channels last and back. And where there are few positions, as those
    of a gradient by weights, single images would be narrow matrices.
    """
    windowed, other = found.readings[number], found.readings[1 - number]
    names, letters = found.names("bmn"), "mn"[number] + "mn"[1 - number]
    wanted = [*found.names("b"), *(name for letter in letters for name in found.names(letter))]
    is_apart = set(found.names("b")) <= set(windowed.names) and not set(found.names("b")) & set(other.names)
    if wanted == names or not is_apart:
        return False
    if (product(found.shape(found.names(letters[0]))).value or NARROW) < NARROW:
        return True
    readers = [use.operation for use in op.results[0].uses]
    return bool(readers) and all(
        isinstance(one, TransposeOp) and [names[axis] for axis in one.axes] == wanted for one in readers
    )


def _name(op: SpecOp, dtype: DType) -> str:
    """What a machine calls the elements of an operand: f32 that a policy rounds is something else."""
    is_rounded = dtype is f32 and any(one.compute is tf32 for one in policies_of(op))
    return tf32.name if is_rounded else dtype.name


def _gather_operand(
    b: Builder,
    value: Any,
    found: WindowedContraction,
    reading: Reading,
    kinds: tuple[Sequence[str], Sequence[str], Sequence[str]],
    is_along_k: bool,
) -> tuple[Any, list[str]]:
    """An operand with one dim for each coordinate, and their order: as memory has it where it can be read so."""
    batch, free, contracted = [name for name in kinds[0] if name in reading.names], *kinds[1:]
    value, reading = _channels_last(b, value, found, reading, contracted)
    names, wanted = reading.names, [*free, *contracted]
    row = product(found.shape(free)) * b.type_of(value).dtype.bytes
    is_by_row = _innermost(reading, found) in free and not is_along_k and (row % ALIGNED).value == 0
    order = [*batch, *contracted, *free] if is_by_row else [*batch, *wanted]
    if reading.is_plain and _is_grouped(names, (batch, free, contracted)):
        is_k_first = bool(names) and names[-1] in free
        return value, [*batch, *contracted, *free] if is_k_first else [*batch, *wanted]
    return _emit_unfold(b, value, reading, found, order), order


def _channels_last(
    b: Builder, value: Any, found: WindowedContraction, reading: Reading, contracted: Sequence[str]
) -> tuple[Any, Reading]:
    """An operand of windows with the last coordinate of K as its last dim, where that is whole vectors.

    It is then copied once more, and its windows are read and written in vectors instead of element by element, which
    pays where several windows have an element: 8 elements are 116 lines of PTX instead of 383 (3 x 3 of 128 channels).
    """
    last = contracted[-1] if contracted else ""
    axes = [axis for axis, row in enumerate(reading.steps) if row == {last: 1}]
    size = found.sizes[last].value if axes else None
    is_vectors = size is not None and size * b.type_of(value).dtype.bytes % ALIGNED == 0
    times = (product(found.shape([name for name in contracted if name != last])).value or 1) if axes else 1
    if reading.is_plain or not is_vectors or times < SEVERAL or axes == [len(reading.shape) - 1]:
        return value, reading
    order = [*(axis for axis in range(len(reading.shape)) if axis not in axes), *axes]
    shape, starts = (tuple(part[axis] for axis in order) for part in (reading.shape, reading.starts))
    steps = tuple(reading.steps[axis] for axis in order)
    moved = b.emit("transpose", value, axes=tuple(order))
    return moved, Reading(shape, steps, starts, reading.is_padded)


def _innermost(reading: Reading, found: WindowedContraction) -> str:
    """The coordinate with which an operand goes along memory: of several, that of the most elements; empty for none."""
    sizes = {name: found.sizes[name].value or LARGEST for name in (reading.steps[-1] if reading.steps else ())}
    return max(sizes, key=lambda name: sizes[name], default="")


def _is_grouped(names: Sequence[str], kinds: Sequence[Sequence[str]]) -> bool:
    """Whether memory has the batch first, and then all coordinates of one kind before those of the other, in order."""
    batch, *others = ([name for name in kind if name in names] for kind in kinds)
    return list(names) in ([*batch, *others[0], *others[1]], [*batch, *others[1], *others[0]])


def _emit_unfold(b: Builder, value: Any, reading: Reading, found: WindowedContraction, order: Sequence[str]) -> Any:
    steps = tuple(row.get(name, 0) for row in reading.steps for name in order)
    low = tuple(ZERO - start for start in reading.starts)
    return b.emit("unfold", value, shape=found.shape(order), steps=steps, low=low)


def _with_batch(b: Builder, value: Any, order: Sequence[str], found: WindowedContraction, batch: Sequence[str]) -> Any:
    """An operand with every dim of the batch in front: those that it does not depend on are repeated, as a view."""
    rest = [name for name in order if name not in batch]
    split = (*(found.sizes[name] if name in order else ONE for name in batch), *found.shape(rest))
    value = value if b.type_of(value).shape == split else b.emit("reshape", value, shape=split)
    return restate(b, value, found.shape([*batch, *rest]))


# A chain over taps.


def _chain(b: Builder, op: SpecOp, found: WindowedContraction) -> Any:
    """One multiply-add for each element of K, in order, from 0: what a contraction is."""
    contracted, dtype = found.names("k"), tensor_value(op.results[0]).dtype
    terms: list[Any] = []
    for tap in positions(*(range(size.value or 0) for size in found.shape(contracted))):
        fixed = dict(zip(contracted, tap, strict=True))
        pairs = zip(found.operands, found.readings, strict=True)
        terms += [_at_tap(b, value, reading.at(fixed), found) for value, reading in pairs]
    return b.emit("fma_chain", *terms, accumulate=op.value("accumulate"), dtype=dtype)


def _at_tap(b: Builder, value: Any, reading: Reading, found: WindowedContraction) -> Any:
    """What an operand has at one element of K, with a dim for each coordinate of the result."""
    names = found.names("bmn")
    order = [name for name in names if name in reading.names]
    is_forward = all(len(row) <= 1 and all(step > 0 for step in row.values()) for row in reading.steps)
    is_sliced = not reading.is_padded and reading.names == order and is_forward
    if is_sliced:
        stops: list[Dim] = []
        for start, row in zip(reading.starts, reading.steps, strict=True):
            reach = sum(((found.sizes[name] - 1) * step for name, step in row.items()), ZERO)
            stops.append(start + reach + 1)
        steps = tuple(next(iter(row.values()), 1) for row in reading.steps)
        value = b.emit("slice", value, start=reading.starts, stop=tuple(stops), step=steps)
    else:
        value = _emit_unfold(b, value, reading, found, order)
    return b.emit("reshape", value, shape=tuple(found.sizes[name] if name in order else ONE for name in names))
