"""Launches of a host program on several CUDA streams: what each waits for, and the events that it records.

Words of the table behind the constants: the driver's functions to record an event and to wait, the other streams, the
events. Where the runtime wants all on one stream, it gives that for the others and `tessera_nothing` for the functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tessera.backends.nvptx.text import KernelCode, matrix_symbol
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.host_program.launch_order import LaunchOrder, launches_in
from tessera.ir.schedule.host_program.launch_streams import Step, StreamPlan, assign_streams
from tessera.ir.schedule.typed_ops import CallOp
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import ModuleText
from tessera.types.machine import Machine

ONE_STREAM = StreamPlan((), (), False)
STREAMS = (1, 2, 4, 8)
"""How many streams a program may use."""
SEVERAL = 4
"""How many it uses by itself where at least as many launches are independent and small.

Replayed, eight matmuls of a few blocks each took an H200 16 us on four streams and 29 us on one, eight that fill it 187
us and 191 us; three independent ones in a longer chain gained nothing (`benchmarks/results/gpu-queues.json`).
"""


def write_nothing(module: ModuleText) -> None:
    """A function that can be called in place of the driver's, and always succeeds."""
    f = module.function("tessera_nothing", [("ptr", "one"), ("ptr", "other"), ("i32", "flags")], ret="i32")
    f.ret(Value("i32", "0"))


class Entry(Protocol):
    """The entry as streams see it: words of its table by index and by name, and calls of the driver."""

    words: dict[str, Value]
    program: SpecOp

    def word(self, at: int) -> Value: ...

    def driver(self, word: str, args: Sequence[Value], kernel: int = -1) -> None: ...


class SideStreams:
    """The streams of an entry beside that of the call; with a plan of one stream nothing is written."""

    def __init__(self, entry: Entry, plan: StreamPlan, first: int) -> None:
        self._entry, self._plan = entry, plan
        self._steps: dict[SpecOp, Step] = {}
        self._streams = [entry.words["stream"]]
        if plan.streams == 1:
            return
        ops = launches_in(entry.program.regions[0].block)
        self._steps = dict(zip(ops, plan.steps, strict=True))
        entry.words["signal"], entry.words["await"] = entry.word(first), entry.word(first + 1)
        self._streams += [entry.word(first + 1 + at) for at in range(1, plan.streams)]
        start = first + 1 + plan.streams
        self._events = {number: entry.word(start + at) for at, number in enumerate(plan.events)}

    def run(self, write: Callable[[], None]) -> None:
        """Write a program, whose other streams begin after what is in its own, which goes on after all of them."""
        if self._plan.begins:
            self._record(-1, self._streams[0])
        write()
        self._wait(self._plan.joins, self._streams[0])

    def put(self, op: SpecOp, write: Callable[[SpecOp], None]) -> None:
        """Write an op on its stream."""
        step = self._steps.get(op)
        if step is None:
            write(op)
            return
        words, stream = self._entry.words, self._streams[step.stream]
        self._wait(step.waits, stream)
        words["stream"] = stream
        write(op)
        words["stream"] = self._streams[0]
        if step.signals:
            self._record(step.node.number, stream)

    def _record(self, number: int, stream: Value) -> None:
        self._entry.driver("signal", [self._events[number], stream])

    def _wait(self, numbers: Sequence[int], stream: Value) -> None:
        for number in numbers:
            self._entry.driver("await", [stream, self._events[number], Value("i32", "0")])


def plan_streams(order: LaunchOrder, count: int) -> StreamPlan:
    """A plan for at most so many streams; one stream where that is all that can be used."""
    found = assign_streams(order, count) if count > 1 else ONE_STREAM
    if found.streams == 1:
        return ONE_STREAM
    found.check(order)
    return found


def preferred_streams(
    program: SpecOp, codes: Sequence[KernelCode], machine: Machine, order: Callable[[], LaunchOrder]
) -> tuple[int, ...]:
    """How many streams a program may use, the best number first: several for launches that leave most of a GPU idle."""
    named = {code.name: code for code in codes}
    launches = launches_in(program.regions[0].block)
    small = {number for number, op in enumerate(launches) if _is_small(op, named, machine)}
    if len(small) < SEVERAL:
        return STREAMS
    depths = order().launches().depths()
    most = max(Counter(depths[number] for number in small).values())
    return (SEVERAL, *(n for n in STREAMS if n != SEVERAL)) if most >= SEVERAL else STREAMS


def _is_small(op: SpecOp, codes: Mapping[str, KernelCode], machine: Machine) -> bool:
    """Whether a launch is known to have blocks for half of the multiprocessors at most."""
    if not isinstance(op, CallOp):
        return False
    code = codes.get(matrix_symbol(op.kernel)) or codes.get(op.kernel)
    if code is None:
        return False
    total = code.grid.substitute(dict(zip(code.symbols, op.sizes, strict=True))).value
    return total is not None and -(-total // code.programs) <= machine.blocks // 2
