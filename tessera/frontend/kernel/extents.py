"""Numbers of a kernel that are not tiles: extents, steps of loops, indices, and where the axes of tiles lie."""

from __future__ import annotations

from typing import Any, Self

from tessera.diagnostics.codes import ScheduleError
from tessera.frontend.kernel.builder import current
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.schedule import Schedule

NO_ROW = ("a whole dim of 0 elements is no tile", "rule: a tile has at least one element along each axis")
NO_ROW_FIX = "do not call the kernel with rows of no elements, or loop over them with `tile.range_k`"


@frozen
class Axis:
    """Which elements an axis of a tile is: those from coordinate `name` on; `bound` is where they end, if they may.

    `dim` is the dim of the tensor that the axis lies along, where it is this program's own part of one.
    """

    name: str
    bound: Dim | None = None
    dim: Dim | None = None


class Extent(int):
    """A size of a block that knows which: `m` and `n` of the grid, `k` of a step, `d` a whole dim."""

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
                f"`T.{self.role}` is a size, and begins nowhere",
                "`T.m.start` and `T.n.start` are where this program's block begins, `k.start` where a step does",
            )
        return Index(Dim.symbol(b.declared_axis(self.role).name))


@frozen
class Loop:
    """Where a loop over blocks is in each step: a coordinate, the size of a step, and where it ends.

    `is_whole` says that it runs over a dim of a tensor, and so not over another dim of another size.
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
        """The block after this one; where it lies beyond the end, loads give `pad`."""
        b = current()
        if self.name not in b.coords:
            raise b.fail("the index of a loop is used after the loop has ended")
        return Loop(b.offset_coordinate(self.name, self.size), self.size, self.bound, self.is_whole, is_prefetch=True)


@frozen
class Index:
    """A whole number that is known when the kernel runs: a size, a coordinate, or arithmetic of them."""

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
        """What Python compares: a size is a number then, and what programs count is none yet."""
        if self.dim.symbols & set(current().coords):
            raise current().fail(
                f"`{self.dim}` is known only when the kernel runs, and Python compares when it is compiled",
                "compare tiles, such as `tile.col_index(step)`, and choose with `tile.where(condition, a, b)`",
            )
        return self.__index__()

    def __bool__(self) -> bool:
        raise current().fail(f"`{self.dim}` is known only when the kernel runs, and Python must know it now")

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
    """A dim must be a number for the kernel to be written: it is the size of a tile."""

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
            raise current().fail(f"`{index}` is a whole number that is known at run time, and {other} is not")
        return NotImplemented
    if method == "__rsub__":
        return index_of(given - index.dim)
    operation = method.replace("__r", "__") if method in ("__radd__", "__rmul__") else method
    return index_of(getattr(index.dim, operation)(given))


def index_of(dim: Dim) -> Any:
    """A dim as the language shows it: a number where it is one."""
    return Index(dim) if dim.value is None else dim.value


def dim_of(value: Any) -> Dim | None:
    """The dim that a value is, if it is one."""
    if isinstance(value, Index):
        return value.dim
    if isinstance(value, Dim):
        return value
    return Dim.constant(int(value)) if isinstance(value, int) and not isinstance(value, bool) else None


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
    return Context(b.schedule, b.whole_dim)


def program() -> tuple[Extent, Extent]:
    """This program's block of rows and of columns, as positions of `load` and `store` (the program id)."""
    found = context()
    return found.m, found.n
