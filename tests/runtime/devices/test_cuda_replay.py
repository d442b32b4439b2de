"""Replays with a driver that writes down what it is asked for: one launch at free_list, waits only between streams."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda import memory as cuda_memory
from tessera.runtime.devices.cuda import streams as cuda_stream
from tessera.runtime.devices.cuda.memory import Pool
from tessera.runtime.devices.cuda.streams import Graph, Stream, capture, stream
from tessera.runtime.devices.cuda.tensor import CudaTensor, form_of
from tessera.types.dtype import f32
from tests.runtime.devices.numbered import Numbered

_STREAM_AT = {
    "cuGraphLaunch": 1,
    "cuEventRecord": 1,
    "cuStreamWaitEvent": 0,
    "cuStreamGetCaptureInfo_v2": 0,
    "cuStreamUpdateCaptureDependencies": 0,
}
"""Which argument is the stream, for what is written down."""
FORM = form_of(f32, (64,))


class Driver(Numbered):
    """Gives handles by number, and writes down every call with the stream or handle that it ends with."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []
        self.answer, self.is_met = 0, True

    def enter(self) -> bool:
        was_met, self.is_met = self.is_met, True
        return not was_met

    def call(self, name: str, *given: Any) -> None:
        code = getattr(self, name)(*given)
        assert not code or name == "cuGraphLaunch"

    def __getattr__(self, name: str) -> Any:
        def answer(*given: Any) -> int:
            self.give(name, given)
            at = _STREAM_AT.get(name)
            if at is not None:
                stream = given[at]
                self.asked.append((name, stream.value or 0))
            return self.answer if name == "cuGraphLaunch" else 0

        return answer


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made, pool = Driver(), Pool()
    for module in (cuda_memory, cuda_stream):
        monkeypatch.setattr(module, "driver", lambda: made)
    monkeypatch.setattr(cuda_stream, "POOL", pool)
    made.__dict__["pool"] = pool
    return made


def capture_one(cuda: Driver) -> tuple[Graph, CudaTensor]:
    """A graph in which one tensor was made, and another died."""
    pool: Pool = cuda.__dict__["pool"]
    with capture() as graph:
        stream = graph.stream.handle
        made, dead = (
            CudaTensor((free_list := pool.free_list(FORM.bytes, stream)).take(), FORM, stream, free_list)
            for _ in range(2)
        )
        graph.hold([made, dead])
        del dead
    cuda.asked.clear()
    return graph, made


def test_a_replay_at_home_is_one_launch_in_the_stream_of_the_capture(cuda: Driver) -> None:
    graph, _ = capture_one(cuda)
    graph.replay()
    assert cuda.asked == [("cuGraphLaunch", 0)]
    free_list = Stream()
    with stream(free_list):
        other, _ = capture_one(cuda)
        other.replay()
    assert cuda.asked == [("cuGraphLaunch", free_list.handle)]


def test_a_replay_elsewhere_waits_and_is_waited_for(cuda: Driver) -> None:
    graph, _ = capture_one(cuda)
    aside = Stream()
    with stream(aside):
        graph.replay()
    here = aside.handle
    before = [("cuEventRecord", here), ("cuStreamWaitEvent", 0)]
    assert cuda.asked == [*before, ("cuGraphLaunch", 0), ("cuEventRecord", 0), ("cuStreamWaitEvent", here)]


def test_results_belong_to_the_stream_of_the_replays_and_so_does_their_memory(cuda: Driver) -> None:
    pool: Pool = cuda.__dict__["pool"]
    graph, made = capture_one(cuda)
    assert (made.stream, made.lane) == (0, 0)
    inside = graph.stream.handle
    free_list, address = pool.free_list(FORM.bytes, 0), made.address
    assert free_list.free == []
    del graph
    gc.collect()
    assert len(free_list.free) == 1  # what died inside; the result lives
    del made
    assert free_list.free[-1] == address
    assert all(not one.free for one in pool.free_lists(inside))


def test_a_graph_in_a_capture_is_launched_there_and_held(cuda: Driver) -> None:
    graph, _ = capture_one(cuda)
    with capture() as whole:
        cuda.asked.clear()
        graph.replay()
        stream = whole.stream.handle
        assert cuda.asked == [("cuStreamGetCaptureInfo_v2", stream), ("cuStreamUpdateCaptureDependencies", stream)]
    assert graph in whole._held  # pyright: ignore[reportPrivateUsage]


def test_a_thread_that_is_new_to_the_device_asks_for_its_context(cuda: Driver) -> None:
    graph, _ = capture_one(cuda)
    cuda.answer, cuda.is_met = 201, False
    graph.replay()
    assert cuda.asked == [("cuGraphLaunch", 0)] * 2
    cuda.answer = 719
    cuda.__dict__.update(cuGetErrorName=lambda *_: 1)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(DeviceError, match="`cuGraphLaunch` failed: error 719"):
        graph.replay()
