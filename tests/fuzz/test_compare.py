"""The comparison itself: it sees wrong results, large and small, and excuses only what rounding can do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tests.fuzz.compare import RUNS, _wrong, interpreted  # pyright: ignore[reportPrivateUsage]
from tests.fuzz.generate import random_program
from tests.fuzz.program import Program

EXACT = next(p for p in map(random_program, range(100)) if p.values[p.outputs[0]].is_exact)
INEXACT = next(p for p in map(random_program, range(100)) if not p.values[p.outputs[0]].is_exact)


def wrong(program: Program, given: Any, wanted: Any, *moved: Any, dtype: Any = np.float32) -> str:
    arrays = [np.array([item], dtype) for item in (given, wanted, *(moved or (wanted,)))]
    return _wrong(program, program.outputs[0], arrays[0], arrays[1], arrays[2:])


def test_integers_are_compared_as_integers() -> None:
    for program in (EXACT, INEXACT):
        assert wrong(program, 2**62 + 1, 2**62, dtype=np.int64) or program is INEXACT
        assert wrong(program, 3, 5, dtype=np.int64)
        assert not wrong(program, 5, 5, dtype=np.int64)
        assert wrong(program, True, False, dtype=np.bool_)


def test_what_is_exact_has_no_room() -> None:
    assert wrong(EXACT, np.nextafter(np.float32(1), np.float32(2)), 1.0, 0.5, 2.0)
    assert not wrong(EXACT, float("nan"), float("nan"))
    assert wrong(EXACT, float("nan"), 1.0)


def test_what_is_not_exact_has_the_room_of_its_moved_runs() -> None:
    assert not wrong(INEXACT, 1.01, 1.0, 1.02, 0.99)
    assert wrong(INEXACT, 1.2, 1.0, 1.02, 0.99)
    assert not wrong(INEXACT, np.nextafter(np.float32(1), np.float32(2)), 1.0, 1.0)


def test_an_overflow_that_a_moved_run_met_excuses_an_overflow_only() -> None:
    infinity, nothing = float("inf"), float("nan")
    assert not wrong(INEXACT, infinity, 3e38, infinity, 2.9e38)
    assert wrong(INEXACT, 7.0, 3e38, infinity, 2.9e38)
    assert wrong(INEXACT, -infinity, 3e38, infinity, 2.9e38)
    assert wrong(INEXACT, nothing, 3e38, infinity, 2.9e38)
    assert wrong(INEXACT, 7.0, nothing, nothing)
    assert wrong(INEXACT, nothing, 1.0, 1.1)


@pytest.mark.parametrize("share", [0.05])
def test_small_faults_are_seen_in_most_programs(share: float) -> None:
    """Every output of thirty programs, made wrong a little everywhere: nearly all of it must be noticed."""
    seen = total = 0
    for seed in range(30):
        program = random_program(seed)
        arrays = program.arrays(program.sizes[0])
        with np.errstate(all="ignore"):
            tape = program.jitted(backend="reference").trace(*arrays).tape
            results = interpreted(tape, arrays)
            moved = [interpreted(tape, arrays, np.random.default_rng(run)) for run in range(RUNS)]
            for number, name in enumerate(program.outputs):
                result = results[number]
                if not result.size or not np.isfinite(result.astype(np.float64)).any():
                    continue
                assert not _wrong(program, name, result, result, [run[number] for run in moved])
                total += 1
                seen += bool(_wrong(program, name, _faulty(result, share), result, [run[number] for run in moved]))
    assert total >= 25
    assert seen >= 0.95 * total


def _faulty(result: Array, share: float) -> Array:
    if result.dtype.kind == "b":
        return ~result
    if result.dtype.kind in "iu":
        return result + result.dtype.type(1)
    return (result.astype(np.float64) * (1 + share) + share).astype(result.dtype)
