"""Ranks that tune one function: rank 0 measures, and all of them have its plan, also where its measuring takes long."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import autotune
from tessera.api import workload
from tessera.diagnostics.codes import TuningRanksError
from tessera.runtime.ranks import world

LIKED = ((32, 64, 64), (64, 64, 64), (128, 128, 64), (128, 256, 64))
"""The block that the clock of each rank likes."""


def layer(x: Any, w: Any) -> Any:
    return ts.ops.gelu(x @ w)


def _set_clock(rank: int) -> None:
    """Times as each rank would measure them: every one likes another block."""
    draw = random.Random(rank)

    def run(self: workload.RunnableProgram) -> float:
        setattr(workload, "_runs", workload.measurements() + 1)  # noqa: B010 - what it counts
        is_liked = any(value == LIKED[rank] for _, value in self.options.tuned)
        return (60_000.0 if is_liked else 100_000.0) * draw.uniform(0.998, 1.002)

    def code(self: workload.RunnableProgram) -> str:
        return repr(self.options.tuned)

    def why_in_process(_: Any) -> str:
        return "its clock is a test's"

    for name, value in (("run", run), ("code", property(code))):
        setattr(workload.RunnableProgram, name, value)
    workload.why_in_process = why_in_process


def given(columns: int = 64) -> list[Any]:
    draw = np.random.default_rng(3)
    return [ts.array(draw.uniform(-1, 1, shape).astype(np.float32)) for shape in ((64, 96), (96, columns))]


def tuned(cache: str) -> tuple[Any, ...]:
    """What a rank has after tuning: its plan, who measured, how often, what it runs with, and its bits."""
    rank = world.rank()
    os.environ["TESSERA_CACHE_DIR"] = cache.format(rank=rank)
    _set_clock(rank)
    jitted = ts.jit(layer)
    result = jitted.autotune(*given(), budget=60.0)
    again = jitted.autotune(*given())
    jitted(*given())
    chosen = [line for line in jitted.explain(*given()).report["choices"] if "(autotune)" in line]
    measured = autotune.measurements()
    return result.plan.overrides, result.source, again.source, measured, chosen, np.asarray(jitted(*given())).tobytes()


@pytest.mark.parametrize("folder", ["shared", "own{rank}"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_end_with_the_plan_that_rank_0_measured(ranks: int, folder: str, tmp_path: Path) -> None:
    """Of one machine they have one database; of several machines, each has its own."""
    found = ts.dist.run(tuned, ranks=ranks, args=(str(tmp_path / folder),))
    plans, sources, again, measured, chosen, bits = zip(*found, strict=True)
    assert plans[0]
    assert set(plans[0].values()) == {LIKED[0]}
    assert list(plans) == [plans[0]] * ranks
    assert sources == ("measured", *["rank 0"] * (ranks - 1))
    assert again == ("database", *["rank 0"] * (ranks - 1))
    assert measured[0] > 0
    assert measured[1:] == (0,) * (ranks - 1), "one measures"
    assert all(lines == chosen[0] and len(lines) == 1 for lines in chosen), "all of them run it"
    assert len(set(bits)) == 1


def tuned_slowly(cache: str) -> str:
    """Rank 0 takes longer than ranks wait for anybody."""
    os.environ["TESSERA_CACHE_DIR"] = cache
    _set_clock(world.rank())
    run = workload.RunnableProgram.bits

    def slow(self: workload.RunnableProgram) -> str:
        time.sleep(1.0)
        return run(self)

    workload.RunnableProgram.bits = slow
    return ts.jit(layer).autotune(*given(), budget=60.0).source


def test_ranks_wait_for_one_that_measures(tmp_path: Path) -> None:
    assert ts.dist.run(tuned_slowly, ranks=2, args=(str(tmp_path),), timeout=2.0) == ["measured", "rank 0"]


def tuned_otherwise(cache: str) -> str:
    os.environ["TESSERA_CACHE_DIR"] = cache
    _set_clock(world.rank())
    try:
        return ts.jit(layer).autotune(*given(64 + 16 * world.rank()), budget=20.0).source
    except TuningRanksError as error:
        return error.message


def test_ranks_that_tune_other_programs_are_told(tmp_path: Path) -> None:
    first, second = ts.dist.run(tuned_otherwise, ranks=2, args=(str(tmp_path),))
    assert first == "measured"
    assert second.startswith("rank 1 tunes `program_")
    assert "they differ in op_kind, shape_sig" in second
