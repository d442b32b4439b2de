"""Collectives in a plan and in a host program: they are started, and waited for where their result is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.ops import host_op

if TYPE_CHECKING:
    from tessera.ir.schedule.typed_ops import CollectiveStartOp

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


def _check_wait(op: SpecOp) -> None:
    if len(op.operands) != 2 or len(op.results) > 1:
        op.fail(f"`{op.name}` takes the sent and the received value, and gives the latter at most")
    _check_buffers(op)


def _check_buffers(op: SpecOp) -> None:
    for value in op.operands if not op.results else ():
        if not isinstance(value.type, BufferAttr):
            op.fail(f"`{op.name}` without a result works on buffers, not on {value.type}")


_NUMBER = Attribute("number", "int", doc="which of the program's collectives it is; ranks match them in this order")

SPECS = (
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
