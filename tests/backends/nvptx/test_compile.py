"""Kernels for NVIDIA: PTX of every kind of kernel for three generations, assembled where there is an assembler."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import CodegenError, FeatureError, OverrideError
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.pipeline import check_kernels
from tessera.ir.tile.facets import Contraction
from tessera.runtime.devices.cuda.assembler import assemble, assemble_with_words, assembler, check_words
from tests.backends.nvptx.kernels import PROGRAMS, lowered, ptx_in_turns
from tests.device.cases import OPTIONS, chosen, op_case

needs_assembler = pytest.mark.skipif(
    assembler() is None, reason="there is no ptxas here; PTX was made and read all the same"
)


def ptx_of(name: str, architecture: str = "sm_90a", dtype: object = np.float32) -> list[str]:
    """The PTX of each kernel of a program."""
    lowering = lowered(name, architecture, dtype)
    return [ptx.decode() for ptx in compile_texts(lowering.texts, NvptxBackend(GPUS[architecture]).code_target)]


@pytest.mark.parametrize(
    ("name", "architecture"),
    [*((name, "sm_90a") for name in PROGRAMS), *(("free map", other) for other in ("sm_80", "sm_100a"))],
)
def test_every_kind_of_kernel_becomes_ptx(name: str, architecture: str) -> None:
    for ptx in ptx_of(name, architecture):
        assert f".target {architecture}" in ptx
        assert ".visible .entry" in ptx
        # Sums and dots are rounded one by one: nobody may fuse what a recipe keeps apart.
        assert not re.search(r"\b(mul|add|sub)\.f32\b", ptx)


@needs_assembler
@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("map", "sm_80"),
        ("product", "sm_80"),
        ("dynamic row", "sm_100a"),
        *((name, "sm_90a") for name in ("sort", "selection", "columns")),
    ],
)
def test_ptx_assembles(name: str, architecture: str) -> None:
    for ptx in ptx_of(name, architecture):
        assert assemble(ptx.encode(), architecture).startswith(b"\x7fELF")


def test_elements_that_lie_together_move_16_bytes_at_a_time() -> None:
    (ptx,) = ptx_of("map", dtype=ml_dtypes.bfloat16)
    assert "ld.global.nc.v4.b32" in ptx
    assert "st.global.v4.b32" in ptx
    assert not re.search(r"(ld|st)\.global\S*\.b16", ptx)


def test_free_rows_move_elements_under_a_mask() -> None:
    *_, ptx = ptx_of("dynamic row")
    assert "ld.global.nc.b32" in ptx
    assert ".v4" not in ptx


@needs_assembler
def test_a_row_stays_in_registers() -> None:
    (ptx,) = ptx_of("row in registers", dtype=ml_dtypes.bfloat16)
    _, words = assemble_with_words(ptx.encode(), "sm_90a")
    assert "0 bytes spill stores" in words
    # Each element is read once and written once, whatever passes go over it: a lane has neighbours of each quarter.
    for word in (r"ld\.global", r"st\.global"):
        assert len(re.findall(word, ptx)) == len(re.findall(word + r"\S*\.v2", ptx)) == 1024 // (32 * 4), word


def test_the_gpu_has_its_own_power_of_two_for_those_who_ask() -> None:
    assert "ex2.approx" not in ptx_of("row in registers")[0]
    lowering = lowered("row in registers", overrides=(("math.exp", "hardware"),))
    assert "ex2.approx" in lowering.texts[0]
    assert any("math.exp" in key for key in lowering.chooser.asked)


def test_a_transpose_goes_through_shared_memory() -> None:
    (ptx,) = ptx_of("transpose")
    assert "st.shared" in ptx
    assert "bar.sync" in ptx


One = Callable[[Any], Any]
Two = Callable[[Any, Any], Any]


def moves_of(function: One | Two, *arrays: Any, kernels: int = 0) -> list[str]:
    """The loads and stores of global memory in the last kernel of a program."""
    tape = ts.jit(function).trace(*arrays).tape
    texts = lower(tape, Options.of(backend="cuda", features=("sm_90a",))).texts
    assert len(texts) == (kernels or len(texts))
    ptx = compile_texts(texts[-1:], NvptxBackend(GPUS["sm_90a"]).code_target)[0].decode()
    return re.findall(r"(?:ld|st)\.global\S*", ptx)


def test_rows_that_indices_name_are_read_in_vectors() -> None:
    table, rows = np.zeros((50, 1000), ml_dtypes.bfloat16), np.zeros(9, np.int32)

    def take(axis: int) -> Two:
        return lambda t, i: ts.ops.take(t, i, axis)

    found = moves_of(take(0), table, rows)
    assert set(found) == {"ld.global.nc.b32", "ld.global.nc.v4.b32", "st.global.v4.b32"}
    # Columns that indices name are not contiguous.
    assert "ld.global.nc.b16" in moves_of(take(1), table, rows)
    # Each neighbour has an index of its own, whatever divisions they share.
    assert "ld.global.nc.b16" in moves_of(take(1), np.zeros((1750, 9), np.float16), np.zeros(34, np.int32))


def test_a_transpose_reads_and_writes_vectors() -> None:
    def last(x: Any) -> Any:
        return ts.ops.permute(x, (0, 2, 3, 1)) + 0

    found = moves_of(last, np.zeros((2, 64, 8, 10), ml_dtypes.bfloat16))
    assert set(found) == {"ld.global.nc.v4.b32", "st.global.v4.b32"}


def test_padding_is_one_kernel_that_writes_vectors() -> None:
    def pad(x: Any) -> Any:
        return ts.ops.pad(x, ((0, 0), (1, 1), (1, 1)))

    found = moves_of(pad, np.zeros((512, 30, 30), ml_dtypes.bfloat16), kernels=1)
    assert found == ["ld.global.nc.b16"] * 8 + ["st.global.v4.b32"]
    # Rows that a border leaves whole are read in vectors, under a mask.

    def pad_rows(x: Any) -> Any:
        return ts.ops.pad(x, ((0, 0), (1, 1), (0, 0)))

    assert set(moves_of(pad_rows, np.zeros((3, 24, 64), ml_dtypes.bfloat16), kernels=1)) == {
        "ld.global.nc.v4.b32",
        "st.global.v4.b32",
    }


def test_boxes_that_cut_vectors_are_joined_in_one_kernel() -> None:
    def join(x: Any, y: Any) -> Any:
        return ts.ops.concat([x, y], 1)

    x, y = np.zeros((256, 4095), ml_dtypes.bfloat16), np.zeros((256, 2049), ml_dtypes.bfloat16)
    assert moves_of(join, x, y, kernels=1) == ["ld.global.nc.b16"] * 16 + ["st.global.v4.b32"]
    # Long copies of whole vectors are made one by one, short ones together.
    x, y = np.zeros((2048, 4096), ml_dtypes.bfloat16), np.zeros((2048, 2048), ml_dtypes.bfloat16)
    assert set(moves_of(join, x, y, kernels=2)) == {"ld.global.nc.v4.b32", "st.global.v4.b32"}
    assert set(moves_of(join, x[:8], y[:8], kernels=1)) == {"ld.global.nc.v4.b32", "st.global.v4.b32"}


def test_a_window_reads_each_vector_once() -> None:
    """Its padding is masked as it is read, and its columns share vectors: three of them for each row of the window."""

    def pool(x: Any) -> Any:
        return ts.ops.max_pool(x, (3, 3), stride=(2, 2), padding=1)

    found = moves_of(pool, np.zeros((3, 32, 64), ml_dtypes.bfloat16), kernels=1)
    assert found == ["ld.global.nc.v4.b32"] * 9 + ["st.global.v4.b32"]
    # Odd rows have no vectors in common: threads side by side read single elements.
    assert set(moves_of(pool, np.zeros((3, 32, 63), ml_dtypes.bfloat16), kernels=1)) == {
        "ld.global.nc.b16",
        "st.global.b16",
    }


def test_reductions_of_a_row_are_shuffles() -> None:
    (ptx,) = ptx_of("row in registers")
    # A maximum and a sum: lanes exchange halves of their four numbers (2 + 1 shuffles), then join the one that is left.
    assert len(re.findall(r"shfl\.sync\.bfly", ptx)) == len(re.findall(r"shfl\.sync", ptx)) == 2 * (2 + 1 + 5)
    assert "bar.sync" not in ptx


def test_the_assembler_is_not_obeyed_where_it_undoes_what_was_asked() -> None:
    with pytest.raises(CodegenError, match="C7510"):
        check_words("ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized", 0)
    with pytest.raises(CodegenError, match="refused"):
        check_words("ptxas fatal : Ptx assembly aborted due to errors", 255)
    check_words("ptxas info : Used 32 registers", 0)


def test_an_older_gpu_is_not_given_what_it_lacks() -> None:
    target = lowered("map").targets[0]
    target.set_value("features", (*GPUS["sm_90a"].features,))
    with pytest.raises(FeatureError, match="wgmma") as caught:
        check_kernels([target.clone()], GPUS["sm_80"])
    assert "sm_90" in str(caught.value)


def test_an_unknown_gpu_is_an_error() -> None:
    with pytest.raises(OverrideError, match="no GPU `sm_12`"):
        lowered("map", "sm_12")


def test_programs_travel_as_plain_bytes() -> None:
    case = op_case(*next(pair for pair in chosen() if pair[0].short_name == "add"))
    assert case is not None
    executable = compile_tape(case.jitted.trace(*case.inputs[0]).tape, OPTIONS)
    again = type(executable).from_bytes(executable.to_bytes())
    assert again.metadata["target"] == "cuda"
    assert again.objects == executable.objects


FIRST = {spec.short_name: (spec, dtype) for spec, dtype in reversed(list(chosen()))}
"""Every op in the first dtype that it has."""


@pytest.mark.parametrize("name", sorted(FIRST))
def test_the_kernels_of_every_op_assemble(name: str) -> None:
    case = op_case(*FIRST[name])
    if case is None:
        pytest.skip("no form of it in tests/numerics/families.py has symbolic dims")
    tape = case.jitted.trace(*case.inputs[0]).tape
    spec = FIRST[name][0]
    if spec.decompose is None and (name == "matmul" or not isinstance(spec.lower, Contraction)):
        _, *kernels, _ = compile_tape(tape, OPTIONS).objects
    else:  # what it is written with, and the contraction that all others are like, are here too, with all variants
        kernels = ptx_in_turns(tape, zlib.crc32(name.encode()))
    assert all(b".visible .entry" in ptx for ptx in kernels)
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    for ptx in kernels:
        assemble(ptx, "sm_90a")
