"""Collectives under way: each is waited for once, nothing touches its memory before, and all keep one order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import Block, Operation, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.exchanges import START, WAIT, is_placed

_NOTES = ("tsched.tile", "tsched.layout", "tsched.collective", "tsched.alias")
"""Ops that touch no memory."""


def check_exchanges(program: SpecOp) -> None:
    """Fails at a collective that is not waited for in its block, and at an op that touches what it still uses."""
    if any(op.name in (START, WAIT) for op in program.walk()):
        _Exchanges(program).block(program.regions[0].block)


class _Exchanges:
    """One walk through a program, in the order in which it runs."""

    def __init__(self, program: SpecOp) -> None:
        self.last = -1
        self.roots: dict[SSAValue, SSAValue] = {}
        self.kernels = _kernels_beside(program)

    def block(self, block: Block) -> None:
        """All collectives that begin in a block end in it: rounds of a loop and branches have nothing under way."""
        under_way: dict[int, SpecOp] = {}
        for op in block.ops:
            if not isinstance(op, SpecOp):
                continue
            if op.name == "tsched.alias":
                self.roots[op.results[0]] = self._root(op.operands[0])
            if op.name == WAIT:
                self._end(op, under_way)
                continue
            for started in under_way.values():
                self._check_untouched(op, started)
            if op.name == START:
                self._begin(op, under_way)
            for region in op.regions:
                self.block(region.block)
        for started in under_way.values():
            started.fail(
                f"collective {started.value('number')} is never waited for", f"put a `{WAIT}` behind it, in its block"
            )

    def _begin(self, op: SpecOp, under_way: dict[int, SpecOp]) -> None:
        number = op.value("number")
        if number <= self.last:
            op.fail(
                f"collective {number} starts behind collective {self.last}, and ranks meet them by their numbers",
                "start them in their order, each once",
            )
        self.last = number
        under_way[number] = op
        for result in op.results:
            for use in result.uses:
                if use.operation.name not in (WAIT, "tsched.tile"):
                    op.fail(f"`{use.operation.name}` uses what collective {number} brings before it was waited for")

    def _end(self, op: SpecOp, under_way: dict[int, SpecOp]) -> None:
        number = op.value("number")
        started = under_way.pop(number, None)
        if started is None:
            op.fail(f"collective {number} is waited for, and was not started before in this block")
            return
        if (*op.operands,) != (*started.operands, *started.results):
            op.fail(f"collective {number} is waited for with other values than it was started with")

    def _check_untouched(self, op: SpecOp, started: SpecOp) -> None:
        """Between start and wait what comes belongs to nobody, and what is sent may only be read."""
        if not is_placed(started):
            return  # a value does not change
        source, target = (self._root(value) for value in started.operands)
        for inner in _ops_of(op):
            if inner.name in _NOTES:
                continue
            used = {self._root(value) for value in inner.operands}
            written = {self._root(value) for value in self._written(inner)}
            if target in used or source in written:
                touched = "writes what" if target not in used else "uses the buffer that"
                verb = "sends" if target not in used else "still fills"
                inner.fail(
                    f"`{inner.name}` {touched} collective {started.value('number')} {verb}",
                    f"put the `{WAIT}` of it before this",
                )

    def _root(self, value: SSAValue) -> SSAValue:
        return self.roots.get(value, value)

    def _written(self, op: SpecOp) -> list[SSAValue]:
        """The buffers that an op writes; of a kernel that nobody can look into, all."""
        if op.name == "tsched.call":
            kernel = self.kernels.get(op.value("kernel"))
            return list(op.operands) if kernel is None else [op.operands[at] for at in kernel.value("writes")]
        if op.name == "tsched.copy":
            return [op.operands[1]]
        if op.name == "tsched.callback":
            return list(op.operands[len(op.operands) - op.value("outputs") :])
        if op.name == START:
            return [op.operands[1]] if is_placed(op) else []
        if op.name == "tsched.for":
            bounds = 2 if op.value("length") is None else 0
            carried = bounds + bounds // 2 + 2 * op.value("carried")
            return [*op.operands[bounds:carried], *op.operands[len(op.operands) - op.value("stacked") :]]
        return list(op.operands) if op.name == "tsched.while" else []


def _ops_of(op: SpecOp) -> Iterator[SpecOp]:
    """An op and all inside it."""
    for inner in op.walk():
        if isinstance(inner, SpecOp):
            yield inner


def _kernels_beside(program: Operation) -> Mapping[str, SpecOp]:
    """The kernels of the module around, by name."""
    ops = program.parent.ops if program.parent is not None else ()
    return {op.value("symbol"): op for op in ops if isinstance(op, SpecOp) and op.name == "ttile.kernel"}
