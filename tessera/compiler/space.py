"""The space of a program: every choice that its compilation asks for, its groups, and which choices change bits.

Whether a candidate changes bits is read from what it becomes. A program is lowered under it, and the arithmetic of the
result (what adds up its dots, which functions are the machine's own, which multiplies and adds are fused) is compared
with that of the safe plan. Tiles, threads, stages, streams and fusion leave it as it is; another matrix instruction, or
a block that the same instruction does not take, does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.compiler.compile import Lowering, lower
from tessera.compiler.kernel_instance import KernelInstance
from tessera.compiler.options import Options
from tessera.compiler.report import Arithmetic, arithmetic_of, differences
from tessera.diagnostics.error import CompilationError
from tessera.ir.base.compilation import KNOBS, Question
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.tape import POLICY, Tape
from tessera.ir.base.verify import symbol_table
from tessera.ir.graph.passes.choose_segments import KNOB as SEGMENT
from tessera.ir.schedule.passes.branch_on_rows import KNOB as BLOCK
from tessera.ir.schedule.passes.branch_on_rows import variants_of
from tessera.ir.schedule.plan import body_of, fusions_in, tape_in
from tessera.ir.schedule.typed_ops import FuseOp, IfOp
from tessera.tuner.records import Plan
from tessera.types.device import DEVICE
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

BIT_NEUTRAL, NUMERIC, REFUSED = "bit_neutral", "numeric", "refused"
"""What a candidate does to a program: nothing that bits show, other bits, or it cannot be carried out at all."""


@frozen
class TunableKnob:
    """A knob at a location: what may be chosen there, what is chosen without a tuner, and by whom."""

    key: str
    candidates: tuple[Any, ...]
    default: Any
    source: str
    context: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """What a model may look at: dims, dtypes, the machine."""

    @property
    def name(self) -> str:
        """The knob alone: `contraction.block`."""
        return self.key.partition("@")[0]

    @property
    def location(self) -> str:
        """The group that asks, or what else does; empty for the whole program."""
        return self.key.partition("@")[2]

    @property
    def others(self) -> tuple[Any, ...]:
        """The candidates beside the default."""
        return tuple(value for value in self.candidates if value != self.default)


Conditions = tuple[tuple[Dim, bool], ...]
"""Sizes, each with whether it has to be more than zero."""


def evaluate_dim(dim: Any, sizes: Mapping[str, int]) -> int:
    """The value of a dim, or of a plain number, at some sizes."""
    return int(dim.evaluate({name: sizes[name] for name in dim.symbols})) if hasattr(dim, "symbols") else int(dim)


def _holds(size: Dim, is_positive: bool, sizes: Mapping[str, int]) -> bool:
    return not size.symbols <= set(sizes) or (evaluate_dim(size, sizes) > 0) == is_positive


@frozen
class GroupPart:
    """A fusion group of a program: the name of its body, which comes of its content, and what it computes."""

    name: str
    tape: Tape
    sizes: tuple[tuple[str, Dim], ...]
    """What the sizes of its body are in the program."""
    calls: tuple[Conditions, ...]
    """What must hold for each call to run: other groups may be there for other sizes."""
    time: Dim | int | None
    """Nanoseconds of one call by the static model."""
    policy: Mapping[str, Any]
    body: str = ""
    """The body that it is one of the plans for, by the number of rows."""
    rows: Dim | None = None
    """The rows of that body, in its own sizes, where the host decides by them which of the plans runs."""

    def sizes_at(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes of its body where those of the program are known."""
        return {name: evaluate_dim(dim, sizes) for name, dim in self.sizes}

    def count_calls(self, sizes: Mapping[str, int]) -> int:
        """How often it runs at some sizes of the program; calls that these do not decide about count."""
        return sum(all(_holds(size, holds, sizes) for size, holds in one) for one in self.calls)

    def location_at(self, sizes: Mapping[str, int]) -> str:
        """Where the choices for some sizes of the program are asked for.

        A plan for few rows is there only where its block differs from that of the plan for more of them. A choice is
        made for the narrowest limit, whose plan is there as soon as another block is chosen for it.
        """
        if self.rows is None or not all(dim.symbols <= set(sizes) for _, dim in self.sizes):
            return self.name
        rows = evaluate_dim(self.rows, self.sizes_at(sizes))
        return next((name for limit, name in variants_of(self.body).items() if rows <= limit), self.body)


@dataclass
class ProgramSpace:
    """All choices of one program, and its groups; classes are derived when they are first asked for, and then kept."""

    tape: Tape
    options: Options
    knobs: tuple[TunableKnob, ...]
    groups: tuple[GroupPart, ...]
    locked: tuple[str, ...]
    """What is no candidate at all because it would change bits, as blocks that a user's kernel reduces over."""
    arithmetic: Arithmetic
    _classes: dict[Plan, tuple[str, str]] = field(default_factory=dict[Plan, tuple[str, str]], init=False)

    def of_group(self, name: str) -> tuple[TunableKnob, ...]:
        """The knobs that a group asks for."""
        return tuple(knob for knob in self.knobs if knob.location == name)

    def running(self, sizes: Mapping[str, int]) -> dict[str, GroupPart]:
        """The groups that run at some sizes, by where their choices for these are asked for."""
        return {group.location_at(sizes): group for group in self.groups if group.count_calls(sizes)}

    @cached_property
    def shared(self) -> tuple[TunableKnob, ...]:
        """The knobs of no group: fusions, streams, and what a machine is used with.

        One that is asked for both with and without a location is there once, without: that answers both.
        """
        names = {name for group in self.groups for name in (group.name, *variants_of(group.body).values())}
        bare = {knob.key for knob in self.knobs if "@" not in knob.key}
        return tuple(
            knob for knob in self.knobs if knob.location not in names and ("@" not in knob.key or knob.name not in bare)
        )

    def classify(self, plan: Plan) -> tuple[str, str]:
        """The class of a plan, and what it is told by."""
        if plan not in self._classes:
            self._classes[plan] = self._derive(plan)
        return self._classes[plan]

    def _derive(self, plan: Plan) -> tuple[str, str]:
        # In which order products are added, no count of what adds them up shows.
        segments = [name for name, _ in plan.choices if name.partition("@")[0] == SEGMENT]
        if segments:
            return NUMERIC, f"`{segments[0]}` adds products in another order"
        try:
            lowering = lower(self.tape, replace(self.options, tuned=plan.choices))
            lowering.chooser.check_overrides()
        except CompilationError as error:
            return REFUSED, error.message
        reason = differences(self.arithmetic, _arithmetic(lowering))
        return (NUMERIC, reason) if reason else (BIT_NEUTRAL, "")

    def fit(self, plan: Plan) -> Plan:
        """A plan without choices that nobody asks for under it: other fusions make other groups.

        Raises CompilationError where it cannot be carried out.
        """
        asked = lower(self.tape, replace(self.options, tuned=plan.choices)).chooser.questions
        names = {name for key in asked for name in (key, key.partition("@")[0])}
        return Plan.of({name: value for name, value in plan.choices if name in names})

    def class_of(self, knob: TunableKnob) -> str:
        """Whether any candidate of a knob changes bits, with all other choices as they are without a tuner."""
        classes = {self.classify(Plan.of({knob.key: value}))[0] for value in knob.others}
        return NUMERIC if NUMERIC in classes else BIT_NEUTRAL

    def neutral(self, knob: TunableKnob) -> tuple[Any, ...]:
        """The candidates of a knob that change no bit and can be carried out, the default first."""
        kept = [value for value in knob.others if self.classify(Plan.of({knob.key: value}))[0] == BIT_NEUTRAL]
        return (knob.default, *kept)

    def __str__(self) -> str:
        lines: list[str] = []
        for knob in self.knobs:
            classes = {value: self.classify(Plan.of({knob.key: value})) for value in knob.others}
            lines.append(f"{knob.key} = {knob.default} ({knob.source}), {self.class_of(knob)}: {KNOBS[knob.name]}")
            for kind in (BIT_NEUTRAL, NUMERIC, REFUSED):
                values = [str(value) for value, found in classes.items() if found[0] == kind]
                lines += [f"  {kind}: {', '.join(values)}"] if values else []
        return "\n".join([*lines, *(f"locked: {text}" for text in self.locked)])


def space_of(tape: Tape, options: Options) -> ProgramSpace:
    """The space of a program under options, of which those that a tuner chose are left out."""
    plain_options = replace(options, tuned=())
    groups: dict[str, GroupPart] = {}

    def observe(name: str, module: ModuleOp) -> None:
        if name == "schedule-choose-tiles":
            groups.update(_groups_in(module, tape))

    lowering = lower(tape, plain_options, observe=observe)
    questions = lowering.chooser.questions
    groups = {name: _with_rows(group, questions) for name, group in groups.items()}
    knobs = tuple(_knob(key, question) for key, question in questions.items())
    given = {name for name, _ in options.overrides}
    open_knobs = [knob for knob in knobs if not {knob.key, knob.name} & given and len(knob.candidates) > 1]
    return ProgramSpace(
        tape, plain_options, tuple(open_knobs), tuple(groups.values()), _find_locked(tape), _arithmetic(lowering)
    )


def lowered_arithmetic(tape: Tape, options: Options) -> Arithmetic:
    """How a program would compute; no machine code is made."""
    return _arithmetic(lower(tape, options))


def _arithmetic(lowering: Lowering) -> Arithmetic:
    return arithmetic_of(lowering.program, lowering.kernels, lowering.code)


def _knob(key: str, question: Question) -> TunableKnob:
    choice = question.choice
    return TunableKnob(key, question.candidates, choice.value, choice.source, question.context)


def _groups_in(module: ModuleOp, tape: Tape) -> dict[str, GroupPart]:
    """The groups of a plan by the names of their bodies; each body as a program of its own."""
    functions, found = symbol_table(module), dict[str, GroupPart]()
    promises = {name: tape.promises[name] for name in (POLICY, DEVICE) if name in tape.promises}
    for fuse in fusions_in(module):
        known = found.get(fuse.body)
        if known is not None:
            found[fuse.body] = replace(known, calls=(*known.calls, _conditions_of(fuse)))
            continue
        body = tape_in(body_of(fuse, functions))
        body.promises.update(promises)
        policy, conditions = dict(tape.promises.get(POLICY, {})), _conditions_of(fuse)
        found[fuse.body] = GroupPart(fuse.body, body, tuple(fuse.sizes), (conditions,), fuse.time, policy, fuse.body)
    return found


def _conditions_of(fuse: FuseOp) -> Conditions:
    """Sizes by which the branches around a group decide whether it runs."""
    found: list[tuple[Dim, bool]] = []
    op: Operation = fuse
    while (around := op.parent_op()) is not None:
        if isinstance(around, IfOp) and around.size is not None:
            found.append((around.size, op.parent_region() is around.regions[0]))
        op = around
    return tuple(found)


def _with_rows(group: GroupPart, questions: Mapping[str, Question]) -> GroupPart:
    """A group with the rows that its plans are chosen by, where there are several of its body."""
    body = next((found for found in _bodies_of(group.name) if f"{BLOCK}@{found}" in questions), group.name)
    asked = questions.get(f"{BLOCK}@{body}")
    is_one = asked is None or not any(f"{BLOCK}@{name}" in questions for name in variants_of(body).values())
    return group if is_one or asked is None else replace(group, body=body, rows=Dim.of(asked.context["m"]))


def _bodies_of(name: str) -> list[str]:
    """The bodies that a group of a name may be a plan for few rows of."""
    bodies = [name.removesuffix(suffix) for suffix in variants_of("").values() if name.endswith(suffix)]
    return [*bodies, name]


def _find_locked(tape: Tape) -> tuple[str, ...]:
    """Blocks that kernels of users reduce over: another one adds up in another order."""
    lines: dict[str, None] = {}
    for record in tape.records:
        called = KERNELS.get(str(record.attributes.get("kernel"))) if record.op == "tgraph.kernel_call" else None
        if isinstance(called, KernelInstance):
            types: Sequence[Any] = [tape.types[operand] for operand in record.operands]
            numeric = called.program(types).numeric
            if numeric:
                lines[f"`{', '.join(numeric)}` of the kernel `{called.definition.name}`: it adds up over them"] = None
        for body in record.bodies:
            lines.update(dict.fromkeys(_find_locked(body)))
    return tuple(lines)
