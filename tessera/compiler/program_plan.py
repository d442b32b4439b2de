"""What a program does and what is in its memory, as the schedule stage plans it: launches, their sources, buffers.

`plan_program` schedules a tape once more, in the time that takes, and keeps plain values: each launch of a kernel with
the source lines of its ops, in the structure of loops and branches, and each buffer with its name, bytes, offset and
lifetime. Steps count the ops of the host program as the memory planner does. `match_launches` says which launch of the
plan each kernel of a timeline is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects import builtin
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tessera.compiler.compile import schedule_tape
from tessera.compiler.options import Options
from tessera.diagnostics.error import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.types import ShapedAttr
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.passes.plan_memory import lifetimes_in
from tessera.ir.schedule.plan import fusions_in, programs_in
from tessera.ir.schedule.typed_ops import (
    AliasOp,
    AllocOp,
    CallOp,
    ConstantOp,
    ForOp,
    FuseOp,
    IfOp,
    ModuleOp,
    TileOp,
    WhileOp,
)
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

_ASSIGNED = re.compile(r"\s*([^\W\d]\w*)\s*(?::[^=]+)?=\s*")
_OPS = re.compile(r"\b(?:(?:ts|tessera)\.)?ops\.(?=\w)")
_CALL = re.compile(r"[\w.]+\(")
_WIDEST = 60
"""Characters of an expression that name a tensor."""


@frozen
class Source:
    """An op of a kernel: its name, where it is in the source (`model.py:3:5, backward`), and what is written there."""

    op: str
    where: str = ""
    text: str = ""


@frozen
class KernelCall:
    """One launch in a host program: its step, its kernel, and the ops that the kernel computes.

    `group` counts the fusion groups of a program, which the `work` of an executable is listed by; `part` is 0 for the
    first kernel of a group. `arguments` are those of the program that it is given, by name; `knob` is the choice of its
    tiles, which `overrides` can make.
    """

    step: int
    kernel: str
    group: int
    part: int = 0
    where: str = ""
    sources: tuple[Source, ...] = ()
    arguments: tuple[str, ...] = ()
    knob: str = ""


@frozen
class Control:
    """A loop or a branch: `for`, `while` or `if`, its bodies, and how often it runs or what decides, where known."""

    kind: str
    bodies: tuple[tuple[Node, ...], ...]
    size: Dim | None = None


Node: TypeAlias = "KernelCall | Control"


@frozen
class PlannedTensor:
    """A buffer: what it holds, its bytes, and the steps between which it is needed, both included.

    `kind` is `argument`, `result`, `temporary` (in the workspace, at `offset`), `constant` or `offloaded`.
    """

    name: str
    kind: str
    shape: tuple[Dim, ...]
    dtype: str
    bytes: Dim
    start: int
    end: int
    offset: Dim | None = None
    where: str = ""


@frozen
class ProgramPlan:
    """The launches of a program in order, its buffers, and the bytes of its workspace."""

    body: tuple[Node, ...]
    tensors: tuple[PlannedTensor, ...]
    workspace: Dim
    steps: int

    @property
    def calls(self) -> tuple[KernelCall, ...]:
        """All launches, those of loops once."""
        return tuple(_calls_in(self.body))


def _calls_in(nodes: Sequence[Node]) -> Iterator[KernelCall]:
    for node in nodes:
        if isinstance(node, KernelCall):
            yield node
        else:
            for body in node.bodies:
                yield from _calls_in(body)


def plan_program(tape: Tape, options: Options, results: Sequence[str] = ()) -> ProgramPlan:
    """Schedule a tape and keep its plan; `results` name what the program returns."""
    formed: dict[FuseOp, _Group] = {}
    groups: list[_Group] = []

    def observe(name: str, module: builtin.ModuleOp) -> None:
        if name == "schedule-form-groups":
            formed.update(_groups_of(module))
        elif name == "schedule-choose-layouts":
            # Copies that it makes, and groups that read another order than before, are new.
            formed.update(pair for pair in _groups_of(module) if pair[0] not in formed)
        elif name == "schedule-offload-values":
            # In the order in which they run: passes in between move some.
            groups.extend(formed[fuse] for fuse in fusions_in(module) if fuse in formed)

    (program,) = programs_in(schedule_tape(tape, options, observe))
    return _Reader(program, groups).read(results)


@frozen
class _Group:
    """The ops of a fusion group, how many operands it has, and the op that computes each of its results."""

    sources: tuple[Source, ...]
    operands: int
    results: tuple[tuple[Source, Span | None], ...]


def _groups_of(module: builtin.ModuleOp) -> Iterator[tuple[FuseOp, _Group]]:
    functions = symbol_table(module)
    for fuse in fusions_in(module):
        block = functions[fuse.body].regions[0].block
        ops = [op for op in block.ops if isinstance(op, SpecOp) and not op.spec.is_terminator]
        last = block.last_op
        assert last is not None
        owners = [value.owner for value in last.operands]
        made = ((_source_of(op), op.span) if isinstance(op, SpecOp) else (Source(""), None) for op in owners)
        yield fuse, _Group(tuple(_source_of(op) for op in ops), len(fuse.operands), tuple(made))


def _source_of(op: SpecOp) -> Source:
    span = op.span
    name = op.value("kernel").partition(":")[0] if op.name == "tgraph.kernel_call" else op.spec.short_name
    return Source(name, "" if span is None else span.label, "" if span is None else span.source_text)


class _Reader:
    """Reads a host program: its structure, and what its buffers hold."""

    def __init__(self, program: ModuleOp, groups: Sequence[_Group]) -> None:
        self.program = program
        self.ops = [op for op in program.walk() if op is not program]
        self.steps = {op: number for number, op in enumerate(self.ops, start=1)}
        self.numbers: dict[Operation, int] = {}
        self.knobs: dict[int, str] = {}
        number = -1
        for op in self.ops:
            if isinstance(op, CallOp):
                number += op.part == 0
                self.numbers[op] = number
            elif isinstance(op, TileOp) and op.chosen is not None:
                self.knobs[number] = op.knob  # a choice follows the calls of its group
        # A pass that adds groups, or takes some away, leaves each launch the line of its own.
        self.groups = groups if number + 1 == len(groups) else ()

    def read(self, results: Sequence[str]) -> ProgramPlan:
        """The plan."""
        workspace = self.program.workspace
        assert workspace is not None
        tensors = (*self._arguments(), *self._constants(), *self._buffers(results))
        body = tuple(self._nodes(self.program.regions[0].block))
        return ProgramPlan(body, _with_own_names(tensors), workspace, len(self.ops))

    def _nodes(self, block: Block) -> Iterator[Node]:
        for op in block.ops:
            if isinstance(op, CallOp) and op is launch_of(op)[-1]:
                number = self.numbers[op]
                sources = self.groups[number].sources if self.groups else ()
                where = "" if op.span is None else op.span.label
                about = (where, sources, self._read_arguments(op), self.knobs.get(number, ""))
                yield KernelCall(self.steps[op], op.kernel, number, op.part, *about)
            elif isinstance(op, IfOp | WhileOp | ForOp):
                bodies = tuple(tuple(self._nodes(region.block)) for region in op.regions)
                size = op.size if isinstance(op, IfOp) else op.trips
                yield Control(op.name.removeprefix("tsched."), bodies, size)

    def _read_arguments(self, call: CallOp) -> tuple[str, ...]:
        """The arguments of the program that a kernel is given, by name."""
        block, roots = self.program.regions[0].block, [_root_of(value) for value in call.operands]
        own = [root.index for root in roots if isinstance(root, BlockArgument) and root.block is block]
        return tuple(dict.fromkeys(self.program.names[index] for index in own))

    def _arguments(self) -> Iterator[PlannedTensor]:
        for name, value in zip(self.program.names, self.program.regions[0].block.args, strict=True):
            yield self._tensor(name, "argument", value, 1, len(self.ops))

    def _constants(self) -> Iterator[PlannedTensor]:
        for op in self.ops:
            if isinstance(op, ConstantOp):
                yield self._tensor("constant", "constant", op.results[0], 1, len(self.ops))

    def _buffers(self, results: Sequence[str]) -> Iterator[PlannedTensor]:
        """What the program allocates: results first, then temporaries as they come."""
        names = self._name_buffers()
        for op in self.ops:
            if isinstance(op, AllocOp) and op.output >= 0:
                name = results[op.output] if op.output < len(results) else f"result {op.output}"
                where = names.get(op.result, ("", ""))[1]
                yield self._tensor(name, "result", op.result, self.steps[op], len(self.ops), where=where)
        for op, lifetime in zip(*lifetimes_in(self.program), strict=True):
            name, where = names.get(op.result, ("buffer", ""))
            kind = "offloaded" if op.space else "temporary"
            yield self._tensor(name, kind, op.result, lifetime.start, lifetime.end, op.offset, where)

    def _tensor(
        self, name: str, kind: str, value: SSAValue, start: int, end: int, offset: Dim | None = None, where: str = ""
    ) -> PlannedTensor:
        type = value.type
        assert isinstance(type, ShapedAttr)
        size = type.data.bytes
        return PlannedTensor(name, kind, tuple(type.shape), type.dtype.name, size, start, end, offset, where)

    def _name_buffers(self) -> dict[SSAValue, tuple[str, str]]:
        """Of each buffer, what the first op that takes it writes there, and from which line that is."""
        found: dict[SSAValue, tuple[str, str]] = {}
        for op in self.ops:
            for index, operand in enumerate(() if isinstance(op, AliasOp) else op.operands):
                root = _root_of(operand)
                if not isinstance(root, BlockArgument) and root not in found and isinstance(op, SpecOp):
                    found[root] = self._name(op, index)
        return found

    def _name(self, op: SpecOp, index: int) -> tuple[str, str]:
        span, name = op.span, op.spec.short_name
        if isinstance(op, CallOp):
            name = op.kernel.rpartition("_")[0] or op.kernel
            group = self.groups[self.numbers[op]] if self.groups else None
            if group is not None and index >= group.operands:
                at = index - group.operands
                if at >= len(group.results):
                    return f"scratch of {name}", "" if span is None else span.label
                source, own = group.results[at]
                span, name = own or span, source.op or name
            return name_at(span, name, self._read_arguments(op)), "" if span is None else span.label
        return name_at(span, name), "" if span is None else span.label


def _root_of(value: SSAValue) -> SSAValue:
    while isinstance(value.owner, AliasOp):
        value = value.owner.operands[0]
    return value


def name_at(span: Span | None, op: str, arguments: Sequence[str] = ()) -> str:
    """What the source calls a value: the variable that it is assigned to, else its expression, else its op.

    What a call of another function computes inside has the name of its op there, and of the first of the program's
    `arguments` that the kernel is given: of `loss(model, x)` it is `matmul with model.up.weight`.

    >>> name_at(None, "softmax")
    'softmax'
    """
    if span is None:
        return op
    line, text = span.source_line, span.source_text
    if text.endswith(")") and _CALL.match(text) and not _OPS.match(text):
        inside = f"{op} with {arguments[0]}" if arguments else f"{op} in {text}"
        return _with_role(inside, span)
    assigned = _ASSIGNED.match(line)
    is_whole = assigned is not None and assigned.end() == span.column - 1
    if assigned is not None and is_whole and not line[span.end_column - 1 :].partition("#")[0].strip():
        text = assigned[1]
    text = _OPS.sub("", text)
    return _with_role(text or op, span)


def _with_role(text: str, span: Span) -> str:
    short = text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
    return f"{short}{f' ({span.role})' if span.role else ''}"


def _with_own_names(tensors: Sequence[PlannedTensor]) -> tuple[PlannedTensor, ...]:
    """Tensors with a name each: equal ones are counted."""
    seen: dict[str, int] = {}
    found: list[PlannedTensor] = []
    for one in tensors:
        seen[one.name] = number = seen.get(one.name, 0) + 1
        name = one.name if number == 1 else f"{one.name} #{number}"
        place = (one.shape, one.dtype, one.bytes, one.start, one.end, one.offset, one.where)
        found.append(PlannedTensor(name, one.kind, *place))
    return tuple(found)


# Which launch of a plan each kernel of a timeline is.


def match_launches(plan: ProgramPlan, kernels: Sequence[str], sizes: Mapping[str, int]) -> list[KernelCall | None]:
    """For each kernel that ran, by name and in order, its launch in the plan; None for those of other programs.

    Launches over nothing do not run. Where only values decide how often a loop runs, or which branch is taken, the
    names of what ran tell.
    """
    matcher = _Matcher(kernels, {call.kernel for call in plan.calls}, sizes)
    matcher.run(plan.body)
    return matcher.found


class _Matcher:
    """Walks a plan beside the kernels that ran."""

    def __init__(self, kernels: Sequence[str], known: set[str], sizes: Mapping[str, int]) -> None:
        self.kernels, self.known, self.sizes = [_name_called(kernel, known) for kernel in kernels], known, sizes
        self.found: list[KernelCall | None] = [None] * len(kernels)
        self.at = 0

    def run(self, nodes: Sequence[Node]) -> None:
        """Match a block once."""
        for node in nodes:
            if isinstance(node, KernelCall):
                self._match(node)
            elif node.kind == "if":
                self.run(node.bodies[self._branch(node)])
            else:
                self._loop(node)

    def _match(self, call: KernelCall) -> None:
        while self.at < len(self.kernels) and not self.kernels[self.at]:
            self.at += 1
        if self.at < len(self.kernels) and self.kernels[self.at] == call.kernel:
            self.found[self.at] = call
            self.at += 1

    def _loop(self, node: Control) -> None:
        *tests, body = node.bodies
        trips = self._evaluate(node.size)
        number = 0
        for test in tests:
            self.run(test)
        while trips is None or number < trips:
            before = self.at
            self.run(body)
            for test in tests:
                self.run(test)
            number += 1
            if self.at == before:
                break

    def _branch(self, node: Control) -> int:
        size = self._evaluate(node.size)
        if size is not None:
            return 0 if size > 0 else 1
        before, reached = self.at, list[int]()
        for body in node.bodies:
            self.run(body)
            reached.append(self.at)
            self.found[before : self.at] = [None] * (self.at - before)
            self.at = before
        return reached.index(max(reached))

    def _evaluate(self, dim: Dim | None) -> int | None:
        return dim.evaluate(self.sizes) if dim is not None and set(dim.symbols) <= set(self.sizes) else None


def _name_called(kernel: str, known: set[str]) -> str:
    """The kernel that a program calls, of which this is a form; nothing for one of another program."""
    if kernel in known:
        return kernel
    return max((name for name in known if kernel.startswith(f"{name}__")), key=len, default="")
