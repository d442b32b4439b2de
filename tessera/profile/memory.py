"""The memory of a program over time: every byte of its workspace by the name of the tensor that is there.

The workspace is one block, in which the planner gave each temporary an offset for as long as it lives; what is reused,
and when, is read off the same plan. Arguments, results and constants have memory of their own.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tessera.compiler.program_plan import PlannedTensor, ProgramPlan
from tessera.types.frozen import frozen

ALIGNMENT = "alignment"
UNUSED = "unused"
"""Bytes of the workspace that no tensor has: behind one that ends within a cache line, and between others."""
_LINE = 64
"""Bytes that the planner rounds sizes up to."""


@frozen
class MemoryTensor:
    """A tensor in memory: its bytes and kind, its first and last step, and when these began and ended.

    `kind` is `argument`, `result`, `temporary` (at `offset` of the workspace), `constant`, or `offloaded` to the host.
    Times are nanoseconds from the beginning of the call; `line` is where the source computes it.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    offset: int
    first_step: int
    last_step: int
    start: int
    end: int
    line: str = ""

    @property
    def reserved(self) -> int:
        """Its bytes in the workspace, in whole cache lines."""
        return -(-self.bytes // _LINE) * _LINE


class MemoryTimeline:
    """What is in memory at each step of a program; `peak` is what the planner gave the workspace.

    >>> found = ts.jit(lambda x: ts.ops.softmax(x @ x) @ x).profile(ts.ones((64, 64))).memory
    >>> found.peak == found.workspace == found.high_water(found.peak_step)
    True
    >>> sorted(one.name for one in found.temporaries)
    ['softmax(x @ x)', 'x @ x']
    """

    def __init__(self, tensors: Sequence[MemoryTensor], workspace: int, steps: int) -> None:
        self.tensors, self.workspace, self.steps = tuple(tensors), workspace, steps
        """All tensors; bytes of the workspace as planned; how many steps the host program has."""

    @cached_property
    def temporaries(self) -> tuple[MemoryTensor, ...]:
        """The tensors in the workspace."""
        return tuple(one for one in self.tensors if one.kind == "temporary")

    @cached_property
    def peak(self) -> int:
        """Bytes of the workspace up to the end of the last tensor in it, where that is furthest."""
        return max((one.offset + one.reserved for one in self.temporaries), default=0)

    @cached_property
    def peak_step(self) -> int:
        """The step at which most bytes of the workspace are in use."""
        steps = sorted({one.first_step for one in self.temporaries})
        return max(steps, key=self.use_at, default=0)

    def live(self, step: int) -> list[MemoryTensor]:
        """The tensors that are there at a step, the largest first."""
        found = [one for one in self.tensors if one.first_step <= step <= one.last_step]
        return sorted(found, key=lambda one: (-one.bytes, one.name))

    def use_at(self, step: int) -> int:
        """Bytes of temporaries at a step."""
        return sum(one.reserved for one in self.temporaries if one.first_step <= step <= one.last_step)

    def high_water(self, step: int) -> int:
        """The end of the last temporary that was needed up to a step."""
        return max((one.offset + one.reserved for one in self.temporaries if one.first_step <= step), default=0)

    def attribute(self, step: int) -> list[tuple[int, int, str]]:
        """Every byte of the workspace at a step, as (offset, bytes, name); `unused` and `alignment` are names too."""
        found: list[tuple[int, int, str]] = []
        at = 0
        here = (one for one in self.temporaries if one.first_step <= step <= one.last_step)
        for one in sorted(here, key=lambda one: one.offset):
            if one.offset > at:
                found.append((at, one.offset - at, UNUSED))
            found.append((one.offset, one.bytes, one.name))
            if one.reserved > one.bytes:
                found.append((one.offset + one.bytes, one.reserved - one.bytes, ALIGNMENT))
            at = one.offset + one.reserved
        if at < self.workspace:
            found.append((at, self.workspace - at, UNUSED))
        return found

    def total(self, kind: str) -> int:
        """Bytes of all tensors of a kind; temporaries share theirs."""
        return self.workspace if kind == "temporary" else sum(one.bytes for one in self.tensors if one.kind == kind)

    def to_json(self) -> str:
        """Plain values: the tensors, the workspace, and the peak."""
        rows = [{name: getattr(one, name) for name in MemoryTensor.__dataclass_fields__} for one in self.tensors]
        facts: dict[str, Any] = {"workspace": self.workspace, "peak": self.peak, "peak_step": self.peak_step}
        return json.dumps({**facts, "steps": self.steps, "tensors": rows}, indent=1)

    def __repr__(self) -> str:
        return f"MemoryTimeline({len(self.tensors)} tensors, peak {self.peak} of {self.workspace} bytes)"


def memory_of(
    plan: ProgramPlan, sizes: Mapping[str, int], launches: Sequence[tuple[int, int, int]], duration: int
) -> MemoryTimeline:
    """The memory of a plan for some sizes; `launches` are (step, start, end) of the kernels of a call.

    A tensor of a loop is there from the first iteration to the last.
    """
    ordered = sorted(launches)
    steps = [step for step, _, _ in ordered]

    def when(one: PlannedTensor) -> tuple[int, int]:
        if one.kind in ("argument", "constant"):
            return 0, duration
        low, high = bisect_left(steps, one.start), bisect_right(steps, one.end)
        inside = ordered[low:high]
        # What only a copy or a callback touches lies between two launches.
        between = max((end for _, _, end in ordered[:low]), default=0)
        start = min((begun for _, begun, _ in inside), default=between)
        end = max((ended for _, _, ended in inside), default=between)
        return start, duration if one.kind == "result" else end

    found: list[MemoryTensor] = []
    for one in plan.tensors:
        shape = tuple(dim.evaluate(sizes) for dim in one.shape)
        offset = -1 if one.offset is None else one.offset.evaluate(sizes)
        place = (one.bytes.evaluate(sizes), offset, one.start, one.end)
        found.append(MemoryTensor(one.name, one.kind, shape, one.dtype, *place, *when(one), one.where))
    return MemoryTimeline(found, plan.workspace.evaluate(sizes), plan.steps)
