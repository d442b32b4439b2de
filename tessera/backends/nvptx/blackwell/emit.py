"""Kernels with tensor memory to LLVM text: allocation, dots of one thread, and accumulators back in registers.

They are assembled wherever there is an assembler, and were never executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.nvptx.ampere.tiles import WarpTiles
from tessera.backends.nvptx.hopper.emit import MatrixEmitter, emit_kernel
from tessera.backends.nvptx.hopper.fragments import Registers
from tessera.backends.nvptx.hopper.shared_memory import Ring, SharedTile, transposed_in
from tessera.backends.nvptx.mma import assembly as asm
from tessera.backends.nvptx.mma.assembly import number, op32
from tessera.backends.nvptx.tensor_cores import TCGEN05_FORMATS, TCGEN05_FORMS, TCGEN05_ROWS, WARPGROUP
from tessera.backends.nvptx.text import KernelCode
from tessera.backends.nvptx.types import shaped_type, sizes_of
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

_READERS = 1
"""The named barrier at which consumers wait for each other."""
_VERSION = 1 << 46
"""What a descriptor of shared memory has beside Hopper's bits."""
_ACCUMULATOR_F32 = 1 << 4
"""The bits of an instruction descriptor of `tcgen05.mma` that say f32 (PTX ISA, instruction descriptor, D format)."""


def emit_tensor_kernel(kernel: SpecOp, machine: Machine, *, bounded: bool = False) -> KernelCode:
    """The LLVM module of a `ttarget.tensor_kernel`, as `emit_kernel` gives it."""
    return emit_kernel(TensorEmitter, kernel, machine, bounded)


@frozen
class Memory:
    """Tensor memory: its address, columns, and where its barrier is in shared memory."""

    address: Value
    columns: int
    barrier: Value


class TensorTiles(WarpTiles):
    """The ops of the consumers: a warp has 32 rows, or 16 of them where two warpgroups share a tile."""

    step = 16

    def first_row(self, blocks: int) -> Value:
        f = self.f
        return op32(f, "add", op32(f, "mul", self.warp, 32), op32(f, "mul", self.setting.group, 16))


class TensorEmitter(MatrixEmitter):
    """The writing of one kernel."""

    tile_ops = TensorTiles
    prefetches_descriptors = False

    def barrier_threads(self) -> Sequence[int]:
        return (WARPGROUP * self.kernel.value("consumers"),)

    def emit_tiles(self, op: ops.TilesOp) -> None:
        self.values.update(zip(op.regions[0].block.args[len(op.grid) :], self._of(op.operands), strict=True))
        self.one_program(op)

    def ring_barriers(self, rings: Sequence[Ring]) -> list[tuple[int, int]]:
        """Those of rings and of tensor memory: dots of one thread arrive at them."""
        parts = [op for op in self.kernel.walk() if isinstance(op, SpecOp)]
        stages = [ring.offset + 8 * at for ring in rings for at in range(2 * ring.stages)]
        memory = [op.value("offset") + 8 for op in parts if op.name == "ttarget.tensor_alloc"]
        return [(offset, 1) for offset in (*stages, *memory)]

    def end_consumer(self) -> None:
        """Threads store by themselves, and wait for nothing."""

    # Tensor memory.

    def _synchronize(self) -> None:
        self.barriers.synchronize(number(_READERS), WARPGROUP * self.setting.consumers)

    def _is_warp(self, op: SpecOp) -> Value:
        first = self.setting.first // 32
        return self.f.icmp("eq", self.setting.warp, number(first + op.value("warp")))

    def emit_tensor_alloc(self, op: ops.TensorAllocOp) -> None:
        f, columns = self.f, op.columns
        cell = op32(f, "add", self.setting.base, op.offset)

        def ask() -> None:
            text = f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], {columns};"
            asm.effect(f, text, "r", [cell])
            asm.effect(f, "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;")
            asm.effect(f, "tcgen05.fence::before_thread_sync;")

        f.if_(self._is_warp(op), ask)
        self._synchronize()
        asm.effect(f, "tcgen05.fence::after_thread_sync;")
        address = asm.effect(f, "ld.shared.b32 $0, [$1];", "=r,r", [cell], "i32")
        self.values[op.result] = Memory(address, columns, op32(f, "add", cell, 8))

    def emit_tensor_dealloc(self, op: ops.TensorDeallocOp) -> None:
        f, memory = self.f, self._memory(op.operands[0])
        asm.effect(f, "tcgen05.fence::before_thread_sync;")
        self._synchronize()

        def give() -> None:
            asm.effect(f, "tcgen05.fence::after_thread_sync;")
            text = f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, {memory.columns};"
            asm.effect(f, text, "r", [memory.address])

        f.if_(self._is_warp(op), give)

    def _memory(self, value: SSAValue) -> Memory:
        found = self.values[value]
        assert isinstance(found, Memory)
        return found

    @property
    def _is_issuer(self) -> Value:
        """Whether this is the one thread that starts dots."""
        return self.f.icmp("eq", self.setting.tid, number(self.setting.first))

    def emit_tensor_mma(self, op: ops.TensorMmaOp) -> None:
        f, base = self.f, self.setting.base
        memory = self._memory(op.operands[0])
        lhs, rhs, left_at, right_at, low, index = (self.values[value] for value in op.operands[1:])
        assert isinstance(lhs, SharedTile)
        assert isinstance(rhs, SharedTile)
        transposed = transposed_in(op)
        operands: list[list[Value]] = []
        for tile, at, is_transposed in ((lhs, left_at, transposed[0]), (rhs, right_at, transposed[1])):
            found = tile.descriptors(f, tile.address(f, base, at.slot), is_transposed)
            operands.append([f.raw("i64", f"or i64 {one.text}, {_VERSION}") for one in found])
        form = instruction(TCGEN05_FORMATS[rhs.dtype], transposed, sizes_of(op.operands[0])[1])
        kind = TCGEN05_FORMS[rhs.dtype].suffix
        adds = asm.flag(f, f.icmp("slt", low, index))
        chosen = asm.flag(f, self._is_issuer)
        lines = [
            "{ .reg .pred P, Q, T; setp.ne.b32 P, $1, 0; setp.ne.b32 Q, $2, 0; setp.eq.b32 T, $0, $0;",
            f".reg .b32 d; mov.b32 d, {form};",
        ]
        args, kinds = [memory.address, chosen, adds], ["r", "r", "r"]
        for step, (left, right) in enumerate(zip(*operands, strict=True)):
            lines.append(
                f"@P tcgen05.mma.cta_group::1.kind::{kind} [$0], ${len(args)}, ${len(args) + 1}, d, "
                f"{'T' if step else 'Q'};"
            )
            args += [left, right]
            kinds += ["l", "l"]
        asm.effect(f, " ".join([*lines, "}"]), ",".join(kinds), args)

    def _arrive(self, barrier: Value) -> None:
        """Dots so far arrive at a barrier when they are done."""
        f = self.f
        text = (
            "{ .reg .pred P; setp.ne.b32 P, $1, 0; "
            "@P tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0]; }"
        )
        asm.effect(f, text, "r,r", [barrier, asm.flag(f, self._is_issuer)])

    def emit_tensor_release(self, op: ops.TensorReleaseOp) -> None:
        ring, cursor = self._of(op.operands)
        assert isinstance(ring, Ring)
        self._arrive(ring.empty(self.f, self.setting.base, cursor))

    def emit_tensor_commit(self, op: ops.TensorCommitOp) -> None:
        self._arrive(self._memory(op.operands[0]).barrier)

    def emit_tensor_wait(self, op: ops.TensorWaitOp) -> None:
        asm.barrier_wait(self.f, self._memory(op.operands[0]).barrier, number(0), self.setting.bounded)
        asm.effect(self.f, "tcgen05.fence::after_thread_sync;")

    def emit_tensor_load(self, op: ops.TensorLoadOp) -> None:
        f, memory = self.f, self._memory(op.operands[0])
        tiles = self.tiles
        assert isinstance(tiles, TensorTiles)
        layout = tiles.layout(shaped_type(op.result))
        row = tiles.first_row(layout.blocks)
        start = op32(f, "add", memory.address, op32(f, "shl", row, 16))
        found: list[Value] = []
        for block in range(layout.blocks):
            found += _read(f, op32(f, "add", start, tiles.step * block << 16), layout.columns)
        found = asm.pass_through(f, "tcgen05.wait::ld.sync.aligned;", found)
        self.values[op.result] = Registers(layout, shaped_type(op.result).dtype, found)


def instruction(form: int, transposed: tuple[bool, bool], columns: int) -> int:
    """The descriptor of a dot into f32: dtypes of both operands, which are contiguous across k, columns and rows."""
    operands = form << 7 | form << 10 | transposed[0] << 15 | transposed[1] << 16
    return _ACCUMULATOR_F32 | operands | (columns >> 3) << 17 | (TCGEN05_ROWS >> 4) << 24


def _read(f: FunctionText, address: Value, columns: int) -> list[Value]:
    """16 rows of tensor memory, laid out as by `mma.sync`: 4 accumulators of each thread for every 8 columns."""
    found: list[Value] = []
    done = 0
    while done < columns:
        # Repetitions are powers of two.
        times = 1 << ((columns - done) // 8).bit_length() - 1
        count = 4 * times
        registers = ", ".join(f"${at}" for at in range(count))
        text = f"tcgen05.ld.sync.aligned.16x256b.x{times}.b32 {{{registers}}}, [${count}];"
        start = op32(f, "add", address, done)
        found += asm.results(f, text, [*["=f"] * count, "r"], [start], ["float"] * count)
        done += 8 * times
    return found
