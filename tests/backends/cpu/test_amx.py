"""Matmuls on AMX tiles: exact for integers of 8 bits, one recipe for bf16, whatever layout and blocks they have.

All of it runs on tiles in NumPy, so that packing, edges, blocks of K and tasks are checked on any CPU with AVX-512;
`tests/device/test_host_tiles.py` runs the instructions themselves.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.cpu.amx_gemm import TilePlan
from tessera.backends.cpu.amx_tiles import TILE_BYTES, TILE_LINES
from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.match_contraction import units_of
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.op import SpecOp
from tessera.ir.target.limits import CPU_MATRIX_INSTRUCTIONS
from tessera.ir.target.llvm.instructions import TargetText
from tessera.ir.target.machine_code import compile_texts
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, kernels_of
from tests.backends.cpu.native import Native, fill, interpret
from tests.backends.cpu.tile_emulator import AMX, CAN_EMULATE, Tiles, build_emulated, tile_sums

Array = np.ndarray[Any, Any]
M, N, K = (Dim.symbol(name) for name in "MNK")
emulated = pytest.mark.skipif(not CAN_EMULATE, reason="tiles are emulated beside AVX-512, which this CPU lacks")

LAYOUTS = ("nn", "nt", "tn", "tt")
"""Whether A and B are stored as they are multiplied or transposed."""
SIZES = (
    *((1, 1, 1), (16, 16, 64), (32, 32, 64), (33, 40, 70), (5, 129, 3), (31, 17, 65)),
    *((64, 64, 128), (48, 100, 96), (0, 5, 5), (5, 0, 5), (5, 5, 0), (100, 70, 1100)),
)


def body_of(lhs: DType, rhs: DType, layout: str = "nn", out: DType | None = dt.i32, epilogue: str = "") -> Any:
    """A matmul, by layout, with an epilogue."""
    w = Writer()
    turn = {"axes": (1, 0)}
    a = w.input([M, K], lhs) if layout[0] == "n" else w.transpose(w.input([K, M], lhs), **turn)
    b = w.input([K, N], rhs) if layout[1] == "n" else w.transpose(w.input([N, K], rhs), **turn)
    made = w.matmul(a, b) if out is None else w.matmul(a, b, dtype=out)
    if epilogue == "bias":
        made = w.add(made, w.input([N], out or lhs))
    elif epilogue == "scale":
        made = w.mul(w.cast(made, dtype=dt.f32), w.input([M, 1], dt.f32))
    return w.body(made)


def kernel_of(*args: Any, **options: Any) -> SpecOp:
    (kernel,) = kernels_of(body_of(*args, **options), AMX)
    return kernel


@cache
def native_of(*args: Any, unit: str = "automatic", **options: Any) -> tuple[Native, Tiles, Any]:
    return build_emulated(kernel_of(*args, **options), unit)


def arrays_of(kernel: SpecOp, sizes: dict[str, int], seed: int) -> list[Array]:
    """Buffers in which bytes are of any value."""
    rng, found = np.random.default_rng(seed), fill(kernel, sizes, seed)
    for array in found:
        if array.dtype.itemsize == 1:
            info = np.iinfo(array.dtype)
            array[...] = rng.integers(info.min, info.max, array.shape, dtype=array.dtype, endpoint=True)
    return found


def check(made: tuple[Native, Tiles, Any], sizes: dict[str, int], threads: int = 1, seed: int = 0) -> Tiles:
    native, tiles, _ = made
    arrays = arrays_of(native.kernel, sizes, seed)
    tiles.counts.clear()
    for ours, exact in zip(native.run(arrays, sizes, threads), interpret(native.kernel, arrays, sizes), strict=True):
        np.testing.assert_array_equal(ours, exact)
    assert not tiles.errors
    assert tiles.config is None, "tiles are released when a task ends"
    return tiles


@emulated
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("lhs", "rhs"), [(a, b) for a in (dt.i8, dt.u8) for b in (dt.i8, dt.u8)])
def test_bytes_multiply_exactly_in_every_layout(lhs: DType, rhs: DType, layout: str) -> None:
    for number, sizes in enumerate(SIZES):
        tiles = check(native_of(lhs, rhs, layout), dict(zip("MNK", sizes, strict=True)), 1 + number % 4, number)
        signs = "".join("u" if one is dt.u8 else "s" for one in (lhs, rhs))
        assert {name for name in tiles.counts if name.startswith("tdp")} <= {f"tdpb{signs}d"}
        assert all(sizes) == (f"tdpb{signs}d" in tiles.counts)


@emulated
@pytest.mark.parametrize("epilogue", ["bias", "scale"])
def test_epilogues_see_finished_accumulators_at_every_edge(epilogue: str) -> None:
    for number, sizes in enumerate(SIZES):
        check(native_of(dt.i8, dt.i8, epilogue=epilogue), dict(zip("MNK", sizes, strict=True)), 2, number)


@emulated
def test_results_of_eight_bits_wrap() -> None:
    for number, sizes in enumerate(SIZES[:8]):
        check(native_of(dt.i8, dt.i8, out=None), dict(zip("MNK", sizes, strict=True)), 1, number)


@emulated
@pytest.mark.parametrize("epilogue", ["", "scale"])
def test_blocks_of_every_loop_are_cut_and_joined(epilogue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks: several along rows, columns and K, with accumulators kept in the result or in scratch."""
    plan = TilePlan.of

    def small(target: TargetText, lhs: DType, rhs: DType, accumulator: DType) -> TilePlan:
        return replace(plan(target, lhs, rhs, accumulator), MC=64, KC=128, NC=64, MB=64)

    monkeypatch.setattr(TilePlan, "of", small)
    made = build_emulated(kernel_of(dt.i8, dt.u8, epilogue=epilogue))
    for sizes in ((130, 128, 300), (97, 150, 257), (64, 64, 128), (200, 33, 129)):
        check(made, dict(zip("MNK", sizes, strict=True)), 1)


@emulated
def test_strides_of_no_order_are_gathered() -> None:
    w = Writer()
    a = w.slice(w.input([M, 3 * K], dt.i8), start=(0, 0), stop=(M, 3 * K), step=(1, 3))
    b = w.slice(w.input([2 * K, 2 * N], dt.u8), start=(0, 0), stop=(2 * K, 2 * N), step=(2, 2))
    tape = w.body(w.matmul(a, b, dtype=dt.i32))
    (kernel,) = kernels_of(tape, AMX)
    check(build_emulated(kernel), {"M": 37, "N": 20, "K": 130})


@emulated
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_of_bf16_are_those_of_the_instruction_whatever_the_blocks(layout: str) -> None:
    native, tiles, _ = native_of(dt.bf16, dt.bf16, layout, dt.f32, unit="amx-bf16")
    for sizes in ((1, 1, 1), (33, 40, 70), (17, 100, 600), (5, 5, 0)):
        named = dict(zip("MNK", sizes, strict=True))
        arrays = fill(native.kernel, named)
        a, b = (array.astype(np.float32) for array in arrays[:2])
        a, b = a if layout[0] == "n" else a.T, b if layout[1] == "n" else b.T
        np.testing.assert_array_equal(native.run(arrays, named, 2)[2], tile_sums(a, b))
        assert not tiles.errors
        assert "tdpbf16ps" in tiles.counts


# What takes tiles, and what does not.


def unit_of(kernel: SpecOp, unit: str = "automatic") -> str:
    """The instruction of a kernel; of one that is no `gemm`, none."""
    return next(iter(units_of(CpuBackend(AMX, unit=unit).lower(kernel))), "")


def test_only_exact_instructions_are_chosen_unasked() -> None:
    """Bits of bf16 must not depend on the machine: its sums are taken on tiles where a caller says so."""
    assert unit_of(kernel_of(dt.i8, dt.u8)) == "amx-int8"
    assert unit_of(kernel_of(dt.bf16, dt.bf16, out=dt.f32)) == ""
    assert unit_of(kernel_of(dt.bf16, dt.bf16, out=dt.f32), "amx-bf16") == "amx-bf16"
    assert unit_of(kernel_of(dt.i8, dt.i8), "amx-bf16") == "amx-int8"
    assert unit_of(kernel_of(dt.i8, dt.i8), "multiply-adds") == ""


OTHERS = [(dt.i16, dt.i16, dt.i32), (dt.f32, dt.f32, dt.f32), (dt.i8, dt.i8, dt.i64)]


@pytest.mark.parametrize(("lhs", "rhs", "out"), OTHERS)
def test_other_dtypes_are_left_to_vectors(lhs: DType, rhs: DType, out: DType) -> None:
    assert unit_of(kernel_of(lhs, rhs, out=out)) == ""


def test_a_cast_that_changes_numbers_keeps_operands_from_tiles() -> None:
    """A tile multiplies what is stored: -1 of i8 is not 255 of u8."""
    for dtype, unit in ((dt.i32, "amx-int8"), (dt.i16, "amx-int8"), (dt.u8, "")):
        w = Writer()
        a = w.cast(w.input([M, K], dt.i8), dtype=dtype)
        (kernel,) = kernels_of(w.body(w.matmul(a, w.cast(w.input([K, N], dt.u8), dtype=dtype), dtype=dt.i32)), AMX)
        assert unit_of(kernel) == unit


def test_windows_are_left_to_vectors() -> None:
    w, one = Writer(), (Dim.constant(1),) * 2
    kernel, image = w.input([M, 3, 3, 3], dt.i8), w.input([2, 3, N, K], dt.i8)
    made = w.conv_windows(kernel, image, stride=(1, 1), dilation=(1, 1), low=one, high=one, grouped=False)
    (found,) = kernels_of(w.body(made), AMX)
    assert unit_of(found) == ""


def test_tiles_are_those_of_the_table() -> None:
    for one in CPU_MATRIX_INSTRUCTIONS.values():
        assert (one.rows, list(one.columns), one.k_bytes) == (TILE_LINES, [TILE_LINES], TILE_BYTES)


def test_the_kernel_is_loads_and_multiplications_of_tiles() -> None:
    """Four loads and four multiplications in a loop, no spills: LLVM moves no tile by itself."""
    backend = CpuBackend(AMX)
    (text,), shared = backend.parts([backend.lower(kernel_of(dt.i8, dt.u8))])
    micro = next(text for symbol, text in shared.items() if "amx2x2" in symbol)
    (code,) = compile_texts([micro], replace(backend.code_target, emit="assembly"))
    lines = [line.split("\t")[1] for line in code.decode().splitlines() if line.startswith("\t") and line[1] != "."]
    names = [name.split()[0] for name in lines if name.startswith("t")]
    # Two loops: the first prefetches the result.
    assert (names.count("tdpbsud"), names.count("tileloadd"), names.count("tilestored")) == (2 * 4, 4 + 2 * 4, 4)
    assert names.count("tilezero") == 4
    assert text.count("call void @llvm.x86.ldtilecfg") == 1
    # At the end, and wherever a call that is stopped returns early.
    assert text.count("call void @llvm.x86.tilerelease") == text.count("@tessera_is_stopped()") >= 2


def test_instructions_that_a_machine_lacks_are_not_asked_for() -> None:
    f = ts.jit(ts.ops.matmul, features=("x86-64-v4",), overrides={"matrix.instruction": "amx-bf16"})
    with pytest.raises(OverrideError, match=r"matrix\.instruction"):
        f(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
