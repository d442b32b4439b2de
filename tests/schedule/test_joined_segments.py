"""Segments of K that a kernel joins where it computes them: which contractions those are, and their bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.op import SpecOp
from tessera.ir.graph import pipeline as graph
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.ops.contraction import matmul_reference
from tessera.ir.graph.ops.segments import segment_length
from tessera.ir.graph.passes import split_contractions
from tessera.ir.graph.passes.split_contractions import is_joined
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.types.dim import Dim
from tests.backends.nvptx.matrices import BACKEND, kernels_of, nn
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import run_schedule

BF16 = np.dtype(ml_dtypes.bfloat16)
BLOCKS = 132


def contraction_of(m: int, n: int, k: int, dtype: Any = BF16) -> SpecOp:
    """The op as it is traced."""
    module = from_tape(ts.jit(nn).trace(np.zeros((m, k), dtype), np.zeros((k, n), dtype)).tape)
    for one in graph.pipeline()[:-1]:
        one.run(module)
    (found,) = [op for op in module.walk() if isinstance(op, SpecOp) and op.name == "tgraph.matmul"]
    return found


DECISIONS = {
    "four": ((20763, 256, 4864), True),
    "two": ((16384, 512, 4096), True),
    "few rows": ((512, 256, 4864), False),
    "a wave and a bit": ((8600, 256, 4096), False),
    "many segments": ((29456, 128, 9952), False),
    "long segments, some idle": ((6000, 384, 32768), False),
    "many segments of few columns": ((15504, 24, 65536), True),
    "few rows of few columns": ((3016, 40, 5224), False),
    "a wave and a bit of few columns": ((17200, 24, 65536), False),
    "many segments, results that do not fill it": ((6000, 256, 8192), False),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_results_that_fill_the_machine_have_their_segments_joined(name: str) -> None:
    sizes, wanted = DECISIONS[name]
    op = contraction_of(*sizes)
    assert op.value("segment") is not None
    assert is_joined(op, BLOCKS) == wanted
    assert not is_joined(op, 0)


def test_f32_has_partial_results() -> None:
    assert not is_joined(contraction_of(20763, 256, 4864, np.float32), BLOCKS)


@pytest.mark.parametrize("k", [2048, 3100, 4096])
def test_bits_are_those_of_the_recipe(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two, three and four segments, the last of which may be shorter; interpreted, with what follows."""
    monkeypatch.setattr(split_contractions, "_LAUNCH_CYCLES", 10**9)
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((128, k), (k, 120)))
    length = segment_length(Dim.of(k), Dim.of(120))
    assert length is not None
    assert -(-k // (length.value or 1)) == {2048: 2, 3100: 3, 4096: 4}[k]
    module = from_tape(ts.jit(_layer).trace(a, b).tape)
    for one in graph.pipeline(joining=1):
        one.run(module)
    module = run_schedule(module, machine=GPUS["sm_90a"])
    assert str(module).count("ttile.kernel") == 1
    (found,) = run_program(module, a, b)
    wanted = matmul_reference(a, b, segment=length.value).astype(np.float32)
    assert found.tobytes() == np.maximum(wanted, 0).astype(BF16).tobytes()


def _layer(a: Any, b: Any) -> Any:
    return ts.ops.relu(ts.ops.matmul(a, b))


def test_bits_of_many_segments_are_those_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven segments of few columns, in blocks of rows that are not all there, whether it is worth it or not."""
    monkeypatch.setattr(split_contractions, "_LAUNCH_CYCLES", 10**9)
    k = 7 * 1024 + 300
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(BF16) for shape in ((150, k), (k, 24)))
    length = segment_length(Dim.of(k), Dim.of(24))
    assert length is not None
    module = from_tape(ts.jit(nn).trace(a, b).tape)
    for one in graph.pipeline(joining=1):
        one.run(module)
    module = run_schedule(module, machine=GPUS["sm_90a"])
    assert str(module).count("ttile.kernel") == 1
    (found,) = run_program(module, a, b)
    assert found.tobytes() == matmul_reference(a, b, segment=length.value).astype(BF16).tobytes()


@pytest.mark.parametrize(
    "sizes", [(20763, 256, 4864), (16384, 512, 4096), (15504, 24, 65536), (32768, 128, 8192), (4096, 984, 8192)]
)
def test_registers_hold_what_waits_for_its_neighbour(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    (kernel,) = kernels_of(nn, [(m, k), (k, n)])
    found = BACKEND.matrix(kernel)
    assert found is not None
    if assembler() is None:
        pytest.skip("there is no ptxas here; the kernel was lowered")
    words = assemble_with_words(compile_text(BACKEND.code(found).text, BACKEND.code_target), "sm_90a")[1]
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words
