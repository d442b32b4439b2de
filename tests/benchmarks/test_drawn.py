"""Drawn programs: the same for a seed, inside their limits, spelled as the ops mean, and every failure a row."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.drawn import measure as measuring
from benchmarks.drawn.check import Check
from benchmarks.drawn.draw import draw_op, draw_program, public_ops
from benchmarks.drawn.measure import Bench, measure
from benchmarks.drawn.peers import NARROW, Side
from benchmarks.drawn.program import Program
from benchmarks.drawn.report import line, summary
from benchmarks.drawn.sizes import Limits
from benchmarks.drawn.spell_torch import RANDOM, SPELLINGS
from benchmarks.harness import Plan
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.spec import OpSpec
from tests.graph.eager import RuleDTypeError, RuleError

SMALL = Limits(2.0**13, 2.0**20)
KINDS = ("all", "gemm", "attention", "model")


def load_torch() -> Any:
    """PyTorch, which is loaded where it is used alone."""
    return importlib.import_module("torch")


def bench() -> Bench:
    return Bench("cpu", load_torch(), None, Plan(1, rounds=3, pause=0.0), 60.0, ("numpy", "torch"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_programs_again(kind: str) -> None:
    first, again, other = ([draw_program(seed, number, kind, SMALL).name for number in range(12)] for seed in (3, 3, 4))
    assert first == again
    assert len(set(first) & set(other)) < 6


@pytest.mark.parametrize("limits", [SMALL, Limits(2.0**28, 2.0**34), Limits(2.0**32, 2.0**43)])
def test_programs_keep_inside_their_limits(limits: Limits) -> None:
    drawn = [draw_program(7, number, kind, limits) for kind in KINDS for number in range(25)]
    assert all(one.bytes <= limits.bytes and one.flops <= limits.flops for one in drawn)
    assert max(one.bytes for one in drawn) > limits.bytes / 16
    sizes = [size for one in drawn for argument in one.arguments for size in argument.shape if size > 4]
    assert {size & (size - 1) == 0 for size in sizes} == {size % 2 for size in sizes} == {0, 1}


def test_torch_says_every_public_op_that_it_has() -> None:
    assert {spec.short_name for spec in public_ops()} - SPELLINGS.keys() == {"round_blocks", "round_stochastic"}


def test_what_is_stored_transposed_is_named_alone_where_an_op_has_no_attributes() -> None:
    (residual,) = [spec for spec in public_ops() if spec.short_name == "residual"]
    names = {one.name for one in _draws(residual, 30)}
    assert any("residual(transposed)" in name for name in names)
    assert not any("(," in name for name in names)


def _draws(spec: OpSpec, count: int) -> list[Program]:
    """A few programs of one op, as its rules allow."""
    rng, found = np.random.default_rng(5), list[Program]()
    for _ in range(4 * count):
        try:
            found.append(draw_op(rng, spec, SMALL))
        except (RuleError, RuleDTypeError, TesseraError):
            continue
    return found[:count]


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_what_a_library_says_is_what_the_op_means(library: str) -> None:
    """The reference decides, not another spelling; where a library refuses, another of the op's draws must pass."""
    silent: set[str] = set()
    for spec in public_ops():
        said = 0
        for program in _draws(spec, 4):
            if library == "numpy" and program.dtype in NARROW:
                continue  # NumPy rounds each step of what it has no function for
            side = Side(program, "cpu", load_torch(), None)
            check = Check(side)
            check.wide = check.by_references()
            try:
                offer = side.offers()[library]()
                given = offer.unpack(offer.run())
            except (NotImplementedError, RuntimeError, KeyError, TypeError, measuring.NotOfferedError):
                continue
            check.peer(given)
            said += 1
        if not said:
            silent.add(spec.short_name)
    few = {"round_blocks", "round_stochastic"} if library == "torch" else {*RANDOM, "erf", "gelu"}
    assert few <= silent
    assert len(silent) <= (2 if library == "torch" else 40), silent


@pytest.mark.parametrize("kind", KINDS)
def test_drawn_programs_are_right(kind: str) -> None:
    for number in range(2):
        row = measure(draw_program(11, number, kind, SMALL), bench(), lambda text: None)
        assert row["status"] in ("timed", "no peer"), row
        assert row["checked"] in ("reference", "float64"), row


def test_a_wrong_result_is_a_failed_row(monkeypatch: pytest.MonkeyPatch) -> None:
    program = draw_program(11, 0, "gemm", SMALL)
    real = Side.offers

    def offers(self: Side) -> dict[str, Any]:
        found = real(self)
        make = found["tessera"]

        def wrong() -> Any:
            offer = make()

            def unpack(made: Any) -> list[Any]:
                return [part * 1.01 for part in offer.unpack(made)]

            return replace(offer, unpack=unpack)

        return {**found, "tessera": wrong}

    monkeypatch.setattr(Side, "offers", offers)
    row = measure(program, bench(), lambda text: None)
    assert row["status"] == "failed"
    assert "wrong" in row["skipped"]["tessera"]
    assert program.name in line({"number": 0, **row})


def test_a_contender_that_is_not_ready_in_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    program = draw_program(11, 1, "gemm", SMALL)
    real = Side.torch_function

    def slow(self: Side) -> Any:
        run = real(self)
        measuring.time.sleep(1.0)
        return run

    monkeypatch.setattr(Side, "torch_function", slow)
    row = measure(program, replace(bench(), ready_seconds=0.9), lambda text: None)
    assert "not ready" in row["skipped"]["torch"]


def test_arguments_on_a_device_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A period of numbers goes over and is repeated there."""

    def stay(tensor: Any) -> Any:
        return tensor

    monkeypatch.setattr(load_torch().Tensor, "cuda", stay)
    monkeypatch.setattr("benchmarks.drawn.program.PERIOD", 13)
    for number in range(40):
        program = draw_program(2, number, "all", SMALL)
        for made, wanted in zip(Side(program, "cuda", load_torch(), None).tensors, program.arrays(), strict=True):
            assert tuple(made.shape) == wanted.shape
            assert bytes(made.flatten().view(load_torch().uint8).numpy()) == wanted.tobytes()


def test_the_summary_names_the_worst_and_what_is_missing() -> None:
    timed: dict[str, Any] = {"status": "timed", "kind": "op", "checked": "reference", "peer": "torch", "skipped": {}}
    rows: list[dict[str, Any]] = [
        {
            **timed,
            "number": at,
            "program": f"p{at}",
            "ratio": ratio,
            "medians": {"tessera": 1e-3, "torch": ratio * 1e-3},
        }
        for at, ratio in enumerate((2.0, 0.5))
    ]
    rows.append({"status": "failed", "number": 2, "program": "p2", "skipped": {"tessera": "E: broken"}})
    text = summary(rows, 5)
    assert "5 asked for, 3 drawn, 2 timed, 2 not reached in time" in text
    assert "geometric mean 1.000, median 1.250, 1 of 2 (50 %) below 0.8, least 0.500" in text
    assert "failed  p2: E: broken" in text
