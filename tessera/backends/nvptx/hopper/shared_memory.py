"""Shared memory of matrix kernels: where tiles and barriers are, and the descriptors by which dots read tiles.

A tile is stored in spans of columns, each as wide as a swizzled line; TMA writes a span as one box, and a WGMMA reads
eight lines at a time through a descriptor. A step along K moves a descriptor by 32 bytes inside the line: the swizzle
is computed from address bits, so it need not be undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import effect, flag, number, op32
from tessera.backends.nvptx.tensor_cores import K_BYTES, SPAN, WARPGROUP
from tessera.backends.nvptx.types import shaped_type
from tessera.backends.nvptx.waits import Waits
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

# Threads that synchronize: at named barriers, or, where waits are bounded, at mbarriers in shared memory.

_ORDER = 4
"""The first of two named barriers by which consumers start their dots in order."""
ORDER_THREADS = (2 * WARPGROUP, 2 * WARPGROUP)
"""Threads at each of them: those that wait, and those that let them go on."""


class ThreadBarriers:
    """The barriers of a kernel at which so many `threads` synchronize, one after the other in shared memory.

    They are mbarriers where waits are `bounded` and shared memory holds all of them; else named barriers.
    """

    def __init__(self, f: FunctionText, base: Value, bounded: Waits | None, threads: Sequence[int]) -> None:
        self.f, self.base, self.bounded = f, base, bounded
        start = bounded.allocate_barriers(threads) if bounded is not None else None
        self.offsets = [] if start is None else [start + 8 * at for at in range(len(threads))]
        self.threads = threads

    def make(self) -> None:
        """One thread makes the barriers."""
        for offset, arrivals in zip(self.offsets, self.threads, strict=bool(self.offsets)):
            asm.barrier_init(self.f, op32(self.f, "add", self.base, offset), arrivals)

    def synchronize(self, name: Value, threads: int) -> None:
        """So many threads wait for each other at the first of them, or at the named barrier."""
        if self.bounded is None or not self.offsets:
            asm.named_barrier(self.f, name, threads)
        else:
            asm.barrier_arrive_and_wait(self.f, op32(self.f, "add", self.base, self.offsets[0]), self.bounded)

    def begin_order(self, group: Value) -> None:
        """The first consumer starts first, as if the second had arrived for it."""
        f, begins = self.f, self.f.icmp("eq", group, number(1))
        if self.offsets:
            asm.barrier_arrive(f, op32(f, "add", self.base, self.offsets[0]), begins)
        else:
            text = f"{{ .reg .pred P; setp.ne.b32 P, $0, 0; @P bar.arrive {_ORDER}, {2 * WARPGROUP}; }}"
            asm.effect(f, text, "r", [asm.flag(f, begins)])

    def wait_in_order(self, group: Value) -> None:
        """A consumer waits until the other one has started its dots."""
        f = self.f
        if self.bounded is not None and self.offsets:
            asm.barrier_arrive_and_wait(f, self._order_of(group), self.bounded)
        else:
            asm.named_barrier(f, op32(f, "add", group, _ORDER), 2 * WARPGROUP)

    def arrive_in_order(self, group: Value) -> None:
        """A consumer lets the other one start its dots."""
        f = self.f
        if self.offsets:
            asm.barrier_signal(f, self._order_of(f.raw("i32", f"sub i32 1, {group.text}")))
        else:
            other = f.raw("i32", f"sub i32 {_ORDER + 1}, {group.text}")
            asm.effect(f, f"bar.arrive $0, {2 * WARPGROUP};", "r", [other])

    def _order_of(self, group: Value) -> Value:
        first = op32(self.f, "add", self.base, self.offsets[0])
        return op32(self.f, "add", first, op32(self.f, "shl", group, 3))


# Clusters of two CTAs: what both read is copied once, a half by each, to the shared memory of both.

_MULTICAST = Value("i16", "3")
"""The mask of both CTAs."""


def cluster_rank(f: FunctionText) -> Value:
    """Which of the two this CTA is, as i32."""
    return effect(f, "mov.u32 $0, %cluster_ctarank;", "=r", ret="i32")


def synchronize_cluster(f: FunctionText) -> None:
    """All threads of both CTAs wait for each other, and see what the others did to shared memory."""
    effect(f, "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")


def arrive_in_cluster(f: FunctionText, address: Value, condition: Value) -> None:
    """Arrive at a barrier of this CTA and at that of the other, where the condition holds."""
    one = "mapa.shared::cluster.u32 A, $0, {}; @P mbarrier.arrive.shared::cluster.b64 _, [A];"
    text = f"{{ .reg .pred P; .reg .b32 A; setp.ne.b32 P, $1, 0; {one.format(0)} {one.format(1)} }}"
    effect(f, text, "r,r", [address, flag(f, condition)])


def copy_multicast(f: FunctionText, map: Value, address: Value, barrier: Value, at: Sequence[Value]) -> None:
    """Start copying a box to the same address in both CTAs; `at` is innermost first."""
    coords = ", ".join(f"${3 + dim}" for dim in range(len(at)))
    text = (
        f"cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        f"[$0], [$1, {{{coords}}}], [$2], ${3 + len(at)};"
    )
    constraints = ",".join(["r", "l", "r", *["r"] * len(at), "h"])
    effect(f, text, constraints, [address, map, barrier, *at, _MULTICAST])


def half_of(f: FunctionText, op: SpecOp, number: Value, at: Sequence[Value]) -> tuple[list[Value], Value, int, Value]:
    """A `ttarget.copy` that two CTAs share, as the one with this number makes it.

    Where its boxes begin (innermost dim first), how many rows of the tile come before them, how many boxes there are,
    and the first of them.
    """
    made = op.operands[0].owner
    assert isinstance(made, SpecOp)
    box, pieces = made.value("box"), op.value("pieces")
    found, zero = list(at), Value("i32", "0")
    if op.value("half") == "pieces":
        return found, zero, pieces // 2, op32(f, "mul", number, pieces // 2)
    # The one dim of the box beside the innermost that has more than one element.
    (dim,) = [dim for dim, size in enumerate(box[:-1]) if size > 1]
    rows, inner = op32(f, "mul", number, box[dim]), len(box) - 1 - dim
    found[inner] = op32(f, "add", found[inner], rows)
    return found, rows, pieces, zero


def from_cut(f: FunctionText, corner: Sequence[Index], cut: int, end: Index, extent: Index) -> list[Index]:
    """Indices as a descriptor with a cut takes them: counted from where an access ends, and that end before them."""
    row = f.add(corner[cut], f.sub(f.index(extent), end))
    return [*corner[:cut], end, row, *corner[cut + 1 :]]


def transposed_in(op: SpecOp) -> tuple[bool, bool]:
    """Which operands of a dot are contiguous across k."""
    return op.value("lhs_major") == "mn", op.value("rhs_major") == "mn"


_KINDS = {128: 1, 64: 2, 32: 3}
"""How a descriptor says the bytes of swizzled lines."""


@frozen
class Cursor:
    """A stage and the parity of its phase, both i32."""

    slot: Value
    phase: Value


@frozen
class SharedTile:
    """A swizzled tile: columns in spans of `swizzle` bytes, one span after the other, each of all rows."""

    offset: int
    rows: int
    columns: int
    dtype: DType
    stages: int
    swizzle: int = SPAN

    @staticmethod
    def of(op: SpecOp) -> SharedTile:
        type = shaped_type(op.result)
        rows, columns = type.sizes
        return SharedTile(op.value("offset"), rows, columns, type.dtype, op.value("stages"), op.value("swizzle"))

    @property
    def span_bytes(self) -> int:
        """Bytes from one span of columns to the next."""
        return self.rows * self.swizzle

    @property
    def span_columns(self) -> int:
        return self.swizzle // self.dtype.bytes

    @property
    def spans(self) -> int:
        return self.columns // self.span_columns

    @property
    def bytes(self) -> int:
        """Bytes of one stage."""
        return self.spans * self.span_bytes

    def address(self, f: FunctionText, base: Value, slot: Value, extra: int = 0) -> Value:
        """The shared address of a stage."""
        start = op32(f, "add", base, self.offset + extra)
        return start if self.stages == 1 else op32(f, "add", start, op32(f, "mul", slot, self.bytes))

    def descriptors(self, f: FunctionText, address: Value, is_transposed: bool) -> list[Value]:
        """Descriptors of all steps of k: rows are the dot's and columns are k, or the other way round."""
        if is_transposed:
            first, K = _descriptor(f, address, self.span_bytes, self.swizzle), K_BYTES // self.dtype.bytes
            return [_advance(f, first, step * K * self.swizzle) for step in range(self.rows // K)]
        first = _descriptor(f, address, 16, self.swizzle)
        steps = range(self.swizzle // K_BYTES)
        moves = [span * self.span_bytes + step * K_BYTES for span in range(self.spans) for step in steps]
        return [_advance(f, first, move) for move in moves]


def _descriptor(f: FunctionText, address: Value, leading: int, swizzle: int) -> Value:
    """The 64-bit matrix descriptor: address, distance of spans, distance of eight rows, kind of swizzle."""
    fixed = (leading >> 4) << 16 | (8 * swizzle >> 4) << 32 | _KINDS[swizzle] << 62
    fixed -= (fixed >> 63) << 64  # as LLVM writes a number with a sign
    low = op32(f, "lshr", op32(f, "and", address, 0x3FFFF), 4)
    wide = f.raw("i64", f"zext {low} to i64")
    return f.raw("i64", f"or i64 {wide.text}, {fixed}")


def _advance(f: FunctionText, descriptor: Value, move: int) -> Value:
    return descriptor if move == 0 else f.raw("i64", f"add i64 {descriptor.text}, {move >> 4}")


@frozen
class Ring:
    """Stages of tiles: a barrier for each that says it is full, then one for each that says it is empty."""

    offset: int
    stages: int
    bytes: int
    """Those that TMA copies to a stage."""
    threaded: int = 0
    """Tiles of a stage that threads copy."""

    def full(self, f: FunctionText, base: Value, cursor: Cursor) -> Value:
        """The address of a stage's barrier that TMA completes."""
        return self._barrier(f, base, cursor, self.offset)

    def empty(self, f: FunctionText, base: Value, cursor: Cursor) -> Value:
        """The address of a stage's barrier that consumers complete."""
        return self._barrier(f, base, cursor, self.offset + 8 * self.stages)

    def _barrier(self, f: FunctionText, base: Value, cursor: Cursor, offset: int) -> Value:
        start = op32(f, "add", base, offset)
        return start if self.stages == 1 else op32(f, "add", start, op32(f, "shl", cursor.slot, 3))

    def after(self, f: FunctionText, cursor: Cursor) -> Cursor:
        """The next stage."""
        flipped = op32(f, "xor", cursor.phase, 1)
        if self.stages == 1:
            return Cursor(cursor.slot, flipped)
        following = op32(f, "add", cursor.slot, 1)
        ends = f.icmp("eq", following, number(self.stages))
        return Cursor(f.select(ends, number(0), following), f.select(ends, flipped, cursor.phase))
