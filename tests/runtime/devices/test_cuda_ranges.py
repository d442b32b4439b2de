"""Ranges of a profiler, with a profiler that is a few lines of Python; and nothing where none looks on."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tessera.runtime.devices.cuda import metrics as cuda_ranges
from tessera.runtime.devices.cuda.metrics import Ranges, ranges

_TABLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)


def profiler(functions: dict[int, int], answer: int = 1) -> Any:
    """What a profiler's library does when it is told where to ask: put its functions into the group of ranges."""

    def initialize(export: Any) -> int:
        assert export(2) in (0, None)
        size, get = (ctypes.c_size_t * 2).from_address(export(1))
        assert size == 16
        places, count = ctypes.c_void_p(), ctypes.c_uint()
        assert not _TABLE(get)(7, ctypes.addressof(places), ctypes.addressof(count))
        for group in range(2, 7):
            assert _TABLE(get)(group, ctypes.addressof(places), ctypes.addressof(count)) == 1
            table = (ctypes.c_void_p * (count.value + 1)).from_address(places.value or 0)
            assert all(table[1 : count.value])
        assert _TABLE(get)(1, ctypes.addressof(places), ctypes.addressof(count)) == 1
        assert count.value == 16
        table = (ctypes.c_void_p * 17).from_address(places.value or 0)
        assert table[0] is None
        assert table[16] is None
        for number, address in functions.items():
            ctypes.c_void_p.from_address(table[number] or 0).value = address
        return answer

    return initialize


def test_a_profiler_is_given_addresses_for_its_functions() -> None:
    found = Ranges(profiler({9: 0x1000, 11: 0x2000}))
    assert found.functions() == (0x1000, 0x2000)


@pytest.mark.parametrize(("functions", "answer"), [({9: 0x1000, 11: 0x2000}, 0), ({9: 0x1000}, 1), ({}, 1)])
def test_half_a_profiler_is_none(functions: dict[int, int], answer: int) -> None:
    found = Ranges(profiler(functions, answer))
    assert found.functions() == (0, 0)


def test_a_profiler_may_begin_to_look_later() -> None:
    places: dict[int, int] = {}

    def initialize(export: Any) -> int:
        _, get = (ctypes.c_size_t * 2).from_address(export(1))
        found, count = ctypes.c_void_p(), ctypes.c_uint()
        assert _TABLE(get)(1, ctypes.addressof(found), ctypes.addressof(count)) == 1
        table = (ctypes.c_void_p * 17).from_address(found.value or 0)
        places.update({number: table[number] or 0 for number in (9, 11)})
        return 1

    made = Ranges(initialize)
    assert made.functions() == (0, 0)
    for number, address in ((9, 0x1000), (11, 0x2000)):
        ctypes.c_void_p.from_address(places[number]).value = address
    assert made.functions() == (0x1000, 0x2000)


def _refuse(path: str) -> None:
    pytest.fail(f"{path} was loaded")


def test_without_a_profiler_nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.setattr(cuda_ranges.ctypes, "CDLL", _refuse)
    assert ranges() == (0, 0)


def test_a_profiler_that_is_not_there_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/nowhere/profiler.so")
    assert ranges() == (0, 0)
