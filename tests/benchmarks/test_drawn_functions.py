"""Drawn calls of functions that are written with ops: all of them, right against every library that says them."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tessera as ts
from benchmarks import roofline
from benchmarks.drawn.check import Check
from benchmarks.drawn.draw import draw_program, public_ops
from benchmarks.drawn.functions import FUNCTIONS, NOT_DRAWN, draw_function
from benchmarks.drawn.measure import Bench, measure
from benchmarks.drawn.peers import Side
from benchmarks.drawn.program import Call, Program
from benchmarks.drawn.sizes import Limits
from benchmarks.drawn.spell_functions_numpy import SPELLINGS as NUMPY_SAYS
from benchmarks.drawn.spell_functions_torch import SPELLINGS as TORCH_SAYS
from benchmarks.harness import Plan
from benchmarks.roofline_cases import TARGETS
from benchmarks.roofline_functions import function_cases
from tessera.types.dtype import BY_NAME
from tests.benchmarks.test_roofline import MACHINE

SMALL = Limits(2.0**12, 2.0**20)
TURNS = 20
"""Parts of the functions, each of which is a test."""


def load_torch() -> Any:
    """PyTorch, which is loaded where it is used alone."""
    return importlib.import_module("torch")


def draw(name: str, seed: int, limits: Limits = SMALL) -> Program:
    """The first call of a function that keeps inside of limits, of a row of them."""
    for number in range(40):
        program = draw_function(np.random.default_rng([seed, number]), name, limits)
        if program.bytes <= limits.bytes and program.flops <= limits.flops:
            return program
    raise AssertionError(f"{name} has no such draw")


def test_every_public_function_is_drawn_or_listed_with_a_reason() -> None:
    named = set(ts.ops.__all__)
    ops = {spec.short_name for spec in public_ops()}
    assert FUNCTIONS.keys() & NOT_DRAWN.keys() == set()
    assert named - ops <= FUNCTIONS.keys() | NOT_DRAWN.keys()
    assert FUNCTIONS.keys() | NOT_DRAWN.keys() <= named
    assert all(len(reason) > 20 for reason in NOT_DRAWN.values())


def test_a_library_says_every_function_and_none_that_there_is_not() -> None:
    assert FUNCTIONS.keys() == TORCH_SAYS.keys() | NUMPY_SAYS.keys()


@pytest.mark.parametrize("n", [1, 3])
def test_float64_has_all_digits_of_polygamma(n: int) -> None:
    x = np.linspace(0.3, 9.0, 500)
    said = TORCH_SAYS["polygamma"](load_torch(), {"n": n})(load_torch().from_numpy(x)).numpy()
    np.testing.assert_allclose(said, np.asarray(ts.ops.polygamma(n, ts.array(x))), 1e-14)


def test_a_seed_gives_the_same_calls_again() -> None:
    first, again = ([draw_program(3, number, "function", SMALL).name for number in range(12)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 8


def test_what_a_call_costs_is_what_its_ops_cost() -> None:
    program = draw("mish", 0)
    (call,) = [step for step in program.steps if isinstance(step, Call)]
    assert len(call.tape.records) >= 3
    assert program.flops >= 3 * program.arguments[0].count
    assert program.bytes == pytest.approx(2 * program.arguments[0].count * BY_NAME[program.dtype].bits / 8)


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("turn", range(TURNS))
def test_small_calls_are_right_against_every_library(turn: int) -> None:
    for name in sorted(FUNCTIONS)[turn::TURNS]:
        side = Side(draw(name, 1), "cpu", load_torch(), None)
        check, said = Check(side), 0
        for library in ("tessera", "torch", "numpy"):
            try:
                offer = side.offers()[library]()
                given = offer.unpack(offer.run())
            except Exception:
                if library == "tessera":
                    raise
                continue
            (check.ours if library == "tessera" else check.peer)(given)
            said += 1
        assert check.how == "float64"
        assert said > 1, f"no peer says {side.program.name}"


def test_a_wrong_result_is_seen() -> None:
    for name in ("mish", "nanvar", "quantile", "kron", "interpolate", "segment_sum"):
        side = Side(draw(name, 2), "cpu", load_torch(), None)
        offer = side.offers()["tessera"]()
        given = [part * 1.5 for part in offer.unpack(offer.run())]
        with pytest.raises(ArithmeticError, match="wrong"):
            Check(side).ours(given)


def test_a_drawn_call_is_timed() -> None:
    bench = Bench("cpu", load_torch(), None, Plan(1, rounds=3, pause=0.0), 60.0, ("numpy", "torch"))
    row = measure(draw("nanmean", 1), bench, lambda text: None)
    assert (row["kind"], row["status"], row["checked"]) == ("function", "timed", "float64")


def test_the_audit_has_every_function_in_sizes_dtypes_axes_and_layouts() -> None:
    found = function_cases(("nanmean", "cdist", "interpolate"), ["tiny", "medium"])
    assert {case.op for case in found[:3]} == {"nanmean", "cdist", "interpolate"}
    of_one = [case for case in found if case.op == "nanmean"]
    assert {case.target for case in of_one} == {"tiny", "medium"}
    assert {case.dtype.name for case in of_one} == {"f32", "bf16", "f16", "f64"}
    assert {case.turn for case in of_one} == {0, 1}
    assert any(case.is_transposed for case in of_one)
    assert all(case.whole[1] <= 2 * TARGETS[case.target] for case in found)
    assert sum(case.whole[1] >= TARGETS[case.target] / 8 for case in found) > 0.8 * len(found)


def test_every_function_has_a_case() -> None:
    without = {name for name in FUNCTIONS if not function_cases((name,), ["tiny"])}
    assert without == set()


def test_a_call_of_an_audit_is_a_row_for_each_kernel_and_one_for_all() -> None:
    case = function_cases(("nanmedian",), ["tiny"])[0]
    *kernels, whole = roofline.rows_on_cpu(case, MACHINE)
    assert kernels
    assert whole.kernel == roofline.WHOLE_CALL
    assert (whole.flops, whole.bytes) == case.whole
    assert whole.nanoseconds >= max(row.nanoseconds for row in kernels) * 0.99
