"""Shared memory of matrix kernels: where tiles and barriers are, and the descriptors by which dots read tiles."""

from __future__ import annotations

from tessera.backends.nvptx.gpus import SPAN
from tessera.backends.nvptx.hopper.assembly import number, op32
from tessera.backends.nvptx.tensor_cores import K_BYTES
from tessera.backends.nvptx.types import SharedAttr
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

_KINDS = {128: 1, 64: 2, 32: 3}
"""How a descriptor says the bytes of swizzled lines."""


@frozen
class Cursor:
    """A stage and the parity of its turn, both i32."""

    slot: Value
    phase: Value


@frozen
class SharedTile:
    """A swizzled tile: columns in spans of `swizzle` bytes, one span after the other, each of all rows."""

    offset: int
    rows: int
    columns: int
    dtype: DType
    stages: int
    swizzle: int = SPAN

    @staticmethod
    def of(op: SpecOp) -> SharedTile:
        type = op.results[0].type
        assert isinstance(type, SharedAttr)
        rows, columns = (dim.value or 0 for dim in type.shape)
        return SharedTile(op.value("offset"), rows, columns, type.dtype, op.value("stages"), op.value("swizzle"))

    @property
    def span_bytes(self) -> int:
        """Bytes from one span of columns to the next."""
        return self.rows * self.swizzle

    @property
    def span_columns(self) -> int:
        return self.swizzle // self.dtype.bytes

    @property
    def spans(self) -> int:
        return self.columns // self.span_columns

    @property
    def bytes(self) -> int:
        """Bytes of one stage."""
        return self.spans * self.span_bytes

    def address(self, f: FunctionText, base: Value, slot: Value, extra: int = 0) -> Value:
        """The shared address of a stage."""
        start = op32(f, "add", base, self.offset + extra)
        return start if self.stages == 1 else op32(f, "add", start, op32(f, "mul", slot, self.bytes))

    def along_k(self, f: FunctionText, address: Value) -> list[Value]:
        """Descriptors of all steps where rows are the dot's and columns are k."""
        first = _descriptor(f, address, 16, self.swizzle)
        steps = range(self.swizzle // K_BYTES)
        moves = [span * self.span_bytes + step * K_BYTES for span in range(self.spans) for step in steps]
        return [_moved(f, first, move) for move in moves]

    def across_k(self, f: FunctionText, address: Value) -> list[Value]:
        """Descriptors of all steps where rows are k and columns are the dot's."""
        first = _descriptor(f, address, self.span_bytes, self.swizzle)
        depth = K_BYTES // self.dtype.bytes
        return [_moved(f, first, step * depth * self.swizzle) for step in range(self.rows // depth)]


def _descriptor(f: FunctionText, address: Value, leading: int, swizzle: int) -> Value:
    """The 64-bit matrix descriptor: address, distance of spans, distance of eight rows, kind of swizzle."""
    fixed = (leading >> 4) << 16 | (8 * swizzle >> 4) << 32 | _KINDS[swizzle] << 62
    fixed -= (fixed >> 63) << 64  # as LLVM writes a number with a sign
    low = op32(f, "lshr", op32(f, "and", address, 0x3FFFF), 4)
    wide = f.raw("i64", f"zext {low} to i64")
    return f.raw("i64", f"or i64 {wide.text}, {fixed}")


def _moved(f: FunctionText, descriptor: Value, move: int) -> Value:
    return descriptor if move == 0 else f.raw("i64", f"add i64 {descriptor.text}, {move >> 4}")


@frozen
class Ring:
    """Stages of tiles: a barrier for each that says it is full, then one for each that says it is empty."""

    offset: int
    stages: int
    bytes: int

    def full(self, f: FunctionText, base: Value, cursor: Cursor) -> Value:
        """The address of a stage's barrier that TMA completes."""
        return self._barrier(f, base, cursor, self.offset)

    def empty(self, f: FunctionText, base: Value, cursor: Cursor) -> Value:
        """The address of a stage's barrier that consumers complete."""
        return self._barrier(f, base, cursor, self.offset + 8 * self.stages)

    def _barrier(self, f: FunctionText, base: Value, cursor: Cursor, offset: int) -> Value:
        start = op32(f, "add", base, offset)
        return start if self.stages == 1 else op32(f, "add", start, op32(f, "shl", cursor.slot, 3))

    def after(self, f: FunctionText, cursor: Cursor) -> Cursor:
        """The next stage."""
        turned = op32(f, "xor", cursor.phase, 1)
        if self.stages == 1:
            return Cursor(cursor.slot, turned)
        following = op32(f, "add", cursor.slot, 1)
        ends = f.icmp("eq", following, number(self.stages))
        return Cursor(f.select(ends, number(0), following), f.select(ends, turned, cursor.phase))
