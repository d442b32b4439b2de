"""Choosing the schedule of a kernel by measuring: candidates are compiled and timed, never inside a compilation."""

from __future__ import annotations

import fcntl
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tessera.api.compilation import device_of, machine_text
from tessera.compiler.backend import machines, manifest_of
from tessera.diagnostics.codes import ScheduleError
from tessera.diagnostics.error import CompilationError
from tessera.ir.base import dispatch
from tessera.ir.tile.collective_parts import has_collectives
from tessera.runtime.private_files import open_folder, open_lock, write_file
from tessera.types.schedule import Schedule, Space

if TYPE_CHECKING:
    from tessera.api.kernel import Kernel

METRICS = ("latency_ms",)
LEAST_ROUNDS = 10
"""Timed runs of a schedule, behind three that warm up, of which the median counts."""


class Tuning:
    """A space of schedules, and what was chosen from it by the shapes it was chosen for."""

    def __init__(self, space: Any, metric: str, budget_ms: float, cache: str) -> None:
        if not isinstance(metric, str) or metric not in METRICS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(f"`metric` is one of {', '.join(METRICS)}, got {metric!r}", fix="leave it out")
        if isinstance(budget_ms, bool) or not isinstance(budget_ms, int | float) or not budget_ms > 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ScheduleError(
                f"`budget_ms` must be a positive number, got {budget_ms!r}", fix="write `budget_ms=200`"
            )
        if cache is not None and not isinstance(cache, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise ScheduleError(
                f"`cache` is the path of a folder or of a `.json` file, got {cache!r}", fix='write `cache="~/.sched"`'
            )
        self.space, self.budget_ms = Space.of(space), budget_ms
        self.cache = "" if cache is None else os.fspath(cache)  # pyright: ignore[reportUnnecessaryComparison]
        self.pinned: tuple[str, ...] = ()
        self.trials: list[tuple[Schedule, float]] = []
        """What was measured last: schedules with their milliseconds, fastest first."""
        self.dropped: list[tuple[Schedule, str]] = []
        """What was not measured, and why."""
        self._first_ms = 0.0
        """Milliseconds of the first schedule, which others are measured beside."""
        self._variants: dict[str, Kernel] = {}

    def choose(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kernel:
        """The kernel under the schedule for such arguments."""
        key = _key(kernel, args, kwargs)
        found = self._variants.get(key)
        if found is None:
            stored = self.lookup(kernel, key)
            if stored is not None:
                found = kernel.with_schedule(stored)
            elif dispatch.active() is not None:
                # A compilation never measures: inside a trace the first schedule of the space stands.
                return kernel.with_schedule(next(iter(self.space)))
            else:
                found = kernel.with_schedule(self._search(kernel, args, kwargs))
                self._store(kernel, key, found.given)
            self._variants[key] = found
        return found

    def _search(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Schedule:
        """The fastest of the space; compiling counts too, and nothing begins once the budget is used up.

        The first schedule is before it: that is compiled whether others are tried or not.
        """
        self.trials, self.dropped = [], []
        seen: dict[str, Schedule] = {}
        start, first = math.inf, None
        for schedule in self._alike(kernel, self._candidates(kernel, args, kwargs), args, kwargs):
            variant = kernel.with_schedule(schedule)
            try:
                text = _code(variant, args, kwargs)
                if text in seen:
                    self.dropped.append((schedule, f"the same code here as {seen[text]}"))
                    continue
                if (time.perf_counter() - start) * 1e3 > self.budget_ms:
                    self.dropped.append((schedule, f"the budget of {self.budget_ms} ms is used up"))
                    continue
                seen[text] = schedule
                candidate = KernelRun(variant, args, kwargs)
                candidate.run()  # compiles it
            except CompilationError as error:
                self.dropped.append((schedule, error.message))
                continue
            if first is None:
                first, start = candidate, time.perf_counter()
            self._measure(schedule, candidate, first)
        if not self.trials:
            reasons = tuple(f"{schedule}: {why}" for schedule, why in self.dropped[:4])
            raise ScheduleError("no schedule of the space can be carried out", notes=reasons)
        self.trials.sort(key=lambda trial: trial[1])
        return self.trials[0][0]

    def _measure(self, schedule: Schedule, candidate: KernelRun, first: KernelRun) -> None:
        """Keep the time of a schedule as a multiple of the first one's, which runs in the same rounds.

        A slow spell of the machine slows both, and says nothing of either.
        """
        from tessera.tuner.protocol import Protocol, interleave  # noqa: PLC0415 - for those who tune
        from tessera.tuner.records import Plan, Trial, median_ratio  # noqa: PLC0415

        own, base, _ = interleave(candidate, first, LEAST_ROUNDS, Protocol(hopeless=math.inf), _no_flush)
        if candidate is first:
            self._first_ms = statistics.median(base) / 1e6
        self.trials.append((schedule, self._first_ms / median_ratio(Trial(Plan(), tuple(own), tuple(base)))))

    def _candidates(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Schedule]:
        """The points of the space; choices that change bits stay at the first value that works."""
        points = list(self.space)
        for schedule in points:
            try:
                program = kernel.with_schedule(schedule).program(*args, **kwargs)
            except CompilationError:
                continue
            if has_collectives(program):
                raise ScheduleError(
                    f"`autotune` measures on a rank alone, and `{kernel.name}` communicates with other ranks",
                    notes=("rule: all ranks run one schedule of a kernel with collectives",),
                    fix="give it a schedule, as in `@kernel(Schedule(block=(64, 128)))`",
                )
            numeric = program.numeric
            self.pinned = numeric
            kept = [one for one in points if all(getattr(one, name) == getattr(schedule, name) for name in numeric)]
            self.dropped += [(one, f"`{', '.join(numeric)}` changes results") for one in points if one not in kept]
            return kept
        return points

    def _alike(
        self, kernel: Kernel, points: Sequence[Schedule], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[Schedule]:
        """Those whose dots have the same bits: on a GPU, all that are on the best units that any of them is on."""
        machine, found = machines().get(_device(kernel)), dict[Schedule, str]()
        if machine is None:
            return list(points)
        from tessera.compiler.kernel_trial import accumulation_unit, with_other_bits  # noqa: PLC0415 - it needs xDSL

        for schedule in points:
            try:
                program = kernel.with_schedule(schedule).program(*args, kind=machine.kind, **kwargs)
            except CompilationError:  # raised with its reason where it is measured
                continue
            found[schedule] = accumulation_unit(program, machine)
        others = with_other_bits(found, machine)
        self.dropped += others.items()
        return [one for one in points if one not in others]

    def report(self) -> str:
        """What the last search found."""
        lines = [f"{milliseconds:9.4f} ms  {schedule}" for schedule, milliseconds in self.trials]
        return "\n".join([*lines, *(f"  dropped  {schedule}: {why}" for schedule, why in self.dropped)])

    def _path(self, kernel: Kernel) -> str:
        folder = os.path.expanduser(self.cache)
        return folder if folder.endswith(".json") else os.path.join(folder, f"{kernel.name}.json")

    def _read_stored(self, kernel: Kernel) -> dict[str, Any]:
        if not self.cache:
            return {}
        try:
            with open(self._path(kernel), encoding="utf-8") as file:
                found: Any = json.load(file)
        except (OSError, ValueError, RecursionError):  # none, or one that cannot be read: all is measured again
            return {}
        return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]

    def lookup(self, kernel: Kernel, key: str) -> Schedule | None:
        """What was chosen before, as long as the space still has it."""
        found = self._read_stored(kernel).get(key)
        if found is None:
            return None
        try:
            schedule = Schedule.from_json(json.dumps(found))
        except (ScheduleError, TypeError, ValueError):  # of another version, or written by hand: it is measured again
            return None
        return schedule if schedule in tuple(self.space) else None

    def _store(self, kernel: Kernel, key: str, schedule: Schedule | None) -> None:
        if not self.cache or schedule is None:
            return
        path = self._path(kernel)
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with _lock_file(path):
                values = {**self._read_stored(kernel), key: json.loads(schedule.to_json())}
                _replace_text(path, json.dumps(values, indent=1, sort_keys=True))
        except OSError as error:
            raise ScheduleError(
                f"no schedule can be kept in {path}: {error.strerror}", fix="give another `cache`"
            ) from error


def _replace_text(path: str, text: str) -> None:
    """Readers see the file as it was or as it is now; it is shared with whom the user shares their other files."""
    with open_folder(os.path.dirname(path) or ".", is_private=False) as folder:
        write_file(os.path.basename(path), folder, [text.encode()], is_private=False)


@contextmanager
def _lock_file(path: str) -> Generator[None]:
    """Others who add to a file wait: what one of them adds between our reading and our writing would be lost."""
    with open(open_lock(f"{path}.lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed, or its process ends
        yield


def _code(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """What tells candidates apart: blocks alone, or warps, stages and vectors too where the backend has them."""
    manifest = manifest_of(kernel.options.backend)
    if manifest.has_launch_schedule:
        return kernel.program(*args, kind=manifest.device_kind, **kwargs).text()
    return kernel.program(*args, **kwargs).work()


class KernelRun:
    """A kernel with its arguments, run and timed: `records.Compiled`."""

    def __init__(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._kernel, self._args, self._kwargs = kernel, args, kwargs
        manifest = manifest_of(kernel.options.backend)
        device = device_of(manifest) if manifest.compiles else None
        self._wait: Callable[[], None] | None = None if device is None else device.synchronize

    def run(self) -> float:
        """Nanoseconds of a call, until the device is done with it: a call may return before."""
        if self._wait is not None:
            self._wait()
        start = time.perf_counter_ns()
        self._kernel(*self._args, **self._kwargs)
        if self._wait is not None:
            self._wait()
        return float(time.perf_counter_ns() - start)

    def bits(self) -> str:
        """Nothing: schedules that would change bits are left out before anything runs."""
        return ""

    def close(self) -> None:
        """Nothing: the kernel keeps its code."""


def _no_flush() -> None:
    """Kernels are called again and again, with what the last call left in caches."""


def _device(kernel: Kernel) -> str:
    """The architecture that is measured, where the code is for the very device that is found."""
    manifest = manifest_of(kernel.options.backend)
    return device_of(manifest).architecture() if manifest.asks_device else manifest.name


def _key(kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Shapes, dtypes and static values, and the machine they were measured on."""
    from tessera.frontend.pytree import flatten  # noqa: PLC0415

    parts: list[str] = []
    for value in (*args, *(kwargs[name] for name in sorted(kwargs))):
        leaves, _ = flatten(value)
        parts += [f"{list(leaf.shape)} {leaf.dtype}" if hasattr(leaf, "shape") else repr(leaf) for leaf in leaves]
    import hashlib  # noqa: PLC0415

    machine = hashlib.sha256(machine_text().encode()).hexdigest()[:8]
    return f"{kernel.definition.digest} {machine} {_device(kernel)} {'; '.join(parts)}"
