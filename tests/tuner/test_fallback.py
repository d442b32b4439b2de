"""Stored plans that cannot be used: the safe plan takes their place, and the reason is logged once."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import CodegenError
from tessera.diagnostics.error import InternalError
from tessera.tuner import fallback
from tessera.tuner.database import Database
from tessera.tuner.fallback import SafePlans, why_poisoned
from tessera.tuner.records import Plan
from tests.tuner.samples import BLOCK, MATMUL, signature

CANDIDATES: dict[str, Any] = {
    "contraction.block": ((8, 32, 64), (16, 32, 64)),
    "fusion.map": (True, False),
    "topk.algorithm": ["radix", "sort"],
    "map.tile": (32, 64),
    "map.tile@group3": (128,),
}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(fallback, "_logged", set[Any]())
    return Database(None, profiles=False)


def test_a_plan_of_known_knobs_and_candidates_is_given(database: Database) -> None:
    plans = SafePlans(database)
    assert plans.plan_for(MATMUL, CANDIDATES) == Plan()
    database.store(MATMUL, BLOCK)
    assert plans.plan_for(MATMUL, CANDIDATES) == BLOCK
    assert plans.plan_for(MATMUL) == BLOCK


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"map.tiles": 32}, "it chooses `map.tiles`, which is no knob of this program; the nearest is `map.tile`"),
        ({"zzz": 32}, "it chooses `zzz`, which is no knob of this program"),
        ({"map.tile": 33}, "`map.tile` cannot be 33; it can be 32, 64"),
        ({"map.tile@group3": 32}, "`map.tile@group3` cannot be 32; it can be 128"),
        ({"map.tile@group4": 128}, "`map.tile@group4` cannot be 128; it can be 32, 64"),
        ({"fusion.map": 1}, "`fusion.map` cannot be 1; it can be True, False"),
        ({"contraction.block": (8, 32)}, "`contraction.block` cannot be (8, 32); it can be (8, 32, 64), (16, 32, 64)"),
    ],
)
def test_a_poisoned_plan_gives_the_safe_one_and_is_logged_once(
    database: Database, caplog: pytest.LogCaptureFixture, choices: dict[str, Any], reason: str
) -> None:
    plan = Plan.of(choices)
    assert why_poisoned(plan, CANDIDATES) == reason
    database.store(MATMUL, plan)
    with caplog.at_level(logging.WARNING, "tessera.tuner"):
        for plans in (SafePlans(database), SafePlans(database)):
            for _ in range(3):
                assert plans.plan_for(MATMUL, CANDIDATES) == Plan()
            assert plans.why_rejected(MATMUL, plan) == reason
    assert len(caplog.messages) == 1
    assert f"the stored plan of `{MATMUL}` is not used ({plan}): {reason}; the safe plan is" in caplog.messages[0]


@pytest.mark.parametrize("error", [CodegenError("too many registers", span=None), InternalError("too many registers")])
def test_a_plan_that_does_not_compile_gives_the_safe_one(
    database: Database, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    compiled: list[Plan] = []

    def compile(plan: Plan) -> str:
        compiled.append(plan)
        if plan.choices:
            raise error
        return "safe code"

    database.store(MATMUL, BLOCK)
    plans = SafePlans(database)
    with caplog.at_level(logging.WARNING, "tessera.tuner"):
        assert plans.compile(MATMUL, compile) == ("safe code", Plan())
        assert plans.compile(MATMUL, compile) == ("safe code", Plan())
    assert compiled == [BLOCK, Plan(), Plan()], "it is not tried again in this process"
    assert len(caplog.messages) == 1
    assert "it does not compile: too many registers" in caplog.messages[0]
    found = database.lookup(MATMUL)
    assert found is not None
    assert found.plan == BLOCK, "another version may have a use for it"


def test_a_database_that_cannot_be_read_stops_no_program(
    database: Database, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "notes.sqlite3") as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    plans = SafePlans(Database(tmp_path / "notes.sqlite3", profiles=False))
    for _ in range(2):
        assert plans.compile(MATMUL, str) == ("the safe plan", Plan())
    assert len(caplog.messages) == 1
    assert "no stored plan is used" in caplog.messages[0]
    assert "is a database of another program" in caplog.messages[0]


def test_what_fails_with_the_safe_plan_too_is_the_users_error(database: Database) -> None:
    def compile(plan: Plan) -> str:
        raise CodegenError(f"{plan} fails", span=None)

    database.store(MATMUL, BLOCK)
    with pytest.raises(CodegenError, match="the safe plan fails"):
        SafePlans(database).compile(MATMUL, compile)


def test_other_errors_are_not_hidden(database: Database) -> None:
    def compile(plan: Plan) -> str:
        raise ZeroDivisionError

    database.store(MATMUL, BLOCK)
    with pytest.raises(ZeroDivisionError):
        SafePlans(database).compile(MATMUL, compile)


def test_plans_are_poisoned_one_by_one(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    other = signature(dtype="bf16")
    database.store(MATMUL, BLOCK)
    database.store(other, BLOCK)
    plans = SafePlans(database)
    plans.reject(MATMUL, BLOCK, "it hangs")
    assert plans.plan_for(MATMUL) == Plan()
    assert plans.plan_for(other) == BLOCK
    better = Plan.of({"map.tile": 32})
    database.store(MATMUL, better)
    assert plans.plan_for(MATMUL, CANDIDATES) == better, "a signature that was tuned again has a plan"
    assert len(caplog.messages) == 1


def test_a_real_program_compiles_with_the_safe_plan_where_its_tuned_one_is_poisoned(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    def double(x: ts.Tensor["N", ts.f32]) -> Any:
        return x + x

    def compile(plan: Plan) -> Any:
        made = ts.jit(double, overrides=plan.overrides)
        return made(ts.ones(100))

    plans = SafePlans(database)
    database.store(MATMUL, Plan.of({"map.tile": 64}))
    result, plan = plans.compile(MATMUL, compile)
    assert plan.overrides == {"map.tile": 64}
    for poison in ({"map.tile": 63}, {"no.knob": 1}):
        database.store(MATMUL, Plan.of(poison))
        other, plan = plans.compile(MATMUL, compile)
        assert plan == Plan()
        assert np.array_equal(np.asarray(other), np.asarray(result))
    assert len(caplog.messages) == 2
