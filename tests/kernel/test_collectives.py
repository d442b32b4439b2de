"""Collectives in kernels: the bits of collectives of whole tensors, whatever runs the kernel, and how it is split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Schedule
from tessera.diagnostics.codes import EffectOrderError, RankError, ScheduleError
from tessera.ir.tile.collective_parts import split_at_collectives
from tests.kernel import collective_kernels as kernels
from tests.kernel.collective_kernels import DTYPES, KINDS, values
from tests.runtime.ranks.launchers import LAUNCHERS
from tests.runtime.ranks.threads import on_ranks


def on_all(function: Callable[[int], Any], **axes: int) -> list[Any]:
    """What a function gives on each rank; raises what one has raised."""
    found = on_ranks(function, **axes)
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def assert_same_bits(first: Any, second: Any) -> None:
    assert np.asarray(first).tobytes() == np.asarray(second).tobytes()


@ts.jit(static_argnames="op")
def reduced_whole(x: Any, op: str) -> Any:
    return ts.dist.all_reduce(x, "tp", op)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("shape", [(37, 50), (1, 1), (16, 256), (65, 300)], ids=str)
def test_a_reduction_has_the_bits_of_that_of_the_tensor(ranks: int, shape: tuple[int, ...]) -> None:
    def run(rank: int) -> None:
        for dtype in DTYPES:
            x = values(rank, *shape, dtype=dtype)
            for op in KINDS if dtype.is_float else KINDS[:4]:
                assert_same_bits(kernels.reduced(x, op=op), reduced_whole(x, op))

    on_all(run, tp=ranks)


def test_a_mean_of_integers_is_of_floats() -> None:
    def run(rank: int) -> Any:
        return np.asarray(kernels.reduced(ts.array(np.full((2, 3), rank, np.int32)), op="mean"))

    for found in on_all(run, tp=2):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, 0.5)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_are_in_order_in_what_is_gathered_and_scattered(ranks: int) -> None:
    every = [np.asarray(values(rank, ranks, 5, 300)) for rank in range(ranks)]

    def run(rank: int) -> None:
        x = values(rank, ranks, 5, 300)
        np.testing.assert_array_equal(kernels.gathered(x[0], R=ranks), np.stack([one[0] for one in every]))
        total = every[0][rank]
        for other in every[1:]:
            total = total + other[rank]
        assert_same_bits(kernels.scattered(x, R=ranks, op="sum"), total)

    on_all(run, tp=ranks)


def test_the_interpreters_have_the_bits_of_compiled_code() -> None:
    def run(rank: int) -> None:
        x, w, b = values(rank, 37, 50), values(10 + rank, 50, 300), values(9, 300)
        calls: dict[str, Callable[[Any], Any]] = {
            "reduced": lambda run: run(x.cast(ts.bf16), op="sum"),
            "gathered": lambda run: run(x, R=2),
            "scattered": lambda run: run(values(rank, 2, 5, 33), R=2, op="max"),
            "linear": lambda run: run(x, w, b),
            "columns": lambda run: run(w, values(rank, 50)),
            "counted": lambda run: run(x),
        }
        for name, call in calls.items():
            own = getattr(kernels, name)
            compiled = call(own)
            assert_same_bits(call(own.run_tiles), compiled)
            assert_same_bits(call(own.interpret), compiled)

    on_all(run, tp=2)


def test_ranks_may_have_blocks_of_their_own() -> None:
    blocks = [(16, 64), (64, 16), (7, 300), (40, 33)]

    def run(rank: int) -> Any:
        x, w, b = values(rank, 37, 50), values(10 + rank, 50, 300), values(9, 300)
        usual = kernels.linear(x, w, b)
        for turn in range(len(blocks)):
            schedule = Schedule(block=blocks[(rank + turn) % len(blocks)])
            assert_same_bits(kernels.linear.with_schedule(schedule)(x, w, b), usual)
        return np.asarray(usual)

    first, second = on_all(run, tp=2)
    assert_same_bits(first, second)


def test_what_follows_a_collective_computes_with_it() -> None:
    def whole(x: Any) -> Any:
        weights = ts.ops.exp(x - ts.dist.all_reduce(x.max(axis=1), "tp", "max")[:, None])
        return weights / ts.dist.all_reduce(weights.sum(axis=1), "tp")[:, None]

    def run(rank: int) -> None:
        x, seed = values(rank, 7, 50), values(20 + rank, 7, 50)
        assert_same_bits(kernels.softmax(x), ts.jit(whole)(x))

        def loss(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return lambda x: (function(x) * seed).sum()

        ours, theirs = ts.grad(loss(kernels.softmax))(x), ts.grad(loss(whole))(x)
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-5, atol=1e-7)

    on_all(run, tp=2)


def test_an_axis_of_a_mesh_is_a_group_of_ranks() -> None:
    def run(rank: int) -> float:
        return float(np.asarray(kernels.reduced(ts.array(np.full((1, 1), 10.0**rank, np.float32)), op="sum"))[0, 0])

    assert on_all(run, dp=2, tp=2) == [11.0, 11.0, 1100.0, 1100.0]


def test_programs_that_share_no_axis_with_a_tile_have_one_each() -> None:
    def run(rank: int) -> None:
        x, s = values(3, 40, 600), values(rank, 40)
        total = np.asarray(values(0, 40)) + np.asarray(values(1, 40))
        assert_same_bits(kernels.columns(x, s), np.asarray(x) * total[:, None])

    on_all(run, tp=2)
    with ts.dist.mesh(tp=2):
        first, last = split_at_collectives(kernels.columns.program(values(0, 40, 600), values(0, 40)))
    assert first.collective is not None
    assert [str(dim) for dim in first.collective.type.shape] == ["3", "40"]
    assert last.collective is None


def test_a_part_computes_what_it_needs_and_stores_results_at_the_end() -> None:
    with ts.dist.mesh(tp=2):
        first, last = split_at_collectives(
            kernels.linear.program(values(0, 37, 50), values(0, 50, 300), values(0, 300))
        )
    assert [op.name for op in first.program.body.ops if op.name in ("for", "store", "load")] == ["for", "store"]
    assert [op.name for op in last.program.body.ops if op.name in ("for", "store", "load")] == ["load", "load", "store"]
    assert (first.received, last.received) == ((), (0,))
    with ts.dist.mesh(tp=2):
        *_, last = split_at_collectives(kernels.counted.program(values(0, 3, 8)))
    assert sum(op.name == "scratch" for op in last.program.body.ops) == 2, "the first scan is behind the exchange"


def test_a_kernel_has_the_effect_of_its_collectives() -> None:
    @ts.jit
    def f(x: Any) -> Any:
        return kernels.softmax(x)

    with ts.dist.mesh(tp=2):
        text = f.lower(values(0, 3, 8)).graph
    assert text.count("tgraph.all_gather") == 2
    assert 'tessera.effects = ["collective"]' in text


def test_a_branch_on_data_of_a_rank_may_not_communicate_in_a_kernel() -> None:
    @ts.jit
    def f(x: Any) -> Any:
        def same(x: Any) -> Any:
            return x

        return ts.cond(x.sum() > 0.0, kernels.softmax, same, x)

    with ts.dist.mesh(tp=2), pytest.raises(EffectOrderError):
        f.lower(values(0, 3, 8))


def test_ranks_with_different_kernels_end_by_an_error() -> None:
    found = on_ranks(lambda rank: kernels.once_per_flag(values(rank, 4, 8), flag=rank == 0), tp=2)
    assert all(isinstance(one, RankError) for one in found), found


def test_ranks_with_different_sizes_end_by_an_error() -> None:
    found = on_ranks(lambda rank: kernels.reduced(values(rank, 4, 8 + rank), op="sum"), tp=2)
    assert all(isinstance(one, RankError) for one in found), found


def test_a_kernel_that_communicates_is_not_tuned_on_a_rank_alone() -> None:
    tuned = ts.kernel.autotune(space={"BM": [16, 32]}, budget_ms=5)(kernels.softmax.definition.function)
    with ts.dist.mesh(tp=1), pytest.raises(ScheduleError, match="`autotune` measures on a rank alone"):
        tuned(values(0, 3, 8))


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_it_is_lowered_for_every_machine(backend: str) -> None:
    with ts.dist.mesh(tp=2):
        a, b = values(0, 256, 128), values(0, 128, 256)
        lowered = kernels.linear.with_options(backend=backend).lower(a, b, values(0, 256))
    assert lowered.graph.count("tgraph.all_gather") == 1
    assert "ttile.all_reduce" not in lowered.tile


def test_processes_of_every_launcher_have_the_bits_of_threads() -> None:
    task: dict[str, Any] = {"function": kernels.everything, "args": (2,), "kwargs": {}}
    expected = on_all(lambda rank: kernels.everything(2), tp=2)
    for start in LAUNCHERS.values():
        assert start(task, 2) == expected
