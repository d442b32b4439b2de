"""Overlap of computing and communicating, predicted: when tasks of several streams run, and what waits for what.

A stream runs its tasks in the order in which they are issued, each as soon as the tasks that it waits for have ended.
While a collective runs, kernels are slower: it takes multiprocessors and memory bandwidth from them. The model places
tasks in one pass over the program and stretches each by the time for which the other streams were busy beside it, until
the stretches settle; that takes a few passes, where a simulation of events goes through every start and end. Tests
compare it with such a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from xdsl.ir import SSAValue

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import ShapedAttr
from tessera.ir.schedule.planning.collectives import plan_collective
from tessera.types.frozen import frozen
from tessera.types.topology import Topology

COMPUTE, COMMUNICATE = "compute", "communicate"
PASSES = 12
"""Passes over a program at most: a stretch that moves what causes it settles in three or four."""


@frozen
class Task:
    """Work of a stream: nanoseconds when it runs alone, and the names of tasks that it waits for."""

    name: str
    stream: str
    time: float
    after: tuple[str, ...] = ()


@frozen
class Placed:
    """A task and when it runs."""

    task: Task
    start: float
    end: float


@frozen
class Prediction:
    """When tasks run, in the order in which they were issued.

    >>> steps = [Task("mm0", "compute", 10), Task("ar0", "communicate", 8, ("mm0",)), Task("mm1", "compute", 10)]
    >>> found = predict([*steps, Task("use", "compute", 1, ("ar0",))])
    >>> found.makespan, found.exposed, found.hidden
    (21.0, 0.0, 8.0)
    """

    placed: tuple[Placed, ...]

    @property
    def makespan(self) -> float:
        return max((one.end for one in self.placed), default=0.0)

    @property
    def hidden(self) -> float:
        """Time in which both a kernel and a collective run."""
        computing = _spans(self.placed, COMPUTE)
        return sum(_overlap(one.start, one.end, computing) for one in self.placed if one.task.stream == COMMUNICATE)

    @property
    def exposed(self) -> float:
        """Time of collectives during which no kernel runs."""
        spans = _spans(self.placed, COMMUNICATE)
        return sum(end - start for start, end in spans) - self.hidden

    def render(self) -> str:
        """A line for each task: stream, start, end and name."""
        width = max((len(one.task.stream) for one in self.placed), default=0)
        return "\n".join(
            f"{one.task.stream:<{width}} {one.start:10.0f} {one.end:10.0f} ns  {one.task.name}" for one in self.placed
        )


def predict(tasks: Sequence[Task], slowdown: float = 0.0) -> Prediction:
    """When tasks run where kernels lose the fraction `slowdown` of their rate beside a collective.

    Raises ScheduleError (T0401) where a task waits for one that is issued later, or for none.
    """
    _check(tasks, slowdown)
    stretch = [0.0] * len(tasks)
    placed: list[Placed] = []
    for _ in range(PASSES if slowdown else 1):
        placed = _place(tasks, stretch)
        spans = _spans(placed, COMMUNICATE)
        # A kernel beside a collective for the time t does what takes (1 - slowdown) * t alone.
        wanted = [
            slowdown * _overlap(one.start, one.end, spans) if one.task.stream == COMPUTE else 0.0 for one in placed
        ]
        if all(abs(a - b) <= 1e-9 * (1 + b) for a, b in zip(wanted, stretch, strict=True)):
            break
        stretch = wanted
    return Prediction(tuple(placed))


def _check(tasks: Sequence[Task], slowdown: float) -> None:
    if not 0 <= slowdown < 1:
        raise ScheduleError(f"`slowdown` is a fraction from 0 to below 1, got {slowdown}", span=None, fix="give 0.1")
    seen: set[str] = set()
    for task in tasks:
        missing = [name for name in task.after if name not in seen]
        if missing or task.name in seen or task.time < 0:
            what = f"waits for `{missing[0]}`, which is not issued before it" if missing else "is issued twice"
            what = f"takes {task.time} ns" if task.time < 0 else what
            raise ScheduleError(
                f"task `{task.name}` {what}", span=None, fix="issue tasks once, behind those that they wait for"
            )
        seen.add(task.name)


def _place(tasks: Sequence[Task], stretch: Sequence[float]) -> list[Placed]:
    free: dict[str, float] = {}
    ends: dict[str, float] = {}
    placed: list[Placed] = []
    for task, more in zip(tasks, stretch, strict=True):
        start = max([free.get(task.stream, 0.0), *(ends[name] for name in task.after)])
        end = start + task.time + more
        free[task.stream] = ends[task.name] = end
        placed.append(Placed(task, start, end))
    return placed


def _spans(placed: Sequence[Placed], stream: str) -> list[tuple[float, float]]:
    return [(one.start, one.end) for one in placed if one.task.stream == stream]


def _overlap(start: float, end: float, spans: Sequence[tuple[float, float]]) -> float:
    return sum(max(0.0, min(end, other_end) - max(start, other_start)) for other_start, other_end in spans)


def software_pipeline(times: Mapping[str, float], iterations: int, buffers: int) -> list[Task]:
    """The tasks of a loop in stages (load, compute, store), a stream each, with `buffers` for what the first gives.

    Iteration n + buffers is loaded once iteration n was computed: `load (n+1), compute (n), store (n-1)` with two.
    """
    if iterations < 1 or buffers < 1 or not times:
        raise ScheduleError(
            f"a loop has stages, iterations and buffers, got {len(times)}, {iterations} and {buffers}",
            span=None,
            fix="give at least one of each",
        )
    names = list(times)
    tasks: list[Task] = []
    for iteration in range(iterations):
        for at, name in enumerate(names):
            after = [f"{names[at - 1]}{iteration}"] if at else []
            if at == 0 and iteration >= buffers and len(names) > 1:
                after.append(f"{names[1]}{iteration - buffers}")
            tasks.append(Task(f"{name}{iteration}", name, times[name], tuple(after)))
    return tasks


def tasks_of(program: SpecOp, sizes: Mapping[str, int], topology: Topology) -> list[Task]:
    """The kernels and collectives of a plan, or of a host program, as tasks, by the costs that are written on them.

    A collective starts behind what it sends, and what is issued behind its wait waits for it. Collectives take what a
    plan for their bytes takes on the topology. Bodies of control flow are not looked into.
    """
    tasks: list[Task] = []
    made: dict[SSAValue, str] = {}
    started: dict[int, str] = {}
    waits: list[str] = []
    for number, op in enumerate(program.regions[0].block.ops):
        assert isinstance(op, SpecOp)
        if op.name == "tsched.collective_wait":
            waits.append(started[op.value("number")])
            made.update(dict.fromkeys(op.results, waits[-1]))
        task = _task_of(op, number, sizes, topology)
        if task is None:
            continue
        before = [made[value] for value in map(_source_of, op.operands) if value in made]
        tasks.append(replace(task, after=tuple(dict.fromkeys(before + waits))))
        if task.stream == COMMUNICATE:
            started[op.value("number")] = task.name
        # Without results it works on buffers: a kernel may write any of its own, a collective what it receives.
        buffers = op.operands[1:] if task.stream == COMMUNICATE else op.operands
        made.update(dict.fromkeys(op.results or map(_source_of, buffers), task.name))
    return tasks


def _source_of(value: SSAValue) -> SSAValue:
    """The value whose memory another shape of it is."""
    while isinstance(value.owner, SpecOp) and value.owner.name == "tsched.alias":
        value = value.owner.operands[0]
    return value


def _task_of(op: SpecOp, number: int, sizes: Mapping[str, int], topology: Topology) -> Task | None:
    """What an op takes by itself; None for one that takes no time here."""
    if op.name == "tsched.collective_start":
        call: str = op.value("call")
        plan = plan_collective(call, _bytes_of(op, sizes), topology, ranks=op.value("ranks"))
        return Task(f"{call}{number}", COMMUNICATE, plan.time)
    names = {"tsched.fuse": "body", "tsched.call": "kernel"}
    if op.name not in names or op.value("time") is None:
        return None
    return Task(f"{op.value(names[op.name])}{number}", COMPUTE, float(op.value("time").evaluate(sizes)))


def _bytes_of(op: SpecOp, sizes: Mapping[str, int]) -> int:
    """Bytes of a collective as plans count them: of the gathered value, or of what a rank exchanges."""
    received = (*op.operands, *op.results)[-1].type
    assert isinstance(received, ShapedAttr), "a collective moves tensors or buffers"
    return received.data.bytes.evaluate(sizes)
