"""Plans of the package: a program that a profile holds is not measured, and one with its own plan has it at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from benchmarks.tuned_profile import cases, tensors_of
from tessera.api import stored_plans
from tessera.api.stored_plans import instruction_set, program_signature
from tessera.tuner import profiles
from tessera.tuner.profiles import family_of, read_profiles
from tessera.tuner.records import Entry, Plan, Signature
from tests.determinism.programs import bits
from tests.tuner.samples import timed

HELD = [case for case in cases("cpu") if case[0] in ("softmax 384", "linear 384", "relu 384", "columns 384")]


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    stored_plans.forget_plans()
    yield tmp_path / "cache"
    stored_plans.forget_plans()


def set_instructions(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let this machine have an instruction set."""

    def found(text: str) -> str:
        del text
        return name

    monkeypatch.setattr(stored_plans, "instruction_set", found)


@pytest.mark.parametrize("case", HELD, ids=[case[0] for case in HELD])
def test_with_the_shipped_profile_nothing_is_measured(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The profile is of an instruction set, and this machine may have another.
    set_instructions(monkeypatch, "avx512")
    step: Any = ts.jit(case[1])
    given, before = tensors_of(case, "cpu"), ts.autotune.measurements()
    result = step.autotune(*given, budget=30.0)
    assert result.source == "database"
    assert result.measurements == 0
    assert ts.autotune.measurements() == before


def test_another_instruction_set_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    set_instructions(monkeypatch, "avx1024")
    step: Any = ts.jit(HELD[0][1])
    result = step.autotune(*tensors_of(HELD[0], "cpu"), budget=0.5)
    assert result.source == "measured"


def test_a_first_call_runs_the_plan_that_is_shipped_and_makes_no_database(
    own_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x, w = (ts.array(rng.standard_normal(shape).astype(np.float32)) for shape in ((64, 96), (96, 128)))

    def layer(x: Any, w: Any) -> Any:
        return ts.ops.tanh(x @ w)

    expected = bits(ts.jit(layer)(x, w))
    plain = ts.jit(layer)
    tape = plain.trace(x, w).tape
    space = ts.autotune.space(plain, x, w)
    knob = next(one for one in space.knobs if one.name == "contraction.block")
    plan = Plan.of({knob.key: knob.others[0]})
    found = program_signature(tape, plain.options)
    kept = Signature(*[*found.parts[:4], family_of(found.arch), found.policy_hash])
    entry = Entry(kept, plan, (timed([1.2] * 10),), "profile")
    monkeypatch.setattr(profiles, "_load_shipped", lambda: {kept.parts: entry})
    monkeypatch.setattr(stored_plans, "_shipped_programs", lambda: frozenset([found.op_kind]))
    step, before = ts.jit(layer), ts.autotune.measurements()
    assert bits(step(x, w)) == expected
    assert f"{knob.key} = {knob.others[0]} (autotune)" in str(step.explain(x, w))
    assert ts.autotune.measurements() == before
    assert not os.path.exists(own_database / "tuning")


def test_the_profile_is_small_and_of_an_instruction_set() -> None:
    folder = Path(profiles.__file__).parent
    assert sum(path.stat().st_size for path in folder.glob("*.json")) < 256 << 10
    assert {family_of(entry.signature.arch) for entry in read_profiles().values()} == {
        entry.signature.arch for entry in read_profiles().values()
    }


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x86_64\nflags : fma avx2 avx512f\ntiles: True", "amx"),
        ("x86_64\nflags : fma avx2 avx512f\ntiles: False", "avx512"),
        ("x86_64\nflags : fma avx2", "avx2"),
        ("x86_64\nflags : sse2", "x86_64"),
        ("aarch64\nFeatures : fp asimd sve", "sve"),
        ("aarch64\nFeatures : fp asimd", "neon"),
    ],
)
def test_instruction_sets_are_told_by_the_flags_of_a_machine(text: str, name: str) -> None:
    assert instruction_set(text) == name
