"""The frame of a kernel: the context of its schedule, loops over blocks, this program's place, pipelines of buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tessera.frontend.kernel.builder import current
from tessera.frontend.kernel.memory import load
from tessera.frontend.kernel.places import NO_ROW, NO_ROW_FIX, TensorRef
from tessera.frontend.kernel.tiles import Extent, Index, Loop, NeedsNumber, Tile, dim_of
from tessera.frontend.several import is_several, several
from tessera.types.dim import Dim
from tessera.types.schedule import Schedule


class Context:
    """The schedule in force, as a kernel asks for it: `m`, `n`, `k`, `d` are sizes that know which they are."""

    def __init__(self, schedule: Schedule, whole: Dim | None) -> None:
        self.schedule, self._whole = schedule, whole

    @property
    def m(self) -> Extent:
        """Rows of this program's block."""
        return self._size("m")

    @property
    def n(self) -> Extent:
        """Columns of this program's block, or of a step over them."""
        return self._size("n")

    @property
    def k(self) -> Extent:
        """Depth of a step."""
        return self._size("k")

    @property
    def d(self) -> Extent:
        """The whole last dim of the first tensor."""
        if self._whole is None:
            raise current().fail("`T.d` is the last dim of the first tensor, and the kernel takes none")
        if self._whole.value is None:
            raise NeedsNumber(self._whole)
        given = self.schedule.d
        if given is not None and given != self._whole.value:
            from tessera.diagnostics.codes import ScheduleError  # noqa: PLC0415 - an error's

            raise ScheduleError(
                f"the schedule says d={given}, and the dim it stands for has {self._whole} elements",
                span=current().span,
                fix=f"leave `d` out, or write d={self._whole}",
            )
        if not self._whole.value:
            raise current().misfit(*NO_ROW, fix=NO_ROW_FIX)
        return Extent(self._whole.value, "d")

    @property
    def vector(self) -> int:
        """Elements of one access; 0 lets the compiler choose."""
        return self.schedule.vector or 0

    @property
    def warps(self) -> int:
        """Warps of a program; 0 lets the compiler choose."""
        return self.schedule.warps or 0

    @property
    def stages(self) -> int:
        """Copies under way; 0 lets the compiler choose."""
        return self.schedule.stages or 0

    def _size(self, role: str) -> Extent:
        size = getattr(self.schedule, role)
        assert size is not None, "a schedule is completed before a kernel is written"
        return Extent(size, role)


def context() -> Context:
    """The schedule in force."""
    b: Any = current()
    return Context(b.schedule, b.whole)


def program() -> tuple[Extent, Extent]:
    """This program's place in rows and columns, as positions of `load` and `store`."""
    found = context()
    return found.m, found.n


class Blocks:
    """A loop over blocks of a dim: the front end makes one loop of it, the interpreter goes through it.

    `is_whole` where it is a dim of a tensor, and not an extent that the kernel computed or wrote down.
    """

    def __init__(self, extent: Dim, size: int, letter: str, prefetch: int, *, is_whole: bool) -> None:
        self.extent, self.size, self.letter, self.prefetch = extent, size, letter, prefetch
        self.is_whole = is_whole

    def __iter__(self) -> Iterator[Loop]:
        return current().steps(self)


def range_n(shape: Any, size: Any, *, prefetch: int = 0) -> Blocks:
    """Blocks of `size` along the rows of a shape, or along a size that is given alone.

    `prefetch` says how many blocks ahead to copy, where the machine copies ahead; it never changes a result.
    """
    return _blocks(shape, -2, size, "_j", prefetch)


def range_k(shape: Any, size: Any, *, prefetch: int = 0) -> Blocks:
    """Blocks of `size` along the columns of a shape, or along a size that is given alone."""
    return _blocks(shape, -1, size, "_k", prefetch)


def range_m(shape: Any, size: Any, *, prefetch: int = 0) -> Blocks:
    """Blocks of `size` along the rows of a shape, or along a size that is given alone."""
    return _blocks(shape, -2, size, "_i", prefetch)


def steps(extent: Any, by: Any, *, prefetch: int = 0) -> Blocks:
    """Steps of `by` along a size."""
    return _blocks(extent, -1, by, "_k", prefetch)


def _blocks(shape: Any, place: int, size: Any, letter: str, prefetch: int) -> Blocks:
    b = current()
    given: Any = shape
    if isinstance(shape, TensorRef):
        given = shape.shape
    is_shape = is_several(given)
    if is_shape:
        dims = several(given)
        given = dims[place] if len(dims) >= -place else dims[-1]
    extent = dim_of(given)
    if extent is None:
        raise b.fail(f"a loop runs along a shape or a size, got {type(shape).__name__}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise b.fail(f"the step of a loop is a positive number, got {size!r}", "write `T.n`, or a number")
    if not isinstance(prefetch, int) or not 0 <= prefetch <= 8:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise b.fail(f"`prefetch` is 0..8 blocks, got {prefetch}")
    return Blocks(extent, int(size), letter, prefetch, is_whole=is_shape or extent.symbol_name is not None)


class Slot:
    """One of the buffers of a pipeline, and the tile that lies in it."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.tile: Tile | None = None

    def next(self) -> Slot:
        """Go on to the next buffer; what was loaded before stays readable for `slot_count - 1` steps."""
        return self.pipeline.advance()

    def load(self, x: Any, *positions: Any, **named: Any) -> None:
        """Begin to copy a tile into this slot."""
        if self.tile is not None and self in self.pipeline.held:
            raise current().fail(
                "this slot was filled and not read since", "call `slot.next()` before the next copy, or read it first"
            )
        named.setdefault("stages", self.pipeline.slot_count)
        self.tile = load(x, *positions, **named)
        self.pipeline.held.append(self)

    def read(self) -> Tile:
        """The tile, when its copy is done."""
        if self.tile is None:
            raise current().fail("this slot is read before anything was copied into it", "call `slot.load(...)` first")
        if self in self.pipeline.held:
            self.pipeline.held.remove(self)
        return self.tile


class Pipeline:
    """Buffers that are filled ahead of their use: `with tile.pipeline(slot_count=2) as slot:`."""

    def __init__(self, slot_count: int) -> None:
        if slot_count not in (2, 3):
            raise current().fail(f"`slot_count` is 2 or 3, got {slot_count}")
        self.slot_count = slot_count
        self.slots = [Slot(self) for _ in range(slot_count)]
        self.held: list[Slot] = []
        self._at = 0
        self._is_open = False

    def __enter__(self) -> Slot:
        self._is_open = True
        return self.slots[0]

    def __exit__(self, kind: object, *_: object) -> None:
        self._is_open = False
        if kind is None and self.held:
            raise current().fail(f"{len(self.held)} slots were filled and never read", "read every slot that is loaded")

    def advance(self) -> Slot:
        """The next slot, free for a copy."""
        if not self._is_open:
            raise current().fail("a slot is used after its pipeline has ended")
        self._at = (self._at + 1) % self.slot_count
        slot = self.slots[self._at]
        if slot in self.held:
            raise current().fail(
                f"all {self.slot_count} slots are filled and not read", "read the oldest before going on"
            )
        slot.tile = None
        return slot


def pipeline(slot_count: int = 2) -> Pipeline:
    """A pipeline of 2 or 3 buffers; copies, and the waits for them, are placed by the compiler."""
    return Pipeline(slot_count)


__all__ = ["Blocks", "Context", "Index", "Pipeline", "context", "pipeline", "program", "range_n", "steps"]
