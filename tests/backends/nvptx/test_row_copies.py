"""The kernel that copies rows to where TMA takes them: what it reads, and which programs have it."""

from __future__ import annotations

import ctypes
import re
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_times import SECTOR
from tessera.backends.nvptx.row_copies import ACCESSES, BLOCK, NAME, PITCH, SYMBOLS, VECTOR, pitch_of, row_copies
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import DeviceModule
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.llvm.instructions import constant_of
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.runtime.devices.cuda.race_check import watched_kernels
from tests.backends.nvptx.matrices import BACKEND, nt


def shifted(data: bytes, start: int) -> bytes:
    """16 bytes as the kernel makes them of the eight words from the multiple of 16 before them on."""
    first = start // VECTOR * VECTOR
    words = list(np.frombuffer(data[first : first + 2 * VECTOR].ljust(2 * VECTOR, b"\0"), np.uint32))
    shift = start % VECTOR
    for step in (2, 1):
        words = words[step:] if shift & 4 * step else words
    bits = (shift & 3) * 8
    made = [((int(high) << 32 | int(low)) >> bits) & 0xFFFFFFFF for low, high in pairwise(words)]
    return np.array(made[:4], np.uint32).tobytes()


@pytest.mark.parametrize("start", range(2 * VECTOR))
def test_words_are_shifted_to_where_a_row_begins(start: int) -> None:
    data = np.random.default_rng(start).bytes(4 * VECTOR)
    assert shifted(data, start) == data[start : start + VECTOR]


def test_a_thread_has_all_its_loads_under_way() -> None:
    text = row_copies(GPUS["sm_90a"]).text
    order = re.findall(r"(ld\.global\.nc\.v4|st\.global\.v4)", text)
    assert order == ["ld.global.nc.v4"] * 8 + ["st.global.v4"] * 4
    assert BLOCK == 4 * 256 * VECTOR
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    words = assemble_with_words(compile_text(text, BACKEND.code_target), "sm_90a")[1]
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words


def names_of(*shapes: tuple[int, int]) -> list[str]:
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in shapes]
    options = Options.of(backend="cuda", features=("sm_90a",))
    code: Any = lower(ts.jit(nt).trace(*arrays).tape, options).code
    assert [name for name, _ in code.accesses].count(NAME) == [one.name for one in code.codes].count(NAME)
    return [one.name for one in code.codes]


def test_programs_have_it_whose_operands_have_such_rows() -> None:
    assert NAME in names_of((640, 333), (512, 333))
    assert NAME not in names_of((640, 336), (512, 336))
    # Rows of results leave by themselves.
    assert NAME not in names_of((640, 336), (509, 336))


def test_copied_rows_begin_with_lines_of_memory() -> None:
    """Long ones: of short rows whole sectors are enough."""
    module = DeviceModule(GPUS["sm_90a"])
    f = module.kernel("k", [("i64", "width")], 32)
    for width in (2, 30, 34, 254, 256, 8194, 16400):
        unit = PITCH if width >= 256 else SECTOR
        assert constant_of(pitch_of(f, f.const_i(width))) == -(-width // unit) * unit


def test_whoever_watches_streams_knows_what_it_touches() -> None:
    fact = {"name": NAME, "maps": 0, "scratch": False, "like": NAME}
    facts = {"kernels": [fact], "called": [NAME], "accesses": {NAME: ACCESSES}}
    slots = (ctypes.c_uint64 * 6)(0x1000, 0x9000, 82, 96, 10, 0)
    parameters = (ctypes.c_void_p * 6)(*[ctypes.addressof(slots) + 8 * at for at in range(6)])
    launch = watched_kernels(facts, [7])[7].launch(0, ctypes.addressof(parameters), (0, 0), ())
    assert launch.reads == ((0x1000, 0x1000 + 820),)
    assert launch.writes == ((0x9000, 0x9000 + 960),)
    assert list(SYMBOLS) == ACCESSES["symbols"]
