"""Drawn programs that move elements: some on a CPU and made for a GPU, more on one that is here."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.runtime.devices.cuda.driver import is_available
from tests.trials.gpu_moves import KINDS, draw, run


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_program_is_right_on_a_cpu_and_has_code_for_a_gpu(kind: str) -> None:
    trial = draw(np.random.default_rng(7), kind)
    np.testing.assert_array_equal(np.asarray(ts.jit(trial.function)(*trial.arrays)), trial.wanted)
    tape = ts.jit(trial.function).trace(*trial.arrays).tape
    assert lower(tape, Options.of(backend="cuda", features=("sm_90a",))).texts


@pytest.mark.device("sm_80")
@pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_programs_are_right_on_a_gpu(kind: str) -> None:
    rng = np.random.default_rng(11)
    assert [said for said in (run(draw(rng, kind)) for _ in range(12)) if said] == []
