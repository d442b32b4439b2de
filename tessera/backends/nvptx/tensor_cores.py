"""The tensor cores of NVIDIA GPUs: what their instructions multiply, how warps share a tile, and limits of both.

There are three generations: `mma.sync` of single warps (sm_80 on), whose operands come from shared memory through
registers; `wgmma` of groups of four warps (sm_90a), which read shared memory themselves and run asynchronously; and
`tcgen05` (sm_100a), which also accumulates in a memory of its own. Numbers are from the PTX ISA 8.7 (`mma.sync`,
`wgmma.mma_async`, `tcgen05.mma`, `cp.async.bulk.tensor`, `setmaxnreg`) and the CUDA driver API
(`cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tessera.backends.nvptx.block_model import MMA_SYNC_BLOCKS, PLAIN_BLOCKS, TCGEN05_BLOCKS, WGMMA_BLOCKS
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.machine import BulkCopy, HostLink, Machine, MatrixInstruction, Multiprocessor

# The GPUs that code is made for: limits, caches, features and matrix instructions of each architecture.

MAX_STRIDE, CORNER_BITS = 8, {1: 16, 2: 8, 3: 5}
"""The longest stride of copies that read windows (im2col), and bits of corners and offsets by spatial dims."""
MMA_SYNC_INSTRUCTION = MatrixInstruction("mma.sync", 16, range(8, 9), blocks=MMA_SYNC_BLOCKS, along_k=("i8", "tf32"))
WGMMA_INSTRUCTION = MatrixInstruction(
    "wgmma",
    64,
    range(8, 257, 8),
    rounds=("tf32",),
    blocks=(*WGMMA_BLOCKS, *PLAIN_BLOCKS),
    computes=True,
    joins=True,
    along_k=("i8", "u8", "f8e4m3", "f8e5m2", "tf32"),
    windows=("bf16", "f16", 32, MAX_STRIDE, *CORNER_BITS.values()),
)
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


LINK = HostLink(80, 16000)
"""Of an H200 by its data sheet: 4.8 TB/s of memory and 0.99 PFLOPS (bf16, dense) beside PCIe 5.0 x16, 63 GB/s.

Others have links that are as slow beside their memory; a prefetch that starts too early costs memory alone.
"""


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
        link=LINK,
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


SHARED_BYTES = 227 << 10
"""Shared memory that one CTA may have on the largest machine; the one at hand may have less."""
MULTIPROCESSOR_SHARED, RESERVED_SHARED = 228 << 10, 1 << 10
"""Shared memory of such a multiprocessor, and what each CTA there takes for the machine itself."""


def shared_beside(count: int) -> int:
    """Shared memory that each of so many CTAs of a multiprocessor may have."""
    return (MULTIPROCESSOR_SHARED // count - RESERVED_SHARED) // ALIGNMENT * ALIGNMENT


REGISTERS = 65536
"""Registers of a multiprocessor, all of which one CTA may have."""
WARPGROUP = 128
"""Threads of a warp group: four warps, which one `wgmma` is issued by."""
MAX_WARPGROUPS = 4
"""Warp groups of a CTA of `mma.sync`: more threads would have too few registers each."""
WARPS_ACROSS = (1, 2, 4)
"""Warps of a group that stand side by side, each with some of the columns (`mma.sync`)."""

WGMMA_ROWS = WGMMA_INSTRUCTION.rows
WGMMA_COLUMNS = WGMMA_INSTRUCTION.columns[-1]
K_BYTES = WGMMA_INSTRUCTION.k_bytes
"""Bytes of K that one instruction takes, whatever the dtype."""
PROMOTED_K = 128
"""K of 8-bit floats that tensor cores accumulate by themselves, before the sum is added to f32 accumulators outside of
them: the same whatever the K of a step is, so that no choice of it changes a bit."""

ALIGNMENT = 1024
"""A swizzle repeats after eight rows, and where it begins is read from the address."""
MAX_BOX, MAX_RANK = TMA.max_box, TMA.max_rank
MAX_TRANSACTION = (1 << 20) - 1
"""Bytes that one phase of an mbarrier can count."""
CP_ASYNC_BYTES = 16
"""Bytes that one `cp.async` moves, and that both of its ends are multiples of."""

TCGEN05_ROWS = TCGEN05_INSTRUCTION.rows
"""Rows of a `tcgen05.mma`, and lanes of tensor memory: row i is in lane i."""
TCGEN05_COLUMNS = TCGEN05_INSTRUCTION.columns[-1]
TMEM_COLUMNS = 512
"""Columns of tensor memory, 4 bytes in each lane."""
MIN_TMEM_COLUMNS = 32
"""Columns of tensor memory are allocated in powers of two of so many."""
TMEM_ALLOCATION = 16
"""Shared bytes of an allocation: the address that the machine writes, and the mbarrier that MMAs arrive at."""

WGMMA_FEATURES = ("wgmma", "tma", "setmaxnreg")
MMA_SYNC_FEATURES = ("cp.async", "ldmatrix", "mma.sync")
TCGEN05_FEATURES = ("tcgen05", "tma")


class UnfitError(Exception):
    """Why a kernel does not run on some tensor cores."""


@frozen
class MmaForm:
    """An MMA of one dtype: its PTX suffix, its accumulator, and whether operands may be contiguous across K.

    Accumulators of 8-bit floats keep fewer bits than f32 has inside of tensor cores, so those are added up outside of
    them (`is_promoted`), `PROMOTED_K` dots at a time.
    """

    suffix: str
    accumulator: DType
    is_transposable: bool = False
    is_promoted: bool = False

    def adds_to(self, dtype: DType) -> bool:
        """Whether accumulators hold sums of a dtype: those of integers wrap, and so are of either sign."""
        return dtype is self.accumulator or (self.accumulator is dt.i32 and dtype is dt.u32)

    def has(self, columns: int) -> bool:
        """Whether there is one of so many columns: of floats any eights, of integers sixteens from 32 on."""
        is_even = self.accumulator.is_float or columns % 16 == 0 or columns < 32
        return columns % 8 == 0 and 8 <= columns <= WGMMA_COLUMNS and is_even


WGMMA_FORMS: dict[DType, MmaForm] = {
    dt.bf16: MmaForm("f32.bf16.bf16", dt.f32, is_transposable=True),
    dt.f16: MmaForm("f32.f16.f16", dt.f32, is_transposable=True),
    dt.i8: MmaForm("s32.s8.s8", dt.i32),
    dt.u8: MmaForm("s32.u8.u8", dt.i32),
    dt.f8e4m3: MmaForm("f32.e4m3.e4m3", dt.f32, is_promoted=True),
    dt.f8e5m2: MmaForm("f32.e5m2.e5m2", dt.f32, is_promoted=True),
}
"""By the dtype of both operands."""
WGMMA_FORMS_TF32: dict[DType, MmaForm] = {**WGMMA_FORMS, dt.f32: MmaForm("f32.tf32.tf32", dt.f32)}
"""The same, and that of f32 where all numbers are ones of tf32: of others tensor cores cut the low bits off."""
MMA_SYNC_FORMS: dict[DType, MmaForm] = {
    dt.bf16: MmaForm("m16n8k16.row.col.f32.bf16.bf16.f32", dt.f32, is_transposable=True),
    dt.f16: MmaForm("m16n8k16.row.col.f32.f16.f16.f32", dt.f32, is_transposable=True),
    dt.i8: MmaForm("m16n8k32.row.col.s32.s8.s8.s32", dt.i32),
}
MMA_SYNC_FORMS_TF32: dict[DType, MmaForm] = {
    **MMA_SYNC_FORMS,
    dt.f32: MmaForm("m16n8k8.row.col.f32.tf32.tf32.f32", dt.f32),
}
TCGEN05_FORMS: dict[DType, MmaForm] = {
    dt.bf16: MmaForm("f16", dt.f32, is_transposable=True),
    dt.f16: MmaForm("f16", dt.f32, is_transposable=True),
}
"""By the dtype of both operands; the suffix is the kind of `tcgen05.mma`."""
TCGEN05_FORMATS: dict[DType, int] = {dt.f16: 0, dt.bf16: 1}
"""The number of an operand's dtype in an instruction descriptor of that kind."""


def form_of(forms: Mapping[DType, MmaForm], lhs: DType, rhs: DType) -> MmaForm | None:
    """The MMA of two dtypes: of one, or of bytes with a sign by others without; None where there is none.

    >>> form_of(WGMMA_FORMS, dt.u8, dt.i8).suffix, form_of(WGMMA_FORMS, dt.f16, dt.bf16)
    ('s32.u8.s8', None)
    """
    own, other = forms.get(lhs), forms.get(rhs)
    if own is None or other is None or lhs is rhs:
        return own if lhs is rhs else None
    if own.accumulator.is_float or other.accumulator.is_float:
        return None
    (_, left, _), (_, right, _) = (form.suffix.split(".") for form in (own, other))
    return replace(own, suffix=f"s32.{left}.{right}")


def tmem_columns(width: int) -> int:
    """The fewest columns that can be asked for which hold so many."""
    found = MIN_TMEM_COLUMNS
    while found < width:
        found *= 2
    return found


@frozen
class TensorCores:
    """Tensor cores of a machine: their instruction, what they multiply, and which warp groups share a tile.

    `groups` takes the rows of all dots and the columns of each; there are `most` of them. `rounded` is what they
    multiply where a program has rounded its f32 to tf32. `features` are those that a kernel for them cannot be without;
    `trims` says that rows which are not there need no copying, `sends` that TMA stores results, `cuts` that it leaves
    out rows of a B operand from an index on that a program computes, or reads from memory, `computes` that threads read
    copied tiles to compute an A operand from them, `windows` that copies read windows of images. `lines` are the bytes
    of rows in shared memory that there are swizzles for, the widest first.
    """

    instruction: MatrixInstruction
    features: tuple[str, ...]
    forms: Mapping[DType, MmaForm]
    groups: Callable[[int, Sequence[int]], int]
    most: int
    rounded: Mapping[DType, MmaForm] | None = None
    trims: bool = False
    sends: bool = False
    cuts: bool = False
    computes: bool = False
    windows: bool = False
    lines: tuple[int, ...] = (SPAN,)

    @property
    def name(self) -> str:
        return self.instruction.name

    def shape_of(self, columns: int, parts: int, dtype: DType) -> tuple[int, int, int]:
        """Rows, columns and K of one instruction of a dot of so many columns in so many parts."""
        one = self.instruction
        return one.rows, min(one.columns[-1], columns // parts), K_BYTES // dtype.bytes


_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
"""Warp groups for so many rows; two of them take 128 rows each where there are 256."""
_MOST_ACCUMULATORS = 128
"""Accumulators of a thread of `mma.sync`, of all dots together."""
_LDMATRIX_COLUMNS = 16
"""Columns of a B operand that one `ldmatrix` reads."""
_ONE_GROUP_COLUMNS = 128
"""Columns of tensor memory that one warp group has registers for; more are shared by two."""


def _wgmma_groups(rows: int, columns: Sequence[int]) -> int:
    if rows not in _CONSUMERS:
        raise UnfitError(f"dots have {' or '.join(map(str, _CONSUMERS))} rows, got {rows}")
    return _CONSUMERS[rows]


def _mma_sync_groups(rows: int, columns: Sequence[int]) -> int:
    """The fewest groups whose accumulators fit their registers: the more rows a warp has, the less it reads."""
    if any(count % _LDMATRIX_COLUMNS for count in columns):
        raise UnfitError(f"dots have columns in {_LDMATRIX_COLUMNS}s, got {', '.join(map(str, columns))}")
    blocks, remainder = divmod(rows, WGMMA_ROWS)
    for groups in range(1, MAX_WARPGROUPS + 1):
        is_whole = not remainder and blocks and blocks % groups == 0
        if is_whole and blocks // groups * sum(columns) // 2 <= _MOST_ACCUMULATORS:
            return groups
    raise UnfitError(f"dots of {rows} x {', '.join(map(str, columns))} do not fit the registers of whole warps")


def _tcgen05_groups(rows: int, columns: Sequence[int]) -> int:
    if rows != TCGEN05_ROWS or len(columns) != 1 or columns[0] % 16 or columns[0] > TCGEN05_COLUMNS:
        raise UnfitError(
            f"tensor memory takes one dot of {TCGEN05_ROWS} rows by columns in 16s up to {TCGEN05_COLUMNS}, "
            f"got {rows} by {', '.join(map(str, columns))}"
        )
    return 1 if columns[0] <= _ONE_GROUP_COLUMNS else 2


WGMMA = TensorCores(
    WGMMA_INSTRUCTION,
    WGMMA_FEATURES,
    WGMMA_FORMS,
    _wgmma_groups,
    3,
    rounded=WGMMA_FORMS_TF32,
    trims=True,
    sends=True,
    cuts=True,
    computes=True,
    windows=True,
    lines=SPANS,
)
"""Those of Hopper."""
MMA_SYNC = TensorCores(
    MMA_SYNC_INSTRUCTION,
    MMA_SYNC_FEATURES,
    MMA_SYNC_FORMS,
    _mma_sync_groups,
    MAX_WARPGROUPS,
    rounded=MMA_SYNC_FORMS_TF32,
)
"""Those of single warps, as every machine from sm_80 on has them."""
TCGEN05 = TensorCores(TCGEN05_INSTRUCTION, TCGEN05_FEATURES, TCGEN05_FORMS, _tcgen05_groups, 2)
"""Those that accumulate in tensor memory."""
TENSOR_CORES = {cores.name: cores for cores in (TCGEN05, WGMMA, MMA_SYNC)}
"""By the name of their instruction, the best first."""
_ORDER = {WGMMA.name: (WGMMA,), TCGEN05.name: (TCGEN05, MMA_SYNC), MMA_SYNC.name: (MMA_SYNC,)}
"""The best that a machine may have, each with what takes over where they do not fit."""


def candidates_on(machine: Machine) -> tuple[TensorCores, ...]:
    """The tensor cores that a kernel is tried on where nobody asks for others, in order."""
    return next((candidates for name, candidates in _ORDER.items() if machine.has(name)), ())


def check_machine(machine: Machine, features: Sequence[str]) -> None:
    """Raises `UnfitError` for a machine that lacks what a kernel cannot be without."""
    if not all(machine.has(feature) for feature in features):
        raise UnfitError(f"{machine.name} lacks {' or '.join(features)}")
