"""A profile as one self-contained HTML page: curves, timelines of kernels and memory, the roofline, and one lowering.

Nothing is loaded from elsewhere, so that the file opens by itself wherever it is copied to.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.diagnostics.error import format_count
from tessera.profile.charts import PALETTE, Line, line_chart, roofline_chart
from tessera.profile.page_assets import SCRIPT, STYLE
from tessera.profile.result import Profile, format_bytes, short_name
from tessera.profile.roofline import RooflineRow
from tessera.types.frozen import frozen
from tessera.types.rates import format_time

Series: TypeAlias = "Mapping[str, Line | Mapping[str, Line]]"
"""Curves: a chart for each name, of one curve or of several by their own names."""

LEVELS = ("graph", "schedule", "tile", "target", "llvm")
_ROWS = 14
"""Kernels that a page shows before one asks for more."""
_LONGEST = 1500
"""Lines of a level that a page has."""
_TITLES = {
    "graph": "Graph IR",
    "schedule": "Schedule IR",
    "tile": "Tile IR",
    "target": "Target IR",
    "llvm": "LLVM or PTX",
}
_KINDS = {"argument": 0, "result": 1, "constant": 6, "offloaded": 3}
"""The colors of tensors that are no temporaries, which have one by their name."""


@frozen
class KernelLowering:
    """A kernel at every level, each as lines with the source lines (`file:line`) that they come from.

    >>> found = ts.jit(lambda x: x @ x).profile(ts.ones((8, 8))).lowering()
    >>> [level for level in found.levels if any("matmul" in line for line, _ in found.levels[level])][:2]
    ['graph', 'schedule']
    """

    kernel: str
    levels: Mapping[str, Sequence[tuple[str, frozenset[str]]]]
    source: Sequence[tuple[str, frozenset[str]]] = ()


def lower_kernel(profile: Profile, kernel: str = "") -> KernelLowering:
    """One kernel of a profile, by its name or the beginning of it; without one, that which took longest.

    Raises RuntimeArgumentError (T0701) for a name that none has.
    """
    from tessera.compiler import inspect  # noqa: PLC0415 - loads the backend too

    names = list(dict.fromkeys(name for row in profile.roofline for name in row.kernel.split(" + ")))
    found = next((name for name in names if name.startswith(kernel)), None)
    if found is None:
        raise RuntimeArgumentError(
            f"no kernel of `{profile.name}` is called `{kernel}`" if kernel else f"`{profile.name}` ran no kernel",
            fix=f"its kernels are {', '.join(names[:8])}" if names else "give it tensors that have elements",
        )
    levels = inspect.lower_kernel(profile.tape, profile.options, found)
    lines = {name: [(line.text, line.keys) for line in levels[name]] for name in LEVELS}
    # Not those of the host program: it names the lines of other kernels that share buffers with this one.
    keys = {key for name in ("graph", "tile", "target") for _, own in lines[name] for key in own}
    return KernelLowering(found, lines, _source_lines(keys))


def _source_lines(keys: set[str]) -> list[tuple[str, frozenset[str]]]:
    import linecache  # noqa: PLC0415 - for a report alone

    found: list[tuple[str, frozenset[str]]] = []
    for key in sorted(keys, key=lambda one: (one.rpartition(":")[0], int(one.rpartition(":")[2]))):
        file, _, line = key.rpartition(":")
        found.append((f"{line:>4}  {linecache.getline(file, int(line)).strip()}", frozenset([key])))
    return found


def write_report(
    path: str | Path,
    title: str,
    profile: Profile,
    series: Series | None = None,
    lowering: KernelLowering | None = None,
) -> Path:
    """Write a profile as one HTML page; its path.

    `series` are curves to show first: `{"loss": [3.2, 2.1]}`, `{"loss": {"train": [...], "held out": [(0, 4.1), (100,
    2.2)]}}`, with values at 0, 1, 2, ... or pairs of step and value. `lowering` is a kernel to show at every level.

    >>> import tempfile
    >>> profile = ts.jit(lambda x: x @ x).profile(ts.ones((8, 8)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/report.html", "a matmul", profile, series={"loss": [2.0, 1.0]})
    ...     "http" in page.read_text().replace("http://www.w3.org/", "")
    False
    """
    where = Path(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(page(title, profile, series or {}, lowering), encoding="utf-8")
    return where.resolve()


def page(title: str, profile: Profile, series: Series, lowering: KernelLowering | None = None) -> str:
    """The page as text."""
    kinds = list(dict.fromkeys(row.kind for row in profile.roofline))
    sections = [
        *(_chart_section(name, curves) for name, curves in series.items()),
        _timeline_section(profile, kinds),
        _memory_section(profile),
        _roofline_section(profile, kinds),
        f"<section><h2>Flame graph <small>wide is long; a frame stands on what called it</small></h2>"
        f'<div class="scroll">{profile.flame_graph}</div></section>',
        _lowering_section(lowering) if lowering is not None else "",
    ]
    # `</` would end the element that holds the data.
    data = json.dumps(_data(profile, kinds), allow_nan=False).replace("</", "<\\/")
    escaped = html.escape(title)
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>{escaped}</title>\n<style>{STYLE}</style></head><body>\n<main>\n<h1>{escaped}</h1>\n"
        f"{_head(profile)}\n{_tiles(profile)}\n" + "\n".join(filter(None, sections)) + f"\n{_foot(profile)}\n</main>\n"
        f'<div id="tip" role="tooltip"></div>\n<script type="application/json" id="data">{data}</script>\n'
        f"<script>{SCRIPT}</script>\n</body></html>\n"
    )


def _head(profile: Profile) -> str:
    calls = len(profile.times)
    whose = f"the fastest of {calls} calls" if calls > 1 else "one call"
    return f'<p class="note">one call of <code>{html.escape(profile.name)}</code> on {profile.device} ({whose})</p>'


def _tiles(profile: Profile) -> str:
    flops = sum(row.flops for row in profile.roofline)
    memory = profile.memory
    busy = profile.kernel_time / max(profile.duration, 1)
    found = [
        (format_time(profile.duration), "a call"),
        (f"{len(profile.kernels)}", f"kernel launches, of {format_count(len(profile.roofline), 'kernel')}"),
        (f"{busy:.1%}", "of the time in kernels"),
        (f"{flops / max(profile.duration, 1):.3g} Gflop/s", f"{flops / 1e9:.3g} Gflop in a call"),
        (format_bytes(memory.peak), "peak of the workspace, as planned"),
        (format_bytes(memory.total("argument") + memory.total("result")), "arguments and results"),
    ]
    tiles = "".join(f'<div class="tile"><b>{html.escape(value)}</b><span>{what}</span></div>' for value, what in found)
    return f'<div class="tiles">{tiles}</div>'


def _chart_section(name: str, curves: Any) -> str:
    lines = cast("Mapping[str, Line]", curves) if isinstance(curves, Mapping) else {name: cast("Line", curves)}
    return f"<section><h2>{html.escape(name)}</h2>{line_chart(name, lines)}</section>"


def _timeline_section(profile: Profile, kinds: Sequence[str]) -> str:
    legend = "".join(
        f'<span><i style="background:var(--c{number % PALETTE})"></i>{html.escape(kind or "other")}</span>'
        for number, kind in enumerate(kinds)
    )
    hint = "turn the wheel to zoom, drag to move, double-click for all; click a kernel to see its launches"
    return (
        f'<section><h2>Kernel timeline <small>{hint}</small></h2><svg id="kernels" class="time" height="80"></svg>'
        f'<div class="legend">{legend}</div></section>'
    )


def _memory_section(profile: Profile) -> str:
    memory = profile.memory
    what = (
        f"every tensor where it lies; the dashed line is the planner's peak, {format_bytes(memory.workspace)} of "
        "workspace above arguments and results"
    )
    rows = "".join(
        f'<tr><td class="mono">{html.escape(one.name)}</td><td>{one.kind}</td><td class="n" data-v="{one.bytes}">'
        f'{format_bytes(one.bytes)}</td><td class="mono">{_shape_text(one)}</td><td class="n">{one.first_step}</td>'
        f'<td class="n">{one.last_step}</td><td class="mono">{html.escape(_file_line(one.line))}</td></tr>'
        for one in sorted(memory.tensors, key=lambda one: -one.bytes)
    )
    names = ("tensor", "kind", "bytes", "shape", "first step", "last step", "from")
    heads = "".join(f"<th{' class=n' if name in names[2:6] and name != 'shape' else ''}>{name}</th>" for name in names)
    table = _table(heads, [rows])
    return (
        f'<section><h2>Memory timeline <small>{what}</small></h2><svg id="memory" class="time" height="340"></svg>'
        f"<details><summary>all {len(memory.tensors)} tensors</summary>"
        f'<div class="scroll">{table}</div></details></section>'
    )


def _shape_text(one: Any) -> str:
    return html.escape(f"[{', '.join(map(str, one.shape))}] {one.dtype}")


def _file_line(where: str) -> str:
    """`model.py:12:8, backward` of a whole path."""
    path, comma, role = where.partition(",")
    return f"{path.rpartition('/')[2]}{comma}{role}"


def _roofline_section(profile: Profile, kinds: Sequence[str]) -> str:
    rates = profile.rates
    used = {work["dtype"] for work in profile.work}
    chart = "" if rates is None else roofline_chart(profile.roofline, rates, kinds, used)
    machine = "" if rates is None else f"rates as measured on {html.escape(rates.machine or 'some other machine')}"
    heads = ("kernel", "from", "runs", "time", "of the call", "Gflop/s", "GB/s", "of its bound", "hint")
    texts = {"kernel", "from", "hint"}
    head = "".join(f"<th{'' if name in texts else ' class=n'}>{name}</th>" for name in heads)
    rows = [_kernel_row(number, row, profile) for number, row in enumerate(profile.roofline)]
    table = _table(head, rows[:_ROWS])
    if len(rows) > _ROWS:
        rest = sum(row.time for row in profile.roofline[_ROWS:]) / max(profile.duration, 1)
        others = f"{len(rows) - _ROWS} other kernels, {rest:.1%} of the call"
        table += f"<details><summary>{others}</summary>{_table(head, rows[_ROWS:])}</details>"
    return f'<section><h2>Roofline <small>{machine}</small></h2>{chart}<div class="scroll">{table}</div></section>'


def _table(head: str, rows: Sequence[str]) -> str:
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _kernel_row(number: int, row: RooflineRow, profile: Profile) -> str:
    per, part = max(row.time, 1e-9), row.time / max(profile.duration, 1)
    bound = f"{row.share:.0%} {row.bound_by}" if row.bound_by else ""
    meter = f'<div class="meter"><i style="width:{min(1.0, row.share):.1%}"></i></div>' if row.bound_by else ""
    lines = " and ".join(_file_line(line) for line in row.line.split(" and "))
    given = f"<br/>{html.escape(row.argument)}" if row.argument else ""
    cells = (
        f'<td class="mono" title="{html.escape(row.kernel)}">{html.escape(short_name(row.kernel))}</td>',
        f'<td class="mono">{html.escape(lines)}{given}</td><td class="n">{row.launches}</td>',
        f'<td class="n" data-v="{row.time:.0f}">{format_time(row.time)}</td>',
        f'<td class="n" data-v="{part:.6f}">{part:.1%}</td>',
        f'<td class="n" data-v="{row.flops / per:.6g}">{row.flops / per:.3g}</td>',
        f'<td class="n" data-v="{row.bytes / per:.6g}">{row.bytes / per:.3g}</td>',
        f'<td class="n" data-v="{row.share:.6f}">{bound}{meter}</td><td>{_code_text(row.hint)}</td>',
    )
    return f'<tr data-kernel="{number}">{"".join(cells)}</tr>'


def _code_text(text: str) -> str:
    """Text with what is between backquotes as code."""
    parts = html.escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _lowering_section(lowering: KernelLowering) -> str:
    keys = {key for _, own in lowering.source for key in own}
    numbers = {key: str(at) for at, key in enumerate(sorted(keys))}
    panes = [("source", lowering.source), *((name, lowering.levels.get(name, ())) for name in LEVELS)]
    columns = "".join(
        f'<div class="level"><h3>{_TITLES.get(name, "Source")}</h3><pre>{_level_text(lines, numbers)}</pre></div>'
        for name, lines in panes
        if lines
    )
    what = "click a line to see what it came from and became"
    return (
        f"<section><h2>Lowering of <code>{html.escape(lowering.kernel)}</code> <small>{what}</small></h2>"
        f'<div class="levels">{columns}</div></section>'
    )


def _level_text(lines: Sequence[tuple[str, frozenset[str]]], numbers: Mapping[str, str]) -> str:
    rows: list[str] = []
    for text, own in lines[:_LONGEST]:
        marks = " ".join(sorted(numbers[key] for key in own if key in numbers))
        mark = f' data-k="{marks}"' if marks else ""
        rows.append(f'<span class="l"{mark}>{html.escape(text)}</span>')
    if len(lines) > _LONGEST:
        rows.append(f'<span class="l">... and {len(lines) - _LONGEST} lines more</span>')
    return "".join(rows)


def _foot(profile: Profile) -> str:
    what = html.escape(f"{profile.name}{profile.signature}")
    return f"<footer><details><summary>signature</summary><p class=mono>{what}</p></details></footer>"


def _data(profile: Profile, kinds: Sequence[str]) -> dict[str, Any]:
    """What the script draws: kernels, their launches by track, and tensors by their bytes."""
    rows = {name: number for number, row in enumerate(profile.roofline) for name in row.kernel.split(" + ")}
    kernels = [_kernel_data(row, kinds) for row in profile.roofline]
    tracks: dict[tuple[str, int], int] = {}
    events: list[dict[str, Any]] = []
    for one in profile.events:
        number = rows.get(one.call.kernel) if one.call is not None else None
        if number is None:
            number = rows.setdefault(one.name, len(kernels))
            if number == len(kernels):
                kernels.append(
                    {"name": one.name, "short": one.name, "line": "", "color": PALETTE - 1, "about": one.kind}
                )
        kind = "" if one.kind in ("kernel", "copy") else one.kind
        track = tracks.setdefault((kind, 0 if kind else one.track), len(tracks))
        text = "" if one.call is None else next((s.text for s in reversed(one.call.sources) if s.text), "")
        if one.call is not None and one.call.arguments:
            text += f" with {', '.join(one.call.arguments[:3])}{' ...' * (len(one.call.arguments) > 3)}"
        place = {"s": one.start, "e": one.end, "t": track, "k": number}
        events.append({**place, "line": _file_line(one.line), "text": text})
    what = "stream" if profile.device.startswith("cuda") else "thread"
    names = [kind or f"{what} {number}" for kind, number in tracks]
    return {
        "duration": profile.duration,
        "tracks": names,
        "kernels": kernels,
        "events": events,
        "memory": _memory_data(profile),
    }


def _kernel_data(row: RooflineRow, kinds: Sequence[str]) -> dict[str, Any]:
    share = f", {row.share:.0%} of its {row.bound_by} bound" if row.bound_by else ""
    about = f"{format_count(row.launches, 'launch', 'launches')}, {format_time(row.time)} in all{share}"
    name = {"name": row.kernel, "short": short_name(row.kernel), "line": _file_line(row.line)}
    return {**name, "color": kinds.index(row.kind) % PALETTE, "about": about}


def _memory_data(profile: Profile) -> dict[str, Any]:
    """Tensors as rectangles: arguments, results and the like below, each after the other, and above the workspace."""
    memory = profile.memory
    at = 0
    tensors: list[dict[str, Any]] = []
    for one in memory.tensors:
        if one.kind != "temporary":
            tensors.append(_tensor_data(one, at, _KINDS.get(one.kind, 6)))
            at += one.bytes
    for number, one in enumerate(memory.temporaries):
        tensors.append(_tensor_data(one, at + one.offset, (2, 5, 4, 7, 3)[number % 5]))
    return {"tensors": tensors, "base": at, "peak": memory.workspace, "top": at + memory.workspace}


def _tensor_data(one: Any, offset: int, color: int) -> dict[str, Any]:
    shape = f"[{', '.join(map(str, one.shape))}] {one.dtype}"
    place = {"o": offset, "b": one.bytes, "s": one.start, "e": one.end, "c": color}
    return {"name": one.name, "kind": one.kind, "shape": shape, "line": _file_line(one.line), **place}
