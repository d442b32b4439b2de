"""Collectives in compiled functions: whom they are made for, and what becomes of those who wait when one fails."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.api import collectives
from tessera.diagnostics.codes import PositionError, RankError, TracingError
from tessera.runtime.ranks import world
from tessera.runtime.ranks.shared_memory import LocalCommunicator, ends_of
from tessera.runtime.ranks.world import MESH, NONE, Exchanges, mesh_of
from tessera.runtime.timeline import Timeline
from tessera.types.device import Manifest
from tests.runtime.ranks.threads import on_ranks


@ts.jit
def add_position(x: Any) -> Any:
    return ts.dist.all_reduce(x, "dp") + ts.dist.axis_index("dp").cast(ts.f32)


def test_a_program_is_recompiled_for_another_mesh() -> None:
    x = ts.ones(3)
    for _ in range(2):
        with ts.dist.mesh(dp=1):
            assert add_position(x).tolist() == [1.0] * 3
        with ts.dist.mesh(dp=2), pytest.raises(RankError, match="has 2 ranks, and this process is alone"):
            add_position(x)
        with pytest.raises(TracingError, match="no such axis"):
            add_position(x)
    with ts.dist.mesh(tp=1), pytest.raises(TracingError, match="no such axis") as other:
        add_position(x)
    assert other.value.notes == ("what is in force here is mesh(tp=1)",)
    assert add_position.cache_info().compiles <= 1
    found = on_ranks(lambda rank: add_position(ts.ones(3)).tolist(), dp=2)
    assert found == [[2.0] * 3, [3.0] * 3]
    with ts.dist.mesh(dp=1):
        assert add_position(x).tolist() == [1.0] * 3


def test_only_an_index_needs_the_mesh_too() -> None:
    where = ts.jit(lambda x: x * 0.0 + ts.dist.axis_index("tp").cast(ts.f32))
    assert on_ranks(lambda rank: where(ts.ones(1)).tolist(), dp=2, tp=2) == [[0.0], [1.0], [0.0], [1.0]]
    with ts.dist.mesh(tp=2), pytest.raises(RankError, match="`axis_index` over 2 ranks cannot run"):
        where(ts.ones(1))


def test_a_mesh_of_one_axis_may_stand_in_the_program() -> None:
    @ts.jit
    def f(x: Any) -> Any:
        with ts.dist.mesh(dp=2):
            return ts.dist.all_reduce(x, "dp")

    def alone(rank: int) -> Any:
        token = MESH.set(NONE)
        try:
            return f(ts.ones(2)).tolist()
        finally:
            MESH.reset(token)

    assert on_ranks(alone, dp=2) == [[2.0, 2.0]] * 2
    with pytest.raises(RankError, match=r"mesh\(dp=2\) has 2 ranks, and this process is alone"):
        f(ts.ones(3))


@ts.jit(debug=True)
def looked_up(x: Any, table: Any, at: Any) -> Any:
    total = ts.dist.all_reduce(x, "dp")
    return ops.take(table, at, 0), total


def test_a_rank_that_fails_between_start_and_wait_lets_go_of_its_memory_and_tells_the_others() -> None:
    table = ts.array(np.arange(8, dtype=np.float32))

    failed = threading.Event()

    def work(rank: int) -> Any:
        if rank == 0:
            failed.wait(20)  # the other has nobody to communicate with until then
        try:
            return looked_up(ts.ones(4), table, ts.array(np.array([99 if rank else 1], np.int64)))
        finally:
            failed.set()

    text = on_ranks(lambda rank: looked_up.lower(ts.ones(4), table, ts.array(np.array([1], np.int64))).schedule, dp=2)[
        0
    ]
    host = text[text.rindex("tsched.module") :]
    assert host.index("collective_start") < host.index("check_positions") < host.index("collective_wait")
    waiting, wrong = on_ranks(work, dp=2)
    assert isinstance(wrong, PositionError)
    assert isinstance(waiting, RankError)
    assert "a program ended while a collective of it was under way" in str(waiting)


def test_programs_for_a_gpu_have_their_collectives_in_the_host_program() -> None:
    f = ts.jit(lambda x: ts.dist.all_reduce(x, "dp") * 2.0, backend="cuda")
    with ts.dist.mesh(dp=2):
        host = str(f.lower(ts.ones(3)).schedule)
    assert host.rindex("collective_start") < host.rindex("collective_wait")


def test_a_backend_that_has_no_collectives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def manifest_of(name: str) -> Manifest:
        return Manifest(name)

    monkeypatch.setattr(collectives, "manifest_of", manifest_of)
    f = ts.jit(lambda x: ts.dist.all_reduce(x, "dp"), backend="reference")
    found = on_ranks(lambda rank: f(ts.ones(3)), dp=2)
    assert all("cannot run on `reference`, whose programs have no collectives" in str(one) for one in found)


class StoppedError(Exception):
    """What a handler of a signal raises."""


def test_a_wait_that_is_interrupted_lets_go_of_the_memory_too() -> None:
    program = ts.jit(lambda x: ts.dist.all_reduce(x, "dp"))
    assert on_ranks(lambda rank: program(ts.ones(4)).tolist(), dp=2) == [[2.0] * 4] * 2
    mine, other = (LocalCommunicator(one, 20.0) for one in ends_of(2))

    def stop(_number: int, _frame: Any) -> None:
        raise StoppedError

    def stop_while_waiting(timeline: Timeline) -> None:
        while not any(kind == "wait" for kind, _ in timeline.running()):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGUSR1)

    before, token = signal.signal(signal.SIGUSR1, stop), MESH.set(mesh_of((("dp", 2),)))
    try:
        with world.being(mine), ts.dist.timeline() as timeline:
            threading.Thread(target=stop_while_waiting, args=(timeline,), daemon=True).start()
            with pytest.raises(StoppedError):
                program(ts.ones(4))
            with pytest.raises(RankError, match="rank 0 has left: a program ended while a collective of it was under"):
                program(ts.ones(4))
    finally:
        MESH.reset(token)
        signal.signal(signal.SIGUSR1, before)
        other.abandon("the end")


def test_a_reduction_and_a_gather_of_as_many_bytes_do_not_synchronize() -> None:
    reduced, gathered = ts.jit(lambda x: ts.dist.all_reduce(x, "dp")), ts.jit(lambda x: ts.dist.all_gather(x, "dp"))
    found = on_ranks(lambda rank: (reduced if rank else gathered)(ts.ones((3,))), dp=2)
    said = "\n".join(str(one) for one in found)
    assert all(isinstance(one, RankError) for one in found)
    assert "is at `all_gather` of 12 bytes of f32 [3] along `dp`" in said or "for `all_reduce` (sum) along `dp`" in said


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_two_reductions_of_the_same_bytes_do_not_synchronize(backend: str) -> None:
    summed = ts.jit(lambda x: ts.dist.all_reduce(x, "dp", "sum"), backend=backend)
    largest = ts.jit(lambda x: ts.dist.all_reduce(x, "dp", "max"), backend=backend)
    found = on_ranks(lambda rank: (largest if rank else summed)(ts.ones((3,))), dp=2)
    said = "\n".join(str(one) for one in found)
    assert all(isinstance(one, RankError) for one in found)
    both = ("(sum)", "(max)") if backend == "cpu" else ("op sum", "op max")
    assert all(f"for `all_reduce` ({one.strip('()')}) along `dp`" in said for one in both)


def test_reductions_in_another_order_do_not_synchronize() -> None:
    def both(x: Any, first: str, second: str) -> Any:
        return ts.dist.all_reduce(ts.dist.all_reduce(x, "dp", first) + 1.0, "dp", second)

    program = ts.jit(both, static_argnames=("first", "second"))
    found = on_ranks(lambda rank: program(ts.ones((3,)), *(("sum", "max")[:: 1 - 2 * rank])), dp=2)
    assert all(isinstance(one, RankError) for one in found)


@pytest.mark.parametrize("is_caught", [False, True])
def test_a_program_that_calls_itself_by_a_callback_is_refused(is_caught: bool) -> None:
    exchanges, text = Exchanges(), json.dumps(["all_gather", "dp", 2, "`all_reduce` (sum)"])

    def run(rank: int) -> None:
        own, every = ts.ones((1, 3)), ts.zeros((2, 3))
        given = (text, own.address, every.address, (1, 3), "f32")
        exchanges.start(0, *given)
        if rank == 0:
            try:
                exchanges.start(0, *given)
            except RankError:
                exchanges.abandon()  # as the inner program does where it ends early
                if not is_caught:
                    raise
        exchanges.wait(0)

    first, _ = on_ranks(run, dp=2)
    assert isinstance(first, RankError)
    said = (
        "was abandoned by a call of the same program" if is_caught else "has called it again, while its `all_gather` of"
    )
    assert said in first.message
