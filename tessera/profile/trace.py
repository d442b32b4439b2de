"""A profile for other tools: a Chrome trace, which Perfetto opens, and collapsed stacks with a flame graph of them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tessera.types.rates import format_time

if TYPE_CHECKING:
    from tessera.profile.result import KernelEvent, Profile

_CALL = 0
"""The track of the call itself; those of threads and streams follow."""
_OTHERS = {"collective": "collectives", "wait": "waits"}


def trace_of(profile: Profile) -> dict[str, Any]:
    """The trace: a rank is a process, a thread of the CPU or a stream of the GPU is a thread of it.

    A slice of a kernel has in its `args` the line that it comes from, its ops with the source of each, what the static
    model says that it computes and moves, and its launch in the host program. Times are microseconds of the call.
    """
    rank = next((one.rank for one in profile.events), 0)
    tracks = _tracks(profile)
    events = [*_names(profile, rank, tracks), _slice(profile.name, "call", 0, profile.duration, rank, _CALL, {})]
    for one in profile.events:
        events.append(
            _slice(one.name, one.kind, one.start, one.end, rank, tracks[_track_of(one)], _facts(profile, one))
        )
    events += _memory(profile, rank)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": _about(profile)}


def _about(profile: Profile) -> dict[str, str]:
    return {"function": profile.name, "signature": profile.signature, "device": profile.device}


def _track_of(event: KernelEvent) -> tuple[str, int]:
    """What distinguishes tracks: collectives have one, and waits, and each thread or stream."""
    return (event.kind, 0) if event.kind in _OTHERS else ("", event.track)


def _tracks(profile: Profile) -> dict[tuple[str, int], int]:
    """The number of each track, in the order of first use."""
    order = dict.fromkeys(_track_of(one) for one in profile.events)
    return {track: number for number, track in enumerate(order, start=_CALL + 1)}


def _names(profile: Profile, rank: int, tracks: dict[tuple[str, int], int]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"{profile.name} on {profile.device}"}}
    yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": _CALL, "args": {"name": "call"}}
    what = "stream" if profile.device.startswith("cuda") else "thread"
    for (kind, track), number in tracks.items():
        name = _OTHERS.get(kind, f"kernels, {what} {track}")
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name}}


def _slice(name: str, kind: str, start: int, end: int, rank: int, track: int, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "cat": kind, "pid": rank, "tid": track, **times, "args": args}


def _facts(profile: Profile, event: KernelEvent) -> dict[str, Any]:
    """What a slice says of a kernel."""
    call = event.call
    if call is None:
        return {}
    facts: dict[str, Any] = {"line": event.line, "step": call.step}
    facts["ops"] = [f"{one.op} at {one.where}" if one.where else one.op for one in call.sources]
    texts = list(dict.fromkeys(one.text for one in call.sources if one.text))
    if texts:
        facts["source"] = texts
    if call.arguments:
        facts["arguments"] = list(call.arguments)
    if call.part == 0 and call.group < len(profile.work):
        work = profile.work[call.group]
        facts |= {"kind": work["kind"], "flops": work["flops"], "bytes": work["bytes"], "dtype": work["dtype"]}
    return facts


def _memory(profile: Profile, rank: int) -> Iterator[dict[str, Any]]:
    """The bytes of temporaries that are in use, wherever that changes."""
    memory = profile.memory
    changes: dict[int, int] = {0: 0, profile.duration: 0}
    for one in memory.temporaries:
        changes[one.start] = changes.get(one.start, 0) + one.reserved
        changes[one.end] = changes.get(one.end, 0) - one.reserved
    used = 0
    for at in sorted(changes):
        used += changes[at]
        counter = {"ph": "C", "name": "workspace", "pid": rank, "tid": _CALL, "ts": at / 1000}
        yield {**counter, "args": {"bytes in use": used}}


def slices_in(trace: dict[str, Any], kind: str = "kernel") -> list[dict[str, Any]]:
    """The slices of a kind of event, in order.

    >>> profile = ts.jit(lambda x: x @ x).profile(ts.ones((8, 8)))
    >>> [one["args"]["ops"][0].split(" at ")[0] for one in slices_in(profile.trace)]
    ['matmul']
    """
    return [one for one in trace["traceEvents"] if one["ph"] == "X" and one["cat"] == kind]


def to_json(trace: dict[str, Any]) -> str:
    """The trace as a file; raises ValueError for one that a viewer would not read (a time that is no number)."""
    return json.dumps(trace, allow_nan=False)


# Collapsed stacks, which flame graph tools read, and a flame graph of them without a script.

_HOST = "host (dispatch and gaps)"
_ROLE = re.compile(r", (derivative|tangent|backward|rematerialized)")
_ROW, _WIDTH, _CHARACTER = 20, 1200, 6.6
"""Pixels of a row, of the whole, and of a character."""


def collapse_stacks(profile: Profile) -> str:
    """A line for each stack, `frame;frame;frame nanoseconds`: of the device's time, and of what the host took beside.

    Frames are the function, `forward` or `backward`, the source line, and the kernel.
    """
    found: dict[tuple[str, ...], int] = {}
    for event in profile.events:
        stack = (profile.name, *_frames(event))
        found[stack] = found.get(stack, 0) + event.time
    host = profile.duration - profile.kernel_time
    found[profile.name, _HOST] = max(0, host)
    lines = (";".join(map(_clean, stack)) + f" {time}" for stack, time in found.items())
    return "\n".join(lines) + "\n"


def _clean(frame: str) -> str:
    return frame.replace(";", ",").replace("\n", " ")


def _frames(event: KernelEvent) -> Iterator[str]:
    if event.kind != "kernel":
        yield event.kind
    elif event.call is not None:
        role = _ROLE.search(event.line)
        yield "backward" if role is not None else "forward"
        text = next((one.text for one in reversed(event.call.sources) if one.text and one.where == event.line), "")
        text = f"{text} with {event.call.arguments[0]}" if text and event.call.arguments else text
        location = event.line.partition(",")[0].rpartition("/")[2]
        if location:
            yield f"{_line_of(location)} {text}".strip()
    yield event.name


def _line_of(location: str) -> str:
    """`model.py:12` of `model.py:12:5-12:9`."""
    return ":".join(location.split(":")[:2])


@dataclass
class Frame:
    """A frame of a flame graph: its name, its time with all above it, and the frames that it called."""

    name: str
    time: int = 0
    children: dict[str, Frame] = field(default_factory=dict[str, "Frame"])

    def add(self, stack: Sequence[str], time: int) -> None:
        """Count a stack."""
        self.time += time
        if stack:
            self.children.setdefault(stack[0], Frame(stack[0])).add(stack[1:], time)

    @property
    def depth(self) -> int:
        """Rows that it needs."""
        return 1 + max((child.depth for child in self.children.values()), default=0)


def read_stacks(text: str) -> Frame:
    """The frames of collapsed stacks, below one that holds all.

    >>> read_stacks("f;a 3\\nf;b 4\\n").children["f"].time
    7
    """
    root = Frame("all")
    for line in text.splitlines():
        stack, _, time = line.rpartition(" ")
        root.add(stack.split(";"), int(time))
    return root


_STYLE = """
.flame { font: 11px ui-monospace, Menlo, Consolas, monospace; color-scheme: light dark; }
.flame text { fill: #111; pointer-events: none; } .flame .title { fill: currentColor; font-size: 13px; }
.flame rect { stroke: light-dark(#fff, #16181d); stroke-width: 1; } .flame g:hover rect { filter: brightness(1.15); }
"""


def flame_graph(root: Frame, title: str) -> str:
    """The frames as an SVG: wide is long, what is above was called from what is below; a title names each."""
    frames = next(iter(root.children.values())) if len(root.children) == 1 else root
    height = frames.depth * _ROW + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" viewBox="0 0 {_WIDTH} {height}" width="100%">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="2" y="16">{html.escape(title)}</text>',
    ]
    parts += _draw(frames, 0.0, height - _ROW, _WIDTH / max(frames.time, 1), max(frames.time, 1))
    return "\n".join([*parts, "</svg>"])


def _draw(frame: Frame, left: float, top: float, scale: float, whole: int) -> Iterator[str]:
    width = frame.time * scale
    if width < 0.3:
        return
    about = f"{frame.name}: {format_time(frame.time)}, {frame.time / whole:.1%}"
    letters = int((width - 6) / _CHARACTER)
    shown = frame.name if len(frame.name) <= letters else f"{frame.name[: letters - 2]}.." if letters > 3 else ""
    yield (
        f'<g><title>{html.escape(about)}</title><rect x="{left:.2f}" y="{top:.0f}" width="{width:.2f}" '
        f'height="{_ROW}" rx="2" fill="{_color(frame.name)}"/>'
        + (f'<text x="{left + 4:.2f}" y="{top + 14:.0f}">{html.escape(shown)}</text>' if shown else "")
        + "</g>"
    )
    for child in sorted(frame.children.values(), key=lambda one: -one.time):
        yield from _draw(child, left, top - _ROW, scale, whole)
        left += child.time * scale


_FIXED: Mapping[str, str] = {"forward": "#7cc4ff", "backward": "#ffb366", _HOST: "#c9ced6"}


def _color(name: str) -> str:
    """A warm color of its own for each name, the same each time."""
    if name in _FIXED:
        return _FIXED[name]
    number = sum(ord(letter) * (at + 7) for at, letter in enumerate(name))
    return f"hsl({20 + number % 40} {70 + number % 20}% {62 + number % 12}%)"
