"""Which tensor cores take a kernel, and the refusal of choices that a kernel makes itself and that do not fit."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.mma.boxes import shared_stores, staging_bytes
from tessera.backends.nvptx.mma.loops import is_zero, rings_read, sum_of
from tessera.backends.nvptx.mma.plan import Plan, plan_of
from tessera.backends.nvptx.mma.programs import is_uneven
from tessera.backends.nvptx.mma.rings import (
    Ring,
    asked_stages,
    check_written,
    rings_of,
    stages_by_engine,
    stages_by_threads,
    written_stages,
)
from tessera.backends.nvptx.tensor_cores import (
    MMA_SYNC,
    TCGEN05,
    TENSOR_CORES,
    WARPGROUP,
    WGMMA,
    WGMMA_ROWS,
    TensorCores,
    UnfitError,
    candidates_on,
    check_machine,
    shared_beside,
)
from tessera.backends.nvptx.types import shaped_type, spec_ops
from tessera.diagnostics.codes import TileVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.typed_ops import DotOp, KernelOp
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, PLAIN, Machine

# Whether a kernel runs on tensor cores: its dots, shared memory for its rings, and the form of its loops.


@frozen
class Choice:
    """The units that take a kernel, None where none do; `reasons` are those of each that does not."""

    units: TensorCores | None
    reasons: tuple[str, ...]


def choose_units(kernel: SpecOp, machine: Machine, asked: str = AUTOMATIC) -> Choice:
    """The units that are asked for, or the best that take a kernel."""
    tried = candidates_on(machine)
    if asked != AUTOMATIC:
        tried = () if asked == PLAIN else (TENSOR_CORES[asked],)
    reasons: list[str] = []
    for units in tried:
        try:
            check_fit(kernel, units, machine)
        except UnfitError as error:
            reasons.append(f"{units.name}: {error}")
        else:
            return Choice(units, tuple(reasons))
    return Choice(None, tuple(reasons))


def check_fit(kernel: SpecOp, units: TensorCores, machine: Machine) -> None:
    """Raises `UnfitError` with the reason where units of a machine do not take a kernel."""
    check_machine(machine, units.features)
    plan = plan_of(kernel, units)
    rings = rings_of(plan)
    if units is TCGEN05:
        _check_tensor_loops(kernel, plan, rings)
    stages_of(kernel, plan, rings, units, machine)
    if units is MMA_SYNC:
        _CopyOrder(plan, rings).walk(kernel.regions[0].block)


def _check_tensor_loops(kernel: SpecOp, plan: Plan, rings: Sequence[Ring]) -> None:
    """Raises `UnfitError` for programs and loops whose accumulators tensor memory does not take."""
    if is_uneven(kernel):
        raise UnfitError("programs that take unequally long are scheduled dynamically, and these are not")
    if any(not ring.is_in_loop for ring in rings):
        raise UnfitError("an operand that is copied once is not pipelined in stages")
    for op in spec_ops(kernel.regions[0].block):
        if op.name == "ttile.dot":
            raise UnfitError("a dot outside of a sum has nothing to overlap with in tensor memory")
        if op.name == "ttile.for" and (sum_of(op, plan, rings) is None or not is_zero(op.operands[2])):
            raise UnfitError("tensor memory takes loops that add up one dot from nothing")


def stages_of(kernel: SpecOp, plan: Plan, rings: Sequence[Ring], units: TensorCores, machine: Machine) -> list[int]:
    """The stages of each ring; raises `UnfitError` where shared memory does not hold two, or what a kernel says."""
    staging = staging_bytes(units, plan.consumers, shared_stores(kernel, units))
    asked = written_stages(rings) or asked_stages(kernel)
    if units is MMA_SYNC:
        found = stages_by_threads(rings, staging, machine, plan.consumers, asked)
    else:
        beside = _stages_beside(plan, rings, staging) if units is WGMMA and not asked else None
        least = 1 if units is WGMMA else 2
        found = beside[1] if beside is not None else stages_by_engine(rings, staging, asked, least=least)
    check_written(rings, found, machine.shared)
    return found


def resident_of(kernel: SpecOp, plan: Plan, rings: Sequence[Ring]) -> int:
    """How many CTAs of a kernel with these stages are on a multiprocessor."""
    staging = staging_bytes(WGMMA, plan.consumers, shared_stores(kernel, WGMMA))
    found = _stages_beside(plan, rings, staging)
    return found[0] if found is not None and found[1] == [ring.written for ring in rings] else 1


_HALF_ACCUMULATORS = 160
"""Registers of accumulators that a thread of one of two CTAs has beside all else: with 192 ptxas spills."""
_WIDEST = {4: 64, 3: 96, 2: 192}
"""Columns of the widest dot of so many CTAs: ptxas wants the registers of an instruction, one for two columns and 30
beside, among those that threads begin with."""


def _accumulators(plan: Plan) -> int:
    """Registers that a thread holds the results of all dots in: a warpgroup has 64 rows of each."""
    return sum(_columns_of(plan)) * WGMMA_ROWS // WARPGROUP


def _columns_of(plan: Plan) -> list[int]:
    """Columns of the results of all dots."""
    return [shaped_type(op.results[0]).shape[1].value or 0 for op in plan.dots]


def _stages_beside(plan: Plan, rings: Sequence[Ring], staging: int) -> tuple[int, list[int]] | None:
    """How many CTAs do better than one on a multiprocessor, and stages of which so many fit; None where none do.

    One warpgroup that multiplies what it computes from another dot waits for itself: 64 rows of an attention, or of
    its gradient. A program without a loop waits most of its time, so that more of them are beside each other, as long
    as what the next one reads has a stage.
    """
    computes = any(dot.inputs for dot in plan.dots.values())
    if plan.consumers != 1 or len(plan.dots) < 2 or computes or _accumulators(plan) > _HALF_ACCUMULATORS:
        return None
    is_in_loop = any(ring.is_in_loop for ring in rings)
    for count, widest in _WIDEST.items():
        is_able = max(_columns_of(plan)) <= widest and (count == min(_WIDEST) or not is_in_loop)
        found = _stages_in(rings, staging, shared_beside(count)) if is_able else None
        if found is not None and (count == min(_WIDEST) or min(found) > 1):
            return count, found
    return None


def _stages_in(rings: Sequence[Ring], staging: int, shared: int) -> list[int] | None:
    """Stages in so much shared memory, None where they do not fit."""
    try:
        return stages_by_engine(rings, staging, shared=shared)
    except UnfitError:
        return None


class _CopyOrder:
    """A walk that follows in which order threads wait for what they copied: groups of copies are all they can count."""

    def __init__(self, plan: Plan, rings: Sequence[Ring]) -> None:
        self.plan, self.rings = plan, rings
        self.awaited: list[int] = []
        """The rings of the loop at hand that are still to be waited for in this iteration."""
        self.there: set[int] = set()

    def walk(self, block: Block) -> None:
        """Raises `UnfitError` where a loop cannot be carried out."""
        for op in spec_ops(block):
            if op.name == "ttile.for":
                self._loop(op)
            elif op in self.plan.dots:
                self._arrive(rings_read(self.plan.dots[op], self.rings))

    def _arrive(self, rings: Sequence[int]) -> None:
        wanted = [at for at in rings if at not in self.there]
        for at in [at for at in wanted if at in self.awaited]:
            if self.awaited[0] != at:
                raise UnfitError("dots of a loop read what it copies in another order than it copies it")
            self.awaited.pop(0)
        self.there.update(wanted)

    def _loop(self, op: SpecOp) -> None:
        source = op.regions[0].block
        inner = [at for at, ring in enumerate(self.rings) if op.is_ancestor(ring.block)]
        before = set(self.there)
        if not inner:
            self._arrive([at for at, ring in enumerate(self.rings) if ring.last is op])
            before = set(self.there)
            self.walk(source)
        else:
            if any(self.rings[at].block is not source for at in inner):
                raise UnfitError("a loop within a loop copies, and stages are pipelined in one loop at a time")
            for operand in (operand for at in inner for operand in self.rings[at].loads):
                for index in operand.load.operands[1:]:
                    _check_prefetch(index, source)
            self.awaited = list(inner)
            self.walk(source)
            if self.awaited:
                raise UnfitError("a loop copies what its own dots do not read")
        # A loop may have no steps.
        self.there = before


def _check_prefetch(index: SSAValue, source: Block) -> None:
    """Raises `UnfitError` for an index of a loop that is not known before its step."""
    op = index.op if isinstance(index, OpResult) else None
    if not isinstance(op, SpecOp) or op.parent_block() is not source:
        return
    if op.name != "ttile.index":
        raise UnfitError("the index of a tile is read from memory, and copies are prefetched before that")
    for part in op.operands:
        _check_prefetch(part, source)


# Kernels for which tensor cores were chosen, and the refusal of choices that do not fit.


def dots_in(kernel: SpecOp) -> list[DotOp]:
    """The dots of a kernel."""
    return [op for op in kernel.walk() if isinstance(op, DotOp)]


def tile_kernels(module: ModuleOp) -> list[KernelOp]:
    """The tile kernels of a module."""
    return [op for op in module.ops if isinstance(op, KernelOp)]


def kernels_on_units(module: ModuleOp) -> Iterator[tuple[KernelOp, TensorCores]]:
    """The kernels of a module that run on tensor cores, and on which."""
    for kernel in tile_kernels(module):
        if (units := units_in(kernel)) is not None:
            yield kernel, units


def thread_kernels(module: ModuleOp) -> list[KernelOp]:
    """The tile kernels of a module that run on plain threads."""
    return [op for op in module.ops if isinstance(op, KernelOp) and units_in(op) is None]


def units_in(kernel: SpecOp) -> TensorCores | None:
    """The tensor cores chosen for the dots of a kernel; None for multiply-adds, or where nobody has chosen."""
    names = {dot.unit for dot in dots_in(kernel)}
    return TENSOR_CORES.get(names.pop()) if len(names) == 1 else None


def mark_plain(kernel: SpecOp) -> None:
    """Let the dots of a kernel be computed by multiply-adds."""
    for dot in dots_in(kernel):
        dot.set_value("unit", PLAIN)
        dot.set_value("instruction", ())


@contextmanager
def refuse_choices(kernel: SpecOp, *names: str) -> Generator[None]:
    """What a kernel says by attributes of these names is refused (T0501) where it does not fit."""
    try:
        yield
    except UnfitError as error:
        listed = ", ".join(f"`{name}`" for name in names)
        raise TileVerifyError(
            f"`@{kernel.value('symbol')}` says what does not fit: {error}",
            span=kernel.span,
            fix=f"leave {listed} out, and what fits is chosen",
        ) from error
