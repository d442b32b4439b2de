"""The plan of a program as text: what the compiler chose, written so that it can be edited and compiled.

`export_plan` gives the plan that a program is compiled by, in the `tsched` dialect: groups with their bodies, what was
chosen for each with its source, buffers of prefetched tiles, and the order of launches. Under `Options.plan` a program
is compiled by such a text (`schedule-read-plan`). `summarize` and `compare` say what a text has, and what an edited one
changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from xdsl.dialects import builtin
from xdsl.ir import Operation

from tessera.compiler.compile import Lowering, lower, schedule_tape
from tessera.compiler.options import Options
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.literal import text_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import PLANNED, Tape, tape_text
from tessera.ir.base.text import parse_module, print_module, stamp
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.ops.plan import stages_of
from tessera.ir.schedule.passes.form_mesh_regions import FormMeshRegions
from tessera.ir.schedule.passes.read_plan import NAME
from tessera.ir.schedule.plan import fusions_in, programs_in, tape_in, tiles_of
from tessera.ir.schedule.typed_ops import FuseOp, IfOp, LayoutOp
from tessera.types.frozen import frozen

_BODIES, _ORDER = "schedule-choose-tiles", "schedule-emit-tiles"
_OVERLAPPED = "schedule-overlap-collectives"
_HEADER = """\
// A plan of Tessera: `tessera schedule apply` compiles the program by it. What may be edited:
//   groups    each `tsched.fuse` is one kernel of its body; split one into two, or move ops into another
//   tiles     `chosen`, to another of the candidates; without the line, the compiler chooses
//   layouts   `order` of a `tsched.layout`: copies of the tensor are made, or left out, for the groups that read it
//   pipeline  `{pipeline = {stages = 3}}` or `{pipeline = {double_buffer = true}}` on a group: buffers of each tile
//   order     groups run in the order of the text, and choices follow their group
// Ops and what they read stay as they are: a plan that computes something else is refused.
"""


def export_plan(tape: Tape, options: Options) -> str:
    """The text of the plan that a program is compiled by under some options."""
    kept: list[builtin.ModuleOp] = []

    def observe(name: str, module: builtin.ModuleOp) -> None:
        if name == _BODIES:
            functions = [op.clone() for op in module.ops if op.name == "tgraph.func"]
            kept.append(builtin.ModuleOp(functions))
        elif name == _ORDER or (name == _OVERLAPPED and options.plan is None):
            kept[1:] = [builtin.ModuleOp([program.clone() for program in programs_in(module)])]

    schedule_tape(tape, options, observe)
    bodies, ordered = kept
    (program,) = programs_in(ordered)
    for fuse in fusions_in(ordered):
        fuse.kernels = ()
        _drop_replaced(fuse)
    program.attributes.pop(PLANNED, None)  # each choice says so itself
    program.detach()
    block = bodies.body.block
    if block.first_op is None:
        block.add_op(program)
    else:
        block.insert_op_before(program, block.first_op)
    FormMeshRegions().run(bodies)
    stamp(bodies)
    return f"{_HEADER}{print_module(bodies)}"


def _drop_replaced(fuse: FuseOp) -> None:
    """Leave the last choice of each knob: an emitter may have asked again, among candidates of its own."""
    last = {op.knob: op for op in sorted(tiles_of(fuse), key=_position)}
    for op in tiles_of(fuse):
        if op is not last[op.knob]:
            op.detach()
            op.erase()


def _position(op: SpecOp) -> int:
    block = op.parent
    assert block is not None
    return block.get_operation_index(op)


# What a text has, group by group.


@frozen
class PlannedGroup:
    """A group of a plan: its kernel, the ops of its body, what was chosen, buffers of a tile (0: by the machine)."""

    kernel: str
    kind: str
    ops: tuple[str, ...]
    choices: tuple[tuple[str, object, str], ...] = ()
    stages: int = 0
    digest: str = ""
    """What tells its body, and the rows that its tiles are for, from others."""
    where: tuple[str, ...] = ()
    """For which sizes it runs: all of these hold."""

    def __str__(self) -> str:
        chosen = ", ".join(f"{knob} {_value_text(value)} ({source})" for knob, value, source in self.choices)
        stages = f"; {self.stages} stages" if self.stages else ""
        return f"{self.kernel}: {self.kind} of {', '.join(self.ops)}{stages}{f'; {chosen}' if chosen else ''}"


def _value_text(value: object) -> str:
    return text_of(value).strip("[]").replace(", ", " x ")


def summarize(text: str) -> tuple[PlannedGroup, ...]:
    """The groups of a plan in the order in which they run; raises IRSyntaxError (T0304) for a text that is none."""
    load_dialects()
    module = parse_module(text, NAME)
    functions = symbol_table(module)
    return tuple(_groups_in(module, functions))


def _groups_in(module: builtin.ModuleOp, functions: dict[str, SpecOp]) -> Iterator[PlannedGroup]:
    for fuse in fusions_in(module):
        function = functions.get(fuse.body)
        ops: tuple[str, ...] = ()
        digest = ""
        if function is not None:
            block = function.regions[0].block
            ops = tuple(op.spec.short_name for op in block.ops if isinstance(op, SpecOp) and op.operands)[:-1]
            about = f"{fuse.rows} {tape_text(tape_in(function))}"
            digest = hashlib.sha256(about.encode()).hexdigest()[:16]
        choices = tuple((op.knob, op.chosen, op.source) for op in tiles_of(fuse) if op.chosen is not None)
        yield PlannedGroup(fuse.body, fuse.kind, ops, choices, stages_of(fuse.pipeline), digest, _sizes_of(fuse))


def _sizes_of(fuse: FuseOp) -> tuple[str, ...]:
    """The sizes that a group is for, by the branches that it is in, the outermost first."""
    found: list[str] = []
    op: Operation = fuse
    while (around := op.parent_op()) is not None:
        if isinstance(around, IfOp) and around.size is not None:
            found.insert(0, f"{around.size} {'>' if op.parent_region() is around.regions[0] else '<='} 0")
        op = around
    return tuple(found)


def compare(text: str, other: str) -> tuple[str, ...]:
    """What a plan has otherwise than another one of the same program, a line each; empty where they are the same."""
    ours, theirs = summarize(text), summarize(other)
    known: dict[str, list[PlannedGroup]] = {}
    for group in theirs:
        known.setdefault(group.digest, []).append(group)
    lines = [f"another group: {group}" for group in ours if group.digest not in known]
    kept = {group.digest for group in ours}
    lines += [f"without the group {group.kernel}" for group in theirs if group.digest not in kept]
    for group in ours:
        if group.digest in known:
            same = known[group.digest]
            # Groups of one body are met in order; where there are more of them here, the last stands for the others.
            lines += _differences(group, same.pop(0) if len(same) > 1 else same[0])
    if [group.digest for group in ours if group.digest in known] != [g.digest for g in theirs if g.digest in kept]:
        lines.append(f"another order: {', '.join(group.kernel for group in ours)}")
    was = _orders_in(other)
    for name, order in _orders_in(text).items():
        if was.get(name, order) != order:
            lines.append(f"layout of {name}: {list(order)} in place of {list(was[name])}")
    return tuple(dict.fromkeys(lines))


def _orders_in(text: str) -> dict[str, tuple[int, ...]]:
    """The orders that were chosen for dims of tensors, by the names that those have in a text."""
    layouts = (op for op in parse_module(text, NAME).walk() if isinstance(op, LayoutOp) and op.order)
    return {f"%{op.operands[0].name_hint or number}": tuple(op.order) for number, op in enumerate(layouts)}


def _differences(group: PlannedGroup, before: PlannedGroup) -> Iterator[str]:
    """What a group has otherwise than one of the same body."""
    if before.where != group.where:
        yield f"{group.kernel}: runs {_where_text(group.where)} in place of {_where_text(before.where)}"
    if before.stages != group.stages:
        yield f"{group.kernel}: {group.stages or 'chosen'} stages in place of {before.stages or 'chosen'}"
    old = {knob: value for knob, value, _ in before.choices}
    for knob, value, _ in group.choices:
        if knob not in old or old[knob] != value:
            was = _value_text(old[knob]) if knob in old else "what the compiler chooses"
            yield f"{group.kernel}: {knob} is {_value_text(value)} in place of {was}"


def _where_text(where: tuple[str, ...]) -> str:
    return f"where {' and '.join(where)}" if where else "for all sizes"


# Whether two plans are one program of the machine.


def code_digest(lowering: Lowering) -> str:
    """A digest of all code of a program: two that share it run the same instructions."""
    texts = "\n".join((lowering.host, *lowering.texts))
    return hashlib.sha256(texts.encode()).hexdigest()


def apply_plan(tape: Tape, options: Options, plan: str) -> Lowering:
    """A program lowered by a plan; raises ScheduleError (T0401) for one that cannot be carried out."""
    return lower(tape, replace(options, plan=plan))
