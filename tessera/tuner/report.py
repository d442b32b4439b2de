"""What a search found, for people: a table for a terminal, and one HTML file with every candidate and no other file."""

from __future__ import annotations

import html as markup
import math
import statistics
from collections.abc import Mapping, Sequence

from tessera.diagnostics.error import format_count
from tessera.tuner.learned import spearman
from tessera.tuner.protocol import relative_time
from tessera.tuner.records import Trial
from tessera.tuner.search import Outcome
from tessera.types.rates import format_time

_WIDTH, _HEIGHT, _MARGIN = 640, 420, 56
"""Of the scatter, in pixels."""
_BARS = 24
"""Plans that have a bar; all are in the table."""


def table(outcome: Outcome, accepted: bool | None = None, limit: int | None = 20, width: int | None = 48) -> str:
    """The best plans, then those that failed, each with time, predicted time, gain over the safe plan, and reason.

    `accepted` says whether the best plan is adopted, where that was decided; `limit` bounds the rows, and `width` the
    text of a plan: a terminal has a width, and a file has none.
    """
    shown = outcome.trials[:limit]
    rows = [("plan", "time", "predicted", "safe plan", "speed-up", "why not"), *(_row(one) for one in shown)]
    cut = [(_cut(row[0], width), *row[1:]) for row in rows]
    widths = [max(len(row[column]) for row in cut) for column in range(5)]
    lines = [_aligned_line(row, widths) for row in cut]
    lines.insert(1, "-" * max(len(line) for line in lines))
    if len(outcome.trials) > len(shown):
        lines.append(f"and {len(outcome.trials) - len(shown)} more")
    return "\n".join([*lines, "", *summary(outcome, accepted)])


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def _aligned_line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Columns under each other: the plan and the reason from the left, numbers from the right."""
    numbers = [cell.rjust(size) for cell, size in zip(row[1:5], widths[1:], strict=True)]
    return "  ".join([row[0].ljust(widths[0]), *numbers, row[5]]).rstrip()


def _row(trial: Trial) -> tuple[str, str, str, str, str, str]:
    time, safe = trial.time, _safe_time(trial)
    return (
        str(trial.plan),
        format_time(time) if time is not None else "",
        format_time(trial.predicted) if trial.predicted is not None and math.isfinite(trial.predicted) else "",
        format_time(safe) if safe is not None else "",
        f"{1 / relative_time(trial):.3f}" if trial.baseline else "",
        trial.reason,
    )


def _safe_time(trial: Trial) -> float | None:
    return statistics.median(trial.baseline) if trial.baseline else None


def summary(outcome: Outcome, accepted: bool | None = None) -> list[str]:
    """What it comes to, in a few lines."""
    share = f"{outcome.share:.0%}".replace("%", " %")
    lines = [
        f"{outcome.mode} search, seed {outcome.seed}: "
        f"{outcome.measured} of {format_count(outcome.size, 'plan')} measured ({share}) in {outcome.seconds:.1f} s"
    ]
    if outcome.stopped:
        ended = {"budget": "the budget was over", "interrupted": "it was interrupted"}
        lines.append(f"stopped early: {ended.get(outcome.stopped, outcome.stopped)}; the best so far is kept")
    agreement = rank_agreement(outcome)
    if agreement is not None:
        lines.append(f"rank correlation of predicted and measured time: {agreement:.2f}")
    if outcome.best is None:
        lines.append("no plan may replace the safe plan")
    else:
        word = {True: "adopted", False: "not adopted: the safe plan stays", None: "best"}[accepted]
        lines.append(f"{word}: {outcome.best.plan}, {_row(outcome.best)[4] or '?'} times as fast as the safe plan")
    return lines


def rank_agreement(outcome: Outcome) -> float | None:
    """Spearman's correlation of predicted and measured times; None where fewer than three have both."""
    both = _both(outcome.trials)
    if len(both) < 3:
        return None
    return spearman([predicted for predicted, _, _ in both], [measured for _, measured, _ in both])


def _both(trials: Sequence[Trial]) -> list[tuple[float, float, Trial]]:
    return [
        (trial.predicted, trial.time, trial)
        for trial in trials
        if trial.predicted is not None and trial.time is not None and math.isfinite(trial.predicted)
    ]


# HTML: one file, with its style and its charts inside; nothing is fetched and no script runs.

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .25rem .6rem; text-align: right; }
th { border-bottom: 2px solid #8c959f; } td { border-bottom: 1px solid #d0d7de; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
td:first-child { font-family: ui-monospace, monospace; font-size: 13px; }
tr.winner { background: #dafbe1; } tr.failed { color: #6e7781; }
svg text { font: 12px system-ui, sans-serif; fill: #57606a; }
.dot { fill: #0969da; fill-opacity: .65; } .dot.winner { fill: #1a7f37; fill-opacity: 1; } .dot.failed { fill: #cf222e; }
.bar { fill: #54aeff; } .bar.winner { fill: #2da44e; } .line { stroke: #d0d7de; } .diagonal { stroke: #8c959f; stroke-dasharray: 4 4; }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; } tr.winner { background: #12301c; } td { border-color: #30363d; } }
"""  # noqa: E501 - one rule a line


def html(
    outcome: Outcome,
    title: str = "Tuning",
    accepted: bool | None = None,
    readings: Mapping[str, float | None] | None = None,
) -> str:
    """The whole report: what it comes to, predicted against measured times, bars of the fastest, and every candidate.

    `readings` are what the device reported meanwhile (power, bandwidth), None for what it does not report.
    """
    parts = [f"<p>{_text(line)}</p>" for line in summary(outcome, accepted)]
    if readings:
        shown = ((name, "not reported" if value is None else f"{value:.4g}") for name, value in readings.items())
        parts.append("<ul>" + "".join(f"<li>{_text(name)}: {_text(value)}</li>" for name, value in shown) + "</ul>")
    if _both(outcome.trials):
        parts += ["<h2>Predicted and measured</h2>", _scatter(outcome)]
    if any(trial.samples for trial in outcome.trials):
        parts += ["<h2>Fastest plans</h2>", _bars(outcome)]
    parts += ["<h2>Every candidate</h2>", _rows(outcome)]
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{_STYLE}</style>'
    body = f"<h1>{_text(title)}</h1>" + "".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _text(value: object) -> str:
    return markup.escape(str(value))


def _kind(trial: Trial, outcome: Outcome) -> str:
    if outcome.best is not None and trial.plan == outcome.best.plan:
        return "winner"
    return "failed" if trial.reason else ""


def _rows(outcome: Outcome) -> str:
    reported = sorted({name for trial in outcome.trials for name, _ in trial.readings})
    names = ("plan", "time", "predicted", "safe plan", "speed-up", "rounds", *reported, "why not")
    head = "".join(f"<th>{name}</th>" for name in names)
    body: list[str] = []
    for trial in outcome.trials:
        cells = list(_row(trial))
        readings = dict(trial.readings)
        cells[5:5] = [str(len(trial.samples)) if trial.samples else "", *(_reading(readings, one) for one in reported)]
        body.append(
            f'<tr class="{_kind(trial, outcome)}">' + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>"
        )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _reading(readings: Mapping[str, float | None], name: str) -> str:
    """What the device reported while a plan ran; nothing for one that did not run."""
    if name not in readings:
        return ""
    value = readings[name]
    return "not reported" if value is None else f"{value:.4g}"


def _scatter(outcome: Outcome) -> str:
    """Points of predicted and measured time, both by their logarithm; on the dashed line the model is right."""
    both = _both(outcome.trials)
    low = math.log(min(min(predicted, measured) for predicted, measured, _ in both)) - 0.05
    high = math.log(max(max(predicted, measured) for predicted, measured, _ in both)) + 0.05

    def across(value: float) -> float:
        return _MARGIN + (math.log(value) - low) / (high - low) * (_WIDTH - 2 * _MARGIN)

    def down(value: float) -> float:
        return _HEIGHT - _MARGIN - (math.log(value) - low) / (high - low) * (_HEIGHT - 2 * _MARGIN)

    start, end = math.exp(low), math.exp(high)
    parts = [_line(across(start), down(start), across(end), down(end), "diagonal")]
    for tick in _ticks(start, end):
        parts += [_line(across(tick), down(start), across(tick), down(end), "line")]
        parts += [_line(across(start), down(tick), across(end), down(tick), "line")]
        label = format_time(tick)
        parts.append(f'<text x="{across(tick):.1f}" y="{_HEIGHT - _MARGIN + 18}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{_MARGIN - 6}" y="{down(tick) + 4:.1f}" text-anchor="end">{label}</text>')
    for predicted, measured, trial in both:
        note = _text(f"{trial.plan}: predicted {format_time(predicted)}, measured {format_time(measured)}")
        at = f'cx="{across(predicted):.1f}" cy="{down(measured):.1f}"'
        parts.append(f'<circle class="dot {_kind(trial, outcome)}" {at} r="4"><title>{note}</title></circle>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">predicted</text>')
    parts.append(f'<text x="12" y="{_HEIGHT / 2}" transform="rotate(-90 12 {_HEIGHT / 2})">measured</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _ticks(low: float, high: float) -> list[float]:
    """Some round numbers between two: 1, 2 and 5 of each power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [step * 10.0**power for power in powers for step in (1, 2, 5) if low <= step * 10.0**power <= high]
    return found[:: max(1, len(found) // 6)]


def _bars(outcome: Outcome) -> str:
    """How long each of the fastest plans takes, with the safe plan's as a line at its own time."""
    ran = [trial for trial in outcome.trials if trial.samples][:_BARS]
    times = [trial.time or 0.0 for trial in ran]
    scale = (_WIDTH - 2 * _MARGIN) / max(times)
    parts: list[str] = []
    for number, (trial, time) in enumerate(zip(ran, times, strict=True)):
        top = 20 * number
        name = _text(f"{trial.plan}: {format_time(time)}")
        parts.append(
            f'<rect class="bar {_kind(trial, outcome)}" x="0" y="{top + 2}" width="{time * scale:.1f}" height="14">'
            f'<title>{name}</title></rect><text x="{time * scale + 6:.1f}" y="{top + 13}">{format_time(time)}</text>'
        )
        safe = _safe_time(trial)
        if safe is not None:
            parts.append(_line(safe * scale, top, safe * scale, top + 18, "diagonal"))
    height = 20 * len(ran) + 4
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'
