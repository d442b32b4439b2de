"""One program at four levels, line by line, each line with the source lines it came from."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from xdsl.ir import Operation

from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.diagnostics.span import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.fusions import fusions_in

LEVELS = ("graph", "schedule", "tile", "target")
_LOCATION = re.compile(r' loc\((?:"\d+:\d+"\()?"((?:[^"\\]|\\.)*)":(\d+):\d+\)?\)$')
_OP = re.compile(r"^\s*(%\S+(, %\S+)* = )?t(tile|target)\.")
_UNKNOWN = " loc(unknown)"
_SNAPSHOT = "<snapshot>"
"""The file that ops of a snapshot come from when nobody knows better."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a level's text, and the source lines (`file:line`) that it came from."""

    text: str
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Inspection:
    """The source lines of a program, by key, and its text at each level."""

    sources: Mapping[str, str]
    levels: Mapping[str, tuple[Line, ...]]


def inspect_tape(tape: Tape, options: Options) -> Inspection:
    """Lower a tape and keep track of where everything came from."""
    lowering = lower(tape, options, keep_snapshots=True, keep_locations=True)
    groups = _Groups(lowering)
    graph = next(one.text for one in reversed(lowering.stages.snapshots) if one.room == "graph")
    levels = {
        "graph": tuple(_located(graph)),
        "schedule": tuple(_schedule_lines(lowering.program, groups)),
        "tile": tuple(_kernel_lines(lowering.kernels, groups)),
        "target": tuple(_kernel_lines(lowering.targets, groups)),
    }
    keys = {key for lines in levels.values() for line in lines for key in line.keys}
    return Inspection({key: _source_text(key) for key in sorted(keys, key=_place)}, levels)


def _place(key: str) -> tuple[str, int]:
    file, _, line = key.rpartition(":")
    return file, int(line)


def _source_text(key: str) -> str:
    file, line = _place(key)
    return linecache.getline(file, line).rstrip("\n")


def key_of(span: Span | None) -> str:
    """The source line of a span; nothing where there is none."""
    return f"{span.file}:{span.line}" if span is not None and span.file != _SNAPSHOT else ""


def _located(text: str) -> Iterator[Line]:
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
        texts = {one.name: one.text for one in lowering.stages.snapshots if one.room == "schedule"}
        formed = parse_module(texts["schedule-form-groups"], _SNAPSHOT)
        functions = symbol_table(formed)
        bodies = [_keys(functions[fuse.value("body")]) for fuse in fusions_in(formed)]
        names = [fuse.value("body") for fuse in fusions_in(parse_module(texts["schedule-deduplicate"]))]
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
    for line in _located(print_module(program, locations=True)):
        is_op = re.match(r"\s*(%\S+(, %\S+)* = )?tsched\.(?!module)", line.text) is not None
        yield Line(line.text, keys.get(next(remaining), line.keys) if is_op else line.keys)


def _host_keys(ops: Sequence[Operation], groups: _Groups) -> dict[Operation, frozenset[str]]:
    found: dict[Operation, frozenset[str]] = {}
    number = -1
    for op in ops:
        if not isinstance(op, SpecOp) or op.name != "tsched.call":
            continue
        # The first call of a group says what the group costs; further ones are more kernels of the same group.
        number += op.value("flops") is not None
        found[op] = groups.sources[number]
        for operand in op.operands:
            if isinstance(operand.owner, Operation):
                found.setdefault(operand.owner, found[op])
    for op in ops:
        if op.name in ("tsched.tile", "tsched.free") and isinstance(op.operands[0].owner, Operation):
            found[op] = found.get(op.operands[0].owner, frozenset())
    return found


def _kernel_lines(kernels: Iterable[SpecOp], groups: _Groups) -> Iterator[Line]:
    """Kernels of Tile or Target IR; the head of one is of all that it computes."""
    for kernel in kernels:
        twins = groups.twins_of(kernel.value("symbol"))
        everything = frozenset(key for keys in twins.values() for key in keys)
        for number, line in enumerate(_located(print_module(kernel, locations=True))):
            own = frozenset(twin for key in line.keys for twin in twins.get(key, {key}))
            # What belongs to no op of the group in particular (a loop, a program's place) belongs to all of it.
            is_shared = number == 0 or (not own and _OP.search(line.text) is not None)
            yield Line(line.text, everything if is_shared else own)
        yield Line("")
