"""`KernelBuilder`: the tile ops of a kernel as they are emitted, its grid, and the coordinates that accesses use."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tessera.diagnostics.codes import KernelError, ShapeError
from tessera.diagnostics.error import HERE, Span
from tessera.frontend.kernel.rows import NeedsNumber, below
from tessera.ir.tile.records import INDEX, Body, Memory, TileOp
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.frozen import frozen
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType

# The grid of a triangular result. Row `r` of a lower triangle of `R` rows has `min(r + 1, C)` blocks, so a full grid
# leaves half of its programs idle. Rows `p` and `R - 1 - p` together have about `R + 1` blocks, whatever `p` is:
# pairing a short row with a long one gives a dense grid of `R / 2` by `R + 1` programs.


def has_square_blocks(b: Any) -> bool:
    """Whether blocks are square, so that rows of a triangle can be paired."""
    axes = b.axes
    return b.schedule.triangular is not None and {"_m", "_n"} <= axes.keys() and axes["_m"].size == axes["_n"].size


def triangular_grid(b: Any, first: int) -> tuple[list[TileOp], tuple[Dim, ...]]:
    """The ops that compute a program's row and column in a triangle, and the last two grid axes."""
    is_lower = b.schedule.triangular == "lower"
    long, across = (b.axes["_m"], b.axes["_n"]) if is_lower else (b.axes["_n"], b.axes["_m"])
    rows, columns = long.blocks, across.blocks
    p, q = Dim.symbol("_p"), Dim.symbol("_q")
    count = minimum(p + 1, columns)
    is_second = minimum(1, maximum(0, q + 1 - count))
    apart = rows - 1 - 2 * p
    # The middle row of an odd count would be paired with itself: its second half is moved out of bounds.
    row = p + is_second * apart + is_second * rows * maximum(0, 1 - apart)
    column = q - is_second * count
    ids = [b.new(INDEX), b.new(INDEX)]
    ops = [TileOp("program_id", (), {"axis": first + at}, (id_,)) for at, id_ in enumerate(ids)]
    for axis, expr in ((long, row), (across, column)):
        values = {"names": ("_p", "_q"), "expr": expr * axis.size}
        ops.append(TileOp("index", tuple(ids), values, (b.coords[axis.name],)))
    return ops, (rows.ceildiv(2), minimum(rows + 1, 2 * columns))


_CURRENT: ContextVar[KernelBuilder] = ContextVar("kernel")


def current() -> KernelBuilder:
    """The kernel being built or run; raises outside of one."""
    found = _CURRENT.get(None)
    if found is None:
        raise KernelError(
            "a function of `tile` was called outside of a kernel",
            fix="call it in a function with `@kernel`; on whole tensors use `tessera.ops`",
        )
    return found


UNKNOWN = Dim.constant(-1)
"""The extent of a grid axis that nothing was loaded or stored along yet."""


@frozen
class ProgramAxis:
    """An axis of the grid: `blocks` of `size` along `extent`."""

    name: str
    extent: Dim
    size: int

    @property
    def blocks(self) -> Dim:
        return self.extent if self.size == 1 and self.name.startswith("_b") else self.extent.ceildiv(self.size)


class BlockUses:
    """What a kernel does with block sizes: `block_scope` checks that no result depends on them."""

    def __init__(self) -> None:
        self.starts: dict[int, Any] = {}
        """Starts of blocks of loops and slices, by value: coordinates with the role of their size in the schedule."""
        self.sized: dict[int, tuple[str, ...]] = {}
        """Constants by value: for each axis the block of the schedule that it is as long as, or nothing."""
        self.fixed: dict[str, None] = {}
        """Blocks that the author fixed for numbers of the schedule."""
        self.rows: dict[Dim, int] = {}
        """The elements of tiles that hold a whole symbolic dim, by dim."""
        self.loops: dict[int, Dim] = {}
        """Steps of loops over blocks, by value: the extent that they run over."""


class KernelBuilder:
    """One kernel under construction; values are numbers into `types`."""

    rank_span: Span | None = None
    """Where the kernel asks for its rank, if it does."""

    def __init__(
        self, name: str, arguments: Sequence[TensorType], schedule: Schedule, sizes: Mapping[str, int]
    ) -> None:
        self.name, self.schedule, self.sizes, self.inputs = name, schedule, sizes, len(arguments)
        self.types: list[Any] = [Memory(type) for type in arguments]
        self.makers: dict[int, TileOp] = {}
        """The op that makes each value."""
        self.prologue: list[TileOp] = []
        self.body = Body()
        self.span: Span | None = None
        self.is_native = False
        """Whether ops are executed as they are emitted."""
        self.axes: dict[str, ProgramAxis] = {}
        """Axes of the grid by the name of their coordinate: `_b0`, ..., then `_m` and `_n`."""
        self.coords: dict[str, int] = {}
        """The value of every coordinate that index expressions may use."""
        self.loops: list[str] = []
        self.numeric: dict[str, None] = {}
        self.has_stores = self.has_dots = self.is_triangle = False
        """`is_triangle`: whether all results are in the triangle of the schedule."""
        self.equalities: list[tuple[Dim, Dim, str]] = []
        self.whole_dim: Dim | None = None
        """The dim of `T.d`."""
        self.key: Any = None
        """The random key, if the kernel takes one."""
        self.result_buffers: list[Any] = []
        """The results of the kernel, in order."""
        self.zeroed: dict[int, None] = {}
        """Which results are zero-initialized."""
        self.offsets: dict[str, tuple[str, int]] = {}
        """Coordinates at a constant offset from another: by name, the other one and the offset."""
        self.loop_extents: dict[str, tuple[Dim, int]] = {}
        """Coordinates of loops: by name, extent and step."""
        self.values: dict[str, Dim] = {}
        """Coordinates defined by an expression of earlier ones."""
        self.coordinate_ranges: dict[str, tuple[Dim, Dim]] = {}
        """Coordinates of which only bounds are known: lower and upper."""
        self.coordinate_names: list[str] = []
        """All coordinates in order of creation, those of finished loops too."""
        self.positions: list[tuple[str, int]] = []
        """Integer tiles used as indices, each with the name of the indexed tensor."""
        self.blocks = BlockUses()
        self._names: dict[str, int] = {}

    # Values and ops.

    def new(self, type: Any) -> int:
        self.types.append(type)
        return len(self.types) - 1

    def emit(
        self,
        name: str,
        operands: Sequence[int] = (),
        values: Mapping[str, Any] | None = None,
        types: Sequence[Any] = (),
    ) -> tuple[int, ...]:
        """Append an op to the current body."""
        results = tuple(self.new(type) for type in types)
        self.add(TileOp(name, tuple(operands), dict(values or {}), results, self.span))
        return results

    def add(self, op: TileOp) -> None:
        self.body.ops.append(op)
        self.makers.update(dict.fromkeys(op.results, op))

    def tile(self, name: str, operands: Sequence[int], values: Mapping[str, Any], type: TensorType) -> int:
        return self.emit(name, operands, values, [type])[0]

    def emit_first(self, name: str, operands: Sequence[int], values: Mapping[str, Any], type: Any) -> int:
        """A value computed once, in the prologue of the kernel."""
        result = self.new(type)
        self.prologue.append(TileOp(name, tuple(operands), dict(values), (result,), self.span))
        return result

    def result_memory(self, type: TensorType) -> int:
        """Memory for one more result."""
        return self.new(Memory(type))

    def steps(self, over: Any) -> Iterator[Any]:
        """The iterations of a loop, for the interpreter; the front end emits a loop op instead."""
        raise self.fail("this loop over blocks is not in the source of a kernel", "loop in the kernel itself")

    def fail(self, message: str, fix: str = "", *notes: str) -> KernelError:
        return KernelError(message, span=self.span or HERE, notes=notes, fix=fix or None)

    def misfit(self, message: str, *notes: str, fix: str = "") -> ShapeError:
        return ShapeError(message, span=self.span or HERE, notes=notes, fix=fix or None)

    # Coordinates.

    def fresh_name(self, name: str) -> str:
        """A fresh name of a coordinate."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        self.coordinate_names.append(f"{name}{count}" if count else name)
        return self.coordinate_names[-1]

    def index(self, expr: Dim) -> int:
        """The index value of an expression over coordinates and sizes."""
        used = [name for name in self.coords if name in expr.symbols]
        return self.emit("index", [self.coords[n] for n in used], {"names": tuple(used), "expr": expr}, [INDEX])[0]

    def define_coordinate(self, name: str, expr: Dim) -> str:
        """A new coordinate defined by an expression; its scope ends with the enclosing loop."""
        made = self.fresh_name(name)
        self.coords[made], self.values[made] = self.index(expr), expr
        if self.loops:
            self.loops.append(made)
        return made

    def offset_coordinate(self, name: str, by: int) -> str:
        """The coordinate `by` elements after another, one per offset."""
        start, on = self.offsets.get(name, (name, 0))
        by += on
        if not by:
            return start
        for known, offset in self.offsets.items():
            if offset == (start, by) and known in self.coords:
                return known
        made = self.define_coordinate(f"{start}_next", Dim.symbol(start) + by)
        self.offsets[made] = (start, by)
        return made

    def zero(self) -> str:
        """The coordinate that is always 0."""
        if "_z" not in self.coords:
            self.coords["_z"] = self.emit_first("index", (), {"names": (), "expr": Dim.constant(0)}, INDEX)
            self.values["_z"] = Dim.constant(0)
        return "_z"

    def batch_axis(self, number: int, extent: Dim) -> str:
        """The coordinate of a batch dim: one program per element."""
        return self._axis(f"_b{number}", extent, 1)

    def program_axis(self, role: str, extent: Dim, size: int) -> str:
        """The first row (`m`) or column (`n`) of this program's block."""
        return self._axis(f"_{role}", extent, size)

    def declared_axis(self, role: str) -> ProgramAxis:
        """An axis of the grid, perhaps before its extent is known."""
        name = f"_{role}"
        if name not in self.axes:
            self._axis(name, UNKNOWN, int(getattr(self.extents(), role)))
        return self.axes[name]

    def _axis(self, name: str, extent: Dim, size: int) -> str:
        known = self.axes.get(name)
        if known is not None and known.extent == UNKNOWN:
            self.axes[name] = ProgramAxis(name, extent, known.size)
            return name
        if known is None:
            self.axes[name] = ProgramAxis(name, extent, size)
            self.coords[name] = self.new(INDEX)
            self._names.setdefault(name, 1)
        elif known.extent != extent:
            self._require_equal(known.extent, extent, f"`{name[1:]}` of the grid runs over both")
        return name

    def _require_equal(self, left: Dim, right: Dim, what: str) -> None:
        difference = (left - right).value
        if difference is not None and difference != 0:
            raise self.misfit(f"{what}: {left} and {right} differ")
        if difference is None:
            self.equalities.append((left, right, what))

    def coordinate_roles(self, name: str) -> frozenset[str]:
        """Which blocks of the schedule the steps of a coordinate are."""
        if name in ("_m", "_n"):
            return frozenset([name[1:]])
        found = self.blocks.starts.get(self.coords.get(name, -1))
        return frozenset(found.role.split(",")) if found is not None else frozenset()

    def row_size(self, dim: Dim) -> int:
        """The elements of a tile that holds a whole symbolic dim; raises NeedsNumber where nothing says how many."""
        size = self.blocks.rows.get(dim)
        if size is None:
            raise NeedsNumber(dim, is_row=True)
        least = below(size) + 1 if dim.symbol_name is not None else 1
        rule = f"a tile of {size} elements holds rows of {least} to {size}, and `{dim}` is the length of one"
        for left in (minimum(dim, size), maximum(dim, least)):
            if (left, dim, rule) not in self.equalities:
                self.require_equal(left, dim, rule)
        return size

    def require_equal(self, left: Dim, right: Dim, what: str) -> None:
        """Require two dims to be equal: proved, refuted, or recorded as a guard."""
        if left != right:
            self._require_equal(left, right, what)

    def require_one_block(self, axis: ProgramAxis, what: str, least: int = 0) -> None:
        """Guard that one block holds a dim of at least `least`; bounds, since an equality would specialize to 1."""
        for left in (minimum(axis.extent, axis.size), maximum(axis.extent, least)):
            self.require_equal(left, axis.extent, what)

    def grid(self) -> tuple[list[TileOp], tuple[Dim, ...]]:
        """The ops that compute a program's coordinates, and the grid: batch dims, then rows, then columns."""
        names = sorted(self.axes, key=lambda name: (not name.startswith("_b"), name))
        for name in names:
            if self.axes[name].extent == UNKNOWN:
                raise self.fail(f"nothing is loaded or stored along `{name[1:]}`, so its index is undefined")
        ops: list[TileOp] = []
        if self.is_triangle and has_square_blocks(self):
            batch = [name for name in names if name.startswith("_b")]
            for number, name in enumerate(batch):
                ops.append(TileOp("program_id", (), {"axis": number}, (self.coords[name],)))
            triangle, grid = triangular_grid(self, len(batch))
            return [*ops, *triangle], (*(self.axes[name].blocks for name in batch), *grid)
        for number, name in enumerate(names):
            axis, result = self.axes[name], self.coords[name]
            if name.startswith("_b"):
                ops.append(TileOp("program_id", (), {"axis": number}, (result,)))
                continue
            block = self.new(INDEX)
            ops.append(TileOp("program_id", (), {"axis": number}, (block,)))
            values = {"names": (name,), "expr": Dim.symbol(name) * axis.size}
            ops.append(TileOp("index", (block,), values, (result,)))
        return ops, tuple(self.axes[name].blocks for name in names)

    def extents(self) -> Any:
        """The value of `tile.context()`."""
        from tessera.frontend.kernel.extents import Context  # noqa: PLC0415 - it is written with tiles

        return Context(self.schedule, self.whole_dim)

    # Scopes.

    @contextmanager
    def active(self) -> Generator[None]:
        """Within it, functions of `tile` emit into this kernel."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def inside(self, body: Body, *names: str) -> Generator[None]:
        """Within it, ops are emitted into the body of a loop; its coordinates end with it."""
        outer, self.body = self.body, body
        before = len(self.loops)
        self.loops += names
        try:
            yield
        finally:
            self.body = outer
            for name in self.loops[before:]:
                del self.coords[name]
            del self.loops[before:]
