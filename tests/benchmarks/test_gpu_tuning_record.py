"""Schedules of drawn matmuls on an H200 as they were recorded, and how the static model ranks them now."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.tuning_cases import FAMILIES, Case
from tessera.compiler.options import Options
from tessera.compiler.prediction import predictor
from tessera.compiler.space import ProgramSpace, space_of
from tessera.tuner.learned import spearman
from tessera.tuner.records import Plan

RESULTS = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "gpu-tuning.json").read_text())["rows"]

BLOCK = "contraction.block"
"""The knob whose values are tuples, which JSON has as lists."""


def space_on_hopper(case: Case) -> ProgramSpace:
    """The choices of a case for an H200, which this machine need not have."""
    function: Any = ts.jit(FAMILIES[case.family][0], backend="cuda")
    shapes = FAMILIES[case.family][1](case.sizes)
    tape = function.trace(*(np.empty(shape, ml_dtypes.bfloat16) for shape in shapes)).tape
    return space_of(tape, Options.of(backend="cuda", features=("sm_90a",)))


def agreement(row: dict[str, Any]) -> float:
    """The rank correlation of what the model foresees today and what was measured."""
    family, sizes, _ = row["case"].split()
    predict = predictor(space_on_hopper(Case(family, tuple(map(int, sizes.split("x"))), "cuda")))
    assert predict is not None
    foreseen, measured = list[float](), list[float]()
    for choices, _, relative in row["trials"]:
        plan = Plan.of(
            {key: tuple[int, ...](value) if key.startswith(BLOCK) else value for key, value in choices.items()}
        )
        prediction = predict(plan)
        assert prediction is not None
        foreseen.append(prediction.time)
        measured.append(relative)
    return spearman(foreseen, measured)


def test_the_model_ranks_recorded_plans() -> None:
    ranks = [agreement(row) for row in RESULTS]
    assert sum(len(row["trials"]) for row in RESULTS) >= 100
    assert statistics.median(ranks) >= 0.7
    # Kernels of a few microseconds differ by less than their launches vary.
    assert min(rank for rank, row in zip(ranks, RESULTS, strict=True) if row["default_microseconds"] > 30) >= 0.85


def test_defaults_are_near_the_best_and_hybrid_search_finds_it_by_few_measurements() -> None:
    assert math.exp(statistics.fmean(math.log(row["default_share"]) for row in RESULTS)) >= 0.93
    assert max(row["hybrid_share"] for row in RESULTS) <= 0.25
    assert max(row["hybrid_loss"] for row in RESULTS) <= 0.03
