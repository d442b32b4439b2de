"""Streams by name, without a GPU: what stands in them means the same, and what is no name is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist, graph, op
from tessera.diagnostics.codes import ArgumentError
from tessera.runtime.devices.cuda import driver as cuda_driver
from tessera.runtime.devices.cuda import streams as cuda_stream
from tessera.runtime.devices.cuda.streams import CURRENT, Stream


def reduce_all(a: Any, b: Any) -> Any:
    with graph.stream("compute"):
        out = op.matmul(a, b)
    with graph.stream("comm"):
        return dist.all_reduce(out, axis="dp")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_a_program_with_streams_means_what_it_means_without(backend: str) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    with dist.mesh(dp=1):
        made = ts.jit(reduce_all, backend=backend)(a, a.T)
    np.testing.assert_array_equal(np.asarray(made), a @ a.T)


@pytest.mark.parametrize("wrong", ["", 3, None, Stream])
def test_what_is_no_name_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="takes the name of a stream"), graph.stream(wrong):
        pass


class Driver:
    """Gives each stream a number of its own."""

    def __init__(self) -> None:
        self.streams = 0

    def call(self, name: str, place: Any, flags: int) -> None:
        assert (name, flags) == ("cuStreamCreate", 1)
        self.streams += 1
        place._obj.value = self.streams


def test_a_name_is_one_stream_and_the_inner_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Driver()
    monkeypatch.setattr(cuda_stream, "driver", lambda: made)
    monkeypatch.setattr(cuda_stream, "_NAMED", {})
    monkeypatch.setattr(cuda_driver, "is_available", lambda: True)
    found: list[int] = []
    with graph.stream("compute"):
        found.append(CURRENT.handle)
        with graph.stream("comm"):
            found.append(CURRENT.handle)
        with graph.stream("compute"):
            found.append(CURRENT.handle)
        found.append(CURRENT.handle)
    assert found == [1, 2, 1, 1]
    assert (CURRENT.handle, made.streams) == (0, 2)
