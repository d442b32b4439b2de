"""A hundred random programs, ten ops deep and more: compiled with dynamic dims, they agree with the interpreter."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tessera.ir.base.tape import Tape
from tests.fuzz.compare import fails, interpreted, report, shrunk
from tests.fuzz.generate import DEPTH, random_program

PROGRAMS = int(os.environ.get("FUZZ_PROGRAMS", "100"))
BATCH = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_programs_agree_with_the_interpreter(first: int) -> None:
    for seed in range(first, min(first + BATCH, PROGRAMS)):
        program = random_program(seed)
        reason = fails(program)
        assert not reason, report(program, reason)


def test_programs_are_deep_and_of_many_kinds() -> None:
    programs = [random_program(seed) for seed in range(PROGRAMS)]
    assert all(program.depth >= DEPTH for program in programs)
    text = "\n".join(program.text for program in programs)
    wanted = ("@", ".sum(", "ops.where", ".cast(", "ops.transpose", ".reshape(", "[::-1]", "ops.concat", "ops.softmax")
    assert [word for word in wanted if word not in text] == []
    dtypes = {value.dtype.name for program in programs for value in program.values.values()}
    assert dtypes >= {"f32", "f64", "bf16", "f16", "i64", "i32", "i8", "u8", "bool"}
    exact = [program.values[program.outputs[0]].is_exact for program in programs]
    assert 0.3 < sum(exact) / len(exact) < 0.9


def test_a_program_is_the_same_in_every_run() -> None:
    assert random_program(7) == random_program(7)
    assert random_program(7).text != random_program(8).text


def test_a_wrong_program_is_noticed_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interpreter that has transposes wrong, what is reported is little more than a transpose."""

    def wrong(tape: Tape, arrays: list[Array], rng: np.random.Generator | None = None) -> list[Array]:
        is_moved = any(record.op == "tgraph.transpose" for record in tape.records)
        results = interpreted(tape, arrays, rng)
        return [result + result.dtype.type(1) if is_moved else result for result in results]

    program = next(
        program
        for program in map(random_program, range(PROGRAMS))
        if "transpose" in program.text and not any(value.dtype.is_bool for value in program.values.values())
    )
    monkeypatch.setattr("tests.fuzz.compare.interpreted", wrong)
    assert fails(program)
    small = shrunk(program)
    assert len(small.steps) <= 3
    assert "def program(" in small.script
    compile(small.script, "script", "exec")
