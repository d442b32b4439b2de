"""Kernels that users wrote, as entries of the library: each writes itself."""

from __future__ import annotations

from tessera.ir.base.kernels import KERNELS
from tessera.ir.base.op import SpecOp
from tessera.stdlib.kernels.call import Call, LibraryKernel


def _write(call: Call) -> list[SpecOp]:
    return KERNELS[call.attributes["kernel"]].write(call)


KERNEL = LibraryKernel("user_kernel", "A kernel written in the kernel language.", _write)
