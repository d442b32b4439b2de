"""Which thread has which element of a tile: one layout for each shape, so that elementwise ops never move anything.

Element `e` of a tile, in row-major order, belongs to thread `(e // V) % P` of the P threads of its program: V
neighbours to a thread, the threads side by side, and so on through the tile. A tile of fewer elements than threads is
held several times over. Only reductions, broadcasts, transposes and dots move elements between threads.

A tile of one element for each row of another may be a slice of that (`replicas`, `emit_rows.py`): the threads that have
a row between them all have its element.

The accumulator of a matmul has another layout (`ThreadGrid`), and what is computed of it with it: a thread has
some rows by some columns, so that what it reads of either operand is multiplied with all that it reads of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import next_power_of_two
from tessera.types.dtype import DType
from tessera.types.frozen import frozen


@frozen
class ThreadGrid:
    """Threads in rows and columns over a tile: `across` along its columns, `lanes` of a warp along them.

    A thread has `rows` neighbouring rows and `columns` neighbouring columns; those of all threads are side by side,
    and so on through the tile. Four lanes are two rows by two columns: shared memory hands out wide words twice as
    fast where each lane wants what the next one does, or the one after that, so rows and columns are both read fast.
    """

    across: int
    lanes: int
    rows: int
    columns: int

    def place(self, thread: int) -> tuple[int, int]:
        """The row and column of a thread that is known."""
        (warp, lane), warps = divmod(thread, 32), self.across // self.lanes
        if self.is_paired:
            (pair, place), pairs = divmod(lane, 4), self.lanes // 2
            below, beside = 2 * (pair // pairs) + place // 2, 2 * (pair % pairs) + place % 2
        else:
            below, beside = divmod(lane, self.lanes)
        return warp // warps * (32 // self.lanes) + below, warp % warps * self.lanes + beside

    @property
    def is_paired(self) -> bool:
        """Whether a warp has rows and columns of lanes to take by twos."""
        return 1 < self.lanes < 32

    def element(self, thread: int, register: int, shape: Sequence[int], threads: int) -> tuple[int, int]:
        """The row and column of what a thread that is known has in a register."""
        row, column = divmod(register, shape[1] // self.across)
        far_row, near_row = divmod(row, self.rows)
        far_column, near_column = divmod(column, self.columns)
        down, across = self.place(thread)
        below = threads // self.across * self.rows * far_row + down * self.rows + near_row
        return below, self.across * self.columns * far_column + across * self.columns + near_column

    def position(self, f: FunctionText, thread: Value) -> tuple[Index, Index]:
        """The row and column of a thread."""
        lane, warp = f.urem(thread, 32), f.udiv(thread, 32)
        warps = self.across // self.lanes
        if self.is_paired:
            pair, place, pairs = f.udiv(lane, 4), f.urem(lane, 4), self.lanes // 2
            below = f.add(f.mul(f.udiv(pair, pairs), 2), f.udiv(place, 2))
            beside = f.add(f.mul(f.urem(pair, pairs), 2), f.urem(place, 2))
        else:
            below, beside = f.udiv(lane, self.lanes), f.urem(lane, self.lanes)
        row = f.add(f.mul(f.udiv(warp, warps), 32 // self.lanes), below)
        return row, f.add(f.mul(f.urem(warp, warps), self.lanes), beside)


@frozen
class Layout:
    """The layout of a shape over `threads` with at most `widest` neighbours to a thread; `shape` is static.

    With a `grid`, which divides the tile, it is that of an accumulator; with `replicas`, of a line of which so many
    threads side by side have each element. With `rows` a thread has so many rows, one after the other, of each group of
    neighbours, and they divide the tile.
    """

    shape: tuple[int, ...]
    threads: int
    widest: int = 1
    grid: ThreadGrid | None = None
    replicas: int = 0
    rows: int = 1

    @property
    def thin(self) -> Layout:
        """The layout of the first of every `rows` rows."""
        return Layout((*self.shape[:-2], self.shape[-2] // self.rows, self.shape[-1]), self.threads, self.widest)

    def split(self, register: int) -> tuple[int, int]:
        """The register that has the same in `thin`, and how many rows below that an element is."""
        number, inner = divmod(register, self.vector)
        far, near = divmod(number, self.rows)
        return far * self.vector + inner, near

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def vector(self) -> int:
        """Neighbours along the last axis that one thread has."""
        if self.grid is not None:
            return self.grid.columns
        width = self.widest if self.shape and not self.replicas else 1
        while width > 1 and (self.shape[-1] % width or self.size < width * self.threads * self.rows):
            width //= 2
        return width

    @property
    def group(self) -> int:
        """Elements that all threads hold with one group of neighbours each."""
        return self.vector * self.threads // max(1, self.replicas)

    @property
    def registers(self) -> int:
        """Elements that one thread holds."""
        if self.rows > 1:
            return self.thin.registers * self.rows
        return max(1, -(-self.size // self.group)) * self.vector

    @property
    def is_repeated(self) -> bool:
        """Whether some threads hold the same elements as others."""
        return self.size < self.threads and not self.replicas

    @property
    def line(self) -> Layout:
        """The layout of a row of which every thread has one group of neighbours."""
        return Layout((self.group,), self.threads, self.vector)

    @property
    def single(self) -> Layout:
        """The layout of one element to a thread."""
        return Layout((self.threads,), self.threads)

    @property
    def size_of_line(self) -> int:
        """Elements of such a row, where several warps can be halved to one; 0 where they cannot.

        Neighbours can always be: they are a power of two, as `widest` is.
        """
        is_whole = self.threads > 32 and self.threads & (self.threads - 1) == 0 and not self.replicas
        return self.group if is_whole and self.size >= self.group else 0

    def start(self, register: int) -> int:
        """The element of the first thread in a register."""
        number, inner = divmod(register, self.vector)
        return number * self.group + inner

    def lines_of(self, register: int) -> range | None:
        """The lines of a tile of two axes that threads have elements of in a register; None where that is not known.

        From the first to the last: of several `rows` to a thread not all that are between them.
        """
        if len(self.shape) != 2 or self.grid is not None or self.is_repeated:
            return None
        if self.rows > 1:
            # Every so many lines from one to another: those between are in other registers.
            (first, near), count = self.split(register), self.rows
            lines = self.thin.lines_of(first)
            return None if lines is None else range(lines.start * count + near, lines[-1] * count + near + 1)
        first = register // self.vector * self.group
        return range(first // self.shape[1], (min(first + self.group, self.size) - 1) // self.shape[1] + 1)


def skew_of(lines: int, length: int, vector: int, size: int) -> int:
    """Elements to leave free after every `vector` lines of a tile in shared memory, against bank conflicts.

    Threads that have `vector` lines each are then an odd number of steps apart, of one bank, or of as many as lanes of
    a warp have neighbours along the lines: odd multiples meet in no bank. `size` is the bytes of an element.
    """
    banks = 128 // size
    lanes = next_power_of_two(max(1, min(banks, 32, lines // vector)))
    return (banks // lanes - vector * length) % (2 * banks // lanes) if lanes > 1 else 0


@frozen
class Spacing:
    """Padding between lines of a tile in shared memory: `free` elements after every `every` lines."""

    every: int = 1
    free: int = 0

    @staticmethod
    def for_operand(is_lhs: bool, is_transposed: bool, vector: int, size: int) -> Spacing:
        """For an operand of a dot, of which threads read one line each: 16 bytes apart, which vectors keep to."""
        if is_lhs == is_transposed:
            return Spacing()
        return Spacing(1 if is_lhs else vector, 16 // size)

    @staticmethod
    def for_transpose(source: Layout, target: Layout, size: int) -> Spacing:
        """For a tile that others read across: out of step with banks, or 16 bytes apart where vectors need it."""
        if source.vector > 1:
            return Spacing(target.vector, 16 // size)
        rows, columns = source.shape
        return Spacing(target.vector, skew_of(rows, columns, target.vector, size))

    def start(self, line: int, length: int) -> int:
        """Where a line begins."""
        return line * length + line // self.every * self.free


@dataclass
class Threads:
    """Which elements a thread has in tiles of a layout: what depends on the thread is computed once, early."""

    f: FunctionText
    thread: Value
    layout: Layout
    base: Index = 0
    """The thread's first element."""
    at: tuple[Index, Index] = (0, 0)
    """The row and column of the thread in a grid of them."""
    thin: Threads | None = None
    """Which elements it has in the first of several rows."""
    _parts: list[tuple[Index, int, bool]] = field(default_factory=list[tuple[Index, int, bool]])

    def __post_init__(self) -> None:
        f, layout = self.f, self.layout
        if layout.rows > 1:
            self.thin = Threads(f, self.thread, layout.thin)
            return
        size = layout.size
        if layout.threads == 1:
            self.base = 0
        elif layout.replicas:
            self.base = f.udiv(self.thread, layout.replicas)
        elif layout.is_repeated:
            self.base = f.urem(self.thread, size)
        else:
            self.base = f.mul(self.thread, layout.vector)
        if layout.grid is not None:
            self.at = layout.grid.position(f, self.thread)
            return
        quotient, reach = self.base, size if layout.is_repeated else layout.group
        for extent in reversed(layout.shape):
            self._parts.append((quotient, reach, extent % reach == 0))
            if extent % reach == 0:
                quotient, reach = 0, 1
            elif reach % extent == 0:
                quotient, reach = f.udiv(quotient, extent), reach // extent
            else:
                return

    def coordinates(self, register: int) -> list[Index]:
        """The coordinates of the element in a register, one index for each axis."""
        f, layout = self.f, self.layout
        if layout.grid is not None:
            return self._coordinates_in_grid(layout.grid, register)
        if self.thin is not None:
            first, near = layout.split(register)
            *others, row, column = self.thin.coordinates(first)
            return [*others, f.add(f.mul(row, layout.rows), near), column]
        number, inner = divmod(register, layout.vector)
        fixed = number * layout.group
        found: list[Index] = []
        moving: Index | None = None
        for axis, extent in enumerate(reversed(layout.shape)):
            last = inner if axis == 0 else 0
            if moving is not None:
                found.append(f.add(f.urem(moving, extent), last))
                moving = f.udiv(moving, extent)
                continue
            quotient, reach, is_inside = self._parts[axis]
            if is_inside:
                found.append(f.add(quotient, fixed % extent + last))
            elif reach % extent == 0:
                found.append(f.add(f.urem(quotient, extent), last))
            else:
                moving = f.add(quotient, fixed)
                found.append(f.add(f.urem(moving, extent), last))
                moving = f.udiv(moving, extent)
            fixed //= extent
        return found[::-1]

    def _coordinates_in_grid(self, grid: ThreadGrid, register: int) -> list[Index]:
        f, across = self.f, grid.across
        down = self.layout.threads // across
        numbers = divmod(register, self.layout.shape[1] // across)
        counts = ((down, grid.rows), (across, grid.columns))
        found: list[Index] = []
        for number, own, (threads, count) in zip(numbers, self.at, counts, strict=True):
            far, near = divmod(number, count)
            found.append(f.add(f.mul(own, count), far * threads * count + near))
        return found

    def is_there(self, register: int) -> Value | None:
        """Whether the register holds an element at all; None where it always does."""
        layout, f = self.layout, self.f
        if layout.grid is not None:
            return None
        if self.thin is not None:
            return self.thin.is_there(layout.split(register)[0])
        start = layout.start(register)
        if layout.is_repeated or start - register % layout.vector + layout.group <= layout.size:
            return None
        return f.icmp("slt", f.add(self.base, start), layout.size)

    def is_owner(self, register: int) -> Value | None:
        """Whether this thread is the one to store the element; None where it always is."""
        if self.layout.replicas > 1:  # which divides the threads, and these the rows
            return self.f.icmp("eq", self.f.urem(self.thread, self.layout.replicas), 0)
        if not self.layout.is_repeated:
            return self.is_there(register)
        return self.f.icmp("slt", self.thread, self.layout.size)


@dataclass
class Tile:
    """A tile in registers of the program's threads; `narrow` is a smaller dtype that holds its values too."""

    layout: Layout
    dtype: DType
    registers: Sequence[Value]
    narrow: tuple[DType, Sequence[Value]] | None = None
    transposed: Tile | None = None
    """The tile of which this one is the transpose, where its elements have not been moved."""
    exact: DType | None = None
    """A narrow float that holds its values, which are f32 here, whether or not they are in registers as such."""
    wide: Sequence[Value] | None = None
    """The same values in f32, of a narrow float, where they were computed so and lost nothing."""
    aside: Value | None = None
    """Where it is in local memory, from which whoever asks reads it anew."""
    packed: Sequence[tuple[Value, int]] = ()
    """What was loaded early, in the words of memory, each with how many elements it has."""
