"""The style and the script of a report: light and dark, and timelines that are zoomed together."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --back: light-dark(#f6f7f9, #14161a); --card: light-dark(#fff, #1c1f25);
  --ink: light-dark(#1c2128, #e4e7ec); --soft: light-dark(#5d6673, #98a1ae); --line: light-dark(#dfe3e8, #31363f);
  --mark: light-dark(#fff3bf, #5a4a00);
  --c0: light-dark(#2f6fed, #6ea0ff); --c1: light-dark(#1a9850, #57c785); --c2: light-dark(#e8710a, #ff9f45);
  --c3: light-dark(#a142f4, #c58af9); --c4: light-dark(#d93025, #ff7b72); --c5: light-dark(#12859c, #4fc3d9);
  --c6: light-dark(#b06000, #dcae5a); --c7: light-dark(#c2185b, #f78fb3); }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 14px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { margin: 0 0 2px; font-size: 26px; overflow-wrap: anywhere; }
h2 { margin: 0 0 10px; font-size: 17px; }
h2 small, p.note { color: var(--soft); font-weight: 400; font-size: 13px; }
p { margin: 4px 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  margin-top: 18px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 18px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 10px 14px; }
.tile b { display: block; font-size: 20px; font-weight: 650; } .tile span { color: var(--soft); font-size: 12.5px; }
code, pre, .mono { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 12px; }
.chart { width: 100%; height: auto; display: block; }
.chart .grid, svg.time .grid { stroke: var(--line); stroke-width: 1; }
.chart .tick, svg.time .tick { fill: var(--soft); font-size: 11.5px; }
.chart .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .roof { stroke: var(--soft); stroke-width: 1.6; }
.chart .dot { fill-opacity: .62; stroke: var(--card); stroke-width: 1; } .chart .dot:hover { fill-opacity: 1; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin-top: 6px; font-size: 12.5px; color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 5px; }
.legend b { color: var(--ink); }
svg.time { width: 100%; display: block; cursor: grab; touch-action: none; user-select: none; }
svg.time:active { cursor: grabbing; }
svg.time rect.bar { stroke: var(--card); stroke-width: .6; } svg.time rect.bar:hover { stroke: var(--ink); }
svg.time rect.faint { opacity: .22; }
svg.time text.name { fill: light-dark(#fff, #111); font-size: 11px; pointer-events: none; }
svg.time .peak { stroke: var(--c4); stroke-width: 1.4; stroke-dasharray: 6 4; }
#tip { position: fixed; z-index: 9; max-width: 480px; padding: 7px 10px; border-radius: 7px; pointer-events: none;
  background: light-dark(#1c2128, #e9ecf1); color: light-dark(#fff, #14161a); font-size: 12px; white-space: pre-line;
  overflow-wrap: anywhere; display: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 12.5px; }
th, td { padding: 4px 9px; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; cursor: pointer; } td.n, th.n { text-align: right; }
td.n { white-space: nowrap; font-variant-numeric: tabular-nums; } td.mono { overflow-wrap: anywhere; min-width: 180px; }
tr.on td { background: var(--mark); }
.bar { position: relative; } .meter { height: 4px; border-radius: 2px; background: var(--line); margin-top: 3px; }
.meter i { display: block; height: 4px; border-radius: 2px; background: var(--c0); }
.levels { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(300px, 1fr); gap: 10px; overflow-x: auto; }
.levels h3 { margin: 0 0 4px; font-size: 13px; color: var(--soft); }
.level { min-width: 0; } .level pre { margin: 0; max-height: 460px; overflow: auto; border: 1px solid var(--line);
  border-radius: 8px; padding: 8px; background: var(--back); line-height: 1.45; }
.level .l { display: block; white-space: pre; min-height: 1.45em; } .level .l[data-k] { cursor: pointer; }
.level .l.on { background: var(--mark); }
details > summary { cursor: pointer; color: var(--soft); margin-top: 8px; }
footer { color: var(--soft); font-size: 12px; margin-top: 18px; }
"""

SCRIPT = r"""
const data = JSON.parse(document.getElementById('data').textContent);
const tip = document.getElementById('tip');
const make = (name, attributes, parent) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.appendChild(made);
  return made;
};
const time = (ns) => {
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['us', 1e3]])
    if (Math.abs(ns) >= size) return `${+(ns / size).toPrecision(4)} ${unit}`;
  return `${+ns.toPrecision(4)} ns`;
};
const bytes = (count) => {
  for (const [unit, size] of [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]])
    if (count >= size) return `${+(count / size).toPrecision(3)} ${unit}`;
  return `${count} B`;
};
const nice = (width) => {
  const size = 10 ** Math.floor(Math.log10(width || 1));
  return [1, 2, 5, 10].map((one) => one * size).find((one) => one >= width) || size;
};
function say(event, text) {
  tip.textContent = text;
  tip.style.display = 'block';
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16 + tip.offsetHeight < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
}
const hush = () => { tip.style.display = 'none'; };

// Timelines: all show the same part of the call.
const view = { low: 0, high: data.duration };
let chosen = null;
const left = 96, right = 10;
const charts = [];
const across = (chart, ns) => left + (ns - view.low) / (view.high - view.low) * (chart.width - left - right);
function axis(chart, height) {
  const step = nice((view.high - view.low) / 8);
  for (let at = Math.ceil(view.low / step) * step; at <= view.high; at += step) {
    const x = across(chart, at);
    make('line', { class: 'grid', x1: x, x2: x, y1: 0, y2: height - 18 }, chart.svg);
    make('text', { class: 'tick', x, y: height - 4, 'text-anchor': 'middle' }, chart.svg).textContent = time(at);
  }
}
function bar(chart, start, end, y, height, color, name, text, faint) {
  if (end < view.low || start > view.high) return;
  const x = Math.max(left, across(chart, start));
  const width = Math.max(.7, Math.min(chart.width - right, across(chart, end)) - x);
  const kinds = `bar${faint ? ' faint' : ''}`;
  const made = make('rect', { class: kinds, x, y, width, height, rx: height > 8 ? 2 : 0, fill: color }, chart.svg);
  made.addEventListener('pointermove', (event) => say(event, text()));
  made.addEventListener('pointerleave', hush);
  if (width > 34 && height > 11) {
    const letters = Math.floor((width - 8) / 6.6);
    const shown = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
    make('text', { class: 'name', x: x + 4, y: y + height / 2 + 4 }, chart.svg).textContent = shown;
  }
  return made;
}
function drawKernels(chart) {
  const row = 30, height = data.tracks.length * (row + 6) + 24;
  chart.svg.setAttribute('height', height);
  axis(chart, height);
  data.tracks.forEach((name, at) => {
    make('text', { class: 'tick', x: 0, y: at * (row + 6) + 19 }, chart.svg).textContent = name;
  });
  for (const one of data.events) {
    const kernel = data.kernels[one.k];
    const text = () => `${kernel.name}\n${one.line || kernel.line}\n${one.text || ''}\n` +
      `${time(one.e - one.s)}, from ${time(one.s)}${kernel.about ? `\n${kernel.about}` : ''}`;
    const faint = chosen !== null && chosen !== one.k;
    const made = bar(chart, one.s, one.e, one.t * (row + 6), row, `var(--c${kernel.color})`, kernel.short, text, faint);
    if (made) made.addEventListener('click', () => choose(chosen === one.k ? null : one.k));
  }
}
function drawMemory(chart) {
  const height = 340, plane = height - 24;
  const up = (count) => plane - count / Math.max(1, data.memory.top) * (plane - 8);
  chart.svg.setAttribute('height', height);
  axis(chart, height);
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(data.memory.top / 6)));
  for (let at = 0; at <= data.memory.top; at += step) {
    make('line', { class: 'grid', x1: left, x2: chart.width - right, y1: up(at), y2: up(at) }, chart.svg);
    const label = { class: 'tick', x: left - 6, y: up(at) + 4, 'text-anchor': 'end' };
    make('text', label, chart.svg).textContent = bytes(at);
  }
  for (const one of data.memory.tensors) {
    const text = () => `${one.name}\n${one.kind}, ${one.shape}, ${bytes(one.b)} at ${bytes(one.o)}\n${one.line}\n` +
      `${time(one.s)} to ${time(one.e)}`;
    const y = up(one.o + one.b);
    bar(chart, one.s, one.e, y, Math.max(.8, up(one.o) - y), `var(--c${one.c})`, one.name, text, false);
  }
  const peak = data.memory.base + data.memory.peak;
  const line = { class: 'peak', x1: left, x2: chart.width - right, y1: up(peak), y2: up(peak) };
  make('line', line, chart.svg);
}
function redraw() {
  for (const chart of charts) {
    chart.svg.replaceChildren();
    chart.width = chart.svg.clientWidth || 1000;
    chart.draw(chart);
  }
}
function move(low, high) {
  const width = Math.min(data.duration, Math.max(200, high - low));
  view.low = Math.max(0, Math.min(low, data.duration - width));
  view.high = view.low + width;
  redraw();
}
function choose(kernel) {
  chosen = kernel;
  for (const row of document.querySelectorAll('tr[data-kernel]'))
    row.classList.toggle('on', kernel !== null && Number(row.dataset.kernel) === kernel);
  redraw();
}
for (const [id, draw] of [['kernels', drawKernels], ['memory', drawMemory]]) {
  const svg = document.getElementById(id);
  if (!svg) continue;
  const chart = { svg, draw, width: 1000 };
  charts.push(chart);
  svg.addEventListener('wheel', (event) => {
    event.preventDefault();
    const part = (event.clientX - svg.getBoundingClientRect().left - left) / (chart.width - left - right);
    const at = view.low + Math.max(0, Math.min(1, part)) * (view.high - view.low);
    const factor = event.deltaY > 0 ? 1.25 : .8;
    move(at - (at - view.low) * factor, at + (view.high - at) * factor);
  }, { passive: false });
  svg.addEventListener('pointerdown', (event) => {
    let last = event.clientX;
    const drag = (next) => {
      const by = (last - next.clientX) / (chart.width - left - right) * (view.high - view.low);
      last = next.clientX;
      move(view.low + by, view.high + by);
    };
    const stop = () => { removeEventListener('pointermove', drag); removeEventListener('pointerup', stop); };
    addEventListener('pointermove', drag);
    addEventListener('pointerup', stop);
  });
  svg.addEventListener('dblclick', () => move(0, data.duration));
}
addEventListener('resize', redraw);
redraw();

for (const row of document.querySelectorAll('tr[data-kernel]')) {
  const kernel = Number(row.dataset.kernel);
  row.addEventListener('click', () => choose(chosen === kernel ? null : kernel));
}
for (const head of document.querySelectorAll('th'))
  head.addEventListener('click', () => {
    const table = head.closest('table'), body = table.tBodies[0], at = [...head.parentElement.children].indexOf(head);
    const down = head.dataset.down !== '1';
    head.dataset.down = down ? '1' : '';
    const value = (row) => {
      const text = row.cells[at].dataset.v ?? row.cells[at].textContent;
      return text !== '' && !isNaN(text) ? Number(text) : text;
    };
    const isNumber = (one) => typeof one === 'number';
    const order = (a, b) => (isNumber(a) && isNumber(b) ? a - b : String(a).localeCompare(String(b)));
    const rows = [...body.rows].sort((a, b) => (down ? -1 : 1) * order(value(a), value(b)));
    body.append(...rows);
  });
const lines = [...document.querySelectorAll('.level .l[data-k]')];
for (const line of lines)
  line.addEventListener('click', () => {
    const wanted = new Set(line.classList.contains('on') ? [] : line.dataset.k.split(' ')), seen = new Set();
    for (const one of lines) {
      const on = one.dataset.k.split(' ').some((key) => wanted.has(key)), pane = one.parentElement;
      one.classList.toggle('on', on);
      if (on && pane !== line.parentElement && !seen.has(pane)) {
        seen.add(pane);
        pane.scrollTop = one.offsetTop - pane.offsetTop - 40;
      }
    }
  });
"""
