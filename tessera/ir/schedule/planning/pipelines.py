"""Pipelines: which microbatch each rank computes when, what that keeps in memory, and how long ranks wait.

A rank runs its actions in a fixed order and waits for what an action needs; the order is the schedule. Under `1f1b` a
rank first runs as many forwards as there are stages behind it, then a forward and a backward in alternation, so that
activations of at most `stages` microbatches are kept, however many there are. `interleaved` gives each rank several
chunks of the model, so that a microbatch comes back to a rank sooner: the bubble is divided by the number of chunks,
and more activations (of smaller chunks) are kept. Both are those of Megatron-LM (Narayanan et al., 2021).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import TypeAlias

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.op import SpecOp
from tessera.ir.schedule.ops.mesh import check_pipeline_numbers, size_of_axis
from tessera.types.frozen import frozen

Number: TypeAlias = int | Fraction

MOST_ACTIONS = 1 << 20
"""Forwards of all ranks that a timetable has at most: some seconds, and some hundred MB."""


@frozen
class Action:
    """One forward or backward of a microbatch through the chunk of a rank."""

    kind: str
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


@frozen
class Pipeline:
    """A pipeline: its schedule, ranks (`stages`), microbatches of a step, and chunks of the model on each rank.

    >>> print(pipeline("1f1b", stages=2, microbatch=3).timetable().render())
    rank 0 | F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2
    rank 1 | .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .
    """

    schedule: str
    stages: int
    microbatch: int
    chunks: int = 1

    @property
    def virtual_stages(self) -> int:
        return self.stages * self.chunks

    @property
    def ideal_actions(self) -> int:
        """Forwards, and as many backwards, of each rank."""
        return self.microbatch * self.chunks

    def warmup(self, rank: int) -> int:
        """Forwards of a rank before its first backward is due."""
        behind = self.stages - rank - 1
        if self.chunks == 1:
            return min(behind, self.microbatch)
        return min(2 * behind + (self.chunks - 1) * self.stages, self.ideal_actions)

    def order(self, rank: int) -> list[Action]:
        """All actions of a rank, in the order in which it runs them."""
        _check_length(self)
        forwards = [self._action("F", number) for number in range(self.ideal_actions)]
        backwards = [self._action("B", number) for number in range(self.ideal_actions)]
        first = self.warmup(rank)
        steady = zip(forwards[first:], backwards, strict=False)
        paired = [action for pair in steady for action in pair]
        return [*forwards[:first], *paired, *backwards[self.ideal_actions - first :]]

    def _action(self, kind: str, number: int) -> Action:
        """The `number`-th forward or backward of a rank: microbatches in groups of `stages`, chunk after chunk."""
        group, within = divmod(number, self.stages * self.chunks)
        chunk = within // self.stages
        microbatch = group * self.stages + within % self.stages if self.chunks > 1 else number
        chunk = chunk if self.chunks > 1 else 0
        return Action(kind, microbatch, chunk if kind == "F" else self.chunks - 1 - chunk)

    def peak_activations(self, rank: int) -> int:
        """Activations of microbatches, each of one chunk, that a rank keeps at most: in closed form."""
        return min(self.warmup(rank) + 1, self.ideal_actions)

    @property
    def bubble_fraction(self) -> Fraction:
        """The part of a step in which a rank waits: in closed form, whatever a forward and a backward take."""
        waits = self.stages - 1
        return Fraction(waits, self.ideal_actions + waits)

    def makespan(self, forward: Number = 1, backward: Number = 2) -> Fraction:
        """How long a step takes where a rank's whole forward takes `forward`, and its backward `backward`."""
        return Fraction(self.ideal_actions + self.stages - 1) * (Fraction(forward) + Fraction(backward)) / self.chunks

    def timetable(self, forward: Number = 1, backward: Number = 2) -> Timetable:
        """When each action begins and ends, by running the orders of all ranks; times are those of `makespan`."""
        times = {"F": Fraction(forward) / self.chunks, "B": Fraction(backward) / self.chunks}
        return run_orders(self, [self.order(rank) for rank in range(self.stages)], times)


def pipeline(schedule: str, stages: int, microbatch: int, chunks: int = 1) -> Pipeline:
    """A pipeline of these numbers; raises ScheduleError (T0401) where they do not go together."""
    problem = check_pipeline_numbers(schedule, stages, microbatch, chunks)
    if problem is not None:
        raise ScheduleError(problem[0], span=None, fix=problem[1])
    return Pipeline(schedule, stages, microbatch, chunks)


def pipeline_of(op: SpecOp) -> Pipeline:
    """The pipeline that a `tsched.pipeline` or a `tsched.pipeline.region` says, which is verified."""
    stages = op.value("stages") or size_of_axis(op, op.value("axis"))
    return pipeline(op.value("schedule"), stages, op.value("microbatch"), op.value("chunks"))


@frozen
class Span:
    """An action of a rank and when it runs."""

    rank: int
    action: Action
    start: Fraction
    end: Fraction


@frozen
class Timetable:
    """All actions of a pipeline with their times, rank after rank and in order."""

    pipeline: Pipeline
    spans: tuple[Span, ...]

    @property
    def makespan(self) -> Fraction:
        return max(span.end for span in self.spans)

    @property
    def bubble_fraction(self) -> Fraction:
        """The part of the step in which ranks wait, over all ranks."""
        busy = sum((span.end - span.start for span in self.spans), Fraction(0))
        return 1 - busy / (self.makespan * self.pipeline.stages)

    def peak_activations(self, rank: int) -> int:
        """What a rank keeps at most: an activation from the start of a forward to the end of its backward."""
        kept = most = 0
        for span in self._of(rank):
            kept += span.action.kind == "F"
            most = max(most, kept)
            kept -= span.action.kind == "B"
        return most

    def render(self) -> str:
        """The timetable as text: a column for each unit of time, `.` where a rank waits."""
        times = [span.end - span.start for span in self.spans]
        scale = lcm(*(time.denominator for time in times))
        unit = Fraction(gcd(*(int(time * scale) for time in times)), scale)
        width = max(len(str(span.action)) for span in self.spans)
        lines: list[str] = []
        for rank in range(self.pipeline.stages):
            cells = ["."] * int(self.makespan / unit)
            for span in self._of(rank):
                for at in range(int(span.start / unit), int(span.end / unit)):
                    cells[at] = str(span.action)
            lines.append(f"rank {rank} | {' '.join(cell.ljust(width) for cell in cells)}".rstrip())
        return "\n".join(lines)

    def _of(self, rank: int) -> Iterator[Span]:
        return (span for span in self.spans if span.rank == rank)


def run_orders(
    pipe: Pipeline, orders: Sequence[Sequence[Action]], times: Mapping[str, Fraction] | None = None
) -> Timetable:
    """Run each rank's actions in its order, as soon as what they need is there; a pipeline's own or any other.

    Raises ScheduleError (T0401) where an order lacks an action or has one twice, or ranks wait for each other.
    """
    times = times or {"F": Fraction(1), "B": Fraction(2)}
    _check_orders(pipe, orders)
    done: dict[tuple[int, Action], Fraction] = {}
    clock, at = [Fraction(0)] * pipe.stages, [0] * pipe.stages
    spans: list[Span] = []
    while any(at[rank] < len(orders[rank]) for rank in range(pipe.stages)):
        before = len(spans)
        for rank, order in enumerate(orders):
            while at[rank] < len(order):
                action = order[at[rank]]
                needed = needs(pipe, rank, action)
                if any(need not in done for need in needed):
                    break
                start = max([clock[rank], *(done[need] for need in needed)])
                clock[rank] = done[rank, action] = start + times[action.kind]
                spans.append(Span(rank, action, start, clock[rank]))
                at[rank] += 1
        if len(spans) == before:
            raise ScheduleError(_deadlock_of(pipe, orders, at, done), span=None, fix="run what it waits for earlier")
    return Timetable(pipe, tuple(sorted(spans, key=lambda span: (span.rank, span.start))))


def _check_length(pipe: Pipeline) -> None:
    if pipe.ideal_actions * pipe.stages > MOST_ACTIONS:
        raise ScheduleError(
            f"{pipe.stages} stages of {pipe.chunks} chunks and {pipe.microbatch} microbatches are too many to list",
            span=None,
            fix=f"plan up to {MOST_ACTIONS} forwards; closed forms have no limit",
        )


def _check_orders(pipe: Pipeline, orders: Sequence[Sequence[Action]]) -> None:
    fix = "leave the orders out, and those of the schedule are taken"
    if len(orders) != pipe.stages:
        raise ScheduleError(f"there are orders of {len(orders)} ranks, and {pipe.stages} stages", span=None, fix=fix)
    _check_length(pipe)
    actions = set(pipe.order(0))
    for rank, order in enumerate(orders):
        wrong = sorted(map(str, actions.symmetric_difference(order)))
        repeated = sorted(str(action) for action in set(order) if order.count(action) > 1)
        if wrong or repeated:
            what = (
                f"`{repeated[0]}` twice"
                if repeated
                else f"`{wrong[0]}` {'not' if len(order) < len(actions) else 'too'}"
            )
            raise ScheduleError(f"the order of rank {rank} has {what}", span=None, fix=fix)


def _deadlock_of(
    pipe: Pipeline, orders: Sequence[Sequence[Action]], at: Sequence[int], done: Mapping[tuple[int, Action], Fraction]
) -> str:
    """Who waits for what, of the first rank that does not come to its end."""
    rank = next(rank for rank in range(pipe.stages) if at[rank] < len(orders[rank]))
    action = orders[rank][at[rank]]
    other, need = next(need for need in needs(pipe, rank, action) if need not in done)
    return f"rank {rank} waits at `{action}` for `{need}` of rank {other}, which waits too: a deadlock"


def parse_action(text: str) -> Action:
    """The action of a text such as `F3` or `B0.1`; raises ScheduleError (T0401) where it is none."""
    found = re.fullmatch(r"([FB])(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise ScheduleError(f"`{text}` is no action: they are `F3` and `B0.1`", span=None, fix="write `F0`")
    return Action(found[1], int(found[2]), int(found[3] or 0))


def needs(pipe: Pipeline, rank: int, action: Action) -> list[tuple[int, Action]]:
    """The actions, with their ranks, that end before one begins: its neighbour's, and for a backward its forward."""
    own = action.chunk * pipe.stages + rank
    step = 1 if action.kind == "B" else -1
    found = [(rank, Action("F", action.microbatch, action.chunk))] if action.kind == "B" else []
    if 0 <= own + step < pipe.virtual_stages:
        chunk, other = divmod(own + step, pipe.stages)
        found.append((other, Action(action.kind, action.microbatch, chunk)))
    return found


def wavefront(stages: int, microbatch: int) -> tuple[tuple[int | None, ...], ...]:
    """The microbatch of each stage at each step where all go forward: stage s has microbatch t - s at step t.

    >>> print(render_wavefront(wavefront(stages=3, microbatch=4)))
    step    0 1 2 3 4 5
    stage 0 0 1 2 3 . .
    stage 1 . 0 1 2 3 .
    stage 2 . . 0 1 2 3
    """
    for name, value in (("stages", stages), ("microbatch", microbatch)):
        if value < 1:
            raise ScheduleError(f"`{name}` must be at least 1, got {value}", span=None, fix=f"write `{name}=2`")
    steps = range(microbatch + stages - 1)
    return tuple(tuple(t - s if 0 <= t - s < microbatch else None for s in range(stages)) for t in steps)


def render_wavefront(table: Sequence[Sequence[int | None]]) -> str:
    """A wavefront as text, a row for each stage."""
    width = len(str(len(table) - 1))
    label = f"stage {len(table[0]) - 1}"
    rows = [("step", [str(step) for step in range(len(table))])]
    for stage in range(len(table[0])):
        rows.append((f"stage {stage}", ["." if row[stage] is None else str(row[stage]) for row in table]))
    return "\n".join(f"{name:<{len(label)}} {' '.join(f'{cell:>{width}}' for cell in cells)}" for name, cells in rows)
