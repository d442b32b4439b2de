"""Contractions that copy whole tiles: dims of rows are joined, and scattered operands are materialized first."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.reference.compile import run_tape
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.index_maps import delinear, linear
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.emit.evaluate import is_walkable, joined_runs
from tessera.types.dim import Dim, product
from tests.backends.nvptx.matrices import BEFORE_BACKEND, general_kernels, tile_kernels_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.schedule_interpreter import run_program

BF16: Any = ml_dtypes.bfloat16
BACKEND = NvptxBackend(GPUS["sm_90a"])
M, K = Dim.symbol("_m"), Dim.symbol("_k")


def dims(*sizes: int) -> list[Dim]:
    return [Dim.constant(size) for size in sizes]


def layer(x: Any, w: Any, r: Any) -> Any:
    return ts.ops.relu(ts.ops.matmul(x, w)) + r


def heads(x: Any, w: Any) -> Any:
    B, H, S, D = x.shape
    return ts.ops.matmul(ts.ops.reshape(ts.ops.transpose(x, (0, 2, 1, 3)), (B, S, H * D)), w)


def every_second_column(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x[:, ::2], w)


def cut(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x[:, 1:], w)


def columns(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x[:, 8:72], w)


def upper(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, w[:64])


def project(x: Any, w: Any) -> Any:
    return ts.ops.einsum("bhsk,hkd->bsd", x, w)


def regroup(x: Any, w: Any) -> Any:
    return ts.ops.matmul(ts.ops.reshape(x, (-1, w.shape[0])), w)


PROGRAMS: dict[str, tuple[Any, tuple[tuple[int, ...], ...], int]] = {
    "rows of two dims": (layer, ((2, 33, 64), (64, 72), (2, 33, 72)), 1),
    "rows of three dims": (layer, ((2, 3, 5, 64), (64, 72), (72,)), 1),
    "heads side by side": (heads, ((2, 4, 9, 32), (128, 40)), 2),
    "every second column": (every_second_column, ((40, 128), (64, 72)), 2),
    "rows but the first": (cut, ((3, 9, 64), (64, 72)), 2),
    "some columns": (columns, ((40, 128), (64, 72)), 2),
    "the first rows of the rhs": (upper, ((40, 64), (100, 72)), 1),
    "heads that are summed": (project, ((2, 4, 9, 32), (4, 32, 40)), 2),
    "the same memory otherwise": (regroup, ((40, 2, 32), (128, 72)), 1),
}
"""A function, the shapes of its arguments, and how many kernels it is."""


def lower_for(function: Any, arrays: Any, machine: str = "sm_90a") -> Any:
    jitted: Any = ts.jit(function)
    tape = jitted.trace(*arrays).tape
    return tape, lower(tape, Options.of(backend="cuda", features=(machine,)), keep_snapshots=BEFORE_BACKEND)


@pytest.mark.parametrize("name", PROGRAMS)
def test_contractions_of_any_form_run_on_tensor_cores(name: str) -> None:
    function, shapes, count = PROGRAMS[name]
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-2, 3, shape).astype(BF16) for shape in shapes]
    tape, found = lower_for(function, arrays)
    contractions = [kernel for kernel in general_kernels(found) if kernel.value("kind") == "contraction"]
    assert [BACKEND.matrix(kernel) is not None for kernel in contractions] == [True]
    assert len(general_kernels(found)) == count
    (made,), (wanted,) = run_program(found.module, *arrays), run_tape(tape, arrays)
    np.testing.assert_array_equal(made.astype(np.float32), wanted.astype(np.float32))


def test_free_rows_of_two_dims_are_one() -> None:
    @ts.jit
    def free(x: ts.Tensor["B", "S", 64, ts.bf16], w: ts.Tensor[64, 128, ts.bf16]) -> Any:
        return ts.ops.matmul(x, w)

    tape = free.trace(np.zeros((2, 3, 64), BF16), np.zeros((64, 128), BF16)).tape
    options = Options.of(backend="cuda", features=("sm_90a",))
    for kernel in tile_kernels_of(tape, options):
        assert BACKEND.matrix(kernel) is not None
        types = [argument.type for argument in kernel.regions[0].block.args]
        rows = [str(type.shape[0]) for type in types if isinstance(type, BufferAttr)]
        assert rows == ["s0*s1", "64", "s0*s1"]


def step(
    x: ts.Tensor["B", "S", 128, ts.bf16],
    qkv: ts.Tensor[128, 256, ts.bf16],
    out: ts.Tensor[128, 128, ts.bf16],
    cache: ts.KVCache["B", 1, "C", 64, ts.bf16],
) -> Any:
    """Half a layer with a cache: any number of sequences, positions and capacity."""
    q, k, v = ts.ops.split_qkv(ts.ops.rmsnorm(x) @ qkv, heads=2, kv_heads=1)
    cache = cache.append(k, v)
    mixed = ts.ops.attention(q, cache, causal=True).transpose(0, 2, 1, 3).reshape(*x.shape)
    return x + mixed @ out, cache


def step_arguments(batch: int, length: int, capacity: int, filled: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(capacity)
    shapes = ((batch, length, 128), (128, 256), (128, 128), (batch, 1, capacity, 64), (batch, 1, capacity, 64))
    x, qkv, out, keys, values = ((rng.standard_normal(shape) / 8).astype(BF16) for shape in shapes)
    return x, qkv, out, ts.KVCache(keys, values, np.array(filled))


def test_a_step_of_symbolic_dims_has_all_its_dots_on_tensor_cores() -> None:
    _, found = lower_for(step, step_arguments(2, 7, 33, 3))
    with_dots = [kernel for kernel in general_kernels(found) if any(op.name == "ttile.dot" for op in kernel.walk())]
    assert len(with_dots) >= 3  # products of many rows and of few, and attention
    assert all(BACKEND.matrix(kernel) is not None for kernel in with_dots)


def test_wide_operands_are_read_in_place() -> None:
    """Threads read them element by element, and a copy would be for nothing."""
    _, found = lower_for(heads, [np.zeros((2, 4, 9, 32), np.float32), np.zeros((128, 40), np.float32)])
    assert len(general_kernels(found)) == 1


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    columns=st.lists(st.integers(1, 4), min_size=1, max_size=2),
)
def test_joined_dims_are_the_same_memory(rows: list[int], columns: list[int]) -> None:
    shape = dims(*rows, *columns)
    at = (*delinear(M, dims(*rows)), *delinear(K, dims(*columns)))
    groups = joined_runs(shape, [at])
    assert [place for first, end in groups for place in range(first, end)] == list(range(len(shape)))
    joined = [product(shape[first:end]) for first, end in groups]
    places = [linear(at[first:end], shape[first:end]) for first, end in groups]
    m, k = int(np.prod(rows)), int(np.prod(columns))
    for row, column in itertools.product(range(m), range(k)):
        here = {"_m": row, "_k": column}
        assert linear(places, joined).evaluate(here) == linear(at, shape).evaluate(here) == row * k + column
        assert all(0 <= place.evaluate(here) < (size.value or 0) for place, size in zip(places, joined, strict=True))
    if m > 1 and columns[-1] > 1:
        assert is_walkable(at, shape, {"_m": Dim.constant(m), "_k": Dim.constant(k)})


@pytest.mark.parametrize(
    ("at", "shape", "is_one"),
    [
        ((M, K), (8, 8), True),
        ((K, M), (8, 8), True),
        ((Dim.constant(3), M, K + 8), (4, 8, 16), True),
        ((Dim.constant(3), M, K), (4, 8, 16), False),
        ((M, K), (9, 8), False),
        ((M, 2 * K), (8, 16), False),
        ((M, K, Dim.constant(0)), (8, 8, 2), False),
        ((M // 4, K // 2, M % 4, K % 2), (2, 3, 4, 2), False),
        ((M // 4, M % 4, K), (2, 5, 8), False),
        ((M * 2 + K // 4, K % 4), (16, 4), False),
    ],
)
def test_operands_are_walked_along_single_dims(at: tuple[Dim, ...], shape: tuple[int, ...], is_one: bool) -> None:
    assert is_walkable(at, dims(*shape), {"_m": Dim.constant(8), "_k": Dim.constant(8)}) == is_one


def test_outer_dims_may_be_cut() -> None:
    axes = {"_k": Dim.constant(8), "_n": Dim.constant(8)}
    at = (K, Dim.symbol("_n"))
    assert is_walkable(at, dims(9, 8), axes, may_cut=True)
    assert not is_walkable(at, dims(8, 9), axes, may_cut=True)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_gathered_operands_mean_the_same(data: st.DataObject) -> None:
    """Axes of both operands in any order: free, contracted and batch ones."""
    counts = {"b": data.draw(st.integers(0, 1)), "m": data.draw(st.integers(1, 2)), "k": data.draw(st.integers(1, 2))}
    shared = {letter: [f"{letter}{at}" for at in range(count)] for letter, count in counts.items()}
    sizes = {name: data.draw(st.integers(1, 3), name) for names in shared.values() for name in names} | {"n0": 3}
    left = data.draw(st.permutations([*shared["b"], *shared["m"], *shared["k"]]))
    right = data.draw(st.permutations([*shared["b"], *shared["k"], "n0"]))
    letters = dict(zip(sizes, "abcdefgh", strict=False))
    out = "".join(letters[name] for name in [*shared["b"], *(one for one in left if one in shared["m"]), "n0"])
    equation = f"{''.join(letters[one] for one in left)},{''.join(letters[one] for one in right)}->{out}"
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-3, 4, [sizes[name] for name in side]).astype(np.float32) for side in (left, right))

    def total(x: Any, y: Any) -> Any:
        return ts.ops.einsum(equation, x, y)

    found = np.asarray(ts.jit(total)(x, y))
    np.testing.assert_array_equal(found, np.einsum(equation, x, y))
