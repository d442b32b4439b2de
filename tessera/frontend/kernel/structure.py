"""The frame of a kernel: the context of its schedule, loops over blocks, and this program's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tessera.frontend.kernel.builder import current
from tessera.frontend.kernel.places import NO_ROW, NO_ROW_FIX, TensorRef
from tessera.frontend.kernel.tiles import Extent, Index, Loop, NeedsNumber, dim_of
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
        """The whole last dim of the first tensor that has rows and columns."""
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

    def __init__(self, extent: Dim, size: int, letter: str, prefetch: int | None, *, is_whole: bool) -> None:
        self.extent, self.size, self.letter, self.prefetch = extent, size, letter, prefetch
        self.is_whole = is_whole
        self.starts: list[str] = []
        """The coordinates that stand for the first block before the loop begins."""

    @property
    def first(self) -> Loop:
        """The first block, for what is loaded before the loop; `first.next` is the one after it."""
        name = current().at_value("_first", Dim.constant(0))
        self.starts.append(name)
        return Loop(name, self.size, self.extent, is_whole=self.is_whole, is_ahead=True)

    def __iter__(self) -> Iterator[Loop]:
        return current().steps(self)


def range_n(shape: Any, size: Any, *, prefetch: int | None = None) -> Blocks:
    """Blocks of `size` along the rows of a shape, or along a size that is given alone.

    `prefetch` says how many blocks ahead to copy, where the machine copies ahead: 0 for none, and the machine's own
    choice where nothing is said. It never changes a result.
    """
    return _blocks(shape, -2, size, "_j", prefetch)


def range_k(shape: Any, size: Any, *, prefetch: int | None = None) -> Blocks:
    """Blocks of `size` along the columns of a shape, or along a size that is given alone."""
    return _blocks(shape, -1, size, "_k", prefetch)


def range_m(shape: Any, size: Any, *, prefetch: int | None = None) -> Blocks:
    """Blocks of `size` along the rows of a shape, or along a size that is given alone."""
    return _blocks(shape, -2, size, "_i", prefetch)


def steps(extent: Any, by: Any, *, prefetch: int | None = None) -> Blocks:
    """Steps of `by` along a size."""
    return _blocks(extent, -1, by, "_k", prefetch)


def _blocks(shape: Any, place: int, size: Any, letter: str, prefetch: int | None) -> Blocks:
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
    if prefetch is not None and (not isinstance(prefetch, int) or not 0 <= prefetch <= 8):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise b.fail(f"`prefetch` is 0..8 blocks, got {prefetch}")
    return Blocks(extent, int(size), letter, prefetch, is_whole=is_shape or extent.symbol_name is not None)


__all__ = ["Blocks", "Context", "Index", "context", "program", "range_n", "steps"]
