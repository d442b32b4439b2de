"""Padding of wide rows to whole vectors.

A row of 1023 elements becomes one of 1024. Loads and stores along it get a bound; reductions and dots along it see
their identity beyond that bound; all other ops compute values there that nobody reads. The reduction tree stays the
same, since no power of two is between a width and the next multiple of `LANES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tessera.diagnostics.codes import KernelError
from tessera.diagnostics.span import Span
from tessera.ir.tile.records import INDEX, Body, KernelProgram, TileOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range
from tessera.types.tensor_type import TensorType

LANES = 16
"""Elements of the widest CPU vector (f32 in AVX-512), of which padded rows are multiples."""
NARROW = 256
"""Rows up to this width are unrolled element by element where they do not fill vectors."""
_COORDS = {"load": 1, "store": 2, "clip": 1, "coordinate": 0}
"""Ops with coordinates for the axes of a tile, and how many operands precede those."""


def pad_rows(program: KernelProgram) -> KernelProgram:
    """The same kernel with wide rows padded to whole vectors; it is modified in place."""
    widths = {size for type in program.types if isinstance(type, TensorType) for size in _sizes(type)}
    odd = {size for size in widths if size > NARROW and size % LANES}
    if odd:
        zeros = {op.results[0] for op in _ops(program.body) if _is_zero(op)}
        for op in _ops(program.body):
            odd -= set(_offset_sizes(program, op, zeros))
    if odd:
        _Padding(program, odd).run()
    return program


def check_width(program: KernelProgram, lanes: int, registers: int) -> None:
    """Raises KernelError (T0206) at a tile whose rows take more registers than code is unrolled for."""
    for op in _ops(program.body):
        for value in op.results:
            type = program.types[value]
            width = _sizes(type)[-1] if isinstance(type, TensorType) and type.rank else 0
            if width > registers * lanes:
                raise too_wide(width, registers * lanes, op.span)


def too_wide(width: int, most: int, span: Span | None) -> KernelError:
    """The error for a row that does not fit into the registers of a program."""
    return KernelError(
        f"a tile with rows of {width} elements is too wide: a program holds {most} on this machine",
        span=span,
        notes=(f"rule: a whole dim as a tile has at most {most} elements, and {width} > {most}",),
        fix="loop over the row in blocks, `for k in tile.range_k(x, T.k)`, and carry its maximum and its sum",
    )


def _sizes(type: TensorType) -> tuple[int, ...]:
    return tuple(dim.value or 0 for dim in type.shape)


def _ops(body: Body) -> Iterator[TileOp]:
    for op in body.ops:
        yield op
        if op.body is not None:
            yield from _ops(op.body)


def _tile_type(program: KernelProgram, op: TileOp) -> TensorType:
    return program.types[op.operands[0] if op.name == "store" else op.results[0]]


def _is_zero(op: TileOp) -> bool:
    return op.name == "index" and op.values["expr"] == Dim.constant(0)


def _offset_sizes(program: KernelProgram, op: TileOp, zeros: set[int]) -> Iterator[int]:
    """The sizes of axes that do not start at 0: blocks of the grid or of a loop, which must not overlap the next."""
    if op.name not in _COORDS:
        return
    known = dict(zip(op.values["coords"], op.operands[_COORDS[op.name] :], strict=False))
    for name, size in zip(op.values["axes"], _sizes(_tile_type(program, op)), strict=True):
        if known.get(name) not in zeros:
            yield size


class _Padding:
    """The padding of one kernel: tiles with axes of some sizes get longer."""

    def __init__(self, program: KernelProgram, odd: set[int]) -> None:
        self.program, self.odd = program, odd
        self.before: list[Any] = list(program.types)
        self.pads: dict[int, Any] = {}
        """The known value of elements beyond the end of a row."""

    def run(self) -> None:
        program = self.program
        program.types = [self._longer(type) if isinstance(type, TensorType) else type for type in self.before]
        self.zero = self._new(INDEX)
        self._body(program.body)
        program.body.ops.insert(0, TileOp("index", (), {"names": (), "expr": Dim.constant(0)}, (self.zero,)))

    def _longer(self, type: TensorType) -> TensorType:
        return TensorType.of([size + -size % LANES if size in self.odd else size for size in _sizes(type)], type.dtype)

    def _new(self, type: Any) -> int:
        self.program.types.append(type)
        self.before.append(type)
        return len(self.program.types) - 1

    def _body(self, body: Body) -> None:
        ops: list[TileOp] = []
        for op in body.ops:
            if op.body is not None:
                self._body(op.body)
            if op.name in ("load", "store"):
                op.values = {**op.values, "bounds": self._bounds(op)}
            if op.name == "load":
                self.pads[op.results[0]] = op.values["pad"]
            elif op.name in ("cast", "transpose") and self.pads.get(op.operands[0]) == 0:
                self.pads[op.results[0]] = 0
            elif op.name == "reduce":
                identity = _identity(op.values["kind"], self.before[op.operands[0]].dtype)
                op.operands = (self._cut(ops, op, 0, op.values["axis"], identity),)
            elif op.name == "dot":
                zeros = [0.0 if self.before[value].dtype.is_float else 0 for value in op.operands]
                left, right = (self._cut(ops, op, at, 1 - at, zeros[at]) for at in (0, 1))
                op.operands = (left, right, *op.operands[2:])
            ops.append(op)
        body.ops[:] = ops

    def _bounds(self, op: TileOp) -> tuple[Dim, ...]:
        type = self.before[op.operands[0] if op.name == "store" else op.results[0]]
        return tuple(
            Dim.constant(size) if size in self.odd and bound.value == -1 else bound
            for bound, size in zip(op.values["bounds"], _sizes(type), strict=True)
        )

    def _cut(self, ops: list[TileOp], op: TileOp, at: int, axis: int, identity: Any) -> int:
        """Operand `at` of an op with elements beyond the end of an axis replaced by `identity`."""
        value = op.operands[at]
        size = _sizes(self.before[value])[axis]
        # Compared as strings: -0.0 is not 0.0 to a sum.
        if size not in self.odd or (value in self.pads and repr(float(self.pads[value])) == repr(float(identity))):
            return value
        names = tuple(f"_w{number}" for number in range(self.before[value].rank))
        values = {
            "coords": names,
            "axes": names,
            "axis": names[axis],
            "bound": Dim.constant(size),
            "identity": identity,
        }
        result = self._new(self.before[value])
        self.program.types[result] = self.program.types[value]
        ops.append(TileOp("clip", (value, *[self.zero] * len(names)), values, (result,), op.span))
        return result


def _identity(kind: str, dtype: DType) -> Any:
    """The identity of a reduction, to the bit."""
    if kind in ("sum", "any"):
        return False if dtype.is_bool else -0.0 if dtype.is_float else 0
    if kind in ("prod", "all"):
        return True if dtype.is_bool else 1.0 if dtype.is_float else 1
    if dtype.is_float:
        return float("-inf") if kind == "max" else float("inf")
    low, high = integer_range(dtype)
    return low if kind == "max" else high
