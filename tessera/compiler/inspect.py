"""One program at four levels, line by line, each line with the source lines it came from."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.diagnostics.error import Span, readable
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.plan import fusions_in
from tessera.ir.schedule.typed_ops import CallOp, FreeOp, TileOp
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.frozen import frozen

LEVELS = ("graph", "schedule", "tile", "target")
_LOCATION = re.compile(r' loc\((?:"\d+:\d+[^"]*"\()?"((?:[^"\\]|\\.)*)":(\d+):\d+\)?\)$')
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
class KernelView:
    """A kernel as a user knows it: whose it is, what it computes, its cost, and its code."""

    name: str
    detail: str
    symbol: str
    sources: frozenset[str] = frozenset()
    grid: str = ""
    flops: str = ""
    bytes: str = ""
    time: str = ""
    llvm: str = ""
    gpu: str = ""
    """Occupancy and bank conflicts, or why there is nothing to say of them."""
    ptx: str = ""


@frozen
class Inspection:
    """The source lines of a program, by key, its text at each level, and its kernels."""

    sources: Mapping[str, str]
    levels: Mapping[str, tuple[Line, ...]]
    kernels: tuple[KernelView, ...] = ()


def inspect_tape(tape: Tape, options: Options, function: str = "main") -> Inspection:
    """Lower a tape and keep track of where everything came from; `function` is what its user calls it."""
    lowering = lower(tape, options, keep_snapshots=("schedule-input", *FOR_GROUPS), keep_locations=True)
    groups = _Groups(lowering)
    graph = next(one.text for one in lowering.stages.snapshots if one.name == "input")
    levels = {
        "graph": tuple(_parse_locations(graph)),
        "schedule": tuple(_schedule_lines(lowering.program, groups)),
        "tile": tuple(_kernel_lines(lowering.kernels, groups)),
        "target": tuple(_kernel_lines(lowering.targets, groups)),
    }
    keys = {key for lines in levels.values() for line in lines for key in line.keys}
    sources = {key: _source_text(key) for key in sorted(keys, key=_location)}
    return Inspection(sources, levels, tuple(kernel_views(lowering, function)))


# Kernels by the names that users know: a kernel of theirs by its own, any other by its function and lines.


def kernel_views(lowering: Lowering, function: str) -> Iterator[KernelView]:
    """The kernels of a program in the order they are called, with what the static model says of their cost."""
    groups = _Groups(lowering)
    calls = [op for op in lowering.program.walk() if isinstance(op, CallOp)]
    texts = dict(zip((one.value("symbol") for one in lowering.targets), lowering.texts, strict=False))
    grids = {kernel.symbol: kernel for kernel in lowering.kernels}
    order = dict.fromkeys((*(call.kernel for call in calls), *texts))
    for symbol in order:
        own = [call for call in calls if call.kernel == symbol]
        # A variant is chosen in place of the kernel that is called: it computes the same, of the same sizes.
        same = own or [call for call in calls if groups.body_of(call.kernel) == groups.body_of(symbol)]
        first = next((call for call in same if call.flops is not None), None)
        name, detail, sources = groups.describe(symbol, function, grids.get(symbol))
        runs = f"{len(own)} launch{'es' * (len(own) != 1)}" if own else "where it fits better"
        sizes = _sizes_of(same[0], grids) if same else {}
        yield KernelView(
            name,
            detail,
            symbol,
            sources,
            f"{runs}, grid {_grid_text(grids[symbol], sizes)}" if symbol in grids else runs,
            _cost(first.flops if first else None),
            _cost(first.bytes if first else None),
            _cost(first.time if first and own else None, " ns"),
            texts.get(symbol, ""),
        )


def _sizes_of(call: CallOp, kernels: Mapping[str, KernelOp]) -> dict[str, Any]:
    """The sizes of the program that a call gives to the symbols of its kernel."""
    kernel = kernels.get(call.kernel)
    return {} if kernel is None else dict(zip(kernel.symbols, call.sizes, strict=True))


def _grid_text(kernel: KernelOp, sizes: Mapping[str, Any]) -> str:
    """The grid of a kernel in sizes of the program."""
    return readable(f"[{', '.join(str(dim.substitute(sizes)) for dim in kernel.grid)}]")


def _cost(dim: Any, unit: str = "") -> str:
    return (
        "unknown"
        if dim is None
        else f"{int(str(dim)):,}{unit}"
        if str(dim).isdigit()
        else f"{readable(str(dim))}{unit}"
    )


def _location(key: str) -> tuple[str, int]:
    file, _, line = key.rpartition(":")
    return file, int(line)


def line_number(key: str) -> int:
    """The line of a key."""
    return _location(key)[1]


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


FOR_GROUPS = ("schedule-form-groups", "schedule-deduplicate")
"""The passes of which `kernel_views` needs snapshots."""


class _Groups:
    """The sources of every group: read off its body before equal bodies were made one.

    `sources[i]` are those of group `i`; `twins[kernel body][key]` those of all groups that share the op from `key`.
    """

    def __init__(self, lowering: Lowering) -> None:
        texts = {one.name: one.text for one in lowering.stages.snapshots if one.stage == "schedule"}
        formed = parse_module(texts["schedule-form-groups"], _SNAPSHOT)
        functions = symbol_table(formed)
        bodies = [_keys(functions[fuse.body]) for fuse in fusions_in(formed)]
        formed_ops = [_ops(functions[fuse.body]) for fuse in fusions_in(formed)]
        names = [fuse.body for fuse in fusions_in(parse_module(texts["schedule-deduplicate"]))]
        self.sources = [frozenset(filter(None, body)) for body in bodies]
        self.twins: dict[str, dict[str, set[str]]] = {}
        self._ops = dict(zip(names, formed_ops, strict=True))
        first: dict[str, list[str]] = {}
        for name, body in zip(names, bodies, strict=True):
            own = first.setdefault(name, body)
            for kept, key in zip_longest(own, body, fillvalue=""):
                self.twins.setdefault(name, {}).setdefault(kept, set()).update(filter(None, (kept, key)))

    def body_of(self, kernel: str) -> str:
        """The body of a kernel, whose name starts with it."""
        return max((name for name in self.twins if kernel.startswith(name)), key=len, default="")

    def twins_of(self, kernel: str) -> Mapping[str, set[str]]:
        """The twins of a kernel."""
        return self.twins.get(self.body_of(kernel), {})

    def describe(self, kernel: str, function: str, tile: KernelOp | None) -> tuple[str, str, frozenset[str]]:
        """What its user calls a kernel, what it is beside that, and the source lines it is made of."""
        body = self.body_of(kernel)
        ops = self._ops.get(body, ())
        sources = frozenset(key for keys in self.twins.get(body, {}).values() for key in keys)
        written = [name.partition(":")[2] for name in ops if name.startswith(_USER)]
        if written and tile is not None:  # its own lines, and not those that call it
            own = {key_of(op.span) for op in tile.walk() if isinstance(op, SpecOp) and op is not tile}
            sources = frozenset(filter(None, own)) or sources
        others = [name for name in ops if not name.startswith(_USER)]
        name = written[0] if written else function
        if not written and len(self.twins) > 1:
            name = f"{function}: {', '.join(others[:4])}{', ...' * (len(others) > 4)}"
        variant = kernel.removeprefix(body).strip("_")
        parts = [_lines_text(sources), "" if written else ", ".join(others), f"variant `{variant}`" if variant else ""]
        return name, "; ".join(filter(None, [*parts, kernel])), sources


_USER = "user kernel:"
"""How a call of a kernel that its user wrote begins among the ops of a group; its name follows."""


def _ops(function: SpecOp) -> tuple[str, ...]:
    """The ops of a body by their short names, a kernel of the user's by its own."""
    ops = [op for op in function.regions[0].block.ops if isinstance(op, SpecOp) and not op.spec.is_terminator]
    names = [
        _USER + op.value("kernel").partition(":")[0] if op.name == "tgraph.kernel_call" else op.spec.short_name
        for op in ops
    ]
    return tuple(dict.fromkeys(names))


def _lines_text(sources: Iterable[str]) -> str:
    """`model.py:24-25`, or nothing where no line is known."""
    by_file: dict[str, list[int]] = {}
    for key in sources:
        file, line = _location(key)
        by_file.setdefault(file.rpartition("/")[2], []).append(line)
    texts = [f"{file}:{min(lines)}" + f"-{max(lines)}" * (len(lines) > 1) for file, lines in sorted(by_file.items())]
    return ", ".join(texts)


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
        number += op.part == 0
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


# One kernel by itself, from the ops of its group to the text that becomes its code.


def lower_kernel(tape: Tape, options: Options, kernel: str) -> dict[str, tuple[Line, ...]]:
    """A kernel of a program at every level: `graph`, `schedule`, `tile`, `target` and `llvm` (or PTX, on a GPU).

    Graph IR is the body of its group, Schedule IR the group with its choices and the ops of the host program that touch
    its buffers. Raises KeyError for a name that no kernel of the program has.
    """
    texts: dict[str, list[Line]] = {"graph": [], "schedule": []}

    def observe(name: str, module: ModuleOp) -> None:
        if name == "schedule-deduplicate":
            functions = symbol_table(module)
            # A group of several kernels has its name before theirs.
            own = [fuse for fuse in fusions_in(module) if kernel == fuse.body or kernel.startswith(f"{fuse.body}_")]
            if own:
                found = max(own, key=lambda fuse: len(fuse.body))
                texts["graph"] += _parse_locations(print_module(functions[found.body], locations=True))
                texts["schedule"].append(Line(str(found).strip()))

    lowering = lower(tape, options, keep_locations=True, observe=observe)
    targets = [one for one in lowering.targets if _is_form(one.value("symbol"), kernel)]
    kernels = [one for one in lowering.kernels if _is_form(one.symbol, kernel)]
    if not kernels:
        raise KeyError(kernel)
    texts["schedule"] += _host_lines(lowering.program, kernel)
    codes = dict(zip((one.value("symbol") for one in lowering.targets), lowering.texts, strict=False))
    code = "\n".join(codes.get(one.value("symbol"), "") for one in targets)
    return {
        **{name: tuple(lines) for name, lines in texts.items()},
        "tile": tuple(line for one in kernels for line in _parse_locations(print_module(one, locations=True))),
        "target": tuple(line for one in targets for line in _parse_locations(print_module(one, locations=True))),
        "llvm": tuple(Line(line) for line in code.splitlines()),
    }


def _is_form(kernel: str, of: str) -> bool:
    """Whether a kernel is what is called so, or stands in for it in some launches."""
    return kernel == of or kernel.startswith(f"{of}__")


def _host_lines(program: SpecOp, kernel: str) -> Iterator[Line]:
    """The ops of a host program that call a kernel, and those that make and free its buffers: of its first call."""
    ops = [op for op in program.walk() if op is not program]
    call = next((op for op in ops if isinstance(op, CallOp) and op.kernel == kernel), None)
    if call is None:
        return
    touched = set(call.operands)
    own = {op for op in ops if touched & set(op.results) or (touched & set(op.operands) and not isinstance(op, CallOp))}
    remaining = iter(ops)
    for line in _parse_locations(print_module(program, locations=True)):
        if re.match(r"\s*(%\S+(, %\S+)* = )?tsched\.(?!module)", line.text) is None:
            continue
        op = next(remaining)
        if op is call or (op in own and op.name != "tsched.return"):
            yield Line(line.text, line.keys)
