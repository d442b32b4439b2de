"""The host program: memory, kernel calls, copies, control flow and collectives, run by one thread in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr, ShapedAttr, TensorAttr
from tessera.ir.schedule.ops import COST, IN_PLACE, host_op
from tessera.types.device import problem
from tessera.types.dim import Dim
from tessera.types.shape import is_refuted

if TYPE_CHECKING:
    from tessera.ir.schedule.typed_ops import AliasOp, AllocOp, CallbackOp, CollectiveStartOp, ForOp


# Collectives in a plan and in a host program: they are started, and waited for where their result is needed.

CALLS = ("all_gather", "all_to_all")
"""Collectives that move bytes and nothing else; others are decomposed into these in Graph IR."""


def _check_start(op: CollectiveStartOp) -> None:
    if op.call not in CALLS:
        op.fail(f"`call` is one of {', '.join(CALLS)}, got {op.call!r}")
    if op.ranks < 2:
        op.fail(f"a collective has at least 2 ranks, got {op.ranks}", "one rank alone has its own value")
    if not op.axis:
        op.fail(f"`{op.name}` needs the `axis` of the mesh that it communicates over")
    wanted = (1, 1) if op.results else (2, 0)
    if (len(op.operands), len(op.results)) != wanted:
        op.fail(f"`{op.name}` takes the sent value and gives the received one, or takes the buffers of both")
    _check_buffers(op)
    _check_exchanged(op)


def _check_exchanged(op: CollectiveStartOp) -> None:
    """Ranks gather one value of each, or exchange parts of as many elements: sizes are compared as expressions."""
    sent, received = (value.type for value in (*op.operands, *op.results))
    if not (isinstance(sent, ShapedAttr) and isinstance(received, ShapedAttr)):
        return
    if sent.dtype is not received.dtype:
        op.fail(f"`{op.call}` moves {sent.dtype} and gives {received.dtype}: a collective converts nothing")
    wanted = sent.data.size * (op.ranks if op.call == "all_gather" else 1)
    # Of no elements there are as many by any rule, so sizes are taken from 1 on.
    least_one = {name: Dim.symbol(name) + 1 for name in wanted.symbols | received.data.symbols}
    if is_refuted(wanted.substitute(least_one), received.data.size.substitute(least_one)):
        advice = "it gives those of all ranks" if op.call == "all_gather" else "it gives as many as it takes"
        op.fail(
            f"`{op.call}` of {sent.data} over the {op.ranks} ranks of `{op.axis}` has {wanted} elements, "
            f"and {received.data} has {received.data.size}",
            advice,
        )
    over = (sent.data.size % op.ranks).value
    if op.call == "all_to_all" and over:
        op.fail(
            f"`all_to_all` divides {sent.data} among the {op.ranks} ranks of `{op.axis}`, and {over} elements are left",
            "each rank gets as many: pad what is sent",
        )


def _check_wait(op: SpecOp) -> None:
    if len(op.operands) != 2 or len(op.results) > 1:
        op.fail(f"`{op.name}` takes the sent and the received value, and gives the latter at most")
    _check_buffers(op)


def _check_buffers(op: SpecOp) -> None:
    for value in op.operands if not op.results else ():
        if not isinstance(value.type, BufferAttr):
            op.fail(f"`{op.name}` without a result works on buffers, not on {value.type}")


_NUMBER = Attribute("number", "int", doc="which of the program's collectives it is; ranks match them in this order")

_COLLECTIVES = (
    host_op(
        name="tsched.collective_start",
        summary="The start of a collective, which goes on while the program does something else.",
        operands=("values*",),
        results=("started*",),
        attributes=(
            _NUMBER,
            Attribute("call", "str", doc="all_gather or all_to_all, of raw bytes"),
            Attribute("axis", "str", doc="the axis of the mesh"),
            Attribute("ranks", "int", doc="how many ranks that axis has"),
            Attribute("purpose", "str", "", "the collective that it is a part of, where it is not all of it"),
            *COST,
        ),
        effects=frozenset({"collective"}),
        verify=_check_start,
    ),
    host_op(
        name="tsched.collective_wait",
        summary="The end of a collective: from here on the received value may be read, and the sent one written over.",
        operands=("values*",),
        results=("received*",),
        attributes=(_NUMBER,),
        effects=frozenset({"collective"}),
        verify=_check_wait,
    ),
)


# Control flow of plans and host programs; bodies see the values around them. In a plan these ops work on values: a body
# takes what a loop carries, and yields it. Once buffers are placed nothing is yielded but a condition: results are in
# buffers that were allocated before, `while` and `for` take two for each carried value and swap them in each iteration,
# and their results are the ones written last. A carried value that every iteration updates in place is in one buffer,
# which the bodies see as they see others around them.


def has_buffers(op: SpecOp) -> bool:
    """Whether an op of control flow works on buffers."""
    return any(isinstance(value.type, BufferAttr) for value in (*op.operands, *op.results))


def _yields(op: SpecOp, region: int) -> list[Any]:
    last = op.regions[region].block.last_op
    return [value.type for value in last.operands] if last is not None else []


def _check_condition(op: SpecOp, types: Sequence[Any]) -> None:
    if (
        len(types) != 1
        or not isinstance(types[0], TensorAttr | BufferAttr)
        or types[0].shape
        or not types[0].dtype.is_bool
    ):
        op.fail(f"the condition of `{op.name}` is one bool, got {', '.join(map(str, types)) or 'nothing'}")


def _check_if(op: SpecOp) -> None:
    if op.value("size") is None:
        _check_condition(op, [value.type for value in op.operands])
    elif op.operands:
        op.fail(f"`{op.name}` has a size to decide by, and a condition beside it")
    if has_buffers(op):
        return
    for region in (0, 1):
        if _yields(op, region) != list(op.result_types):
            op.fail(f"body {region} of `{op.name}` yields {_yields(op, region)}, not {list(op.result_types)}")


def _check_while(op: SpecOp) -> None:
    _check_condition(op, _yields(op, 0))
    given = [value.type for value in op.operands]
    tested, repeated = ([arg.type for arg in region.block.args] for region in op.regions)
    if repeated != given or tested != given[: len(op.results)]:
        op.fail("the bodies of `tsched.while` take the values that the loop carries")
    if not has_buffers(op) and _yields(op, 1) != list(op.result_types):
        op.fail("the body of `tsched.while` yields the values that the loop carries")


def _check_for(op: ForOp) -> None:
    if op.length is None and len(op.operands) < 2:
        op.fail("`tsched.for` needs a lower and an upper bound, or `length`")
    if None not in (op.length, op.trips) and op.length != op.trips:
        op.fail(f"`tsched.for` runs {op.length} iterations by its `length`, and `trips` is {op.trips}")
    if not has_buffers(op) and _yields(op, 0)[: op.carried] != list(op.result_types)[: op.carried]:
        op.fail("the body of `tsched.for` yields the values that the loop carries")


_TRIPS = Attribute("trips", "dim", None, "its iterations for the cost: a dim, or a symbol where only running tells")

_CONTROL_FLOW = (
    host_op(
        name="tsched.if",
        summary="One of two plans, by a bool; or by a size, which the host knows: the first where it is above 0.",
        operands=("condition*",),
        results=("results*",),
        attributes=(Attribute("size", "dim", None, "what decides where there is no condition"), *COST),
        regions=("then", "otherwise"),
        effects=frozenset({"memory"}),
        verify=_check_if,
    ),
    host_op(
        name="tsched.while",
        summary="A plan repeated as long as a condition on what it carries holds.",
        operands=("carried*",),
        results=("carried*",),
        attributes=(IN_PLACE, _TRIPS, *COST),
        regions=("condition", "body"),
        effects=frozenset({"memory"}),
        verify=_check_while,
    ),
    host_op(
        name="tsched.for",
        summary="A plan run for each index between two bounds, or for each row of what is scanned.",
        operands=("values*",),
        results=("results*",),
        attributes=(
            Attribute("carried", "int", 0, "how many values a loop carries"),
            Attribute("scanned", "int", 0, "how many operands are scanned, a row in each iteration"),
            Attribute("stacked", "int", 0, "how many buffers are written, a row in each iteration, once placed"),
            Attribute("length", "dim", None, "how many iterations; without it the first two operands are the bounds"),
            Attribute("reverse", "bool", False, "from the last row to the first"),
            IN_PLACE,
            _TRIPS,
            *COST,
        ),
        regions=("body",),
        effects=frozenset({"memory"}),
        verify=_check_for,
    ),
    host_op(
        name="tsched.yield",
        summary="The end of a body: its results.",
        operands=("values*",),
        results=(),
        is_terminator=True,
    ),
)


# Memory, kernel calls, copies, callbacks and guards.


HOST = "host"
"""The memory of offloaded values."""


def _check_alloc(op: AllocOp) -> None:
    if not isinstance(op.result.type, BufferAttr):
        op.fail(f"`{op.name}` gives a buffer, not {op.result.type}")
    if op.space not in ("", HOST) or (op.space and op.output >= 0):
        where = f"`{op.space}`" if op.output < 0 else f"`{op.space}`, and is result {op.output}"
        op.fail(f"a buffer is in the workspace, or in `{HOST}` and no result, and this one is in {where}")


def _check_offload(op: SpecOp) -> None:
    _check_same(op)
    for use in op.results[0].uses:
        if use.operation.name != "tsched.prefetch":
            op.fail(
                f"`{use.operation.name}` reads an offloaded value, which is in host memory",
                "read the result of a `tsched.prefetch` of it",
            )


def _check_prefetch(op: SpecOp) -> None:
    _check_same(op)
    if getattr(op.operands[0].owner, "name", "") != "tsched.offload":
        op.fail(f"`{op.name}` takes what a `tsched.offload` gives: nothing else is in host memory")


def _check_same(op: SpecOp) -> None:
    source, out = op.operands[0].type, op.results[0].type
    if not isinstance(out, TensorAttr) or source != out:
        op.fail(f"`{op.name}` gives the same tensor in another memory, not {out} of {source}")


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


_STEPS = (
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
            Attribute("space", "str", "", "host for a buffer in host memory, whose offset is in the bytes there"),
        ),
        effects=frozenset({"memory"}),
        verify=_check_alloc,
    ),
    host_op(
        name="tsched.offload",
        summary="The same tensor in host memory; the memory that it was in may be reused.",
        operands=("value",),
        results=("offloaded",),
        verify=_check_offload,
    ),
    host_op(
        name="tsched.prefetch",
        summary="An offloaded tensor in the memory of the device again, ahead of its use.",
        operands=("offloaded",),
        results=("value",),
        verify=_check_prefetch,
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
        attributes=COST,
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
            *COST,
            Attribute("part", "int", 0, "its number among the kernels of its group, whose cost the first says, or -1"),
            Attribute("launch", "int", -1, "calls of one kernel with one number, side by side, are one launch; or -1"),
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
            *COST,
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

SPECS = (*_COLLECTIVES, *_CONTROL_FLOW, *_STEPS)
