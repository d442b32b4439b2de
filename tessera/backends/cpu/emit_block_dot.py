"""`ttarget.block_dot` as LLVM text: operands packed as panels, or read in place, then the micro-kernel over them.

A block is small, so packing it has to be worth its pass: rows of A in the accumulator's dtype are read where they are,
and so are rows of B where whole register blocks cover it. A long K is cut into parts whose panel of B stays in the
first cache while every row of A goes by.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.cpu.micro_kernel import LhsRows, MicroForm, MicroShape, call_micro_kernel
from tessera.backends.cpu.packing import (
    Operand,
    choose_kernels,
    for_each_height,
    pack_lhs,
    pack_rhs,
    panel_elements,
    split_offset,
    strided_operand,
)
from tessera.backends.cpu.windows import Area
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import Index, Value, constant_of, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter
    from tessera.ir.target.typed_ops import BlockDotOp


_PANEL_BYTES = 1 << 14
"""Bytes of a panel of B that stays in the first cache while every row of A is multiplied by it."""


def emit_block_dot(emitter: Emitter, op: BlockDotOp) -> None:
    """Pack both operands, then compute every register block of the result."""
    f = emitter.f
    lhs_at, rhs_at, out_at, scratch_at = op.operands[:4]
    out_type = out_at.type
    assert isinstance(out_type, BufferAttr)
    env = emitter.env_of(op, op.names, 4)
    shape = MicroShape.of(f.target, out_type.dtype)
    m, n, k = (f.smax(dim_value(f, op.value(name), env), 0) for name in ("m", "n", "k"))

    def operand(value: SSAValue, offset: Dim, axes: tuple[str, str]) -> Operand:
        parts = split_offset(offset, axes)
        assert isinstance(value.type, BufferAttr)
        assert parts is not None
        return strided_operand(f, emitter.buffers[value], value.type.dtype, parts, env)

    lhs = operand(lhs_at, op.lhs_offset, ("_row", "_inner_k"))
    rhs = operand(rhs_at, op.rhs_offset, ("_inner_k", "_col"))
    left = emitter.buffers[scratch_at]
    right = f.gep(left, panel_elements(shape, op.max_rows, op.max_k), shape.element)
    packed = _BlockDot(
        f,
        shape,
        (m, n, k),
        _Operand(left, lhs, lhs.is_rows_of(shape.dtype)),
        _Operand(right, rhs, is_in_place=False),
        emitter.buffers[out_at],
        op.out_stride,
    )
    max_k, is_fresh = op.max_k, op.is_fresh
    can_read_in_place = rhs.dtype is shape.dtype and constant_of(rhs.column_stride) == 1
    whole = f.icmp("eq", f.urem(n, shape.columns), 0)
    in_place = replace(packed, rhs=replace(packed.rhs, is_in_place=True)) if can_read_in_place else packed
    if not can_read_in_place and max_k < 2 * _part(shape):
        whole = f.const("i1", False)  # both branches would be the same
    f.if_(whole, lambda: in_place.write(max_k, is_fresh, has_whole_panels=True), lambda: packed.write(max_k, is_fresh))
    if is_fresh:
        out, stride = packed.out, packed.stride
        f.if_(f.icmp("slt", n, stride), lambda: _clear_columns(f, shape, out, m, n, stride))


def _part(shape: MicroShape) -> int:
    """How much of K a panel has that stays in the first cache."""
    return _PANEL_BYTES // (shape.columns * shape.dtype.bytes)


@frozen
class _Operand:
    """An operand, where its panels go, and whether it is read in place instead."""

    panels: Value
    operand: Operand
    is_in_place: bool


@frozen
class _BlockDot:
    """A dot of blocks: the extents m, n and k, both operands, and rows of the result `stride` apart."""

    f: FunctionText
    shape: MicroShape
    extents: tuple[Value, Value, Value]
    lhs: _Operand
    rhs: _Operand
    out: Value
    stride: int

    def write(self, most: int, is_fresh: bool, has_whole_panels: bool = False) -> None:
        """Panels of the operands that need them, then the accumulators; K is at most `most`."""
        f, shape, (m, n, k) = self.f, self.shape, self.extents
        if not self.lhs.is_in_place:
            pack_lhs(f, shape, self.lhs.panels, self.lhs.operand, Area(0, m, 0, k))
        if not self.rhs.is_in_place:
            pack_rhs(f, shape, self.rhs.panels, self.rhs.operand, Area(0, n, 0, k))
        adds_first = f.const("i1", not is_fresh)
        part = _part(shape)
        if most < 2 * part or not has_whole_panels:
            self.add(0, k, adds_first)
            return

        def step(at: Value) -> None:
            self.add(at, f.smin(f.sub(k, at), part), f.op("or", adds_first, f.icmp("ne", at, 0)))

        # An empty K makes one iteration too: it clears a fresh result.
        f.loop(0, f.smax(k, 1), part, step)

    def add(self, at: Index, k_count: Value, adds: Value) -> None:
        """The part of K from `at` on; `adds` says whether the result is added to, or overwritten."""
        f, shape, (m, n, _) = self.f, self.shape, self.extents
        rhs_stride = self.rhs.operand.row_stride if self.rhs.is_in_place else None

        # Rows follow each other in memory, so a register that goes beyond the end of one would write into the next.
        cut = not shape.ends_with(self.stride)

        def columns(j: Value) -> None:
            form = MicroForm(self._reads_rows_in_place, self.rhs.is_in_place, cut)
            kernels = choose_kernels(f, shape, f.sub(n, j), form)
            end = f.sub(f.const_i(self.stride), j) if cut else None
            panel = self._right(j, at)

            def rows(i: Value, height: int) -> None:
                target = f.gep(self.out, f.add(f.mul(i, self.stride), j), shape.element)
                kernel = kernels[shape.heights.index(height)]
                left = self._left(i, at, height)
                call_micro_kernel(f, kernel, left, panel, k_count, target, self.stride, adds, rhs_stride, end)

            for_each_height(f, shape, m, rows)

        f.loop(0, n, shape.columns, columns)

    @property
    def _reads_rows_in_place(self) -> bool:
        return self.lhs.operand.base is not None and self.lhs.is_in_place

    def _left(self, row: Value, at: Index, height: int) -> LhsRows:
        f, operand = self.f, self.lhs.operand
        if operand.base is None or not self._reads_rows_in_place:
            offset = f.add(f.mul(row, self.extents[2]), f.mul(at, height))
            return LhsRows(f.gep(self.lhs.panels, offset, self.shape.element), 1)
        offset = f.add(f.mul(row, operand.row_stride), at)
        return LhsRows(f.gep(operand.base, offset, self.shape.element), operand.row_stride)

    def _right(self, column: Value, at: Index) -> Value:
        f, operand = self.f, self.rhs.operand
        if operand.base is None or not self.rhs.is_in_place:
            offset = f.add(f.mul(column, self.extents[2]), f.mul(at, self.shape.columns))
            return f.gep(self.rhs.panels, offset, self.shape.element)
        return f.gep(operand.base, f.add(column, f.mul(at, operand.row_stride)), self.shape.element)


def _clear_columns(f: FunctionText, shape: MicroShape, out: Value, m: Value, n: Value, stride: int) -> None:
    """Clear the columns of a fresh result beyond the edge of B."""
    zero = f.const(shape.element, 0)

    def row(i: Value) -> None:
        line = f.gep(out, f.mul(i, stride), shape.element)
        f.loop(n, stride, 1, lambda j: f.store(zero, f.gep(line, j, shape.element)))

    f.loop(0, m, 1, row)
