"""Metrics of TMA descriptors and of waits, without a device: what host programs count, and what kernels would."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tessera as ts
from tessera.backends.nvptx import host_descriptors
from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel
from tessera.backends.nvptx.waits import COUNTS, MOST_COUNTED, bounded_wait
from tessera.runtime.devices.cuda import metrics as cuda_tensor_map
from tessera.runtime.devices.cuda import metrics as cuda_waits
from tessera.runtime.devices.cuda.metrics import TensorMaps
from tests.backends.nvptx.matrices import BACKEND, matrix_of, nt
from tests.backends.nvptx.test_matrix_host import Asked


def test_maps_are_created_reused_kept_and_dropped() -> None:
    before, asked = ts.cuda.tensor_map_counts(), Asked()
    addresses = [0x10000 * number for number in range(1, 41)]
    for x in addresses + addresses[-10:]:
        asked.run(300, 520, 200, x=x)
    after = ts.cuda.tensor_map_counts()
    found = {name: after[name] - before[name] for name in ("created", "reused", "kept")}
    # One operand is at forty addresses, of which so many maps are kept; the other two maps are made once.
    assert found == {"created": 42, "reused": 3 * 50 - 42, "kept": host_descriptors.KEPT + 2}
    assert after["dropped"] == after["created"] - after["kept"]


def test_the_area_is_read_as_it_is_written() -> None:
    for count in (0, 1, 5):
        maps = TensorMaps(host_descriptors.area_bytes(count))
        assert maps.__dict__["_sites"] == count
        assert maps.kept == 0


class Driver:
    """A device whose counts are a few numbers."""

    def __init__(self, words: list[int]) -> None:
        self.words, self.asked = words, list[str]()

    def call(self, name: str, *given: Any) -> None:
        self.asked.append(name)
        if name == "cuMemcpyDtoH_v2":
            target, source, size = given
            assert (source.value, size.value) == (0x5000, 8 * len(self.words))
            target[:] = self.words


WAITS = ("the producer in `ttarget.acquire` of ring 0 (4 stages)", "a consumer in `ttarget.await` of ring 0 (4 stages)")


def test_metrics_are_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Driver([64, 3, 900, 512, 40, 12345])
    monkeypatch.setattr(cuda_waits, "_WATCHED", [cuda_waits.Watched("matmul", WAITS, 0, 0x5000, made)])
    found = ts.cuda.metrics()
    assert json.loads(json.dumps(found)) == found
    assert found["waits"] == [
        {"kernel": "matmul", "wait": WAITS[0], "times": 64, "stalls": 3, "cycles": 900},
        {"kernel": "matmul", "wait": WAITS[1], "times": 512, "stalls": 40, "cycles": 12345},
    ]
    assert made.asked == ["cuCtxSynchronize", "cuMemcpyDtoH_v2"]
    assert set(found["maps"]) == {"created", "reused", "kept", "dropped"}
    assert found["seconds"] > 0
    assert found["per_second"] >= 0


def test_without_debug_builds_no_device_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_waits, "_WATCHED", [])
    assert cuda_tensor_map.metrics()["waits"] == []


def test_waits_of_a_debug_build_are_counted_and_those_of_others_are_not() -> None:
    kernel = matrix_of(nt, [(512, 256)] * 2, overrides={"contraction.block": (128, 256, 64)})
    code = emit_matrix_kernel(kernel, BACKEND.machine, bounded=True)
    for number in range(len(code.waits)):
        assert f"red.global.add.u64 [{COUNTS}+{24 * number}]" in code.text
    assert COUNTS not in BACKEND.code(kernel).text
    assert COUNTS in bounded_wait(MOST_COUNTED - 1)
    assert COUNTS not in bounded_wait(MOST_COUNTED)
