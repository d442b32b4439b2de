"""NCCL on the device with one rank: its communicator, both of its calls, and a captured graph of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda import nccl
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.nccl import NcclRanks
from tessera.runtime.devices.cuda.streams import current_stream
from tessera.runtime.ranks.world import Exchange


def has_nccl() -> bool:
    try:
        nccl.library()
    except DeviceError:
        return False
    return True


pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
    pytest.mark.skipif(is_available() and not has_nccl(), reason="there is no NCCL here"),
]

CALLS = ("all_gather", "all_to_all")


def put(ranks: NcclRanks, call: str, source: Any, target: Any) -> None:
    given = Exchange(call, (0,), source.address, target.address, source.nbytes, f"`{call}` of one rank")
    ranks.enqueue(given, current_stream())


@pytest.fixture(scope="module")
def ranks() -> NcclRanks:
    return NcclRanks(nccl.library(), None, 60.0)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_one_rank_has_what_it_sent(call: str, size: int, ranks: NcclRanks) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    source, target = ts.cuda.array(values), ts.cuda.array(np.zeros_like(values))
    put(ranks, call, source, target)
    np.testing.assert_array_equal(target.numpy(), values)
    assert ranks.find_failure() is None


def test_exchanges_are_captured_and_replayed(ranks: NcclRanks) -> None:
    values = np.arange(4096, dtype=np.float32)
    source, target = ts.cuda.array(values), ts.cuda.array(np.zeros_like(values))
    for call in CALLS:
        put(ranks, call, source, target)  # the group is there, and its name agreed
    with ts.cuda.capture() as graph:
        for call in CALLS:
            put(ranks, call, source, target)
    graph.replay()
    np.testing.assert_array_equal(target.numpy(), values)
