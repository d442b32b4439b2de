"""Drawn programs that move elements: some on a CPU and made for a GPU, more on one that is here."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.runtime.devices.cuda.driver import is_available
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import run_schedule, simplify
from tests.trials.gpu_moves import KINDS, draw, run


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_program_is_right_on_a_cpu_and_has_code_for_a_gpu(kind: str) -> None:
    rng = np.random.default_rng(7)
    trial = draw(rng, kind)
    np.testing.assert_array_equal(np.asarray(ts.jit(trial.function)(*trial.arrays)), trial.wanted)
    tape = ts.jit(trial.function).trace(*trial.arrays).tape
    assert lower(tape, Options.of(backend="cuda", features=("sm_90a",))).texts
    # The tile kernels that a GPU has, interpreted.
    for small in (draw(rng, kind, 2000) for _ in range(4)):
        module = simplify(ts.jit(small.function).trace(*small.arrays).tape)
        (found,) = run_program(run_schedule(module, machine=GPUS["sm_90a"]), *small.arrays)
        np.testing.assert_array_equal(found, small.wanted)


@pytest.mark.device("sm_80")
@pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_programs_are_right_on_a_gpu(kind: str) -> None:
    rng = np.random.default_rng(11)
    assert [said for said in (run(draw(rng, kind)) for _ in range(12)) if said] == []
