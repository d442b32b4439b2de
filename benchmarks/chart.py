"""A bar chart of ratios as SVG, written by hand: no plotting library, one self-contained file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.harness import Row
from benchmarks.result import geometric_mean, verdict
from benchmarks.workloads import TARGETS

LABEL, PLOT, NOTE = 290, 560, 150
BAR, GAP, HEAD = 9, 6, 30
LOW, HIGH = 0.25, 16.0
COLOURS = ("#2f6f9f", "#d98c21", "#4b8b3b", "#8a4fa0")
STYLE = """
svg { background: #ffffff; font: 11px system-ui, sans-serif; }
text { fill: #222222; } .small { fill: #666666; } .family { font-weight: 600; font-size: 12px; }
.grid { stroke: #dddddd; } .one { stroke: #444444; } .target { stroke: #b03030; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) {
  svg { background: #16181c; } text { fill: #e6e6e6; } .small { fill: #9a9a9a; }
  .grid { stroke: #33363c; } .one { stroke: #bbbbbb; }
}
"""


def place(ratio: float) -> float:
    """Where a ratio is on the logarithmic axis, kept inside the plot."""
    inside = min(max(ratio, LOW), HIGH)
    return LABEL + PLOT * math.log(inside / LOW) / math.log(HIGH / LOW)


def render(rows: Sequence[Row], title: str) -> str:
    """The chart's text: a block for each family, a group for each workload, a bar for each number of threads."""
    threads = sorted({row.threads for row in rows})
    colours: dict[int, str] = dict(zip(threads, COLOURS, strict=False))
    parts: list[str] = []
    top = 2 * HEAD
    families = [family for family in TARGETS if any(row.family == family for row in rows)]
    for family in families:
        chosen = [row for row in rows if row.family == family]
        block, top = _family(family, chosen, colours, top)
        parts += block
    height = top + HEAD
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL + PLOT + NOTE} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text x="10" y="20" class="family">{escape(title)}</text>',
        *_legend(colours),
        *_axis(2 * HEAD - 8, top),
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def _legend(colours: dict[int, str]) -> list[str]:
    parts: list[str] = []
    for number, (threads, colour) in enumerate(colours.items()):
        x = 10 + number * 95
        name = f"{threads} thread{'s' * (threads > 1)}"
        parts.append(
            f'<rect x="{x}" y="30" width="12" height="{BAR}" fill="{colour}"/><text x="{x + 17}" y="39">{name}</text>'
        )
    x = 10 + len(colours) * 95
    parts.append(
        f'<line x1="{x}" x2="{x + 20}" y1="35" y2="35" class="target"/><text x="{x + 26}" y="39">target</text>'
    )
    return parts


def _axis(top: float, bottom: float) -> list[str]:
    parts: list[str] = []
    for ratio in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        x = place(ratio)
        kind = "one" if ratio == 1 else "grid"
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" class="{kind}"/>')
        parts.append(f'<text x="{x:.1f}" y="{top - 4}" text-anchor="middle" class="small">{ratio:g}</text>')
    return parts


def _family(family: str, rows: Sequence[Row], colours: dict[int, str], top: float) -> tuple[list[str], float]:
    parts = [f'<text x="10" y="{top + 14}" class="family">{escape(family)}</text>', *_means(rows, top)]
    start = top
    top += HEAD - 8
    for name in dict.fromkeys(row.name for row in rows):
        group = [row for row in rows if row.name == name]
        middle = top + BAR * len(group) / 2 + 4
        parts.append(f'<text x="{LABEL - 8}" y="{middle:.1f}" text-anchor="end">{escape(name)}</text>')
        for row in group:
            parts += _bar(row, colours[row.threads], top)
            top += BAR
        top += GAP
    x = place(TARGETS[family])
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{start + 4}" y2="{top}" class="target"/>')
    return parts, top + GAP


def _means(rows: Sequence[Row], top: float) -> list[str]:
    texts: list[str] = []
    for threads in sorted({row.threads for row in rows}):
        ratios = [found.ratio for row in rows if row.threads == threads and (found := verdict(row)) is not None]
        mean = geometric_mean(ratios)
        texts += [] if mean is None else [f"{threads}T {mean:.2f}"]
    text = f"geometric mean {', '.join(texts)}" if texts else "no peer ran"
    return [f'<text x="{LABEL - 8}" y="{top + 14}" text-anchor="end" class="small">{text}</text>']


def _bar(row: Row, colour: str, top: float) -> list[str]:
    found = verdict(row)
    if found is None:
        return [f'<text x="{place(1) + 4:.1f}" y="{top + 8}" class="small">not run</text>']
    left, right = sorted((place(1.0), place(found.ratio)))
    return [
        f'<rect x="{left:.1f}" y="{top}" width="{max(1.0, right - left):.1f}" height="{BAR - 1}" fill="{colour}"/>',
        f'<text x="{right + 4:.1f}" y="{top + 8}" class="small">{found.ratio:.2f} ({escape(found.peer)})</text>',
    ]


def save(rows: Sequence[Row], title: str, file: Path) -> None:
    """Write the chart."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(rows, title), encoding="utf-8")
