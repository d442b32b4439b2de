"""Values of a kernel that are not tiles: block sizes, loop iterations, indices, axes of tiles, and the context."""

from __future__ import annotations

from typing import Any, Self

from tessera.diagnostics.codes import ScheduleError
from tessera.frontend.kernel.builder import current
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.schedule import Schedule

NO_ROW = ("a dim of 0 elements cannot be a tile", "rule: a tile has at least one element along each axis")
NO_ROW_FIX = "do not call the kernel with rows of no elements, or loop over them with `tile.range_k`"


@frozen
class Axis:
    """The elements that an axis of a tile covers: from coordinate `name` on; `bound` is their end, if any.

    `dim` is the dim of the tensor, where the axis is this program's block of it.
    """

    name: str
    bound: Dim | None = None
    dim: Dim | None = None


class Extent(int):
    """A block size with its role: `m` and `n` of the grid, `k` of a loop step, `d` a whole dim."""

    role: str

    def __new__(cls, size: int, role: str) -> Self:
        made = super().__new__(cls, size)
        made.role = role
        return made

    @property
    def start(self) -> Index:
        """The first element of this program's block of rows (`T.m`) or columns (`T.n`)."""
        b = current()
        if self.role not in ("m", "n"):
            raise b.fail(
                f"`T.{self.role}` is a size, and has no start",
                "`T.m.start` and `T.n.start` are the start of this program's block, `k.start` that of a loop step",
            )
        return Index(Dim.symbol(b.declared_axis(self.role).name))


@frozen
class Loop:
    """The index of a loop over blocks: its coordinate, step and bound.

    `is_whole` where it runs over a dim of a tensor, which dims indexed by it must equal.
    """

    name: str
    size: int
    bound: Dim
    is_whole: bool = False
    is_prefetch: bool = False

    @property
    def start(self) -> Index:
        """The first element of the block."""
        return Index(Dim.symbol(self.name))

    @property
    def next(self) -> Loop:
        """The next block; out of bounds, loads return `pad`."""
        b = current()
        if self.name not in b.coords:
            raise b.fail("the index of a loop is used after the loop has ended")
        return Loop(b.offset_coordinate(self.name, self.size), self.size, self.bound, self.is_whole, is_prefetch=True)


@frozen
class Index:
    """An integer known when the kernel runs: a size, a coordinate, or arithmetic of them."""

    dim: Dim

    def __add__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__add__", "add")

    def __radd__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__radd__", "add")

    def __sub__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__sub__", "sub")

    def __rsub__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__rsub__", "sub")

    def __mul__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__mul__", "mul")

    def __rmul__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__rmul__", "mul")

    def __floordiv__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__floordiv__", "floordiv")

    def __mod__(self, other: Any) -> Any:
        return _arithmetic(self, other, "__mod__", "mod")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int) and not isinstance(other, bool):
            return self._number() == other
        return self.dim == other.dim if isinstance(other, Index) else NotImplemented

    def __lt__(self, other: int) -> bool:
        return self._number() < other

    def __le__(self, other: int) -> bool:
        return self._number() <= other

    def __gt__(self, other: int) -> bool:
        return self._number() > other

    def __ge__(self, other: int) -> bool:
        return self._number() >= other

    def _number(self) -> int:
        """The number that Python compares: sizes are specialized for it, coordinates have none at compile time."""
        if self.dim.symbols & set(current().coords):
            raise current().fail(
                f"`{self.dim}` is known only at run time, and Python compares at compile time",
                "compare tiles, such as `tile.col_index(step)`, and choose with `tile.where(condition, a, b)`",
            )
        return self.__index__()

    def __bool__(self) -> bool:
        raise current().fail(f"`{self.dim}` is known only at run time, and Python needs it at compile time")

    def __index__(self) -> int:
        value = self.dim.value
        if value is None:
            raise NeedsNumber(self.dim)
        return value

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __str__(self) -> str:
        return str(self.dim)


class NeedsNumber(Exception):  # noqa: N818 - a request, which the front end answers
    """Raised where a dim must be static, as the size of a tile is: the front end specializes it and starts again."""

    def __init__(self, dim: Dim) -> None:
        super().__init__(str(dim))
        self.dim = dim


def _arithmetic(index: Index, other: Any, method: str, fn: str) -> Any:
    from tessera.frontend.kernel.tiles import Tile, binary  # noqa: PLC0415 - which are made with these

    if isinstance(other, Tile):
        return binary(fn, other, index) if method.startswith("__r") else binary(fn, index, other)
    given = dim_of(other)
    if given is None:
        if isinstance(other, float):
            raise current().fail(f"`{index}` is an integer known at run time, and {other} is not an integer")
        return NotImplemented
    if method == "__rsub__":
        return index_of(given - index.dim)
    operation = method.replace("__r", "__") if method in ("__radd__", "__rmul__") else method
    return index_of(getattr(index.dim, operation)(given))


def index_of(dim: Dim) -> Any:
    """A dim as the kernel language shows it: an int where it is static."""
    return Index(dim) if dim.value is None else dim.value


def dim_of(value: Any) -> Dim | None:
    """The dim of an int, an index or a dim; None for any other value."""
    if isinstance(value, Index):
        return value.dim
    if isinstance(value, Dim):
        return value
    return Dim.constant(int(value)) if isinstance(value, int) and not isinstance(value, bool) else None


class Context:
    """The schedule of the kernel: `m`, `n`, `k`, `d` are block sizes with their roles."""

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
        """The K block of a loop step."""
        return self._size("k")

    @property
    def d(self) -> Extent:
        """The whole last dim of the first tensor that has rows and columns."""
        if self._whole is None:
            raise current().fail("`T.d` is the last dim of the first tensor, and the kernel has no tensor")
        if self._whole.value is None:
            raise NeedsNumber(self._whole)
        given = self.schedule.d
        if given is not None and given != self._whole.value:
            raise ScheduleError(
                f"the schedule has d={given}, but that dim has {self._whole} elements",
                span=current().span,
                fix=f"omit `d`, or write d={self._whole}",
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
        """Pipeline stages; 0 lets the compiler choose."""
        return self.schedule.stages or 0

    def _size(self, role: str) -> Extent:
        size = getattr(self.schedule, role)
        assert size is not None, "a schedule is completed before a kernel is written"
        return Extent(size, role)


def context() -> Context:
    """The context of the kernel: its block sizes and schedule."""
    b: Any = current()
    return Context(b.schedule, b.whole_dim)


def program() -> tuple[Extent, Extent]:
    """This program's block of rows and columns, as indices for `load` and `store`."""
    found = context()
    return found.m, found.n
