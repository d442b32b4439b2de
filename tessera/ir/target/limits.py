"""What kernels may ask for: widths of vectors with what each needs, features by name, and the most of everything."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.types.frozen import frozen


@frozen
class Width:
    """Vectors of so many f32: the feature they come with, and how many registers there are (Intel SDM vol. 1, 3.4)."""

    lanes: int
    needs: str
    registers: int


WIDTHS = {
    width.lanes: width
    for width in (Width(4, "sse2", 16), Width(8, "avx2", 16), Width(16, "avx512f", 32), Width(32, "sm_80", 255))
}

FEATURES: dict[str, str] = {
    **dict.fromkeys(("sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2"), ""),
    **dict.fromkeys(("fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe", "avxvnni"), ""),
    "avx512f": "avx2",
    **dict.fromkeys(("avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512bf16"), "avx512f"),
    **dict.fromkeys(("avx512fp16", "avx512vbmi", "avx512vbmi2", "avx512ifma", "avx512bitalg"), "avx512f"),
    "amx-tile": "avx512f",
    **dict.fromkeys(("amx-bf16", "amx-int8", "amx-fp16"), "amx-tile"),
    "sm_80": "",
    **dict.fromkeys(("cp.async", "ldmatrix", "mma.sync", "sm_90"), "sm_80"),
    **dict.fromkeys(("tma", "mbarrier", "cluster", "sm_90a", "sm_100a"), "sm_90"),
    **dict.fromkeys(("wgmma", "setmaxnreg"), "sm_90a"),
    "tcgen05": "sm_100a",
}
"""Names as LLVM spells them, each with the one that it cannot be without; of GPUs, architectures and instructions."""

WARP = 32
"""Threads that run as one on a GPU."""
MAX_THREADS = 1024
"""Threads of a block (CUDA C++ Programming Guide, technical specifications per compute capability)."""

SHARES = (4, 8, 16)
"""Warps that may share a row: no more than a block has barriers, as any of them may be the first of a team."""

MAX_ARGUMENTS = 1024
MAX_SIZES = 1024
MAX_SCRATCH = 1 << 31
"""Bytes of scratch one thread may be asked for where the size is static."""

LINE = 64
"""Bytes of a cache line: scratch begins at one, and so does each part of it."""

MAX_REGISTERS = 64
"""A block may be as large as so many times the register file: every vector of it is written out in code."""
MAX_THREAD_REGISTERS = 8 * 255
"""Elements of a block that one of a program's threads may have, most of which it then keeps in memory of its own."""


def registers_of(sizes: Sequence[int], lanes: int) -> int:
    """Vector registers that a block takes: rows of its last axis, each in registers of its own."""
    *outer, last = sizes or (1,)
    count = last // min(lanes, last) if last and last % min(lanes, last) == 0 else last
    for size in outer:
        count *= size
    return count
