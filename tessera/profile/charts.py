"""Charts of a report as inline SVG: curves over steps, and the roofline with a point for each kernel."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from tessera.diagnostics.error import format_count
from tessera.profile.roofline import RooflineRow
from tessera.types.frozen import frozen
from tessera.types.rates import Rates, format_time

Line: TypeAlias = "Sequence[float] | Sequence[tuple[float, float]]"
"""A curve: values at 0, 1, 2, ..., or pairs of a position and a value."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 12, 34
"""Pixels around the plane of a chart."""
PALETTE = 8
"""Colors that the style has, `--c0` and further."""


@frozen
class Axis:
    """From values to pixels, by their logarithm where `is_log`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high, given = (
            map(math.log10, (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        )
        return self.start + (given - low) / max(high - low, 1e-30) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values to write at the axis."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, (last - first) // 6 + 1)
            return [10.0**power for power in range(first, last + 1, step)]
        width = max(self.high - self.low, 1e-30) / 5
        size = 10 ** math.floor(math.log10(width))
        step = min((size * factor for factor in (1, 2, 5, 10)), key=lambda one: abs(one - width))
        first = math.ceil(self.low / step - 1e-9)
        return [(first + at) * step for at in range(int((self.high - first * step) / step + 1e-9) + 1)]


def format_number(value: float) -> str:
    """A number as an axis has it.

    >>> [format_number(one) for one in (0, 0.25, 1500, 2.5e7, 0.0001)]
    ['0', '0.25', '1.5k', '25M', '0.0001']
    """
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _frame(x: Axis, y: Axis, across: str, up: str, width: int, height: int) -> Iterable[str]:
    """The grid, its numbers, and what the axes are."""
    for value in y.ticks():
        at = y.at(value)
        yield f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="tick" x="{x.start - 6}" y="{at + 4:.1f}" text-anchor="end">{format_number(value)}</text>'
    for value in x.ticks():
        at = x.at(value)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{y.start}" y2="{y.end}"/>'
        yield f'<text class="tick" x="{at:.1f}" y="{y.start + 15}" text-anchor="middle">{format_number(value)}</text>'
    yield f'<text class="tick" x="{(x.start + x.end) / 2:.0f}" y="{height - 3}" text-anchor="middle">{across}</text>'
    middle = (y.start + y.end) / 2
    yield f'<text class="tick" transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle">{up}</text>'


def _svg(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    head = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(label)}">'
    return f"{head}\n{body}\n</svg>"


def line_chart(name: str, lines: Mapping[str, Line], across: str = "step") -> str:
    """Curves with a common plane; values that are no numbers leave a gap."""
    width, height = 900, 240
    curves = {label: _points(line) for label, line in lines.items()}
    known = [point for points in curves.values() for point in points if math.isfinite(point[1])]
    if not known:
        return f"<p>no values of {html.escape(name)}</p>"
    xs, ys = [point[0] for point in known], [point[1] for point in known]
    low, high = min(ys), max(ys)
    margin = (high - low or abs(high) or 1.0) * 0.06
    x = Axis(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, _LEFT, width - _RIGHT)
    y = Axis(low - margin, high + margin, height - _BOTTOM, _TOP)
    parts = [*_frame(x, y, html.escape(across), html.escape(name), width, height)]
    for number, (label, points) in enumerate(curves.items()):
        color = f"var(--c{number % PALETTE})"
        for run in _runs(points):
            path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in run)
            parts.append(f'<polyline class="curve" stroke="{color}" points="{path}"/>')
        last = next((point for point in reversed(points) if math.isfinite(point[1])), None)
        if last is not None:
            title = f"<title>{html.escape(label)}: {last[1]:.5g} at {last[0]:g}</title>"
            parts.append(
                f'<circle cx="{x.at(last[0]):.1f}" cy="{y.at(last[1]):.1f}" r="4" fill="{color}">{title}</circle>'
            )
    return _svg(width, height, name, parts) + _legend(
        (label, f"var(--c{number % PALETTE})", _last(points)) for number, (label, points) in enumerate(curves.items())
    )


def _last(points: Sequence[tuple[float, float]]) -> str:
    found = next((value for _, value in reversed(points) if math.isfinite(value)), None)
    return "" if found is None else f"{found:.4g}"


def _legend(items: Iterable[tuple[str, str, str]]) -> str:
    spans = "".join(
        f'<span><i style="background:{color}"></i>{html.escape(label)}{f" <b>{last}</b>" if last else ""}</span>'
        for label, color, last in items
    )
    return f'<div class="legend">{spans}</div>'


def _points(line: Line) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for number, one in enumerate(line):
        pair = (float(number), float(one)) if isinstance(one, int | float) else (float(one[0]), float(one[1]))
        found.append(pair)
    return found


def _runs(points: Sequence[tuple[float, float]]) -> Iterable[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    for point in points:
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def roofline_chart(
    rows: Sequence[RooflineRow], rates: Rates, kinds: Sequence[str], dtypes: Collection[str] = ()
) -> str:
    """Operations a second over operations per byte, both by logarithm: the roofs, and a point for each kernel.

    A point is as large as the kernel's part of the time; its color is that of its kind. Roofs are those of the `dtypes`
    that kernels compute in, or of all.
    """
    width, height = 900, 400
    shown = [row for row in rows if row.flops and row.bytes and row.time]
    if not shown:
        return "<p>no kernel computes anything that the model counts</p>"
    roofs = [(kind, rate) for kind, rate in rates.flops if kind in dtypes] or list(rates.flops)
    peak = max((rate for _, rate in roofs), default=1.0)
    slow, fast = rates.curve[-1][1], max(rate for _, rate in rates.curve)
    intensities = [row.intensity for row in shown]
    speeds = [row.flops / row.time for row in shown]
    x = Axis(min(*intensities, peak / fast) / 3, max(*intensities, peak / slow) * 3, _LEFT, width - _RIGHT, is_log=True)
    y = Axis(min(*speeds, peak / 100) / 2, max(*speeds, peak) * 2, height - _BOTTOM, _TOP, is_log=True)
    parts = [*_frame(x, y, "flop per byte", "Gflop/s", width, height)]
    for bandwidth, name, dashes in ((slow, "memory", ""), (fast, "caches", "5 4")):
        parts.append(_roof(x, y, bandwidth, peak, f"{name}, {bandwidth:.3g} GB/s", dashes))
    for kind, rate in roofs:
        if y.low < rate < y.high:
            first, at = x.at(max(rate / fast, x.low)), y.at(rate)
            label = f"{kind}, {rate:.3g} Gflop/s"
            parts.append(f'<line class="roof" x1="{first:.1f}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text class="tick" x="{x.end - 4}" y="{at - 5:.1f}" text-anchor="end">{label}</text>')
    total = sum(row.time for row in rows) or 1.0
    for row in sorted(shown, key=lambda row: -row.time):
        parts.append(_point(row, x, y, total, kinds))
    return _svg(width, height, "roofline", parts)


def _roof(x: Axis, y: Axis, bandwidth: float, peak: float, label: str, dashes: str) -> str:
    """The diagonal below which memory keeps kernels, as far as it is in the plane."""
    left = max(x.low, y.low / bandwidth)
    right = min(peak / bandwidth, x.high)
    x1, y1, x2, y2 = x.at(left), y.at(left * bandwidth), x.at(right), y.at(right * bandwidth)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    middle = f"translate({(x1 + x2) / 2:.1f} {(y1 + y2) / 2 - 6:.1f}) rotate({angle:.1f})"
    return (
        f'<line class="roof" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{style}/>'
        f'<text class="tick" transform="{middle}" text-anchor="middle">{html.escape(label)}</text>'
    )


def _point(row: RooflineRow, x: Axis, y: Axis, total: float, kinds: Sequence[str]) -> str:
    radius = 4 + 18 * math.sqrt(row.time / total)
    color = f"var(--c{kinds.index(row.kind) % PALETTE if row.kind in kinds else 0})"
    speed = row.flops / row.time
    launches = format_count(row.launches, "launch", "launches")
    about = (
        f"{row.kernel}\n{row.line}\n{format_time(row.time)}, {launches}, {speed:.3g} Gflop/s, "
        f"{row.share:.0%} of its {row.bound_by} bound"
    )
    return (
        f'<circle class="dot" cx="{x.at(row.intensity):.1f}" cy="{y.at(speed):.1f}" r="{radius:.1f}" fill="{color}">'
        f"<title>{html.escape(about)}</title></circle>"
    )
