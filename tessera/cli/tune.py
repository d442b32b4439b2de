"""`tessera tune module:function`: a live table of the plans that are measured, what was chosen, and its report."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tessera.api.program_tuning import TuningResult, TuningStep, check_settings
from tessera.cli.arguments import Given, Look, TargetError, arguments_for, arrange, call_described
from tessera.diagnostics.error import TesseraError, format_count
from tessera.tuner.records import Trial, median_ratio
from tessera.types.frozen import frozen
from tessera.types.rates import format_time

_ROWS = 8
"""Plans of the table: the best of each place, and the last ones."""
_LINE_SECONDS = 5.0
"""Between lines where there is no terminal to draw on."""
_NOTHING_WRITTEN = "nothing was measured, and no report is written; --again measures anew"


@frozen
class Settings:
    """What a user asked for beside the function."""

    mode: str
    budget: float
    threshold: float
    output: str
    retune: bool = False


class LiveTable:
    """What is being measured, drawn again after each plan; lines where there is no terminal."""

    def __init__(self, console: Console, is_shown: bool) -> None:
        self._console, self._is_shown = console, is_shown
        self._live = Live(console=console, refresh_per_second=8) if is_shown and console.is_terminal else None
        self._steps: list[TuningStep] = []
        self._best: dict[str, Trial] = {}
        self._told = 0.0

    def draw(self) -> AbstractContextManager[Any]:
        """Within it the table is on the screen."""
        return self._live if self._live is not None else nullcontext()

    def tell(self, step: TuningStep) -> None:
        """One more plan."""
        self._steps.append(step)
        if step.progress.best is not None:
            self._best[step.where] = step.progress.best
        if self._live is not None:
            self._live.update(self.table())
        elif self._is_shown and time.monotonic() - self._told > _LINE_SECONDS:
            self._told = time.monotonic()
            self._console.print(Text(_line(step)), soft_wrap=True)

    def table(self) -> Table:
        """The best plan of each place so far, and the plans that were measured last."""
        last = self._steps[-1] if self._steps else None
        left = f", {last.left:.0f} s left" if last is not None else ""
        table = Table(title=f"{format_count(len(self._steps), 'plan')}{left}", expand=True)
        for name in ("where", "plan", "time", "speed-up", ""):
            table.add_column(name, overflow="ellipsis", no_wrap=True, justify="right" if name == "time" else "left")
        for where, trial in self._best.items():
            table.add_row(where, str(trial.plan), *_figures(trial), "best", style="bold")
        for step in self._steps[-_ROWS:]:
            trial = step.progress.trial
            table.add_row(step.where, str(trial.plan), *_figures(trial), trial.reason, style="dim")
        return table


def _figures(trial: Trial) -> tuple[str, str]:
    if not trial.samples or trial.time is None:
        return "-", "-"
    return format_time(trial.time), f"{median_ratio(trial):.2f}x"


def _line(step: TuningStep) -> str:
    progress = step.progress
    best = f", the best {median_ratio(progress.best):.2f}x" if progress.best is not None else ""
    return f"{step.where}: {progress.done} of {format_count(progress.expected, 'plan')}{best}, {step.left:.0f} s left"


def show_tuning(target: str, given: Given, settings: Settings, look: Look | None = None) -> int:
    """Tune a function with arguments made up for it, print what was chosen, and write a folder; the exit status."""
    console, look = Console(), look or Look()
    try:
        check_settings(settings.mode, settings.budget, settings.threshold, "--{} {}".format)
        function = look.find(target)
        arguments = arguments_for(function, given)
        positional, named = arrange(function, arguments)
        look.say(f"compiling `{function.name}` as it is")
        shown = LiveTable(Console(stderr=True), look.progress is not False)
        result = call_described(lambda: _tune(function, positional, named, settings, shown))
        paths = result.save(settings.output)
    except TargetError as error:
        console.print(Text(f"tessera tune: {error}"), style="red", soft_wrap=True)
        return 2
    except TesseraError as error:
        console.print(Text(error.render()), soft_wrap=True)
        return 1
    console.print(Text(str(result)), soft_wrap=True)
    if arguments.chosen:
        sizes = ", ".join(f"{name} = {size}" for name, size in arguments.chosen.items())
        console.print(Text(f"tuned with {sizes}; for others, --size {next(reversed(arguments.chosen))}=1024"))
    told = f"{paths[0]} has every plan; beside it is a page for each search" if paths else _NOTHING_WRITTEN
    console.print(Text(told), soft_wrap=True)
    return 0


def _tune(function: Any, args: Any, kwargs: Any, settings: Settings, shown: LiveTable) -> TuningResult:
    from tessera.api.program_tuning import tune  # noqa: PLC0415 - loads the compiler, after what is said above

    given = {"mode": settings.mode, "budget": settings.budget, "threshold": settings.threshold}
    with shown.draw():
        return tune(function, args, kwargs, progress=shown.tell, retune=settings.retune, **given)


# `tessera tune --export FILE`, `tessera tune --import FILE`.


def exchange(target: str, export: str, imported: str) -> int:
    """Write the plans that are kept to a file, or keep those of one; the exit status."""
    console = Console()
    if bool(export) + bool(imported) + bool(target) != 1:
        console.print(Text("tessera tune: name a function to tune, or give one of --export and --import"), style="red")
        return 2
    try:
        _report(console, _export if export else _import, export or imported)
    except TesseraError as error:
        console.print(Text(error.render()), soft_wrap=True)
        return 1
    except OSError as error:
        console.print(Text(f"tessera tune: {export or imported}: {error.strerror}"), style="red", soft_wrap=True)
        return 1
    return 0


def _report(console: Console, work: Callable[[str], str], path: str) -> None:
    console.print(Text(work(path)), soft_wrap=True)


def _export(path: str) -> str:
    from tessera.tuner.database import default_database  # noqa: PLC0415 - sqlite, for those who ask
    from tessera.tuner.exchange import export_database  # noqa: PLC0415

    return f"wrote {format_count(export_database(default_database(), path), 'plan')} to {path}"


def _import(path: str) -> str:
    from tessera.tuner.database import default_database  # noqa: PLC0415 - sqlite, for those who ask
    from tessera.tuner.exchange import import_database  # noqa: PLC0415

    found = import_database(default_database(), path)
    machines = ", ".join(f"{count} for {arch}" for arch, count in sorted(found.by_arch.items()))
    return f"kept {format_count(found.entries, 'plan')} of {path}" + (f": {machines}" if machines else "")
