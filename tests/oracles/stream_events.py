"""A discrete-event simulation of streams: kernels and collectives with rates that change at every start and end.

Written from the rules, not from the model: time goes from event to event, every running task has a rate, and what is
left of it is counted down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Work(Protocol):
    """What the simulation needs to know of a task."""

    @property
    def name(self) -> str: ...
    @property
    def stream(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def after(self) -> tuple[str, ...]: ...


def simulate_streams(tasks: Sequence[Work], slowdown: float = 0.0) -> dict[str, tuple[float, float]]:
    """When each task starts and ends; a kernel beside a collective runs at `1 - slowdown` of its rate."""
    waiting = {stream: [task for task in tasks if task.stream == stream] for stream in {task.stream for task in tasks}}
    running: dict[str, tuple[Work, float]] = {}
    started: dict[str, float] = {}
    ended: dict[str, tuple[float, float]] = {}
    now = 0.0
    while any(waiting.values()) or running:
        for stream, line in waiting.items():
            if stream not in running and line and all(name in ended for name in line[0].after):
                task = line.pop(0)
                running[stream] = (task, task.time)
                started[task.name] = now
        assert running, "every stream waits for another"
        is_slow = "communicate" in running
        rates = {stream: 1 - slowdown if stream == "compute" and is_slow else 1.0 for stream in running}
        step = min(left / rates[stream] for stream, (_, left) in running.items())
        now += step
        for stream, (task, left) in list(running.items()):
            remaining = left - step * rates[stream]
            if remaining <= 1e-9 * max(1.0, task.time):
                ended[task.name] = (started[task.name], now)
                del running[stream]
            else:
                running[stream] = (task, remaining)
    return ended
