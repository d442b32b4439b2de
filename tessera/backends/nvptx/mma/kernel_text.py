"""The frame of kernels for tensor cores as LLVM text: arguments, shared memory, and what a launch must know."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import BlockArgument

from tessera.backends.nvptx.text import DescriptorCode, DeviceModule, KernelCode
from tessera.ir.base.index_maps import strides
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim, product
from tessera.types.machine import Machine

_MAP_TYPE = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'
"""A TMA descriptor as a kernel takes it: by value, never copied."""


def frame_kernel(
    kernel: SpecOp,
    machine: Machine,
    threads: int,
    write: Callable[[FunctionText, Value], None],
    *,
    blocks: int = 1,
    cluster: int = 1,
    tokens: int = 0,
    variables: str = "",
) -> KernelCode:
    """The module of a kernel whose body `write` writes, given where shared memory begins.

    Its TMA descriptors are in the order of the kernel; `tokens` are sizes that a launch passes beside them.
    """
    module = DeviceModule(machine)
    block = kernel.regions[0].block
    maps = [op for op in block.ops if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]
    arguments = [(_MAP_TYPE, f"map{at}") for at in range(len(maps))]
    arguments += [("ptr", f"buffer{at}") for at in range(len(block.args))]
    arguments += [("i64", f"size{at}") for at in range(len(kernel.value("symbols")))]
    arguments += [("ptr", "scratch"), *[("i64", "token")] * tokens]
    f = module.kernel(kernel.value("symbol"), arguments, threads, blocks=blocks, cluster=cluster)
    base = module.shared_address(f)
    module.variables = variables
    write(f, base)
    f.ret()
    return KernelCode(
        kernel.value("symbol"),
        module.text(),
        product(kernel.value("grid")),
        tuple(kernel.value("symbols")),
        threads,
        1,
        kernel.value("shared"),
        Dim.constant(0),
        0,
        tuple(_map_code(op, kernel.value("writes")) for op in maps),
    )


def _map_code(op: SpecOp, writes: Sequence[int]) -> DescriptorCode:
    """A TMA descriptor of a whole contiguous argument."""
    buffer = op.operands[0]
    assert isinstance(buffer, BlockArgument)
    type = buffer.type
    assert isinstance(type, BufferAttr)
    distances = [stride * type.dtype.bytes for stride in strides(type.shape)[:-1]]
    return DescriptorCode(
        buffer.index,
        op.value("rounds") or type.dtype.name,
        type.shape[::-1],
        tuple(distances[::-1]),
        tuple(op.value("box")[::-1]),
        op.value("swizzle"),
        bytes=type.dtype.bytes,
        is_output=buffer.index in writes,
        cut=len(type.shape) - 1 - op.value("cut") if op.value("cut") >= 0 else -1,
    )
