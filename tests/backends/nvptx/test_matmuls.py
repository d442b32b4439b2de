"""Dots of many blocks: what runs beside what, in which parts, and that every chosen block is one that fits."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS, contraction_block
from tessera.backends.nvptx.block_times import RATES, Rows, block_time
from tessera.backends.nvptx.hopper.fragments import FRAGMENT, Layout, Registers
from tessera.backends.nvptx.hopper.programs import cut_columns, move_up
from tessera.backends.nvptx.mma.programs import MULTICAST
from tessera.backends.nvptx.ops.wgmma_kernel import parts_of, pieces_of
from tessera.backends.nvptx.passes.overlap_mma import LAGS
from tessera.backends.nvptx.pipeline import MmaChoices
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.machine_code import compile_text
from tessera.ir.tile.choices import EPILOGUES
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, f8e4m3, f32
from tests.backends.nvptx.matrices import BACKEND, kernels_of, matrix_of, nn, nt, text_of

MANY = [(2048, 640), (2560, 640)]
"""160 blocks of 128 x 256, more than there are multiprocessors."""


def e4m3(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.bf16)


def layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, ts.ops.transpose(w)) + b, approximate="tanh")


def lower_dot(function: Any, shapes: Any, block: Any, dtype: Any = ml_dtypes.bfloat16, **choices: Any) -> SpecOp:
    (kernel,) = kernels_of(function, shapes, dtype=dtype, overrides={"contraction.block": block})
    found = replace(BACKEND, choices=MmaChoices(**choices)).matrix(kernel)
    assert found is not None
    return found


def test_the_epilogue_of_a_program_overlaps_where_there_is_a_next_one() -> None:
    text = text_of(lower_dot(layer, [*MANY, (2560,)], (128, 256, 64)))
    rest = text.split("ttarget.epilogue")[1]
    assert "gelu_tanh" in rest
    assert "ttarget.store_tile" in rest
    assert "ttarget.epilogue" not in text_of(lower_dot(layer, [*MANY, (2560,)], (128, 256, 64), epilogue="after"))
    # One block for each multiprocessor; steps too few; rows that are stored one by one.
    for shapes in ([(1024, 640), (2560, 640)], [(2048, 192), (2560, 192)], [(2048, 640), (2561, 640)]):
        assert "ttarget.epilogue" not in text_of(lower_dot(nt, shapes, (128, 256, 64)))


def test_pairs_are_for_many_programs_and_more_than_one_row() -> None:
    large = [(8192, 256), (8192, 256)]
    assert "multicast = true" in text_of(lower_dot(nt, large, (128, 256, 64)))
    assert "multicast = true" not in text_of(lower_dot(nt, large, (128, 256, 64), multicast="never"))
    assert "multicast = true" not in text_of(lower_dot(nt, MANY, (128, 256, 64)))
    assert 'half = "rows"' in text_of(lower_dot(nt, MANY, (128, 256, 64), multicast="always"))
    assert 'half = "pieces"' in text_of(lower_dot(nn, [(2048, 640), (640, 2560)], (128, 256, 64), multicast="always"))
    # Three pieces across K have no whole halves: of each piece a CTA copies half of the rows along K.
    assert 'half = "rows"' in text_of(lower_dot(nn, [(3072, 640), (640, 2560)], (192, 192, 64), multicast="always"))
    # One program of the last pair is wholly outside.
    odd = text_of(lower_dot(nt, [(2049, 640), (2560, 640)], (128, 256, 64), multicast="always"))
    assert "multicast = true" in odd
    assert "grid = [18, 10]" in odd
    single = [(128, 640), (2560, 640)]
    assert "multicast = true" not in text_of(lower_dot(nt, single, (128, 256, 64), multicast="always"))


def test_pairs_read_half_where_rows_begin_within_sectors_of_memory() -> None:
    """Rows of 3000 elements are 6000 bytes, and sectors have 32: every other row begins in the middle of one."""
    apart, whole = [(3072, 3000), (3072, 3000)], [(3072, 2992), (3072, 2992)]
    assert "multicast = true" in text_of(lower_dot(nt, apart, (192, 192, 64)))
    assert "multicast = true" not in text_of(lower_dot(nt, apart, (192, 192, 64), multicast="never"))
    assert "multicast = true" not in text_of(lower_dot(nt, whole, (192, 192, 64)))
    # Few programs are bound by nothing that pairs share.
    assert "multicast = true" not in text_of(lower_dot(nt, [(1536, 3000), (1344, 3000)], (192, 192, 64)))


def test_a_cluster_synchronizes_before_and_after_and_copies_to_both() -> None:
    text = BACKEND.code(lower_dot(nt, MANY, (128, 128, 64), multicast="always")).text
    assert '"nvvm.cluster_dim"="2,1,1"' in text
    assert text.count("barrier.cluster.wait") == 2
    assert "multicast::cluster" in text
    assert "multicast" not in BACKEND.code(lower_dot(nt, MANY, (128, 128, 64), multicast="never")).text


CASES: dict[str, tuple[Any, ...]] = {
    "rest": (layer, [*MANY, (2560,)], (128, 256, 64)),
    "odd width": (nt, MANY, (128, 144, 64)),
    "odd width across": (nn, [(2048, 640), (640, 2560)], (128, 208, 64)),
    "three pieces across": (nn, [(3072, 640), (640, 2560)], (192, 192, 64)),
    "rest of two blocks": (nt, MANY, (256, 128, 64)),
    "rest of three consumers": (nt, MANY, (192, 128, 64)),
    "parts": (e4m3, MANY, (128, 256, 64), ml_dtypes.float8_e4m3fn),
    "few rows": (nt, [(16, 640), (2560, 640)], (64, 64, 128)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_assembler_undoes_nothing(name: str) -> None:
    pairs = "always" if name in ("rest", "odd width across", "three pieces across", "parts") else "never"
    code = BACKEND.code(lower_dot(*CASES[name], multicast=pairs))
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    words = assemble_with_words(compile_text(code.text, BACKEND.code_target), "sm_90a")[1]
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words


def test_elements_beside_each_other_are_read_together() -> None:
    """What is added to a dot of bf16, for all rows or each; of an odd number of columns, one by one."""

    def reads(columns: int, block: Any, **choices: Any) -> tuple[int, int]:
        shapes = [(2048, 640), (columns, 640), (columns,)]
        text = BACKEND.code(lower_dot(layer, shapes, block, **choices)).text
        return text.count("load i32, ptr"), text.count("load bfloat, ptr") + text.count("load i16, ptr")

    # A pair for every eight columns of a part of 64, in the loop of programs and after it.
    assert reads(2560, (128, 256, 64)) == (2 * 8, 0)
    assert reads(2562, (128, 256, 64), epilogue="after") == (32, 0)
    assert reads(2561, (128, 256, 64)) == (0, 64)


def test_few_rows_are_copied_as_they_are() -> None:
    text = text_of(lower_dot(nt, [(16, 640), (2560, 640)], (64, 64, 128)))
    assert "{box = [16, 64]}" in text
    assert f"bytes = {(16 + 64) * 128 * 2}" in text


def test_dots_under_tf32_are_on_tensor_cores_and_no_others_of_f32() -> None:
    given = [np.zeros((256, 256), np.float32)] * 2
    options = Options.of(backend="cuda", features=("sm_90a",))
    for policy, wanted in ((ts.compute(ts.tf32), True), (None, False)):
        jitted = ts.jit(nt) if policy is None else ts.jit(nt, policy=policy)
        texts = lower(jitted.trace(*given).tape, options).texts
        assert any("k8.f32.tf32.tf32" in text for text in texts) == wanted
    # There is no such dot across k: an operand that lies so is written along it first.
    texts = lower(ts.jit(nn, policy=ts.compute(ts.tf32)).trace(*given).tape, options).texts
    assert any("tf32.tf32" in text for text in texts)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 32), st.integers(1, 2), st.booleans(), st.data())
def test_parts_of_columns_have_every_element_once(eights: int, blocks: int, is_packed: bool, data: Any) -> None:
    layout = Layout(FRAGMENT, blocks, 8 * eights)
    count = layout.count // (2 if is_packed else 1)
    values = [Value("i32" if is_packed else "float", f"%{at}") for at in range(count)]
    tile = Registers(layout, bf16, None, values) if is_packed else Registers(layout, f32, values)
    width = 8 * data.draw(st.integers(1, eights))
    seen: list[str] = []
    for first in range(0, 8 * eights, width):
        part = cut_columns(tile, first, min(width, 8 * eights - first))
        assert len(part.flat()) * (2 if is_packed else 1) == part.layout.count
        seen += [value.text for value in part.flat()]
    assert sorted(seen) == sorted(value.text for value in values)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(0, 7), st.integers(1, 2), st.booleans())
def test_registers_move_up_by_a_part(parts: int, eights: int, blocks: int, is_packed: bool) -> None:
    """What is in front after some trips is what was behind so many parts."""
    layout = Layout(FRAGMENT, blocks, 64 * parts + 8 * eights)
    values = [Value("i32", f"%{at}") for at in range(layout.count // (2 if is_packed else 1))]
    tile = Registers(layout, bf16, None, values) if is_packed else Registers(layout, f32, values)
    moved = tile
    for part in range(parts + 1):
        count = 64 if part < parts else 8 * eights
        assert cut_columns(moved, 0, count).flat() == cut_columns(tile, 64 * part, count).flat()
        moved = tile.like(move_up(moved, 64))


def test_an_epilogue_is_as_long_for_wide_blocks() -> None:
    """Parts of 64 columns are in a loop: the dots beside them are written once, however many there are."""
    shapes = [(4096, 4096), (4096, 4096), (4096,)]
    texts = [BACKEND.code(lower_dot(layer, shapes, (128, columns, 64))).text for columns in (128, 192, 256)]
    assert len({text.count("wgmma.commit_group") for text in texts}) == 1
    # One dot of the first program, one before the first part, one for each of its four pieces, and one after them.
    assert texts[0].count("wgmma.commit_group") == 7


def test_parts_are_all_columns() -> None:
    kernel = lower_dot(nt, MANY, (128, 144, 64))
    (rest,) = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.epilogue"]
    assert parts_of(rest) == [(0, 64), (64, 64), (128, 16)]


def pieces_in(kernel: SpecOp) -> list[tuple[int, int]]:
    (rest,) = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.epilogue"]
    return pieces_of(rest)


def test_work_beside_dots_is_in_pieces_where_there_are_steps_for_them() -> None:
    """A step for each piece, the first one, and one for the dots that come after all of them."""
    for steps, width in ((18, 16), (17, 32), (10, 32), (9, 64)):
        shapes = [(2048, 64 * steps), (2560, 64 * steps), (2560,)]
        assert pieces_in(lower_dot(layer, shapes, (128, 256, 64))) == [(first, width) for first in range(0, 256, width)]
    assert pieces_in(lower_dot(layer, [*MANY, (2560,)], (128, 144, 64)))[-2:] == [(96, 32), (128, 16)]
    # What is only stored is no work.
    assert pieces_in(lower_dot(nt, MANY, (128, 256, 64))) == [(first, 64) for first in range(0, 256, 64)]


@pytest.mark.parametrize("block", [(128, 256, 64), (256, 128, 64), (192, 128, 64), (128, 144, 64)])
def test_pieces_of_a_part_leave_together(block: tuple[int, int, int]) -> None:
    shapes = [(2048, 640), (2560, 640), (2560,)]
    made = [lower_dot(layer, shapes, block) for _ in range(2)]
    for op in made[1].walk():
        if isinstance(op, SpecOp) and op.name == "ttarget.epilogue":
            op.set_value("pieces", 1)
    texts = [BACKEND.code(kernel).text for kernel in made]
    for word in ("stmatrix", "fence.proxy.async.shared::cta", "2d.global.shared::cta", "bulk.wait_group.read"):
        assert texts[0].count(word) == texts[1].count(word) > 0
    assert texts[0].count("wgmma.commit_group") > texts[1].count("wgmma.commit_group")


def activated(x: Any, w: Any, b: Any) -> Any:
    """What an activation is of, and the activation."""
    y = (x @ w.T).cast(ts.f32) + b
    return y.cast(ts.bf16), ts.ops.silu(y).cast(ts.bf16)


def test_results_that_share_staging_buffers_leave_part_by_part() -> None:
    kernel = lower_dot(activated, [(2048, 4096), (2560, 4096), (2560,)], (128, 256, 64))
    assert pieces_in(kernel) == [(first, 64) for first in range(0, 256, 64)]
    # The second waits until the first was read, which has its buffer.
    text = BACKEND.code(kernel).text
    waits = re.findall(r"bulk\.wait_group\.read (\d)", text)
    assert waits.count("0") >= waits.count("1") > 0
    (rest,) = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.epilogue"]
    rest.set_value("pieces", 2)
    with pytest.raises(OpError, match="2 results leave through the same staging buffers"):
        verify(kernel)


def test_results_of_other_widths_wait_for_each_other() -> None:
    def widened(x: Any, w: Any, b: Any) -> Any:
        y = (x @ w.T).cast(ts.f32) + b
        return y.cast(ts.bf16), ts.ops.silu(y)

    # A part of the first is one piece, and of the second two: the last of those is in the buffer of the next part.
    kernel = lower_dot(widened, [(2048, 4096), (2560, 4096), (2560,)], (128, 256, 64))
    assert pieces_in(kernel) == [(first, 64) for first in range(0, 256, 64)]
    waits = re.findall(r"bulk\.wait_group\.read (\d)", BACKEND.code(kernel).text)
    assert set(waits) == {"0"}


@pytest.mark.parametrize(("columns", "pieces"), [(48, 1), (64, 8), (64, 3), (64, 0), (64, -1), (0, 1), (192, 2)])
def test_parts_and_pieces_that_would_not_leave_whole_are_refused(columns: int, pieces: int) -> None:
    kernel = lower_dot(layer, [(2048, 4096), (2560, 4096), (2560,)], (128, 256, 64))
    (rest,) = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.epilogue"]
    verify(kernel)
    rest.set_value("columns", columns)
    rest.set_value("pieces", pieces)
    with pytest.raises(OpError, match=r"whole 64s of columns|pieces are of 16 columns"):
        verify(kernel)


@pytest.mark.parametrize(
    ("block", "group"), [((128, 256, 64), 16), ((192, 128, 64), 8), ((256, 128, 64), 8), ((128, 176, 64), 12)]
)
def test_a_wave_of_programs_is_no_higher_than_it_is_wide(block: tuple[int, int, int], group: int) -> None:
    rows, columns, _ = block
    assert f"group = {group}}}" in text_of(lower_dot(nt, MANY, block))
    assert group * rows <= GPUS["sm_90a"].blocks / group * columns < (group + 2) ** 2 * rows / group


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 20000), st.booleans(), st.sampled_from(["", "tf32"]))
def test_the_model_has_a_block_for_every_size(m: int, n: int, k: int, n_major: bool, mode: str) -> None:
    context = {"machine": GPUS["sm_90a"], "m": Dim.of(m), "n": Dim.of(n), "k": Dim.of(k), "is_rhs_n_major": n_major}
    found = contraction_block(WGMMA_BLOCKS, {**context, "mode": mode, "dtype": f32 if mode else bf16})
    assert found in WGMMA_BLOCKS
    if m <= 64 and not mode:
        assert found[0] == 64


SIZES = (
    *((side, side, side) for side in range(1536, 10241, 256)),
    *((1536, 4608, 2048), (12288, 1536, 4096), (5120, 2560, 10240), (1024, 8192, 4096), (768, 3072, 16384)),
    *((640, 5120, 5120), (384, 6144, 6144), (2560, 1280, 20480), (5504, 2752, 2752), (4096, 11008, 4096)),
    *((6400, 1600, 6400), (2048, 5632, 2048), (896, 4864, 896), (3840, 10112, 7168), (7040, 9856, 1536)),
)


@pytest.mark.parametrize("n_major", [False, True])
def test_no_block_that_there_is_does_better_by_the_model(n_major: bool) -> None:
    """Of those to choose from none, of all whose rate was measured none by more than 2 %."""
    machine = GPUS["sm_90a"]
    for size in SIZES:
        dims = {name: Dim.of(extent) for name, extent in zip("mnk", size, strict=True)}
        found = contraction_block(WGMMA_BLOCKS, {"machine": machine, "dtype": bf16, "is_rhs_n_major": n_major, **dims})
        times = {block: block_time(block, size, 1, machine.blocks, Rows(n_major)) for block in RATES}
        offered = [times[block[:2]] for block in WGMMA_BLOCKS if block[:2] in times]
        assert times[found[:2]] == min(offered)
        assert times[found[:2]] <= 1.02 * min(times.values())


@pytest.mark.parametrize(
    ("columns", "n_major", "wanted"),
    [
        *((1024, False, 16), (2048, False, 16), (3072, False, 24), (4096, False, 32), (5120, False, 40)),
        *((8192, False, 64), (2048, True, 32), (4096, True, 32), (8192, True, 64)),
    ],
)
def test_few_rows_are_on_all_multiprocessors(columns: int, n_major: bool, wanted: int) -> None:
    dims = {name: Dim.of(extent) for name, extent in zip("mnk", (16, columns, 4096), strict=True)}
    for dtype in (bf16, f8e4m3):
        context = {"machine": GPUS["sm_90a"], "dtype": dtype, "is_rhs_n_major": n_major and dtype is bf16, **dims}
        found = contraction_block(WGMMA_BLOCKS, context)
        assert found[0] == 64
        assert dtype is not bf16 or found[1] == wanted


@pytest.mark.parametrize("block", WGMMA_BLOCKS)
def test_every_block_fits_both_orientations(block: tuple[int, int, int]) -> None:
    for function, shapes in ((nt, MANY), (nn, [(2048, 640), (640, 2560)])):
        assert matrix_of(function, shapes, overrides={"contraction.block": block}).name == "ttarget.matrix_kernel"


def test_matmuls_reach_their_peer_as_recorded() -> None:
    """Of cuBLAS, interleaved on one machine: bf16 19 parts of 20 at least, and all that are large together all."""
    file = Path(__file__).parents[3] / "benchmarks" / "results" / "gpu-products.json"
    rows = [row for row in json.loads(file.read_text())["rows"] if row["form"] in ("nt", "nn", "by_hand")]
    assert len(rows) > 30
    assert all(row["same_bits"] and row["error"] < 2.0**-8 for row in rows)
    assert all(row["ratio"] >= 0.95 for row in rows)
    large = [row["ratio"] for row in rows if min(row["size"]) >= 2048 and row["size"][0] % 2048 == 0]
    assert math.prod(large) >= 1.0


def test_choices_are_the_users_too() -> None:
    given = [np.zeros(shape, ml_dtypes.bfloat16) for shape in MANY]
    options = Options.of(
        backend="cuda",
        features=("sm_90a",),
        overrides={"matrix.multicast": MULTICAST[1], "matrix.epilogue": EPILOGUES[1], "matrix.lag": LAGS[1]},
    )
    (target,) = lower(ts.jit(nt).trace(*given).tape, options).targets
    assert target.value("multicast")
    assert "ttarget.epilogue" not in text_of(target)
