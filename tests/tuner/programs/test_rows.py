"""Groups whose rows are known at run time alone: a GPU has several plans of each, and the one that runs is tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

import tessera as ts
from tessera.api import program_tuning, stored_plans
from tessera.api.program_tuning import ProgramTuning
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.compiler.space import ProgramSpace, space_of
from tessera.tuner.acceptance import Criteria
from tessera.tuner.database import Database
from tessera.tuner.records import Plan, Trial

CUDA = Options(backend="cuda", features=("sm_90a",))


def layers(x: ts.Tensor["N", 128, ts.bf16], a: ts.Tensor[128, 256, ts.bf16], b: ts.Tensor[256, 128, ts.bf16]) -> Any:
    return ts.ops.gelu(x @ a) @ b


@pytest.fixture(scope="module")
def space() -> ProgramSpace:
    return space_of(ts.jit(layers).trace().tape, CUDA)


@pytest.mark.parametrize(("rows", "suffix"), [(1, "_rows64"), (64, "_rows64"), (200, "_rows256"), (5000, "")])
def test_choices_are_those_for_the_rows_of_a_call(space: ProgramSpace, rows: int, suffix: str) -> None:
    running = space.running({"N": rows})
    assert len(running) == 2
    for location, group in running.items():
        assert location == f"{group.body}{suffix}"
        assert group.count_calls({"N": rows}) == 1
        assert [knob.name for knob in space.of_group(location)][:1] == ["contraction.block"]
    others = [group for group in space.groups if group not in running.values()]
    assert all(group.count_calls({"N": rows}) == 0 for group in others)
    assert sum(group.count_calls({}) for group in space.groups) == len(space.groups), "without sizes any may run"
    assert not any("_rows" in knob.key for knob in space.shared)


def test_a_block_that_is_chosen_for_some_rows_is_the_one_that_runs(space: ProgramSpace) -> None:
    sizes = {"N": 200}
    for location, group in space.running(sizes).items():
        (knob,) = [knob for knob in space.of_group(location) if knob.name == "contraction.block"]
        block = next(value for value in knob.others if value != _block_of(space, group.name))
        under = space_of(space.tape, CUDA)
        tuned = lower(space.tape, _with(CUDA, {knob.key: block}))
        assert tuned.chooser.questions[knob.key].choice.value == block
        again = _groups_under(space, {knob.key: block}, sizes)
        assert location in again, "the plan for so many rows is there once its block differs"
        assert set(again) - {location} == {name for name in _names(under, sizes) if group.body not in name}


def _names(space: ProgramSpace, sizes: Mapping[str, int]) -> list[str]:
    return [group.name for group in space.running(sizes).values()]


def _with(options: Options, tuned: Mapping[str, Any]) -> Options:
    return Options(backend=options.backend, features=options.features, tuned=Plan.of(dict(tuned)).choices)


def _block_of(space: ProgramSpace, name: str) -> Any:
    return next(knob.default for knob in space.knobs if knob.key == f"contraction.block@{name}")


def _groups_under(space: ProgramSpace, tuned: Mapping[str, Any], sizes: Mapping[str, int]) -> list[str]:
    """The kernels that a call of some sizes runs under a plan: `overrides` choose as a tuner does."""
    options = Options(backend=CUDA.backend, features=CUDA.features, overrides=Plan.of(dict(tuned)).choices)
    return _names(space_of(space.tape, options), sizes)


class MadeUp:
    """A device that likes one block."""

    safe_bits = "same"

    def __init__(self, liked: Any) -> None:
        self.liked = liked

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        return {}

    def measure(self, plan: Plan, rounds: int = 10) -> Trial:
        likes = sum(value == self.liked for _, value in plan.choices)
        return Trial(plan, (100.0 - 20 * likes,) * rounds, (100.0,) * rounds, bits="same")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_symbolic_groups_are_tuned_by_themselves(
    space: ProgramSpace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sizes = {"N": 200}
    locations = list(space.running(sizes))
    knob = next(knob for knob in space.knobs if knob.key == f"contraction.block@{locations[0]}")
    liked = next(value for value in knob.others if value != knob.default)
    tuning = ProgramTuning(
        space, (), sizes, "exhaustive", 600.0, Criteria(), None, Database(str(tmp_path / "plans.sqlite3"))
    )

    def measured(self: ProgramTuning, name: str, one: ProgramSpace) -> Any:
        workload = program_tuning.ProgramWorkload(one)
        workload.sizes = self.parts[name].sizes
        return workload, MadeUp(liked)

    def here(_: Options) -> str:
        return "sm_90a"

    def allowed(*_: Any) -> str:
        return ""

    monkeypatch.setattr(ProgramTuning, "measurer", measured)
    monkeypatch.setattr(program_tuning.ProgramWorkload, "refusal", allowed)
    for name in ("architecture", "runtime_text"):
        monkeypatch.setattr(stored_plans, name, here)
    tuning.tune_groups()
    assert {group.name: group.source for group in tuning.groups} == dict.fromkeys(locations, "measured")
    best = {group.name: group.plan.overrides for group in tuning.groups}
    assert best[locations[0]] == {f"contraction.block@{locations[0]}": liked}
    plan, decision, _ = tuning.tune_program()
    assert decision is not None
    assert decision.accepted
    assert plan.overrides[f"contraction.block@{locations[0]}"] == liked
