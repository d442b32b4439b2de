"""Sorts by the bytes of keys: which rows are sorted so, what their programs have, and the order of keys, on this CPU.

What threads do together is tested where there is a GPU (`tests/device/test_order.py`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.emit_radix import RadixSort, has_radix_sort
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.graph.ops.sort import order_of
from tessera.ir.target.llvm.instructions import TargetText
from tessera.ir.target.llvm.text import ModuleText
from tessera.ir.target.llvm.vector_ops import KeySort
from tessera.ir.target.machine_code import compile_text
from tessera.ir.target.typed_ops import SortOp
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.types import dtype as dt
from tests.backends.cpu.jit import Compiled, build, targets
from tests.backends.nvptx.kernels import parts_of

DTYPES = {dt.f32: "float", dt.i8: "i8", dt.i32: "i32", dt.u32: "i32", dt.u8: "i8"}
"""Dtypes of keys, and what they are in memory."""


def sort(x: Any) -> Any:
    return ts.ops.sort(x, 1)


def argsort(x: Any) -> Any:
    return ts.ops.argsort(x, 1)


def lowered(function: Any, shape: tuple[int, ...], dtype: Any) -> Lowering:
    jitted: Any = ts.jit(function)
    return lower(jitted.trace(np.zeros(shape, dtype)).tape, Options.of(backend="cuda", features=("sm_90a",)))


@pytest.mark.parametrize(("dtype", "count", "wanted"), [(dt.f32, 1024, True), (dt.f32, 1023, False),
    (dt.f32, None, False), (dt.f64, 4096, False), (dt.i64, 4096, False), (dt.u8, 4096, True),
    (dt.i32, 1 << 31, False), (dt.bf16, 4096, False), (dt.f16, 4096, False)])  # fmt: skip
def test_long_rows_of_short_keys_are_sorted_by_bytes(dtype: dt.DType, count: int | None, wanted: bool) -> None:
    assert has_radix_sort(dtype, count) is wanted


@pytest.mark.parametrize(("count", "threads", "is_in_place"), [(1023, 256, False), (1024, 256, True),
    (2048, 256, True), (2049, 512, True), (4096, 512, True), (5001, 1024, True), (8192, 1024, True),
    (8193, 1024, False), (192148, 1024, False)])  # fmt: skip
def test_rows_that_threads_have_in_registers_need_no_spare_memory(count: int, threads: int, is_in_place: bool) -> None:
    (kernel,) = lowered(sort, (35, count), np.float32).targets
    (op,) = [part for part in kernel.walk() if isinstance(part, SortOp)]
    assert kernel.value("threads") == threads
    assert (op.keys is op.spare_keys, op.indices is op.spare_indices) == (is_in_place, is_in_place)


@pytest.mark.parametrize(
    ("shape", "dtype", "passes"), [((8192, 4096), np.float32, 4), ((35, 192148), ml_dtypes.bfloat16, 2)]
)
def test_a_pass_votes_on_every_bit_of_a_byte(shape: tuple[int, int], dtype: Any, passes: int) -> None:
    parts = parts_of(lowered(argsort, shape, dtype))
    (code,) = parts.codes
    ptx = compile_text(code.text, parts.backend.code_target)
    # Four bytes of f32 and two of bf16, eight elements to a thread, eight bits of each.
    assert ptx.decode().count("vote.sync.ballot.b32 V") == passes * 8 * 8
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    words = assemble_with_words(ptx, "sm_90a")[1]
    assert int(re.findall(r"Used (\d+) registers", words)[0]) <= 64
    assert int(re.findall(r"(\d+) bytes spill stores", words)[0]) <= 64


@cache
def orders() -> Compiled:
    """For each dtype and direction a function that writes the order of keys."""
    wide = targets()[0]
    module = ModuleText(TargetText(1, wide.cpu, wide.features))
    for dtype, element in DTYPES.items():
        for descending in (False, True):
            f = module.function(f"order_{dtype}_{descending}", [("ptr", "keys"), ("ptr", "out"), ("i64", "count")])
            keys, out, count = f.arguments
            one = RadixSort.__new__(RadixSort)
            KeySort.__init__(one, f, dtype, descending, element)

            def write(at: Any, f: Any = f, one: RadixSort = one, keys: Any = keys, out: Any = out) -> None:
                f.store(one.order(one.key(keys, at)), f.gep(out, at, "i32"))

            f.loop(0, count, 1, write)
            f.ret()
    return build(module)


def keys_of(dtype: dt.DType) -> Any:
    rng = np.random.default_rng(5)
    if not dtype.is_float:
        limits = np.iinfo(numpy_dtype(dtype))
        return rng.integers(limits.min, limits.max, 3000, numpy_dtype(dtype), endpoint=True)
    x = rng.integers(-50, 50, 3000).astype(np.float32) * rng.choice(np.array([1e-44, 1, 1e36], np.float32), 3000)
    x[::7], x[::11], x[::13], x[::17], x[::19] = np.nan, -0.0, 0.0, np.inf, -np.inf
    x[3::23] = -np.nan
    return x


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_keys_are_ordered_as_integers_without_a_sign(dtype: dt.DType, descending: bool) -> None:
    x = keys_of(dtype)
    found = np.zeros(len(x), np.uint32)
    orders()(f"order_{dtype}_{descending}", x, found, len(x))
    np.testing.assert_array_equal(np.argsort(found, kind="stable"), order_of(x, descending=descending))


def test_bits_that_no_number_has_are_in_no_order() -> None:
    """So that passes over the lower bytes of bf16, which are f32 here, are left out."""
    x = keys_of(dt.f32).astype(ml_dtypes.bfloat16).astype(np.float32)
    found = np.zeros(len(x), np.uint32)
    for descending in (False, True):
        orders()(f"order_{dt.f32}_{descending}", x, found, len(x))
        assert not (found & 0xFFFF).any()
