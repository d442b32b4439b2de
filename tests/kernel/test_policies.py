"""Policies that choose for users: what is fused, what is found on disk, what a search drops, what is drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.api.tuning import _code  # pyright: ignore[reportPrivateUsage]
from tests.kernel import kernels
from tests.kernel.compare import agree
from tests.kernel.test_epilogue import STEPS, chained

RNG = np.random.default_rng(12)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def ten(x: Any) -> Any:
    """Ten ops, one after the other."""
    y = ts.ops.exp(-ts.ops.abs(x * 0.5 + 1.0))
    return ts.ops.tanh(ts.ops.sqrt(y + 2.0) * y) - x / 3.0


def test_adjacent_ops_become_one_kernel_and_apart_they_are_as_many_as_they_are() -> None:
    x = normal(40, 33)
    fused, apart = ts.jit(ten), ts.jit(ten, fusion=False)
    np.testing.assert_array_equal(np.asarray(fused(x)), np.asarray(apart(x)))
    ops = sum(line.strip().startswith("%") for line in fused.lower(x).graph.splitlines())
    counts = [len(one.explain(x).report["kernels"]) for one in (fused, apart)]
    assert counts[0] == 1
    assert 10 <= counts[1] <= ops


@pytest.mark.parametrize("number", range(16))
def test_all_subsets_of_an_epilogue_are_one_kernel_of_matrix_units(number: int) -> None:
    steps = frozenset(name for place, name in enumerate(STEPS) if number >> place & 1)

    @ts.jit(backend="cuda")
    def fused(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        return chained(steps, ts.ops.matmul(x, w, dtype=ts.f32), b, r, key)

    x, w = (ts.array(normal(*shape)).cast(ts.bf16) for shape in ((256, 128), (128, 192)))
    target = fused.lower(x, w, normal(192), normal(256, 192), ts.random.key(5)).target
    assert target.count("ttarget.matrix_kernel @") == 1
    assert "ttarget.kernel @" not in target


@kernel
def dropped(x: KTile["M", "N", f32], *, p: float) -> Any:
    """The tensor with a share of its elements zero."""
    T = tile.context()
    return tile.dropout_in_kernel(tile.load(x, rows=T.m, cols=T.n), p)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.9])
def test_dropout_in_a_kernel_is_that_of_whole_tensors(p: float) -> None:
    x, key = normal(70, 530), ts.random.key(11)
    (found,) = agree(dropped, x, p=p, key=key)
    np.testing.assert_array_equal(found, np.asarray(ts.random.dropout(ts.array(x), key, p)).astype(np.float64))
    kept, count = int((found != 0).sum()), x.size
    assert abs(kept - (1 - p) * count) <= 4 * math.sqrt(count * p * (1 - p))
    other = dropped.with_schedule(Schedule(block=(7, 96)))
    np.testing.assert_array_equal(np.asarray(other(x, p=p, key=key)), found.astype(np.float32))


def test_a_kernel_that_draws_has_the_effect_in_programs() -> None:
    @ts.jit
    def program(x: Any, key: Any) -> Any:
        return dropped(x, p=0.5, key=key)

    program(normal(4, 8), ts.random.key(0))
    assert "random" in program.effects


def test_the_next_process_finds_a_kernel_on_disk() -> None:
    x = normal(9, 24)
    first, second = (ts.Kernel(kernels.softmax.definition.function) for _ in range(2))
    np.testing.assert_array_equal(np.asarray(first(x)), np.asarray(second(x)))
    assert second.cache_info().compiles == 0
    assert "disk cache" in str(second.explain(x).source)


def test_a_search_tells_candidates_apart_by_what_their_machine_sees(tmp_path: Path) -> None:
    operands = np.zeros((256, 256), np.float32), np.zeros((256, 256), np.float32)
    made = [kernels.matmul.with_schedule(Schedule(block=(64, 64, 64), warps=warps)) for warps in (4, 8)]
    assert _code(made[0], operands, {}) == _code(made[1], operands, {})
    there = [ts.Kernel(one.definition.function, one.given, options=ts.Options(backend="cuda")) for one in made]
    assert _code(there[0], operands, {}) != _code(there[1], operands, {})
    space = {"BM": [16, 32], "BN": [32], "BK": [32], "warps": [4, 8]}
    tuned = kernel.autotune(space=space, budget_ms=30, cache=str(tmp_path))(kernels.matmul)
    small = normal(40, 20), normal(20, 30)
    np.testing.assert_array_equal(np.asarray(tuned(*small)), np.asarray(kernels.matmul(*small)))
    assert tuned.tuning is not None
    assert "the same code here as" in tuned.tuning.report()
