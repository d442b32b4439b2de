"""The GPUs that code is made for: limits, caches, features and matrix instructions of each architecture.

Numbers are from the CUDA C++ Programming Guide (compute capabilities, technical specifications per compute capability)
and the PTX ISA 8.7 (shapes of `mma.sync`, `wgmma.mma_async`, `tcgen05.mma`; `cp.async.bulk.tensor`).
"""

from __future__ import annotations

from tessera.backends.nvptx.block_model import MMA_SYNC_BLOCKS, TCGEN05_BLOCKS, WGMMA_BLOCKS
from tessera.types.machine import BulkCopy, Machine, MatrixInstruction, Multiprocessor

MMA_SYNC_INSTRUCTION = MatrixInstruction("mma.sync", 16, range(8, 9), blocks=MMA_SYNC_BLOCKS)
WGMMA_INSTRUCTION = MatrixInstruction("wgmma", 64, range(8, 257, 8), rounds=("tf32",), blocks=WGMMA_BLOCKS)
TCGEN05_INSTRUCTION = MatrixInstruction("tcgen05", 128, range(16, 257, 16), blocks=TCGEN05_BLOCKS)
INSTRUCTIONS = {one.name: one for one in (TCGEN05_INSTRUCTION, WGMMA_INSTRUCTION, MMA_SYNC_INSTRUCTION)}
"""By name, the best first."""
TMA = BulkCopy(max_box=256, max_rank=5)
SPAN = 128
"""Bytes of a row of a swizzled tile: the widest swizzle."""
SPANS = (SPAN, 64, 32)
"""Bytes of rows that TMA and WGMMA have swizzles for, the widest first."""

MULTIPROCESSORS: dict[str, Multiprocessor] = {
    "sm_80": Multiprocessor(64, 32, 164 << 10),
    "sm_86": Multiprocessor(48, 16, 100 << 10),
    "sm_87": Multiprocessor(48, 16, 164 << 10),
    "sm_89": Multiprocessor(48, 24, 100 << 10),
    "sm_90a": Multiprocessor(64, 32, 228 << 10),
    "sm_100a": Multiprocessor(64, 32, 228 << 10),
    "sm_120a": Multiprocessor(48, 24, 100 << 10),
}
"""By architecture."""

DEFAULT = "sm_90a"
"""What is compiled for where no GPU says otherwise."""
_PROVEN = ("sm_90a",)
"""GPUs that code was run on."""
_AMPERE = ("sm_80", "cp.async", "ldmatrix", "mma.sync")
_HOPPER = ("sm_90", "tma", "mbarrier", "cluster")

FEATURES: dict[str, str] = {
    "sm_80": "",
    **dict.fromkeys(("cp.async", "ldmatrix", "mma.sync", "sm_90"), "sm_80"),
    **dict.fromkeys(("tma", "mbarrier", "cluster", "sm_90a", "sm_100a"), "sm_90"),
    **dict.fromkeys(("wgmma", "setmaxnreg"), "sm_90a"),
    "tcgen05": "sm_100a",
}
"""Architectures and instructions, each with the one that it cannot be without."""
LEVELS: dict[str, tuple[str, ...]] = {
    "sm_80": ("cp.async", "ldmatrix", "mma.sync"),
    "sm_90": ("cluster", "mbarrier", "tma"),
    "sm_90a": ("setmaxnreg", "wgmma"),
    "sm_100a": ("tcgen05",),
}
"""The architecture that first has each instruction (PTX ISA, target notes)."""


def _gpu(cpu: str, isa: str, shared: int, blocks: int, l2: int, features: tuple[str, ...]) -> Machine:
    return Machine(
        f"cuda-{cpu}",
        "gpu",
        32,
        255,
        0,
        l2,
        features,
        cpu,
        max_scratch=1 << 40,
        shared=shared,
        blocks=blocks,
        isa=isa,
        instructions=tuple(one for name, one in INSTRUCTIONS.items() if name in features),
        lines=SPANS if "wgmma" in features else (SPAN,),
        copy=TMA if "tma" in features else None,
        multiprocessor=MULTIPROCESSORS[cpu],
        is_proven=cpu in _PROVEN,
    )


GPUS: dict[str, Machine] = {
    machine.cpu: machine
    for machine in (
        _gpu("sm_80", "+ptx80", 163 << 10, 108, 40 << 20, _AMPERE),
        _gpu("sm_86", "+ptx80", 99 << 10, 84, 6 << 20, _AMPERE),
        _gpu("sm_89", "+ptx80", 99 << 10, 128, 72 << 20, _AMPERE),
        _gpu("sm_90a", "+ptx87", 227 << 10, 132, 50 << 20, (*_AMPERE, *_HOPPER, "sm_90a", "wgmma", "setmaxnreg")),
        _gpu("sm_100a", "+ptx87", 227 << 10, 148, 126 << 20, (*_AMPERE, *_HOPPER, "sm_100a", "tcgen05")),
        _gpu("sm_120a", "+ptx87", 99 << 10, 170, 96 << 20, (*_AMPERE, *_HOPPER)),
    )
}
"""GPUs by architecture; only sm_90a was ever executed."""


def gpu_of(machine: Machine | str) -> Machine:
    """A GPU by its architecture, as texts of pipelines name it, or as it is."""
    return GPUS[machine] if isinstance(machine, str) else machine


def gpu_name(machine: Machine) -> Machine | str:
    """What a pass is told of a GPU: the architecture, by which a text can name it, unless it is a GPU of its own."""
    return machine.cpu if GPUS.get(machine.cpu) == machine else machine
