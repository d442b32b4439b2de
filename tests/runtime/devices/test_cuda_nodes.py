"""Launches by way of nodes: what the driver is told and asked, by a driver that only writes down."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tessera.runtime.devices.cuda import graphs as cuda_nodes
from tessera.runtime.devices.cuda.graphs import GRID, NODE, NODES_AFTER, PARAMETERS, STRUCT, Node, NodeTable
from tests.runtime.devices.test_cuda_call import SHAPE, Called, sum_rows, tensor
from tests.runtime.devices.test_cuda_replays import Replayed, cuda

__all__ = ["cuda"]  # a fixture

_WORDS = {"cuLaunchKernel": 11, "cuGraphExecKernelNodeSetParams_v2": 3, "cuGraphLaunch": 2, "cuStreamIsCapturing": 2}
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 11)


class Driver:
    """Says yes, unless told otherwise, and writes down what each function was asked for."""

    def __init__(self) -> None:
        self.library: Any = self
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, int] = {}
        self.is_captured = 0
        self.shapes: list[list[int]] = []
        self._kept = {name: self._function(name, count) for name, count in _WORDS.items()}

    def _function(self, name: str, count: int) -> Any:
        def call(*words: Any) -> int:
            self.calls.append((name, words))
            if name == "cuGraphExecKernelNodeSetParams_v2":
                self.shapes.append(list((ctypes.c_uint32 * 7).from_address(words[2] + GRID)))
            if name == "cuStreamIsCapturing":
                ctypes.c_int.from_address(words[1]).value = self.is_captured
            return self.answers.get(name, 0)

        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)(call)

    def address(self, name: str) -> int:
        return ctypes.cast(self._kept[name], ctypes.c_void_p).value or 0

    def call(self, name: str, *words: Any) -> None:
        if name in ("cuGraphInstantiateWithFlags", "cuGraphAddKernelNode_v2"):
            words[0]._obj.value = 0x900 if name.startswith("cuGraphI") else 0x800

    def __getattr__(self, name: str) -> Any:
        def answer(*words: Any) -> int:
            self.calls.append((name, words))
            return 0

        return answer

    def take(self) -> list[str]:
        found, self.calls = [name for name, _ in self.calls], []
        return found


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda_nodes, "driver", lambda: made)
    return made


def launch_node(node: Node, stream: int = 0) -> int:
    launch = _LAUNCH(Called(sum_rows).code.address("tessera_launch"))
    return launch(node.address, 7, 1, 1, 128, 1, 1, 512, stream, 0xABC0, 0)


def test_a_node_is_updated_and_replayed(plain: Driver) -> None:
    node = Node(0x77, 128, 64, 0)
    assert launch_node(node) == 0
    (_, told), (_, played) = plain.calls
    assert [name for name, _ in plain.calls] == ["cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"]
    assert told[:2] == (0x900, 0x800)
    assert played == (0x900, None)
    assert plain.shapes == [[7, 1, 1, 128, 1, 1, 512]]
    record = node.address + STRUCT
    assert ctypes.c_void_p.from_address(record).value == 0x77
    assert ctypes.c_void_p.from_address(record + PARAMETERS).value == 0xABC0
    assert ctypes.c_uint64.from_address(node.address).value == 0


def test_while_another_thread_is_at_it_there_is_a_launch(plain: Driver) -> None:
    node = Node(0x77, 128, 64, 0)
    lock = ctypes.c_uint64.from_address(node.address + 8 * NODE.index("lock"))
    lock.value = 1
    assert launch_node(node) == 0
    ((name, words),) = plain.calls
    assert name == "cuLaunchKernel"
    # Sizes are 32 bits wide, and what is in the other half of their words is not said.
    sizes = [(word or 0) & 0xFFFFFFFF for word in words[1:8]]
    assert [words[0], *sizes, *(word or 0 for word in words[8:])] == [0x77, 7, 1, 1, 128, 1, 1, 512, 0, 0xABC0, 0]
    assert lock.value == 1


def test_nodes_that_cannot_be_updated_are_launched(plain: Driver) -> None:
    node = Node(0x77, 128, 64, 0)
    plain.answers["cuGraphExecKernelNodeSetParams_v2"] = 1
    assert launch_node(node) == 0
    assert plain.take() == ["cuGraphExecKernelNodeSetParams_v2", "cuLaunchKernel"]
    plain.answers.clear()
    assert launch_node(node) == 0
    assert plain.take() == ["cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"]


def test_errors_of_a_replay_are_reported(plain: Driver) -> None:
    node = Node(0x77, 128, 64, 0)
    plain.answers["cuGraphLaunch"] = 201
    assert launch_node(node) == 201
    assert ctypes.c_uint64.from_address(node.address).value == 0


def test_a_stream_that_is_captured_takes_launches(plain: Driver) -> None:
    node = Node(0x77, 128, 64, 5)
    assert launch_node(node, 5) == 0
    assert plain.take() == ["cuStreamIsCapturing", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"]
    plain.is_captured = 1
    assert launch_node(node, 5) == 0
    assert plain.take() == ["cuStreamIsCapturing", "cuLaunchKernel"]


def test_a_table_has_nodes_in_place_of_kernels(plain: Driver) -> None:
    state = (ctypes.c_void_p * 5)(5, 0x10, 0x77, 0x78, 0x99)
    told = NodeTable(state, (1, 0x20), [(0x77, 128, 0), (0x78, 64, 512)], 2)
    assert told.state[:2] == [5, 0x20]
    assert told.state[4] == 0x99
    kernels = [ctypes.c_uint64.from_address(told.state[at] + 8).value for at in (2, 3)]
    assert kernels == [0x77, 0x78]
    assert list(state) == [5, 0x10, 0x77, 0x78, 0x99]
    del told
    assert plain.take() == ["cuStreamSynchronize", "cuGraphExecDestroy", "cuGraphDestroy"] * 2


def test_calls_with_other_memory_each_time_get_nodes(cuda: Any, plain: Driver) -> None:
    program = Replayed(sum_rows)
    asked: list[int] = []
    plan: Any = program.plans[0]

    def use_nodes() -> None:
        launch = 1, program.code.address("tessera_launch")
        asked.append(len(program.launches))
        plan.use_nodes(NodeTable(program.state, launch, [(0x77, 128, 0)], len(program.state) - 1))

    program.replays.use_nodes = use_nodes
    for at in range(NODES_AFTER):
        program.call(tensor(0x10000 * (at + 1)), tensor(0x20000, SHAPE))
    assert asked == [NODES_AFTER]
    assert len(program.launches) == NODES_AFTER
    program.call(tensor(0x990000), tensor(0x20000))
    assert len(program.launches) == NODES_AFTER
    assert plain.take() == ["cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch"]
