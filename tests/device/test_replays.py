"""Calls that come again with the same memory, replayed as graphs on a GPU: the bits of calls that are not."""

from __future__ import annotations

import gc
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.graphs import CAPTURE_AFTER, NODES_AFTER

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]
RNG = np.random.default_rng(21)
TURNS = 3 * CAPTURE_AFTER


def layered(x: Any, w: Any) -> Any:
    """Several kernels with a workspace between them, some on tensor cores."""
    for _ in range(3):
        x = ts.ops.softmax(ts.ops.relu(x @ w) @ w, axis=-1)
    return x


def counted(x: Any, w: Any) -> Any:
    """Causal attention, whose programs are given out by a counter in scratch."""
    return ts.ops.attention(x, w, w, causal=True)


def values(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(ml_dtypes.bfloat16)


def replays_of(function: Any) -> list[Any]:
    plans = function.specializations[0].loaded._plans.values()
    return [plan.replays for plan in plans]


@pytest.mark.parametrize(
    ("body", "shape", "other"),
    [(layered, (96, 256), (256, 256)), (counted, (2, 8, 1024, 128), (2, 8, 1024, 128))],
    ids=["layers", "counter"],
)
def test_what_is_played_has_the_bits_of_what_is_launched(body: Any, shape: Any, other: Any) -> None:
    played: Any = ts.jit(body, backend="cuda")
    plain: Any = ts.jit(body, backend="cuda")
    x, w = ts.cuda.array(values(*shape)), ts.cuda.array(values(*other))
    for turn in range(TURNS):
        given = values(*shape)
        ts.cuda.write(x, given)
        found = np.asarray(played(x, w)).tobytes()
        if turn % 4 == 3:  # new memory for the arguments: nothing of it is known
            copies = [ts.cuda.array(given), ts.cuda.array(np.asarray(w))]
            assert np.asarray(plain(*copies)).tobytes() == found
    assert any(one.graphs for one in replays_of(played))


@pytest.mark.parametrize(
    ("body", "shape", "other"),
    [(layered, (96, 256), (256, 256)), (counted, (2, 8, 1024, 128), (2, 8, 1024, 128))],
    ids=["layers", "counter"],
)
def test_other_memory_each_time_gives_the_same_bits(body: Any, shape: Any, other: Any) -> None:
    function: Any = ts.jit(body, backend="cuda")
    w = values(*other)
    given = [values(*shape) for _ in range(4)]
    wanted = [np.asarray(function(ts.cuda.array(one), ts.cuda.array(w))).tobytes() for one in given]
    tensors = [(ts.cuda.array(one), ts.cuda.array(w)) for one in given]
    for _ in range(2):  # the first time there is no memory in the pool yet
        kept = [function(*tensors[turn % 4]) for turn in range(2 * NODES_AFTER)]
        results = [np.asarray(one).tobytes() for one in kept]
        assert results == [wanted[turn % 4] for turn in range(2 * NODES_AFTER)]
        kept.clear()
    assert function.specializations[0].loaded._node_tables


def test_results_that_are_kept_stay_as_they_are() -> None:
    function = ts.jit(layered, backend="cuda")
    w = ts.cuda.array(values(256, 256))
    kept: list[tuple[Any, bytes]] = []
    for _ in range(4 * TURNS):
        x = ts.cuda.array(values(96, 256))
        y = function(x, w)
        kept = [*kept[-2:], (y, np.asarray(y).tobytes())]
        assert all(np.asarray(one).tobytes() == wanted for one, wanted in kept)
    assert any(one.graphs for one in replays_of(function))


def test_streams_have_their_own_and_wait_for_each_other() -> None:
    function, wanted = ts.jit(layered, backend="cuda"), ts.jit(layered, backend="cuda")
    w = ts.cuda.array(values(256, 256))
    for _ in range(TURNS):
        value = values(96, 256)
        with ts.graph.stream("replayed"):
            y = function(ts.cuda.array(value), w)
        z = function(y, w)
        expected = wanted(wanted(ts.cuda.array(value), w), w)
        np.testing.assert_array_equal(np.asarray(z), np.asarray(expected))


def test_threads_play_beside_each_other() -> None:
    function = ts.jit(layered, backend="cuda")
    w = ts.cuda.array(values(256, 256))
    inputs = [ts.cuda.array(values(96, 256)) for _ in range(4)]
    wanted = [np.asarray(function(x, w)).tobytes() for x in inputs]
    wrong: list[int] = []

    def work(at: int) -> None:
        for _ in range(4 * TURNS):
            if np.asarray(function(inputs[at], w)).tobytes() != wanted[at]:
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_capture_of_the_user_takes_replayed_calls_unchanged() -> None:
    function = ts.jit(layered, backend="cuda")
    x, w = ts.cuda.array(values(96, 256)), ts.cuda.array(values(256, 256))
    for _ in range(TURNS):
        function(x, w)
    with ts.cuda.capture() as graph:
        y = function(x, w)
    for _ in range(3):
        value = values(96, 256)
        ts.cuda.write(x, value)
        graph.replay()
        np.testing.assert_array_equal(np.asarray(y), np.asarray(function(ts.cuda.array(value), w)))


def test_what_waits_for_the_device_is_called_on() -> None:
    def halved(x: Any) -> Any:
        return ts.while_loop(lambda v: ts.ops.max(v) > 1.0, lambda v: v * 0.5, x)

    function = ts.jit(halved, backend="cuda")
    for _ in range(TURNS):
        value = np.abs(RNG.standard_normal((64,))).astype(np.float32) * 100
        found = np.asarray(function(ts.cuda.array(value)))
        while value.max() > 1.0:
            value = value * np.float32(0.5)
        np.testing.assert_array_equal(found, value)


def test_graphs_go_with_their_function() -> None:
    function = ts.jit(layered, backend="cuda")
    x, w = ts.cuda.array(values(96, 256)), ts.cuda.array(values(256, 256))
    for _ in range(TURNS):
        function(x, w)
    wanted = np.asarray(function(x, w)).tobytes()
    del function
    gc.collect()
    assert np.asarray(ts.jit(layered, backend="cuda")(x, w)).tobytes() == wanted


def squeeze(x: Any) -> Any:
    return x.reshape((64, 256))


def test_a_copy_alone_is_not_played() -> None:
    """Copy engines, which graphs leave copies to, are slower than what the driver does otherwise."""
    moved: Any = ts.jit(squeeze, backend="cuda")
    x = ts.cuda.array(values(64, 1, 256))
    for _ in range(TURNS):
        assert np.asarray(moved(x)).tobytes() == np.asarray(x).tobytes()
    assert replays_of(moved) == [None]
