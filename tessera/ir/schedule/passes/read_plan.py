"""Read a plan that is written down: the groups, tiles, prefetch depths and order of a text in place of chosen ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult

from tessera.diagnostics.codes import IRSyntaxError, ScheduleError
from tessera.diagnostics.error import Span, find_nearest
from tessera.ir.base.build import region_of
from tessera.ir.base.compilation import KNOBS
from tessera.ir.base.op import OpError, SpecOp, plain
from tessera.ir.base.passes import Pass, user_error
from tessera.ir.base.tape import MESH, PLANNED, RECOGNIZED, Tape
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import attribute_of
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.schedule import typed_ops
from tessera.ir.schedule.bodies import with_sizes
from tessera.ir.schedule.conversions import Conversions
from tessera.ir.schedule.costs import cost_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.emit.request import size_names
from tessera.ir.schedule.kinds import KernelKind, kernel_kinds, kind_for
from tessera.ir.schedule.layouts import KNOB, identity
from tessera.ir.schedule.passes.form_groups import FormGroups
from tessera.ir.schedule.passes.form_mesh_regions import inline_regions
from tessera.ir.schedule.passes.update_in_place import may_overwrite
from tessera.ir.schedule.plan import (
    PLAN,
    body_of,
    check_candidate,
    choices_for,
    fusions_in,
    programs_in,
    tape_in,
    tensor_of,
    tiles_of,
)
from tessera.ir.schedule.plan_meaning import IN_PLACE, check_meaning, guards_of, refuse
from tessera.ir.tile.facets import Library, Pointwise, Reduction, View
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

Patterns: TypeAlias = Mapping[str, Callable[[SpecOp], list[str]]]
"""What a group may ask to be computed as, by name: each changes the body, and says what it made of it."""

NAME = "<plan>"
"""What the text of a plan is called in errors that name its lines."""
_PROGRAM = "tsched.module"
_SHOWN = 60
"""Characters of a line that an error repeats."""
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def _is_library(op: Any) -> bool:
    return isinstance(op, SpecOp) and isinstance(op.spec.lower, Library)


_OF_RANKS = ("tsched.collective", "tsched.pipeline", "tsched.materialize")


@frozen
class ReadPlan(Pass):
    """Replace each function by a plan that somebody wrote, once that is found to compute the same.

    Before: `tgraph.func @main`, and the plan beside it in a module of its own, or in the option `plan`. After: the
    `tsched.module @main` of the plan and the bodies of its groups. What a group does not say is filled in: its kind,
    the axes that it reduces, what it costs. Refused (T0401) is a plan that computes something else, a group that no
    kernel computes, a tile that is not among the candidates, groups of one body that differ in what was chosen.
    """

    plan: str = ""
    form: Sequence[Pass] = field(default_factory=lambda: (FormGroups(),))
    machine: Machine = field(default_factory=lambda: Machine("generic"))
    patterns: Patterns = field(default_factory=dict[str, Callable[[SpecOp], list[str]]])

    def run(self, module: ModuleOp) -> None:
        beside = next((op for op in module.ops if isinstance(op, ModuleOp)), None)
        if beside is not None:
            beside.detach()
        plan = beside if not self.plan and beside is not None else parse_plan(self.plan)
        if len(list(programs_in(plan))) != 1:
            refuse(plan, f"a plan has one `tsched.module`, got {len(list(programs_in(plan)))}", _GIVE_PLAN)
        try:
            verify(plan)
        except OpError as error:
            advice = error.advice or _advice(error)
            raise user_error("schedule", OpError(error.op, error.message, advice)) from error
        (program,) = programs_in(plan)
        _check_levels(plan, program)
        _check_ops(program)
        for one in self.form:
            one.run(module)
        _inline_regions(program, next(programs_in(module)))
        check_meaning(plan, module)
        groups = _Groups(plan, self.machine, self.patterns)
        groups.complete()
        _settle_layouts(plan, program)
        (own,) = programs_in(module)
        # What a program promises, and what its caller donates, is said by the program.
        program.attributes.clear()
        program.attributes.update(own.attributes)
        if groups.notes:
            program.attributes[RECOGNIZED] = attribute_of("strs", tuple(groups.notes))
        program.attributes[PLANNED] = attribute_of("strs", tuple(groups.list_choices()))
        for old in list(module.ops):
            old.detach()
        for new in list(plan.ops):
            new.detach()
            module.body.block.add_op(new)


def _inline_regions(program: typed_ops.ModuleOp, own: typed_ops.ModuleOp) -> None:
    """Put ops of mesh regions where they stand; refuses regions, or a mesh, that the program itself does not have."""
    mesh = plain(own.attributes[MESH]) if MESH in own.attributes else None
    known = {region_of(op) for op in own.walk()}
    inline_regions(program)
    if program.mesh not in (None, mesh):
        refuse(program, f"the mesh of the plan is {program.mesh}, and that of the program {mesh}", _AXES)
    for op in program.walk():
        if region_of(op) not in known:
            named = ", ".join(f"`{one}`" for one in sorted(known) if one) or "none"
            refuse(op, f"`{op.name}` is in the regions `{region_of(op)}`, and those of the program are {named}", _AXES)
    program.set_value("mesh", None)


_AXES = "restore the line as it was exported: axes are said in the program, by `with mesh.axis(...)`"
_GIVE_PLAN = "give what `fn.schedule(...)` gave, or the text of a file that `tessera schedule export` wrote"
_RESTORE = "restore the line as it was exported"
_ORDER = "move it behind the group that computes what it reads: launches are in the order of the text"


def parse_plan(text: str) -> ModuleOp:
    """The module of a plan's text.

    Raises ScheduleError (T0401) where a group reads what a later one computes, and IRSyntaxError (T0304) for a text
    that is none.
    """
    try:
        return parse_module(text, NAME)
    except IRSyntaxError as error:
        if _PROGRAM not in text:
            _refuse_text(text, error)
        late = re.match(r"Result (%[\w.$-]+) is defined with type .* but used with type !tsched\.value", error.message)
        if late is None or error.span is None:
            raise error.with_fix(error.fix or _RESTORE) from None
        lines = text.splitlines()
        use = re.compile(rf"{re.escape(late[1])}(?![\w.$-])")
        first = next((at for at in range(error.span.line - 1, 0, -1) if use.search(lines[at - 1])), error.span.line)
        found = use.search(lines[first - 1])
        column = 1 if found is None else found.start() + 1
        raise ScheduleError(
            f"`{late[1]}` is used before the group of line {error.span.line}, which computes it",
            span=Span(NAME, first, column, first, column + len(late[1])),
            fix=_ORDER,
        ) from error


def _refuse_text(text: str, error: IRSyntaxError) -> NoReturn:
    """Raise IRSyntaxError (T0304) at the first line of a text that has no program at all."""
    lines = text.splitlines()
    at = next((at for at, line in enumerate(lines, 1) if line.strip()), 1)
    first = lines[at - 1].strip() if lines else ""
    column = lines[at - 1].index(first) + 1 if lines else 1
    short = first if len(first) <= _SHOWN else f"{first[:_SHOWN]}..."
    raise IRSyntaxError(
        f"this is no plan: it begins with `{short}`, and has no `{_PROGRAM}`",
        span=Span(NAME, at, column, at, column + max(len(first), 1)),
        fix=_GIVE_PLAN,
    ) from error


def _advice(error: OpError) -> str:
    if "used before" in error.message:
        return _ORDER
    if "`stages`" in error.message or "`pipeline`" in error.message or "`double_buffer`" in error.message:
        return "write `pipeline = {stages = 3}` or `pipeline = {double_buffer = true}`"
    return _RESTORE


def _check_levels(plan: ModuleOp, program: typed_ops.ModuleOp) -> None:
    """Refuse an op of a group's body in the program, and one that is beside both; the verifier knows bodies."""
    for op in plan.ops:
        if op.name not in (_PROGRAM, "tgraph.func"):
            refuse(op, f"`{op.name}` stands beside the program of the plan and the bodies of its groups", _RESTORE)
    for op in program.walk():
        if not op.name.startswith("tsched."):
            refuse(op, f"`{op.name}` stands in a `{_PROGRAM}`, whose ops are those of `tsched`", _RESTORE)


def _check_ops(program: typed_ops.ModuleOp) -> None:
    """Refuse what a plan of one machine cannot carry out: nothing that says what to do is ignored."""
    for op in program.walk():
        if op.name in _OF_RANKS or (isinstance(op, typed_ops.LayoutOp) and op.mesh_axes):
            refuse(
                op,
                f"`{op.name}` says how ranks of a mesh share a program, and this one is compiled for one rank",
                "leave it out; a mesh and its layouts are said in the program",
            )
        if isinstance(op, typed_ops.IfOp) and op.size is not None:
            _check_size(op, op.size, program)
        if isinstance(op, typed_ops.FuseOp) and (op.rows == 0 or op.rows < -1):
            refuse(op, f"`rows` are 1 or more that tiles are chosen for, got {op.rows}", "leave it out")
        if isinstance(op, typed_ops.FuseOp) and op.kernels:
            refuse(op, "`kernels` of a group are made from its body, and a plan does not name them", "leave it out")


def _settle_layouts(plan: ModuleOp, program: typed_ops.ModuleOp) -> None:
    """Let groups read values in the orders that the layouts of a plan say, whatever its groups do by now."""
    conversions = Conversions(plan)
    for op in [op for op in program.walk() if isinstance(op, typed_ops.LayoutOp) and op.order]:
        value, order = op.operands[0], tuple(op.order)
        wanted = {access.order for reader in conversions.readers(value) for access in reader.accesses}
        if not conversions.settle(value, order):
            listed = ", ".join(str(list(one)) for one in sorted({identity(len(order)), *wanted}))
            refuse(
                op,
                f"no group beside this value reads it faster with its dims in the order {list(order)}",
                f"it can be {listed}",
            )
        op.source = PLAN
    conversions.drop_unused()


def _check_size(op: SpecOp, size: Dim, program: typed_ops.ModuleOp) -> None:
    """Refuse a branch by a size that no argument has."""
    known = {name for argument in program.body.block.args for name in tensor_of(argument).symbols}
    unknown = sorted(size.symbols - known)
    if unknown:
        near = f"the sizes of arguments are {', '.join(sorted(known))}" if known else "no argument has such a size"
        refuse(op, f"`{op.name}` decides by {unknown[0]}, which is no size of an argument", near)


class _Groups:
    """The groups of a plan, each completed once it is found to be one that a kernel computes."""

    def __init__(self, plan: ModuleOp, machine: Machine, patterns: Patterns) -> None:
        self.plan, self.machine, self.patterns, self.functions = plan, machine, patterns, symbol_table(plan)
        self.notes: list[str] = []
        (self.program,) = programs_in(plan)
        self.facts = {(guard.left, guard.right) for guard in guards_of(self.program)}
        self.said: dict[str, tuple[typed_ops.FuseOp, Any]] = {}

    def complete(self) -> None:
        """Fill in what groups leave out, and refuse what cannot be carried out."""
        for fuse in fusions_in(self.plan):
            function = body_of(fuse, self.functions)
            if not _SYMBOL.fullmatch(fuse.body):
                refuse(function, f"`@{fuse.body}` is no name of a kernel", "write letters, digits and `_`")
            if fuse.pattern:
                self._lower_pattern(fuse, function)
            tape = tape_in(function)
            self._check_facts(fuse, function, tape)
            kind = self._kind(fuse, tape)
            try:
                kind.check(tape, tuple(fuse.axes))
            except (ValueError, IndexError, StopIteration) as error:
                advice = "split the group: what no kernel computes as one is two `tsched.fuse`, each with its body"
                refuse(fuse, f"no kernel of kind {kind.name} computes `@{fuse.body}`: {error}", advice)
            self._check_in_place(fuse, function, tape)
            here = {name: Dim.of(dim) for name, dim in fuse.sizes}
            cost = cost_of(with_sizes(tape, here))
            fuse.flops, fuse.bytes = cost.flops, cost.bytes
            self._check_choices(fuse, kind, tape)
        used = {fuse.body for fuse in fusions_in(self.plan)}
        for name, function in self.functions.items():
            if name not in used and function.name == "tgraph.func":
                refuse(function, f"no group of the plan has the body `@{name}`", "remove it, or let a group name it")

    def list_choices(self) -> list[str]:
        """What the plan chose: each knob with its group, followed by the value."""
        found: dict[str, str] = {}
        for fuse in fusions_in(self.plan):
            found.update({f"{op.knob}@{fuse.body}": str(op.chosen) for op in tiles_of(fuse)})
        for number, op in enumerate(
            op for op in self.program.walk() if isinstance(op, typed_ops.LayoutOp) and op.order
        ):
            found[f"{KNOB}@{op.operands[0].name_hint or number}"] = str(tuple(op.order))
        return [text for pair in found.items() for text in pair]

    def _check_in_place(self, fuse: typed_ops.FuseOp, function: SpecOp, tape: Tape) -> None:
        """Refuse a group that writes over an operand which its kernel still reads, or whose op does so unsaid."""
        over = [result for result, number in enumerate(fuse.in_place) if number >= 0]
        if any(one.attributes.get(IN_PLACE) is True for one in tape.records) and not over:
            message = f"an op of `@{fuse.body}` writes over its operand, and the group does not say that it may"
            refuse(fuse, message, "leave `in_place` out of the op too, or restore it here")
        if not all(may_overwrite(fuse, function, result, self.machine) for result in over):
            refuse(
                fuse,
                f"`in_place` is {list(fuse.in_place)}, and the kernel of `@{fuse.body}` reads more of what it "
                "would write over",
                "leave `in_place` out, here and in the body, so that the result has memory of its own",
            )

    def _lower_pattern(self, fuse: typed_ops.FuseOp, function: SpecOp) -> None:
        """Make of a body what its group asks for, once for each body; refuse one that is nothing of the kind."""
        lower = self.patterns.get(fuse.pattern)
        if lower is None:
            near = find_nearest(fuse.pattern, self.patterns) or [*self.patterns, "none"]
            refuse(fuse, f"there is no pattern {fuse.pattern!r}", f"did you mean {near[0]!r}?")
        if fuse.body in self.said:
            return
        made = lower(function)
        if not made:
            refuse(
                fuse,
                f"`@{fuse.body}` does not spell out {fuse.pattern!r}, or something else reads what is inside of it",
                "put all ops of the pattern, and no more, into the body of the group",
            )
        self.notes += [f"@{fuse.body}, by the pattern of the plan: {one}" for one in made]
        operands = [value for op in function.walk() if _is_library(op) for value in op.operands]
        for value in operands:
            while isinstance(value, OpResult) and isinstance(value.owner, SpecOp):
                if not isinstance(value.owner.spec.lower, View):
                    refuse(
                        fuse,
                        f"`@{fuse.body}` computes an operand of its kernel by `{value.owner.name}`, and kernels of the "
                        "library read theirs from memory",
                        "compute it by a group before this one, and take it as an argument of the body",
                    )
                value = value.owner.operands[0]

    def _check_facts(self, fuse: typed_ops.FuseOp, function: SpecOp, tape: Tape) -> None:
        """Refuse a body with sizes that nobody gives, or that relies on what no guard of the program says."""
        (program,) = programs_in(self.plan)
        here = {name: Dim.of(dim) for name, dim in fuse.sizes}
        outside = {name for argument in program.body.block.args for name in tensor_of(argument).symbols}
        unknown = sorted(set(size_names(tape)) - set(here) - outside)
        if unknown:
            refuse(
                fuse, f"`@{fuse.body}` has a size {unknown[0]}, and the group does not say what it is", "add `sizes`"
            )
        for guard in guards_of(function):
            left, right = guard.left.substitute(here), guard.right.substitute(here)
            if left != right and (left, right) not in self.facts:
                refuse(
                    function,
                    f"`@{fuse.body}` relies on {left} == {right}, which no guard of the program says",
                    "leave the guard out, or add it to the program's constraints",
                )

    def _kind(self, fuse: typed_ops.FuseOp, tape: Tape) -> KernelKind:
        """The kind of a group: as it says, or as the ops of its body are."""
        kinds = kernel_kinds()
        if not fuse.kind:
            facets: list[Any] = [spec_of(record).lower for record in tape.records]
            heads: list[type[Any]] = [type(facet) for facet in facets if not isinstance(facet, Pointwise | View)]
            found = kind_for(heads[0] if heads else Pointwise)
            fuse.kind = found.name if found.name in kinds else "map"
        kind = kinds[fuse.kind]
        reductions = [record for record in tape.records if isinstance(spec_of(record).lower, Reduction)]
        if kind.has_axes and not fuse.axes and reductions:
            record = reductions[0]
            fuse.axes = tuple(spec_of(record).lower.axes(tape.types[record.operands[0]], record.attributes))
        return kind

    def _check_choices(self, fuse: typed_ops.FuseOp, kind: KernelKind, tape: Tape) -> None:
        """Refuse a choice that nobody has, and groups of one body with different ones."""
        candidates = dict(kind.knobs(self.machine))
        authored = dict(kind.read_choices(tape))
        seen: set[str] = set()
        for op in tiles_of(fuse):
            if op.chosen is None or (op.knob not in KNOBS and op.knob not in authored):
                near = (*find_nearest(op.knob, KNOBS), *candidates, "map.tile")[0]
                refuse(op, f"a choice names its `knob` and what is `chosen`, got {op.knob!r}", f"is it `{near}`?")
            if op.knob in seen:
                refuse(op, f"`{op.knob}` of this group is chosen twice", "leave one of them")
            if op.knob in authored:
                if authored[op.knob] != op.chosen:
                    refuse(op, f"`{op.knob}` was given by the kernel's author: {authored[op.knob]}", "change it there")
                op.detach()  # it is read from the kernel again
                op.erase()
                continue
            seen.add(op.knob)
            op.source = PLAN
            if op.knob in candidates:
                check_candidate(op, candidates[op.knob])
        chosen = {knob: choice.value for knob, choice in choices_for(fuse).items()}
        about = (chosen, str(fuse.pipeline), fuse.kind, tuple(fuse.axes), tuple(fuse.in_place), fuse.rows)
        first, said = self.said.setdefault(fuse.body, (fuse, about))
        if said != about:
            span = first.span
            refuse(
                fuse,
                f"groups of one body have one kernel, and this one is chosen otherwise than that of line "
                f"{span.line if span is not None else '?'}",
                f"copy `@{fuse.body}` under another name for this group, or make both the same",
            )
