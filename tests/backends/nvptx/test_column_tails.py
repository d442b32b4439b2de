"""Tails of reduced columns: lines beyond the end are known while emitting, and nothing is loaded or computed of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.layout import Layout
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tests.backends.nvptx.kernels import parts_of
from tests.oracles.native_threads import run

BF16 = ml_dtypes.bfloat16


def logsumexp(x: Any) -> Any:
    return ts.ops.logsumexp(x, axis=1)


@given(
    st.sampled_from([(256, 64), (64, 16), (8, 128), (3, 40), (16, 8)]), st.sampled_from([32, 64, 256]),
    st.sampled_from([1, 2, 8]),
)  # fmt: skip
def test_lines_of_a_register_are_those_of_its_elements(shape: tuple[int, int], threads: int, widest: int) -> None:
    layout = Layout(shape, threads, widest)
    for register in range(layout.registers):
        found = layout.lines_of(register)
        elements = [thread * layout.vector + layout.start(register) for thread in range(threads)]
        lines = [element // shape[1] for element in elements if element < layout.size]
        assert (found is None) == layout.is_repeated
        if found is not None and lines:
            assert (found.start, found.stop) == (min(lines), max(lines) + 1)


@given(
    st.sampled_from([(256, 64), (64, 16), (8, 128), (12, 40), (16, 8)]), st.sampled_from([32, 64, 256]),
    st.sampled_from([1, 2, 8]), st.sampled_from([2, 4]),
)  # fmt: skip
def test_lines_of_threads_with_several_rows_are_those_of_their_elements(
    shape: tuple[int, int], threads: int, widest: int, rows: int
) -> None:
    """A thread has so many rows below each other: a register has every so manieth line, counted from its own."""
    layout = Layout(shape, threads, widest, rows=rows)
    everything: set[int] = set()
    for register in range(layout.registers):
        (first, near), found = layout.split(register), layout.lines_of(register)
        if found is None:
            assert layout.thin.is_repeated
            continue
        elements = [thread * layout.vector + layout.thin.start(first) for thread in range(threads)]
        lines = {element // shape[1] * rows + near for element in elements if element < layout.thin.size}
        assert (found.start, found.stop) == (min(lines), max(lines) + 1)
        everything |= lines
    assert everything in (set(range(shape[0])), set())


@pytest.mark.parametrize(("rows", "loads"), [(512, 8), (547, 9), (576, 9), (577, 10), (767, 12)])
def test_only_lines_that_are_there_are_loaded(rows: int, loads: int) -> None:
    """Tiles of 256 lines, of which a register has 64: of the third tile as many are loaded as begin before the end."""
    jitted: Any = ts.jit(logsumexp)
    tape = jitted.trace(np.broadcast_to(np.zeros((), BF16), (1053, rows, 512))).tape
    parts = parts_of(lower(tape, Options.of(backend="cuda", features=("sm_90a",))))
    ptx = compile_text(parts.codes[0].text, parts.backend.code_target).decode()
    assert ptx.count("ld.global.nc.v4.b32") == loads


@pytest.mark.parametrize("rows", [257, 300, 547])
def test_columns_with_tails_have_the_bits_of_the_cpu(rows: int) -> None:
    x = (np.random.default_rng(rows).standard_normal((300, rows, 64)) * 9).astype(BF16)
    x[:, 3, 5], x[:, :, 7] = np.inf, -np.inf
    found, wanted = run(logsumexp, [x])
    assert found.tobytes() == wanted.tobytes()
