"""Fusion rules: each keeps meaning and may be left out, grouping asks them in order, and a new one is one object."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from xdsl.dialects.builtin import ModuleOp

from tessera import ops
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.reference.compile import run_tape
from tessera.diagnostics.codes import BoundsError
from tessera.diagnostics.error import InternalError
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.tape import Tape
from tessera.ir.schedule import fusion
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.schedule.fusion import RULES
from tessera.ir.schedule.fusion.epilogue import Epilogue
from tessera.ir.schedule.fusion.map_chain import MapChain
from tessera.ir.schedule.fusion.merge_producers import MergeProducers
from tessera.ir.schedule.fusion.row_columns import RowColumns
from tessera.ir.schedule.fusion.row_pointwise import RowPointwise
from tessera.ir.schedule.grouping import LARGEST, FusionRule, Group, Grouping, Site, When, group_tape
from tessera.ir.schedule.kinds import all_kinds
from tessera.ir.schedule.passes.form_groups import FormGroups
from tessera.ir.schedule.plan import fusions_in
from tessera.ir.schedule.program import Program
from tessera.stdlib.kernels import StandardLibrary
from tessera.types.machine import Machine
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import MACHINE, assert_close, inputs_for, run_verified, simplify, tapes, tensor, trace

Rules = Sequence[type[FusionRule]]
SIZES = ({"A": 3, "B": 5}, {"A": 1, "B": 1})
LIT = Path(__file__).parents[2] / "lit" / "schedule" / "fusion"


def recipe() -> type[FusionRule]:
    """The rule that CONTRIBUTING.md adds, as it is written there."""
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## Add a fusion rule")
    code = section.partition("```python\n")[2].partition("```")[0]
    scope: dict[str, Any] = {"__name__": "sibling_maps"}
    exec(code, scope)
    return scope["RULE"]


SiblingMaps = recipe()


def run_with(tape: Tape, rules: Rules, steps: int | None = None, machine: Machine = MACHINE) -> ModuleOp:
    """The schedule stage with groups formed by some rules: its first passes, or all, which end with kernels.

    Groups are interpreted by their bodies, which are right however they are grouped; only kernels show a wrong fusion.
    """
    module = simplify(tape)
    first, *later = schedule.pipeline(machine, StaticChooser(), StandardLibrary())[:steps]
    assert isinstance(first, FormGroups)
    passes = (replace(first, rules=rules), *later)
    run_verified(passes, module, schedule.EXIT if steps is None else None)
    return module


def assert_meaning(tape: Tape, rules: Rules) -> None:
    """What the kernels compute, once groups are formed by some rules, is what the tape means."""
    module = run_with(tape, rules)
    for sizes in SIZES:
        arrays = inputs_for(tape, sizes)
        with np.errstate(all="ignore"):
            assert_close(run_program(module, *arrays), run_tape(tape, arrays))


def groups(function: Callable[..., Any], types: Sequence[Any], rules: Rules, machine: Machine = MACHINE) -> list[str]:
    """The kind of each group, and how many results it has."""
    fuses = fusions_in(run_with(trace(function, *types), rules, 1, machine))
    return [f"{fuse.value('kind')} {len(fuse.results)}" for fuse in fuses]


def assert_in_order(grouping: Grouping) -> None:
    """Every group comes after those that it reads."""
    program, rank = grouping.program, {group.number: at for at, group in enumerate(grouping.groups)}
    for number in program.solid:
        for read in program.reads(number):
            source = grouping.owner.get(program.makers.get(read.value, -1))
            assert source is None or rank[source.number] <= rank[grouping.owner[number].number]


def without(rule: type[FusionRule]) -> Rules:
    return [one for one in RULES if one is not rule]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_is_one_file_with_a_lit_test(rule: type[FusionRule]) -> None:
    name = rule.__module__.rpartition(".")[2]
    assert rule.__module__ == f"{fusion.__name__}.{name}"
    assert rule.__name__.lower() == name.replace("_", "")
    assert (LIT / f"{name}.mlir").is_file()


@pytest.mark.parametrize("rules", [*map(without, RULES), [*RULES, SiblingMaps]])
@settings(max_examples=8)
@given(tape=tapes())
def test_meaning_is_kept_with_a_rule_less_and_with_one_more(rules: Rules, tape: Tape) -> None:
    assert_meaning(tape, rules)


def careless(rule: type[FusionRule]) -> type[FusionRule]:
    """The rule without its legality checks: it matches whatever it is asked for."""
    return type(f"Careless{rule.__name__}", (rule,), {"matches": lambda self, site, group: True})


class TransposedSiblings(SiblingMaps):
    """Maps of one number of elements share a kernel, even where their shapes differ."""

    def matches(self, site: Site, group: Group) -> bool:
        return sorted(map(str, site.shape)) == sorted(map(str, group.shape))


WRONG: dict[str, tuple[type[FusionRule], Callable[..., Any], tuple[Any, ...], str]] = {
    "a row value read along the row": (
        careless(RowPointwise),
        lambda x: (ops.sum(x, axis=1), ops.exp(x) + ops.sum(x, axis=1)),
        (tensor("A A"),),
        r"computes `tgraph.sum` at \[d0\] and reads it at \[d1\]",
    ),
    "a transposed read of a value kept between passes": (
        careless(RowPointwise),
        lambda x: (lambda e: ops.transpose(e) + (e + ops.sum(e, axis=1, keepdims=True)))(ops.exp(x)),
        (tensor("A A"),),
        r"computes `tgraph.exp` at \[d0, d1\] and reads it at \[d1, d0\]",
    ),
    "two reductions over different axes": (
        careless(MergeProducers),
        lambda x: ops.sum(x - ops.sum(x, axis=0), axis=1),
        (tensor("A A"),),
        "reduces",
    ),
    "a transposed result of a contraction": (
        careless(Epilogue),
        # With a K that is known to be short: others branch, and an epilogue is within a branch.
        lambda x, w: (lambda y: y + ops.transpose(y))(x @ w),
        (tensor("A 8"), tensor("8 A")),
        r"at \[d0, d1\] and reads it at \[d1, d0\]",
    ),
    "results of two shapes": (
        TransposedSiblings,
        lambda x: (ops.exp(x), ops.exp(ops.transpose(x))),
        (tensor("A B"),),
        "no kernel computes both",
    ),
}


def wrong_rules(rule: type[FusionRule]) -> Rules:
    return [*(one for one in RULES if not issubclass(rule, one)), rule]


@pytest.mark.parametrize("what", WRONG)
def test_a_rule_that_fuses_too_much_is_refused_where_groups_are_formed(what: str) -> None:
    rule, function, types, message = WRONG[what]
    with pytest.raises(InternalError, match=message) as refused:
        run_with(trace(function, *types), wrong_rules(rule), 1)
    assert refused.value.where == "schedule-form-groups"


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are formed without being checked."""
    for kind in all_kinds().values():
        monkeypatch.setattr(type(kind), "check", lambda self, body, axes: None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("what", WRONG)
def test_kernels_show_a_rule_that_fuses_too_much(what: str) -> None:
    rule, function, types, _ = WRONG[what]
    with pytest.raises((AssertionError, BoundsError, InternalError)):
        assert_meaning(trace(function, *types), wrong_rules(rule))


@pytest.mark.usefixtures("unchecked")
def test_random_programs_show_a_rule_that_fuses_too_much() -> None:
    @settings(max_examples=100, derandomize=True, database=None, phases=[Phase.generate])
    @given(tape=tapes())
    def check(tape: Tape) -> None:
        assert_meaning(tape, wrong_rules(careless(RowPointwise)))

    with pytest.raises((AssertionError, InternalError)):
        check()


@settings(max_examples=40)
@given(tape=tapes())
def test_groups_run_in_order_and_hold_every_record_once(tape: Tape) -> None:
    program = Program(tape)
    grouping = group_tape(program, lambda knob, record: True, [*RULES, SiblingMaps])
    placed = [number for group in grouping.groups for number in group.records]
    assert sorted(placed) == program.solid
    assert all(len(group.records) <= LARGEST for group in grouping.groups)
    assert_in_order(grouping)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Epilogue": (lambda x, w: ops.relu(x @ w), (tensor("M K"), tensor("K N"))),
    "RowPointwise": (lambda x: x - ops.max(x, axis=1, keepdims=True), (tensor("M N"),)),
    "RowReduction": (lambda x: (ops.sum(x, axis=1), ops.max(x, axis=1)), (tensor("M N"),)),
    "MapChain": (lambda x: (ops.exp(ops.sin(x)), ops.sin(x)), (tensor("M N"),)),
    "MergeProducers": (lambda x: (ops.sum(ops.exp(x), axis=1), ops.exp(x)), (tensor("M N"),)),
    "InlineProducer": (lambda x, v: x * (-v), (tensor("M N"), tensor("N"))),
    "RowColumns": (lambda x: (x - ops.mean(x, axis=1, keepdims=True), ops.sum(x, axis=0)), (tensor("M 2048"),)),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_does_its_job(rule: type[FusionRule]) -> None:
    """Each has a program that is one kernel with it, and more without."""
    function, types = PROGRAMS[rule.__name__]
    machine = MACHINE if rule.applies(MACHINE) else GPUS["sm_90a"]
    if rule is MapChain:
        # Its producers would be merged a moment later.
        rest = [one for one in without(rule) if one.when is not When.GROWN]
        assert len(groups(function, types, [*rest, rule])) < len(groups(function, types, rest))
        return
    assert len(groups(function, types, RULES, machine)) < len(groups(function, types, without(rule), machine))


def test_a_rule_is_asked_on_machines_that_it_applies_to() -> None:
    function, types = PROGRAMS["RowColumns"]
    assert groups(function, types, RULES) == groups(function, types, without(RowColumns))


def test_a_new_rule_is_one_object() -> None:
    """Two results of one input: two kernels, or with a rule for siblings one that reads the input once."""

    def program(x: Any) -> Any:
        return ops.exp(x), ops.sin(x)

    assert groups(program, [tensor("M N")], RULES) == ["map 1", "map 1"]
    assert groups(program, [tensor("M N")], [*RULES, SiblingMaps]) == ["map 2"]


@pytest.mark.parametrize("when", When)
def test_a_site_has_at_each_moment_what_the_recipe_says(when: When) -> None:
    seen: list[Site] = []

    def targets(self: FusionRule, site: Site) -> list[Group]:
        seen.append(site)
        return []

    rule = type("Watch", (FusionRule,), {"when": when, "order": 0, "targets": targets, "matches": lambda *_: False})
    tape = trace(lambda x: ops.sum(ops.exp(x), axis=1), tensor("M N"))
    group_tape(Program(tape), lambda knob, record: True, [rule])
    site = max(seen, key=lambda site: site.record)
    assert (site.group is None) == (when is When.RECORD)
    empty = (site.facet is None, not site.reads, not site.sources)
    assert empty == ((True,) * 3 if when is When.FORMED else (False,) * 3)


def test_a_rule_for_formed_groups_names_its_targets() -> None:
    """There a site has no sources, so a rule that keeps the default would never be asked."""
    with pytest.raises(TypeError, match="fusion rule `Silent` needs `targets`"):
        type("Silent", (FusionRule,), {"when": When.FORMED, "order": 70})


def test_rules_are_asked_in_order_and_the_cheapest_that_matches_is_applied() -> None:
    asked: list[str] = []

    def listening(rule: type[FusionRule]) -> type[FusionRule]:
        def matches(self: FusionRule, site: Site, group: Group) -> bool:
            asked.append(rule.__name__)
            return rule.matches(self, site, group)

        return type(rule.__name__, (rule,), {"matches": matches})

    class First(MapChain):
        """As cheap as an epilogue, and asked before it."""

        order = 5

        def cost(self, site: Site, group: Group) -> tuple[int, ...]:
            return 0, -group.number

        def matches(self, site: Site, group: Group) -> bool:
            return False

    def program(x: Any, w: Any, y: Any) -> Any:
        return ops.exp(y) + x @ w

    tape = trace(program, tensor("M K"), tensor("K N"), tensor("M N"))
    group_tape(Program(tape), lambda knob, record: True, [*map(listening, (First, *RULES))])
    # The sum reads the matmul (group 1) and the exponential (group 0): the later one first, by its one rule.
    assert asked[0] == "Epilogue"
    asked.clear()
    group_tape(Program(tape), lambda knob, record: False, [*map(listening, (First, *RULES))])
    # Nothing is allowed, so all are asked: by cost, and rules of one cost in their order.
    assert asked[:3] == ["Epilogue", "First", "MapChain"]


def test_fusion_is_refused_by_the_engine_where_a_group_would_have_to_run_twice() -> None:
    """`exp` is needed by the matmul, and the difference needs both: no rule may put it beside `exp`."""

    class Always(MapChain):
        """Matches whatever it is asked for."""

        order = 0

        def matches(self, site: Site, group: Group) -> bool:
            return True

    def program(x: Any, w: Any) -> Any:
        e = ops.exp(x)
        return ops.softmax(e @ w) - e

    tape = trace(program, tensor("N N"), tensor("N N"))
    grouping = group_tape(Program(tape), lambda knob, record: True, (Always, Epilogue))
    assert_in_order(grouping)
