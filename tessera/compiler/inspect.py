"""One program at four levels, line by line, each line with the source lines it came from."""

from __future__ import annotations

import html
import json
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from xdsl.ir import Operation

from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.diagnostics.error import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.plan import fusions_in
from tessera.ir.schedule.typed_ops import CallOp, FreeOp, TileOp
from tessera.types.frozen import frozen

LEVELS = ("graph", "schedule", "tile", "target")
_LOCATION = re.compile(r' loc\((?:"\d+:\d+"\()?"((?:[^"\\]|\\.)*)":(\d+):\d+\)?\)$')
_OP = re.compile(r"^\s*(%\S+(, %\S+)* = )?t(tile|target)\.")
_UNKNOWN = " loc(unknown)"
_SNAPSHOT = "<snapshot>"
"""The file that ops of a snapshot come from when nobody knows better."""


@frozen
class Line:
    """A line of a level's text, and the source lines (`file:line`) that it came from."""

    text: str
    keys: frozenset[str] = frozenset()


@frozen
class Inspection:
    """The source lines of a program, by key, and its text at each level."""

    sources: Mapping[str, str]
    levels: Mapping[str, tuple[Line, ...]]


def inspect_tape(tape: Tape, options: Options) -> Inspection:
    """Lower a tape and keep track of where everything came from."""
    lowering = lower(tape, options, keep_snapshots=True, keep_locations=True)
    groups = _Groups(lowering)
    graph = next(one.text for one in reversed(lowering.stages.snapshots) if one.stage == "graph")
    levels = {
        "graph": tuple(_parse_locations(graph)),
        "schedule": tuple(_schedule_lines(lowering.program, groups)),
        "tile": tuple(_kernel_lines(lowering.kernels, groups)),
        "target": tuple(_kernel_lines(lowering.targets, groups)),
    }
    keys = {key for lines in levels.values() for line in lines for key in line.keys}
    return Inspection({key: _source_text(key) for key in sorted(keys, key=_location)}, levels)


def _location(key: str) -> tuple[str, int]:
    file, _, line = key.rpartition(":")
    return file, int(line)


def _source_text(key: str) -> str:
    file, line = _location(key)
    return linecache.getline(file, line).rstrip("\n")


def key_of(span: Span | None) -> str:
    """The source line of a span; nothing where there is none."""
    return f"{span.file}:{span.line}" if span is not None and span.file != _SNAPSHOT else ""


def _parse_locations(text: str) -> Iterator[Line]:
    """The lines of a text printed with locations, without them; an op with bodies has its own at both its ends."""
    lines: list[Line] = []
    heads: list[int] = []
    for line in text.rstrip("\n").split("\n"):
        found = _LOCATION.search(line)
        keys = frozenset([f"{found.group(1)}:{found.group(2)}"]) if found else frozenset[str]()
        bare = _LOCATION.sub("", line).replace(_UNKNOWN, "")
        if bare.lstrip().startswith("})"):
            head = heads.pop()
            lines[head] = Line(lines[head].text, keys)
        if bare.endswith("({"):
            heads.append(len(lines))
        lines.append(Line(bare, keys))
    yield from lines


class _Groups:
    """The sources of every group: read off its body before equal bodies were made one.

    `sources[i]` are those of group `i`; `twins[kernel body][key]` those of all groups that share the op from `key`.
    """

    def __init__(self, lowering: Lowering) -> None:
        texts = {one.name: one.text for one in lowering.stages.snapshots if one.stage == "schedule"}
        formed = parse_module(texts["schedule-form-groups"], _SNAPSHOT)
        functions = symbol_table(formed)
        bodies = [_keys(functions[fuse.body]) for fuse in fusions_in(formed)]
        names = [fuse.body for fuse in fusions_in(parse_module(texts["schedule-deduplicate"]))]
        self.sources = [frozenset(filter(None, body)) for body in bodies]
        self.twins: dict[str, dict[str, set[str]]] = {}
        first: dict[str, list[str]] = {}
        for name, body in zip(names, bodies, strict=True):
            own = first.setdefault(name, body)
            for kept, key in zip_longest(own, body, fillvalue=""):
                self.twins.setdefault(name, {}).setdefault(kept, set()).update(filter(None, (kept, key)))

    def twins_of(self, kernel: str) -> Mapping[str, set[str]]:
        """The twins of a kernel, whose name starts with that of its body."""
        body = max((name for name in self.twins if kernel.startswith(name)), key=len, default="")
        return self.twins.get(body, {})


def _keys(function: SpecOp) -> list[str]:
    return [key_of(op.span) for op in function.regions[0].block.ops if isinstance(op, SpecOp)]


def _schedule_lines(program: SpecOp, groups: _Groups) -> Iterator[Line]:
    """The host program; a call is of the sources of its group, a buffer of those of the call that fills it."""
    ops = [op for op in program.walk() if op is not program]
    keys = _host_keys(ops, groups)
    remaining = iter(ops)
    for line in _parse_locations(print_module(program, locations=True)):
        is_op = re.match(r"\s*(%\S+(, %\S+)* = )?tsched\.(?!module)", line.text) is not None
        yield Line(line.text, keys.get(next(remaining), line.keys) if is_op else line.keys)


def _host_keys(ops: Sequence[Operation], groups: _Groups) -> dict[Operation, frozenset[str]]:
    found: dict[Operation, frozenset[str]] = {}
    number = -1
    for op in ops:
        if not isinstance(op, CallOp):
            continue
        # The first call of a group says what the group costs; further ones are more kernels of the same group.
        number += op.flops is not None
        found[op] = groups.sources[number]
        for operand in op.operands:
            if isinstance(operand.owner, Operation):
                found.setdefault(operand.owner, found[op])
    for op in ops:
        if isinstance(op, TileOp | FreeOp) and isinstance(op.operands[0].owner, Operation):
            found[op] = found.get(op.operands[0].owner, frozenset())
    return found


def _kernel_lines(kernels: Iterable[SpecOp], groups: _Groups) -> Iterator[Line]:
    """Kernels of Tile or Target IR; the head of one is of all that it computes."""
    for kernel in kernels:
        twins = groups.twins_of(kernel.value("symbol"))
        everything = frozenset(key for keys in twins.values() for key in keys)
        for number, line in enumerate(_parse_locations(print_module(kernel, locations=True))):
            own = frozenset(twin for key in line.keys for twin in twins.get(key, {key}))
            # What belongs to no op of the group in particular (a loop, a program's index) belongs to all of it.
            is_shared = number == 0 or (not own and _OP.search(line.text) is not None)
            yield Line(line.text, everything if is_shared else own)
        yield Line("")


# An inspection as one self-contained HTML page: a click on a line lights up what it came from and what it became.

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
    source = [Line(f"{_location(key)[1]:>4}  {text}", frozenset([key])) for key, text in inspection.sources.items()]
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


def _section(name: str, lines: list[Line], numbers: dict[str, str]) -> str:
    body = "\n".join(_row(line, numbers) for line in lines)
    return f'<section><h2>{name}</h2><div class="lines" data-level="{name}">\n{body}\n</div></section>'


def _row(line: Line, numbers: dict[str, str]) -> str:
    keys = " ".join(sorted((numbers[key] for key in line.keys), key=int))
    marked = f' data-k="{keys}"' if keys else ""
    return f'<div class="l"{marked}>{html.escape(line.text) or "&nbsp;"}</div>'
