"""Ops on blocks of vector registers: those that all kernels have, and what threads of a GPU do together."""

from __future__ import annotations

from tessera.ir.base.block_ops import BlockOps
from tessera.ir.base.op import SpecOp
from tessera.ir.target.limits import check_written, kernel_around
from tessera.ir.target.types import VectorAttr


def _check_threads(op: SpecOp) -> None:
    kernel = kernel_around(op)
    if kernel is not None and not kernel.value("threads"):
        op.fail(f"`{op.name}` is for programs of several threads, and `@{kernel.value('symbol')}` has one")


def _check_sort(op: SpecOp) -> None:
    for line in op.operands[:4]:
        check_written(op, line)


OPS = BlockOps(
    "ttarget",
    VectorAttr,
    "block",
    {"sort": _check_sort, "barrier": _check_threads, "dot": _check_threads, "transpose": _check_threads},
)
SPECS = tuple(OPS.specs())
