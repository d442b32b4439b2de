"""Whether a communicator keeps the rules: for whoever writes one, as a command and as a function for tests.

    python -m tessera.runtime.ranks.conformance NAME
    python -m tessera.runtime.ranks.conformance mpi --launcher "mpiexec -n 4"

A communicator is joined by its name, as programs join it (`discovery`), in new processes that have the variables of
`torchrun`, or those of a launcher of its own. Each scenario has a world of its own, since most of them end with an
error that is the end of their world. Every rank writes down what it saw; `check` collects it and says which rules hold.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks.discovery import connector_of, find_place
from tessera.runtime.ranks.queued import ENDED
from tessera.runtime.ranks.world import Communicator, Exchange, Handle
from tessera.types.frozen import frozen

RULES: Mapping[str, str] = {
    "identity": "`rank` and `size` are those that the launcher gave",
    "all_gather": "parts of all ranks arrive in the order of the group, whatever their size",
    "all_to_all": "each rank gets the part that each other has for it, whatever its size",
    "bounds": "nothing is written around the target, and the source stays what it is",
    "groups": "groups have the order that is given, and those that share no rank do not disturb each other",
    "order": "exchanges of a group are performed in the order of their starts, and waited for in any",
    "start": "`start` comes back before the other ranks have come",
    "mismatch": "ranks at different exchanges all raise RankError, and one of them says both names",
    "untouched": "nothing of an exchange arrives that ranks do not agree about",
    "afterwards": "after a failure every exchange raises RankError",
    "absence": "a rank that does not come within the seconds given is named in a RankError",
    "departure": "a rank that abandons is seen without delay, and its reason is said",
    "abandoned": "a rank that has abandoned raises RankError, and its memory is left alone",
    "death": "a rank that dies is seen without delay",
}
"""What a communicator has to keep, by the name that a finding has."""

SCENARIOS: Mapping[str, tuple[str, ...]] = {
    "moving": ("identity", "all_gather", "all_to_all", "bounds", "groups", "order", "start"),
    "mismatch": ("mismatch", "untouched", "afterwards"),
    "absence": ("absence",),
    "departure": ("departure", "abandoned"),
    "death": ("death",),
}
"""The worlds that are started, and the rules that each shows."""

_SIZES = (0, 1, 17, 4096, 8193, 300_007)
_POISON, _GUARD = 0xA5, 64
_LONG, _SHORT = 60.0, 3.0  # seconds that exchanges wait; the short ones where waiting is what is shown
_SLACK = 20.0  # seconds that a busy machine may add


@frozen
class Finding:
    """Whether a rule holds; `detail` says what was seen where it does not."""

    rule: str
    holds: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'BROKEN':6}  {self.rule}: {RULES[self.rule]}" + (
            "" if self.holds else f"\n        {self.detail}"
        )


# ---- A rank: what it does in each scenario, and what it notes of it.


class _Buffers:
    """Source and target of an exchange between guards, with a pattern that names rank, place and exchange."""

    def __init__(self, call: str, group: Sequence[int], rank: int, part: int, salt: int) -> None:
        self.call, self.group, self.rank, self.part, self.salt = call, group, rank, part, salt
        count = len(group) if call == "all_to_all" else 1
        self.before = b"".join(_pattern(rank, group[at] if count > 1 else -1, part, salt) for at in range(count))
        self.source = ctypes.create_string_buffer(self.before, len(self.before) or 1)
        self.target = (ctypes.c_ubyte * (2 * _GUARD + part * len(group)))(*[_POISON] * (2 * _GUARD + part * len(group)))

    def exchange(self, what: str) -> Exchange:
        source, target = ctypes.addressof(self.source), ctypes.addressof(self.target) + _GUARD
        return Exchange(self.call, tuple(self.group), source, target, self.part, what)

    @property
    def arrived(self) -> bytes:
        return bytes(self.target)[_GUARD:-_GUARD]

    def expect(self) -> bytes:
        place = self.rank if self.call == "all_to_all" and len(self.group) > 1 else -1
        return b"".join(_pattern(peer, place, self.part, self.salt) for peer in self.group)

    def harm(self) -> str:
        """What was written where nothing should be."""
        data = bytes(self.target)
        if data[:_GUARD] != bytes([_POISON]) * _GUARD or data[-_GUARD:] != bytes([_POISON]) * _GUARD:
            return f"bytes around the target of `{self.call}` of {self.part} bytes were written"
        if self.source.raw[: len(self.before)] != self.before:
            return f"the source of `{self.call}` of {self.part} bytes was written"
        return ""


def _pattern(rank: int, place: int, part: int, salt: int) -> bytes:
    seed = (rank * 31 + (place + 1) * 7 + salt * 13) % 251
    block = bytes((seed + at) % 251 for at in range(251))
    return (block * (part // 251 + 1))[:part]


class _Member:
    """One rank of a scenario, and what it has noted: by rule, what was wrong, empty where nothing was."""

    def __init__(self, name: str, folder: str, seconds: float) -> None:
        place = find_place()
        self.folder, self.seconds = folder, seconds
        self.place, self.notes = place, dict[str, str]()
        if place is not None and place.size:
            # All processes are there before any of them joins, which takes the same seconds.
            self.tell(f"ready.{place.rank}")
            for rank in range(place.size):
                self.await_file(f"ready.{rank}")
        self.world: Communicator = connector_of(name)(place, seconds)
        self.everyone = tuple(range(self.world.size))

    def note(self, rule: str, wrong: str) -> None:
        """Keep the first thing that was wrong with a rule."""
        self.notes[rule] = self.notes.get(rule) or wrong

    def tell(self, name: str) -> None:
        with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
            return

    def await_file(self, name: str, seconds: float = 2 * _LONG) -> None:
        end = time.monotonic() + seconds
        while not os.path.exists(os.path.join(self.folder, name)):
            if time.monotonic() > end:
                raise TimeoutError(name)
            time.sleep(0.002)

    def save(self) -> None:
        """Write down what was noted, whole or not at all."""
        path = os.path.join(self.folder, f"notes.{self.world.rank}")
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(self.notes, file)
        os.replace(f"{path}.part", path)

    def begin(
        self, call: str, part: int, what: str = "", group: Sequence[int] = (), salt: int = 0
    ) -> tuple[_Buffers, Handle]:
        buffers = _Buffers(call, group or self.everyone, self.world.rank, part, salt)
        return buffers, self.world.start(buffers.exchange(what or f"`{call}` of {part} bytes, {salt}"))

    def finish(self, rule: str, buffers: _Buffers, handle: Handle) -> None:
        self.world.wait(handle)
        if buffers.arrived != buffers.expect():
            at = next(i for i, (a, b) in enumerate(zip(buffers.arrived, buffers.expect(), strict=True)) if a != b)
            self.note(rule, f"`{buffers.call}` of {buffers.part} bytes in {list(buffers.group)}: byte {at} is wrong")
        self.note("bounds", buffers.harm())

    def error_of(self, rule: str, handle: Handle) -> RankError | None:
        """The RankError that an exchange ends with; anything else is noted."""
        try:
            self.world.wait(handle)
        except RankError as error:
            return error
        except BaseException as error:
            self.note(rule, f"waiting raised {type(error).__name__}, not RankError: {error}")
            return None
        self.note(rule, "waiting raised nothing")
        return None


def _moving(member: _Member) -> None:
    place, world = member.place, member.world
    said = (world.rank, world.size)
    wrong = place is not None and place.size and said != (place.rank, place.size)
    member.note("identity", f"the launcher says {place}, and the communicator {said}" if wrong else "")
    for call in ("all_gather", "all_to_all"):
        member.note(call, "")
        for salt, part in enumerate(_SIZES):
            member.finish(call, *member.begin(call, part, salt=salt))
    # Even and odd ranks, backwards: two groups at one time, then all in another order.
    half = tuple(rank for rank in reversed(member.everyone) if rank % 2 == world.rank % 2)
    member.note("groups", "")
    for group in (half, tuple(reversed(member.everyone)), half):
        member.finish("groups", *member.begin("all_gather", 5000, group=group, salt=len(group)))
    started = [member.begin(("all_gather", "all_to_all")[salt % 2], 9000, salt=salt) for salt in range(8)]
    member.note("order", "")
    for buffers, handle in reversed(started):
        member.finish("order", buffers, handle)
    if world.rank:
        member.await_file("started")
    buffers, handle = member.begin("all_gather", 400_000, salt=3)
    member.note("start", "")
    if world.rank == 0:
        if handle.done.is_set() and world.size > 1:
            member.note("start", "it is done before the others have come")
        member.tell("started")
    member.finish("start", buffers, handle)


def _mismatch(member: _Member) -> None:
    member.finish("mismatch", *member.begin("all_gather", 64))
    rank = member.world.rank
    what = "`all_gather` of another thing" if rank == 1 else "`all_gather` of something"
    buffers, handle = member.begin("all_gather", 20_000, what)
    error = member.error_of("mismatch", handle)
    member.note("mismatch", "")
    both = error is not None and "another thing" in _text(error) and "something" in _text(error)
    member.notes["said both"] = "yes" if both else ""
    arrived, part = buffers.arrived, buffers.part
    for other in member.everyone:
        if (other == 1) != (rank == 1) and arrived[other * part : (other + 1) * part] != bytes([_POISON]) * part:
            member.note("untouched", f"rank {rank} has bytes of rank {other}")
    member.note("untouched", buffers.harm())
    _, handle = member.begin("all_gather", 64, "something else")
    member.note("afterwards", "")
    member.error_of("afterwards", handle)


def _absence(member: _Member) -> None:
    member.finish("absence", *member.begin("all_gather", 64))
    if member.world.rank == 1:
        member.await_file("over")
        member.note("absence", "")
        return
    _, handle = member.begin("all_gather", 64, "`all_gather` that rank 1 is not at")
    before = time.monotonic()
    error = member.error_of("absence", handle)
    took = time.monotonic() - before
    member.note("absence", f"it took {took:.1f} s of {member.seconds:g}" if took > member.seconds + _SLACK else "")
    named = error is not None and "rank 1 " in _text(error) and "that rank 1 is not at" in _text(error)
    member.notes["said it"] = "yes" if named else ""
    member.tell("over")


def _departure(member: _Member) -> None:
    member.finish("departure", *member.begin("all_gather", 64))
    what, rank = "`all_gather` that rank 1 leaves", member.world.rank
    if rank == 2:
        time.sleep(0.3)  # it comes when rank 1 has left
    buffers, handle = member.begin("all_gather", 300_000, what)
    if rank == 1:
        member.world.abandon("there is no more")
        left = buffers.arrived
        member.note("abandoned", "")
        member.error_of("abandoned", handle)
        later, handle = member.begin("all_gather", 64, "one more")
        member.error_of("abandoned", handle)
        time.sleep(0.3)
        others = later.arrived[: later.part] + later.arrived[2 * later.part :]
        if buffers.arrived != left or others != bytes([_POISON]) * len(others):
            member.note("abandoned", "bytes arrived after it had left")
        return
    before = time.monotonic()
    error = member.error_of("departure", handle)
    took = time.monotonic() - before
    member.note("departure", f"it took {took:.1f} s" if took > _SLACK else "")
    member.notes["said it"] = "yes" if error is not None and "there is no more" in _text(error) else ""


def _death(member: _Member) -> None:
    member.finish("death", *member.begin("all_gather", 64))
    if member.world.rank == 1:
        os._exit(3)
    _, handle = member.begin("all_gather", 300_000, "`all_gather` that rank 1 does not live to see")
    before = time.monotonic()
    member.error_of("death", handle)
    took = time.monotonic() - before
    member.note("death", f"it took {took:.1f} s" if took > _SLACK else "")


def _text(error: RankError) -> str:
    return "\n".join((error.message, *error.notes))


_PLAYS: Mapping[str, Callable[[_Member], None]] = {
    "moving": _moving,
    "mismatch": _mismatch,
    "absence": _absence,
    "departure": _departure,
    "death": _death,
}


def _play(name: str, scenario: str, folder: str) -> None:
    """Be a rank of a scenario."""
    member = _Member(name, folder, _SHORT if scenario == "absence" else _LONG)
    try:
        _PLAYS[scenario](member)
    except BaseException as error:
        member.note(SCENARIOS[scenario][0], f"rank {member.world.rank} ended with {type(error).__name__}: {error}")
        for rule in SCENARIOS[scenario]:
            member.note(rule, member.notes.get(rule, f"it was not reached: {error}"))
    member.save()
    member.world.abandon(ENDED)


# ---- The worlds, and what is found of them.


def check(
    name: str,
    *,
    ranks: int = 4,
    launcher: str = "",
    rules: Sequence[str] = tuple(RULES),
    environment: Mapping[str, str] | None = None,
    seconds: float = 180.0,
) -> list[Finding]:
    """Which rules the communicator of a name keeps, in worlds of `ranks` new processes of this machine.

    `launcher` is a command that starts what follows it as all ranks, such as `mpiexec -n 4`; without it they are
    started here, with the variables that `torchrun` gives. `seconds` is how long a world may take: nobody waits for
    ever.
    """
    values = {**os.environ, **(environment or {})}
    found: list[Finding] = []
    for scenario, shown in SCENARIOS.items():
        wanted = [rule for rule in shown if rule in rules]
        if wanted:
            with tempfile.TemporaryDirectory(prefix="tessera-conformance-") as folder:
                output = _run_world(name, scenario, folder, ranks, launcher, values, seconds)
                found += _judge(scenario, wanted, folder, ranks, bool(launcher), output)
    return found


def _run_world(
    name: str, scenario: str, folder: str, ranks: int, launcher: str, values: Mapping[str, str], seconds: float
) -> str:
    """Run a world to its end; what it printed, and that it had to be ended where it had to be."""
    command = [sys.executable, "-m", "tessera.runtime.ranks.conformance", name, "--play", scenario, "--folder", folder]
    values = {key: value for key, value in values.items() if key != "TESSERA_COMMUNICATOR"}
    if launcher:
        starts = [([*shlex.split(launcher), *command], dict(values))]
    else:
        job = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost"}
        job |= {"MASTER_PORT": uuid.uuid4().hex[:8], "TORCHELASTIC_RUN_ID": uuid.uuid4().hex}
        starts = [(command, {**values, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]
    reasons: list[str] = []
    with open(os.path.join(folder, "output"), "w+", encoding="utf-8") as output:
        running = [
            subprocess.Popen(given, env=own, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            for given, own in starts
        ]
        end = time.monotonic() + seconds
        for process in running:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                reasons.append(f"a process did not end within {seconds:g} s")
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        printed = output.read().strip().splitlines()
    return "; ".join((*dict.fromkeys(reasons), *printed[-3:]))


def _judge(
    scenario: str, wanted: Sequence[str], folder: str, ranks: int, has_launcher: bool, output: str
) -> list[Finding]:
    notes: dict[int, dict[str, str]] = {}
    for rank in range(ranks):
        path = os.path.join(folder, f"notes.{rank}")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                notes[rank] = json.load(file)
    found: list[Finding] = []
    for rule in wanted:
        wrong = [f"rank {rank}: {one[rule]}" for rank, one in notes.items() if one.get(rule)]
        missing = [rank for rank in range(ranks) if rank not in notes and (rule != "death" or rank != 1)]
        if rule == "death" and has_launcher and "did not end" not in output:
            missing = []  # its launcher ends the others, which need not find it out
        if missing:
            listed = ", ".join(map(str, missing))
            wrong.append(f"of rank {listed} nothing was heard{f' ({output})' if output else ''}")
        speaks = {"mismatch": "said both", "absence": "said it", "departure": "said it"}.get(rule)
        if not wrong and speaks is not None and not any(one.get(speaks) for one in notes.values()):
            wrong.append("no rank said it")
        found.append(Finding(rule, not wrong, "; ".join(wrong)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: one line for each rule, and a status that is 1 where one is broken."""
    parser = argparse.ArgumentParser(prog="python -m tessera.runtime.ranks.conformance", description=__doc__)
    parser.add_argument("name", help="the communicator, as `TESSERA_COMMUNICATOR` has it")
    parser.add_argument("--ranks", type=int, default=4, help="how many ranks a world has (at least 3)")
    parser.add_argument("--launcher", default="", help='what starts the ranks, such as "mpiexec -n 4"')
    parser.add_argument("--rule", action="append", choices=sorted(RULES), help="show this rule alone; may be repeated")
    parser.add_argument("--play", choices=sorted(SCENARIOS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.play:
        _play(given.name, given.play, given.folder)
        return
    if given.ranks < 3:
        parser.error(f"the rules need at least 3 ranks, got {given.ranks}")
    found = check(given.name, ranks=given.ranks, launcher=given.launcher, rules=given.rule or tuple(RULES))
    print("\n".join(map(str, found)))
    sys.exit(0 if all(one.holds for one in found) else 1)


if __name__ == "__main__":
    main()
