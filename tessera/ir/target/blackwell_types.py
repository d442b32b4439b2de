"""The type of tensor memory: accumulators that products write and threads read when they are done."""

from __future__ import annotations

from tessera.ir.base.types import ShapedAttr


class TensorMemoryAttr(ShapedAttr):
    """Columns of tensor memory, in which row i of an accumulator is lane i."""

    name = "ttarget.tensor_memory"


TYPES = (TensorMemoryAttr,)
