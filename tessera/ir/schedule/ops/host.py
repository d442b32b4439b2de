"""The host program: memory, kernel calls, copies and control flow, run by one thread in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr, ShapedAttr
from tessera.ir.schedule.ops import host_op
from tessera.types.device import problem

if TYPE_CHECKING:
    from tessera.ir.schedule.typed_ops import AliasOp, CallbackOp


def _check_alloc(op: SpecOp) -> None:
    if not isinstance(op.result.type, BufferAttr):
        op.fail(f"`{op.name}` gives a buffer, not {op.result.type}")


def _check_alias(op: AliasOp) -> None:
    source, out = op.operands[0].type, op.result.type
    if not isinstance(source, ShapedAttr) or not isinstance(out, ShapedAttr) or source.dtype is not out.dtype:
        op.fail(f"`{op.name}` gives the same elements in another shape, not {out} of {source}")
    wrong = problem("global", op.space) if op.space else ""
    if wrong:
        op.fail(f"`{op.name}`: {wrong}", "write `shared`, the shared memory of a program")


def _check_copy(op: SpecOp) -> None:
    source, target = (value.type for value in op.operands)
    if not isinstance(source, BufferAttr) or not isinstance(target, BufferAttr) or source.dtype is not target.dtype:
        op.fail(f"`{op.name}` goes from one buffer to another of its dtype, not from {source} to {target}")


def _check_callback(op: CallbackOp) -> None:
    known = ("debug_print", "io_callback", "check_positions", "fresh_key", "axis_index")
    if op.call not in known:
        op.fail(f"`call` is one of {', '.join(known)}, got {op.call!r}")
    if op.call == "io_callback" and op.slot < 0:
        op.fail("`io_callback` needs the `slot` of its function")
    if op.outputs > len(op.operands):
        op.fail(f"`{op.name}` writes {op.outputs} of {len(op.operands)} buffers")


SPECS = (
    host_op(
        name="tsched.constant",
        summary="An array that is part of the program.",
        results=("data",),
        attributes=(Attribute("value", "array", doc="the array"),),
    ),
    host_op(
        name="tsched.alias",
        summary="The same memory with another shape.",
        operands=("source",),
        results=("alias",),
        attributes=(Attribute("space", "str", "", "the memory that it is prefetched to by ops that read it"),),
        verify=_check_alias,
    ),
    host_op(
        name="tsched.alloc",
        summary="A buffer: a result of the program, or part of the workspace.",
        results=("buffer",),
        attributes=(
            Attribute("output", "int", -1, "the number of the result that it holds, or -1"),
            Attribute("offset", "dim", None, "its offset in the workspace in bytes, once memory is planned"),
        ),
        effects=frozenset({"memory"}),
        verify=_check_alloc,
    ),
    host_op(
        name="tsched.free",
        summary="The end of a buffer's lifetime: its memory may be reused.",
        operands=("buffer",),
        results=(),
        effects=frozenset({"memory"}),
    ),
    host_op(
        name="tsched.copy",
        summary="All bytes of one buffer into another.",
        operands=("source", "target"),
        results=(),
        effects=frozenset({"memory"}),
        verify=_check_copy,
    ),
    host_op(
        name="tsched.call",
        summary="One launch of a kernel over its grid, on buffers, with the sizes it takes.",
        operands=("buffers*",),
        results=(),
        attributes=(
            Attribute("kernel", "symbol", doc="the tile kernel"),
            Attribute("sizes", "dims", (), "in the order of the kernel's own list"),
            Attribute("flops", "dim", None, "operations of this run, where they are known"),
            Attribute("bytes", "dim", None, "bytes that it reads and writes"),
            Attribute("time", "dim", None, "nanoseconds of one core, by the static model"),
        ),
        effects=frozenset({"memory"}),
    ),
    host_op(
        name="tsched.callback",
        summary="A call of Python at this point of the program: it prints, or runs a user's function.",
        operands=("values*",),
        results=("returned*",),
        attributes=(
            Attribute("call", "str", doc="debug_print, io_callback, check_positions, fresh_key or axis_index"),
            Attribute("slot", "int", -1, "the number of the function among those of the program"),
            Attribute("text", "str", "", "the format of what is printed"),
            Attribute("outputs", "int", 0, "how many of the buffers, the last, it writes, once they are placed"),
        ),
        effects=frozenset({"io"}),
        verify=_check_callback,
    ),
    host_op(
        name="tsched.guard",
        summary="An equality of dims that is checked before anything runs.",
        results=(),
        attributes=(Attribute("left", "dim"), Attribute("right", "dim"), Attribute("what", "str", "")),
        effects=frozenset({"memory"}),
    ),
)
