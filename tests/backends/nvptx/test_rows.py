"""Kernels of rows: bounds of exp, rows moved by ldmatrix, bf16 two at a time, short rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.api.kernel import kernel
from tessera.backends.nvptx.approximate_functions import find_exp_bounds
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import KTile
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.target.typed_ops import KernelOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.stdlib import efficient_layernorm, stable_softmax
from tests.oracles.schedule_interpreter import run_program

BF16 = ml_dtypes.bfloat16


def lowered(function: Callable[..., Any], *arrays: Any, machine: str = "sm_90a") -> Lowering:
    tape = ts.jit(function).trace(*arrays).tape
    return lower(tape, Options.of(backend="cuda", features=(machine,)))


def ptx_of(lowering: Lowering, machine: str = "sm_90a") -> str:
    return "\n".join(ptx.decode() for ptx in compile_texts(lowering.texts, NvptxBackend(GPUS[machine]).code_target))


def softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def scaled_softmax(x: Any) -> Any:
    return ts.ops.softmax(x * 0.125 + 1.0, axis=-1)


def log_softmax(x: Any) -> Any:
    return ts.ops.log_softmax(x, axis=-1)


def of_maximum(x: Any) -> Any:
    return ts.ops.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1)


def of_mean(x: Any) -> Any:
    return ts.ops.exp(x - x.mean(axis=-1, keepdims=True)).sum(axis=-1)


def of_minimum(x: Any) -> Any:
    return ts.ops.exp(x - x.min(axis=-1, keepdims=True)).sum(axis=-1)


def of_another(x: Any) -> Any:
    return ts.ops.exp(x - (x * 0.5).max(axis=-1, keepdims=True)).sum(axis=-1)


def the_other_way(x: Any) -> Any:
    return ts.ops.exp(x.max(axis=-1, keepdims=True) - x).sum(axis=-1)


def of_less(x: Any) -> Any:
    return ts.ops.exp(x - ts.ops.minimum(x.max(axis=-1, keepdims=True), 0.0)).sum(axis=-1)


def powers(function: Any, shape: tuple[int, int], dtype: Any = np.float32) -> tuple[int, int]:
    """How many powers the kernels of a program have, and how many of them are known to fall."""
    total = falls = 0
    for target in lowered(function, np.zeros(shape, dtype)).targets:
        names = [op.value("fn") for op in target.walk() if isinstance(op, SpecOp) and op.name == "ttarget.elementwise"]
        assert isinstance(target, KernelOp)
        total, falls = total + names.count("exp"), falls + len(find_exp_bounds(target))
    return total, falls


@pytest.mark.parametrize("function", [softmax, scaled_softmax, log_softmax, of_maximum])
@pytest.mark.parametrize("shape", [(8, 1024), (8, 1000), (4, 6000)])
def test_a_difference_to_the_largest_of_its_row_falls(function: Any, shape: tuple[int, int]) -> None:
    total, falls = powers(function, shape)
    assert total == falls > 0


@pytest.mark.parametrize("function", [softmax, scaled_softmax, log_softmax])
def test_a_narrow_row_is_looked_at_as_it_is_computed_with(function: Any) -> None:
    total, falls = powers(function, (8, 1024), BF16)
    assert total == falls > 0


@pytest.mark.parametrize("function", [of_mean, of_minimum, of_another, the_other_way, of_less])
def test_no_other_difference_does(function: Any) -> None:
    total, falls = powers(function, (8, 1000))
    assert total > 0
    assert falls == 0


def test_the_least_of_bf16_is_taken_two_at_a_time() -> None:
    ptx = ptx_of(lowered(softmax, np.zeros((8, 1024), BF16)))
    # 32 elements to a thread, in four tiles of 8: three of four pairs are joined with another.
    assert ptx.count("min.NaN.bf16x2") == 12
    assert "bf16x2" not in ptx_of(lowered(softmax, np.zeros((8, 1024), np.float32)))


@pytest.mark.parametrize("function", [softmax, scaled_softmax, log_softmax])
def test_exps_are_written_for_rows_that_do_not_fall_far_too(function: Any) -> None:
    ptx = ptx_of(lowered(function, np.zeros((8, 1024), BF16)))
    # 32 arguments to a thread, which are held from below for a row that falls far, and for no other.
    held = ptx.count("0fC2D40000;")
    assert held == 32


@pytest.mark.parametrize("function", [of_mean, of_minimum, of_another, the_other_way, of_less])
def test_other_exps_are_written_once(function: Any) -> None:
    assert "min.NaN.bf16x2" not in ptx_of(lowered(function, np.zeros((8, 1024), BF16)))


CROSSED = """builtin.module attributes {tessera.version = 4 : i64} {
  ttarget.kernel @k(%0: !ttile.buffer<[64, 256], f32>, %1: !ttile.buffer<[64], f32>) attributes {
      symbols = [], writes = [1], lanes = 32, features = ["sm_80"], scratch = 0, threads = 128} {
    ttarget.programs {grid = [1]} ({
    ^bb0(%2: !ttile.index):
      %3 = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %4 = ttarget.index {names = [], expr = 256} : () -> !ttile.index
      %5 = ttarget.constant {value = -3.0e+38} : () -> TILE
      %6 = ttarget.loop %3, %4, %5 {step = 64} ({
      ^bb0(%7: !ttile.index, %8: TILE):
        LOAD
        %10 = ttarget.elementwise %8, %9 {fn = "max"} : (TILE, TILE) -> TILE
        ttarget.yield %10 : (TILE) -> ()
      }) : (!ttile.index, !ttile.index, TILE) -> TILE
      %11 = ttarget.reduce %6 {kind = "max", axis = AXIS} : (TILE) -> ROW
      %12 = ttarget.constant {value = 0.0} : () -> ROW
      %13 = ttarget.loop %3, %4, %12 {step = 64} ({
      ^bb0(%7: !ttile.index, %14: ROW):
        LOAD
        %15 = ttarget.broadcast %11 {axes = [0]} : (ROW) -> TILE
        %16 = ttarget.elementwise %9, %15 {fn = "sub"} : (TILE, TILE) -> TILE
        %17 = ttarget.elementwise %16 {fn = "exp"} : (TILE) -> TILE
        %18 = ttarget.reduce %17 {kind = "sum", axis = 1} : (TILE) -> ROW
        %19 = ttarget.elementwise %14, %18 {fn = "add"} : (ROW, ROW) -> ROW
        ttarget.yield %19 : (ROW) -> ()
      }) : (!ttile.index, !ttile.index, ROW) -> ROW
      ttarget.store %13, %1, %3 WHERE : (ROW, !ttile.buffer<[64], f32>, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}"""
TYPES = {
    "LOAD": '%9 = ttarget.load %0, %7, %3 {coords = ["_k", "_m"], axes = ["_m", "_k"], offset = _k + 256*_m, '
    'pattern = "contiguous", align = 4, pad = 0.0} '
    ": (!ttile.buffer<[64, 256], f32>, !ttile.index, !ttile.index) -> TILE",
    "TILE": "!ttarget.vector<[64, 64], f32>",
    "WHERE": '{coords = ["_m"], axes = ["_m"], offset = _m, pattern = "contiguous", align = 4}',
    "ROW": "!ttarget.vector<[64], f32>",
}


@pytest.mark.parametrize(("axis", "falls"), [(1, 1), (0, 0)])
def test_the_largest_of_a_column_is_no_bound_of_a_row(axis: int, falls: int) -> None:
    """Tiles as wide as high, from which either could be taken."""
    text = CROSSED.replace("AXIS", str(axis))
    for name, type in TYPES.items():
        text = text.replace(name, type)
    load_dialects()
    module = parse_module(text)
    verify(module)
    (target,) = [op for op in module.walk() if op.name == "ttarget.kernel"]
    assert isinstance(target, SpecOp)
    assert isinstance(target, KernelOp)
    assert len(find_exp_bounds(target)) == falls


def layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


@cache
def norm(columns: int, dtype: Any = BF16, machine: str = "sm_90a") -> Lowering:
    arrays = [np.zeros(shape, dtype) for shape in ((8, columns), (columns,), (columns,))]
    return lowered(layernorm, *arrays, machine=machine)


def added(x: Any, y: Any) -> Any:
    return ts.ops.relu(x + y) * y - x


@pytest.mark.parametrize(("dtype", "name"), [(BF16, "bf16"), (np.float16, "f16")])
def test_narrow_floats_are_added_and_multiplied_two_at_a_time(dtype: Any, name: str) -> None:
    arrays = [np.zeros((64, 4096), dtype)] * 2
    ptx = ptx_of(lowered(added, *arrays))
    for function in ("add", "mul", "sub"):
        assert f"{function}.rn.{name}x2" in ptx
        assert f"{function}.rn.f32" not in ptx
    older = ptx_of(lowered(added, *arrays, machine="sm_80"), "sm_80")
    assert f"rn.{name}x2" not in older.replace(f"cvt.rn.{name}x2", "")


def test_ordinary_arguments_are_computed_without_a_branch_between_them() -> None:
    """One test of all that a thread has, loads before it, and calls for what is not ordinary apart."""

    def chain(x: Any, y: Any) -> Any:
        return ts.ops.maximum(ts.ops.sin(ts.ops.log1p(x)), y)

    ptx = ptx_of(lowered(chain, *[np.zeros((64, 4096), BF16)] * 2))
    kernel = ptx.rpartition(".visible .entry")[2].partition("\n}")[0]
    loads = [kernel.rindex(text) for text in ("ld.global.nc.v4", "ld.global.v4") if text in kernel]
    tests = [found.start() for found in re.finditer(r"@%p\d+ bra", kernel)]
    assert max(loads) < min(at for at in tests if at > max(loads))
    assert sum(at > max(loads) for at in tests) <= 3  # one for each function, and the end of the loop
    assert kernel.count("call.uni") == 16


def _nearest(exact: Fraction) -> np.ndarray[Any, Any]:
    """The bf16 nearest to a number, ties to even, by trying its neighbours."""
    near = np.array([float(exact)], np.float64).astype(np.float32).astype(BF16)
    whole = int(near.view(np.int16)[0])
    found = [np.array([bits], np.int16).view(BF16) for bits in (whole - 1, whole, whole + 1)]
    finite = [one for one in found if np.isfinite(one[0])]
    return min(finite, key=lambda one: (abs(Fraction(float(one[0])) - exact), int(one.view(np.int16)[0]) & 1))


_NUMBERS = st.integers(0, 0xFFFF).map(lambda bits: np.array([bits], np.uint16).view(BF16))


@given(_NUMBERS, _NUMBERS, st.sampled_from(["add", "mul"]))
def test_rounding_to_f32_first_is_never_seen(a: Any, b: Any, name: str) -> None:
    wide = [part.astype(np.float32) for part in (a, b)]
    if not all(np.isfinite(part[0]) for part in wide):
        return
    with np.errstate(all="ignore"):
        twice = (wide[0] + wide[1] if name == "add" else wide[0] * wide[1]).astype(BF16)
    left, right = (Fraction(float(part[0])) for part in wide)
    exact = left + right if name == "add" else left * right
    if np.isfinite(twice[0]) and exact and abs(exact) < Fraction(3.3e38):
        assert float(twice[0]) == float(_nearest(exact)[0])


def rotary(x: Any, c: Any, s: Any) -> Any:
    return ts.ops.rotary(x, c, s)


def joined(x: Any) -> Any:
    return ts.ops.concat([x, x * 2.0, x + 1.0], axis=-1)


def scaled(x: Any) -> Any:
    return x * x[:, :1]


def test_rotary_is_one_kernel_that_moves_16_bytes_at_a_time() -> None:
    arrays = [np.zeros(shape, BF16) for shape in ((2, 4, 64, 128), (64, 64), (64, 64))]
    lowering = lowered(rotary, *arrays)
    assert len(lowering.kernels) == 1
    ptx = ptx_of(lowering)
    assert ptx.count("ld.global.nc.v4.b32") == 4
    assert ptx.count("st.global.v4.b32") == 2


@settings(max_examples=8)
@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 40))
def test_short_rows_mean_what_they_did(outer: int, rows: int, columns: int) -> None:
    x = np.random.default_rng(outer + rows + columns).standard_normal((outer, rows, columns)).astype(np.float32)
    for function in (joined, scaled):
        (expected,) = run_program(lower(ts.jit(function).trace(x).tape, Options()).module, x)
        (found,) = run_program(lowered(function, x).module, x)
        assert found.tobytes() == expected.tobytes()


def library_softmax(x: Any) -> Any:
    return stable_softmax(x)


def library_layernorm(x: Any, weight: Any, bias: Any) -> Any:
    return efficient_layernorm(x, weight, bias)


@pytest.mark.parametrize(("dtype", "neighbours"), [(BF16, 2), (np.float32, 1)])
def test_threads_have_four_bytes_of_a_row_that_is_reduced_whole(dtype: Any, neighbours: int) -> None:
    line = np.zeros(4096, dtype)
    for function, arrays in ((library_softmax, ()), (library_layernorm, (line, line))):
        (target,) = lowered(function, np.zeros((64, 4096), dtype), *arrays).targets
        assert target.value("vector") == neighbours
        assert target.value("threads") == 4096 // 32
    # The narrowest of what is read counts.
    wide = np.zeros(4096, np.float32)
    (target,) = lowered(library_layernorm, np.zeros((64, 4096), dtype), wide, wide).targets
    assert target.value("vector") == neighbours
    # What is not reduced, or not by many threads, goes 16 bytes at a time.
    (target,) = lowered(scaled_rows, np.zeros((64, 4096), dtype)).targets
    assert target.value("vector") == 16 // line.itemsize


def scaled_rows(x: Any) -> Any:
    return x * 2.0


def test_a_reduction_over_warps_is_one_exchange() -> None:
    ptx = ptx_of(lowered(library_softmax, np.zeros((64, 4096), BF16)))
    # Two reductions, each of which waits for what was there before, and for what it writes.
    assert ptx.count("bar.sync") + ptx.count("barrier.sync") == 4
    # The largest is that of each warp first; sums are of two neighbours, each by our tree.
    assert ptx.count("shfl.sync.bfly") == 5 + 2 * 5
    assert "shfl.sync.down" not in ptx


def test_exps_of_the_language_are_bounded_too() -> None:
    total, falls = powers(library_softmax, (64, 4096), BF16)
    assert total == falls == 1


def test_a_row_of_the_language_is_divided_by_its_sum_together() -> None:
    ptx = ptx_of(lowered(library_softmax, np.zeros((64, 4096), BF16)))
    assert ptx.count("rcp.approx.ftz.f32") == 1
    assert ptx.count("div.rn.f32") == 32


def rmsnorm(x: Any, weight: Any) -> Any:
    return ts.ops.rmsnorm(x, weight)


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize(("columns", "dtype"), [(8192, BF16), (9217, BF16), (32768, BF16), (16384, np.float32)])
def test_rows_stay_in_registers(columns: int, dtype: Any) -> None:
    ptx = ptx_of(lowered(rmsnorm, np.zeros((64, columns), dtype), np.zeros(columns, dtype)))
    assert " 0 bytes spill stores" in assemble_with_words(ptx.encode(), "sm_90a")[1]


def gated_norm(x: Any, weight: Any) -> Any:
    return ts.ops.rmsnorm(ts.ops.gelu(x), weight)


def wide_powers(x: Any) -> Any:
    wide = x.cast(ts.f64)
    return ts.ops.exp(wide - wide.max(axis=-1, keepdims=True)).cast(ts.bf16)


def test_wide_rows_with_much_to_do_are_not_unrolled() -> None:
    """Many instructions for each of 256 elements of a thread take seconds to compile: several warps have fewer each."""
    x, weight = np.zeros((64, 8192), BF16), np.zeros(8192, BF16)
    assert len(ptx_of(lowered(gated_norm, x, weight))) < 1 << 18
    assert len(ptx_of(lowered(wide_powers, x))) < 1 << 18


@kernel
def powers_in_f64(x: KTile["B*S", "D"]) -> Any:
    T = tile.context()
    rows = tile.cast(tile.load(x, rows=T.m, cols=T.d), ts.f64)
    return tile.cast(tile.exp(rows - tile.tile_reduce_rowmax(rows)[:, None]), x.dtype)


@kernel
def gates_in_f64(x: KTile["B*S", "D"]) -> Any:
    T = tile.context()
    return tile.cast(tile.sigmoid(tile.cast(tile.load(x, rows=T.m, cols=T.d), ts.f64)), x.dtype)


def language_powers(x: Any) -> Any:
    return powers_in_f64(x)


def language_gates(x: Any) -> Any:
    return gates_in_f64(x)


@pytest.mark.parametrize("function", [language_powers, language_gates])
@pytest.mark.parametrize("columns", [64, 1024])
def test_bf16_that_is_computed_with_in_f64_stays_f64(function: Any, columns: int) -> None:
    """Pairs, powers of normal numbers and short formulas are those of f32."""
    ptx = ptx_of(lowered(function, np.zeros((8, columns), BF16)))
    assert "fma.rn.f64" in ptx
    assert "bf16x2 " not in ptx.replace("cvt.rn.bf16x2.f32", "")
    assert "ex2.approx" not in ptx


AT_LEAST = {
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "rotary", "bias + silu", "gelu", "gelu, tanh"), 0.90),
    **dict.fromkeys(("stable_softmax", "efficient_layernorm", "rotary_embedding", "row sums", "column sums"), 0.85),
}


def test_rows_reach_a_copy_as_recorded() -> None:
    """Of the bytes that a copy moves in the same time, on one machine, interleaved."""
    file = Path(__file__).parents[3] / "benchmarks" / "results" / "gpu-rows.json"
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    assert all(row["error"] < 2.0**-8 for row in rows.values())
    slow = {
        name: rows[name]["ratio_to_copy"] for name, least in AT_LEAST.items() if rows[name]["ratio_to_copy"] < least
    }
    assert not slow


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2"])
def test_floats_of_8_bits_are_converted_two_at_a_time(name: str) -> None:
    """Rounded and held to the range in one instruction, and quotients by the scale of a row without branches."""
    dtype = getattr(ts, name)

    def quantized(x: Any, scale: Any) -> Any:
        return ts.ops.quantize(x, scale, dtype=dtype, saturation="saturate")

    arrays = [np.zeros((64, 4096), np.float32), np.ones((64, 1), np.float32)]
    ptx = ptx_of(lowered(quantized, *arrays))
    assert f"cvt.rn.satfinite.{name[2:]}x2.f32" in ptx
    assert ("cvt.rni" in ptx) == (name == "f8e5m2")  # whose NaN has another code
    assert "rcp.approx" in ptx
    older = ptx_of(lowered(quantized, *arrays, machine="sm_80"), "sm_80")
    assert "satfinite" not in older


def test_what_loses_nothing_is_not_rounded_in_between() -> None:
    """A sign, a 0 or the larger of two narrow floats is one: it is rounded once, where it is stored or added."""

    def chain(x: Any, y: Any) -> Any:
        return ts.ops.sin(ts.ops.relu(ts.ops.abs(-x))) + y

    for dtype, name in ((BF16, "bf16"), (np.float16, "f16")):
        ptx = ptx_of(lowered(chain, *[np.zeros((64, 4096), dtype)] * 2))
        kernel = ptx.rpartition(".visible .entry")[2].partition("\n}")[0]
        assert len(re.findall(rf"cvt\.rn\.{name}x2\.f32", kernel)) == 4
        larger = ptx_of(lowered(ts.ops.maximum, *[np.zeros((64, 4096), dtype)] * 2))
        assert f"max.NaN.{name}x2" in larger
        assert not re.search(r"cvt\.(rn\.|f32)", larger)


def test_loads_are_on_their_way_before_what_is_transposed_is_exchanged() -> None:
    def joined(x: Any, y: Any, z: Any) -> Any:
        return ts.ops.transpose(x) * y + ts.ops.transpose(z)

    arrays = [np.zeros(shape, np.float32) for shape in ((256, 512), (512, 256), (256, 512))]
    ptx = ptx_of(lowered(joined, *arrays))
    assert ptx.rindex("ld.global") < ptx.index("barrier" if "barrier" in ptx else "bar.sync")


def test_elements_beside_a_short_dim_are_read_in_lines() -> None:
    """Of [8, 64, 512, 2], transposed to [8, 2, 512, 64], a warp reads along 512, whose elements are two apart."""

    def reversed_axes(x: Any) -> Any:
        return ts.ops.transpose(x, (0, 3, 2, 1))

    ptx = ptx_of(lowered(reversed_axes, np.zeros((8, 64, 512, 2), np.float16)))
    assert "ld.shared" in ptx
    assert "ld.global" in ptx


def test_whole_tiles_have_no_loop() -> None:
    """A program of a GPU has one tile: where all are whole, it loads, computes and stores, and that is all."""
    whole, cut = (ptx_of(lowered(added, *[np.zeros((count,), BF16)] * 2)) for count in (1 << 20, (1 << 20) + 8))
    assert "bra" not in whole
    assert "bra" in cut
