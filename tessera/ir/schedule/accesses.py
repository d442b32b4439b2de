"""What launches touch: the places in memory that ops of a host program read and write, as far as the program says."""

from __future__ import annotations

from typing import Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr


def modes_of(kernel: SpecOp) -> list[str]:
    """For each argument of a kernel whether it is read (`r`), or written too (`rw`: cells may stay as they were)."""
    writes = set(kernel.value("writes"))
    return ["rw" if at in writes else "r" for at in range(len(kernel.regions[0].block.args))]


def accesses_of(kernel: SpecOp) -> dict[str, Any]:
    """Plain values for a runtime: the sizes of a kernel, and of each buffer its mode and its bytes in those sizes."""
    types = [argument.type for argument in kernel.regions[0].block.args]
    sizes = [str(type.data.bytes) for type in types if isinstance(type, BufferAttr)]
    return {
        "symbols": list(kernel.value("symbols")),
        "buffers": [list(pair) for pair in zip(modes_of(kernel), sizes, strict=True)],
    }
