"""Blocks that a multiprocessor holds: our arithmetic gives the driver's answer, over a grid and for kernels of ours."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator

import pytest

from tessera.backends.nvptx.register_estimate import estimate_registers
from tessera.backends.nvptx.tensor_cores import MULTIPROCESSORS
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import machine_code
from tessera.runtime.devices.cuda.driver import Module, driver, is_available
from tessera.types.machine import Usage, occupancy
from tests.backends.nvptx.kernels import PROGRAMS, lowered, parts_of
from tests.backends.nvptx.test_occupancy import ANSWERS
from tests.backends.nvptx.test_registers import many

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

THREADS = (1, 32, 33, 64, 96, 128, 160, 224, 256, 288, 384, 512, 640, 768, 1024)
SHARED = (0, 1, 128, 4000, 16 << 10, 48 << 10, 75 << 10, 76 << 10, 113 << 10, (113 << 10) + 1, 227 << 10)
LIVE = (4, 12, 20, 28, 36, 44, 60, 76, 92, 108, 124, 140, 160, 180, 200, 220, 236)
MOST_SHARED = 227 << 10
_REGISTERS = 4
"""The driver's number for how many registers a function takes."""


def registers_of(function: int) -> int:
    value = ctypes.c_int()
    driver().call("cuFuncGetAttribute", ctypes.byref(value), _REGISTERS, ctypes.c_void_p(function))
    return value.value


def blocks_of(function: int, threads: int, shared: int) -> int:
    """The driver's answer."""
    value = ctypes.c_int()
    driver().call(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        ctypes.byref(value),
        ctypes.c_void_p(function),
        threads,
        ctypes.c_size_t(shared),
    )
    return value.value


def points() -> Iterator[tuple[int, int, int, int]]:
    for live in LIVE:
        module = Module(many(live, threads=0).encode())
        function = module.function("k", MOST_SHARED)
        registers = registers_of(function)
        for threads in THREADS:
            for shared in SHARED:
                yield threads, registers, shared, blocks_of(function, threads, shared)


def test_the_arithmetic_is_the_drivers(request: pytest.FixtureRequest) -> None:
    found = list(points())
    assert len({registers for _, registers, _, _ in found}) >= 10
    if request.config.getoption("--update"):
        ANSWERS.write_text(json.dumps({"architecture": "sm_90a", "points": found}) + "\n")
    wrong = [
        (point, str(occupancy(MULTIPROCESSORS["sm_90a"], Usage(*point[:3]))))
        for point in found
        if occupancy(MULTIPROCESSORS["sm_90a"], Usage(*point[:3])).blocks != point[3]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["map", "row in registers", "columns", "product", "transpose"])
def test_kernels_of_ours_run_as_often_as_foreseen(name: str) -> None:
    """From the registers that a kernel really has.

    The estimate before that is within three fifths: it foresees loads of later iterations that the assembler may leave
    where they are, as for products of many rows by threads (227 foreseen, 145 taken).
    """
    lowering = lowered(name)
    parts = parts_of(lowering)
    for code in parts.codes:
        ptx = compile_text(code.text, parts.backend.code_target)
        function = Module(machine_code(ptx, "sm_90a")).function(code.name, code.shared)
        registers = registers_of(function)
        foreseen = occupancy(MULTIPROCESSORS["sm_90a"], Usage(code.threads, registers, code.shared))
        assert foreseen.blocks == blocks_of(function, code.threads, code.shared)
        # Up to 32 registers 64 warps run at a time, as many as ever.
        estimate = max(estimate_registers(ptx.decode()).registers, 32)
        assert estimate == pytest.approx(max(registers, 32), rel=0.6)
    assert name in PROGRAMS
