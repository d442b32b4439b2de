"""`autotune.signature`, `plan`, `search` and `cache`, as the specification of Schedule IR writes them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest

import tessera as ts
from tessera import autotune
from tessera.api import plan_search
from tessera.diagnostics.codes import DTypeError, ScheduleError, TuningError
from tessera.tuner.constraints import Bound, Constraints
from tessera.tuner.plans import rank_by_model, read_mesh
from tessera.tuner.records import Plan
from tests.tuner.programs.clocks import set_clock

SNIPPET = """
from tessera import autotune

sig = autotune.signature(op="flash_attention", shape=(B,H,L,D), dtype="fp8_e4m3",
                         mesh={"tp":12,"dp":1}, arch="GB200", policy="stable" )

plan = autotune.plan(
    candidates=dict(
        tiles=[(128,128,64),(64,128,64),(128,64,64)],
        rsmmag=[True, False],
        a2a_quant=["off","fp8"],
        fuse_bias=[True, False]
    ),
    objectives=["latency","bytes_moved"],
    constraints={"HBM_util": "<0.85", "deterministic": True},
    signature=sig
)

best = autotune.search(plan, mode="hybrid")  # cost model + measurements
autotune.cache.store(best)
"""
"""Of section 4.3, to the letter."""


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))


def gb200(**given: Any) -> Any:
    settings: dict[str, Any] = {"op": "matmul", "shape": (4096, 4096, 1024), "dtype": "bf16", "arch": "GB200"}
    return autotune.signature(**{**settings, **given})


def test_the_snippet_of_the_document_runs_as_it_is() -> None:
    names: dict[str, Any] = {"B": 8, "H": 48, "L": 4096, "D": 128}
    before = autotune.measurements()
    exec(SNIPPET, names)
    best = names["best"]
    assert best.source == "cost_model"  # there is no GB200 here, and nothing was measured
    assert autotune.measurements() == before
    assert best.choices["a2a_quant"] == "off"
    assert len(best.trials) == 24
    assert {name for trial in best.trials for name in trial.plan.overrides} == {
        "tiles",
        "rsmmag",
        "a2a_quant",
        "fuse_bias",
    }
    numeric = [trial for trial in best.trials if trial.plan.overrides["a2a_quant"] == "fp8"]
    assert len(numeric) == 12
    assert all(trial.reason.startswith("numeric: `a2a_quant` = fp8") for trial in numeric)
    assert all(trial.predicted is not None and not trial.samples for trial in best.trials)
    stored = autotune.cache.lookup(names["sig"])
    assert stored is not None
    assert (stored.plan, stored.source) == (best.plan, "cost_model")
    assert names["sig"].parts[:5] == ("flash_attention", "8x48x4096x128", "f8e4m3", "dp1.tp12", "GB200")


def test_numeric_axes_are_chosen_only_where_user_and_policy_both_allow_it() -> None:
    candidates = {"a2a_quant": ["off", "fp8"], "tiles": [(128, 128, 64)]}
    found: list[Any] = []
    for policy, deterministic in (("stable", True), ("stable", False), ("fast", True), ("fast", False)):
        sig = gb200(mesh={"tp": 8}, policy=policy)
        plan = autotune.plan(candidates, constraints={"deterministic": deterministic}, signature=sig)
        found.append(autotune.search(plan))
    assert [best.choices["a2a_quant"] for best in found] == ["off", "off", "off", "fp8"]
    assert "changes bits: `a2a_quant` = fp8" in str(found[-1])


ATTENTION = """
tsched.module {
  %attn = tsched.fuse @attention(%Q, %K, %V) { pattern = "flash_attention" }
  tsched.tile %attn candidates = [[128,128,64], [64,128,64], [128,64,64]]
  tsched.collective %attn { pattern = "RS_MM_AG", axis = "tp" }
  tsched.return %attn
}
"""


def test_what_was_chosen_is_attached_to_schedule_ir_with_its_source() -> None:
    sig = gb200(mesh={"tp": 8}, policy="fast")
    candidates = {"tiles": [(128, 128, 64), (64, 128, 64)], "a2a_quant": ["fp8"]}
    best = autotune.search(autotune.plan(candidates, constraints={"deterministic": False}, signature=sig))
    text = best.attach(ATTENTION)
    tile = list(best.choices["tiles"])
    assert f'chosen = {tile} {{source = "cost_model"}}' in text, "no GB200 is here, and none was measured"
    assert 'tsched.collective %attn {pattern = "RS_MM_AG", axis = "tp", quantize = "fp8"}' in text
    measured = dataclasses.replace(best, source="autotune", plan=Plan.of({"tiles": (64, 128, 64), "a2a_quant": "off"}))
    text = measured.attach(ATTENTION, "attention")
    assert 'chosen = [64, 128, 64] {source = "autotune"}' in text
    assert 'tsched.collective %attn {pattern = "RS_MM_AG", axis = "tp"}' in text
    other = dataclasses.replace(best, plan=Plan.of({"tiles": (32, 32, 32)}))
    with pytest.raises(ScheduleError, match="none of the candidates"):
        other.attach(ATTENTION)


def test_the_weights_of_objectives_change_the_winner_and_the_front_has_both() -> None:
    candidates = {"tiles": [(256, 128, 64), (64, 64, 64)], "fuse_bias": [True, False], "rsmmag": [True, False]}
    sig = gb200(mesh={"tp": 8})
    quick = autotune.search(autotune.plan(candidates, {"latency": 1.0}, signature=sig))
    both = autotune.plan(candidates, {"latency": 1e-6, "bytes_moved": 1.0}, signature=sig)
    light = autotune.search(both)
    assert dict(quick.values)["latency"] <= dict(light.values)["latency"]
    assert dict(light.values)["bytes_moved"] <= dict(quick.values)["bytes_moved"]
    values = {plan: both.evaluate(plan) for plan in light.pareto}
    for one in values.values():
        for other in values.values():
            assert (
                other == one
                or other["latency"] > one["latency"]
                or other["bytes_moved"] > one["bytes_moved"]
                or (other["latency"] == one["latency"] and other["bytes_moved"] == one["bytes_moved"])
            )


def test_plans_over_a_cap_are_rejected_with_both_numbers() -> None:
    sig = gb200(shape=(1 << 18, 1 << 16, 1 << 14))
    plan = autotune.plan({"tiles": [(128, 128, 64)]}, constraints={"HBM_util": "<0.01"}, signature=sig)
    with pytest.raises(TuningError, match="none of 1 plans may be chosen") as caught:
        autotune.search(plan)
    assert "HBM_util is 0.2" in caught.value.notes[0]
    assert "and must be < 0.01" in caught.value.notes[0]


def test_a_tile_that_fits_no_multiprocessor_is_rejected() -> None:
    plan = autotune.plan({"tiles": [(128, 128, 64), (512, 512, 256)]}, signature=gb200(dtype="f32"))
    best = autotune.search(plan)
    assert best.choices["tiles"] == (128, 128, 64)
    assert [trial.reason for trial in best.trials if trial.reason] == ["no block of it fits a multiprocessor"]


def test_on_this_machine_plans_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, lambda choices: 1e5)
    sig = autotune.signature(op="matmul", shape=(96, 96, 96))
    tiles = [(64, 128, 64), (64, 64, 64), (7, 7, 7)]
    before = autotune.measurements()
    best = autotune.search(autotune.plan({"tiles": tiles}, signature=sig), mode="exhaustive", budget=30.0)
    assert best.source == "autotune"
    assert autotune.measurements() > before
    assert best.choices["tiles"] in tiles[:2]
    (refused,) = [trial for trial in best.trials if trial.plan == Plan.of({"tiles": (7, 7, 7)})]
    assert "cannot be (7, 7, 7)" in refused.reason
    autotune.cache.store(best)
    stored = autotune.cache.lookup(sig)
    assert stored is not None
    assert stored.source == "measured"
    assert autotune.cache.clear() == 1


@pytest.mark.parametrize(
    ("op", "shape", "tile"), [("softmax", (64, 128), (64,)), ("flash_attention", (1, 2, 64, 16), (32, 32, 16))]
)
def test_other_ops_are_measured_too(
    op: str, shape: tuple[int, ...], tile: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, lambda choices: 1e5)
    sig = autotune.signature(op=op, shape=shape)
    plan = autotune.plan({"fuse_bias": [True]}, signature=sig)
    assert autotune.search(plan, budget=20.0).source == "autotune"
    assert rank_by_model(autotune.plan({"tiles": [tile]}, signature=sig)).source == "cost_model"


def test_a_mesh_of_several_ranks_is_not_measured_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_search, "usable_cpus", lambda: 1)
    sig = autotune.signature(op="matmul", shape=(64, 64, 64), mesh={"tp": 2})
    assert autotune.search(autotune.plan({"rsmmag": [True, False]}, signature=sig)).source == "cost_model"


def test_one_rank_has_nothing_to_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, lambda choices: 1e5)
    sig = autotune.signature(op="matmul", shape=(64, 64, 64))
    best = autotune.search(autotune.plan({"rsmmag": [False, True]}, signature=sig), budget=20.0)
    assert best.choices == {"rsmmag": False}
    assert any("one rank has no reduce-scatter" in trial.reason for trial in best.trials)


SIGNATURES: list[tuple[dict[str, Any], str]] = [
    ({"op": "flash_atention"}, "nothing is known of an op `flash_atention`"),
    ({"shape": (1, 2)}, r"the shape of `matmul` is \(M, N, K\)"),
    ({"shape": (0, 2, 3)}, r"the shape of `matmul` is \(M, N, K\)"),
    ({"mesh": {"tp": 0}}, "the axis `tp` of the mesh has 0 ranks"),
    ({"mesh": ["tp"]}, "`mesh` is sizes by the names of axes"),
    ({"mesh": {1: 2}}, "an axis of the mesh is a name, got 1"),
    ({"mesh": {"t.p": 2}}, r"an axis of the mesh is a name, got 't\.p'"),
    ({"shape": 64}, r"the shape of `matmul` is \(M, N, K\), got 64"),
    ({"arch": 90}, "`arch` is the name of a machine, got int"),
    ({"policy": "loose"}, "`policy` is one of stable, fast"),
]


@pytest.mark.parametrize(("given", "message"), SIGNATURES)
def test_signatures_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError, match=message) as caught:
        gb200(**given)
    assert caught.value.fix


def test_a_dtype_that_is_none_is_refused() -> None:
    with pytest.raises(DTypeError):
        gb200(dtype="fp7")


PLANS: list[tuple[dict[str, Any], str]] = [
    ({"candidates": {}}, "`candidates` are values by the names of axes"),
    ({"candidates": {"tile": [(1, 1, 1)]}}, "there is no axis `tile`"),
    ({"candidates": {"tiles": []}}, "the axis `tiles` has values to choose from"),
    ({"candidates": {"tiles": [(0, 1, 1)]}}, r"`tiles` cannot be \(0, 1, 1\)"),
    ({"candidates": {"rsmmag": ["yes"]}}, "`rsmmag` cannot be 'yes'"),
    ({"candidates": {"a2a_quant": ["fp4"]}}, "`a2a_quant` cannot be 'fp4'"),
    ({"objectives": []}, "names nothing to make small"),
    ({"objectives": ["speed"]}, "`speed` is no objective"),
    ({"objectives": {"latency": -1}}, "the weight of `latency` is a positive number"),
    ({"constraints": {"HBM_utl": "<0.85"}}, "nothing that a plan comes to is called `HBM_utl`"),
    ({"constraints": {"HBM_util": "small"}}, "is a comparison with a number, got 'small'"),
    ({"constraints": {"HBM_util": 0.85}}, "is a comparison with a number, got 0.85"),
    ({"constraints": {"deterministic": "yes"}}, "`deterministic` is True or False"),
    ({"constraints": ["HBM_util"]}, "`constraints` are bounds by the names of quantities"),
]


@pytest.mark.parametrize(("given", "message"), PLANS)
def test_plans_are_checked(given: dict[str, Any], message: str) -> None:
    all_given: dict[str, Any] = {"candidates": {"tiles": [(128, 128, 64)]}, "signature": gb200(), **given}
    with pytest.raises(TuningError, match=message) as caught:
        autotune.plan(**all_given)
    assert caught.value.fix


def test_bounds_are_read_with_their_units() -> None:
    found = Constraints.parse({"HBM_util": "< 85%", "memory": "<=2 GiB", "latency_ms": ">1e-3"})
    assert found == Constraints(
        (Bound("HBM_util", "<", 0.85), Bound("memory", "<=", float(2**31)), Bound("latency_ms", ">", 1e-3)), True
    )


def test_ranks_that_do_not_divide_heads_are_an_error_with_numbers() -> None:
    plan = autotune.plan({"rsmmag": [True]}, signature=gb200(op="attention", shape=(1, 10, 64, 64), mesh={"tp": 4}))
    with pytest.raises(TuningError, match="4 ranks of `tp` do not divide 10 heads") as caught:
        autotune.search(plan)
    assert "pad heads to 12" in str(caught.value.fix)


def test_a_machine_that_nobody_described_is_an_error() -> None:
    plan = autotune.plan({"tiles": [(64, 64, 64)]}, signature=gb200(arch="GB20"))
    with pytest.raises(TuningError, match="`GB20` is not this machine") as caught:
        autotune.search(plan)
    assert "did you mean `GB200`?" in str(caught.value.fix)


def test_meshes_of_different_axes_have_different_signatures() -> None:
    meshes: list[dict[str, int]] = [{"tp": 12}, {"tp1": 2}, {"tp12": 1}, {"tp": 1, "tp2": 2}, {"a": 1, "b2": 3}]
    texts = [gb200(mesh=mesh).mesh_sig for mesh in meshes]
    assert texts == ["tp12", "tp1=2", "tp12=1", "tp1.tp2=2", "a1.b2=3"]
    assert [read_mesh(text) for text in texts] == meshes


def test_what_something_else_gave_is_named_with_what_gives_it() -> None:
    plan = autotune.plan({"rsmmag": [True]}, signature=gb200())
    best = autotune.search(plan)
    calls: list[tuple[Any, str, str]] = [
        (lambda: autotune.plan({"rsmmag": [True]}, signature=cast("Any", None)), "NoneType", "autotune.signature"),
        (lambda: autotune.search(cast("Any", {})), "dict", "autotune.plan"),
        (lambda: autotune.cache.lookup(cast("Any", "matmul")), "str", "autotune.signature"),
        (lambda: best.attach(cast("Any", None)), "NoneType", "fn.schedule"),
        (lambda: ts.jit(ts.ops.relu).autotune(ts.ones((4,)), progress=cast("Any", 5)), "5", "progress=print"),
    ]
    for call, given, fix in calls:
        with pytest.raises(TuningError, match=f"got {given}") as caught:
            call()
        assert fix in str(caught.value.fix)


def test_only_what_a_search_gave_is_stored() -> None:
    with pytest.raises(TuningError, match=r"takes what `autotune.search` gave, got Plan"):
        autotune.cache.store(Plan())  # type: ignore[arg-type]
