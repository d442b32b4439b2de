"""Copies under way in a kernel of warps: every stage is waited for before a dot reads it, and free before a copy.

A fault here would be a race on the device, so the kernel is walked as it runs: some
iterations of each loop, stages by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.types import SharedAttr, shaped_type, spec_ops, yielded_values
from tessera.ir.base.arrays import static
from tessera.ir.base.op import SpecOp

if TYPE_CHECKING:
    from tessera.backends.nvptx import typed_ops as ops

# What is in flight in a matrix kernel: copies are waited for, stages released when no dot reads them, and consumers
# that start dots in an order let each other go on.

Stage = tuple[SSAValue, SSAValue]
"""A ring and a cursor in it."""
Owed = Sequence[tuple[SSAValue, int]]
"""Rings of which a stage is released later, and which of the carried values is its cursor."""


def check_producer(block: Block) -> None:
    """Fails where a stage is filled in part, or before consumers have released it."""
    taken: dict[Stage, list[SpecOp]] = {}
    for op in spec_ops(block):
        if op.name == "ttarget.acquire":
            if _stage(op) in taken:
                op.fail("a stage is acquired twice, and its barrier would wait for twice its bytes", "acquire it once")
            taken[_stage(op)] = []
        elif op.name == "ttarget.copy":
            stage = op.operands[1], op.operands[2]
            if stage not in taken:
                op.fail("a copy goes to a stage that was not acquired", "wait for it with `ttarget.acquire`")
            taken[stage].append(op)
        elif op.name == "ttarget.advance":
            check_filled(op, taken.pop(_stage(op), None))
        for region in op.regions:
            check_producer(region.block)
    for ring, _ in taken:
        owner_of(ring).fail("a stage is acquired, and the ring does not go on to the next")


def check_filled(op: SpecOp, copies: Sequence[SpecOp] | None) -> None:
    """Fails for a stage, which an op names first, of which not all bytes are copied."""
    if copies is None:
        op.fail("a producer goes on from a stage that it did not acquire")
    ring = owner_of(op.operands[0])
    copied = [copy.operands[3] for copy in copies]
    if sorted(map(id, copied)) != sorted(map(id, ring.operands)):
        op.fail(f"a stage has {len(ring.operands)} tiles, and {len(set(copied))} are copied: it would never be full")
    bytes = sum(map(bytes_of, copies))
    whole = sum(static(shaped_type(tile).data.bytes) for tile in ring.operands)
    if bytes != (ring.value("bytes") or whole):
        op.fail(f"{bytes} bytes are copied to a stage, and its barrier counts {ring.value('bytes') or whole}")


def bytes_of(copy: SpecOp) -> int:
    """The bytes of a copy, with the other CTA's half of it."""
    box = owner_of(copy.operands[0]).value("box")
    each = prod(box) * copy.value("pieces") * shaped_type(copy.operands[3]).dtype.bytes
    return 2 * each if copy.value("half") == "rows" else each


class ConsumerCheck:
    """The consumers' walk: which stages are there, and which dots are in flight."""

    def __init__(self) -> None:
        self.flying: list[tuple[SpecOp, bool]] = []
        """Dots, and whether they are of the step before."""
        self.is_ordered = 0
        self.carried: dict[SSAValue, SSAValue] = {}
        """What the body of a loop takes, with what the step before gave for it."""

    def run(self, block: Block, there: frozenset[Stage] = frozenset(), given: frozenset[Stage] = frozenset()) -> Owed:
        """Fails where a block reads a stage too early, releases it too early, or never.

        Stages that are `there` are released elsewhere, those that are `given` by the block itself.
        """
        here: set[Stage] = set(given)
        released_before: set[Stage] = set()
        for op in spec_ops(block):
            if op.name == "ttarget.await":
                here.add(_stage(op))
                released_before.discard(_stage(op))
            elif op.name == "ttarget.mma_issue":
                self._issue(op, here | there)
            elif op.name == "ttarget.mma_add":
                self._add(op, here | there)
            elif op.name == "ttarget.fragment_read":
                check_read(op, here | there)
            elif op.name == "ttarget.mma_wait":
                left = op.value("left")
                self.flying = self.flying[-left:] if left else []
            elif op.name == "ttarget.release":
                self._release(op, here, released_before)
            elif op.name == "ttarget.pingpong":
                self._order(op)
            for region in op.regions:
                here.update(self._inside(op, region.block, frozenset(here | there)))
        return self._end(block, here)

    def _inside(self, op: SpecOp, body: Block, there: frozenset[Stage]) -> set[Stage]:
        """The stages that a loop or branch leaves to the ops after it."""
        owed = self.run(body, there)
        if owed and op.name not in ("ttarget.steps", "ttarget.when"):
            op.fail("a stage is waited for and never released: the producer would wait for it for ever")
        if op.name == "ttarget.steps" and (self.flying or owed):
            self._check_second_step(body, there, owed)
        return {(ring, op.results[at]) for ring, at in owed}

    def _check_second_step(self, body: Block, there: frozenset[Stage], owed: Owed) -> None:
        """A second step, which begins with dots of the first in flight, and with the stages it did not release."""
        outer, given = self.carried, list(body.args[1:])
        self.carried = dict(zip(given, yielded_values(body), strict=True))
        self.flying = [(dot, True) for dot, _ in self.flying]
        self.run(body, there, frozenset((ring, given[at]) for ring, at in owed))
        self.carried = outer

    def _add(self, op: SpecOp, there: set[Stage]) -> None:
        if self.flying:
            op.fail("a dot is accumulated apart while others are in flight", "wait for them first")
        self._issue(op, there)
        self.flying.clear()

    def _issue(self, op: SpecOp, there: set[Stage]) -> None:
        for tile, cursor in zip(op.operands[1:3], op.operands[3:5], strict=True):
            if isinstance(tile.type, SharedAttr) and not any(
                has_tile(ring, tile) and at is cursor for ring, at in there
            ):
                op.fail("a dot reads a stage that nobody waited for", "put a `ttarget.await` before it")
        self.flying.append((op, False))

    def _release(self, op: SpecOp, here: set[Stage], released_before: set[Stage]) -> None:
        ring, cursor = _stage(op)
        if (ring, cursor) in released_before:
            op.fail("a stage is released twice, and the producer would fill it while others read it", "release it once")
        released_before.add((ring, cursor))
        for dot, is_earlier in self.flying:
            earlier = self.carried.get(cursor) if is_earlier else cursor
            for tile, at in zip(dot.operands[1:3], dot.operands[3:5], strict=True):
                if at is earlier and has_tile(ring, tile):
                    op.fail("a stage is released while a dot in flight reads it", "wait for the dot first")
        here.discard((ring, cursor))

    def _order(self, op: SpecOp) -> None:
        self.is_ordered += 1 if op.value("mode") == "take" else -1
        if self.is_ordered not in (0, 1):
            op.fail("waits in order and arrivals alternate")

    def _end(self, block: Block, here: set[Stage]) -> Owed:
        carried = list(yielded_values(block))
        owed: list[tuple[SSAValue, int]] = []
        for ring, cursor in here:
            if cursor not in carried:
                owner_of(ring).fail("a stage is waited for and never released: the producer would wait for it for ever")
            owed.append((ring, carried.index(cursor)))
        if self.is_ordered:
            spec_ops(block)[-1].fail(
                "a consumer waits in order and does not let the other one go on, which would wait for ever"
            )
        return owed


def check_read(op: SpecOp, there: set[Stage]) -> None:
    """Fails where threads read a stage that nobody waited for."""
    tile, cursor = op.operands
    if not any(has_tile(ring, tile) and at is cursor for ring, at in there):
        op.fail("threads read a stage that nobody waited for", "put a `ttarget.await` before it")


def owner_of(value: SSAValue) -> SpecOp:
    """The op that makes a ring, a shared tile or a descriptor."""
    assert isinstance(value.owner, SpecOp)
    return value.owner


def _stage(op: SpecOp) -> Stage:
    """The stage that an op names first."""
    return op.operands[0], op.operands[1]


def has_tile(ring: SSAValue, tile: SSAValue) -> bool:
    """Whether a ring is of a tile, among others."""
    return isinstance(ring.owner, SpecOp) and tile in ring.owner.operands


# Dots in tensor memory: stages are full when they are read, accumulators done when they are loaded, memory freed.


class TensorCheck:
    """The consumers' walk: which stages are there, which dots were read from them, and what is still in flight.

    `check_<op>` follows a `ttarget.<op>`.
    """

    def __init__(self) -> None:
        self.here: dict[Stage, bool] = {}
        """Stages of the block at hand that are full, and whether a dot has read them."""
        self.flying: dict[SSAValue, str] = {}
        """Tensor memory whose dots are not done, and what is missing."""
        self.held: dict[SSAValue, SpecOp] = {}
        """Tensor memory that is to be freed."""

    def run(self, block: Block) -> None:
        """Fails where a step comes too early, or is left out."""
        outer, self.here = self.here, {}
        for op in spec_ops(block):
            if (check := getattr(self, f"check_{op.spec.short_name}", None)) is not None:
                check(op)
            for region in op.regions:
                self.run(region.block)
        for ring, _ in self.here:
            owner_of(ring).fail("a stage is waited for and never released: the producer would wait for it for ever")
        self.here = outer

    def end(self) -> None:
        """Fails where tensor memory is kept: the next kernel would wait for it for ever."""
        for op in self.held.values():
            op.fail("tensor memory is allocated and never freed", "put a `ttarget.tensor_dealloc` at the end")

    def check_await(self, op: ops.AwaitOp) -> None:
        self.here[_stage(op)] = False

    def check_tensor_release(self, op: ops.TensorReleaseOp) -> None:
        if not self.here.pop(_stage(op), False):
            op.fail("a stage is released to the producer before a dot has read it")

    def check_tensor_alloc(self, op: ops.TensorAllocOp) -> None:
        self.held[op.result] = op

    def _alive(self, op: SpecOp, memory: SSAValue) -> None:
        if memory not in self.held:
            op.fail("tensor memory is used after it was freed")

    def check_tensor_mma(self, op: ops.TensorMmaOp) -> None:
        self._alive(op, op.operands[0])
        for tile, cursor in zip(op.operands[1:3], op.operands[3:5], strict=True):
            stages = [(ring, at) for ring, at in self.here if at is cursor and has_tile(ring, tile)]
            if not stages:
                op.fail("a dot reads a stage that nobody waited for", "put a `ttarget.await` before it")
            self.here.update(dict.fromkeys(stages, True))
        self.flying[op.operands[0]] = "committed"

    def check_tensor_commit(self, op: ops.TensorCommitOp) -> None:
        self._alive(op, op.operands[0])
        if self.flying.get(op.operands[0]) != "committed":
            op.fail("there are no dots to commit, and a barrier would count what nobody waits for")
        self.flying[op.operands[0]] = "waited for"

    def check_tensor_wait(self, op: ops.TensorWaitOp) -> None:
        if self.flying.get(op.operands[0]) != "waited for":
            op.fail("a wait for dots that nobody committed never ends", "put a `ttarget.tensor_commit` before it")
        del self.flying[op.operands[0]]

    def check_tensor_load(self, op: ops.TensorLoadOp) -> None:
        self._alive(op, op.operands[0])
        missing = self.flying.get(op.operands[0])
        if missing is not None:
            op.fail(
                f"tensor memory is read while dots in it are not {missing}",
                "put a `ttarget.tensor_commit` and a `ttarget.tensor_wait` before it",
            )

    def check_tensor_dealloc(self, op: ops.TensorDeallocOp) -> None:
        memory = op.operands[0]
        self._alive(op, memory)
        if memory in self.flying:
            op.fail("tensor memory is freed while dots write it")
        made = self.held.pop(memory)
        if made.value("warp") != op.warp:
            op.fail(f"warp {made.value('warp')} allocated tensor memory, and warp {op.value('warp')} frees it")


Cell = tuple[SSAValue, int]
"""A shared tile and the number of a stage."""
_ITERATIONS = 3
"""Iterations of a loop that are walked, beside twice the stages."""


class CopyCheck:
    """The walk of one CTA: copies and their groups, what is there, what was read since all waited for each other.

    `check_<op>` follows a `ttarget.<op>`.
    """

    def __init__(self, stages: int) -> None:
        self.iterations = 2 * stages + _ITERATIONS
        self.cursors: dict[SSAValue, int] = {}
        self.open: list[Cell] = []
        """Copies that no group has yet."""
        self.groups: list[list[Cell]] = []
        """Groups in flight, the oldest first."""
        self.there: set[Cell] = set()
        self.perhaps: set[Cell] = set()
        """Cells that only a loop waited for which may have no steps; a wait for all copies settles it."""
        self.read: set[Cell] = set()
        """Cells that some warp may still be reading: read since all waited for each other."""

    def run(self, block: Block) -> None:
        """Fails where a dot reads what nobody waited for, or a copy goes to what may still be read."""
        for op in spec_ops(block):
            if (check := getattr(self, f"check_{op.spec.short_name}", None)) is not None:
                check(op)
            else:
                for region in op.regions:
                    self.run(region.block)

    def check_cursor(self, op: ops.CursorOp) -> None:
        self.cursors[op.result] = 0

    def check_stage_after(self, op: ops.StageAfterOp) -> None:
        self.cursors[op.result] = (self.cursors[op.operands[0]] + op.by) % op.stages

    def check_commit_copies(self, op: ops.CommitCopiesOp) -> None:
        self.groups.append(self.open)
        self.open = []

    def check_copy_async(self, op: ops.CopyAsyncOp) -> None:
        cell = (op.operands[0], self.cursors[op.operands[1]])
        made = op.operands[0].owner
        if isinstance(made, SpecOp) and cell[1] >= made.value("stages"):
            op.fail(f"a copy goes to stage {cell[1]}, counted from 0, and its tile has {made.value('stages')}")
        if cell in self.read:
            op.fail(
                f"a copy goes to stage {cell[1]}, which other warps may still be reading",
                "put a `ttarget.wait_copies` between the dot that reads it and the copy",
            )
        if cell in self.open or any(cell in group for group in self.groups):
            op.fail(f"a copy goes to stage {cell[1]}, and another one is under way to it")
        self.there.discard(cell)
        self.perhaps.discard(cell)
        self.open.append(cell)

    def check_wait_copies(self, op: ops.WaitCopiesOp) -> None:
        if self.open:
            op.fail("a wait comes before copies are made a group", "put a `ttarget.commit_copies` before it")
        # Nothing is done yet where fewer are under way than may be left.
        done = self.groups[: max(0, len(self.groups) - op.left)]
        self.groups = self.groups[len(done) :]
        self.there.update(cell for group in done for cell in group)
        if not op.left:
            self.there |= self.perhaps
            self.perhaps.clear()
        self.read.clear()

    def check_mma_sync(self, op: ops.MmaSyncOp) -> None:
        for tile, cursor in zip(op.operands[1:3], op.operands[3:5], strict=True):
            if not isinstance(tile.type, SharedAttr):
                continue
            cell = (tile, self.cursors[cursor])
            if cell not in self.there:
                op.fail(
                    f"a dot reads stage {cell[1]}, which nobody waited for", "put a `ttarget.wait_copies` before it"
                )
            self.read.add(cell)

    def check_steps(self, op: ops.StepsOp) -> None:
        body, before = op.regions[0].block, set(self.there)
        self._bind(body.args[1:], op.operands[2:])
        for _ in range(self.iterations):
            self.run(body)
            self._bind(body.args[1:], yielded_values(body))
        self._bind(op.results, yielded_values(body))
        if not op.is_nonempty:
            self.perhaps |= self.there - before
            self.there &= before

    def _bind(self, names: Sequence[SSAValue], values: Sequence[SSAValue]) -> None:
        pairs = [(name, value) for name, value in zip(names, values, strict=True) if value in self.cursors]
        self.cursors.update({name: self.cursors[value] for name, value in pairs})


def check_copies(block: Block, stages: int) -> None:
    """Fails where copies and dots of a kernel do not wait for each other."""
    check = CopyCheck(stages)
    check.run(block)
    for tile, _ in check.open:
        owner_of(tile).fail(
            "a copy is started and never made part of a group", "put a `ttarget.commit_copies` after it"
        )
