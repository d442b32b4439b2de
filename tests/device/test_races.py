"""Streams watched on the device: programs whose streams wait for each other are clean, and a wait left out is found."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import graph
from tessera.backends.nvptx import host
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import StreamRaceError
from tessera.frontend.pytree import map_leaves
from tessera.ir.schedule.host_program.launch_order import BEGIN, StreamPlan, assign_streams
from tessera.runtime.devices.cuda import program as cuda_program
from tessera.runtime.devices.cuda import streams as cuda_stream
from tessera.runtime.devices.cuda import tensor as cuda_tensor
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.program import CudaProgram
from tessera.runtime.devices.cuda.streams import wait_for
from tessera.runtime.timeline import Launch, Signal, Wait
from tests.oracles.launch_orders import without_wait

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

SIZE = 512


def grown(x: Any) -> Any:
    return x + 1.0


def product(x: Any) -> Any:
    return ts.ops.softmax(x @ x, axis=-1)


GROWN = ts.jit(grown, backend="cuda")
PRODUCT = ts.jit(product, backend="cuda")


def given() -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).standard_normal((SIZE, SIZE)).astype(np.float32) * 0.05


def both(x: Any) -> Any:
    """A result of one stream is taken in another, and back."""
    with graph.stream("compute"):
        y = PRODUCT(x)
    with graph.stream("comm"):
        z = GROWN(y)
    with graph.stream("compute"):
        return GROWN(z)


def leave_out(monkeypatch: pytest.MonkeyPatch, waiting: str, other: str) -> None:
    """Take one wait of calls out: neither the device nor the log hears of it."""
    pair = tuple(cuda_stream.stream_named(name).handle for name in (waiting, other))

    def wait(one: int, two: int) -> None:
        if (one, two) != pair:
            wait_for(one, two)

    monkeypatch.setattr(cuda_program, "wait_for", wait)


def unheard(*_: Any) -> None:
    """A wait that nobody makes."""


def test_a_program_whose_streams_wait_is_clean_and_means_what_it_did() -> None:
    x = ts.cuda.array(given())
    expected = np.asarray(both(x))
    with ts.cuda.race_check() as log:
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(both(x)), expected)
    launches = [entry for entry in log if isinstance(entry, Launch)]
    streams = {cuda_stream.stream_named(name).handle for name in ("compute", "comm")}
    assert streams <= {launch.stream for launch in launches}
    assert any(isinstance(entry, Signal) for entry in log)
    assert any(isinstance(entry, Wait) for entry in log)
    assert any(launch.reads and launch.writes for launch in launches)
    np.testing.assert_array_equal(np.asarray(both(x)), expected)


def test_a_captured_training_step_is_clean() -> None:
    """Its update is one launch for many tensors, which waits for the norm that clips all gradients."""
    rng = np.random.default_rng(11)
    sizes = [48, 96, 64, 80, 32, 16]
    params = [ts.cuda.array(rng.standard_normal(pair).astype(np.float32)) for pair in pairwise(sizes)]
    optimizer = ts.optim.chain(ts.optim.clip_by_global_norm(1.0), ts.optim.adamw(1e-3))

    def loss(weights: Any, batch: Any) -> Any:
        for weight in weights:
            batch = ts.ops.tanh(batch @ weight)
        return (batch * batch).mean()

    step = ts.train.make_step(loss, optimizer, grad_norm=True, donate=False, overrides={"launch.streams": 4})
    with ts.device(ts.gpu[0]):
        state = ts.train.State.init(params, optimizer)
    state = map_leaves(ts.cuda.array, state)  # a capture copies nothing, and counts and keys are made on the host
    x = ts.cuda.array(rng.standard_normal((128, sizes[0])).astype(np.float32))
    expected, _ = step(state, x)
    with ts.cuda.race_check() as log, ts.cuda.capture() as graph:
        found, _ = step(state, x)
    # A graph keeps the log of its capture, and gives it out as it is replayed.
    watched = [*log, *graph.entries]
    assert len({entry.stream for entry in watched if isinstance(entry, Launch)}) > 1
    for _ in range(20):
        graph.replay()
        for one, other in zip(found.params, expected.params, strict=True):
            np.testing.assert_array_equal(np.asarray(one.cpu()), np.asarray(other.cpu()))


def test_a_wait_left_out_before_a_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ts.cuda.array(given())
    both(x)
    leave_out(monkeypatch, "comm", "compute")

    def watched() -> None:
        with ts.cuda.race_check():
            both(x)

    with pytest.raises(StreamRaceError, match=r"in stream `comm` reads what `.*` in stream `compute` writes") as caught:
        watched()
    assert f"they share {4 * SIZE * SIZE} bytes" in str(caught.value)
    assert "let stream `comm` wait" in str(caught.value)
    monkeypatch.undo()
    with ts.cuda.race_check():
        both(x)


def test_a_wait_left_out_behind_a_call_is_found_where_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ts.cuda.array(given())
    both(x)
    leave_out(monkeypatch, "compute", "comm")

    def again() -> None:
        with ts.cuda.race_check():
            with graph.stream("compute"):
                y = PRODUCT(x)
            with graph.stream("comm"):
                kept = GROWN(y)
            del y
            with graph.stream("compute"):
                GROWN(x)
            del kept

    with pytest.raises(StreamRaceError, match=r"in stream `compute` writes what `.*` in stream `comm` reads") as caught:
        again()
    assert "given back before" in str(caught.value)


def test_copies_between_streams_are_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with graph.stream("compute"):
        x = GROWN(ts.cuda.array(given()))
    with ts.cuda.race_check(), graph.stream("comm"):
        np.testing.assert_array_equal(np.asarray(x.copy()), np.asarray(x))
    monkeypatch.setattr(cuda_tensor, "wait_for", unheard)

    def copied() -> None:
        with ts.cuda.race_check():
            with graph.stream("compute"):
                y = GROWN(x)
            with graph.stream("comm"):
                y.copy()

    with pytest.raises(StreamRaceError, match="`a copy` in stream `comm` reads"):
        copied()


def test_a_capture_is_checked_when_it_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = ts.cuda.array(given())
    with graph.stream("compute"):
        expected = np.asarray(GROWN(GROWN(x)))
    with ts.cuda.race_check() as log:
        with graph.stream("compute"), ts.cuda.capture() as recording:
            z = GROWN(GROWN(x))
        with graph.stream("comm"):
            recording.replay()
        np.testing.assert_array_equal(np.asarray(z), expected)
        launches = [entry for entry in log if isinstance(entry, Launch) and "add" in entry.name]
        assert len(launches) >= 2
    monkeypatch.setattr(cuda_stream, "wait_for", unheard)

    def replayed() -> None:
        with ts.cuda.race_check():
            with graph.stream("compute"):
                recording.replay()
            with graph.stream("comm"):
                GROWN(z)
                recording.replay()

    leave_out(monkeypatch, "comm", "compute")
    with pytest.raises(StreamRaceError):
        replayed()


def wide(x: Any, a: Any, b: Any, c: Any) -> Any:
    return sum(ts.ops.relu(x @ side) @ side for side in (a, b, c))


def sides() -> list[Any]:
    rng = np.random.default_rng(3)
    return [ts.cuda.array(rng.standard_normal((SIZE, SIZE)).astype(np.float32) * 0.05) for _ in range(4)]


def test_a_program_in_several_streams_gives_the_same_bits_and_is_clean() -> None:
    given, one = sides(), ts.jit(wide, backend="cuda")
    several = ts.jit(wide, backend="cuda", overrides={"launch.streams": 4})
    expected = np.asarray(one(*given))
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(several(*given)), expected)
    with ts.cuda.race_check() as log:
        np.testing.assert_array_equal(np.asarray(several(*given)), expected)
        with ts.cuda.capture() as recording:
            made = several(*given)
        for _ in range(3):
            recording.replay()
        np.testing.assert_array_equal(np.asarray(made), expected)
    launches = [entry for entry in log if isinstance(entry, Launch) and "matmul" in entry.name]
    assert len({launch.stream for launch in launches}) >= 3
    for _ in range(3):
        recording.replay()
    np.testing.assert_array_equal(np.asarray(made), expected)


def test_an_event_left_out_between_streams_of_a_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sides()
    found: list[str] = []
    plans: list[StreamPlan] = []

    def planned(order: Any, count: int) -> StreamPlan:
        plan = assign_streams(order, count)
        plans.append(plan)
        if not found:
            return plan
        node, wait = _needed(plan)
        less = without_wait(plan, node, wait)
        # At the end all streams are waited for, without which the driver would refuse the capture.
        return StreamPlan(less.steps, (*less.joins, wait), less.begins)

    monkeypatch.setattr(host, "assign_checked_streams", planned)
    options = Options.of(backend="cuda", overrides={"launch.streams": 4})
    tape = ts.jit(wide, backend="cuda").trace(*given).tape
    whole = CudaProgram(compile_tape(tape, options))
    found.append("from now on")
    broken = CudaProgram(compile_tape(tape, options))
    expected = np.asarray(whole.run(given))
    with ts.cuda.race_check():
        recordings: list[Any] = []
        for program in (whole, broken):
            with ts.cuda.capture() as recording:
                made = program.run(given)
            recordings.append((recording, made))
        recordings[0][0].replay()
        np.testing.assert_array_equal(np.asarray(recordings[0][1]), expected)
        with pytest.raises(StreamRaceError, match="nothing orders them") as caught:
            recordings[1][0].replay()
    assert "matmul" in str(caught.value)


def _needed(plan: StreamPlan) -> tuple[int, int]:
    """A wait for a launch of another stream."""
    return next((step.node.number, wait) for step in plan.steps for wait in step.waits if wait != BEGIN)


def apart(x: Any, weights: Any) -> Any:
    return tuple(ts.ops.relu(x @ one) for one in weights)


def test_small_launches_side_by_side_have_streams_of_their_own_and_the_same_bits() -> None:
    rng = np.random.default_rng(11)
    x, *weights = (ts.cuda.array(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(7))
    several, one = (ts.jit(apart, backend="cuda", overrides=streams) for streams in ({}, {"launch.streams": 1}))
    expected = [np.asarray(part).tobytes() for part in one(x, weights)]
    for _ in range(4):
        assert [np.asarray(part).tobytes() for part in several(x, weights)] == expected
    with ts.cuda.race_check() as log:
        with ts.cuda.capture() as recording:
            made = several(x, weights)
        recording.replay()
        assert [np.asarray(part).tobytes() for part in made] == expected
    assert len({entry.stream for entry in log if isinstance(entry, Launch) and "matmul" in entry.name}) == 4
