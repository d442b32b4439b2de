"""Spaces of softmax and norms: every candidate gives the safe plan's bits, on this CPU and as Tile IR for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.compiler.space import BIT_NEUTRAL, NUMERIC, ProgramSpace, space_of
from tessera.tuner.records import Plan
from tests.oracles.schedule_interpreter import run_program

CUDA = Options(backend="cuda", features=("sm_90a",))
ROWS, COLUMNS = 2, 16384
"""Few rows that are long: several programs may share one (`row.runs`)."""
_PLANNED = "schedule-plan-memory"
"""The pass behind which a host program and all of its kernels are there, and no backend has seen them."""


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def rmsnorm(x: Any, w: Any) -> Any:
    return ts.ops.rmsnorm(x, w)


PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {
    "softmax": (softmax, 0), "layernorm": (layernorm, 2), "rmsnorm": (rmsnorm, 1)
}  # fmt: skip


def arrays(name: str) -> list[Any]:
    draw = np.random.default_rng(5)
    shapes: list[tuple[int, ...]] = [(ROWS, COLUMNS), *[(COLUMNS,)] * PROGRAMS[name][1]]
    # Of many magnitudes, so that another order of adding up is another result.
    return [(draw.standard_normal(shape) * 2.0 ** draw.integers(-6, 3, shape)).astype(np.float32) for shape in shapes]


def candidates(space: ProgramSpace) -> list[Plan]:
    """The plans that differ by one choice and change no bit, by the class that is derived."""
    plans = [Plan.of({knob.key: value}) for knob in space.knobs for value in knob.others]
    return [plan for plan in plans if space.classify(plan)[0] == BIT_NEUTRAL]


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_candidates_give_the_same_bits_on_this_cpu(name: str) -> None:
    function, given = PROGRAMS[name][0], arrays(name)
    jitted: Any = ts.jit(function)
    expected = np.asarray(jitted(*given)).tobytes()
    plans = candidates(space_of(jitted.trace(*given).tape, jitted.options))
    assert len([plan for plan in plans if plan.choices[0][0].startswith("row.runs")]) >= 4
    for plan in plans:
        tuned: Any = ts.jit(function, tuned=plan.overrides)
        assert np.asarray(tuned(*given)).tobytes() == expected, plan


def interpreted(tape: Any, options: Options, given: list[Any]) -> bytes:
    """The bytes that a program for a GPU computes as Tile IR, by the interpreter: machine code comes of no other."""
    kept: list[ModuleOp] = []

    def observe(name: str, module: ModuleOp) -> None:
        if name == _PLANNED:
            kept.append(module.clone())

    lower(tape, options, observe=observe)
    (result,) = run_program(kept[-1], *given)
    return np.asarray(result).tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_candidates_give_the_same_bits_as_tile_ir_of_a_gpu(name: str) -> None:
    function, given = PROGRAMS[name][0], arrays(name)
    tape = ts.jit(function).trace(*given).tape
    space = space_of(tape, CUDA)
    expected = interpreted(tape, CUDA, given)
    plans = [plan for plan in candidates(space) if not plan.choices[0][0].startswith("matrix.")]
    assert len([plan for plan in plans if plan.choices[0][0].startswith("row.runs")]) >= 4
    for plan in plans:
        assert interpreted(tape, replace(CUDA, tuned=plan.choices), given) == expected, plan


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_changes_bits_is_told_from_what_does_not(name: str) -> None:
    """The only numeric choice of a row is how a GPU computes `exp`, of a program that has one."""
    given = arrays(name)
    space = space_of(ts.jit(PROGRAMS[name][0]).trace(*given).tape, CUDA)
    numeric = {knob.name for knob in space.knobs if space.class_of(knob) == NUMERIC}
    assert numeric == ({"math.exp"} if name == "softmax" else set())
