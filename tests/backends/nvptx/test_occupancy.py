"""How many blocks a multiprocessor holds: answers of the driver, laws of the arithmetic, and caps that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, f32, kernel, tile
from tessera.backends.nvptx.tensor_cores import MULTIPROCESSORS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import ScheduleError, TargetVerifyError
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.tile.write_records import write_kernel
from tessera.types.machine import RESERVED, SHARED_UNIT, Usage, occupancy, registers_for
from tests.oracles.nvptx_backend import NvptxBackend

ANSWERS = Path(__file__).parent / "occupancy.json"
"""Answers of cuOccupancyMaxActiveBlocksPerMultiprocessor on an H200, written by tests/device/test_occupancy.py."""

# Calculators of the CUDA toolkit say the same: architecture, threads, registers, shared bytes, blocks.
KNOWN = [
    ("sm_80", 128, 32, 0, 16),
    ("sm_80", 256, 64, 0, 4),
    ("sm_80", 1024, 64, 0, 1),
    ("sm_80", 256, 32, 48 << 10, 3),
    ("sm_80", 32, 16, 0, 32),
    ("sm_86", 128, 32, 0, 12),
    ("sm_86", 256, 32, 48 << 10, 2),
    ("sm_90a", 384, 168, 227 << 10, 1),
    ("sm_90a", 384, 168, 0, 1),
    ("sm_90a", 256, 255, 0, 1),
    ("sm_90a", 1024, 65, 0, 0),
    ("sm_90a", 64, 40, 0, 24),
    ("sm_90a", 128, 33, 100 << 10, 2),
]

THREADS, REGISTERS, SHARED = st.integers(1, 1024), st.integers(1, 255), st.integers(0, 227 << 10)


@pytest.mark.parametrize(("cpu", "threads", "registers", "shared", "blocks"), KNOWN)
def test_known_answers(cpu: str, threads: int, registers: int, shared: int, blocks: int) -> None:
    assert occupancy(MULTIPROCESSORS[cpu], Usage(threads, registers, shared)).blocks == blocks


def test_the_answers_of_the_driver() -> None:
    """Every point of a grid of threads, registers and shared memory that was asked on a device."""
    recorded = json.loads(ANSWERS.read_text())
    wrong = [
        point
        for point in recorded["points"]
        if occupancy(MULTIPROCESSORS[recorded["architecture"]], Usage(*point[:3])).blocks != point[3]
    ]
    assert len(recorded["points"]) >= 500
    assert wrong == []


@given(st.sampled_from(sorted(MULTIPROCESSORS)), THREADS, REGISTERS, SHARED)
def test_more_of_anything_never_leaves_registers_for_more_blocks(
    cpu: str, threads: int, registers: int, shared: int
) -> None:
    here = occupancy(MULTIPROCESSORS[cpu], Usage(threads, registers, shared))
    for more in (Usage(threads + 32, registers, shared), Usage(threads, registers + 1, shared)):
        assert occupancy(MULTIPROCESSORS[cpu], more).blocks <= here.blocks
    assert occupancy(MULTIPROCESSORS[cpu], Usage(threads, registers, shared + 128)).blocks <= here.blocks
    assert here.warps <= here.most_warps == MULTIPROCESSORS[cpu].warps
    assert dict(here.limits)[here.limiter] == here.blocks


@given(st.integers(1, 32), st.integers(1, 8))
def test_what_leaves_space_leaves_space(warps: int, blocks: int) -> None:
    has = MULTIPROCESSORS["sm_90a"]
    registers = registers_for(has, 32 * warps, blocks)
    shared = max(0, has.shared // blocks // SHARED_UNIT * SHARED_UNIT - RESERVED)
    if registers:
        assert occupancy(has, Usage(32 * warps, registers, shared)).blocks >= min(blocks, 64 // warps)
        assert registers == 255 or occupancy(has, Usage(32 * warps, registers + 1, 0)).blocks < blocks


def test_what_limits_is_reported() -> None:
    assert str(occupancy(MULTIPROCESSORS["sm_90a"], Usage(384, 168, 229440))) == (
        "1 block a multiprocessor, 12 of 64 warps, limited by registers"
    )
    assert occupancy(MULTIPROCESSORS["sm_90a"], Usage(128, 32, 100 << 10)).limiter == "shared"
    assert occupancy(MULTIPROCESSORS["sm_90a"], Usage(32, 16, 0)).limiter == "blocks"
    assert occupancy(MULTIPROCESSORS["sm_90a"], Usage(1024, 16, 0)).limiter == "warps"


# Caps.


@kernel
def shifted(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
    """Every element, and one."""
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) + 1.0


@kernel
def multiplied(a: KTile["M", "K", f32], b: KTile["K", "N", f32]) -> KTile["M", "N", f32]:
    """A dot."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, T.m, k), tile.load(b, k, T.n))
    return acc


def test_a_cap_of_registers_reaches_the_assembler() -> None:
    capped = shifted.with_schedule(Schedule(block=(16, 64), max_registers=40, max_shared=1024))
    target = NvptxBackend().lower(write_kernel(capped.program(np.zeros((64, 64), np.float32), kind="gpu")))
    assert target.value("max_registers") == 40
    assert target.value("max_shared") == 1024
    assert '"nvvm.maxnreg"="40"' in NvptxBackend().code(target).text


CAPS = {
    "registers": ("threads = 32", "threads = 32, max_registers = 12", "is 16 to 255 of a thread, got 12"),
    "many registers": ("threads = 32", "threads = 32, max_registers = 256", "got 256"),
    "shared": ("threads = 32", "threads = 32, max_shared = 96", "96 bytes, and its shared scratch alone takes 128"),
}
SCRATCH = """
builtin.module attributes {tessera.version = 4 : i64} {
  ttarget.kernel @k(%0: !ttile.buffer<[32], f32>) attributes {symbols = [], writes = [0], lanes = 32, features = ["sm_80"], scratch = 128, threads = 32} {
    ttarget.programs {grid = [1]} ({
    ^bb0(%p: !ttile.index):
      %z = ttarget.index {names = [], expr = 0} : () -> !ttile.index
      %s = ttarget.scratch {offset = 0, space = "shared"} : () -> !ttile.buffer<[32], f32>
      %v = ttarget.constant {value = 0} : () -> !ttarget.vector<[32], f32>
      ttarget.store %v, %s, %z {coords = ["j"], axes = ["j"], offset = j, pattern = "contiguous", align = 4} : (!ttarget.vector<[32], f32>, !ttile.buffer<[32], f32>, !ttile.index) -> ()
      ttarget.barrier
      %w = ttarget.load %s, %z {coords = ["j"], axes = ["j"], offset = j, pattern = "contiguous", align = 4} : (!ttile.buffer<[32], f32>, !ttile.index) -> !ttarget.vector<[32], f32>
      ttarget.store %w, %0, %z {coords = ["j"], axes = ["j"], offset = j, pattern = "contiguous", align = 4} : (!ttarget.vector<[32], f32>, !ttile.buffer<[32], f32>, !ttile.index) -> ()
      ttarget.yield
    })
    ttarget.return
  }
}
"""  # noqa: E501 - IR as it is printed


@pytest.mark.parametrize("name", CAPS)
def test_caps_that_cannot_be_kept_are_refused(name: str) -> None:
    old, new, message = CAPS[name]
    verify(parse_module(SCRATCH))
    with pytest.raises(OpError, match=message):
        verify(parse_module(SCRATCH.replace(old, new)))


def test_caps_are_for_programs_of_threads() -> None:
    text = SCRATCH.replace("ttarget.barrier", "").replace(', space = "shared"', "")
    text = text.replace('lanes = 32, features = ["sm_80"]', 'lanes = 8, features = ["avx2"]').replace(
        "threads = 32", "{}"
    )
    verify(parse_module(text.replace(", {}", "")))
    with pytest.raises(OpError, match="caps of registers and shared memory are for programs of threads"):
        verify(parse_module(text.replace("{}", "max_registers = 32")))


def test_a_schedule_says_which_cap_is_broken() -> None:
    with pytest.raises(ScheduleError, match="`max_registers` is an integer from 16 to 255, got 8"):
        Schedule(max_registers=8)
    small = multiplied.with_schedule(Schedule(block=(64, 64, 32), warps=4, max_shared=4096))
    arrays = [np.zeros((64, 64), np.float32)] * 2

    def product(a: Any, b: Any) -> Any:
        return small(a, b)

    with pytest.raises(ScheduleError, match="it needs 16384 bytes of shared memory, and `max_shared` allows 4096"):
        lower(ts.jit(product).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))


def test_shared_memory_that_code_needs_is_held_to_the_cap() -> None:
    """Some of it is only known when code is written: where threads hand tiles to each other."""
    free = multiplied.with_schedule(Schedule(block=(32, 32, 32)))
    arrays = [np.zeros((64, 64), np.float32)] * 2
    target = NvptxBackend().lower(write_kernel(free.program(*arrays, kind="gpu")))
    target.set_value("max_shared", 64)
    with pytest.raises(TargetVerifyError, match="bytes of shared memory for a block, and `max_shared` allows 64"):
        NvptxBackend().code(target)
