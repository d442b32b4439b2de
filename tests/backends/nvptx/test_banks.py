"""Banks of shared memory: what an access costs, what the linter says of a kernel that is wrong, and of ours."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import gpu_banks
from tessera.backends.nvptx.bank_lint import (
    Wavefronts,
    conflicts,
    core_matrix_wavefronts,
    count_wavefronts,
    shared_accesses,
    staging_wavefronts,
    swizzled_offset,
    transpose_wavefronts,
    transposed_load_wavefronts,
)
from tessera.backends.nvptx.layout import Layout, Spacing, skew_of
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.kinds.map import transposed_tile
from tessera.ir.target.ops.blocks import SWIZZLES, swizzle_index, why_not_swizzled
from tessera.types.dim import Dim
from tests.backends.nvptx.kernels import PROGRAMS, lowered
from tests.backends.nvptx.matrices import causal, full, layer, matrix_of, nn, nt, tn, wide
from tests.oracles.nvptx_backend import NvptxBackend


def lanes(step: int, count: int = 32) -> list[int | None]:
    return [step * lane for lane in range(count)]


# Accesses of a warp, bytes of each lane, and wavefronts as profilers of the vendor count them.
KNOWN: list[tuple[str, list[int | None], int, int]] = [
    ("a row of words", lanes(4), 4, 1),
    ("one word for all", lanes(0), 4, 1),
    ("every other word", lanes(8), 4, 2),
    ("a column of a 32 x 32 tile", lanes(128), 4, 32),
    ("the same with a word of padding", lanes(132), 4, 1),
    ("bytes", lanes(1), 1, 1),
    ("halves, apart by a row of 64", lanes(128), 2, 32),
    ("16 bytes each", lanes(16), 16, 4),
    ("8 bytes each", lanes(8), 8, 2),
    ("16 bytes of rows of 128", lanes(128), 16, 32),
    ("nobody", [None] * 32, 4, 1),
]


@pytest.mark.parametrize(("name", "addresses", "width", "taken"), KNOWN, ids=[case[0] for case in KNOWN])
def test_wavefronts_of_known_accesses(name: str, addresses: list[int | None], width: int, taken: int) -> None:
    assert count_wavefronts(addresses, width).taken == taken


@given(st.lists(st.integers(0, 4095), min_size=32, max_size=32), st.integers(0, 31))
def test_where_a_tile_begins_does_not_matter(words: list[int], shift: int) -> None:
    """All lanes move alike by where a tile begins, and banks only rotate."""
    here = count_wavefronts([4 * word for word in words], 4)
    assert count_wavefronts([4 * (word + shift) for word in words], 4) == here
    assert 1 <= here.degree <= 32


@given(st.sampled_from([1, 2, 4]), st.sampled_from(SWIZZLES[1:]), st.integers(0, 5), st.integers(1, 40))
def test_a_swizzle_moves_every_element_to_a_place_of_its_own(size: int, swizzle: int, power: int, rows: int) -> None:
    row = (swizzle // size or 1) << (power + 1)
    if why_not_swizzled(row, size, swizzle):
        return
    places = [swizzle_index(index, row, swizzle // size) for index in range(row * rows)]
    assert sorted(places) == list(range(row * rows))
    for start in range(0, row * rows, swizzle // size):
        piece = places[start : start + swizzle // size]
        assert piece == list(range(piece[0], piece[0] + len(piece)))  # pieces stay whole
        assert piece[0] // row == start // row  # and in their row


def test_the_swizzle_of_tma_is_its_own_inverse_and_keeps_rows() -> None:
    places = {swizzled_offset(row, column) for row in range(64) for column in range(128)}
    assert places == set(range(64 * 128))
    assert all(swizzled_offset(row, column) // 128 == row for row in range(16) for column in range(0, 128, 16))


def test_staging_and_matrix_reads_have_no_conflicts_thanks_to_the_swizzle() -> None:
    assert staging_wavefronts(2).degree == 1
    assert staging_wavefronts(2, is_swizzled=False).degree == 8
    # Pairs of f32 come in 32 bytes of each row, and the swizzle sets pieces of 16 apart: two rows share their banks.
    assert staging_wavefronts(4).degree == 2
    assert staging_wavefronts(4, is_swizzled=False).degree == 4
    assert core_matrix_wavefronts().degree == 1
    assert core_matrix_wavefronts(is_swizzled=False) == Wavefronts(8, 1)


# Kernels.

TRANSPOSED = """
builtin.module attributes {{tessera.version = 4 : i64}} {{
  ttile.kernel @transpose(%x: !ttile.buffer<[M, 32, 32], f32>, %y: !ttile.buffer<[M, 32, 32], f32>) attributes {{symbols = ["M"], grid = [M], writes = [1], schedule = {{vector = {vector}}}}} {{
    %p = ttile.program_id {{axis = 0}} : () -> !ttile.index
    %z = ttile.index {{names = [], expr = 0}} : () -> !ttile.index
    %s = ttile.scratch {{space = "shared"{swizzle}}} : () -> !ttile.buffer<[32, 32], f32>
    %t = ttile.load %x, %p, %z, %z {{coords = ["p", "a", "b"], axes = ["a", "b"], map = [p, a, b], bounds = [-1, -1]}} : (!ttile.buffer<[M, 32, 32], f32>, !ttile.index, !ttile.index, !ttile.index) -> !ttile.tile<[32, 32], f32>
    ttile.store %t, %s, %z, %z {{coords = ["a", "b"], axes = ["a", "b"], map = [a, b], bounds = [-1, -1]}} : (!ttile.tile<[32, 32], f32>, !ttile.buffer<[32, 32], f32>, !ttile.index, !ttile.index) -> ()
    ttile.barrier
    %e = ttile.index {{names = [], expr = 32}} : () -> !ttile.index
    ttile.for %z, %e {{step = 1}} ({{
    ^bb0(%c: !ttile.index):
      %u = ttile.load %s, %z, %c {{coords = ["a", "c"], axes = ["a"], map = [a, c], bounds = [-1]}} : (!ttile.buffer<[32, 32], f32>, !ttile.index, !ttile.index) -> !ttile.tile<[32], f32> loc("transpose.py":7:5)
      ttile.store %u, %y, %p, %c, %z {{coords = ["p", "c", "a"], axes = ["a"], map = [p, c, a], bounds = [-1]}} : (!ttile.tile<[32], f32>, !ttile.buffer<[M, 32, 32], f32>, !ttile.index, !ttile.index, !ttile.index) -> ()
      ttile.yield
    }}) : (!ttile.index, !ttile.index) -> ()
    ttile.return
  }}
}}
"""  # noqa: E501 - IR as it is printed


def transpose_in_shared(swizzle: int = 0, vector: int = 1) -> SpecOp:
    """Squares transposed in shared memory, for a GPU."""
    load_dialects()
    text = TRANSPOSED.format(swizzle=f", swizzle = {swizzle}" if swizzle else "", vector=vector)
    module = parse_module(text)
    verify(module)
    (kernel,) = [op for op in module.ops if isinstance(op, SpecOp)]
    return NvptxBackend().lower(kernel)


def test_a_column_that_is_read_in_one_bank_is_found_with_its_line_and_its_fix() -> None:
    (found,) = conflicts(transpose_in_shared())
    assert found.degree == 32
    assert str(found.span) == "transpose.py:7:5"
    assert str(found) == (
        "transpose.py:7:5: `ttarget.load` of shared scratch: 32-way bank conflict; give the scratch `swizzle = 4`"
    )


def test_the_fix_fixes() -> None:
    assert conflicts(transpose_in_shared(swizzle=4)) == []
    assert len(shared_accesses(transpose_in_shared(swizzle=4))) == 2
    text = NvptxBackend().code(transpose_in_shared(swizzle=4)).text
    assert text.count("xor i64") > NvptxBackend().code(transpose_in_shared()).text.count("xor i64")
    assert [access.degree for access in shared_accesses(transpose_in_shared(swizzle=16))] == [1, 4]


def test_whole_tiles_that_are_transposed_pass_through_rows_that_lie_apart() -> None:
    """Reads across whole tiles are made along the rows, and exchanged with padding between lines."""
    for vector, size in itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8)):
        shape = transposed_tile(Dim.symbol("M"), Dim.symbol("N"), size)
        layout = Layout(shape, 256, min(vector, 16 // size))
        skew = skew_of(shape[1], shape[0], layout.vector, size)
        read = Layout(shape[::-1], 256, min(16 // size, skew & -skew))
        assert [one.degree for one in transposed_load_wavefronts(layout, size, read)] == [1, 1], (vector, size)


def test_what_is_foreseen_is_what_a_profiler_counted() -> None:
    """Wavefronts of a warp's loads and stores, as `ncu` counted them on a device for 14 kernels."""
    recorded = json.loads((Path(gpu_banks.__file__).parent / "results" / "gpu_banks.json").read_text())["cases"]
    assert len(recorded) == len(gpu_banks.CASES) >= 10
    for one, now in zip(recorded, gpu_banks.foreseen(), strict=True):
        assert one["case"] == now["case"]
        assert (now["store"], now["load"]) == (one["store counted"], one["load counted"]), one["case"]


def test_transposes_are_exchanged_with_padding_between_lines() -> None:
    """Clean where threads have single elements; where they have vectors, 4-way conflicts at most, not 32-way."""
    for size in (1, 2, 4, 8):
        for vector in (1, 2) if size == 8 else (1, 2, 4):
            source, target = Layout((64, 64), 256, vector), Layout((64, 64), 256, vector)
            written, read = transpose_wavefronts(source, target, size)
            assert written.degree == 1, (size, vector)
            assert read.degree <= (1 if min(vector, 16 // size) == 1 else 4), (size, vector)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]))
def test_lines_with_padding_between_them_do_not_overlap(rows: int, columns: int, vector: int, size: int) -> None:
    """Every element has a place of its own, inside of what is asked for, and vectors begin where they are aligned."""
    source, target = Layout((rows, columns), 32, vector), Layout((columns, rows), 32, vector)
    spacing = Spacing.for_transpose(source, target, size)
    places = [spacing.start(row, columns) + column for row in range(rows) for column in range(columns)]
    assert len(set(places)) == rows * columns
    assert max(places) < spacing.start(rows, columns)
    width = min(source.vector, max(1, 16 // size))
    starts = [spacing.start(row, columns) + column for row in range(rows) for column in range(0, columns, width)]
    assert all(place % width == 0 for place in starts)


REFUSED = [
    (3, "`swizzle` is one of 0, 4, 8, 16 bytes, got 3"),
    (2, "`swizzle` is one of 0, 4, 8, 16 bytes, got 2"),
]


@pytest.mark.parametrize(("swizzle", "message"), REFUSED)
def test_a_swizzle_that_there_is_not_is_refused(swizzle: int, message: str) -> None:
    with pytest.raises(OpError, match=message):
        transpose_in_shared(swizzle=swizzle)


@pytest.mark.parametrize(
    ("shape", "space", "message"),
    [
        ("[4, 24]", "shared", "a swizzled row has a power of two of pieces"),
        ("[4, 3]", "shared", "a swizzle of 16 bytes must divide a row, which is 3 elements of 4 bytes"),
        ("[4, 4]", "shared", "two at least, got 4 elements of 4 bytes"),
        ("[4, 32]", "private", "`swizzle` orders shared memory, and this is private"),
        ("[4, M]", "shared", "rows of a static size"),
    ],
)
def test_a_swizzle_must_divide_the_row(shape: str, space: str, message: str) -> None:
    load_dialects()
    text = f"""builtin.module attributes {{tessera.version = 4 : i64}} {{
  ttile.kernel @k() attributes {{symbols = ["M"], grid = [M], writes = []}} {{
    %s = ttile.scratch {{space = "{space}", swizzle = 16}} : () -> !ttile.buffer<{shape}, f32>
    ttile.return
  }}
}}"""
    with pytest.raises(OpError, match=message):
        verify(parse_module(text))


MATRICES: dict[str, tuple[Any, list[Any]]] = {
    "nt": (nt, [(512, 256), (512, 256)]),
    "nn": (nn, [(512, 256), (256, 512)]),
    "tn": (tn, [(256, 512), (256, 512)]),
    "layer": (layer, [(512, 256), (256, 512), (512,)]),
    "f32 result": (wide, [(300, 72), (72, 264)]),
    "full": (full, [(1, 2, 256, 64), (1, 2, 384, 64), (1, 2, 384, 64)]),
    "causal": (causal, [(1, 2, 256, 64), (1, 2, 384, 64), (1, 2, 384, 64)]),
}


@pytest.mark.parametrize("name", MATRICES)
def test_our_matrix_kernels_are_clean(name: str) -> None:
    function, shapes = MATRICES[name]
    accesses = shared_accesses(matrix_of(function, shapes))
    assert accesses
    pairs = 2 if name == "f32 result" else 1
    assert max(access.degree for access in accesses) == pairs


@pytest.mark.parametrize("name", PROGRAMS)
def test_our_kernels_of_threads_are_clean(name: str) -> None:
    found = [str(access) for target in lowered(name).targets for access in conflicts(target)]
    # Small blocks of f32 have the B operand as memory has it: pairs of lanes store to one bank, once for a step of K.
    known = ["copy of the B operand: 2-way bank conflict"] if name == "product" else []
    assert [one for one in found if not any(one.endswith(text) for text in known)] == []
