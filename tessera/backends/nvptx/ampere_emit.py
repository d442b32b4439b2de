"""Kernels of warps to LLVM text: a CTA does one program, all of its threads copy and compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.backends.nvptx import ampere_assembly as warp_asm
from tessera.backends.nvptx import hopper_assembly as asm
from tessera.backends.nvptx.ampere_copies import TileCopy
from tessera.backends.nvptx.ampere_tiles import WarpTiles
from tessera.backends.nvptx.hopper_assembly import number, op32
from tessera.backends.nvptx.hopper_emit import MatrixEmitter, watched
from tessera.backends.nvptx.hopper_order import program_at
from tessera.backends.nvptx.hopper_shared import Cursor, SharedTile
from tessera.backends.nvptx.kernel_code import KernelCode
from tessera.backends.nvptx.matrix_frame import framed
from tessera.backends.nvptx.text import special
from tessera.backends.nvptx.waits import GLOBALS, Waits
from tessera.ir.base.op import SpecOp
from tessera.ir.target.hopper_limits import WARPGROUP
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.machine import Machine


def emit_warp_kernel(kernel: SpecOp, machine: Machine, *, bounded: bool = False) -> KernelCode:
    """The LLVM module of a `ttarget.warp_kernel`, with what a launch of it must know.

    A kernel whose waits are `bounded` says where its threads would wait for each other for ever, and stops.
    """
    groups = kernel.value("consumers")
    waits = Waits(kernel.value("shared"), machine.shared) if bounded else None
    code = framed(
        kernel,
        machine,
        WARPGROUP * groups,
        lambda f, base: WarpEmitter(f, kernel, base, waits).run(),
        blocks=2 if groups == 1 else 1,
        variables=GLOBALS if bounded else "",
    )
    return watched(code, waits)


class WarpEmitter(MatrixEmitter):
    """The writing of one kernel."""

    def __init__(self, f: FunctionText, kernel: SpecOp, base: Value, bounded: Waits | None) -> None:
        super().__init__(f, kernel, base, bounded)
        self.setting = replace(self.setting, group=op32(f, "lshr", self.setting.warp, 2), first=0)
        self.is_producer = False
        self.own.update(
            {
                "ttarget.cursor": self._cursor,
                "ttarget.stage_after": self._stage_after,
                "ttarget.copy_async": self._copy_async,
                "ttarget.commit_copies": lambda op: warp_asm.commit(f),
                "ttarget.wait_copies": self._wait_copies,
                "ttarget.tiles": self._tiles,
            }
        )

    def meeting_threads(self) -> Sequence[int]:
        return (WARPGROUP * self.kernel.value("consumers"),)

    def run(self) -> None:
        if self.meetings.places:
            self.f.if_(self.f.icmp("eq", self.setting.tid, number(0)), self.meetings.make)
            asm.named_barrier(self.f, number(0), WARPGROUP * self.setting.consumers)
        for op in self.kernel.regions[0].block.ops:
            assert isinstance(op, SpecOp)
            if op.name == "ttarget.shared_tile":
                self.values[op.result] = SharedTile.of(op)
            elif op.name == "ttarget.tiles":
                self.tiles = WarpTiles(self.f, self.kernel, self.setting, self.values, self.is_first, self._thread)
                self._tiles(op)

    def _tiles(self, op: SpecOp) -> None:
        """The one program of this CTA."""
        f, block = self.f, op.regions[0].block
        counts = [f.cast("trunc", dim_value(f, dim, self.setting.sizes), "i32") for dim in op.value("grid")]
        places = program_at(f, op, special(f, "ctaid.x"), counts)
        wide = [f.raw("i64", f"zext {place} to i64") for place in places]
        self.values.update(zip(block.args[: len(counts)], wide, strict=True))
        self.run_block(block)

    def _cursor(self, op: SpecOp) -> None:
        self.values[op.result] = Cursor(number(0), number(0))

    def _stage_after(self, op: SpecOp) -> None:
        f, stages = self.f, op.value("stages")
        cursor = self.values[op.operands[0]]
        assert isinstance(cursor, Cursor)
        following = op32(f, "add", cursor.slot, op.value("by") % stages)
        ends = f.icmp("sge", following, number(stages))
        slot = f.select(ends, op32(f, "sub", following, stages), following)
        self.values[op.result] = Cursor(slot, cursor.phase)

    def _copy_async(self, op: SpecOp) -> None:
        tile, cursor, buffer, *at = (self.values[value] for value in op.operands)
        assert isinstance(tile, SharedTile)
        assert isinstance(cursor, Cursor)
        TileCopy(self.f, self.setting, op, tile, cursor, buffer, at).run()

    def _wait_copies(self, op: SpecOp) -> None:
        warp_asm.wait(self.f, op.value("left"))
        self.meetings.meet(number(0), WARPGROUP * self.setting.consumers)
