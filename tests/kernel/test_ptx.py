"""The same kernels for a GPU: every one has code for it, and dots of narrow floats go to its tensor cores."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera import KTile, Schedule, i8, i32, kernel, tile
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.tile.write_records import write_kernel
from tessera.stdlib import flash_attention_2
from tests.kernel import kernels, test_schedule
from tests.oracles.nvptx_backend import NvptxBackend

BACKEND = NvptxBackend()


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


NARROW = ml_dtypes.bfloat16
PLAIN: list[tuple[Any, list[Any], dict[str, Any]]] = [
    (kernels.vector_add, [zeros(1000), zeros(1000)], {}),
    (kernels.softmax, [zeros(64, 229)], {}),
    (kernels.rows, [zeros(64, 96)], {}),
    (kernels.running, [zeros(64, 32)], {}),
    (kernels.column_sums, [zeros(64, 32, dtype=np.int32)], {}),
    (kernels.transposed, [zeros(64, 64)], {"scale": 2.0}),
]
MATRIX: list[tuple[Any, list[Any], dict[str, Any]]] = [
    (test_schedule.product, [zeros(512, 512, dtype=NARROW)] * 2, {}),
    (kernels.linear, [zeros(512, 512, dtype=NARROW), zeros(512, 512, dtype=NARROW), zeros(512)], {}),
    (kernels.flash, [zeros(8, 256, 128, dtype=NARROW)] * 3, {"causal": False}),
    (kernels.flash, [zeros(8, 256, 128, dtype=NARROW)] * 3, {"causal": True}),
]


@pytest.mark.parametrize(("made", "operands", "statics"), PLAIN, ids=lambda item: getattr(item, "name", ""))
def test_every_kernel_has_code_for_a_gpu(made: Any, operands: Any, statics: Any) -> None:
    program = made.program(*operands, kind="gpu", **statics)
    code = BACKEND.code(BACKEND.lower(write_kernel(program)))
    assert "define ptx_kernel" in code.text


@pytest.mark.parametrize(("made", "operands", "statics"), MATRIX, ids=lambda item: getattr(item, "name", ""))
def test_dots_of_narrow_floats_go_to_tensor_cores(made: Any, operands: Any, statics: Any) -> None:
    program = made.program(*operands, kind="gpu", **statics)
    target = BACKEND.matrix(write_kernel(program))
    assert target is not None
    assert "wgmma.mma_async" in BACKEND.code(target).text


@pytest.mark.parametrize("head", [160, 192, 256])
def test_attention_with_wide_heads_goes_to_matrix_units(head: int) -> None:
    heads = [zeros(8, 256, head, dtype=NARROW)] * 3
    assert flash_attention_2.discover(*heads).block[1] == 64
    program = flash_attention_2.program(*heads, kind="gpu")
    target = BACKEND.matrix(write_kernel(program))
    assert target is not None
    assert target.name == "ttarget.matrix_kernel"


@pytest.mark.parametrize(
    ("head", "block", "fits"), [(192, (128, 64), True), (256, (128, 64), False), (256, (64, 64), True)]
)
def test_queries_that_threads_keep_go_to_matrix_units_while_registers_last(
    head: int, block: tuple[int, int], fits: bool
) -> None:
    heads = [zeros(2, 256, head, dtype=NARROW)] * 3
    program = kernels.prescaled.with_schedule(Schedule(block=block)).program(*heads, kind="gpu")
    assert (BACKEND.matrix(write_kernel(program)) is not None) is fits


@kernel
def counted(a: KTile["M", "K", i8], b: KTile["N", "K", i8]) -> KTile["M", "N", i32]:
    """A dot of integers."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), i32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.transpose(tile.load(b, rows=T.n, cols=k)))
    return acc


@pytest.mark.parametrize(("machine", "name"), [("sm_90a", "matrix_kernel"), ("sm_80", "warp_kernel")])
def test_dots_of_bytes_go_to_tensor_cores_without_a_schedule(machine: str, name: str) -> None:
    program = counted.program(zeros(512, 512, dtype=np.int8), zeros(512, 512, dtype=np.int8), kind="gpu")
    target = NvptxBackend(GPUS[machine]).matrix(write_kernel(program))
    assert target is not None
    assert target.name == f"ttarget.{name}"


def test_an_a_operand_from_before_a_loop_is_made_in_each_of_its_steps() -> None:
    """ptxas gives its registers to others after a dot has read them, and it would be there for one step alone.

    Steps with a mask and those without are two loops.
    """
    heads = [zeros(8, 512, 64, dtype=NARROW)] * 3
    texts: list[str] = []
    for made, statics in ((kernels.prescaled, {}), (kernels.flash, {"causal": False})):
        target = BACKEND.matrix(write_kernel(made.program(*heads, kind="gpu", **statics)))
        assert target is not None
        texts.append(BACKEND.code(target).text)
    assert [text.count("shr.s64 t, $1, 63") for text in texts] == [2, 0]
