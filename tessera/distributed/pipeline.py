"""Pipelines: each rank of an axis has stages of a model, and microbatches pass through in the order of a schedule.

Ranks run different programs, and send activations forward and their cotangents back. Which action a rank runs when is
the order of `ir/schedule/planning/pipelines.py` (1F1B, or interleaved with several chunks on each rank). Exchanges of a
rank go on one after the other, so all ranks start theirs in one order: that of the times at which an ideal pipeline
would have the messages, with each action's own collectives at its start. No rank then waits for one that waits for it.

A rank keeps the inputs of the microbatches that are under way, as many as the schedule says, and computes the inside of
a stage again in its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tessera.distributed.placement import Pending, start_gather
from tessera.ir.schedule.planning.pipelines import Action, Pipeline, pipeline
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Mesh
from tessera.types.frozen import frozen


@frozen
class Message:
    """What goes from one virtual stage to the next (`F`, activations) or to the one before (`B`, cotangents)."""

    kind: str
    microbatch: int
    source: int
    target: int


Event = Message | Action
"""What a rank does next: start an exchange, or run a forward or a backward."""


def events_of(plan: Pipeline, position: int) -> list[Event]:
    """What a rank of a pipeline does, in order: every exchange is at the same place for both of its ranks.

    >>> found = events_of(pipeline("1f1b", stages=2, microbatch=2), 0)
    >>> " ".join(str(one) if isinstance(one, Action) else f"{one.kind}>{one.target}" for one in found)
    'F0 F>1 F1 F>1 B>0 B0 B>0 B1'
    """
    found: list[tuple[Any, ...]] = []
    for number, span in enumerate(plan.timetable().spans):
        action = span.action
        here = action.chunk * plan.stages + span.rank
        if span.rank == position:
            found.append((span.start, 1, number, action))
        there = here + 1 if action.kind == "F" else here - 1
        message = Message(action.kind, action.microbatch, here, there)
        if 0 <= there < plan.virtual_stages and position in (here % plan.stages, there % plan.stages):
            found.append((span.end, 0, number, message))
    return [event for *_, event in sorted(found, key=lambda one: one[:3])]


class Mailbox:
    """The messages of one rank: those under way, those that arrived, and how large each is."""

    def __init__(self, mesh: Mesh, axis: str, plan: Pipeline, blank: Callable[[int], Any]) -> None:
        self.plan, self._blank = plan, blank
        own = world.rank()
        self.group = mesh.group(axis, own) if mesh.sizes.get(axis, 1) > 1 else (own,)
        self.position = self.group.index(own)
        self._ready: dict[Message, Any] = {}
        self._under_way: dict[Message, tuple[Pending, int]] = {}

    def put(self, message: Message, value: Any) -> None:
        """What this rank has made, to be sent when its exchange starts."""
        self._ready[message] = value

    def exchange(self, message: Message) -> None:
        """Start an exchange: send what was put, or receive what comes."""
        source, target = message.source % self.plan.stages, message.target % self.plan.stages
        if source == target:
            return  # what it is for finds it where it was put
        pair = sorted((source, target))
        is_sent = source == self.position
        value = np.asarray(self._ready.pop(message)) if is_sent else self._blank(max(message.source, message.target))
        what = f"{message.kind}{message.microbatch} from stage {message.source} to {message.target}"
        pending = start_gather(value, [self.group[one] for one in pair], what)
        self._under_way[message] = (pending, pair.index(source))

    def take(self, message: Message) -> Any:
        """What has come, which is waited for."""
        if message in self._ready:
            return self._ready.pop(message)
        pending, at = self._under_way.pop(message)
        return pending.wait()[at]

    def finish(self) -> None:
        """Come back when everything was sent."""
        for pending, _ in self._under_way.values():
            pending.wait()
        self._under_way.clear()


class Schedule:
    """One pass of microbatches through the stages of a rank, in the order of a plan."""

    def __init__(self, mesh: Mesh, axis: str, plan: Pipeline, blank: Callable[[int], Any]) -> None:
        self.plan, self.mail = plan, Mailbox(mesh, axis, plan, blank)
        self.most_kept = 0

    def run(
        self,
        forward: Callable[[int, int, Any], Any],
        backward: Callable[[int, int, Any, Any], Any],
    ) -> None:
        """Run all actions: `forward(stage, microbatch, x)` and `backward(stage, microbatch, x, cotangent)`.

        The last stage has no forward of its own: its backward gets no cotangent. The first gets no `x`.
        """
        kept: dict[tuple[int, int], Any] = {}
        last = self.plan.virtual_stages - 1
        for event in self._events():
            if isinstance(event, Message):
                self.mail.exchange(event)
                continue
            stage, at = event.chunk * self.plan.stages + self.mail.position, event.microbatch
            if event.kind == "F":
                x = self.mail.take(Message("F", at, stage - 1, stage)) if stage else None
                kept[stage, at] = x
                self.most_kept = max(self.most_kept, len(kept))
                if stage < last:
                    self.mail.put(Message("F", at, stage, stage + 1), forward(stage, at, x))
            else:
                cotangent = self.mail.take(Message("B", at, stage + 1, stage)) if stage < last else None
                made = backward(stage, at, kept.pop((stage, at)), cotangent)
                if stage:
                    self.mail.put(Message("B", at, stage, stage - 1), made)
        self.mail.finish()

    def _events(self) -> Iterator[Event]:
        yield from events_of(self.plan, self.mail.position)


def plan_of(schedule: str, stages: int, microbatches: int, chunks: int) -> Pipeline:
    """The plan of these numbers; raises ScheduleError (T0401) where they do not go together."""
    return pipeline(schedule, stages, microbatches, chunks)
