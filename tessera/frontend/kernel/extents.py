"""Values of a kernel that are not tiles: block sizes, loop iterations, indices, axes of tiles, and the context."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from tessera.diagnostics.codes import KernelError, ScheduleError
from tessera.frontend.kernel.builder import UNKNOWN, KernelBuilder, current
from tessera.frontend.kernel.rows import NeedsNumber
from tessera.ir.tile.records import TileOp
from tessera.types.dim import Atom, Dim, maximum, minimum
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType

# Which indices a kernel may use, by interval arithmetic over symbolic sizes: the bounds of an index are expressions of
# sizes, found by replacing each coordinate, last defined first, by the end of its range at which the expression is
# largest or smallest. Last defined first, since the range of a coordinate may mention those defined before it. What is
# proved in bounds needs no mask in the generated code.

ZERO, ONE = Dim.constant(0), Dim.constant(1)


class IndexBounds:
    """Bounds of expressions over the coordinates in scope; None where no bound is found.

    Sizes are at least 0. Those that a loop or the grid runs over are at least 1, since an iteration is running;
    `afterwards`, once the kernel is built, all loops that it had count.
    """

    def __init__(self, b: KernelBuilder, *, afterwards: bool = False) -> None:
        coords = dict.fromkeys([*b.axes, "_z", *b.coordinate_names]) if afterwards else b.coords
        self.values = b.values
        self.ranges: dict[str, tuple[Dim, Dim]] = {}
        runs = dict(b.loop_extents)
        runs |= {axis.name: (axis.extent, axis.size) for axis in b.axes.values() if axis.extent != UNKNOWN}
        for name, (extent, step) in runs.items():
            if name in coords:
                self.ranges[name] = (ZERO, _last(extent, step))
        self.ranges |= {name: ends for name, ends in b.coordinate_ranges.items() if name in coords}
        self.order = [name for name in coords if name in self.ranges or name in self.values]
        self.unknown = set(coords) - set(self.order)
        named = (extent.symbol_name for name, (extent, _) in runs.items() if name in self.ranges)
        self.positive = {size for size in named if size is not None and size not in coords}

    def is_inside(self, at: Dim, extent: Dim) -> bool:
        """Whether `0 <= at < extent` follows."""
        low, high = self.end(at, up=False), self.end(at, up=True)
        return low is not None and high is not None and self._natural(low) and self._natural(extent - ONE - high)

    def is_natural(self, at: Dim) -> bool:
        """Whether `0 <= at` follows."""
        low = self.end(at, up=False)
        return low is not None and self._natural(low)

    def end(self, expr: Dim, *, up: bool) -> Dim | None:
        """The upper or lower bound of an expression, over sizes only; None where none is found."""
        found: Dim | None = expr
        for name in reversed(self.order):
            found = self._replace_by_bounds(found, up)
            if found is None:
                return None
            if name not in found.symbols:
                continue
            if name in self.values:
                found = found.substitute({name: self.values[name]})
                continue
            parts = found.coefficient(name)
            if parts is None:
                return None
            factor, remainder = parts
            low, high = self.ranges[name]
            if self._natural(factor):
                found = factor * (high if up else low) + remainder
            elif self._natural(-factor):
                found = factor * (low if up else high) + remainder
            else:
                return None
        found = self._replace_by_bounds(found, up)
        return None if found is None or found.symbols & self.unknown else found

    def _replace_by_bounds(self, expr: Dim | None, up: bool) -> Dim | None:
        """The expression with `//`, `%`, `max` and `min` of coordinates replaced by their bounds."""
        if expr is None:
            return None
        total: Dim = ZERO
        for monomial, coefficient in expr.terms:
            whole = Dim(((monomial, 1),))
            if any(atom.kind != "symbol" and self._moves(Dim((((atom,), 1),))) for atom in monomial):
                end = self._atom(monomial[0], up == (coefficient > 0)) if len(monomial) == 1 else None
                if end is None:
                    return None
                whole = end
            total = total + whole * coefficient
        return total

    def _moves(self, expr: Dim) -> bool:
        return bool(expr.symbols & (set(self.order) | self.unknown))

    def _atom(self, atom: Atom, up: bool) -> Dim | None:
        first, second = atom.args
        if atom.kind == "mod" and second.value is not None and second.value > 0:
            return second - ONE if up else ZERO
        left, right = self.end(first, up=up), self.end(second, up=up)
        if atom.kind == "floordiv" and second.value is not None and second.value > 0:
            return None if left is None else left // second
        if atom.kind not in ("min", "max"):
            return None
        if left is not None and right is not None:
            return minimum(left, right) if atom.kind == "min" else maximum(left, right)
        # min(a, b) is at most either, max(a, b) at least either.
        either = right if left is None else left
        return either if up == (atom.kind == "min") else None

    def _natural(self, expr: Dim) -> bool:
        counted = expr.substitute({name: Dim.symbol(name) + ONE for name in self.positive})
        return self._has_no_minus(counted)

    def _has_no_minus(self, expr: Dim) -> bool:
        return all(
            coefficient >= 0 and all(self._is_natural_atom(atom) for atom in monomial)
            for monomial, coefficient in expr.terms
        )

    def _is_natural_atom(self, atom: Atom) -> bool:
        if atom.kind == "symbol":
            return atom.name not in self.unknown
        if atom.kind == "max":
            return any(self._has_no_minus(arg) for arg in atom.args)
        return all(self._has_no_minus(arg) for arg in atom.args)


def _last(extent: Dim, step: int) -> Dim:
    """The last value of a loop coordinate that starts at 0, or an upper bound of it."""
    if extent.value is None:
        return extent - ONE
    return Dim.constant(max(0, -(-extent.value // step) - 1) * step)


# Overflow of index arithmetic. Row and column indices are i64, which holds every index. Where a kernel computes indices
# in a narrower dtype, they are followed back to what they are computed from; expressions that grow with coordinates and
# sizes reach their maximum at the last element, so an overflow is proved and not guessed.

WIDE = 64
"""Bits of a dtype that holds every index."""


def check_positions(b: KernelBuilder) -> None:
    """Require that index tiles, and all they are computed from, fit their dtypes: proved, refuted, or guarded."""
    for name, number in dict.fromkeys(b.positions):
        _check(b, name, number)


def _check(b: KernelBuilder, name: str, number: int) -> None:
    follower = _OverflowCheck(b)
    follower.end(number)
    for op, dtype, end in follower.narrow:
        last = (1 << dtype.bits - (dtype.kind == "int")) - 1
        if end.value is not None and end.value > last:
            raise KernelError(
                f"indices into `{name}` are computed in {dtype}, whose maximum is {last}, and reach {end}",
                span=op.span,
                notes=("rule: index arithmetic does not overflow",),
                fix="compute in i64: `tile.row_index()` and `tile.col_index(step)` do, and `tile.cast(x, i64)`",
            )
        if end.value is None and not follower.is_within_another(dtype, end):
            b.require_equal(
                minimum(end, last), end, f"indices into `{name}` are computed in {dtype}, whose maximum is {last}"
            )


class _OverflowCheck:
    """Follows a tile back to its operands; `narrow` are the ops whose dtype may be too narrow."""

    def __init__(self, b: KernelBuilder) -> None:
        self.b, self.reach = b, IndexBounds(b, afterwards=True)
        self.narrow: list[tuple[TileOp, DType, Dim]] = []
        self._ends: dict[int, Dim | None] = {}

    def end(self, number: int) -> Dim | None:
        """The maximum of a non-negative integer tile; None where that is unknown."""
        if number not in self._ends:
            self._ends[number] = None
            self._ends[number] = self._end(number)
        return self._ends[number]

    def is_within_another(self, dtype: DType, end: Dim) -> bool:
        """Whether an op of the same dtype has a larger maximum, for all sizes."""
        others = [other for _, found, other in self.narrow if found is dtype and other != end]
        return any(self.reach.is_natural(other - end) for other in others)

    def _end(self, number: int) -> Dim | None:
        op, type = self.b.makers.get(number), self.b.types[number]
        if op is None or not isinstance(type, TensorType) or not type.dtype.is_integer:
            return None
        found = self._end_of(op)
        if found is not None and type.dtype.bits < WIDE and op.name != "constant":
            self.narrow.append((op, type.dtype, found))
        return found

    def _end_of(self, op: TileOp) -> Dim | None:
        if op.name == "coordinate":
            return self._find_coordinate_end(op)
        if op.name == "constant":
            value = op.values["value"]
            return Dim.constant(int(value)) if value >= 0 else None
        ends = [self.end(operand) for operand in op.operands]
        known = [end for end in ends if end is not None]
        if len(known) != len(ends) or not known:
            return None
        if op.name in ("cast", "broadcast"):
            return known[0]
        rule = _GROWING.get(str(op.values.get("fn"))) if op.name == "elementwise" and len(known) == 2 else None
        return None if rule is None else rule(*known)

    def _find_coordinate_end(self, op: TileOp) -> Dim | None:
        """The maximum of an expression over coordinates, those of axes at their last element."""
        expr: Dim = op.values["expr"]
        last: dict[str, Dim] = {}
        for axis in op.values["axes"]:
            extent = self._extent(axis)
            if axis in expr.symbols and extent is None:
                return None
            last[axis] = Dim.constant(0) if extent is None else extent - ONE
        parts = [expr.coefficient(axis) for axis in last if axis in expr.symbols]
        if any(part is None or not self.reach.is_natural(part[0]) for part in parts) or not self.reach.is_natural(expr):
            return None
        return self.reach.end(expr.substitute(last), up=True)

    def _extent(self, axis: str) -> Dim | None:
        """The extent of an axis: of the grid, or of its loop."""
        if axis in self.b.loop_extents:
            return self.b.loop_extents[axis][0]
        found = self.b.axes.get(axis)
        return None if found is None or found.extent.value == -1 else found.extent


_GROWING: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "add": operator.add,
    "mul": operator.mul,
    "max": maximum,
    "min": minimum,
}
"""Functions that are monotone in both operands: the maximum of the result is that of the maxima."""


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


class ScheduleInt(int):
    """An integer of the schedule, or computed from some: `roles` says of which. Results may not depend on it."""

    roles: frozenset[str]

    def __new__(cls, value: int, roles: Any) -> Self:
        made = super().__new__(cls, value)
        made.roles = frozenset(roles)
        return made


class ScheduleFloat(float):
    """A float that is computed from numbers of the schedule."""

    roles: frozenset[str]

    def __new__(cls, value: float, roles: Any) -> Self:
        made = super().__new__(cls, value)
        made.roles = frozenset(roles)
        return made


def roles_of(*values: Any) -> frozenset[str]:
    """What values of the schedule numbers are computed from."""
    return frozenset[str]().union(*(getattr(value, "roles", ()) for value in values))


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a float, of Python or of NumPy."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def with_roles(value: Any, roles: frozenset[str]) -> Any:
    """A number with the numbers of the schedule that it is computed from."""
    if not roles or not is_number(value):
        return value
    kind: Any = ScheduleInt if isinstance(value, int | np.integer) else ScheduleFloat
    return kind(value, roles)


class Extent(ScheduleInt):
    """A block size with its role: `m` and `n` of the grid, `k` of a loop step, `d` a whole dim."""

    role: str

    def __new__(cls, size: int, role: str) -> Self:
        made = super().__new__(cls, size, () if role == "d" else (role,))
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


class RowExtent(Extent):
    """The size of a tile that holds a whole dim and may be longer: `dim` is how many elements count.

    It is a position and a size of tiles. Where a kernel computes with it, the dim itself must be static.
    """

    dim: Dim

    def __new__(cls, size: int, dim: Dim) -> Self:
        made = super().__new__(cls, size, "d")
        made.dim = dim
        return made


def check_static(*values: Any) -> None:
    """Raises NeedsNumber where a value, or one in a tuple, is the size of a tile that may be longer than its dim."""
    for value in values:
        if isinstance(value, RowExtent):
            raise NeedsNumber(value.dim)
        if isinstance(value, tuple | list):
            items: Any = value  # pyright: ignore[reportUnknownVariableType]
            check_static(*items)


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


def _operator(
    fn: str, combine: Callable[[Dim, Dim], Dim], *, is_reflected: bool = False
) -> Callable[[Index, Any], Any]:
    """The method of an operator: of an index and a number an index, of an index and a tile a tile."""

    def method(self: Index, other: Any) -> Any:
        from tessera.frontend.kernel.tiles import Tile, binary  # noqa: PLC0415 - which are made with these

        if isinstance(other, Tile):
            return binary(fn, other, self) if is_reflected else binary(fn, self, other)
        given = dim_of(other)
        if given is None:
            if isinstance(other, float):
                raise current().fail(f"`{self}` is an integer known at run time, and {other} is not an integer")
            return NotImplemented
        left, right = (given, self.dim) if is_reflected else (self.dim, given)
        if fn in ("floordiv", "mod"):
            _check_divisor(right)
        return index_of(combine(left, right))

    return method


def _check_divisor(divisor: Dim) -> None:
    """Raises unless a divisor is a size or known to be above zero: the start of the first block is zero."""
    b = current()
    is_moving = bool(divisor.symbols & set(b.coords))
    if divisor == ZERO or (is_moving and not IndexBounds(b).is_natural(divisor - ONE)):
        why = "may be zero when the kernel runs" if is_moving else "is zero"
        raise b.fail(f"`//` and `%` divide by `{divisor}`, which {why}", "divide by a number or a size")


def _refuse_operator(symbol: str) -> Callable[..., Any]:
    """The method of an operator that indices do not have; tiles have it."""

    def method(self: Index, *other: Any) -> Any:
        from tessera.frontend.kernel.tiles import Tile  # noqa: PLC0415 - which are made with these

        if any(isinstance(one, Tile) for one in other):
            return NotImplemented
        raise current().fail(
            f"`{self}` is an integer known at run time, and `{symbol}` is none of its operators",
            "indices have `+ - * // %`; for others make a tile of them, as `tile.col_index(step)` does",
        )

    return method


@frozen
class Index:
    """An integer known when the kernel runs: a size, a coordinate, or arithmetic of them."""

    dim: Dim

    __add__, __radd__ = _operator("add", Dim.__add__), _operator("add", Dim.__add__, is_reflected=True)
    __sub__, __rsub__ = _operator("sub", Dim.__sub__), _operator("sub", Dim.__sub__, is_reflected=True)
    __mul__, __rmul__ = _operator("mul", Dim.__mul__), _operator("mul", Dim.__mul__, is_reflected=True)
    __floordiv__ = _operator("floordiv", Dim.__floordiv__)
    __rfloordiv__ = _operator("floordiv", Dim.__floordiv__, is_reflected=True)
    __mod__, __rmod__ = _operator("mod", Dim.__mod__), _operator("mod", Dim.__mod__, is_reflected=True)
    __truediv__ = __rtruediv__ = _refuse_operator("/")
    __pow__ = __rpow__ = _refuse_operator("**")
    __matmul__ = __rmatmul__ = _refuse_operator("@")
    __lshift__ = __rlshift__ = _refuse_operator("<<")
    __rshift__ = __rrshift__ = _refuse_operator(">>")
    __and__ = __rand__ = _refuse_operator("&")
    __or__ = __ror__ = _refuse_operator("|")
    __xor__ = __rxor__ = _refuse_operator("^")
    __invert__ = _refuse_operator("~")

    def __neg__(self) -> Any:
        return 0 - self

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
        given = self.schedule.d
        if self._whole.value is None:
            if given is not None:
                raise NeedsNumber(self._whole)
            return RowExtent(current().row_size(self._whole), self._whole)
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
        return ScheduleInt(self.schedule.vector or 0, ("vector",))

    @property
    def warps(self) -> int:
        """Warps of a program; 0 lets the compiler choose."""
        return ScheduleInt(self.schedule.warps or 0, ("warps",))

    @property
    def stages(self) -> int:
        """Pipeline stages; 0 lets the compiler choose."""
        return ScheduleInt(self.schedule.stages or 0, ("stages",))

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
