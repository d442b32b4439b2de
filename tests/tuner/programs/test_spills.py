"""Fusion boundaries as choices: where the kernel of all ops spills registers, the tuner measures and takes others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.api import stored_plans
from tessera.api.program_tuning import keep_apart
from tessera.api.workload import ProgramWorkload
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.backend import backend_of
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.compiler.space import space_of
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.tuner.records import Plan
from tests.determinism.programs import bits
from tests.tuner.programs.clocks import set_clock

HOPPER = Options.of(backend="cuda", features=("sm_90a",))


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


def scaled(*rows: Any) -> Any:
    """Rows that are all needed again behind two reductions: one kernel holds all of them in registers."""
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    scale = ops.sum(total * total, axis=1, keepdims=True)
    found = [row * scale for row in rows]
    shift = ops.sum(found[0] * found[1], axis=1, keepdims=True)
    return tuple(row + shift for row in found)


def spilled_bytes(tape: Any, options: Options) -> list[int]:
    """What the assembler spills of each kernel."""
    code_target = NvptxBackend(GPUS["sm_90a"]).code_target
    found = [assemble_with_words(ptx, "sm_90a")[1] for ptx in compile_texts(lower(tape, options).texts, code_target)]
    return [int(one) for words in found for one in re.findall(r"(\d+) bytes spill stores", words)]


@pytest.mark.parametrize("count", [8, 16])
def test_a_fused_kernel_that_spills_has_a_plan_apart_that_does_not(count: int) -> None:
    rows = [np.broadcast_to(np.zeros((), np.float32), (512, 2048))] * count
    tape = ts.jit(scaled).trace(*rows).tape
    space = space_of(tape, HOPPER)
    (knob,) = [one for one in space.knobs if one.name == "fusion.row"]
    apart = Plan.of({knob.key: False})
    assert space.classify(apart)[0] == "bit_neutral"
    backend, tuned = backend_of("cuda"), replace(HOPPER, tuned=apart.choices)
    fused, split = (compile_tape(tape, options) for options in (HOPPER, tuned))
    assert len(backend.spilling(fused.metadata, fused.objects)) == 1
    assert backend.spilling(split.metadata, split.objects) == []
    if assembler() is None:
        pytest.skip("there is no ptxas here; what is live was counted all the same")
    assert sum(spilled_bytes(tape, HOPPER)) > 0
    assert spilled_bytes(tape, tuned) == [0, 0]


def say_spilling(monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    """Let kernels of the CPU spill."""

    def spilling(*_: Any) -> list[str]:
        return names

    monkeypatch.setattr(type(backend_of("cpu")), "spilling", spilling)


def likes_apart(choices: Any) -> float:
    """A clock by which a kernel that spills takes as long again as two that do not."""
    return 50_000.0 if any("fusion." in name and value is False for name, value in choices) else 100_000.0


def test_the_tuner_takes_the_plan_apart_where_the_fused_one_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, likes_apart)
    # What a CPU spills is in its cache: the kernels of this test are said to.
    say_spilling(monkeypatch, ["scaled"])
    rng = np.random.default_rng(0)
    given = [ts.array(rng.standard_normal((32, 64)).astype(np.float32)) for _ in range(4)]
    step = ts.jit(scaled)
    expected = [bits(one) for one in step(*given)]
    result = step.autotune(*given, budget=30.0)
    assert result.accepted
    assert any("fusion." in name and value is False for name, value in result.plan.choices)
    assert [bits(one) for one in step(*given)] == expected
    assert "= False (autotune)" in str(step.explain(*given))


def test_plans_apart_are_measured_first_only_where_something_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [ts.ones((8, 16))] * 2
    space = ts.autotune.space(ts.jit(scaled), *given)
    apart, other = Plan.of({"fusion.row@a": False}), Plan.of({"row.columns@a": 8})
    for spilling, found in ((["a"], [apart]), ([], [])):
        say_spilling(monkeypatch, spilling)
        assert keep_apart([other, apart], ProgramWorkload(space, given)) == found
