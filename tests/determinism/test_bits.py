"""The bits of a result do not depend on tiles, fusion, vector width, known sizes, threads, caches or the batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import lower
from tessera.ir.base.op import SpecOp
from tessera.ir.target.architectures import host_machine
from tests.determinism.programs import BATCHED, CASES, bits

ROOT = Path(__file__).parents[2]


def choices(name: str) -> dict[str, set[Any]]:
    """What may be chosen for a program: each knob with its candidates."""
    case = CASES[name]
    jitted = case.jitted()
    lowering = lower(jitted.trace(*case.arrays()).tape, jitted.options)
    found: dict[str, set[Any]] = {}
    for op in lowering.module.walk():
        if isinstance(op, SpecOp) and op.name == "tsched.tile":
            found.setdefault(op.value("knob"), set()).update(op.value("candidates"))
    for key in lowering.chooser.asked:
        if key.startswith("fusion."):
            found.setdefault(key.partition("@")[0], set()).update((True, False))
    return found


def schedules(name: str) -> Iterator[dict[str, Any]]:
    """Options over the schedule space of a program: each choice by itself, then several at once.

    Of each choice the first and the last candidate; of a gradient, which has many kernels, every second choice's last:
    its kernels' others are the function's.
    """
    knobs = choices(name)
    is_gradient = name.startswith("gradient")
    for knob, candidates in sorted(knobs.items())[:: 2 if is_gradient else 1]:
        first, *_, last = *sorted(candidates), max(candidates)
        for value in (last,) if is_gradient else dict.fromkeys((first, last)):
            yield {"overrides": {knob: value}}
    rng = np.random.default_rng(3)
    for _ in range(2):
        picked = {knob: sorted(values)[int(rng.integers(len(values)))] for knob, values in sorted(knobs.items())}
        if picked.get("row.runs"):
            picked.pop("row.columns", None)  # rows that programs share are not cut into strips of columns
        if not any(value is False for value in picked.values()):
            yield {"overrides": picked}
    yield {"fusion": False}
    features = host_machine().features
    yield {"features": ("sse2",)}
    if "avx512f" in features:
        yield {"features": tuple(name for name in features if not name.startswith("avx512"))}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_any_schedule_gives_the_same_bits(name: str) -> None:
    case = CASES[name]
    arrays = case.arrays()
    expected = bits(case.jitted()(*arrays))
    tried = 0
    for options in schedules(name):
        assert bits(case.jitted(**options)(*arrays)) == expected, f"{name} with {options}"
        tried += 1
    assert bits(ts.jit(case.function)(*arrays)) == expected, f"{name} with known sizes"
    assert tried >= 2


@pytest.mark.parametrize("name", BATCHED)
def test_a_row_alone_is_the_row_of_its_batch(name: str) -> None:
    case = CASES[name]
    arrays = case.arrays()
    jitted = case.jitted()
    whole = np.asarray(jitted(*arrays))
    for start, stop in ((0, 1), (66, 67), (3, 10), (2, 66), (0, 7), (0, 64)):
        parts = [array[start:stop] for array in arrays[: case.batched]]
        part = np.asarray(jitted(*parts, *arrays[case.batched :]))
        assert bits(part) == bits(whole[start:stop]), f"rows {start} to {stop} of {name}"
    assert jitted.cache_info().misses == 1


@pytest.mark.parametrize("name", BATCHED)
def test_one_trace_serves_batches_of_1_7_and_64(name: str) -> None:
    case = CASES[name]
    arrays = case.arrays()
    traced: list[int] = []

    def counted(*given: Any) -> Any:
        traced.append(1)
        return case.function(*given)

    jitted = ts.jit(wraps(case.function)(counted), dynamic=True)
    for batch in (1, 7, 64):
        jitted(*(array[:batch] for array in arrays[: case.batched]), *arrays[case.batched :])
    info = jitted.cache_info()
    assert (len(traced), info.misses, info.size) == (1, 1, 1)


@cache
def run_apart(cache_dir: str, threads: int) -> dict[str, tuple[str, str]]:
    """Hashes of all programs in a process of its own, and where it found their code."""
    environment = {**os.environ, "TESSERA_CACHE_DIR": cache_dir, "TESSERA_NUM_THREADS": str(threads)}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "tests.determinism.programs"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
def test_threads_and_caches_do_not_change_bits(tmp_path: Path) -> None:
    here = {name: bits(case.jitted()(*case.arrays())) for name, case in CASES.items()}
    cold = run_apart(str(tmp_path / "first"), 2)
    warm = run_apart(str(tmp_path / "first"), 1)
    for name in CASES:
        assert cold[name][1] == "compiled"
        assert warm[name][1] == "disk cache"
        # This process compiled it on its own, into another cache.
        assert {run[name][0] for run in (cold, warm)} == {here[name]}, name
