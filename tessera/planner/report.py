"""A plan as one self-contained HTML page: the table of plans, the timeline of one step, memory of ranks, and traffic.

The style and the script are those of profiles (`tessera/profile/page_assets.py`); nothing is loaded from elsewhere.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tessera.planner.cluster import Cluster, describe_cluster
from tessera.planner.events import COMPUTE, GRADIENTS, SEND, Event
from tessera.planner.model_cost import ModelCost, describe_model
from tessera.planner.search import Refused
from tessera.planner.simulate import Step
from tessera.planner.training_plan import RESERVED, Memory
from tessera.profile.page_assets import SCRIPT, STYLE
from tessera.types.rates import format_time

MOST_EVENTS = 9000
"""Bars of a timeline that a browser still draws quickly; of more, ranks in the middle are left out."""
KINDS = ("forward", "backward", "parameters", "gradients", "send", "update")
"""What bars of a timeline show, in the order of their colors."""
_PARTS = ("parameters", "gradients", "optimizer", "activations", "gathered")
COLUMNS = (
    "mesh", "schedule", "ZeRO", "recompute",
    "step", "tokens/s", "MFU", "bubble", "exposed", "overlap", "memory", "fits",
)  # fmt: skip


def plan_row(step: Step) -> list[str]:
    """A plan as the cells of a table, by `COLUMNS`."""
    plan, worst = step.plan, step.worst_memory
    schedule = plan.schedule + (f" x{plan.chunks}" if plan.chunks > 1 else "") if plan.pp > 1 else ""
    return [
        plan.describe(),
        schedule,
        str(plan.zero),
        plan.recompute,
        format_time(step.time),
        f"{step.tokens:,.0f}",
        f"{step.mfu:.1%}",
        f"{step.bubble:.1%}",
        f"{step.exposed:.1%}",
        f"{step.overlap:.0%}",
        f"{worst.total / 1e9:.3g} GB",
        "yes" if step.fits else "no",
    ]


def write_page(
    path: str, model: ModelCost, cluster: Cluster, steps: Sequence[Step], refused: Sequence[Refused] = ()
) -> Path:
    """Write the page of some plans, the first of which is shown whole; its path."""
    where = Path(path)
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(page(model, cluster, steps, refused), encoding="utf-8")
    return where.resolve()


def page(model: ModelCost, cluster: Cluster, steps: Sequence[Step], refused: Sequence[Refused] = ()) -> str:
    """The page as text."""
    first = steps[0]
    title = html.escape(f"{model.name} on {first.plan.ranks} x {cluster.device.name}")
    shown, events = _shown_events(first)
    # `</` would end the element that holds the data.
    data = json.dumps(_data(first, shown, events), allow_nan=False).replace("</", "<\\/")
    sections = [_plans(steps, refused), _timeline(first, shown), _memory(first), _traffic(first)]
    about = f"{html.escape(describe_model(model))}<br/>{html.escape(describe_cluster(cluster))}"
    note = "simulated from described rates, not measured; constants and deviations are in the guide on planning"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style></head><body>\n<main>\n<h1>{title}</h1>\n"
        f'<p class="note">{about}</p>\n{_tiles(first)}\n'
        + "\n".join(sections)
        + f"\n<footer>{note}</footer>\n</main>\n"
        f'<div id="tip" role="tooltip"></div>\n<script type="application/json" id="data">{data}</script>\n'
        f"<script>{SCRIPT}</script>\n</body></html>\n"
    )


def _tiles(step: Step) -> str:
    found = [
        (format_time(step.time), "a step"),
        (f"{step.tokens:,.0f}", "tokens a second"),
        (f"{step.mfu:.1%}", "MFU"),
        (f"{step.bubble:.1%}", "of the step in bubbles"),
        (f"{step.overlap:.0%}", "of collectives hidden behind kernels"),
        (f"{step.worst_memory.total / 1e9:.3g} GB", "on the fullest rank"),
    ]
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{a}</b><span>{b}</span></div>' for a, b in found)
        + "</div>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """A table whose first columns are texts, and whose others are numbers."""
    head = "".join(f"<th{' class=n' if at >= texts else ''}>{html.escape(name)}</th>" for at, name in enumerate(heads))
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if at >= texts else ''}>{html.escape(cell)}</td>" for at, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _plans(steps: Sequence[Step], refused: Sequence[Refused]) -> str:
    text = f"<section><h2>Plans <small>the fastest first</small></h2>{_table(COLUMNS, list(map(plan_row, steps)), 4)}"
    if refused:
        heads = ("mesh", "ZeRO", "recompute", "needs")
        rows = [
            (one.plan.describe(), str(one.plan.zero), one.plan.recompute, f"{one.memory.total / 1e9:.4g} GB")
            for one in refused
        ]
        text += f"<details><summary>{len(rows)} meshes that do not fit</summary>{_table(heads, rows, 3)}</details>"
    return text + "</section>"


def _shown_events(step: Step) -> tuple[list[int], list[Event]]:
    """The pipeline ranks whose events are shown, and those events: all, or the first and the last ones."""
    ranks = list(range(step.plan.pp))
    each = max(1, len(step.events) // step.plan.pp)
    most = max(2, MOST_EVENTS // each)
    if len(ranks) > most:
        ranks = ranks[: most // 2] + ranks[-(most - most // 2) :]
    return ranks, [one for one in step.events if one.work.stream[2] in ranks and one.end > one.start]


def kind_of(event: Event) -> str:
    """What a bar shows: one of `KINDS`."""
    stream, name = event.work.stream[0], event.work.name
    if stream == GRADIENTS:
        return "parameters" if name.startswith("gather") else "gradients"
    if stream.startswith(SEND):
        return "send"
    return "update" if name == "update" else "forward" if name.startswith("F") else "backward"


def _data(step: Step, ranks: Sequence[int], events: Sequence[Event]) -> dict[str, Any]:
    moving = {(one.work.stream[2], one.work.stream[0] != COMPUTE) for one in events}
    tracks = [(rank, is_link) for rank in ranks for is_link in (False, True) if (rank, is_link) in moving]
    numbers = {track: at for at, track in enumerate(tracks)}
    names = [f"stage {rank}" + (" links" if is_link else "") for rank, is_link in tracks]
    kinds = [{"name": kind, "short": kind, "line": "", "about": "", "color": at} for at, kind in enumerate(KINDS)]
    bars = [
        {
            "k": KINDS.index(kind_of(one)),
            "s": round(one.start, 1),
            "e": round(one.end, 1),
            "t": numbers[one.work.stream[2], one.work.stream[0] != COMPUTE],
            "line": one.work.name,
        }
        for one in events
    ]
    return {"duration": step.time, "tracks": names, "events": bars, "kernels": kinds}


def _timeline(step: Step, ranks: Sequence[int]) -> str:
    legend = "".join(f'<span><i style="background:var(--c{at})"></i>{kind}</span>' for at, kind in enumerate(KINDS))
    left_out = "" if len(ranks) == step.plan.pp else f"; {len(ranks)} of {step.plan.pp} stages"
    hint = f"turn the wheel to zoom, drag to move, double-click for all{left_out}"
    return (
        f'<section><h2>One step <small>{hint}</small></h2><svg id="kernels" class="time" height="80"></svg>'
        f'<div class="legend">{legend}</div></section>'
    )


def _memory(step: Step) -> str:
    capacity = step.memory[0].capacity
    top = max(capacity, *(one.total for one in step.memory))
    bars = "".join(_bar(rank, one, top, at * 26) for at, (rank, one) in enumerate(enumerate(step.memory)))
    height, x = 26 * len(step.memory) + 20, 90 + 780 * capacity / top
    limit = f'<line class="peak" stroke="var(--c4)" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 18}"/>'
    label = f'<text class="tick" x="{x:.1f}" y="{height - 4}" text-anchor="middle">{capacity / 1e9:.3g} GB</text>'
    legend = "".join(f'<span><i style="background:var(--c{at})"></i>{part}</span>' for at, part in enumerate(_PARTS))
    what = f"of the ranks of each stage; {RESERVED:.0%} of a device are kept for contexts and libraries"
    return (
        f'<section><h2>Memory <small>{what}</small></h2><svg class="chart" viewBox="0 0 960 {height}">{bars}{limit}'
        f'{label}</svg><div class="legend">{legend}</div></section>'
    )


def _bar(rank: int, memory: Memory, top: float, y: float) -> str:
    x, parts = 90.0, [f'<text class="tick" x="0" y="{y + 15}">stage {rank}</text>']
    for at, name in enumerate(_PARTS):
        bytes = getattr(memory, name)
        width = 780 * bytes / top
        about = html.escape(f"{name}: {bytes / 1e9:.4g} GB")
        size = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="20"'
        parts.append(f'<rect {size} fill="var(--c{at})"><title>{about}</title></rect>')
        x += width
    return "".join([*parts, f'<text class="tick" x="{x + 5:.1f}" y="{y + 15}">{memory.total / 1e9:.3g} GB</text>'])


TRAFFIC_COLUMNS = ("for", "collective", "link", "calls", "sent by a rank", "time")


def traffic_rows(step: Step) -> list[list[str]]:
    """Bytes per link as the cells of a table, by `TRAFFIC_COLUMNS`."""
    return [
        [one.purpose, one.call, one.link, f"{one.calls:,.0f}", f"{one.sent / 1e9:.4g} GB", format_time(one.time)]
        for one in step.traffic
    ]


def _traffic(step: Step) -> str:
    what = "in a step, of the busiest rank; times are of collectives alone"
    return f"<section><h2>Links <small>{what}</small></h2>{_table(TRAFFIC_COLUMNS, traffic_rows(step), 3)}</section>"
