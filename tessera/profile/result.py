"""`Profile`: what one call of a jitted function did, kernel by kernel and tensor by tensor, and the files of it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from tessera.compiler.program_plan import KernelCall, ProgramPlan
from tessera.diagnostics.error import format_count
from tessera.profile import trace
from tessera.profile.memory import MemoryTimeline, memory_of
from tessera.profile.roofline import GroupTimes, RooflineRow, roofline_rows, to_csv
from tessera.types.frozen import frozen
from tessera.types.rates import Rates, format_time

if TYPE_CHECKING:
    from tessera.compiler.options import Options
    from tessera.ir.base.tape import Tape
    from tessera.profile.report import KernelLowering

_HASH = re.compile(r"_[0-9a-f]{10}\b")
_WIDTH = 132
"""Columns of the table where nobody says how wide a terminal is."""
_NARROW = 120
"""Columns below which the table of kernels leaves out locations and hints: these are lines below it."""
_ROWS = 16
"""Kernels and tensors that are printed; files have all."""


@frozen
class KernelEvent:
    """Something that ran in a call: a `kernel`, a `copy`, a `collective` or a `wait` for one.

    `start` and `end` are nanoseconds from the beginning of the call, `track` is the thread or stream that it ran in.
    `call` is its launch in the plan of the program, with the source of every op that it computes.
    """

    kind: str
    name: str
    start: int
    end: int
    track: int = 0
    rank: int = 0
    call: KernelCall | None = None

    @property
    def time(self) -> int:
        """Nanoseconds that it took."""
        return self.end - self.start

    @property
    def line(self) -> str:
        """Where the source computes what it computes: `model.py:12:8`, and which part of that it is."""
        if self.call is None:
            return ""
        return self.call.where or next((one.where for one in self.call.sources if one.where), "")


@dataclass(frozen=True, repr=False)
class Profile:
    """What a call of a jitted function did.

    `kernels` has each launch with its start and end, `memory` each tensor, `roofline` a row for each kernel. Times are
    nanoseconds; of all `times` that were measured, events are those of the fastest call, which others disturbed least.
    Printed, it is a table.

    >>> found = ts.jit(lambda x: ts.ops.softmax(x @ x)).profile(ts.ones((64, 64)))
    >>> [event.kind for event in found.kernels]
    ['kernel', 'kernel']
    >>> found.roofline[0].launches, found.memory.total("result")
    (1, 16384)
    """

    name: str
    signature: str
    device: str
    times: tuple[int, ...]
    duration: int
    events: tuple[KernelEvent, ...]
    plan: ProgramPlan
    sizes: Mapping[str, int]
    work: Sequence[Mapping[str, Any]]
    rates: Rates | None
    tape: Tape
    options: Options
    missed: int = 0
    """Kernels that ran and that the timeline could not hold."""
    is_machine_measured: bool = False
    """Whether `rates` were measured on this very machine."""

    @cached_property
    def kernels(self) -> tuple[KernelEvent, ...]:
        """The launches of kernels, in order."""
        return tuple(one for one in self.events if one.kind == "kernel")

    @cached_property
    def kernel_time(self) -> int:
        """Nanoseconds in which at least one kernel ran."""
        total = end = 0
        for one in sorted(self.kernels, key=lambda one: one.start):
            total += max(0, one.end - max(one.start, end))
            end = max(end, one.end)
        return total

    @cached_property
    def memory(self) -> MemoryTimeline:
        """Every tensor of the program, and when it was in memory."""
        launches = [(one.call.step, one.start, one.end) for one in self.kernels if one.call is not None]
        return memory_of(self.plan, self.sizes, launches, self.duration)

    @cached_property
    def roofline(self) -> tuple[RooflineRow, ...]:
        """A row for each kernel: what it computes and moves, its time, its bound, and what to try next."""
        times: dict[int, GroupTimes] = {}
        for event in self.kernels:
            if event.call is not None:
                given = event.call.arguments[0] if event.call.arguments else ""
                known = times.get(event.call.group, GroupTimes(0, 0.0, event.line, given, event.call.knob))
                runs, time = known.runs + (event.call.part == 0), known.time + event.time
                times[event.call.group] = replace(known, runs=runs, time=time)
        return tuple(roofline_rows(self.work, times, self.rates, self.sizes))

    @property
    def trace(self) -> dict[str, Any]:
        """The call as a Chrome trace, which Perfetto opens: one slice for each kernel, and the memory as a counter."""
        return trace.trace_of(self)

    @property
    def stacks(self) -> str:
        """Collapsed stacks, a line for each with its nanoseconds: function, source line, kernel; or the host's time."""
        return trace.collapse_stacks(self)

    @property
    def flame_graph(self) -> str:
        """The stacks as an SVG."""
        return trace.flame_graph(trace.read_stacks(self.stacks), f"{self.name}: {format_time(self.duration)}")

    @property
    def roofline_csv(self) -> str:
        """The roofline as a table of comma-separated values."""
        return to_csv(self.roofline)

    def lowering(self, kernel: str = "") -> KernelLowering:
        """One kernel at every level of IR, by its name; without one, that which took longest."""
        from tessera.profile.report import lower_kernel  # noqa: PLC0415 - lowers the program once more

        return lower_kernel(self, kernel)

    def save(self, folder: str | Path) -> Path:
        """Write a trace, the tables, the stacks and the report to a folder, which is made; the path of the report."""
        from tessera.profile.report import write_report  # noqa: PLC0415 - lowers the program once more

        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        texts = {
            "trace.json": trace.to_json(self.trace),
            "memory.json": self.memory.to_json(),
            "roofline.csv": self.roofline_csv,
            "stacks.txt": self.stacks,
            "flame.svg": self.flame_graph,
        }
        for name, text in texts.items():
            (where / name).write_text(text, encoding="utf-8")
        return write_report(where / "report.html", self.name, self, lowering=self.lowering() if self.kernels else None)

    def __rich__(self) -> Group:
        return Group(*_summary(self), _Kernels(self), *_memory_lines(self))

    def __str__(self) -> str:
        out = io.StringIO()
        Console(file=out, width=max(_WIDTH, Console().width)).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__


def short_name(kernel: str) -> str:
    """A kernel without the hash that tells it from others of its kind.

    >>> short_name("matmul_add_1e9ef6cd0f")
    'matmul_add'
    """
    return _HASH.sub("", kernel) or kernel


def format_bytes(count: float) -> str:
    """Bytes as people read them.

    >>> format_bytes(3 << 20), format_bytes(100)
    ('3 MiB', '100 B')
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _summary(profile: Profile) -> list[Text]:
    calls = len(profile.times)
    whose = f"the fastest of {calls} calls" if calls > 1 else "one call"
    host = profile.duration - profile.kernel_time
    ran = format_count(len(profile.kernels), "kernel")
    lines = [
        _shorten(f"{profile.name}{profile.signature}"),
        f"{format_time(profile.duration)} ({whose}) on {profile.device}: {ran} "
        f"{format_time(profile.kernel_time)}, host {format_time(host)}",
    ]
    if profile.missed:
        lines.append(f"a timeline does not hold as many: {format_count(profile.missed, 'kernel')} more ran")
    if profile.rates is not None:
        other = f"{profile.rates.machine or 'some other machine'}; this one was not measured"
        lines.append(f"bounds by rates as measured on {'this machine' if profile.is_machine_measured else other}")
    return [Text(lines[0], style="bold"), *map(Text, lines[1:])]


def _shorten(text: str) -> str:
    """A signature in a line or two."""
    return text if len(text) <= 2 * _WIDTH else f"{text[: 2 * _WIDTH - 40]} ... {text[-35:]}"


class _Kernels:
    """The table of kernels: locations and hints are columns of a wide console, else lines below."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = options.max_width >= _NARROW
        yield _kernel_table(self.profile, is_wide)
        if not is_wide:
            for number, row in enumerate(self.profile.roofline[:_ROWS], 1):
                yield Text(f"{number}. {': '.join(text for text in (_source_text(row), row.hint) if text)}")


def _kernel_table(profile: Profile, is_wide: bool) -> Table:
    table = Table(highlight=False, pad_edge=False) if is_wide else Table(box=None, highlight=False, pad_edge=False)
    if not is_wide:
        table.add_column("", justify="right", no_wrap=True)
    table.add_column("kernel", overflow="fold", ratio=3)
    if is_wide:
        table.add_column("from", overflow="fold", ratio=3)
    for name in ("runs", "time", "of call", "Gflop/s", "GB/s", "of bound"):
        table.add_column(name, justify="right", no_wrap=True)
    if is_wide:
        table.add_column("hint", overflow="fold", ratio=4)
    rows = profile.roofline
    for number, row in enumerate(rows[:_ROWS], 1):
        per, of_call = max(row.time, 1e-9), row.time / max(profile.duration, 1)
        bound = f"{row.share:.0%} {row.bound_by}" if row.bound_by else "-"
        cells = [f"{row.launches}", format_time(row.time), f"{of_call:.1%}"]
        cells += [f"{row.flops / per:.3g}", f"{row.bytes / per:.3g}", bound]
        name = short_name(row.kernel)
        if is_wide:
            table.add_row(Text(name), Text(_source_text(row)), *cells, Text(row.hint))
        else:
            table.add_row(f"{number}.", Text(name), *cells)
    if len(rows) > _ROWS:
        rest = sum(row.time for row in rows[_ROWS:])
        count = sum(row.launches for row in rows[_ROWS:])
        of_call = f"{rest / max(profile.duration, 1):.1%}"
        more = [f"{len(rows) - _ROWS} more", ""] if is_wide else ["", f"{len(rows) - _ROWS} more"]
        table.add_row(*more, f"{count}", format_time(rest), of_call)
    return table


def _source_text(row: RooflineRow) -> str:
    """Where a kernel is from, and the first argument of the program that it is given."""
    return _short_lines(row.line) + f" {_shorten_path(row.argument)}" * bool(row.argument)


def _shorten_path(text: str, most: int = 44) -> str:
    """The end of a path in a tree, which says most."""
    first = text.partition(" and ")[0]
    return first if len(first) <= most else f"...{first[-most + 3 :]}"


def _short_lines(text: str, most: int = 2) -> str:
    """The first of some locations, by the file and line alone."""
    found = list(dict.fromkeys(re.findall(r"[^\s/\\]+:\d+(?=:\d)", text))) or [text]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    role = ", backward" if "backward" in text else ""
    return f"{', '.join(found[:most])}{more}{role}"


def _memory_lines(profile: Profile) -> list[Any]:
    memory = profile.memory
    kinds = [(kind, memory.total(kind)) for kind in ("argument", "result", "constant", "offloaded")]
    others = ", ".join(f"{kind}s {format_bytes(size)}" for kind, size in kinds if size)
    lines = [
        f"memory: workspace {format_bytes(memory.workspace)} (peak {format_bytes(memory.peak)}){', ' * bool(others)}"
    ]
    lines[0] += others
    step = memory.peak_step
    largest = [one for one in memory.live(step) if one.kind == "temporary"]
    if not largest:
        return [Text(lines[0])]
    table = Table(title=f"workspace at its fullest, step {step}", title_justify="left", highlight=False, pad_edge=False)
    for name, side in (("tensor", "left"), ("bytes", "right"), ("shape", "left"), ("from", "left")):
        table.add_column(name, justify=side, overflow="fold")  # pyright: ignore[reportArgumentType]
    for one in largest[: _ROWS // 2]:
        shape = f"[{', '.join(map(str, one.shape))}] {one.dtype}"
        table.add_row(Text(one.name), format_bytes(one.bytes), Text(shape), Text(_short_lines(one.line)))
    if len(largest) > _ROWS // 2:
        rest = sum(one.bytes for one in largest[_ROWS // 2 :])
        table.add_row(f"{len(largest) - _ROWS // 2} more", format_bytes(rest), "", "")
    return [Text(lines[0]), table]
