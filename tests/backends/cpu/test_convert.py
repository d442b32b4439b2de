"""Loads, stores and casts of every dtype, each code of the small ones, against NumPy and ml_dtypes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.scalar_reference import cast as reference_cast
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import TargetText, Value, bytes_of
from tessera.ir.target.llvm.text import ModuleText
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tests.backends.cpu.jit import Compiled, build, targets

Array = np.ndarray[Any, Any]
each_target = pytest.mark.parametrize("target", targets(), ids=lambda target: f"lanes{target.lanes}")


def compile_cast(target: TargetText, pairs: list[tuple[DType, DType]]) -> Compiled:
    """One function per pair: load as the first dtype, cast, store as the second; with a masked tail."""
    module = ModuleText(target)
    for source, to in pairs:
        f = module.function(f"{source}_{to}", [("ptr", "to"), ("ptr", "source"), ("i64", "n")])
        out, pointer, n = f.arguments
        lanes = target.lanes

        def body(i: Value, tail: Value | None = None) -> None:
            start = f.gep(pointer, i, convert.storage_type(source))  # noqa: B023
            value = convert.cast(f, convert.load(f, start, source, lanes, tail), source, to)  # noqa: B023
            convert.store(f, value, f.gep(out, i, convert.storage_type(to)), to, tail)  # noqa: B023

        whole = f.round_down(n, lanes)
        f.loop(0, whole, lanes, body)
        body(whole, f.lane_mask(f.sub(n, whole), lanes))
        f.ret()
    return build(module)


def run(kernel: Compiled, source: DType, to: DType, values: Array) -> Array:
    out = np.zeros(len(values) + 1, numpy_dtype(to))
    kernel(f"{source}_{to}", out, values, len(values))
    assert not out[-1:].view(np.uint8).any(), "nothing is written past the end"
    return out[:-1]


def bits_of(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def samples(dtype: DType) -> Array:
    """Every value of a small dtype; of a wide one the corners and random ones."""
    rng = np.random.default_rng(7)
    numpy = numpy_dtype(dtype)
    if dtype is dt.i4:
        return np.arange(-8, 8, dtype=np.int8)
    if dtype.is_bool:
        return np.array([False, True, True, False, True])
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"u{dtype.bytes}").view(numpy)
    if not dtype.is_float:
        info = np.iinfo(numpy)
        ends = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 127, 128, 255, 256], numpy)
        spread = rng.integers(info.min, info.max, 2000, dtype=numpy, endpoint=True)
        return np.concatenate([ends, spread, spread >> rng.integers(0, dtype.bits - 1, 2000).astype(numpy)])
    corners = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        -np.nan,
        1e-46,
        -1e-40,
        448.0,
        464.0,
        464.00003,
        480.0,
        61440.0,
        65520.0,
    ]
    ends = [sign * 2.0**power * near for power in (3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 65) for near in
            (1 - 2**-22, 1, 1 + 2**-22) for sign in (1, -1)]  # fmt: skip
    wide = rng.normal(size=4000) * 10.0 ** rng.uniform(-12, 12, 4000)
    with np.errstate(over="ignore"):
        return np.array([*corners, *ends, *wide], numpy)


@each_target
@pytest.mark.parametrize("source", dt.ALL, ids=str)
def test_every_cast_matches_the_reference(target: TargetText, source: DType) -> None:
    kernel = compile_cast(target, [(source, to) for to in dt.ALL])
    values = samples(source)
    for to in dt.ALL:
        with np.errstate(all="ignore"):
            expected = reference_cast(values, dtype=to)
        actual = run(kernel, source, to, values)
        if to.is_float:
            with np.errstate(invalid="ignore"):
                nan = np.isnan(expected.astype(np.float64))
                np.testing.assert_array_equal(np.isnan(actual.astype(np.float64)), nan, str(to))
            actual, expected = actual[~nan], expected[~nan]
        np.testing.assert_array_equal(bits_of(actual), bits_of(expected), f"{source} to {to}")


@each_target
@pytest.mark.parametrize("to", [dt.bf16, dt.f16, dt.f8e4m3, dt.f8e5m2], ids=str)
def test_rounding_to_narrow_floats_around_every_midpoint(target: TargetText, to: DType) -> None:
    with np.errstate(invalid="ignore"):
        codes = samples(to).astype(np.float32)
    finite = np.unique(codes[np.isfinite(codes)])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, -np.float32(np.inf))]
    )
    with np.errstate(all="ignore"):
        expected = values.astype(numpy_dtype(to))
    actual = run(compile_cast(target, [(dt.f32, to)]), dt.f32, to, values)
    np.testing.assert_array_equal(bits_of(actual), bits_of(expected))


def test_storage_and_compute_types() -> None:
    for source in dt.ALL:
        assert bytes_of(convert.storage_type(source)) == source.bytes
    assert [convert.compute_type(d) for d in (dt.bf16, dt.bool_, dt.i4, dt.f64)] == ["float", "i1", "i8", "double"]
    assert len(set(itertools.chain.from_iterable([convert.storage_type(d)] for d in dt.ALL))) == 7
