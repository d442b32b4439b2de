"""Calls that are one launch of a GPU: the table that the host fills, the kernel that reads it, and what both touch."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import PARAMETERS, CallTable
from tessera.compiler.compile import Lowering, compile_tape, lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.runtime.devices.cuda.race_check import race_check
from tessera.runtime.devices.cuda.tensor import CudaTensor
from tessera.runtime.timeline import Launch
from tessera.types.dtype import f32
from tests.runtime.devices.test_cuda_watch import Driver, cuda, program

__all__ = ["cuda"]
OPTIONS = Options.of(backend="cuda", features=("sm_90a",))
SHAPES = ((64, 1024), (0, 16), (16,), (8, 32), (0, 4))


def descend(params: Any, gradients: Any) -> Any:
    return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)]


def zeros(count: int = 0) -> list[Any]:
    shapes = [(16 * (1 + at % 7),) for at in range(count)] if count else SHAPES
    return [np.zeros(shape, np.float32) for shape in shapes]


def lowered(count: int = 0) -> Lowering:
    return lower(ts.jit(descend).trace(zeros(count), zeros(count)).tape, OPTIONS)


@pytest.mark.parametrize(("calls", "width"), [(1, 4), (2, 4), (46, 10), (600, 10), (9, 400)])
def test_a_table_fits_into_the_parameters_of_a_kernel(calls: int, width: int) -> None:
    table = CallTable.of(calls, width)
    assert 1 <= table.rows <= calls
    assert table.firsts >= table.rows
    assert table.words * 8 <= PARAMETERS
    if table.rows < calls:
        assert CallTable(table.rows + 1, width).words * 8 > PARAMETERS


def test_a_kernel_for_many_calls_moves_whole_vectors_of_global_memory() -> None:
    ptx = [text.decode() for text in compile_texts(lowered().texts, NvptxBackend(GPUS["sm_90a"]).code_target)]
    one, many = sorted(ptx, key=lambda text: "__many" in text)
    assert "__many" in many
    for instruction in (r"ld\.global\.nc\.v4", r"st\.global\.v4"):
        assert len(re.findall(instruction, many)) == len(re.findall(instruction, one)) > 0
    assert ".local" not in many
    assert not re.search(r"\b(ld|st)\.(v\d\.)?[bfu]\d", many)  # generic accesses
    if assembler() is not None:
        words = assemble_with_words(many.encode(), "sm_90a")[1]
        assert "0 bytes stack frame, 0 bytes spill stores" in words


def test_one_launch_touches_what_its_calls_do(cuda: Driver) -> None:
    function = program(compile_tape(ts.jit(descend).trace(zeros(), zeros()).tape, OPTIONS))
    given = [CudaTensor.empty(shape, f32) for shape in (*SHAPES, *SHAPES)]
    with race_check() as log:
        made = function(*given)
    (launch,) = (entry for entry in log if isinstance(entry, Launch))
    assert launch.name.endswith("__many")
    assert cuda.calls == 1

    def spans(tensors: Any) -> set[tuple[int, int]]:
        return {(one.address, one.address + one.nbytes) for one in tensors if one.nbytes}

    assert {span for span in launch.writes if span[0] < span[1]} == spans(made)
    assert spans(given) <= set(launch.reads)


def test_more_calls_than_a_table_holds_are_several_launches(cuda: Driver) -> None:
    count = 300
    compiled = compile_tape(ts.jit(descend).trace(zeros(count), zeros(count)).tape, OPTIONS)
    (fact,) = (fact for fact in compiled.metadata["kernels"] if "rows" in fact)
    function = program(compiled)
    with race_check() as log:
        function(*(CudaTensor.empty((16 * (1 + at % count % 7),), f32) for at in range(2 * count)))
    launches = [entry for entry in log if isinstance(entry, Launch)]
    assert len(launches) == -(-count // fact["rows"])
    assert sum(len(launch.writes) for launch in launches) == count
    assert cuda.calls == len(launches) < 10
