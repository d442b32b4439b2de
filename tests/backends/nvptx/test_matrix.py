"""Dots on tensor cores: which kernels fit, what they become, and that the assembler takes it as it is meant."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, bf16, f32, kernel, tile
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS, contraction_block
from tessera.backends.nvptx.hopper.fragments import COLUMNS, FRAGMENT, ROWS, Layout, first_column
from tessera.backends.nvptx.mma.clipped_steps import begin_of_whole, end_of_whole
from tessera.backends.nvptx.mma.fit import check_fit
from tessera.backends.nvptx.mma.plan import plan_of
from tessera.backends.nvptx.tensor_cores import GPUS, WGMMA, UnfitError
from tessera.backends.nvptx.text import KernelCode
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.tile import INF
from tessera.types.dim import Dim
from tests.backends.nvptx.matrices import (
    BACKEND,
    attention_text,
    causal,
    dot_text,
    kernels_of,
    matrix_of,
    nn,
    nt,
    text_of,
    tn,
)
from tests.backends.nvptx.units import HEADS, PROGRAMS
from tests.oracles.nvptx_backend import NvptxBackend


def words_of(code: KernelCode) -> str:
    """What the assembler says of a kernel."""
    return assemble_with_words(compile_text(code.text, BACKEND.code_target), "sm_90a")[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_assembler_takes_kernels_as_they_are_meant(name: str) -> None:
    """No dot is serialized, no register spilled (ptxas says the first as information)."""
    function, shapes = PROGRAMS[name]
    code = BACKEND.code(matrix_of(function, shapes))
    assert "wgmma.mma_async" in code.text
    # Two CTAs of one warpgroup share a multiprocessor where heads are small.
    assert code.resident == (264 if name == "causal" else 132)
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    words = words_of(code)
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words


def test_a_row_along_k_and_one_across_are_descriptors_not_copies() -> None:
    """`w` in its memory order: transposed for the tensor cores where its rows are k, and never moved."""
    for function, major in ((nt, ""), (nn, 'rhs_major = "mn"'), (tn, 'lhs_major = "mn", rhs_major = "mn"')):
        text = text_of(matrix_of(function, PROGRAMS["tn" if function is tn else "nn" if function is nn else "nt"][1]))
        (issue,) = [line for line in text.splitlines() if "ttarget.mma_issue" in line]
        assert (major in issue) if major else "major" not in issue
        assert text.count("ttarget.copy ") == 2


def test_stages_fill_shared_memory() -> None:
    for block, stages in (((128, 256, 64), 4), ((128, 128, 64), 6), ((128, 64, 64), 8)):
        kernel = matrix_of(nt, PROGRAMS["nt"][1], overrides={"contraction.block": block})
        assert f"stages = {stages}" in text_of(kernel)


def test_a_sum_keeps_one_dot_in_flight() -> None:
    text = dot_text()
    assert "ttarget.mma_wait {left = 1}" in text
    assert "ttarget.pingpong" not in text


def test_two_dots_are_skewed_and_start_in_order() -> None:
    """The first dot of a step starts before the second of the step before; clips that do nothing are left out."""
    text = attention_text()
    steps = [part for part in text.split("ttarget.steps") if part.count("ttarget.mma_issue") >= 2]
    order = [word for word in steps[0].split() if word.startswith(("ttarget.mma_", "ttarget.pingpong"))]
    assert order[:5] == [
        *("ttarget.mma_open", "ttarget.pingpong", "ttarget.mma_issue", "ttarget.mma_open", "ttarget.mma_issue"),
    ]
    masked = text_of(matrix_of(causal, HEADS))
    bodies = [part for part in masked.split("ttarget.steps") if part.count("ttarget.mma_issue") >= 2]
    assert any("ttarget.clip" not in body for body in bodies)
    assert any("ttarget.clip" in body for body in bodies)


def test_bounded_waits_trap() -> None:
    from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel

    kernel = matrix_of(nt, PROGRAMS["nt"][1])
    assert "trap;" in emit_matrix_kernel(kernel, BACKEND.machine, bounded=True).text
    assert "trap;" not in BACKEND.code(kernel).text


def twice(x: Any) -> Any:
    return x + x


def test_what_does_not_fit_has_reasons() -> None:
    wide_sides = kernels_of(nt, [(4096, 4096), (4096, 4096)], dtype=np.float32)[0]
    with pytest.raises(UnfitError, match="there is no `wgmma` of f32 by f32 into f32"):
        plan_of(wide_sides, WGMMA)
    (adds,) = kernels_of(twice, [(64, 64)])
    with pytest.raises(UnfitError, match="it has no dots"):
        plan_of(adds, WGMMA)
    assert BACKEND.matrix(wide_sides) is None
    empty = kernels_of(nt, [(64, 0), (64, 0)])[0]
    with pytest.raises(UnfitError, match="there is nothing to copy"):
        plan_of(empty, WGMMA)


def test_other_machines_have_no_such_kernels() -> None:
    (kernel,) = kernels_of(nt, PROGRAMS["nt"][1])
    for name in ("sm_80", "sm_100a"):
        found = NvptxBackend(GPUS[name]).matrix(kernel)
        assert found is not None
        assert found.name == "ttarget.warp_kernel"
        with pytest.raises(UnfitError, match=f"cuda-{name} lacks wgmma"):
            check_fit(kernel, WGMMA, GPUS[name])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_both_narrow_floats_have_dots(dtype: Any) -> None:
    name = "bf16" if dtype is ml_dtypes.bfloat16 else "f16"
    code = BACKEND.code(matrix_of(nt, PROGRAMS["nt"][1], dtype=dtype))
    assert f"k16.f32.{name}.{name}" in code.text


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("columns", [8, 64, 192, 256])
def test_a_fragment_has_every_element_once(blocks: int, columns: int) -> None:
    """The layout of a warpgroup is a bijection, and vectors of it name its rows and columns."""
    layout = Layout(FRAGMENT, blocks, columns)
    rows, cols = Layout(ROWS, blocks, columns), Layout(COLUMNS, 1, columns)
    seen: set[tuple[int, int]] = set()
    for thread in range(128):
        lane, warp = thread % 32, thread // 32
        for place in range(layout.count):
            row = layout.first_row(layout.row(place)) + 16 * warp + lane // 4
            column = first_column(layout.column(place)) + 2 * (lane % 4)
            seen.add((row, column))
            assert layout.row(place) < rows.count
            assert layout.column(place) < cols.count
    assert seen == {(row, column) for row in range(64 * blocks) for column in range(columns)}


@pytest.mark.parametrize(
    ("size", "block"),
    [
        ((8192, 8192, 8192), (128, 256)),
        ((4096, 4096, 4096), (128, 256)),
        ((512, 4096, 4096), (128, 128)),
        ((128, 8192, 8192), (64, 128)),
        ((16, 8192, 8192), (64, 64)),
        ((16, 4096, 4096), (64, 32)),
        ((5120, 2560, 10240), (128, 200)),
        ((1536, 4608, 2048), (192, 144)),
        ((768, 3072, 16384), (128, 144)),
    ],
)
def test_blocks_are_chosen_by_waves(size: tuple[int, int, int], block: tuple[int, int]) -> None:
    names = dict(zip("mnk", map(Dim.of, size), strict=True))
    found = contraction_block(WGMMA_BLOCKS, {"machine": GPUS["sm_90a"], **names})
    assert found[:2] == block


def test_blocks_of_an_operand_across_k_begin_with_sectors_of_memory() -> None:
    """In blocks of 232 columns every other one begins within a sector: 399 us on an H200, 265 in blocks of 240."""
    names = dict(zip("mnk", map(Dim.of, (5632, 2048, 8192)), strict=True))
    layout = {"is_lhs_m_major": True, "is_rhs_n_major": True}
    found = contraction_block(WGMMA_BLOCKS, {"machine": GPUS["sm_90a"], **names, **layout})
    assert found[1] % 16 == 0


def test_rows_that_do_not_begin_at_16_bytes_get_scratch_to_be_copied() -> None:
    from tessera.compiler.compile import compile_tape
    from tessera.compiler.options import Options

    options = Options.of(backend="cuda", features=("sm_90a",))
    for k, room in ((33, True), (64, False)):
        arrays = [np.zeros((64, k), ml_dtypes.bfloat16)] * 2
        made = compile_tape(ts.jit(nt).trace(*arrays).tape, options)
        assert bool(made.metadata["scratches"]) == room


@kernel.schedule(Schedule(block=(128, 256, 64), warps=8))
def matmul(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16]) -> KTile["M", "N", bf16]:
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return tile.cast(acc, bf16)


@kernel.schedule(Schedule(block=(128, 128), warps=8))
def flash(q: KTile["B", "S", "D", bf16], k: KTile["B", "T", "D", bf16], v: KTile["B", "T", "D", bf16]) -> Any:
    T = tile.context()
    Q = tile.load(q, rows=T.m, cols=T.d)
    acc = tile.zeros((T.m, T.d), f32)
    m, total = tile.full((T.m,), -INF), tile.zeros((T.m,), f32)
    for n in tile.range_n(k.shape, T.n):
        S = tile.dot(Q, tile.transpose(tile.load(k, n, cols=T.d))) * tile.rsqrt(float(T.d))
        P, m_c, l_c = tile.softmax_online(S)
        acc, m, total = tile.softmax_accumulate(acc, m, total, tile.cast(P, bf16), tile.load(v, n, cols=T.d), m_c, l_c)
    return tile.cast(acc / total[:, None], bf16)


@kernel.schedule(Schedule(block=(128, 64, 64), warps=8))
def decayed(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16]) -> KTile["M", "N", bf16]:
    T = tile.context()
    acc, largest = tile.zeros((T.m, T.n), f32), tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        A, B = tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n)
        step = tile.dot(A, B, scope="block")
        acc = tile.dot(A, B, tile.per_block(acc * 0.5), scope="block")
        largest = tile.per_block(tile.maximum(largest, step))
    return tile.cast(acc + largest, bf16)


def decayed_by_hand(a: Any, b: Any) -> Any:
    return decayed(a, b)


def dot_by_hand(a: Any, b: Any) -> Any:
    return matmul(a, b)


def attention_by_hand(q: Any, k: Any, v: Any) -> Any:
    return flash(q, k, v)


def test_kernels_of_users_are_lowered_alike() -> None:
    """A dot and an attention written in the kernel language: a sum with one dot in flight, a skewed loop."""
    assert "ttarget.mma_wait {left = 1}" in text_of(matrix_of(dot_by_hand, [(256, 128), (128, 512)]))
    text = text_of(matrix_of(attention_by_hand, [(2, 256, 128), (2, 384, 128), (2, 384, 128)]))
    assert "ttarget.pingpong" in text
    assert text.count("ttarget.mma_issue") >= 4


def test_accumulators_are_not_made_while_dots_are_in_flight() -> None:
    """The second dot begins with what was made after the first was started, so that one is waited for before."""
    kernel = matrix_of(decayed_by_hand, [(256, 128), (128, 512)])
    body = text_of(kernel).split("ttarget.steps")[-1].split("ttarget.yield")[0]
    assert body.count("ttarget.mma_issue") == 2
    assert body.split("ttarget.mma_wait")[0].count("ttarget.mma_issue") == 1
    assert not PROBLEM.search(words_of(BACKEND.code(kernel)))


@given(
    st.integers(0, 500),
    st.integers(-300, 900),
    st.lists(st.integers(-700, 900), min_size=1, max_size=2),
    st.integers(1, 130),
)
def test_steps_without_clips_are_those_that_need_none(begin: int, length: int, bounds: list[int], step: int) -> None:
    """Before the end all steps begin at or below each bound; after it no step does."""
    end = end_of_whole(Dim.of(begin), Dim.of(begin + length), [Dim.of(bound) for bound in bounds], step).value
    assert end is not None
    whole, rest = range(begin, end, step), range(end, begin + length, step)
    assert all(at <= min(bounds) for at in whole)
    assert not any(at <= min(bounds) for at in rest)
    assert [*whole, *rest] == list(range(begin, begin + length, step))


@given(
    st.integers(0, 500),
    st.integers(-300, 900),
    st.lists(st.integers(-700, 900), min_size=1, max_size=2),
    st.integers(1, 130),
)
def test_steps_behind_what_is_hidden_begin_at_or_above_each_bound(
    low: int, length: int, bounds: list[int], step: int
) -> None:
    begin = begin_of_whole(Dim.of(low), Dim.of(low + length), [Dim.of(bound) for bound in bounds], step).value
    assert begin is not None
    hidden, whole = range(low, begin, step), range(begin, low + length, step)
    assert all(at >= max(bounds) for at in whole)
    assert not any(at >= max(bounds) for at in hidden)
    assert [*hidden, *whole] == list(range(low, low + length, step))
