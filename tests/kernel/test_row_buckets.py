"""Kernels with whole-row tiles inside `jit` where the row's length is symbolic: one specialization per bucket."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Tensor, f32, kernel, tile
from tessera.api.jit import Jit
from tessera.diagnostics.codes import KernelError, ShapeError
from tessera.frontend.kernel.rows import below, bucket_of
from tessera.frontend.pytree import as_tuple, is_sequence
from tests.oracles.nvptx_backend import NvptxBackend

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@kernel
def softmax(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.softmax(tile.load(x, T.m, T.d))


@kernel
def centred(x: KTile["M", "N", f32], w: KTile["N", f32]) -> Any:
    T = tile.context()
    v = tile.load(x, T.m, slice(None))
    mean = tile.sum(v, 1) / x.shape[1]
    return (v - mean[:, None]) * tile.load(w, slice(None))


@kernel
def sums(x: KTile["M", "N", f32], ones: KTile["M", f32], top: KTile["M", f32], least: KTile["M", f32]) -> None:
    T = tile.context()
    v = tile.load(x, T.m, T.d)
    tile.store(ones, tile.sum(tile.full((T.m, T.d), 1.0), 1), T.m)
    tile.store(top, tile.max(v, 1), T.m)
    tile.store(least, tile.min(v * 2.0 - 1.0, 1), T.m)


@kernel
def scanned(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.scan(tile.load(x, T.m, T.d)) + tile.cast(tile.col_index(T.d), f32)[None, :]


@kernel
def matmul(x: KTile["M", "K", f32], y: KTile["K", "N", f32]) -> Any:
    T = tile.context()
    return tile.dot(tile.load(x, T.m, slice(None)), tile.load(y, slice(None), T.n))


@kernel
def whole_columns(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    v = tile.load(x, slice(None), T.n)
    return v / tile.sum(v, 0)[None, :]


CASES: dict[str, Any] = {one.name: one for one in (softmax, centred, sums, scanned, matmul, whole_columns)}


def operands_of(name: str, rows: int, length: int) -> list[Any]:
    """Operands whose whole dim has a length."""
    if name == "whole_columns":
        return [normal(length, rows)]
    second = {"centred": [normal(length)], "matmul": [normal(length, 9)]}
    return [normal(rows, length), *second.get(name, [])]


def results_of(value: Any) -> list[Any]:
    return [np.asarray(one) for one in (as_tuple(value) if is_sequence(value) else (value,))]


SHORT = ("scanned", "whole_columns")
"""Kernels whose code is long for long rows."""


@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_length_give_the_bits_of_static_rows(name: str) -> None:
    one = CASES[name]

    @ts.jit(dynamic=True)
    def inside(*operands: Any) -> Any:
        return one(*operands)

    for rows, length in ((5, 1), (3, 9), (7, 14)) if name in SHORT else ((5, 1), (3, 17), (7, 31), (2, 300), (6, 290)):
        operands = operands_of(name, rows, length)
        for left, right in zip(results_of(inside(*operands)), results_of(one(*operands)), strict=True):
            np.testing.assert_array_equal(left, right)
    assert inside.cache_info().compiles == (1 if name in SHORT else 3)


def test_one_specialization_serves_a_bucket_and_explain_shows_it() -> None:
    @ts.jit
    def program(x: Tensor["M", "N", f32]) -> Any:
        return softmax(x * 2.0).sum(axis=0)

    for length in (130, 200, 256, 131):
        x = normal(3, length)
        expected = np.exp(2 * x - (2 * x).max(1, keepdims=True))
        expected = (expected / expected.sum(1, keepdims=True)).sum(0)
        np.testing.assert_allclose(np.asarray(program(x)), expected, rtol=1e-4)
    assert program.cache_info().compiles == 1
    program(normal(3, 257))
    assert program.cache_info().compiles == 2
    assert "a tile of 256 elements holds rows of 129 to 256" in str(program.explain(normal(3, 140)))
    assert "a tile of 320 elements holds rows of 257 to 320" in str(program.explain())
    assert "!ttile.tile<[16, 256], f32>" in program.lower(normal(3, 140)).tile


def test_threads_that_first_ask_for_a_row_at_once_share_its_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    @ts.jit
    def attend(x: Tensor["B", "L", f32]) -> Any:
        return softmax(x * 2.0)

    lengths, found = [20, 21, 25, 30, 31, 32], dict[int, Any]()
    given = {length: normal(3, length) for length in lengths}
    barrier, find = threading.Barrier(len(lengths)), Jit._find  # pyright: ignore[reportPrivateUsage]

    def find_together(self: Jit, call: Any) -> Any:
        if self is attend:
            barrier.wait(60)
        return find(self, call)

    def call(length: int) -> None:
        found[length] = np.asarray(attend(given[length]))

    monkeypatch.setattr(Jit, "_find", find_together)
    threads = [threading.Thread(target=call, args=(length,)) for length in lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert sorted(found) == lengths
    assert attend.cache_info().misses == 1, "all lengths are in one bucket"
    for length, made in found.items():
        np.testing.assert_array_equal(made, np.asarray(attend(given[length])))


def test_a_length_that_the_kernel_computes_with_is_specialized_for_itself() -> None:
    @kernel
    def scaled(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        v = tile.load(x, T.m, T.d)
        return v * (1.0 / float(T.d)) + v.shape[1]

    @ts.jit
    def program(x: Tensor["M", "N", f32]) -> Any:
        return scaled(x)

    for length in (100, 101, 100):
        x = normal(2, length)
        np.testing.assert_allclose(np.asarray(program(x)), x / length + length, rtol=1e-6)
    assert program.cache_info().compiles == 2


def test_what_has_no_length_at_compile_time_and_rows_of_nothing_are_refused() -> None:
    @ts.jit
    def program(x: Tensor["M", "N", f32]) -> Any:
        return softmax(x)

    with pytest.raises(KernelError, match="`softmax` needs `N` as a number"):
        program.lower()
    with pytest.raises(ShapeError, match="0 elements cannot be a tile"):
        program(normal(3, 0))
    np.testing.assert_allclose(np.asarray(program(normal(3, 4))).sum(1), 1, rtol=1e-6)


def test_derived_lengths_are_in_buckets_too() -> None:
    @ts.jit
    def program(x: Tensor["M", "N", f32], y: Tensor["M", "N", f32]) -> Any:
        return softmax(ts.ops.concat([x, y], axis=1))

    for length in (9, 12, 60):
        x, y = normal(3, length), normal(3, length)
        np.testing.assert_array_equal(np.asarray(program(x, y)), np.asarray(softmax(np.concatenate([x, y], 1))))
    assert program.cache_info().compiles == 2


@settings(max_examples=200, deadline=None)
@given(size=st.integers(1, 40_000))
def test_buckets_hold_their_sizes_and_waste_little(size: int) -> None:
    bucket = bucket_of(size)
    assert below(bucket) < size <= bucket
    assert bucket == bucket_of(bucket)
    assert size <= 256 or bucket - size <= bucket / 5


def test_rows_in_buckets_have_code_for_a_gpu() -> None:
    from tessera.compiler.kernel_instance import KernelInstance
    from tessera.ir.tile.write_records import write_kernel
    from tessera.types.dim import Dim
    from tessera.types.shape import TensorType

    backend = NvptxBackend()
    type = TensorType((Dim.symbol("M"), Dim.symbol("N")), f32)
    program = KernelInstance(softmax.definition, {}, None, [(0, 1, 320)]).program([type], "gpu")
    assert "define ptx_kernel" in backend.code(backend.lower(write_kernel(program))).text
