"""A profile as a Chrome trace, which Perfetto and `chrome://tracing` open: slices for kernels, a counter for memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
