"""What a machine can do, as a value: passes read it, and never import a backend.

A backend fills in what is true of its machines only (which matrix instructions there are, how wide swizzled rows of
shared memory are, what a multiprocessor holds), so that general passes ask a number and never a generation's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.types.frozen import frozen

AUTOMATIC = "automatic"
"""The choice of matrix instructions that leaves it to the compiler: the best that take a kernel."""
PLAIN = "multiply-adds"
"""What computes matmuls where no matrix instruction takes them."""


@frozen
class MatrixInstruction:
    """One matrix multiply-accumulate instruction: its rows, the columns it may have, and the bytes of K it takes.

    `rounds` are the formats that its operands can be rounded to while they are copied to shared memory, `blocks` the
    candidates (BM, BN, BK) for the blocks of a contraction, in order of preference. One that `computes` takes an A
    operand from registers, where threads compute it; one that `joins` leaves registers for partial results. Operands
    of what is named `along_k`, dtypes or modes of f32, are taken only where K is their contiguous dim. `windows` are
    the limits of copies that read windows of images: dtypes, bytes that channels are a multiple of, the longest stride,
    and bits of distances from edges and within a window, of images of 1, 2, ... dims; empty where there are none.
    """

    name: str
    rows: int
    columns: range
    k_bytes: int = 32
    rounds: tuple[str, ...] = ()
    blocks: tuple[tuple[int, int, int], ...] = ()
    computes: bool = False
    joins: bool = False
    along_k: tuple[str, ...] = ()
    windows: tuple[str | int, ...] = ()

    def problem(self, given: Sequence[int], sizes: Sequence[int]) -> str:
        """What is wrong with rows, columns and K as given for a dot of M x N x K; empty where nothing is."""
        if len(given) != 3:
            return f"`instruction` is rows, columns and K, got {list(given)}"
        rows, columns, k = given
        taken_k = [self.k_bytes // bytes for bytes in (4, 2, 1)]
        if rows != self.rows or columns not in self.columns or k not in taken_k:
            last = self.columns[-1]
            wide = f"{last}" if len(self.columns) == 1 else f"{self.columns[0]} to {last} in {self.columns.step}s"
            taken = f"{self.rows} rows, {wide} columns and {', '.join(map(str, taken_k))} of K"
            return f"one `{self.name}` takes {taken}, got {rows} x {columns} x {k}"
        if any(size % part for size, part in zip(sizes, given, strict=True)):
            return f"{' x '.join(map(str, sizes))} is not made of instructions of {rows} x {columns} x {k}"
        return ""


@frozen
class BulkCopy:
    """Copies of whole boxes of a tensor, which hardware makes by itself: the most elements along a dim, and dims."""

    max_box: int
    max_rank: int


@frozen
class Multiprocessor:
    """What the blocks of a GPU's multiprocessor share: slots for warps and for blocks, shared bytes, registers."""

    warps: int
    blocks: int
    shared: int
    registers: int = 65536


@frozen
class HostLink:
    """What a machine does while its link to host memory moves a byte: the bytes of its own memory, and the flops.

    Where there is one memory, a copy of a byte reads and writes it.
    """

    bytes: int = 2
    flops: int = 16

    def divide(self, share: int) -> HostLink:
        """A link that is so many times as fast, but never faster than its machine's own memory."""
        return HostLink(max(1, self.bytes // share), max(1, self.flops // share))


@frozen
class Machine:
    """A machine that code is made for.

    `lanes` is how many f32 one vector register holds; on a GPU, a warp's. Sizes are bytes; `threads` is not here: it
    never changes code. Of a GPU, `shared` is what one block may have, `blocks` how many multiprocessors there are,
    and `isa` the instruction set its assembler is told. `is_proven` says that the authors ran code on such a machine;
    for others it was assembled and no more.
    """

    name: str
    kind: str = "cpu"
    lanes: int = 8
    registers: int = 16
    l1: int = 32 << 10
    l2: int = 512 << 10
    features: tuple[str, ...] = ()
    cpu: str = ""
    max_scratch: int = 64 << 20
    shared: int = 0
    blocks: int = 0
    isa: str = ""
    instructions: tuple[MatrixInstruction, ...] = ()
    """Matrix instructions, the best first."""
    lines: tuple[int, ...] = ()
    """Bytes of rows of shared tiles that matrix instructions read swizzled, the widest first."""
    copy: BulkCopy | None = None
    multiprocessor: Multiprocessor | None = None
    link: HostLink = HostLink()
    is_proven: bool = True

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def is_gpu(self) -> bool:
        return self.kind == "gpu"

    @property
    def matrix_choices(self) -> tuple[str, ...]:
        """What `matrix.instruction` can be: automatic, one of the instructions, or multiply-adds."""
        return (AUTOMATIC, *(one.name for one in self.instructions), PLAIN)


# How many blocks of a kernel a multiprocessor holds at a time, and what it is that stops more of them.

WARP = 32
QUARTERS = 4
"""Parts of a multiprocessor, each with its own registers: a warp lives in one of them."""
REGISTER_UNIT = 256
"""Granularity in which a warp is given registers."""
SHARED_UNIT = 128
"""Granularity, in bytes, in which a block is given shared memory."""
RESERVED = 1 << 10
"""Bytes of shared memory of every block that are the system's."""
MAX_REGISTERS = 255
"""Registers of a thread at most."""
MAX_THREADS = 1024
"""Threads of a block at most."""


@frozen
class Usage:
    """What a kernel asks of a multiprocessor: threads of a block, registers of a thread, shared bytes of a block."""

    threads: int
    registers: int
    shared: int


@frozen
class Occupancy:
    """Blocks that run at a time on one multiprocessor, and the most that each thing they share would allow."""

    blocks: int
    warps: int
    most_warps: int
    limits: tuple[tuple[str, int], ...]
    """Blocks allowed by `warps`, `blocks`, `registers` and `shared`."""

    @property
    def limiter(self) -> str:
        """What stops more blocks."""
        return min(self.limits, key=lambda limit: limit[1])[0]

    @property
    def fraction(self) -> float:
        """Warps that are there, of those that could be."""
        return self.warps / self.most_warps

    def __str__(self) -> str:
        many = "block" if self.blocks == 1 else "blocks"
        held = f"{self.warps} of {self.most_warps} warps"
        return f"{self.blocks} {many} a multiprocessor, {held}, limited by {self.limiter}"


def occupancy(has: Multiprocessor, usage: Usage) -> Occupancy:
    """How many blocks of such a kernel one multiprocessor holds.

    >>> print(occupancy(Multiprocessor(64, 32, 228 << 10), Usage(threads=256, registers=64, shared=0)))
    4 blocks a multiprocessor, 32 of 64 warps, limited by registers
    """
    warps = -(-usage.threads // WARP)
    limits = (
        ("warps", has.warps // warps if usage.threads <= MAX_THREADS else 0),
        ("blocks", has.blocks),
        ("registers", _by_registers(has, warps, usage.registers)),
        ("shared", has.shared // _whole(usage.shared + RESERVED, SHARED_UNIT)),
    )
    blocks = min(count for _, count in limits)
    return Occupancy(blocks, blocks * warps, has.warps, limits)


def _by_registers(has: Multiprocessor, warps: int, registers: int) -> int:
    """Blocks that registers allow: each quarter holds so many warps, and the warps of a block are dealt to all four."""
    if registers > MAX_REGISTERS:
        return 0
    each = _whole(max(registers, 1) * WARP, REGISTER_UNIT)
    if each * _whole(warps, QUARTERS) > has.registers:
        return 0
    return has.registers // QUARTERS // each * QUARTERS // warps


def _whole(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def registers_for(has: Multiprocessor, threads: int, blocks: int) -> int:
    """Registers that a thread may have where a multiprocessor is to hold so many blocks.

    >>> registers_for(Multiprocessor(64, 32, 228 << 10), 256, 2)
    128
    """
    fitting = (
        registers
        for registers in range(MAX_REGISTERS, 0, -1)
        if occupancy(has, Usage(threads, registers, 0)).blocks >= blocks
    )
    return next(fitting, 0)
