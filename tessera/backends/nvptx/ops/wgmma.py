"""Dots of warpgroups with accumulators in flight, and ops on fragments: A operands, row reductions, accesses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tessera.backends.nvptx.mma.target_kernels import MAJORS, effect_op, swizzle_of
from tessera.backends.nvptx.tensor_cores import (
    K_BYTES,
    WGMMA_COLUMNS,
    WGMMA_FORMS,
    WGMMA_FORMS_TF32,
    WGMMA_ROWS,
    MmaForm,
    form_of,
)
from tessera.backends.nvptx.types import (
    ColumnVectorAttr,
    CursorAttr,
    FragmentAttr,
    OperandAttr,
    PartialRowsAttr,
    PendingAttr,
    RowVectorAttr,
    SharedAttr,
)
from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.types import BufferAttr, IndexAttr, ShapedAttr
from tessera.ir.target.limits import check_written
from tessera.types.dtype import DType

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_MAJORS = ("k", "mn")


def _check_issue(op: ops.MmaIssueOp) -> None:
    acc = op.operands[0].type
    if not isinstance(acc, PendingAttr):
        op.fail(f"dots add to an accumulator that is open to them, got {acc}", "open it with `ttarget.mma_open`")
    check_dot(op, acc, "a cursor of a ring", WGMMA_FORMS, WGMMA_FORMS_TF32)


def check_dot(
    op: SpecOp, acc: ShapedAttr, cursor: str, forms: Mapping[DType, MmaForm], forms_tf32: Mapping[DType, MmaForm]
) -> None:
    """Fails where an op is not a dot of an A operand, which may be in registers, and a shared one into `acc`."""
    lhs, rhs = (value.type for value in op.operands[1:3])
    if not isinstance(lhs, (SharedAttr, OperandAttr)) or not isinstance(rhs, SharedAttr):
        op.fail(f"the A operand is shared or in registers and the B operand shared, got {lhs} and {rhs}")
    if op.results[0].type != acc:
        op.fail(f"a dot gives its accumulator's type {acc}, not {op.results[0].type}")
    _check_cursors(op, cursor)
    if op.value("mode") not in ("", "tf32"):
        op.fail(f"`mode` is tf32 or none, got `{op.value('mode')}`")
    check_operands(op, acc, lhs, rhs, forms_tf32 if op.value("mode") else forms)


def _check_cursors(op: SpecOp, cursor: str) -> None:
    if len(op.operands) != 5 or any(not isinstance(value.type, CursorAttr) for value in op.operands[3:]):
        op.fail(f"a dot takes {cursor} for each operand")


def _check_add(op: ops.MmaAddOp) -> None:
    fragment, lhs, rhs = (value.type for value in op.operands[:3])
    if not isinstance(fragment, FragmentAttr) or op.results[0].type != fragment:
        op.fail(f"`{op.name}` adds to a fragment and gives one, got {fragment} and {op.results[0].type}")
    if not isinstance(lhs, SharedAttr) or not isinstance(rhs, SharedAttr):
        op.fail(f"both operands of `{op.name}` are shared, got {lhs} and {rhs}")
    _check_cursors(op, "a cursor of a ring")
    check_operands(op, fragment, lhs, rhs)
    columns, parts = fragment.sizes[1], op.parts
    if parts < 1 or columns % (8 * parts) or (parts > 1 and op.rhs_major != "k"):
        op.fail(f"{columns} columns of a B operand along k are not {parts} parts of whole eights")


def check_operands(
    op: SpecOp, acc: ShapedAttr, lhs: ShapedAttr, rhs: ShapedAttr, forms: Mapping[DType, MmaForm] = WGMMA_FORMS
) -> None:
    """Fails where two operands have no dot among those of the machine, or not this one."""
    for name in ("lhs_major", "rhs_major"):
        if op.value(name) not in _MAJORS:
            op.fail(f"`{name}` is one of {', '.join(_MAJORS)}, got {op.value(name)}")
    found = form_of(forms, lhs.dtype, rhs.dtype)
    if found is None or not found.adds_to(acc.dtype):
        names = ", ".join(map(str, forms))
        op.fail(f"there is no dot of {lhs.dtype} by {rhs.dtype} into {acc.dtype}; operands are both one of {names}")
    if not found.is_transposable and "mn" in (op.value("lhs_major"), op.value("rhs_major")):
        op.fail(f"operands of {lhs.dtype} are contiguous in k")
    M, N = acc.sizes
    left, right = lhs.sizes, rhs.sizes
    # A tile in shared memory has rows of k where its other dim is the one that is contiguous in memory.
    wanted = (M, left[1]) if op.value("lhs_major") == "k" else (left[0], M)
    K = left[1] if op.value("lhs_major") == "k" else left[0]
    # Across k an operand is whole spans wide, of which a dot may read less.
    span = swizzle_of(op.operands[2]) // rhs.dtype.bytes
    if left != wanted or right != ((N, K) if op.value("rhs_major") == "k" else (K, -(-N // span) * span)):
        op.fail(f"{acc} is not the dot of {lhs} ({op.value('lhs_major')}) by {rhs} ({op.value('rhs_major')})")
    if M % WGMMA_ROWS or not found.has(N) or K * lhs.dtype.bytes % K_BYTES:
        op.fail(
            f"dots have rows in {WGMMA_ROWS}s, columns in 8s up to {WGMMA_COLUMNS}, of integers in 16s from 32 on, and "
            f"{K_BYTES} bytes of K a step, got {M}x{N}x{K} of {lhs.dtype}"
        )


def _check_wait(op: ops.MmaWaitOp) -> None:
    if op.left < 0:
        op.fail(f"`left` counts dots, got {op.left}")
    wanted = [FragmentAttr.of(v.type.data) for v in op.operands if isinstance(v.type, PendingAttr)]
    if len(wanted) != len(op.operands) or [result.type for result in op.results] != wanted:
        op.fail("a wait takes accumulators in flight and gives the fragments they have become")


def _check_open(op: ops.MmaOpenOp) -> None:
    fragment, pending = op.operands[0].type, op.results[0].type
    if not isinstance(fragment, FragmentAttr) or pending != PendingAttr.of(fragment.data):
        op.fail(f"`{op.name}` opens a fragment to dots, got {fragment} as {pending}")


def _check_pack(op: ops.PackOp) -> None:
    fragment, operand = op.operands[0].type, op.results[0].type
    if not isinstance(fragment, FragmentAttr) or not isinstance(operand, OperandAttr) or fragment.data != operand.data:
        op.fail(f"`{op.name}` takes a fragment as the A operand it is, got {fragment} as {operand}")
    if fragment.dtype.bytes != 2:
        op.fail(f"only elements of 2 bytes have one layout on both operands of a dot, got {fragment.dtype}")


def _check_reduce(op: ops.ReduceRowsOp) -> None:
    fragment, rows = op.operands[0].type, op.results[0].type
    if not isinstance(fragment, FragmentAttr) or rows != RowVectorAttr.of(fragment.data.with_shape(fragment.shape[:1])):
        op.fail(f"reducing the rows of {fragment} does not give {rows}")
    if op.kind not in ("sum", "max", "min", "prod"):
        op.fail(f"`kind` is sum, max, min or prod, got {op.kind}")


def _check_fragment_access(op: SpecOp, tile: object, buffer: object, first: int) -> None:
    if not isinstance(tile, (FragmentAttr, RowVectorAttr, ColumnVectorAttr)) or not isinstance(buffer, BufferAttr):
        op.fail(f"`{op.name}` moves a fragment or a vector of it from or to a buffer, got {tile} and {buffer}")
    if tile.dtype != buffer.dtype:
        op.fail(f"`{op.name}` moves {tile.dtype} and the buffer holds {buffer.dtype}")
    check_access(op, first, tile, buffer)


def check_access(op: SpecOp, first: int, tile: ShapedAttr, buffer: BufferAttr) -> None:
    """Fails where an access does not map each axis of its tile to dims of its buffer."""
    names, axes = op.value("coords"), op.value("axes")
    if len(op.operands) - first != len(names) or any(not isinstance(v.type, IndexAttr) for v in op.operands[first:]):
        op.fail(f"`{op.name}` names {len(names)} indices and has {len(op.operands) - first}")
    if len(axes) != len(tile.shape) or len(op.value("bounds")) != len(axes) or not set(axes) <= set(names):
        op.fail(f"`{op.name}` has axes {list(axes)} for {tile}")
    if len(op.value("map")) != len(buffer.shape):
        op.fail(f"`{op.name}` has a map of {len(op.value('map'))} expressions into {buffer}")


def _check_load(op: ops.FragmentLoadOp) -> None:
    _check_fragment_access(op, op.results[0].type, op.operands[0].type, 1)


def _check_store(op: ops.FragmentStoreOp) -> None:
    _check_fragment_access(op, op.operands[0].type, op.operands[1].type, 2)
    check_written(op, op.operands[1])


def _check_read(op: ops.FragmentReadOp) -> None:
    tile, cursor, fragment = op.operands[0].type, op.operands[1].type, op.results[0].type
    if not isinstance(tile, SharedAttr) or not isinstance(cursor, CursorAttr) or not isinstance(fragment, FragmentAttr):
        op.fail(f"`{op.name}` reads a stage of a shared tile as a fragment, got {tile}, {cursor} and {fragment}")
    if op.major not in _MAJORS:
        op.fail(f"`major` is one of {', '.join(_MAJORS)}, got {op.major}")
    sizes = tile.sizes if op.major == "k" else tile.sizes[::-1]
    if tile.dtype != fragment.dtype or tile.dtype.bytes != 1 or sizes != fragment.sizes:
        op.fail(f"{fragment} is not {tile} ({op.major}), of elements of one byte")


def _check_partial(op: ops.PartialRowsOp) -> None:
    type = op.results[0].type
    if not isinstance(type, PartialRowsAttr) or len(type.shape) != 1 or not type.dtype.is_float:
        op.fail(f"`{op.name}` gives a float for each row, got {type}")


def _check_grow(op: ops.GrowRowsOp) -> None:
    partial, factor, fragment = (value.type for value in op.operands)
    if not isinstance(fragment, FragmentAttr):
        op.fail(f"`{op.name}` adds the columns of a fragment, got {fragment}")
    rows = fragment.data.with_shape(fragment.shape[:1])
    if (partial, factor) != (PartialRowsAttr.of(rows), RowVectorAttr.of(rows)):
        op.fail(f"`{op.name}` scales sums of threads by a number for each row of {fragment}, got {partial} by {factor}")
    if op.results[0].type != partial:
        op.fail(f"`{op.name}` of {partial} does not give {op.results[0].type}")


def _check_join(op: ops.JoinRowsOp) -> None:
    partial, rows = op.operands[0].type, op.results[0].type
    if not isinstance(partial, PartialRowsAttr) or rows != RowVectorAttr.of(partial.data):
        op.fail(f"`{op.name}` joins sums of threads to one for each row, got {partial} to {rows}")


ACCESS = (
    Attribute("coords", "strs", doc="the name of each index operand"),
    Attribute("axes", "strs", doc="the coordinates along the tile"),
    Attribute("map", "dims", doc="one expression per dim of the buffer"),
    Attribute("bounds", "dims", doc="one extent per axis; -1 for none"),
)
_WINDOWED_ACCESS = (*ACCESS, Attribute("windows", "dims", (), doc="expression, extent, ...: outside is not touched"))


SPECS = (
    OpSpec(
        name="ttarget.mma_open",
        summary="A fragment, open to dots that add to it.",
        operands=("fragment",),
        results=("pending",),
        verify=_check_open,
    ),
    effect_op(
        "mma_issue",
        "Starts `acc + lhs @ rhs` on the tensor cores, as one group; nobody may look at `acc` until a wait.",
        ("acc", "lhs", "rhs", "cursors*"),
        (*MAJORS, Attribute("mode", "str", "", "tf32: operands of f32 hold numbers of tf32")),
        _check_issue,
        results=("pending",),
    ),
    effect_op(
        "mma_add",
        "`fragment + lhs @ rhs`: 128 of K are accumulated apart on the tensor cores, some columns at a time, "
        "and added outside of them, then the next 128; nothing is in flight before or after.",
        ("fragment", "lhs", "rhs", "cursors*"),
        (*MAJORS, Attribute("parts", "int", 1, "of the columns: more take fewer registers for partial accumulators")),
        _check_add,
        results=("sums",),
    ),
    effect_op(
        "mma_wait",
        "Waits until at most `left` groups of dots are in flight; what it takes has been written then.",
        ("pending*",),
        (Attribute("left", "int", 0, "groups that may still be in flight"),),
        _check_wait,
        results=("fragments*",),
    ),
    OpSpec(
        name="ttarget.pack",
        summary="A fragment of 2-byte elements as the A operand of a dot: the same threads have the same elements.",
        operands=("fragment",),
        results=("operand",),
        verify=_check_pack,
    ),
    OpSpec(
        name="ttarget.reduce_rows",
        summary="Each row of a fragment reduced to one number: four chains a thread, then across its four threads.",
        operands=("fragment",),
        results=("rows",),
        attributes=(Attribute("kind", "str", doc="sum, max, min or prod"),),
        verify=_check_reduce,
    ),
    OpSpec(
        name="ttarget.partial_rows",
        summary="Row sums of 0: each thread has its own, of the columns that it holds.",
        results=("partial",),
        verify=_check_partial,
    ),
    OpSpec(
        name="ttarget.grow_rows",
        summary="Each thread's sums times a number for each row, and the columns of a fragment that it holds added.",
        operands=("partial", "factor", "fragment"),
        results=("partial",),
        verify=_check_grow,
    ),
    OpSpec(
        name="ttarget.join_rows",
        summary="The sums of the four threads of a row as one number, which all of them have.",
        operands=("partial",),
        results=("rows",),
        verify=_check_join,
    ),
    effect_op(
        "fragment_load",
        "Elements of a buffer at a fragment's or vector's coordinates; `pad` outside bounds and windows.",
        ("buffer", "at*"),
        (*_WINDOWED_ACCESS, Attribute("pad", "number", 0, "what stands outside")),
        _check_load,
        results=("tile",),
    ),
    effect_op(
        "fragment_read",
        "A stage of a shared tile of one-byte elements as a fragment; `major` k where its columns are contiguous.",
        ("tile", "cursor"),
        (Attribute("major", "str", "k", "k, or mn where rows are what is contiguous"),),
        _check_read,
        results=("fragment",),
    ),
    effect_op(
        "fragment_store",
        "A fragment or vector to a buffer, element by element; nothing is written outside bounds and windows.",
        ("tile", "buffer", "at*"),
        _WINDOWED_ACCESS,
        _check_store,
    ),
)
