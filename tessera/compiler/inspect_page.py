"""An inspection as one self-contained HTML page: levels side by side, kernels with their cost, LLVM and PTX."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from tessera.compiler.inspect import LEVELS, Inspection, KernelView, Line, line_number

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 15%, transparent);
  --soft: color-mix(in srgb, currentColor 60%, transparent); --mark: #ffd54a;
  --op: light-dark(#0550ae, #79c0ff); --value: light-dark(#116329, #7ee787); --type: light-dark(#6e7781, #8b949e);
  --string: light-dark(#0a3069, #a5d6ff); --number: light-dark(#953800, #ffa657); }
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; overflow: hidden; display: flex; flex-direction: column;
  font: 12px/1.5 ui-monospace, Menlo, Consolas, monospace; }
header { padding: 6px 12px; font: 13px system-ui, sans-serif; border-bottom: 1px solid var(--line); }
header label { margin-left: 10px; white-space: nowrap; }
#kernels { max-height: 28vh; overflow: auto; border-bottom: 1px solid var(--line); font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 3px 12px; }
td { overflow-wrap: anywhere; }
th { position: sticky; top: 0; white-space: nowrap; font-weight: 600; background: Canvas;
  border-bottom: 1px solid var(--line); }
td.name { font-weight: 600; cursor: pointer; }
td small { color: var(--soft); font-weight: 400; }
button { font: inherit; padding: 0 8px; }
main { flex: 1; display: flex; min-height: 0; min-width: 0; }
section { display: flex; flex-direction: column; min-height: 0; min-width: 0; flex: 1 1 0; overflow: hidden; }
section:first-child { flex-grow: .85; }
section.hidden, section.hidden + .handle { display: none; }
.handle { flex: 0 0 6px; cursor: col-resize; background: var(--line); touch-action: none; }
.handle:hover, .handle:focus { background: var(--op); outline: none; }
h2 { margin: 0; padding: 3px 10px; font: 600 12px system-ui, sans-serif; border-bottom: 1px solid var(--line); }
.lines { overflow-x: hidden; overflow-y: auto; flex: 1; padding: 4px 0; }
.l { --hang: calc((var(--i, 0) + 4) * 1ch); white-space: pre-wrap; overflow-wrap: anywhere;
  padding: 0 8px 0 calc(8px + var(--hang)); text-indent: calc(-1 * var(--hang)); }
.l[data-k] { cursor: pointer; }
.l[data-k]:hover { background: var(--line); }
.l.on, .l.on * { background: var(--mark); color: #000; }
.o { color: var(--op); } .v { color: var(--value); } .t { color: var(--type); } .s { color: var(--string); }
.n { color: var(--number); } .c { color: var(--soft); font-style: italic; }
#code { height: 40vh; display: flex; flex-direction: column; border-top: 2px solid var(--line); }
#code[hidden] { display: none; }
#code h2 { display: flex; justify-content: space-between; }
"""

_SCRIPT = r"""
const data = JSON.parse(document.getElementById('data').textContent);
const lines = [...document.querySelectorAll('.l[data-k]')];
const keysOf = (line) => line.dataset.k.split(' ');
// The parts of a pattern, in the order of `classes`: strings, comments, values, types, ops and words, numbers.
const pattern = (...parts) => new RegExp(parts.map((part) => `(${part.source})`).join('|'), 'g');
const string = /"(?:[^"\\]|\\.)*"/;
const number = /-?\b\d[\w.+]*\b/;
const rules = {
  ir: pattern(
    string, /\/\/.*/, /%[\w.$#:-]+|\^\w+/, /![\w.]+(?:<(?:[^<>]|<[^<>]*>)*>)?/,
    /@[\w.$]+|\bt(?:graph|sched|tile|target)\.[\w.]+/, number),
  python: pattern(
    /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/, /#.*/, /@[\w.]+/, /\b(?:None|True|False)\b/,
    /\b(?:def|return|for|in|if|else|elif|while|with|as|import|from|lambda|not|and|or|class)\b/, number),
  llvm: pattern(
    string, /;.*/, /%[\w.$-]+/, /\b(?:i\d+|float|double|half|bfloat|ptr|void|label|metadata)\b|<\d+ x \w+>/,
    /@[\w.$]+|\b(?:define|declare|call|load|store|br|ret|phi|select|getelementptr|f?(?:add|sub|mul|div))\b/, number),
  ptx: pattern(
    string, /\/\/.*/, /%[\w.]+/, /\.(?:b|u|s|f|pred|bf|v)\d*\b/, /\b[a-z]\w*(?:\.[\w:]+)+|^\s*\.\w+/, number),
};
const classes = ['s', 'c', 'v', 't', 'o', 'n'];
const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[sign]);
function highlight(text, language) {
  let found = '', at = 0;
  for (const match of text.matchAll(rules[language])) {
    const kind = match.slice(1).findIndex((part) => part !== undefined);
    found += escape(text.slice(at, match.index)) + `<span class="${classes[kind]}">${escape(match[0])}</span>`;
    at = match.index + match[0].length;
  }
  return found + escape(text.slice(at));
}
function paint(element, language) {
  const text = element.textContent;
  if (text.trim()) element.innerHTML = highlight(text, language);
}
for (const line of document.querySelectorAll('main .l'))
  paint(line, line.parentElement.dataset.level === 'source' ? 'python' : 'ir');

function light(keys, chosen) {
  const wanted = new Set(keys), seen = new Set();
  for (const line of lines) {
    const on = keysOf(line).some((key) => wanted.has(key));
    line.classList.toggle('on', on);
    const pane = line.parentElement;
    if (on && line !== chosen && (!chosen || pane !== chosen.parentElement) && !seen.has(pane)) {
      seen.add(pane);
      pane.scrollTop = line.offsetTop - pane.offsetTop - pane.clientHeight / 3;
    }
  }
}
for (const line of lines) line.addEventListener('click', () => light(keysOf(line), line));
addEventListener('keydown', (event) => {
  if (event.key === 'Escape') { light([]); document.getElementById('code').hidden = true; }
});

const code = document.getElementById('code');
function show(number, language) {
  const kernel = data.kernels[number];
  code.querySelector('h2 span').textContent = `${language === 'ptx' ? 'PTX' : 'LLVM'} of ${kernel.name}`;
  code.querySelector('.lines').innerHTML = kernel[language].split('\n')
    .map((text) => `<div class="l">${highlight(text, language) || '&nbsp;'}</div>`).join('');
  code.hidden = false;
}
for (const button of document.querySelectorAll('button[data-show]'))
  button.addEventListener('click', () => show(Number(button.dataset.kernel), button.dataset.show));
document.getElementById('close').addEventListener('click', () => { code.hidden = true; });
for (const cell of document.querySelectorAll('td.name'))
  cell.addEventListener('click', () => light(cell.dataset.k ? cell.dataset.k.split(' ') : []));

function resize(handle, by) {
  const left = handle.previousElementSibling, right = handle.nextElementSibling;
  const shown = [...document.querySelectorAll('main > section:not(.hidden)')];
  const widths = shown.map((section) => section.getBoundingClientRect().width);
  const at = shown.indexOf(left), to = shown.indexOf(right);
  if (at < 0 || to < 0) return;
  const moved = Math.max(80 - widths[at], Math.min(by, widths[to] - 80));
  widths[at] += moved;
  widths[to] -= moved;
  shown.forEach((section, number) => { section.style.flex = `${widths[number]} 1 0`; });
}
for (const handle of document.querySelectorAll('.handle')) {
  handle.addEventListener('pointerdown', (event) => {
    let last = event.clientX;
    const move = (next) => { resize(handle, next.clientX - last); last = next.clientX; };
    const stop = () => { removeEventListener('pointermove', move); removeEventListener('pointerup', stop); };
    addEventListener('pointermove', move);
    addEventListener('pointerup', stop);
    event.preventDefault();
  });
  handle.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') resize(handle, event.key === 'ArrowLeft' ? -20 : 20);
  });
}
for (const box of document.querySelectorAll('header input'))
  box.addEventListener('change', () => {
    document.querySelector(`[data-level="${box.value}"]`).parentElement.classList.toggle('hidden', !box.checked);
  });
"""


def page(inspection: Inspection, title: str) -> str:
    """The whole page; nothing is loaded from elsewhere."""
    numbers = {key: str(number) for number, key in enumerate(inspection.sources)}
    source = [Line(f"{line_number(key):>4}  {text}", frozenset([key])) for key, text in inspection.sources.items()]
    panes = [("source", source), *((level, list(inspection.levels[level])) for level in LEVELS)]
    handle = '\n<div class="handle" tabindex="0" role="separator" aria-orientation="vertical"></div>\n'
    sections = handle.join(_section(name, lines, numbers) for name, lines in panes)
    boxes = "".join(f'<label><input type="checkbox" value="{name}" checked> {name}</label>' for name, _ in panes)
    kernels = [{"name": one.name, "llvm": one.llvm, "ptx": one.ptx} for one in inspection.kernels]
    # `</` would end the element that holds the data.
    data = json.dumps({"sources": list(inspection.sources), "kernels": kernels}).replace("</", "<\\/")
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style></head><body>\n"
        f"<header><b>{html.escape(title)}</b>: click a line or a kernel to see it at every level, drag the bars "
        f"between columns; Escape clears {boxes}</header>\n"
        f'<div id="kernels">{_table(inspection.kernels, numbers)}</div>\n'
        f"<main>{sections}</main>\n"
        '<div id="code" hidden><h2><span></span><button id="close">close</button></h2><div class="lines"></div></div>\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{_SCRIPT}</script>\n"
        "</body></html>\n"
    )


def _section(name: str, lines: Sequence[Line], numbers: dict[str, str]) -> str:
    body = "\n".join(_row(line, numbers) for line in lines)
    return f'<section><h2>{name}</h2><div class="lines" data-level="{name}">\n{body}\n</div></section>'


def _marks(keys: frozenset[str], numbers: dict[str, str]) -> str:
    listed = " ".join(sorted((numbers[key] for key in keys if key in numbers), key=int))
    return f' data-k="{listed}"' if listed else ""


def _row(line: Line, numbers: dict[str, str]) -> str:
    indent = len(line.text) - len(line.text.lstrip())
    style = f' style="--i:{indent}"' if indent else ""
    return f'<div class="l"{_marks(line.keys, numbers)}{style}>{html.escape(line.text) or "&nbsp;"}</div>'


_COLUMNS = ("kernel", "runs", "flops", "bytes", "time, one core", "on a GPU", "code")


def _table(kernels: Sequence[KernelView], numbers: dict[str, str]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = "\n".join(_kernel_row(number, one, numbers) for number, one in enumerate(kernels))
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _kernel_row(number: int, one: KernelView, numbers: dict[str, str]) -> str:
    cells = (one.grid, one.flops, one.bytes, one.time, one.gpu)
    buttons = "".join(
        f'<button data-kernel="{number}" data-show="{language}">{language.upper()}</button> '
        for language in ("llvm", "ptx")
        if getattr(one, language)
    )
    name = f"{html.escape(one.name)}<br><small>{html.escape(one.detail)}</small>"
    listed = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    return f'<tr><td class="name"{_marks(one.sources, numbers)}>{name}</td>{listed}<td>{buttons}</td></tr>'
