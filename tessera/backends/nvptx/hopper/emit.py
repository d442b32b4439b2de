"""Matrix kernels to LLVM text: set-up, roles, the order of tiles, loops, rings and copies.

The first warp group is the producer: it gives most of its registers to the consumers (`setmaxnreg`), and one elected
thread of it copies. A cursor is a stage and the parity of its phase, which flips when a ring wraps around; an mbarrier
is waited for by parity, so a producer begins with the parity of a phase that has already ended, and finds every stage
empty. Inside a loop nothing but these barriers synchronizes. Values that LLVM must not move past a wait pass through
its assembly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.hopper import shared_memory as clusters
from tessera.backends.nvptx.hopper.fragments import Thread, thread_of
from tessera.backends.nvptx.hopper.programs import (
    Deferred,
    Mailbox,
    OverlappedTiles,
    Piece,
    epilogue_in,
    flat,
    mailboxes,
    program_at,
    unflat,
)
from tessera.backends.nvptx.hopper.shared_memory import ORDER_THREADS, Cursor, Ring, SharedTile, ThreadBarriers
from tessera.backends.nvptx.hopper.threaded_copies import ThreadedCopy, is_by_threads, threaded_copies
from tessera.backends.nvptx.hopper.tiles import TileOps
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.mma.check_copies import bytes_of
from tessera.backends.nvptx.mma.target_kernels import frame_kernel
from tessera.backends.nvptx.ops.wgmma_kernel import skipping
from tessera.backends.nvptx.tensor_cores import REGISTERS, WARPGROUP
from tessera.backends.nvptx.text import KernelCode, special
from tessera.backends.nvptx.types import shaped_type, spec_ops, yielded_values
from tessera.backends.nvptx.values import memory_type
from tessera.backends.nvptx.waits import GLOBALS, Waits
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops
    from tessera.ir.target import typed_ops as target_ops


@frozen
class Setting:
    """What all parts of a kernel share: sizes, shared memory, and who the thread is."""

    sizes: Mapping[str, Index]
    base: Value
    tid: Value
    warp: Value
    group: Value
    """The warpgroup, counted from 0 among consumers; -1 for the producer."""
    consumers: int
    bounded: Waits | None
    first: int = WARPGROUP
    """The first thread that computes."""


def emit_matrix_kernel(kernel: SpecOp, machine: Machine, *, bounded: bool = False) -> KernelCode:
    """The LLVM module of a `ttarget.matrix_kernel`, as `emit_kernel` gives it."""
    cluster, tokens = 2 if kernel.value("multicast") else 1, len(mailboxes(kernel))
    producers = int(has_producer(kernel))
    # Registers of both roles are said so that as many CTAs as are on a multiprocessor take all of them.
    producer, consumer = kernel.value("registers") or (0, 0)
    each = WARPGROUP * (producer + kernel.value("consumers") * consumer)
    blocks = max(1, REGISTERS // each) if each else 1
    launch = {"blocks": blocks, "cluster": cluster, "tokens": tokens}
    code = emit_kernel(MatrixEmitter, kernel, machine, bounded, producers=producers, **launch)
    return replace(code, resident=blocks * machine.blocks, counts=tokens > 0)


def has_producer(kernel: SpecOp) -> bool:
    """Whether the first warpgroup of a matrix kernel only copies."""
    return all(op.name != "ttarget.uniform" for op in kernel.regions[0].block.ops)


def emit_kernel(
    emitter: type[MatrixEmitter], kernel: SpecOp, machine: Machine, bounded: bool, *, producers: int = 1, **launch: int
) -> KernelCode:
    """The LLVM module of a kernel for tensor cores, with what a launch of it must know.

    A kernel whose waits are `bounded` says where it would hang, and stops; barriers for that are behind its own shared
    memory.
    """
    waits = Waits(kernel.value("shared"), machine.shared) if bounded else None
    code = frame_kernel(
        kernel,
        machine,
        WARPGROUP * (producers + kernel.value("consumers")),
        lambda f, base: emitter(f, kernel, base, waits).run(),
        variables=GLOBALS if bounded else "",
        **launch,
    )
    return code if waits is None else replace(code, waits=tuple(waits.labels), shared=waits.shared)


class MatrixEmitter:
    """The writing of one kernel: `emit_<op>` writes a `ttarget.<op>`, and `TileOps` what has no such method."""

    tile_ops: type[TileOps] = TileOps
    prefetches_descriptors = True

    def __init__(self, f: FunctionText, kernel: SpecOp, base: Value, bounded: Waits | None) -> None:
        self.f, self.kernel = f, kernel
        block = kernel.regions[0].block
        self.values: dict[SSAValue, Any] = {}
        maps = [op for op in spec_ops(block) if op.name == "ttarget.tensor_map"]
        self.described = [at for at, op in enumerate(maps) if not op.value("by_threads")]
        """The TMA descriptors that a launch makes."""
        self.is_threaded = len(self.described) < len(maps)
        """Whether all threads of the producer copy."""
        first = len(maps)
        self.values.update(zip(block.args, f.arguments[first : first + len(block.args)], strict=True))
        sizes = dict(zip(kernel.value("symbols"), f.arguments[first + len(block.args) :], strict=False))
        tid = special(f, "tid.x")
        warp = asm.warp_uniform(f, op32(f, "lshr", tid, 5))
        self.is_uniform = not has_producer(kernel)
        group = op32(f, "lshr", warp, 2)
        group = group if self.is_uniform else op32(f, "sub", group, 1)
        first = 0 if self.is_uniform else WARPGROUP
        self.setting = Setting(sizes, base, tid, warp, group, kernel.value("consumers"), bounded, first)
        self.is_first = f.icmp("eq", op32(f, "and", tid, WARPGROUP - 1), number(0))
        """Whether this is the one thread of its warpgroup that signals for all."""
        self.is_cluster = kernel.name == "ttarget.matrix_kernel" and kernel.value("multicast")
        self.rank = clusters.cluster_rank(f) if self.is_cluster else number(0)
        self.tiles: TileOps | None = None
        self.between: Deferred | None = None
        """What is written into the first steps of the next loop."""
        self.held: Callable[[], None] | None = None
        """What is written before the next wait for dots."""
        self.is_producer = not self.is_uniform
        self.is_pingpong = any(op.name == "ttarget.pingpong" for op in kernel.walk())
        self.barriers = ThreadBarriers(f, base, bounded, self.barrier_threads())

    def barrier_threads(self) -> Sequence[int]:
        """How many threads synchronize at each of the kernel's barriers."""
        return ORDER_THREADS if self.is_pingpong else ()

    def run(self) -> None:
        f, count = self.f, 0
        rings: list[Ring] = []
        for op in spec_ops(self.kernel.regions[0].block):
            if op.name == "ttarget.tensor_map":
                self.values[op.result] = f.raw("i64", f"ptrtoint {f.arguments[count]} to i64")
                count += 1
            elif op.name == "ttarget.shared_tile":
                self.values[op.result] = SharedTile.of(op)
            elif op.name == "ttarget.ring":
                rings.append(self._ring_of(op))
                self.values[op.result] = rings[-1]
            elif op.name == "ttarget.roles":
                self._begin(rings)
                self._run_roles(op)
            elif op.name == "ttarget.uniform":
                self._begin(rings)
                self.start_tiles()
                self.run_block(op.regions[0].block)
                self.end_consumer()

    def _ring_of(self, op: SpecOp) -> Ring:
        size = sum(shaped_type(tile).data.bytes.value or 0 for tile in op.operands)
        threaded = threaded_copies(self.kernel, op.result)
        return Ring(
            op.value("offset"),
            op.value("stages"),
            (op.value("bytes") or size) - sum(map(bytes_of, threaded)),
            len(threaded),
        )

    def ring_barriers(self, rings: Sequence[Ring]) -> list[tuple[int, int]]:
        """The offset of each barrier of rings and mailboxes, and how many arrivals complete it."""
        releases = self.setting.consumers * (2 if self.is_cluster else 1)
        found = [
            (ring.offset + 8 * (first + stage), arrivals)
            for ring in rings
            for stage in range(ring.stages)
            for first, arrivals in ((0, 1 + WARPGROUP * ring.threaded), (ring.stages, releases))
        ]
        readers = WARPGROUP * self.setting.consumers
        for offset in mailboxes(self.kernel):
            found += [(offset + 8 * at, arrivals) for at, arrivals in enumerate([1, 1, readers, readers])]
        return found

    def _begin(self, rings: Sequence[Ring]) -> None:
        """Barriers are made by one thread, and seen by all."""
        f, setting = self.f, self.setting

        def make() -> None:
            for offset, arrivals in self.ring_barriers(rings):
                asm.barrier_init(f, op32(f, "add", setting.base, offset), arrivals)
            self.barriers.make()
            asm.effect(f, "fence.mbarrier_init.release.cluster;")
            for at in self.described if self.prefetches_descriptors else ():
                asm.effect(f, "prefetch.tensormap [$0];", "l", [f.raw("i64", f"ptrtoint {f.arguments[at]} to i64")])

        f.if_(f.icmp("eq", setting.tid, number(0)), make)
        if self.is_cluster:
            clusters.synchronize_cluster(f)
        else:
            asm.named_barrier(f, number(0), WARPGROUP * (setting.consumers + (not self.is_uniform)))

    def _run_roles(self, op: SpecOp) -> None:
        f, setting = self.f, self.setting
        registers = self.kernel.values().get("registers")
        producer, consumer = (region.block for region in op.regions)

        def produce() -> None:
            if registers:
                asm.set_registers(f, registers[0], grows=False)
            if self.is_threaded:
                self.run_block(producer)
            else:
                self._run_elected(producer)

        def consume() -> None:
            if registers:
                asm.set_registers(f, registers[1], grows=True)
            self.is_producer = False
            if self.is_pingpong:
                self.barriers.begin_order(setting.group)
            self.start_tiles()
            self.run_block(consumer)
            self.end_consumer()

        f.if_(f.icmp("slt", setting.group, number(0)), produce, consume)
        if self.is_cluster:
            # Neither ends while the other may still write to its shared memory.
            clusters.synchronize_cluster(f)

    def _run_elected(self, block: Block) -> None:
        """One thread of the first warp does what is in a block, and its warp waits for it."""
        f = self.f
        is_chosen = f.op("and", f.icmp("eq", self.setting.warp, number(0)), asm.is_elected(f))
        f.if_(is_chosen, lambda: self.run_block(block))
        asm.effect(f, "bar.warp.sync 0xffffffff;")

    def emit_elect(self, op: ops.ElectOp) -> None:
        self._run_elected(op.regions[0].block)

    def start_tiles(self) -> None:
        """Begin with what computes on tiles: a role, or all threads."""
        self.tiles = self.tile_ops(self.f, self.kernel, self.setting, self.values, self.is_first, self._thread)

    def end_consumer(self) -> None:
        """Wait until what consumers stored is in memory."""
        asm.copies_done(self.f, self.is_first)

    def _thread(self, rows: int) -> Thread:
        """Where this thread stands in a tile of which each consumer has so many rows."""
        apart = 1 if self.kernel.values().get("row_pairs") else 8
        return thread_of(self.f, self.setting.tid, self.setting.group, rows, apart)

    def enter(self, op: SpecOp) -> None:
        """What is written next belongs to an op."""
        if self.setting.bounded is not None:
            self.setting.bounded.enter(op, self.is_producer)

    def run_block(self, block: Block) -> None:
        """Write the ops of a block, in order."""
        self.run_ops(spec_ops(block))

    def run_ops(self, ops: Sequence[SpecOp]) -> None:
        """Write ops, in order."""
        for op in ops:
            self.enter(op)
            if op.name == "ttarget.mma_wait" and self.held is not None:
                late, self.held = self.held, None
                late()
            own = getattr(self, f"emit_{op.spec.short_name}", None)
            if own is not None:
                own(op)
            elif op.name not in ("ttarget.yield", "ttarget.epilogue"):
                assert self.tiles is not None, f"{op.name} is not a producer's"
                self.tiles.run(op)

    # Indices and loops.

    def emit_index(self, op: target_ops.IndexOp) -> None:
        env = {**self.setting.sizes, **dict(zip(op.names, self._of(op.operands), strict=True))}
        self.values[op.result] = dim_value(self.f, op.expr, env)

    def emit_fetch(self, op: target_ops.FetchOp) -> None:
        """An index in memory; one thread of a warp need not wait for others to know it, so all read it."""
        f, buffer = self.f, shaped_type(op.operands[0])
        pointer, *at = self._of(op.operands)
        env = {**self.setting.sizes, **dict(zip(op.coords, at, strict=True))}
        offset, element = dim_value(f, op.offset, env), memory_type(buffer.dtype)
        loaded = f.load(f.gep(pointer, offset, element), element)
        wide = f.cast("sext" if buffer.dtype.kind == "int" else "zext", loaded, "i64") if element != "i64" else loaded
        self.values[op.result] = wide

    def _of(self, values: Sequence[SSAValue]) -> list[Any]:
        return [self.values[value] for value in values]

    def emit_tiles(self, op: ops.TilesOp) -> None:
        f, block = self.f, op.regions[0].block
        grid: tuple[Dim, ...] = op.grid
        total = f.cast("trunc", dim_value(f, product(grid), self.setting.sizes), "i32")
        counts = self._counts(op)
        cursors = self._of(op.operands)

        mailbox: int = op.mailbox
        epilogue = epilogue_in(op)
        if epilogue is not None:
            OverlappedTiles(self, op, epilogue, total, counts).run()
            return

        is_giving = mailbox >= 0 and self.is_producer
        if is_giving:
            self.mailbox(mailbox).begin()

        def body(carried: list[Value]) -> list[Value]:
            box, taken = self.mailbox(mailbox), None
            is_later = f.icmp("ne", carried[1], number(0))
            if is_giving:
                (taken,) = f.if_(is_later, lambda: [box.take()], lambda: [number(0)])
            wide = self.program_ids(op, carried[0], counts)
            self.values.update(zip(block.args[: len(grid)], wide, strict=True))
            self.values.update(zip(block.args[len(grid) :], unflat(cursors, carried[2:]), strict=True))
            self.run_block(block)
            self.enter(op)
            if mailbox < 0:
                following = self.busy_from(op, op32(f, "add", carried[0], special(f, "nctaid.x")), total, counts)
            else:
                if taken is not None:
                    early = taken
                    (taken,) = f.if_(is_later, lambda: [early], lambda: [box.take_first()])
                    box.finish(taken, total)
                following = box.following(carried[1], taken)
            return [following, op32(f, "add", carried[1], 1), *flat(self._of(yielded_values(block)))]

        start = [self.busy_from(op, special(f, "ctaid.x"), total, counts), number(0), *flat(cursors)]
        f.while_(start, lambda carried: f.icmp("slt", carried[0], total), body)

    def emit_skip(self, op: ops.SkipOp) -> None:
        """Nothing: a program that is passed over was not begun."""

    def busy_from(self, op: SpecOp, position: Value, total: Value, counts: Sequence[Value]) -> Value:
        """The CTA's first position from one on whose program is not passed over; `total` or more where there is none.

        Threads read the same from memory, which the assembler does not know: dots are in no divergent path.
        """
        f, block, head = self.f, op.regions[0].block, skipping(op)
        if not head:
            return position

        def is_idle(carried: list[Value]) -> Value:
            is_there = f.icmp("slt", carried[0], total)
            inside = f.select(is_there, carried[0], op32(f, "sub", total, 1))
            ids = self.program_ids(op, inside, counts)
            self.values.update(zip(block.args[: len(ids)], ids, strict=True))
            self.run_ops(head)
            low, high = self._of(head[-1].operands)
            return f.op("and", is_there, f.icmp("sge", low, high))

        (found,) = f.while_([position], is_idle, lambda given: [op32(f, "add", given[0], special(f, "nctaid.x"))])
        return found if self.is_producer else asm.warp_uniform(f, found)

    def one_program(self, op: SpecOp) -> None:
        """The programs of a CTA that has no more than one."""
        block, counts = op.regions[0].block, self._counts(op)
        ids = self.program_ids(op, special(self.f, "ctaid.x"), counts)
        self.values.update(zip(block.args[: len(counts)], ids, strict=True))
        self.run_block(block)

    def _counts(self, op: SpecOp) -> list[Value]:
        """Programs along each axis of the grid, as i32."""
        f, sizes = self.f, self.setting.sizes
        return [f.cast("trunc", dim_value(f, dim, sizes), "i32") for dim in op.value("grid")]

    def program_ids(self, op: SpecOp, position: Value, counts: Sequence[Value]) -> list[Value]:
        """The program at a position in the CTA's order, along each axis of the grid, as i64."""
        return [self.f.raw("i64", f"zext {found} to i64") for found in program_at(self.f, op, position, counts)]

    def mailbox(self, offset: int) -> Mailbox:
        """Where the producer says which tile is next."""
        setting, (counter, token) = self.setting, self.f.arguments[-2:]
        return Mailbox(self.f, setting.base, offset, counter, token, setting.bounded)

    def emit_steps(self, op: ops.StepsOp) -> None:
        f, block = self.f, op.regions[0].block
        low, high = self._of(op.operands[:2])
        start = self._of(op.operands[2:])

        def body(index: Value, carried: list[Value]) -> list[Value]:
            for copy in range(op.copies):
                self.values[block.args[0]] = f.add(index, copy * op.step) if copy else index
                self.values.update(zip(block.args[1:], unflat(start, carried), strict=True))
                self.run_block(block)
                carried = flat(self._of(yielded_values(block)))
            return carried

        given = flat(start)
        # What the program before left to do goes into the first steps but one, while two dots are in flight.
        deferred, self.between = self.between, None
        if deferred is not None:

            def step(piece: Piece, carried: list[Value]) -> list[Value]:
                early, self.held = piece
                early()
                made = body(carried[0], carried[1:])
                assert self.held is None, "a step waits for the dot of the step before"
                return [f.add(carried[0], op.step), *made]

            first = [f.add(low, op.step), *body(f.index(low), given)]
            low, *given = deferred.run(f, step, first)
        found = f.loop(low, high, op.step * op.copies, body, given, op.is_nonempty)
        self.values.update(zip(op.results, unflat(start, found), strict=True))

    def emit_when(self, op: ops.WhenOp) -> None:
        f, block = self.f, op.regions[0].block
        low, high = self._of(op.operands[:2])
        given = self._of(op.operands[2:])

        def body() -> list[Value]:
            self.run_block(block)
            return flat(self._of(yielded_values(block)))

        found = f.if_(f.icmp("slt", low, high), body, lambda: flat(given))
        self.values.update(zip(op.results, unflat(given, found), strict=True))

    def emit_pingpong(self, op: ops.PingpongOp) -> None:
        if op.mode == "take":
            self.barriers.wait_in_order(self.setting.group)
        else:
            self.barriers.arrive_in_order(self.setting.group)

    def emit_lag(self, op: ops.LagOp) -> None:
        """The first consumer starts; stages fill no faster than memory is read, which sets the others apart."""
        f, setting = self.f, self.setting
        ring = self.values[op.operands[0]]
        assert isinstance(ring, Ring)
        stage = op32(f, "mul", setting.group, op.stages)

        def wait() -> None:
            at = Cursor(stage, number(0))
            asm.barrier_wait(f, ring.full(f, setting.base, at), at.phase, setting.bounded)

        f.if_(f.icmp("sgt", setting.group, number(0)), wait)

    # Rings and copies.

    def emit_cursor(self, op: ops.CursorOp) -> None:
        # A producer finds every stage empty at first, as if a phase had ended; `acquire` of others says so itself.
        self.values[op.result] = Cursor(number(0), number(1 if self.is_producer else 0))

    def emit_advance(self, op: ops.AdvanceOp) -> None:
        ring, cursor = self._of(op.operands)
        self.values[op.result] = ring.after(self.f, cursor)

    def emit_acquire(self, op: ops.AcquireOp) -> None:
        ring, cursor = self._of(op.operands)
        f, base = self.f, self.setting.base
        phase = op32(f, "xor", cursor.phase, 1) if self.is_uniform else cursor.phase
        asm.barrier_wait(f, ring.empty(f, base, cursor), phase, self.setting.bounded)
        self._by_one(lambda: asm.barrier_expect(f, ring.full(f, base, cursor), ring.bytes))

    def _by_one(self, write: Callable[[], None]) -> None:
        """What one thread of a producer does, whose others may be there too."""
        if self.is_threaded:
            self.f.if_(self.is_first, write)
        else:
            write()

    def emit_copy(self, op: ops.CopyOp) -> None:
        f, base = self.f, self.setting.base
        map, ring, cursor, tile, *at = self._of(op.operands)
        assert isinstance(tile, SharedTile)
        made = op.operands[0].owner
        assert isinstance(made, SpecOp)
        if is_by_threads(op):
            copy = ThreadedCopy(f, op, tile, self.values[made.operands[0]], at)
            copy.write(op32(f, "and", self.setting.tid, WARPGROUP - 1), tile.address(f, base, cursor.slot))
            # What threads wrote is seen by dots, which read it as TMA does.
            asm.effect(f, "fence.proxy.async.shared::cta;")
            asm.barrier_signal(f, ring.full(f, base, cursor))
            return
        if made.value("strides"):
            self._by_one(lambda: self._copy_windows(op, tile, cursor, ring.full(f, base, cursor), at))
            return
        coords = [f.cast("trunc", f.index(one), "i32") for one in reversed(self._from_cut(made, at))]
        barrier = ring.full(f, base, cursor)
        if op.half:
            self._copy_half(op, tile, cursor, barrier, coords)
            return

        def write() -> None:
            for piece in range(op.pieces):
                address = tile.address(f, base, cursor.slot, piece * tile.span_bytes)
                first = op32(f, "add", coords[0], piece * tile.span_columns)
                asm.copy_in(f, map, address, barrier, [first, *coords[1:]])

        self._by_one(write)

    def _copy_windows(self, op: SpecOp, tile: SharedTile, at: Cursor, barrier: Value, indices: Sequence[Index]) -> None:
        """Boxes of positions, each of one element of a window: its indices and offsets, which have 16 bits."""
        f, pieces = self.f, op.value("pieces")
        count = len(indices) // pieces
        rank = count // 2 + 1
        for piece in range(pieces):
            own = indices[piece * count : (piece + 1) * count]
            coords = [f.cast("trunc", f.index(one), "i32") for one in reversed(own[:rank])]
            offsets = [f.cast("trunc", f.index(one), "i16") for one in reversed(own[rank:])]
            address = tile.address(f, self.setting.base, at.slot, piece * tile.span_bytes)
            asm.copy_windows(f, self.values[op.operands[0]], address, barrier, coords, offsets)

    def _from_cut(self, map: SpecOp, at: Sequence[Index]) -> Sequence[Index]:
        """Indices as a descriptor with a cut takes them: counted from where copies end, and that end before them."""
        f, buffer = self.f, shaped_type(map.operands[0])
        cut: int = map.value("cut")
        if cut < 0:
            return at
        *corner, end = at
        return clusters.from_cut(f, corner, cut, end, dim_value(f, buffer.shape[cut], self.setting.sizes))

    def _copy_half(self, op: SpecOp, tile: SharedTile, at: Cursor, barrier: Value, coords: Sequence[Value]) -> None:
        """This CTA's half of what both of a cluster read."""
        f = self.f
        corner, rows, pieces, first = clusters.half_of(f, op, self.rank, coords)
        start = tile.address(f, self.setting.base, at.slot)
        start = op32(f, "add", start, op32(f, "mul", rows, tile.swizzle))
        for piece in range(pieces):
            number_of = op32(f, "add", first, piece)
            address = op32(f, "add", start, op32(f, "mul", number_of, tile.span_bytes))
            column = op32(f, "add", corner[0], op32(f, "mul", number_of, tile.span_columns))
            clusters.copy_multicast(f, self.values[op.operands[0]], address, barrier, [column, *corner[1:]])

    def emit_await(self, op: ops.AwaitOp) -> None:
        ring, cursor = self._of(op.operands)
        address = ring.full(self.f, self.setting.base, cursor)
        asm.barrier_wait(self.f, address, cursor.phase, self.setting.bounded)

    def emit_release(self, op: ops.ReleaseOp) -> None:
        f = self.f
        ring, cursor, *limits = self._of(op.operands)
        condition = self.is_first
        if limits:
            condition = f.op("and", condition, f.icmp("slt", limits[0], limits[1]))
        address = ring.empty(f, self.setting.base, cursor)
        if self.is_cluster:
            clusters.arrive_in_cluster(f, address, condition)
        else:
            asm.barrier_arrive(f, address, condition)
