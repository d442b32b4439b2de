"""Tuning a jitted function: what is adopted, kept, found again, and left."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import autotune
from tessera.api import program_tuning, stored_plans
from tessera.api.program_tuning import CUT, TuningStep
from tessera.api.stored_plans import group_signature, program_signature
from tessera.compiler.options import Options
from tessera.compiler.plan_text import compare
from tessera.compiler.space import ProgramSpace
from tessera.diagnostics.codes import TuningError
from tessera.tuner.database import default_database
from tessera.tuner.exchange import export_database, import_database
from tessera.tuner.records import Plan
from tessera.tuner.search import BudgetError, _Session  # pyright: ignore[reportPrivateUsage] - its clock is a test's
from tests.determinism.programs import bits
from tests.tuner.programs.clocks import set_clock

ROOT = Path(__file__).parents[3]
FASTER = (32, 64, 64)
"""The block that the clock of these tests likes."""


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(1)
    return [ts.array(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in shapes]


def layers(act: Callable[[Any], Any]) -> Callable[..., Any]:
    def model(x: Any, a: Any, b: Any) -> Any:
        return act(ts.ops.gelu(x @ a) @ b)

    return model


GIVEN = ((64, 96), (96, 128), (128, 80))


def likes(*values: Any, gain: float = 0.3) -> Callable[[Any], float]:
    """A clock by which each choice of some values saves a part of 100 us."""
    return lambda choices: 100_000.0 * (1 - gain * sum(value in values for _, value in choices) / 2)


def signature_of(function: Any, *given: Any, **options: Any) -> Any:
    jitted: Any = ts.jit(function, **options)
    return program_signature(jitted.trace(*given).tape, jitted.options)


def group_signature_of(function: Any, given: Any, name: str) -> Any:
    space = autotune.space(function, *given)
    (group,) = [one for one in space.groups if one.name == name]
    return group_signature(name, group.tape, {}, space.options)


def test_choices_of_the_whole_program_are_not_tried_when_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes())
    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    lowered, fit = list[Plan](), ProgramSpace.fit
    assert sum(len(knob.others) for knob in autotune.space(jitted, *given).shared) > 1

    def fit_slowly(self: ProgramSpace, plan: Plan) -> Plan:
        lowered.append(plan)
        time.sleep(2.0)
        return fit(self, plan)

    monkeypatch.setattr(ProgramSpace, "fit", fit_slowly)
    for _ in range(2):
        lowered.clear()
        result = jitted.autotune(*given, budget=1.0)
        assert (result.source, result.stopped) == ("measured", "budget"), "it is looked for again"
        assert len(lowered) == 1, "what groups chose, and nothing beside it"


def test_a_search_that_the_budget_ends_is_no_verdict_and_goes_on_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_clock(monkeypatch, lambda choices: 100_000.0)
    own, most = _Session.left, 2

    def end_early(self: _Session) -> float | None:
        if len(self.trials) >= most:
            raise BudgetError
        return own(self)

    monkeypatch.setattr(_Session, "left", end_early)
    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    first = jitted.autotune(*given, mode="exhaustive")
    assert [group.source for group in first.groups] == [CUT, CUT]
    assert (first.stopped, first.accepted) == ("budget", False)
    assert "ended by the budget" in str(first)
    most = 1000
    second = jitted.autotune(*given, mode="exhaustive")
    assert [group.source for group in second.groups] == ["measured", "measured"]
    assert second.stopped == ""
    assert jitted.autotune(*given).source == "database"
    known = sum(group.measured for group in first.groups)
    whole = jitted.autotune(*given, mode="exhaustive", retune=True)
    assert known > 0
    assert whole.measurements - second.measurements >= known * 2 * 10, "what was measured before is not measured again"


def test_the_best_plan_is_adopted_kept_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    expected = bits(jitted(*given))
    steps: list[TuningStep] = []
    result = jitted.autotune(*given, budget=60.0, progress=steps.append)
    assert result.accepted
    assert result.decision is not None
    assert result.decision.gain > 0.2
    assert {value for _, value in result.plan.choices} == {FASTER}
    assert len(result.plan.choices) == 2
    assert {step.where for step in steps} == {*(group.name for group in result.groups), "program"}
    assert all(trial.bits == result.trials[0].bits for trial in result.trials if trial.samples)
    assert bits(jitted(*given)) == expected
    chosen = [line for line in jitted.explain(*given).report["choices"] if "contraction.block" in line]
    assert len(chosen) == 2
    assert all("= (32, 64, 64) (autotune)" in line for line in chosen)
    assert "plan: contraction.block@" in str(result)


def test_the_plan_of_a_tuned_function_is_shown_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    safe, expected = jitted.schedule(*given), bits(jitted(*given))
    assert 'source = "autotune"' not in safe
    assert jitted.autotune(*given).accepted
    shown = jitted.schedule(*given)
    tuned = [line for line in shown.splitlines() if 'source = "autotune", knob = "contraction.block"' in line]
    assert len(tuned) == 2
    assert all("chosen = [32, 64, 64]" in line for line in tuned)
    assert ts.jit(layers(ts.ops.tanh)).schedule(*given) == shown, "another function of the same program has it too"
    assert "32, 64, 64" in jitted.lower(*given).schedule
    planned = jitted.with_plan(shown)
    assert bits(planned(*given)) == expected
    assert compare(shown, safe), "it is another plan than the safe one"
    autotune.cache.clear()
    stored_plans.forget_plans()
    assert jitted.schedule(*given) == safe


def test_later_calls_measure_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    given = arrays(*GIVEN)
    first = ts.jit(layers(ts.ops.tanh))
    assert first.autotune(*given).measurements > 0
    before = autotune.measurements()
    second = ts.jit(layers(ts.ops.tanh))
    second(*given)
    assert any("(autotune)" in line for line in second.explain(*given).report["choices"])
    again = second.autotune(*given)
    assert (again.source, again.accepted, again.measurements) == ("database", True, 0)
    assert autotune.measurements() == before


def test_a_second_process_measures_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        "import numpy as np, sys, tessera as ts\n"
        "from tests.tuner.programs.test_autotune import GIVEN, arrays, layers\n"
        "f = ts.jit(layers(ts.ops.tanh))\n"
        "given = arrays(*GIVEN)\n"
        "f(*given)\n"
        "print(f.autotune(*given).source, ts.autotune.measurements(), sum('(autotune)' in line for line in"
        " f.explain(*given).report['choices']))\n"
    )
    set_clock(monkeypatch, likes(FASTER))
    assert ts.jit(layers(ts.ops.tanh)).autotune(*arrays(*GIVEN)).accepted
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert run.stdout.split() == ["database", "0", "2"], run.stderr


def test_every_part_of_the_key_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    model, given = layers(ts.ops.tanh), arrays(*GIVEN)
    assert ts.jit(model).autotune(*given).accepted
    database, own = default_database(), signature_of(model, *given)
    assert database.lookup(own) is not None
    for name in ("op_kind", "shape_sig", "dtype", "mesh_sig", "arch", "policy_hash", "runtime"):
        assert database.lookup(replace(own, **{name: "another"})) is None, name
    others = [
        signature_of(layers(ts.ops.relu), *given),
        signature_of(model, *arrays((64, 96), (96, 128), (128, 96))),
        signature_of(model, *given, fast_math=True),
        signature_of(model, *given, overrides={"map.tile": 64}),
    ]
    monkeypatch.setenv("TESSERA_NUM_THREADS", "1")
    others.append(signature_of(model, *given))
    assert len({own, *others}) == len(others) + 1
    assert [database.lookup(other) for other in others] == [None] * len(others)


def test_a_small_gain_keeps_the_safe_plan_and_that_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER, gain=0.05))
    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    result = jitted.autotune(*given)
    assert not result.accepted
    assert result.decision is not None
    assert "7" in result.decision.reason
    assert ts.jit(layers(ts.ops.tanh)).autotune(*given).measurements == 0
    stricter = ts.jit(layers(ts.ops.sigmoid)).autotune(*given, threshold=0.02)
    assert stricter.accepted


def test_only_the_group_that_changed_is_tuned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    given = arrays(*GIVEN)
    first = ts.jit(layers(ts.ops.tanh)).autotune(*given)
    assert [group.source for group in first.groups].count("measured") >= 2
    edited = ts.jit(layers(ts.ops.sigmoid)).autotune(*given)
    assert edited.accepted
    tuned = {group.name: group.source for group in edited.groups}
    known = {group.name for group in first.groups}
    assert {name for name, source in tuned.items() if source == "measured"} == set(tuned) - known
    assert "database" in tuned.values()


ACTS = ("gelu", "tanh", "sigmoid", "relu", "exp")


def five(changed: str = "") -> Callable[..., Any]:
    """Five groups, each of sizes of its own; the third may have another op."""
    names = [*ACTS[:2], changed or ACTS[2], *ACTS[3:]]

    def model(x: Any, *weights: Any) -> Any:
        for name, weight in zip(names, weights, strict=True):
            x = getattr(ts.ops, name)(x @ weight)
        return x

    return model


FIVE = ((32, 48), (48, 64), (64, 80), (80, 96), (96, 112), (112, 128))


def test_of_five_groups_the_one_that_was_edited_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes((128, 256, 64)))
    given, where = arrays(*FIVE), list[str]()

    def tell(step: TuningStep) -> None:
        where.append(step.where)

    first = ts.jit(five()).autotune(*given, progress=tell, mode="exhaustive")
    assert len(first.groups) == len(set(where) - {"program"}) == 5
    where.clear()
    edited = ts.jit(five("silu")).autotune(*given, progress=tell, mode="exhaustive")
    known, names = {group.name for group in first.groups}, {group.name for group in edited.groups}
    (new,) = names - known
    assert set(where) - {"program"} == {new}, "nothing of the other four is asked of the device"
    assert {group.name: group.source for group in edited.groups} == {
        **dict.fromkeys(names & known, "database"),
        new: "measured",
    }
    assert edited.accepted
    kept = {group.name: group.plan for group in first.groups}
    assert all(plan.choices for plan in kept.values())
    assert all(group.plan == kept[group.name] for group in edited.groups if group.name in kept)


def test_a_miss_of_any_kind_is_measured_and_a_hit_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sizes, another dtype, other threads and a wiped database are misses.

    The same program on other lines is a hit, and so is a group of it in another program.
    """
    set_clock(monkeypatch, likes(FASTER))
    model, given = layers(ts.ops.tanh), arrays(*GIVEN)

    def same(x: Any, a: Any, b: Any) -> Any:
        return ts.ops.tanh(ts.ops.gelu(x @ a) @ b)

    def part(x: Any, a: Any) -> Any:
        return ts.ops.gelu(x @ a)

    def tune(function: Callable[..., Any], values: Any) -> Any:
        return autotune.tune(ts.jit(function), values, budget=60.0)

    assert tune(model, given).source == "measured"
    assert tune(same, given).source == "database"
    alone = tune(part, given[:2])
    assert (alone.source, alone.groups[0].source) == ("measured", "database"), "the program is new, its group is not"
    assert tune(model, arrays((96, 96), *GIVEN[1:])).source == "measured"
    narrow = [ts.array(np.asarray(one).astype(np.float16)) for one in given]
    assert tune(model, narrow).source == "measured"
    monkeypatch.setenv("TESSERA_NUM_THREADS", "1")
    assert tune(model, given).source == "measured"
    monkeypatch.delenv("TESSERA_NUM_THREADS")
    assert tune(model, given).source == "database"
    default_database().clear()
    again = tune(model, given)
    assert {again.source, *(group.source for group in again.groups)} == {"measured"}


def test_export_wipe_import_measures_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_clock(monkeypatch, likes(FASTER))
    given = arrays(*GIVEN)
    first = ts.jit(layers(ts.ops.tanh)).autotune(*given)
    database, path = default_database(), tmp_path / "plans.json"
    assert export_database(database, str(path)) >= 3
    assert database.clear() >= 3
    assert database.lookup(signature_of(layers(ts.ops.tanh), *given)) is None
    import_database(database, str(path))
    before = autotune.measurements()
    again = ts.jit(layers(ts.ops.tanh)).autotune(*given)
    assert (again.plan, again.source, autotune.measurements()) == (first.plan, "database", before)


@pytest.mark.parametrize(
    "choices",
    [
        {"contraction.block": (7, 7, 7)},
        {"contraction.block@no_such_group": FASTER},
        {"no.such.knob": 1},
    ],
)
def test_a_poisoned_plan_falls_back_and_says_so_once(choices: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    model, given = layers(ts.ops.tanh), arrays(*GIVEN)
    expected = bits(ts.jit(model)(*given))
    default_database().store(signature_of(model, *given), Plan.of(choices))
    with caplog.at_level(logging.WARNING, "tessera.tuner"):
        for _ in range(2):
            assert bits(ts.jit(model)(*given)) == expected
        jitted = ts.jit(model)
        assert bits(jitted(*given)) == expected
    assert len([record for record in caplog.records if record.name.startswith("tessera.tuner")]) == 1
    assert not any("(autotune)" in line for line in jitted.explain(*given).report["choices"])
    assert "autotune" not in jitted.schedule(*given)


def test_a_plan_that_computes_otherwise_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that somebody wrote by hand may name a choice that changes bits: its code says so."""
    from tessera.api import compilation

    model, given = layers(ts.ops.tanh), arrays(*GIVEN)
    default_database().store(signature_of(model, *given), Plan.of({"contraction.block": FASTER}))
    own: Any = getattr(compilation, "_arithmetic")  # noqa: B009 - what says how a program computes

    def changed(tape: Any, options: Options) -> Any:
        return {**own(tape, options), **({"sums by something else": 1} if options.tuned else {})}

    monkeypatch.setattr(compilation, "_arithmetic", changed)
    with caplog.at_level(logging.WARNING, "tessera.tuner"):
        jitted = ts.jit(model)
        jitted(*given)
    assert "changes bits: sums by something else: 1 instead of 0" in caplog.text
    assert not any("(autotune)" in line for line in jitted.explain(*given).report["choices"])


def test_plans_with_other_bits_are_never_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    from tessera.api.workload import RunnableProgram

    set_clock(monkeypatch, likes(FASTER))
    own = RunnableProgram.bits

    def wrong(self: RunnableProgram) -> str:
        return "other" if any(value == FASTER for _, value in self.options.tuned) else own(self)

    monkeypatch.setattr(RunnableProgram, "bits", wrong)
    result = ts.jit(layers(ts.ops.tanh)).autotune(*arrays(*GIVEN))
    assert FASTER not in {value for _, value in result.plan.choices}


def test_ctrl_c_keeps_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    seen: list[Any] = []

    def interrupt(step: TuningStep) -> None:
        seen.append(step)
        if step.where == "program":
            raise KeyboardInterrupt

    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    result = jitted.autotune(*given, progress=interrupt)
    assert result.stopped == "interrupted"
    assert result.accepted
    assert any("(autotune)" in line for line in jitted.explain(*given).report["choices"]) or jitted(*given) is not None


def test_ctrl_c_in_the_groups_ends_the_tuning_with_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    seen: list[TuningStep] = []

    def interrupt(step: TuningStep) -> None:
        seen.append(step)
        if step.where != "program" and step.progress.trial.plan.choices[0][1] == FASTER:
            raise KeyboardInterrupt

    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    result = jitted.autotune(*given, progress=interrupt, mode="exhaustive")
    assert result.stopped == "interrupted"
    assert [group.source for group in result.groups] == ["measured", "no time was left for it"]
    chosen = result.groups[0].plan
    assert [trial.plan for trial in result.trials] == [chosen], "nothing new is tried for the program"
    assert result.plan == chosen
    assert len([step for step in seen if step.where == "program"]) == 1
    assert "ended by the user" in str(result)
    kept = [default_database().trials(group_signature_of(jitted, given, group.name)) for group in result.groups]
    assert [len(trials) > 0 for trials in kept] == [True, False], "a later search begins with what was measured"
    assert jitted.autotune(*given).plan == chosen, "the plan is kept"


def test_ctrl_c_between_searches_ends_the_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering a group to know its space takes a while, and is no part of any search."""
    set_clock(monkeypatch, likes(FASTER))
    own, calls = program_tuning.space_of, list[int]()

    def interrupted(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return own(*given)

    monkeypatch.setattr(program_tuning, "space_of", interrupted)
    result = ts.jit(layers(ts.ops.tanh)).autotune(*arrays(*GIVEN))
    assert result.stopped == "interrupted"
    assert len(result.groups) == 1
    assert result.accepted, "what the first group chose pays by itself"


def test_no_time_leaves_the_safe_plan() -> None:
    result = ts.jit(layers(ts.ops.tanh)).autotune(*arrays(*GIVEN), budget=0.001)
    assert not result.accepted
    assert "no time was left for it" in str(result)


def test_symbolic_dims_are_tuned_at_the_sizes_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))

    def model(x: ts.Tensor["N", 96, ts.f32], a: ts.Tensor[96, 128, ts.f32]) -> Any:
        return ts.ops.gelu(x @ a)

    jitted = ts.jit(model)
    x, a = arrays((64, 96), (96, 128))
    expected = bits(jitted(x, a))
    assert jitted.autotune(x, a).accepted
    assert bits(jitted(x, a)) == expected
    small, other = arrays((5, 96), (96, 128))
    assert bits(jitted(small, other)) == bits(ts.jit(model, fusion=False)(small, other))


def rows(x: ts.Tensor["N", 96, ts.f32], a: ts.Tensor[96, 128, ts.f32]) -> Any:
    return ts.ops.gelu(x @ a)


def test_a_verdict_of_a_symbolic_program_is_for_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    jitted, given = ts.jit(rows), {size: arrays((size, 96), (96, 128)) for size in (60, 64, 2048)}
    first = jitted.autotune(*given[64])
    assert first.accepted
    assert [jitted.autotune(*given[size]).source for size in (64, 60)] == ["database"] * 2
    far = jitted.autotune(*given[2048])
    assert far.source == "measured"
    assert (far.plan, far.withheld) == (first.plan, "")
    stored = [
        entry.signature.shape_sig for entry in default_database().entries() if "program" in entry.signature.op_kind
    ]
    assert stored == ["~2048x96;96x128", "~64x96;96x128"]


def test_the_code_of_a_symbolic_program_has_the_plan_that_all_buckets_agree_on(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted, small, large = ts.jit(rows), arrays((64, 96), (96, 128)), arrays((2048, 96), (96, 128))
    set_clock(monkeypatch, likes(FASTER))
    chosen = jitted.autotune(*small).plan
    assert any("(autotune)" in line for line in jitted.explain(*large).report["choices"])
    set_clock(monkeypatch, likes())
    other = jitted.autotune(*large, threshold=0.05)
    assert (other.accepted, other.withheld) == (False, "")
    jitted(*small)
    assert not any("(autotune)" in line for line in jitted.explain(*small).report["choices"])
    found = jitted.autotune(*small)
    assert (found.source, found.accepted) == ("database", False)
    assert found.withheld.startswith(f"these sizes chose {chosen}, and ~2048x96;96x128 chose the safe plan: one code")
    assert found.withheld in str(found)


def test_again_measures_what_was_tuned_before(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))
    jitted, given = ts.jit(layers(ts.ops.tanh)), arrays(*GIVEN)
    assert jitted.autotune(*given).accepted
    set_clock(monkeypatch, likes())
    again = autotune.tune(jitted, given, retune=True)
    assert (again.source, again.accepted) == ("measured", False)
    assert {group.source for group in again.groups} == {"measured"}
    jitted(*given)
    assert not any("(autotune)" in line for line in jitted.explain(*given).report["choices"])
    assert jitted.autotune(*given).measurements == 0
    assert jitted.autotune(*given, retune=True).measurements > 0


def test_donated_arguments_stay_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))

    def add(x: Any, a: Any) -> Any:
        return ts.ops.gelu(x @ a) + x

    jitted = ts.jit(add, donate="x")
    x, a = arrays((64, 64), (64, 64))
    jitted.autotune(x, a)
    assert np.isfinite(np.asarray(x)).all()


def test_what_acts_on_the_outside_is_not_tuned() -> None:
    def model(x: Any) -> Any:
        ts.debug_print("{}", x)
        return x @ x

    with pytest.raises(TuningError, match="acts on the outside") as caught:
        ts.jit(model).autotune(*arrays((64, 64)))
    assert "runs when it is called" in caught.value.notes[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "clever"}, "`mode` is one of exhaustive, random, hyperband, evolutionary, hybrid, got 'clever'"),
        ({"budget": 0}, "`budget` is a number of seconds"),
        ({"budget": True}, "`budget` is a number of seconds"),
        ({"threshold": "7 %"}, "`threshold` is a fraction, such as 0.07"),
        ({"threshold": -0.5}, "at least 0, got -0.5"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        ts.jit(layers(ts.ops.tanh)).autotune(*arrays(*GIVEN), **settings)


def test_a_function_with_parameters_called_like_settings_is_tuned_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes(FASTER))

    def multiply(x: Any, mode: Any) -> Any:
        return x @ mode

    jitted = ts.jit(multiply)
    x, y = arrays((64, 64), (64, 64))
    result = autotune.tune(jitted, (x,), {"mode": y}, budget=30.0)
    assert result.name == "multiply"
    with pytest.raises(TuningError, match="takes a jitted function"):
        autotune.tune(len, ())


def test_an_interpreter_has_nothing_to_tune() -> None:
    with pytest.raises(TuningError, match="interprets programs"):
        ts.jit(layers(ts.ops.tanh), backend="reference").autotune(*arrays(*GIVEN))


def test_blocks_that_change_no_code_are_not_measured() -> None:
    """On a CPU a product goes to a routine that has blocks of its own: other blocks differ by noise alone."""

    def multiply(x: Any, a: Any) -> Any:
        return ts.ops.gelu(x @ a)

    result = ts.jit(multiply).autotune(*arrays((64, 96), (96, 128)), budget=30.0, mode="exhaustive")
    (group,) = result.groups
    assert {trial.reason for trial in group.trials} == {"the same code as the safe plan"}
    assert (group.measured, group.plan, group.source) == (0, Plan(), "all plans have the same code")


def test_a_real_clock_measures_by_the_protocol() -> None:
    """No synthetic times: whichever plan wins on this machine, it ran beside the safe plan and has its bits."""

    def multiply(x: Any, a: Any) -> Any:
        return ts.ops.gelu(x @ a)

    given = arrays((64, 64), (64, 64))
    jitted = ts.jit(multiply)
    expected = bits(jitted(*given))
    result = jitted.autotune(*given, budget=10.0, mode="exhaustive")
    assert result.measurements > 0
    measured = [trial for group in result.groups for trial in group.trials if trial.samples and not trial.reason]
    assert all(len(trial.samples) == len(trial.baseline) >= 10 for trial in measured)
    assert bits(jitted(*given)) == expected
