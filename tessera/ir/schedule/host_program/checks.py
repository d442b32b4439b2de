"""Verifiers of host programs: lifetimes of buffers, collectives in flight, and results written in place.

Each is one walk in the order in which the program runs. A *root* is the value whose memory an alias is of, so that a
buffer is found by whatever name an op uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import DONATED
from tessera.ir.schedule.host_program.aliasing import (
    ANNOTATIONS,
    donated_in,
    enclosing_op,
    may_be_written,
    overwritten_by,
    readers_of,
    root_of,
    unaliased,
)
from tessera.ir.schedule.typed_ops import (
    AliasOp,
    AllocOp,
    CallbackOp,
    CallOp,
    CollectiveStartOp,
    CollectiveWaitOp,
    CopyOp,
    ForOp,
    FreeOp,
    FuseOp,
    ModuleOp,
    ReturnOp,
    TileOp,
    WhileOp,
    YieldOp,
)
from tessera.ir.tile.typed_ops import KernelOp

WAIT = "tsched.collective_wait"


def check_program(program: ModuleOp) -> None:
    """Fail at the first op that uses memory it may not."""
    _check_lifetimes(program.body.block, set())
    if any(isinstance(op, CollectiveStartOp | CollectiveWaitOp) for op in program.walk()):
        _Collectives(program).block(program.body.block)
    _check_in_place(program)


def _check_lifetimes(block: Block, freed: set[SSAValue]) -> set[SSAValue]:
    """Fail at an op that uses a buffer behind its `free`, or frees it again; the buffers freed behind a block."""
    for op in block.ops:
        if not isinstance(op, SpecOp):
            continue
        for value in op.operands:
            if unaliased(value) in freed and isinstance(op, FreeOp):
                op.fail("a buffer is freed twice", "leave this `tsched.free` out")
            # A yield ends its body, and nothing can come behind it.
            if unaliased(value) in freed and not isinstance(op, (*ANNOTATIONS, YieldOp)):
                op.fail(f"`{op.name}` uses a buffer that was freed", "move the `tsched.free` behind its last use")
        for region in op.regions:
            behind = _check_lifetimes(region.block, set(freed))
            if isinstance(op, WhileOp | ForOp):
                behind = _check_lifetimes(region.block, behind)  # the second iteration finds what the first one left
            freed |= behind
        freed.difference_update(op.results)
        if isinstance(op, FreeOp):
            freed.add(unaliased(op.buffer))
    return freed


class _Collectives:
    """Each collective is waited for once, in its block; nothing touches its memory before; all keep one order."""

    def __init__(self, program: SpecOp) -> None:
        self.last = -1
        self.kernels = _kernels_beside(program)

    def block(self, block: Block) -> None:
        """All collectives that start in a block end in it: between iterations and branches none is in flight."""
        in_flight: dict[int, CollectiveStartOp] = {}
        for op in block.ops:
            if not isinstance(op, SpecOp):
                continue
            if isinstance(op, CollectiveWaitOp):
                self._end(op, in_flight)
                continue
            for started in in_flight.values():
                self._check_untouched(op, started)
            if isinstance(op, CollectiveStartOp):
                self._begin(op, in_flight)
            for region in op.regions:
                self.block(region.block)
        for started in in_flight.values():
            started.fail(f"collective {started.number} is never waited for", f"put a `{WAIT}` behind it, in its block")

    def _begin(self, op: CollectiveStartOp, in_flight: dict[int, CollectiveStartOp]) -> None:
        if op.number <= self.last:
            op.fail(
                f"collective {op.number} starts behind collective {self.last}, and ranks match them by their numbers",
                "start them in their order, each once",
            )
        self.last = op.number
        in_flight[op.number] = op
        for use in (use for result in op.results for use in result.uses):
            if not isinstance(use.operation, CollectiveWaitOp | TileOp):
                op.fail(f"`{use.operation.name}` uses the result of collective {op.number} before it was waited for")

    def _end(self, op: CollectiveWaitOp, in_flight: dict[int, CollectiveStartOp]) -> None:
        started = in_flight.pop(op.number, None)
        if started is None:
            op.fail(f"collective {op.number} is waited for, and was not started before in this block")
        if (*op.operands,) != (*started.operands, *started.results):
            op.fail(f"collective {op.number} is waited for with other values than it was started with")

    def _check_untouched(self, op: SpecOp, started: CollectiveStartOp) -> None:
        """Between start and wait the received buffer belongs to nobody, and the sent one may only be read."""
        if started.results:
            return  # a value does not change
        source, target = (unaliased(value) for value in started.operands)
        for inner in op.walk():
            if not isinstance(inner, SpecOp) or isinstance(inner, (*ANNOTATIONS, AliasOp)):
                continue
            used = {unaliased(value) for value in inner.operands}
            written = {unaliased(value) for value in self._written(inner)}
            if target in used or source in written:
                touched = "writes what" if target not in used else "uses the buffer that"
                verb = "sends" if target not in used else "still fills"
                inner.fail(
                    f"`{inner.name}` {touched} collective {started.number} {verb}",
                    f"put the `{WAIT}` of it before this",
                )

    def _written(self, op: SpecOp) -> list[SSAValue]:
        """The buffers that an op writes; of a kernel that is not at hand, all."""
        if isinstance(op, CallOp):
            kernel = self.kernels.get(op.kernel)
            return list(op.operands) if kernel is None else [op.operands[at] for at in kernel.writes]
        if isinstance(op, CopyOp):
            return [op.target]
        if isinstance(op, CallbackOp):
            return list(op.operands[len(op.operands) - op.outputs :])
        if isinstance(op, CollectiveStartOp):
            return [] if op.results else [op.operands[1]]
        if isinstance(op, ForOp):
            bounds = 2 if op.length is None else 0
            carried = bounds + bounds // 2 + 2 * op.carried
            return [*op.operands[bounds:carried], *op.operands[len(op.operands) - op.stacked :]]
        return list(op.operands) if isinstance(op, WhileOp) else []


def _kernels_beside(program: Operation) -> Mapping[str, KernelOp]:
    """The kernels of the module around, by name."""
    ops = program.parent.ops if program.parent is not None else ()
    return {op.symbol: op for op in ops if isinstance(op, KernelOp)}


def _check_in_place(program: ModuleOp) -> None:
    """Fail at a group that may not write over its operand, and at an op that reads what was written over."""
    block = program.body.block
    donated = donated_in(program)
    if any(not 0 <= number < len(block.args) for number in donated):
        program.fail(f"`{DONATED}` names arguments {list(donated)}, and there are {len(block.args)}")
    order = {op: at for at, op in enumerate(block.ops)}
    for op in block.ops:
        if isinstance(op, FuseOp) and op.in_place >= 0:
            _check_group(program, op, order)
        if isinstance(op, ReturnOp):
            _check_returned(op, program, donated)


def _check_group(program: ModuleOp, op: FuseOp, order: dict[Operation, int]) -> None:
    number, block = op.in_place, program.body.block
    old = overwritten_by(op) if number < len(op.operands) else None
    if old is None or not op.results or old.type != op.results[0].type:
        op.fail(f"`in_place` is the number of an operand with the type of the first result, got {number}")
    if not may_be_written(program, old):
        op.fail(
            f"`{op.name}` writes over operand {number}, which is neither donated by the caller nor made here",
            f"name its argument in `{DONATED}`, or leave `in_place` out",
        )
    if sum(root_of(value) is root_of(old) for value in op.operands) > 1:
        op.fail(f"`{op.name}` writes over operand {number}, and reads it as another one too")
    for reader in readers_of(old):
        if reader is not op and order[enclosing_op(reader, block)] >= order[op]:
            op.fail(
                f"`{op.name}` writes over operand {number}, which `{reader.name}` reads later",
                "leave `in_place` out, so that the result has memory of its own",
            )


def _check_returned(op: ReturnOp, program: ModuleOp, donated: tuple[int, ...]) -> None:
    """Once buffers are placed, an argument is returned without a copy only where it was donated, and once."""
    has_buffers = program.workspace is not None or any(isinstance(other, AllocOp) for other in program.body.block.ops)
    if not has_buffers:
        return
    returned = [root for root in map(root_of, op.operands) if isinstance(root, BlockArgument)]
    for root in returned:
        if root.index not in donated:
            op.fail(f"argument {root.index} is returned without a copy, and its caller has not donated it")
    if len(set(returned)) != len(returned):
        op.fail("an argument is returned twice without a copy: two results would be one memory")
