"""Control flow and effects in a plan: bodies become plans inside plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.tape import Record
from tessera.types.tensor_type import TensorType


def plan_flow(
    builder: Any, block: Block, record: Record, operands: Sequence[SSAValue], types: Sequence[TensorType]
) -> Sequence[SSAValue]:
    """The results of an op that no kernel computes."""
    raise ScheduleError(f"`{record.op}` has no way into a host program", span=record.span)
