"""What a run shows while it goes on, and what it keeps: a progress bar, rates, memory, and the history of metrics."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.error import find_nearest
from tessera.diagnostics.frames import guard_class
from tessera.types.rates import rates_of, work_in
from tessera.types.settings import Settings

_WINDOW = 20  # steps over which a rate is taken
_LINE_SECONDS = 10.0  # between lines where there is no terminal to draw a bar on
_BAR_SECONDS = 0.1  # between two states of a bar, which is drawn as often


@guard_class
class History:
    """The metrics of a run by step: `history["loss"]` are the values, `history.steps` the steps of the losses.

    A metric that is not there at every step, as that of an evaluation, has steps of its own: `history.of("accuracy")`.

    >>> history = ts.train.History()
    >>> history.add(1, {"loss": 2.5})
    >>> history.add(2, {"loss": 2.0, "accuracy": 0.5})
    >>> history["loss"], history.of("accuracy"), history.last
    ([2.5, 2.0], [(2, 0.5)], {'loss': 2.0, 'accuracy': 0.5})
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[tuple[int, float]]] = {}

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Note the metrics of a step."""
        for name, value in metrics.items():
            self._columns.setdefault(name, []).append((int(step), float(value)))

    def of(self, name: str) -> list[tuple[int, float]]:
        """Steps and values of a metric."""
        if name not in self._columns:
            near = find_nearest(name, list(self._columns), 3) or list(self._columns)
            raise ArgumentError(f"the history has no metric `{name}`", fix=f"it has {', '.join(near) or 'none yet'}")
        return list(self._columns[name])

    def __getitem__(self, name: str) -> list[float]:
        return [value for _, value in self.of(name)]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """How many steps the first metric has."""
        return len(self.steps)

    @property
    def steps(self) -> list[int]:
        """The steps of the first metric, which is the loss."""
        return [step for column in islice(self._columns.values(), 1) for step, _ in column]

    @property
    def last(self) -> dict[str, float]:
        """The last value of each metric."""
        return {name: column[-1][1] for name, column in self._columns.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain values, without numbers that JSON lacks: those are strings."""
        return {
            name: [[step, value if math.isfinite(value) else str(value)] for step, value in column]
            for name, column in self._columns.items()
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> History:
        """What `to_json` was made from."""
        made = History()
        for name, column in values.items():
            made._columns[name] = [(int(step), float(value)) for step, value in column]
        return made

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.last.items())
        return f"History({len(self)} steps; last: {shown})" if self._columns else "History(0 steps)"


# How fast and how large: seconds of a step, bytes in use, and the least seconds that a step's operations could take.


class Rate:
    """Steps a second over the last few, the first one, which compiles, left out."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_WINDOW + 1)

    def tick(self) -> None:
        """A step has ended."""
        self._times.append(time.perf_counter())

    @property
    def steps_per_second(self) -> float:
        """0 before two steps have ended."""
        if len(self._times) < 2:
            return 0.0
        return (len(self._times) - 1) / max(self._times[-1] - self._times[0], 1e-9)


def least_seconds(step: Any) -> float | None:
    """How long the operations of a jitted step take at the peak of the machine; None where that is not known.

    What was compiled last counts, at the rates that were measured on a machine of its kind (`tessera.types.rates`).
    """
    made = [one for function in getattr(step, "_all", tuple)() for one in function.specializations]
    executable = getattr(made[-1].loaded, "executable", None) if made else None
    if executable is None:
        return None
    machine = executable.metadata.get("architecture", "cpu")
    rates = rates_of(machine)
    if rates is None or (machine == "cpu" and not _is_measured(rates.machine)):
        return None
    held = rates.on(Settings.from_environment().threads) if machine == "cpu" else rates
    parts = [work_in(one) for one in executable.metadata.get("work", ())]
    nanoseconds = [one.flops / held.compute(one.kind) for one in parts if one is not None]
    return sum(nanoseconds) / 1e9 if nanoseconds and len(nanoseconds) == len(parts) else None


def _is_measured(machine: str) -> bool:
    """Whether this CPU is of the kind that rates were measured on."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line.split(":", 1) for line in file if ":" in line]
    except OSError:
        return False
    facts = {name.strip(): value.strip() for name, value in reversed(lines)}
    return f"family {facts.get('cpu family')} model {facts.get('model')}" in machine


def bytes_in_use() -> int:
    """Memory of this process: of its tensors on the GPU where it has any, else all that is resident on the host."""
    module = sys.modules.get("tessera.runtime.devices.cuda.memory")
    if module is not None and module.POOL.reserved:
        return module.POOL.held
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * 4096


def format_bytes(count: float) -> str:
    """As people read it.

    >>> format_bytes(3 << 29)
    '1.5 GiB'
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


class Display:
    """A progress bar on a terminal, a line now and then elsewhere, or nothing."""

    def __init__(self, total: int | None, start: int, *, is_shown: bool, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._total = total
        self._shown_at, self._interval = time.monotonic(), _LINE_SECONDS
        self._is_shown, self._bar = is_shown, None
        if is_shown and self._console.is_terminal:
            columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[text]}"), console=self._console)
            self._task = self._bar.add_task("train", total=total, completed=start, text="compiling")
            self._shown_at, self._interval = 0.0, _BAR_SECONDS

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def is_due(self, step: int) -> bool:
        """Whether a step is to be shown: the last one, and one now and then."""
        return self._is_shown and (step == self._total or time.monotonic() - self._shown_at >= self._interval)

    def show(self, step: int, facts: Mapping[str, str]) -> None:
        """Show the state of things after a step."""
        self._shown_at = time.monotonic()
        text = " · ".join(f"{value} {name}".strip() for name, value in facts.items())
        if self._bar is not None:
            self._bar.update(self._task, completed=step, text=text)
            return
        of = "" if self._total is None else f"/{self._total}"
        self._console.print(f"step {step}{of}: {text}", highlight=False, soft_wrap=True)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
