"""Products of blocks in memory as text: panels packed where the op says, then the register kernel over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.backends.x86.micro import Left, MicroShape, micro_call
from tessera.backends.x86.pack import Operand
from tessera.backends.x86.panels import each_height, kernels_for, pack_lhs, pack_rhs, panel_elements
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText, known
from tessera.types.dim import Dim

if TYPE_CHECKING:
    from tessera.backends.x86.emit import Emitter


def emit_block_dot(emitter: Emitter, op: SpecOp) -> None:
    """Pack both sides, then every register block of the result."""
    f = emitter.f
    lhs_at, rhs_at, out_at, room_at = op.operands[:4]
    out_type = out_at.type
    assert isinstance(out_type, BufferAttr)
    env = emitter.named(op, op.value("names"), 4)
    shape = MicroShape.of(f.target, out_type.dtype)
    m, n, k = (f.smax(dim_value(f, op.value(name), env), 0) for name in ("m", "n", "k"))
    lhs = _operand(emitter, op, "lhs", ("_row", "_depth"), lhs_at.type, emitter.buffers[lhs_at], env)
    rhs = _operand(emitter, op, "rhs", ("_depth", "_col"), rhs_at.type, emitter.buffers[rhs_at], env)
    left = emitter.buffers[room_at]
    right = f.gep(left, panel_elements(shape, op.value("rows"), op.value("depth")), shape.element)
    out = emitter.buffers[out_at]
    lies = lhs.is_rows_of(shape.dtype)
    if not lies:
        pack_lhs(f, shape, left, lhs, 0, m, 0, k)
    direct = _is_panel_like(op, rhs, shape)
    if not direct:
        pack_rhs(f, shape, right, rhs, 0, n, 0, k)
    stride: int = op.value("out_stride")
    adds = f.const("i1", not op.value("is_fresh"))

    def columns(j: Value) -> None:
        kernels = kernels_for(f, shape, f.sub(n, j), strided=direct)
        panel = f.gep(right, f.mul(j, k), shape.element) if not direct else _row_of(f, rhs, j)

        def rows(i: Value, height: int) -> None:
            target = f.gep(out, f.add(f.mul(i, stride), j), shape.element)
            source = Left(f.gep(left, f.mul(i, k), shape.element), 1, height)
            if lhs.base is not None and lies:
                source = Left(f.gep(lhs.base, f.mul(i, lhs.row_stride), shape.element), lhs.row_stride, 1)
            kernel = kernels[shape.heights.index(height)]
            micro_call(f, kernel, source, panel, k, target, stride, adds, rhs.row_stride if direct else None)

        each_height(f, shape, m, rows)

    f.loop(0, n, shape.columns, columns)
    if op.value("is_fresh"):
        f.if_(f.icmp("slt", n, stride), lambda: _clear_rest(f, shape, out, m, n, stride))


def _is_panel_like(op: SpecOp, rhs: Operand, shape: MicroShape) -> bool:
    """Whether the right operand can be read where it lies: whole registers side by side, in the accumulator's dtype."""
    n = op.value("n").value
    return rhs.dtype is shape.dtype and known(rhs.column_stride) == 1 and n is not None and n % shape.columns == 0


def _row_of(f: FunctionText, rhs: Operand, column: Value) -> Value:
    assert rhs.base is not None
    return f.gep(rhs.base, column, convert.storage_type(rhs.dtype))


def _clear_rest(f: FunctionText, shape: MicroShape, out: Value, m: Value, n: Value, stride: int) -> None:
    """Columns of a fresh result beyond the operand's edge are sums of nothing."""
    zero = f.const(shape.element, 0)

    def row(i: Value) -> None:
        line = f.gep(out, f.mul(i, stride), shape.element)
        f.loop(n, stride, 1, lambda j: f.store(zero, f.gep(line, j, shape.element)))

    f.loop(0, m, 1, row)


def _operand(
    emitter: Emitter,
    op: SpecOp,
    side: str,
    axes: tuple[str, str],
    type: object,
    base: Value,
    env: dict[str, Index],
) -> Operand:
    assert isinstance(type, BufferAttr)
    f = emitter.f
    offset: Dim = op.value(f"{side}_offset")
    rows = offset.coefficient(axes[0])
    assert rows is not None
    columns = rows[1].coefficient(axes[1])
    assert columns is not None
    start = f.gep(base, dim_value(f, columns[1], env), convert.storage_type(type.dtype))
    return Operand(type.dtype, start, dim_value(f, rows[0], env), dim_value(f, columns[0], env))
