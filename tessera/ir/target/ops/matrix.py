"""Contractions: the packed, register-blocked loop nest of a matmul as one op, its epilogue as a region."""

from __future__ import annotations

from tessera.ir.base.block_ops import MEMORY, check_symbols
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import INDEX, BufferAttr, VectorAttr
from tessera.ir.target.limits import CPU_MATRIX_INSTRUCTIONS, kernel_around
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.promotion import holds
from tessera.types.shape import is_at_most


def _check_gemm(op: SpecOp) -> None:
    block = op.regions[0].block
    count = len(op.value("batch"))
    types = [argument.type for argument in block.args]
    if types[:-1] != [INDEX] * (count + 2) or not isinstance(types[-1], VectorAttr):
        op.fail(f"the epilogue takes {count} batch indices, a row, a column and accumulators, got {types}")
    _check_accumulator(op, types[-1])
    _check_unit(op, types[-1].dtype)
    batch = [f"_b{axis}" for axis in range(count)]
    check_symbols(op, "the extent", [*op.value("batch"), op.value("m"), op.value("n")], ())
    check_symbols(op, "the extent", [op.value("k")], batch)
    for number, (name, axes) in enumerate((("lhs", ("_m", "_k")), ("rhs", ("_k", "_n")))):
        type, dtype = op.operands[number].type, op.value(f"{name}_dtype")
        if not isinstance(type, BufferAttr) or type.dtype != dtype:
            op.fail(f"the {name} of a contraction is a buffer of {dtype}, got {type}")
        windows = op.value(f"{name}_windows")
        if len(windows) % 2:
            op.fail(f"`{name}_windows` are pairs of an expression and an extent, got {len(windows)} expressions")
        check_symbols(op, f"the offset of {name}", [op.value(f"{name}_offset")], (*batch, *axes))
        check_symbols(op, f"the window of {name}", windows[::2], (*batch, *axes))
        check_symbols(op, f"the extent of a window of {name}", windows[1::2], ())


def _check_accumulator(op: SpecOp, accumulator: VectorAttr) -> None:
    dtypes = (op.value("lhs_dtype"), op.value("rhs_dtype"))
    dtype = accumulator.dtype
    if dtype.bits < 32:
        op.fail(f"a dot of {dtypes[0]} by {dtypes[1]} cannot accumulate in {dtype}")
    kernel = kernel_around(op)
    if kernel is None:
        return
    lanes = kernel.value("lanes") * 4 // dtype.bytes
    if [dim.value for dim in accumulator.shape] != [1, lanes]:
        op.fail(f"an epilogue gets one register of {lanes} accumulators of {dtype}, got {accumulator}")


def _check_unit(op: SpecOp, accumulator: DType) -> None:
    """A matrix instruction is one of the kernel's features, takes the operands as they are, and has its own size."""
    unit, sizes = op.value("unit"), op.value("instruction")
    if not unit:
        if sizes:
            op.fail(f"`instruction` is that of a matrix instruction, got {list(sizes)} and no `unit`")
        return
    found = CPU_MATRIX_INSTRUCTIONS.get(unit)
    if found is None:
        op.fail(f"`unit` is one of {', '.join(CPU_MATRIX_INSTRUCTIONS)}, got {unit}")
    kernel = kernel_around(op)
    if kernel is not None and unit not in kernel.value("features"):
        op.fail(
            f"`@{kernel.value('symbol')}` multiplies with {unit}, which is not among its features",
            f"lower for a machine with {unit}, or leave `unit` out",
        )
    lhs, rhs = op.value("lhs_dtype"), op.value("rhs_dtype")
    if not found.takes(lhs, rhs, accumulator):
        taken = f"{' or '.join(map(str, found.operands))} and accumulates in {found.accumulator}"
        op.fail(f"{unit} multiplies {taken}, got {lhs} by {rhs} in {accumulator}")
    for name, axes in (("lhs", ("_m", "_k")), ("rhs", ("_k", "_n"))):
        if op.value(f"{name}_windows") or not _is_linear(op.value(f"{name}_offset"), axes):
            op.fail(f"{unit} takes operands from strided memory, and {name} has windows or is not linear")
    problem = found.problem(sizes, sizes)
    if problem or sizes[2] * lhs.bytes != found.k_bytes:
        op.fail(problem or f"one `{unit}` takes {found.k_bytes // lhs.bytes} of K of {lhs}, got {sizes[2]}")


def _is_linear(offset: Dim, axes: tuple[str, str]) -> bool:
    rows = offset.coefficient(axes[0])
    return rows is not None and rows[1].coefficient(axes[1]) is not None and axes[1] not in rows[0].symbols


def _check_block_dot(op: SpecOp) -> None:
    types = [value.type for value in op.operands[:4]]
    buffers = [type for type in types if isinstance(type, BufferAttr)]
    if len(buffers) < 4:
        op.fail(f"`ttarget.block_dot` works on buffers, got {', '.join(map(str, types))}")
    names = op.value("names")
    if [value.type for value in op.operands[4:]] != [INDEX] * len(names) or len(set(names)) != len(names):
        op.fail(f"`{op.name}` names {len(names)} indices and has {len(op.operands) - 4}, or others")
    for name, axes in (("lhs", ("_row", "_inner_k")), ("rhs", ("_inner_k", "_col"))):
        offset = op.value(f"{name}_offset")
        if not _is_linear(offset, axes):
            op.fail(f"the offset {offset} of {name} is not linear in {axes[0]} and {axes[1]}")
        check_symbols(op, f"the offset of {name}", [offset], (*names, *axes))
    check_symbols(op, "the extent", [op.value(name) for name in ("m", "n", "k")], names)
    _check_panels(op, *buffers)


def _check_panels(op: SpecOp, lhs: BufferAttr, rhs: BufferAttr, out: BufferAttr, scratch: BufferAttr) -> None:
    """The parts fit each other: dtypes, the sizes that blocks have at most, and memory for both panels."""
    # Panels are packed in the accumulator's dtype, which must hold whatever either operand has.
    if not (holds(out.dtype, lhs.dtype) and holds(out.dtype, rhs.dtype)):
        op.fail(f"a dot of {lhs.dtype} by {rhs.dtype} cannot accumulate in {out.dtype}")
    stride = Dim.constant(op.value("out_stride"))
    for name, most in (("m", op.value("max_rows")), ("k", op.value("max_k")), ("n", stride)):
        if not is_at_most(op.value(name), Dim.of(most)):
            op.fail(f"`{name}` is {op.value(name)}, and it is at most {most}")
    if not is_at_most(stride * op.value("max_rows"), out.data.size):
        op.fail(f"{op.value('max_rows')} rows of {stride} do not fit into {out}")
    panels = (stride + op.value("max_rows")) * op.value("max_k") * out.dtype.bytes
    if not is_at_most(panels, scratch.data.bytes):
        op.fail(f"two panels are {panels} bytes at least, and there are {scratch.data.bytes}")


SPECS = (
    OpSpec(
        name="ttarget.gemm",
        summary=(
            "This task's part of `out[batch, m, n] = epilogue(sum over k of lhs * rhs)`: operands packed in panels, "
            "blocks of accumulators in registers, each element one chain of multiply-adds over k in order, or what "
            "`unit` adds up."
        ),
        operands=("lhs", "rhs"),
        results=(),
        attributes=(
            Attribute("batch", "dims", doc="extents of the batch dims"),
            Attribute("m", "dim", doc="rows"),
            Attribute("n", "dim", doc="columns"),
            Attribute("k", "dim", doc="the contracted dim, over _b0..: a last segment of it may be shorter"),
            Attribute("lhs_offset", "dim", doc="over _b0.., _m, _k: elements from the start"),
            Attribute("rhs_offset", "dim", doc="over _b0.., _k, _n: elements from the start"),
            Attribute("lhs_windows", "dims", (), "expression, extent, ...: beyond them reads zero"),
            Attribute("rhs_windows", "dims", (), "expression, extent, ...: beyond them reads zero"),
            Attribute("lhs_dtype", "dtype", doc="what is stored"),
            Attribute("rhs_dtype", "dtype", doc="what is stored"),
            Attribute("unit", "str", "", "the matrix instruction that computes it, by its feature; none: vectors"),
            Attribute("instruction", "ints", (), "rows, columns and K of one instruction of them"),
        ),
        regions=("epilogue",),
        effects=MEMORY,
        verify=_check_gemm,
    ),
    OpSpec(
        name="ttarget.block_dot",
        summary=(
            "`out[i, j] += sum over k of lhs[i, k] * rhs[k, j]` on blocks in memory, for i < m, j < n: both operands "
            "packed in panels, each element one chain of multiply-adds over k in order. Panels go to `panels`."
        ),
        operands=("lhs", "rhs", "out", "panels", "at*"),
        results=(),
        attributes=(
            Attribute("names", "strs", doc="the name of each index operand"),
            Attribute("m", "dim", doc="rows"),
            Attribute("n", "dim", doc="columns"),
            Attribute("k", "dim", doc="the contracted dim, over _b0..: a last segment of it may be shorter"),
            Attribute("max_rows", "int", doc="the most rows there can be"),
            Attribute("max_k", "int", doc="the largest k there can be"),
            Attribute("lhs_offset", "dim", doc="over _row, _inner_k and names: elements from the start"),
            Attribute("rhs_offset", "dim", doc="over _inner_k, _col and names: elements from the start"),
            Attribute("out_stride", "int", doc="elements between rows of out"),
            Attribute("is_fresh", "bool", False, "whether out begins as zero, whatever it holds"),
        ),
        effects=MEMORY,
        verify=_check_block_dot,
    ),
)
