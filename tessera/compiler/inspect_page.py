"""An inspection as one self-contained HTML page: a click on a line lights up what it came from and what it became."""

from __future__ import annotations

import html
import json

from tessera.compiler.inspect import LEVELS, Inspection, Line

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 12%, transparent); }
body { margin: 0; font: 13px/1.45 ui-monospace, monospace; display: flex; flex-direction: column; height: 100vh; }
header { padding: 8px 12px; border-bottom: 1px solid var(--line); font: 14px system-ui, sans-serif; }
main { flex: 1; display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); min-height: 0; }
section { display: flex; flex-direction: column; min-height: 0; border-right: 1px solid var(--line); }
h2 { margin: 0; padding: 4px 12px; font: 600 12px system-ui, sans-serif; border-bottom: 1px solid var(--line); }
.lines { overflow: auto; flex: 1; padding: 4px 0; }
.l { white-space: pre; padding: 0 12px; min-width: max-content; }
.l[data-k] { cursor: pointer; }
.l[data-k]:hover { background: var(--line); }
.on { background: #ffd54a; color: #000; }
"""

_SCRIPT = """
const lines = [...document.querySelectorAll('.l[data-k]')];
const keysOf = (line) => line.dataset.k.split(' ');
function light(chosen) {
  const keys = new Set(keysOf(chosen));
  const seen = new Set();
  for (const line of lines) {
    const on = keysOf(line).some((key) => keys.has(key));
    line.classList.toggle('on', on);
    const pane = line.parentElement;
    if (on && line !== chosen && pane !== chosen.parentElement && !seen.has(pane)) {
      seen.add(pane);
      pane.scrollTop = line.offsetTop - pane.offsetTop - pane.clientHeight / 3;
    }
  }
}
for (const line of lines) line.addEventListener('click', () => light(line));
addEventListener('keydown', (event) => {
  if (event.key === 'Escape') for (const line of lines) line.classList.remove('on');
});
"""


def page(inspection: Inspection, title: str) -> str:
    """The whole page; nothing is loaded from elsewhere."""
    numbers = {key: str(number) for number, key in enumerate(inspection.sources)}
    source = [Line(_source_line(key, text), frozenset([key])) for key, text in inspection.sources.items()]
    panes = [("source", source), *((level, list(inspection.levels[level])) for level in LEVELS)]
    sections = "\n".join(_section(name, lines, numbers) for name, lines in panes)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head><body>\n"
        f"<header><b>{html.escape(title)}</b>: click a line to see it at every level; Escape clears</header>\n"
        f"<main>{sections}</main>\n"
        f"<script>{_SCRIPT}</script>\n"
        f'<script type="application/json" id="sources">{json.dumps(list(inspection.sources))}</script>\n'
        "</body></html>\n"
    )


def _source_line(key: str, text: str) -> str:
    return f"{key.rpartition(':')[2]:>4}  {text}"


def _section(name: str, lines: list[Line], numbers: dict[str, str]) -> str:
    body = "\n".join(_row(line, numbers) for line in lines)
    return f'<section><h2>{name}</h2><div class="lines" data-level="{name}">\n{body}\n</div></section>'


def _row(line: Line, numbers: dict[str, str]) -> str:
    keys = " ".join(sorted((numbers[key] for key in line.keys), key=int))
    marked = f' data-k="{keys}"' if keys else ""
    return f'<div class="l"{marked}>{html.escape(line.text) or "&nbsp;"}</div>'
