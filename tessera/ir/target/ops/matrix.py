"""Matrix products: the packed, register-blocked loop nest as one op, its epilogue as a region."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import INDEX, BufferAttr
from tessera.ir.target.limits import check_symbols, check_written, kernel_around
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim
from tessera.types.promotion import holds
from tessera.types.shape import is_at_most


def _check_gemm(op: SpecOp) -> None:
    block = op.regions[0].block
    count = len(op.value("batch"))
    types = [argument.type for argument in block.args]
    if types[:-1] != [INDEX] * (count + 2) or not isinstance(types[-1], VectorAttr):
        op.fail(f"the epilogue takes {count} batch indices, a row, a column and accumulators, got {types}")
    _check_accumulator(op, types[-1])
    check_symbols(op, "the extent", [*op.value("batch"), op.value("m"), op.value("n"), op.value("k")], ())
    batch = [f"_b{axis}" for axis in range(count)]
    for number, (side, axes) in enumerate((("lhs", ("_m", "_k")), ("rhs", ("_k", "_n")))):
        type, dtype = op.operands[number].type, op.value(f"{side}_dtype")
        if not isinstance(type, BufferAttr) or type.dtype != dtype:
            op.fail(f"the {side} of a product is a buffer of {dtype}, got {type}")
        windows = op.value(f"{side}_windows")
        if len(windows) % 2:
            op.fail(f"`{side}_windows` are pairs of an expression and an extent, got {len(windows)} expressions")
        check_symbols(op, f"the offset of {side}", [op.value(f"{side}_offset")], (*batch, *axes))
        check_symbols(op, f"the window of {side}", windows[::2], (*batch, *axes))
        check_symbols(op, f"the extent of a window of {side}", windows[1::2], ())


def _check_accumulator(op: SpecOp, accumulator: VectorAttr) -> None:
    sides = (op.value("lhs_dtype"), op.value("rhs_dtype"))
    dtype = accumulator.dtype
    if dtype.is_bool or dtype.bits < 32:
        op.fail(f"a product of {sides[0]} by {sides[1]} cannot accumulate in {dtype}")
    kernel = kernel_around(op)
    if kernel is None:
        return
    lanes = kernel.value("lanes") * 4 // dtype.bytes
    if [dim.value for dim in accumulator.shape] != [1, lanes]:
        op.fail(f"an epilogue gets one register of {lanes} accumulators of {dtype}, got {accumulator}")


def _check_block_dot(op: SpecOp) -> None:
    types = [value.type for value in op.operands[:4]]
    buffers = [type for type in types if isinstance(type, BufferAttr)]
    if len(buffers) < 4:
        op.fail(f"`ttarget.block_dot` works on buffers, got {', '.join(map(str, types))}")
    names = op.value("names")
    if [value.type for value in op.operands[4:]] != [INDEX] * len(names) or len(set(names)) != len(names):
        op.fail(f"`{op.name}` names {len(names)} indices and has {len(op.operands) - 4}, or others")
    for side, axes in (("lhs", ("_row", "_depth")), ("rhs", ("_depth", "_col"))):
        offset = op.value(f"{side}_offset")
        rows = offset.coefficient(axes[0])
        if rows is None or rows[1].coefficient(axes[1]) is None or axes[1] in rows[0].symbols:
            op.fail(f"the offset {offset} of {side} is not linear in {axes[0]} and {axes[1]}")
        check_symbols(op, f"the offset of {side}", [offset], (*names, *axes))
    check_symbols(op, "the extent", [op.value(name) for name in ("m", "n", "k")], names)
    check_written(op, op.operands[2])
    _check_room(op, *buffers)


def _check_room(op: SpecOp, lhs: BufferAttr, rhs: BufferAttr, out: BufferAttr, room: BufferAttr) -> None:
    """The parts fit each other: dtypes, the sizes that blocks have at most, and memory for both panels."""
    # Panels are packed in the accumulator's dtype, which must hold whatever either side has.
    if not (holds(out.dtype, lhs.dtype) and holds(out.dtype, rhs.dtype)):
        op.fail(f"a product of {lhs.dtype} by {rhs.dtype} cannot accumulate in {out.dtype}")
    stride = Dim.constant(op.value("out_stride"))
    for name, most in (("m", op.value("rows")), ("k", op.value("depth")), ("n", stride)):
        if not is_at_most(op.value(name), Dim.of(most)):
            op.fail(f"`{name}` is {op.value(name)}, and there is room for {most}")
    if not is_at_most(stride * op.value("rows"), out.data.size):
        op.fail(f"{op.value('rows')} rows of {stride} do not fit into {out}")
    panels = (stride + op.value("rows")) * op.value("depth") * out.dtype.bytes
    if not is_at_most(panels, room.data.bytes):
        op.fail(f"two panels are {panels} bytes at least, and there is room for {room.data.bytes}")


SPECS = (
    OpSpec(
        name="ttarget.gemm",
        summary=(
            "This task's share of `out[batch, m, n] = epilogue(sum over k of lhs * rhs)`: operands packed in panels, "
            "blocks of accumulators in registers, each element one chain of multiply-adds over k in order."
        ),
        operands=("lhs", "rhs"),
        results=(),
        attributes=(
            Attribute("batch", "dims", doc="extents of the batch dims"),
            Attribute("m", "dim", doc="rows"),
            Attribute("n", "dim", doc="columns"),
            Attribute("k", "dim", doc="depth"),
            Attribute("lhs_offset", "dim", doc="over _b0.., _m, _k: elements from the start"),
            Attribute("rhs_offset", "dim", doc="over _b0.., _k, _n: elements from the start"),
            Attribute("lhs_windows", "dims", (), "expression, extent, ...: outside reads zero"),
            Attribute("rhs_windows", "dims", (), "expression, extent, ...: outside reads zero"),
            Attribute("lhs_dtype", "dtype", doc="what is stored"),
            Attribute("rhs_dtype", "dtype", doc="what is stored"),
        ),
        regions=("epilogue",),
        effects=frozenset(["memory"]),
        verify=_check_gemm,
    ),
    OpSpec(
        name="ttarget.block_dot",
        summary=(
            "`out[i, j] += sum over k of lhs[i, k] * rhs[k, j]` on blocks in memory, for i < m, j < n: both operands "
            "packed in panels, each element one chain of multiply-adds over k in order. `room` is where panels go."
        ),
        operands=("lhs", "rhs", "out", "room", "at*"),
        results=(),
        attributes=(
            Attribute("names", "strs", doc="the name of each index operand"),
            Attribute("m", "dim", doc="rows"),
            Attribute("n", "dim", doc="columns"),
            Attribute("k", "dim", doc="depth"),
            Attribute("rows", "int", doc="the most rows there can be"),
            Attribute("depth", "int", doc="the greatest depth there can be"),
            Attribute("lhs_offset", "dim", doc="over _row, _depth and names: elements from the start"),
            Attribute("rhs_offset", "dim", doc="over _depth, _col and names: elements from the start"),
            Attribute("out_stride", "int", doc="elements between rows of out"),
            Attribute("is_fresh", "bool", False, "whether out begins as zero, whatever it holds"),
        ),
        effects=frozenset(["memory"]),
        verify=_check_block_dot,
    ),
)
